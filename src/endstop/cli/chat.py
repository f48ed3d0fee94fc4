"""chat: a conversation without a goal, on the same kernel as goals.

The model's words go to standard output, everything else to standard error. At a terminal what is typed while the agent works
reaches it at its next step; through a pipe each line waits for its turn.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from threading import Thread
from typing import Any

from endstop.assemble import System, open_system
from endstop.cli import exits, here, out, view
from endstop.cli.ask import Asker, open_asks
from endstop.core import events as ev
from endstop.core.codec import Entry
from endstop.core.goal import LIVE, State
from endstop.core.limits import show
from endstop.errors import UsageError
from endstop.running import Running
from endstop.runtime.session import uuid7
from endstop.settings import Settings

PROMPT = "> "
QUIET = (ev.AssistantUsage, ev.UserMessage, ev.SessionResume, ev.QuestionAsked, ev.PermissionRequested)
"""What the course of a goal shows and a conversation does not."""


def chat(id: str | None, flags: dict[str, Any]) -> int:
    """Talk until there is nothing more to read."""
    here.refuse_inside("hold a conversation")
    settings = here.settings(flags)
    fixed = flags.keys() - {"workspace", "effort"}
    if id is not None and fixed:
        raise UsageError(f"a session keeps its {', '.join(sorted(fixed))}", where=f"chat {id}", hint="leave that out")

    async def work() -> int:
        async with open_system(settings) as system:
            running = await (_begin(system, settings) if id is None else _take(system, id))
            talk = Talk(system, running, here.interactive())
            try:
                return await talk.hold(id is None)
            finally:
                await running.close()

    return here.run(work())


async def _begin(system: System, settings: Settings) -> Running:
    if not settings.model:
        hint = '-m PROVIDER:MODEL, ENDSTOP_MODEL, or model = "…" in endstop.toml'
        raise UsageError("no model is chosen", where="model", hint=hint)
    limits, policy = settings.limits, settings.policy
    return await system.converse(settings.workspace, settings.model, limits, policy, explicit=settings.explicit)


async def _take(system: System, id: str) -> Running:
    row = await system.store.find(id)
    if row.phase in LIVE:
        short = view.short(row.id)
        hint = f'endstop send {short} "…" speaks to it, endstop resume {short} goes on with it'
        raise UsageError(f"its goal has not ended: it is {row.phase}", where=short, hint=hint)
    return await system.take(row.id)


class Lines:
    """Messages from standard input, one a line; a line that ends in a backslash goes on in the next. None is the end.

    Read on a thread of its own: a file cannot be waited for otherwise.
    """

    def __init__(self) -> None:
        self._queue: asyncio.Queue[str | None] = asyncio.Queue()
        self._back: list[str] = []
        self._ended = False

    def begin(self) -> None:
        """Read from now on; where standard input is closed there is nothing."""
        if sys.stdin is None:
            self.end()
            return
        Thread(target=self._read, args=(asyncio.get_running_loop(),), daemon=True).start()

    def end(self) -> None:
        """Nothing more is wanted."""
        self._ended = True
        self._queue.put_nowait(None)

    def put_back(self, message: str) -> None:
        """It comes next, once more."""
        self._back.append(message)

    async def get(self) -> str | None:
        """The next message, or None."""
        if self._back:
            return self._back.pop(0)
        if self._ended and self._queue.empty():
            return None
        return await self._queue.get()

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        rest, message = b"", ""
        with suppress(RuntimeError, OSError):  # the loop is over, or the terminal is gone
            while data := os.read(sys.stdin.fileno(), 65536):
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    message += line.decode(errors="replace")
                    if message.endswith("\\"):
                        message = message[:-1] + "\n"
                        continue
                    loop.call_soon_threadsafe(self._queue.put_nowait, message)
                    message = ""
            if message or rest:
                loop.call_soon_threadsafe(self._queue.put_nowait, message + rest.decode(errors="replace"))
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(self.end)


class Page:
    """The conversation as it is shown; also where questions are put (``ask.Board``)."""

    def __init__(self, width: int) -> None:
        self._width, self._speaking = width, False

    def hear(self, words: str) -> None:
        """Words of the model as they arrive."""
        self._speaking = True
        out.write(out.text(words), sys.stdout)

    def take(self, entry: Entry, state: State) -> None:
        """Something happened."""
        event = entry.event
        if isinstance(event, ev.AssistantMessage):
            if not self._speaking and event.content.strip():
                out.write(out.text(event.content), sys.stdout)
                self._speaking = True
            self._end_words()
        elif not isinstance(event, QUIET):
            lines = view.progress(entry, state, self._width)
            if lines:
                self._end_words()
                out.say(lines, sys.stderr)

    def hold(self, lines: list[str]) -> None:
        """See ``ask.Board``."""
        self._end_words()
        out.say(lines, sys.stderr)

    def go_on(self) -> None:
        """See ``ask.Board``."""

    def _end_words(self) -> None:
        if self._speaking:
            out.write("\n", sys.stdout)
        self._speaking = False


class Talk:
    """One conversation, from the first line to the last. ``person``: somebody sits at the terminal."""

    def __init__(self, system: System, running: Running, person: bool) -> None:
        self._system, self._running, self._person = system, running, person
        self._page, self._lines = Page(out.columns()), Lines()
        self._asker = Asker(self._page, self._control, self._lines.end, here.person())
        self._driving: asyncio.Future[State] | None = None
        self._failed: ev.SessionError | None = None
        self._warned = self._interrupted = False

    async def hold(self, new: bool) -> int:
        """Read, answer, and read again. The exit code."""
        session, loop = self._running.session, asyncio.get_running_loop()
        session.emit.append(self._take)
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._leave)
        self._say_what_this_is(new)
        self._asker.begin(open_asks(await self._system.store.entries(session.session_id), session.state))
        holding = asyncio.create_task(session.hold())
        self._lines.begin()
        try:
            await self._read(new)
        finally:
            holding.cancel()
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                loop.remove_signal_handler(number)
        return self._leaving()

    async def _read(self, new: bool) -> None:
        first = new
        while True:
            if self._person:
                out.write(PROMPT, sys.stderr)
            text = await self._lines.get()
            if text is None:
                return
            self._warned = False
            if not text.strip():
                continue
            if first:
                title = self._system.redact.clean(out.line(text))
                await self._system.store.describe(self._running.session.session_id, objective=title)
                first = False
            self._hear(text)
            await self._drive()

    def _hear(self, text: str) -> None:
        """A line is the answer to what is asked, else a message."""
        if isinstance(self._asker.open, ev.PermissionRequested) and not self._person:
            raise UsageError("a permission is given at a terminal only", hint="endstop chat ID in one, or allow it by a rule")
        if self._asker.open is not None:
            self._asker.line(text)
            return
        self._failed = None
        delivery: Any = "steering" if self._driving is not None and not self._driving.done() else "idle"
        self._control(ev.UserMessage(message_id=uuid7(), content=text, source="user", delivery=delivery))

    async def _drive(self) -> None:
        """Until the round is over; at a terminal taking in what is typed meanwhile."""
        work = self._running.drive(stay=self._person, reachable=self._person, watch=self._page.hear, chat=True)
        self._driving = driving = asyncio.ensure_future(work)
        self._interrupted = False
        typed: asyncio.Task[str | None] | None = None
        while not driving.done():
            if self._person and typed is None:
                typed = asyncio.create_task(self._lines.get())
            await asyncio.wait([driving, typed] if typed else [driving], return_when=asyncio.FIRST_COMPLETED)
            if typed is not None and typed.done():
                text, typed = typed.result(), None
                if text is None:
                    self._leave()
                elif self._interrupted:
                    self._lines.put_back(text)  # this round ends without reading it
                elif text.strip():
                    self._hear(text)
                if text is None or self._interrupted:
                    break
        if typed is not None:
            typed.cancel()
        await driving
        if self._person:
            self._say_spend()

    def _take(self, entry: Entry) -> None:
        if isinstance(entry.event, ev.SessionError):
            self._failed = entry.event
        self._page.take(entry, self._running.session.state)
        self._asker.take(entry)

    def _control(self, event: ev.Event) -> None:
        self._running.control(event)

    # -- stopping

    def _interrupt(self) -> None:
        """Ctrl-C: ends the round; where none runs, the second one leaves. Through a pipe nobody goes on after it."""
        if self._driving is not None and not self._driving.done():
            self._interrupted = True
            self._control(ev.Abort(reason="interrupted", by=here.person()))
            out.say(["", "interrupted"], sys.stderr)
            if not self._person:
                self._lines.end()
        elif self._warned or not self._person:
            self._lines.end()
        else:
            self._warned = True
            out.write(f"\n(Ctrl-D, or Ctrl-C once more, leaves)\n{PROMPT}", sys.stderr)

    def _leave(self) -> None:
        if self._driving is not None and not self._driving.done():
            self._control(ev.Abort(reason="the terminal was closed", by=here.person()))
        self._lines.end()

    # -- words

    def _say_what_this_is(self, new: bool) -> None:
        about, state = self._running.description | {"reachable": self._person}, self._running.session.state
        lines = [f"endstop  {'chat' if new else 'goes on with'} {view.short(state.session_id)}"]
        lines += view.row("model", view.model_words(about["model"], about["scripted"], about["priced"]))
        if self._person:
            lines += [*view.rows("may", view.may(about)), "", "Ctrl-C interrupts, Ctrl-D leaves."]
        if self._person or about["scripted"]:
            out.say(lines, sys.stderr)

    def _say_spend(self) -> None:
        spend = self._running.session.state.spend
        cost = f" · {show('cost', spend.cost)}" if spend.priced else ""
        out.say([f"  [{show('turns', spend.turns)} · {show('tokens', spend.input + spend.output)}{cost}]"], sys.stderr)

    def _leaving(self) -> int:
        id_ = view.short(self._running.session.session_id)
        if self._asker.open is not None:
            out.say([f"it waits for an answer; go on with: endstop chat {id_}"], sys.stderr)
            return exits.LATER
        if self._person:
            out.say(["", f"go on with: endstop chat {id_}"], sys.stderr)
            return exits.OK
        if self._failed is None:
            return exits.OK
        return exits.CAPPED if self._failed.error_type == "limit" else exits.FAILED
