"""The next turn: whether it fits, and its start."""

from __future__ import annotations

from endstop.core import events as ev
from endstop.core.goal import State
from endstop.core.limits import LEAST_OUTPUT, Full, Reservation, closing_reserve, expected_input, reserve


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
