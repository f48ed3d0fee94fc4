"""JSON as models and their servers really write it, and as they take it back. Pure."""

from __future__ import annotations

import json
import re
from typing import Any, TypeVar

import msgspec

from endstop.core.messages import Arguments, ToolRequest

T = TypeVar("T")
_encoder = msgspec.json.Encoder()
_arguments = msgspec.json.Decoder(dict[str, Any])
DEEPEST = 100
"""Levels that arguments may nest: whoever walks through them later does it by recursion."""
_BAD_NAME = re.compile(r"[^a-zA-Z0-9_-]")


class Unreadable(ValueError):
    """Bytes that are not what they should be, however they are read."""


def encode(value: Any) -> bytes:
    """JSON of a value, whatever its texts hold."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return _encoder.encode(mend(msgspec.to_builtins(value)))


def decode(payload: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """A payload as the decoder's type; the slow way takes what is no strict JSON: NaN, lone surrogates, raw control
    characters, broken UTF-8.

    Raises:
        Unreadable: not even that.
    """
    try:
        return decoder.decode(payload)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    try:
        found = json.loads(payload.decode("utf-8", "replace"), strict=False)
        made: T = msgspec.convert(found, decoder.type, strict=False)
        return made
    except (ValueError, msgspec.ValidationError, RecursionError):
        raise Unreadable from None


def mend(value: Any) -> Any:
    """The same value with halves of surrogate pairs joined where they belong together and replaced where they do not. Built
    without recursion: a server nests as deep as it likes."""
    top: list[Any] = [value]
    open_: list[Any] = [top]
    while open_:
        held = open_.pop()
        for place, item in enumerate(held) if isinstance(held, list) else list(held.items()):
            if isinstance(item, str):
                held[place] = _mended(item)
            elif isinstance(item, dict):
                held[place] = {_mended(key): inner for key, inner in item.items()}
                open_.append(held[place])
            elif isinstance(item, list):
                held[place] = item[:]
                open_.append(held[place])
    return top[0]


def _mended(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def parse_arguments(text: str, *, whole: bool) -> Arguments:
    """Arguments as an object, or the raw text where it is none, or nests deeper than ``DEEPEST``. Nothing at all means no
    arguments, if the answer is ``whole``."""
    if whole and not text.strip():
        return {}
    try:
        found = _arguments.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        try:
            found = json.loads(text, parse_constant=_refuse)  # takes lone surrogates
        except (ValueError, RecursionError):
            return str(mend(text))
        found = mend(found)
    return found if isinstance(found, dict) and not _too_deep(found) else str(mend(text))


def given_arguments(found: dict[str, Any]) -> Arguments:
    """Arguments that came as an object; a text that says so where it nests deeper than ``DEEPEST``."""
    return f"(nested deeper than {DEEPEST} levels)" if _too_deep(found) else dict(mend(found))


def _too_deep(value: Any) -> bool:
    """Whether something in it lies deeper than ``DEEPEST`` levels."""
    level = [value]
    for _ in range(DEEPEST):
        level = [
            inner
            for item in level
            if isinstance(item, dict | list)
            for inner in (item.values() if isinstance(item, dict) else item)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


def legal_arguments(request: ToolRequest) -> dict[str, Any]:
    """Arguments as servers take them back: many refuse the whole history for one broken argument text."""
    given = request.arguments
    return given if isinstance(given, dict) else {"malformed": given}


def legal_name(name: str) -> str:
    """A tool's name as servers take it back: they refuse the whole history for one odd name that the model made up."""
    return _BAD_NAME.sub("_", name)[:64] or "unknown"


def count(value: Any) -> int | None:
    """A number of tokens, None where it is none."""
    number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e15
    return int(value) if number else None


def _refuse(constant: str) -> Any:
    raise ValueError(constant)
