"""Whole goals with real hooks over a real wire: held back, told, returned, paused, and taken up again after a crash."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from endstop.assemble import Order
from endstop.core import events as ev
from endstop.core.events import Contract, Hook
from endstop.core.goal import State
from endstop.core.hooks import make
from endstop.errors import UsageError
from endstop.host import spawn
from tests.runtime.server import go, message, pursue, serving, system

DONE = message("", ("task_complete", {"summary": "it is done"}))


def write(path: str) -> dict[str, Any]:
    return message("", ("write_file", {"path": path, "content": "x = 1\n"}))


def plays(*turns: dict[str, Any]) -> Any:
    """Answers in order, the last one for ever; ``asked`` counts the agent's own turns."""
    played = [0]

    def play(request: dict[str, Any], number: int) -> dict[str, Any]:
        if str(request["messages"][0]["content"]).startswith("You are writing the handoff"):
            return message("handed over")
        played[0] += 1
        return turns[min(played[0], len(turns)) - 1]

    return play


def ends(turns: list[dict[str, Any]], workspace: Path, *hooks: Hook, **more: Any) -> tuple[State, Any, list[ev.Event]]:
    """One goal with these hooks; its state, the server, and its events."""
    contract = Contract(judge="none", confront="never", hooks=list(hooks))

    async def work() -> tuple[State, Any, list[ev.Event]]:
        seen: list[ev.Event] = []
        async with serving(plays(*turns)) as server, system(server.url, workspace, **more) as opened:
            running = await opened.queue(order(opened, workspace, contract))
            state = await running.drive(stay=False, emit=lambda entry: seen.append(entry.event))
            await running.close()
            assert (await opened.store.verify(running.session.session_id)).verdict == "ok"
            return state, server, seen

    result: tuple[State, Any, list[ev.Event]] = go(work())
    return result


def order(opened: Any, workspace: Path, contract: Contract) -> Order:
    return Order(
        objective="do it", workspace=workspace, model="openai:m", contract=contract, limits=opened.settings.limits,
        policy=opened.settings.policy,
    )  # fmt: skip


def said(server: Any) -> str:
    """Everything the model was sent last."""
    return json.dumps(server.requests[-1]["messages"], ensure_ascii=False)


def test_a_guard_keeps_a_call_from_running(tmp_path: Path) -> None:
    """The file is not written, the model reads why, another file is."""
    guard = make("pre_tool", "grep -q secret.py && { echo 'leave secrets alone' >&2; exit 2; }; exit 0", "write_file")
    state, server, _ = ends([write("secret.py"), write("fine.py"), DONE], tmp_path, guard)
    assert state.phase == "done"
    assert not (tmp_path / "secret.py").exists()
    assert (tmp_path / "fine.py").exists()
    assert "leave secrets alone" in said(server)


def test_a_formatter_after_an_edit_tells_what_it_did(tmp_path: Path) -> None:
    """It finds the file by the name other agents use, changes it, and its words stand on the result."""
    script = tmp_path / "fmt.py"
    script.write_text(
        "import json, sys\n"
        "path = json.load(sys.stdin)['tool_input']['file_path']\n"
        "open(path, 'a').write('# formatted\\n')\n"
        "print(json.dumps({'hookSpecificOutput': {'additionalContext': 'formatted it'}}))\n"
    )
    state, server, _ = ends([write("a.py"), DONE], tmp_path, make("post_tool", "python3 fmt.py", "Write|Edit"))
    assert (tmp_path / "a.py").read_text() == "x = 1\n# formatted\n"
    assert "[hook] formatted it" in said(server)
    assert state.phase == "done"


def test_a_claim_passes_once_the_stop_hook_is_content(tmp_path: Path) -> None:
    """It objects until the file is there."""
    wants = make("stop", "test -e CHANGELOG.md || { echo 'no CHANGELOG.md' >&2; exit 2; }")
    state, server, events = ends([DONE, write("CHANGELOG.md"), DONE], tmp_path, wants)
    assert state.phase == "done"
    returned = [event for event in events if isinstance(event, ev.GoalReturned)]
    assert [(event.why, event.missing) for event in returned] == [("hook", ["a hook says: no CHANGELOG.md"])]
    assert "no CHANGELOG.md" in said(server)


def test_a_crashed_stop_hook_leaves_the_goal_waiting_never_done(tmp_path: Path) -> None:
    """Exit 1 is no yes: after three crashes it waits for its verifier and says what to repair."""
    workspace, contract = tmp_path, Contract(judge="none", confront="never", hooks=[make("stop", "echo no config >&2; exit 1")])

    async def work() -> State:
        async with serving(plays(DONE)) as server, system(server.url, workspace) as opened:
            running = await opened.queue(order(opened, workspace, contract))
            driving = asyncio.create_task(running.drive(stay=False))
            async with asyncio.timeout(30):
                while running.session.state.phase != "waiting":
                    await asyncio.sleep(0.01)
            parked = running.session.state.goal.parked
            assert (parked.on, "exit code 1: no config" in parked.said) == ("verifier", True)
            running.control(ev.GoalClosing(target="cancelled", reason="test", by="test", detail={}))
            state = await driving
            await running.close()
            return state

    assert go(work()).phase == "cancelled"


def test_the_transcript_holds_everything_up_to_now(tmp_path: Path) -> None:
    """A stop hook finds the claim it is about in the journal it is shown; each line is one event."""
    (tmp_path / "read.py").write_text(
        "import json, sys\n"
        "lines = open(json.load(sys.stdin)['transcript_path'])\n"
        "print(' '.join(json.loads(line)['type'] for line in lines))\n"
    )
    _, _, events = ends([write("a.py"), DONE], tmp_path, make("stop", "python3 read.py"))
    (end,) = [event for event in events if isinstance(event, ev.HookEnd)]
    assert end.output is not None
    types = end.output.split()
    assert types[0] == "session.start"
    assert types[-1] == "hook.start"
    assert "goal.claimed" in types


