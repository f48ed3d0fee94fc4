"""What messages, turns, calls and humans change in the state: one function per event type."""

from __future__ import annotations

import re

from endstop.core import events as ev
from endstop.core import hooks, stall
from endstop.core.codec import Entry
from endstop.core.drift import cut
from endstop.core.goal import Call, Handlers, Memo, State, Turn, open_round
from endstop.core.identity import identity
from endstop.core.messages import AssistantText, ToolText, UserText
from endstop.core.stall import Seen

HANDLERS = Handlers()

STOP_WORDS = re.compile(
    r"(?:(?:please|ok(?:ay)?|no|now)[\s,.!]+)*(?:stop|halt|pause|cancel|abort)(?:[\s,.!…]+(?:stop|now|please|it|immediately))*[\s.!…]*",
    re.IGNORECASE,
)
"""A message that is only this pauses before anything else."""
STOPPABLE = ("queued", "working", "waiting", "checking", "closing")
STILL_RUNNING = "still running"
"""Reason of a round that only says a process goes on: it does not count on rounds."""
LEAST_GAIN = 0.2
"""Part of the window that a compaction must gain, or it counts as a miss."""
EFFECTFUL = frozenset({"write", "idempotent", "edit", "shell"})


# ---------------------------------------------------------------------------------------------------------------- session


@HANDLERS.on(ev.SessionStart)
def _session_start(state: State, entry: Entry, event: ev.SessionStart) -> None:
    state.session_id, state.kind, state.salt = event.session_id, event.kind, event.salt or ""
    state.model, state.limits = event.selected_model or "", event.limits or {}
    state.rules = event.policy or state.rules
    state.spend.since = entry.time


@HANDLERS.on(ev.SessionResume)
def _session_resume(state: State, entry: Entry, event: ev.SessionResume) -> None:
    state.generation = event.generation
    state.look_due = state.evidence.baseline is not None
    if state.goal is not None and state.goal.started and ("session_start", "startup") not in state.hooks.due:
        hooks.arises(state, ("session_start", "resume"))
    if not event.crashed and not event.open:
        return
    state.recover = True
    state.crashes += event.crashed
    claim = state.goal.claim if state.goal else None
    for gate_id, gate in state.evidence.gates.items():
        if gate.started and claim is not None:
            claim.runs[gate_id] -= 1  # that run never ended
        gate.started = False


@HANDLERS.on(ev.Abort)
def _abort(state: State, entry: Entry, event: ev.Abort) -> None:
    running = state.turn is not None and not state.turn.ended
    if state.phase in STOPPABLE or (state.interactive and running):
        state.stop = "abort"
    elif state.interactive:
        state.round_open = False  # nothing runs that could be interrupted


@HANDLERS.on(ev.SessionError)
def _session_error(state: State, entry: Entry, event: ev.SessionError) -> None:
    if not state.interactive:
        return
    state.round_open = False
    if state.turn is not None:
        state.turn.handled = True


@HANDLERS.on(ev.SessionModelChange)
def _model_change(state: State, entry: Entry, event: ev.SessionModelChange) -> None:
    state.model = event.new_model
    state.tried.append(event.previous_model)
    state.spend.last_input = state.spend.last_output = 0
    state.failures = 0
    if state.turn is not None:
        state.turn.handled = True


@HANDLERS.on(ev.SessionPlanChanged)
def _plan_changed(state: State, entry: Entry, event: ev.SessionPlanChanged) -> None:
    state.plan = event.items


@HANDLERS.on(ev.UserMessage)
def _user_message(state: State, entry: Entry, event: ev.UserMessage) -> None:
    for question in state.questions.values():
        question.used = question.used or question.id == event.message_id
    if event.source == "user":
        state.stall.progress()
        if STOP_WORDS.fullmatch(event.content.strip()):
            running = state.phase in STOPPABLE or (state.turn is not None and not state.turn.ended)
            state.stop = "pause" if running else state.stop
            return
        asked = [q for q in state.questions.values() if q.answer is None and not q.expired]
        if len(asked) == 1 and asked[0].freeform:
            asked[0].answer = event.content
            return
    state.inbox.append(event)
    if event.source == "user":
        hooks.arises(state, ("user_prompt", str(entry.seq)), event)
    decided = event.source in ("system", "process") and event.delivery != "steering"
    if event.source == "process":
        state.exits.pop(event.message_id, None)
    if not state.round_open and (decided or state.interactive):
        open_round(state, counts=event.reason != STILL_RUNNING)  # whether a round fits for any other message is decided later


# ------------------------------------------------------------------------------------------------------------------- turn


@HANDLERS.on(ev.TurnStart)
def _turn_start(state: State, entry: Entry, event: ev.TurnStart) -> None:
    state.turns, state.recover = event.turn_id, False
    state.spend.turns += 1
    state.spend.turn_calls = 0
    state.spend.reserved = event.reserved
    state.stall.batch = set()
    hooks.forget(state)
    if event.purpose == "close":
        if state.goal is not None:
            state.goal.closed = True
    else:
        if not state.round_open:
            open_round(state)
        for message in state.inbox:
            state.window.add(UserText(message.content), entry.seq)
        state.inbox = []
        state.window.seal(entry.seq)
    size = state.window.size + state.kit.head_bytes
    state.turn = Turn(event.turn_id, event.purpose, event.model, entry.seq, event.reserved, size)


