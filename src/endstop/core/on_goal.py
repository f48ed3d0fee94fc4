"""What looks, gates, the goal's phases, stalls and limits change in the state: one function per event type."""

from __future__ import annotations

from endstop.core import events as ev
from endstop.core import evidence, hooks
from endstop.core.codec import Entry
from endstop.core.context import Window, opening
from endstop.core.drift import stands
from endstop.core.evidence import Evidence, GateState
from endstop.core.goal import Claim, Closing, Goal, Handlers, Hooks, Parked, State, open_round, with_rules
from endstop.core.limits import Spend
from endstop.core.messages import UserText
from endstop.core.stall import Stall

HANDLERS = Handlers()

BROKEN = 3
"""Broken checks in a row after which the goal waits for its verifier."""


# ------------------------------------------------------------------------------------------------------ world and gates


@HANDLERS.on(ev.WorkspaceObserved)
def _workspace_observed(state: State, entry: Entry, event: ev.WorkspaceObserved) -> None:
    seen = state.evidence
    if event.purpose == "baseline":
        seen.baseline = event
    elif event.fingerprint != seen.fingerprint and seen.looked == seen.world:
        seen.touch()  # somebody else changed it: gates from before are stale
    seen.look, seen.looked, seen.fingerprint = event, seen.world, event.fingerprint
    state.look_due = False
    state.stall.saw(event.fingerprint)
    if state.goal is not None and state.goal.claim is not None:
        state.goal.claim.looked = entry.seq


@HANDLERS.on(ev.GateStarted)
def _gate_started(state: State, entry: Entry, event: ev.GateStarted) -> None:
    state.evidence.gates.setdefault(event.gate_id, GateState()).started = True
    claim = state.goal.claim if state.goal else None
    if claim is not None:
        claim.runs[event.gate_id] = claim.runs.get(event.gate_id, 0) + 1


@HANDLERS.on(ev.GateFinished)
def _gate_finished(state: State, entry: Entry, event: ev.GateFinished) -> None:
    seen = state.evidence
    gate = seen.gates.setdefault(event.gate_id, GateState())
    better = evidence.finished(seen, gate, event, entry.seq)
    if not gate.baseline and state.turn is None:
        gate.baseline, gate.baseline_collected = gate.outcome, event.collected
    if event.fingerprint:
        seen.fingerprint = event.fingerprint
        state.stall.fingerprints.add(event.fingerprint)
    if better:
        state.stall.progress()


# ------------------------------------------------------------------------------------------------------------------- goal


@HANDLERS.on(ev.GoalQueued)
def _goal_queued(state: State, entry: Entry, event: ev.GoalQueued) -> None:
    state.goal = Goal(event, dict(event.limits), entry.seq)
    state.spend, state.stall = Spend(since=entry.time), Stall()
    state.evidence, state.window = Evidence(), Window()
    state.window.add(UserText(opening(event)), entry.seq)
    state.turn, state.memo, state.plan, state.inbox = None, {}, [], []
    state.questions, state.grants = {}, {}
    state.stop, state.failures, state.answered, state.round_open = "", 0, False, False
    state.compacting, state.compaction_misses = None, 0
    state.exits, state.process_waits, state.denied = {}, 0, []
    state.model, state.tried = event.model, []
    state.recover, state.look_due, state.crashes = False, False, 0
    state.hooks = Hooks()
    hooks.arises(state, ("user_prompt", ""))


@HANDLERS.on(ev.GoalStarted)
def _goal_started(state: State, entry: Entry, event: ev.GoalStarted) -> None:
    if state.goal is not None:
        state.goal.started = True
    hooks.arises(state, ("session_start", "startup"))
    open_round(state)


