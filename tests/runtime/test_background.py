"""Commands in the background, through everything: the goal waits for them without a turn and hears of each end once."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path
from typing import Any

from endstop.core import events as ev
from endstop.core.events import Contract
from tests.runtime.server import go, message, serving, system
from tests.runtime.test_goals import DONE, FIX, GATE, order, repository, script, until_running


def begin(command: str, **more: Any) -> dict[str, Any]:
    """The agent starts something and does not wait for it."""
    return message("", ("shell", {"command": command, "background": True, **more}))


def test_its_end_opens_a_round_by_itself_and_no_turn_polls(tmp_path: Path) -> None:
    """Started, waited for by saying so, told of with exit code and output, and the goal is completed."""
    repository(tmp_path)
    plays = script(begin("sleep 1; echo built; exit 3"), message("I wait for the build."), FIX, DONE, DONE)

    async def work() -> None:
        async with serving(plays) as server, system(server.url, tmp_path) as opened:
            running = await opened.queue(order(opened, tmp_path, Contract(gates=[GATE], judge="none")))
            state = await asyncio.wait_for(running.drive(stay=False), 60)
            await running.close()
            assert (state.phase, state.goal.ended.verified) == ("done", True)
            entries = await opened.store.entries(running.session.session_id)
            kinds = [type(e.event).__name__ for e in entries]
            assert kinds.count("ProcessStarted") == kinds.count("ProcessExited") == kinds.count("GoalParked") == 1
            notices = [e.event.content for e in entries if isinstance(e.event, ev.UserMessage) and e.event.source == "process"]
            assert len(notices) == 1
            assert "exit code 3" in notices[0]
            assert "built" in notices[0]
            assert "process" not in [
                r["function"]["name"] for m in server.requests[-1]["messages"] for r in m.get("tool_calls") or []
            ]

    go(work())


def alive(words: str) -> list[str]:
    """Processes with these words in their command line."""
    return subprocess.run(["pgrep", "-f", words], capture_output=True, text=True, check=False).stdout.split()


def test_cancel_and_the_goals_end_stop_what_does_not_stay(tmp_path: Path) -> None:
    """No child is left; the journal has the end of each before that of the goal."""
    repository(tmp_path)
    seconds = f"8765{os.getpid()}"

    async def work(plays: Any, cancel: bool) -> Any:
        async with serving(plays) as server, system(server.url, tmp_path) as opened:
            running = await opened.queue(order(opened, tmp_path, Contract(gates=[GATE], judge="none")))
            driving = asyncio.create_task(running.drive(stay=False))
            if cancel:
                await until_running(running, ev.GoalParked)
                assert alive(f"sleep {seconds}")
                running.control(ev.GoalClosing(target="cancelled", reason="person", by="test", detail={}))
            state = await asyncio.wait_for(driving, 60)
            await running.close()
            assert alive(f"sleep {seconds}") == []
            entries = await opened.store.entries(running.session.session_id)
            kinds = [type(e.event).__name__ for e in entries]
            assert kinds.index("ProcessExited") < kinds.index("GoalEnded")
            return state.phase

    start = begin(f"sleep {seconds}")
    assert go(work(script(start, message("I wait.")), True)) == "cancelled"
    assert go(work(script(start, FIX, DONE, DONE), False)) == "done"


def test_a_process_outlives_the_runtime_and_the_next_one_hears_of_its_end(tmp_path: Path) -> None:
    """The holder lets go while it runs; taken up again the goal goes on when it has ended, told once."""
    repository(tmp_path)
    plays = script(begin("sleep 3; echo late"), message("I wait."), FIX, DONE, DONE)

    async def work() -> None:
        async with serving(plays) as server, system(server.url, tmp_path) as opened:
            running = await opened.queue(order(opened, tmp_path, Contract(gates=[GATE], judge="none")))
            driving = asyncio.create_task(running.drive(stay=False))
            await until_running(running, ev.GoalParked)
            running.control(ev.GoalPaused(reason="user", by="test"))
            await asyncio.wait_for(driving, 30)
            await running.close()
            running = await opened.take(running.session.session_id)
            running.session.record(ev.GoalResumed(from_="paused", cause="person", by="test"))
            state = await asyncio.wait_for(running.drive(stay=False), 60)
            await running.close()
            assert (state.phase, state.goal.ended.verified) == ("done", True)
            entries = await opened.store.entries(running.session.session_id)
            assert len([e for e in entries if isinstance(e.event, ev.ProcessExited)]) == 1
            assert [e.event.exit_code for e in entries if isinstance(e.event, ev.ProcessExited)] == [0]

    go(work())
