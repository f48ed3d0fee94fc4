"""The wheel on one machine: decide, journal the intent, perform, journal what happened, apply. One goal, one task."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from functools import cache

from endstop.core import effects
from endstop.core.decide import decide
from endstop.core.effects import AnyAct
from endstop.core.goal import ENDED, State
from endstop.runtime.perform import Perform
from endstop.runtime.session import Session

Stay = bool | Callable[[], bool]
"""Whether to stay through waits for a human or a pot; a function is asked each time it would matter."""
PASSES_BY_ITSELF = frozenset({"time", "condition", "process", "child", "model", "verifier"})


async def drive(session: Session, perform: Perform, *, stay: Stay, chat: bool = False) -> State:
    """Turn the wheel until the goal ends, pauses, or waits for somebody.

    Args:
        stay: also stay through waits for a human or a pot.
        chat: also go on with rounds of conversation after a goal's end, until nobody has written anything more.

    Raises:
        LeaseLost: another process has taken the session over.
        StoreFull: there is no room; nothing after the last committed event counts.
    """
    _settle_down()
    holding = asyncio.create_task(session.hold())
    try:
        while True:
            await session.take_in()
            act = decide(session.state, session.clock())
            if isinstance(act, effects.Idle) or _leaves(session.state, act, stay) or _over(session.state, act, chat):
                if await session.commit(durable=True):
                    return session.state
                continue
            act = await perform.prepare(session, act)
            if await session.intend(act, durable=perform.durable(act), wait=perform.outside(act)):
                await perform(session, act)
    finally:
        holding.cancel()


@cache
def _settle_down() -> None:
    """Once in a process: what was loaded so far stays, so no collection looks at it again (milliseconds each time)."""
    gc.collect()
    gc.freeze()


def _over(state: State, act: AnyAct, chat: bool) -> bool:
    """The goal has ended and its last hooks ran: what was written after it is for a conversation."""
    return state.phase in ENDED and not chat and not isinstance(act, (effects.Record, effects.RunHooks))


def _leaves(state: State, act: AnyAct, stay: Stay) -> bool:
    """Whether this wait is one to come back for, not to stay through."""
    if not isinstance(act, effects.Wait) or (stay() if callable(stay) else stay):
        return False
    if act.on == "model" and not state.answered:
        return True  # it was never reached: more likely an address or a network to repair than an outage to sit out
    return act.on not in PASSES_BY_ITSELF
