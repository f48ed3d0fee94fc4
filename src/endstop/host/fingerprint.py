"""The fingerprint of a workspace: one value that is equal as long as what matters in it is equal.

It is a hash over HEAD and (path, mode, content) of every file that differs from HEAD or is untracked and not ignored, plus
the paths the caller adds. Outside git, and where git fails, it is over every file that the ignore rules leave.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Collection, Iterable
from hashlib import sha256
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO

import msgspec

from endstop.host import bounds
from endstop.host.git import LINK, GitFailed, Repo, Shadow, TimedOut, locate
from endstop.host.paths import CACHES, open_regular, walk

RACY_NS = 2_000_000_000
"""A file changed less than this before it was hashed may change again within the same time stamp."""
CHUNK = 1 << 20
WHOLE = 64 << 20
"""Bytes up to which a file is hashed whole; of a larger one its size, beginning and end."""
WITHOUT_GIT = 300.0
"""Seconds without git after it failed in a repository: a hostile one could make each look wait for it."""

SAMPLED = "sampled:"
SIZED = "sized:"
Seen = tuple[str, str]
"""Mode ("100644", "100755", "120000", "absent", "other", "unreadable") and SHA-256 of the content ("" without one).

Before the hash stands "sampled:" where the file is too large to be read whole: it is then over size, time, beginning and end.
After "sized:" it is over size and time alone, because the look had no room left."""

ABSENT: Seen = ("absent", "")


class Scan(msgspec.Struct, frozen=True):
    """One look at a workspace: its HEAD ("" without one) and what was seen per path. ``shadow`` is None without git.

    ``more``: there are more files than a look names.
    """

    head: str
    seen: dict[str, Seen]
    shadow: Shadow | None
    more: bool = False

    @property
    def fingerprint(self) -> str:
        """SHA-256 in hex."""
        whole = sha256(self.head.encode())
        for path, (mode, content) in sorted(self.seen.items()):
            whole.update(b"\0%b\0%b\0%b" % (os.fsencode(path), mode.encode(), content.encode()))
        return whole.hexdigest()

    @property
    def unreadable(self) -> list[str]:
        """Paths whose content could not be read."""
        return sorted(path for path, (mode, _) in self.seen.items() if mode == "unreadable")

    @property
    def partial(self) -> str:
        """In words, what the look did not read; "" if it read all."""
        sized = sum(content.startswith(SIZED) for _, content in self.seen.values())
        said = [f"{sized} files are known by size and time only, there is too much to read"] if sized else []
        return "; ".join(said + [f"only the first {len(self.seen)} files were looked at"] * self.more)


class Hashes:
    """Content hashes below ``root``, remembered while size, times and inode of a file stay."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known: dict[str, tuple[tuple[int, ...], str]] = {}

    def seen(self, path: str) -> Seen:
        """What is at ``path`` now. Links are hashed as links; nothing outside the workspace is ever opened.

        Raises:
            Abandoned: the look it belongs to was called off.
        """
        bounds.check()
        try:
            found = os.lstat(os.path.join(self._root, path))
            if stat.S_ISLNK(found.st_mode):
                return LINK, sha256(os.fsencode(os.readlink(os.path.join(self._root, path)))).hexdigest()
        except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a NUL byte
            return ABSENT
        except OSError:
            return "unreadable", ""
        if stat.S_ISDIR(found.st_mode):
            return ABSENT
        if not stat.S_ISREG(found.st_mode):
            return "other", ""
        return self._regular(path, found)

    def _regular(self, path: str, found: os.stat_result) -> Seen:
        mode = "100755" if found.st_mode & stat.S_IXUSR else "100644"
        known = self._known.get(path)
        if known and known[0] == _identity(found):
            return mode, known[1]
        now = time.time_ns()
        try:
            value, found = self._content(path, found)
        except (FileNotFoundError, NotADirectoryError):
            return ABSENT
        except OSError:
            return "unreadable", ""
        # What is known by size alone stays so as long as nothing changes: else each look would give a new value.
        if value.startswith(SIZED) or max(found.st_mtime_ns, found.st_ctime_ns) < now - RACY_NS:
            self._known[path] = (_identity(found), value)
        return mode, value

    def _content(self, path: str, found: os.stat_result) -> tuple[str, os.stat_result]:
        look = bounds.current()
        if look and not look.take(min(found.st_size, WHOLE)):
            return SIZED + sha256(b"%d %d" % (found.st_size, found.st_mtime_ns)).hexdigest(), found
        with open_regular(self._root, path) as file:
            found = os.fstat(file.fileno())
            content = digest(file, found.st_size)
        if content.startswith(SAMPLED):
            content = SAMPLED + sha256(b"%b %d" % (content.encode(), found.st_mtime_ns)).hexdigest()
        return content, found

    def keep(self, paths: Collection[str]) -> None:
        """Forget all other paths."""
        if len(self._known) > 2 * len(paths) + 1000:
            self._known = {path: known for path, known in self._known.items() if path in paths}


