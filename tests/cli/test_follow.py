"""Goals of other processes: handed over, followed, watched, spoken to. Real processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from endstop.cli import exits
from tests.cli.terminal import ASK, DONE, EDIT, GATE, PAINT, call, repository, script, start, turn, typed

Terminal = pytest.CaptureFixture[str]
SLOW = turn("", ("shell", {"command": "sleep 60"}))
PATIENCE = 30.0


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: Path) -> Iterator[Path]:
    """A repository to stand in; residents that a test leaves behind are ended."""
    folder = repository(tmp_path / "repo")
    monkeypatch.chdir(folder)
    yield folder
    for log in (home / "endstop/resident").glob("*.log"):
        for pid in re.findall(r"process (\d+)", (tmp_path / f"{log.stem}.said").read_text()):
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                continue


def detached(repo: Path, *turns: dict[str, object], arguments: tuple[str, ...] = ()) -> tuple[str, int]:
    """Hand a goal over: its id, and the process that drives it."""
    model = script(repo.parent, *turns)
    process = start("run", "Make add() add", "-m", model, "--judge", "none", "--allow", "shell", "-d", *arguments, cwd=repo)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out.count("\n")) == (exits.OK, 1), err
    (repo.parent / f"{out.strip()}.said").write_text(err)
    return out.strip(), int(re.search(r"process (\d+)", err)[1])  # type: ignore[index]


def followed(id: str, repo: Path) -> str:
    """Everything that logs -f prints until nobody drives the goal."""
    process = start("logs", id, "-f", cwd=repo)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == exits.OK, err
    return out + err


def test_a_detached_goal_goes_on_alone_and_is_followed(repo: Path, capsys: Terminal, home: Path) -> None:
    """run -d prints the id and returns; the resident ends the goal verified, writes its report, and logs -f saw it."""
    id_, _ = detached(repo, EDIT | {"delay": 0.5}, DONE, arguments=("-g", GATE, "--report", "report.xml"))
    said = followed(id_, repo)
    assert re.search(r"^\d\d:\d\d:\d\d  edit_file    ok calc.py", said, re.MULTILINE)
    assert said.endswith("ended        done (verified)\nit is done (verified); nobody drives it\n")
    assert "done (verified)" in (home / f"endstop/resident/{id_}.log").read_text()
    assert (home / f"endstop/resident/{id_}.log").stat().st_mode & 0o777 == 0o600
    assert 'failures="0"' in (repo / "report.xml").read_text()
    assert "after a crash" not in said


def test_a_resident_survives_its_terminal_and_stays_for_an_answer(repo: Path, capsys: Terminal) -> None:
    """It is in a session of its own; ps names its process; a question is waited out there, and answered from here."""
    id_, pid = detached(repo, ASK, PAINT, DONE, arguments=("--deliverable", "colour.txt"))
    assert os.getsid(pid) == pid
    waiting = start("logs", id_, "-f", cwd=repo)
    assert waiting.stdout is not None
    assert any("waits        for question" in line for line in waiting.stdout)
    assert re.search(rf"^{id_} waiting \(question\) +\d+s +{pid}  ", call(capsys, "ps").out, re.MULTILINE)
    assert f"process {pid} goes on" in call(capsys, "answer", id_, "blue").out
    waiting.communicate(timeout=PATIENCE)
    assert "done (verified)" in call(capsys, "show", id_).out


def test_what_cannot_be_begun_is_told_before_anything_is_handed_over(repo: Path, capsys: Terminal, home: Path) -> None:
    """A wrong order is a usage error as ever; a detached goal prints no journal; a goal's own command may not detach."""
    model = script(repo.parent, DONE)
    assert call(capsys, "run", "x", "-m", model, "--detach", "-g", "nosuchcommand").code == exits.USAGE
    assert "prints nothing" in call(capsys, "run", "x", "-m", model, "--detach", "--json").err
    assert not (home / "endstop/resident").exists()


