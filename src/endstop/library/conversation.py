"""A conversation in rounds, without a goal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from endstop.assemble import System
from endstop.core import events as ev
from endstop.core.codec import Entry
from endstop.core.goal import State
from endstop.errors import UsageError
from endstop.library.callbacks import Humans, OnEvent, OnPermission, OnQuestion, Told
from endstop.library.goals import asked_for, model_name, opened, settings_of
from endstop.library.limits import AnyLimits
from endstop.ports import Model, Tool
from endstop.running import Running
from endstop.settings import Mode


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What one message came to.

    Attributes:
        text: the agent's last words.
        error: why it did not come to an end of its own (a full limit, a model that fails); "" if it did.
        waits: what it waits for, where a question was left open; the next message answers it.
        events: the journal of this round, as entries.
    """

    text: str
    error: str
    waits: str
    events: list[Entry]

    def __str__(self) -> str:
        return self.text


class Session:
    """A conversation with an agent in a workspace: ``async with endstop.Session(model="…") as s: reply = await s.send("…")``.

    Nothing is claimed, checked or verified: for that there is ``endstop.run``. Limits and stall rules hold over the whole
    conversation; a full one is the ``error`` of a reply. Cancelling a ``send`` interrupts the round.

    Args:
        session_id: of a conversation to go on with; its model, workspace, limits and permissions stay.

    All others are as for ``run``.

    Raises:
        UsageError: when it is entered: something cannot be used as given.
    """

    def __init__(
        self,
        session_id: str | None = None,
        *,
        workspace: str | Path | None = None,
        model: str | Model | None = None,
        limits: AnyLimits = None,
        tools: Iterable[Callable[..., Any] | Tool] = (),
        mode: Mode | None = None,
        allow: str | Sequence[str] = (),
        deny: str | Sequence[str] = (),
        network: bool | None = None,
        on_question: OnQuestion | None = None,
        on_permission: OnPermission | None = None,
        on_event: OnEvent | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        asked = asked_for(workspace=workspace, model=model, limits=limits, mode=mode, allow=allow, deny=deny, network=network)
        self._settings = settings_of(asked, settings)
        self._model, self._tools, self._taken = model, tools, session_id
        self._told = Told(on_question, on_permission, on_event)
        self._exit = AsyncExitStack()
        self._turn = asyncio.Lock()
        self._running: Running | None = None

    @property
    def session_id(self) -> str:
        """Names its journal."""
        return self._held.session.session_id

    @property
    def spend(self) -> dict[str, float]:
        """What was used so far, by axis."""
        session = self._held.session
        return session.state.spend.as_dict(session.clock())

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            system = await stack.enter_async_context(opened(self._settings, self._tools, [self._model]))
            self._running = await self._begin(system)
            stack.push_async_callback(self._running.close)
            session = self._running.session
            if self._told.on_event is not None and self._taken is None:
                for entry in await system.store.entries(session.session_id):
                    self._told.on_event(entry)
            self._exit = stack.pop_all()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._running = None
        await self._exit.aclose()

    async def send(self, text: str) -> Reply:
        """Say something and wait until the agent has nothing more to do. Messages that come meanwhile wait their turn.

        Raises:
            UsageError: the text is empty, or the session is not entered.
            EndstopError: the store broke, is full, or another process took the session over.
        """
        if not isinstance(text, str) or not text.strip():
            raise UsageError("the message is empty", where="send", hint="write what should be done or answered")
        async with self._turn:
            running, humans = self._held, Humans(self._held, self._told)
            entries: list[Entry] = []
            running.session.emit.append(entries.append)
            try:
                humans.begin((), 0)
                number = running.session.state.seq + 1
                running.control(ev.UserMessage(message_id=f"m{number}", content=text, source="user", delivery="idle"))
                state = await humans.drive(chat=True)
            finally:
                await humans.stop()
                running.session.emit.remove(entries.append)
            return _reply(state, entries)

    async def _begin(self, system: System) -> Running:
        settings = self._settings
        if self._taken is None:
            name = model_name(settings, self._model)
            return await system.converse(settings.workspace, name, settings.limits, settings.policy)
        row = await system.store.find(self._taken)
        if row.kind != "chat":
            raise UsageError("this is no conversation", where=row.id, hint="a goal goes on with endstop.resume")
        return await system.take(row.id)

    @property
    def _held(self) -> Running:
        if self._running is None:
            raise UsageError("the session is not open", where="endstop.Session", hint="async with endstop.Session(…) as s:")
        return self._running


def _reply(state: State, entries: list[Entry]) -> Reply:
    said = [entry.event.content for entry in entries if isinstance(entry.event, ev.AssistantMessage)]
    errors = [entry.event for entry in entries if isinstance(entry.event, ev.SessionError)]
    open_ = [question.text for question in state.questions.values() if question.answer is None and not question.expired]
    open_ += ["a permission"] * any(not grant.kind for grant in state.grants.values())
    return Reply(
        text=next((text for text in reversed(said) if text.strip()), ""),
        error=errors[-1].message if errors and not state.round_open else "",
        waits="; ".join(open_),
        events=entries,
    )
