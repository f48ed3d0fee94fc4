"""Whole goals over a real wire, with real tools, gates and store: what ends how."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from endstop.assemble import Order, System, open_system
from endstop.core import events as ev
from endstop.core.events import Contract, Gate
from endstop.core.goal import State
from endstop.errors import UsageError
from endstop.running import Running
from endstop.runtime.control import control
from endstop.settings import load
from tests.runtime.server import go, message, pursue, serving, system

CODE = "def one():\n    return 2\n"
TEST = "from code_ import one\n\nassert one() == 1\n"
GATE = Gate(gate_id="g", run="python3 check_code.py")


def repository(folder: Path) -> Path:
    """A repository with a red gate."""
    (folder / "code_.py").write_text(CODE)
    (folder / "check_code.py").write_text(TEST)
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "start"]):
        subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True)
    return folder


def judge(request: dict[str, Any]) -> bool:
    """Whether a request is the judge's."""
    return str(request["messages"][0]["content"]).startswith("You are an independent judge")


def agrees(request: dict[str, Any]) -> dict[str, Any]:
    """A judge that cites the last event it was shown."""
    shown = str(request["messages"][-1]["content"])
    seq = [line.split("]")[0][1:] for line in shown.splitlines() if line.startswith("[") and line.split("]")[0][1:].isdigit()]
    return message(f'{{"achieved": true, "impossible": null, "missing": [], "because": [{seq[-1]}]}}')


def script(*turns: dict[str, Any]) -> Callable[[dict[str, Any], int], dict[str, Any]]:
    """Answers in order, the last one for ever; the judge agrees, the closing turn says so."""
    played = [0]

    def play(request: dict[str, Any], number: int) -> dict[str, Any]:
        if judge(request):
            return agrees(request)
        if str(request["messages"][0]["content"]).startswith("You are writing the handoff"):
            return message("This is the handoff.")
        played[0] += 1
        return turns[min(played[0], len(turns)) - 1]

    return play


DONE = message("", ("task_complete", {"summary": "it is done"}))
FIX = message("", ("edit_file", {"path": "code_.py", "old": "return 2", "new": "return 1"}))
CHEAT = message("", ("write_file", {"path": "check_code.py", "content": "pass\n"}))


def ends(play: Any, workspace: Path, contract: Contract, **more: Any) -> tuple[State, Any]:
    """One goal against a server that plays this."""

    async def work() -> tuple[State, Any]:
        async with serving(play) as server:
            state, _ = await pursue(server.url, workspace, contract, **more)
            return state, server

    result: tuple[State, Any] = go(work())
    return result


def test_red_at_the_start_and_green_now_is_verified_without_a_judge(tmp_path: Path) -> None:
    """A gate that turned green shows the objective."""
    contract = Contract(gates=[GATE], judge="none")
    state, _ = ends(script(FIX, DONE, DONE), repository(tmp_path), contract)
    ended = state.goal.ended
    assert (ended.phase, ended.verified, ended.ended_by) == ("done", True, "claim")
    assert ended.handoff["changedFiles"] == ["code_.py"]


def test_a_gate_that_was_green_all_along_verifies_nothing(tmp_path: Path) -> None:
    """Green before and green after, and no judge: claimed, and said so."""
    contract = Contract(gates=[Gate(gate_id="g", run="python3 -c 'print(1)'")], judge="none")
    state, _ = ends(script(DONE), repository(tmp_path), contract)
    ended = state.goal.ended
    assert (ended.phase, ended.verified, ended.verified_by) == ("done", False, [])
    assert ended.handoff["reason"] == "gates still green, nothing shows the objective"


def test_an_agent_that_edits_the_file_its_gate_runs_is_refused(tmp_path: Path) -> None:
    """The gate would be green, but a verifier input was changed: it is never done."""
    state, _ = ends(script(CHEAT, DONE), repository(tmp_path), Contract(gates=[GATE], judge="none"))
    ended = state.goal.ended
    assert (ended.phase, ended.verified) == ("stuck", False)
    assert "verifier input modified: check_code.py" in ended.missing


