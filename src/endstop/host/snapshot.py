"""What changed in a workspace since its start, also after a restart. Nothing is ever written into the workspace.

With git the start is a tree object in a git directory of our own, so that changes that were there before are no part of
the diff. Without git it is a list of hashes, with the text of small files beside it.
"""

from __future__ import annotations

import difflib
import os
import re
import threading
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

import msgspec

from endstop.host import bounds
from endstop.host.fingerprint import ABSENT, SIZED, Scan, Scanner, Seen
from endstop.host.git import LINK, Change, GitFailed, Shadow
from endstop.host.paths import open_regular, shown

DIFF = 16_000
"""Characters of a diff, its list of files included."""
LISTED = 60
"""Files named on top of a diff."""
STORED = 1 << 20
"""Bytes up to which a file's content is kept; of a larger one only size and hash."""
PLAIN_TEXT = 64 * 1024
"""Bytes up to which text is kept where there is no git."""
_PLAIN = "plain:"
_SHARE = 600
_READ = 1 << 20

_manifest = msgspec.json.Decoder(dict[str, Seen])


class Changes(msgspec.Struct, frozen=True):
    """Paths that differ from the start, sorted, and the diff as bounded text with a list of files on top."""

    paths: list[str]
    diff: str


class Snapshot:
    """Looks at ``root`` and remembers starts in ``state``, a folder of our own. Blocks; safe to call from any thread."""

    def __init__(self, root: Path, state: Path) -> None:
        self.root = root
        self._state = state
        self._scanner = Scanner(root, state)
        self._stored: dict[tuple[str, str], str] = {}
        self._lock = threading.RLock()

    def scan(self, extra: Iterable[str] = ()) -> Scan:
        """What is in the workspace now."""
        with self._lock:
            return self._scanner.scan(extra)

    def content(self, path: str) -> Seen:
        """What is at one path now."""
        with self._lock:
            return self._scanner.hashes.seen(path)

    def keep(self, scan: Scan) -> str:
        """Keep what was seen as a start; returns the name it is found by later."""
        with self._lock:
            try:
                if scan.shadow:
                    return self._tree(scan, scan.shadow)
            except (GitFailed, OSError):
                pass  # the repository is broken: a list of hashes serves
            return self._keep_plain(scan)

    def since(self, start: str, scan: Scan) -> Changes:
        """What differs between a kept start and what was seen now."""
        with self._lock:
            try:
                changes, parts = self._compare(start, scan)
            except (GitFailed, OSError, msgspec.DecodeError) as error:
                paths = sorted(path for path, seen in scan.seen.items() if seen != ABSENT)
                return Changes(paths, f"The diff since the start cannot be taken: {error}"[:DIFF])
        lost = [f"could not be read: {shown(path)}" for path in scan.unreadable[:LISTED]]
        lost += [f"looked at in part: {scan.partial}"] if scan.partial else []
        return Changes(sorted(change.path for change in changes), _render(changes, lost, parts))

    def patch(self, start: str, scan: Scan) -> str:
        """The diff between a kept start and what was seen now, one megabyte of it at most, for ``git apply``; words where it
        cannot be taken."""
        with self._lock:
            try:
                return "".join(self._compare(start, scan)[1])
            except (GitFailed, OSError, msgspec.DecodeError) as error:
                return f"The diff since the start cannot be taken: {error}\n"

    def _compare(self, start: str, scan: Scan) -> tuple[list[Change], list[str]]:
        if start.startswith(_PLAIN):
            return self._compare_plain(start, scan)
        if scan.shadow is None:
            raise GitFailed("git cannot read the workspace any more", hint="see git status there")
        now = self._tree(scan, scan.shadow)
        if now == start:
            return [], []
        text = scan.shadow.diff(start, now, _READ)
        return scan.shadow.changes(start, now), re.split(r"(?m)^(?=diff --git )", text)[1:]

    # -------------------------------------------------------------------------------------------------------- with git

    def _tree(self, scan: Scan, shadow: Shadow) -> str:
        files: dict[str, tuple[str, str] | None] = dict.fromkeys(shadow.submodules)
        for path, seen in scan.seen.items():
            files[path] = self._blob(path, seen, shadow)
        return shadow.tree(files)

    def _blob(self, path: str, seen: Seen, shadow: Shadow) -> tuple[str, str] | None:
        bounds.check()
        mode, content = seen
        if mode in ("absent", "other"):
            return None
        oid = self._stored.get((path, content))
        if oid is None:
            oid = shadow.store(self._data(path, seen))
            self._stored[(path, content)] = oid
        return ("100644" if mode == "unreadable" else mode), oid

    def _data(self, path: str, seen: Seen) -> bytes:
        """Content as it is kept: of what is too large or cannot be read, words that stand for it."""
        mode, content = seen
        try:
            if mode == LINK:
                return os.fsencode(os.readlink(os.path.join(self.root, path)))
            with open_regular(self.root, path) as file:
                data = file.read(STORED + 1)
                size = os.fstat(file.fileno()).st_size
        except OSError:
            return b"(could not be read)\n"
        return data if len(data) <= STORED and not content.startswith(SIZED) else b"(%d bytes, %b)\n" % (size, content.encode())

    # ----------------------------------------------------------------------------------------------------- without git

    def _keep_plain(self, scan: Scan) -> str:
        home = self._state / "plain"
        home.mkdir(parents=True, exist_ok=True)
        listing = {path: seen for path, seen in scan.seen.items() if seen != ABSENT}
        for path, seen in listing.items():
            text = self._text(path, seen)
            if text is not None:
                (home / seen[1]).write_text(text, "utf-8", newline="")
        encoded = msgspec.json.encode({os.fsencode(path).hex(): seen for path, seen in listing.items()})
        name = sha256(encoded).hexdigest()
        (home / f"{name}.json").write_bytes(encoded)
        return _PLAIN + name

    def _compare_plain(self, start: str, scan: Scan) -> tuple[list[Change], list[str]]:
        home = self._state / "plain"
        kept = _manifest.decode((home / f"{start.removeprefix(_PLAIN)}.json").read_bytes())
        before = {os.fsdecode(bytes.fromhex(path)): seen for path, seen in kept.items()}
        changes, parts = [], []
        for path in sorted({*before, *scan.seen}):
            old, new = before.get(path, ABSENT), scan.seen.get(path, ABSENT)
            if old != new:
                part = self._plain_diff(path, old, new, home)
                added = sum(line.startswith("+") for line in part[2:]) if part else None
                deleted = sum(line.startswith("-") for line in part[2:]) if part else None
                changes.append(Change(path, added, deleted))
                parts.append("".join(part))
        return changes, parts

    def _plain_diff(self, path: str, old: Seen, new: Seen, home: Path) -> list[str]:
        kept = home / old[1]
        before = "" if old == ABSENT else kept.read_text("utf-8") if old[1] and kept.exists() else None
        after = "" if new == ABSENT else self._text(path, new)
        if before is None or after is None:
            return []
        name = shown(path)
        lines = difflib.unified_diff(before.splitlines(True), after.splitlines(True), f"a/{name}", f"b/{name}")
        return [line if line.endswith("\n") else f"{line}\n" for line in lines]

    def _text(self, path: str, seen: Seen) -> str | None:
        bounds.check()
        if not seen[0].startswith("100"):
            return None
        data = self._data(path, seen)
        try:
            return None if len(data) > PLAIN_TEXT or b"\0" in data else data.decode("utf-8")
        except UnicodeDecodeError:
            return None


def _render(changes: list[Change], lost: list[str], parts: list[str]) -> str:
    """The list of files, then as much of each file's diff as its share of the room allows."""
    lines = [_line(change) for change in changes[:LISTED]] + lost
    if len(changes) > LISTED:
        lines.append(f"… and {len(changes) - LISTED} more files")
    top = "\n".join(lines)[: DIFF // 2]
    room = DIFF - len(top) - 1
    text = [f"{top}\n"] if top else []
    for position, part in enumerate(parts):
        share = max(_SHARE, room // (len(parts) - position))
        if room < _SHARE:
            text.append(f"… {len(parts) - position} diffs left out\n")
            break
        if len(part) > share:
            part = f"{part[: share - 40]}\n… {len(part) - share + 40} characters left out\n"
        room -= len(part)
        text.append(part)
    return "".join(text)


def _line(change: Change) -> str:
    counts = "binary" if change.added is None else f"+{change.added} -{change.deleted}"
    return f"{shown(change.path)} | {counts}"
