"""Paths inside a workspace: what they are called, how they are opened, and which of them count.

A relative path is a ``str`` as ``os.fsdecode`` gives it, with "/" between its parts; ``shown`` makes it fit for a journal.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from pathspec import GitIgnoreSpec

CACHES = (
    "__pycache__/",
    "*.py[co]",
    "*.egg-info/",
    ".pytest_cache/",
    ".mypy_cache/",
    ".ruff_cache/",
    ".hypothesis/",
    ".tox/",
    ".nox/",
    ".venv/",
    ".coverage",
    ".coverage.*",
    "node_modules/",
    ".nyc_output/",
    ".eslintcache",
    "*.tsbuildinfo",
    ".gradle/",
    "/target/",  # at the top only: further down it is a common name of a source folder
    ".DS_Store",
)
"""What tools leave behind and nobody looks at, as ignore patterns: left out unless tracked."""

_IGNORE_BYTES = 1 << 20


def shown(path: str) -> str:
    r"""A path as one line of text that any reader takes: bytes that are no UTF-8 become ``\xNN``, newlines ``\n``."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def inside(root: Path, path: str) -> str | None:
    """Where ``path`` really is, relative to ``root`` with all links followed; None if that is not below ``root``.

    The path need not exist. "." is the root itself.
    """
    if "\0" in path:
        return None
    top = os.path.realpath(root)
    real = os.path.realpath(os.path.join(top, path))
    if real == top:
        return "."
    below = top.rstrip("/") + "/"
    return real[len(below) :] if real.startswith(below) else None


def open_beneath(root: Path, path: str) -> int:
    """Open a file for reading without following a link in any part of ``path``: nobody can swap one in meanwhile.

    Never blocks on a FIFO. The caller closes the descriptor.

    Raises:
        OSError: missing, a link on the way, or not readable.
    """
    *folders, name = path.split("/")
    if ".." in folders or name == "..":
        raise PermissionError(f"{shown(path)} leads out of its folder")
    at = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for folder in folders:
            inner = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
            os.close(at)
            at = inner
        return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=at)
    finally:
        os.close(at)


def walk(root: Path, start: str = "", *, ignore: Sequence[str] | None = CACHES) -> Iterator[str]:
    """Files and links below ``root``/``start``, relative to ``root``, in no order; links are named, never followed.

    ``ignore`` are patterns that hold everywhere, added to those of every .gitignore on the way; None takes everything.
    ``.git``, FIFOs, sockets and devices never count; a folder that vanishes or cannot be read is empty.
    """
    specs = [] if ignore is None else [("", GitIgnoreSpec.from_lines(ignore))]
    todo = [(f"{start}/" if start else "", specs)]
    while todo:
        folder, specs = todo.pop()
        if ignore is not None:
            specs = specs + _ignore_file(root, folder)
        for entry in _entries(root, folder):
            path = folder + entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            if entry.name == ".git" or _ignored(specs, f"{path}/" if is_folder else path):
                continue
            if is_folder:
                todo.append((f"{path}/", specs))
            elif entry.is_file(follow_symlinks=False) or entry.is_symlink():
                yield path


def _entries(root: Path, folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(os.path.join(root, folder)) as entries:
            return list(entries)
    except OSError:
        return []


def _ignore_file(root: Path, folder: str) -> list[tuple[str, GitIgnoreSpec]]:
    try:
        handle = open_beneath(root, f"{folder}.gitignore")
    except OSError:
        return []
    with open(handle, "rb") as file:
        lines = file.read(_IGNORE_BYTES).decode("utf-8", "surrogateescape").splitlines()
    try:
        return [(folder, GitIgnoreSpec.from_lines(lines))] if lines else []
    except ValueError:  # a pattern git would skip: better to see too much than to stop
        return []


def _ignored(specs: list[tuple[str, GitIgnoreSpec]], path: str) -> bool:
    """The deepest ignore file that says something about a path decides."""
    for folder, spec in reversed(specs):
        said = spec.check_file(path[len(folder) :]).include
        if said is not None:
            return said
    return False
