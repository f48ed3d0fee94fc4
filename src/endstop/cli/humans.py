"""Commands by which a person speaks to a goal from outside: answer, send, pause, cancel."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from endstop.assemble import System, open_system
from endstop.cli import ask, exits, here, out, report, view
from endstop.core import events as ev
from endstop.core.apply import replay
from endstop.core.calls import APPROVED
from endstop.core.events import Event
from endstop.core.goal import LIVE
from endstop.errors import EndstopError, UsageError
from endstop.runtime.session import uuid7
from endstop.settings import Settings
from endstop.store.sessions import SessionRow


def answer(id: str | None, workspace: Path | None, text: str | None) -> int:
    """Answer the oldest thing a goal asks; without a text, show it (and ask for one at a terminal)."""
    here.refuse_inside("answer for a person")
    settings = here.settings(workspace=workspace)

    async def work() -> int:
        async with open_system(settings) as system:
            row, said = await _meant(system, settings, id, text)
            asked = await _asked(system, row)
            if said is None and not here.interactive():
                out.say(ask.question_lines(asked))
                hint = f'endstop answer {view.short(row.id)} "…"'
                raise UsageError("an answer is needed", where=view.short(row.id), hint=hint)
            if said is None:
                out.say(ask.question_lines(asked), sys.stderr)
                said = (await asyncio.to_thread(sys.stdin.readline)).strip()
                if not said:
                    raise UsageError("nothing was answered", where=view.short(row.id), hint="silence is never an answer")
            event = ask.reply(asked, said, here.person())
            _may_allow(event)
            await _control(system, row, event, "answer")
            given = out.line(_given(event))
            if row.holder is None:
                out.say([f"answered: {given}", f"nobody drives it; go on with: endstop resume {view.short(row.id)}"])
            else:
                out.say([f"answered: {given}; process {row.holder.pid} goes on"])
            return exits.OK

    return here.run(work())


async def _meant(system: System, settings: Settings, id: str | None, text: str | None) -> tuple[SessionRow, str | None]:
    """One word alone is an id if a goal has it, else the answer to the newest goal of this folder."""
    if id is not None and text is None:
        try:
            return await system.store.find(id), None
        except UsageError:
            id, text = None, id
    return await here.find(system.store, settings, id), text


async def _asked(system: System, row: SessionRow) -> ask.Asked:
    entries = await system.store.entries(row.id)
    found = ask.open_asks(entries, replay(entries))
    if not found:
        hint = f"endstop show {view.short(row.id)} says where it stands"
        raise UsageError("there is no open question", where=view.short(row.id), hint=hint)
    if len(found) > 1:
        out.say([f"{len(found)} things are asked; this is about the oldest"], sys.stderr)
    return found[0]


def _given(event: Event) -> str:
    """What was answered, in words."""
    if isinstance(event, ev.QuestionAnswered):
        return event.answer
    allowed = isinstance(event, ev.PermissionCompleted) and event.result.kind == APPROVED
    return "yes, this once" if allowed else "no"


def _may_allow(event: Event) -> None:
    """To allow something takes a terminal: a command that a goal has begun has none."""
    if isinstance(event, ev.PermissionCompleted) and event.result.kind == APPROVED and not here.interactive():
        raise UsageError("a permission is given at a terminal only", hint="run endstop answer in one, or allow it by a rule")


def send(id: str | None, workspace: Path | None, text: str | None) -> int:
    """A person's message, read at the agent's next step."""
    here.refuse_inside("speak for a person")
    settings = here.settings(workspace=workspace)
    if text is None:
        id, text = None, id
    if not (text or "").strip():
        raise UsageError("there is nothing to send", where="send", hint='endstop send [ID] "…"')
    message = ev.UserMessage(message_id=uuid7(), content=text or "", source="user", delivery="steering")

    async def work() -> int:
        async with open_system(settings) as system:
            row = await here.find(system.store, settings, id)
            short = view.short(row.id)
            if row.phase not in LIVE:
                hint = f'endstop chat {short} talks about it; endstop resume {short} --note "…" goes on, unless it is done'
                raise UsageError(f"its goal has ended: it is {row.phase}", where=short, hint=hint)
            await _control(system, row, message, "send")
            if row.holder is None:
                said = f"nobody drives {short}: it will read this when it goes on, with endstop resume {short}"
                out.say([said])
            else:
                out.say([f"sent to {short}; process {row.holder.pid} hands it over"])
            return exits.OK

    return here.run(work())


def pause(id: str | None, workspace: Path | None) -> int:
    """Pause a goal."""
    return _stop(id, workspace, ev.GoalPaused(reason="user", by=here.person()), "pause")


def cancel(id: str | None, workspace: Path | None) -> int:
    """Cancel a goal; one that nobody drives is brought to its end here."""
    event = ev.GoalClosing(target="cancelled", reason="cancelled by a person", by=here.person(), detail={})
    return _stop(id, workspace, event, "cancel")


def _stop(id: str | None, workspace: Path | None, event: Event, verb: str) -> int:
    settings = here.settings(workspace=workspace)

    async def work() -> int:
        async with open_system(settings) as system:
            row = await here.find(system.store, settings, id)
            await _control(system, row, event, verb)
            if verb == "cancel" and row.holder is None:
                await _finish(system, row)
            said = f"process {row.holder.pid} is told" if row.holder else "nobody drove it"
            out.say([f"{'paused' if verb == 'pause' else 'cancelled'}: {view.short(row.id)} ({said})"])
            return exits.OK

    return here.run(work())


async def _control(system: System, row: SessionRow, event: Event, verb: str) -> None:
    if not await system.control(row.id, event):
        standing, id_ = view.standing(replay(await system.store.entries(row.id))), view.short(row.id)
        raise UsageError(f"too late to {verb} it: it is {standing}", where=id_, hint=f"endstop show {id_} says how it stands")


async def _finish(system: System, row: SessionRow) -> None:
    """Settle what is open and end it."""
    try:
        running = await system.take(row.id)
    except UsageError as error:
        hint = f"repair that, then: endstop resume {view.short(row.id)}"
        raise EndstopError(f"marked as cancelled, but not ended: {error.message}", where=error.where, hint=hint) from None
    try:
        await running.drive(stay=False)
        await report.keep_patch(running, system.settings.home)
    finally:
        await running.close()
