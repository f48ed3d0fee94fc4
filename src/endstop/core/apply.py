"""``apply`` changes the state by one event, in place, O(1); ``replay`` folds it over a journal.

One function per event type. Whether the event is allowed in this phase is ``goal.TRANSITIONS``, nothing here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from endstop.core import events as ev
from endstop.core import evidence, stall
from endstop.core.codec import Entry, type_of
from endstop.core.context import Window, opening
from endstop.core.evidence import Evidence, GateState
from endstop.core.goal import (
    ACTIVE,
    Call,
    Claim,
    Closing,
    Goal,
    Grant,
    Kit,
    Memo,
    Parked,
    Process,
    Question,
    State,
    Turn,
    allowed,
)
from endstop.core.limits import Spend
from endstop.core.messages import AssistantText, ToolText, UserText
from endstop.core.stall import Seen, Stall
from endstop.errors import TransitionError

Handler = Callable[[State, Entry, Any], None]
HANDLERS: dict[type[ev.Event], Handler] = {}

STOP_WORDS = re.compile(r"\s*(?:please\s+)?(?:stop|halt|pause|cancel|abort)(?:\s+(?:now|please|it))?\s*[.!]*\s*", re.IGNORECASE)
"""A message that is only this pauses before anything else."""
BROKEN = 3
"""Broken checks in a row after which the goal waits for its verifier."""
EFFECTFUL = frozenset({"write", "idempotent", "edit", "shell"})


def on(kind: type[ev.Event]) -> Callable[[Handler], Handler]:
    """Register the function that takes in events of one type."""

    def register(handler: Handler) -> Handler:
        HANDLERS[kind] = handler
        return handler

    return register


def apply(state: State, entry: Entry) -> None:
    """Take in one event.

    Raises:
        TransitionError: its phase does not allow it; nothing was changed.
    """
    event = entry.event
    if getattr(event, "late", None):
        _tick(state, entry)
        return
    to = allowed(state, event)
    if to is None:
        raise TransitionError(f"{type_of(event)} is not allowed in {state.phase}", where=f"seq {entry.seq}")
    _tick(state, entry)
    left, state.phase = state.phase, to
    handler = HANDLERS.get(type(event))
    if handler is not None:
        if to != left and state.goal is not None:
            _leave(state.goal, left, event)
        handler(state, entry, event)


def replay(entries: Iterable[Entry], kit: Kit | None = None) -> State:
    """The state after a journal, or after any prefix of one."""
    state = State(kit=kit or Kit())
    for entry in entries:
        apply(state, entry)
    return state


def _tick(state: State, entry: Entry) -> None:
    if state.phase in ACTIVE and not isinstance(entry.event, ev.SessionResume):
        state.spend.active += max(0.0, entry.time - state.time)
    state.seq, state.time = entry.seq, entry.time


def _leave(goal: Goal, left: ev.Phase, event: ev.Event) -> None:
    if isinstance(event, ev.GoalPaused):
        goal.left = left


# ---------------------------------------------------------------------------------------------------------------- session


@on(ev.SessionStart)
def _session_start(state: State, entry: Entry, event: ev.SessionStart) -> None:
    state.session_id, state.kind, state.salt = event.session_id, event.kind, event.salt or ""


@on(ev.SessionResume)
def _session_resume(state: State, entry: Entry, event: ev.SessionResume) -> None:
    state.generation = event.generation
    state.look_due = state.evidence.baseline is not None
    if not event.crashed:
        return
    state.recover = True
    state.crashes += 1
    for gate in state.evidence.gates.values():
        gate.started = False


@on(ev.Abort)
def _abort(state: State, entry: Entry, event: ev.Abort) -> None:
    state.stop = "abort"


@on(ev.SessionPlanChanged)
def _plan_changed(state: State, entry: Entry, event: ev.SessionPlanChanged) -> None:
    state.plan = event.items


@on(ev.UserMessage)
def _user_message(state: State, entry: Entry, event: ev.UserMessage) -> None:
    for question in state.questions.values():
        question.used = question.used or question.id == event.message_id
    if event.source == "user":
        state.stall.progress()
        if STOP_WORDS.fullmatch(event.content) and state.phase in ("queued", "working", "waiting", "checking", "closing"):
            state.stop = "pause"
            return
        asked = [q for q in state.questions.values() if q.answer is None and not q.expired]
        if len(asked) == 1 and asked[0].freeform:
            asked[0].answer = event.content
            return
    state.inbox.append(event)
    if not state.round_open and state.phase in ("working", "waiting", "checking", "paused"):
        _open_round(state)


def _open_round(state: State) -> None:
    state.round_open, state.round_calls, state.round_parked = True, False, False
    state.spend.rounds += 1
    state.spend.round_calls = 0


# ------------------------------------------------------------------------------------------------------------------- turn


@on(ev.TurnStart)
def _turn_start(state: State, entry: Entry, event: ev.TurnStart) -> None:
    state.turns, state.recover = event.turn_id, False
    state.spend.turns += 1
    state.spend.turn_calls = 0
    state.spend.reserved = event.reserved
    state.stall.batch = set()
    if event.purpose == "close":
        if state.goal is not None:
            state.goal.closed = True
    else:
        if event.purpose == "recover":
            state.stall.recovered = True
        for message in state.inbox:
            state.window.add(UserText(message.content))
        state.inbox = []
        state.window.seal()
    size = state.window.size + state.kit.head_bytes
    state.turn = Turn(event.turn_id, event.purpose, event.model, entry.seq, event.reserved, size)


@on(ev.AssistantMessage)
def _assistant_message(state: State, entry: Entry, event: ev.AssistantMessage) -> None:
    turn = state.turn
    if turn is None:
        return
    turn.answered, turn.text, turn.finish = True, event.content, event.finish_reason
    if turn.purpose == "close":
        if state.goal is not None and state.goal.closing is not None:
            state.goal.closing.text = event.content
        return
    state.answered, state.failures = True, 0
    turn.calls = {request.tool_call_id: Call(request) for request in event.tool_requests}
    state.round_calls = state.round_calls or bool(turn.calls)
    if event.content or event.tool_requests:
        state.window.add(AssistantText(event.content, tuple(event.tool_requests), event.reasoning_opaque))
        state.window.sealed = len(state.window.messages)
    state.window.sent = state.window.size


@on(ev.AssistantUsage)
def _assistant_usage(state: State, entry: Entry, event: ev.AssistantUsage) -> None:
    spend = state.spend
    spend.input += event.input_tokens
    spend.output += event.output_tokens
    spend.reserved = {}
    spend.estimated = spend.estimated or event.estimated
    if event.cost is None:
        spend.priced = False
    else:
        spend.cost += event.cost
    if event.initiator in ("work", "recover") and state.turn is not None and not event.estimated:
        spend.last_input, spend.last_output = event.input_tokens, event.output_tokens
        if state.turn.bytes:
            spend.ratio = max(spend.ratio, event.input_tokens / state.turn.bytes)


@on(ev.TurnEnd)
def _turn_end(state: State, entry: Entry, event: ev.TurnEnd) -> None:
    turn = state.turn
    if turn is None:
        return
    turn.ended, turn.error, turn.retry_at = event.outcome, event.error, event.retry_at
    state.spend.reserved = {}
    if event.outcome == "failed":
        state.failures += 1
        if state.failures == 1:
            state.failing_since = entry.time
        return
    if event.outcome in ("ok", "cut"):
        state.crashes = 0
        if not turn.calls and turn.purpose != "close":
            state.round_open = False
            state.stall.silent = 0 if state.round_calls or state.round_parked else state.stall.silent + 1


# ------------------------------------------------------------------------------------------------------------------- tool


@on(ev.ToolStart)
def _tool_start(state: State, entry: Entry, event: ev.ToolStart) -> None:
    call = state.turn.calls.get(event.tool_call_id) if state.turn else None
    if call is None:
        return
    state.recover = False
    call.state, call.seq, call.before = "started", entry.seq, event.before
    call.effect, call.key, call.arguments = event.effect, event.key, event.arguments
    call.ident = stall.identity(event.tool_name, event.arguments)
    if event.effect == "attached":
        return  # the kernel answers these itself: nothing is executed
    spend = state.spend
    spend.calls += 1
    spend.turn_calls += 1
    spend.round_calls += 1
    spend.by_tool[event.tool_name] = spend.by_tool.get(event.tool_name, 0) + 1
    if event.effect in EFFECTFUL:
        state.evidence.touch()
    elif event.effect in ("read", "read_outside"):
        state.evidence.reads += 1


@on(ev.ToolComplete)
def _tool_complete(state: State, entry: Entry, event: ev.ToolComplete) -> None:
    call = state.turn.calls.get(event.tool_call_id) if state.turn else None
    if call is None or call.state == "done":
        return
    ran = call.state == "started"
    call.state, call.success = "done", event.success
    call.code = event.error.code if event.error else ""
    state.window.add(ToolText(event.tool_call_id, event.result.content))
    if ran and event.executed:
        state.evidence.tool_lines += 1
    call.outcome = Memo(entry.seq, event.success, event.result.content, event.hash, event.norm_hash, event.error, event.exit_code)
    if event.executed and not event.cached and call.effect in ("write", "idempotent"):
        state.memo[call.key] = call.outcome
    _count(state, entry, event, call)


def _count(state: State, entry: Entry, event: ev.ToolComplete, call: Call) -> None:
    rules, code = state.kit.rules, call.code
    if code in stall.NEVER_COUNTED:
        return
    spec = state.kit.tools.get(call.request.name)
    arguments = call.request.arguments
    seen = Seen(
        seq=entry.seq,
        call_id=event.tool_call_id,
        tool=call.request.name,
        ident=call.ident or (stall.identity(call.request.name, arguments) if isinstance(arguments, dict) else ""),
        success=event.success,
        norm=event.norm_hash,
        size=len(event.result.content),
        way=_way(event),
        effect=call.effect or (spec.effect if spec else "write"),
        poller=spec.poller if spec else False,
        waiting=event.exit_code == 75,
    )
    if code in stall.NO_IDENTITY:
        stall.count_wrong(state.stall, rules, seen, code == "unknown_tool")
    elif code == "blocked_stall":
        stall.count_refused(state.stall, rules, seen, call.blocked_by)
    elif code == "denied":
        stall.count_denied(state.stall, rules, seen)
    elif seen.effect != "attached" and rules.on:
        if event.executed:
            stall.ran(state.stall)
        stall.count(state.stall, rules, seen)


def _way(event: ev.ToolComplete) -> str:
    """How a call failed, for the rules: the error code with the exception's type where known, or the exit status."""
    if event.error is not None:
        kind, colon, _ = event.error.message.partition(":")
        return f"{event.error.code}:{kind}" if colon and kind.isidentifier() else event.error.code
    return f"exit {event.exit_code}" if event.exit_code else ("" if event.success else "failed")


