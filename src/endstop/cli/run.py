"""run and resume: follow a goal to where it stops."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from endstop.assemble import Order, System, open_system
from endstop.cli import exits, here, out, report, view
from endstop.cli import worktree as trees
from endstop.cli.ask import Asker, open_asks
from endstop.cli.handover import Handover, start
from endstop.cli.live import watching
from endstop.cli.screen import JsonLines, Screen
from endstop.core import events as ev
from endstop.core import limits
from endstop.core.apply import replay
from endstop.core.codec import Entry
from endstop.core.events import Event
from endstop.core.goal import ENDED, State, allowed, waiting_humans
from endstop.errors import EndstopError, UsageError
from endstop.host import git
from endstop.running import Running
from endstop.settings import Settings
from endstop.store.sessions import SessionRow

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
USED_UP = frozenset(
    {"cost", "tokens", "input-tokens", "output-tokens", "turns", "rounds", "tool-calls", "verifications", "wall", "active"}
)
"""Axes that stay full once they are."""


class Following(msgspec.Struct, kw_only=True):
    """How a goal is followed. ``after`` is the journal position from which ``json`` prints; ``resident`` is called once a
    process of the goal's own holds it: then a human counts as reachable."""

    wait: bool
    json: bool
    quiet: bool
    reports: list[Path]
    after: int = 0
    accept_claimed: bool = False
    resident: Callable[[], None] | None = None


def wanted(objective: str, flags: dict[str, Any]) -> tuple[Settings, str, Path | None]:
    """The settings, the objective in words, and the goal file where the objective names one.

    Raises:
        UsageError: something cannot be used, or there is no objective.
    """
    named = objective.endswith(".toml") and (len(objective.split()) == 1 or os.path.exists(objective))
    goal_file = Path(objective) if named else None
    settings = here.settings(flags, goal_file)
    text = settings.objective if goal_file else objective
    if not text or not text.strip():
        where = str(goal_file) if goal_file else "objective"
        raise UsageError("there is no objective", where=where, hint='say what should be reached, like "make the tests pass"')
    return settings, text.strip(), goal_file


def run(
    objective: str,
    flags: dict[str, Any],
    *,
    worktree: bool,
    detach: bool,
    wait: bool,
    json: bool,
    reports: list[Path],
    quiet: bool,
) -> int:
    """Pursue a new goal."""
    settings, text, goal_file = wanted(objective, flags)
    report.check(reports)
    if detach:
        here.refuse_inside("leave a goal running")
    if detach and json:
        raise UsageError("a detached goal prints nothing", where="--json", hint="endstop logs -f, or endstop export")
    follow = Following(wait=wait, json=json, quiet=quiet, reports=reports, accept_claimed=settings.policy.accept_claimed)

    async def work() -> int:
        async with open_system(settings) as system:
            asked = order(settings, text)
            tree = await _worktree(system, asked) if worktree else None
            try:
                running = await system.queue(asked)
            except EndstopError:
                if tree is not None:
                    trees.drop(tree)
                raise
            if detach:
                await running.close()
                code = _hand_over(settings, running.session.session_id, flags, goal_file, reports)
            else:
                code = await _follow(system, running, follow)
            if tree is not None:
                out.say(trees.words(tree), sys.stderr if json else sys.stdout)
            return code

    return here.run(work())


async def _worktree(system: System, asked: Order) -> trees.Worktree:
    """A worktree for an order that could be pursued where it was asked for."""
    system.check(asked)
    tree = trees.make(await git.describe(asked.workspace), asked.workspace, asked.objective)
    asked.workspace = tree.workspace
    return tree


def _hand_over(settings: Settings, id: str, flags: dict[str, Any], goal_file: Path | None, reports: list[Path]) -> int:
    """Leave the goal to a process of its own."""
    files = [str(path.absolute()) for path in reports]
    pid, log = start(settings.home, Handover(id, flags, str(goal_file) if goal_file else None, files))
    short = view.short(id)
    out.say([short])
    said = f"endstop attach {short} watches it, endstop pause {short} stops it"
    out.say([f"process {pid} drives it, and writes to {log}", said], sys.stderr)
    return exits.OK


def order(settings: Settings, objective: str) -> Order:
    """What the settings ask for.

    Raises:
        UsageError: no model is chosen.
    """
    if not settings.model:
        hint = '-m PROVIDER:MODEL, ENDSTOP_MODEL, or model = "…" in endstop.toml; endstop demo needs none'
        raise UsageError("no model is chosen", where="model", hint=hint)
    return Order(
        objective=objective,
        workspace=settings.workspace,
        model=settings.model,
        fallbacks=list(settings.fallbacks),
        contract=settings.contract,
        limits=settings.limits,
        explicit=set(settings.explicit),
        policy=settings.policy,
    )


