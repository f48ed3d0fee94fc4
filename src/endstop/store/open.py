"""The store of one process: ``open_store(home)``.

    home/endstop.db                    sessions, journals, blobs, workspace locks
    home/sessions/<id>/events.jsonl    each journal again as plain lines

Writes go through one thread (``writer``), reads through two others: nothing here blocks an event loop.
"""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self, TypeVar

from sqlalchemy import Connection, Engine

from endstop.core.codec import Entry
from endstop.errors import StoreError, StoreFull, UsageError
from endstop.ports import Clock
from endstop.store import blobs, leases, reader, sessions, sqlite
from endstop.store.blobs import Sealed
from endstop.store.journal import Append, Draft, Make, Position
from endstop.store.leases import Holder, Lease
from endstop.store.migrate import migrate
from endstop.store.sessions import NewSession, SessionRow
from endstop.store.verify import Verdict
from endstop.store.writer import OnMoved, Writer

T = TypeVar("T")
_READERS = 2


def open_store(home: Path, *, clock: Clock = time.time) -> Store:
    """Open the store under ``home``, making folder and database if they are not there, and bringing them up to date.

    Raises:
        UsageError: the folder cannot be made or written, or a newer version wrote the database.
        StoreCorrupt: the database cannot be read.
        StoreFull: there is no room to make it.
    """
    path = home / "endstop.db"
    _make(home, path)
    writing, reading = sqlite.connect(path, writer=True), sqlite.connect(path, writer=False)
    with ExitStack() as undo:
        undo.callback(writing.dispose)
        try:
            sqlite.patiently(lambda: migrate(writing, path))
            writer = Writer(writing, reading, path, home / "sessions")
        except sqlite.FOREIGN as error:
            raise sqlite.translate(error, path) from None
        undo.pop_all()
    return Store(writer, reading, path, clock)


def _make(home: Path, path: Path) -> None:
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        if not os.access(home, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "permission denied", str(home))
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreFull("no room left on the disk", where=str(home), hint="free some space") from None
        hint = "set ENDSTOP_HOME to a folder you can write to"
        raise UsageError(f"the store cannot be made here: {error.strerror}", where=str(home), hint=hint) from None


