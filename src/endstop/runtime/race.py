"""Work that a deadline or something from outside may stop.

The work runs in the task that asks for it: a task and two futures for every effect cost more than most effects do. What comes
from outside is looked at in a task of its own, and stops the work as a time-out would.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from math import inf

from endstop.core.goal import State, active_now
from endstop.core.limits import closing_reserve, deadline
from endstop.runtime.session import Session

GRACE = 10.0
"""Seconds a tool may go on after a pause that came as a signal or a message."""
_LONGEST = 3600.0
"""Seconds between two looks at the clock, which may be set while we wait."""


class Race:
    """One piece of work against everything that may stop it. ``tool``: it may end after a pause."""

    def __init__(self, session: Session, *, tool: bool = False) -> None:
        self._session, self._tool = session, tool
        self._until = time_is_up(session.state, session.clock())
        self._grace = inf
        self._stopped = ""
        self._alarm = asyncio.timeout(None)
        self._running = False
        self._timer: asyncio.TimerHandle | None = None
        self._looking: asyncio.Task[None] | None = None

    async def run(self, work: Awaitable[None]) -> str:
        """Let the work run; how it was stopped (timeout, cancelled, interrupted), or "" if it ended by itself."""
        self._session.on_woken = self._woken
        try:
            async with self._alarm:
                self._running = True
                self._tick()
                if self._session.woken.is_set():
                    self._woken()
                await work
        except TimeoutError:
            if not self._alarm.expired():
                raise
        finally:
            self._running = False
            self._session.on_woken = None
            if self._timer is not None:
                self._timer.cancel()
            if self._looking is not None:
                await self._looking
        return self._stopped

    def _tick(self) -> None:
        now = self._session.clock()
        if now >= self._until:
            self._stop("timeout")
        elif now >= self._grace:
            self._stop("interrupted")
        else:
            wait = min(self._until - now, self._grace - now, _LONGEST)
            self._timer = asyncio.get_running_loop().call_later(wait, self._tick)

    def _woken(self) -> None:
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._look())

    async def _look(self) -> None:
        """Take in what came; an error is met by whoever asked for the work, when the work has ended."""
        session = self._session
        try:
            while session.woken.is_set():
                session.woken.clear()
                await session.take_in()
                self._weigh()
        except BaseException:
            self._stop("interrupted")
            raise

    def _weigh(self) -> None:
        state = self._session.state
        stopped = _stopped(state)
        if stopped == "interrupted" and self._tool and state.stop != "abort":
            if _soft(state) and self._grace == inf:
                self._grace = self._session.clock() + GRACE
                self._rearm()
        elif stopped:
            self._stop(stopped)

    def _rearm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._running:
            self._tick()

    def _stop(self, how: str) -> None:
        if self._running and not self._stopped:
            self._stopped = how
            self._alarm.reschedule(0)


def time_is_up(state: State, now: float) -> float:
    """Epoch seconds at which wall or active time are full."""
    goal = state.goal
    if goal is None or state.interactive:
        return now + 1e9
    keep = {} if state.phase == "closing" else closing_reserve(goal.caps, state.profile.price)
    return min(deadline(state.spend, goal.caps, keep, now, active_now(state, now)), now + 1e9)


def _stopped(state: State) -> str:
    """How the running effect has to end because of what came, or "" to let it run."""
    if state.goal is not None and state.goal.closing is not None and state.goal.closing.target == "cancelled":
        return "cancelled"
    if state.stop or state.phase == "paused":
        return "interrupted"
    return ""


def _soft(state: State) -> bool:
    """A pause by signal or message: a running tool has ``GRACE`` seconds; by command it may end in its own time."""
    return bool(state.stop) or (state.goal is not None and state.goal.pause == "shutdown")
