"""OpenAI's chat completions, the way out: requests out of messages. Pure.

Every message is encoded once (``transcript``); what a server takes otherwise than others is learnt from its refusals.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from endstop.core.messages import AssistantText, Head, Message, ToolRequest, ToolSpec, ToolText, UserText
from endstop.errors import ModelError
from endstop.models import transcript
from endstop.models.faults import BAD_VALUE, UNSUPPORTED
from endstop.models.lenient import encode, legal_arguments, legal_name

REASONING = "reasoning_content:"
"""Marks ``opaque`` as text that this wire carries back; another adapter's state is never sent here."""

# ----------------------------------------------------------------------------------------------------------- what differs


class Dialect(msgspec.Struct, frozen=True):
    """How a server differs from the others; learnt from its refusals."""

    max_tokens: str = "max_tokens"
    stream_usage: bool = True
    effort: str | None = None


OTHER_FIELD = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}


def adapt(dialect: Dialect, error: ModelError) -> Dialect | None:
    """The dialect to try after a refusal; None where the refusal does not name a known difference."""
    if error.kind != "invalid_request" or error.status not in (400, 422):
        return None
    if dialect.stream_usage and "stream_options" in error.message:
        return msgspec.structs.replace(dialect, stream_usage=False)
    if not UNSUPPORTED.search(error.message):
        return None
    if dialect.effort and "reasoning_effort" in error.message and not BAD_VALUE.search(error.message):
        return msgspec.structs.replace(dialect, effort=None)
    if dialect.max_tokens in error.message or "max_completion_tokens" in error.message:
        return msgspec.structs.replace(dialect, max_tokens=OTHER_FIELD[dialect.max_tokens])
    return None


# ----------------------------------------------------------------------------------------------------------------- encode


class _Function(msgspec.Struct):
    name: str
    arguments: str


class _Call(msgspec.Struct):
    id: str
    type: str
    function: _Function


class _Message(msgspec.Struct, omit_defaults=True):
    role: str
    content: str | None
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None


class Transcript(transcript.Transcript):
    """The growing request of one conversation."""

    def __init__(self, model: str, head: Head) -> None:
        super().__init__()
        self._with_tools = _start(model, head.system, head.tools)
        self._without_tools = _start(model, head.system, ())
        self._skip = 0 if head.system else 1  # the comma before the first message

    def add(self, message: Message) -> None:
        """Append one message."""
        self.buffer += b"," + encode_message(message)

    def body(self, messages: Sequence[Message], generation: int, tail: bytes, *, tools: bool) -> bytes:
        """The next request."""
        self.grow(messages, generation)
        head = self._with_tools if tools else self._without_tools
        with memoryview(self.buffer) as view, view[self._skip :] as rest:
            return b"".join((head, rest, tail))


def tail(dialect: Dialect, max_output: int, stream: bool) -> bytes:
    """What stands behind the messages."""
    fields: dict[str, Any] = {dialect.max_tokens: max_output}
    if stream:
        fields["stream"] = True
        if dialect.stream_usage:
            fields["stream_options"] = {"include_usage": True}
    if dialect.effort:
        fields["reasoning_effort"] = dialect.effort
    return b"]," + encode(fields)[1:]


def encode_message(message: Message) -> bytes:
    """JSON of one message."""
    match message:
        case UserText(text=text):
            return encode(_Message("user", text))
        case ToolText(tool_call_id=call, text=text):
            return encode(_Message("tool", text, tool_call_id=call))
        case AssistantText(text=text, requests=requests, opaque=opaque):
            calls = [_Call(request.tool_call_id, "function", _function(request)) for request in requests]
            reasoning = opaque.removeprefix(REASONING) if opaque and opaque.startswith(REASONING) else None
            content = text if text or not calls else None
            return encode(_Message("assistant", content, calls or None, reasoning_content=reasoning))
    raise TypeError(type(message).__name__)


def _function(request: ToolRequest) -> _Function:
    return _Function(legal_name(request.name), encode(legal_arguments(request)).decode())


def _start(model: str, system: str, tools: Sequence[ToolSpec]) -> bytes:
    fields: dict[str, Any] = {"model": model}
    if tools:
        fields["tools"] = [
            {"type": "function", "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters}}
            for tool in tools
        ]
    return encode(fields)[:-1] + b',"messages":[' + (encode(_Message("system", system)) if system else b"")