def drive_again(id: str, flags: dict[str, Any], goal_file: Path | None, follow: Following) -> int:
    """Drive a goal from where it is, with the settings it was begun with."""
    settings = here.settings(flags, goal_file)
    follow.accept_claimed = settings.policy.accept_claimed

    async def work() -> int:
        async with open_system(settings) as system:
            return await _follow(system, await system.take(id), follow)

    return here.run(work())


def resume(
    id: str | None,
    workspace: Path | None,
    *,
    limits: dict[str, str],
    allow: list[str],
    note: str | None,
    accept_inputs: bool,
    wait: bool,
    json: bool,
    reports: list[Path],
    quiet: bool,
) -> int:
    """Go on with a goal that stopped."""
    here.refuse_inside("resume a goal")
    report.check(reports)
    settings = here.settings({"limits": limits} if limits else None, workspace=workspace)
    raised = {axis: settings.limits.get(axis) for axis in limits}
    follow = Following(wait=wait, json=json, quiet=quiet, reports=reports)

    async def work() -> int:
        async with open_system(settings) as system:
            row = await here.find(system.store, settings, id)
            follow.after = row.head
            events = resumption(replay(await system.store.entries(row.id)), raised, note, allow)
            if row.holder is not None:
                return await _tell(system, row, events)
            running = await system.take(row.id, allow=allow)
            if accept_inputs:
                await _accept_inputs(running)
            return await _follow(system, running, follow, events)

    return here.run(work())


def resumption(state: State, raised: dict[str, float | None], note: str | None, allow: Sequence[str] = ()) -> list[Event]:
    """The events by which a person lets a goal go on from where it is.

    Args:
        raised: new caps; None stands for "none".
        allow: further permission rules.

    Raises:
        UsageError: it is done, waits for an answer, or a full limit was not raised.
    """
    goal, id_ = state.goal, view.short(state.session_id)
    if goal is None:
        raise UsageError("this session has no goal", where=id_, hint="endstop ps shows the goals")
    if state.phase == "done":
        raise UsageError(f"it is {view.standing(state)}", where=id_, hint="more work is a new goal: endstop run")
    caps = _raised(state, raised)
    changed = bool(caps or note or allow)
    if waiting_humans(state) and changed:
        raise UsageError("it waits for an answer", where=id_, hint=f'answer first: endstop answer {id_} "…"')
    asks = goal.parked is not None and goal.parked.on in ("question", "grant")
    if not changed and (state.phase in view.DRIVEN or (state.phase == "waiting" and asks)):
        return []  # it goes on by itself once somebody drives it
    events: list[Event] = []
    if state.phase in view.DRIVEN:
        events.append(ev.GoalPaused(reason="user", by=here.person()))
    left: ev.Phase = "paused" if events else state.phase
    resumed = ev.GoalResumed(
        from_=left,
        cause="resumed by a person",
        limits=caps or None,
        allow=list(allow) or None,
        note=note,
        by=here.person(),
    )
    return [*events, resumed]


def _raised(state: State, raised: dict[str, float | None]) -> dict[str, float]:
    """New caps that let it go on: every limit that is full must be above what is used."""
    goal = state.goal
    assert goal is not None
    caps: dict[str, float] = {}
    for axis, cap in raised.items():
        if cap is None:
            raise UsageError("a limit can be raised here, not switched off", where=f"limit {axis}", hint=f"-l {axis}=MORE")
        caps[axis] = cap
    full = {axis for axis, cap in (goal.caps | caps).items() if axis in USED_UP and state.spend.used(axis, time.time()) >= cap}
    if goal.limit is not None and goal.limit.limit in goal.caps:
        axis = goal.limit.limit
        full |= {axis} if caps.get(axis, 0.0) <= goal.caps[axis] else set()
    for axis in sorted(full):
        cap = (goal.caps | caps)[axis]
        used = limits.show(axis, state.spend.used(axis, time.time()))
        raise UsageError(
            f"{used} of {limits.show(axis, cap)} are used: there is no room to go on",
            where=f"limit {axis}",
            hint=f"raise it: endstop resume {view.short(state.session_id)} -l {axis}=MORE",
        )
    return caps


async def _tell(system: System, row: SessionRow, events: list[Event]) -> int:
    """Another process drives it: let that one go on."""
    assert row.holder is not None
    where = view.short(row.id)
    if not events:
        raise UsageError(f"process {row.holder.pid} drives it already", where=where, hint=f"endstop show {where} looks at it")
    if any(isinstance(event, ev.GoalResumed) and event.allow for event in events):
        hint = f"endstop send {where} says something to it; once it has stopped, resume it with the rule"
        raise UsageError(f"process {row.holder.pid} drives it, by the rules it began with", where=f"{where} --allow", hint=hint)
    for event in events:
        await system.control(row.id, event)
    out.say([f"process {row.holder.pid} goes on with {where}"], sys.stderr)
    return exits.OK


