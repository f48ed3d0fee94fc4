"""Ways to show a goal while it runs: plain lines, the journal as JSON lines, or nothing until the end."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any, Protocol

from endstop.cli import out, view
from endstop.core.codec import Entry
from endstop.core.goal import State
from endstop.store.open import Store
from endstop.store.verify import Verdict

PAUSE = 0.05
"""Seconds between looks at the store for lines that were recorded and are not committed yet."""


class Screen(Protocol):
    """Something that shows one goal."""

    watch: Callable[[str], None] | None  # wants the model's words as they arrive

    def start(self, about: dict[str, Any], state: State) -> None:
        """Before the first turn."""
        ...

    def take(self, entry: Entry, state: State) -> None:
        """An event was recorded; ``state`` is the one after it."""
        ...

    def hold(self, lines: list[str]) -> None:
        """A person is asked: show this and leave the terminal alone."""
        ...

    def go_on(self) -> None:
        """The person has answered."""
        ...

    def stop(self) -> None:
        """Nothing more happens, or something went wrong: give the terminal back."""
        ...

    async def end(self, state: State, record: Verdict, now: float) -> None:
        """Say how it stands, after ``stop``."""
        ...


class Plain:
    """Lines without colour. ``quiet`` leaves out everything but the end."""

    watch: Callable[[str], None] | None = None

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self.width = out.columns()

    def start(self, about: dict[str, Any], state: State) -> None:
        """See ``Screen``."""
        if not self.quiet:
            out.say([*view.start(about, state, self.width), ""])

    def take(self, entry: Entry, state: State) -> None:
        """See ``Screen``."""
        if not self.quiet:
            out.say(view.progress(entry, state, self.width))

    def hold(self, lines: list[str]) -> None:
        """See ``Screen``."""
        out.say(lines, sys.stderr)

    def go_on(self) -> None:
        """See ``Screen``."""

    def stop(self) -> None:
        """See ``Screen``."""

    async def end(self, state: State, record: Verdict, now: float) -> None:
        """See ``Screen``."""
        out.say(["", *view.summary(state, record, now, self.width)] if not self.quiet else view.summary(state, record, now))


class JsonLines:
    """The stored bytes of the journal beyond ``after``, each line once it is committed."""

    watch: Callable[[str], None] | None = None

    def __init__(self, store: Store, session_id: str, after: int) -> None:
        self._store, self._id, self._printed = store, session_id, after
        self._newest = after
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self, about: dict[str, Any], state: State) -> None:
        """See ``Screen``."""
        self._newest = state.seq
        self._woken.set()
        self._task = asyncio.create_task(self._pump())

    def take(self, entry: Entry, state: State) -> None:
        """See ``Screen``."""
        self._newest = entry.seq
        self._woken.set()

    def hold(self, lines: list[str]) -> None:
        """See ``Screen``."""

    def go_on(self) -> None:
        """See ``Screen``."""

    def stop(self) -> None:
        """See ``Screen``."""
        if self._task is not None:
            self._task.cancel()

    async def end(self, state: State, record: Verdict, now: float) -> None:
        """See ``Screen``."""
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)  # what it was printing is printed below
        await self._print()

    async def _pump(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            await self._print()
            while self._printed < self._newest:
                await asyncio.sleep(PAUSE)
                await self._print()

    async def _print(self) -> None:
        lines = await self._store.lines(self._id, after=self._printed)
        self._printed += len(lines)
        out.write("".join(f"{line.decode()}\n" for line in lines), sys.stdout)
