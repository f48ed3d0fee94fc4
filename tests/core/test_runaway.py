"""The runaway bench, on the kernel alone: ten ways a model never stops, default settings, nobody reachable.

Scenarios and the numbers of the peers: docs/runaway.md. The same scenarios run against the whole runtime over HTTP in
tests/runtime/test_runaway.py.
"""

from __future__ import annotations

import pytest

from endstop.core import events as ev
from tests.core.sim import Sim, call, says, spec

BUSY = (True, "service temporarily unavailable, please try again")


def pay(arguments: dict) -> tuple[bool, str]:
    """A payment that answers politely."""
    return BUSY


def down(arguments: dict) -> tuple[bool, str]:
    """A payment that fails."""
    return False, "ServerError: 500"


def found(arguments: dict) -> tuple[bool, str]:
    """A search that always knows the same."""
    return True, "The capital of France is Paris, as everybody knows."


PAY = {"pay": (spec("pay"), pay)}
DOWN = {"pay": (spec("pay"), down)}
READ = {"a": (spec("a", "read"), lambda _: (True, "alpha")), "b": (spec("b", "read"), lambda _: (True, "beta"))}
SEARCH = {"search": (spec("search", "read"), found)}
FILE = ev.Contract(deliverables=["report.md"], judge="none")

SCENARIOS = {
    "a same call, polite refusal": (PAY, None, lambda s: says("", call("pay", to="x")), 8, "stuck"),
    "b same call, error": (DOWN, None, lambda s: says("", call("pay", to="x")), 8, "stuck"),
    "c variants, error": (DOWN, None, lambda s: says("", call("pay", to=f"x{len(s.asked)}")), 13, "stuck"),
    "d unknown tool": ({}, None, lambda s: says("", call("nope", n=len(s.asked))), 7, "stuck"),
    "e A-B-A-B": (READ, None, lambda s: says("", call("ab"[len(s.asked) % 2])), 12, "stuck"),
    "f already answered": (SEARCH, None, lambda s: says("", call("search", q=f"q{len(s.asked)}")), 14, "stuck"),
    "g done in words": ({}, FILE, lambda s: says("All done, report.md is written."), 3, "blocked"),
    "g done by call": ({}, FILE, lambda s: says("", call("task_complete", summary="done")), 6, "stuck"),
    "h 60 parallel calls": (PAY, None, lambda s: says("", *[call("pay", to=f"x{n}") for n in range(60)]), 8, "stuck"),
    "i empty message": ({}, None, lambda s: says(""), 3, "blocked"),
    "j malformed arguments": (PAY, None, lambda s: says("", call("pay", raw='{"to": ')), 14, "stuck"),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_runaway_ends_by_itself_after_the_calls_its_rule_allows(name: str) -> None:
    """Each scenario ends in the documented number of model calls, in a result naming the rule, and nothing is paid twice."""
    tools, contract, model, calls, phase = SCENARIOS[name]
    sim = Sim(model, tools=tools, contract=contract)
    ended = sim.run()
    assert ended is not None
    assert (len(sim.asked), ended.phase) == (calls, phase), sim.types
    assert not ended.verified
    assert ended.handoff["detail"]["rule"]
    paid = [repr(arguments) for tool, arguments in sim.executed if tool == "pay"]
    assert len(paid) == len(set(paid))
    if name.startswith("a"):
        assert len(paid) == 1
