"""Path rules: where a path really leads counts, also for the files that a command line opens or is told to change."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase

from endstop.guards.commands import Line
from endstop.guards.rules import Rule
from endstop.guards.runners import program
from endstop.guards.words import GLOB, blank, known, may

Place = Callable[[str], str | None]
_WRITING = ("write_file", "edit_file")
_READING = ("read_file",)
_WRITERS = {
    *("tee", "cp", "mv", "install", "ln", "rm", "rmdir", "unlink", "shred", "truncate", "touch", "dd", "sed", "perl", "patch"),
    *("chmod", "chown", "chgrp", "rsync", "mkdir", "sponge", "rename"),
}
"""Programs that change files they are given."""
_MOVES = frozenset({"cd", "pushd", "popd"})


def covers(rule: Rule, path: str, place: Place) -> bool:
    """Whether a path is certain to be what a rule means: in the workspace, and wherever it leads."""
    name = place(path)
    return bool(rule.paths and name and not name.startswith(("..", "/")) and rule.paths.search(name))


def covers_all(rules: Sequence[Rule], line: Line, place: Place) -> list[Rule] | None:
    """Rules that let through every file a line opens by itself; None if some are not."""
    used: list[Rule] = []
    moves = any(program(segment.bare) in _MOVES for segment in line.segments)
    for redirect in line.redirects:
        tools = _WRITING if redirect.use == "write" else _READING if redirect.use == "read" else (*_WRITING, *_READING)
        fitting = [rule for rule in rules if known(redirect.target) and not moves and covers(rule, redirect.target, place)]
        found = [rule for rule in fitting if any(rule.names(tool) for tool in tools)]
        if not found or redirect.use == "both":
            return None
        used.append(found[0])
    return used


def touches(rule: Rule, line: Line, place: Place) -> bool:
    """Whether a path rule may mean a file that a line opens, writes by a program known to write, or names where reading it is
    what the rule is about."""
    writing = any(fnmatchcase(tool, rule.tool) for tool in _WRITING)
    reading = any(fnmatchcase(tool, rule.tool) for tool in _READING)
    if rule.pattern is None or not (writing or reading):
        return False
    folders = ["", *_folders(line)]
    for use, word in _named(line):
        meant = (writing and use != "read") or (reading and use != "write")
        if meant and any(_meets(rule, posixpath.join(folder, word), place) for folder in folders):
            return True
    return False


def _named(line: Line) -> Iterator[tuple[str, str]]:
    """Every file that a line may touch, and how."""
    for redirect in line.files():
        yield redirect.use, redirect.target
    for segment in line.all():
        words = segment.bare
        use = "both" if program(words) in _WRITERS else "read"
        for word in words[1:]:
            for part in {word, word.lstrip("@"), word.rpartition("=")[2].lstrip("@")} - {""}:
                yield use, part


def _folders(line: Line) -> Iterator[str]:
    """Where a line may have gone before it names a file."""
    for segment in line.all():
        words = segment.bare
        if program(words) in _MOVES and len(words) > 1 and known(words[-1]):
            yield words[-1]


def _meets(rule: Rule, path: str, place: Place) -> bool:
    assert rule.paths
    assert rule.pattern
    if known(path):
        names = {posixpath.normpath(path).lstrip("/"), place(path) or ""}
        return any(rule.paths.search(name) for name in names)
    if rule.paths.search(posixpath.normpath(path.replace(GLOB, "x")).lstrip("/")):
        return True
    folder, name = posixpath.split(path)
    wanted = posixpath.basename(rule.pattern.rstrip("/*"))
    hidden = wanted.startswith(".") and not name.startswith(".")
    return known(folder) and name != "" and not hidden and not blank(name) and may((wanted,), (name,))
