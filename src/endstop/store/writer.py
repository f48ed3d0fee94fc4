"""The one thread of a process that writes. What waits together is committed together, and told with one call back.

No timed window collects anything: while one group is being committed the next one gathers by itself.
"""

from __future__ import annotations

import asyncio
import errno
import sqlite3
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Literal, TypeVar, cast

from sqlalchemy import ColumnElement, Connection, Engine, select

from endstop.errors import EndstopError, StoreError
from endstop.store import sqlite
from endstop.store.journal import Append, Draft, Job, Journals
from endstop.store.mirror import Mirror
from endstop.store.tables import LINE, events, sessions

T = TypeVar("T")
OnMoved = Callable[[str, int], None]
"""Called on the watcher's loop with the session and its new head."""

_POLL = 0.2
"""Seconds between two looks at what other processes committed."""
_MIRROR_SECONDS = 0.05
"""Seconds that the mirrors may be behind while one commit follows another."""
_MIRROR_BYTES = 1024 * 1024
"""Bytes of lines after which the mirrors are written even while more appends wait."""
_CHECKPOINT_BYTES = 1024 * 1024
"""Bytes committed after which an idle writer moves the log into the database."""


Commit = Literal["durable", "plain", "none"]
"""How a call's transaction ends: surviving a power cut, surviving a killed process, or there is no transaction."""


class Call(Job):
    """Work on the writer's connection, in a transaction of its own."""

    __slots__ = ("commit", "work")

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Callable[[Connection], object], commit: Commit) -> None:
        super().__init__(loop)
        self.work = work
        self.commit = commit


class _Watcher:
    """Somebody who wants to know when a journal moved without him. ``head`` is what he has been told."""

    __slots__ = ("head", "loop", "notify")

    def __init__(self, notify: OnMoved, loop: asyncio.AbstractEventLoop, head: int) -> None:
        self.notify = notify
        self.loop = loop
        self.head = head


