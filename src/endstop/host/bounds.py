"""What one look at a workspace may cost, and the way to call it off.

A look runs on a thread that nobody can stop from outside; whoever walks, hashes or waits in it asks here. Outside of a look
nothing is bounded.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from endstop.errors import EndstopError

SECONDS = 30.0
"""Seconds after which a look hashes no further contents."""
BYTES = 2 << 30
"""Bytes that one look reads."""
FILES = 200_000
"""Files that one look names."""


class Abandoned(EndstopError):
    """Nobody waits for the look any more."""


class Bounds:
    """The bounds of one look. ``stop`` calls it off; ``size`` in bytes, ``seconds`` from now."""

    def __init__(self, stop: threading.Event, seconds: float = SECONDS, size: int = BYTES) -> None:
        self._stop = stop
        self._until = time.monotonic() + seconds
        self._size = size

    def check(self) -> None:
        """Raises Abandoned: the look was called off."""
        if self._stop.is_set():
            raise Abandoned("the look was called off")

    @property
    def left(self) -> float:
        """Seconds that are left, 0 at least."""
        return max(0.0, self._until - time.monotonic())

    def take(self, size: int) -> bool:
        """Whether so many bytes may still be read; they then count."""
        if size > self._size or not self.left:
            return False
        self._size -= size
        return True


_current: ContextVar[Bounds | None] = ContextVar("bounds", default=None)


@contextmanager
def bounded(bounds: Bounds) -> Iterator[Bounds]:
    """What this thread does inside is one look."""
    token = _current.set(bounds)
    try:
        yield bounds
    finally:
        _current.reset(token)


def current() -> Bounds | None:
    """The bounds of the look this thread is at, if it is at one."""
    return _current.get()


def check() -> None:
    """Raises Abandoned: the look this thread is at was called off."""
    bounds = _current.get()
    if bounds:
        bounds.check()
