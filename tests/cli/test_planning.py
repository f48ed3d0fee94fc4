"""What is said before anything is begun, what can be asked of a goal besides, and what it cost."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from endstop.cli import exits, spend, worktree
from endstop.errors import UsageError
from tests.cli.server import serving
from tests.cli.terminal import DONE, EDIT, GATE, LOOP, call, repository, script, source, turn, typed

Terminal = pytest.CaptureFixture[str]
SECRET = "sk-0123456789-secret"


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository to stand in."""
    folder = repository(tmp_path / "repo")
    monkeypatch.chdir(folder)
    return folder


def git(repo: Path, *arguments: str) -> str:
    """What git says."""
    return subprocess.run(["git", *arguments], cwd=repo, check=True, capture_output=True, text=True).stdout


# --------------------------------------------------------------------------------------------------------------- dry run


def test_a_dry_run_says_what_would_happen_and_begins_nothing(repo: Path, capsys: Terminal, home: Path) -> None:
    """Gates, protected inputs, model, sandbox and limits are shown; no store, no session and no change is left."""
    (repo / "test_calc.py").write_text("assert True\n")
    model = script(repo.parent, DONE)
    options = ["-g", GATE, "--deliverable", "x.md", "-l", "turns=7", "--rubric", "short", "--fallback", "ollama:y"]
    said = call(capsys, "run", "Make add() add", "-m", model, *options, "--review", "human", "--dry-run")
    assert said.code == exits.OK
    assert said.out.startswith("DRY RUN: nothing is begun\n")
    for words in (f"gates        {GATE}", "deliverables x.md", "fallbacks    ollama:y", "turns 7", "rubric       short"):
        assert words in said.out
    assert "protected    1 files, a change returns the claim: test_calc.py" in said.out
    assert "review       a person accepts" in said.out
    assert not (home / "endstop").exists()
    assert git(repo, "status", "--porcelain") == "?? test_calc.py\n"


def test_a_dry_run_shows_what_modes_and_rules_say_to_calls(repo: Path, capsys: Terminal) -> None:
    """One row a call: each mode's word, and what decides it in the mode that holds; a rule without a tool is noted."""
    rules = ["--allow", "shell(npm *)", "--deny", "shell(git push *)", "--deny", "write_file(secret/**)", "--deny", "shel(x)"]
    said = call(capsys, "run", "x", "-m", script(repo.parent, DONE), "--mode", "ask", *rules, "--dry-run")
    rows = {line[2:34].strip(): line[34:].split() for line in said.out.splitlines() if "  deny " in line or "  allow " in line}
    assert rows["read_file README.md"] == ["allow", "allow", "allow", "allow", "mode", "ask"]
    assert rows["shell npm install"][:2] == ["deny", "allow"]
    assert rows["shell git push"] == ["deny"] * 4 + ["shell(git", "push", "*)"]
    assert rows["write_file secret/x"][:4] == ["deny"] * 4
    assert rows["shell ls -la"][1] == "ask"
    assert "[ask]" in said.out
    assert "the rule shel(x) names no tool there is" in said.out
    assert all(len(line) <= 80 for line in said.out.splitlines())


def test_a_dry_run_refuses_what_run_refuses(repo: Path, capsys: Terminal) -> None:
    """A gate or model that cannot be used is told with the same words."""
    model = script(repo.parent, DONE)
    assert "is not found" in call(capsys, "run", "x", "-m", model, "-g", "nosuchcommand", "--dry-run").err
    assert "no model is chosen" in call(capsys, "run", "x", "--dry-run").err


# -------------------------------------------------------------------------------------------------------------- worktrees