class Writer:
    """Owns the writing connection and its thread. All methods but ``close`` are called on an event loop."""

    def __init__(self, engine: Engine, reader: Engine, path: Path, mirror_root: Path) -> None:
        self.warnings: list[str] = []
        self._path = path
        self._reader = reader
        self._engine = engine
        self._connection = engine.connect()
        self._driver = sqlite.raw(self._connection)
        self._journals = Journals(self._driver)
        self._mirror = Mirror(mirror_root, self._lines, self._warn)
        self._queue: SimpleQueue[list[Append] | Call | None] = SimpleQueue()
        self._gathering: dict[asyncio.AbstractEventLoop, list[Append]] = {}
        self._watchers: dict[str, list[_Watcher]] = {}
        self._mirrored = 0.0  # when the mirrors were last written, monotonic seconds
        self._durable = False
        self._moved_outside = False
        self._unmoved = 0  # bytes committed since the log was last moved
        self._dead: StoreError | None = None
        self._thread = threading.Thread(target=self._run, name="endstop-writer", daemon=True)
        self._thread.start()

    # -- on the loop

    def append(self, session_id: str, draft: Draft, *, first: int, generation: int | None, durable: bool) -> Append:
        """Hand an append over; all of one loop tick travel together."""
        self._alive()
        loop = asyncio.get_running_loop()
        append = Append(loop, self._journals.broken, session_id, draft, first, generation, durable)
        tick = self._gathering.get(loop)
        if tick is None:
            self._gathering[loop] = [append]
            loop.call_soon(self._hand_over, loop)
        else:
            tick.append(append)
        return append

    async def run(self, work: Callable[[Connection], T], *, commit: Commit = "durable") -> T:
        """Do ``work`` in the writer's thread, after everything handed over so far."""
        return cast(T, await self._submit(work, commit).future)

    def watch(self, session_id: str, notify: OnMoved, after: int) -> None:
        """Call ``notify`` whenever the journal moves beyond ``after`` by somebody else than its lease holder here."""
        watcher = _Watcher(notify, asyncio.get_running_loop(), after)

        def begin(_: Connection) -> None:
            self._watchers.setdefault(session_id, []).append(watcher)
            self._look([session_id])

        self._submit(begin, "none")

    def unwatch(self, session_id: str, notify: OnMoved) -> None:
        """Stop what ``watch`` began."""

        def end(_: Connection) -> None:
            left = [watcher for watcher in self._watchers.pop(session_id, []) if watcher.notify != notify]
            if left:
                self._watchers[session_id] = left

        self._submit(end, "none")

    def forgive(self, session_id: str) -> None:
        """In the thread: a new holder starts without the failed appends of the one before."""
        self._journals.broken.pop(session_id, None)

    async def transcript(self, session_id: str) -> Path:
        """The session's mirror, holding everything committed so far."""

        def whole(_: Connection) -> None:
            self._mirror.flush()
            self._repair(sessions.c.id == session_id)  # another process may be behind with its lines

        await self.run(whole, commit="none")
        return self._mirror.path(session_id)

    def close(self) -> None:
        """Write everything that was handed over, then end the thread. Blocks until done."""
        for loop in list(self._gathering):
            self._hand_over(loop)
        self._queue.put(None)
        self._thread.join()

    def _alive(self) -> None:
        if self._dead is not None:
            raise self._dead

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        tick = self._gathering.pop(loop, None)
        if tick:
            self._put(tick)

    def _put(self, item: list[Append] | Call) -> None:
        self._queue.put(item)
        if self._dead is not None:  # the thread ended just now and may not have seen it
            self._refuse([], self._dead)

    def _submit(self, work: Callable[[Connection], object], commit: Commit) -> Call:
        self._alive()
        loop = asyncio.get_running_loop()
        self._hand_over(loop)
        call = Call(loop, work, commit)
        self._put(call)
        return call

    # -- in the thread

    def _run(self) -> None:
        group: list[list[Append] | Call | None] = []
        end = "the store's writer failed"
        try:
            self._repair()
            while None not in group:
                group = self._next()
                if group:
                    self._work(group)
                else:
                    self._idle()
            self._finish()
            end = "the store is closed"
        finally:  # also if this thread fails by a mistake of ours: nobody may wait for ever
            self._dead = StoreError(end, where=str(self._path), hint="open it again")
            self._refuse(group, self._dead)
            self._connection.close()
            self._engine.dispose()

    def _next(self) -> list[list[Append] | Call | None]:
        """All that waits; empty if nothing came for a while."""
        group: list[list[Append] | Call | None] = []
        with suppress(Empty):
            group.append(self._queue.get(timeout=_MIRROR_SECONDS if self._mirror.waiting else _POLL))
            while True:
                group.append(self._queue.get_nowait())
        return group

    def _work(self, group: Iterable[list[Append] | Call | None]) -> None:
        appends: list[Append] = []
        for item in group:
            if isinstance(item, list):
                appends += item
            elif item is not None:
                self._commit(appends)
                appends = []
                self._call(item)
        self._commit(appends)
        if self._mirror.waiting > _MIRROR_BYTES or monotonic() - self._mirrored > _MIRROR_SECONDS:
            self._write_mirrors()
        self._move_log(sqlite.WAL_BYTES)

    def _commit(self, appends: Sequence[Append]) -> None:
        if not appends:
            return
        try:
            written = self._transaction(appends)
        except sqlite3.Error as error:
            self._undo()
            if len(appends) > 1 and isinstance(error, sqlite3.IntegrityError | sqlite3.DataError):
                for append in appends:  # one of them is bad: its neighbours must not suffer
                    self._commit([append])
                return
            fault = sqlite.translate(error, self._path)
            for append in appends:
                self._journals.fail(append, fault)
        else:
            for append, offset in written:
                self._mirror.add(append.session_id, offset, append.lines)
            self._tell(append for append, _ in written)
        _settle(appends)
        if self._moved_outside:
            self._look(self._watchers)

    def _transaction(self, appends: Sequence[Append]) -> list[tuple[Append, int]]:
        driver = self._driver
        self._set_durable(any(append.durable for append in appends))
        driver.execute("BEGIN IMMEDIATE")
        if self._journals.changed_outside():
            self._moved_outside = True
        written = self._journals.write(appends)
        driver.execute("COMMIT")
        self._unmoved += sum(append.weight for append, _ in written)
        return written

    def _undo(self) -> None:
        self._journals.forget()
        if self._driver.in_transaction:
            with suppress(sqlite3.Error):  # a disk that fails here has been reported already
                self._driver.execute("ROLLBACK")

    def _set_durable(self, durable: bool) -> None:
        if durable != self._durable:
            sqlite.set_durable(self._driver, durable)
            self._durable = durable

    def _call(self, call: Call) -> None:
        try:
            if call.commit != "none":
                self._set_durable(call.commit == "durable")
                with self._connection.begin():
                    call.outcome = call.work(self._connection)
            else:
                call.outcome = call.work(self._connection)
        except EndstopError as error:
            call.outcome = error
        except sqlite.FOREIGN as error:
            call.outcome = sqlite.translate(error, self._path)
        self._journals.forget()
        _settle([call])

    def _tell(self, written: Iterable[Append]) -> None:
        """Watchers here follow the holder's own appends silently and are called for everybody else's."""
        if not self._watchers:
            return
        for append in written:
            if append.session_id in self._watchers:
                self._notify(append.session_id, append.first + len(append.lines) - 1, silent=append.generation is not None)

    def _look(self, session_ids: Iterable[str]) -> None:
        self._moved_outside = False
        ids = list(session_ids)
        try:
            with self._reader.connect() as connection:
                for at in range(0, len(ids), 500):
                    query = select(sessions.c.id, sessions.c.head).where(sessions.c.id.in_(ids[at : at + 500]))
                    for row in connection.execute(query):
                        self._notify(row.id, row.head, silent=False)
        except sqlite.FOREIGN as error:
            self._warn(f"cannot see what other processes wrote: {sqlite.translate(error, self._path)}")

    def _notify(self, session_id: str, head: int, *, silent: bool) -> None:
        for watcher in self._watchers.get(session_id, ()):
            if head > watcher.head:
                watcher.head = head
                if not silent:
                    _call_on(watcher.loop, watcher.notify, session_id, head)

    def _write_mirrors(self) -> None:
        self._mirror.flush()
        self._mirrored = monotonic()

    def _idle(self) -> None:
        self._write_mirrors()
        try:
            if self._watchers and self._journals.changed_outside():
                self._look(self._watchers)
        except sqlite3.Error as error:
            self._warn(f"cannot see what other processes wrote: {sqlite.translate(error, self._path)}")
        self._move_log(_CHECKPOINT_BYTES)

    def _move_log(self, above: int) -> None:
        if self._unmoved <= above:
            return
        self._unmoved = 0
        try:
            sqlite.checkpoint(self._driver, self._path)
        except sqlite3.Error as error:
            self._warn(f"the log cannot be moved into the database: {sqlite.translate(error, self._path)}")

    def _finish(self) -> None:
        self._mirror.close()
        self._move_log(0)

    def _refuse(self, group: list[list[Append] | Call | None], error: StoreError) -> None:
        with suppress(Empty):
            while True:
                group.append(self._queue.get_nowait())
        for item in group:
            jobs: Sequence[Job] = item if isinstance(item, list) else [item] if item else []
            for job in jobs:
                job.outcome = job.outcome or error  # what was decided before stays so
            _settle(jobs)

    # -- the mirrors' view of the journals

    def _repair(self, *which: ColumnElement[bool]) -> None:
        def sizes(*condition: ColumnElement[bool]) -> list[tuple[str, int]]:
            with self._reader.connect() as connection:
                return [
                    (row.id, row.size) for row in connection.execute(select(sessions.c.id, sessions.c.size).where(*condition))
                ]

        try:
            self._mirror.repair(sizes(*which), lambda session_id: sizes(sessions.c.id == session_id)[0][1])
        except sqlite.FOREIGN as error:
            self._warn(f"the mirrors cannot be checked: {sqlite.translate(error, self._path)}")

    def _lines(self, session_id: str) -> list[bytes]:
        query = select(LINE).where(events.c.session_id == session_id).order_by(events.c.seq)
        try:
            with self._reader.connect() as connection:
                return list(connection.execute(query).scalars())
        except sqlite.FOREIGN as error:
            raise OSError(errno.EIO, str(sqlite.translate(error, self._path))) from None

    def _warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)


def _settle(jobs: Iterable[Job]) -> None:
    """Tell all that wait, with one call per loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Job]] = {}
    for job in jobs:
        by_loop.setdefault(job.loop, []).append(job)
    for loop, some in by_loop.items():
        _call_on(loop, _deliver, some)


def _deliver(jobs: Iterable[Job]) -> None:
    for job in jobs:
        job.deliver()


def _call_on(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *arguments: object) -> None:
    try:
        loop.call_soon_threadsafe(function, *arguments)
    except RuntimeError:
        return  # the loop is closed: nobody waits there any more
