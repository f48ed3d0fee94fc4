"""The retry layer, against a model that fails as told."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from endstop.core.messages import Answer, Message, UserText
from endstop.errors import ModelError, ModelFault
from endstop.models.retry import ask
from tests.models.fake import HEAD, HELLO, model, serving, text, whole


class Chat:
    """Fails with each of ``faults``, then answers."""

    def __init__(self, *faults: ModelError) -> None:
        self.faults = list(faults)
        self.asked: list[dict[str, Any]] = []

    async def ask(self, messages: Sequence[Message], **options: Any) -> Answer:
        self.asked.append(options)
        if self.faults:
            raise self.faults.pop(0)
        return Answer("ok")


class Time:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def fault(kind: ModelFault = "overloaded", retry_after: float | None = None) -> ModelError:
    return ModelError(kind, "x", retry_after=retry_after)


def run(chat: Chat, time: Time, **options: Any) -> Answer:
    """Ask with full jitter at its longest, unless told otherwise."""
    options = {"jitter": lambda: 1.0, **options}
    call = ask(chat, [UserText("x")], generation=3, max_output=9, clock=lambda: time.now, sleep=time.sleep, **options)
    return asyncio.run(call)


def test_a_passing_failure_is_asked_again_with_doubling_waits() -> None:
    """1, 2, 4 … seconds at most, each told beforehand, and the same question each time."""
    chat, time, told = Chat(*[fault()] * 4), Time(), []
    answer = run(chat, time, on_retry=lambda *what: told.append((what[0], what[1].kind, what[2])), tools=False)
    assert answer == Answer("ok")
    assert time.slept == [1.0, 2.0, 4.0, 8.0]
    assert told == [(number, "overloaded", wait) for number, wait in enumerate(time.slept, 1)]
    assert chat.asked == [{"generation": 3, "max_output": 9, "tools": False, "watch": None}] * 5


def test_waits_are_jittered_and_capped() -> None:
    """The random part is the whole wait, and no wait is longer than a minute."""
    time = Time()
    run(Chat(*[fault()] * 9), time, attempts=10)
    assert time.slept[-3:] == [60.0, 60.0, 60.0]
    time = Time()
    run(Chat(*[fault()] * 3), time, jitter=lambda: 0.25)
    assert time.slept == [0.25, 0.5, 1.0]


@pytest.mark.parametrize("kind", ["context_overflow", "invalid_request", "auth", "content_filter", "truncated"])
def test_a_final_failure_is_not_asked_again(kind: ModelFault) -> None:
    """What waiting does not heal is raised at once."""
    chat, time = Chat(fault(kind)), Time()
    with pytest.raises(ModelError):
        run(chat, time)
    assert (len(chat.asked), time.slept) == (1, [])


def test_attempts_end() -> None:
    """Five calls are made and no more; the last failure is the one that is raised."""
    faults = [fault() for _ in range(5)]
    chat, time = Chat(*faults), Time()
    with pytest.raises(ModelError) as caught:
        run(chat, time)
    assert caught.value is faults[-1]
    assert (len(chat.asked), len(time.slept)) == (5, 4)


def test_the_provider_is_not_asked_before_it_wants_to_be() -> None:
    """Retry-After is the least wait."""
    time = Time()
    run(Chat(fault("rate_limit", 7.0), fault("rate_limit", 0.0)), time)
    assert time.slept == [7.0, 2.0]


@pytest.mark.parametrize(("retry_after", "deadline"), [(61.0, None), (3600.0, None), (30.0, 1020.0), (None, 1000.5)])
def test_a_wait_that_is_too_long_is_left_to_the_caller(retry_after: float | None, deadline: float | None) -> None:
    """Longer than a minute, or past the deadline: raised at once, with what the provider asked for."""
    chat, time = Chat(fault("rate_limit", retry_after)), Time()
    with pytest.raises(ModelError) as caught:
        run(chat, time, deadline=deadline)
    assert caught.value.retry_after == retry_after
    assert (len(chat.asked), time.slept) == (1, [])


def test_over_http_a_busy_server_is_asked_again() -> None:
    """503, then 429 with Retry-After, then the answer."""
    time = Time()

    async def call() -> str:
        busy = text("", 429, Retry_After="3")
        async with serving(text("", 503), busy, whole({"content": "at last"})) as server, model(server.url) as asked:
            chat = asked.open(HEAD)
            answer = await ask(
                chat, HELLO, generation=0, max_output=9, clock=lambda: time.now, sleep=time.sleep, jitter=lambda: 0.5
            )
        return answer.text

    assert asyncio.run(call()) == "at last"
    assert time.slept == [0.5, 3.0]
