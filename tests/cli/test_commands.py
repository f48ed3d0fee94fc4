"""Commands around goals: lists, pages, the record, init, doctor; and what is said of wrong input."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import typer.main

from endstop import settings
from endstop.cli import demo, exits, here
from endstop.cli import init as templates
from endstop.cli import main as command_line
from tests.cli.server import serving
from tests.cli.terminal import DONE, EDIT, GATE, call, repository, script

Terminal = pytest.CaptureFixture[str]
SECRET = "sk-0123456789-secret"
COMMANDS = typer.main.get_group(command_line.app).commands
DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository to stand in."""
    folder = repository(tmp_path / "repo")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def done(repo: Path, capsys: Terminal) -> Path:
    """A repository in which a goal was verified."""
    model = script(repo.parent, EDIT, DONE)
    assert call(capsys, "run", "Make add() add", "-m", model, "--judge", "none", "-g", GATE, "-q").code == exits.OK
    return repo


# --------------------------------------------------------------------------------------------------------------- looking


def test_goals_are_listed_with_how_they_stand(done: Path, capsys: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """ps lists this folder's goals, --all and -a those of every folder; verified and claimed do not look alike."""
    call(capsys, "run", "Again", "-m", script(done.parent, DONE), "--judge", "none")
    lines = call(capsys, "ps").out.splitlines()
    assert [line[14:30].strip() for line in lines[1:]] == ["done (claimed)", "done (verified)"]
    assert lines[2].endswith("[SCRIPTED] Make add() add")
    monkeypatch.chdir(done.parent)
    assert call(capsys, "ps").out == "no goals\n"
    assert str(done)[:20] in call(capsys, "ps", "--all").out
    assert call(capsys, "ps", "-a").out.count("\n") == 3


def test_turns_are_one_line_each(done: Path, capsys: Terminal) -> None:
    """show --turns has tokens, cost, outcome and tools of every turn."""
    lines = call(capsys, "show", "--turns").out.splitlines()
    assert re.sub(" +", " ", lines[1]).strip() == "1 work 900 40 0.00 usd ok edit_file"
    assert len(lines) == 4


def test_events_are_one_line_each(done: Path, capsys: Terminal) -> None:
    """show --events has as many lines as the journal, each with number, time, type and data."""
    lines = call(capsys, "show", "--events").out.splitlines()
    assert len(lines) == call(capsys, "export").out.count("\n")
    assert re.match(r" +2 \d\d:\d\d:\d\d goal.queued +goalId=", lines[1])


def test_a_goal_is_shown_by_the_beginning_of_its_id(done: Path, capsys: Terminal) -> None:
    """Any beginning of an id names its goal; none, or several that fit, are told."""
    id_ = call(capsys, "ps").out.splitlines()[1][:13]
    assert call(capsys, "show", id_).out == call(capsys, "show").out
    assert "no stall rule has spoken" in call(capsys, "show", id_, "--stall").out
    assert call(capsys, "show", "zzz").code == exits.USAGE
    call(capsys, "run", "Again", "-m", script(done.parent, DONE), "--judge", "none")
    assert "several" in call(capsys, "show", id_[:2]).err


def test_a_terminal_cannot_be_steered_by_what_a_model_says(repo: Path, capsys: Terminal) -> None:
    """Escape sequences from outside are shown as dots, in the course and on every page."""
    evil = {"text": "\x1b[2J\x1b]0;gone\x07 hello\r\nsecond", "usage": {"input": 1, "output": 1}}
    said = call(capsys, "run", "What\x1b[31m is it?", "-m", script(repo.parent, evil))
    assert "·[2J·]0;gone· hello second" in said.out
    pages = [said.out, *(call(capsys, "show", *page).out for page in ([], ["--events"], ["--turns"])), call(capsys, "ps").out]
    assert not any("\x1b" in page or "\x07" in page for page in pages)


# ------------------------------------------------------------------------------------------------------------ the record


def test_a_record_verifies_in_the_store_and_as_a_file(done: Path, capsys: Terminal) -> None:
    """verify says ok with the number of events and the head; an exported file says the same."""
    said = call(capsys, "verify")
    assert re.fullmatch(r"verify: ok \(\d+ events, head [0-9a-f]{8}…\)\n", said.out)
    assert call(capsys, "export", "-o", "../journal.jsonl").out.endswith("events to ../journal.jsonl\n")
    assert call(capsys, "export", "--output", "../journal.jsonl").code == exits.OK
    filed = call(capsys, "verify", "../journal.jsonl")
    assert (filed.code, filed.out.splitlines()[0]) == (exits.OK, said.out.strip())
    assert "no head is remembered" in filed.out


def test_a_changed_record_is_seen(done: Path, capsys: Terminal, home: Path) -> None:
    """One changed byte, in a file or in the database, makes verify exit 1 with the first bad event."""
    call(capsys, "export", "-o", "j.jsonl")
    text = Path("j.jsonl").read_text()
    Path("j.jsonl").write_text(text.replace('"a + b"', '"a * b"', 1))
    bad = call(capsys, "verify", "./j.jsonl")
    assert bad.code == exits.FAILED
    assert re.match(r"verify: tampered at event \d+: ", bad.out)
    Path("j.jsonl").write_text(text[:-40])
    assert "torn_tail" in call(capsys, "verify", "j.jsonl").out
    database = sqlite3.connect(home / "endstop/endstop.db", isolation_level=None)
    seq, line = next(row for row in database.execute("SELECT seq, line FROM events ORDER BY seq") if b"a + b" in row[1])
    database.execute("UPDATE events SET line = ? WHERE seq = ?", (line.replace(b"a + b", b"a * b"), seq))
    database.close()
    assert call(capsys, "verify").out.startswith(f"verify: tampered at event {seq}: ")
    assert f"record       TAMPERED at event {seq}" in call(capsys, "show").out


# --------------------------------------------------------------------------------------------------------- init, doctor


def test_init_proposes_and_switches_nothing_on(repo: Path, capsys: Terminal) -> None:
    """The file it writes sets nothing; each test command it finds stands there as a comment."""
    (repo / "package.json").write_text('{"scripts": {"test": "jest"}}')
    (repo / "Makefile").write_text("test:\n\ttrue\n")
    (repo / "Cargo.toml").touch()
    (repo / "go.mod").touch()
    (repo / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    said = call(capsys, "init")
    text = (repo / "endstop.toml").read_text()
    assert tomllib.loads(text) == {}
    for command in ("python -m pytest -q", "npm test", "cargo test", "go test ./...", "make test"):
        assert f'#run = "{command}"' in text
        assert f"found {command}" in said.out
    assert settings.load(cwd=repo, environ={"HOME": str(repo)}).contract.gates == []


def test_init_never_overwrites_unasked(repo: Path, capsys: Terminal) -> None:
    """A file that is there stays, unless --force; a link is not followed."""
    (repo / "endstop.toml").write_text("retry = 1\n")
    refused = call(capsys, "init")
    assert (refused.code, "--force" in refused.err) == (exits.USAGE, True)
    assert (repo / "endstop.toml").read_text() == "retry = 1\n"
    assert call(capsys, "init", "--force").code == exits.OK
    (repo / "endstop.toml").unlink()
    (repo / "endstop.toml").symlink_to(repo.parent / "elsewhere")
    assert call(capsys, "init", "--force").code == exits.USAGE
    assert not (repo.parent / "elsewhere").exists()


def test_every_setting_of_the_template_can_be_uncommented(repo: Path, capsys: Terminal) -> None:
    """Without its comment signs the template is a settings file that is read, and it names every key of a project."""
    call(capsys, "init")
    text = re.sub(r"^#(?=[a-z\[])", "", (repo / "endstop.toml").read_text(), flags=re.MULTILINE)
    (repo / "endstop.toml").write_text(text)
    found = settings.load(cwd=repo, environ={"HOME": str(repo)})
    assert {key.partition(".")[0] for key in found.origin} == set(settings.Given.__struct_fields__) - {
        "objective",
        "home",
        "mcp_config",
    }


@pytest.mark.parametrize(
    ("text", "there"), [('{"scripts": {"test": "echo \\"Error: no test specified\\""}}', False), ("{}", False)]
)
def test_a_missing_npm_test_is_not_proposed(tmp_path: Path, text: str, there: bool) -> None:
    """What npm writes where there are no tests is no gate."""
    (tmp_path / "package.json").write_text(text)
    assert bool(templates.detect(tmp_path)) is there


def test_the_doctor_says_what_works(repo: Path, capsys: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part of the machine has a line; a key is there or not, and never shown."""
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    (repo / "endstop.toml").write_text('model = "openai:gpt-5"\n')
    said = call(capsys, "doctor")
    assert said.code == exits.OK
    for name in ("python", "settings", "state", "database", "sandbox", "git", "model"):
        assert re.search(rf"^(ok|NOTE) +{name} ", said.out, re.MULTILINE), name
    assert str(repo / "endstop.toml") in said.out
    assert "its key is there" in said.out
    assert SECRET not in said.out
    monkeypatch.delenv("OPENAI_API_KEY")
    missing = call(capsys, "doctor")
    assert (missing.code, "set OPENAI_API_KEY" in missing.out) == (exits.FAILED, True)


def test_the_doctor_asks_a_model_only_when_told(repo: Path, capsys: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """--ask finds a server that does not answer; without it nothing is sent."""
    monkeypatch.setenv("ENDSTOP_MODEL", "ollama:x")
    monkeypatch.setenv("OLLAMA_BASE_URL", "http://127.0.0.1:1/v1")
    assert call(capsys, "doctor").code == exits.OK
    asked = call(capsys, "doctor", "--ask")
    assert (asked.code, "nothing listens at 127.0.0.1:1\n" in asked.out) == (exits.FAILED, True)


def test_the_doctor_looks_at_a_model_that_is_named(repo: Path, capsys: Terminal) -> None:
    """-m stands in for the configured model, and is asked with --ask."""
    with serving("ok") as server, pytest.MonkeyPatch.context() as environment:
        environment.setenv("OLLAMA_BASE_URL", server.url)
        said = call(capsys, "doctor", "-m", "ollama:tiny", "--ask")
        assert (said.code, "ollama:tiny (command line), it answers: ok" in said.out) == (exits.OK, True)


def test_the_doctor_finds_what_is_broken(repo: Path, capsys: Terminal, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that is none, a home that cannot be made, settings that cannot be read: BAD, with a remedy, exit 1."""
    (home / "endstop").mkdir()
    (home / "endstop/endstop.db").write_text("not a database at all")
    assert re.search("^BAD +database ", call(capsys, "doctor").out, re.MULTILINE)
    (home / "file").touch()
    monkeypatch.setenv("ENDSTOP_HOME", str(home / "file/below"))
    broken = call(capsys, "doctor")
    assert (broken.code, "ENDSTOP_HOME" in broken.out) == (exits.FAILED, True)
    (repo / "endstop.toml").write_text("modle = 1\n")
    assert "did you mean model?" in call(capsys, "doctor").out


# ----------------------------------------------------------------------------------------------------------- wrong input

WRONG = {
    ("run",): "Missing argument",
    ("run", "  "): "there is no objective",
    ("run", "x"): "no model is chosen",
    ("run", "x", "-m", "nobody:x"): "unknown provider",
    ("run", "x", "-m", "openai:gpt-5"): "set OPENAI_API_KEY",
    ("run", "x", "-m", "scripted:missing.toml"): "cannot read the script",
    ("run", "missing.toml"): "there is no such file",
    ("run", "x", "-l", "cots=1"): "did you mean cost?",
    ("run", "x", "-l", "cost=1eur"): "cost=2usd",
    ("run", "x", "-C", "missing"): "is not a folder",
    ("run", "x", "--confront", "maybe"): "once, always, never",
    ("run", "x", "--mode", "yol"): "permissions.mode: unknown value 'yol'\n  hint: one of plan, ask, auto, yolo",
    ("run", "x", "--report", "x.txt"): "neither .md nor .json",
    ("run", "x", "--report", "missing/x.md"): "cannot be written",
    ("run", "x", "--protect", "flag", "--protect", "refuse"): "name one of them",
    ("run", "x", "--bogus"): "No such option",
    ("rnu", "x"): "Did you mean 'run'?",
    ("show", "--turns", "--events"): "two pages",
    ("show",): "no goal was begun in this folder",
    ("resume",): "no goal was begun in this folder",
    ("answer", "yes"): "no goal was begun in this folder",
    ("verify", "missing/file"): "there is no such file",
    ("verify", "missing.jsonl"): "missing.jsonl: there is no such file",
    ("doctor", "--ask"): "there is no model to ask",
    ("export", "-o", "missing/file"): "no such folder",
    ("init", "-C", "missing"): "is not a folder",
}


@pytest.mark.parametrize("arguments", WRONG, ids=" ".join)
def test_wrong_input_is_told_in_words(repo: Path, capsys: Terminal, arguments: tuple[str, ...]) -> None:
    """What cannot be used is said on standard error with a remedy, exit 2, and nothing was begun."""
    said = call(capsys, *arguments)
    assert (said.code, said.out) == (exits.USAGE, "")
    assert WRONG[arguments] in said.err
    assert "Traceback" not in said.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("-g", "nosuchcommand"), "is not found"),
        (("-g", "pytest || true"), "hides the exit status"),
        (("--judge", "nobody"), "names no provider"),
        (("--allow", "shell("), "no permission rule"),
        (("-m", "openai:never-heard-of", "-l", "cost=1usd"), "price"),
    ],
)
def test_an_order_that_cannot_be_kept_begins_nothing(
    repo: Path, capsys: Terminal, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], words: str
) -> None:
    """A gate, judge, rule or limit that could not do its work is refused before a session exists."""
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("ENDSTOP_MODEL", script(repo.parent, DONE))
    said = call(capsys, "run", "x", *options)
    assert (said.code, words in said.err) == (exits.USAGE, True)
    assert call(capsys, "ps").out == "no goals\n"