def test_the_judge_reads_the_record_and_agrees(tmp_path: Path) -> None:
    """Without gates an agreeing judge verifies; the same model in a fresh context is said not to be independent."""
    state, server = ends(script(FIX, DONE), repository(tmp_path), Contract())
    ended = state.goal.ended
    assert (ended.phase, ended.verified) == ("done", True)
    assert ended.verified_by == ["judge (same model, not independent) openai:m"]
    asked = [request for request in server.requests if judge(request)]
    assert len(asked) == 1
    assert "edit_file" in str(asked[0]["messages"][-1]["content"])


def test_a_plain_answer_to_a_question_is_claimed(tmp_path: Path) -> None:
    """Words in an untouched workspace with an empty contract end the goal as claimed, at once."""
    state, server = ends(script(message("It is a repository with one function.")), repository(tmp_path), Contract())
    assert (state.phase, state.goal.ended.verified, state.goal.ended.ended_by) == ("done", False, "answer")
    assert len(server.requests) == 1


def test_without_limits_and_rules_it_is_a_plain_loop(tmp_path: Path) -> None:
    """Thirty equal failing calls run one after the other, and then the claim ends it: nothing else changes."""
    again = message("", ("shell", {"command": "exit 3"}))
    play = script(*[again] * 30, DONE, DONE)
    none = dict.fromkeys(
        ["cost", "tokens", "turns", "rounds", "tool-calls", "tool-calls/turn", "tool:web_search", "verifications", "active",
         "wall", "output/call"], "none",
    )  # fmt: skip
    state, _ = ends(
        play, repository(tmp_path), Contract(judge="none"), limits=none, stall={"on": False},
        permissions={"allow": ["shell"]},
    )  # fmt: skip
    assert (state.phase, state.spend.by_tool["shell"], state.spend.turns) == ("done", 30, 32)
    assert state.goal.caps == {}


def test_a_full_limit_ends_it_with_a_handoff_and_more_of_it_goes_on(tmp_path: Path) -> None:
    """capped names limit, unit, spent and cap; resumed with a higher cap it goes on, and what was spent stays spent."""
    repository(tmp_path)
    play = script(*[message("", ("shell", {"command": f"echo {n}"})) for n in range(6)], FIX, DONE, DONE)

    async def work() -> None:
        async with serving(play) as server, system(server.url, tmp_path, permissions={"allow": ["shell"]}) as opened:
            limits = opened.settings.limits | {"turns": 6.0}
            running = await opened.queue(order(opened, tmp_path, Contract(gates=[GATE], judge="none"), limits))
            state = await running.drive(stay=False)
            await running.close()
            assert state.phase == "capped"
            detail = state.goal.ended.handoff["detail"]
            assert (detail["limit"], detail["unit"], detail["cap"]) == ("turns", "turns", 6.0)
            assert state.spend.turns == 6  # five of work and the closing one
            assert state.goal.ended.handoff["summary"] == "This is the handoff."
            running = await opened.take(running.session.session_id)
            running.control()
            running.session.record(ev.GoalResumed(from_="capped", cause="person", limits={"turns": 20.0}, by="test"))
            state = await running.drive(stay=False)
            await running.close()
            assert (state.phase, state.goal.ended.verified) == ("done", True)
            assert state.spend.turns > 6

    go(work())


def order(opened: System, workspace: Path, contract: Contract, limits: dict[str, float] | None = None) -> Order:
    """An order with default settings."""
    return Order(
        objective="make one() return 1",
        workspace=workspace,
        model="openai:m",
        contract=contract,
        limits=opened.settings.limits if limits is None else limits,
        policy=opened.settings.policy,
    )


