"""What a running goal tells and asks its caller."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from inspect import isawaitable, iscoroutinefunction
from typing import Any, Final, NamedTuple

import msgspec

from endstop.core import events as ev
from endstop.core.calls import APPROVED
from endstop.core.codec import Entry
from endstop.core.goal import ENDED, State, allowed
from endstop.errors import EndstopError, UsageError
from endstop.running import Running

DENIED: Final = "denied-interactively-by-user"
Callback = Callable[[Any], Any]
Asked = ev.QuestionAsked | ev.PermissionRequested


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What a goal asks a human. ``freeform``: any words may answer, not only one of the ``options``."""

    id: str
    text: str
    options: list[str]
    freeform: bool


class PermissionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A call that a goal asks permission for. ``risk`` is the tool's effect class or "irreversible"."""

    id: str
    tool: str
    arguments: dict[str, Any]
    risk: str
    why: str


OnQuestion = Callable[[Question], str | Awaitable[str | None] | None]
OnPermission = Callable[[PermissionRequest], bool | str | Awaitable[bool | str | None] | None]
OnEvent = Callable[[Entry], object]


class Told(NamedTuple):
    """Whom a goal talks to while it runs, and whether it stays when nobody answers."""

    on_question: OnQuestion | None = None
    on_permission: OnPermission | None = None
    on_event: OnEvent | None = None
    wait: bool = False


class Humans:
    """Carries what is asked to the callbacks, each in a task of its own, and their answers into the journal."""

    def __init__(self, running: Running, told: Told) -> None:
        self._error: Exception | None = None  # what a callback raised: the goal is paused, and the caller gets it
        self._running, self._told = running, told
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._loop = asyncio.get_running_loop()

    def begin(self, entries: Sequence[Entry], after: int) -> None:
        """Tell what was recorded beyond ``after`` before we listened, and listen."""
        for entry in entries:
            if entry.seq > after:
                self._tell(entry)
        self._running.session.emit.append(self._take)

    def ask_again(self, entries: Sequence[Entry]) -> None:
        """Ask what was asked before and is still open."""
        state = self._running.session.state
        open_ = {id for id, question in state.questions.items() if question.answer is None and not question.expired}
        open_ |= {id for id, grant in state.grants.items() if not grant.kind}
        for entry in entries if state.phase not in ENDED else ():
            asked = entry.event
            if isinstance(asked, Asked) and _id(asked) in open_ - self._asking.keys():
                self._ask(asked)

    async def drive(self, *, chat: bool = False) -> State:
        """Turn the wheel to where it stops. Cancelled, it pauses what runs and waits until it has; a second cancel stops it.

        Raises:
            EndstopError: the store broke, is full, or another process took the session over.
        """
        driving = asyncio.ensure_future(self._running.drive(stay=self._stay, reachable=self.reachable, chat=chat))
        try:
            state = await asyncio.shield(driving)
        except asyncio.CancelledError:
            self._pause("the caller")
            with suppress(EndstopError):
                await driving
            raise
        if self._error is not None:
            raise self._error
        return state

    async def stop(self) -> None:
        """Ask and tell nobody any more."""
        if self._take in self._running.session.emit:
            self._running.session.emit.remove(self._take)
        tasks = list(self._asking.values())
        self._drop(*self._asking)
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def reachable(self) -> bool:
        """Somebody could answer."""
        return self._told.on_question is not None or self._told.on_permission is not None

    def _stay(self) -> bool:
        """Whether to stay through a wait: somebody may answer yet."""
        return self._told.wait or bool(self._asking)

    def _pause(self, why: str) -> None:
        """Stop where it is, if it still runs: nothing is lost."""
        state = self._running.session.state
        stop = ev.Abort(reason="stopped", by=why) if state.interactive else ev.GoalPaused(reason="shutdown", by=why)
        if allowed(state, stop) is not None:
            self._running.control(stop)

    def _take(self, entry: Entry) -> None:
        self._tell(entry)
        match entry.event:
            case ev.QuestionAsked() | ev.PermissionRequested() as asked:
                self._ask(asked)
            case ev.QuestionAnswered(question_id=id) | ev.QuestionExpired(question_id=id):
                self._drop(id)
            case ev.PermissionCompleted(request_id=id) | ev.GrantExpired(request_id=id):
                self._drop(id)
            case ev.GoalEnded() | ev.GoalPaused() | ev.GoalClosing():
                self._drop(*self._asking)

    def _tell(self, entry: Entry) -> None:
        if self._told.on_event is None or self._error is not None:
            return
        try:
            self._told.on_event(entry)
        except Exception as error:  # noqa: BLE001  a foreign callable may raise anything; the caller gets it
            self._fail(error)

    def _ask(self, asked: Asked) -> None:
        callback: Callback | None
        callback = self._told.on_question if isinstance(asked, ev.QuestionAsked) else self._told.on_permission
        if callback is not None and self._error is None:
            self._asking[_id(asked)] = self._loop.create_task(self._answer(asked, callback))

    def _drop(self, *ids: str) -> None:
        for id in ids:
            task = self._asking.pop(id, None)
            if task is not None:
                task.cancel()

    async def _answer(self, asked: Asked, callback: Callback) -> None:
        events: list[ev.Event] = []
        try:
            said = await _called(callback, _shown(asked))
            if said is not None:
                events.append(_answered(asked, said) if isinstance(asked, ev.QuestionAsked) else _decided(asked, said))
        except Exception as error:  # noqa: BLE001  a foreign callable may raise anything; the caller gets it
            self._fail(error)
        self._asking.pop(_id(asked), None)  # before the answer is recorded, which would cancel this task
        self._running.control(*events)  # without any, the wheel looks again whether to stay

    def _fail(self, error: Exception) -> None:
        self._error = self._error or error
        self._loop.call_soon(self._pause, "a callback that failed")  # not from here: something is being recorded


