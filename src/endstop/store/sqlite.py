"""Everything that only SQLite understands: connections, pragmas, its error codes, and the prepared statements of the hot
append. The rest of the store speaks SQLAlchemy Core."""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError

from endstop.errors import StoreCorrupt, StoreError, StoreFull, UsageError

BUSY = 30.0
"""Seconds to wait for another process that is writing."""
WAL_PAGES = 4000
"""Pages after which a commit moves the write-ahead log into the database."""
WAL_BYTES = 64 * 1024 * 1024
"""Size of the log above which readers are waited for, so that it can start anew."""
CHUNKS = (64, 32, 16, 8, 7, 6, 5, 4, 3, 2, 1)
"""Rows per statement: few texts that stay prepared, and few trips to the interpreter lock."""

FOREIGN = (sqlite3.Error, DBAPIError)
"""What a database call may raise; ``translate`` makes it ours."""

_FULL = {sqlite3.SQLITE_FULL}
_CORRUPT = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT}
_CLOSED = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_PAUSE = 0.02
_ROOM = 256 * 1024


def connect(path: Path, *, writer: bool) -> Engine:
    """An engine on the database file. A writer's transactions take the write lock at once, a reader's see one moment."""
    engine = create_engine(
        f"sqlite:///{path}",
        connect_args={"timeout": BUSY, "check_same_thread": False, "cached_statements": 256, "isolation_level": None},
    )
    begin = "BEGIN IMMEDIATE" if writer else "BEGIN"

    @event.listens_for(engine, "connect")
    def configure(raw: sqlite3.Connection, _: object) -> None:
        raw.execute("PRAGMA synchronous=NORMAL")
        raw.execute(f"PRAGMA wal_autocheckpoint={WAL_PAGES}")
        raw.execute(f"PRAGMA journal_size_limit={WAL_BYTES}")
        raw.execute("PRAGMA secure_delete=ON")  # an erased blob is overwritten, not just unlinked

    @event.listens_for(engine, "begin")
    def start(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    return engine


def use_wal(connection: Connection) -> None:
    """Switch the database to a write-ahead log; it stays so."""
    raw(connection).execute("PRAGMA journal_mode=WAL")


def raw(connection: Connection) -> sqlite3.Connection:
    """The driver's own connection beneath."""
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    return driver


def translate(error: BaseException, path: Path) -> StoreError | UsageError:
    """A driver's error as one of ours, with the remedy."""
    code, where, text = _code(error), str(path), str(_cause(error))
    if code in _FULL or (code == sqlite3.SQLITE_IOERR and no_room(path)):
        return StoreFull("no room left on the disk; nothing was written", where=where, hint="free some space, then resume")
    if code in _CORRUPT:
        hint = "move the file away, or restore a copy; the journals are also in sessions/*/events.jsonl beside it"
        return StoreCorrupt(f"the database cannot be read: {text}", where=where, hint=hint)
    if code in _CLOSED:
        return UsageError(f"the database cannot be written: {text}", where=where, hint="set ENDSTOP_HOME to a writable folder")
    if code in _BUSY:
        return StoreError(f"another process kept the database locked for {BUSY:.0f} s", where=where, hint="end it, or try again")
    return StoreError(f"the database failed: {text}", where=where, hint="try again; endstop verify tells whether it is intact")


def _cause(error: BaseException) -> BaseException:
    return error.orig if isinstance(error, DBAPIError) and error.orig else error


def _code(error: BaseException) -> int:
    return int(getattr(_cause(error), "sqlite_errorcode", sqlite3.SQLITE_ERROR)) & 0xFF


def patiently(work: Callable[[], None]) -> None:
    """Do ``work`` on a database that others may be making, or closing for the last time, just now: then SQLite says busy
    without waiting."""
    deadline = time.monotonic() + BUSY
    while True:
        try:
            return work()
        except FOREIGN as error:
            if _code(error) not in _BUSY or time.monotonic() > deadline:
                raise
        time.sleep(_PAUSE)


def no_room(path: Path) -> bool:
    """Whether the disk under ``path`` is (nearly) full."""
    return shutil.disk_usage(path.parent).free < _ROOM


def foreign_commits(driver: sqlite3.Connection) -> int:
    """A number that changes when another connection has committed."""
    (number,) = driver.execute("PRAGMA data_version").fetchone()
    return int(number)


def set_durable(driver: sqlite3.Connection, durable: bool) -> None:
    """Whether following commits survive a power cut. Has no effect inside a transaction."""
    driver.execute("PRAGMA synchronous=FULL" if durable else "PRAGMA synchronous=NORMAL")


def checkpoint(driver: sqlite3.Connection, path: Path) -> None:
    """Move the log into the database as far as readers allow; if it has grown too long, wait for them and start it anew."""
    log = path.with_name(path.name + "-wal")
    mode = "RESTART" if log.exists() and log.stat().st_size > WAL_BYTES else "PASSIVE"
    driver.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()


@cache
def _insert_events(rows: int) -> str:
    return "INSERT INTO events(session_id,seq,type,line) VALUES " + ",".join(["(?,?,?,?)"] * rows)


@cache
def _insert_blobs(rows: int) -> str:
    return "INSERT INTO blobs(session_id,hash,data) VALUES " + ",".join(["(?,?,?)"] * rows) + " ON CONFLICT DO NOTHING"


@cache
def _move_heads(rows: int) -> str:
    values = ",".join(["(?,?,?,?,?,?)"] * rows)
    return (
        f"WITH v(id,head,hash,size,time,phase) AS (VALUES {values}) UPDATE sessions SET head=v.head,hash=v.hash,size=v.size,"
        "time=v.time,phase=v.phase FROM v WHERE sessions.id=v.id"
    )


Row = tuple[Any, ...]


def write(driver: sqlite3.Connection, events: Sequence[Row], blobs: Sequence[Row], heads: Sequence[Row]) -> None:
    """The hot append, inside an open transaction: rows in the order of their tables' columns."""
    for statement, rows in ((_insert_blobs, blobs), (_insert_events, events), (_move_heads, heads)):
        at = 0
        for size in CHUNKS:
            while len(rows) - at >= size:
                driver.execute(statement(size), [value for row in rows[at : at + size] for value in row])
                at += size


def read_head(driver: sqlite3.Connection, session_id: str) -> Row | None:
    """(head, hash, size, phase, generation) of a session, or None."""
    found: Row | None = driver.execute(
        "SELECT head,hash,size,phase,generation FROM sessions WHERE id=?", (session_id,)
    ).fetchone()
    return found
