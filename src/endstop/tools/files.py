"""Looking at files: ``read_file`` and ``list_files``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, BinaryIO

import msgspec

from endstop.host.paths import shown, walk
from endstop.ports import Invocation
from endstop.tools.confine import Place
from endstop.tools.functions import FunctionTool

PAGE = 16_000
"""Characters of a page, so that with its last line it stays below what reaches the model."""
LONGEST = 2_000
"""Characters of a line that are shown."""
MOST_FILES = 20_000
ROWS = 400

Positive = Annotated[int, msgspec.Meta(ge=1)]


class ReadFile(FunctionTool[..., str]):
    """``read_file(path, offset?, limit?)``: numbered lines of one file. ``hidden``: paths that are never shown."""

    def __init__(self, hidden: Sequence[Path] = ()) -> None:
        self._hidden = tuple(hidden)
        super().__init__(self._read, name="read_file", effect="read", path_argument="path")

    def _read(self, path: str, call: Invocation, offset: Positive = 1, limit: Positive = 2_000) -> str:
        """Read a text file of the workspace as numbered lines, at most 16 KB at a time; the end says how to go on.

        Args:
            path: File in the workspace.
            offset: First line to show, counted from 1.
            limit: Most lines to show.
        """
        place = Place(call.workspace, path, self._hidden)
        with place.open() as file:
            start = file.read(8_192)
            if b"\0" in start:
                size = file.seek(0, 2)
                return f"({place.text} is binary: {size} bytes, starts with {start[:16].hex(' ')})"
            file.seek(0)
            return _page(file, place.text, offset, limit)


def _page(file: BinaryIO, name: str, offset: int, limit: int) -> str:
    rows: list[str] = []
    size = 0
    number = 0
    for number, line in enumerate(_lines(file), 1):
        if number < offset:
            continue
        row = f"{number:6d}\t{line}"
        size += len(row) + 1
        if rows and (len(rows) == limit or size > PAGE):
            return "\n".join(rows) + f"\n({name} goes on: continue with offset={number})"
        rows.append(row)
    if not number:
        return f"({name} is empty)"
    if not rows:
        raise ValueError(f"{name} has {number} lines; offset {offset} is behind its end")
    return "\n".join(rows)


def _lines(file: BinaryIO) -> Iterator[str]:
    """Lines without their ends, each cut at ``LONGEST``; a line of any length is never held as a whole."""
    while raw := file.readline(4 * LONGEST):
        rest = 0
        piece = raw
        while not piece.endswith(b"\n") and (piece := file.readline(1 << 16)):
            rest += len(piece)
        text = raw.decode("utf-8", "replace").rstrip("\r\n")
        if rest or len(text) > LONGEST:
            text = f"{text[:LONGEST]}… (line of {len(raw) + rest} bytes, cut)"
        yield text


class ListFiles(FunctionTool[..., str]):
    """``list_files(path?, depth?)``: what is in a folder. ``hidden``: paths that are never shown."""

    def __init__(self, hidden: Sequence[Path] = ()) -> None:
        self._hidden = tuple(hidden)
        super().__init__(self._list, name="list_files", effect="read")

    def _list(self, call: Invocation, path: str = ".", depth: Positive = 2) -> str:
        """List files of a workspace folder. Deeper folders are counted. Ignored files, caches and .git are left out.

        Args:
            path: Folder in the workspace.
            depth: Levels of folders to open.
        """
        place = Place(call.workspace, path, self._hidden)
        top = place.root / place.name
        if not top.is_dir():
            place.open().close()
            raise NotADirectoryError(f"{place.text} is a file; read_file shows it")
        base = "" if place.name == "." else f"{place.name}/"
        found = list(islice(self._visible(place, base), MOST_FILES + 1))
        rows = [_row(name, count) for name, count in sorted(Counter(_cut(name, depth) for name in found[:MOST_FILES]).items())]
        if not rows:
            return f"({place.text} holds no files that count)"
        notes = []
        if len(rows) > ROWS:
            notes.append(f"{len(rows) - ROWS} more rows left out: name a folder inside, or use a smaller depth")
        if len(found) > MOST_FILES:
            notes.append(f"stopped at {MOST_FILES} files: name a folder inside")
        return "\n".join(rows[:ROWS] + [f"({note})" for note in notes])

    def _visible(self, place: Place, base: str) -> Iterator[str]:
        hidden = [folder.resolve() for folder in self._hidden]
        for name in walk(place.root, base.rstrip("/")):
            if not any((place.root / name).is_relative_to(folder) for folder in hidden):
                yield name[len(base) :]


def _cut(name: str, depth: int) -> str:
    parts = name.split("/")
    return name if len(parts) <= depth else "/".join(parts[:depth]) + "/"


def _row(name: str, count: int) -> str:
    return f"{shown(name)} ({count} file{'s' if count > 1 else ''})" if name.endswith("/") else shown(name)
