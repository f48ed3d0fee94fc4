"""``apply`` changes the state by one event, in place, O(1); ``replay`` folds it over a journal.

Whether an event is allowed in a phase is ``goal.TRANSITIONS``; what it changes stands in ``on_turn``, ``on_human`` and
``on_goal``, one function per event type.
"""

from __future__ import annotations

from collections.abc import Iterable

from endstop.core import events as ev
from endstop.core import hooks, on_goal, on_human, on_turn
from endstop.core.codec import Entry, type_of
from endstop.core.goal import ACTIVE, Kit, State, allowed
from endstop.errors import TransitionError

HANDLERS = on_turn.HANDLERS | on_human.HANDLERS | on_goal.HANDLERS | hooks.HANDLERS


def apply(state: State, entry: Entry) -> None:
    """Take in one event.

    Raises:
        TransitionError: its phase does not allow it; nothing was changed.
    """
    event = entry.event
    if getattr(event, "late", None):
        _tick(state, entry)
        return
    to = allowed(state, event)
    if to is None:
        raise TransitionError(f"{type_of(event)} is not allowed in {state.phase}", where=f"seq {entry.seq}")
    _tick(state, entry)
    left, state.phase = state.phase, to
    handler = HANDLERS.get(type(event))
    if handler is not None:
        if isinstance(event, ev.GoalPaused) and state.goal is not None:
            state.goal.left = left
        handler(state, entry, event)


def replay(entries: Iterable[Entry], kit: Kit | None = None) -> State:
    """The state after a journal, or after any prefix of one."""
    state = State(kit=kit or Kit())
    for entry in entries:
        apply(state, entry)
    return state


def _tick(state: State, entry: Entry) -> None:
    if state.phase in ACTIVE and not isinstance(entry.event, ev.SessionResume):
        state.spend.active += max(0.0, entry.time - state.time)
    state.seq, state.time = entry.seq, entry.time