@HANDLERS.on(ev.GoalClaimed)
def _goal_claimed(state: State, entry: Entry, event: ev.GoalClaimed) -> None:
    if state.goal is None:
        return
    recovering = state.turn is not None and state.turn.purpose == "recover"
    state.goal.claim = Claim(event.by, event.tool_call_id, event.summary, entry.seq, recovering)
    if event.by == "readiness":
        state.evidence.ready_world = state.evidence.world


@HANDLERS.on(ev.GoalConfronted)
def _goal_confronted(state: State, entry: Entry, event: ev.GoalConfronted) -> None:
    if state.goal is None:
        return
    if event.by == "report_blocked":
        state.evidence.blocked_confronted = True
    else:
        state.evidence.confronted = state.evidence.world
        _stands(state, entry, event.missing, event.tool_call_id)
    state.goal.claim = None


@HANDLERS.on(ev.GoalReturned)
def _goal_returned(state: State, entry: Entry, event: ev.GoalReturned) -> None:
    if state.goal is None:
        return
    claim = state.goal.claim
    if claim is not None and (claim.by in ("task_complete", "answer") or claim.judged):
        state.spend.verifications += 1
    seen = state.evidence
    if event.why != "unverified" and (claim is None or claim.by != "report_blocked"):  # those were no verdict
        seen.returned = evidence.Returned(event.why, event.missing, seen.world, seen.fingerprint)
    if event.why == "impossible" and seen.verdict is not None:
        seen.impossible = seen.verdict.impossible or "impossible"
    _stands(state, entry, event.missing, event.tool_call_id)
    state.goal.claim = None


def _stands(state: State, entry: Entry, missing: list[str], call_id: str | None) -> None:
    if call_id is None and state.round_open:
        return  # readiness missed inside a round: nobody claimed anything
    seen = state.evidence
    red = any(gate.outcome == "fail" for gate in seen.gates.values())
    stands(state.stall, state.kit.rules, entry.seq, evidence.standing(seen, missing), seen.fingerprint, red, call_id)


@HANDLERS.on(ev.GoalJudging)
def _goal_judging(state: State, entry: Entry, event: ev.GoalJudging) -> None:
    state.spend.reserved = event.reserved
    state.evidence.judge_name, state.evidence.judge_independent = event.model, event.independent
    if state.goal is not None and state.goal.claim is not None:
        state.goal.claim.judging = True


@HANDLERS.on(ev.GoalJudged)
def _goal_judged(state: State, entry: Entry, event: ev.GoalJudged) -> None:
    seen = state.evidence
    state.spend.reserved = {}
    if state.goal is not None and state.goal.claim is not None:
        state.goal.claim.judging = False
        state.goal.claim.judged = event.result == "verdict"
    if event.result == "verdict":
        seen.verdict, seen.verdict_seq, seen.judge_broken, seen.parks = event, entry.seq, 0, 0
    else:
        seen.judge_broken += 1
        seen.judge_fault = event.why or event.result


@HANDLERS.on(ev.GoalParked)
def _goal_parked(state: State, entry: Entry, event: ev.GoalParked) -> None:
    if state.goal is None:
        return
    left: ev.Phase = "checking" if state.goal.claim is not None else "working"
    state.goal.parked = Parked(event.on, event.ref, event.until, entry.time, event.said, left)
    state.round_parked = True
    if event.on == "process":
        state.process_waits += 1
    if event.on == "verifier":
        seen = state.evidence
        seen.broken_since = seen.broken_since if seen.parks else entry.time
        seen.parks += 1
    if state.stall.park:
        state.stall.park = False
        state.stall.polls += 1
    if event.on == "model" and state.turn is not None:
        state.turn.handled = True


@HANDLERS.on(ev.GoalResumed)
def _goal_resumed(state: State, entry: Entry, event: ev.GoalResumed) -> None:
    goal = state.goal
    if goal is None:
        return
    if event.limits:
        goal.caps |= event.limits
        state.spend.warned -= set(event.limits)
    if event.allow:
        goal.queued = with_rules(goal.queued, event.allow)
    if event.note:
        state.window.notes.append(event.note)
    if event.from_ == "waiting":
        _unpark(state, goal, event.cause)
    elif event.from_ == "paused":
        goal.pause, state.crashes = "", 0
    else:
        _reopen(state, goal)


