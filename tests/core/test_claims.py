"""Checking a claim: cheapest and most certain first, and a claim is never its own proof."""

from __future__ import annotations

from typing import Any

import pytest

from endstop.core import effects
from endstop.core import events as ev
from endstop.core.messages import Answer
from endstop.core.stall import Rules
from tests.core.sim import Sim, call, says, spec

GATE = ev.Gate(gate_id="g", run="make test")
FREE = Rules(on=False)
YES = ev.GoalJudged(result="verdict", achieved=True, missing=[], because=[1], raw="")
NO = ev.GoalJudged(result="verdict", achieved=False, missing=["the docs"], because=[1], raw="")
CANNOT = ev.GoalJudged(result="verdict", achieved=False, impossible="no such API", missing=[], because=[1], raw="")
CLAIM = call("task_complete", summary="it is done")


def contract(**more: Any) -> ev.Contract:
    """A contract without a judge, unless said."""
    return ev.Contract(**({"judge": "none"} | more))


def edit_tools(sims: list[Sim]) -> dict[str, Any]:
    """edit writes a file of the sim's, look reads nothing."""

    def edit(arguments: dict[str, Any]) -> tuple[bool, str]:
        sims[0].files[arguments.get("path", "f")] = str(arguments.get("text", len(sims[0].asked)))
        return True, "edited"

    return {"edit": (spec("edit", "edit"), edit), "look": (spec("look", "read"), lambda a: (True, str(a)))}


def goal(script: Any, terms: ev.Contract, **more: Any) -> Sim:
    """A sim whose model plays a list of answers by turn, the last one for ever."""
    sims: list[Sim] = []

    def model(sim: Sim) -> Answer | str:
        return script[min(len(sim.asked), len(script)) - 1]

    sim = Sim(model, tools=edit_tools(sims), contract=terms, **({"limits": {"turns": 40.0}} | more))
    sims.append(sim)
    return sim


def is_green(sim_file: str) -> Any:
    """A gate that passes once a file is there."""
    return lambda gate, sim: ("pass", 0) if sim_file in sim.files else ("fail", 1)


EDIT = says("", call("edit", path="f"))
DONE = says("", CLAIM)


# -------------------------------------------------------------------------------------------------------------- verified, claimed


def test_a_gate_that_was_red_and_is_green_verifies() -> None:
    """Edited, claimed, confronted, claimed again: done and verified by what discriminates."""
    sim = goal([EDIT, DONE], contract(gates=[GATE]), gates=is_green("f"))
    ended = sim.run()
    assert ended is not None
    assert (ended.phase, ended.verified, ended.ended_by) == ("done", True, "claim")
    assert ended.verified_by == ["gate make test (red at the start, green now)"]
    assert ended.missing == []
    assert len(sim.of(ev.GoalConfronted)) == 1


def test_gates_green_before_and_after_never_verify_by_themselves() -> None:
    """Done, claimed: nothing shows the objective, and that is said."""
    sim = goal([EDIT, DONE], contract(gates=[GATE]), gates=lambda g, s: ("pass", 0))
    ended = sim.run()
    assert ended is not None
    assert (ended.phase, ended.verified, ended.verified_by) == ("done", False, [])
    assert ended.handoff["reason"] == "gates still green, nothing shows the objective"


def test_nothing_that_looked_is_claimed() -> None:
    """An empty contract without a judge."""
    ended = goal([EDIT, DONE], contract()).run()
    assert ended is not None
    assert (ended.phase, ended.verified) == ("done", False)
    assert ended.handoff["reason"].startswith("claimed: nothing that looked")


def test_a_new_deliverable_verifies() -> None:
    """It was absent at the start."""
    sim = goal([says("", call("edit", path="out.md")), DONE], contract(deliverables=["out.md"]))
    ended = sim.run()
    assert ended is not None
    assert ended.verified_by == ["deliverable out.md"]