def digest(file: BinaryIO, size: int) -> str:
    """SHA-256 of a file of ``size`` bytes; of one larger than ``WHOLE``, "sampled:" and one over size, beginning and end.

    Raises:
        Abandoned: the look it belongs to was called off.
        OSError: it cannot be read.
    """
    content = sha256()
    if size > WHOLE:
        content.update(b"%d\0" % size + file.read(CHUNK))
        file.seek(-CHUNK, os.SEEK_END)
        content.update(file.read(CHUNK))
        return SAMPLED + content.hexdigest()
    left = WHOLE  # a file that grows while it is read ends somewhere
    while left > 0 and (data := file.read(CHUNK)):
        bounds.check()
        content.update(data)
        left -= len(data)
    return content.hexdigest()


def _identity(found: os.stat_result) -> tuple[int, ...]:
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev


class Scanner:
    """Looks at the workspace ``root``; ``home`` is a folder of our own outside of it. Blocks; one thread at a time."""

    def __init__(self, root: Path, home: Path) -> None:
        self.root = root
        self.hashes = Hashes(root)
        self._home = home
        self._ignore = _ignored(root, home)
        self._shadow: Shadow | None = None
        self._seen_repo: Repo | None = None
        self._no_git_until = 0.0

    def scan(self, extra: Iterable[str] = ()) -> Scan:
        """What is there now; ``extra`` are relative paths that count, if they are there, whatever ignore rules say.

        Raises:
            Abandoned: the look it belongs to was called off.
        """
        lost: list[str] = []
        head, changed, shadow = self._changed(lost)
        paths = list(islice(changed, bounds.FILES + 1))
        more = len(paths) > bounds.FILES
        seen = {path: self.hashes.seen(path) for path in paths[: bounds.FILES]}
        for path in extra:
            if path not in seen and (found := self.hashes.seen(path)) != ABSENT:
                seen[path] = found
        self.hashes.keep(seen.keys())
        seen.update(dict.fromkeys(lost, ("unreadable", "")))
        return Scan(head, seen, shadow, more)

    def _changed(self, lost: list[str]) -> tuple[str, Iterable[str], Shadow | None]:
        try:
            if time.monotonic() < self._no_git_until:
                raise GitFailed("failed before")
            shadow = self._follow(locate(self.root))
            files, nested = shadow.changed()
        except TimedOut:
            self._no_git_until = time.monotonic() + WITHOUT_GIT
            return "", walk(self.root, ignore=self._ignore, lost=lost), None
        except (GitFailed, OSError):
            return "", walk(self.root, ignore=self._ignore, lost=lost), None
        inner = (walk(self.root, folder, ignore=self._ignore, lost=lost) for folder in nested)
        return (shadow.repo.head or "" if shadow.repo else ""), chain(files, *inner), shadow

    def _follow(self, repo: Repo | None) -> Shadow:
        if self._shadow is None or repo != self._seen_repo:
            shadow = Shadow(self._home / "git", self.root, repo, self._ignore)
            shadow.follow()
            if shadow.ignores_root():
                shadow = Shadow(self._home / "git", self.root, None, self._ignore)
                shadow.follow()
            self._shadow, self._seen_repo = shadow, repo
        return self._shadow


def _ignored(root: Path, home: Path) -> tuple[str, ...]:
    """The default patterns, and our own folder should somebody have put it into the workspace."""
    below = os.path.relpath(os.path.realpath(home), os.path.realpath(root))
    return CACHES if below.startswith("..") else (*CACHES, f"/{below}/")
