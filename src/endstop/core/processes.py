"""Background processes: the goal parks on them, hears of each end once, and stops those that do not stay."""

from __future__ import annotations

from endstop.core import events as ev
from endstop.core.effects import AnyAct, Record, StopProcesses, Wait
from endstop.core.events import Event
from endstop.core.goal import Exit, Process, State
from endstop.core.limits import Full
from endstop.core.on_turn import STILL_RUNNING
from endstop.core.turns import capped, rounds_full

FIRST_WAIT = 600.0
"""Seconds after which a round says that a process still runs; doubling each time."""
LONGEST_WAIT = 24 * 3600.0


def living(state: State) -> list[Process]:
    """Processes whose end the goal waits for."""
    return [process for process in state.processes.values() if process.notify and not process.stays]


def round_over(state: State, now: float) -> AnyAct | None:
    """In rule 13: the notice of a process that ended unseen opens a round; else the goal parks on one that lives."""
    for exited in state.exits.values():
        full = rounds_full(state)
        return Record(events=capped(full) if isinstance(full, Full) else (_notice(exited),))
    alive = living(state)
    if not alive:
        return None
    wait = min(FIRST_WAIT * 2**state.process_waits, LONGEST_WAIT)
    names = ", ".join(f"{process.id} ({process.command[:60]})" for process in alive)
    parked = ev.GoalParked(on="process", ref=alive[0].id, until=now + wait, said=f"process {names}")
    return Record(events=(parked,))


def _notice(exited: Exit) -> Event:
    how = f"was ended by signal {exited.signal}" if exited.signal else f"ended with exit code {exited.code}"
    text = f"Process {exited.id} ({exited.command[:200]}) {how}.\n{exited.output}".rstrip()
    return ev.UserMessage(message_id=exited.id, content=text, source="process", delivery="queued", reason="exit")


def waiting(state: State, parked_on: str, over: bool, spoken: bool, until: float | None) -> AnyAct:
    """In rule 7: a wait for a process ends with its exit, with a human's message, or with a round that says it still runs."""
    if parked_on not in state.processes or spoken:
        cause = "a human wrote" if spoken else f"process {parked_on} ended"
        return Record(events=(ev.GoalResumed(from_="waiting", cause=cause),))
    if not over:
        return Wait(on="process", until=until)
    resumed = ev.GoalResumed(from_="waiting", cause=f"process {parked_on} is {STILL_RUNNING}")
    if state.round_open:
        return Record(events=(resumed,))  # the wait was a call of the agent's, which gets this as its result
    text = f"Process {parked_on} is {STILL_RUNNING}. Look at it, wait on, or stop it."
    said = ev.UserMessage(message_id=f"m{state.seq}", content=text, source="process", delivery="queued", reason=STILL_RUNNING)
    return Record(events=(resumed, said))


def stop(state: State) -> StopProcesses | None:
    """At the end of a goal: what does not stay is stopped first."""
    ids = tuple(process.id for process in state.processes.values() if not process.stays)
    return StopProcesses(ids=ids) if ids else None