def test_an_agreeing_judge_verifies_and_says_whether_it_is_independent() -> None:
    """Gates green before and after, and a judge that agrees."""
    for independent, words in ((True, "independent judge judge"), (False, "judge (same model, not independent) judge")):
        sim = goal(
            [EDIT, DONE],
            contract(gates=[GATE], judge="auto"),
            gates=lambda g, s: ("pass", 0),
            judge=lambda s: YES,
            judge_independent=independent,
        )
        ended = sim.run()
        assert ended is not None
        assert (ended.verified, ended.verified_by) == (True, [words])
        assert sim.of(ev.GoalJudging)[0].independent is independent


def test_all_of_the_end_stands_in_one_append() -> None:
    """The claim's result, turn_end, session.task_complete, goal.ended."""
    sim = goal([DONE], contract(confront="never"))
    while True:
        act = sim.step()
        if any(isinstance(e, ev.GoalEnded) for e in act.events):
            break
    assert [type(e) for e in act.events] == [ev.ToolComplete, ev.TurnEnd, ev.SessionTaskComplete, ev.GoalEnded]
    assert (act.events[0].success, act.events[2].success, act.events[2].outcome) == (True, False, "completed")
    assert act.events[2].summary == "it is done"


# ------------------------------------------------------------------------------------------------------------------- confronting


def test_the_first_claim_is_confronted_with_evidence_and_ends_nothing() -> None:
    """Its result shows gates now and at the start, the diff, open plan items; an immediate second claim reuses the runs."""
    sim = goal([EDIT, DONE], contract(gates=[GATE]), gates=is_green("f"))
    sim.record(ev.SessionPlanChanged(operation="set", items=[ev.PlanItem(id="1", text="write docs", status="open")]))
    while not sim.of(ev.GoalConfronted):
        sim.step()
    result = sim.of(ev.ToolComplete)[-1]
    assert (result.success, result.error.code) == (False, "not_done")
    assert "Gate `make test`: pass (exit 0, at the start: fail)" in result.result.content
    assert "- write docs" in result.result.content
    assert sim.state.phase == "working"
    runs = len(sim.of(ev.GateFinished))
    sim.run()
    assert len(sim.of(ev.GateFinished)) == runs
    assert sim.state.phase == "done"


@pytest.mark.parametrize(("confront", "times"), [("once", 1), ("never", 0), ("always", 3)])
def test_how_often_a_goal_is_confronted(confront: Any, times: int) -> None:
    """always = once per world; a claim in the same world is checked."""
    script = [EDIT, DONE, DONE, says("", call("edit", path="a")), DONE, says("", call("edit", path="b")), DONE]
    sim = goal(script, contract(gates=[GATE], confront=confront), gates=is_green("b"), rules=FREE)
    ended = sim.run()
    assert ended is not None
    assert ended.phase == "done"
    assert len(sim.of(ev.GoalConfronted)) == times


def test_a_claim_after_which_no_turn_fits_is_checked_at_once() -> None:
    """The tools of the last turn run and its claim is checked."""
    sim = goal([EDIT, DONE], contract(gates=[GATE]), gates=is_green("f"), limits={"turns": 2.0})
    ended = sim.run()
    assert ended is not None
    assert (ended.phase, ended.verified) == ("done", True)
    assert not sim.of(ev.GoalConfronted)


def test_confrontation_runs_each_stale_gate_and_counts_no_verification() -> None:
    """Fresh ones are shown from their last run."""
    sim = goal([DONE], contract(gates=[GATE, ev.Gate(gate_id="h", run="lint")]), gates=lambda g, s: ("pass", 0))
    while not sim.of(ev.GoalConfronted):
        sim.step()
    assert [g.purpose for g in sim.of(ev.GateStarted)] == ["baseline", "baseline"]
    assert sim.state.spend.verifications == 0


# ------------------------------------------------------------------------------------------------------------------------ returns


