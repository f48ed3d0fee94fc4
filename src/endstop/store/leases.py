"""Who drives a session: one holder at a time, fenced by a generation number that rises with every lease.

All functions run inside a transaction of the writer that holds the write lock: what they read cannot change before they write.
"""

from __future__ import annotations

import os
import socket
import subprocess
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, Row, delete, insert, select, update

from endstop.core.chain import genesis, link
from endstop.errors import LeaseLost, StoreCorrupt, UsageError
from endstop.store.tables import LINE, events, sessions, workspaces

LEASE = 60.0
"""Seconds a lease lasts without being renewed. On its own machine a dead holder is noticed at once."""


class Holder(msgspec.Struct, frozen=True):
    """A process: pid, when it started (in the words of its machine; tells it from a later one with the same pid), machine."""

    pid: int
    start: str
    host: str


class Lease(msgspec.Struct, frozen=True):
    """The right to append. ``crashed``: the holder before went without giving it back. ``until`` in epoch seconds."""

    session_id: str
    generation: int
    crashed: bool
    until: float


def this_process() -> Holder:
    """The holder that this process is."""
    pid = os.getpid()
    return Holder(pid, start_of(pid), this_host())


@lru_cache(maxsize=1)
def this_host() -> str:
    """A name for everything that shares our process ids: two containers on one machine do not."""
    try:
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        space = ""
    return f"{socket.gethostname()} {space}".strip()


def start_of(pid: int) -> str:
    """When a process started, as its machine says it; empty if it does not live."""
    stat = Path(f"/proc/{pid}/stat")
    if Path("/proc/self/stat").exists():
        try:
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            return ""
        return "" if fields[0] in "ZX" else fields[19]
    shown = subprocess.run(["/bin/ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return shown.stdout.strip()


def dead(holder: Holder) -> bool:
    """Whether the process is known to live no more. Of other machines nothing is known."""
    return holder.host == this_host() and start_of(holder.pid) != holder.start


def acquire(connection: Connection, session_id: str, holder: Holder, now: float) -> Lease:
    """Take the lease if it is free, run out, or held by a dead process.

    Raises:
        UsageError: a live process holds it, or there is no such session.
        StoreCorrupt: the journal's last line is not the one that was written.
    """
    row = registered(connection, session_id)
    before = holder_of(row)
    if before is not None and _holds(row, now):
        raise UsageError(
            f"process {before.pid} on {before.host.partition(' ')[0]} drives this session",
            where=session_id,
            hint=f"wait for it, or end it: endstop cancel {session_id}, or kill {before.pid}",
        )
    tail(connection, row)
    generation, until = row.generation + 1, now + LEASE
    values = {"holder_pid": holder.pid, "holder_start": holder.start, "holder_host": holder.host}
    connection.execute(
        update(sessions).where(sessions.c.id == session_id).values(generation=generation, lease_until=until, **values)
    )
    return Lease(session_id, generation, before is not None, until)


def renew(connection: Connection, lease: Lease, now: float) -> Lease:
    """The same lease for another ``LEASE`` seconds.

    Raises:
        LeaseLost: somebody else has taken it, or it was given back.
    """
    until = now + LEASE
    changed = connection.execute(update(sessions).where(*_mine(lease)).values(lease_until=until))
    if changed.rowcount != 1:
        raise lease_lost(lease.session_id)
    return msgspec.structs.replace(lease, until=until)


def release(connection: Connection, lease: Lease) -> None:
    """Give the lease and the session's workspace back. Nothing happens if it is lost already."""
    connection.execute(
        update(sessions).where(*_mine(lease)).values(holder_pid=None, holder_start=None, holder_host=None, lease_until=None)
    )
    mine = workspaces.c.session_id == lease.session_id
    connection.execute(delete(workspaces).where(mine, workspaces.c.generation == lease.generation))


def lock_workspace(connection: Connection, path: str, lease: Lease, now: float) -> None:
    """Make the folder the lease holder's, with all that is in it: one live goal per folder, shared only with its sub-agents.

    Raises:
        UsageError: a live goal of another session works there, in a folder around it, or in one inside it.
        LeaseLost: the lease is no longer ours.
    """
    if connection.execute(select(sessions.c.id).where(*_mine(lease))).first() is None:
        raise lease_lost(lease.session_id)
    shared = False
    for owner in _overlapping(connection, path):
        if owner.id == lease.session_id or owner.locked != owner.generation or not _holds(owner, now):
            continue
        if owner.id not in _ancestors(connection, lease.session_id) and lease.session_id not in _ancestors(connection, owner.id):
            raise UsageError(
                f"session {owner.id} (process {owner.holder_pid}) works in {'this folder' if owner.path == path else owner.path}",
                where=path,
                hint="wait for it, cancel it, or use another folder (a git worktree)",
            )
        shared = shared or owner.path == path
    if shared:
        return
    connection.execute(delete(workspaces).where(workspaces.c.path == path))
    connection.execute(insert(workspaces).values(path=path, session_id=lease.session_id, generation=lease.generation))


def _overlapping(connection: Connection, path: str) -> list[Row[Any]]:
    """Locks of this folder, of folders around it and of folders inside it, with the sessions that took them."""
    query = select(sessions, workspaces.c.generation.label("locked"), workspaces.c.path).join_from(
        workspaces, sessions, workspaces.c.session_id == sessions.c.id
    )
    mine = Path(path)
    return [row for row in connection.execute(query) if mine.is_relative_to(row.path) or Path(row.path).is_relative_to(mine)]


def registered(connection: Connection, session_id: str) -> Row[Any]:
    """The row of a session. Raises UsageError if there is none."""
    row = connection.execute(select(sessions).where(sessions.c.id == session_id)).first()
    if row is None:
        raise UsageError("there is no such session", where=session_id, hint="endstop ps --all shows all")
    return row


def tail(connection: Connection, row: Row[Any]) -> bytes | None:
    """The last line of a session's journal, None if it has none.

    Raises:
        StoreCorrupt: it is not the one that was written: what is changed is found before anything is built upon it.
    """
    query = select(LINE).where(events.c.session_id == row.id).order_by(events.c.seq.desc()).limit(1)
    line: bytes | None = connection.execute(query).scalar()
    if row.hash != (genesis(row.id) if line is None else link(line)):
        raise StoreCorrupt(
            f"the last line of the journal is not the one that was written as number {row.head}",
            where=str(row.id),
            hint="endstop verify shows what changed; start a new session",
        )
    return line


def holder_of(row: Row[Any]) -> Holder | None:
    """The holder that a row of ``sessions`` names."""
    if row.holder_pid is None:
        return None
    return Holder(row.holder_pid, row.holder_start, row.holder_host)


def lease_lost(session_id: str) -> LeaseLost:
    """The error of a holder whose generation is no longer the newest."""
    return LeaseLost("another process drives this session now", where=session_id, hint="endstop show tells which")


def _holds(row: Row[Any], now: float) -> bool:
    holder = holder_of(row)
    return holder is not None and row.lease_until > now and not dead(holder)


def _mine(lease: Lease) -> tuple[ColumnElement[bool], ...]:
    return sessions.c.id == lease.session_id, sessions.c.generation == lease.generation, sessions.c.holder_pid.is_not(None)


def _ancestors(connection: Connection, session_id: str) -> set[str]:
    found: set[str] = set()
    above: str | None = session_id
    while above is not None and above not in found:
        found.add(above)
        above = connection.execute(select(sessions.c.parent).where(sessions.c.id == above)).scalar()
    return found