class Store:
    """All sessions of one home. Use ``open_store``; close it, or use it as an async context manager."""

    def __init__(self, writer: Writer, reading: Engine, path: Path, clock: Clock) -> None:
        self.path = path
        self._writer = writer
        self._reading = reading
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="endstop-reader")
        self._clock = clock

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """Write what was handed over, bring the mirrors up to date, let everything go."""
        await asyncio.to_thread(self._writer.close)
        self._readers.shutdown()
        self._reading.dispose()

    @property
    def warnings(self) -> list[str]:
        """What went wrong without harming a journal (mirrors, housekeeping), each said once."""
        return self._writer.warnings

    # -- appending

    def append(
        self,
        session_id: str,
        lines: Sequence[bytes],
        *,
        first: int,
        generation: int | None,
        durable: bool,
        phase: str | None = None,
        blobs: Sequence[Sealed] = (),
    ) -> Append:
        """As ``ports.Journal.append``. ``phase`` None leaves it; ``blobs`` are what ``blobs.pack`` moved out of the lines.

        Awaiting is optional: appends keep their order, and an error that nobody awaited fails the session's next append.
        """
        return self._writer.append(session_id, Draft(lines, phase, blobs), first=first, generation=generation, durable=durable)

    async def append_control(self, session_id: str, make: Make) -> int:
        """Append at the head whatever comes between, by anyone, surviving a power cut.

        Args:
            make: stamps the lines for a position; called again if the journal moved meanwhile.

        Returns:
            The new head, or the old one if ``make`` had nothing to append.

        Raises:
            UsageError: there is no such session.
        """
        while True:
            seen = await self.position(session_id)
            draft = make(seen)
            if not draft.lines:
                return seen.seq
            appended = await self._writer.append(session_id, draft, first=seen.seq + 1, generation=None, durable=True)
            if not appended.moved:
                return appended.head
            if appended.head == seen.seq:
                raise StoreError("the lines are not stamped for where the journal ends", where=session_id)

    def watch(self, session_id: str, notify: OnMoved, *, after: int = 0) -> None:
        """Call ``notify(session_id, head)`` on this loop when the journal moves beyond ``after`` by another process, or by
        a control of this one. What the lease holder here appends is not told."""
        self._writer.watch(session_id, notify, after)

    def unwatch(self, session_id: str, notify: OnMoved) -> None:
        """End what ``watch`` began with the same function."""
        self._writer.unwatch(session_id, notify)

    # -- sessions and leases

    async def create(self, new: NewSession) -> None:
        """Register a session with an empty journal. See ``sessions.create``."""
        await self._writer.run(lambda connection: sessions.create(connection, new))

    async def discard(self, session_id: str) -> None:
        """Take back a registration that nothing was ever appended to."""
        await self._writer.run(lambda connection: sessions.discard(connection, session_id))

    async def describe(self, session_id: str, *, objective: str | None = None, model: str | None = None) -> None:
        """Change what listings show of a session; None leaves it."""
        await self._writer.run(lambda connection: sessions.describe(connection, session_id, objective, model), commit="plain")

    async def acquire(self, session_id: str, holder: Holder | None = None) -> Lease:
        """The right to drive a session, for this process unless another is named. See ``leases.acquire``."""
        who = holder or leases.this_process()

        def work(connection: Connection) -> Lease:
            lease = leases.acquire(connection, session_id, who, self._clock())
            self._writer.forgive(session_id)
            return lease

        return await self._writer.run(work)

    async def renew(self, lease: Lease) -> Lease:
        """Hold it longer; to be done a few times per ``leases.LEASE``. Raises LeaseLost."""
        return await self._writer.run(lambda connection: leases.renew(connection, lease, self._clock()), commit="plain")

    async def release(self, lease: Lease) -> None:
        """Give it back in good order, with the workspace."""
        await self._writer.run(lambda connection: leases.release(connection, lease))

    async def lock_workspace(self, path: Path, lease: Lease) -> None:
        """One live goal per folder. See ``leases.lock_workspace``."""
        name = os.path.realpath(path)
        await self._writer.run(lambda connection: leases.lock_workspace(connection, name, lease, self._clock()))

    async def sessions(self, workspace: Path | None = None) -> list[SessionRow]:
        """All sessions, or those of one folder; the latest first."""
        return await self._read(lambda connection: sessions.listed(connection, None if workspace is None else str(workspace)))

    async def find(self, prefix: str) -> SessionRow:
        """A session by its id or the beginning of it. Raises UsageError if there is none, or several."""
        return await self._read(lambda connection: sessions.find(connection, prefix))

    async def newest(self, workspace: Path) -> SessionRow | None:
        """The session of a folder with the latest event."""
        found = await self.sessions(workspace)
        return found[0] if found else None

    # -- reading journals

    async def position(self, session_id: str) -> Position:
        """Where the journal ends. Raises UsageError if there is no such session."""
        return await self._read(lambda connection: sessions.position(connection, session_id))

    async def lines(self, session_id: str, after: int = 0) -> list[bytes]:
        """The stored bytes of all lines beyond ``after``."""
        return await self._read(lambda connection: reader.lines(connection, session_id, after))

    async def entries(self, session_id: str, after: int = 0) -> list[Entry]:
        """The events beyond ``after``, long texts put back; of erased ones the ends remain. Raises StoreCorrupt."""
        return await self._read(lambda connection: reader.entries(connection, session_id, after))

    async def snapshot(self, session_id: str, after: int = 0) -> tuple[list[Entry], Position]:
        """Events beyond ``after`` and where the journal ends, of one and the same moment. Raises as both do."""
        return await self._read(
            lambda connection: (reader.entries(connection, session_id, after), sessions.position(connection, session_id))
        )

    async def export(self, session_id: str, target: BinaryIO) -> int:
        """Write the journal's lines, unchanged, as JSON lines; returns how many."""
        lines = await self.lines(session_id)
        await asyncio.to_thread(target.writelines, (line + b"\n" for line in lines))
        return len(lines)

    async def transcript(self, session_id: str) -> Path:
        """The file that mirrors the journal, holding everything committed so far."""
        return await self._writer.transcript(session_id)

    async def verify(self, session_id: str) -> Verdict:
        """Check a journal with its blobs against the head that the registry remembers. Raises UsageError if unknown."""
        return await self._read(lambda connection: reader.verify(connection, session_id))

    # -- blobs

    async def put(self, session_id: str, content: bytes) -> str:
        """Keep bytes beside a journal; returns their salted hash. (Blobs of lines travel with their append instead.)"""
        return await self._writer.run(lambda connection: blobs.put(connection, session_id, content))

    async def get(self, session_id: str, name: str) -> bytes | None:
        """Content of a blob by its hash, None if it was erased or never was."""
        return await self._read(lambda connection: reader.blob(connection, session_id, name))

    async def erase(self, session_id: str, name: str) -> bool:
        """Destroy a blob's content; the lines that name it stay valid. Returns whether there was one."""
        return await self._writer.run(lambda connection: blobs.erase(connection, session_id, name))

    async def _read(self, work: Callable[[Connection], T]) -> T:
        def on_thread() -> T:
            try:
                with self._reading.connect() as connection:
                    return work(connection)
            except sqlite.FOREIGN as error:
                raise sqlite.translate(error, self.path) from None

        return await asyncio.get_running_loop().run_in_executor(self._readers, on_thread)