def test_the_order_is_deliverables_inputs_gates_judge() -> None:
    """The first that fails is the answer; a failing gate means the judge is not asked."""
    asked: list[str] = []
    state = {"named": ["tests/a.py"]}

    def judge(sim: Sim) -> ev.GoalJudged:
        asked.append("judge")
        return NO

    terms = contract(gates=[GATE], deliverables=["out.md"], judge="auto", confront="never")
    script = [
        DONE,
        says("", call("edit", path="out.md"), CLAIM),
        says("", call("edit", path="x"), CLAIM),
        says("", call("edit", path="f"), CLAIM),
        says("", call("edit", path="y"), CLAIM),
    ]
    sim = goal(script, terms, gates=is_green("f"), judge=judge, rules=FREE, limits={"turns": 6.0})
    look = sim.look

    def with_inputs(purpose: str) -> ev.WorkspaceObserved:
        seen = look(purpose)
        if len(sim.asked) >= 3:
            state["named"] = []
        return ev.WorkspaceObserved(**{f: getattr(seen, f) for f in seen.__struct_fields__} | {"named": state["named"]})

    sim.look = with_inputs  # type: ignore[method-assign]
    sim.run()
    assert [r.why for r in sim.of(ev.GoalReturned)] == ["deliverable", "protected", "gate", "judge", "judge"]
    missing = [r.missing for r in sim.of(ev.GoalReturned)]
    assert missing[:4] == [
        ["deliverable absent: out.md"],
        ["verifier input modified: tests/a.py"],
        ["gate fails: make test (exit 1)"],
        ["the docs"],
    ]
    assert len(asked) == 2


def test_an_agent_that_edits_the_named_test_is_refused_until_it_is_undone() -> None:
    """Green gates over changed tests prove nothing; undoing the change lets the claim pass."""
    script = [
        says("", call("edit", path="tests/a.py", text="pass")),
        DONE,
        DONE,
        says("", call("edit", path="tests/a.py", text="0")),
        DONE,
    ]
    sim = goal(
        script, contract(gates=[GATE]), gates=lambda g, s: ("pass", 0) if len(s.asked) else ("fail", 1), files={"tests/a.py": "0"}
    )
    look = sim.look

    def with_inputs(purpose: str) -> ev.WorkspaceObserved:
        seen = look(purpose)
        named = ["tests/a.py"] if sim.files["tests/a.py"] != "0" else []
        return ev.WorkspaceObserved(**{f: getattr(seen, f) for f in seen.__struct_fields__} | {"named": named})

    sim.look = with_inputs  # type: ignore[method-assign]
    ended = sim.run()
    assert [r.missing for r in sim.of(ev.GoalReturned)] == [["verifier input modified: tests/a.py"]]
    assert "Undo these changes" in sim.prompt
    assert "Changed files that the verification relies on:\n- tests/a.py" in sim.prompt
    assert ended is not None
    assert (ended.phase, ended.verified) == ("done", True)


def test_a_second_claim_with_nothing_done_since_is_answered_again_and_counts() -> None:
    """No gate runs again; the verdict is the last one; four of the same are a stall."""
    sim = goal([EDIT, DONE], contract(gates=[GATE], confront="never"), gates=lambda g, s: ("fail", 1))
    ended = sim.run()
    assert ended is not None
    assert (ended.phase, ended.handoff["detail"]["rule"]) == ("stuck", "no progress")
    purposes = [g.purpose for g in sim.of(ev.GateStarted)]
    assert purposes == ["baseline", "claim"]
    assert [r.why for r in sim.of(ev.GoalReturned)] == ["gate"] * 5
    assert "Nothing changed since the last check." in sim.prompt
    assert sim.state.spend.verifications == 5


def test_a_failed_gate_is_run_again_once_the_world_moved() -> None:
    """An edit, or a foreign change of the files, makes it stale."""
    sim = goal(
        [EDIT, DONE, says("", call("edit", path="g"), CLAIM)], contract(gates=[GATE], confront="never"), gates=is_green("g")
    )
    ended = sim.run()
    assert ended is not None
    assert ended.verified
    assert [g.purpose for g in sim.of(ev.GateStarted)] == ["baseline", "claim", "claim"]


def test_gates_that_change_the_workspace_in_turn_wait_for_their_verifier() -> None:
    """Each makes the other stale: it does not run for ever."""

    def gates(gate: ev.Gate, sim: Sim) -> tuple[str, int]:
        sim.files["cache"] = gate.gate_id
        return "pass", 0

    sim = goal([DONE], contract(gates=[GATE, ev.Gate(gate_id="h", run="lint")], confront="never"), gates=gates)
    act = sim.until(effects.Wait)
    assert act.on == "verifier"
    assert "gates change the workspace in turn" in sim.state.goal.parked.said


