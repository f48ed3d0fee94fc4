"""What a turn costs: a real goal beside a bare aiohttp loop that sends the same requests, in the same minute.

    make bench                         everything, a few minutes
    python -m bench.run --quick        fewer turns and rounds
    python -m bench.run --gate         ends with status 1 if a gate is over

Each measurement is a process of its own, floor and goal take turns, and what is shown is the median of the rounds. The gates
and where they come from are in docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
MODEL_SECONDS = 0.2
"""What the model takes in the measurements of many goals."""
DELTAS = 100
"""Packets of a streamed answer."""
Figures = dict[str, float]


class Case(NamedTuple):
    """One measurement of both sides. ``serve`` are arguments of the server."""

    plan: dict[str, Any]
    serve: tuple[str, ...] = ()


def cases(quick: bool) -> dict[str, Case]:
    """What is measured, by name."""
    few = 20 if quick else 50
    many = {"turns": 8 if quick else 20}
    slow = ("--latency", str(MODEL_SECONDS))
    return {
        "short": Case({"turns": few}),
        "middle": Case({"turns": 60 if quick else 200}),
        "long": Case({"turns": 200 if quick else 1000}),
        "results": Case({"turns": few, "result": 16384}),
        "timed": Case({"turns": 60 if quick else 200, "timed": True}),
        "hundred": Case({**many, "runs": 20 if quick else 100}, slow),
        "crowd": Case({**many, "runs": 50 if quick else 500}, slow),
        "plain": Case({"turns": 5, "runs": 10 if quick else 50}),
        "stream": Case({"turns": 5, "runs": 10 if quick else 50, "stream": True}, ("--deltas", str(DELTAS))),
    }


@contextmanager
def server(arguments: tuple[str, ...]) -> Iterator[str]:
    """The fake model's URL while it runs."""
    command = [sys.executable, "-m", "bench.server", *arguments]
    with subprocess.Popen(command, cwd=ROOT, env=_env(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        process.stdin.close()


def measure(module: str, *arguments: str) -> Figures:
    """Run one measurement in a process of its own."""
    done = subprocess.run([sys.executable, "-m", module, *arguments], cwd=ROOT, env=_env(), stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise SystemExit(f"{module} {' '.join(arguments)} ended with status {done.returncode}")
    found: Figures = json.loads(done.stdout)
    return found


def _env() -> dict[str, str]:
    found = os.environ.get("PYTHONPATH")
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *([found] if found else [])])}


def gather(quick: bool, rounds: int) -> dict[str, Figures]:
    """Medians of all measurements, "case floor" and "case endstop", and those of parts."""
    seen: dict[str, list[Figures]] = {}
    for turn in range(rounds):
        for name, case in cases(quick).items():
            print(f"\r\033[Kround {turn + 1}/{rounds}: {name}", end="", file=sys.stderr, flush=True)
            with server(case.serve) as url:
                for side in ("floor", "endstop"):
                    if side == "endstop" or not case.plan.get("timed"):
                        plan = json.dumps({**case.plan, "url": url})
                        seen.setdefault(f"{name} {side}", []).append(measure("bench.work", side, plan))
        seen.setdefault("parts", []).append(measure("bench.parts", "100" if quick else "500"))
    print("\r\033[K", end="", file=sys.stderr)
    return {name: {key: statistics.median(one[key] for one in found) for key in found[0]} for name, found in seen.items()}


class Row(NamedTuple):
    """One line of the table. ``gate`` is the most it may be, None where there is none."""

    what: str
    unit: str
    floor: float | None
    value: float
    gate: float | None = None


def rows(seen: dict[str, Figures]) -> list[Row]:
    """The table."""

    def of(case: str, key: str = "cpu") -> tuple[float, float]:
        return seen[f"{case} floor"][key], seen[f"{case} endstop"][key]

    table = []
    for case, gate in (("short", 2.0), ("middle", 2.0), ("long", 2.5)):
        floor, ours = of(case)
        table.append(Row(f"CPU per turn, {case} goal", "ms", floor, ours, gate))
        if gate == 2.0:
            table.append(Row(f"  as a multiple of the floor, {case}", "x", 1.0, ours / floor, 5.0))
    growth = [late - early for early, late in zip(of("long", "early"), of("long", "late"), strict=True)]
    table.append(Row("growth from turn 50 to 970", "ms", growth[0], growth[1], 0.6))
    table.append(Row("kernel, encoding, hashing, redaction, in the loop", "us", None, seen["timed endstop"]["pure"], 250))
    more = [large - small for large, small in zip(of("results"), of("short"), strict=True)]
    table.append(Row("more for a 16 KB result, beyond what the floor pays", "ms", more[0], more[1] - more[0], 0.25))
    for case, gate in (("hundred", 1.25), ("crowd", 1.8)):
        floor, ours = of(case, "wall")
        table.append(Row(f"wall, {case} of goals: multiple of the model's own time", "x", floor / MODEL_SECONDS,
                         ours / MODEL_SECONDS, gate))  # fmt: skip
        table.append(Row(f"CPU per turn, {case}", "ms", *of(case)))
    floor, ours = of("crowd")
    table.append(Row("  as a multiple of the floor, crowd", "x", 1.0, ours / floor, 2.0))
    table.append(Row("time of one core that 1,400 turns take", "s", 1.4 * floor, 1.4 * ours, 1.0))
    deltas = [(streamed - whole) * 1000 / DELTAS for streamed, whole in zip(of("stream"), of("plain"), strict=True)]
    table.append(Row("CPU per streamed delta", "us", deltas[0], deltas[1], 60))
    table.append(Row("memory per goal, crowd", "KB", *of("crowd", "memory"), 150))
    table.append(Row("CPU to begin a goal, crowd", "ms", *of("crowd", "start")))
    parts = seen["parts"]
    table.append(Row("replay per event", "us", None, parts["replay"], 5))
    table.append(Row("durable commit, beyond the disk's own sync", "ms", parts["sync"], parts["commit"] - parts["sync"], 0.5))
    table.append(Row("masking 16 KB of source", "ms", None, parts["mask"], 0.3))
    return table


def show(table: list[Row]) -> bool:
    """Print it; whether every gate holds."""
    print(f"{'':58} {'floor':>9} {'endstop':>9} {'gate':>9}")
    held = True
    for row in table:
        over = row.gate is not None and row.value > row.gate
        held = held and not over
        verdict = "" if row.gate is None else "OVER" if over else "PASS"
        print(f"{row.what:53} {row.unit:>4} {_number(row.floor):>9} {_number(row.value):>9} {_number(row.gate):>9} {verdict}")
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > cores + 1:  # the measured process and its server take about one
        print(f"Others keep this machine busy (load {load:.0f} on {cores} cores): what is said of wall time is too high.")
    return held


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}" if abs(value) >= 100 else f"{value:.2f}"


def main() -> int:
    """Measure and print; 1 with ``--gate`` if a gate is over, else 0."""
    parser = argparse.ArgumentParser(description="What a turn costs.")
    parser.add_argument("--quick", action="store_true", help="fewer turns, goals and rounds: to see that it runs")
    parser.add_argument("--rounds", type=int, help="how often everything is measured (3, quick 1)")
    parser.add_argument("--gate", action="store_true", help="end with status 1 if a gate is over")
    given = parser.parse_args()
    held = show(rows(gather(given.quick, given.rounds or (1 if given.quick else 3))))
    return int(given.gate and not held)


if __name__ == "__main__":
    sys.exit(main())
