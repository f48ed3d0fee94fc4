"""Changing files: ``write_file`` and ``edit_file``.

After a crash nobody knows whether a begun edit happened. Content hashes tell: each tool says what a file was ``before``,
what it will be ``after``, and with the recorded ``before`` it can ``settle`` which of the two it is now.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from endstop.ports import Invocation
from endstop.tools.confine import Place
from endstop.tools.functions import FunctionTool

Settled = Literal["before", "after", "unknown"]


class EditingTool(FunctionTool[..., str]):
    """A tool that changes the one file in its argument ``path``. ``hidden``: paths that are never touched."""

    def __init__(self, function: Any, name: str, hidden: Sequence[Path]) -> None:
        self._hidden = tuple(hidden)
        super().__init__(function, name=name, effect="edit", path_argument="path")

    async def before(self, call: Invocation) -> dict[str, str]:
        """What the call will change as it is now: path in the workspace to SHA-256 in hex, or "absent". Empty if the call
        cannot work: then nothing will be changed."""
        try:
            place = self._place(call)
            return {place.text: place.digest()}
        except (OSError, ValueError):
            return {}

    async def after(self, call: Invocation) -> dict[str, str] | None:
        """What ``before`` will give once the call has run; None if that cannot be told."""
        try:
            place = self._place(call)
            return {place.text: sha256(self._result(place, call.arguments)).hexdigest()}
        except (OSError, ValueError, LookupError):
            return None

    async def settle(self, call: Invocation, before: dict[str, str]) -> Settled:
        """After a crash: whether the file is as it was ``before`` the call, or as ``after`` it, or neither."""
        now = await self.before(call)
        if now == before:
            return "before"
        return "after" if now and self._undone(self._place(call), call.arguments, before) else "unknown"

    def _place(self, call: Invocation) -> Place:
        return Place(call.workspace, str(call.arguments["path"]), self._hidden)

    def _result(self, place: Place, arguments: dict[str, Any]) -> bytes:
        raise NotImplementedError

    def _undone(self, place: Place, arguments: dict[str, Any], before: dict[str, str]) -> bool:
        raise NotImplementedError


class WriteFile(EditingTool):
    """``write_file(path, content)``: a whole file."""

    def __init__(self, hidden: Sequence[Path] = ()) -> None:
        super().__init__(self._write, "write_file", hidden)

    def _write(self, path: str, content: str, call: Invocation) -> str:
        """Create a file in the workspace, or replace all of it. Missing folders are made.

        Args:
            path: File in the workspace.
            content: All of its new text.
        """
        place = self._place(call)
        data = content.encode()
        new = place.write(data)
        return f"{'created' if new else 'replaced'} {place.text} ({len(data)} bytes)"

    def _result(self, place: Place, arguments: dict[str, Any]) -> bytes:
        return str(arguments["content"]).encode()

    def _undone(self, place: Place, arguments: dict[str, Any], before: dict[str, str]) -> bool:
        return place.digest() == sha256(self._result(place, arguments)).hexdigest()


class EditFile(EditingTool):
    """``edit_file(path, old, new, all?)``: exact text replaced by other text."""

    def __init__(self, hidden: Sequence[Path] = ()) -> None:
        super().__init__(self._edit, "edit_file", hidden)

    def _edit(self, path: str, old: str, new: str, call: Invocation, all: bool = False) -> str:
        """Replace text in a file of the workspace. The old text must occur exactly once, unless all is set.

        Args:
            path: File in the workspace.
            old: Text to replace, exactly as it stands in the file, without line numbers.
            new: Text to put there instead.
            all: Replace every occurrence.
        """
        place = self._place(call)
        data = place.read()
        changed, lines = replace(data, old, new, all, place.text)
        place.write(changed)
        return f"edited {place.text}: {len(lines)} place{'s' if len(lines) > 1 else ''} (line {_numbers(lines)})"

    def _result(self, place: Place, arguments: dict[str, Any]) -> bytes:
        return replace(place.read(), arguments["old"], arguments["new"], arguments.get("all", False), place.text)[0]

    def _undone(self, place: Place, arguments: dict[str, Any], before: dict[str, str]) -> bool:
        """Taking the edit back gives the file that was there: so it is the edit that happened."""
        try:
            undone, _ = replace(place.read(), arguments["new"], arguments["old"], arguments.get("all", False), place.text)
        except (OSError, ValueError, LookupError):
            return False
        return before.get(place.text) == sha256(undone).hexdigest()


def replace(data: bytes, old: str, new: str, every: bool, name: str) -> tuple[bytes, list[int]]:
    """``data`` with ``old`` replaced, and the line numbers where. Works on bytes: what is not touched stays as it is.

    Where lines end in CRLF, a line end in ``old`` and ``new`` means CRLF too.

    Raises:
        ValueError: nothing to replace.
        LookupError: ``old`` does not occur, or more than once while not ``every``; says where to look.
    """
    if not old:
        raise ValueError("old is empty; give the text to replace, or use write_file for a new file")
    if old == new:
        raise ValueError("old and new are the same; nothing to do")
    wanted, instead = old.encode(), new.encode()
    if wanted not in data and b"\r\n" in data:
        wanted, instead = _crlf(wanted), _crlf(instead)
    elif b"\r\n" in data and b"\n" not in data.replace(b"\r\n", b""):
        instead = _crlf(instead)
    lines = _places(data, wanted)
    if not lines:
        raise LookupError(f"old does not occur in {name}{_candidates(data, old, new)}")
    if len(lines) > 1 and not every:
        raise LookupError(f"old occurs {len(lines)} times in {name} (lines {_numbers(lines)}); add lines around it, or set all")
    return data.replace(wanted, instead), lines


def _crlf(text: bytes) -> bytes:
    return text.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


def _places(data: bytes, wanted: bytes) -> list[int]:
    lines: list[int] = []
    line, done = 1, 0
    at = data.find(wanted)
    while at >= 0:
        line += data.count(b"\n", done, at)
        done = at
        lines.append(line)
        at = data.find(wanted, at + len(wanted))
    return lines


def _numbers(lines: list[int]) -> str:
    return ", ".join(str(line) for line in lines[:8]) + (" …" if len(lines) > 8 else "")


def _candidates(data: bytes, old: str, new: str) -> str:
    """What the model may have meant: the lines nearest to the first line of ``old`` that says something."""
    if new.strip() and new.encode() in data:
        return "; new is already there, so the edit may have been made before"
    first = next((line.strip() for line in old.splitlines() if line.strip()), "")[:200]
    lines = [line.strip()[:200] for line in data.decode("utf-8", "replace").splitlines()[:5_000]]
    close = [first] if first and first in lines else get_close_matches(first, set(lines) - {""}, n=3, cutoff=0.6)
    rows = [f"{number:6d}\t{line}" for number, line in enumerate(lines, 1) if line in close][:5]
    if not rows:
        return "; read the file again, nothing in it is near"
    return "; it must match exactly, white space too. Nearest lines, without their indent:\n" + "\n".join(rows)