# --------------------------------------------------------------------------------------------------------------- humans


@on(ev.QuestionAsked)
def _question_asked(state: State, entry: Entry, event: ev.QuestionAsked) -> None:
    state.questions[event.question_id] = Question(
        event.question_id,
        event.tool_call_id,
        event.question,
        event.options,
        event.allow_freeform,
        event.expires_at,
        event.on_timeout,
    )


@on(ev.QuestionAnswered)
def _question_answered(state: State, entry: Entry, event: ev.QuestionAnswered) -> None:
    question = state.questions.get(event.question_id)
    if question is not None and question.answer is None:
        question.answer = event.answer
        state.stall.progress()


@on(ev.QuestionExpired)
def _question_expired(state: State, entry: Entry, event: ev.QuestionExpired) -> None:
    question = state.questions.get(event.question_id)
    if question is not None and question.answer is None:
        question.expired = True


@on(ev.PermissionRequested)
def _permission_requested(state: State, entry: Entry, event: ev.PermissionRequested) -> None:
    state.grants[event.request_id] = Grant(event.request_id, event.tool_call_id, event.binding, event.expires_at)
    if state.turn is not None and event.tool_call_id in state.turn.calls:
        state.turn.calls[event.tool_call_id].grant = event.request_id


@on(ev.PermissionCompleted)
def _permission_completed(state: State, entry: Entry, event: ev.PermissionCompleted) -> None:
    grant = state.grants.get(event.request_id)
    if grant is None or grant.kind:
        return
    grant.kind, grant.feedback = event.result.kind, event.feedback or ""
    state.stall.progress()
    if event.stop:
        state.stop = "abort"


