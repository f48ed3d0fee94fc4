"""The shell tool: what a command did, said so that model and rules understand it."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from endstop.host.sandbox import Sandbox, detect
from endstop.host.spawn import kill_marked
from endstop.ports import Invocation, Outcome
from endstop.tools.shell import Shell, mark_of

BARE = Sandbox("none")
ENVIRONMENT = {"PATH": os.environ["PATH"], "GREETING": "hello"}


def invocation(work: Path, **arguments: Any) -> Invocation:
    return Invocation(tool_call_id="c1", arguments=arguments, key=f"key of {work}", workspace=work)


def run(work: Path, command: str, sandbox: Sandbox = BARE, **more: Any) -> Outcome:
    shell = Shell(sandbox, [], False, ENVIRONMENT)
    return asyncio.run(shell.run(invocation(work, command=command, **more)))


def lives(pid: int) -> bool:
    """Whether a process runs; one that is dead and only not yet buried does not."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return state.strip()[:1] not in ("", "Z")


@pytest.mark.parametrize(
    ("command", "success", "exit_code", "content"),
    [
        ("echo $GREETING; pwd -P >&2", True, 0, "hello\n{work}"),
        ("true", True, 0, "(no output)"),
        ("echo no; exit 3", False, 3, "no\n(Command exited with code 3)"),
        ("nosuchcommand 2>/dev/null", False, 127, "(no output)\n(Command exited with code 127)"),
        ("exit 75", False, 75, "(no output)\n(waiting for someone, not broken: exit code 75)"),
        ("kill -TERM $$", False, None, "(no output)\n(Command ended by signal 15, SIGTERM)"),
        (
            "exit 137",
            False,
            137,
            "(no output)\n(128 + 9: ended by SIGKILL)\n(Command exited with code 137)",
        ),
        ("false | true", True, 0, "(no output)"),
        ("read -r line || echo none", True, 0, "none"),
        ("echo 'a b' && [[ x == x ]] && echo $((1+1))", True, 0, "a b\n2"),
    ],
)
def test_the_end_of_a_command_is_said(command: str, success: bool, exit_code: int | None, content: str, tmp_path: Path) -> None:
    """Exit code, waiting and signal are fields and words; the last line of a failure says how it ended."""
    outcome = run(tmp_path, command)
    assert (outcome.success, outcome.exit_code, outcome.error) == (success, exit_code, None)
    assert outcome.content == content.format(work=tmp_path.resolve())


def test_a_command_that_takes_too_long_is_stopped_with_all_it_began(tmp_path: Path) -> None:
    """A time-out keeps the output so far, says how long, and leaves no process."""
    outcome = run(tmp_path, "echo start; (sleep 100 & echo $! > child); sleep 100", timeout=0.5)
    assert outcome.error
    assert (outcome.error.code, outcome.exit_code) == ("timeout", None)
    assert outcome.content.startswith("start\n(Command timed out after 0.5 seconds and was stopped, with every process it began")
    assert not lives(int((tmp_path / "child").read_text()))


def test_long_output_is_shortened_and_kept(tmp_path: Path) -> None:
    """The model reads both ends; everything is kept beside."""
    outcome = run(tmp_path, "seq 1 20000")
    assert outcome.content.startswith("1\n2\n")
    assert outcome.content.endswith("\n20000")
    assert len(outcome.content) < 17_000
    assert outcome.full == "".join(f"{number}\n" for number in range(1, 20001)).encode()


def test_output_arrives_while_the_command_runs(tmp_path: Path) -> None:
    """Viewers see text before the command has ended: here it only ends once they did."""

    async def main() -> Outcome:
        call = invocation(tmp_path, command="echo early; until [ -e go ]; do sleep 0.02; done")

        def watch(text: str) -> None:
            (tmp_path / "go").write_text(text)

        call.partial = watch
        return await Shell(BARE, [], False, ENVIRONMENT).run(call)

    assert asyncio.run(main()).success
    assert (tmp_path / "go").read_text() == "early\n"


def test_cancelling_stops_the_command(tmp_path: Path) -> None:
    """A cancelled call leaves no process."""

    async def main() -> int:
        seen = asyncio.Event()
        call = invocation(tmp_path, command="echo $$; sleep 100")
        pids: list[str] = []

        def watch(text: str) -> None:
            pids.append(text)
            seen.set()

        call.partial = watch
        task = asyncio.create_task(Shell(BARE, [], False, ENVIRONMENT).run(call))
        await seen.wait()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        return int(pids[0])

    assert not lives(asyncio.run(main()))


def test_what_a_crash_left_is_found_by_its_mark(tmp_path: Path) -> None:
    """While a command runs, its call's mark finds it, and no other call's does."""

    async def main() -> Outcome:
        call = invocation(tmp_path, command="echo on; sleep 100")
        seen = asyncio.Event()
        call.partial = lambda _: seen.set()
        task = asyncio.create_task(Shell(BARE, [], False, ENVIRONMENT).run(call))
        await seen.wait()
        assert kill_marked(mark_of("another key", "c1")) == 0
        assert kill_marked(mark_of(call.key, call.tool_call_id)) >= 1
        return await task

    assert "SIGKILL" in asyncio.run(main()).content


def test_a_workspace_that_is_gone_is_a_result(tmp_path: Path) -> None:
    """A command that cannot even start is a failed call with a reason."""
    outcome = run(tmp_path / "gone", "true")
    assert outcome.error
    assert outcome.error.code == "failed"
    assert "gone" in outcome.content


@pytest.mark.needs("bwrap")
def test_in_the_sandbox_only_the_workspace_can_be_written(tmp_path: Path) -> None:
    """A sandboxed command works in the workspace, and neither writes beside it nor sees what is hidden."""
    work, state = tmp_path / "work", tmp_path / "state"
    for folder in (work, state):
        folder.mkdir()
    (state / "key").write_text("secret")
    shell = Shell(detect(), [state], False, ENVIRONMENT)
    command = f"echo in > a; touch {tmp_path}/b 2>/dev/null; cat {state}/key 2>/dev/null; cat a"
    outcome = asyncio.run(shell.run(invocation(work, command=command)))
    assert (outcome.content, (work / "a").read_text()) == ("in", "in\n")
    assert not (tmp_path / "b").exists()


def test_bad_time_outs_are_refused_before_anything_runs() -> None:
    """A time-out of nothing, or of more than a day, does not fit the schema."""
    properties = Shell(BARE, [], False, {}).spec.parameters["properties"]
    assert properties["timeout"]["anyOf"][0] == {"type": "number", "exclusiveMinimum": 0, "maximum": 86400}
    assert properties["command"]["minLength"] == 1
