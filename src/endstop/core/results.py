"""Results the kernel writes itself, and what identifies a call."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from endstop.core import events as ev
from endstop.core.events import Event
from endstop.core.goal import Call, Memo, State
from endstop.core.identity import canonical, digests, identity
from endstop.core.messages import ToolSpec


def complete(
    call_id: str,
    content: str,
    *,
    success: bool = False,
    executed: bool = False,
    code: str = "",
    memo: Memo | None = None,
    exit_code: int | None = None,
) -> ev.ToolComplete:
    """A result written by the kernel. With ``memo`` it is a known result given again."""
    raw, norm = (memo.hash, memo.norm) if memo else digests(content)
    error = ev.Failure(code=code, message=content) if code else (memo.error if memo else None)
    return ev.ToolComplete(
        tool_call_id=call_id,
        success=memo.success if memo else success,
        executed=executed,
        result=ev.Result(content=content),
        error=error,
        exit_code=memo.exit_code if memo else exit_code,
        cached=True if memo else None,
        of=memo.seq if memo else None,
        hash=raw,
        norm_hash=norm,
    )


def prepare(state: State, call: Call) -> tuple[ToolSpec | None, dict[str, Any], str, str]:
    """(spec, arguments without ``again``, identity, why again) of a call; spec None for an unknown tool."""
    spec = state.kit.tools.get(call.request.name)
    arguments = call.request.arguments
    if not isinstance(arguments, dict):
        return spec, {}, "", ""
    if spec is not None and spec.effect == "write" and "again" in arguments:
        arguments = dict(arguments)
        again = str(arguments.pop("again"))
    else:
        again = ""
    return spec, arguments, identity(call.request.name, arguments), again


def key_of(state: State, tool: str, arguments: dict[str, Any], again: str, seq: int) -> str:
    """Idempotency key: SHA-256 over goal, tool and canonical arguments; an insisted repetition has one of its own."""
    goal = state.goal.queued.goal_id if state.goal else state.session_id
    insisted = f"\n{seq}" if again else ""
    return sha256(f"{goal}\n{tool}{insisted}\n".encode() + canonical(arguments)).hexdigest()


def withdrawn(state: State) -> tuple[Event, ...]:
    """The end of every question and permission that is still open: nobody needs the answer any more."""
    questions = [ev.QuestionExpired(question_id=q.id) for q in state.questions.values() if q.answer is None and not q.expired]
    return (*questions, *(ev.GrantExpired(request_id=g.id) for g in state.grants.values() if not g.kind))
