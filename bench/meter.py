"""What a measured loop reports to: CPU time, wall time and memory of the whole process, read at calls of the tool."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement. ``result`` is the size of a tool's answer in characters; ``stream`` asks for streamed answers."""

    url: str
    turns: int
    runs: int = 1
    result: int = 0
    stream: bool = False
    timed: bool = False  # time the pure part in the loop


class Report(msgspec.Struct, kw_only=True):
    """What came of it: CPU in ms per turn, ``wall`` in seconds per turn of a run, ``memory`` in KB per run."""

    cpu: float
    loop: float  # the part of ``cpu`` that is the event loop's thread
    wall: float
    memory: float
    start: float  # CPU ms per run until its first call
    early: float = 0.0  # CPU per turn around turn 50
    late: float = 0.0  # and around turn 970
    pure: float = 0.0  # microseconds per turn in kernel, encoding and hashing; only if timed


SOURCE = Path(argparse.__file__).read_text()
"""Source text as tools bring it."""
Now = tuple[float, float, float, int]


class Meter:
    """Begins when every run has made its first call, ends when every run has made its last."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.report: Report | None = None
        self._calls = self._started = self._finished = 0
        self._marks: list[float] = []  # process time in ms at each call, while there is one run
        self._base = resident()
        self._opened = time.process_time()
        self._began: Now = (0.0, 0.0, 0.0, 0)

    def run(self) -> Callable[[int], str]:
        """The tool of one run: answers differently each time."""
        calls = 0

        def answer(number: int) -> str:
            nonlocal calls
            calls += 1
            self._called(calls)
            return f"value {number}" if not self.plan.result else f"# {number}\n{SOURCE}"[: self.plan.result]

        return answer

    def _called(self, calls: int) -> None:
        if self.plan.runs == 1:
            self._marks.append(time.process_time() * 1000)
        self._calls += 1
        if calls == 1:
            self._started += 1
            if self._started == self.plan.runs:
                self._began = self._now()
        if calls == self.plan.turns:
            self._finished += 1
            if self._finished == self.plan.runs:
                self._end()

    def _now(self) -> Now:
        return time.process_time(), time.thread_time(), time.perf_counter(), self._calls

    def _end(self) -> None:
        cpu, loop, wall, calls = (now - then for now, then in zip(self._now(), self._began, strict=True))
        self.report = Report(
            cpu=cpu * 1000 / calls,
            loop=loop * 1000 / calls,
            wall=wall / (self.plan.turns - 1),
            memory=(resident() - self._base) / self.plan.runs,
            start=(self._began[0] - self._opened) * 1000 / self.plan.runs,
        )
        if len(self._marks) >= 990:
            self.report.early, self.report.late = self._around(50), self._around(970)

    def _around(self, turn: int) -> float:
        """Mean ms of the 40 turns around one, the dearest fifth left out: a commit that moves the log is no growth."""
        spent = sorted(self._marks[at + 1] - self._marks[at] for at in range(turn - 20, turn + 20))
        return sum(spent[:32]) / 32


def resident() -> float:
    """Memory of this process in KB."""
    return float(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0])


class Watch:
    """Adds up the seconds spent in functions."""

    def __init__(self) -> None:
        self.spent = 0.0

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, timed. None of those timed may call another one, or its time counts twice."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            begun = time.thread_time()  # not the time that others had the processor
            try:
                return function(*args, **kwargs)
            finally:
                self.spent += time.thread_time() - begun

        return timed