def test_all_occasions_of_a_goal_in_order(tmp_path: Path) -> None:
    """Start and objective before the first turn, the call's around the call, stop at the claim, the end last."""
    every = ["session_start", "user_prompt", "pre_tool", "post_tool", "stop", "session_end"]
    state, _, events = ends([write("a.py"), DONE], tmp_path, *(make(on, "cat > /dev/null") for on in every))  # type: ignore[arg-type]
    assert state.phase == "done"
    began = [event.hook_type for event in events if isinstance(event, ev.HookStart)]
    assert sorted(began[:2]) == ["session_start", "user_prompt"]
    assert began[2:] == ["pre_tool", "post_tool", "stop", "session_end"]
    assert all(event.success for event in events if isinstance(event, ev.HookEnd))


def test_a_pause_interrupts_a_hook_and_it_runs_again(tmp_path: Path) -> None:
    """Paused while a hook hangs: it is killed without an end; resumed in another process's place, it runs anew."""
    (tmp_path / "ws").mkdir()
    workspace, flag = tmp_path / "ws", tmp_path / "ws/ready"
    slow = make("pre_tool", f"test -e {flag} && exit 0; touch {flag}; sleep 985")
    contract = Contract(judge="none", confront="never", hooks=[slow])

    async def work() -> None:
        async with serving(plays(write("a.py"), DONE)) as server, system(server.url, workspace) as opened:
            running = await opened.queue(order(opened, workspace, contract))
            driving = asyncio.create_task(running.drive(stay=False))
            async with asyncio.timeout(30):
                while not flag.exists():
                    await asyncio.sleep(0.01)
            running.control(ev.GoalPaused(reason="user", by="test"))
            assert (await driving).phase == "paused"
            await running.close()
            taken = await opened.take(running.session.session_id)
            taken.session.record(ev.GoalResumed(from_="paused", cause="test", by="test"))
            state = await taken.drive(stay=False)
            await taken.close()
            assert state.phase == "done"
            entries = await opened.store.entries(running.session.session_id)
            kinds = [type(entry.event) for entry in entries if isinstance(entry.event, ev.HookStart | ev.HookEnd)]
            assert kinds == [ev.HookStart, ev.HookStart, ev.HookEnd]

    go(work())
    assert (workspace / "a.py").exists()


def test_a_hook_that_outlived_a_crash_is_killed_before_it_runs_again(tmp_path: Path) -> None:
    """What still lived of it is found by its mark when the goal is taken up; then it runs once more, and the call once."""
    (tmp_path / "ws").mkdir()
    workspace = tmp_path / "ws"
    contract = Contract(judge="none", confront="never", hooks=[make("pre_tool", "true")])

    async def work() -> None:
        async with serving(plays(write("a.py"), DONE)) as server, system(server.url, workspace) as opened:
            running = await opened.queue(order(opened, workspace, contract))
            session_id = running.session.session_id
            left: list[asyncio.Task[Any]] = []

            async def dies(run: Any, root: Path) -> ev.HookEnd:
                mark = f"{session_id}:{run.invocation_id}"
                left.append(asyncio.create_task(spawn.run(["sleep", "984"], cwd=root, env={}, timeout=None, mark=mark)))
                raise ConnectionAbortedError("the process is gone")

            running.perform.hooks.run = dies  # type: ignore[union-attr,method-assign]
            with pytest.raises(ConnectionAbortedError):
                await running.drive(stay=False)
            await opened.store.release(running.session.lease)
            taken = await opened.take(session_id)
            assert (await left[0]).signal == 9
            state = await taken.drive(stay=False)
            await taken.close()
            assert (state.phase, state.spend.by_tool["write_file"]) == ("done", 1)

    go(work())


def test_a_hook_whose_command_is_not_there_is_refused_at_the_start(tmp_path: Path) -> None:
    """A name that cannot be found is a usage error before anything is paid."""
    with pytest.raises(UsageError, match="no-such-guard"):
        ends([DONE], tmp_path, make("stop", "no-such-guard --now"))


def test_hooks_of_the_settings_are_those_of_the_goal(tmp_path: Path) -> None:
    """A project's endstop.toml names a hook, and a goal in it is held to it."""
    (tmp_path / "endstop.toml").write_text('[[hook]]\non = "stop"\nrun = "test -e ok || { echo make ok >&2; exit 2; }"\n')

    async def work() -> State:
        async with serving(plays(DONE, write("ok"), DONE)) as server, system(server.url, tmp_path) as opened:
            contract = opened.settings.contract
        assert [(hook.on, hook.own) for hook in contract.hooks] == [("stop", False)]
        async with serving(plays(DONE, write("ok"), DONE)) as server:
            state, _ = await pursue(server.url, tmp_path, Contract(judge="none", confront="never", hooks=contract.hooks))
            return state

    state = go(work())
    assert state.phase == "done"
    assert (tmp_path / "ok").exists()


@pytest.mark.parametrize("own", [False, True])
def test_a_secret_that_a_hook_prints_reaches_neither_the_journal_nor_the_model(tmp_path: Path, own: bool) -> None:
    """What it says is redacted like everything else."""
    (tmp_path / "leak.sh").write_text("echo the key is test-key-1234567890\n")
    leaks = make("user_prompt", "sh leak.sh", own=own)
    state, server, events = ends([DONE], tmp_path, leaks)
    assert state.phase == "done"
    assert "the key is" in said(server)
    assert "test-key-1234567890" not in said(server)
    assert "test-key-1234567890" not in repr(events)
