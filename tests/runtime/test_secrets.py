"""Secrets: the record and the model never hold them, what runs is what was asked for."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from endstop.assemble import Order, System, open_system
from endstop.core import events as ev
from endstop.core import hooks
from endstop.core.events import Contract, Gate, Policy
from endstop.core.goal import State
from endstop.errors import UsageError
from endstop.running import Running
from endstop.settings import load
from endstop.tools.functions import tool
from tests.runtime.server import Server, go, message, serving

KEY = "test-key-1234567890"
"""The provider's, so a registered value."""
DONE = message("", ("task_complete", {"summary": "done"}))
PEM = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n{}\n-----END PRIVATE KEY-----"


class Died(BaseException):
    """Stands for the end of the process: nothing catches it."""


def script(*turns: dict[str, Any]) -> Callable[[dict[str, Any], int], dict[str, Any]]:
    """Answers in order, the last one for ever."""
    return lambda request, number: turns[min(number, len(turns)) - 1]


class Clock:
    """Real time, moved forward where a lease has to run out."""

    ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


def with_system(
    play: Any, workspace: Path, work: Callable[[System, Server, Clock], Awaitable[Any]], tools: tuple[Any, ...] = (), **more: Any
) -> Any:
    """Do something with a system whose model plays this."""

    async def run() -> Any:
        clock = Clock()
        async with serving(play) as server:
            settings = load(cwd=workspace, environ={"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": KEY}, flags=more or None)
            async with open_system(settings, tools=tools, clock=clock) as system:
                return await work(system, server, clock)

    return go(run())


def order(workspace: Path, contract: Contract | None = None, objective: str = "do it", **policy: Any) -> Order:
    return Order(
        objective=objective,
        workspace=workspace,
        model="openai:m",
        contract=contract or Contract(judge="none"),
        limits={"turns": 8},
        policy=Policy(**policy),
    )


def ends(
    play: Any, workspace: Path, contract: Contract | None = None, tools: tuple[Any, ...] = (), **policy: Any
) -> tuple[State, str, list[ev.Event]]:
    """One goal: its end, all that the model was sent, its events."""

    async def work(system: System, server: Server, clock: Clock) -> tuple[State, str, list[ev.Event]]:
        running = await system.queue(order(workspace, contract, **policy))
        state = await running.drive(stay=False)
        await running.close()
        entries = await system.store.entries(running.session.session_id)
        return state, json.dumps(server.requests), [entry.event for entry in entries]

    result: tuple[State, str, list[ev.Event]] = with_system(play, workspace, work, tools)
    return result


def results(events: list[ev.Event]) -> list[ev.ToolComplete]:
    return [event for event in events if isinstance(event, ev.ToolComplete)]


# ------------------------------------------------------------------------------------------------------------------- orders

WORDS = 'password = "hunter2hunter99"'
REFUSED: dict[str, dict[str, Any]] = {
    "objective": {"objective": f"use {KEY} to log in"},
    "gate 2": {"contract": Contract(gates=[Gate(gate_id="a", run="true"), Gate(gate_id="b", run=f"! grep -q '{WORDS}' cfg")])},
    "hook 1": {"contract": Contract(hooks=[hooks.make("stop", f"test -z {KEY}")])},
    "deliverable": {"contract": Contract(deliverables=[f"out-{KEY}.txt"])},
    "protected input": {"contract": Contract(inputs=[f"in-{KEY}.txt"])},
    "rubric": {"contract": Contract(rubric=f"the file says {WORDS}")},
    "rule": {"deny": [f"shell(curl {KEY}*)"]},
}


@pytest.mark.parametrize("where", REFUSED)
def test_an_order_that_could_not_be_recorded_as_it_is_is_refused(tmp_path: Path, where: str) -> None:
    """Before anything begins, naming the place and the words around, never the secret."""

    async def work(system: System, server: Server, clock: Clock) -> UsageError:
        with pytest.raises(UsageError) as caught:
            await system.queue(order(tmp_path, **REFUSED[where]))
        assert await system.store.sessions() == []
        assert server.requests == []
        return caught.value

    error = with_system(script(DONE), tmp_path, work)
    assert error.where == where
    assert "[redacted:" in str(error)
    assert "file" in error.hint
    assert KEY not in str(error)
    assert "hunter2" not in str(error)


# -------------------------------------------------------------------------------------------------------------------- calls