def _unpark(state: State, goal: Goal, cause: str) -> None:
    parked, goal.parked = goal.parked, None
    assert parked is not None  # else the event would not be allowed
    calls = state.turn.calls if state.turn else {}
    call = calls.get(parked.ref or "")
    if call is not None and parked.on in ("time", "condition"):
        call.result = cause
    if parked.on == "process":
        for waiting in calls.values():
            if waiting.state == "started" and waiting.request.name == "wait":
                waiting.result = cause
    if parked.on == "verifier":
        evidence.last_try(state.evidence, BROKEN)
        hooks.last_try(state, BROKEN)


def _reopen(state: State, goal: Goal) -> None:
    """From an end: stall counters, recovery and closing turn start again, spend and baseline never."""
    goal.closing = goal.claim = goal.ended = goal.limit = None
    goal.closed, goal.halt_asked, goal.started = False, False, True
    state.stall = Stall(fingerprints=state.stall.fingerprints)
    state.failures = 0
    if state.turn is not None:
        state.turn.handled = True


@HANDLERS.on(ev.GoalPaused)
def _goal_paused(state: State, entry: Entry, event: ev.GoalPaused) -> None:
    state.stop = ""
    goal = state.goal
    if goal is None:
        return
    goal.pause = event.reason
    if event.reason == "interrupt":  # the turn is over, and with it what it claimed or waited for
        goal.claim = goal.parked = None
        goal.left = "working" if goal.left in ("checking", "waiting") else goal.left


@HANDLERS.on(ev.GoalClosing)
def _goal_closing(state: State, entry: Entry, event: ev.GoalClosing) -> None:
    if state.goal is not None:
        state.goal.closing = Closing(event.target, event.reason, event.detail, event.by)
        state.goal.parked = None
        state.stop = ""


@HANDLERS.on(ev.GoalEnded)
def _goal_ended(state: State, entry: Entry, event: ev.GoalEnded) -> None:
    if state.goal is None:
        return
    if event.ended_by in ("claim", "answer", "readiness"):
        state.spend.verifications += 1
    state.goal.ended, state.goal.claim, state.goal.parked = event, None, None
    state.round_open = False
    hooks.arises(state, ("session_end", event.phase))


# ---------------------------------------------------------------------------------------------------- stalls and limits


@HANDLERS.on(ev.StallNoticed)
def _stall_noticed(state: State, entry: Entry, event: ev.StallNoticed) -> None:
    state.stall.due = [n for n in state.stall.due if n.tool_call_id != event.tool_call_id]
    state.window.note(event.tool_call_id, event.text)


@HANDLERS.on(ev.StallBlocked)
def _stall_blocked(state: State, entry: Entry, event: ev.StallBlocked) -> None:
    if state.turn is not None and event.tool_call_id in state.turn.calls:
        state.turn.calls[event.tool_call_id].blocked_by = event.rule


@HANDLERS.on(ev.StallHalted)
def _stall_halted(state: State, entry: Entry, event: ev.StallHalted) -> None:
    state.stall.halted = True
    state.window.notes.append(f"[endstop] Halted, because of {event.text}. This is your one turn to change course.")


@HANDLERS.on(ev.LimitWarned)
def _limit_warned(state: State, entry: Entry, event: ev.LimitWarned) -> None:
    state.spend.warned.add(event.limit)
    state.window.notes.append(
        f"[endstop] {event.spent / event.cap:.0%} of the limit {event.limit} is used. Finish what matters most."
    )


@HANDLERS.on(ev.LimitReached)
def _limit_reached(state: State, entry: Entry, event: ev.LimitReached) -> None:
    if state.goal is not None:
        state.goal.limit = event
