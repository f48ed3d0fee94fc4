"""Checking a claim: the cheapest and most certain evidence first, and a claim is never its own proof.

Order, first that fails returns its missing items to the model: deliverables and protected inputs, hooks, gates, judge. Broken
is not "no": a hook or gate that cannot run, or a judge that cannot be read, is tried three times, then the goal waits for it.
"""

from __future__ import annotations

from endstop.core import events as ev
from endstop.core import evidence as known
from endstop.core import hooks, processes
from endstop.core.effects import AnyAct, AskJudge, Look, Record, RunGates
from endstop.core.escalate import review
from endstop.core.events import Event
from endstop.core.goal import Claim, Goal, State
from endstop.core.handoff import EndedBy, ending
from endstop.core.limits import (
    JUDGE_INPUT,
    JUDGE_LEAST_INPUT,
    JUDGE_OUTPUT,
    Full,
    Reservation,
    closing_reserve,
    reserve,
)
from endstop.core.on_goal import BROKEN
from endstop.core.results import complete
from endstop.core.turns import capped, next_turn, nudge

BACKOFF = (60.0, 300.0, 900.0)
VERIFIER_HOURS = 24
BYTES_PER_TOKEN = 3


def check(state: State, now: float) -> AnyAct:
    """The next step of the check that runs."""
    goal, claim = state.goal, state.goal.claim if state.goal else None
    assert goal is not None
    assert claim is not None
    if claim.by == "report_blocked":
        return _blocked(state, goal, claim)
    full = verifications_full(state, goal)
    if full is not None:
        return Record(events=capped(full, "not checked"))
    if _confront_due(state, goal, claim):
        return _confront(state, goal, claim)
    if not claim.looked:
        return Look(purpose="claim")
    seen, contract = state.evidence, goal.contract
    last = seen.returned
    same = last is not None and (last.world, last.fingerprint) == (seen.world, seen.fingerprint)
    if last is not None and same and claim.by != "readiness" and last.why != "hook":  # a hook may want words, not work
        return _return(state, claim, last.why, last.missing, "Nothing changed since the last check.")
    missing = known.absent(seen, contract)
    if missing:
        return _return(state, claim, "deliverable", missing)
    missing = known.tampered(seen, contract)
    if missing:
        return _return(state, claim, "protected", missing, "Undo these changes, or ask for them with ask_user.")
    return (
        _hooks(state, claim, now)
        or _gates(state, goal, claim, now)
        or _judge(state, goal, claim, now)
        or _review(state, goal, claim)
        or _done(state, goal, claim, now)
    )


def verifications_full(state: State, goal: Goal) -> Full | None:
    """Whether another check fits."""
    cap = goal.caps.get("verifications")
    return Full("verifications", state.spend.verifications, cap) if cap and state.spend.verifications >= cap else None


# ------------------------------------------------------------------------------------------------------------ confronting


def _confront_due(state: State, goal: Goal, claim: Claim) -> bool:
    if claim.by != "task_complete" or claim.recovering or goal.contract.confront == "never":
        return False
    confronted = state.evidence.confronted
    if (goal.contract.confront == "once" and confronted >= 0) or confronted == state.evidence.world:
        return False
    return not isinstance(next_turn(state), Full)


def _confront(state: State, goal: Goal, claim: Claim) -> AnyAct:
    if not claim.looked:
        return Look(purpose="confront")
    seen, contract = state.evidence, goal.contract
    stale = [gate for gate in contract.gates if not known.fresh(seen, gate) and claim.runs.get(gate.gate_id, 0) < 2]
    if stale:
        return run_gates(state, stale, "confront")
    missing = known.absent(seen, contract) + known.tampered(seen, contract) + known.red_gates(seen, contract)
    open_items = [item.text for item in state.plan if item.status == "open"]
    text = known.confrontation(seen, contract, open_items, missing)
    confronted = ev.GoalConfronted(tool_call_id=claim.call_id, by=claim.by, evidence=text, missing=missing)
    return Record(events=(confronted, *_answer(claim, text)))


def run_gates(state: State, gates: list[ev.Gate], purpose: ev.GatePurpose) -> RunGates:
    """Run these gates now."""
    seen = state.evidence
    started = tuple(
        ev.GateStarted(gate_id=gate.gate_id, purpose=purpose, command=gate.run, world=seen.world, fingerprint=seen.fingerprint)
        for gate in gates
    )
    return RunGates(events=started, gates=tuple(gates), purpose=purpose)


