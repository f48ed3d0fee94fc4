"""Permission rules and modes: may this call run, may it not, or must a human be asked?

A rule is ``tool`` or ``tool(pattern)``; the tool's name may hold ``*``. What the pattern means depends on the tool:

    shell(pytest *)        words of a command; ``*`` alone is any number of words, inside of a word any characters
    write_file(src/**)     a path in the workspace, as a .gitignore would say it
    mytool(prod-*)         any other argument as text, ``*`` any characters

A deny rule beats every mode. An allow rule never lets through what cannot be read: a command line runs by rules only if
every command in it is allowed and nothing else can run.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal

import msgspec
from pathspec.patterns.gitignore.base import GitIgnorePatternError
from pathspec.patterns.gitignore.basic import GitIgnoreBasicPattern

from endstop.core.goal import Verdict
from endstop.core.messages import ToolSpec
from endstop.errors import UsageError
from endstop.guards.commands import Line, runs, split

Mode = Literal["plan", "ask", "auto", "yolo"]
_RULE = re.compile(r"([A-Za-z0-9_*-]+)(?:\((.*)\))?", re.DOTALL)
_FORM = "write tool or tool(pattern), like shell(pytest *) or write_file(src/**)"
_MOST = 50_000  # readings of one command line
_TAKES_PATH = {"read_file", "write_file", "edit_file", "list_files", "search"}


class Rule(msgspec.Struct, frozen=True):
    """A rule, read. ``pattern`` is None for all calls of the tool; ``words`` and ``paths`` are it in the two other forms,
    None where it has none."""

    text: str
    tool: str
    pattern: str | None
    words: tuple[str, ...] | None
    paths: re.Pattern[str] | None


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
        return Rule(text.strip(), tool, None, None, None)
    if not pattern.strip():
        raise UsageError("has an empty pattern", where=repr(text), hint=f"leave the brackets out to mean every call of {tool}")
    words, paths = _as_words(pattern), _as_paths(pattern)
    if tool == "shell" and not words:
        raise UsageError("has a quote that is not closed", where=repr(text), hint=_FORM)
    if tool == "shell" and words and split(pattern.replace("*", "x")).commands[1:]:
        raise UsageError("names more than one command", where=repr(text), hint="write one rule for each command")
    if tool in _TAKES_PATH and paths is None:
        raise UsageError("holds no usable path pattern", where=repr(text), hint="a path like src/** or *.md, without ! or #")
    return Rule(text.strip(), tool, pattern, words, paths)


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


class Permissions:
    """The rules and the mode of a goal.

    Args:
        mode: plan, ask, auto or yolo.
        allow: rules for what runs without asking.
        deny: rules for what never runs.
        sandboxed: commands run in a sandbox.
        network: commands reach the network.
        place: where a path really is, relative to the workspace, None if outside: so that no link leads around a rule.

    Raises:
        UsageError: a rule cannot be read.
    """

    def __init__(
        self,
        mode: Mode,
        allow: Iterable[str] = (),
        deny: Iterable[str] = (),
        *,
        sandboxed: bool,
        network: bool,
        place: Callable[[str], str | None] = posixpath.normpath,
    ) -> None:
        self._mode = mode
        self._allow = [parse_rule(rule) for rule in allow]
        self._deny = [parse_rule(rule) for rule in deny]
        self._contained = sandboxed and not network
        self._open = "they reach the network" if sandboxed else "there is no sandbox"
        self._place = place

    def decide(self, spec: ToolSpec, arguments: dict[str, Any]) -> Verdict:
        """What holds for one call."""
        line = _command(spec, arguments)
        for rule in self._deny:
            if _names(rule, spec) and self._denies(rule, spec, arguments, line):
                return Verdict("deny", rule.text, f"the rule deny {rule.text} forbids it")
        if self._mode == "plan":
            return self._plan(spec, line)
        if self._mode == "yolo":
            return self._by_mode("allow", "everything that no rule denies runs")
        if line and not line.named and any(rule.pattern and _names(rule, spec) for rule in self._deny):
            return self._by_mode("ask", "which command runs cannot be told beforehand, and some are denied; write it plainly")
        return self._allowed(spec, arguments, line) or self._default(spec, line)

    def _denies(self, rule: Rule, spec: ToolSpec, arguments: dict[str, Any], line: Line | None) -> bool:
        if rule.pattern is None:
            return True
        if line:
            return rule.words is None or _any_matches(rule.words, line)
        value = _value(spec, arguments)
        if value is None:
            return True  # nothing to compare with: rather too strict than open
        if not _takes_path(spec):
            return fnmatchcase(value, rule.pattern)
        names = {posixpath.normpath(value).lstrip("/"), self._place(value) or ""}
        return rule.paths is None or any(rule.paths.search(name) for name in names)

    def _allowed(self, spec: ToolSpec, arguments: dict[str, Any], line: Line | None) -> Verdict | None:
        rules = [rule for rule in self._allow if _names(rule, spec)]
        whole = next((rule for rule in rules if rule.pattern is None), None)
        if whole:
            used = [whole]
        elif line:
            used = _cover(rules, line)
        else:
            used = [rule for rule in rules if self._allows(rule, spec, _value(spec, arguments))][:1]
        if not used:
            return None
        text = ", ".join(dict.fromkeys(rule.text for rule in used))
        return Verdict("allow", text, f"the rule allow {text} lets it run")

    def _allows(self, rule: Rule, spec: ToolSpec, value: str | None) -> bool:
        if value is None or rule.pattern is None:
            return False
        if not _takes_path(spec):
            return fnmatchcase(value, rule.pattern)
        name = self._place(value)
        return bool(rule.paths and name and not name.startswith(("..", "/")) and rule.paths.search(name))

    def _plan(self, spec: ToolSpec, line: Line | None) -> Verdict:
        if _reads(spec, line):
            return self._by_mode("allow", "reading is free")
        return self._by_mode("deny", "mode plan only reads; run the goal in another mode to change things")

    def _default(self, spec: ToolSpec, line: Line | None) -> Verdict:
        remedy = f"allow it with the rule {_example(spec)}"
        if _reads(spec, line):
            return self._by_mode("allow", "reading is free")
        if self._mode == "ask":
            return self._by_mode("ask", f"everything but reading is asked for; {remedy}")
        if spec.irreversible:
            return self._by_mode("ask", f"{spec.name} cannot be undone; {remedy}")
        if not spec.own:
            return self._by_mode("ask", f"{spec.name} comes from elsewhere and may change things; {remedy}")
        if line and not self._contained:
            return self._by_mode("ask", f"commands are asked for, as {self._open}; {remedy}")
        return self._by_mode("allow", "commands run in the sandbox without network" if line else "it stays in reach of the goal")

    def _by_mode(self, kind: Literal["allow", "deny", "ask"], why: str) -> Verdict:
        return Verdict(kind, f"mode {self._mode}", why)


def _names(rule: Rule, spec: ToolSpec) -> bool:
    return fnmatchcase(spec.name, rule.tool)


def _reads(spec: ToolSpec, line: Line | None) -> bool:
    """Whether a call changes nothing: reads, and the calls that the kernel answers."""
    return spec.effect in ("read", "read_outside") or (spec.effect == "attached" and spec.own and line is None)


def _command(spec: ToolSpec, arguments: dict[str, Any]) -> Line | None:
    """The command line of a call; None if it has none."""
    name = spec.key_argument or "command"
    if (spec.effect != "shell" and name != "command") or name not in arguments:
        return None
    return split(str(arguments[name]))


def _takes_path(spec: ToolSpec) -> bool:
    return spec.path_argument is not None or spec.key_argument == "path"


def _value(spec: ToolSpec, arguments: dict[str, Any]) -> str | None:
    """What a pattern is compared with; None if the tool has no such argument. Left out, a path is the workspace."""
    name = spec.key_argument or spec.path_argument
    return None if name is None else str(arguments.get(name, "." if _takes_path(spec) else ""))


def _cover(rules: Sequence[Rule], line: Line) -> list[Rule]:
    """Rules that together allow every command of a clear line; empty if they do not."""
    used: list[Rule] = []
    for words in line.commands if line.clear else ():
        rule = next((rule for rule in rules if rule.words and _match_words(rule.words, words)), None)
        if rule is None:
            return []
        used.append(rule)
    return used


def _any_matches(pattern: Sequence[str], line: Line) -> bool:
    """Whether a command of the line may be what the pattern means; a line too long to tell counts as if."""
    return any(seen == _MOST or _match_words(pattern, words) for seen, words in enumerate(runs(line.commands)))


def _match_words(pattern: Sequence[str], words: Sequence[str]) -> bool:
    """``*`` alone stands for any number of words, none too; every other word is matched by itself."""
    at = number = tried = 0
    star: int | None = None
    while number < len(words):
        if at < len(pattern) and pattern[at] == "*":
            star, tried = at, number
            at += 1
        elif at < len(pattern) and fnmatchcase(words[number], pattern[at]):
            at += 1
            number += 1
        elif star is not None:
            at = star + 1
            tried += 1
            number = tried
        else:
            return False
    return all(part == "*" for part in pattern[at:])


def _example(spec: ToolSpec) -> str:
    return f"{spec.name}(…)" if spec.key_argument or spec.path_argument else spec.name
