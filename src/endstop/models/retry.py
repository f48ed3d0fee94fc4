"""The one retry layer between the runtime and a model."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence

from endstop.core.messages import Answer, Message
from endstop.errors import ModelError
from endstop.ports import Chat, Clock, Watch

BASE = 1.0
CAP = 60.0
"""Seconds: the first wait is at most BASE, each next twice as long, none longer than CAP."""


async def ask(
    chat: Chat,
    messages: Sequence[Message],
    *,
    generation: int,
    max_output: int,
    clock: Clock,
    tools: bool = True,
    watch: Watch | None = None,
    deadline: float | None = None,
    attempts: int = 5,
    on_retry: Callable[[int, ModelError, float], None] | None = None,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    jitter: Callable[[], float] = random.random,
) -> Answer:
    """Ask until there is an answer, as long as the failure may pass by itself and there is time.

    The wait is random up to the exponential bound, so that many runs do not come back together; what the provider asks for
    is the least. A provider that asks for more than CAP, or for more than is left, is not waited for here.

    Args:
        deadline: epoch seconds by which the next attempt must have begun; None for no such time.
        attempts: calls at most, the first included.
        on_retry: told the number of the failed attempt (from 1), why it failed, and the seconds until the next.
        sleep, jitter: replaced in tests; ``jitter`` gives 0 to 1.

    Raises:
        ModelError: the last failure; its ``retry_after`` says when the provider may be asked again, if it said so.
    """
    attempt = 1
    while True:
        try:
            return await chat.ask(messages, generation=generation, max_output=max_output, tools=tools, watch=watch)
        except ModelError as error:
            wait = max(jitter() * min(CAP, BASE * 2 ** (attempt - 1)), error.retry_after or 0.0)
            late = deadline is not None and clock() + wait >= deadline
            if not error.passing or error.billed or attempt >= attempts or wait > CAP or late:
                raise
            if on_retry is not None:
                on_retry(attempt, error, wait)
        await sleep(wait)
        attempt += 1
