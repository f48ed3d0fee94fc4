"""Anthropic's messages, the way out: requests out of messages. Pure.

The first breakpoint of the prompt cache ends the head, the second the newest message: the next request finds what this one
wrote, because nothing before its newest message changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from endstop.core.messages import AssistantText, Head, Message, ToolText, UserText
from endstop.errors import ModelError
from endstop.models import transcript
from endstop.models.faults import BAD_VALUE, UNSUPPORTED
from endstop.models.kept import Said, parts_of
from endstop.models.lenient import encode, legal_arguments, legal_name

BREAKPOINT = b',"cache_control":{"type":"ephemeral"}}'
"""In place of the brace that closes a block."""
NO_TOOLS = b'],"tool_choice":{"type":"none"}'
"""The server demands the tools that a history names: they are kept, and forbidden."""
EMPTY = "(empty)"
"""In place of a blank text, which the server refuses."""
REACH = 20
"""Blocks before a breakpoint among which the server looks for what it has cached."""
WHERE = "anthropic:"
_BAD_ID = re.compile(r"[^a-zA-Z0-9_-]")

# ----------------------------------------------------------------------------------------------------------- what differs


class Dialect(msgspec.Struct, frozen=True):
    """How a model differs from the others; learnt from its refusals. ``most`` are tokens of one answer."""

    effort: str | None = None
    adaptive: bool = True
    most: int | None = None


_MOST = re.compile(r"max_tokens: \d+ > (\d+)")


def adapt(dialect: Dialect, error: ModelError) -> Dialect | None:
    """The dialect to try after a refusal; None where the refusal does not name a known difference."""
    if error.kind != "invalid_request" or error.status != 400:
        return None
    most = _MOST.search(error.message)
    if most and int(most[1]) > 0:
        return msgspec.structs.replace(dialect, most=int(most[1]))
    if dialect.effort and dialect.adaptive and "adaptive" in error.message:
        return msgspec.structs.replace(dialect, adaptive=False)
    no_effort = "effort" in error.message and UNSUPPORTED.search(error.message) and not BAD_VALUE.search(error.message)
    if dialect.effort and no_effort:
        return msgspec.structs.replace(dialect, effort=None)
    return None


def tail(dialect: Dialect, max_output: int, *, stream: bool) -> bytes:
    """What stands behind the messages."""
    fields: dict[str, Any] = {"max_tokens": min(max_output, dialect.most or max_output)}
    if stream:
        fields["stream"] = True
    if dialect.effort:
        fields["output_config"] = {"effort": dialect.effort}
        if dialect.adaptive:
            fields["thinking"] = {"type": "adaptive"}
    return b"]," + encode(fields)[1:]


# ----------------------------------------------------------------------------------------------------------------- encode


class Transcript(transcript.Transcript):
    """The growing request of one conversation. Messages of one role in a row become one; the newest stays open in the buffer."""

    def __init__(self, model: str, head: Head) -> None:
        super().__init__()
        self._by = WHERE + model
        self._head = _start(model, head)
        self._tools = bool(head.tools)
        self._role = ""
        self._blocks = 0  # since the last breakpoint
        self._sent = self._before = 0  # where the newest breakpoint stands, and the one before

    def clear(self) -> None:
        """Forget what was encoded."""
        super().clear()
        self._role, self._blocks, self._sent, self._before = "", 0, 0, 0

    def add(self, message: Message) -> None:
        """Append the blocks of one message; one that has none is left out."""
        role = "assistant" if isinstance(message, AssistantText) else "user"
        for block in _blocks_of(message, self._by):
            if role == self._role:
                self.buffer += b","
            else:
                closing = b"]}," if self._role else b""
                self.buffer += b'%b{"role":"%b","content":[' % (closing, role.encode())
                self._role = role
            self.buffer += encode(block)
            self._blocks += 1

    def body(self, messages: Sequence[Message], generation: int, tail: bytes, *, tools: bool) -> bytes:
        """The next request."""
        self.grow(messages, generation)
        end = len(self.buffer)
        if end > self._sent:
            far = self._blocks > REACH
            self._before = self._sent if far else 0
            self._sent, self._blocks = end, 0
        places = [place for place in (self._before, self._sent) if place]
        if self._role != "user":  # reasoning takes no breakpoint, and may stand last
            places = places[:-1]
        pieces: list[bytes | memoryview] = [self._head]
        view, start = memoryview(self.buffer), 0
        for place in places:
            pieces += [view[start : place - 1], BREAKPOINT]
            start = place
        pieces += [view[start:], b"]}" if self._role else b""]
        pieces += [tail] if tools or not self._tools else [NO_TOOLS, tail[1:]]
        return b"".join(pieces)


def _blocks_of(message: Message, by: str) -> Iterator[dict[str, Any]]:
    match message:
        case UserText(text=text):
            yield {"type": "text", "text": text if text.strip() else EMPTY}
        case ToolText(tool_call_id=call, text=text):
            yield {"type": "tool_result", "tool_use_id": _id(call), "content": text if text.strip() else EMPTY}
        case AssistantText():
            for part in parts_of(message, by):
                if isinstance(part, dict):
                    yield part
                elif not isinstance(part, Said):
                    name, arguments = legal_name(part.name), legal_arguments(part)
                    yield {"type": "tool_use", "id": _id(part.tool_call_id), "name": name, "input": arguments}
                elif part.text.strip():  # a blank text is refused
                    yield {"type": "text", "text": part.text}


def _id(call: str) -> str:
    """An id that another provider gave, as this one takes it."""
    return _BAD_ID.sub("_", call) or "_"


def _start(model: str, head: Head) -> bytes:
    fields: dict[str, Any] = {"model": model}
    mark = {"cache_control": {"type": "ephemeral"}}
    if head.tools:
        fields["tools"] = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.parameters} for tool in head.tools
        ]
    if head.system.strip():
        fields["system"] = [{"type": "text", "text": head.system, **mark}]
    elif head.tools:
        fields["tools"][-1] |= mark
    return encode(fields)[:-1] + b',"messages":['
