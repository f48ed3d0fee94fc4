"""chat: conversations through a pipe and at a terminal, as real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from endstop.cli import exits
from tests.cli.server import serving
from tests.cli.terminal import ASK, EDIT, GATE, PAINT, call, repository, script, source, turn, typed

HELLO = turn("Hello, I can hear you.")
PUSH = turn("", ("shell", {"command": "echo pushed > pushed.txt"}))


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository to stand in."""
    folder = repository(tmp_path / "repo")
    monkeypatch.chdir(folder)
    return folder


def piped(repo: Path, text: str, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Type a conversation into a pipe."""
    command = [sys.executable, "-m", "endstop", "chat", *arguments]
    env = {**os.environ, "PYTHONPATH": source(), **environ}
    return subprocess.run(command, cwd=repo, env=env, input=text, capture_output=True, text=True, timeout=60, check=False)


def listed(capsys: pytest.CaptureFixture[str]) -> str:
    """The id of the newest session here."""
    return call(capsys, "ps").out.splitlines()[1].split()[0]


def test_through_a_pipe_only_the_words_are_on_standard_output(repo: Path) -> None:
    """Each line is answered in turn; tools and notes stand on standard error; a backslash joins lines."""
    model = script(repo.parent, EDIT, turn("Done."), turn("You are welcome."))
    said = piped(repo, "please \\\ncorrect it\n\nthank you\n", "-m", model)
    assert (said.returncode, said.stdout) == (exits.OK, "I correct the sign.\nDone.\nYou are welcome.\n")
    assert "edit_file    ok calc.py" in said.stderr
    assert "SCRIPTED" in said.stderr
    assert "a + b" in (repo / "calc.py").read_text()


def test_words_arrive_as_a_stream_from_a_server(repo: Path) -> None:
    """The model is asked with the whole conversation, as a stream, and its words are printed."""
    with serving("one two three", "four") as server:
        said = piped(repo, "count\nmore\n", "-m", "ollama:x", OLLAMA_BASE_URL=server.url)
    assert (said.returncode, said.stdout) == (exits.OK, "one two three \nfour \n")
    assert [request["stream"] for request in server.requests] == [True, True]
    assert [message["role"] for message in server.requests[1]["messages"]] == ["system", "user", "assistant", "user"]


def test_a_question_is_answered_by_the_next_line(repo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A number is the option; without an answer the conversation waits, exit 75, and is taken up by its id."""
    model = script(repo.parent, ASK, PAINT, turn("It is blue."))
    said = piped(repo, "paint it\n2\n", "-m", model)
    assert (said.returncode, said.stdout) == (exits.OK, "It is blue.\n")
    assert "QUESTION     Which colour?" in said.stderr
    assert (repo / "colour.txt").read_text() == "blue"
    waits = piped(repo, "paint it\n", "-m", model)
    assert waits.returncode == exits.LATER
    id_ = listed(capsys)
    assert f"endstop chat {id_}" in waits.stderr
    goes_on = piped(repo, "blue\n", id_)
    assert (goes_on.returncode, goes_on.stdout) == (exits.OK, "It is blue.\n")


def test_a_pipe_gives_no_permission(repo: Path) -> None:
    """What asks is refused where nobody can be asked; one that was left open is not given by a line."""
    model = script(repo.parent, PUSH, turn("I may not."))
    said = piped(repo, "push\n", "-m", model, "--mode", "ask")
    assert (said.returncode, said.stdout, (repo / "pushed.txt").exists()) == (exits.OK, "I may not.\n", False)
    (repo / "endstop.toml").write_text('[permissions]\nhumans = "park"\n')
    refused = piped(repo, "push\nyes\n", "-m", model, "--mode", "ask")
    assert (refused.returncode, "given at a terminal only" in refused.stderr) == (exits.USAGE, True)
    assert not (repo / "pushed.txt").exists()


def test_a_full_limit_and_a_model_that_fails_are_exit_codes(repo: Path) -> None:
    """The last round decides: 4 for a limit, 1 for a model that cannot be asked."""
    looks = [turn("", ("read_file", {"path": "calc.py"})), HELLO]
    capped = piped(repo, "look\n", "-m", script(repo.parent, *looks), "-l", "turns=1")
    assert (capped.returncode, "turns" in capped.stderr) == (exits.CAPPED, True)
    with serving("the key is wrong", status=401) as server:
        failed = piped(repo, "hi\n", "-m", "ollama:x", OLLAMA_BASE_URL=server.url)
    assert (failed.returncode, failed.stdout, "the key is wrong" in failed.stderr) == (exits.FAILED, "", True)


def test_an_ended_goal_is_talked_about_and_stays_ended(repo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """chat takes up a goal's session after its end; one that has not ended is not taken."""
    model = script(repo.parent, EDIT, turn("", ("task_complete", {"summary": "adds"}), repeat=2), turn("Because of the sign."))
    assert call(capsys, "run", "Make it add", "-m", model, "--judge", "none", "-g", GATE, "-q").code == exits.OK
    id_ = listed(capsys)
    said = piped(repo, "why?\n", id_)
    assert (said.returncode, said.stdout) == (exits.OK, "Because of the sign.\n")
    assert "done (verified)" in call(capsys, "ps").out
    assert call(capsys, "verify", id_).code == exits.OK
    call(capsys, "run", "Paint", "-m", script(repo.parent, ASK), "--judge", "none", "-q")
    refused = call(capsys, "chat", listed(capsys))
    assert (refused.code, "its goal has not ended" in refused.err) == (exits.USAGE, True)


def test_a_permission_is_given_after_a_goals_end(repo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is asked in the conversation after a goal's end can be allowed, and then runs."""
    (repo / "endstop.toml").write_text('[permissions]\nmode = "ask"\n')
    model = script(repo.parent, turn("Nothing to do."), PUSH, turn("Pushed."))
    call(capsys, "run", "Anything?", "-m", model, "--judge", "none", "-q")
    screen, code = typed(["chat", listed(capsys)], [("> ", "push\n"), ("end the turn)", "yes\n"), ("Pushed.", "\x04")], repo)
    assert (code, "PERMISSION   shell" in screen, (repo / "pushed.txt").exists()) == (exits.OK, True, True)


def test_at_a_terminal_one_talks_and_leaves_with_control_d(repo: Path) -> None:
    """The prompt, the words, what was spent, and how to go on."""
    screen, code = typed(["chat", "-m", script(repo.parent, HELLO)], [("leaves.", "hello\n"), ("usd]", "\x04")], repo)
    assert code == exits.OK
    assert "Hello, I can hear you." in screen
    assert "[1 turn " in screen
    assert "go on with: endstop chat " in screen


def test_control_c_interrupts_the_round_and_the_talk_goes_on(repo: Path) -> None:
    """The running command is stopped, the next message is answered; at the prompt the second Ctrl-C leaves."""
    model = script(repo.parent, turn("Just a moment.", ("shell", {"command": "sleep 60"})), HELLO)
    answers = [("leaves.", "go\n"), ("moment.", "\x03"), ("interrupted", "hi\n"), ("hear you.", "")]
    answers += [("usd]", "\x03"), ("once more", "\x03")]
    screen, code = typed(["chat", "-m", model, "--allow", "shell"], answers, repo)
    assert (code, "leaves)" in screen, "go on with: endstop chat" in screen) == (exits.OK, True, True)


def test_a_terminated_conversation_ends_in_good_order(repo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """SIGTERM interrupts what runs and lets the session go; its record verifies."""
    model = script(repo.parent, turn("Just a moment.", ("shell", {"command": "sleep 60"})), HELLO)
    command = [sys.executable, "-m", "endstop", "chat", "-m", model, "--allow", "shell"]
    env = {**os.environ, "PYTHONPATH": source()}
    process = subprocess.Popen(command, cwd=repo, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("work\n")
    process.stdin.flush()
    assert process.stdout.readline() == "Just a moment.\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == exits.OK
    assert json.loads(call(capsys, "export", listed(capsys)).out.splitlines()[-1])["type"] == "session.shutdown"


def test_what_a_session_keeps_cannot_be_given_again(repo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Model, limits and permissions are the session's own; without a model nothing begins."""
    for flags in (["-m", "ollama:x"], ["-l", "turns=3"], ["--deny", "shell"], ["--network"]):
        said = call(capsys, "chat", "0", *flags)
        assert (said.code, "a session keeps its" in said.err) == (exits.USAGE, True)
    assert "no model is chosen" in call(capsys, "chat").err
    assert "no session has this id" in call(capsys, "chat", "zzz").err
    assert call(capsys, "ps").out == "no goals\n"


def test_without_standard_input_there_is_nothing_to_say(repo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A closed standard input is the end at once; a conversation in which nobody spoke is not listed."""
    line = f'"{sys.executable}" -m endstop chat -m "{script(repo.parent, HELLO)}" <&-'
    env = {**os.environ, "PYTHONPATH": source()}
    done = subprocess.run(["bash", "-c", line], cwd=repo, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (exits.OK, "")
    assert call(capsys, "ps").out == "no goals\n"


def test_no_secret_becomes_the_title_of_a_conversation(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is typed is listed and kept without the values of keys."""
    monkeypatch.setenv("SOME_API_KEY", "sk-0123456789-secret")
    piped(repo, "use sk-0123456789-secret\n", "-m", script(repo.parent, HELLO))
    listing = subprocess.run(
        [sys.executable, "-m", "endstop", "ps"],
        cwd=repo,
        env={**os.environ, "PYTHONPATH": source()},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ("use [" in listing.stdout, "sk-0123456789" in listing.stdout) == (True, False)
