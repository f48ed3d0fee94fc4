"""What must hold of an order before anything of it begins."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path

from endstop.checks import protect
from endstop.core import events as ev
from endstop.core.hooks import check as check_hooks
from endstop.errors import UsageError
from endstop.host.imports import refuse_own
from endstop.host.paths import inside, open_beneath
from endstop.host.sandbox import homes_here
from endstop.ports import Model

INSTRUCTIONS = ("AGENTS.md", "CLAUDE.md")
"""What a repository tells its agents; the first that is there counts."""
LONGEST_INSTRUCTIONS = 32_768
"""Bytes of it that are read."""


def read_instructions(root: Path) -> str | None:
    """What the repository tells its agents, cut where it is too long."""
    for name in INSTRUCTIONS:
        with suppress(OSError), os.fdopen(open_beneath(root, name), "rb") as file:
            text = file.read(LONGEST_INSTRUCTIONS + 1).decode(errors="replace")
            return text if len(text) <= LONGEST_INSTRUCTIONS else f"{text[:LONGEST_INSTRUCTIONS]}\n… (cut)"
    return None


def usable_workspace(path: Path, state: Path) -> Path:
    """Where it really is.

    Raises:
        UsageError: it is no folder that can be written to; or what must stay out of an agent's reach lies in it: Endstop's
            ``state``, the user's home, Endstop itself.
    """
    root = path.expanduser().resolve()
    if not root.is_dir():
        raise UsageError("there is no such folder", where=str(path), hint="give an existing one with -C")
    if not os.access(root, os.W_OK | os.X_OK):
        raise UsageError("this folder cannot be written to", where=str(path), hint="choose another with -C")
    for home in homes_here().values():
        if home.is_relative_to(root):
            hint = "choose a folder of its own with -C: what lies in a home runs the next time you log in"
            raise UsageError(f"your home {home} is no workspace", where=f"workspace {path}", hint=hint)
    if state.resolve().is_relative_to(root):
        hint = "choose another folder with -C, or set ENDSTOP_HOME to one elsewhere"
        raise UsageError(f"Endstop's own state lies in it: {state}", where=f"workspace {path}", hint=hint)
    refuse_own(root)
    return root


def check_limits(explicit: Collection[str], model: Model) -> None:
    """Raises UsageError: an explicit money limit could not bind."""
    if "cost" in explicit and model.price is None and not (model.local or model.scripted):
        raise UsageError(
            f"the price of {model.name} is not known, so the money limit could not hold",
            where="limit cost",
            hint="set its price in endstop.toml ([providers.NAME.price]), limit tokens instead, or say cost=none",
        )


INTERPRETERS = frozenset({"bash", "sh", "zsh", "python", "python3", "node", "ruby", "perl"})


def check_contract(contract: ev.Contract, root: Path) -> None:
    """Raises UsageError: a gate cannot fail, a gate or hook names a command that is not there, a deliverable lies outside."""
    for deliverable in contract.deliverables:
        if inside(root, deliverable) is None:
            raise UsageError("it lies outside the workspace", where=f"deliverable {deliverable}", hint="give a path below it")
    path = os.environ.get("PATH", os.defpath)
    for gate in contract.gates:
        protect.refuse_masked(gate.run)
        missing = protect.missing_command(gate.run, root, path)
        if missing is not None:
            raise UsageError(
                f"the command {missing} is not found", where=f"gate {gate.run!r}", hint="install it, or correct the gate"
            )
    check_hooks(contract.hooks)
    for hook in contract.hooks:
        missing = protect.missing_command(hook.run, root, path)
        if missing is not None:
            raise UsageError(
                f"the command {missing} is not found", where=f"hook {hook.run!r}", hint="install it, or correct the hook"
            )
        _check_script(hook.run, root)


def _check_script(run: str, root: Path) -> None:
    """An interpreter exits with 2 for a script that is not there, which is how a hook objects: every call would be denied."""
    with suppress(ValueError):
        words = shlex.split(run)
        if len(words) > 1 and Path(words[0]).name in INTERPRETERS and not words[1].startswith("-") and "$" not in words[1]:
            script = root / os.path.expanduser(words[1])
            if not script.exists():
                raise UsageError(f"the script {words[1]} is not there", where=f"hook {run!r}", hint="correct its path")


_EXCERPT = re.compile(r"(?<!\S)[^\n]{0,40}\[redacted:[^\]\n]*\]")


def check_secrets(objective: str, contract: ev.Contract, policy: ev.Policy, clean: Callable[[str], str]) -> None:
    """What is recorded is what runs, now and after a restart; so nothing of it may be taken out of the record.

    Raises:
        UsageError: something of the order holds a secret, or what looks like one.
    """
    for where, text in _texts(objective, contract, policy):
        shown = clean(text)
        if shown == text:
            continue
        found = _EXCERPT.search(shown)
        words = found[0].strip() if found else shown[:80]
        raise UsageError(
            f"it holds a secret, or words that look like one: {words}",
            where=where,
            hint="secrets are not recorded, and what is recorded is what runs: put it into a file and name the file",
        )


def _texts(objective: str, contract: ev.Contract, policy: ev.Policy) -> Iterator[tuple[str, str]]:
    yield "objective", objective
    for number, gate in enumerate(contract.gates, 1):
        yield from ((f"gate {number}", text) for text in (gate.run, gate.gate_id, *gate.paths))
    for number, hook in enumerate(contract.hooks, 1):
        yield from ((f"hook {number}", text) for text in (hook.run, hook.matcher))
    yield from (("deliverable", text) for text in contract.deliverables)
    yield from (("protected input", text) for text in contract.inputs)
    yield "rubric", contract.rubric or ""
    yield from (("rule", text) for text in (*policy.allow, *policy.deny, *policy.ask))
