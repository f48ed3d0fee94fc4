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
from pathlib import Path

import msgspec

from endstop.host.git import LINK, GitFailed, Repo, Shadow, locate
from endstop.host.paths import CACHES, open_beneath, walk

RACY_NS = 2_000_000_000
"""A file changed less than this before it was hashed may change again within the same time stamp."""
CHUNK = 1 << 20

Seen = tuple[str, str]
"""Mode ("100644", "100755", "120000", "absent", "other", "unreadable") and SHA-256 of the content ("" without one)."""

ABSENT: Seen = ("absent", "")


class Scan(msgspec.Struct, frozen=True):
    """One look at a workspace: its HEAD ("" without one) and what was seen per path. ``shadow`` is None without git."""

    head: str
    seen: dict[str, Seen]
    shadow: Shadow | None

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


class Hashes:
    """Content hashes below ``root``, remembered while size, times and inode of a file stay."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known: dict[str, tuple[tuple[int, ...], str]] = {}

    def seen(self, path: str) -> Seen:
        """What is at ``path`` now. Links are hashed as links; nothing outside the workspace is ever opened."""
        try:
            found = os.lstat(os.path.join(self._root, path))
            if stat.S_ISLNK(found.st_mode):
                return LINK, sha256(os.fsencode(os.readlink(os.path.join(self._root, path)))).hexdigest()
        except (FileNotFoundError, NotADirectoryError):
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
            with open(open_beneath(self._root, path), "rb") as file:
                found = os.fstat(file.fileno())
                if not stat.S_ISREG(found.st_mode):
                    return "other", ""
                content = sha256()
                while data := file.read(CHUNK):
                    content.update(data)
        except (FileNotFoundError, NotADirectoryError):
            return ABSENT
        except OSError:
            return "unreadable", ""
        value = content.hexdigest()
        if max(found.st_mtime_ns, found.st_ctime_ns) < now - RACY_NS:
            self._known[path] = (_identity(found), value)
        return mode, value

    def keep(self, paths: Collection[str]) -> None:
        """Forget all other paths."""
        if len(self._known) > 2 * len(paths) + 1000:
            self._known = {path: known for path, known in self._known.items() if path in paths}


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

    def scan(self, extra: Iterable[str] = ()) -> Scan:
        """What is there now; ``extra`` are relative paths that count, if they are there, whatever ignore rules say."""
        head, paths, shadow = self._changed()
        seen = {path: self.hashes.seen(path) for path in paths}
        for path in extra:
            if path not in seen and (found := self.hashes.seen(path)) != ABSENT:
                seen[path] = found
        self.hashes.keep(seen.keys())
        return Scan(head, seen, shadow)

    def _changed(self) -> tuple[str, Iterable[str], Shadow | None]:
        repo = locate(self.root)
        try:
            shadow = self._follow(repo)
            files, nested = shadow.changed()
        except (GitFailed, OSError):
            return "", walk(self.root, ignore=self._ignore), None
        for folder in nested:
            files += walk(self.root, folder, ignore=self._ignore)
        return (shadow.repo.head or "" if shadow.repo else ""), files, shadow

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
