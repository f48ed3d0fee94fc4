"""Work against what may stop it: deadlines and what comes from outside."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from endstop.core import events as ev
from endstop.core.goal import Goal, State
from endstop.errors import StoreFull
from endstop.runtime.race import Race
from endstop.runtime.session import Session


class Outside:
    """The part of a session that a race sees; ``come`` is what is taken in when somebody wakes it."""

    def __init__(self, come: Callable[[State], None] = lambda state: None) -> None:
        self.state, self.clock, self.come = State(), time.time, come
        self.woken = asyncio.Event()
        self.on_woken: Callable[[], None] | None = None
        self.taken = asyncio.Event()

    def wake(self) -> None:
        self.woken.set()
        if self.on_woken is not None:
            self.on_woken()

    async def take_in(self) -> None:
        await asyncio.sleep(0)
        self.come(self.state)
        self.taken.set()


def race(outside: Outside, work: Awaitable[None], **how: Any) -> Awaitable[str]:
    """A race on this session."""
    return Race(cast(Session, outside), **how).run(work)


def stop(kind: str) -> Callable[[State], None]:
    """Somebody pauses or aborts."""
    return lambda state: setattr(state, "stop", kind)


async def waked(outside: Outside, **how: Any) -> tuple[str, bool]:
    """How work that ends once something was taken in came out, and whether it came to its end."""
    ended = False

    async def work() -> None:
        nonlocal ended
        outside.wake()
        await outside.taken.wait()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        ended = True

    return await race(outside, work(), **how), ended


def test_work_ends_by_itself_in_the_callers_task() -> None:
    """Undisturbed work is not stopped, and costs no task of its own."""

    async def scene() -> None:
        tasks = []

        async def work() -> None:
            tasks.append(asyncio.current_task())

        outside = Outside()
        assert await race(outside, work()) == ""
        assert tasks == [asyncio.current_task()]
        assert outside.on_woken is None

    asyncio.run(scene())


@pytest.mark.parametrize("tool", [False, True])
def test_what_stops_nothing_lets_it_go_on(tool: bool) -> None:
    """A message that stops nothing is taken in beside the work."""
    assert asyncio.run(waked(Outside(), tool=tool)) == ("", True)


def test_a_pause_interrupts_everything_but_a_tool() -> None:
    """A tool may end after a pause, anything else is interrupted."""
    assert asyncio.run(waked(Outside(stop("pause")))) == ("interrupted", False)
    assert asyncio.run(waked(Outside(stop("pause")), tool=True)) == ("", True)


def test_an_abort_interrupts_a_tool_too() -> None:
    """An abort waits for nothing."""
    assert asyncio.run(waked(Outside(stop("abort")), tool=True)) == ("interrupted", False)


def test_what_came_before_the_work_began_counts() -> None:
    """Something that came between the decision and the work is looked at first."""

    async def scene() -> str:
        outside = Outside(stop("abort"))
        outside.wake()
        return await race(outside, asyncio.Event().wait())  # type: ignore[arg-type]

    assert asyncio.run(scene()) == "interrupted"


def test_a_tool_has_only_its_grace_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool that does not end after a pause is interrupted when its grace is over."""
    monkeypatch.setattr("endstop.runtime.race.GRACE", 0.02)

    async def scene() -> str:
        outside = Outside(stop("pause"))
        outside.wake()
        return await race(outside, asyncio.Event().wait(), tool=True)  # type: ignore[arg-type]

    assert asyncio.run(scene()) == "interrupted"


def test_a_deadline_stops_the_work() -> None:
    """When the goal's time is over its running work is, too."""

    async def scene() -> str:
        outside = Outside()
        queued = ev.GoalQueued(
            goal_id="g",
            objective="x",
            contract=ev.Contract(),
            limits={"wall": 0.03},
            policy=ev.Policy(),
            model="m",
            fallbacks=[],
            workspace="/",
            priority=0,
        )
        outside.state.phase = "working"
        outside.state.goal = Goal(queued, {"wall": 0.03}, 1)
        outside.state.spend.since = time.time()
        return await race(outside, asyncio.Event().wait())  # type: ignore[arg-type]

    assert asyncio.run(scene()) == "timeout"


def test_a_failure_to_look_stops_the_work_and_is_told() -> None:
    """If what came cannot be read, the work is stopped and the caller gets the error."""

    def full(state: State) -> None:
        raise StoreFull("no room")

    with pytest.raises(StoreFull, match="no room"):
        asyncio.run(waked(Outside(full)))


def test_the_works_own_errors_pass() -> None:
    """An error of the work, also a time-out of its own, reaches the caller as it is."""

    async def late() -> None:
        raise TimeoutError("its own")

    async def scene() -> None:
        await race(Outside(), late())

    with pytest.raises(TimeoutError, match="its own"):
        asyncio.run(scene())


def test_a_cancel_from_above_is_no_stop() -> None:
    """Cancelling the driver cancels the work and is not mistaken for a deadline."""

    async def scene() -> None:
        begun = asyncio.Event()

        async def work() -> None:
            begun.set()
            await asyncio.Event().wait()

        task = asyncio.ensure_future(race(Outside(), work()))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scene())
