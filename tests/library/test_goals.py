"""Goals from Python, with real folders, tools, gates and store."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import endstop
from endstop import events as ev
from endstop.core.messages import Price
from endstop.library import guest
from endstop.settings import load
from endstop.store.open import open_store
from endstop.testing import ScriptedModel, agrees, call, calls, claims, disagrees, fails, says

WRITE = says("", call("write_file", path="out.txt", content="it\n"))
DONE = claims("it is there")
ASK = says("", call("ask_user", question="Which?", options=["red", "blue"]))


def model(*turns: Any, **more: Any) -> ScriptedModel:
    return ScriptedModel(turns, **more)


def pursue(workspace: Path, *turns: Any, **more: Any) -> endstop.Result:
    """A goal without a judge in this folder."""
    given = {"judge": "none", "deliverables": "out.txt", **more}
    return endstop.run_sync("write out.txt", workspace=workspace, model=model(*turns), **given)


def types(result: endstop.Result) -> list[str]:
    return [type(entry.event).__name__ for entry in result.events]


# ------------------------------------------------------------------------------------------------------------------ results


def test_verified(tmp_path: Path) -> None:
    """A deliverable that appears shows it: true, ok, and everything of it is in the result and in the store."""
    result = pursue(tmp_path, WRITE, DONE)
    assert (bool(result), result.status, result.phase, result.verified_by) == (True, "ok", "done", ["deliverable out.txt"])
    assert (result.answer, result.missing, result.spend["turns"]) == ("it is there", [], 3.0)
    assert repr(result).startswith("<Result done (verified) by deliverable out.txt [")
    assert (types(result)[0], types(result)[-1]) == ("SessionStart", "SessionShutdown")
    assert [entry.seq for entry in result.events] == list(range(1, len(result.events) + 1))

    async def kept() -> str:
        async with open_store(load(cwd=tmp_path, environ=os.environ).home) as store:
            return (await store.verify(result.session_id)).verdict

    assert asyncio.run(kept()) == "ok"


def test_a_claim_never_looks_verified(tmp_path: Path) -> None:
    """What nothing showed is ok, but false, and says so in its repr and in its handoff."""
    result = pursue(tmp_path, DONE, deliverables=())
    assert (bool(result), result.verified, result.status, result.phase) == (False, False, "ok", "done")
    assert "NOT verified" in repr(result)
    assert result.handoff["verified"] is False


def test_a_gate_and_what_stands_around_it(tmp_path: Path) -> None:
    """A gate as text or as a Gate is the same gate; red and then green verifies."""
    for number, gate in enumerate(("test -e out.txt", endstop.Gate(run="test -e out.txt", timeout=60, retries=1))):
        folder = tmp_path / str(number)
        folder.mkdir()
        result = pursue(folder, WRITE, DONE, gates=[gate], deliverables=())
        assert result.verified_by == ["gate test -e out.txt (red at the start, green now)"]


def test_a_limit_is_no_exception_and_more_of_it_goes_on(tmp_path: Path) -> None:
    """Capped is partial with its reason; resume needs the full limit raised, and goes on with what was spent."""
    played = model(says("a", call("list_files")), WRITE, DONE)

    async def work() -> tuple[endstop.Result, endstop.Result]:
        first = await endstop.run(
            "write", workspace=tmp_path, model=played, deliverables="out.txt", judge="none", limits={"turns": 1}
        )
        for wrong in (None, {"turns": 1}, {"tokens": 1e6}, {"turns": endstop.NONE}):
            with pytest.raises(endstop.UsageError, match="limit"):
                await endstop.resume(first.session_id, model=played, limits=wrong)
        return first, await endstop.resume(first.session_id[:13], model=played, limits={"turns": 9}, note="hurry")

    first, second = asyncio.run(work())
    assert (first.status, first.phase, first.reason, bool(first)) == ("partial", "capped", "limit turns reached", False)
    assert first.missing == ["deliverable absent: out.txt"]
    assert (second.verified, second.session_id, second.spend["turns"]) == (True, first.session_id, 4.0)
    resumed = next(entry.event for entry in second.events if isinstance(entry.event, ev.GoalResumed))
    assert (resumed.note, resumed.limits) == ("hurry", {"turns": 9.0})
    assert repr(first).startswith("<Result capped: limit turns reached [")


def test_failed_stuck_and_blocked(tmp_path: Path) -> None:
    """A fault has status failed; repetition and a reported block are partial, each with its reason."""
    failed = pursue(tmp_path, fails("auth", "the key is wrong"))
    assert (failed.status, failed.phase, "the key is wrong" in failed.reason) == ("failed", "failed", True)
    stuck = pursue(tmp_path, says("", call("list_files"), forever=True))
    assert (stuck.status, stuck.phase, "repeat" in stuck.reason) == ("partial", "stuck", True)
    blocked = pursue(tmp_path, says("", call("report_blocked", reason="no password", needs=["it"]), repeat=2))
    assert (blocked.status, blocked.phase, "no password" in blocked.reason) == ("partial", "blocked", True)


def test_a_plain_answer(tmp_path: Path) -> None:
    """Words alone, with nothing to check, are the answer."""
    result = pursue(tmp_path, says("It is a folder."), deliverables=())
    assert (result.answer, result.phase, result.verified) == ("It is a folder.", "done", False)


def test_the_judge_may_be_another_model(tmp_path: Path) -> None:
    """A judge of the caller's own is asked, is independent by its name, and its no is what is missing."""
    judge = model(judge=[disagrees("more of it"), agrees()])
    judge.name = "mine:judge"
    result = pursue(tmp_path, WRITE, DONE, says("", call("shell", command="true")), DONE, judge=judge, mode="yolo")
    assert result.verified_by == ["deliverable out.txt", "independent judge mine:judge"]
    returned = next(entry.event for entry in result.events if isinstance(entry.event, ev.GoalReturned))
    assert (returned.why, returned.missing) == ("judge", ["more of it"])


