"""The report every ended goal leaves: what it came to, what shows it, what is open, what it cost, how to go on."""

from __future__ import annotations

from typing import Any

import pytest

from endstop.core import effects
from endstop.core import events as ev
from endstop.core.handoff import CLOSING_SYSTEM, closing_prompt
from endstop.core.limits import CLOSING_INPUT
from tests.core.sim import Sim, call, says, spec

GATE = ev.Gate(gate_id="g", run="make test")
EDIT = {"edit": (spec("edit", "edit"), lambda a: (True, "edited"))}


def worked(**more: Any) -> Sim:
    """A goal with a red gate, a deliverable, a plan, changed files; capped."""
    sim = Sim(
        lambda s: says("", call("edit", n=len(s.asked))),
        tools=EDIT,
        limits={"turns": 6.0},
        gates=lambda g, s: ("fail", 2),
        contract=ev.Contract(gates=[GATE], deliverables=["out.md"], judge="none"),
        **more,
    )
    look = sim.look

    def richer(purpose: str) -> ev.WorkspaceObserved:
        seen = look(purpose)
        extra = {"paths": ["a.py"], "named": ["tests/a.py"], "protected": ["tests/a.py", "setup.cfg"]}
        return ev.WorkspaceObserved(**{f: getattr(seen, f) for f in seen.__struct_fields__} | extra)

    sim.look = richer  # type: ignore[method-assign]
    items = [ev.PlanItem(id="1", text="one", status="done"), ev.PlanItem(id="2", text="two", status="open")]
    sim.record(ev.SessionPlanChanged(operation="set", items=items))
    return sim


def test_the_handoff_says_everything_somebody_needs_who_goes_on() -> None:
    """Objective, phase, reason, missing, gates with their event, files, plan, spend, summary, next step."""
    sim = worked()
    ended = sim.run()
    assert ended is not None
    report = ended.handoff
    assert (report["objective"], report["phase"], report["verified"], report["reason"]) == (
        "do it",
        "capped",
        False,
        "limit turns reached",
    )
    assert (
        ended.missing
        == report["missing"]
        == [
            "deliverable absent: out.md",
            "verifier input modified: tests/a.py",
            "gate fails: make test (exit 2)",
            "plan: two",
        ]
    )
    (gate,) = report["gates"]
    assert (gate["run"], gate["atStart"], gate["now"], gate["fresh"]) == ("make test", "fail", "fail", False)
    assert isinstance(sim.entries[gate["event"] - 1].event, ev.GateFinished)
    assert report["deliverables"] == {"out.md": "absent"}
    assert report["changedFiles"] == ["a.py"]
    assert report["protectedChanged"] == ["tests/a.py", "setup.cfg"]
    assert report["plan"] == [{"text": "one", "status": "done"}, {"text": "two", "status": "open"}]
    assert report["spend"]["turns"] == 6
    assert report["spend"]["tool:edit"] == 5
    assert report["spend"]["active"] > 0
    assert report["detail"] == {"limit": "turns", "unit": "turns", "scope": "goal", "spent": 5, "cap": 6.0}
    assert report["next"] == "raise the limit and resume: endstop resume ID -l turns=MORE"
    assert report["summary"] == "handoff"


@pytest.mark.parametrize("target", ["capped", "stuck", "blocked", "failed", "cancelled"])
def test_every_end_but_done_says_how_to_go_on(target: Any) -> None:
    """A command to type, also where nothing was started."""
    sim = worked()
    sim.record(ev.GoalClosing(target=target, reason="because", detail={"missing": "not checked"}))
    ended = sim.run()
    assert ended is not None
    assert ended.phase == target
    assert "endstop resume" in ended.handoff["next"]
    assert ended.missing == ["the goal was not started", "not checked", "plan: two"]
    assert ended.handoff["gates"] == []
    assert ended.handoff["deliverables"] == {}


def test_what_a_judge_found_missing_stays_in_the_report() -> None:
    """Until a later return says otherwise."""
    no = ev.GoalJudged(result="verdict", achieved=False, missing=["the docs"], because=[1], raw="")
    sim = Sim(
        lambda s: says("", call("edit", n=len(s.asked)), call("task_complete", summary="x")),
        tools=EDIT,
        limits={"turns": 2.0},
        contract=ev.Contract(confront="never"),
        judge=lambda s: no,
    )
    ended = sim.run()
    assert ended is not None
    assert ended.phase == "capped"
    assert "the docs" in ended.missing