def _blocked(state: State, goal: Goal, claim: Claim) -> AnyAct:
    """report_blocked: confronted once; said again, a human is asked if one can be reached, else the goal is blocked."""
    if not state.evidence.blocked_confronted:
        text = (
            "Before this goal is given up: is there another way with the tools and rights you have? Did you try it, or do you "
            "expect it not to work? If nothing is left, call report_blocked again and say exactly what a human must give."
        )
        confronted = ev.GoalConfronted(tool_call_id=claim.call_id, by=claim.by, evidence=text, missing=[claim.summary])
        return Record(events=(confronted, *_answer(claim, text)))
    asked = [q for q in state.questions.values() if q.id == f"blocked-{claim.seq}"]
    if state.kit.reachable and not asked:
        question = ev.QuestionAsked(
            question_id=f"blocked-{claim.seq}",
            question=f"The agent says it is blocked: {claim.summary}",
            options=[],
            allow_freeform=True,
            on_timeout="blocked",
        )
        return Record(events=(question, ev.GoalParked(on="question", ref=question.question_id, said=question.question)))
    if asked and asked[0].answer is not None:
        text = f"A human answered: {asked[0].answer}"
        returned = ev.GoalReturned(tool_call_id=claim.call_id, why="review", missing=[claim.summary])
        return Record(events=(returned, *_answer(claim, text)))
    detail = {"rule": "report_blocked", "needs": claim.summary}
    return Record(events=(ev.GoalClosing(target="blocked", reason=claim.summary or "blocked", detail=detail),))


# -------------------------------------------------------------------------------------------------- hooks, gates and judge


def _hooks(state: State, claim: Claim, now: float) -> AnyAct | None:
    broken = hooks.broken(state, BROKEN)
    if broken is not None:
        return _park(state, f"the stop hook cannot run: {broken.run}: {state.hooks.fault}", now)
    occasion = ("stop", str(claim.seq))
    missing = hooks.objections(state, occasion)
    return hooks.run(state, [occasion]) or (_return(state, claim, "hook", missing) if missing else None)


def _gates(state: State, goal: Goal, claim: Claim, now: float) -> AnyAct | None:
    seen = state.evidence
    for gate in goal.contract.gates:
        if seen.gates.get(gate.gate_id) and seen.gates[gate.gate_id].broken >= BROKEN:
            said = f"the gate cannot run: {gate.run}: {seen.gates[gate.gate_id].output[-200:].strip()}"
            return _park(state, said, now)
    todo = [gate for gate in goal.contract.gates if not known.fresh(seen, gate)]
    restless = [gate for gate in todo if claim.runs.get(gate.gate_id, 0) >= 2 * BROKEN]
    if restless:
        return _park(state, f"gates change the workspace in turn: {restless[0].run}", now)
    if todo:
        return run_gates(state, todo, "readiness" if claim.by == "readiness" else "claim")
    missing = known.red_gates(seen, goal.contract)
    if not missing:
        return None
    reports = [
        known.gate_report(gate, seen.gates[gate.gate_id])
        for gate in goal.contract.gates
        if seen.gates[gate.gate_id].outcome != "pass"
    ]
    return _return(state, claim, "gate", missing, "\n\n".join(reports))


def _park(state: State, said: str, now: float) -> AnyAct:
    wait = BACKOFF[min(state.evidence.parks, len(BACKOFF) - 1)]
    return Record(events=(ev.GoalParked(on="verifier", until=now + wait, said=said),))


def _judge(state: State, goal: Goal, claim: Claim, now: float) -> AnyAct | None:
    seen, kit = state.evidence, state.kit
    if not kit.judge or goal.contract.judge == "none" or (claim.by == "answer" and goal.contract.judge == "auto"):
        return None
    if claim.judged:
        return _verdict(state, claim)
    if seen.judge_broken >= BROKEN:
        said = f"the judge {kit.judge} gives no verdict: {seen.judge_fault or 'no reason known'}"
        return _park(state, f"{said}; another one: --judge MODEL, or --judge none", now)
    room = judge_room(state, goal)
    if isinstance(room, Full):
        return Record(events=capped(room, "not judged"))
    budget = room.input * BYTES_PER_TOKEN
    judging = ev.GoalJudging(
        attempt=seen.judge_broken + 1,
        model=kit.judge,
        independent=kit.judge_independent,
        evidence=ev.EvidenceRange(from_=goal.seq, to=state.seq, tool_lines=seen.tool_lines, gaps=0, bytes=budget),
        reserved=room.amounts,
    )
    return AskJudge(events=(judging,), budget=budget, max_output=room.max_output, since=goal.seq)


