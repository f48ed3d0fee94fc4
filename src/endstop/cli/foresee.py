"""``run --dry-run``: what would happen, and what the permission rules would say. Begins nothing, writes nothing."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any, get_args

import msgspec

from endstop.assemble import Order, System
from endstop.checks import protect
from endstop.cli import exits, here, out, view
from endstop.cli.run import order, wanted
from endstop.core.messages import ToolSpec
from endstop.guards.rules import Rule, parse_rule
from endstop.settings import Mode, Settings
from endstop.tools.catalog import Catalog

Call = tuple[str, dict[str, Any]]
MODES: tuple[Mode, ...] = get_args(Mode)
SAMPLES: tuple[Call, ...] = (
    ("read_file", {"path": "README.md"}),
    ("write_file", {"path": "src/new.py", "content": ""}),
    ("edit_file", {"path": ".github/workflows/ci.yml", "old": "a", "new": "b"}),
    ("shell", {"command": "ls -la"}),
    ("shell", {"command": "git commit -m x"}),
    ("shell", {"command": "git push"}),
    ("shell", {"command": "npm install"}),
    ("shell", {"command": "curl https://example.com"}),
    ("shell", {"command": "rm -rf build"}),
)
"""Calls that agents make, from harmless to not."""
CALL, WORD = 32, 7
SHOWN = 8
"""Protected files that are named."""


def foresee(objective: str, flags: dict[str, Any]) -> int:
    """Print it."""
    settings, text, _ = wanted(objective, flags)

    async def work() -> list[str]:
        system = System(settings)  # never entered: no store is made
        try:
            return await _pages(system, settings, order(settings, text))
        finally:
            for model in system.models.values():
                await model.close()

    out.say(here.run(work()))
    return exits.OK


async def _pages(system: System, settings: Settings, asked: Order) -> list[str]:
    state, about = await system.foresee(asked)
    width = out.columns()
    about |= {"reachable": here.interactive(), "effort": settings.effort}
    lines = ["DRY RUN: nothing is begun", *view.start(about, state, width)[1:]]
    lines += view.rows("protected", _protected(asked), width)
    lines += view.rows("rubric", [asked.contract.rubric] if asked.contract.rubric else [], width)
    lines += view.rows("hooks", [f"{hook.on}: {hook.run}" for hook in asked.contract.hooks], width)
    return [*lines, "", *_verdicts(system, asked, width)]


def _protected(asked: Order) -> list[str]:
    """The files on which verification would rely."""
    found = sorted(protect.protected_inputs(asked.contract, asked.workspace))
    if not found:
        return ["no file"]
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    held = "returns the claim" if asked.contract.protect == "refuse" else "is said"
    return [f"{len(found)} files, a change {held}: {', '.join(found[:SHOWN])}{more}"]


def _verdicts(system: System, asked: Order, width: int) -> list[str]:
    """A table: what each mode says to each call, and what decides it in the mode that holds."""
    policy, catalog = asked.policy, system.catalog(asked.policy)
    modes = {mode: system.permissions(msgspec.structs.replace(policy, mode=mode), asked.workspace) for mode in MODES}
    heads = [f"[{mode}]" if mode == policy.mode else mode for mode in MODES]
    lines = [f"  {'CALL':<{CALL}}{_row(heads)}DECIDED BY"]
    for name, arguments in _calls(asked, catalog):
        spec = catalog.specs[name]
        verdicts = {mode: modes[mode].decide(spec, arguments) for mode in MODES}
        key = spec.key_argument or spec.path_argument or ""
        said = out.line(f"{name} {arguments.get(key, '')}", CALL - 1)
        by = out.line(verdicts[policy.mode].rule, width - 2 - CALL - WORD * len(MODES))
        lines.append(f"  {said:<{CALL}}{_row(verdict.kind for verdict in verdicts.values())}{by}")
    unknown = [text for text in (*policy.allow, *policy.deny) if not _tools(parse_rule(text), catalog)]
    return lines + view.rows("NOTE", [f"the rule {text} names no tool there is" for text in unknown], width)


def _row(words: Iterable[str]) -> str:
    return "".join(f"{word:<{WORD}}" for word in words)


def _calls(asked: Order, catalog: Catalog) -> list[Call]:
    """Samples, the gates as the agent would call them, and a call for each rule."""
    calls = [*SAMPLES, *(("shell", {"command": gate.run}) for gate in asked.contract.gates)]
    for text in (*asked.policy.allow, *asked.policy.deny):
        rule = parse_rule(text)
        calls += [(name, _example(rule, catalog.specs[name])) for name in _tools(rule, catalog)[:1]]
    return [call for at, call in enumerate(calls) if call not in calls[:at]]


def _tools(rule: Rule, catalog: Catalog) -> list[str]:
    return [name for name in catalog.specs if fnmatchcase(name, rule.tool)]


def _example(rule: Rule, spec: ToolSpec) -> dict[str, Any]:
    """Arguments that a rule's pattern means, as far as it has one."""
    key = spec.key_argument or spec.path_argument
    return {key: (rule.pattern or "*").replace("**", "x").replace("*", "x")} if key else {}