def test_what_a_model_costs_counts(tmp_path: Path) -> None:
    """A model of the caller's own with a price spends money."""
    priced = model(WRITE, DONE, price=Price(input=0.001, output=0.01, cache_read=0.001, cache_write=0.001))
    result = endstop.run_sync(
        "write",
        workspace=tmp_path,
        model=priced,
        deliverables="out.txt",
        judge="none",
        limits={"cost": 900, "output_per_call": 5000},
    )
    assert (result.phase, result.spend["cost"]) == ("done", pytest.approx(3 * (100 * 0.001 + 20 * 0.01)))


# ---------------------------------------------------------------------------------------------------------------- settings


def test_what_is_not_said_comes_from_settings(tmp_path: Path) -> None:
    """The project's file holds, an argument beats it, and settings= may say what no argument does."""
    (tmp_path / "endstop.toml").write_text(
        'deliverables = ["out.txt"]\njudge = "none"\n[limits]\nturns = 40\nrounds = 3\n[permissions]\ndeny = ["shell"]\n'
    )
    result = endstop.run_sync(
        "write it", workspace=tmp_path, model=model(WRITE, says("", call("shell", command="ls")), DONE), limits={"turns": 30},
        settings={"permissions": {"deny": ["grep"]}, "stall": {"on": False}, "limits": {"wall": "1h"}},
        deny=["write_file(secret/**)"],
    )  # fmt: skip
    queued = next(entry.event for entry in result.events if isinstance(entry.event, ev.GoalQueued))
    assert queued.contract.deliverables == ["out.txt"]
    assert (queued.limits["turns"], queued.limits["rounds"], queued.limits["wall"]) == (30.0, 3.0, 3600.0)
    assert queued.policy.deny == ["shell", "grep", "write_file(secret/**)"]
    assert calls(result, "shell")[0].code == "denied"


