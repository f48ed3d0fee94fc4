"""OpenAI's responses, the way out: requests out of messages. Pure.

Nothing is kept on the server (``store`` is false): the reasoning of earlier answers travels with them, encrypted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from endstop.core.messages import AssistantText, Head, Message, ToolSpec, ToolText, UserText
from endstop.errors import ModelError
from endstop.models import transcript
from endstop.models.faults import BAD_VALUE, UNSUPPORTED
from endstop.models.kept import Said, parts_of
from endstop.models.lenient import encode, legal_arguments, legal_name

WHERE = "openai-responses:"
LONGEST_ID = 64
BETWEEN = "\n\n"
"""What parts two messages of one answer in its text."""

# ----------------------------------------------------------------------------------------------------------- what differs


class Dialect(msgspec.Struct, frozen=True):
    """How a model differs from the others; learnt from its refusals."""

    effort: str | None = None
    encrypted: bool = True


_NO_REASONING = re.compile(r"encrypted[_ ]content.{0,60}(not|un)[ -]?support|(not|un)[ -]?support.{0,60}encrypted", re.IGNORECASE)


def adapt(dialect: Dialect, error: ModelError) -> Dialect | None:
    """The dialect to try after a refusal; None where the refusal does not name a known difference."""
    if error.kind != "invalid_request" or error.status not in (400, 422):
        return None
    message = error.message
    no_effort = "reasoning.effort" in message and UNSUPPORTED.search(message) and not BAD_VALUE.search(message)
    if dialect.effort and no_effort:
        return msgspec.structs.replace(dialect, effort=None)
    if dialect.encrypted and _NO_REASONING.search(error.message):
        return msgspec.structs.replace(dialect, encrypted=False)
    return None


def tail(dialect: Dialect, max_output: int, *, stream: bool) -> bytes:
    """What stands behind the messages."""
    fields: dict[str, Any] = {"max_output_tokens": max_output}
    if dialect.encrypted:
        fields["include"] = ["reasoning.encrypted_content"]
    if dialect.effort:
        fields["reasoning"] = {"effort": dialect.effort}
    if stream:
        fields["stream"] = True
    return b"]," + encode(fields)[1:]


# ----------------------------------------------------------------------------------------------------------------- encode


class Transcript(transcript.Transcript):
    """The growing request of one conversation."""

    def __init__(self, model: str, head: Head) -> None:
        super().__init__()
        self._by = WHERE + model
        self._with_tools = _start(model, head.system, head.tools)
        self._without_tools = _start(model, head.system, ())

    def add(self, message: Message) -> None:
        """Append the items of one message."""
        for item in _items_of(message, self._by):
            self.buffer += b"," + encode(item)

    def body(self, messages: Sequence[Message], generation: int, tail: bytes, *, tools: bool) -> bytes:
        """The next request."""
        self.grow(messages, generation)
        head = self._with_tools if tools else self._without_tools
        with memoryview(self.buffer) as view, view[1:] as rest:  # without the comma before the first item
            return b"".join((head, rest, tail))


def _items_of(message: Message, by: str) -> Iterator[dict[str, Any]]:
    match message:
        case UserText(text=text):
            yield {"role": "user", "content": text}
        case ToolText(tool_call_id=call, text=text):
            yield {"type": "function_call_output", "call_id": call[:LONGEST_ID], "output": text}
        case AssistantText():
            for part in parts_of(message, by):
                if isinstance(part, dict):
                    yield part
                elif isinstance(part, Said):
                    phase = {"phase": part.label} if part.label else {}
                    yield {"role": "assistant", "content": part.text.removeprefix(BETWEEN), **phase}
                else:
                    call_id, name = part.tool_call_id[:LONGEST_ID], legal_name(part.name)
                    arguments = encode(legal_arguments(part)).decode()
                    yield {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def _start(model: str, system: str, tools: Sequence[ToolSpec]) -> bytes:
    fields: dict[str, Any] = {"model": model, "store": False}
    if system:
        fields["instructions"] = system
    if tools:
        fields["tools"] = [
            # strict is what the server assumes, and it refuses most schemas then
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
                "strict": False,
            }
            for tool in tools
        ]
    return encode(fields)[:-1] + b',"input":['
