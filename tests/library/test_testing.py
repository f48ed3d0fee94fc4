"""The fakes that are shipped for users' own tests."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import endstop
from endstop import events as ev
from endstop.core.codec import decode
from endstop.core.stall import Rules
from endstop.errors import TransitionError
from endstop.store.verify import verify_file
from endstop.testing import (
    FakeClock,
    JournalBuilder,
    ScriptedModel,
    agrees,
    call,
    calls,
    claims,
    disagrees,
    fails,
    run_scripted,
    says,
)

WRITE = says("", call("write_file", path="out.txt", content="it\n"))


@endstop.tool(effect="read")
def stock(article: str) -> int:
    """Pieces in the warehouse."""
    return {"A-1": 12}[article]


def test_a_tool_is_run_as_an_agent_runs_it() -> None:
    """Results, failures and refusals of a tool come with their arguments; what has no result is not among them."""
    turn = says("", call("stock", article="A-1"), call("stock", article="B"), call("stock", x=1), call("stok"))
    result = run_scripted([turn, claims("known")], tools=[stock])
    assert [(done.text, done.code) for done in calls(result, "stock")[:1]] == [("12", "")]
    assert [done.code for done in calls(result)] == ["", "failed", "malformed", "unknown_tool", "not_done", ""]
    assert (calls(result)[1].text, calls(result)[1].arguments) == ("KeyError: 'B'", {"article": "B"})
    assert result.events[1].event.model == "scripted:inline"  # type: ignore[attr-defined]


def test_files_are_there_and_nothing_is_left(tmp_path: Path, home: Path) -> None:
    """Files are put into the workspace before the goal begins; neither it nor the store outlives the run."""
    seen: list[Path] = []

    def read(this: endstop.Invocation) -> str:
        seen.append(this.workspace)
        return (this.workspace / "deep/a.txt").read_text()

    result = run_scripted([says("", call("read")), claims("read")], tools=[read], files={"deep/a.txt": "text"})
    assert calls(result, "read")[0].text == "text"
    assert (seen[0].exists(), (home / "endstop").exists()) == (False, False)
    given = run_scripted([WRITE, claims("written")], workspace=tmp_path, deliverables="out.txt")
    assert (given.verified, (tmp_path / "out.txt").read_text()) == (True, "it\n")


def test_the_users_settings_do_not_hold(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the user's own file nor the environment changes what a test does; settings= does."""
    (home / ".config/endstop").mkdir(parents=True)
    (home / ".config/endstop/endstop.toml").write_text("[limits]\nturns = 1\n")
    monkeypatch.setenv("ENDSTOP_LIMITS", "turns=1")
    assert run_scripted([WRITE, claims("written")], deliverables="out.txt").verified
    assert run_scripted([WRITE, claims("written")], settings={"limits": {"turns": 1}}).phase == "capped"


@pytest.mark.parametrize(
    ("turn", "passed"),
    [
        (says("", call("wait", seconds=7200)), 7200),
        (says("", call("wait", file="never.txt", seconds=60)), 60),
        (fails("rate_limit", retry_after=1800.0), 1800),
    ],
    ids=["time", "file", "model"],
)
def test_waiting_takes_no_time(turn: Any, passed: float) -> None:
    """While the goal waits for a time, a file or a model, the clock goes there at once, and the goal goes on."""
    clock = FakeClock()
    before = clock()
    result = run_scripted([says("", call("list_files")), turn, WRITE, claims("written")], clock=clock, deliverables="out.txt")
    assert result.verified
    assert passed <= clock() - before < passed + 60


def test_a_tool_may_let_time_pass() -> None:
    """A limit on time ends the goal when the clock says so; the clock never runs backwards."""
    clock = FakeClock()

    def work() -> None:
        clock.advance(3600)

    result = run_scripted([says("", call("work")), claims("done")], tools=[work], clock=clock, limits={"wall": "30m"})
    assert (result.phase, result.reason) == ("capped", "limit wall reached")
    with pytest.raises(endstop.UsageError, match="backwards"):
        clock.advance(-1)


def test_judges() -> None:
    """A judge who disagrees says what is missing; one who agrees verifies; without any, nobody judges."""
    two = says("", call("write_file", path="two.txt", content="it\n"))
    turns = [WRITE, claims("done"), two, claims("now it is", repeat=1)]
    result = run_scripted(turns, judge=[disagrees('a "second" one'), agrees()])
    returned = next(entry.event for entry in result.events if isinstance(entry.event, ev.GoalReturned))
    assert (returned.why, returned.missing) == ("judge", ['a "second" one'])
    assert result.verified
    assert not run_scripted([WRITE, claims("done")]).verified


def test_gates_run_for_real() -> None:
    """A gate is a command in the workspace, red before and green after."""
    assert run_scripted([WRITE, claims("done")], gates="grep -q it out.txt").verified_by == [
        "gate grep -q it out.txt (red at the start, green now)"
    ]


def test_a_script_that_runs_out_says_so() -> None:
    """One answer too few is a failed goal that says which."""
    result = run_scripted([WRITE])
    assert (result.status, "the script has no turn 2" in result.reason) == ("failed", True)


def test_a_capped_goal_has_its_last_words(tmp_path: Path) -> None:
    """The closing turn has its own words, given or not."""
    again = says("", call("list_files"), repeat=9)
    stopped = run_scripted([again])
    assert (stopped.phase, stopped.answer) == ("stuck", "The script ended here.")

    async def given() -> endstop.Result:
        model = ScriptedModel([again], close=[says("Half of it.")])
        return await endstop.run("x", workspace=tmp_path, model=model, judge="none")

    assert asyncio.run(given()).answer == "Half of it."


def test_a_journal_can_be_made(tmp_path: Path) -> None:
    """Entries, lines and state of a made journal are what a store would have, and its file verifies itself."""
    made = JournalBuilder("count", limits={"turns": 3}).add(
        ev.GoalStarted(goal_id="test", workspace_lock="/"),
        ev.LimitReached(limit="turns", unit="turns", scope="goal", spent=3, cap=3),
        ev.GoalClosing(target="capped", reason="limit turns reached", detail={}),
    )
    assert [decode(line) for line in made.lines] == made.entries
    assert [entry.seq for entry in made.entries] == [1, 2, 3, 4, 5]
    assert [later.time - entry.time for entry, later in zip(made.entries, made.entries[1:], strict=False)] == [1.0] * 4
    assert (made.state.phase, made.state.goal.caps) == ("closing", {"turns": 3})  # type: ignore[union-attr]
    assert verify_file(made.write(tmp_path / "events.jsonl")).verdict == "ok"
    with pytest.raises(TransitionError):
        _ = made.add(ev.GoalStarted(goal_id="test", workspace_lock="/")).state


def test_rules_are_the_real_ones() -> None:
    """A scripted loop meets the stall rules with their default counts."""
    result = run_scripted([says("", call("stock", article="A-1"), forever=True)], tools=[stock])
    noticed = [entry.event.count for entry in result.events if isinstance(entry.event, ev.StallNoticed)]
    assert (result.phase, noticed[0]) == ("stuck", Rules().repeat.notice)


def test_inside_a_loop_it_says_what_to_write() -> None:
    """Where a loop runs, the remedy is to await run itself."""

    async def inside() -> None:
        run_scripted([WRITE])

    with pytest.raises(endstop.UsageError, match="ScriptedModel"):
        asyncio.run(inside())
