"""Permissions: may this call run, may it not, or must a human be asked?

A deny rule beats every mode. An allow rule never lets through what cannot be read: a command line runs by rules only if every
command in it is allowed and nothing else can run. What may be denied or asked for counts as if, where nobody can tell.
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal

import msgspec

from endstop.core.goal import Verdict
from endstop.core.messages import ToolSpec
from endstop.errors import UsageError
from endstop.guards import addresses
from endstop.guards.commands import Line, Segment, read
from endstop.guards.files import Place, covers, covers_all, touches
from endstop.guards.rules import Rule, holds, lets, mentions, parse_rule

Mode = Literal["plan", "ask", "auto", "yolo"]
_PLAINLY = "write it plainly, without variables in the name of a command and without code in text"


class Permissions:
    """The rules and the mode of a goal.

    Args:
        mode: plan, ask, auto or yolo.
        allow: rules for what runs without asking.
        deny: rules for what never runs.
        ask: rules for what is always asked for, whatever is allowed.
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
        ask: Iterable[str] = (),
        *,
        sandboxed: bool,
        network: bool,
        place: Place = posixpath.normpath,
    ) -> None:
        self._mode = mode
        self._allow = [parse_rule(rule) for rule in allow]
        self._deny = [parse_rule(rule) for rule in deny]
        self._ask = [parse_rule(rule) for rule in ask]
        self._contained = sandboxed and not network
        self._open = "they reach the network" if sandboxed else "there is no sandbox"
        self._place = place

    def decide(self, spec: ToolSpec, arguments: dict[str, Any]) -> Verdict:
        """What holds for one call."""
        line = _command(spec, arguments)
        denied = self._first(self._deny, spec, arguments, line)
        if denied:
            return Verdict("deny", denied.text, f"the rule deny {denied.text} forbids it")
        if self._mode == "plan" and not _reads(spec, line):
            return self._by_mode("deny", "mode plan only reads; run the goal in another mode to change things")
        hidden = self._hidden(self._deny, spec, line)
        if hidden and self._mode == "yolo":
            return Verdict(
                "deny", hidden.text, f"the rule deny {hidden.text} may forbid what it runs, which nobody can tell; {_PLAINLY}"
            )
        if hidden:
            return self._by_mode("ask", f"which command runs cannot be told beforehand, and some are denied; {_PLAINLY}")
        asked = self._first(self._ask, spec, arguments, line) or self._hidden(self._ask, spec, line)
        if asked:
            return Verdict("ask", asked.text, f"the rule ask {asked.text} wants a human's word")
        if self._mode == "yolo":
            return self._by_mode("allow", "everything that no rule denies runs")
        verdict = self._allowed(spec, arguments, line) or self._default(spec, line)
        if verdict.kind == "ask":
            return msgspec.structs.replace(verdict, remedy=self._remedy(spec, arguments, line))
        return verdict

    # -------------------------------------------------------------------------------------------------------- holding back

    def _first(self, rules: Sequence[Rule], spec: ToolSpec, arguments: dict[str, Any], line: Line | None) -> Rule | None:
        """The first rule that means a call."""
        for rule in rules:
            if rule.names(spec.name) and self._means(rule, spec, arguments, line):
                return rule
            if line and rule.paths and touches(rule, line, self._place):
                return rule
        return None

    def _means(self, rule: Rule, spec: ToolSpec, arguments: dict[str, Any], line: Line | None) -> bool:
        if rule.pattern is None:
            return True
        if line:
            return rule.words is None or _runs(rule, line)
        value = _value(spec, arguments)
        if rule.address:
            named = [address for text in _addresses(value, arguments) if (address := addresses.read(text))]
            return any(addresses.holds(rule.address, address) for address in named)
        if value is None:
            return True  # nothing to compare with: rather too strict than open
        if not _takes_path(spec):
            return fnmatchcase(value, rule.pattern)
        names = {posixpath.normpath(value).lstrip("/"), self._place(value) or ""}
        return rule.paths is None or any(rule.paths.search(name) for name in names)

    def _hidden(self, rules: Sequence[Rule], spec: ToolSpec, line: Line | None) -> Rule | None:
        """The first rule that may mean what a line runs without saying so."""
        if line is None or line.clear:
            return None
        for rule in rules:
            if rule.pattern and rule.names(spec.name) and _may_run(rule, line):
                return rule
        return None

    # ------------------------------------------------------------------------------------------------------ letting through

    def _allowed(self, spec: ToolSpec, arguments: dict[str, Any], line: Line | None) -> Verdict | None:
        rules = [rule for rule in self._allow if rule.names(spec.name)]
        whole = next((rule for rule in rules if rule.pattern is None), None)
        if whole:
            used = [whole]
        elif line:
            used = self._cover(rules, line) or []
        else:
            used = [rule for rule in rules if self._lets(rule, spec, arguments)][:1]
        if not used:
            return None
        text = ", ".join(dict.fromkeys(rule.text for rule in used))
        return Verdict("allow", text, f"the rule allow {text} lets it run")

    def _remedy(self, spec: ToolSpec, arguments: dict[str, Any], line: Line | None) -> tuple[str, ...]:
        """Rules that would let just this call run: one for each command of a line; none where they would say more than it."""
        value = _value(spec, arguments)
        texts = [spec.name] if value is None else [f"{spec.name}({value})"]
        if line:
            texts = [f"{spec.name}({shlex.join(segment.words)})" for segment in line.segments]
        if "*" in "".join(texts):
            return ()
        try:
            rules = [parse_rule(text) for text in texts]
        except UsageError:
            return ()
        holds = self._cover([*self._allow, *rules], line) if line else value is None or self._lets(rules[0], spec, arguments)
        return tuple(dict.fromkeys(texts)) if holds else ()

    def _lets(self, rule: Rule, spec: ToolSpec, arguments: dict[str, Any]) -> bool:
        value = _value(spec, arguments)
        if rule.address:
            named = [addresses.read(text) for text in _addresses(value, arguments)]
            return bool(named) and all(address and addresses.lets(rule.address, address) for address in named)
        if value is None or rule.pattern is None:
            return False
        if not _takes_path(spec):
            return fnmatchcase(value, rule.pattern)
        return covers(rule, value, self._place)

    def _cover(self, rules: Sequence[Rule], line: Line) -> list[Rule] | None:
        """Rules that together allow all that a line does; None if they do not."""
        files = covers_all(self._allow, line, self._place)
        if not line.plain or files is None:
            return None
        used = list(files)
        for segment in line.segments:
            found = self._cover_one(rules, segment)
            if found is None:
                return None
            used += found
        return used

    def _cover_one(self, rules: Sequence[Rule], segment: Segment) -> list[Rule] | None:
        used: list[Rule] = []
        carries = bool(segment.commands or segment.lines)
        if segment.words and not (
            segment.thin and carries and "/" not in segment.words[0] and segment.words[0] == segment.bare[0]
        ):
            rule = next((rule for rule in rules if lets(rule, segment.words)), None)
            if rule is None:
                return None
            used.append(rule)
        inner = [self._cover_one(rules, command) for command in segment.commands]
        inner += [self._cover(rules, nested) for nested in segment.lines]
        if segment.opaque or None in inner:
            return None
        return used + [rule for found in inner for rule in found or ()]

    # ---------------------------------------------------------------------------------------------------------------- modes

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


