"""Fakes for tests of your own tools and goals: no network, no key, no waiting.

    def test_stock_is_asked_for() -> None:
        result = run_scripted([says("", call("stock", article="A-1")), claims("12 pieces")], tools=[stock])
        assert calls(result, "stock")[0].text == "12"

Only the model and the clock are fake: tools, gates, limits, rules and journal are the real ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import msgspec

from endstop.core import chain, codec
from endstop.core import events as ev
from endstop.core.apply import replay
from endstop.core.codec import Entry
from endstop.core.events import Event
from endstop.core.goal import State
from endstop.core.limits import DEFAULTS
from endstop.core.messages import Arguments, Price
from endstop.errors import ModelFault, UsageError
from endstop.library.callbacks import OnEvent, OnPermission, OnQuestion, Told
from endstop.library.goals import Gate, asked_for, follow, opened, order, settings_of
from endstop.library.limits import AnyLimits
from endstop.library.result import Result
from endstop.library.variants import refuse_loop
from endstop.models import scripted
from endstop.models.scripted import Call, Fault, Script, Spent, Turn
from endstop.ports import Tool
from endstop.running import Running
from endstop.settings import Confront, Mode

START = 1_800_000_000.0
"""Epoch seconds at which a fake clock starts."""


class FakeClock:
    """A clock that stands still until it is told to go on. Called, it gives epoch seconds."""

    def __init__(self, now: float = START) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass.

        Raises:
            UsageError: it would run backwards.
        """
        if seconds < 0:
            raise UsageError("time does not run backwards", where=f"advance({seconds})", hint="give seconds from 0")
        self.now += seconds


# ------------------------------------------------------------------------------------------------------------------ script


def call(name: str, /, **arguments: Any) -> Call:
    """A tool call, to stand in ``says``."""
    return Call(name=name, arguments=arguments)


def says(
    text: str = "", *calls: Call, usage: tuple[int, int] = (100, 20), delay: float = 0, repeat: int = 1, forever: bool = False
) -> Turn:
    """One answer of the model.

    Args:
        text: its words.
        calls: the tools it calls.
        usage: tokens it reports, input and output.
        delay: seconds, real ones, before it answers.
        repeat: how often it is given.
        forever: it is given whenever the model is asked from then on.
    """
    return Turn(text=text, call=calls, usage=Spent(*usage), delay=delay, repeat=repeat, forever=forever)


def claims(summary: str, *, repeat: int = 2) -> Turn:
    """The model says that the goal is reached; twice, since the first claim is answered with evidence."""
    return says("", call("task_complete", summary=summary), repeat=repeat)


def fails(kind: ModelFault, message: str = "scripted failure", *, retry_after: float | None = None, repeat: int = 1) -> Turn:
    """The provider fails in place of an answer; ``retry_after`` in seconds."""
    return Turn(error=Fault(kind, message, retry_after), repeat=repeat)


def agrees() -> Turn:
    """A judge who is always convinced, by the last thing he was shown."""
    return Turn(text='{"achieved": true, "impossible": null, "missing": [], "because": [$seq]}', forever=True)


def disagrees(*missing: str) -> Turn:
    """A judge who says, once, what is missing."""
    said = msgspec.json.encode({"achieved": False, "impossible": None, "missing": missing}).decode()
    return Turn(text=said.removesuffix("}") + ',"because":[$seq]}')


class ScriptedModel(scripted.ScriptedModel):
    """A model that plays lists: ``ScriptedModel([says("…", call("tool", x=1)), claims("done")])``.

    Args:
        turns: its answers, in order. One that is asked for more fails.
        judge: answers of the judge, where it is one.
        close: what it writes into the handoff of a goal that was stopped.
        price: USD per token; without one it costs nothing.
        window: tokens it takes in; None for no bound.
    """

    def __init__(
        self,
        turns: Iterable[Turn],
        *,
        judge: Iterable[Turn] = (),
        close: Iterable[Turn] = (),
        price: Price | None = None,
        window: int | None = None,
    ) -> None:
        last_words = tuple(close) or (says("The script ended here.", forever=True),)
        super().__init__(Script(turn=tuple(turns), judge=tuple(judge), close=last_words), price=price, window=window)


# --------------------------------------------------------------------------------------------------------------------- run


