"""What a background process has said, read from the files its shim writes: beginning and end, at known offsets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from endstop.host.shim import OUT
from endstop.host.spawn import whole_end, whole_start

_SCREEN = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-~])|[\x00-\x07\x0e-\x1a]")
"""Control sequences and characters of a terminal."""


class Segment(NamedTuple):
    """A file of output: the bytes ``start`` up to ``end``, counted from the first the process wrote."""

    start: int
    end: int
    path: Path


class Spool:
    """Output of one process. Offsets are bytes from its beginning; what was not kept is said where it is missing.

    Args:
        terminal: it was written to one: texts come without what only a screen understands.
    """

    def __init__(self, folder: Path, *, terminal: bool = False) -> None:
        self._folder = folder
        self._terminal = terminal

    @property
    def total(self) -> int:
        """Bytes of all output so far, kept or not."""
        return max((segment.end for segment in self._segments()), default=0)

    def read(self, since: int, until: int) -> bytes:
        """The output between two offsets, with a line wherever some of it was not kept."""
        parts: list[bytes] = []
        at = since
        for segment in self._segments():
            if segment.end <= at or segment.start >= until:
                continue
            if segment.start > at:
                parts.append(_left_out(segment.start - at))
                at = segment.start
            data = _bytes(segment, at, until)
            parts.append(data)
            at += len(data)
        return b"".join(parts)

    def text(self, bound: int, since: int = 0, *, final: bool = True) -> tuple[str, int]:
        """The output from an offset on, shortened to ``bound`` bytes (beginning and end), and the offset behind it.

        Unless it is ``final``, a character of which the rest is still to come waits for the next time.
        """
        total = self.total
        since = min(since, total)
        if total - since > bound:
            head, tail = self.read(since, since + bound // 2), self.read(total - (bound - bound // 2), total)
        else:
            head, tail = b"", self.read(since, total)
        if not final:
            cut = whole_end(tail)
            total -= len(tail) - len(cut)
            tail = cut
        if head:
            head, tail = whole_end(head), whole_start(tail)
            head += _left_out(total - since - len(head) - len(tail))
        return self.decoded(head + tail), total

    def tail(self, bound: int) -> str:
        """The end of the output, at most ``bound`` bytes, with an ellipsis where more came before."""
        total = self.total
        if total <= bound:
            return self.decoded(self.read(0, total))
        return "…" + self.decoded(whole_start(self.read(total - bound, total)))

    def decoded(self, data: bytes) -> str:
        """Bytes of it as text."""
        text = data.decode("utf-8", "replace")
        return _SCREEN.sub("", text).replace("\r\n", "\n") if self._terminal else text

    def _segments(self) -> list[Segment]:
        return sorted(self._found())

    def _found(self) -> Iterator[Segment]:
        for path in self._folder.glob(f"{OUT}*"):
            start = path.name.removeprefix(OUT)
            try:
                if start.isdecimal():
                    yield Segment(int(start), int(start) + path.stat().st_size, path)
            except OSError:  # gone meanwhile: it was in the middle
                continue


def _bytes(segment: Segment, since: int, until: int) -> bytes:
    try:
        with segment.path.open("rb") as file:
            file.seek(since - segment.start)
            return file.read(min(until, segment.end) - since)
    except OSError:
        return b""


def _left_out(count: int) -> bytes:
    return f"\n[… {count} bytes left out …]\n".encode()