def test_a_done_goal_misses_nothing_and_has_no_next_step() -> None:
    """Its summary is the claim's."""
    sim = Sim(lambda s: says("", call("task_complete", summary="all of it")), contract=ev.Contract(judge="none"))
    ended = sim.run()
    assert ended is not None
    assert (ended.missing, ended.handoff["summary"]) == ([], "all of it")
    assert not {"next", "detail"} & set(ended.handoff)


def test_estimated_and_unpriced_spend_is_marked() -> None:
    """A number that was guessed never looks like one that was told."""
    sim = worked()
    sim.until(effects.CallModel, perform=False)
    sim.crash()
    ended = sim.run()
    assert ended is not None
    assert ended.handoff["spendEstimated"] is True


def test_the_closing_prompt_is_bounded_and_shows_only_facts() -> None:
    """Huge objectives, plans, results and file lists still fit into what is reserved for it."""
    sim = worked()
    sim.until(effects.CallModel)
    sim.state.goal.queued = ev.GoalQueued(
        **{f: getattr(sim.state.goal.queued, f) for f in ev.GoalQueued.__struct_fields__} | {"objective": "o" * 100_000}
    )
    sim.state.plan = [ev.PlanItem(id=str(n), text="p" * 5000, status="open") for n in range(500)]
    for n in range(50):
        sim.hear("h" * 20_000 + str(n))
    sim.until(effects.CallModel)
    sim.record(ev.GoalClosing(target="blocked", reason="r" * 9000, detail={}))
    prompt = closing_prompt(sim.state)
    assert len(prompt) == CLOSING_INPUT * 2
    assert "It ends as: blocked" in prompt
    assert "Changed files: a.py" in prompt


@pytest.mark.parametrize("ratio", [1 / 3, 0.5, 1.2])
def test_the_closing_prompt_fits_where_each_byte_costs_more(ratio: float) -> None:
    """Dense scripts and dear tokenizers: its input stays under the 8 k tokens reserved."""
    sim = worked()
    sim.until(effects.CallModel)
    sim.state.spend.ratio = ratio
    for n in range(50):
        sim.hear("漢字" * 5000 + str(n))
    sim.until(effects.CallModel)
    sim.state.spend.ratio = ratio
    sim.record(ev.GoalClosing(target="blocked", reason="理由" * 3000, detail={}))
    prompt = closing_prompt(sim.state)
    assert len((CLOSING_SYSTEM + prompt).encode()) * ratio <= CLOSING_INPUT
    assert prompt.startswith("Objective: do it")


def test_a_closing_prompt_before_any_look_says_what_is_known() -> None:
    """Nothing is invented."""
    sim = Sim(lambda s: says("42"))
    sim.until(effects.CallModel, perform=False)
    sim.state.evidence.look = None
    sim.record(ev.GoalClosing(target="stuck", reason="r", detail={}))
    prompt = closing_prompt(sim.state)
    assert "Missing:\n- nothing known" in prompt
    assert "Changed files" not in prompt


def test_a_claim_beside_changed_verifier_inputs_says_which_ones() -> None:
    """Green gates show nothing where files they rely on were changed; the report names those files."""
    sim = Sim(
        lambda s: says("", call("edit") if len(s.asked) == 1 else call("task_complete", summary="x")),
        tools=EDIT,
        gates=lambda g, s: ("pass", 0) if s.asked else ("fail", 1),
        contract=ev.Contract(gates=[GATE], judge="none"),
    )
    look = sim.look

    def changed(purpose: str) -> ev.WorkspaceObserved:
        seen = look(purpose)
        return ev.WorkspaceObserved(**{f: getattr(seen, f) for f in seen.__struct_fields__} | {"protected": ["setup.cfg"]})

    sim.look = changed  # type: ignore[method-assign]
    ended = sim.run()
    assert ended is not None
    assert (ended.phase, ended.verified) == ("done", False)
    assert ended.handoff["reason"] == "the gates are green, but files they rely on were changed: setup.cfg"


def test_a_goal_taken_up_again_with_more_allow_rules_keeps_those_it_had() -> None:
    """Rules given at a resume are added to the goal's, each once."""
    sim = Sim(lambda s: says("", call("edit", n=len(s.asked))), tools=EDIT, limits={"turns": 3.0}, policy=ev.Policy(allow=["a"]))
    assert sim.run() is not None
    sim.resume(allow=["a", "b"], limits={"turns": 9.0})
    goal = sim.state.goal
    assert goal is not None
    assert goal.queued.policy.allow == ["a", "b"]