def judge_room(state: State, goal: Goal) -> Reservation | Full:
    """What the judge may use: as much evidence as fits, at least 4 k tokens of it."""
    keep = closing_reserve(goal.caps, state.profile.price)
    room: Reservation | Full = Full("tokens", 0, 0)
    for input_tokens in (JUDGE_INPUT, JUDGE_INPUT // 2, JUDGE_LEAST_INPUT):
        room = reserve(
            state.spend,
            goal.caps,
            input=input_tokens,
            want=JUDGE_OUTPUT,
            price=state.kit.judge_price,
            keep=keep,
            turn=False,
        )
        if isinstance(room, Reservation):
            return room
    return room


def _review(state: State, goal: Goal, claim: Claim) -> AnyAct | None:
    wanted = review(state, goal, claim)
    if isinstance(wanted, ev.QuestionAsked):
        return Record(events=(wanted, ev.GoalParked(on="question", ref=wanted.question_id, said=wanted.question)))
    return None if wanted is None else _return(state, claim, "review", [f"a human wants: {wanted}"])


def _verdict(state: State, claim: Claim) -> AnyAct | None:
    seen = state.evidence
    verdict = seen.verdict
    assert verdict is not None
    if verdict.achieved:
        return None
    if verdict.impossible:
        if seen.impossible:
            detail = {"rule": "impossible", "needs": verdict.impossible}
            return Record(events=(ev.GoalClosing(target="blocked", reason=f"impossible: {verdict.impossible}", detail=detail),))
        text = f"The judge says this goal is impossible as stated: {verdict.impossible}. If that is wrong, show it by work."
        return _return(state, claim, "impossible", [verdict.impossible, *(verdict.missing or [])], text)
    return _return(state, claim, "judge", verdict.missing or ["the judge does not see it achieved"])


# -------------------------------------------------------------------------------------------------------- return and end


def _answer(claim: Claim, text: str, *, success: bool = False) -> tuple[Event, ...]:
    """The result of the claim's call, if it was a call."""
    if claim.call_id is None:
        return ()
    return (complete(claim.call_id, text, success=success, executed=False, code="" if success else "not_done"),)


def _return(state: State, claim: Claim, why: ev.ReturnedWhy, missing: list[str], more: str = "") -> AnyAct:
    """Send the claim back: as the result of its call, silently inside a round or where a message waits, or as a nudge."""
    text = "Not done yet. Missing:\n" + "\n".join(f"- {item}" for item in missing) + (f"\n\n{more}" if more else "")
    returned = ev.GoalReturned(tool_call_id=claim.call_id, why=why, missing=missing)
    if claim.call_id is not None or state.round_open or state.inbox:
        return Record(events=(returned, *_answer(claim, text)))
    return Record(events=(returned, *nudge(state, text)))


def _done(state: State, goal: Goal, claim: Claim, now: float) -> AnyAct:
    """Everything passed: what does not stay is stopped, then the claim's result, the turn's end, and the end of the goal, in
    one append."""
    stopping = processes.stop(state)
    if stopping is not None:
        return stopping
    seen = state.evidence
    by = known.discriminating(seen, goal.contract)
    if claim.judged and seen.verdict is not None and seen.verdict.achieved:
        kind = "independent judge" if state.kit.judge_independent else "judge (same model, not independent)"
        by.append(f"{kind} {seen.judge_name}")
    events: list[Event] = [*_answer(claim, "Done.", success=True)]
    if state.turn is not None and not state.turn.ended:
        events.append(ev.TurnEnd(turn_id=state.turn.id, outcome="ok"))
    events.append(ev.SessionTaskComplete(summary=claim.summary, success=bool(by), outcome="completed"))
    events.append(ending(state, now, "done", verified_by=by, ended_by=_ended_by(claim)))
    return Record(events=tuple(events))


def _ended_by(claim: Claim) -> EndedBy:
    return claim.by if claim.by in ("answer", "readiness") else "claim"
