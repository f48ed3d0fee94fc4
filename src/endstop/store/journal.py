"""What one transaction does to journals: each append is checked on its own, then all that hold are written together."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any

import msgspec

from endstop.core.chain import link
from endstop.core.codec import seconds
from endstop.errors import EndstopError, StoreError
from endstop.ports import Appended
from endstop.store import sqlite
from endstop.store.blobs import Sealed
from endstop.store.leases import lease_lost

_FRAME = re.compile(
    rb'\{"id":"([^"\\]*)","seq":(\d+),"prev":"([0-9a-f]{64})","timestamp":"([^"\\]*)","parentId":(?:null|"[^"\\]*"),"type":"([^"\\]+)","data":'
)
_REMEMBERED = 4096
"""Heads kept in memory."""


class Position(msgspec.Struct, frozen=True):
    """Where a journal ends: what the next line is stamped with. ``seq`` 0 and ``id`` None for an empty one."""

    seq: int
    hash: str
    id: str | None
    time: float  # of the last line, epoch seconds
    phase: str


class Draft(msgspec.Struct, frozen=True):
    """Lines stamped for a position, the phase after them, and the blobs they name."""

    lines: Sequence[bytes]
    phase: str | None = None
    blobs: Sequence[Sealed] = ()


Make = Callable[[Position], Draft]
"""Stamps lines for a position; called again if the journal moved meanwhile. No lines: nothing is appended."""


class Job:
    """Something handed to the writer and the promise of what it comes to."""

    __slots__ = ("future", "loop", "outcome")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.future: asyncio.Future[Any] = loop.create_future()
        self.outcome: object = None

    def deliver(self) -> None:
        """On the loop: let whoever waits know."""
        if self.future.done():
            return
        if isinstance(self.outcome, BaseException):
            self.future.set_exception(self.outcome)
            self.future.exception()  # not awaited is no accident here: the next append of the session fails
        else:
            self.future.set_result(self.outcome)


class Append(Job, Awaitable[Appended]):
    """One append. Awaiting it is optional: an error nobody saw is met by the session's next append."""

    __slots__ = ("blobs", "broken", "durable", "first", "generation", "lines", "phase", "prev", "rows", "session_id", "time")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, broken: dict[str, EndstopError], session_id: str, draft: Draft, first: int,
        generation: int | None, durable: bool,
    ) -> None:  # fmt: skip
        super().__init__(loop)
        self.broken = broken
        self.session_id = session_id
        self.lines = draft.lines
        self.first = first
        self.generation = generation
        self.durable = durable
        self.phase = draft.phase
        self.blobs = [(session_id, name, content) for name, content in draft.blobs]
        self.rows, self.prev, self.time = _rows(session_id, draft.lines, first)

    @property
    def weight(self) -> int:
        """Bytes to be written."""
        return sum(map(len, self.lines)) + sum(len(content) for _, _, content in self.blobs)

    def __await__(self) -> Generator[Any, None, Appended]:
        try:
            appended: Appended = yield from self.future.__await__()
        except EndstopError:
            self.broken.pop(self.session_id, None)  # seen: the next append starts afresh
            raise
        return appended


def _rows(session_id: str, lines: Sequence[bytes], first: int) -> tuple[list[sqlite.Row], str, float]:
    """Rows of the events table, ``prev`` of the first line, time of the last."""
    rows: list[sqlite.Row] = []
    prev = stamp = b""
    for seq, line in enumerate(lines, first):
        found = _FRAME.match(line)
        if found is None or int(found[2]) != seq or b"\n" in line:
            raise StoreError(f"line {seq} is not an event stamped for this place", where=session_id)
        prev = prev or found[3]
        stamp = found[4]
        rows.append((session_id, seq, found[5].decode(), line))
    if not rows:
        raise StoreError("an append needs at least one line", where=session_id)
    return rows, prev.decode(), seconds(stamp.decode())


class Head:
    """Where a session's journal ends and who may add to it, while a transaction is being put together."""

    __slots__ = ("generation", "hash", "phase", "seq", "size", "time")

    def __init__(self, seq: int, hash: str, size: int, phase: str, generation: int) -> None:
        self.seq = seq
        self.hash = hash
        self.size = size
        self.phase = phase
        self.generation = generation
        self.time = 0.0


class Journals:
    """The journals as one writer's connection sees them. Heads are remembered until somebody else commits."""

    def __init__(self, driver: sqlite3.Connection) -> None:
        self.broken: dict[str, EndstopError] = {}
        """Sessions with a failed append whose error nobody has seen yet."""
        self._driver = driver
        self._heads: dict[str, Head] = {}
        self._version = sqlite.foreign_commits(driver)

    def forget(self) -> None:
        """Read heads anew: a transaction failed, or something else than an append changed them."""
        self._heads.clear()

    def changed_outside(self) -> bool:
        """Whether another process committed since the last look. Heads are forgotten then."""
        version = sqlite.foreign_commits(self._driver)
        if version == self._version:
            return False
        self._version = version
        self._heads.clear()
        return True

    def write(self, appends: Sequence[Append]) -> list[tuple[Append, int]]:
        """Inside a transaction: write what holds, set every append's outcome.

        Returns:
            The appends that were written, each with the byte at which its lines begin in the journal.
        """
        if len(self._heads) > _REMEMBERED:
            self._heads.clear()
        events: list[sqlite.Row] = []
        blobs: list[sqlite.Row] = []
        moved: dict[str, Head] = {}
        written: list[tuple[Append, int]] = []
        for append in appends:
            head = self._head(append.session_id)
            append.outcome = self._check(append, head)
            if append.outcome is not None or head is None:
                continue
            written.append((append, head.size))
            events += append.rows
            blobs += append.blobs
            moved[append.session_id] = head
            _advance(head, append)
            append.outcome = Appended(False, head.seq)
        heads = [(name, head.seq, head.hash, head.size, head.time, head.phase) for name, head in moved.items()]
        sqlite.write(self._driver, events, blobs, heads)
        return written

    def fail(self, append: Append, error: EndstopError) -> None:
        """The append came to nothing; a holder's next one must not pass as if it had."""
        append.outcome = error
        if append.generation is not None:
            self.broken.setdefault(append.session_id, error)

    def _check(self, append: Append, head: Head | None) -> object:
        """None if the append may be written, else what it comes to."""
        name = append.session_id
        if head is None:
            return StoreError("there is no such session", where=name)
        if append.generation is not None:
            if name in self.broken:
                return self.broken[name]
            if append.generation != head.generation:
                self.fail(append, lease_lost(name))
                return append.outcome
        # The link is compared too: an append that nobody awaited may have been overtaken by a foreign one of equal length.
        if append.first != head.seq + 1 or append.prev != head.hash:
            return Appended(True, head.seq)
        return None

    def _head(self, session_id: str) -> Head | None:
        head = self._heads.get(session_id)
        if head is None:
            row = sqlite.read_head(self._driver, session_id)
            if row is None:
                return None
            head = self._heads[session_id] = Head(*row)
        return head


def _advance(head: Head, append: Append) -> None:
    head.seq += len(append.lines)
    head.hash = link(append.lines[-1])
    head.size += sum(map(len, append.lines)) + len(append.lines)
    head.time = append.time
    head.phase = append.phase or head.phase