@on(ev.GrantExpired)
def _grant_expired(state: State, entry: Entry, event: ev.GrantExpired) -> None:
    grant = state.grants.get(event.request_id)
    if grant is not None and not grant.kind:
        grant.kind = "denied-no-answer"


@on(ev.ProcessStarted)
def _process_started(state: State, entry: Entry, event: ev.ProcessStarted) -> None:
    state.processes[event.process_id] = Process(event.process_id, event.pid, event.command, event.notify_on_exit, event.stays)
    state.evidence.touch()


@on(ev.ProcessExited)
def _process_exited(state: State, entry: Entry, event: ev.ProcessExited) -> None:
    state.processes.pop(event.process_id, None)
    state.evidence.touch()


# ------------------------------------------------------------------------------------------------------ world and gates


@on(ev.WorkspaceObserved)
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


@on(ev.GateStarted)
def _gate_started(state: State, entry: Entry, event: ev.GateStarted) -> None:
    state.evidence.gates.setdefault(event.gate_id, GateState()).started = True
    claim = state.goal.claim if state.goal else None
    if claim is not None:
        claim.runs[event.gate_id] = claim.runs.get(event.gate_id, 0) + 1


@on(ev.GateFinished)
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


@on(ev.GoalQueued)
def _goal_queued(state: State, entry: Entry, event: ev.GoalQueued) -> None:
    state.goal = Goal(event, dict(event.limits), entry.seq)
    state.spend, state.stall = Spend(since=entry.time), Stall()
    state.evidence, state.window = Evidence(), Window()
    state.window.add(UserText(opening(event)))
    state.turn, state.memo, state.plan, state.inbox = None, {}, [], []
    state.questions, state.grants = {}, {}
    state.stop, state.failures, state.answered, state.round_open = "", 0, False, False


