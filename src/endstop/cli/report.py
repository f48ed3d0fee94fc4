"""What a goal leaves in files: a report for machines (JSON), people (Markdown) or CI (JUnit XML), and its diff."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from endstop.cli import exits, junit, view
from endstop.cli.out import line
from endstop.core.goal import State
from endstop.core.handoff import handoff, open_items
from endstop.core.limits import show
from endstop.errors import EndstopError, UsageError
from endstop.models.names import is_played
from endstop.running import Running
from endstop.store.verify import Verdict

FORMS = (".md", ".json", ".xml")
PATCH = "diff.patch"
STATUS = {"done": "ok", "failed": "failed"}


def check(paths: Sequence[Path]) -> None:
    """Refuse reports that could not be written, before anything is spent.

    Raises:
        UsageError: the ending is unknown, or the folder is missing or cannot be written.
    """
    for path in paths:
        if path.suffix not in FORMS:
            raise UsageError(
                "is neither .md nor .json nor .xml", where=f"--report {path}", hint="the ending says which form is wanted"
            )
        folder = path.parent
        if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
            raise UsageError("cannot be written", where=f"--report {path}", hint="name a file in a folder you can write to")


async def keep_patch(running: Running, home: Path) -> Path | None:
    """Keep the goal's whole diff beside its journal; where it is, or None where nothing differs or it cannot be kept."""
    path = home / "sessions" / running.session.session_id / PATCH
    text = await running.patch()
    with suppress(OSError):  # the goal is as it is, and the journal has its last look
        if text:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8", newline="") as file:
                file.write(text)
            return path
        path.unlink(missing_ok=True)
    return None


def write(paths: Sequence[Path], state: State, record: Verdict, now: float, patch: Path | None = None) -> None:
    """Write every report.

    Raises:
        EndstopError: one cannot be written; the goal itself is as it is.
    """
    if not paths:
        return
    facts = build(state, record, now) | {"diff": str(patch) if patch else None}
    for path in paths:
        try:
            path.write_text(_text(path.suffix, facts, state), encoding="utf-8")
        except OSError as error:
            raise EndstopError(
                f"cannot be written: {error.strerror}", where=f"--report {path}", hint="see endstop show"
            ) from None


def _text(form: str, facts: dict[str, Any], state: State) -> str:
    if form == ".md":
        return markdown(facts)
    if form == ".xml":
        return junit.render(facts, state)
    return msgspec.json.format(msgspec.json.encode(facts), indent=2).decode() + "\n"


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
        "denied": view.denied(state),
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
    if facts.get("diff"):
        lines.append(f"- diff: `{facts['diff']}`")
    for title, items in (
        ("What proves it", facts["verifiedBy"]),
        ("What is missing", facts["missing"]),
        ("What was denied", facts["denied"]),
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
