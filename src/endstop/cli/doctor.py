"""doctor: what works here and what does not, each with its remedy."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from endstop.cli import exits, here, out
from endstop.cli.view import model_words
from endstop.core.messages import Head, UserText
from endstop.errors import EndstopError, ModelError, UsageError
from endstop.host import git, imports, sandbox
from endstop.models.choose import make_model
from endstop.orders import usable_workspace
from endstop.settings import Settings
from endstop.store.open import open_store

LEAST_FREE = 100 * 1024 * 1024
"""Bytes below which the disk is said to be nearly full."""
CHECKED = 50
"""Journals that are verified, the newest."""
CHOOSE = '-m PROVIDER:MODEL, ENDSTOP_MODEL, or model = "…" in endstop.toml'
LABEL = 11
SIGNS = {"ok": "ok", "note": "NOTE", "bad": "BAD"}


class Finding(msgspec.Struct, frozen=True):
    """One line of the doctor's: ``bad`` makes it exit 1, ``note`` is worth knowing."""

    name: str
    kind: Literal["ok", "note", "bad"]
    text: str
    hint: str = ""


def doctor(workspace: Path | None, model: str | None, *, ask: bool) -> int:
    """Look at everything a goal needs.

    Args:
        model: looked at in place of the one that is configured.

    Raises:
        UsageError: a model is to be asked, and none is chosen.
    """
    findings = list(_findings(workspace, model, ask))
    for finding in findings:
        first = f"{SIGNS[finding.kind]:<6}{finding.name:<{LABEL}}"
        out.say([first + out.line(finding.text)])
        if finding.hint:
            out.say([" " * len(first) + out.line(finding.hint)])
    return exits.FAILED if any(finding.kind == "bad" for finding in findings) else exits.OK


def _findings(workspace: Path | None, model: str | None, ask: bool) -> Iterator[Finding]:
    yield _python()
    try:
        settings = here.settings({"model": model} if model else None, workspace=workspace)
    except UsageError as error:
        yield _bad("settings", error)
        return
    if ask and not settings.model:
        raise UsageError("there is no model to ask", where="--ask", hint=CHOOSE)
    files = ", ".join(str(path) for path in settings.files)
    yield Finding("settings", "ok", files or "no endstop.toml: defaults and the environment")
    yield _home(settings.home)
    yield _database(settings)
    yield _place(settings)
    yield _sandbox(settings.workspace)
    yield _git(settings.workspace)
    yield from _models(settings, ask)


def _python() -> Finding:
    return Finding("python", "ok", f"{platform.python_version()} on {platform.system()}: {sys.executable}")


def _home(home: Path) -> Finding:
    around = next(path for path in (home, *home.parents) if path.exists())
    if not os.access(around, os.W_OK | os.X_OK):
        return Finding("state", "bad", f"{home} cannot be written", "set ENDSTOP_HOME to a folder you can write to")
    free = shutil.disk_usage(around).free
    text = f"{home}, {free / 2**30:.1f} GiB free"
    if free < LEAST_FREE:
        return Finding("state", "bad", text, "free some space: a full disk pauses goals")
    return Finding("state", "ok", text)


def _database(settings: Settings) -> Finding:
    async def work() -> Finding:
        async with open_store(settings.home) as store:
            rows = (await store.sessions())[:CHECKED]
            for row in rows:
                found = await store.verify(row.id)
                if found.verdict != "ok":
                    text = f"{row.id}: {found.verdict} at event {found.first_bad}"
                    return Finding("database", "bad", text, f"{found.why}; endstop verify {row.id}")
            return Finding("database", "ok", f"opens; the newest {len(rows)} journals verify" if rows else "opens; no goals yet")

    try:
        return here.run(work())
    except EndstopError as error:
        return _bad("database", error)


def _place(settings: Settings) -> Finding:
    try:
        root = usable_workspace(settings.workspace, settings.home)
    except UsageError as error:
        return Finding("workspace", "note", error.message, error.hint)
    if own := imports.kept(root):
        text = f"{root}: Endstop itself runs from {own[0]} in it, which is read-only to the agent in a sandbox"
        return Finding("workspace", "note", text, "better installed elsewhere: pipx install endstop")
    return Finding("workspace", "ok", str(root))


def _sandbox(workspace: Path) -> Finding:
    found = sandbox.detect(workspace)
    if found.kind == "none":
        text = f"NONE: commands run with all your rights, so they are asked for. {found.why}"
        return Finding("sandbox", "note", text, "protects nothing: not your files, not your keys, not the network")
    protects = "protects: files outside the workspace, homes and keys, the network. Does not: the workspace itself and its .git"
    return Finding("sandbox", "ok", found.kind, protects)


def _git(workspace: Path) -> Finding:
    try:
        said = git.run_git(["--version"], workspace).decode(errors="replace").strip()
    except git.GitFailed as error:
        return Finding(
            "git", "note", error.message, "without git, changes are found by walking the folder; they cannot be undone"
        )
    return Finding("git", "ok", said.removeprefix("git version "))


def _models(settings: Settings, ask: bool) -> Iterator[Finding]:
    wanted = [("model", settings.model)]
    if settings.judge not in ("auto", "none"):
        wanted.append(("judge", settings.judge))
    wanted += [("fallbacks", model) for model in settings.fallbacks]
    for name, model in wanted:
        if not model:
            yield Finding(name, "note", "none is chosen", CHOOSE)
            continue
        try:
            yield here.run(_model(name, model, settings, ask))
        except EndstopError as error:
            yield _bad(name, error)


async def _model(name: str, wanted: str, settings: Settings, ask: bool) -> Finding:
    model = make_model(wanted, settings)
    try:
        text = model_words(model.name, model.scripted, model.price is not None or model.local)
        came = settings.came(name)
        if ask and not model.scripted:
            answer = await model.open(Head("Answer in one word.")).ask(
                [UserText("Say ok.")], generation=0, max_output=64, tools=False
            )
            return Finding(name, "ok", f"{text} ({came}), it answers: {out.line(answer.text, 40) or '(nothing)'}")
        asked = "" if model.scripted else "; endstop doctor --ask finds out whether it answers"
        return Finding(name, "ok", f"{text} ({came}), its key is there{asked}" if not model.local else f"{text} ({came}){asked}")
    except ModelError as error:
        return _bad(name, error)
    finally:
        await model.close()


def _bad(name: str, error: EndstopError) -> Finding:
    where = f"{error.where}: " if error.where else ""
    return Finding(name, "bad", f"{where}{error.message}", error.hint)
