"""Limits as Python says them."""

from __future__ import annotations

from typing import Any

import pytest

import endstop
from endstop.core.limits import AXES
from endstop.library import limits
from endstop.testing import call, claims, run_scripted, says


def test_every_axis_has_a_name() -> None:
    """Each axis of the kernel can be set by one field, and by no other; single tools are under tools."""
    assert {limits._field(axis) for axis in AXES if ":" not in axis} | {"tools"} == set(endstop.Limits.__struct_fields__)


def test_three_ways_to_say_the_same() -> None:
    """Fields, texts of the command line and a dict by either name come to the same caps."""
    said = endstop.Limits(cost=2, tokens="400k", tool_calls_per_turn=3, wall="45m", tools={"deploy": 1}, rounds=endstop.NONE)
    texts = ["cost=2usd", "tokens=400k", "tool-calls/turn=3", "wall=45m", "tool:deploy=1", "rounds=none"]
    by_axis = {"cost": 2.0, "tokens": "400k", "tool-calls/turn": 3, "wall": 2700, "tool:deploy": "1", "rounds": "none"}
    by_field = {"cost": "2usd", "tokens": 400_000, "tool_calls_per_turn": 3, "wall": "45m", "tool:deploy": 1, "rounds": "none"}

    def caps(given: Any) -> dict[str, Any]:
        return {axis: endstop.Limits.parse([f"{axis}={cap}"]) for axis, cap in limits.table(given).items()}

    assert caps(said) == caps(texts) == caps(by_axis) == caps(by_field)
    assert limits.table(said) == limits.table(limits.table(said))
    assert limits.table("turns=3") == {"turns": "3.0"}


def test_none_leaves_the_default() -> None:
    """What is None is not set; the goal then has the axis's default, and NONE takes it away."""
    result = run_scripted([claims("done")], limits={"turns": 7, "cost": None, "rounds": endstop.NONE})
    queued = next(entry.event for entry in result.events if isinstance(entry.event, endstop.events.GoalQueued))
    assert (queued.limits["turns"], queued.limits["cost"], "rounds" in queued.limits) == (7.0, 5.0, False)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"cots": 1}, "no limit is called 'cots'"),
        ({"turns": 1.5}, "not a whole number"),
        ({"turns": -1}, "not an amount in turns"),
        ({"turns": True}, "not an amount in turns"),
        ({"turns": [3]}, "not an amount in turns"),
        ({"cost": float("nan")}, "not an amount in usd"),
        ({"cost": float("inf")}, "not an amount in usd"),
        ({"wall": "3 weeks"}, "not an amount in seconds"),
        (["turns"], "has no value"),
        ("turns=0", "must be above 0"),
        ({"tool:": 1}, "no limit is called 'tool:'"),
    ],
)
def test_what_is_no_limit_is_refused(given: Any, says: str) -> None:
    """Unknown axes and impossible amounts are told with a remedy before anything begins."""
    with pytest.raises(endstop.UsageError) as told:
        run_scripted([claims("done")], limits=given)
    assert says in str(told.value)
    assert told.value.hint


def test_a_wrong_amount_is_told_where_it_is_written() -> None:
    """The object itself cannot be made with an amount that is none."""
    with pytest.raises(endstop.UsageError, match="limit wall"):
        endstop.Limits(wall="2 weeks")
    assert endstop.Limits(cost=0.00001).table() == {"cost": "0.00001"}


def test_a_limit_of_one_tool_holds() -> None:
    """A tool over its own limit is refused, and the goal goes on."""
    ran: list[int] = []

    def push(number: int) -> None:
        ran.append(number)

    turns = [says("", call("push", number=n)) for n in (1, 2, 3)]
    result = run_scripted([*turns, claims("pushed")], tools=[push], limits=endstop.Limits(tools={"push": 2}))
    assert (ran, result.phase, result.spend["tool:push"]) == ([1, 2], "done", 2.0)