def _id(asked: Asked) -> str:
    return asked.question_id if isinstance(asked, ev.QuestionAsked) else asked.request_id


def _shown(asked: Asked) -> Question | PermissionRequest:
    if isinstance(asked, ev.QuestionAsked):
        return Question(
            id=asked.question_id, text=asked.question, options=asked.options, freeform=asked.allow_freeform or not asked.options
        )
    request = asked.permission_request
    return PermissionRequest(
        id=asked.request_id, tool=request["toolName"], arguments=request["arguments"], risk=asked.risk, why=asked.why
    )


async def _called(callback: Callback, asked: object) -> Any:
    """What a callback says. A sync one may sit there for long, so it has a thread; its errors come back as values, for a
    StopIteration cannot be raised into a future."""
    if iscoroutinefunction(callback):
        return await callback(asked)

    def on_thread() -> tuple[Any, Exception | None]:
        try:
            return callback(asked), None
        except Exception as error:  # noqa: BLE001  a foreign callable may raise anything; raised again below
            return None, error

    said, error = await asyncio.to_thread(on_thread)
    if error is not None:
        raise error
    return await said if isawaitable(said) else said


def _answered(asked: ev.QuestionAsked, said: Any) -> ev.QuestionAnswered:
    if not isinstance(said, str) or not said.strip():
        hint = "return text, or None to leave the question open"
        raise UsageError(f"{said!r} is no answer", where="on_question", hint=hint)
    option = asked.options.index(said) if said in asked.options else None
    if option is None and asked.options and not asked.allow_freeform:
        raise UsageError(f"{said!r} is none of the options", where="on_question", hint=f"return one of {asked.options}")
    return ev.QuestionAnswered(question_id=asked.question_id, answer=said, option=option, by="on_question")


def _decided(asked: ev.PermissionRequested, said: Any) -> ev.PermissionCompleted:
    if not isinstance(said, bool | str):
        hint = "return True, False, the reason why not, or None to leave it open"
        raise UsageError(f"{said!r} is no decision", where="on_permission", hint=hint)
    return ev.PermissionCompleted(
        request_id=asked.request_id,
        result=ev.Decision(kind=APPROVED if said is True else DENIED),
        scope="once",
        by="on_permission",
        feedback=said if isinstance(said, str) and said else None,
    )
