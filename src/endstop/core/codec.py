"""Events to lines and back. A line is one event as UTF-8 JSON without a newline; its bytes are stored, hashed and served.

{"id":"<uuid7>","seq":17,"prev":"<64 hex>","timestamp":"2026-11-30T17:02:11.482Z","parentId":"<id of 16>","type":"…","data":{…}}
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec

from endstop.core.events import EVENTS, TYPE_OF, Event, Unknown

SPILL = 16 * 1024
"""Bytes above which a text field is moved to a blob."""
ENDS = 1024
"""Characters of head and of tail kept in the line beside a blob."""


class Envelope(msgspec.Struct, frozen=True):
    """What stands around every event's data."""

    id: str
    seq: int
    prev: str
    timestamp: str
    parentId: str | None
    type: str
    data: msgspec.Raw


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One event with its place in the journal. ``time`` in epoch seconds, with milliseconds."""

    seq: int
    id: str
    time: float
    event: Event


_encode = msgspec.json.Encoder().encode
_envelope = msgspec.json.Decoder(Envelope)
_decoders: dict[str, msgspec.json.Decoder[Any]] = {name: msgspec.json.Decoder(cls) for name, cls in EVENTS.items()}
_anything = msgspec.json.Decoder()


class BadLine(ValueError):
    """A line that is no event: what and where it is wrong is the message."""


def encode_data(event: Event) -> bytes:
    """JSON bytes of the event's ``data``."""
    if isinstance(event, Unknown):
        return _encode(event.data)
    return _encode(event)


def type_of(event: Event) -> str:
    """Wire name of an event."""
    return event.type if isinstance(event, Unknown) else TYPE_OF[type(event)]


def frame(data: bytes, name: str, *, id: str, seq: int, prev: str, timestamp: str, parent: str | None) -> bytes:
    """The line around already encoded ``data``. All parts but ``data`` are plain ASCII that needs no escaping."""
    above = f'"{parent}"' if parent else "null"
    start = f'{{"id":"{id}","seq":{seq},"prev":"{prev}","timestamp":"{timestamp}","parentId":{above},"type":"{name}","data":'
    return b"%b%b}" % (start.encode(), data)


def open_line(line: bytes) -> Envelope:
    """The envelope of a line, its data still raw.

    Raises:
        BadLine: the line is no JSON object with the envelope's fields.
    """
    try:
        return _envelope.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadLine(str(error)) from None


def decode(line: bytes) -> Entry:
    """A line as an entry. Fields that were moved to blobs must have been put back before (``store.blobs``).

    Raises:
        BadLine: the line is no event, or its data has not the shape its type demands.
    """
    return entry(open_line(line))


def entry(envelope: Envelope) -> Entry:
    """An envelope with its data decoded by its type; a type this version does not know becomes ``Unknown``."""
    decoder = _decoders.get(envelope.type)
    try:
        if decoder is None:
            event: Event = Unknown(type=envelope.type, data=_anything.decode(envelope.data))
        else:
            event = decoder.decode(envelope.data)
        return Entry(envelope.seq, envelope.id, seconds(envelope.timestamp), event)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        raise BadLine(f"seq {envelope.seq}, {envelope.type}: {error}") from None


def from_builtins(name: str, data: Any) -> Event:
    """An event from plain objects (after fields were replaced in them)."""
    cls = EVENTS.get(name)
    if cls is None:
        return Unknown(type=name, data=data)
    return msgspec.convert(data, cls)


def to_builtins(event: Event) -> Any:
    """The event's data as plain objects."""
    if isinstance(event, Unknown):
        return event.data
    return msgspec.to_builtins(event)


def stamp(time: float) -> str:
    """Epoch seconds as an RFC 3339 UTC text with milliseconds."""
    whole = int(time)
    whole, milliseconds = divmod(whole * 1000 + round((time - whole) * 1e6) // 1000, 1000)
    return f"{_to_the_second(whole)}.{milliseconds:03d}Z"


@lru_cache(maxsize=16)
def _to_the_second(whole: int) -> str:
    return datetime.fromtimestamp(whole, UTC).isoformat()[:19]


def seconds(timestamp: str) -> float:
    """An RFC 3339 text as epoch seconds; without a zone it is UTC, so that it means the same on every machine.

    Raises:
        ValueError: the text is no such time.
    """
    moment = datetime.fromisoformat(timestamp)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