@on(ev.GoalStarted)
def _goal_started(state: State, entry: Entry, event: ev.GoalStarted) -> None:
    if state.goal is not None:
        state.goal.started = True
    _open_round(state)


@on(ev.GoalClaimed)
def _goal_claimed(state: State, entry: Entry, event: ev.GoalClaimed) -> None:
    if state.goal is None:
        return
    recovering = state.turn is not None and state.turn.purpose == "recover"
    state.goal.claim = Claim(event.by, event.tool_call_id, event.summary, entry.seq, recovering)
    if event.by == "readiness":
        state.evidence.ready_world = state.evidence.world


@on(ev.GoalConfronted)
def _goal_confronted(state: State, entry: Entry, event: ev.GoalConfronted) -> None:
    if state.goal is None:
        return
    if event.by == "report_blocked":
        state.evidence.blocked_confronted = True
    else:
        state.evidence.confronted = state.evidence.world
        _stands(state, entry, event.missing, event.tool_call_id)
    state.goal.claim = None


@on(ev.GoalReturned)
def _goal_returned(state: State, entry: Entry, event: ev.GoalReturned) -> None:
    if state.goal is None:
        return
    claim = state.goal.claim
    if claim is not None and (claim.by in ("task_complete", "answer") or claim.judged):
        state.spend.verifications += 1
    seen = state.evidence
    seen.returned = evidence.Returned(event.why, event.missing, seen.world, seen.fingerprint)
    if event.why == "impossible" and seen.verdict is not None:
        seen.impossible = seen.verdict.impossible or "impossible"
    _stands(state, entry, event.missing, event.tool_call_id)
    state.goal.claim = None


def _stands(state: State, entry: Entry, missing: list[str], call_id: str | None) -> None:
    if call_id is None and state.round_open:
        return  # readiness missed inside a round: nobody claimed anything
    stall.stands(state.stall, state.kit.rules, entry.seq, evidence.standing(state.evidence, missing), call_id)


