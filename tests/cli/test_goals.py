"""Goals from the command line: every way they end, and every way to go on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from endstop.cli import exits
from tests.cli.terminal import ASK, DONE, EDIT, GATE, LOOP, PAINT, Said, call, repository, script, turn

BLOCKED = turn("", ("report_blocked", {"reason": "no password", "needs": ["a password"]}), repeat=2)
Terminal = pytest.CaptureFixture[str]


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository to stand in."""
    folder = repository(tmp_path / "repo")
    monkeypatch.chdir(folder)
    return folder


def run(capsys: Terminal, folder: Path, *turns: dict[str, object], arguments: tuple[str, ...] = ()) -> Said:
    """Run a goal on a script, without a judge."""
    return call(capsys, "run", "Make add() add", "-m", script(folder.parent, *turns), "--judge", "none", *arguments)


def test_a_goal_whose_gate_turned_green_is_verified(repo: Path, capsys: Terminal) -> None:
    """A gate that was red and is green ends it as done (verified), exit 0, with its proof, files, spend and record."""
    said = run(capsys, repo, EDIT, DONE, arguments=("-g", GATE))
    assert said.code == exits.OK
    assert f"gate         RED (exit 1) at the start: {GATE}" in said.out
    assert "done (verified)  Make add() add" in said.out
    assert f"proof        gate {GATE} (red at the start, green now)" in said.out
    assert "changed      1 file: calc.py" in said.out
    assert "tokens 2820 of 5M" in said.out
    assert "record       ok, " in said.out
    assert said.out.count("SCRIPTED") == 2
    assert "claimed" not in said.out
    assert said.err == ""


def test_a_claim_that_nothing_shows_is_claimed(repo: Path, capsys: Terminal) -> None:
    """Without a gate or judge it ends as done (claimed), exit 3; --accept-claimed makes that 0 and changes no word."""
    said = run(capsys, repo, EDIT, DONE, arguments=("--confront", "always"))
    assert said.code == exits.CLAIMED
    assert "done (claimed)  Make add() add" in said.out
    assert "verified" not in said.out
    assert "proof        NONE: nothing that looked could show the objective. Look yourself" in said.out
    (repo / "calc.py").write_text("a - b")
    again = run(capsys, repo, EDIT, DONE, arguments=("--accept-claimed", "-q"))
    assert (again.code, again.out.splitlines()[0]) == (exits.OK, "done (claimed)  Make add() add")


def test_a_plain_answer_needs_no_proof(repo: Path, capsys: Terminal) -> None:
    """An answer in an untouched workspace without a contract is claimed, and exits 0."""
    said = call(capsys, "run", "What does it do?", "-m", script(repo.parent, turn("It subtracts.")))
    assert (said.code, "done (claimed)" in said.out) == (exits.OK, True)


def test_a_full_limit_caps_and_is_raised_to_go_on(repo: Path, capsys: Terminal) -> None:
    """Capped names limit, spent and cap, exit 4; resume refuses until it is raised, and then goes on with the spend."""
    said = run(capsys, repo, EDIT, LOOP, arguments=("--limit", "turns=2", "-l", "cost=none", "-g", GATE, "--deliverable", "x"))
    assert said.code == exits.CAPPED
    assert "capped  Make add() add" in said.out
    assert "why          the limit turns is full: " in said.out
    assert "missing      deliverable absent: x" in said.out
    refused = call(capsys, "resume")
    assert (refused.code, "-l turns=MORE" in refused.err) == (exits.USAGE, True)
    for wrong in ("turns=1", "turns=none", "tokens=100"):
        assert call(capsys, "resume", "-l", wrong).code == exits.USAGE
    went_on = call(capsys, "resume", "-l", "turns=5", "--note", "look at calc.py", "-q")
    assert went_on.code in (exits.CAPPED, exits.STUCK)
    assert "goes on      resumed by a person: look at calc.py" not in went_on.out
    assert "of 5 ·" in went_on.out
    assert "look at calc.py" in call(capsys, "show", "--events").out


