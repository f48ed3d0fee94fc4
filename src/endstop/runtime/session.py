"""One session held by this process: its state, and the only path by which events reach its journal.

``record`` takes secrets out, encodes, hashes and applies at once; ``commit`` hands all that was recorded to the store in one
append and waits.
When another process has appended meanwhile, nothing of ours was written: the journal is read anew, our facts are appended
behind what came, our intents are dropped, and ``decide`` decides again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from time import time_ns
from typing import Any, Protocol

from endstop.core import chain, codec
from endstop.core.apply import apply, replay
from endstop.core.codec import Entry
from endstop.core.effects import AnyAct
from endstop.core.events import (
    KIND_OF,
    TYPE_OF,
    AssistantMessage,
    Blob,
    Event,
    GateFinished,
    GoalPaused,
    HookEnd,
    ProcessExited,
    SessionResume,
    SessionShutdown,
    ToolComplete,
    WorkspaceObserved,
)
from endstop.core.goal import Kit, State, allowed
from endstop.errors import EndstopError, StoreError, TransitionError
from endstop.ports import Clock, Emit
from endstop.runtime.originals import Originals, originals_of
from endstop.store.blobs import Sealed, blob_of, pack
from endstop.store.journal import Position
from endstop.store.leases import LEASE, Lease
from endstop.store.open import Store


class Redact(Protocol):
    """What keeps secrets out of the journal; see ``guards.redaction``."""

    def line_may_hold(self, data: bytes) -> bool:
        """False is certain."""
        ...

    def clean_data(self, data: Any, *, shortened: bool = False) -> Any:
        """Plain data without secrets; of texts that may have been ``shortened``, without what a cut may have left of one."""
        ...


_SHORTENED = (ToolComplete, GateFinished, HookEnd, ProcessExited, WorkspaceObserved)
"""Events whose texts come from outside and may have been shortened on their way."""


def cleaned(event: Event, redact: Redact) -> Event:
    """The event without secrets."""
    plain: Any = codec.to_builtins(event)
    clean = redact.clean_data(plain, shortened=isinstance(event, _SHORTENED))
    return event if clean == plain else codec.from_builtins(TYPE_OF[type(event)], clean)


def uuid7() -> str:
    """A time-ordered id (RFC 9562)."""
    ms, bits = time_ns() // 1_000_000, random.getrandbits(74)
    high, middle, low = bits >> 62, bits >> 48 & 0x3FFF, bits & 0xFFFF_FFFF_FFFF
    return f"{ms >> 16:08x}-{ms & 0xFFFF:04x}-7{high:03x}-{0x8000 | middle:04x}-{low:012x}"


class Session:
    """The holder's side of one journal. Everything here runs on one event loop."""

    def __init__(
        self, store: Store, session_id: str, lease: Lease, state: State, position: Position, *, clock: Clock, redact: Redact
    ) -> None:
        self.store, self.session_id, self.lease = store, session_id, lease
        self.state, self.clock, self.redact = state, clock, redact
        self.emit: list[Emit] = []
        self.woken = asyncio.Event()
        """Set when something came from outside that the running effect should know of."""
        self.on_woken: Callable[[], None] | None = None
        """Called then, too."""
        self.originals: Originals = {}
        """What the calls of the last answer run with. Here only: journal and state hold it without secrets."""
        self.entries: list[Entry] | None = None
        self._seq, self._prev, self._id, self._ms = position.seq, position.hash, position.id, int(position.time * 1000)
        self._lines: list[bytes] = []
        self._blobs: list[Sealed] = []
        self._unsure: list[Entry] = []  # recorded since the last commit that was seen to hold
        self._lock = asyncio.Lock()
        self._moved = self._controlled = False
        self._lost: EndstopError | None = None
        store.watch(session_id, self._on_moved, after=position.seq)

    # -- recording

    def record(self, *events: Event) -> None:
        """Redact, encode, hash and apply events at the head of this process.

        Raises:
            TransitionError: the phase does not allow one of them: a defect of the kernel, nothing was recorded.
        """
        for event in events:
            recorded = self._record(event)
            if isinstance(event, AssistantMessage) and isinstance(recorded, AssistantMessage):
                self.originals = originals_of(event, recorded)

    def _record(self, event: Event) -> Event:
        event, data, blobs = self._encode(event)
        self._ms = max(self._ms, int(self.clock() * 1000))
        seq, id_, time = self._seq + 1, uuid7(), self._ms / 1000
        line = codec.frame(
            data, TYPE_OF[type(event)], id=id_, seq=seq, prev=self._prev, timestamp=codec.stamp(time), parent=self._id
        )
        entry = Entry(seq, id_, time, event)
        apply(self.state, entry)
        self._seq, self._id, self._prev = seq, id_, chain.link(line)
        self._lines.append(line)
        self._blobs += blobs
        self._unsure.append(entry)
        for emit in self.emit:
            emit(entry)
        return event

    def _encode(self, event: Event) -> tuple[Event, bytes, list[Sealed]]:
        data, blobs = pack(event, self.state.salt or "00")
        if not self.redact.line_may_hold(data) and not any(self.redact.line_may_hold(content) for _, content in blobs):
            return event, data, blobs
        clean = cleaned(event, self.redact)
        return (event, data, blobs) if clean is event else (clean, *pack(clean, self.state.salt or "00"))

    def keep(self, content: bytes) -> Blob:
        """Keep bytes beside the journal with the next commit; the object that stands for them."""
        text = content.decode(errors="replace")
        if self.redact.line_may_hold(content):
            text = str(self.redact.clean_data(text, shortened=True))
        blob, sealed = blob_of(text, self.state.salt or "00")
        self._blobs.append(sealed)
        return blob

    # -- committing

    async def commit(self, *, durable: bool) -> bool:
        """Everything recorded so far, in one append. False: others had appended, and the state was built anew."""
        async with self._lock:
            if self._moved and not self._lines:
                await self._catch_up()
            while self._lines:
                lines, blobs = self._lines, self._blobs
                self._lines, self._blobs = [], []
                appended = await self.store.append(
                    self.session_id,
                    lines,
                    first=self._seq - len(lines) + 1,
                    generation=self.lease.generation,
                    durable=durable,
                    phase=self.state.phase,
                    blobs=blobs,
                )
                if appended.moved:
                    await self._rebuild(blobs)
                    return False
                if not self._lines:
                    self._unsure = []
            return True

    async def intend(self, act: AnyAct, *, durable: bool, wait: bool) -> bool:
        """Journal an effect's intents; False: something came between, decide again."""
        if self._moved and not await self._moved_in():
            return False
        self.record(*act.events)
        return await self.commit(durable=durable) if wait else True

    async def _moved_in(self) -> bool:
        """Take in what others appended; True if nothing had come after all."""
        before = self.state.seq
        held = await self.commit(durable=False)
        return held and self.state.seq == before

    async def _catch_up(self) -> None:
        """Others have appended while nothing of ours is pending: apply it."""
        self._moved = False
        entries, position = await self.store.snapshot(self.session_id, self._seq)
        for entry in entries:
            apply(self.state, entry)
            for emit in self.emit:
                emit(entry)
        self._place(position)

    async def _rebuild(self, blobs: Sequence[Sealed]) -> None:
        """Nothing of ours since the last commit was written: read the journal, then append our facts behind it."""
        self._moved = False
        ours, self._unsure, self._lines = self._unsure, [], []
        stored, position = await self.store.snapshot(self.session_id, 0)
        known = {entry.id for entry in stored}
        self.state = replay(stored, self.state.kit)
        self._place(position)
        self._blobs = list(blobs)
        for entry in stored[-64:]:
            if entry.id not in {mine.id for mine in ours}:
                for emit in self.emit:
                    emit(entry)
        for entry in ours:
            if entry.id in known or KIND_OF[type(entry.event)] == "K":
                continue
            try:
                self._record(entry.event)
            except TransitionError:
                continue  # it belonged to an intent that was never written, so it did not happen for the journal

    def _place(self, position: Position) -> None:
        self._seq, self._prev, self._id = position.seq, position.hash, position.id
        self._ms = max(self._ms, int(position.time * 1000))

    def _on_moved(self, session_id: str, head: int) -> None:
        if head > self._seq:
            self._moved = True
            self._wake()

    # -- control from this process

    def control(self, *events: Event) -> None:
        """Something a person did in this process: recorded at once, and the running effect is told."""
        for event in events:
            if allowed(self.state, event) is not None:
                self.record(event)
        self._controlled = True
        self._wake()

    def _wake(self) -> None:
        self.woken.set()
        if self.on_woken is not None:
            self.on_woken()

    async def take_in(self) -> None:
        """Apply what came from outside, if anything did. Raises LeaseLost when the session is another's now."""
        if self._lost is not None:
            raise self._lost
        if self._moved or self._controlled:
            durable, self._controlled = self._controlled, False
            await self.commit(durable=durable)

    # -- beginning and end of holding

    async def hold(self) -> None:
        """Renew the lease for as long as this task runs. Once another process has taken it, whatever runs here is stopped."""
        while self._lost is None:
            await asyncio.sleep(LEASE / 3)
            try:
                self.lease = await self.store.renew(self.lease)
            except EndstopError as error:
                self._lost = error
                self._wake()

    async def resume(self, crashed: bool, open_: Iterable[int]) -> None:
        """Say in the journal that this process holds the session now."""
        self.record(
            SessionResume(
                resume_time=codec.stamp(self.clock()),
                event_count=self._seq,
                generation=self.lease.generation,
                crashed=crashed,
                open=list(open_),
            )
        )
        await self.commit(durable=False)

    async def pause_unwritten(self) -> None:
        """The disk is full: what was not committed is dropped, and the goal pauses if there is room for that much. The
        session is not let go in good order, so that its next holder looks at starts without an end."""
        self._unsure, self._lines, self._blobs = [], [], []
        entries, position = await self.store.snapshot(self.session_id, 0)
        self.state = replay(entries, self.state.kit)
        self._place(position)
        pause = GoalPaused(reason="disk", by="runtime")
        if allowed(self.state, pause) is None:
            return
        self.record(pause)
        with suppress(StoreError):
            await self.commit(durable=True)

    async def close(self) -> None:
        """Let the session go in good order."""
        self.store.unwatch(self.session_id, self._on_moved)
        self.record(SessionShutdown(shutdown_type="routine"))
        await self.commit(durable=True)
        await self.store.release(self.lease)


def open_starts(state: State) -> list[int]:
    """Sequence numbers of starts without an end."""
    found = []
    turn = state.turn
    if turn is not None and not turn.ended:
        if not turn.answered:
            found.append(turn.seq)
        found += [call.seq for call in turn.calls.values() if call.state == "started"]
    return found


async def load(store: Store, session_id: str, kit: Kit, *, clock: Clock, redact: Redact) -> Session:
    """Take the lease of a session and bring its state up to its head.

    Raises:
        UsageError: a live process holds it, or there is none.
        StoreCorrupt: the journal cannot be read.
    """
    lease = await store.acquire(session_id)
    entries, position = await store.snapshot(session_id, 0)
    state = replay(entries, kit)
    session = Session(store, session_id, lease, state, position, clock=clock, redact=redact)
    fresh = not any(isinstance(entry.event, SessionResume) for entry in entries) and state.turn is None
    if not fresh or lease.crashed:
        await session.resume(lease.crashed, open_starts(state))
    return session
