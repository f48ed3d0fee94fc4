"""The registry of sessions: beginning, listing and finding them."""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import Connection, Row, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from endstop.core.chain import genesis
from endstop.core.codec import open_line, seconds
from endstop.errors import UsageError
from endstop.store.journal import Position
from endstop.store.leases import Holder, dead, holder_of, registered, tail
from endstop.store.tables import sessions

TITLE = 200
"""Characters of the objective kept for listings."""


class NewSession(msgspec.Struct, frozen=True, kw_only=True):
    """What a session begins with. ``salt`` (hex) is the one of its ``session.start``; ``created`` in epoch seconds."""

    id: str
    kind: str
    created: float
    workspace: str
    salt: str
    objective: str | None = None
    model: str | None = None
    parent: str | None = None


class SessionRow(NewSession, frozen=True, kw_only=True):
    """A session as listings show it. ``head`` and ``hash`` are where its journal ends, ``time`` is of its last event.

    ``holder`` is who drives it, if it still lives; ``until`` is when its lease runs out.
    """

    phase: str
    head: int
    hash: str
    time: float
    generation: int
    holder: Holder | None
    until: float | None


def create(connection: Connection, new: NewSession) -> None:
    """Register a session with an empty journal, inside a transaction.

    Raises:
        UsageError: the id is taken or cannot be used, or the salt is not hexadecimal.
    """
    if not 0 < len(new.id.encode()) <= 80:
        raise UsageError("a session id has 1 to 80 bytes", where=repr(new.id), hint="use another id")
    try:
        bytes.fromhex(new.salt)
    except ValueError:
        raise UsageError("the salt is not hexadecimal", where=new.id, hint="use secrets.token_hex(16)") from None
    title = new.objective and new.objective[:TITLE]
    values = msgspec.structs.asdict(new) | {"objective": title, "time": new.created}
    try:
        connection.execute(insert(sessions).values(**values, phase="none", head=0, hash=genesis(new.id), size=0, generation=0))
    except IntegrityError:
        raise UsageError("there is a session with this id already", where=new.id, hint="use another id") from None


def describe(connection: Connection, session_id: str, objective: str | None, model: str | None) -> None:
    """Change what listings show of a session; None leaves it. Raises UsageError if there is no such session."""
    registered(connection, session_id)
    change = {"objective": objective and objective[:TITLE], "model": model}
    values = {key: value for key, value in change.items() if value is not None}
    if values:
        connection.execute(update(sessions).where(sessions.c.id == session_id).values(**values))


def discard(connection: Connection, session_id: str) -> None:
    """Take back a registration that nothing was ever appended to, inside a transaction."""
    connection.execute(delete(sessions).where(sessions.c.id == session_id, sessions.c.head == 0))


def listed(connection: Connection, workspace: str | None) -> list[SessionRow]:
    """All sessions, or those of one folder; the one with the latest event first."""
    query = select(sessions).order_by(sessions.c.time.desc(), sessions.c.id.desc())
    if workspace is not None:
        query = query.where(sessions.c.workspace == workspace)
    return [_row(row) for row in connection.execute(query)]


def find(connection: Connection, prefix: str) -> SessionRow:
    """The one session whose id is or begins with ``prefix``.

    Raises:
        UsageError: there is none, or there are several.
    """
    if not prefix:
        raise UsageError("a session id is needed", hint="endstop ps --all shows all")
    query = select(sessions).where(sessions.c.id.startswith(prefix, autoescape=True)).order_by(sessions.c.id)
    rows = connection.execute(query.limit(6)).all()
    exact = [row for row in rows if row.id == prefix] or rows
    if len(exact) > 1:
        shown = ", ".join(row.id for row in exact[:5]) + (", …" if len(exact) > 5 else "")
        raise UsageError(f"several ids begin like this: {shown}", where=prefix, hint="give more of the id")
    if not exact:
        raise UsageError("no session has this id", where=prefix, hint="endstop ps --all shows all")
    return _row(exact[0])


def position(connection: Connection, session_id: str) -> Position:
    """Where the journal ends.

    Raises:
        UsageError: there is no such session.
        StoreCorrupt: its last line is not the one that was written.
    """
    row = registered(connection, session_id)
    line = tail(connection, row)
    if line is None:
        return Position(0, row.hash, None, row.created, row.phase)
    envelope = open_line(line)
    return Position(row.head, row.hash, envelope.id, seconds(envelope.timestamp), row.phase)


def _row(row: Row[Any]) -> SessionRow:
    return SessionRow(
        id=row.id, kind=row.kind, created=row.created, workspace=row.workspace, salt=row.salt, objective=row.objective,
        model=row.model, parent=row.parent, phase=row.phase, head=row.head, hash=row.hash, time=row.time,
        generation=row.generation, holder=_living(row), until=row.lease_until,
    )  # fmt: skip


def _living(row: Row[tuple[object, ...]]) -> Holder | None:
    holder = holder_of(row)
    return None if holder is None or dead(holder) else holder