# ------------------------------------------------------------------------------------------------------------------------- broken


@pytest.mark.parametrize("code", [126, 127])
def test_a_broken_gate_parks_after_3_in_a_row_and_each_time_after(code: int) -> None:
    """The model is not asked meanwhile; back-off 1, 5, 15 minutes; after a day it is blocked as unverifiable."""
    sim = goal(
        [EDIT, DONE], contract(gates=[GATE], confront="never"), gates=lambda g, s: ("broken", code) if s.asked else ("fail", 1)
    )
    waits = []
    for _ in range(4):
        act = sim.until(effects.Wait)
        waits.append(round(act.until - sim.now))
        sim.now = act.until
    asked = len(sim.asked)
    assert waits == [60, 300, 900, 900]
    assert [g.outcome for g in sim.of(ev.GateFinished)] == ["fail"] + ["broken"] * 6
    assert "the gate cannot run: make test" in sim.of(ev.GoalParked)[0].said
    ended = sim.run()
    assert ended is not None
    assert (ended.phase, ended.handoff["detail"]["rule"]) == ("blocked", "verifier")
    assert "unverifiable" in ended.handoff["reason"]
    assert len([a for a in sim.asked if a.purpose == "work"]) == asked
    assert sim.state.spend.verifications == 0


def test_a_repaired_gate_goes_on_from_its_wait() -> None:
    """The claim is still under check."""
    state = {"broken": True}
    sim = goal(
        [EDIT, DONE],
        contract(gates=[GATE], confront="never"),
        gates=lambda g, s: ("broken", 126) if state["broken"] and s.asked else is_green("f")(g, s),
    )
    act = sim.until(effects.Wait)
    state["broken"] = False
    sim.now = act.until
    ended = sim.run()
    assert ended is not None
    assert ended.verified
    assert len(sim.asked) == 2
    assert sim.state.evidence.parks == 0


def test_a_human_message_ends_the_wait_and_nothing_is_remembered_as_a_verdict() -> None:
    """The claim is answered not verified, does count as one, and the next claim is checked anew in the same world."""
    state = {"broken": True}
    sim = goal(
        [EDIT, DONE],
        contract(gates=[GATE], confront="never"),
        gates=lambda g, s: ("broken", 126) if state["broken"] and s.asked else is_green("f")(g, s),
    )
    sim.until(effects.Wait)
    sim.hear("I have installed make")
    sim.until(effects.CallModel)
    assert [r.why for r in sim.of(ev.GoalReturned)] == ["unverified"]
    assert "I have installed make" in sim.prompt
    state["broken"] = False
    ended = sim.run()
    assert ended is not None
    assert (ended.phase, ended.verified) == ("done", True)


@pytest.mark.parametrize("result", ["unreadable", "unreachable", "declined"])
def test_a_judge_that_gives_no_verdict_parks_after_3(result: Any) -> None:
    """Never done, never a returned claim, and each try after the wait is one."""
    answers = [ev.GoalJudged(result=result, raw="?")] * 4 + [YES]
    sim = goal([EDIT, DONE], contract(judge="auto", confront="never"), judge=lambda s: answers[len(s.of(ev.GoalJudged))])
    act = sim.until(effects.Wait)
    assert (act.on, len(sim.of(ev.GoalJudged))) == ("verifier", 3)
    sim.now = act.until
    act = sim.until(effects.Wait)
    assert len(sim.of(ev.GoalJudged)) == 4
    sim.now = act.until
    ended = sim.run()
    assert ended is not None
    assert ended.verified
    assert [j.attempt for j in sim.of(ev.GoalJudging)][:3] == [1, 2, 3]
    assert not sim.of(ev.GoalReturned)


def test_the_judge_reads_from_the_start_of_the_goal() -> None:
    """Its evidence is a range of the journal, with the number of results in it."""
    sim = goal([EDIT, DONE], contract(judge="auto", confront="never"), judge=lambda s: YES)
    act = sim.until(effects.AskJudge)
    (judging,) = act.events
    assert (judging.evidence.from_, act.since) == (2, 2)
    assert judging.evidence.to < judging.evidence.to + 1 <= len(sim.lines)
    assert judging.evidence.tool_lines == 1
    assert judging.reserved["tokens"] >= judging.reserved["input-tokens"] > 0


