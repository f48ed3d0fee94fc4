"""The next turn and the next round: whether they fit, their start, and the limit that forbids them."""

from __future__ import annotations

from endstop.core import events as ev
from endstop.core.events import Event
from endstop.core.goal import State
from endstop.core.limits import AXES, LEAST_OUTPUT, Full, Reservation, axis_of, closing_reserve, expected_input, reserve


def next_turn(state: State) -> Reservation | Full:
    """The reservation of the next work turn, or what is full."""
    spend, profile = state.spend, state.profile
    keep = {} if state.interactive else closing_reserve(state.caps, profile.price)
    size = state.window.size + state.kit.head_bytes
    expected = expected_input(spend, size, state.window.size - state.window.reported)
    room = max(LEAST_OUTPUT, profile.window - expected) if profile.window else profile.max_output
    return reserve(
        spend,
        state.caps,
        input=expected,
        want=min(profile.max_output, room),
        price=profile.price,
        keep=keep,
        turn=True,
    )


def turn_start(state: State, purpose: ev.Purpose, reserved: dict[str, float]) -> ev.TurnStart:
    """The start of the session's next turn."""
    return ev.TurnStart(
        turn_id=state.turns + 1, model=state.model, purpose=purpose, request_hash=state.window.digest, reserved=reserved
    )


def capped(full: Full, missing: str = "") -> tuple[Event, ...]:
    """The events that close a goal at a limit."""
    from_axis = ev.LimitReached(
        limit=full.axis, unit=axis_unit(full.axis), scope=axis_scope(full.axis), spent=round(full.spent, 6), cap=full.cap
    )
    detail = {"limit": full.axis, "unit": from_axis.unit, "scope": from_axis.scope, "spent": from_axis.spent, "cap": full.cap}
    if missing:
        detail["missing"] = missing
    return (from_axis, ev.GoalClosing(target="capped", reason=f"limit {full.axis} reached", detail=detail))


def axis_unit(axis: str) -> str:
    """Unit of an axis, also of ``context``, which is the model's own limit."""
    return "tokens" if axis == "context" else axis_of(axis).unit


def axis_scope(axis: str) -> ev.LimitScope:
    """Scope of an axis."""
    found = AXES[axis].scope if axis in AXES else "goal"
    return "turn" if found == "turn" else "round" if found == "round" else "goal"


def rounds_full(state: State) -> Full | None:
    """Whether another round fits."""
    cap = state.goal.caps.get("rounds") if state.goal else None
    return Full("rounds", state.spend.rounds, cap) if cap and state.spend.rounds >= cap else None


def nudge(state: State, text: str) -> tuple[Event, ...]:
    """A message of the system that opens the next round, or the limit that forbids one."""
    full = rounds_full(state)
    if full is not None:
        return capped(full)
    message = ev.UserMessage(
        message_id=f"m{state.seq}", content=text, source="system", delivery="queued", is_autopilot_continuation=True
    )
    return (message,)