def test_home_and_workspace_may_be_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """State goes where settings say; without a workspace the current folder is it."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    result = endstop.run_sync(
        "write", model=model(WRITE, DONE), judge="none", deliverables=[Path("out.txt")], settings={"home": tmp_path / "state"}
    )
    assert (result.verified, (tmp_path / "here/out.txt").exists(), (tmp_path / "state/endstop.db").exists()) == (True, True, True)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"objective": " "}, "no objective"),
        ({"objective": None}, "no objective"),
        ({"model": None}, "no model is chosen"),
        ({"model": "nobody:x"}, "nobody"),
        ({"model": "openai:gpt-5"}, "no key for openai"),
        ({"workspace": "not/there"}, "no such folder"),
        ({"mode": "wild"}, "arguments: permissions.mode: unknown value"),
        ({"confront": "maybe"}, "arguments: confront"),
        ({"gates": [5]}, "arguments: gate 1"),
        ({"gates": [{"run": "true", "tiemout": 3}]}, "did you mean timeout?"),
        ({"gates": "no-such-command-here"}, "no-such-command-here"),
        ({"gates": "pytest || true"}, "|| true"),
        ({"allow": "shell("}, "shell("),
        ({"settings": {"lmits": {}}}, "did you mean limits?"),
        ({"settings": {"permissions": "yolo"}}, "arguments: permissions"),
        ({"settings": ["x"]}, "give a dict"),
        ({"deliverables": [3]}, "arguments: deliverables"),
        ({"tools": [len]}, "len"),
        ({"tools": [3]}, "only functions"),
        ({"tools": 3}, "3 is no list"),
        ({"gates": 3}, "3 is no list"),
        ({"limits": 3}, "3 are no limits"),
        ({"limits": [3]}, "3 is no text"),
        ({"limits": {3: 4}}, "no limit is called '3'"),
        ({"model": 3}, "3 is no model"),
        ({"judge": 3}, "3 is no model"),
    ],
)
def test_what_cannot_be_used_is_told(given: dict[str, Any], told: str, tmp_path: Path, home: Path) -> None:
    """A usage error names what is wrong, carries a remedy, and leaves no session behind."""
    asked = {"objective": "write", "workspace": tmp_path, "model": model(WRITE, DONE), "judge": "none", **given}
    with pytest.raises(endstop.UsageError) as error:
        endstop.run_sync(**asked)
    assert told in str(error.value)
    assert error.value.hint

    async def sessions() -> list[Any]:
        async with open_store(home / "endstop") as store:
            return list(await store.sessions())

    assert asyncio.run(sessions()) == []


def test_two_models_of_one_name_are_refused(tmp_path: Path) -> None:
    """A judge that could not be told from the model is no judge."""
    with pytest.raises(endstop.UsageError, match="two models have this name"):
        pursue(tmp_path, DONE, judge=model())


def test_a_model_of_the_callers_own_is_not_closed(tmp_path: Path) -> None:
    """Who opened it closes it: the same model serves the next goal."""
    closed: list[str] = []

    class Mine(ScriptedModel):
        async def close(self) -> None:
            closed.append(self.name)

    mine = Mine([WRITE, DONE])
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        assert endstop.run_sync("write", workspace=tmp_path / name, model=mine, deliverables="out.txt", judge="none")
    assert closed == []


def test_what_needs_no_loop_says_what_to_write_inside_one(tmp_path: Path) -> None:
    """Where a loop runs, run_sync and resume_sync are refused with the remedy."""

    async def run() -> None:
        endstop.run_sync("x", workspace=tmp_path, model=model(DONE))

    async def resume() -> None:
        endstop.resume_sync("x")

    for name, inside in (("run", run), ("resume", resume)):
        with pytest.raises(endstop.UsageError, match=f"endstop.{name}_sync: .*write await endstop.{name}\\("):
            asyncio.run(inside())


def test_a_goal_goes_on_without_a_loop(tmp_path: Path) -> None:
    """resume_sync takes the arguments of resume and comes to the same result."""
    played = model(WRITE, DONE)
    first = endstop.run_sync("write", workspace=tmp_path, model=played, deliverables="out.txt", judge="none", limits={"turns": 1})
    second = endstop.resume_sync(first.session_id, model=played, limits={"turns": 9})
    assert (first.phase, second.phase, second.verified) == ("capped", "done", True)


# ------------------------------------------------------------------------------------------------------------------ resume


def test_what_cannot_be_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Done, unknown, begun with another model, or asked for from inside a goal: refused with the reason."""
    done = pursue(tmp_path, WRITE, DONE)
    other = model()
    other.name = "mine:other"

    async def told(*args: Any, **more: Any) -> str:
        with pytest.raises(endstop.UsageError) as error:
            await endstop.resume(*args, **more)
        return str(error.value)

    assert "it is done" in asyncio.run(told(done.session_id))
    assert "no session has this id" in asyncio.run(told("zzz"))
    assert "it was begun with scripted:inline" in asyncio.run(told(done.session_id, model=other))
    monkeypatch.setenv("ENDSTOP_CALL", "x")
    assert "a goal's own commands" in asyncio.run(told(done.session_id))


