"""Commands that only look: ps, show, diff, verify, export."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from endstop.cli import config, exits, here, out, pages, view
from endstop.core import events as ev
from endstop.core.apply import replay
from endstop.core.codec import BadLine, decode
from endstop.core.goal import State
from endstop.errors import EndstopError, UsageError
from endstop.settings import Settings
from endstop.store.open import Store
from endstop.store.sessions import SessionRow
from endstop.store.verify import Verdict, verify_file

TAIL = 8
"""Lines at the end of a journal among which its goal's end is looked for before all of it is read."""


def ps(workspace: Path | None, *, everywhere: bool) -> int:
    """List goals and conversations of this folder, or of all. A conversation in which nobody said anything is none."""

    async def work(store: Store, settings: Settings) -> list[tuple[SessionRow, str]]:
        rows = await store.sessions(None if everywhere else settings.workspace)
        return [(row, await _standing(store, row)) for row in rows if row.kind == "goal" or row.objective]

    out.say(pages.goals(here.with_store(workspace, work), time.time(), out.columns(), folders=everywhere))
    return exits.OK


async def _standing(store: Store, row: SessionRow) -> str:
    """A session's standing for a list, without reading more of its journal than that needs."""
    if row.kind != "goal":
        return row.kind
    if row.phase == "done":
        for after in (max(0, row.head - TAIL), 0):
            ends = [e.event for e in await store.entries(row.id, after=after) if isinstance(e.event, ev.GoalEnded)]
            if ends:
                return "done (verified)" if ends[-1].verified else "done (claimed)"
    if row.phase in ("waiting", "paused"):
        return view.standing(replay(await store.entries(row.id)))
    return f"{row.phase} (left)" if row.phase in view.DRIVEN and row.holder is None else row.phase


def show(id: str | None, workspace: Path | None, wanted: list[str]) -> int:
    """Show a goal: its summary, or one page of its journal."""
    if len(wanted) > 1:
        raise UsageError(f"--{wanted[0]} and --{wanted[1]} are two pages", hint="ask for one at a time")
    if wanted == ["config"]:
        if id is not None:
            raise UsageError(
                "settings are of a folder, not of a goal", where=f"show {id} --config", hint="leave the id out, or use -C"
            )
        out.say(config.page(here.settings(workspace=workspace), out.columns() if sys.stdout.isatty() else view.WIDE))
        return exits.OK

    async def work(store: Store, settings: Settings) -> list[str]:
        row = await here.find(store, settings, id)
        entries = await store.entries(row.id)
        width = out.columns()
        match wanted:
            case ["events"]:
                return pages.events(entries, width if sys.stdout.isatty() else view.WIDE)
            case ["turns"]:
                return pages.turns(entries)
            case ["stall"]:
                return pages.stalls(entries, settings.stall, width)
        state = replay(entries)
        if state.goal is None:
            raise UsageError("this session has no goal", where=view.short(row.id), hint="endstop ps shows the goals")
        driver = f"process {row.holder.pid} on {row.holder.host}" if row.holder else ""
        return view.summary(state, await store.verify(row.id), time.time(), width, driver=driver)

    out.say(here.with_store(workspace, work))
    return exits.OK


def diff(id: str | None, workspace: Path | None) -> int:
    """Print what differs from the start, as it was seen when somebody last looked; nothing where nothing does."""

    async def work(store: Store, settings: Settings) -> State:
        return replay(await store.entries((await here.find(store, settings, id)).id))

    state = here.with_store(workspace, work)
    seen = state.evidence.look
    if seen is None or not seen.paths:
        return exits.OK
    out.write(out.text(seen.diff) if sys.stdout.isatty() else seen.diff, sys.stdout)
    if state.evidence.looked != state.evidence.world:
        out.say(["as of the last look; something was done since"], sys.stderr)
    return exits.OK


def verify(target: str | None, workspace: Path | None) -> int:
    """Check a journal in the store, or an exported file."""
    if target is not None and (os.path.exists(target) or "/" in target or target.endswith(".jsonl")):
        if not os.path.isfile(target):
            raise UsageError("there is no such file", where=target, hint="give an exported journal, or a goal's id")
        verdict = verify_file(Path(target))
        lines = Path(target).read_bytes().splitlines()
        known = _known_here(lines[0], workspace) if verdict.verdict == "ok" and lines else 0
    else:

        async def work(store: Store, settings: Settings) -> tuple[Verdict, list[bytes]]:
            row = await here.find(store, settings, target)
            return await store.verify(row.id), await store.lines(row.id)

        verdict, lines = here.with_store(workspace, work)
        known = 0
    said = [verify_words(verdict), *([f"  {verdict.why}"] if verdict.verdict == "ok" and verdict.why else [])]
    if known > verdict.count:
        said.append(f"  THE FILE ENDS EARLY: {verdict.count} of {known} events that are known here")
    out.say([*said, *([BARE] if ran_bare(lines) else [])])
    return exits.OK if verdict.verdict == "ok" else exits.FAILED


def _known_here(line: bytes, workspace: Path | None) -> int:
    """How many events of an exported journal this machine's store knows, 0 if it is from elsewhere."""

    async def work(store: Store, settings: Settings) -> int:
        start = decode(line).event
        return (await store.find(start.session_id)).head if isinstance(start, ev.SessionStart) else 0

    with suppress(EndstopError, BadLine):
        return here.with_store(workspace, work)
    return 0


BARE = "  NO SANDBOX: the commands of this goal ran with all rights of whoever ran it, so they could have reached this record too"


def ran_bare(lines: Iterable[bytes]) -> bool:
    """Whether any goal of a journal ran its commands without a sandbox."""
    return any(b'"type":"goal.started"' in line and b'"sandbox":"none"' in line for line in lines)


def verify_words(verdict: Verdict) -> str:
    """The verdict on a journal in one line."""
    if verdict.verdict != "ok":
        return f"verify: {verdict.verdict} at event {verdict.first_bad}: {verdict.why}"
    gaps = f", {len(verdict.gaps)} gaps noted" if verdict.gaps else ""
    return f"verify: ok ({verdict.count} events, head {verdict.head[1][:8]}…{gaps})"


def export(id: str | None, workspace: Path | None, output: Path | None) -> int:
    """Write a journal's lines, unchanged."""
    if output is not None and not output.parent.is_dir():
        raise UsageError("there is no such folder", where=str(output.parent), hint="create it first")

    async def work(store: Store, settings: Settings) -> int:
        row = await here.find(store, settings, id)
        if output is None:
            return await store.export(row.id, sys.stdout.buffer)
        part = output.with_name(f".{output.name}.part")
        try:
            with part.open("wb") as file:
                count = await store.export(row.id, file)
            part.replace(output)
        except OSError as error:
            with suppress(OSError):
                part.unlink()
            raise UsageError(f"cannot be written: {error.strerror}", where=str(output), hint="name another file") from None
        return count

    count = here.with_store(workspace, work)
    if output is not None:
        out.say([f"{count} events to {output}"])
    return exits.OK
