"""Runs the demo's goal, is killed at a chosen step of its journal, and takes it up again: one process a life.

Called by test_kill.py with a folder and a list of lives; prints one JSON line for each life plan. Every life is a fork of this
process, so that hundreds of them fit into a test. A step is one commit of the session: killed ``before`` it, what the last
effect did is not in the journal; killed ``after`` it, the next effect was promised and not begun.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from importlib import resources
from pathlib import Path
from typing import Any

from endstop.assemble import Order, open_system
from endstop.cli import demo
from endstop.core import events as ev
from endstop.running import Running
from endstop.runtime.session import Session
from endstop.settings import load
from endstop.tools.functions import tool

PAID = "paid.log"
RAN = "ran.log"


def make_pay(folder: Path) -> Any:
    """A tool with an effect outside the workspace that nobody can take back."""

    @tool
    def pay(to: str) -> str:
        """Pay somebody once.

        Args:
            to: Who gets the money.
        """
        with (folder / PAID).open("a") as log:
            log.write(f"{to}\n")
        return f"paid {to}"

    return pay


def prepare(folder: Path) -> None:
    """The demo's repository, and its script with a payment and a counted command in it."""
    demo.make_repository(folder / "ws")
    script = resources.files("endstop.cli").joinpath("demo.toml").read_text()
    first, _, rest = script.partition("[[turn]]\n")
    ours = f"""
[[turn]]
text = "I pay for the tests."
[[turn.call]]
name = "pay"
arguments = {{ to = "testers" }}
[[turn.call]]
name = "shell"
arguments = {{ command = "echo ran >> {RAN}" }}

"""
    (folder / "script.toml").write_text(first + ours + "[[turn]]\n" + rest)


class Killed:
    """Counts commits and kills this process at one of them."""

    def __init__(self, step: int, when: str) -> None:
        self.step, self.when, self.count = step, when, 0

    def install(self) -> None:
        """Into the one path by which events reach the journal."""
        commit = Session.commit

        async def counted(session: Session, *, durable: bool) -> bool:
            self.count += 1
            if self.count == self.step and self.when == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            held = await commit(session, durable=durable)
            if self.count == self.step and self.when == "after":
                os.kill(os.getpid(), signal.SIGKILL)
            return held

        Session.commit = counted  # type: ignore[method-assign]


async def live(folder: Path) -> dict[str, Any]:
    """Begin the goal, or take it up where its last holder died; what it came to."""
    settings = load(cwd=folder / "ws", environ={**os.environ, "ENDSTOP_HOME": str(folder / "home")}, flags=None)
    async with open_system(settings, tools=[make_pay(folder)]) as system:
        rows = await system.store.sessions()
        if rows and rows[0].head:
            running = await system.take(rows[0].id)
        else:
            order = Order(
                objective=demo.OBJECTIVE,
                workspace=folder / "ws",
                model=f"scripted:{folder / 'script.toml'}",
                contract=ev.Contract(gates=[ev.Gate(gate_id="gate-1", run=demo.GATE)]),
                limits=settings.limits,
                policy=settings.policy,
            )
            running = await system.queue(order)
        return await finish(system, running, folder)


async def finish(system: Any, running: Running, folder: Path) -> dict[str, Any]:
    """Drive it to its end and look at everything it left."""
    state = await running.drive(stay=False)
    await running.close()
    entries = await system.store.entries(running.session.session_id)
    verdict = await system.store.verify(running.session.session_id)
    results = [e.event for e in entries if isinstance(e.event, ev.ToolComplete)]
    starts = [e.event for e in entries if isinstance(e.event, ev.ToolStart)]
    asked = [r.tool_call_id for e in entries if isinstance(e.event, ev.AssistantMessage) for r in e.event.tool_requests]
    return {
        "phase": state.phase,
        "verified": state.goal.ended.verified,
        "record": verdict.verdict,
        "code": (folder / "ws" / "invoice.py").read_text(),
        "paid": lines(folder / PAID),
        "ran": lines(folder / "ws" / RAN),
        "unknown": [r.tool_call_id for r in results if r.error and r.error.code == "effect_unknown"],
        "effects": {s.tool_call_id: s.effect for s in starts},
        "results": sorted(r.tool_call_id for r in results) == sorted(asked),
        "turns": state.spend.turns,
    }


def lines(path: Path) -> int:
    """Lines of a log, 0 if it is not there."""
    return len(path.read_text().splitlines()) if path.exists() else 0


def one_life(folder: Path, step: int, when: str) -> dict[str, Any] | None:
    """Live in a child process until killed at a step (0: never); what it came to, None if it was killed."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        killed = Killed(step, when)
        killed.install()
        came = asyncio.run(live(folder))
        os.write(writer, json.dumps(came | {"commits": killed.count}).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as said:
        text = said.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return None
    found: dict[str, Any] = json.loads(text)
    return found


def main(root: Path, plans: list[list[list[Any]]]) -> None:
    """Each plan is a list of (step, when) at which its lives end; the last life goes to the end."""
    for number, plan in enumerate(plans):
        folder = root / f"plan{number}-{os.getpid()}"
        prepare(folder)
        deaths = 0
        for step, when in plan:
            deaths += one_life(folder, step, when) is None
        came = one_life(folder, 0, "")
        sys.stdout.write(json.dumps({"plan": plan, "deaths": deaths} | (came or {})) + "\n")
        sys.stdout.flush()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
