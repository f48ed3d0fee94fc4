"""A clock that never goes back: a wall clock that is set back must not stretch a limit."""

from __future__ import annotations

from time import monotonic

from endstop.ports import Clock


class Steady:
    """Epoch seconds of ``clock``, moved on by the time that really passed while that clock is behind."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = clock()
        self._since = monotonic()

    def __call__(self) -> float:
        since, now = monotonic(), self._clock()
        self._last = max(now, self._last + since - self._since)
        self._since = since
        return self._last