def test_a_question_parks_the_goal_and_its_answer_from_elsewhere_goes_on(tmp_path: Path) -> None:
    """ask_user costs nothing while it waits; the answer is the call's result, and reaches the model."""
    repository(tmp_path)
    ask = message("", ("ask_user", {"question": "Which number?", "options": ["one", "two"]}))

    async def work() -> None:
        async with serving(script(ask, FIX, DONE, DONE)) as server, system(server.url, tmp_path) as opened:
            running = await opened.queue(order(opened, tmp_path, Contract(gates=[GATE], judge="none")))
            state = await running.drive(stay=False)
            assert (state.phase, state.goal.parked.on) == ("waiting", "question")
            await running.close()
            asked = len(server.requests)
            question = next(iter(state.questions))
            answer = ev.QuestionAnswered(question_id=question, answer="one", by="test")
            assert await opened.control(running.session.session_id, answer)
            assert not await opened.control(running.session.session_id, answer)  # the second comes too late
            running = await opened.take(running.session.session_id)
            state = await running.drive(stay=False)
            await running.close()
            assert (state.phase, state.goal.ended.verified) == ("done", True)
            told = [m for m in server.requests[asked]["messages"] if m["role"] == "tool"]
            assert told[-1]["content"] == "one"

    go(work())


def test_nobody_to_ask_means_denied_and_said_how_to_allow(tmp_path: Path) -> None:
    """In mode ask with nobody reachable a command does not run, and five denials block the goal."""
    plays = [message("", ("shell", {"command": f"touch made{n}"})) for n in range(20)]
    state, _ = ends(script(*plays), repository(tmp_path), Contract(gates=[GATE]), permissions={"mode": "ask"})
    assert (state.phase, state.goal.ended.handoff["detail"]["rule"]) == ("blocked", "denied")
    assert not list(tmp_path.glob("made*"))


@pytest.mark.parametrize(
    ("status", "body", "phase"),
    [(401, {"error": {"message": "bad key"}}, "failed"), (400, {"error": {"message": "no such thing"}}, "failed")],
)
def test_a_final_refusal_of_the_provider_fails_the_goal_with_its_words(
    status: int, body: dict[str, Any], phase: str, tmp_path: Path
) -> None:
    """Wrong key and invalid request end it as failed, with the server's message, without a closing turn."""
    state, server = ends(lambda request, n: web.json_response(body, status=status), repository(tmp_path), Contract())
    assert state.phase == phase
    assert body["error"]["message"] in state.goal.ended.handoff["reason"]
    assert len(server.requests) == 1


def test_a_server_that_is_not_there_is_waited_for(tmp_path: Path) -> None:
    """Nobody listens: the goal waits for the model, keeps its record, and goes on when the server is there."""
    repository(tmp_path)

    async def work() -> None:
        async with system("http://127.0.0.1:9/v1", tmp_path, retry=0) as opened:
            running = await opened.queue(order(opened, tmp_path, Contract(gates=[GATE], judge="none")))
            state = await running.drive(stay=False)
            await running.close()
            assert (state.phase, state.goal.parked.on) == ("waiting", "model")
            assert state.goal.parked.until > time.time()
        async with serving(script(FIX, DONE, DONE)) as server, system(server.url, tmp_path) as opened:
            running = await opened.take(running.session.session_id)
            running.session.record(ev.GoalResumed(from_="waiting", cause="person", by="test"))
            state = await running.drive(stay=False)
            await running.close()
            assert (state.phase, state.goal.ended.verified) == ("done", True)

    go(work())


async def until_running(running: Running, kind: type[Any]) -> None:
    """Wait until an event of a type was recorded."""
    seen = asyncio.Event()
    running.session.emit.append(lambda entry: seen.set() if isinstance(entry.event, kind) else None)
    await asyncio.wait_for(seen.wait(), 30)


def sleepers(seconds: str) -> list[str]:
    """Processes of the test's command that live."""
    found = subprocess.run(["pgrep", "-f", f"sleep {seconds}"], capture_output=True, text=True, check=False)
    return found.stdout.split()


