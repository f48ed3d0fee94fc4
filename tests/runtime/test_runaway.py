"""The runaway bench through everything: a real HTTP wire, real tools, a real store, default settings, nobody reachable."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from endstop.core.events import Contract
from endstop.ports import Tool
from endstop.tools.functions import tool
from tests.runtime.server import go, message, pursue, serving

FILE = Contract(deliverables=["report.md"])


class Payments:
    """What really was paid."""

    def __init__(self, fails: bool) -> None:
        self.paid: list[str] = []

        @tool
        def pay(to: str) -> str:
            """Pay somebody.

            Args:
                to: Who gets the money.
            """
            self.paid.append(to)
            if fails:
                raise RuntimeError("500 server error")
            return "service temporarily unavailable, please try again later"

        @tool(effect="read")
        def first(note: str = "") -> str:
            """Read the first thing."""
            return "alpha, alpha, alpha and alpha"

        @tool(effect="read")
        def second(note: str = "") -> str:
            """Read the second thing."""
            return "beta, beta, beta and beta again"

        @tool(effect="read")
        def look_up(query: str) -> str:
            """Search."""
            return "The capital of France is Paris, as everybody knows."

        self.tools: list[Tool] = [pay, first, second, look_up]


def play(name: str) -> Any:
    """The model of a scenario: what it answers to its nth request, for ever."""
    match name[0], name:
        case "a" | "b", _:
            return lambda n: message("", ("pay", {"to": "shop"}))
        case "c", _:
            return lambda n: message("", ("pay", {"to": f"shop{n}"}))
        case "d", _:
            return lambda n: message("", ("charge_card", {"n": n}))
        case "e", _:
            return lambda n: message("", (("first", "second")[n % 2], {}))
        case "f", _:
            return lambda n: message("just to confirm", ("look_up", {"query": f"capital of France {n}"}))
        case "g", "g text":
            return lambda n: message("All done: report.md is written and complete.")
        case "g", _:
            return lambda n: message("", ("task_complete", {"summary": "report.md is written"}))
        case "h", _:
            return lambda n: message("", *[("pay", {"to": f"shop{k}"}) for k in range(60)])
        case "i", _:
            return lambda n: message("")
    return lambda n: message("", ("pay", '{"to": "sho'))


EXPECTED = {
    "a": (8, "stuck"),
    "b": (8, "stuck"),
    "c": (13, "stuck"),
    "d": (7, "stuck"),
    "e": (12, "stuck"),
    "f": (14, "stuck"),
    "g text": (3, "blocked"),
    "g call": (6, "stuck"),
    "h": (8, "stuck"),
    "i": (3, "blocked"),
    "j": (14, "stuck"),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_each_runaway_ends_by_itself_and_pays_at_most_once(name: str, tmp_path: Path) -> None:
    """Ten ways never to stop end in the documented number of model calls, naming the rule; no payment is made twice."""
    payments = Payments(fails=name in ("b", "c"))
    answer = play(name)

    async def work() -> None:
        async with serving(lambda request, n: answer(n)) as server:
            contract = FILE if name.startswith("g") else Contract()
            state, _ = await pursue(server.url, tmp_path, contract, payments.tools)
            calls, phase = EXPECTED[name]
            assert (len(server.requests), state.phase) == (calls, phase)
            ended = state.goal.ended
            assert not ended.verified
            assert re.fullmatch(r"[a-z ]+", ended.handoff["detail"]["rule"])
            assert len(payments.paid) == len(set(payments.paid))
            assert len(payments.paid) == {"a": 1, "b": 1, "c": 7, "h": 60}.get(name, 0)

    go(work())
