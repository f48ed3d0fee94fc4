"""The report file at the end: JSON for machines, Markdown for people. The same facts as the end block."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from endstop.cli import exits, view
from endstop.cli.out import line
from endstop.core.goal import State
from endstop.core.handoff import handoff, open_items
from endstop.core.limits import show
from endstop.errors import EndstopError, UsageError
from endstop.models.names import is_played
from endstop.store.verify import Verdict

STATUS = {"done": "ok", "failed": "failed"}


def check(paths: Sequence[Path]) -> None:
    """Refuse reports that could not be written, before anything is spent.

    Raises:
        UsageError: the ending is unknown, or the folder is missing or cannot be written.
    """
    for path in paths:
        if path.suffix not in (".md", ".json"):
            raise UsageError("is neither .md nor .json", where=f"--report {path}", hint="the ending says which form is wanted")
        folder = path.parent
        if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
            raise UsageError("cannot be written", where=f"--report {path}", hint="name a file in a folder you can write to")


def write(paths: Sequence[Path], state: State, record: Verdict, now: float) -> None:
    """Write every report.

    Raises:
        EndstopError: one cannot be written; the goal itself is as it is.
    """
    if not paths:
        return
    facts = build(state, record, now)
    for path in paths:
        text = (
            markdown(facts) if path.suffix == ".md" else msgspec.json.format(msgspec.json.encode(facts), indent=2).decode() + "\n"
        )
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise EndstopError(
                f"cannot be written: {error.strerror}", where=f"--report {path}", hint="see endstop show"
            ) from None


def build(state: State, record: Verdict, now: float) -> dict[str, Any]:
    """The facts: the goal's handoff, or what it would be now, with the session, its exit code and its record."""
    goal = state.goal
    assert goal is not None
    found = goal.ended.handoff if goal.ended is not None else handoff(state, now, state.phase, [], open_items(state))
    return {
        "sessionId": state.session_id,
        "standing": view.standing(state),
        "status": STATUS.get(state.phase, "partial"),
        "exitCode": exits.of(state),
        "scripted": is_played(goal.queued.model),
        "model": goal.queued.model,
        "workspace": goal.queued.workspace,
        **found,
        "limits": dict(goal.caps),
        "record": {"verdict": record.verdict, "events": record.count, "head": record.head[1], "why": record.why},
        "next": view.following(state),
    }


def markdown(facts: dict[str, Any]) -> str:
    """The facts as a page."""
    scripted = " (SCRIPTED: no model was asked)" if facts["scripted"] else ""
    lines = [
        f"# {facts['standing']}: {line(facts['objective'], 100)}",
        "",
        f"- goal: `{facts['sessionId']}`",
        f"- model: `{facts['model']}`{scripted}",
        f"- workspace: `{facts['workspace']}`",
        f"- reason: {line(facts['reason'])}",
        f"- record: {facts['record']['verdict']}, {facts['record']['events']} events, head `{facts['record']['head'][:16]}`",
    ]
    for title, items in (
        ("What proves it", facts["verifiedBy"]),
        ("What is missing", facts["missing"]),
        (
            "Gates",
            [
                f"{gate['now'] or 'not run'} (at the start {gate['atStart'] or 'not run'}): `{gate['run']}`"
                for gate in facts["gates"]
            ],
        ),
        ("Changed files", [f"`{path}`" for path in facts["changedFiles"]]),
        ("Changed verifier inputs", [f"`{path}`" for path in facts["protectedChanged"]]),
        ("Spent", _spent(facts)),
        ("How to go on", [f"`{text}`" if text.startswith("endstop") else text for text in facts["next"]]),
    ):
        if items:
            lines += ["", f"## {title}", "", *(f"- {line(item)}" for item in items)]
    if facts["summary"].strip():
        quoted = [f"> {line(text)}".rstrip() for text in facts["summary"].splitlines()]
        lines += ["", "## In the model's words", "", *quoted]
    return "\n".join(lines) + "\n"


def _spent(facts: dict[str, Any]) -> list[str]:
    caps = facts["limits"]
    return [
        f"{axis}: {show(axis, used)}" + (f" of {show(axis, caps[axis])}" if axis in caps else "")
        for axis, used in facts["spend"].items()
        if used or axis in caps
    ]
