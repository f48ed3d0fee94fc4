"""What an effect does to the world, and the facts it leaves in the journal.

While an effect runs it is raced with what comes from outside and with the wall and active deadlines. Cancel and abort
interrupt it; pause interrupts everything but a tool, which may end. Whatever happens, the facts are recorded.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

import msgspec

from endstop.core import events as ev
from endstop.core.effects import (
    AnyAct,
    AskJudge,
    CallModel,
    Compact,
    HookRun,
    Look,
    Record,
    Run,
    RunGates,
    RunHooks,
    RunTools,
    StopProcesses,
    Wait,
)
from endstop.core.identity import digests
from endstop.errors import EndstopError, ToolError
from endstop.host.background import Background
from endstop.host.paths import inside, shown
from endstop.ports import GateRunner, HookRunner, Invocation, Judge, Model, Outcome, Tool, Watch, Workspace
from endstop.runtime.ask import Ask
from endstop.runtime.originals import refuse
from endstop.runtime.race import Race, time_is_up
from endstop.runtime.session import Session

POLL = 0.5
"""Seconds between looks at a file that is waited for."""
OTHERS = 8
"""Effects that only record after which others have their turn: one in each turn would cost as much as what it records."""
LOCAL = frozenset({"read", "read_outside"})


class Tools(Protocol):
    """Tools by name, and arguments as they know them."""

    def get(self, name: str) -> Tool:
        """The tool; raises UsageError for none."""
        ...

    def bare(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Arguments without what the catalogue added."""
        ...


