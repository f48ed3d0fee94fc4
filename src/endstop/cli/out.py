"""Words to a terminal or a pipe: what foreign text may do there, and what happens when nobody reads any more."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import TextIO

PLAIN_WIDTH = 80
"""Columns where there is no terminal."""


def line(text: str, width: int | None = None) -> str:
    """Foreign text as one line that cannot steer a terminal, at most ``width`` columns; a cut shows as "…"."""
    flat = " ".join(text.split())
    safe = flat if flat.isprintable() else "".join(c if c.isprintable() else "·" for c in flat)
    return safe if width is None or len(safe) <= width else safe[: max(width - 1, 0)] + "…"


def text(words: str) -> str:
    """Foreign text of many lines that cannot steer a terminal."""
    return words if words.isprintable() else "".join(c if c.isprintable() or c in "\n\t" else "·" for c in words)


def columns() -> int:
    """Width of the terminal, 40 at least, or ``PLAIN_WIDTH``."""
    return max(40, shutil.get_terminal_size((PLAIN_WIDTH, 24)).columns) if sys.stdout.isatty() else PLAIN_WIDTH


def say(lines: Iterable[str], stream: TextIO | None = None) -> None:
    """Print lines. A reader that has gone away is no error: a goal goes on without one."""
    write("".join(f"{text}\n" for text in lines), stream or sys.stdout)


def write(text: str, stream: TextIO) -> None:
    """Print text as it is, at once."""
    try:
        stream.write(text)
        stream.flush()
    except OSError:  # closed, or what it is written to is full
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