async def _accept_inputs(running: Running) -> None:
    """Take verifier inputs that differ from the start as they are now; everything else of the start stays."""
    state, workspace = running.session.state, running.perform.workspace
    goal, baseline = state.goal, state.evidence.baseline
    if goal is None or baseline is None:
        return
    seen = await workspace.look("resume", state.evidence.world, goal.contract, baseline)
    now = await workspace.look("resume", state.evidence.world, goal.contract, None)
    changed = [*seen.named, *seen.protected]
    inputs = (baseline.inputs or {}) | {path: (now.inputs or {}).get(path, "absent") for path in changed}
    running.session.record(
        msgspec.structs.replace(baseline, inputs=inputs), msgspec.structs.replace(seen, protected=[], named=[])
    )
    out.say([f"taken as it is now: {path}" for path in dict.fromkeys(changed)] or ["no verifier input was changed"], sys.stderr)


# --------------------------------------------------------------------------------------------------------------- following


ONE_WISH = 1.0
"""Seconds within which signals are one: ``timeout`` and other wrappers signal the process and then its whole group."""


class Stopper:
    """Signals as a person means them: the first pauses, the second cancels, a third ends the process."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self.count = 0
        self._last = -ONE_WISH

    def listen(self) -> None:
        """Take signals from now on."""
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self.signal, number)

    def stop(self) -> None:
        """Leave signals to Python again; after a stop the rest of it is not cut short by an echo of the signal."""
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.remove_signal_handler(number)
            if self.count:
                signal.signal(number, signal.SIG_IGN)

    def signal(self, number: signal.Signals) -> None:
        """Pause first (a running tool may end: after Ctrl-C in its own time), cancel next."""
        now = time.monotonic()
        echo, self._last = now - self._last < ONE_WISH, now
        if echo:
            return
        self.count += 1
        if self.count == 1:
            reason: Any = "user" if number == signal.SIGINT else "shutdown"
            self.control(ev.GoalPaused(reason=reason, by=here.person()))
            out.say(["pausing; once more cancels the goal"], sys.stderr)
        elif self.count == 2:
            self.control(ev.GoalClosing(target="cancelled", reason="cancelled by a person", by=here.person(), detail={}))
            out.say(["cancelling"], sys.stderr)
        else:
            os._exit(128 + number)

    def control(self, event: Event) -> None:
        """Hand over an event, if it can still do anything."""
        if allowed(self._running.session.state, event) is not None:
            self._running.control(event)


async def _follow(system: System, running: Running, follow: Following, events: Sequence[Event] = ()) -> int:
    """Record ``events``, drive a goal to where it stops, show it, and say how it stands."""
    asks = here.interactive() and not follow.json and follow.resident is None
    screen = _screen(system, running, follow)
    stopper = Stopper(running)
    asker = Asker(screen, stopper.control, lambda: stopper.signal(signal.SIGTERM), here.person()) if asks else None

    def emit(entry: Entry) -> None:
        screen.take(entry, running.session.state)
        if asker is not None:
            asker.take(entry)

    already = open_asks(await system.store.entries(running.session.session_id), running.session.state) if asks else []
    running.session.emit.append(emit)
    stopper.listen()
    reachable = asks or follow.resident is not None
    try:
        if follow.resident is not None:
            follow.resident()
        about = running.description | {"reachable": reachable, "effort": system.settings.effort, "caps": _caps(events)}
        screen.start(about, running.session.state)
        if asker is not None:
            asker.listen(already)
        running.session.record(*events)
        state = await running.drive(stay=follow.wait or asks, reachable=reachable, watch=screen.watch)
        while stopper.count > 1 and state.phase not in ENDED:
            state = await running.drive(stay=False)
        patch = await report.keep_patch(running, system.settings.home)
    finally:
        if asker is not None:
            asker.stop()
        screen.stop()
        await running.close()
    record = await system.store.verify(running.session.session_id)
    await screen.end(state, record, time.time())
    report.write(follow.reports, state, record, time.time(), patch)
    stopper.stop()
    return exits.of(state, accept_claimed=follow.accept_claimed)


def _caps(events: Sequence[Event]) -> dict[str, float]:
    """The limits that these events raise."""
    resumed = [event.limits or {} for event in events if isinstance(event, ev.GoalResumed)]
    return {axis: cap for limits in resumed for axis, cap in limits.items()}


def _screen(system: System, running: Running, follow: Following) -> Screen:
    if follow.json:
        return JsonLines(system.store, running.session.session_id, follow.after)
    return watching(lambda: running.session.state, quiet=follow.quiet)
