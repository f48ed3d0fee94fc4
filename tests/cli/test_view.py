"""What goals look like in words: golden texts, from events alone."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from endstop.cli import out, pages, report, view
from endstop.cli.ask import answered, decision, question_lines
from endstop.cli.live import picture
from endstop.core import events as ev
from endstop.core.apply import replay
from endstop.core.codec import Entry
from endstop.core.goal import State
from endstop.core.messages import ToolRequest
from endstop.core.stall import Rules
from endstop.errors import UsageError
from endstop.store.verify import Verdict

T0 = 1_700_000_000.0
RECORD = Verdict(verdict="ok", count=57, head=(57, "ab" * 32))
GATE = ev.Gate(gate_id="gate-1", run="pytest -q")
ABOUT: dict[str, Any] = {
    "workspace": "/w/repo",
    "git": {"branch": "main", "head": "1a2b3c4d5e6f", "dirty": 0},
    "model": "openai:gpt-5",
    "scripted": False,
    "priced": True,
    "judge": None,
    "judgeIndependent": None,
    "sandbox": {"kind": "bwrap", "why": ""},
    "mode": "auto",
    "allow": [],
    "deny": [],
    "network": False,
    "gates": ["pytest -q"],
    "deliverables": [],
    "protect": "refuse",
    "fallbacks": [],
    "review": "none",
    "reachable": True,
}


def queued(**more: Any) -> ev.GoalQueued:
    given = {
        "goal_id": "g",
        "objective": "Make add() add",
        "contract": ev.Contract(gates=[GATE], judge="none"),
        "limits": {"cost": 2.0, "turns": 60.0, "wall": 2700.0},
        "policy": ev.Policy(),
        "model": "openai:gpt-5",
        "fallbacks": [],
        "workspace": "/w/repo",
        "priority": 0,
    }
    return ev.GoalQueued(**{**given, **more})


def begin(**more: Any) -> list[ev.Event]:
    """A goal whose gate is red at the start."""
    context = ev.Context(cwd="/w/repo")
    start = ev.SessionStart(
        session_id="0193e2a1-b3c4-7000", version=1, producer="endstop", start_time="", kind="goal", context=context
    )
    return [
        start,
        queued(**more),
        ev.GoalStarted(goal_id="g", workspace_lock="/w/repo"),
        look("baseline", 0),
        gate_run("fail"),
    ]


def look(purpose: ev.LookPurpose, world: int, paths: tuple[str, ...] = (), **more: Any) -> ev.WorkspaceObserved:
    return ev.WorkspaceObserved(
        purpose=purpose, world=world, fingerprint="f" * 8 + ",".join(paths), paths=list(paths), diff="", protected=[], **more
    )


def gate_run(outcome: Any) -> ev.GateFinished:
    code = 0 if outcome == "pass" else 1
    failing = None if outcome == "pass" else ["test_add"]
    return ev.GateFinished(
        gate_id="gate-1", outcome=outcome, exit_code=code, output="", duration_ms=5, fingerprint="f", stale=False, failing=failing
    )


def spend(turn_id: int, cost: float | None = 0.25) -> ev.AssistantUsage:
    return ev.AssistantUsage(
        initiator="work", turn_id=turn_id, model="openai:gpt-5", input_tokens=1200, cache_read_tokens=800, cache_write_tokens=0,
        output_tokens=40, cost=cost, estimated=False, attempt=1,
    )  # fmt: skip


def turn(number: int, *requests: ToolRequest, text: str = "", cost: float | None = 0.25) -> list[ev.Event]:
    return [
        ev.TurnStart(turn_id=number, model="openai:gpt-5", purpose="work", request_hash="", reserved={}),
        ev.AssistantMessage(message_id="a", content=text, tool_requests=list(requests), finish_reason="tool_calls"),
        spend(number, cost),
    ]


def closing(target: Any, reason: str, **detail: Any) -> ev.GoalClosing:
    return ev.GoalClosing(target=target, reason=reason, detail=detail)


def ended(phase: Any, verified_by: tuple[str, ...] = (), by: Any = "claim", **handoff: Any) -> ev.GoalEnded:
    return ev.GoalEnded(
        phase=phase, verified=bool(verified_by), verified_by=list(verified_by), ended_by=by, missing=[], handoff=handoff
    )


def entries(*events: ev.Event) -> list[Entry]:
    return [Entry(number, f"id{number}", T0 + number, event) for number, event in enumerate(events, 1)]


def state(*events: ev.Event) -> State:
    return replay(entries(*events))


def claim(**more: Any) -> ev.GoalClaimed:
    return ev.GoalClaimed(**{"by": "task_complete", "summary": "It adds.", **more})


def text(lines: list[str]) -> str:
    return "\n".join(lines)


# ----------------------------------------------------------------------------------------------------------------- start


def test_the_first_block() -> None:
    """Where, by whom, what it may do, its limits: in 80 columns without colour."""
    about = ABOUT | {"judge": "openai:gpt-5", "judgeIndependent": False, "deny": ["shell(git push *)"]}
    assert (
        text(view.start(about, state(*begin())))
        == """\
