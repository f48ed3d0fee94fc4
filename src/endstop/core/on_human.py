"""What humans and processes change in the state: questions, permissions, exits. One function per event type."""

from __future__ import annotations

from endstop.core import events as ev
from endstop.core.codec import Entry
from endstop.core.escalate import HALF_MORE, MORE
from endstop.core.goal import Exit, Grant, Handlers, Process, Question, State

HANDLERS = Handlers()


@HANDLERS.on(ev.QuestionAsked)
def _question_asked(state: State, entry: Entry, event: ev.QuestionAsked) -> None:
    state.questions[event.question_id] = Question(
        event.question_id,
        event.tool_call_id,
        event.question,
        event.options,
        event.allow_freeform,
        event.expires_at,
        event.on_timeout,
        event.limit,
    )
    if state.goal is not None and event.question_id.startswith("end-"):
        state.goal.halt_asked = True


@HANDLERS.on(ev.QuestionAnswered)
def _question_answered(state: State, entry: Entry, event: ev.QuestionAnswered) -> None:
    question = state.questions.get(event.question_id)
    if question is not None and question.answer is None:
        question.answer = event.answer
        state.stall.progress()
        if question.limit and event.answer == MORE and state.goal is not None:
            state.goal.caps[question.limit] *= HALF_MORE
            state.goal.halt_asked = False


@HANDLERS.on(ev.QuestionExpired)
def _question_expired(state: State, entry: Entry, event: ev.QuestionExpired) -> None:
    question = state.questions.get(event.question_id)
    if question is not None and question.answer is None:
        question.expired = True


@HANDLERS.on(ev.PermissionRequested)
def _permission_requested(state: State, entry: Entry, event: ev.PermissionRequested) -> None:
    state.grants[event.request_id] = Grant(event.request_id, event.tool_call_id, event.binding, event.expires_at)
    if state.turn is not None and event.tool_call_id in state.turn.calls:
        state.turn.calls[event.tool_call_id].grant = event.request_id


@HANDLERS.on(ev.PermissionCompleted)
def _permission_completed(state: State, entry: Entry, event: ev.PermissionCompleted) -> None:
    grant = state.grants.get(event.request_id)
    if grant is None or grant.kind:
        return
    grant.kind, grant.feedback = event.result.kind, event.feedback or ""
    state.stall.progress()
    if event.stop:
        state.stop = "abort"


@HANDLERS.on(ev.GrantExpired)
def _grant_expired(state: State, entry: Entry, event: ev.GrantExpired) -> None:
    grant = state.grants.get(event.request_id)
    if grant is not None and not grant.kind:
        grant.kind = "denied-no-answer"


@HANDLERS.on(ev.ProcessStarted)
def _process_started(state: State, entry: Entry, event: ev.ProcessStarted) -> None:
    state.processes[event.process_id] = Process(event.process_id, event.pid, event.command, event.notify_on_exit, event.stays)
    state.evidence.touch()


@HANDLERS.on(ev.ProcessExited)
def _process_exited(state: State, entry: Entry, event: ev.ProcessExited) -> None:
    process = state.processes.pop(event.process_id, None)
    if process is None:
        return  # told twice
    state.evidence.touch()
    state.process_waits = 0
    if process.notify and not state.interactive:
        state.exits[process.id] = Exit(process.id, process.command, event.exit_code, event.signal, event.output)