@pytest.mark.parametrize("where", ["here", "elsewhere"])
def test_cancel_reaches_a_running_command_and_leaves_no_process(where: str, tmp_path: Path) -> None:
    """Cancelled from this process or by a control in the journal, the command's whole tree is gone and the call has a result."""
    repository(tmp_path)
    seconds = f"98765{len(where)}{os.getpid()}"
    sleep = message("", ("shell", {"command": f"sleep {seconds} & sleep {seconds}"}))

    async def work() -> None:
        async with serving(script(sleep)) as server, system(server.url, tmp_path, permissions={"allow": ["shell"]}) as opened:
            running = await opened.queue(order(opened, tmp_path, Contract()))
            driving = asyncio.create_task(running.drive(stay=False))
            await until_running(running, ev.ToolStart)
            cancel = ev.GoalClosing(target="cancelled", reason="person", by="test", detail={})
            if where == "here":
                running.control(cancel)
            else:
                await control(opened.store, running.session.session_id, cancel, clock=opened.clock, redact=opened.redact)
            state = await asyncio.wait_for(driving, 30)
            await running.close()
            assert state.phase == "cancelled"
            assert [call.code for call in state.turn.calls.values()] == ["cancelled"]
            assert sleepers(seconds) == []

    go(work())


def test_a_pause_keeps_everything_and_resume_goes_on(tmp_path: Path) -> None:
    """Paused while the model is asked: the call is interrupted and counted; resumed, the goal ends as it would have."""
    repository(tmp_path)
    gate = asyncio.Event()

    async def work() -> None:
        plays = script(FIX, DONE, DONE)
        first = [True]

        async def slow(request: web.Request) -> web.StreamResponse:
            if first[0]:
                first[0] = False
                gate.set()
                await asyncio.sleep(60)
            return web.json_response(plays(await request.json(), 0))

        async with serving(plays) as server, system(server.url, tmp_path) as opened:
            server.handle = slow  # type: ignore[method-assign]
            server.play = lambda request, n: plays(request, n)
            running = await opened.queue(order(opened, tmp_path, Contract(gates=[GATE], judge="none")))
            driving = asyncio.create_task(running.drive(stay=False))
            await until_running(running, ev.TurnStart)
            running.control(ev.GoalPaused(reason="user", by="test"))
            state = await asyncio.wait_for(driving, 30)
            await running.close()
            assert state.phase == "paused"
            running = await opened.take(running.session.session_id)
            running.session.record(ev.GoalResumed(from_="paused", cause="person", by="test"))
            state = await running.drive(stay=False)
            await running.close()
            assert (state.phase, state.goal.ended.verified) == ("done", True)
            assert state.spend.estimated

    go(work())


def test_a_message_while_it_works_is_heard_at_the_next_call(tmp_path: Path) -> None:
    """Steering from another process reaches the model with its next request, after the results."""
    repository(tmp_path)
    slow = message("", ("shell", {"command": "sleep 2"}))

    async def work() -> None:
        async with (
            serving(script(slow, FIX, DONE, DONE)) as server,
            system(server.url, tmp_path, permissions={"allow": ["shell"]}) as opened,
        ):
            running = await opened.queue(order(opened, tmp_path, Contract(gates=[GATE], judge="none")))
            driving = asyncio.create_task(running.drive(stay=False))
            await until_running(running, ev.ToolStart)
            said = ev.UserMessage(message_id="m1", content="mind the gap", source="user", delivery="steering")
            assert await opened.control(running.session.session_id, said)
            state = await asyncio.wait_for(driving, 60)
            await running.close()
            assert state.phase == "done"
            roles = [(m["role"], m.get("content")) for m in server.requests[1]["messages"]]
            assert roles[-1] == ("user", "mind the gap")
            assert roles[-2][0] == "tool"

    go(work())