def test_a_goal_that_runs_elsewhere_is_not_taken(tmp_path: Path) -> None:
    """While one task drives it, a resume says who does."""

    async def work() -> str:
        id = ""
        async with endstop.stream("ask", workspace=tmp_path, model=model(ASK), judge="none", wait=True) as entries:
            async for entry in entries:
                id = getattr(entry.event, "session_id", id)
                if isinstance(entry.event, ev.QuestionAsked):
                    break
            with pytest.raises(endstop.UsageError) as error:
                await endstop.resume(id, model=model(ASK))
        return str(error.value)

    assert f"process {os.getpid()} drives it already" in asyncio.run(work())


# ------------------------------------------------------------------------------------------------- streams and cancelling


def test_a_stream_gives_every_entry_and_then_the_result(tmp_path: Path) -> None:
    """From session.start to the end, in order; on_event gets them too; before the end there is no result."""
    heard: list[int] = []

    async def work() -> tuple[list[int], endstop.Result]:
        entries = endstop.stream(
            "write", workspace=tmp_path, model=model(WRITE, DONE), deliverables="out.txt", judge="none",
            on_event=lambda entry: heard.append(entry.seq),
        )  # fmt: skip
        with pytest.raises(endstop.UsageError, match="read all entries first"):
            _ = entries.result
        seen = [entry.seq async for entry in entries]
        assert [entry async for entry in entries] == []
        return seen, entries.result

    seen, result = asyncio.run(work())
    assert seen == heard == list(range(1, len(result.events) + 1))[: len(seen)]
    assert len(seen) >= len(result.events) - 1  # the shutdown comes after the end
    assert result.verified


def test_a_stream_that_cannot_begin_raises(tmp_path: Path) -> None:
    """A usage error comes from the first entry that is asked for."""

    async def work() -> None:
        async for _ in endstop.stream(" ", workspace=tmp_path, model=model()):
            pass

    with pytest.raises(endstop.UsageError, match="no objective"):
        asyncio.run(work())


def test_leaving_a_stream_early_pauses_the_goal(tmp_path: Path) -> None:
    """Out of the block the goal is paused and let go; resumed, it comes to its end."""
    played = model(says("", call("list_files")), WRITE, DONE)

    async def work() -> endstop.Result:
        id = ""
        asked = {"workspace": tmp_path, "model": played, "deliverables": "out.txt", "judge": "none"}
        async with endstop.stream("write", **asked) as entries:
            async for entry in entries:
                id = getattr(entry.event, "session_id", id)
                if isinstance(entry.event, ev.ToolStart):
                    break
        with pytest.raises(endstop.UsageError):
            _ = entries.result
        return await endstop.resume(id, model=played)

    result = asyncio.run(work())
    assert result.verified
    paused = [entry.event for entry in result.events if isinstance(entry.event, ev.GoalPaused)]
    assert [(event.reason, event.by) for event in paused] == [("shutdown", "the caller")]