def test_a_call_runs_with_what_the_model_said_and_is_recorded_without_its_secrets(tmp_path: Path) -> None:
    """Files and commands get the original; journal and later requests hold marks in its place."""
    fixture = 'password = "hunter2-fixture-99"\n'
    (tmp_path / "old.py").write_text("api_token = 'abc-old-123456'\n")
    calls = message(
        "",
        ("write_file", {"path": "test_login.py", "content": fixture}),
        ("edit_file", {"path": "old.py", "old": "'abc-old-123456'", "new": "'abc-new-654321'"}),
        ("edit_file", {"path": "old.py", "old": "api_token = 'abc-new-654321'", "new": "api_token = 'abc-new-777777'"}),
        ("shell", {"command": f"echo secret={KEY} > out; wc -c < out"}),
    )
    state, sent, events = ends(script(calls, DONE), tmp_path, allow=["shell"])
    assert state.phase == "done"
    assert (tmp_path / "test_login.py").read_text() == fixture
    assert (tmp_path / "old.py").read_text() == "api_token = 'abc-new-777777'\n"
    assert (tmp_path / "out").read_text() == f"secret={KEY}\n"
    assert [result.success for result in results(events)[:4]] == [True] * 4
    for secret in ("hunter2", KEY, "new-777777"):
        assert secret not in repr(events)
        assert secret not in sent
    assert "[redacted:password]" in sent


def test_a_hook_before_a_call_is_told_what_really_runs(tmp_path: Path) -> None:
    """It is there to judge the call, so a secret hides nothing from it; its objection is recorded without the secret."""
    (tmp_path / "judge.sh").write_text(
        "grep -q hunter2-real && { echo no hunter2-real1 as password: hunter2-real1 >&2; exit 2; }\n"
    )
    contract = Contract(judge="none", hooks=[hooks.make("pre_tool", "sh judge.sh", "write_file")])
    call = message("", ("write_file", {"path": "a", "content": "password: hunter2-real1"}))
    _, _, events = ends(script(call, DONE), tmp_path, contract)
    error = results(events)[0].error
    assert error is not None
    assert error.code == "denied"
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("policy", [{"deny": ["shell(touch *)"]}, {"ask": ["shell(touch *)"]}], ids=["deny", "ask"])
def test_rules_hold_for_what_a_secret_hides(tmp_path: Path, policy: dict[str, Any]) -> None:
    """A command inside of what looks like a key is seen by the rules, though the record does not show it."""
    hiding = "true '" + PEM.format("'; touch hidden; true '") + "'"
    plain = f"echo {KEY} > seen"
    calls = message("", ("shell", {"command": hiding}), ("shell", {"command": plain}))
    _, _, events = ends(script(calls, DONE), tmp_path, allow=["shell"], **policy)
    first, second = results(events)[:2]
    assert first.error is not None
    assert (first.success, first.executed, first.error.code) == (False, False, "denied")
    assert not (tmp_path / "hidden").exists()
    assert second.success
    assert (tmp_path / "seen").read_text() == f"{KEY}\n"


def test_a_person_is_not_made_to_allow_what_the_record_hides(tmp_path: Path) -> None:
    """Of two permitted command lines the one in which whole commands were hidden does not run."""
    hiding = "true '" + PEM.format("'; touch hidden; true '") + "'"
    calls = message("", ("shell", {"command": hiding}), ("shell", {"command": f"echo {KEY} > seen"}))

    async def work(system: System, server: Server, clock: Clock) -> list[ev.Event]:
        running = await system.queue(order(tmp_path, mode="ask", humans="park"))
        state = await running.drive(stay=False)
        while state.phase == "waiting":
            for grant in list(state.grants.values()):
                if not grant.kind:
                    running.control(
                        ev.PermissionCompleted(request_id=grant.id, result=ev.Decision(kind="approved"), scope="once", by="me")
                    )
            state = await running.drive(stay=False)
        await running.close()
        return [entry.event for entry in await system.store.entries(running.session.session_id)]

    first, second = sorted(results(with_system(script(calls, DONE), tmp_path, work))[:2], key=lambda result: result.success)
    assert first.error is not None
    assert (first.executed, first.error.code) == (False, "denied")
    assert second.success
    assert not (tmp_path / "hidden").exists()
    assert (tmp_path / "seen").exists()