def test_a_second_process_cannot_drive_a_goal_that_is_driven(tmp_path: Path) -> None:
    """The lease says who drives; another goal in the same folder is refused too."""
    repository(tmp_path)

    async def work() -> None:
        async with serving(script(FIX)) as server, system(server.url, tmp_path) as opened:
            running = await opened.queue(order(opened, tmp_path, Contract()))
            with pytest.raises(UsageError, match="drives this session"):
                await opened.take(running.session.session_id)
            with pytest.raises(UsageError, match="works in this folder"):
                await opened.queue(order(opened, tmp_path, Contract()))
            assert len(await opened.store.sessions()) == 1
            await running.close()

    go(work())


@pytest.mark.parametrize(
    ("names", "told"), [(["AGENTS.md", "CLAUDE.md"], "of AGENTS.md"), (["CLAUDE.md"], "of CLAUDE.md"), ([], "")]
)
def test_what_the_repository_tells_its_agents_is_in_the_first_message(names: list[str], told: str, tmp_path: Path) -> None:
    """AGENTS.md, else CLAUDE.md, as it was when the goal was queued; .env is never read."""
    for name in names:
        (tmp_path / name).write_text(f"Rules of {name}: use tabs.\n")
    (tmp_path / ".env").write_text("PASSWORD=hunter2hunter2\n")
    _, server = ends(script(message("Fine.")), tmp_path, Contract())
    first = str(server.requests[0]["messages"][1]["content"])
    assert ("Rules of" in first) == bool(names)
    assert told in first
    assert "hunter2" not in str(server.requests)


def said(text: str) -> ev.UserMessage:
    """A human's message."""
    return ev.UserMessage(message_id=text, content=text, source="user", delivery="idle")


def test_a_conversation_without_a_goal_goes_round_by_round_and_survives_its_process(tmp_path: Path) -> None:
    """Each message opens a round with tools; another process takes the conversation up where it was."""
    repository(tmp_path)
    plays = [FIX, message("I repaired it."), message("You are welcome.")]

    async def work() -> None:
        async with serving(script(*plays)) as server, system(server.url, tmp_path) as opened:
            talk = await opened.converse(tmp_path, "openai:m", {"turns": 20.0}, ev.Policy())
            talk.control(said("make one() return 1"))
            state = await talk.drive(stay=False, chat=True)
            assert (state.phase, state.turn.text, state.goal) == ("none", "I repaired it.", None)
            await talk.close()
            assert "return 1" in (tmp_path / "code_.py").read_text()
            talk = await opened.take(talk.session.session_id)
            talk.control(said("thank you"))
            state = await talk.drive(stay=False, chat=True)
            await talk.close()
            assert (state.turn.text, state.spend.turns) == ("You are welcome.", 3)
            roles = [m["role"] for m in server.requests[-1]["messages"]]
            assert roles == ["system", "user", "assistant", "tool", "assistant", "user"]
            assert (await opened.store.verify(talk.session.session_id)).verdict == "ok"

    go(work())


def test_a_message_after_a_goals_end_is_answered_and_resumes_nothing(tmp_path: Path) -> None:
    """The goal stays done; the drive of a goal does not go on by itself, a conversation does."""
    plays = [message("It is small."), message("Because it has one file.")]

    async def work() -> None:
        async with serving(script(*plays)) as server, system(server.url, repository(tmp_path)) as opened:
            running = await opened.queue(order(opened, tmp_path, Contract()))
            state = await running.drive(stay=False)
            assert (state.phase, len(server.requests)) == ("done", 1)
            running.control(said("why?"))
            state = await running.drive(stay=False)
            assert len(server.requests) == 1
            state = await running.drive(stay=False, chat=True)
            await running.close()
            assert (state.phase, state.turn.text) == ("done", "Because it has one file.")

    go(work())