endstop  goal 0193e2a1-b3c4
  objective    Make add() add
  workspace    /w/repo (git main at 1a2b3c4d, clean)
  model        openai:gpt-5
  judge        openai:gpt-5 (the goal's own model in a fresh context: not
               independent)
  gates        pytest -q
  may          mode auto: edits in the workspace and sandboxed commands run, the
               rest asks
               commands run in a sandbox (bwrap), no network, writing only in
               the workspace
               deny shell(git push *)
  limits       cost 2.00 usd · turns 60 · wall 45m"""
    )


def test_what_is_dangerous_is_loud() -> None:
    """No sandbox, no questions, no limits, nothing that verifies, a model that plays a script: all of it in capitals."""
    about = ABOUT | {
        "sandbox": {"kind": "none", "why": "bubblewrap is not installed"},
        "mode": "yolo",
        "git": None,
        "gates": [],
        "model": "scripted:s.toml",
        "scripted": True,
    }
    block = text(view.start(about, state(*begin(limits={}))))
    for words in (
        "NO SANDBOX: commands run with all your rights. bubblewrap is",
        "mode YOLO: NOTHING IS ASKED",
        "limits       NONE",
        "gates        NONE, AND NO JUDGE",
        "model        SCRIPTED: plays s.toml, no model is asked",
        "no git repository: changes cannot be undone",
    ):
        assert words in block


def test_other_first_blocks() -> None:
    """A detached head, changes before the start, an unknown price, a network, a place where nobody can be asked."""
    git = {"branch": None, "head": None, "dirty": 3}
    block = text(view.start(ABOUT | {"git": git, "priced": False, "network": True, "reachable": False}, state(*begin())))
    assert "(git detached at no commit yet, 3 changed or untracked)" in block
    assert "openai:gpt-5 (its price is not known: no money limit binds)" in block
    assert "WITH NETWORK" in block
    assert "nobody can be asked here" in block


# ---------------------------------------------------------------------------------------------------------------- course


def test_the_course_of_a_goal() -> None:
    """One line an event that people care for, none for the rest, cut at the width."""
    call = ToolRequest("c1", "shell", {"command": "pytest -q tests/unit\n"})
    result = ev.ToolComplete(
        tool_call_id="c1", success=False, executed=True, result=ev.Result(content="no"), exit_code=1, duration_ms=2300, hash="",
        norm_hash="",
    )  # fmt: skip
    start = ev.ToolStart(tool_call_id="c1", tool_name="shell", arguments={}, turn_id=1, effect="shell", key="")
    notice = ev.StallNoticed(rule="repeat", count=3, identity="", seqs=[4], text="", tool_call_id="c1")
    end = ev.TurnEnd(turn_id=1, outcome="ok")
    events = [
        *begin(), *turn(1, call, text="I run\nthe tests. " + "x" * 80), start, result, notice, end, claim(),
        ev.GoalReturned(why="gate", missing=["gate fails: pytest -q"]),
        ev.LimitWarned(limit="turns", unit="turns", scope="goal", spent=48, cap=60),
        ev.GoalPaused(reason="user", by="ann"), ev.GoalResumed(from_="paused", cause="resumed by a person", note="look twice"),
    ]  # fmt: skip
    now, lines = State(), []
    for entry in entries(*events):
        now = state(*events[: entry.seq])
        lines += view.progress(entry, now, 60)
    assert (
        text(lines)
        == """\
  gate         RED (exit 1, 1 failing) at the start: pytest…
  says         I run the tests. xxxxxxxxxxxxxxxxxxxxxxxxxxx…
  turn 1       1200 in, 800 cached, 40 out, 0.25 usd
  shell        exit 1 (2.3 s) pytest -q tests/unit
  stall        repeat, 3 times: noticed
  claim        by task complete: It adds.
  returned     gate: gate fails: pytest -q
  limit        turns: 48 turns of 60 turns used
  paused       by ann
  goes on      resumed by a person: look twice"""
    )


def test_hooks_are_shown_where_they_object_or_crash() -> None:
    """A hook that is content says nothing."""
    now = state(*begin())
    for given, shown in (
        ({"success": True}, []),
        ({"success": True, "decision": "allow"}, []),
        ({"success": True, "decision": "deny", "text": "not there"}, ["  hook         pre_tool: deny: not there"]),
        ({"success": False, "error": "exit 3"}, ["  hook         pre_tool CRASHED: exit 3"]),
    ):
        event = ev.HookEnd(hook_invocation_id="h", hook_type="pre_tool", **given)
        assert view.progress(Entry(9, "id", T0, event), now) == shown


# ------------------------------------------------------------------------------------------------------------------- end


def test_a_verified_end() -> None:
    """Phase, proof, gates then and now, files, spend against caps, the record."""
    done = state(
        *begin(), *turn(1), ev.TurnEnd(turn_id=1, outcome="ok"), claim(), look("claim", 0, ("calc.py",)), gate_run("pass"),
        ended("done", ("gate pytest -q (red at the start, green now)",), summary="It adds."),
    )  # fmt: skip
    assert (
        text(view.summary(done, RECORD, T0 + 999))
        == """\