@on(ev.GoalJudging)
def _goal_judging(state: State, entry: Entry, event: ev.GoalJudging) -> None:
    state.spend.reserved = event.reserved
    state.evidence.judge_name, state.evidence.judge_independent = event.model, event.independent
    if state.goal is not None and state.goal.claim is not None:
        state.goal.claim.judging = True


@on(ev.GoalJudged)
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


@on(ev.GoalParked)
def _goal_parked(state: State, entry: Entry, event: ev.GoalParked) -> None:
    if state.goal is None:
        return
    left: ev.Phase = "checking" if state.goal.claim is not None else "working"
    state.goal.parked = Parked(event.on, event.ref, event.until, entry.time, event.said, left)
    state.round_parked = True
    if event.on == "verifier":
        seen = state.evidence
        seen.broken_since = seen.broken_since if seen.parks else entry.time
        seen.parks += 1
    if state.stall.park:
        state.stall.park = False
        state.stall.polls += 1
    if event.on == "model" and state.turn is not None:
        state.turn.handled = True


@on(ev.GoalResumed)
def _goal_resumed(state: State, entry: Entry, event: ev.GoalResumed) -> None:
    goal = state.goal
    if goal is None:
        return
    if event.limits:
        goal.caps |= event.limits
        state.spend.warned -= set(event.limits)
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
    if parked is None:
        return
    if parked.on in ("time", "condition") and parked.ref and state.turn is not None:
        call = state.turn.calls.get(parked.ref)
        if call is not None:
            call.result = cause
    if parked.on == "verifier":
        evidence.last_try(state.evidence, BROKEN)


def _reopen(state: State, goal: Goal) -> None:
    """From an end: stall counters, recovery and closing turn start again, spend and baseline never."""
    goal.closing = goal.claim = goal.ended = goal.limit = None
    goal.closed, goal.started = False, True
    state.stall = Stall(fingerprints=state.stall.fingerprints)
    state.failures = 0
    if state.turn is not None:
        state.turn.handled = True
    if not state.round_open:
        _open_round(state)


@on(ev.GoalPaused)
def _goal_paused(state: State, entry: Entry, event: ev.GoalPaused) -> None:
    state.stop = ""
    if state.goal is not None:
        state.goal.pause = event.reason


@on(ev.GoalClosing)
def _goal_closing(state: State, entry: Entry, event: ev.GoalClosing) -> None:
    if state.goal is not None:
        state.goal.closing = Closing(event.target, event.reason, event.detail, event.by)
        state.goal.parked = None
        state.stop = ""


@on(ev.GoalEnded)
def _goal_ended(state: State, entry: Entry, event: ev.GoalEnded) -> None:
    if state.goal is None:
        return
    if event.ended_by in ("claim", "answer", "readiness"):
        state.spend.verifications += 1
    state.goal.ended, state.goal.claim, state.goal.parked = event, None, None
    state.round_open = False
    state.inbox = []


# ---------------------------------------------------------------------------------------------------- stalls and limits


@on(ev.StallNoticed)
def _stall_noticed(state: State, entry: Entry, event: ev.StallNoticed) -> None:
    state.stall.due = [n for n in state.stall.due if n.tool_call_id != event.tool_call_id]
    state.window.note(event.tool_call_id, event.text)


@on(ev.StallBlocked)
def _stall_blocked(state: State, entry: Entry, event: ev.StallBlocked) -> None:
    if state.turn is not None and event.tool_call_id in state.turn.calls:
        state.turn.calls[event.tool_call_id].blocked_by = event.rule


@on(ev.StallHalted)
def _stall_halted(state: State, entry: Entry, event: ev.StallHalted) -> None:
    state.stall.halted = True
    state.window.notes.append(f"[endstop] Halted, because of {event.text}. This is your one turn to change course.")


@on(ev.LimitWarned)
def _limit_warned(state: State, entry: Entry, event: ev.LimitWarned) -> None:
    state.spend.warned.add(event.limit)
    state.window.notes.append(
        f"[endstop] {event.spent / event.cap:.0%} of the limit {event.limit} is used. Finish what matters most."
    )


@on(ev.LimitReached)
def _limit_reached(state: State, entry: Entry, event: ev.LimitReached) -> None:
    if state.goal is not None:
        state.goal.limit = event
