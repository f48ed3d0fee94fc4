"""What the openclaw loop detectors call stuck, ours ends if it goes on; polling, bulk work and progress go on."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from endstop.core.identity import digests, identity
from tests.core.cases.track import LAPS, Track

CASES: dict[str, Any] = {c["id"]: c for c in json.loads((Path(__file__).parent / "openclaw_loop.json").read_text())}
EFFECTS = {"read": "read", "list": "read", "write": "edit", "exec": "shell", "process": "read", "message": "read_outside"}
NOT_APPLICABLE = {
    "OC-L-004": "no window of calls is kept: counters belong to the goal",
    "OC-L-102": "what a new run starts with is a rule of phases: a person who speaks starts the counters again",
    "OC-L-103": "the rules are pure functions over counters: there is nothing that could raise",
}
DIFFERS = {
    "OC-L-011-10": "a call whose result is new each time is progress: no notice",
    "OC-L-031": "the same for two calls in turn",
    "OC-L-014": "the blind spot of theirs: counters are one for the goal, so it ends",
    "OC-L-040-9": "five calls in a row to a tool that does not exist are the end, not ten",
    "OC-L-101": "only the refused call of a batch does not run",
}
OTHERS = ("OC-L-001", "OC-L-022", "OC-L-040-9", "OC-L-071", "OC-L-072", "OC-L-081", "OC-L-101")


def calls(case: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The calls of a case, one by one."""
    for step in case["steps"]:
        match step["op"]:
            case "call" if "loop" not in str(step.get("result", {}).get("deniedReason", "")):
                yield from (made(step["tool"], vary(step, n), result(step, n)) for n in range(step["repeat"]))
            case "alternate":
                both = (step["first"], step["second"])
                yield from (made(one["tool"], one["args"], text(step, n, str(one))) for n, one in in_turn(both, step["calls"]))
            case "cycle":
                named = step["args_sequence"]
                paths = [f"/{n}" for n in range(15)] if isinstance(named, str) else named
                yield from (made(step["tool"], {"path": path}, text(step, n, "ok")) for n, path in in_turn(paths, step["calls"]))
            case "interleave":
                for n in range(step["same_call"]):
                    yield made("read", {"path": "/same.txt"}, "same output")
                    yield made("read", {"path": f"/filler-{n}"}, f"filler {n} says something of its own")


def in_turn(things: Sequence[Any], times: int) -> Iterator[tuple[int, Any]]:
    """(0, first), (1, second), … round and round."""
    return ((n, things[n % len(things)]) for n in range(times))


def text(step: dict[str, Any], n: int, same: str) -> str:
    """The n-th result: the same, or a new one each time."""
    return f"{n} new text" if step.get("outcomes") == "new each time" else same


def vary(step: dict[str, Any], n: int) -> dict[str, Any]:
    """Arguments of the n-th call."""
    return step["args"] | {step["vary"]: str(n)} if step.get("vary") in step["args"] else step["args"]


def result(step: dict[str, Any], n: int) -> str:
    """Result of the n-th call."""
    shown = json.dumps({k: v for k, v in step.get("result", {}).items() if k != "volatile"})
    return shown.replace("<i>", f" {n} of many")


def made(tool: str, arguments: dict[str, Any], shown: str) -> dict[str, Any]:
    """A call as a track takes it."""
    return {
        "tool": tool,
        "arguments": arguments,
        "result": shown,
        "effect": EFFECTS.get(tool, "write"),
        "poller": tool == "process" and arguments.get("action") == "poll",
    }


@pytest.mark.parametrize("name", [n for n in CASES if n not in NOT_APPLICABLE and n not in OTHERS])
def test_stuck_ends_if_it_goes_on_and_fine_goes_on(name: str) -> None:
    """Each case by its right verdict; calls that are only asked about are thresholds, not calls."""
    case, track = CASES[name], Track()
    history = list(calls(case))
    for one in history:
        track.batch(one)
    if name == "OC-L-014":
        assert track.halted == "repeat"
    elif case["expected"].get("stuck", "older_snapshot" in case["expected"]) and name not in DIFFERS:
        laps = 0
        while not track.halted:
            for one in history:
                track.batch(one)
            laps += 1
            assert laps <= LAPS
    else:
        assert (track.refused, track.halted) == ([], "")
        assert not track.noticed or name not in DIFFERS


def test_hashes_are_of_one_length_and_of_what_matters() -> None:
    """Cases 001, 022, 071, 072: order of keys no, ids and times as data yes."""
    one, two = CASES["OC-L-001"]["steps"]
    assert identity(one["tool"], one["args"]) == identity(two["tool"], two["args"])
    assert len(digests("x" * 40_000)[0]) == len(digests("x")[1]) == CASES["OC-L-022"]["expected"]["result_hash_length"]
    for name in ("OC-L-071", "OC-L-072"):
        one, two = CASES[name]["steps"]
        assert digests(json.dumps(one["result"]))[1] != digests(json.dumps(two["result"]))[1]


def test_unknown_tools_end_after_five() -> None:
    """Case 040-9, on purpose earlier than theirs."""
    track = Track()
    for _ in range(CASES["OC-L-040-9"]["steps"][0]["repeat"]):
        track.wrong(unknown=True)
    assert track.halted == "unknown tool"


def test_denials_end_like_any_standstill() -> None:
    """Case 081."""
    track = Track()
    (step, _) = CASES["OC-L-081"]["steps"]
    for _ in range(step["repeat"]):
        track.denied(step["tool"], step["args"])
    assert track.halted == "denied"


def test_a_refused_call_leaves_its_batch_alone() -> None:
    """Case 101: the calls beside it run."""
    track = Track()
    same = made("read", {"path": "/same"}, "same output")
    for _ in range(4):
        track.batch(same)
    track.batch(made("read", {"path": "/a"}, "one"), same, made("read", {"path": "/b"}, "two"))
    assert track.refused == ["repeat"]
    assert identity("read", {"path": "/b"}) in track.stall.same


def test_every_case_is_accounted_for() -> None:
    """Held, differing on purpose and not applicable make up all of them."""
    assert set(NOT_APPLICABLE) | set(DIFFERS) <= set(CASES)
    held = len(CASES) - len(NOT_APPLICABLE) - len(DIFFERS)
    sys.stdout.write(f"openclaw: {held} held, {len(DIFFERS)} differ on purpose, {len(NOT_APPLICABLE)} not applicable\n")
    assert (held, len(DIFFERS), len(NOT_APPLICABLE)) == (22, 5, 3)
