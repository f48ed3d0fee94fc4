"""Permission rules: how they are written, and what they say to one command, path or address.

A rule is ``tool`` or ``tool(pattern)``; the tool's name may hold ``*``. What the pattern means depends on the tool:

    shell(pytest *)                       words of a command; ``*`` alone is any number of words
    write_file(src/**)                    a path in the workspace, as a .gitignore would say it
    fetch(https://*.example.org/**)       an address: scheme, host and path each for themselves
    mytool(prod-*)                        any other argument as text, ``*`` any characters

A rule that lets through has to match for certain, one that holds back only has to match perhaps.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

import msgspec
from pathspec.patterns.gitignore.base import GitIgnorePatternError
from pathspec.patterns.gitignore.basic import GitIgnoreBasicPattern

from endstop.errors import UsageError
from endstop.guards import addresses
from endstop.guards.commands import read
from endstop.guards.runners import ASSIGNMENT, program, without_assignments
from endstop.guards.words import always, blank, computed, known, may

_RULE = re.compile(r"([A-Za-z0-9_*-]+)(?:\((.*)\))?", re.DOTALL)
_FORM = "write tool or tool(pattern), like shell(pytest *) or write_file(src/**)"
_TAKES_PATH = {"read_file", "write_file", "edit_file", "list_files", "search"}
_SHORT = re.compile(r"-[A-Za-z0-9]{1,4}")
_VALUED = {"git": {"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--config-env"}}
"""Options before a subcommand that take the next word."""
_UNSAFE = {
    "git": "-c -C --config-env --exec-path --git-dir --work-tree --output --ext-diff --textconv --upload-pack --receive-pack "
    "--exec --open-files-in-pager -O -x",
    "find": "-delete -fprint -fprint0 -fprintf -fls -files0-from",
    "fd": "-x -X --exec --exec-batch",
    "rg": "--pre --hostname-bin --search-zip -z",
    "sort": "-o --output --compress-program -T --files0-from",
    "tar": "-I -F --use-compress-program --to-command --checkpoint-action --info-script --new-volume-script --rsh-command",
    "zip": "-T -TT --unzip-command",
    "man": "-P -H --pager --html",
    "tree": "-o",
    "uniq": "",
    "sed": "-i --in-place -f --file",
    "awk": "-f --file -i --include -l --load",
    "date": "-s --set -f --file",
    "xxd": "-r",
    "diff": "--output",
    "less": "-o -O --log-file",
    "jq": "-f --from-file -L",
    "curl": "-o -O --output --remote-name -K --config -T --upload-file -F --form -d --data --data-binary --data-raw --json",
    "wget": "-O --output-document --use-askpass --post-file -e --execute -i --input-file",
    "ssh": "-o -F -E",
    "rsync": "-e --rsh --rsync-path",
    "pip": "-i --index-url --extra-index-url",
    "npm": "--script-shell --prefix --globalconfig --userconfig",
    "go": "-toolexec -exec -o",
    "cargo": "--config",
    "docker": "-v --volume --mount --privileged",
}
"""Options with which a program that looks harmless writes, runs or sends something. A rule with a ``*`` does not mean them."""


class Rule(msgspec.Struct, frozen=True):
    """A rule, read. ``pattern`` is None for all calls of the tool; ``words``, ``paths`` and ``address`` are it in the other
    forms, None where it has none."""

    text: str
    tool: str
    pattern: str | None
    words: tuple[str, ...] | None = None
    paths: re.Pattern[str] | None = None
    address: addresses.Pattern | None = None

    def names(self, tool: str) -> bool:
        """Whether it is about a tool."""
        return fnmatchcase(tool, self.tool)


def parse_rule(text: str) -> Rule:
    """Read a rule.

    Raises:
        UsageError: it is none.
    """
    found = _RULE.fullmatch(text.strip())
    if not found:
        raise UsageError("is no permission rule", where=repr(text), hint=_FORM)
    tool, pattern = found[1], found[2]
    if pattern is None:
        return Rule(text.strip(), tool, None)
    if not pattern.strip():
        raise UsageError("has an empty pattern", where=repr(text), hint=f"leave the brackets out to mean every call of {tool}")
    words, paths = _as_words(pattern), _as_paths(pattern)
    if tool == "shell" and not words:
        raise UsageError("has a quote that is not closed", where=repr(text), hint=_FORM)
    if tool == "shell" and len(read(pattern.replace("*", "x")).segments) > 1:
        raise UsageError("names more than one command", where=repr(text), hint="write one rule for each command")
    if tool in _TAKES_PATH and paths is None:
        raise UsageError("holds no usable path pattern", where=repr(text), hint="a path like src/** or *.md, without ! or #")
    address = addresses.parse(pattern)
    if address is None and "://" in pattern and tool != "shell":
        raise UsageError("holds no usable address", where=repr(text), hint="like fetch(https://*.example.org/**)")
    return Rule(text.strip(), tool, pattern, words, paths, address)


def _as_words(pattern: str) -> tuple[str, ...] | None:
    try:
        return tuple(shlex.split(pattern)) or None
    except ValueError:
        return None


def _as_paths(pattern: str) -> re.Pattern[str] | None:
    try:
        parsed = GitIgnoreBasicPattern(pattern)
    except GitIgnorePatternError:
        return None
    return parsed.regex if parsed.include else None


# --------------------------------------------------------------------------------------------------------- letting through


def lets(rule: Rule, words: Sequence[str]) -> bool:
    """Whether a rule is certain to mean a command."""
    if not rule.words or any(map(computed, words)) or not always(rule.words, words):
        return False
    bare = without_assignments(words)
    unsafe = [option for option in _UNSAFE.get(program(bare), "").split() if option not in rule.words]
    options = bare[1 : bare.index("--")] if "--" in bare and program(bare) != "find" else bare[1:]
    return not any(_is_option(word, option) for word in options for option in unsafe)


def _is_option(word: str, option: str) -> bool:
    """Whether a word may be an option, with or without a value, cut short, or among other letters."""
    if not known(word) and may((f"{option}*",), (word,)) and not word.startswith(("/", "./")):
        return True
    if option.startswith("--"):
        name = word.partition("=")[0]
        return len(name) > 3 and option.startswith(name)
    if len(option) > 2:
        return word == option
    return bool(re.match(r"-[^-]", word)) and (word.startswith(option) or (option[1] in word and bool(_SHORT.fullmatch(word))))


# ------------------------------------------------------------------------------------------------------------- holding back


def holds(rule: Rule, words: Sequence[str], *, guess: bool = False) -> bool:
    """Whether a rule may mean a command, from its program on.

    Args:
        guess: a program of which nothing is known counts as any.
    """
    if not rule.words or not words:
        return False
    if blank(words[0]) and not guess:
        return len(words) > 1 and may(("*",), words[:1]) and holds(rule, words[1:]) and words[0] != "\ue000"
    pattern = [posixpath.basename(rule.words[0]).lower(), *rule.words[1:]]
    if "/" in words[0] and "/" in rule.words[0] and not _same_place(rule.words[0], words[0]):
        return False
    if pattern[0] != "*" and known(words[0]) and not fnmatchcase(program(words), pattern[0]):
        return False
    return any(may(pattern, reading) or _with_options(pattern, reading) for reading in _readings(words))


def _same_place(pattern: str, path: str) -> bool:
    both_absolute = pattern.startswith("/") == path.startswith("/")
    return not known(path) or not both_absolute or fnmatchcase(posixpath.normpath(path), posixpath.normpath(pattern))


def _readings(words: Sequence[str]) -> Iterator[list[str]]:
    """A command without its folder, with and without options before its subcommand."""
    name = program(words) or words[0].lower()
    yield [name, *words[1:]]
    valued = _VALUED.get(name, set())
    at = 1
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in valued else 1
    yield [name, *words[at:]]


def _with_options(pattern: Sequence[str], words: Sequence[str]) -> bool:
    """Whether a command has the options of a pattern, wherever they stand and however they are joined, and its other words."""
    wanted = [word for word in pattern if _is_dashed(word)]
    given = [word for word in words if _is_dashed(word)]
    letters = {letter for word in given if _SHORT.fullmatch(word) for letter in word[1:]}
    for option in wanted:
        clustered = bool(_SHORT.fullmatch(option)) and letters.issuperset(option[1:])
        if not clustered and not any(_stands_for(word, option) for word in given):
            return False
    return may([word for word in pattern if not _is_dashed(word)], [word for word in words if not _is_dashed(word)])


def _is_dashed(word: str) -> bool:
    return len(word) > 1 and word[0] == "-"


def _stands_for(word: str, option: str) -> bool:
    name = word.partition("=")[0]
    return fnmatchcase(word, option) or name == option or (option.startswith("--") and len(name) > 3 and option.startswith(name))


def mentions(rule: Rule, text: str) -> bool:
    """Whether text that cannot be read as commands may hold what a rule means: its plain words, one after the other."""
    bare = re.sub(r"[\\'\"]|\\\n", "", text)
    return any(_mentions(rule, reading) for reading in (text, bare))


def _mentions(rule: Rule, text: str) -> bool:
    plain = [word for word in rule.words or () if "*" not in word and "?" not in word and not ASSIGNMENT.match(word)]
    if not plain:
        return True
    plain[0] = posixpath.basename(plain[0])
    return bool(
        re.search(r".*?".join(rf"(?<![\w-]){re.escape(word)}(?![\w-])" for word in plain), text, re.DOTALL | re.IGNORECASE)
    )