def test_a_goal_in_a_worktree_leaves_the_repository_alone(repo: Path, capsys: Terminal) -> None:
    """The work is in a branch beside it, with the words that take it over; those words work."""
    (repo / "notes.txt").write_text("not committed\n")
    model = script(repo.parent, EDIT, DONE)
    said = call(capsys, "run", "Make add() add", "-m", model, "--judge", "none", "-g", GATE, "--worktree", "-q")
    tree = repo.parent / "repo-make-add-add"
    assert said.code == exits.OK
    assert "a - b" in (repo / "calc.py").read_text()
    assert "a + b" in (tree / "calc.py").read_text()
    assert "1 changed or untracked files of the repository are not in it" in said.out
    commands = [line.strip() for line in said.out.splitlines() if line.startswith("    git ")]
    for command in commands[:2]:
        subprocess.run(["bash", "-ec", command], check=True, capture_output=True)
    assert "a + b" in (repo / "calc.py").read_text()
    for command in commands[2:]:
        subprocess.run(["bash", "-ec", command], check=True, capture_output=True)
    assert (tree.exists(), git(repo, "branch", "--list", "endstop/*")) == (False, "")


def test_worktrees_of_the_same_name_are_counted(repo: Path, capsys: Terminal) -> None:
    """A second goal with the same words has a tree of its own; a subfolder is worked in at its place."""
    (repo / "sub").mkdir()
    (repo / "sub/calc.py").write_text("a - b\n")
    git(repo, "add", ".")
    git(repo, "commit", "-qm", "sub")
    for name in ("repo-again", "repo-again-2"):
        arguments = ["-m", script(repo.parent, EDIT, DONE), "--judge", "none", "--worktree", "-q", "-C", "sub", "--json"]
        said = call(capsys, "run", "Again", *arguments)
        assert (said.code, f"branch endstop/{name[5:]}" in said.err.replace("\n               ", " ")) == (exits.CLAIMED, True)
        assert (repo.parent / name / "sub/calc.py").read_text() == "a + b\n"
        assert json.loads(said.out.splitlines()[0])["type"] == "session.start"


def test_an_order_that_is_refused_leaves_no_worktree(repo: Path, capsys: Terminal, tmp_path: Path) -> None:
    """Neither one refused before, nor one that only cannot be pursued in the new tree; and outside git there is none."""
    model = script(repo.parent, DONE)
    (repo / "new").mkdir()  # not committed: it is not in the tree
    for options in (("-g", "nosuchcommand"), ("-C", "new")):
        assert call(capsys, "run", "Try", "-m", model, *options, "--worktree").code == exits.USAGE
        assert (git(repo, "worktree", "list").count("\n"), git(repo, "branch", "--list", "endstop/*")) == (1, "")
    (tmp_path / "plain").mkdir()
    said = call(capsys, "run", "Try", "-m", model, "--worktree", "-C", str(tmp_path / "plain"))
    assert (said.code, "no commit to begin from" in said.err) == (exits.USAGE, True)


@pytest.mark.parametrize(
    ("objective", "name"),
    [("Make add() add", "make-add-add"), ("…", "goal"), ("x" * 60, "x" * 40), ("../../etc; rm -rf /", "etc-rm-rf")],
)
def test_a_worktree_is_named_by_its_goal(objective: str, name: str) -> None:
    """Words of letters and digits, short enough, nothing that leads elsewhere."""
    assert worktree._name(objective) == name


# ------------------------------------------------------------------------------------------- fallbacks, effort, humans


