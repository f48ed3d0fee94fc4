"""The events by which a goal goes on from where it stopped."""

from __future__ import annotations

from endstop.core import events as ev
from endstop.core.events import Phase
from endstop.core.goal import State, waiting_humans
from endstop.core.limits import show
from endstop.errors import UsageError

DRIVEN = frozenset({"queued", "working", "checking", "closing"})
"""Phases in which something goes on; with nobody there, its driver has crashed."""
PASSING = frozenset({"tool-calls/turn", "tool-calls/round", "output/call"})
"""Axes that are empty again at the next turn, round or call."""


def resumption(state: State, raised: dict[str, float | None], note: str | None, now: float) -> list[ev.Event]:
    """What to record so that it goes on; nothing where it does so by itself.

    Args:
        raised: new caps by axis; None stands for "none".
        now: epoch seconds.

    Raises:
        UsageError: it is done, waits for an answer, or a full limit was not raised.
    """
    goal, id = state.goal, state.session_id
    if goal is None:
        raise UsageError("this session has no goal", where=id, hint="give the session_id of a result")
    if state.phase == "done":
        raise UsageError("it is done", where=id, hint="more work is a new goal: endstop.run")
    caps = _raised(state, raised, now)
    if waiting_humans(state) and (caps or note):
        raise UsageError("it waits for an answer", where=id, hint="resume it without note and limits, and answer")
    asks = goal.parked is not None and goal.parked.on in ("question", "grant")
    if not (caps or note) and (state.phase in DRIVEN or (state.phase == "waiting" and asks)):
        return []  # it goes on by itself
    events: list[ev.Event] = []
    if state.phase in DRIVEN:
        events.append(ev.GoalPaused(reason="user", by="endstop.resume"))
    left: Phase = "paused" if events else state.phase
    resumed = ev.GoalResumed(from_=left, cause="resumed", limits=caps or None, note=note, by="endstop.resume")
    return [*events, resumed]


def _raised(state: State, raised: dict[str, float | None], now: float) -> dict[str, float]:
    """New caps that let it go on."""
    goal = state.goal
    assert goal is not None
    caps = {axis: cap for axis, cap in raised.items() if cap is not None}
    if len(caps) < len(raised):
        raise UsageError("a limit can be raised here, not switched off", where="limits", hint="give a number in place of NONE")
    held = {axis: cap for axis, cap in (goal.caps | caps).items() if axis not in PASSING and ":" not in axis}
    full = {axis for axis, cap in held.items() if state.spend.used(axis, now) >= cap}
    if goal.limit is not None and caps.get(goal.limit.limit, 0.0) <= goal.caps.get(goal.limit.limit, -1.0):
        full.add(goal.limit.limit)
    for axis in sorted(full):
        used, cap = show(axis, state.spend.used(axis, now)), show(axis, (goal.caps | caps)[axis])
        hint = f"raise it: limits={{'{axis}': MORE}}"
        raise UsageError(f"{used} of {cap} are used: there is no room to go on", where=f"limit {axis}", hint=hint)
    return caps