# -------------------------------------------------------------------------------------------------------------------------- judge


def test_a_judge_that_does_not_agree_returns_what_is_missing() -> None:
    """Its words are the claim's result; a judge that names nothing is answered in words."""
    verdicts = [NO, ev.GoalJudged(result="verdict", achieved=False, missing=[], because=[1], raw=""), YES]
    sim = goal(
        [says("", call("edit", path="f"), CLAIM)],
        contract(judge="auto", confront="never"),
        judge=lambda s: verdicts[len(s.of(ev.GoalJudged))],
    )
    ended = sim.run()
    assert ended is not None
    assert ended.verified
    assert [r.missing for r in sim.of(ev.GoalReturned)] == [["the docs"], ["the judge does not see it achieved"]]
    assert "- the docs" in sim.prompt


def test_impossible_goes_back_once_and_said_again_blocks() -> None:
    """On new evidence; the same claim in the same world is only answered again."""
    sim = goal(
        [EDIT, DONE, DONE, says("", call("edit", path="g"), CLAIM)],
        contract(judge="auto", confront="never"),
        judge=lambda s: CANNOT,
    )
    ended = sim.run()
    assert ended is not None
    assert (ended.phase, ended.handoff["detail"]["rule"]) == ("blocked", "impossible")
    assert [r.why for r in sim.of(ev.GoalReturned)] == ["impossible", "impossible"]
    assert len(sim.of(ev.GoalJudged)) == 2
    assert "impossible as stated: no such API" in sim.prompt


def test_impossible_once_and_achieved_later_is_done() -> None:
    """Who shows it by work is believed."""
    verdicts = [CANNOT, YES]
    sim = goal(
        [says("", call("edit", path="f"), CLAIM)],
        contract(judge="auto", confront="never"),
        judge=lambda s: verdicts[len(s.of(ev.GoalJudged))],
    )
    ended = sim.run()
    assert ended is not None
    assert ended.verified


@pytest.mark.parametrize(("judge", "named"), [("auto", False), ("other", True)])
def test_an_answer_is_not_shown_to_the_auto_judge(judge: str, named: bool) -> None:
    """Only a named judge is a criterion of the contract, and then an answer ends nothing."""
    sim = goal([says("It is 42.")], ev.Contract(judge=judge), judge=lambda s: YES)
    ended = sim.run()
    assert not sim.of(ev.GoalJudged)
    assert ended is not None
    assert (ended.phase == "done") is not named


# ---------------------------------------------------------------------------------------------------------------------- readiness


def test_a_round_that_ends_unclaimed_with_shown_criteria_is_done_by_readiness() -> None:
    """No claim, no confrontation: the gate went from red to green."""
    sim = goal([EDIT, says("I think that is it.")], contract(gates=[GATE]), gates=is_green("f"))
    ended = sim.run()
    assert ended is not None
    assert (ended.phase, ended.verified, ended.ended_by) == ("done", True, "readiness")
    assert len(sim.asked) == 2
    assert not sim.of(ev.GoalConfronted)


def test_after_ten_reads_since_the_last_change_readiness_is_looked_at_inside_the_round() -> None:
    """Done without another word, or a silent miss, once per world."""
    looks = [says("", call("look", n=n)) for n in range(30)]
    sim = goal([EDIT, *looks], contract(gates=[GATE]), gates=is_green("f"))
    ended = sim.run()
    assert ended is not None
    assert (ended.ended_by, len(sim.executed)) == ("readiness", 11)

    sim = goal(
        [EDIT, *looks[:25], says("", call("edit", path="g")), *looks[:12]],
        contract(gates=[GATE]),
        gates=is_green("g"),
        rules=FREE,
    )
    ended = sim.run()
    assert ended is not None
    assert (ended.ended_by, len(sim.executed)) == ("readiness", 37)
    missed = sim.of(ev.GoalReturned)
    assert [(r.why, r.tool_call_id) for r in missed] == [("gate", None)]
    assert "Not done yet" not in sim.prompt
    assert sim.state.spend.verifications == 1
    assert not sim.of(ev.StallNoticed)