done (verified)  Make add() add
  proof        gate pytest -q (red at the start, green now)
  gates        green (at the start red): pytest -q
  changed      1 file: calc.py
  says         It adds.
  spent        cost 0.25 usd of 2.00 usd · tokens 1240 · turns 1 of 60 · rounds
               1 · tool-calls 0 · verifications 1 · active 10s · wall 11s of 45m
  record       ok, 57 events"""
    )


def test_claimed_never_looks_like_verified() -> None:
    """A claimed end says so in its first line and in its proof, and what to do next time."""
    done = state(*begin(), *turn(1), ev.TurnEnd(turn_id=1, outcome="ok"), claim(), ended("done", reason="claimed: nobody looked"))
    lines = view.summary(done, None, T0)
    assert lines[0] == "done (claimed)  Make add() add"
    assert "  proof        NONE: nobody looked. Look yourself" in lines
    assert "verified" not in text(lines)
    assert view.following(done)[0].startswith("next time give a gate (-g)")


def test_a_capped_end() -> None:
    """The full limit with unit, scope, spend and cap, what is missing, and the command that raises it."""
    reached = ev.LimitReached(limit="turns", unit="turns", scope="goal", spent=59, cap=60)
    capped = state(*begin(), reached, closing("capped", "limit turns reached", limit="turns"), ended("capped", by="limit"))
    lines = text(view.summary(capped, None, T0))
    assert "why          the limit turns is reached: 59 of 60 turns are used in this goal," in lines
    assert "raise the limit and resume:\n               endstop resume 0193e2a1-b3c4 -l turns=MORE" in lines


def test_a_stuck_end_shows_the_pattern() -> None:
    """The rule's words and the events behind them."""
    detail = {"rule": "repeat", "pattern": "repeat: 6 times (read_file)", "count": 6, "seqs": [9, 14]}
    stuck = state(*begin(), closing("stuck", "stall: repeat: 6 times (read_file)", **detail), ended("stuck", by="stall"))
    assert (
        text(view.summary(stuck, None, T0)[1:3])
        == """\
  why          repeat: the same call gave the same result, 6 times (read_file)
               see events 9, 14"""
    )


def test_waiting_says_for_what_and_how_to_go_on() -> None:
    """What is asked, and the two commands that answer and go on; a goal that is driven says by whom instead."""
    asked = ev.QuestionAsked(question_id="q1", question="Which?", options=[], allow_freeform=True, on_timeout="continue")
    waiting = state(*begin(), asked, ev.GoalParked(on="question", ref="q1", said="Which?"))
    lines = view.summary(waiting, None, T0)
    assert lines[0].startswith("waiting (question)  ")
    assert lines[-2:] == [
        '  next         endstop answer 0193e2a1-b3c4 "…"',
        "               then: endstop resume 0193e2a1-b3c4",
    ]
    assert view.summary(waiting, None, T0, driver="process 7 on here")[-1] == "  driven by    process 7 on here"


def test_doubts_are_said() -> None:
    """Estimated tokens, a cost without a price, changed verifier inputs, a look that is older than the last change, a record
    that does not hold."""
    start = ev.ToolStart(tool_call_id="c", tool_name="w", arguments={}, turn_id=1, effect="write", key="")
    seen = look("resume", 0, ("a",), named=["conftest.py"])
    doubtful = state(*begin(), seen, *turn(1, ToolRequest("c", "w", {}), cost=None), start)
    bad = Verdict(verdict="torn_tail", first_bad=9, why="line 9 is incomplete", count=8, head=(8, ""))
    lines = text(view.summary(doubtful, bad, T0))
    assert "cost not known (no price)" in lines
    assert "CHANGED      verifier inputs: conftest.py" in lines
    assert "changed      1 file: a (as of the last look; something was done since)" in lines
    assert "record       TORN TAIL at event 9: line 9 is incomplete" in lines


