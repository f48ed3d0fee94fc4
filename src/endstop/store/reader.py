"""Reading journals and blobs, on a connection whose transaction sees one moment."""

from __future__ import annotations

from functools import lru_cache

import msgspec
from sqlalchemy import Connection, select

from endstop.core.codec import BadLine, Entry, decode, entry, open_line
from endstop.errors import StoreCorrupt
from endstop.store.blobs import Get, has_blobs, inflate, seal
from endstop.store.leases import registered
from endstop.store.tables import DATA, LINE, blobs, events
from endstop.store.verify import Verdict, verify_lines


def lines(connection: Connection, session_id: str, after: int) -> list[bytes]:
    """The stored bytes of all lines beyond ``after``; none for an unknown session."""
    query = select(LINE).where(events.c.session_id == session_id, events.c.seq > after).order_by(events.c.seq)
    return list(connection.execute(query).scalars())


def entries(connection: Connection, session_id: str, after: int) -> list[Entry]:
    """The events beyond ``after``, long texts put back; of erased ones the ends remain.

    Raises:
        StoreCorrupt: a line or a blob is not what was written.
    """
    found = lines(connection, session_id, after)
    get = _sound(connection, session_id) if any(map(has_blobs, found)) else None
    try:
        return [_entry(line, get) if get and has_blobs(line) else decode(line) for line in found]
    except (BadLine, UnicodeDecodeError) as error:
        raise StoreCorrupt(str(error), where=session_id, hint="endstop verify shows what changed") from None


def blob(connection: Connection, session_id: str, name: str) -> bytes | None:
    """Content of a blob, None if it was erased or never was."""
    query = select(DATA).where(blobs.c.session_id == session_id, blobs.c.hash == name)
    return connection.execute(query).scalar()


def verify(connection: Connection, session_id: str) -> Verdict:
    """Check a journal with its blobs against the head that the registry remembers.

    Raises:
        UsageError: there is no such session.
    """
    row = registered(connection, session_id)
    found = lines(connection, session_id, 0)
    verdict = verify_lines(session_id, found, head=(row.head, row.hash), get=lambda name: blob(connection, session_id, name))
    if verdict.verdict == "ok" and verdict.count > row.head:
        why = f"{verdict.count - row.head} lines stand behind the last one that was written"
        return msgspec.structs.replace(verdict, verdict="tampered", first_bad=row.head + 1, why=why)
    return verdict


def _entry(line: bytes, get: Get) -> Entry:
    envelope = open_line(line)
    try:
        data = inflate(msgspec.json.decode(envelope.data), get)
    except msgspec.DecodeError as error:
        raise BadLine(f"seq {envelope.seq}: {error}") from None
    return entry(msgspec.structs.replace(envelope, data=msgspec.Raw(msgspec.json.encode(data))))


def _sound(connection: Connection, session_id: str) -> Get:
    """A getter that refuses altered blobs; one blob named by many lines is read once."""
    salt: str = registered(connection, session_id).salt

    @lru_cache(maxsize=32)
    def get(name: str) -> bytes | None:
        content = blob(connection, session_id, name)
        if content is not None and seal(salt, content) != name:
            raise StoreCorrupt(f"the blob {name} was altered", where=session_id, hint="endstop verify shows where it is named")
        return content

    return get
