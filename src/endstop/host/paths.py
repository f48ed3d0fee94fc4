"""Paths inside a workspace: what they are called, how they are opened, and which of them count.

A relative path is a ``str`` as ``os.fsdecode`` gives it, with "/" between its parts; ``shown`` makes it fit for a journal.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from pathspec import GitIgnoreSpec

from endstop.host import bounds

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

_IGNORE_BYTES = 128 * 1024
_STARS = re.compile(r"\*+")
_MOST_STARS = 4
# Matching takes time that grows with the length of a path to the power of the stars: four in a path of this depth are bearable.
_DEEPEST = 200


def shown(path: str) -> str:
    r"""A path as one line of text that any reader takes: bytes that are no UTF-8 become ``\xNN``, newlines ``\n``."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def inside(root: Path, path: str) -> str | None:
    """Where ``path`` really is, relative to ``root`` with all links followed; None if that is not below ``root``.

    The path need not exist. "." is the root itself.
    """
    top = os.path.realpath(root)
    try:
        real = os.path.realpath(os.path.join(top, path))
    except ValueError:  # a NUL byte, or half of a character
        return None
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


def open_regular(root: Path, path: str) -> BinaryIO:
    """As ``open_beneath``, but only what is a regular file.

    Raises:
        OSError: missing, a link on the way, not readable, a folder, a FIFO, a socket or a device.
    """
    handle = open_beneath(root, path)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise PermissionError(f"{shown(path)} is no regular file")
    return open(handle, "rb")


def walk(root: Path, start: str = "", *, ignore: Sequence[str] | None = CACHES, lost: list[str] | None = None) -> Iterator[str]:
    """Files and links below ``root``/``start``, relative to ``root``, in no order; links are named, never followed.

    ``ignore`` are patterns that hold everywhere, added to those of every .gitignore on the way; None takes everything.
    ``.git``, FIFOs, sockets and devices never count; a folder that vanishes, cannot be read or lies too deep is empty, and
    of the latter two ``lost`` gets the names.

    Raises:
        Abandoned: the look it belongs to was called off.
    """
    specs = [] if ignore is None else [("", GitIgnoreSpec.from_lines(ignore))]
    todo = [(f"{start}/" if start else "", specs)]
    while todo:
        folder, specs = todo.pop()
        if ignore is not None:
            specs = specs + _ignore_file(root, folder)
        for name, kind in _entries(root, folder, lost):
            bounds.check()
            path = folder + name
            if name == ".git" or _ignored(specs, f"{path}/" if kind == "folder" else path):
                continue
            if kind == "folder" and path.count("/") < _DEEPEST:
                todo.append((f"{path}/", specs))
            elif kind == "folder" and lost is not None:
                lost.append(path)
            elif kind == "file":
                yield path


def _entries(root: Path, folder: str, lost: list[str] | None) -> list[tuple[str, str]]:
    """Names in a folder, each with what it is: folder, file (links too) or other."""
    try:
        with os.scandir(os.path.join(root, folder)) as entries:
            return sorted((entry.name, _kind(entry)) for entry in entries)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError:
        if lost is not None and folder:
            lost.append(folder.rstrip("/"))
        return []


def _kind(entry: os.DirEntry[str]) -> str:
    try:
        if entry.is_dir(follow_symlinks=False):
            return "folder"
        return "file" if entry.is_file(follow_symlinks=False) or entry.is_symlink() else "other"
    except OSError:  # the file system had to be asked, and did not say
        return "other"


def _ignore_file(root: Path, folder: str) -> list[tuple[str, GitIgnoreSpec]]:
    try:
        with open_regular(root, f"{folder}.gitignore") as file:
            lines = file.read(_IGNORE_BYTES).decode("utf-8", "surrogateescape").splitlines()
    except OSError:  # none, a folder, a FIFO, unreadable: it ignores nothing
        return []
    usable = [line for line in lines if len(_STARS.findall(line)) <= _MOST_STARS]
    try:
        return [(folder, GitIgnoreSpec.from_lines(usable))] if usable else []
    except (ValueError, re.error):
        return [(folder, GitIgnoreSpec.from_lines(filter(_is_pattern, usable)))]


def _is_pattern(line: str) -> bool:
    """Whether a line of an ignore file can be used; git skips others."""
    try:
        GitIgnoreSpec.from_lines([line])
    except (ValueError, re.error):
        return False
    return True


def _ignored(specs: list[tuple[str, GitIgnoreSpec]], path: str) -> bool:
    """The deepest ignore file that says something about a path decides."""
    for folder, spec in reversed(specs):
        said = spec.check_file(path[len(folder) :]).include
        if said is not None:
            return said
    return False