class Perform:
    """Carries out effects for one session."""

    def __init__(
        self,
        model: Model,
        tools: Tools,
        workspace: Workspace,
        gates: GateRunner,
        judge: Judge | None,
        *,
        hooks: HookRunner | None = None,
        background: Background | None = None,
        others: Mapping[str, Model] | None = None,
        watch: Watch | None = None,
        attempts: int = 5,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.ask = Ask(model, others or {}, judge, watch=watch, attempts=attempts, jitter=jitter)
        self.tools, self.workspace, self.gates, self.hooks = tools, workspace, gates, hooks
        self.background = background
        self._records = 0

    # -- commit points, decided here and nowhere else (docs/durability.md)

    def outside(self, act: AnyAct) -> bool:
        """Whether the intent must be committed before the effect starts. Reads of the workspace and looks can be
        done again without anybody noticing; their events ride with the next commit. A gate can take long: what came before
        it is kept first."""
        if isinstance(act, RunTools):
            return any(run.effect != "read" for run in act.calls)
        return isinstance(act, (CallModel, AskJudge, Compact, RunGates, RunHooks, Wait)) or _phase_ends(act)

    def durable(self, act: AnyAct) -> bool:
        """Whether that commit must survive a power cut: before anything with an effect, and where a phase ends."""
        if isinstance(act, RunTools):
            return any(run.effect not in LOCAL for run in act.calls)
        return _phase_ends(act)

    async def prepare(self, session: Session, act: AnyAct) -> AnyAct:
        """Add to the starts of edits what they will change, as content hashes."""
        if not isinstance(act, RunTools) or not any(run.effect == "edit" and not run.again for run in act.calls):
            return act
        hashes: dict[str, dict[str, str]] = {}
        for run in act.calls:
            before = getattr(self.tools.get(run.name), "before", None) if run.effect == "edit" else None
            if before is not None:
                hashes[run.tool_call_id] = await before(self._invocation(session, run))
        events = tuple(
            msgspec.structs.replace(event, before=hashes[event.tool_call_id])
            if isinstance(event, ev.ToolStart) and event.tool_call_id in hashes
            else event
            for event in act.events
        )
        return msgspec.structs.replace(act, events=events)

    async def __call__(self, session: Session, act: AnyAct) -> None:
        """Carry out an effect whose intents are journalled; record what happened."""
        match act:
            case CallModel():
                await self.ask.turn(session, act)
            case RunTools():
                await self._run_tools(session, act)
            case RunGates() | RunHooks() | AskJudge() | Compact():
                await self._check(session, act)
            case StopProcesses():
                await self._stop_processes(session, act)
            case Look():
                await self._look(session, act)
            case Wait():
                await self._wait(session, act)
            case Record():
                self._records += 1
                if self._records % OTHERS == 0:
                    await asyncio.sleep(0)

    # -- tools

    async def _run_tools(self, session: Session, act: RunTools) -> None:
        """Each call on its own, so that one result never waits for another's; none is left without one."""
        begun = perf_counter()

        async def one(run: Run) -> None:
            outcome = await self._run(session, run)
            session.record(*self._completed(session, run, outcome, begun))

        async def work() -> None:
            if len(act.calls) == 1:
                await one(act.calls[0])
            else:
                await asyncio.gather(*(one(run) for run in act.calls))

        stopped = await Race(session, tool=True).run(work())
        if not stopped:
            return
        turn = session.state.turn
        for run in act.calls:
            call = turn.calls.get(run.tool_call_id) if turn else None
            if call is None or call.state == "done":
                continue
            words = {"timeout": "Stopped: the goal's time is over.", "cancelled": "Cancelled: the goal ends."}
            text = words.get(stopped, "Interrupted before it ended.")
            failure = Outcome(success=False, content=text, error=ev.Failure(code=stopped, message=text))
            session.record(*self._completed(session, run, failure, begun))

    async def _run(self, session: Session, run: Run) -> Outcome:
        tool = self.tools.get(run.name)
        invocation = self._invocation(session, run)
        recorded = self.tools.bare(run.name, run.arguments)
        refused = refuse(session.state.kit, session.originals, run, invocation.arguments, recorded)
        if refused is not None:
            return refused
        if run.again and run.effect == "edit":
            settled = await self._settle(tool, invocation, run.before or {})
            if settled is not None:
                return settled
        try:
            async with asyncio.timeout(tool.spec.timeout):
                return await tool.run(invocation)
        except TimeoutError:
            text = f"Stopped after {tool.spec.timeout} s."
            return Outcome(success=False, content=text, error=ev.Failure(code="timeout", message=text))
        except ToolError as error:
            text = f"{error.message} ({error.hint})" if error.hint else error.message
            return Outcome(success=False, content=text, error=ev.Failure(code=error.code, message=text))
        except Exception as error:  # noqa: BLE001  a tool is foreign code: whatever it raises is its result
            text = f"{type(error).__name__}: {error}"
            return Outcome(success=False, content=text, error=ev.Failure(code="failed", message=text))

    async def _settle(self, tool: Tool, invocation: Invocation, before: dict[str, str]) -> Outcome | None:
        """What a crash left of an edit: None to run it, else the result of one that was done or cannot be told."""
        settle: Callable[..., Awaitable[str]] | None = getattr(tool, "settle", None)
        found = await settle(invocation, before) if settle else "unknown"
        if found == "before":
            return None
        if found == "after":
            return Outcome(success=True, content="The edit was done before the runtime was interrupted; it was not done again.")
        text = "The runtime ended while this edit ran and the file is neither as before nor as after it. Inspect it first."
        return Outcome(success=False, content=text, error=ev.Failure(code="effect_unknown", message=text))

    def _invocation(self, session: Session, run: Run) -> Invocation:
        return Invocation(
            tool_call_id=run.tool_call_id,
            arguments=self.tools.bare(run.name, session.originals.get(run.tool_call_id, run.arguments)),
            key=run.key,
            workspace=self.workspace.root,
            plan=session.state.plan,
        )

    def _completed(self, session: Session, run: Run, outcome: Outcome, begun: float) -> list[ev.Event]:
        raw, norm = digests(outcome.content)
        full = session.keep(outcome.full) if outcome.full is not None else None
        complete = ev.ToolComplete(
            tool_call_id=run.tool_call_id,
            success=outcome.success,
            executed=outcome.executed,
            result=ev.Result(content=outcome.content, full=full),
            error=outcome.error,
            exit_code=outcome.exit_code,
            duration_ms=round((perf_counter() - begun) * 1000),
            hash=raw,
            norm_hash=norm,
        )
        return [*outcome.events, complete]

    # -- checks, which anything may interrupt: they are done again

    async def _check(self, session: Session, act: RunGates | RunHooks | AskJudge | Compact) -> None:
        match act:
            case RunGates():
                work = self._run_gates(session, act)
            case RunHooks():
                work = self._run_hooks(session, act)
            case AskJudge():
                work = self.ask.judge(session, act)
            case Compact():
                work = self.ask.summary(session, act)
        if isinstance(act, RunHooks) and all(run.hook.on == "session_end" for run in act.hooks):
            await work  # after the end no limit is left to stop at
        else:
            await Race(session).run(work)

    async def _run_gates(self, session: Session, act: RunGates) -> None:
        goal = session.state.goal
        assert goal is not None
        for gate in act.gates:
            try:
                finished = await self.gates.run(gate, goal.contract, self.workspace)
            except EndstopError as error:
                finished = ev.GateFinished(
                    gate_id=gate.gate_id, outcome="broken", output=str(error), duration_ms=0, fingerprint="", stale=False
                )
            session.record(finished)

    async def _run_hooks(self, session: Session, act: RunHooks) -> None:
        runner = self.hooks
        assert runner is not None

        async def one(run: HookRun) -> None:
            session.record(await runner.run(self._told(session, run), self.workspace.root))

        await asyncio.gather(*(one(run) for run in act.hooks))

    def _told(self, session: Session, run: HookRun) -> HookRun:
        """A hook is told what really runs, to judge it; what it was told is not recorded."""
        given = session.originals.get(run.data.get("tool_use_id", ""))
        if given is None:
            return run
        told = run.data | {"tool_input": self.tools.bare(run.data["tool_name"], given)}
        return msgspec.structs.replace(run, data=told)

    async def _look(self, session: Session, act: Look) -> None:
        state = session.state
        assert state.goal is not None
        seen, contract = state.evidence, state.goal.contract
        found: list[ev.WorkspaceObserved] = []

        async def work() -> None:
            try:
                found.append(await self.workspace.look(act.purpose, seen.world, contract, seen.baseline))
            except (EndstopError, OSError) as error:
                hint = f"is {self.workspace.root} still there and readable?"
                session.record(ev.SessionError(error_type="workspace", message=str(error), hint=hint))
                found.append(_unseen(act.purpose, seen.world, contract, str(error)))

        stopped = await Race(session).run(work())
        if found or stopped != "interrupted":
            session.record(found[0] if found else _unseen(act.purpose, seen.world, contract, f"not looked at: {stopped}"))

    async def _stop_processes(self, session: Session, act: StopProcesses) -> None:
        """Each of them leaves its end in the journal, also one that cannot be stopped."""
        for name in act.ids:
            try:
                ended = await self.background.kill(name) if self.background is not None else None
            except ToolError as error:
                ended = ev.ProcessExited(process_id=name, output=f"it could not be stopped: {error.message}")
            if name in session.state.processes:
                session.record(ended or ev.ProcessExited(process_id=name, output=""))

    # -- waiting

    async def _wait(self, session: Session, act: Wait) -> None:
        """Until the time, the file, or something from outside."""

        async def work() -> None:
            while act.until is None or session.clock() < act.until:
                if act.condition is not None and (found := _met(self.workspace.root, act.condition)):
                    if session.state.phase == "waiting":
                        session.record(ev.GoalResumed(from_="waiting", cause=found))
                    return
                left = 3600.0 if act.until is None else act.until - session.clock()
                await asyncio.sleep(min(left, POLL) if act.condition is not None else max(left, 0.0))

        task = asyncio.ensure_future(work())
        woken = asyncio.ensure_future(session.woken.wait())
        left = max(0.0, time_is_up(session.state, session.clock()) - session.clock())
        await asyncio.wait({task, woken}, timeout=min(left, 3600.0), return_when=asyncio.FIRST_COMPLETED)
        session.woken.clear()
        for waiting in (task, woken):
            waiting.cancel()
        await asyncio.gather(task, woken, return_exceptions=True)


def _met(root: Path, path: str) -> str:
    """Why a file is waited for no longer; empty while it is not there. Of what lies outside nothing is told."""
    name = inside(root, path)
    if name is None:
        return f"{shown(path)} lies outside of the workspace, so it was not waited for; name a file in the workspace"
    return f"{shown(path)} is there" if os.path.exists(root / name) else ""


def _unseen(purpose: ev.LookPurpose, world: int, contract: ev.Contract, why: str) -> ev.WorkspaceObserved:
    """A workspace that cannot be looked at: nothing of it counts as there."""
    return ev.WorkspaceObserved(
        purpose=purpose,
        world=world,
        fingerprint=f"unreadable: {why}",
        paths=[],
        diff="",
        protected=[],
        deliverables=dict.fromkeys(contract.deliverables, "absent"),
    )


def _phase_ends(act: AnyAct) -> bool:
    return any(isinstance(event, (ev.GoalEnded, ev.GoalParked, ev.GoalPaused, ev.GoalStarted)) for event in act.events)