@HANDLERS.on(ev.AssistantMessage)
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
    state.stall.recovered = state.stall.recovered or turn.purpose == "recover"
    turn.calls = {request.tool_call_id: Call(request) for request in event.tool_requests}
    state.round_calls = state.round_calls or bool(turn.calls)
    if event.content or event.tool_requests:
        text = cut(state.stall, state.kit.rules, entry.seq, event.content)
        state.window.add(AssistantText(text, tuple(event.tool_requests), event.reasoning_opaque), entry.seq)
        state.window.sealed = len(state.window.messages)


@HANDLERS.on(ev.AssistantUsage)
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
        state.window.reported = state.window.size
        if state.turn.bytes:
            spend.ratio = max(spend.ratio, event.input_tokens / state.turn.bytes)


@HANDLERS.on(ev.TurnEnd)
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
    if state.interactive and event.outcome == "interrupted":
        state.stop, state.round_open = "", bool(state.inbox)  # what was written meanwhile is heard
    if event.outcome in ("ok", "cut"):
        state.crashes = 0
        if not turn.calls and turn.purpose != "close":
            state.round_open = False
            if state.round_calls:
                state.stall.silent = 0
            elif not state.round_parked:
                state.stall.silent += 1


@HANDLERS.on(ev.SessionCompactionStart)
def _compaction_start(state: State, entry: Entry, event: ev.SessionCompactionStart) -> None:
    state.compacting = event.up_to
    state.spend.reserved = event.reserved


@HANDLERS.on(ev.SessionCompactionComplete)
def _compaction_complete(state: State, entry: Entry, event: ev.SessionCompactionComplete) -> None:
    state.compacting = None
    state.spend.reserved = {}
    gained = event.pre_compaction_tokens - event.post_compaction_tokens
    state.compaction_misses = 0 if gained >= LEAST_GAIN * event.pre_compaction_tokens else state.compaction_misses + 1
    state.window.forget(event.forgot, event.shortened or [], event.summary_content)
    state.spend.last_input = state.spend.last_output = 0
    if state.turn is not None and state.turn.ended == "failed":
        state.turn.handled = True
    items = [f"- [{item.status}] {item.text}" for item in state.plan if item.status != "dropped"]
    if items:
        state.window.notes.append("Your plan:\n" + "\n".join(items))
    returned = state.evidence.returned
    if returned is not None and returned.missing:
        state.window.notes.append("Missing at the last check:\n" + "\n".join(f"- {item}" for item in returned.missing))


# ------------------------------------------------------------------------------------------------------------------- tool


@HANDLERS.on(ev.ToolStart)
def _tool_start(state: State, entry: Entry, event: ev.ToolStart) -> None:
    call = state.turn.calls.get(event.tool_call_id) if state.turn else None
    if call is None:
        return
    state.recover = False
    call.state, call.seq, call.before = "started", entry.seq, event.before
    call.effect, call.key, call.arguments = event.effect, event.key, event.arguments
    call.ident = identity(event.tool_name, event.arguments)
    if event.effect == "attached":
        return  # the kernel answers these itself: nothing is executed
    spend = state.spend
    spend.calls += 1
    spend.turn_calls += 1
    spend.round_calls += 1
    spend.by_tool[event.tool_name] = spend.by_tool.get(event.tool_name, 0) + 1
    if event.effect in EFFECTFUL:
        state.evidence.touch()
    else:
        state.evidence.reads += 1


@HANDLERS.on(ev.ToolComplete)
def _tool_complete(state: State, entry: Entry, event: ev.ToolComplete) -> None:
    call = state.turn.calls.get(event.tool_call_id) if state.turn else None
    if call is None or call.state == "done":
        return
    ran = call.state == "started"
    call.state, call.success = "done", event.success
    call.code = event.error.code if event.error else ""
    state.window.add(ToolText(event.tool_call_id, event.result.content), entry.seq)
    if ran and event.executed:
        state.evidence.tool_lines += 1
    call.outcome = Memo(entry.seq, event.success, event.result.content, event.hash, event.norm_hash, event.error, event.exit_code)
    if event.executed and not event.cached and call.effect in ("write", "idempotent"):
        state.memo[call.key] = call.outcome
    if ran and event.executed and call.effect != "attached" and call.code not in ("effect_unknown", *stall.NEVER_COUNTED):
        hooks.arises(state, ("post_tool", event.tool_call_id))
    if call.code == "denied":
        state.denied = [*state.denied[-9:], event.result.content[:300]]
    if call.request.name in ("process", "process_control") and isinstance(call.request.arguments, dict) and event.executed:
        state.exits.pop(str(call.request.arguments.get("process_id")), None)  # it was seen: no notice is needed
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
        ident=call.ident or (identity(call.request.name, arguments) if isinstance(arguments, dict) else ""),
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
