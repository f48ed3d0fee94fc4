"""Texts over 16 KiB live beside the journal, named by a salted hash: they can be erased and the chain still holds.

In a line such a text is the object ``{"blob": hash, "size": bytes, "head": …, "tail": …}``. ``spill`` and ``inflate`` undo
each other for all data, also for data that happens to look like that object. The one place where such an object stands for
itself is ``result.full`` of a tool's result: it is never touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, delete, insert, select

from endstop.core.codec import ENDS, SPILL, encode_data, to_builtins
from endstop.core.events import Blob, Event
from endstop.store.leases import registered
from endstop.store.tables import blobs

Sealed = tuple[str, bytes]
"""Hash and content of one blob."""
Get = Callable[[str], bytes | None]
"""Content of a blob by its hash, None once it is erased."""

_MARK = b'"blob"'
_KEPT = ("result", "full")
_FIELDS = {"blob", "size", "head", "tail"}


def seal(salt: str, content: bytes) -> str:
    """Name of a blob: SHA-256 over the session's salt (hex) and the content, so that a known text cannot be looked up."""
    return sha256(bytes.fromhex(salt) + content).hexdigest()


def blob_of(text: str, salt: str) -> tuple[Blob, Sealed]:
    """A text as the object that stands for it, and what has to be kept."""
    content = text.encode()
    name = seal(salt, content)
    return Blob(blob=name, size=len(content), head=text[:ENDS], tail=text[-ENDS:]), (name, content)


def pack(event: Event, salt: str) -> tuple[bytes, list[Sealed]]:
    """JSON bytes of an event's data with its long texts moved to blobs, and those blobs. Most events have none: fast."""
    data = encode_data(event)
    if len(data) <= SPILL and not has_blobs(data):
        return data, []
    spilled, kept = spill(to_builtins(event), salt)
    return (msgspec.json.encode(spilled), kept) if kept else (data, [])


def has_blobs(line: bytes) -> bool:
    """Whether a line may name a blob (False is certain)."""
    return _MARK in line


def spill(data: Any, salt: str) -> tuple[Any, list[Sealed]]:
    """Plain data with every text over ``codec.SPILL`` bytes replaced by its blob object, and the blobs."""
    kept: list[Sealed] = []

    def move(text: str) -> dict[str, Any]:
        blob, content = blob_of(text, salt)
        kept.append(content)
        found: dict[str, Any] = msgspec.to_builtins(blob)
        return found

    def walk(value: Any, path: tuple[str, ...]) -> Any:
        if path == _KEPT:
            return value
        if isinstance(value, str):
            return move(value) if len(value) > SPILL // 4 and len(value.encode()) > SPILL else value
        if isinstance(value, list | tuple):
            return [walk(item, (*path, "")) for item in value]
        if not isinstance(value, dict):
            return value
        if is_blob(value):  # only looks like one: moving its name out makes it whole again on the way back
            return {**{key: walk(item, (*path, key)) for key, item in value.items()}, "blob": move(value["blob"])}
        return {key: walk(item, (*path, key)) for key, item in value.items()}

    return walk(data, ()), kept


def inflate(data: Any, get: Get) -> Any:
    """The data as it was before ``spill``. Of an erased blob head and tail remain, with a marker between them."""

    def walk(value: Any, path: tuple[str, ...]) -> Any:
        if isinstance(value, list):
            return [walk(item, (*path, "")) for item in value]
        if not isinstance(value, dict) or path == _KEPT:
            return value
        if is_blob(value):
            content = get(value["blob"])
            return _erased(value) if content is None else content.decode()
        return {key: walk(item, (*path, key)) for key, item in value.items()}

    return walk(data, ())


def put(connection: Connection, session_id: str, content: bytes) -> str:
    """Keep bytes, inside a transaction; returns their name. Raises UsageError if there is no such session."""
    name = seal(registered(connection, session_id).salt, content)
    row = {"session_id": session_id, "hash": name, "data": content}
    if not connection.execute(select(blobs.c.hash).where(*_one(session_id, name))).first():
        connection.execute(insert(blobs).values(row))
    return name


def erase(connection: Connection, session_id: str, name: str) -> bool:
    """Destroy a blob's content, inside a transaction; whether there was any."""
    return connection.execute(delete(blobs).where(*_one(session_id, name))).rowcount > 0


def named(data: Any) -> Iterator[str]:
    """Hashes of all blobs that plain data names."""
    if isinstance(data, list):
        for item in data:
            yield from named(item)
    elif isinstance(data, dict):
        if is_blob(data):
            yield data["blob"]
        else:
            for item in data.values():
                yield from named(item)


def is_blob(value: dict[str, Any]) -> bool:
    """Whether an object has exactly the shape of ``events.Blob``."""
    return (
        value.keys() == _FIELDS
        and isinstance(value["blob"], str)
        and isinstance(value["size"], int)
        and isinstance(value["head"], str)
        and isinstance(value["tail"], str)
    )


def _one(session_id: str, name: str) -> tuple[ColumnElement[bool], ...]:
    return blobs.c.session_id == session_id, blobs.c.hash == name


def _erased(blob: dict[str, Any]) -> str:
    return f"{blob['head']}\n[… erased: {blob['size']} bytes …]\n{blob['tail']}"