def test_a_fallback_takes_over_and_its_answers_count_as_its_own(tmp_path: Path) -> None:
    """The pinned model's server refuses the key; the named fallback ends the goal; both are in the record."""
    repository(tmp_path)
    plays = script(FIX, DONE, DONE)

    def play(request: dict[str, Any], n: int) -> Any:
        if request["model"] == "m":
            return web.json_response({"error": {"message": "bad key"}}, status=401)
        return plays(request, n)

    async def work() -> None:
        async with serving(play) as server, system(server.url, tmp_path) as opened:
            wanted = order(opened, tmp_path, Contract(gates=[GATE], judge="none"))
            wanted.fallbacks = ["openai:other"]
            running = await opened.queue(wanted)
            state = await running.drive(stay=False)
            await running.close()
            assert (state.phase, state.goal.ended.verified) == ("done", True)
            entries = await opened.store.entries(running.session.session_id)
            assert {e.event.model for e in entries if isinstance(e.event, ev.AssistantUsage)} == {"openai:other"}
            assert [e.event.new_model for e in entries if isinstance(e.event, ev.SessionModelChange)] == ["openai:other"]

    go(work())


def test_a_workspace_deleted_during_the_run_ends_the_goal_without_a_crash(tmp_path: Path) -> None:
    """Somebody removes the folder: tools fail, nothing counts as there, it ends by a rule or a limit, and the record holds."""
    root = tmp_path / "ws"
    root.mkdir()
    repository(root)
    plays = script(message("", ("read_file", {"path": "code_.py"})), DONE)

    async def work() -> None:
        async with serving(plays) as server, system(server.url, tmp_path) as opened:
            contract = Contract(gates=[GATE], deliverables=["code_.py"], judge="none")
            running = await opened.queue(order(opened, root, contract))
            running.session.emit.append(
                lambda e: shutil.rmtree(root, ignore_errors=True) if isinstance(e.event, ev.ToolStart) else None
            )
            state = await asyncio.wait_for(running.drive(stay=False), 60)
            await running.close()
            assert state.phase in ("stuck", "blocked", "capped")
            assert not state.goal.ended.verified
            assert "deliverable absent: code_.py" in state.goal.ended.missing
            assert (await opened.store.verify(running.session.session_id)).verdict == "ok"

    go(work())


def test_the_handoff_of_a_capped_goal_says_what_is_there_now(tmp_path: Path) -> None:
    """A deliverable written after the last look is no longer missing."""
    write = message("", ("write_file", {"path": "report.md", "content": "all of it"}))
    more = [message("", ("read_file", {"path": f"f{n}"})) for n in range(9)]
    contract = Contract(deliverables=["report.md"], judge="none")
    state, _ = ends(script(write, *more), repository(tmp_path), contract, limits={"turns": "3"})
    assert state.phase == "capped"
    assert state.goal.ended.handoff["deliverables"]["report.md"] not in ("absent", "empty")
    assert state.goal.ended.handoff["changedFiles"] == ["report.md"]


def useless(usage: dict[str, int] | None) -> dict[str, Any]:
    """An answer that was paid for and holds nothing."""
    said: dict[str, Any] = {"id": "x", "object": "chat.completion", "model": "m", "choices": []}
    return said | ({"usage": usage} if usage else {})


@pytest.mark.parametrize("usage", [{"prompt_tokens": 9000, "completion_tokens": 1000}, None])
def test_an_answer_that_was_paid_for_counts_even_if_it_is_of_no_use(usage: dict[str, int] | None, tmp_path: Path) -> None:
    """With its reported usage, or with all that was reserved; it is not asked again within the same reservation."""

    async def work() -> None:
        async with serving(lambda request, n: useless(usage)) as server, system(server.url, repository(tmp_path)) as opened:
            running = await opened.queue(order(opened, tmp_path, Contract(), {"tokens": 60_000.0, "turns": 9.0, "wall": 1e6}))
            state = await running.drive(stay=False)
            await running.close()
            assert len(server.requests) == state.spend.turns == 1
            spent = state.spend.input + state.spend.output
            assert spent == 10_000 if usage else spent > 1_000
            assert state.spend.estimated == (usage is None)

    go(work())