def test_a_goals_own_commands_may_not_speak_for_a_person(repo: Path, capsys: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inside a call of a goal, send, chat and detaching are refused."""
    monkeypatch.setenv("ENDSTOP_CALL", "abc")
    for arguments in (("send", "hi"), ("chat",), ("run", "x", "-m", script(repo.parent, DONE), "-d")):
        said = call(capsys, *arguments)
        assert (said.code, "may not" in said.err) == (exits.USAGE, True)


def test_attach_shows_a_goal_and_leaves_it_running(repo: Path, capsys: Terminal) -> None:
    """The live view of another process's goal; Ctrl-C leaves, the goal goes on; it can be paused from elsewhere."""
    id_, pid = detached(repo, SLOW)
    screen, code = typed(["attach", id_], [("runs", "\x03")], repo)
    assert (code, f"left; process {pid} goes on with {id_}" in screen) == (exits.OK, True)
    assert "driven by process" in screen
    assert "━━━" in screen
    assert f"driven by    process {pid}" in call(capsys, "show", id_).out
    call(capsys, "cancel", id_)
    assert "cancelled" in followed(id_, repo)


def test_attach_answers_and_ends_with_the_goal(repo: Path) -> None:
    """At a terminal, what the goal asks is answered in the view; its end is shown, and its exit code is attach's."""
    id_, _ = detached(repo, ASK, PAINT, DONE, arguments=("--deliverable", "colour.txt"))
    screen, code = typed(["attach", id_], [("own words)", "2\n")], repo)
    assert (code, "done (verified)  Make add() add" in screen) == (exits.OK, True)


def test_attach_wants_somebody_who_drives(repo: Path, capsys: Terminal) -> None:
    """A goal that nobody drives is not watched but resumed, and that is said."""
    call(capsys, "run", "x", "-m", script(repo.parent, ASK), "--judge", "none", "-q")
    said = call(capsys, "attach")
    assert (said.code, "nobody drives it" in said.err, "endstop resume" in said.err) == (exits.USAGE, True, True)


def test_logs_of_a_killed_process_end(repo: Path) -> None:
    """logs -f notices that the driver is gone without a word."""
    process = start("run", "x", "-m", script(repo.parent, SLOW), "--judge", "none", "--allow", "shell", "--json", cwd=repo)
    assert process.stdout is not None
    assert any('"tool.execution_start"' in line for line in process.stdout)
    following = start("logs", "-f", cwd=repo)
    assert following.stdout is not None
    following.stdout.readline()
    process.kill()
    process.communicate(timeout=PATIENCE)
    _, err = following.communicate(timeout=PATIENCE)
    assert err == "it is working (left); nobody drives it\n"


def test_a_message_reaches_a_goal_at_work(repo: Path, capsys: Terminal) -> None:
    """send hands it to the process that drives the goal, and the model is asked with it."""
    id_, pid = detached(repo, turn("", ("shell", {"command": "until test -e go; do sleep 0.1; done"})), EDIT, DONE)
    said = call(capsys, "send", id_, "the sign is wrong")
    assert (said.code, f"process {pid} hands it over" in said.out) == (exits.OK, True)
    (repo / "go").touch()
    assert "message      the sign is wrong" in followed(id_, repo)


def test_a_message_to_a_goal_nobody_drives_says_how_it_goes_on(repo: Path, capsys: Terminal) -> None:
    """It is kept, and read after resume; one to an ended goal is refused with the remedy; nothing is not sent."""
    call(capsys, "run", "Paint", "-m", script(repo.parent, ASK, PAINT, DONE), "--judge", "none", "-q", "-g", "test -e colour.txt")
    said = call(capsys, "send", "blue, please")
    assert (said.code, "nobody drives" in said.out, "endstop resume" in said.out) == (exits.OK, True, True)
    assert call(capsys, "resume", "-q").code == exits.OK
    assert "message      blue, please" in call(capsys, "logs").out
    ended = call(capsys, "send", "and now?")
    assert (ended.code, "endstop chat" in ended.err) == (exits.USAGE, True)
    assert "nothing to send" in call(capsys, "send", " ").err


def test_logs_without_follow_print_what_was(repo: Path, capsys: Terminal) -> None:
    """One line a thing with its time, the end last; nothing is waited for."""
    call(capsys, "run", "x", "-m", script(repo.parent, EDIT, DONE), "--judge", "none", "-q")
    lines = call(capsys, "logs").out.splitlines()
    assert all(re.match(r"\d\d:\d\d:\d\d  [a-z]", line) for line in lines)
    assert lines[-1].endswith("ended        done (claimed)")


def test_diff_is_what_was_last_seen(repo: Path, capsys: Terminal, home: Path) -> None:
    """diff prints the diff since the start, nothing for an untouched folder; the whole of it lies beside the journal."""
    call(capsys, "run", "x", "-m", script(repo.parent, turn("It subtracts.")), "-q")
    assert call(capsys, "diff") == (exits.OK, "", "")
    call(capsys, "run", "x", "-m", script(repo.parent, EDIT, DONE), "--judge", "none", "-q")
    said = call(capsys, "diff")
    assert (said.code, "-    return a - b\n+    return a + b\n" in said.out) == (exits.OK, True)
    patches = list((home / "endstop/sessions").glob("*/diff.patch"))
    assert len(patches) == 1
    assert patches[0].stat().st_mode & 0o777 == 0o600
    subprocess.run(["git", "checkout", "-q", "."], cwd=repo, check=True)
    subprocess.run(["git", "apply", str(patches[0])], cwd=repo, check=True)
    assert "a + b" in (repo / "calc.py").read_text()


def test_the_diff_is_kept_whatever_happened(repo: Path, capsys: Terminal, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A goal that is cut off by a limit, or parked, leaves its diff too, without secrets; undone work leaves none."""
    monkeypatch.setenv("SOME_API_KEY", "sk-0123456789-secret")
    leak = turn("", ("write_file", {"path": "leak.txt", "content": "sk-0123456789-secret\n"}))
    call(capsys, "run", "x", "-m", script(repo.parent, EDIT, leak, ASK), "--judge", "none", "-q")
    text = next((home / "endstop/sessions").glob("*/diff.patch")).read_text()
    assert ("a + b" in text, "leak.txt" in text, "sk-0123456789" in text) == (True, True, False)
    (repo / "late.txt").write_text("written after the process left\n")
    assert call(capsys, "cancel").code == exits.OK
    assert "late.txt" in next((home / "endstop/sessions").glob("*/diff.patch")).read_text()
