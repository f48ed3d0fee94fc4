"""logs and attach: what a goal did and does, whoever drives it."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from endstop.assemble import System, open_system
from endstop.cli import exits, here, out, view
from endstop.cli.ask import Asker, open_asks
from endstop.cli.live import watching
from endstop.cli.screen import Screen
from endstop.core import events as ev
from endstop.core.apply import apply
from endstop.core.codec import Entry, stamp
from endstop.core.events import Event
from endstop.core.goal import State
from endstop.errors import UsageError
from endstop.store.open import Store
from endstop.store.sessions import SessionRow

LOOK = 2.0
"""Seconds after which it is looked whether somebody still drives a goal that says nothing."""
BEFORE = 12
"""Lines of the course so far that attach shows."""
Take = Callable[[Entry, State], None]


async def course(store: Store, id: str, state: State, take: Take, *, on: bool) -> State:
    """Hand over every event beyond ``state``, with the state after it; with ``on`` until nobody drives the session."""
    woken = asyncio.Event()

    def moved(session_id: str, head: int) -> None:
        woken.set()

    store.watch(id, moved, after=state.seq)
    try:
        while True:
            driven = (await store.find(id)).holder is not None  # before reading, so that its last words are read too
            for entry in await store.entries(id, after=state.seq):
                apply(state, entry)
                take(entry, state)
            if not (on and driven):
                return state
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK):
                    await woken.wait()
            woken.clear()
    finally:
        store.unwatch(id, moved)


def logs(id: str | None, workspace: Path | None, *, follow: bool) -> int:
    """Print the course of a goal."""
    settings = here.settings(workspace=workspace)
    width = out.columns() if sys.stdout.isatty() else view.WIDE

    def take(entry: Entry, state: State) -> None:
        lines = view.progress(entry, state, width - 8)
        if isinstance(entry.event, ev.GoalEnded):
            lines = view.row("ended", view.standing(state), width - 8)
        out.say(stamp(entry.time)[11:19] + line for line in lines)

    async def work() -> int:
        async with open_system(settings) as system:
            row = await here.find(system.store, settings, id)
            state = await course(system.store, row.id, State(), take, on=follow)
            if follow and state.goal is not None:
                out.say([f"it is {view.standing(state, driven=False)}; nobody drives it"], sys.stderr)
            return exits.OK

    return here.run(work())


def attach(id: str | None, workspace: Path | None) -> int:
    """Watch a goal until it stops, or until Ctrl-C, which only ends the watching."""
    settings = here.settings(workspace=workspace)

    async def work() -> int:
        async with open_system(settings) as system:
            row = await here.find(system.store, settings, id)
            if row.holder is None:
                short = view.short(row.id)
                hint = f"endstop resume {short} goes on with it, endstop show {short} says how it stands"
                raise UsageError("nobody drives it", where=short, hint=hint)
            return await _attach(system, row)

    return here.run(work())


async def _attach(system: System, row: SessionRow) -> int:
    assert row.holder is not None
    state, short = State(), view.short(row.id)
    before: deque[str] = deque(maxlen=BEFORE)
    width = out.columns()
    await course(system.store, row.id, state, lambda entry, after: before.extend(view.progress(entry, after, width)), on=False)
    if state.goal is None:
        raise UsageError("this session has no goal", where=short, hint="endstop ps shows the goals")
    screen = watching(lambda: state)
    out.say([f"endstop  goal {short}, driven by process {row.holder.pid}; Ctrl-C leaves it running"])
    out.say([*view.row("objective", state.goal.queued.objective, width), *before])
    told: set[asyncio.Task[bool]] = set()

    def control(event: Event) -> None:
        told.add(asyncio.ensure_future(system.control(row.id, event)))

    watch = asyncio.ensure_future(_watch(system, row.id, state, screen, control))
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, watch.cancel)
    try:
        await watch
    except asyncio.CancelledError:
        out.say([f"left; process {row.holder.pid} goes on with {short}"], sys.stderr)
        return exits.OK
    finally:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
        screen.stop()
        await asyncio.gather(*told)
    await screen.end(state, await system.store.verify(row.id), time.time())
    return exits.of(state)


async def _watch(system: System, id: str, state: State, screen: Screen, control: Callable[[Event], None]) -> None:
    """Show what happens; a person at the terminal can answer what is asked."""
    asks = here.interactive() and not here.inside()
    asker = Asker(screen, control, lambda: None, here.person()) if asks else None

    def take(entry: Entry, after: State) -> None:
        screen.take(entry, after)
        if asker is not None:
            asker.take(entry)

    screen.go_on()
    if asker is not None:
        asker.listen(open_asks(await system.store.entries(id), state))
    try:
        await course(system.store, id, state, take, on=True)
    finally:
        if asker is not None:
            asker.stop()