class Hanging:
    """A workspace whose second look never comes back."""

    def __init__(self, real: Any) -> None:
        self.real, self.root, self.looks = real, real.root, 0

    async def look(self, *arguments: Any) -> Any:
        """The first one is quick."""
        self.looks += 1
        if self.looks > 1:
            await asyncio.Event().wait()
        return await self.real.look(*arguments)

    async def fingerprint(self, contract: Contract) -> str:
        """Quick."""
        return str(await self.real.fingerprint(contract))


def test_a_look_that_hangs_is_ended_by_the_goals_time_and_by_cancel(tmp_path: Path) -> None:
    """Nothing is outside the limits: the wall clock and a person end it, and it still closes with a handoff."""
    repository(tmp_path)

    async def work(limits: dict[str, float], cancel: bool) -> State:
        async with serving(script(DONE)) as server, system(server.url, tmp_path) as opened:
            running = await opened.queue(order(opened, tmp_path, Contract(judge="none"), limits))
            hanging = Hanging(running.perform.workspace)
            running.perform.workspace = hanging
            driving = asyncio.create_task(running.drive(stay=False))
            if cancel:
                await until_running(running, ev.GoalClaimed)
                running.control(ev.GoalClosing(target="cancelled", reason="person", by="test", detail={}))
            state = await asyncio.wait_for(driving, 30)
            await running.close()
            assert hanging.looks >= 2
            return state

    assert go(work({"wall": 4.0}, False)).phase == "capped"
    assert go(work({}, True)).phase == "cancelled"


def test_a_clock_that_is_set_back_does_not_stretch_a_limit(tmp_path: Path) -> None:
    """Time that really passed counts, whatever the wall clock says."""
    repository(tmp_path)
    clock = {"offset": 0.0}
    slow = message("", ("shell", {"command": "sleep 1"}))

    async def work() -> State:
        async with serving(script(*[slow] * 30)) as server:
            environ = {**os.environ, "OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "test-key-1234567890"}
            settings = load(cwd=tmp_path, environ=environ, flags={"permissions": {"allow": ["shell"]}, "stall": {"on": False}})
            async with open_system(settings, clock=lambda: time.time() + clock["offset"]) as opened:
                running = await opened.queue(order(opened, tmp_path, Contract(judge="none"), {"wall": 5.0}))
                driving = asyncio.create_task(running.drive(stay=False))
                await until_running(running, ev.ToolStart)
                clock["offset"] = -3600.0
                state = await asyncio.wait_for(driving, 30)
                await running.close()
                return state

    state = go(work())
    assert state.phase == "capped"
    assert state.spend.by_tool["shell"] <= 6


def test_a_green_gate_whose_inputs_were_changed_shows_nothing(tmp_path: Path) -> None:
    """A default protected test was rewritten: it is not refused, but nothing is verified by that gate."""
    repository(tmp_path)
    (tmp_path / "test_one.py").write_text("from code_ import one\n\n\ndef test_one():\n    assert one() == 1\n")
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    subprocess.run(["git", "commit", "-qm", "a test"], cwd=tmp_path, check=True)
    cheat = message("", ("write_file", {"path": "test_one.py", "content": "def test_one():\n    pass\n"}))
    contract = Contract(gates=[Gate(gate_id="g", run=f"{sys.executable} -m pytest -q -p no:cacheprovider")], judge="none")
    state, _ = ends(script(cheat, DONE), tmp_path, contract)
    assert (state.phase, state.goal.ended.verified) == ("done", False)
    assert state.goal.ended.handoff["protectedChanged"] == ["test_one.py"]
    honest, _ = ends(script(FIX, DONE), repository_again(tmp_path), contract)
    assert (honest.phase, honest.goal.ended.verified) == ("done", True)


def repository_again(folder: Path) -> Path:
    """As it was committed."""
    subprocess.run(["git", "checkout", "-q", "."], cwd=folder, check=True)
    return folder
