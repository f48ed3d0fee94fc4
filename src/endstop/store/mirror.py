"""A file per session, ``sessions/<id>/events.jsonl``, with exactly the stored lines: for hooks, grep and people.

The journal says which byte stands where, so writing is at a known offset: it can be repeated, two processes that mirror the
same session cannot harm each other, and a torn file is healed by writing it again.
"""

from __future__ import annotations

import os
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable
from pathlib import Path

Lines = Callable[[str], Iterable[bytes]]
"""All stored lines of a session, in order."""

_OPEN = 64
"""Files kept open."""
_UNKNOWN = -1


def folder_of(session_id: str) -> str:
    """A folder name that no other session id shares, on any file system."""
    return re.sub(rb"[^a-z0-9_-]", lambda found: b"%%%02x" % found.group()[0], session_id.encode()).decode()


class Mirror:
    """Used by the writer's thread only, except for ``path``."""

    def __init__(self, root: Path, lines: Lines, warn: Callable[[str], None]) -> None:
        self._root = root
        self._lines = lines
        self._warn = warn
        self._files: OrderedDict[str, int] = OrderedDict()
        self._pending: dict[str, tuple[int, int, list[bytes]]] = {}  # start, end, what stands there
        self.waiting = 0
        """Bytes not written yet."""

    def path(self, session_id: str) -> Path:
        """Where the session's lines are mirrored."""
        return self._root / folder_of(session_id) / "events.jsonl"

    def add(self, session_id: str, offset: int, lines: Iterable[bytes]) -> None:
        """Remember committed lines that start at byte ``offset``."""
        block = b"\n".join((*lines, b""))
        start, end, blocks = self._pending.get(session_id) or (offset, offset, [])
        if end != offset:  # another process's lines stand between
            start = _UNKNOWN
        blocks.append(block)
        self._pending[session_id] = (start, offset + len(block), blocks)
        self.waiting += len(block)

    def flush(self) -> None:
        """Write what is remembered. A failure is told once and healed by a later write; it harms nobody."""
        pending, self._pending, self.waiting = self._pending, {}, 0
        for session_id, (offset, _, blocks) in pending.items():
            try:
                self._write(session_id, offset, b"".join(blocks))
            except OSError as error:
                self._forget(session_id)
                self._complain(session_id, "written", error)

    def repair(self, sizes: Iterable[tuple[str, int]], size_now: Callable[[str], int]) -> None:
        """Make every mirror whole whose size differs from its journal's."""
        for session_id, size in sizes:
            try:
                found = self._size(session_id)
                # A longer file is garbage only if the journal has not grown meanwhile: commits come before mirrors.
                garbage = found > size and found > size_now(session_id)
                if found < size or garbage:
                    end = self._rewrite(session_id)
                    if garbage:
                        os.ftruncate(self._file(session_id), end)
            except OSError as error:
                self._complain(session_id, "repaired", error)

    def close(self) -> None:
        """Write the rest and let the files go."""
        self.flush()
        for session_id in list(self._files):
            self._forget(session_id)

    def _write(self, session_id: str, offset: int, data: bytes) -> None:
        file = self._file(session_id)
        if offset == _UNKNOWN or os.fstat(file).st_size < offset:
            self._rewrite(session_id)
        else:
            _write_at(file, data, offset)

    def _rewrite(self, session_id: str) -> int:
        data = b"".join(line + b"\n" for line in self._lines(session_id))
        _write_at(self._file(session_id), data, 0)
        return len(data)

    def _complain(self, session_id: str, what: str, error: OSError) -> None:
        self._warn(f"{self.path(session_id)}: the mirror cannot be {what}: {error.strerror} (the journal is not affected)")

    def _size(self, session_id: str) -> int:
        try:
            return self.path(session_id).stat().st_size
        except FileNotFoundError:
            return -1

    def _file(self, session_id: str) -> int:
        file = self._files.get(session_id)
        if file is None:
            path = self.path(session_id)
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            file = self._files[session_id] = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            if len(self._files) > _OPEN:
                os.close(self._files.popitem(last=False)[1])
        else:
            self._files.move_to_end(session_id)
        return file

    def _forget(self, session_id: str) -> None:
        file = self._files.pop(session_id, None)
        if file is not None:
            os.close(file)


def _write_at(file: int, data: bytes, offset: int) -> None:
    done = 0
    while done < len(data):
        done += os.pwrite(file, data[done:] if done else data, offset + done)