def test_after_a_restart_a_call_whose_secret_is_gone_is_not_run(tmp_path: Path) -> None:
    """One that had begun has an unknown effect, one that had not is asked for again; one without a secret runs."""
    died: list[str] = []

    @tool(effect="idempotent")
    async def deliver(text: str) -> str:
        """Deliver."""
        died.append(text)
        raise Died

    calls = message(
        "",
        ("deliver", {"text": "password = hunter2hunter99"}),
        ("write_file", {"path": "a", "content": "password = hunter2hunter99"}),
        ("write_file", {"path": "b", "content": "no secret"}),
    )

    async def work(system: System, server: Server, clock: Clock) -> list[ev.Event]:
        running = await system.queue(order(tmp_path))
        with pytest.raises(Died):
            await running.drive(stay=False)
        clock.ahead = 3_600.0
        again = await system.take(running.session.session_id)
        await again.drive(stay=False)
        await again.close()
        return [entry.event for entry in await system.store.entries(running.session.session_id)]

    begun, open_, plain = results(with_system(script(calls, DONE), tmp_path, work, (deliver,)))[:3]
    assert died == ["password = hunter2hunter99"]
    assert begun.error is not None
    assert (begun.executed, begun.error.code) == (True, "effect_unknown")
    assert open_.error is not None
    assert (open_.executed, open_.error.code) == (False, "interrupted")
    assert "again" in open_.error.message
    assert not (tmp_path / "a").exists()
    assert plain.success
    assert (tmp_path / "b").read_text() == "no secret"


# --------------------------------------------------------------------------------------------------------------------- cuts


def test_no_part_of_a_secret_stays_where_output_is_shortened(tmp_path: Path) -> None:
    """Wherever the cut goes through it, at its head or its tail, in one endless line or in short ones."""
    (tmp_path / "say.py").write_text(
        "import sys\n"
        "k, fill, tail = int(sys.argv[1]), sys.argv[2].replace('~', chr(10)), int(sys.argv[3])\n"
        "long = (fill * 30000)[:30000]\n"
        "key = open('key').read()\n"
        "sys.stdout.write(long + key + long[:k] if tail else long[:k] + key + long)\n"
    )
    (tmp_path / "key").write_text(KEY)
    lines = [f"python3 say.py {8192 - k} '{fill}' {tail}" for k in (3, 9, 15) for fill in ("x", "word~") for tail in (0, 1)]
    gate = Gate(gate_id="g", run="python3 say.py 4086 x 1; false")
    calls = message("", *(("shell", {"command": line}) for line in lines))
    _, sent, events = ends(script(calls, DONE), tmp_path, Contract(gates=[gate], judge="none"), allow=["shell"])
    assert sum(result.success for result in results(events)) >= len(lines)
    for start in range(len(KEY) - 5):
        assert KEY[start : start + 6] not in sent
        assert KEY[start : start + 6] not in repr(events)


# ------------------------------------------------------------------------------------------------------------------ defects


def test_a_defect_counts_as_a_crash_and_the_third_pauses_the_goal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that is none of ours leaves no word of a good end, so that nobody runs into it for ever."""

    async def look(*_: object) -> None:
        raise RecursionError("too deep")

    async def life(system: System, running: Running, clock: Clock) -> None:
        monkeypatch.setattr(running.folder, "look", look)
        with pytest.raises(RecursionError):
            await running.drive(stay=False)
        await running.close()
        clock.ahead += 3_600.0

    async def work(system: System, server: Server, clock: Clock) -> tuple[State, list[ev.Event]]:
        running = await system.queue(order(tmp_path))
        session_id = running.session.session_id
        await life(system, running, clock)
        for _ in range(2):
            await life(system, await system.take(session_id), clock)
        last = await system.take(session_id)
        state = await last.drive(stay=False)
        await last.close()
        return state, [entry.event for entry in await system.store.entries(session_id)]

    state, events = with_system(script(DONE), tmp_path, work)
    assert state.phase == "paused"
    paused = [event for event in events if isinstance(event, ev.GoalPaused)]
    assert [event.reason for event in paused] == ["crash_loop"]
    assert sum(isinstance(event, ev.SessionShutdown) for event in events) == 1


@pytest.mark.parametrize("levels", [150, 600, 900])
def test_calls_that_nest_deep_are_answered(tmp_path: Path, levels: int) -> None:
    """With secrets and halves of characters in them; the goal goes on."""
    deep = '{"a":' * levels + '"password = \\"hunter2hunter99\\" \\ud800"' + "}" * levels
    state, _, events = ends(script(message("", ("plan", deep), ("shell", deep)), DONE), tmp_path)
    assert state.phase == "done"
    assert [result.error and result.error.code for result in results(events)[:2]] == ["malformed", "malformed"]
    assert "hunter2" not in repr(events)
