"""Another process on the same store: ``python -m tests.store.scribe WHAT HOME SESSION [COUNT]``.

write     drives the session, appending for ever; prints each acknowledged sequence number
control   appends COUNT controls, prints the last sequence number
lease     waits for a line on stdin, tries to take the lease, prints its generation or "refused", waits for another line
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from endstop.errors import UsageError
from endstop.store.open import Store, open_store
from tests.store.journals import Pen, control


def say(text: object) -> None:
    """One line to the parent, at once."""
    os.write(1, f"{text}\n".encode())


async def write(store: Store, session_id: str, _: int) -> None:
    """Append pairs of lines, every third append durable, some with a blob."""
    lease = await store.acquire(session_id)
    pen = Pen.at(session_id, await store.position(session_id))
    say(f"crashed={lease.crashed}")
    for number in range(1_000_000):
        first = pen.seq + 1
        text = "long " * 5000 if number % 7 == 0 else "short"
        lines = pen.lines(text, f"note {number}")
        await store.append(
            session_id, lines, first=first, generation=lease.generation, durable=number % 3 == 0, blobs=pen.blobs[-1:]
        )
        say(pen.seq)


async def controls(store: Store, session_id: str, count: int) -> None:
    """Append at the head, whoever else does."""
    head = 0
    for number in range(count):
        head = await store.append_control(session_id, control(session_id, f"{os.getpid()} {number}"))
    say(head)


async def lease(store: Store, session_id: str, _: int) -> None:
    """Try once to become the holder."""
    say("ready")
    sys.stdin.readline()
    try:
        say((await store.acquire(session_id)).generation)
    except UsageError:
        say("refused")
    sys.stdin.readline()


async def main(what: str, home: str, session_id: str, count: str = "0") -> None:
    """Open the store and do it."""
    async with open_store(Path(home)) as store:
        await {"write": write, "control": controls, "lease": lease}[what](store, session_id, int(count))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