def test_readiness_looks_only_after_something_was_done() -> None:
    """Ten reads in an untouched world are reading."""
    sim = goal(
        [says("", call("look", n=n)) for n in range(15)] + [DONE],
        contract(gates=[GATE]),
        gates=is_green("f"),
        limits={"turns": 14.0},
    )
    sim.run()
    assert not sim.of(ev.GoalClaimed)


@pytest.mark.parametrize("terms", [contract(gates=[GATE], baseline=False), contract(gates=[GATE])])
def test_without_anything_that_could_discriminate_readiness_never_ends_a_goal(terms: ev.Contract) -> None:
    """With the baseline off, or gates green from the start, it takes a claim."""
    sim = goal([EDIT, *[says("", call("look", n=n)) for n in range(12)], says("hm"), DONE], terms, gates=lambda g, s: ("pass", 0))
    ended = sim.run()
    assert ended is not None
    assert (ended.phase, ended.ended_by, ended.verified) == ("done", "claim", False)
    assert "readiness" not in [c.by for c in sim.of(ev.GoalClaimed)]
    assert bool([g for g in sim.of(ev.GateStarted) if g.purpose == "baseline"]) is terms.baseline


def test_readiness_asks_the_judge_once_per_world_and_that_counts() -> None:
    """A judge that disagrees is a verification and a nudge at the end of the round."""
    sim = goal(
        [EDIT, says("that is it"), says("really"), EDIT, says("so")],
        contract(gates=[GATE], judge="auto"),
        gates=is_green("f"),
        judge=lambda s: NO,
        limits={"turns": 6.0},
    )
    sim.run()
    assert len(sim.of(ev.GoalJudged)) == 2
    assert [(r.why, r.tool_call_id) for r in sim.of(ev.GoalReturned)] == [("judge", None)] * 2
    assert sim.state.spend.verifications == 2
    assert "Not done yet. Missing:\n- the docs" in sim.prompt


def test_readiness_does_not_start_where_no_verification_is_left() -> None:
    """It is the kernel's own idea: it caps nothing."""
    sim = goal(
        [EDIT, DONE, says("", call("edit", path="g")), says("so"), says("so"), says("so")],
        contract(gates=[GATE], confront="never"),
        gates=is_green("g"),
        limits={"turns": 40.0, "verifications": 1.0},
    )
    ended = sim.run()
    assert ended is not None
    assert ended.phase == "blocked"
    assert "readiness" not in [c.by for c in sim.of(ev.GoalClaimed)]


# ------------------------------------------------------------------------------------------------------------------------ answers


def test_a_plain_answer_to_an_empty_contract_ends_an_untouched_goal() -> None:
    """One turn, never confronted."""
    sim = goal([says("It is 42.")], contract())
    ended = sim.run()
    assert ended is not None
    assert (ended.phase, ended.ended_by, ended.verified) == ("done", "answer", False)
    assert ended.handoff["summary"] == "It is 42."
    assert len(sim.asked) == 1


def test_an_answer_after_calls_that_left_no_trace_is_one_too() -> None:
    """A look finds the workspace as at the start; where something changed, a nudge asks for a claim."""
    sim = goal([says("", call("edit", path="f", text="0")), says("It is 42.")], contract(), files={"f": "0"})
    ended = sim.run()
    assert ended is not None
    assert ended.ended_by == "answer"
    sim = goal([EDIT, says("It is 42."), DONE], contract())
    ended = sim.run()
    assert ended is not None
    assert ended.ended_by == "claim"
    assert "call task_complete" in sim.prompt


@pytest.mark.parametrize("finish", ["content_filter", "length", "cut"])
def test_an_answer_that_was_cut_is_none(finish: str) -> None:
    """Half a sentence ends nothing."""
    sim = goal([says("It is 4", finish=finish), says("It is 42.")], contract())
    ended = sim.run()
    assert ended is not None
    assert (len(sim.asked), ended.handoff["summary"]) == (2, "It is 42.")


def test_an_empty_answer_is_none() -> None:
    """White space says nothing."""
    ended = goal([says(" \n ")], contract()).run()
    assert ended is not None
    assert ended.phase == "blocked"


# ----------------------------------------------------------------------------------------------------------------- report_blocked

