"""The process behind ``search``: a pattern can take for ever, and only a process can be stopped.

Gets one JSON object as its argument: root, start (relative to it), pattern, glob or null, hidden (absolute paths). Prints
matches and a last line in brackets; exit status 2 for a pattern or glob that cannot be used.
"""

from __future__ import annotations

import os
import re
import resource
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
from pathspec.patterns.gitignore.basic import GitIgnoreBasicPattern

from endstop.host.paths import open_beneath, shown, walk

ROWS = 200
SIZE = 15_000
"""Characters of all rows together."""
WIDTH = 300
"""Characters of a matching line that are shown."""
LARGEST = 16 * 1024 * 1024
"""Bytes of a file that is still searched."""
_MEMORY = 2 << 30


class Request(msgspec.Struct, frozen=True):
    """What to look for, and where."""

    root: str
    start: str
    pattern: str
    glob: str | None
    hidden: list[str]


def main(argument: str) -> int:
    """Search, print, return the exit status."""
    with suppress(ValueError, OSError):  # where it cannot be set, the machine's own bound holds
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    request = msgspec.json.decode(argument, type=Request)
    try:
        pattern = re.compile(request.pattern)
        glob = GitIgnoreBasicPattern(request.glob or "*")
        if glob.regex is None or not glob.include:
            raise ValueError(f"glob {request.glob!r} names no files")
    except (re.error, ValueError, RecursionError, OverflowError) as error:
        sys.stdout.write(f"{error}\n")
        return 2
    _print(_matches(request, pattern, glob.regex))
    return 0


def _print(rows: Iterator[str]) -> None:
    count = size = 0
    for row in rows:
        if count == ROWS or size + len(row) > SIZE:
            sys.stdout.write(f"(stopped after {count} matches; narrow it down with path, glob or pattern)\n")
            return
        sys.stdout.write(row)
        sys.stdout.flush()  # what is found so far is worth having when the time is up
        count += 1
        size += len(row)
    if not count:
        sys.stdout.write("(no match)\n")


def _matches(request: Request, pattern: re.Pattern[str], wanted: re.Pattern[str]) -> Iterator[str]:
    """Rows ``path:line: text`` in the order of paths."""
    for name in sorted(_files(request)):
        if not wanted.search(name):
            continue
        text = _text(Path(request.root), name)
        for number, line in enumerate(text.splitlines() if text else (), 1):
            found = pattern.search(line)
            if found:
                yield f"{shown(name)}:{number}: {_around(line, found.start())}\n"


def _files(request: Request) -> Iterator[str]:
    root = Path(request.root)
    if stat.S_ISREG(os.stat(root / request.start).st_mode):
        yield request.start
        return
    for name in walk(root, "" if request.start == "." else request.start):
        if not any((root / name).is_relative_to(folder) for folder in request.hidden):
            yield name


def _text(root: Path, name: str) -> str | None:
    """A text file's content; None for what is binary, too large, no file, or cannot be read."""
    try:
        handle = open_beneath(root, name)
    except OSError:
        return None
    with open(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST:
            return None
        data = file.read(LARGEST)
    return None if b"\0" in data[:8_192] else data.decode("utf-8", "replace")


def _around(line: str, at: int) -> str:
    if len(line) <= WIDTH:
        return line
    start = max(0, min(at - WIDTH // 3, len(line) - WIDTH))
    return ("…" if start else "") + line[start : start + WIDTH] + ("…" if start + WIDTH < len(line) else "")