def test_a_report_has_the_same_facts() -> None:
    """The report of a goal that has not ended is built from what is known now."""
    working = state(*begin(), *turn(1))
    facts = report.build(working, RECORD, T0 + 10)
    assert (facts["standing"], facts["status"], facts["exitCode"]) == ("working", "partial", 75)
    assert facts["missing"] == ["gate fails: pytest -q (test_add)"]
    page = report.markdown(facts)
    assert page.startswith("# working: Make add() add\n")
    assert "- fail (at the start fail): `pytest -q`" in page
    assert "- cost: 0.25 usd of 2.00 usd" in page


# --------------------------------------------------------------------------------------------------------------- the rest


def test_the_live_view() -> None:
    """Bars for the limits, what runs, what is missing, gates and the last words; nothing of it can steer the terminal."""
    call = ToolRequest("c", "shell", {"command": "make \x1b[31m all"})
    start = ev.ToolStart(tool_call_id="c", tool_name="shell", arguments={}, turn_id=1, effect="shell", key="")
    stream = io.StringIO()
    console = Console(file=stream, width=80, force_terminal=False)
    console.print(picture(state(*begin(), *turn(1, call), start), T0 + 20, "and \x1b[0m now", 80))
    shown = stream.getvalue()
    for words in (
        "working", "turns", "1 turn of 60 turns", "runs         shell make ·[31m all", "missing      gate fails: pytest -q",
        "gate         RED (exit 1, 1 failing) (at the start red): pytest -q", "says         and ·[0m now",
    ):  # fmt: skip
        assert words in shown
    assert "\x1b" not in shown


def test_questions_and_their_answers() -> None:
    """An option by number or by its words, free text where it is allowed; else an error that says what is."""
    assert answered("q", ["red", "blue"], True, "2", "ann") == ev.QuestionAnswered(
        question_id="q", answer="blue", option=1, by="ann"
    )
    assert answered("q", ["red", "blue"], False, "red", "ann").option == 0
    for beyond in ("0", "7"):
        with pytest.raises(UsageError, match=f"there is no option {beyond} \\(1 red, 2 blue, or your own words\\)"):
            answered("q", ["red", "blue"], True, beyond, "ann")
    assert answered("q", ["5", "9"], False, "9", "ann").option == 1
    assert answered("q", [], True, "7", "ann").answer == "7"
    with pytest.raises(UsageError, match="there is no option 7 \\(1 red, 2 blue\\)"):
        answered("q", ["red", "blue"], False, "7", "ann")
    with pytest.raises(UsageError, match="that is none of the options"):
        answered("q", ["red", "blue"], False, "green", "ann")
    asked = ev.QuestionAsked(question_id="q", question="Which?", options=["red"], allow_freeform=False, on_timeout="continue")
    assert text(question_lines(asked)) == "\n  QUESTION     Which?\n               1. red\n               (a number)"


@pytest.mark.parametrize(
    ("typed", "kind", "feedback", "stop"),
    [
        ("yes", "approved", None, None),
        ("Y", "approved", None, None),
        ("no", "denied-interactively-by-user", None, None),
        ("no, not there", "denied-interactively-by-user", "not there", None),
        ("stop", "denied-interactively-by-user", None, True),
    ],
)
def test_permissions_and_their_answers(typed: str, kind: str, feedback: str | None, stop: bool | None) -> None:
    """Yes allows this once, no denies and may say why, stop ends the turn too."""
    made = decision("r", typed, "ann")
    assert (made.result.kind, made.scope, made.feedback, made.stop) == (kind, "once", feedback, stop)


@pytest.mark.parametrize("typed", ["yes but carefully", "maybe", "yesterday", ""])
def test_what_is_not_clearly_yes_is_no_permission(typed: str) -> None:
    """Anything else than a plain yes gives nothing."""
    with pytest.raises(UsageError, match="neither yes nor no"):
        decision("r", typed, "ann")


def test_pages_of_an_empty_journal() -> None:
    """A goal that has not begun has no turns and no stalls; rules that are off are said to be."""
    nothing = entries(*begin())
    assert pages.turns(nothing) == ["no turns yet"]
    assert pages.stalls(nothing, Rules(on=False), 80)[-1] == "the stall rules are off"


def test_lines_stay_lines() -> None:
    """Foreign text is one line, without what steers a terminal, cut with a sign."""
    assert out.line("a\n\tb\x1b[1m \u202e c", 80) == "a b·[1m · c"
    assert out.line("abcdef", 4) == "abc…"
    assert [pages.age(seconds) for seconds in (-1, 59, 60, 7200, 200_000)] == ["0s", "59s", "1m", "2h", "2d"]
