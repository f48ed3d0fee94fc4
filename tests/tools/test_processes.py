"""Commands that go on in the background, as the agent sees them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import pytest

from endstop.core.events import ProcessExited, ProcessStarted
from endstop.host.background import Background
from endstop.host.sandbox import Sandbox, detect
from endstop.host.spawn import kill_marked
from endstop.ports import Invocation, Outcome
from endstop.tools.catalog import Catalog
from endstop.tools.processes import ProcessControl, Processes, name_of
from endstop.tools.shell import Shell, mark_of

T = TypeVar("T")
ENVIRONMENT = {"PATH": os.environ["PATH"]}
WAIT = 30_000


class Agent:
    """The three tools of a session, called like an agent calls them: arguments are checked first."""

    def __init__(self, work: Path, sandbox: Sandbox | None = None, default_timeout: float | None = None) -> None:
        self.work = work
        self.background = Background(work.parent / "state")
        shell = Shell(
            sandbox or Sandbox("none"), [work.parent / "state"], False, ENVIRONMENT, default_timeout, background=self.background
        )
        self.catalog = Catalog([shell, Processes(self.background), ProcessControl(self.background)])
        self._ids = count()

    async def __call__(self, tool: str, **arguments: Any) -> Outcome:
        call = self.invocation(**arguments)
        check = self.catalog.specs[tool].check
        assert check is not None
        assert check(arguments) is None
        return await self.catalog.get(tool).run(call)

    def invocation(self, **arguments: Any) -> Invocation:
        call_id = f"c{next(self._ids)}"
        return Invocation(tool_call_id=call_id, arguments=arguments, key=f"{self.work} {call_id}", workspace=self.work)

    async def begin(self, command: str, **more: Any) -> str:
        """Run a command in the background; its process id."""
        started = (await self("shell", command=command, background=True, **more)).events[0]
        assert isinstance(started, ProcessStarted)
        return started.process_id

    async def poll_to_the_end(self, process_id: str) -> Outcome:
        while (outcome := await self("process", action="poll", process_id=process_id, wait_ms=WAIT)).content.endswith("running."):
            pass
        return outcome


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def go(main: Coroutine[Any, Any, T]) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(60):
            return await main

    return asyncio.run(bounded())


async def exit_of(agent: Agent, process_id: str) -> None:
    await agent.background.hear(agent.background.get(process_id), 30)


# ------------------------------------------------------------------------------------------------------------------ shell


@pytest.mark.parametrize(
    ("case", "command", "exit_code", "content"),
    [
        ("OC-E-014", "echo done", 0, "done"),
        ("OC-E-004", "echo done; exit 1", 1, "done\n(Command exited with code 1)"),
        ("OC-E-004", "exit 1", 1, "(no output)\n(Command exited with code 1)"),
        ("OC-E-007", "kill -9 $$", None, "(no output)\n(Command ended by signal 9, SIGKILL)"),
        ("OC-E-026", "echo a; echo b >&2; echo a", 0, "a\nb\na"),
        ("", "exit 75", 75, "(no output)\n(waiting for someone, not broken: exit code 75)"),
        ("", "read -r line || echo nothing to read", 0, "nothing to read"),
    ],
)
def test_a_command_that_is_over_soon_is_a_call_like_any_other(
    case: str, command: str, exit_code: int | None, content: str, work: Path
) -> None:
    """What ends before it is let go of is no process: no event, nothing to look at, nothing on disk."""

    async def main() -> Outcome:
        agent = Agent(work)
        outcome = await agent("shell", command=command)
        assert (await agent("process", action="list")).content == "(no process)"
        return outcome

    outcome = go(main())
    assert (outcome.success, outcome.exit_code, outcome.content) == (exit_code == 0, exit_code, content)
    assert (outcome.events, outcome.error) == ([], None)
    assert list((work.parent / "state").iterdir()) == []


def test_a_command_that_is_not_over_goes_on(work: Path) -> None:
    """After yield_ms the call returns with the process, what it said so far and how to look at it."""

    async def main() -> None:
        agent = Agent(work)
        outcome = await agent("shell", command="echo one; until [ -e go ]; do sleep 0.02; done; echo two; exit 4", yield_ms=300)
        (started,) = outcome.events
        assert isinstance(started, ProcessStarted)
        assert (started.tool_call_id, started.notify_on_exit, started.stays) == ("c0", True, False)
        name = started.process_id
        assert (outcome.success, outcome.exit_code, outcome.error) == (True, None, None)
        assert outcome.content.startswith(f"one\n(Command still running: process {name}, pid {started.pid}. process(")
        assert outcome.content.endswith("you are told when it ends)")
        assert (await agent("process", action="poll", process_id=name)).content == "(no new output)\n\nProcess still running."
        (work / "go").touch()
        assert isinstance(exited := await agent.background.wait_any(), ProcessExited)
        assert (exited.process_id, exited.exit_code, exited.output) == (name, 4, "one\ntwo\n")

    go(main())


def test_a_background_command_returns_at_once(work: Path) -> None:
    """With background nothing is waited for; without notify_on_exit nothing is promised."""

    async def main() -> None:
        agent = Agent(work)
        outcome = await agent("shell", command="sleep 600", background=True, notify_on_exit=False, stays=True)
        assert outcome.content.startswith("(no output so far)\n(Command still running")
        assert "you are told" not in outcome.content
        (started,) = outcome.events
        assert isinstance(started, ProcessStarted)
        assert (started.notify_on_exit, started.stays) == (False, True)
        assert agent.background.get(started.process_id).about.timeout is None
        await agent.background.kill_all(except_stays=False)

    go(main())


def test_time_out_in_the_foreground(work: Path) -> None:
    """OC-E-006: a command whose time is over fails, with what it said and what to do before trying again."""

    async def main() -> Outcome:
        return await Agent(work)("shell", command="echo on; sleep 600", timeout=0.5)

    outcome = go(main())
    assert outcome.error
    assert (outcome.success, outcome.error.code, outcome.events) == (False, "timeout", [])
    assert outcome.content.startswith("on\n(Command timed out after 0.5 seconds")
    assert "Verify the resulting state before retrying" in outcome.content


def test_time_out_in_the_background(work: Path) -> None:
    """OC-E-003: returning early does not stop the clock: the default holds in the background too."""

    async def main() -> Outcome:
        agent = Agent(work, default_timeout=1)
        return await agent.poll_to_the_end(await agent.begin("sleep 600"))

    outcome = go(main())
    assert outcome.content.endswith("Process stopped: its 1 seconds were over.")
    (exited,) = outcome.events
    assert isinstance(exited, ProcessExited)
    assert exited.exit_code is None


def test_long_output_is_shortened_and_kept(work: Path) -> None:
    """The model reads both ends; everything is kept beside."""

    async def main() -> Outcome:
        return await Agent(work)("shell", command="seq 1 20000")

    outcome = go(main())
    assert outcome.content.startswith("1\n2\n")
    assert outcome.content.endswith("\n20000")
    assert len(outcome.content) < 17_000
    assert outcome.full == "".join(f"{number}\n" for number in range(1, 20001)).encode()


def test_output_arrives_while_the_command_runs(work: Path) -> None:
    """Viewers see all of it, early: here the command only ends once they did."""
    pieces: list[str] = []

    async def main() -> Outcome:
        agent = Agent(work)
        call = agent.invocation(command="echo early; until [ -e go ]; do sleep 0.02; done; printf '€%.0s' 1 2 3")

        def watch(text: str) -> None:
            pieces.append(text)
            (work / "go").touch()

        call.partial = watch
        return await agent.catalog.get("shell").run(call)

    outcome = go(main())
    assert outcome.content == "early\n€€€" == "".join(pieces)


def test_a_cancelled_call_leaves_nothing(work: Path) -> None:
    """Cancelled while it waits, a call stops its command and keeps no record of it."""

    async def main() -> None:
        agent = Agent(work)
        call = agent.invocation(command="touch on; sleep 600")
        task = asyncio.create_task(agent.catalog.get("shell").run(call))
        while not (work / "on").exists():
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert agent.background.all() == []
        assert kill_marked(mark_of(call.key, call.tool_call_id)) == 0

    go(main())


def test_what_a_crash_left_of_a_call_is_found_by_its_mark(work: Path) -> None:
    """While the call waits its mark finds the command, keeper and all; the call then says how it ended."""

    async def main() -> Outcome:
        agent = Agent(work)
        call = agent.invocation(command="touch on; sleep 600")
        task = asyncio.create_task(agent.catalog.get("shell").run(call))
        while not (work / "on").exists():
            await asyncio.sleep(0.01)
        assert kill_marked(mark_of(call.key, call.tool_call_id)) >= 2
        return await task

    outcome = go(main())
    assert (outcome.success, outcome.content) == (False, "(no output)\n(Command ended by signal 9, SIGKILL)")


def test_without_a_place_for_it_nothing_runs_in_the_background() -> None:
    """A shell without one does not offer what it cannot do (compare OC-E-029)."""
    assert set(Shell(Sandbox("none"), [], False, {}).spec.parameters["properties"]) == {"command", "timeout"}


# ---------------------------------------------------------------------------------------------------------------- process


def test_a_poll_shows_what_is_new_and_carries_the_end(work: Path) -> None:
    """OC-E-015: who sees the end in a poll has been told: it comes with that result, and never again."""

    async def main() -> None:
        agent = Agent(work)
        name = await agent.begin("echo one; until [ -e go ]; do sleep 0.02; done; echo two; exit 4")
        first = await agent("process", action="poll", process_id=name, wait_ms=WAIT)
        assert (first.content, first.events) == ("one\n\nProcess still running.", [])
        waiting = asyncio.create_task(agent.background.wait_any())
        (work / "go").touch()
        last = await agent.poll_to_the_end(name)
        assert last.content.endswith("Process exited with code 4.")
        (exited,) = last.events
        assert isinstance(exited, ProcessExited)
        assert (exited.process_id, exited.exit_code) == (name, 4)
        again = await agent("process", action="poll", process_id=name)
        assert (again.content, again.events) == ("(no new output)\n\nProcess exited with code 4.", [])
        assert not waiting.done()
        waiting.cancel()

    go(main())


def test_the_log_can_be_read_in_pages(work: Path) -> None:
    """A log shows its end, or any part of it, and says which bytes these are."""

    async def main() -> None:
        agent = Agent(work)
        name = await agent.begin("seq 1 20000")
        await exit_of(agent, name)
        everything = "".join(f"{number}\n" for number in range(1, 20001))
        log = await agent("process", action="log", process_id=name)
        assert "\n20000\n(bytes 92510 to 108894 of 108894)\n\nProcess exited" in log.content
        page = await agent("process", action="log", process_id=name, offset=2)
        assert page.content.startswith(everything[2:16_386].rstrip() + "\n(bytes 2 to 16386 of 108894)")
        beyond = await agent("process", action="log", process_id=name, offset=10**12)
        assert beyond.content.startswith("\n(bytes 108894 to 108894 of 108894)")
        poll = await agent("process", action="poll", process_id=name)
        assert poll.content.startswith("1\n2\n")
        assert len(poll.content) < 17_000

    go(main())


def test_the_list_names_all_of_them(work: Path) -> None:
    """OC-E-023: a process is known by its command, with whether it lives and how it ended."""

    async def main() -> None:
        agent = Agent(work)
        hello, sleeper, server = (
            await agent.begin("echo hello"),
            await agent.begin("kill -9 $$"),
            await agent.begin("sleep 600", stays=True, pty=True),
        )
        for name in (hello, sleeper):
            await exit_of(agent, name)
        pid = agent.background.get(server).pid
        assert (await agent("process", action="list")).content.splitlines() == [
            f"{hello}  exited with code 0  echo hello",
            f"{sleeper}  ended by signal 9, SIGKILL  kill -9 $$",
            f"{server}  still running  sleep 600  (pid {pid}, pty, stays)",
        ]
        await agent("process_control", action="kill", process_id=server)

    go(main())


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("echo hello", "echo hello"),
        ("  echo \\\n  hello ", "echo \\ hello"),
        ("python -m http.server --bind 127.0.0.1 --directory build 8000", "python -m http.server --… --directory build 8000"),
        ("€" * 49, "€" * 24 + "…" + "€" * 23),
    ],
)
def test_a_name_is_short(command: str, name: str) -> None:
    """OC-E-023, OC-E-018: at most 48 characters on one line, the middle left out, no character cut."""
    assert name_of(command) == name
    assert len(name) <= 48


def test_the_end_of_the_output_is_cut_between_characters(work: Path) -> None:
    """OC-E-018: what the event of an end carries of a long output begins with an ellipsis and a whole character."""

    async def main() -> ProcessExited:
        agent = Agent(work)
        await agent.begin("printf 'ä😀%.0s' {1..1000}; echo x")
        return await agent.background.wait_any()

    exited = go(main())
    assert exited.output[0] == "…"
    assert set(exited.output[1:-2]) == {"ä", "😀"}


# ---------------------------------------------------------------------------------------------------------------- control


def test_a_requested_stop_is_no_news(work: Path) -> None:
    """OC-E-011: the end of a process that was told to stop comes with that result, and wakes nobody."""

    async def main() -> None:
        agent = Agent(work)
        name = await agent.begin("echo partial; sleep 600")
        await agent("process", action="poll", process_id=name, wait_ms=WAIT)
        waiting = asyncio.create_task(agent.background.wait_any())
        outcome = await agent("process_control", action="kill", process_id=name)
        assert (outcome.success, outcome.content) == (True, "Process stopped, with everything it began.")
        (exited,) = outcome.events
        assert isinstance(exited, ProcessExited)
        assert (exited.process_id, exited.output) == (name, "partial\n")
        again = await agent("process_control", action="kill", process_id=name)
        assert (again.content, again.events) == ("It had ended already.\n\nProcess stopped.", [])
        assert not waiting.done()
        waiting.cancel()

    go(main())


def test_a_prompt_can_be_answered(work: Path) -> None:
    """With a terminal a command can be asked and answered, and keys end what text cannot."""

    async def main() -> None:
        agent = Agent(work)
        command = "read -r -p 'name? ' name; echo \"hello $name\"; exec cat"
        name = await agent.begin(command, pty=True)
        prompt = await agent("process", action="poll", process_id=name, wait_ms=WAIT)
        assert prompt.content == "name? \n\nProcess still running."
        answer = await agent("process_control", action="write", process_id=name, text="Ada\n")
        assert answer.content == "Ada\nhello Ada\n\nProcess still running."
        end = await agent("process_control", action="send_keys", process_id=name, keys=["enter", "ctrl-d"])
        if not end.events:  # a slow machine
            end = await agent.poll_to_the_end(name)
        assert end.content.endswith("Process exited with code 0.")

    go(main())


def test_what_is_typed_is_judged_like_a_command() -> None:
    """Text for a terminal is what permission rules look at, and acting is not reading."""
    background = Background(Path("nowhere"))
    control, look = ProcessControl(background).spec, Processes(background).spec
    assert (control.effect, control.key_argument) == ("shell", "text")
    assert (look.effect, look.poller) == ("read_outside", True)


@pytest.mark.parametrize(
    ("tool", "arguments", "says"),
    [
        ("process", {"action": "poll"}, "poll needs a process_id"),
        ("process", {"action": "log", "process_id": "nope"}, "there is no process nope"),
        ("process_control", {"action": "kill", "process_id": "../work"}, "there is no process ../work"),
        ("process_control", {"action": "write", "process_id": "{ended}", "text": "x"}, "has ended"),
        ("process_control", {"action": "send_keys", "process_id": "{ended}", "keys": ["enter"]}, "has ended"),
        ("process_control", {"action": "write", "process_id": "{lives}", "text": "x"}, "has no terminal"),
        ("process_control", {"action": "write", "process_id": "{lives}"}, "write takes text"),
        ("process_control", {"action": "write", "process_id": "{lives}", "keys": ["enter"]}, "write takes text"),
        ("process_control", {"action": "send_keys", "process_id": "{lives}", "text": "x"}, "send_keys takes keys"),
        ("process_control", {"action": "write", "process_id": "{lives}", "text": "x", "keys": ["tab"]}, "nothing else"),
    ],
)
def test_what_cannot_be_done_is_a_result_that_says_why(tool: str, arguments: dict[str, Any], says: str, work: Path) -> None:
    """OC-E-030 among them: nothing is typed into a process that ended or does not read, and mixed arguments are refused."""

    async def main() -> Outcome:
        agent = Agent(work)
        names = {"ended": await agent.begin("true"), "lives": await agent.begin("sleep 600")}
        await exit_of(agent, names["ended"])
        filled = {key: value.format(**names) if isinstance(value, str) else value for key, value in arguments.items()}
        outcome = await agent(tool, **filled)
        await agent.background.kill_all()
        return outcome

    outcome = go(main())
    assert outcome.error
    assert (outcome.success, outcome.error.code) == (False, "failed")
    assert says in outcome.content


@pytest.mark.parametrize(
    ("tool", "arguments", "says"),
    [
        ("shell", {"command": "true", "timeout": 0}, "timeout"),
        ("shell", {"command": "true", "timeout": 1e9}, "timeout"),
        ("shell", {"command": "true", "yield_ms": -1}, "yield_ms"),
        ("process", {"action": "eat"}, "list"),
        ("process", {"action": "poll", "process_id": "x", "wait_ms": 60_000}, "wait_ms"),
        ("process_control", {"action": "send_keys", "process_id": "x", "keys": ["ctrl-ä"]}, "keys"),
        ("process_control", {"action": "write", "process_id": "x", "text": ""}, "text"),
    ],
)
def test_bad_arguments_are_refused_before_anything_runs(tool: str, arguments: dict[str, Any], says: str, work: Path) -> None:
    """The schema bounds every number and names every choice."""
    check = Agent(work).catalog.specs[tool].check
    assert check is not None
    assert says in (check(arguments) or "")


@pytest.mark.needs("bwrap")
def test_in_the_sandbox(work: Path) -> None:
    """A sandboxed command with a terminal goes on in the background, is typed into, and ends with all it began."""

    async def main() -> None:
        agent = Agent(work, detect())
        name = await agent.begin("(setsid sleep 600 &); exec bash --norc -i", pty=True)
        answer = await agent("process_control", action="write", process_id=name, text="echo $((6 * 7)) > answer\n")
        while not (work / "answer").exists():
            await asyncio.sleep(0.01)
        assert answer.success
        assert (work / "answer").read_text() == "42\n"
        mark = agent.background.get(name).about.mark
        await agent("process_control", action="kill", process_id=name)
        assert kill_marked(mark) == 0

    go(main())