def test_a_broken_home_is_told(repo: Path, capsys: Terminal, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that cannot be read and a home that cannot be made are one line and a hint."""
    (home / "endstop").mkdir()
    (home / "endstop/endstop.db").write_text("not a database at all")
    broken = call(capsys, "ps")
    assert (broken.code, "cannot be read" in broken.err, broken.err.count("\n")) == (exits.FAILED, True, 2)
    (home / "file").touch()
    monkeypatch.setenv("ENDSTOP_HOME", str(home / "file/below"))
    nowhere = call(capsys, "run", "x", "-m", script(repo.parent, DONE))
    assert (nowhere.code, "ENDSTOP_HOME" in nowhere.err) == (exits.USAGE, True)


def test_a_folder_that_is_gone_is_told(tmp_path: Path, capsys: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command typed in a deleted folder says so."""
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    assert "the current folder is gone" in call(capsys, "ps").err


def test_a_defect_leaves_its_traceback_in_a_file(
    repo: Path, capsys: Terminal, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unexpected error is one line that says it is ours and where its traceback is, without secrets; exit 1."""
    monkeypatch.setenv("SOME_API_KEY", SECRET)

    def broken(name: str) -> None:
        raise RuntimeError(f"no {name} with {SECRET}")

    monkeypatch.setattr(command_line, "import_module", broken)
    said = call(capsys, "ps")
    assert said.code == exits.FAILED
    assert "defect of Endstop: RuntimeError" in said.err
    assert "Traceback" not in said.err
    files = list((home / "endstop/crash").iterdir())
    text = files[0].read_text()
    assert str(files[0]) in said.err
    assert (files[0].stat().st_mode & 0o777, "Traceback" in text) == (0o600, True)
    assert SECRET not in text + said.err
    (home / "file").touch()
    monkeypatch.setenv("ENDSTOP_HOME", str(home / "file"))
    assert "could not be written" in call(capsys, "ps").err


def test_an_error_that_nobody_waits_for_is_kept_too(repo: Path, capsys: Terminal, home: Path) -> None:
    """What fails in the background of a command reaches no terminal as a traceback, but a file."""

    async def work() -> int:
        asyncio.get_running_loop().call_soon(lambda: 1 // 0)
        await asyncio.sleep(0)
        return 7

    assert here.run(work()) == 7
    err = capsys.readouterr().err
    assert ("defect of Endstop: ZeroDivisionError" in err, "Traceback" in err) == (True, False)
    assert len(list((home / "endstop/crash").iterdir())) == 1


def test_an_interrupt_before_anything_runs_is_a_cancel(capsys: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while a command is still loading exits 130 without a word."""

    def interrupted(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command_line, "import_module", interrupted)
    assert call(capsys, "ps") == (exits.CANCELLED, "", "")


# ------------------------------------------------------------------------------------------------------------------ whole


def test_version_and_help(capsys: Terminal) -> None:
    """--version prints it; --help and -h name every command."""
    assert re.fullmatch(r"endstop \d+\.\d+\.\d+\n", call(capsys, "--version").out)
    assert all(f"\n  {name} " in call(capsys, "--help").out for name in COMMANDS)
    assert call(capsys, "-h").out == call(capsys, "--help").out
    assert "--gate" in call(capsys, "run", "--help").out


def spellings(command: object) -> list[list[str]]:
    """The spellings of each option of a command."""
    return [parameter.opts for parameter in command.params if parameter.opts[0].startswith("-")]  # type: ignore[attr-defined]


def test_every_command_and_option_is_documented() -> None:
    """docs/cli.md names every command, and every spelling of every option."""
    page = (DOCS / "cli.md").read_text()
    for name, command in COMMANDS.items():
        assert f"| `{name}` |" in page
        for options in spellings(command):
            for option in options:
                assert re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", page), (name, option)


def test_every_command_and_option_is_used_in_a_test() -> None:
    """No command and no option is there that no test of these types."""
    text = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    words = set(re.findall(r'"(-{0,2}[a-zA-Z][\w-]*)"', text))
    assert set(COMMANDS) <= words
    for name, command in COMMANDS.items():
        for options in spellings(command):
            assert set(options) & words, (name, options)


def test_the_demo_shows_a_verified_goal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """demo needs no key and ends verified, with a record that verifies."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2] / "src"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with pytest.raises(SystemExit) as ended:
        command_line.main(["demo"])
    out, _ = capfd.readouterr()
    assert (ended.value.code, "done (verified)" in out, "SCRIPTED" in out, "verify: ok" in out) == (exits.OK, True, True, True)
    look, away = (re.search(rf"^{label}: +(.*?)(?:  |$)", out, re.MULTILINE) for label in ("Look around", "Clear it away"))
    assert look is not None
    assert away is not None
    turns = subprocess.run(look[1], shell=True, capture_output=True, text=True, check=True).stdout
    assert "task_complete" in turns
    subprocess.run(away[1], shell=True, check=True)
    assert list(tmp_path.glob("endstop-demo-*")) == []


def test_hints_name_the_command_that_was_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its name only where a shell finds just that one; else by the way to it."""
    for folder in ("a b", "other"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "endstop").touch(0o755)
    started = str(tmp_path / "a b/endstop")
    monkeypatch.setenv("PATH", str(tmp_path / "other"))
    assert demo.typed(started) == f"'{started}'"
    monkeypatch.setenv("PATH", str(tmp_path / "a b"))
    assert demo.typed(started) == "endstop"
    assert demo.typed("/x/endstop/__main__.py") == f"{sys.executable} -m endstop"
