"""A conversation without a goal: a human's message opens a round, the agent works until it only answers.

The same turns, calls, limits and stall rules, but no phases: nothing is claimed or judged, rules notice and refuse but never
halt, and a full limit ends the round with an error.
"""

from __future__ import annotations

from endstop.core import events as ev
from endstop.core.calls import settle
from endstop.core.compaction import compact, compaction_lost, shrink
from endstop.core.effects import AnyAct, CallModel, Idle, Record
from endstop.core.events import Event
from endstop.core.goal import State, open_calls
from endstop.core.limits import Full, limit_error
from endstop.core.recovery import lost, turn_over
from endstop.core.results import complete, withdrawn
from endstop.core.turns import next_turn, turn_start


def converse(state: State, now: float) -> AnyAct:
    """What happens next while there is no live goal."""
    for rule in (compaction_lost, _stop, _recover, settle, _failed):
        effect = rule(state, now)
        if effect is not None:
            return effect
    if not state.round_open:
        return Idle(why=state.phase)
    smaller = compact(state, now)
    if smaller is not None:
        return smaller
    room = next_turn(state)
    if isinstance(room, Full):
        return Record(events=(limit_error(room),))
    start = turn_start(state, "work", room.amounts)
    return CallModel(events=(start,), turn_id=start.turn_id, purpose="work", max_output=room.max_output)


def _stop(state: State, now: float) -> AnyAct | None:
    """A stop ends the round: open calls are interrupted, open questions withdrawn."""
    turn = state.turn
    if not state.stop or turn is None or turn.ended:
        return None
    events: list[Event] = [
        complete(c.request.tool_call_id, "Interrupted.", executed=c.state == "started", code="interrupted")
        for c in open_calls(state)
    ]
    return Record(events=(*events, *withdrawn(state), *turn_over(state, turn, "interrupted")))


def _recover(state: State, now: float) -> AnyAct | None:
    return lost(state)


def _failed(state: State, now: float) -> AnyAct | None:
    """The model did not answer: the round ends with its words, except that a context too long is made smaller first."""
    turn = state.turn
    if turn is None or turn.ended != "failed" or turn.handled or turn.error is None:
        return None
    if turn.error.code == "context_overflow":
        return shrink(state, "overflow")
    error = ev.SessionError(error_type=turn.error.code, message=turn.error.message, hint="send the message again")
    return Record(events=(error,))
