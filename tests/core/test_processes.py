"""Background processes: parked on, told of once, and stopped at the end unless they stay."""

from __future__ import annotations

from typing import Any

import pytest

from endstop.core import effects, processes
from endstop.core import events as ev
from endstop.core.apply import replay
from tests.core.sim import Sim, call, says, spec


def begun(name: str = "p1", *, notify: bool = True, stays: bool = False) -> ev.ProcessStarted:
    """A process begins."""
    return ev.ProcessStarted(
        process_id=name, pid=7, start_time=1.0, command="make all", tool_call_id="c", notify_on_exit=notify, stays=stays
    )


def ended(name: str = "p1") -> ev.ProcessExited:
    """It ends."""
    return ev.ProcessExited(process_id=name, exit_code=3, output="the last lines")


TOOLS = {
    "run": (spec("run", "shell"), lambda a: (True, "runs on as p1")),
    "process": (spec("process", "read_outside"), lambda a: (True, f"looked at {a}")),
}


class Started(Sim):
    """A goal whose first call leaves a process behind; then what ``later`` says, by the number of its turns since."""

    def __init__(self, later: Any, process: ev.ProcessStarted | None = None, **more: Any) -> None:
        self.process = process or begun()
        super().__init__(lambda s: says("", call("run")) if len(s.asked) == 1 else later(len(s.asked) - 1), tools=TOOLS, **more)

    def _tool(self, run: effects.Run) -> ev.ToolComplete:
        if run.name == "run":
            self.record(self.process)
        return super()._tool(run)

    def to_wait(self) -> effects.Wait:
        """Until it waits for the process."""
        for _ in range(100):
            before = self.now
            act = self.step()
            if isinstance(act, effects.Wait):
                self.now = before
                return act
        raise AssertionError(self.types)


def done(turn: int) -> Any:
    """Words, then a claim."""
    return says("waiting for it") if turn == 1 else says("", call("task_complete", summary="x"))


def test_a_round_that_ends_while_a_process_lives_parks_and_its_end_opens_the_next_round() -> None:
    """No turn is burnt in between; the notice comes exactly once, with exit code and output; the goal goes on."""
    sim = Started(done)
    act = sim.to_wait()
    assert (act.on, sim.state.phase, len(sim.asked)) == ("process", "waiting", 2)
    sim.record(ended())
    assert sim.run().phase == "done"
    notices = [m for m in sim.of(ev.UserMessage) if m.source == "process"]
    assert [("exit code 3" in m.content, "the last lines" in m.content) for m in notices] == [(True, True)]
    assert len(sim.asked) == 4  # words, two claims (confronted, checked) after the notice, and the first
    assert replay(sim.entries, sim.kit) == sim.state


def test_an_end_that_was_looked_at_needs_no_notice() -> None:
    """A look at the process after its end withdraws it."""

    def later(turn: int) -> Any:
        if turn == 1:
            sim.record(ended())
            return says("", call("process", action="poll", process_id="p1"))
        return says("", call("task_complete", summary="x"))

    sim = Started(later)
    assert sim.run().phase == "done"
    assert not [m for m in sim.of(ev.UserMessage) if m.source == "process"]


def test_one_that_needs_no_notice_or_stays_is_not_waited_for() -> None:
    """The goal goes on at once; what stays lives on after it, the other is stopped."""
    for process, stopped in ((begun(notify=False), ["p1"]), (begun(stays=True), [])):
        sim = Started(done, process)
        assert sim.run().phase == "done"
        assert "goal.parked" not in sim.types
        assert [e.process_id for e in sim.of(ev.ProcessExited)] == stopped


def test_a_wait_that_runs_out_says_so_in_a_round_that_does_not_count() -> None:
    """After 10 minutes, then twice as long, a round says that it still runs; rounds are not spent by that."""
    sim = Started(lambda turn: says(f"still waiting, {turn}"), limits={"turns": 9.0})
    first = sim.to_wait()
    rounds, at = sim.state.spend.rounds, sim.now
    assert first.until == pytest.approx(at + 600, abs=5)
    sim.now = first.until + 1
    second = sim.to_wait()
    assert second.until - sim.now == pytest.approx(1200, abs=5)
    assert sim.state.spend.rounds == rounds
    assert [m.reason for m in sim.of(ev.UserMessage)] == ["still running"]


def test_a_wait_call_for_a_process_gets_its_end_as_result() -> None:
    """The turn stays open; a process that does not run is no reason to wait."""
    calls = [says("", call("wait", process="p1")), says("", call("wait", process="nope")), says("", call("task_complete"))]
    sim = Started(lambda turn: calls[min(turn, 3) - 1])
    sim.to_wait()
    sim.record(ended())
    sim.run()
    results = [c.result.content for c in sim.of(ev.ToolComplete)]
    assert "process p1 ended" in results[1]
    assert "does not run" in results[2]


def test_a_human_ends_the_wait() -> None:
    """His message opens a round while the process goes on."""
    sim = Started(done)
    sim.to_wait()
    sim.record(ev.UserMessage(message_id="m", content="what now?", source="user", delivery="queued"))
    sim.run()
    assert sim.of(ev.GoalResumed)[0].cause == "a human wrote"
    assert sim.state.phase == "done"
    assert [e.process_id for e in sim.of(ev.ProcessExited)] == ["p1"]  # stopped before the end


@pytest.mark.parametrize("target", ["cancelled", "capped"])
def test_whatever_ends_the_goal_its_processes_are_stopped_first(target: str) -> None:
    """Before goal.ended nothing of it lives any more."""
    sim = Started(done)
    sim.to_wait()
    sim.record(ev.GoalClosing(target=target, reason="r", detail={"limit": "turns"}))
    assert sim.run().phase == target
    assert sim.types.index("process.exited") < sim.types.index("goal.ended")


def test_a_wait_of_the_agents_own_that_is_over_is_answered_and_nobody_writes_a_message() -> None:
    """Inside an open round the call gets "still runs" as its result; a message would say it twice."""
    sim = Started(lambda turn: says("", call("process", action="poll", process_id="p1")))
    while "p1" not in sim.state.processes:
        sim.step()
    assert sim.state.round_open
    act = processes.waiting(sim.state, "p1", over=True, spoken=False, until=None)
    assert isinstance(act, effects.Record)
    assert [type(event) for event in act.events] == [ev.GoalResumed]