def run_scripted(
    turns: Iterable[Turn],
    *,
    objective: str = "what the script does",
    workspace: str | Path | None = None,
    files: Mapping[str, str] | None = None,
    clock: FakeClock | None = None,
    judge: Iterable[Turn] = (),
    gates: str | Sequence[str | Gate] = (),
    deliverables: str | Sequence[str] = (),
    limits: AnyLimits = None,
    tools: Iterable[Callable[..., Any] | Tool] = (),
    mode: Mode | None = None,
    allow: str | Sequence[str] = (),
    deny: str | Sequence[str] = (),
    confront: Confront | None = None,
    protect: str | Sequence[str] = (),
    on_question: OnQuestion | None = None,
    on_permission: OnPermission | None = None,
    on_event: OnEvent | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Result:
    """Pursue a goal with a scripted model, a fake clock and a store that is gone afterwards; see ``endstop.run``.

    No settings of the user or the environment hold. While the goal waits for a time or a model, time passes at once.

    Args:
        turns: the model's answers, in order.
        objective: what the goal is called.
        workspace: a folder to work in; without one, a folder that is gone afterwards.
        files: files to put there first, by path.
        clock: the clock, to read it or to move it from a tool.
        judge: answers of a judge; without any, nobody judges.
        gates: as for ``endstop.run``; so are all arguments from here on.

    Raises:
        UsageError: something cannot be used as given.
    """
    refuse_loop("run_scripted", "write await endstop.run(…, model=ScriptedModel(…))")
    with TemporaryDirectory(prefix="endstop-test-", ignore_cleanup_errors=True) as folder:
        root = Path(folder) / "workspace" if workspace is None else Path(workspace)
        root.mkdir(parents=True, exist_ok=True)
        for name, text in (files or {}).items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        judges = tuple(judge)
        asked = asked_for(
            workspace=root, gates=gates, deliverables=deliverables, judge="auto" if judges else "none", limits=limits, mode=mode,
            allow=allow, deny=deny, confront=confront, protect=protect,
        )  # fmt: skip
        found = settings_of(asked, {"retry": 0, "home": Path(folder) / "home", **(settings or {})}, {"HOME": folder})
        model, told = ScriptedModel(turns, judge=judges), Told(on_question, on_permission, on_event)
        time = clock or FakeClock()

        async def work() -> Result:
            async with opened(found, tools, [model], time) as system:
                running = await system.queue(order(found, objective, model))
                _pass_time(running, time)
                return await follow(system, running, told)

        return asyncio.run(work())


def _pass_time(running: Running, clock: FakeClock) -> None:
    """Whenever the goal waits for something that only time brings, move the clock there."""
    loop = asyncio.get_running_loop()

    def pass_to(until: float) -> None:
        clock.now = max(clock.now, until)
        running.control()  # it wakes the goal

    def watch(entry: Entry) -> None:
        parked = entry.event
        if not isinstance(parked, ev.GoalParked) or parked.until is None or parked.on in ("question", "grant"):
            return
        if parked.on == "condition" and (running.perform.workspace.root / parked.said.removeprefix("file ")).exists():
            return
        loop.call_soon(pass_to, parked.until)

    running.session.emit.append(watch)


class Called(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call of a goal and what came of it. ``code`` says why it failed, "" if it did not."""

    name: str
    arguments: Arguments
    success: bool
    text: str
    code: str


def calls(result: Result, name: str | None = None) -> list[Called]:
    """The tool calls of a goal that have a result, in the order the model asked; those of one tool if it is named."""
    events = [entry.event for entry in result.events]
    done = {event.tool_call_id: event for event in events if isinstance(event, ev.ToolComplete)}
    asked = [request for event in events if isinstance(event, ev.AssistantMessage) for request in event.tool_requests]
    return [
        Called(
            name=request.name,
            arguments=request.arguments,
            success=ended.success,
            text=ended.result.content,
            code=ended.error.code if ended.error else "",
        )
        for request in asked
        if name in (None, request.name) and (ended := done.get(request.tool_call_id)) is not None
    ]


# ----------------------------------------------------------------------------------------------------------------- journal


class JournalBuilder:
    """A journal made of events, stamped and chained as the store does it, for tests of what reads journals.

    It begins with a session and its queued goal; each event is a second later than the one before.
    """

    def __init__(
        self,
        objective: str = "a test",
        *,
        session_id: str = "test",
        contract: ev.Contract | None = None,
        limits: Mapping[str, float] | None = None,
        clock: FakeClock | None = None,
    ) -> None:
        self.session_id = session_id
        self.clock = clock or FakeClock()
        self.entries: list[Entry] = []
        self.lines: list[bytes] = []
        self._hash = chain.genesis(session_id)
        self.add(
            ev.SessionStart(
                session_id=session_id,
                version=1,
                producer="endstop.testing",
                start_time=codec.stamp(self.clock()),
                kind="goal",
                context=ev.Context(cwd="/"),
            ),
            ev.GoalQueued(
                goal_id=session_id,
                objective=objective,
                contract=contract or ev.Contract(),
                limits=dict(DEFAULTS if limits is None else limits),
                policy=ev.Policy(),
                model="scripted:inline",
                fallbacks=[],
                workspace="/",
                priority=0,
            ),
        )

    def add(self, *events: Event) -> Self:
        """Append events."""
        for event in events:
            self.clock.advance(1)
            seq = len(self.lines) + 1
            line = codec.frame(
                codec.encode_data(event),
                codec.type_of(event),
                id=f"{self.session_id}-{seq}",
                seq=seq,
                prev=self._hash,
                timestamp=codec.stamp(self.clock()),
                parent=f"{self.session_id}-{seq - 1}" if seq > 1 else None,
            )
            self._hash = chain.link(line)
            self.lines.append(line)
            self.entries.append(codec.decode(line))
        return self

    @property
    def state(self) -> State:
        """What it comes to.

        Raises:
            TransitionError: an event is not allowed where it stands.
        """
        return replay(self.entries)

    def write(self, path: str | Path) -> Path:
        """Write its lines as JSON lines, as ``endstop export`` does."""
        Path(path).write_bytes(b"".join(line + b"\n" for line in self.lines))
        return Path(path)