def test_a_fallback_and_the_effort_reach_the_models(repo: Path, capsys: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that refuses its key is followed by the next one; both are told how much to think, where they know it."""
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    with serving("the key is wrong", status=401) as broken, serving("It subtracts.") as sound:
        monkeypatch.setenv("OPENAI_BASE_URL", broken.url)
        monkeypatch.setenv("OLLAMA_BASE_URL", sound.url)
        arguments = ["-m", "openai:x", "--fallback", "ollama:y", "--effort", "high", "--judge", "none"]
        said = call(capsys, "run", "What does it do?", *arguments)
        again = call(capsys, "run", "What?", "-m", "ollama:y", "--effort", "low", "--judge", "none")
    assert (said.code, "ollama:y in place of openai:x" in said.out) == (exits.OK, True)
    assert "openai:x, effort high" in said.out
    assert (broken.requests[0]["reasoning_effort"], "reasoning_effort" in sound.requests[0]) == ("high", False)
    assert "ollama is not told the effort" in again.out.replace("\n               ", " ")
    assert call(capsys, "run", "x", "--effort", "huge").code == exits.USAGE
    assert SECRET not in said.out + said.err


def test_a_person_reviews_the_work_where_that_is_wanted(repo: Path) -> None:
    """--review human asks at the terminal after everything else has passed; what he wants changed goes back."""
    model = script(repo.parent, EDIT, DONE, turn("", ("write_file", {"path": "n.md", "content": "add() adds"})), DONE)
    arguments = ["run", "x", "-m", model, "--judge", "none", "-g", GATE, "--review", "human", "-q"]
    screen, code = typed(arguments, [("own words)", "write a note\n"), ("own words)", "accept\n")], repo)
    assert (code, "Is it done?" in screen, (repo / "n.md").exists()) == (exits.OK, True, True)


def test_a_person_is_asked_before_it_ends_unfinished(repo: Path) -> None:
    """--on-halt ask puts a question before stuck; "end" ends it, and the default never asks."""
    arguments = ["run", "x", "-m", script(repo.parent, LOOP), "--judge", "none", "-q"]
    screen, code = typed([*arguments, "--on-halt", "ask"], [("own words)", "end\n")], repo)
    assert (code, "is about to end as stuck" in screen) == (exits.STUCK, True)
    screen, code = typed(arguments, [], repo)
    assert (code, "QUESTION" in screen) == (exits.STUCK, False)


# --------------------------------------------------------------------------------------------------- settings and models


def test_every_setting_is_shown_with_its_source(repo: Path, capsys: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """show --config has a line for each key; no secret, wherever it stands, is among them."""
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("ENDSTOP_LIMITS", "turns=7")
    text = f'model = "openai:x"\ndeliverables = ["{SECRET}"]\n[stall]\nrepeat.notice = 4\n[providers.openai]\nwindow = 9000\n'
    (repo / "endstop.toml").write_text(text)
    said = call(capsys, "show", "--config")
    lines = {line.split()[0]: line for line in said.out.splitlines()}
    assert lines["model"].split()[1:] == ['"openai:x"', f"({repo}/endstop.toml)"]
    assert lines["limits.turns"].endswith('"7 turns"  (ENDSTOP_LIMITS)')
    assert lines["permissions.mode"].endswith('"auto"  (default)')
    assert "notice = 4, refuse = 5" in lines["stall.repeat"]
    assert "9000" in lines["providers.openai.window"]
    assert lines["OPENAI_API_KEY"].endswith("is set, and never shown")
    assert SECRET not in said.out + said.err
    assert call(capsys, "show", "--config", "--turns").code == exits.USAGE
    assert "of a folder" in call(capsys, "show", "01", "--config").err


def test_models_are_listed_and_asked(repo: Path, capsys: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Role, name, price and source of each; --ask says how fast it answers; one that does not makes it exit 1."""
    monkeypatch.setenv("GEMINI_API_KEY", SECRET)
    with serving("ok") as server:
        monkeypatch.setenv("OLLAMA_BASE_URL", server.url)
        (repo / "endstop.toml").write_text('model = "ollama:x"\nfallbacks = ["ollama:y"]\njudge = "openai:gpt-5"\n')
        said = call(capsys, "models", "--ask")
        assert len(server.requests) == 2
    assert said.code == exits.FAILED
    assert re.search(r"model +ollama:x\n.*costs nothing\n +from .*\n( +.*\n)? +answers in \d+\.\d s: ok", said.out)
    assert "fallback     ollama:y" in said.out
    assert re.search(r"judge +openai:gpt-5\n +CANNOT BE USED: no key for openai\n +set OPENAI_API_KEY", said.out)
    assert "keys         google" in said.out
    assert SECRET not in said.out
    unanswered = call(capsys, "models", "--ask")
    assert unanswered.out.count("DOES NOT ANSWER (network)") == 2
    (repo / "endstop.toml").write_text(f'model = "{script(repo.parent, DONE)}"\n')
    played = call(capsys, "models", "--ask")
    assert (played.code, "SCRIPTED" in played.out) == (exits.OK, True)
    (repo / "endstop.toml").unlink()
    assert "no model is configured" in call(capsys, "models").out


def test_spend_adds_up_by_model_goal_and_day(repo: Path, capsys: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls, tokens and cost of all goals, or of one folder's, since a time."""
    assert call(capsys, "spend").out == "nothing was spent\n"
    for name in ("One", "Two"):
        call(capsys, "run", name, "-m", script(repo.parent, EDIT, DONE), "--judge", "none", "-q")
    lines = call(capsys, "spend", "--by", "goal").out.splitlines()
    assert re.fullmatch(r"GOAL +CALLS +IN +OUT +COST", lines[0])
    assert sorted(line[14:17] for line in lines[1:3]) == ["One", "Two"]
    assert re.match(r"total +6 +5400 +240  0.00 usd", lines[3])
    assert len(call(capsys, "spend").out.splitlines()) == 4
    days = call(capsys, "spend", "--by", "day", "--since", "1d").out.splitlines()
    assert re.match(r"\d{4}-\d\d-\d\d +6 ", days[1])
    monkeypatch.chdir(repo.parent)
    assert call(capsys, "spend", "-C", str(repo.parent)).out == "nothing was spent\n"
    assert call(capsys, "spend", "--since", "2100-01-01").out == "nothing was spent\n"
    assert call(capsys, "spend", "--by", "week").code == exits.USAGE
    assert "like 7d" in call(capsys, "spend", "--since", "yesterday").err


def test_a_record_that_cannot_be_read_is_not_added_up(repo: Path, capsys: Terminal, home: Path) -> None:
    """spend names the journal and how to look at it; nothing is skipped in silence."""
    call(capsys, "run", "x", "-m", script(repo.parent, EDIT, DONE), "--judge", "none", "-q")
    database = sqlite3.connect(home / "endstop/endstop.db", isolation_level=None)
    database.execute("""UPDATE events SET line = replace(line, '"inputTokens":900', '"inputTokens":"x"')""")
    database.close()
    said = call(capsys, "spend")
    assert (said.code, "endstop verify" in said.err, "Traceback" in said.err) == (exits.FAILED, True, False)


def test_what_is_not_known_is_not_called_free() -> None:
    """A call without a price is counted as such beside those that have one, and estimates are said."""
    found = {"a": spend.Sum(calls=1, unpriced=1), "b": spend.Sum(calls=3, cost=1.5, unpriced=1, estimated=2)}
    lines = spend.table(found, "model", 80)
    assert lines[1].endswith("1.50 usd + 1 unpriced")
    assert lines[2].endswith("not known")
    assert lines[3].endswith("1.50 usd + 2 unpriced")
    assert lines[4].startswith("2 calls reported no tokens")


def test_times_are_ages_or_dates() -> None:
    """Minutes, hours, days and weeks back from now, or a date; nothing else."""
    assert [spend.moment(text, 1e9) for text in ("30m", "2h", "7d", "1w")] == [1e9 - 1800, 1e9 - 7200, 1e9 - 604800, 1e9 - 604800]
    assert spend.moment("2026-11-02", 0.0) - spend.moment("2026-11-01", 0.0) in (86400.0, 82800.0, 90000.0)
    for wrong in ("", "7", "d", "-1d", "2026-13-01"):
        with pytest.raises(UsageError):
            spend.moment(wrong, 1e9)


# --------------------------------------------------------------------------------------------------- completion, reports


@pytest.mark.parametrize(
    ("words", "offered"), [(["endstop", "spe"], ["spend"]), (["endstop", "run", "--wor"], ["--workspace", "--worktree"])]
)
def test_bash_completes(tmp_path: Path, words: list[str], offered: list[str]) -> None:
    """The script, evaluated in bash, offers commands and options."""
    fake = tmp_path / "endstop"
    fake.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m endstop "$@"\n')
    fake.chmod(0o755)
    quoted = " ".join(words)
    lines = f"""eval "$(endstop completion bash)"
complete -p endstop
COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _endstop_completion endstop; printf '%s\\n' "${{COMPREPLY[@]}}" """
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": source()}
    done = subprocess.run(["bash", "--norc", "-c", lines], env=env, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines() == ["complete -o default -F _endstop_completion endstop", *offered]


def test_ids_complete_with_their_objectives(repo: Path, capsys: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where an id is wanted, this folder's are offered; a store that cannot be read offers none."""
    call(capsys, "run", "Make it add", "-m", script(repo.parent, EDIT, DONE), "--judge", "none", "-q")
    id_ = call(capsys, "ps").out.splitlines()[1].split()[0]
    monkeypatch.setenv("_ENDSTOP_COMPLETE", "complete_zsh")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", "endstop show ")
    assert f'"{id_}":"Make it add"' in call(capsys).out
    monkeypatch.setenv("ENDSTOP_HOME", str(repo / "calc.py"))
    assert call(capsys).out == "_files\n"


def test_scripts_for_other_shells(capsys: Terminal) -> None:
    """zsh and fish have theirs; another shell is told."""
    assert call(capsys, "completion", "zsh").out.startswith("#compdef endstop")
    assert "complete --command endstop" in call(capsys, "completion", "fish").out
    assert "one of bash, zsh, fish" in call(capsys, "completion", "csh").err


def test_a_report_for_ci_has_gates_deliverables_and_the_goal(repo: Path, capsys: Terminal) -> None:
    """JUnit XML: what failed with its words, what was not run as skipped, and nothing that XML cannot hold."""
    shows = "printf 'bad \\033[31m <&> \\001'; false"
    arguments = ["-g", shows, "-g", GATE, "--deliverable", "x.md", "-l", "turns=4", "--report", "r.xml"]
    said = call(capsys, "run", "Do <it> & more", "-m", script(repo.parent, EDIT, LOOP), "--judge", "none", *arguments)
    assert said.code in (exits.CAPPED, exits.STUCK)
    suite = ElementTree.parse("r.xml").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("4", "4", "0")
    cases = {case.get("name"): case for case in suite}
    assert cases["Do <it> & more"][0].get("type") == "capped"
    assert "gate fails" in cases["Do <it> & more"][0].text
    assert cases[shows][0].get("message") == "exit status 1"
    assert "bad ·[31m <&> ·" in cases[shows][0].text
    assert cases["x.md"][0].get("message") == "absent"


def test_a_report_for_ci_of_a_reached_and_of_a_waiting_goal(repo: Path, capsys: Terminal) -> None:
    """Verified has no failures, claimed has one unless it is accepted, waiting is skipped."""
    ask = turn("", ("ask_user", {"question": "Which?"}))
    for turns, more, expected in (
        ((EDIT, DONE), ("-g", GATE), ("0", "0")),
        ((DONE,), (), ("1", "0")),
        ((DONE,), ("--accept-claimed",), ("0", "0")),
        ((ask,), (), ("0", "1")),
    ):
        call(capsys, "run", "x", "-m", script(repo.parent, *turns), "--judge", "none", "-q", "--report", "r.xml", *more)
        suite = ElementTree.parse("r.xml").getroot()
        assert (suite.get("failures"), suite.get("skipped")) == expected