def test_a_cancelled_run_leaves_a_paused_goal_and_no_process(tmp_path: Path) -> None:
    """A time-out around run stops the command that runs, and what was done is kept."""
    seconds = f"4242{os.getpid()}"
    played = model(WRITE, says("", call("shell", command=f"sleep {seconds}")), DONE)
    began = asyncio.Event()
    ids: list[str] = []

    def watch(entry: Any) -> None:
        if isinstance(entry.event, ev.SessionStart):
            ids.append(entry.event.session_id)
        if isinstance(entry.event, ev.ToolStart) and entry.event.tool_name == "shell":
            began.set()

    async def work() -> endstop.Result:
        asked = {"workspace": tmp_path, "model": played, "deliverables": "out.txt", "judge": "none", "mode": "yolo"}
        task = asyncio.create_task(endstop.run("write", on_event=watch, **asked))
        await asyncio.wait_for(began.wait(), 30)
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()  # once more: the tool is not waited for
        with pytest.raises(asyncio.CancelledError):
            await task
        return await endstop.resume(ids[0], model=played)

    result = asyncio.run(work())
    found = subprocess.run(["pgrep", "-f", f"sleep {seconds}"], capture_output=True, text=True, check=False)
    assert found.stdout == ""
    assert result.phase == "done"
    assert calls(result, "shell")[0].code in ("interrupted", "effect_unknown")


def test_several_goals_in_one_process(tmp_path: Path) -> None:
    """Goals in folders of their own run side by side; two in one folder do not."""
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()

    async def one(name: str) -> endstop.Result:
        asked = {"workspace": tmp_path / name, "deliverables": "out.txt", "judge": "none"}
        return await endstop.run("write", model=model(says("", call("list_files"), delay=0.05), WRITE, DONE), **asked)

    async def work() -> list[Any]:
        return await asyncio.gather(*map(one, ("a", "b", "c", "a")), return_exceptions=True)

    ended = asyncio.run(work())
    assert sorted(isinstance(item, endstop.UsageError) for item in ended) == [False, False, False, True]
    assert all(item.verified for item in ended if isinstance(item, endstop.Result))
    assert guest._OPEN == {}


def test_ctrl_c_pauses_the_goal(tmp_path: Path) -> None:
    """An interrupt while the model is asked ends the process as Python does, with the goal paused."""
    code = (
        "import sys, endstop\nfrom endstop.testing import ScriptedModel, says\n"
        "def hear(entry):\n"
        "    if isinstance(entry.event, endstop.events.TurnStart): print(flush=True)\n"
        "endstop.run_sync('x', model=ScriptedModel([says('', delay=60)]), judge='none', on_event=hear)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        run.stdout.readline()
        run.send_signal(signal.SIGINT)
        _, errors = run.communicate(timeout=30)
    assert (run.returncode, "KeyboardInterrupt" in errors) == (-signal.SIGINT, True)

    async def phases() -> list[str]:
        async with open_store(load(cwd=tmp_path, environ=os.environ).home) as store:
            return [row.phase for row in await store.sessions()]

    assert asyncio.run(phases()) == ["paused"]


# ------------------------------------------------------------------------------------------------------------------ import


def test_import_loads_nothing() -> None:
    """import endstop loads its own module only; every public name is there when asked for."""
    code = (
        "import sys; before = set(sys.modules); import endstop; new = {m for m in sys.modules if m not in before};"
        "print(sorted(m for m in new if m.startswith('endstop')), 'asyncio' in new, 'msgspec' in new);"
        "print(all(getattr(endstop, name) is not None for name in endstop.__all__))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["['endstop'] False False", "True"]
    assert set(endstop.__all__) - {"__version__"} == {*endstop._NAMES, *endstop._MODULES}
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = endstop.nothing