def test_a_loop_is_stuck_and_shows_its_pattern(repo: Path, capsys: Terminal) -> None:
    """The same call over and over ends as stuck, exit 5; show --stall names rule, counts and the calls behind it."""
    said = run(capsys, repo, LOOP)
    assert said.code == exits.STUCK
    assert "why          repeat: the same call gave the same result, 6 times (read_file)" in said.out
    assert "               see events " in said.out
    page = call(capsys, "show", "--stall").out
    assert "repeat, 3 times: noticed" in page
    assert "repeat, 6 times: HALTED" in page
    assert "read_file calc.py" in page
    assert "repeat               3       5       -" in page


def test_blocked_says_what_is_needed(repo: Path, capsys: Terminal) -> None:
    """A reported block that nobody can lift exits 6 with the agent's reason and how to go on."""
    said = run(capsys, repo, BLOCKED)
    assert (said.code, "why          no password" in said.out) == (exits.BLOCKED, True)
    assert "give what is needed, then:\n               endstop resume " in said.out


def test_what_was_denied_is_shown_and_allowed_to_go_on(repo: Path, capsys: Terminal) -> None:
    """A denied call shows its rule and the remedy, as the end and the report do; resume --allow lets just that through."""
    make = turn("", ("shell", {"command": "touch made"}))
    other = turn("", ("shell", {"command": "touch other"}))
    said = run(capsys, repo, make, BLOCKED, make, other, DONE, arguments=("--mode", "ask", "--report", "../r.md"))
    remedy = "--allow 'shell(touch made)'"
    assert said.code == exits.BLOCKED
    course, end = said.out.split("\nblocked  ")
    flat = " ".join(end.split())
    assert f"mode ask asks, and nobody could be asked. To allow it: {remedy}" in " ".join(course.split())
    assert f"denied mode ask asks, and nobody could be asked. To allow it: {remedy}" in flat
    assert flat.endswith(remedy)
    assert "next allow what was denied; give what is needed, then: endstop resume" in flat
    assert f"- mode ask asks, and nobody could be asked. To allow it: {remedy}" in (repo.parent / "r.md").read_text()
    assert call(capsys, "resume", "--allow", "shell(").code == exits.USAGE
    went_on = call(capsys, "resume", "--allow", "shell(touch made)")
    assert ((repo / "made").exists(), (repo / "other").exists()) == (True, False)
    assert "goes on      resumed by a person: --allow shell(touch made)" in went_on.out
    assert len(went_on.out.split("\n\n")[0].splitlines()) == 3


def test_a_model_that_cannot_be_asked_fails(repo: Path, capsys: Terminal) -> None:
    """A final failure of the provider ends as failed, exit 1, with its words."""
    said = run(capsys, repo, {"error": {"kind": "auth", "message": "the key is wrong"}})
    assert (said.code, "the key is wrong" in said.out) == (exits.FAILED, True)


def test_a_question_waits_is_answered_and_goes_on(repo: Path, capsys: Terminal) -> None:
    """Nobody at a terminal: it waits, exit 75; answer gives the answer, resume goes on to the end."""
    said = run(capsys, repo, ASK, PAINT, DONE, arguments=("--deliverable", "colour.txt"))
    assert (said.code, "waiting (question)  Make add() add" in said.out) == (exits.LATER, True)
    assert "nobody can be asked here" in said.out
    shown = call(capsys, "answer")
    assert (shown.code, "2. blue" in shown.out) == (exits.USAGE, True)
    assert call(capsys, "resume", "--note", "hurry").code == exits.USAGE
    assert call(capsys, "resume", "-q").code == exits.LATER
    id_ = said.out.split("goal ")[1][:13]
    beyond = call(capsys, "answer", id_, "9")
    assert (beyond.code, "there is no option 9" in beyond.err, "1 red, 2 blue" in beyond.err) == (exits.USAGE, True, True)
    answered = call(capsys, "answer", id_, "2")
    assert (answered.code, f"endstop resume {id_}" in answered.out) == (exits.OK, True)
    assert answered.out.startswith("answered: blue\n")
    shown = call(capsys, "show").out
    assert shown.startswith("answered, not yet resumed  Make add() add")
    assert f"next         endstop resume {id_}" in shown
    assert "answered, not yet resumed" in call(capsys, "ps").out
    assert call(capsys, "answer", "red").code == exits.USAGE
    end = call(capsys, "resume")
    assert (end.code, "done (verified)" in end.out) == (exits.OK, True)
    assert "answer=blue option=1" in call(capsys, "show", "--events").out


