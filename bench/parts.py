"""Parts on their own: ``python -m bench.parts N``; prints medians as JSON.

replay   microseconds per event: a stored line decoded and applied
commit   milliseconds until a durable append of three lines is there
sync     milliseconds of a bare write and sync of as many bytes on the same disk
mask     milliseconds to look at 16 KB of source text as a tool's result
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from bench import goal
from bench.meter import SOURCE
from endstop.checks.gates import Gates
from endstop.checks.look import Folder
from endstop.core.apply import replay
from endstop.core.codec import decode
from endstop.core.events import ModelRetried
from endstop.core.goal import Kit
from endstop.core.identity import mask
from endstop.core.messages import Answer, Head, Price, ToolRequest, Usage
from endstop.host.sandbox import detect
from endstop.runtime import embedded
from endstop.runtime.perform import Perform
from endstop.store.open import Store, open_store
from endstop.tools.catalog import Catalog

RETRIED = ModelRetried(attempt=1, error_type="overloaded", wait_seconds=1.0)
LINE_BYTES = 1200
"""About what three such lines take."""


class Instant:
    """A model that answers at once with one call of ``look_up``."""

    name = "bench:bench"
    scripted, local = False, True
    window: int | None = None
    max_output: int | None = None
    price: Price | None = None

    def __init__(self) -> None:
        self.calls = 0

    def open(self, head: Head) -> Instant:
        """Its only conversation."""
        return self

    async def ask(self, messages: object, **how: object) -> Answer:
        """The next call."""
        self.calls += 1
        request = ToolRequest(f"call_{self.calls:09d}", "look_up", {"number": self.calls})
        return Answer("I look at the next one.", (request,), "tool_calls", Usage(1000 + self.calls, 20))

    async def close(self) -> None:
        """Nothing to let go."""


async def measure(turns: int) -> dict[str, float]:
    """All parts, ``turns`` turns of one goal for those that need a journal."""
    with tempfile.TemporaryDirectory(prefix="endstop-bench-") as place:
        root = Path(place) / "workspace"
        root.mkdir()
        async with open_store(Path(place) / "home") as store:
            catalog = goal.catalog_of("value {}".format)
            session = await goal.begin(store, catalog, root, turns)
            gates = Gates(detect(), [store.path.parent], {}, False)
            perform = Perform(Instant(), catalog, Folder(root, Path(place) / "state"), gates, None)
            await embedded.drive(session, perform, stay=False)
            await session.close()
            lines = await store.lines(session.session_id)
            kit = Kit(tools=catalog.specs)
            per_event = median(lambda: replay(map(decode, lines), kit), 7) / len(lines)
            commit, sync = await _commit(store, catalog, root, turns)
    masked = median(lambda: mask(SOURCE[:16384]), 20)
    return {"replay": per_event * 1e6, "commit": commit * 1e3, "sync": sync * 1e3, "mask": masked * 1e3}


async def _commit(store: Store, catalog: Catalog, root: Path, times: int) -> tuple[float, float]:
    """Seconds of a durable commit, and of the disk's own sync, in turns."""
    session = await goal.begin(store, catalog, root, 1)
    spent, synced = [], []
    for _ in range(times):
        session.record(RETRIED, RETRIED, RETRIED)
        begun = time.perf_counter()
        await session.commit(durable=True)
        spent.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        _sync(store.path.with_name("plain"))
        synced.append(time.perf_counter() - begun)
    await session.close()
    return statistics.median(spent), statistics.median(synced)


def _sync(path: Path) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(file, b"x" * LINE_BYTES)
    os.fdatasync(file)
    os.close(file)


def median(work: Callable[[], object], times: int) -> float:
    """CPU seconds of one piece of work."""
    spent = []
    for _ in range(times):
        begun = time.thread_time()
        work()
        spent.append(time.thread_time() - begun)
    return statistics.median(spent)


if __name__ == "__main__":
    print(msgspec.json.encode(asyncio.run(measure(int(sys.argv[1])))).decode())