BLOCKED = says("", call("report_blocked", reason="no key", needs=["API key"]))


def test_report_blocked_is_confronted_once_and_then_blocks_where_nobody_is_reachable() -> None:
    """Apart from the confrontation of claims; no verification."""
    sim = goal([EDIT, BLOCKED], contract(gates=[GATE]), gates=lambda g, s: ("fail", 1))
    ended = sim.run()
    assert ended is not None
    assert (ended.phase, ended.ended_by) == ("blocked", "report")
    assert ended.handoff["detail"]["needs"] == "no key\nNeeds: API key"
    assert [c.by for c in sim.of(ev.GoalConfronted)] == ["report_blocked"]
    assert sim.state.spend.verifications == 0
    done = sim.of(ev.SessionTaskComplete)
    assert [(d.outcome, d.success) for d in done] == [("blocked", False)]
    assert sim.types[-1] == "goal.ended"
    assert sim.types[-2] == "session.task_complete"


def test_with_a_human_reachable_the_second_report_is_a_question() -> None:
    """His answer goes back as the call's result, and a later claim is checked, not answered with the report."""
    sim = goal([EDIT, BLOCKED, BLOCKED, DONE], contract(gates=[GATE], confront="never"), gates=is_green("f"), reachable=True)
    act = sim.until(effects.Wait)
    assert act.on == "question"
    assert "no key" in sim.of(ev.QuestionAsked)[0].question
    sim.hear("the key is in .env")
    ended = sim.run()
    assert "A human answered: the key is in .env" in sim.prompt
    assert [r.why for r in sim.of(ev.GoalReturned)] == ["review"]
    assert ended is not None
    assert (ended.phase, ended.verified) == ("done", True)


def test_a_report_nobody_answers_is_blocked() -> None:
    """The question expires: silence is no answer."""
    sim = goal([BLOCKED], contract(gates=[GATE]), reachable=True)
    sim.until(effects.Wait)
    sim.record(ev.QuestionExpired(question_id=sim.of(ev.QuestionAsked)[0].question_id))
    ended = sim.run()
    assert ended is not None
    assert (ended.phase, ended.handoff["detail"]["rule"]) == ("blocked", "no answer")


def test_the_confrontation_of_a_report_does_not_use_up_that_of_a_claim() -> None:
    """Each is confronted once."""
    sim = goal([EDIT, BLOCKED, DONE], contract(gates=[GATE]), gates=is_green("f"))
    sim.run()
    assert [c.by for c in sim.of(ev.GoalConfronted)] == ["report_blocked", "task_complete"]
    assert sim.state.phase == "done"


# ---------------------------------------------------------------------------------------------------------------------- baseline


def test_before_the_first_turn_every_gate_runs_once() -> None:
    """What was failing already is known."""
    sim = goal(
        [DONE],
        contract(gates=[GATE, ev.Gate(gate_id="h", run="lint")]),
        gates=lambda g, s: ("fail", 1) if g.gate_id == "h" else ("pass", 0),
    )
    sim.until(effects.CallModel)
    assert sim.types.index("workspace.observed") < sim.types.index("gate.started") < sim.types.index("assistant.turn_start")
    gates = sim.state.evidence.gates
    assert {name: gates[name].baseline for name in gates} == {"g": "pass", "h": "fail"}


def test_a_gate_that_a_crash_cut_at_the_start_runs_again() -> None:
    """Its baseline is not known yet."""
    sim = goal([DONE], contract(gates=[GATE]), gates=lambda g, s: ("fail", 1))
    sim.until(effects.RunGates, perform=False)
    sim.crash()
    sim.until(effects.CallModel)
    assert len(sim.of(ev.GateStarted)) == 2
    assert sim.state.evidence.gates["g"].baseline == "fail"


def test_a_command_not_found_at_the_start_is_red_and_what_brings_it_is_the_work() -> None:
    """The gate names a script that the agent has to write."""
    sim = goal(
        [says("", call("edit", path="run.sh")), DONE],
        contract(gates=[GATE]),
        gates=lambda g, s: ("pass", 0) if s.files else ("broken", 127),
    )
    ended = sim.run()
    assert ended is not None
    assert ended.verified