def test_one_word_is_an_id_or_an_answer(repo: Path, capsys: Terminal) -> None:
    """A single argument of answer that no goal begins with is the answer to the newest goal here."""
    run(capsys, repo, ASK, DONE)
    assert call(capsys, "answer", "deadbeef").code == exits.OK
    assert "answer=deadbeef" in call(capsys, "show", "--events").out


def test_a_goals_own_commands_may_not_answer_for_a_person(repo: Path, capsys: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inside a call of a goal, answer and resume are refused."""
    run(capsys, repo, ASK, DONE)
    monkeypatch.setenv("ENDSTOP_CALL", "abc")
    for command in ("answer", "resume"):
        said = call(capsys, command)
        assert (said.code, "may not" in said.err) == (exits.USAGE, True)


def test_a_permission_is_given_at_a_terminal_only(repo: Path, capsys: Terminal) -> None:
    """Where nobody can be asked, a permission that waits can be refused from outside, but not given without a terminal."""
    (repo / "endstop.toml").write_text('[permissions]\nhumans = "park"\nmode = "ask"\n')
    said = run(capsys, repo, EDIT, DONE)
    assert (said.code, "waiting (grant)" in said.out) == (exits.LATER, True)
    assert "PERMISSION   edit_file" in call(capsys, "answer").out
    assert "terminal only" in call(capsys, "answer", "yes").err
    assert "neither yes nor no" in call(capsys, "answer", "perhaps").err
    assert call(capsys, "answer", "no, not that file").code == exits.OK
    assert "not that file" in call(capsys, "show", "--events").out


def test_a_goal_that_waits_is_cancelled_from_outside(repo: Path, capsys: Terminal) -> None:
    """cancel ends a goal that nobody drives; after that there is nothing to pause."""
    run(capsys, repo, ASK, PAINT, DONE)
    said = call(capsys, "cancel")
    assert (said.code, said.out.split(":")[0]) == (exits.OK, "cancelled")
    assert call(capsys, "ps").out.splitlines()[1][14:23] == "cancelled"
    late = call(capsys, "pause")
    assert (late.code, "too late to pause it: it is cancelled" in late.err) == (exits.USAGE, True)


def test_a_paused_goal_is_resumed(repo: Path, capsys: Terminal) -> None:
    """pause holds a waiting goal; resume takes it back to where it was."""
    run(capsys, repo, ASK, PAINT, DONE)
    assert call(capsys, "pause").code == exits.OK
    assert "paused (user)" in call(capsys, "show").out
    assert call(capsys, "resume", "-q").out.startswith("waiting (question)")


def test_a_done_goal_is_not_resumed(repo: Path, capsys: Terminal) -> None:
    """More work after done is a new goal."""
    run(capsys, repo, EDIT, DONE, arguments=("-g", GATE))
    said = call(capsys, "resume")
    assert (said.code, "it is done (verified)" in said.err) == (exits.USAGE, True)


def test_changed_inputs_return_a_claim_until_they_are_accepted(repo: Path, capsys: Terminal) -> None:
    """A verifier input that was changed keeps a claim from holding; resume --accept-inputs takes it as it is now."""
    (repo / "check.sh").write_text("exit 1\n")
    change = turn("", ("write_file", {"path": "check.sh", "content": "grep -q 'a + b' calc.py\n"}))
    said = run(
        capsys, repo, EDIT, change, DONE, LOOP, arguments=("-g", "bash check.sh", "--protect", "refuse", "--protect", "calc.md")
    )
    assert "verifier input modified: check.sh" in said.out
    assert said.code == exits.STUCK
    (repo.parent / "script0.json").write_text(json.dumps({"turn": [DONE | {"forever": True, "repeat": 1}]}))
    end = call(capsys, "resume", "--accept-inputs")
    assert "taken as it is now: check.sh" in end.err
    assert (end.code, "done (verified)" in end.out) == (exits.OK, True)


def test_json_prints_the_stored_journal_and_nothing_else(repo: Path, capsys: Terminal) -> None:
    """--json is the journal's bytes: what export writes; resume prints what came since."""
    first = run(capsys, repo, ASK, PAINT, DONE, arguments=("--json",))
    assert first.out == call(capsys, "export").out
    assert [json.loads(line)["seq"] for line in first.out.splitlines()] == list(range(1, first.out.count("\n") + 1))
    call(capsys, "answer", "red")
    exported = call(capsys, "export").out
    more = call(capsys, "resume", "--json")
    assert exported + more.out == call(capsys, "export").out
    assert (first.err, more.err) == ("", "")


def test_errors_never_reach_the_json(repo: Path, capsys: Terminal) -> None:
    """With --json, an error stands on standard error and standard output stays empty."""
    said = call(capsys, "run", "x", "--json", "-m", "nobody:x")
    assert (said.code, said.out, said.err.startswith("endstop: unknown provider")) == (exits.USAGE, "", True)


def test_reports_say_what_the_end_says(repo: Path, capsys: Terminal) -> None:
    """--report writes the facts as JSON and as Markdown, for an ended and for a waiting goal."""
    end = run(capsys, repo, EDIT, DONE, arguments=("-g", GATE, "--report", "../r.json", "--report", "../r.md"))
    facts = json.loads(Path("../r.json").read_text())
    assert (facts["standing"], facts["exitCode"], facts["scripted"]) == ("done (verified)", end.code, True)
    assert (facts["changedFiles"], facts["record"]["verdict"]) == (["calc.py"], "ok")
    page = Path("../r.md").read_text()
    assert page.startswith("# done (verified): Make add() add\n")
    assert "SCRIPTED: no model was asked" in page
    assert f"- pass (at the start fail): `{GATE}`" in page
    run(capsys, repo, ASK, arguments=("--report", "../w.json"))
    waiting = json.loads(Path("../w.json").read_text())
    assert (waiting["standing"], waiting["exitCode"], waiting["status"]) == ("waiting (question)", exits.LATER, "partial")


def test_a_goal_file_says_all_of_it(repo: Path, capsys: Terminal) -> None:
    """run goal.toml needs nothing else; a file without an objective is refused."""
    model = script(repo.parent, EDIT, DONE)
    goal = repo / "goal.toml"
    text = f'model = "{model}"\njudge = "none"\n[[gate]]\nrun = "{GATE}"\n'
    goal.write_text(text)
    assert "there is no objective" in call(capsys, "run", "goal.toml").err
    goal.write_text(f'objective = "Make add() add"\n{text}')
    assert call(capsys, "run", "goal.toml").code == exits.OK
    assert (
        "objective    Repair pyproject.toml" in call(capsys, "run", "Repair pyproject.toml", "-m", model, "--judge", "none").out
    )


def test_what_a_goal_may_do_comes_from_the_flags(repo: Path, capsys: Terminal) -> None:
    """Mode, rules and network stand in the first block, and a deny beats the mode."""
    options = ("--mode", "yolo", "--allow", "shell(ls *)", "--deny", "edit_file", "--ask", "shell(git push *)", "--network")
    said = run(capsys, repo, EDIT, DONE, arguments=options)
    assert "mode YOLO: NOTHING IS ASKED" in said.out
    assert "deny edit_file" in said.out
    assert "ask shell(git push *)" in said.out
    assert "WITH NETWORK" in said.out or "NO SANDBOX" in said.out
    assert "edit_file    denied" in said.out
    assert (repo / "calc.py").read_text().count("a - b") == 1


def test_another_folder_is_named_with_workspace(tmp_path: Path, capsys: Terminal) -> None:
    """-C works there for every command; --workspace is the same."""
    folder = repository(tmp_path / "elsewhere")
    model = script(tmp_path, EDIT, DONE)
    assert call(capsys, "run", "x", "-C", str(folder), "-m", model, "--judge", "none", "-g", GATE, "--wait").code == exits.OK
    assert "done (verified)" in call(capsys, "show", "--workspace", str(folder)).out
    assert call(capsys, "verify", "-C", str(folder)).code == exits.OK
    assert "no goals" in call(capsys, "ps", "-C", str(tmp_path)).out
