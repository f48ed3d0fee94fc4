"""Effects: what the kernel asks of the outside, with the intents that are journalled first."""

from __future__ import annotations

from typing import Any

import pytest

from endstop.core import effects
from endstop.core import events as ev
from endstop.core.decide import decide
from tests.core.sim import Sim, call, says, spec

GATED = ev.Contract(
    gates=[ev.Gate(gate_id="g", run="make test")], judge="auto", hooks=[ev.Hook(hook_id="h", on="stop", run="ok")]
)


def drive(sim: Sim) -> list[effects.AnyAct]:
    """All effects until it rests."""
    acts = []
    for _ in range(60):
        acts.append(sim.step())
        if isinstance(acts[-1], effects.Idle):
            return acts
    raise AssertionError(sim.types[-20:])


def whole() -> Sim:
    """A goal that meets every effect: a red gate goes green, the judge agrees."""

    def model(sim: Sim) -> Any:
        n = len(sim.asked)
        if n == 1:
            return says("", call("edit", path="a"))
        if n == 2:
            return says("", call("wait", seconds=5), call("task_complete", summary="done"))
        return says("", call("task_complete", summary="done"))

    def edit(arguments: dict[str, Any]) -> tuple[bool, str]:
        sim.files["a"] = "1"
        return True, "ok"

    sim = Sim(
        model,
        tools={"edit": (spec("edit", "edit"), edit)},
        contract=GATED,
        gates=lambda gate, s: ("pass", 0) if s.files else ("fail", 1),
        judge=lambda s: ev.GoalJudged(result="verdict", achieved=True, missing=[], because=[1], raw=""),
    )
    return sim


INTENT: dict[type[effects.Act], type[ev.Event]] = {
    effects.CallModel: ev.TurnStart,
    effects.RunTools: ev.ToolStart,
    effects.RunGates: ev.GateStarted,
    effects.RunHooks: ev.HookStart,
    effects.AskJudge: ev.GoalJudging,
    effects.Compact: ev.SessionCompactionStart,
}


def test_every_effect_that_leaves_the_process_carries_its_intent() -> None:
    """Model, tools, gates and judge are journalled before they run; a goal can meet every effect there is."""
    sim = whole()
    acts = drive(sim)
    assert sim.state.phase == "done"
    assert sim.state.goal.ended.verified
    assert {type(act) for act in acts} == set(effects.AnyAct.__args__) - {effects.Compact, effects.StopProcesses}  # elsewhere
    for act in acts:
        wanted = INTENT.get(type(act))
        if wanted is not None:
            assert isinstance(act.events[-1], wanted)
        if isinstance(act, effects.Record):
            assert act.events
        if isinstance(act, (effects.Wait, effects.Idle, effects.Look)):
            assert not act.events


def test_intents_match_what_is_performed() -> None:
    """As many starts as runs, with the same call, arguments and key."""
    acts = [act for act in drive(whole()) if isinstance(act, effects.RunTools)]
    assert acts
    for act in acts:
        starts = [e for e in act.events if isinstance(e, ev.ToolStart)]
        assert [(s.tool_call_id, s.arguments, s.key, s.effect) for s in starts] == [
            (r.tool_call_id, r.arguments, r.key, r.effect) for r in act.calls
        ]


def test_deciding_changes_nothing() -> None:
    """decide is pure: asked twice it says the same, at every step of a goal."""
    sim = whole()
    for _ in range(40):
        first = decide(sim.state, sim.now)
        before = repr(sim.state)
        assert decide(sim.state, sim.now) == first
        assert repr(sim.state) == before
        if isinstance(sim.step(), effects.Idle):
            return
    raise AssertionError("did not end")


def test_effects_cannot_be_changed() -> None:
    """An effect is a value."""
    with pytest.raises(AttributeError):
        effects.Idle(why="x").why = "y"  # type: ignore[misc]
