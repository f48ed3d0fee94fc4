"""What a provider wants back of its own answers, unread and in order: the text that travels as ``opaque``. Pure.

The parts of an answer as JSON: an object is sent back unchanged, a number stands for so many characters of the text, a list of
number and label for the same with the label the provider gave it, null for the next call. Text and calls are not kept twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from endstop.core.messages import AssistantText, ToolRequest
from endstop.models import lenient


class Kept(msgspec.Struct, frozen=True):
    """``by`` is the wire and the model: nobody else can read it."""

    by: str
    parts: list[dict[str, Any] | int | tuple[int, str] | None]


class Said(msgspec.Struct, frozen=True):
    """A stretch of the text."""

    text: str
    label: str | None = None


REDACTED = "[redacted:"
"""What stands in the journal in place of a secret."""
Part = dict[str, Any] | Said | ToolRequest
_kept = msgspec.json.Decoder(Kept)


def keep(by: str, parts: Sequence[Any]) -> str | None:
    """``opaque`` for these parts; None where nothing in them has to go back as it came. What stands behind the last text and
    call is left out: servers refuse reasoning that nothing follows."""
    last = max((at for at, part in enumerate(parts) if not isinstance(part, dict)), default=-1)
    parts = parts[: last + 1]
    if not any(isinstance(part, dict | tuple) for part in parts):
        return None
    return lenient.encode(Kept(by, list(parts))).decode()


def parts_of(message: AssistantText, by: str) -> Iterator[Part]:
    """The parts of a message in their order; text and calls alone where somebody else said it."""
    text, calls = message.text, iter(message.requests)
    for part in load(message.opaque, by):
        if isinstance(part, dict):
            yield part
        elif part is None:
            yield from _next(calls)
        else:
            size, label = part if isinstance(part, tuple) else (part, None)
            if text[:size]:
                yield Said(text[:size], label)
            text = text[size:]
    if text:
        yield Said(text)
    yield from calls


def load(opaque: str | None, by: str) -> list[dict[str, Any] | int | tuple[int, str] | None]:
    """The parts that ``by`` kept; none where somebody else did, or a secret was cut out of them: a signature would not hold."""
    if not opaque or not opaque.startswith("{") or REDACTED in opaque:
        return []
    try:
        kept = _kept.decode(opaque)
    except (msgspec.DecodeError, UnicodeError):
        return []
    return kept.parts if kept.by == by else []


def _next(calls: Iterator[ToolRequest]) -> Iterator[ToolRequest]:
    call = next(calls, None)
    if call is not None:
        yield call