def _reads(spec: ToolSpec, line: Line | None) -> bool:
    """Whether a call changes nothing: reads, and the calls that the kernel answers."""
    return spec.effect in ("read", "read_outside") or (spec.effect == "attached" and spec.own and line is None)


def _command(spec: ToolSpec, arguments: dict[str, Any]) -> Line | None:
    """The command line of a call; None if it has none."""
    name = spec.key_argument or "command"
    if (spec.effect != "shell" and name != "command") or name not in arguments:
        return None
    return read(str(arguments[name]))


def _takes_path(spec: ToolSpec) -> bool:
    return spec.path_argument is not None or spec.key_argument == "path"


def _value(spec: ToolSpec, arguments: dict[str, Any]) -> str | None:
    """What a pattern is compared with; None if the tool has no such argument. Left out, a path is the workspace."""
    name = spec.key_argument or spec.path_argument
    return None if name is None else str(arguments.get(name, "." if _takes_path(spec) else ""))


def _addresses(value: str | None, arguments: dict[str, Any]) -> list[str]:
    """The addresses a call names: its key argument, and whatever looks like one."""
    return list(dict.fromkeys([*([value] if value else []), *addresses.found_in(arguments)]))


def _runs(rule: Rule, line: Line) -> bool:
    """Whether a command of a line, however deep, may be what a rule means."""
    if not line.readable and mentions(rule, line.text):
        return True
    for segment in line.all():
        unread = [nested.text for nested in segment.lines if not nested.readable]
        if holds(rule, segment.bare) or any(mentions(rule, text) for text in (segment.foreign, *unread) if text):
            return True
    return False


def _may_run(rule: Rule, line: Line) -> bool:
    """Whether what a line hides may be what a rule means: a program of which nothing is known, code that is computed."""
    if not line.readable:
        return True
    for segment in line.all():
        if segment.opaque or not all(nested.readable for nested in segment.lines) or holds(rule, segment.bare, guess=True):
            return True
    return False


def _example(spec: ToolSpec) -> str:
    return f"{spec.name}(…)" if spec.key_argument or spec.path_argument else spec.name
