"""Calls that wait for something: a permission, an answer, a time, a file."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from endstop.core import events as ev
from endstop.core.codec import seconds as seconds_of
from endstop.core.effects import AnyAct, Record, Wait
from endstop.core.events import Event
from endstop.core.goal import Call, State, open_calls
from endstop.core.identity import canonical
from endstop.core.messages import ToolSpec
from endstop.core.results import complete, key_of, prepare

CLAIMS = ("task_complete", "report_blocked")
GRANT_HOURS = 24.0
LONGEST_WAIT = 24 * 3600.0

Asking = tuple[Call, ToolSpec, dict[str, Any], str]
"""A call that needs a permission, its tool, its arguments, and why."""


def attached(state: State, started: list[Call]) -> AnyAct:
    """Started calls that wait for something: their result once it is there, else the park."""
    results: list[Event] = []
    for call in started:
        question = next((q for q in state.questions.values() if q.call_id == call.request.tool_call_id), None)
        call_id = call.request.tool_call_id
        if question is not None and question.answer is not None:
            results.append(complete(call_id, question.answer, success=True, executed=True))
        elif question is not None and question.expired:
            results.append(complete(call_id, "No answer came in time.", executed=True, code="no_answer"))
        elif call.result is not None:
            results.append(complete(call_id, call.result, success=True, executed=True))
    if results:
        return Record(events=tuple(results))
    question = next((q for q in state.questions.values() if q.call_id == started[0].request.tool_call_id), None)
    assert question is not None  # any other has its result by now: it was parked in one append with its start
    return wait_on(state, "question", question.expires_at, said=question.text, ref=question.id)


def wait_on(state: State, on: ev.ParkedOn, until: float | None, *, said: str, ref: str | None = None) -> AnyAct:
    """Park the goal; a conversation without one just waits."""
    if state.interactive:
        return Wait(on=on, until=until)
    return Record(events=(ev.GoalParked(on=on, ref=ref, until=until, said=said),))


def ask_permission(state: State, now: float, asks: list[Asking]) -> list[Event]:
    """A request for each call that asks, and the wait until all are decided."""
    until = now + GRANT_HOURS * 3600
    asked: list[Event] = []
    for call, spec, arguments, why in asks:
        binding = sha256(f"{spec.name}\n".encode() + canonical(arguments)).hexdigest()
        asked.append(
            ev.PermissionRequested(
                request_id=f"{binding[:8]}-{state.seq}",
                tool_call_id=call.request.tool_call_id,
                permission_request={"kind": spec.effect, "toolName": spec.name, "arguments": arguments},
                binding=binding,
                risk="irreversible" if spec.irreversible else spec.effect,
                why=why,
                expires_at=until,
            )
        )
    said = ", ".join(spec.name for _, spec, _, _ in asks)
    if state.interactive:
        return asked
    return [*asked, ev.GoalParked(on="grant", until=until, said=f"permission for {said}")]


def ask_question(state: State, call: Call, arguments: dict[str, Any]) -> list[Event]:
    """The question, and the results of what it ends: calls after it, and a claim wherever it stands in the batch."""
    events = [begin(state, call, arguments)]
    events.append(
        ev.QuestionAsked(
            question_id=f"q{state.seq}",
            tool_call_id=call.request.tool_call_id,
            question=str(arguments.get("question", "")),
            options=[str(option) for option in arguments.get("options") or []],
            allow_freeform=bool(arguments.get("allow_freeform", True)),
            on_timeout="continue",
        )
    )
    calls = open_calls(state)
    at = calls.index(call)
    for other in calls[at + 1 :]:
        text = "Not run: a question to a human was asked first."
        events.append(complete(other.request.tool_call_id, text, code="not_run_question"))
    for other in calls[:at]:
        if other.request.name in CLAIMS:
            text = "A question is still open: it has to be answered first."
            events.append(complete(other.request.tool_call_id, text, code="refused_claim"))
    return events


def begin(state: State, call: Call, arguments: dict[str, Any]) -> Event:
    """The start of a call that the kernel answers itself."""
    assert state.turn is not None
    return ev.ToolStart(
        tool_call_id=call.request.tool_call_id,
        tool_name=call.request.name,
        arguments=arguments,
        turn_id=state.turn.id,
        effect="attached",
        key=key_of(state, call.request.name, arguments, "", 0),
    )


def begin_wait(state: State, now: float, call: Call) -> list[Event]:
    """The start of a wait, and the park it asks for. Without a goal there is nothing to park."""
    if state.interactive:
        text = "There is no goal that could be parked: say what you are waiting for, and a human will write."
        return [complete(call.request.tool_call_id, text, code="failed")]
    arguments = prepare(state, call)[1]
    until, path, said = wait_for(arguments, now)
    process = str(arguments.get("process") or "")
    if process and process not in state.processes:
        return [complete(call.request.tool_call_id, f"Process {process} does not run.", success=True)]
    if process:
        return [begin(state, call, arguments), ev.GoalParked(on="process", ref=process, until=until, said=f"process {process}")]
    on: ev.ParkedOn = "condition" if path else "time"
    return [
        begin(state, call, arguments),
        ev.GoalParked(on=on, ref=call.request.tool_call_id, until=until, said=said),
    ]


def wait_for(arguments: dict[str, Any], now: float) -> tuple[float, str, str]:
    """(until in epoch seconds, file to wait for or "", words) of a wait call; at most 24 hours."""
    until = now + LONGEST_WAIT
    seconds = arguments.get("seconds")
    if isinstance(seconds, (int, float)):
        until = min(until, now + max(0.0, float(seconds)))
    moment = arguments.get("until")
    if isinstance(moment, str):
        try:
            moment = seconds_of(moment)
        except ValueError:
            moment = None
    if isinstance(moment, (int, float)):
        until = min(until, float(moment))
    path = str(arguments.get("file") or "")
    return until, path, f"file {path}" if path else f"{max(0.0, until - now):.0f} seconds"
