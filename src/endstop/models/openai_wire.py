"""OpenAI's chat completions, the way out: requests out of messages. Pure.

Every message is encoded once and appended to one growing buffer; a request is head + buffer + tail, so that consecutive
requests share all bytes but the tail, and a provider's prompt cache hits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import msgspec

from endstop.core.messages import AssistantText, Head, Message, ToolRequest, ToolSpec, ToolText, UserText
from endstop.errors import ModelError

REASONING = "reasoning_content:"
"""Marks ``opaque`` as text that this wire carries back; another adapter's state is never sent here."""

# ----------------------------------------------------------------------------------------------------------- what differs


class Dialect(msgspec.Struct, frozen=True):
    """How a server differs from the others; learnt from its refusals."""

    max_tokens: str = "max_tokens"
    stream_usage: bool = True


_UNSUPPORTED = re.compile(
    r"unsupported|not supported|unrecognized|unknown|unexpected|extra|not permitted|not allowed", re.IGNORECASE
)
OTHER_FIELD = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}


def adapt(dialect: Dialect, error: ModelError) -> Dialect | None:
    """The dialect to try after a refusal; None where the refusal does not name a known difference."""
    if error.kind != "invalid_request" or error.status not in (400, 422):
        return None
    if dialect.stream_usage and "stream_options" in error.message:
        return msgspec.structs.replace(dialect, stream_usage=False)
    named = dialect.max_tokens in error.message or "max_completion_tokens" in error.message
    if named and _UNSUPPORTED.search(error.message):
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


_encoder = msgspec.json.Encoder()
_BAD_NAME = re.compile(r"[^a-zA-Z0-9_-]")


class Transcript:
    """The growing request of one conversation."""

    def __init__(self, model: str, head: Head) -> None:
        self._with_tools = _start(model, head.system, head.tools)
        self._without_tools = _start(model, head.system, ())
        self._skip = 0 if head.system else 1  # the comma before the first message
        self._messages = bytearray()
        self._encoded = 0
        self._generation = -1
        self._ids: set[str] = set()

    def body(self, messages: Sequence[Message], generation: int, tail: bytes, *, tools: bool) -> bytes:
        """The next request. Encodes only what was not encoded in this generation."""
        if generation != self._generation or len(messages) < self._encoded:
            self._messages.clear()
            self._encoded = 0
            self._generation = generation
        for position in range(self._encoded, len(messages)):
            message = messages[position]
            self._messages += b"," + encode_message(message)
            if isinstance(message, AssistantText):
                self._ids.update(request.tool_call_id for request in message.requests)
        self._encoded = len(messages)
        head = self._with_tools if tools else self._without_tools
        with memoryview(self._messages) as view, view[self._skip :] as rest:
            return b"".join((head, rest, tail))

    def unique(self, ids: Sequence[str]) -> list[str]:
        """Ids for the calls of one answer: those given, and in place of missing, weak or used ones nine letters and digits.

        Nine, because one provider accepts no other length. Weak means short enough to come again, like ``call_0``. The new
        ones follow from the conversation alone, so the same answer to the same conversation gets the same ids.
        """
        kept: list[str] = []
        for position, id in enumerate(ids):
            tries = 0
            while not 9 <= len(id) <= 64 or id in self._ids or id in kept:
                seed = b"%b:%d:%d" % (sha256(self._messages).digest(), position, tries)
                id, tries = _letters(sha256(seed).digest()), tries + 1
            kept.append(id)
        return kept


def tail(dialect: Dialect, max_output: int, stream: bool) -> bytes:
    """What stands behind the messages."""
    fields: dict[str, Any] = {dialect.max_tokens: max_output}
    if stream:
        fields["stream"] = True
        if dialect.stream_usage:
            fields["stream_options"] = {"include_usage": True}
    return b"]," + _encoder.encode(fields)[1:]


def encode_message(message: Message) -> bytes:
    """JSON of one message."""
    match message:
        case UserText(text=text):
            return _json(_Message("user", text))
        case ToolText(tool_call_id=call, text=text):
            return _json(_Message("tool", text, tool_call_id=call))
        case AssistantText(text=text, requests=requests, opaque=opaque):
            calls = [_Call(request.tool_call_id, "function", _function(request)) for request in requests]
            reasoning = opaque.removeprefix(REASONING) if opaque and opaque.startswith(REASONING) else None
            content = text if text or not calls else None
            return _json(_Message("assistant", content, calls or None, reasoning_content=reasoning))
    raise TypeError(type(message).__name__)


def _function(request: ToolRequest) -> _Function:
    """A call as servers take it back: many refuse the whole history for one odd name or broken argument text."""
    given = request.arguments
    arguments = given if isinstance(given, dict) else {"malformed": given}
    return _Function(_BAD_NAME.sub("_", request.name)[:64] or "unknown", _json(arguments).decode())


def _start(model: str, system: str, tools: Sequence[ToolSpec]) -> bytes:
    fields: dict[str, Any] = {"model": model}
    if tools:
        fields["tools"] = [
            {"type": "function", "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters}}
            for tool in tools
        ]
    return _json(fields)[:-1] + b',"messages":[' + (_json(_Message("system", system)) if system else b"")


def _json(value: Any) -> bytes:
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return _encoder.encode(mend(msgspec.to_builtins(value)))


def _letters(digest: bytes) -> str:
    alphabet = "abcdefghijkmnpqrstuvwxyz23456789"
    return "".join(alphabet[byte % 32] for byte in digest[:9])


def mend(value: Any) -> Any:
    """The same value with halves of surrogate pairs joined where they belong together and replaced where they do not."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return value
    if isinstance(value, dict):
        return {mend(key): mend(item) for key, item in value.items()}
    if isinstance(value, list):
        return [mend(item) for item in value]
    return value
