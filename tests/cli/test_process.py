"""The command line as real processes: signals, terminals, readers that go away, other processes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from endstop.cli import exits, view
from endstop.cli.run import ONE_WISH
from endstop.core.apply import replay
from endstop.core.codec import decode
from tests.cli.terminal import ASK, DONE, EDIT, GATE, PAINT, SLEEP, call, repository, script, start, turn, typed

SLOW = turn("", delay=60.0)


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository to stand in."""
    folder = repository(tmp_path / "repo")
    monkeypatch.chdir(folder)
    return folder


def until(process: subprocess.Popen[str], kind: str) -> list[str]:
    """Read the journal a process prints until an event of this type; returns the types read."""
    assert process.stdout is not None
    types = []
    for line in process.stdout:
        types.append(json.loads(line)["type"])
        if types[-1] == kind:
            return types
    pytest.fail(f"no {kind}: {types}, {process.stderr.read() if process.stderr else ''}")


def running(repo: Path, *turns: dict[str, object]) -> subprocess.Popen[str]:
    """A goal in a process of its own that prints its journal."""
    return start("run", "x", "-m", script(repo.parent, *turns), "--judge", "none", "--json", "--allow", "shell", cwd=repo)


def test_the_first_interrupt_pauses_and_nothing_is_lost(repo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ctrl-C while the model is asked: paused, exit 75, the record whole; resume goes on from there."""
    process = running(repo, SLOW)
    until(process, "assistant.turn_start")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (exits.LATER, "pausing; once more cancels the goal\n")
    assert "paused (user)" in call(capsys, "show").out
    assert call(capsys, "verify").code == exits.OK
    (repo.parent / "script0.json").write_text(json.dumps({"turn": [EDIT, DONE]}))
    assert call(capsys, "resume", "-q").code == exits.CLAIMED


def test_the_second_interrupt_cancels_with_everything_that_runs(repo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A running command outlives the pause, the second Ctrl-C ends it and the goal, exit 130."""
    process = running(repo, SLEEP)
    until(process, "tool.execution_start")
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    assert process.stderr.readline() == "pausing; once more cancels the goal\n"
    time.sleep(ONE_WISH)  # sooner it would be an echo of the first
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == exits.CANCELLED
    ended = [json.loads(line) for line in out.splitlines()]
    assert [event["data"]["error"]["code"] for event in ended if event["type"] == "tool.execution_complete"] == ["cancelled"]
    assert "cancelled" in call(capsys, "ps").out


def test_a_terminated_process_pauses_its_goal(repo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """SIGTERM pauses like Ctrl-C and says so in the journal."""
    process = running(repo, SLOW)
    until(process, "assistant.turn_start")
    process.terminate()
    process.communicate(timeout=30)
    assert process.returncode == exits.LATER
    assert "paused (shutdown)" in call(capsys, "show").out


def test_another_process_is_told(repo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """show names who drives a goal, resume does not take it away, and pause and cancel reach the process that does."""
    process = running(repo, SLEEP)
    until(process, "tool.execution_start")
    assert f"driven by    process {process.pid}" in call(capsys, "show").out
    taken = call(capsys, "resume")
    assert (taken.code, f"process {process.pid} drives it already" in taken.err) == (exits.USAGE, True)
    assert f"process {process.pid} is told" in call(capsys, "pause").out
    until(process, "goal.paused")
    assert f"process {process.pid} is told" in call(capsys, "cancel").out
    process.communicate(timeout=30)
    assert process.returncode == exits.CANCELLED


def test_a_goal_that_waits_goes_on_when_somebody_answers_elsewhere(repo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With --wait it stays; the answer of another process wakes it."""
    model = script(repo.parent, ASK, PAINT, DONE)
    process = start("run", "x", "-m", model, "--judge", "none", "--json", "-w", "--deliverable", "colour.txt", cwd=repo)
    until(process, "goal.parked")
    assert f"process {process.pid} goes on" in call(capsys, "answer", "blue").out
    process.communicate(timeout=30)
    assert process.returncode == exits.OK


def test_a_killed_process_leaves_a_goal_that_can_be_resumed(repo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """After kill -9 the goal is listed and shown as left, its active time stands still, and resume takes it up."""
    process = running(repo, SLOW)
    until(process, "assistant.turn_start")
    process.kill()
    process.communicate(timeout=30)
    assert "working (left)" in call(capsys, "ps").out
    shown = call(capsys, "show").out
    assert shown.startswith("working (left)  x\n  why          its process is gone")
    assert "  next         endstop resume " in shown
    state = replay([decode(line.encode()) for line in call(capsys, "export").out.splitlines()])
    assert "active 0s of 4h" in view.spent(state, state.time + 3600, driven=False)
    assert "active 1h of 4h" in view.spent(state, state.time + 3600)
    (repo.parent / "script0.json").write_text(json.dumps({"turn": [EDIT, DONE]}))
    said = call(capsys, "resume", "-l", "turns=50")
    assert (said.code, "goes on      resumed by a person" in said.out, "of 50 ·" in said.out) == (exits.CLAIMED, True, True)


def test_a_reader_that_goes_away_does_not_stop_the_goal(repo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Standard output is closed after the first line: the goal is pursued to its end all the same."""
    process = running(repo, EDIT | {"delay": 0.2}, DONE)
    until(process, "session.start")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert (process.wait(timeout=30), process.stderr.read()) == (exits.CLAIMED, "")
    process.stderr.close()
    assert "done (claimed)" in call(capsys, "ps").out


def test_a_question_is_asked_and_answered_at_the_terminal(repo: Path) -> None:
    """At a terminal the goal waits there for the answer, shows the limits as bars, and ends verified."""
    arguments = ["run", "Paint it", "-m", script(repo.parent, ASK, PAINT, DONE), "--judge", "none", "--deliverable", "colour.txt"]
    screen, code = typed(arguments, [("own words)", "2\n")], repo)
    assert code == exits.OK
    assert "QUESTION     Which colour?" in screen
    assert "answer       blue (by " in screen
    assert "━━━" in screen
    assert "0 turns of 200 turns" in screen
    assert "done (verified)  Paint it" in screen


def test_a_permission_is_asked_whole_and_given_at_the_terminal(repo: Path) -> None:
    """A command with two lines is shown with both; what is neither yes nor no is asked again; yes lets it run once."""
    command = turn("", ("shell", {"command": "echo one > a.txt\necho two >> a.txt"}))
    arguments = ["run", "x", "-m", script(repo.parent, command, DONE), "--judge", "none", "--mode", "ask", "-q"]
    screen, code = typed(arguments, [("end the turn)", "hm\n"), ("neither yes nor no", "yes\n")], repo)
    assert code == exits.CLAIMED
    assert "command: echo one > a.txt\n               echo two >> a.txt" in screen
    assert (repo / "a.txt").read_text() == "one\ntwo\n"


def test_what_was_asked_before_is_asked_again_at_the_terminal(repo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A permission that waited since an earlier run is shown by resume, and given there."""
    (repo / "endstop.toml").write_text('[permissions]\nhumans = "park"\nmode = "ask"\n')
    assert call(capsys, "run", "x", "-m", script(repo.parent, EDIT, DONE), "--judge", "none").code == exits.LATER
    screen, code = typed(["resume"], [("end the turn)", "yes\n")], repo)
    assert (code, "path: calc.py" in screen, "done (claimed)" in screen) == (exits.CLAIMED, True, True)


def test_a_permission_is_given_from_another_terminal(repo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """answer asks at a terminal when it is not told the answer, and records who gave it."""
    (repo / "endstop.toml").write_text('[permissions]\nhumans = "park"\nmode = "ask"\n')
    call(capsys, "run", "x", "-m", script(repo.parent, EDIT, DONE), "--judge", "none")
    screen, code = typed(["answer"], [("end the turn)", "yes\n")], repo)
    assert (code, "go on with: endstop resume" in screen) == (exits.OK, True)
    assert call(capsys, "resume", "-q").code == exits.CLAIMED


def test_a_closed_terminal_pauses(repo: Path) -> None:
    """End of input while a question is open pauses the goal instead of waiting for nobody."""
    arguments = ["run", "x", "-m", script(repo.parent, ASK, DONE), "--judge", "none"]
    screen, code = typed(arguments, [("own words)", "\x04")], repo)
    assert (code, "paused (shutdown)" in screen) == (exits.LATER, True)


def test_a_dumb_terminal_gets_plain_lines(repo: Path) -> None:
    """TERM=dumb shows the course without bars."""
    arguments = ["run", "x", "-m", script(repo.parent, EDIT, DONE), "--judge", "none", "-g", GATE]
    screen, code = typed(arguments, [], repo, TERM="dumb")
    assert (code, "━" in screen, "  edit_file    ok" in screen) == (exits.OK, False, True)


def test_help_loads_nothing_heavy() -> None:
    """--help and --version need neither the store, nor the models, nor rich."""
    code = (
        "import sys, endstop.cli.main as command_line\ntry: command_line.main(['--help'])\nexcept SystemExit: print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "typer" in loaded
    assert not loaded & {"msgspec", "sqlalchemy", "aiohttp", "rich", "asyncio", "endstop.assemble", "endstop.settings"}
