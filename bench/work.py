"""One measurement in a process of its own: ``python -m bench.work floor|endstop PLAN``, PLAN as JSON; prints a report."""

from __future__ import annotations

import asyncio
import gc
import sys

import msgspec

from bench import floor, goal
from bench.meter import Meter, Plan, Report

WARM = 50


async def measure(name: str, plan: Plan) -> Report:
    """Warm up, then measure."""
    drive = {"floor": floor.drive, "endstop": goal.drive}[name]
    warm = msgspec.structs.replace(plan, turns=min(plan.turns, WARM), runs=1, timed=False)
    await drive(warm, Meter(warm))
    gc.collect()
    meter = Meter(plan)
    await drive(plan, meter)
    assert meter.report is not None
    return meter.report


if __name__ == "__main__":
    report = asyncio.run(measure(sys.argv[1], msgspec.json.decode(sys.argv[2], type=Plan)))
    print(msgspec.json.encode(report).decode())
