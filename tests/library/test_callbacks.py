"""Questions, permissions and events by callback."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import pytest

import endstop
from endstop import events as ev
from endstop.assemble import System, open_system
from endstop.settings import load
from endstop.testing import ScriptedModel, call, calls, claims, run_scripted, says

ASK = says("", call("ask_user", question="Which?", options=["red", "blue"]))
STRICT = says("", call("ask_user", question="Which?", options=["red", "blue"], allow_freeform=False))
WRITE = says("", call("write_file", path="out.txt", content="it\n"))
DONE = claims("it is there")


def answered(result: endstop.Result) -> list[ev.QuestionAnswered]:
    return [entry.event for entry in result.events if isinstance(entry.event, ev.QuestionAnswered)]


def later(value: Any) -> Any:
    """An async callback that gives this."""

    async def callback(asked: Any) -> Any:
        await asyncio.sleep(0)
        return value

    return callback


class Later:
    """Something that can be called and gives what has to be awaited."""

    async def __call__(self, asked: Any) -> str:
        return "blue"


@pytest.mark.parametrize("callback", [lambda asked: "blue", later("blue"), Later()], ids=["sync", "async", "object"])
def test_an_answer_reaches_the_agent(callback: Any) -> None:
    """However the callback is written, its answer is the call's result, with the option it is."""
    result = run_scripted([ASK, WRITE, DONE], deliverables="out.txt", on_question=callback)
    assert (result.verified, calls(result, "ask_user")[0].text) == (True, "blue")
    assert [(event.answer, event.option, event.by) for event in answered(result)] == [("blue", 1, "on_question")]


def test_a_question_says_what_is_asked() -> None:
    """The callback gets text, options, and whether other words will do; a sync one runs beside the loop."""
    asked: list[Any] = []

    def callback(question: endstop.Question) -> str:
        asked.append((question.text, question.options, question.freeform, threading.current_thread() is threading.main_thread()))
        return "green, if I may"

    result = run_scripted([ASK, DONE], on_question=callback)
    assert asked == [("Which?", ["red", "blue"], True, False)]
    assert answered(result)[0].option is None


def test_none_leaves_it_open_and_resume_asks_again(tmp_path: Path) -> None:
    """Without an answer the goal waits and run returns; resumed with a callback, the same question is asked and answered."""
    model = ScriptedModel([ASK, WRITE, DONE])

    async def work() -> tuple[endstop.Result, endstop.Result, endstop.Result]:
        asked = {"workspace": tmp_path, "deliverables": "out.txt", "judge": "none"}
        first = await endstop.run("ask", model=model, on_question=lambda question: None, **asked)
        with pytest.raises(endstop.UsageError, match="it waits for an answer"):
            await endstop.resume(first.session_id, model=model, note="hurry")
        second = await endstop.resume(first.session_id, model=model)
        third = await endstop.resume(first.session_id, model=model, on_question=later("red"))
        return first, second, third

    first, second, third = asyncio.run(work())
    assert (first.phase, first.status, first.reason) == ("waiting", "partial", "waits for question: Which?")
    assert (second.phase, bool(second)) == ("waiting", False)
    assert (third.verified, calls(third, "ask_user")[0].text) == (True, "red")
    assert repr(first).startswith("<Result waiting: waits for question: Which? [")


def test_nobody_to_ask_returns_at_once() -> None:
    """Without callbacks a question parks the goal; nothing is invented."""
    result = run_scripted([ASK, DONE])
    assert (result.phase, answered(result)) == ("waiting", [])


@pytest.mark.parametrize(
    ("said", "says"),
    [(5, "5 is no answer"), ("", "is no answer"), ("green", "none of the options"), ({"a": 1}, "is no answer")],
)
def test_what_is_no_answer_is_raised(said: Any, says: str) -> None:
    """A callback that answers what cannot be one pauses the goal, and the caller is told."""
    with pytest.raises(endstop.UsageError, match=says) as told:
        run_scripted([STRICT, DONE], on_question=lambda question: said)
    assert told.value.where == "on_question"


@pytest.mark.parametrize("where", ["on_question", "on_event", "async"])
def test_what_a_callback_raises_pauses_the_goal_and_is_raised(where: str, tmp_path: Path) -> None:
    """The caller's own error comes out of run; the goal is paused, let go, and can be resumed."""

    def callback(asked: Any) -> Any:
        raise ZeroDivisionError("mine")

    async def slow(asked: Any) -> Any:
        callback(asked)

    given = {"on_question": slow} if where == "async" else {where: callback}
    model = ScriptedModel([ASK, WRITE, DONE])

    async def work() -> tuple[str, endstop.Result]:
        with pytest.raises(ZeroDivisionError, match="mine"):
            await endstop.run("ask", workspace=tmp_path, model=model, deliverables="out.txt", judge="none", **given)
        async with open_system(load(cwd=tmp_path, environ=os.environ)) as system:
            row = (await system.store.sessions())[0]
        return row.phase, await endstop.resume(row.id, model=model, on_question=later("red"))

    phase, result = asyncio.run(work())
    assert (phase, result.verified) == ("paused", True)


def test_no_error_of_a_callback_hangs() -> None:
    """A StopIteration, which no future takes, comes out as what Python makes of it in a coroutine."""
    with pytest.raises(RuntimeError, match="StopIteration"):
        run_scripted([ASK, DONE], on_question=lambda question: next(iter(())))


def test_permissions(tmp_path: Path) -> None:
    """True allows this once, False denies, words deny and reach the agent; what was asked is all there."""
    asked: list[endstop.PermissionRequest] = []
    verdicts = iter([False, "not that name", True])

    def callback(request: endstop.PermissionRequest) -> bool | str:
        asked.append(request)
        return next(verdicts)

    turns = [says("", call("write_file", path=f"{name}.txt", content="x")) for name in ("a", "b", "c")]
    result = run_scripted([*turns, DONE], workspace=tmp_path, mode="ask", on_permission=callback)
    written = calls(result, "write_file")
    assert [(done.success, done.code) for done in written] == [(False, "denied"), (False, "denied"), (True, "")]
    assert "not that name" in written[1].text
    assert [file.name for file in tmp_path.iterdir()] == ["c.txt"]
    assert (asked[0].tool, asked[0].arguments["path"], asked[0].risk) == ("write_file", "a.txt", "edit")
    assert asked[0].why


def test_permissions_left_open_or_wrong() -> None:
    """None parks the goal on its permission; anything else is the caller's mistake."""
    turn = says("", call("write_file", path="a.txt", content="x"))
    result = run_scripted([turn, DONE], mode="ask", on_permission=later(None))
    assert (result.phase, result.reason) == ("waiting", "waits for grant: permission for write_file")
    with pytest.raises(endstop.UsageError, match="5 is no decision"):
        run_scripted([turn, DONE], mode="ask", on_permission=later(5))


async def committed(system: System, session_id: str) -> ev.QuestionAsked:
    """The question, once another process can see it: it is asked here a moment before."""
    for _ in range(600):
        for entry in await system.store.entries(session_id):
            if isinstance(entry.event, ev.QuestionAsked):
                return entry.event
        await asyncio.sleep(0.05)
    raise AssertionError("the question never reached the journal")


def test_an_answer_from_elsewhere_ends_the_asking(tmp_path: Path) -> None:
    """While the callback still thinks, another process answers: its answer counts, and the callback is cancelled."""
    model, cancelled, asked = ScriptedModel([ASK, WRITE, DONE]), [], asyncio.Event()

    async def never(question: endstop.Question) -> str:
        asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(question.id)
            raise
        return ""

    async def work() -> endstop.Result:
        given = {"workspace": tmp_path, "deliverables": "out.txt", "judge": "none"}
        task = asyncio.create_task(endstop.run("ask", model=model, on_question=never, **given))
        await asyncio.wait_for(asked.wait(), 30)
        async with open_system(load(cwd=tmp_path, environ=os.environ)) as system:
            row = (await system.store.sessions())[0]
            question = await committed(system, row.id)
            event = ev.QuestionAnswered(question_id=question.question_id, answer="blue", by="somebody")
            assert await system.control(row.id, event)
            return await asyncio.wait_for(task, 30)

    result = asyncio.run(work())
    assert (result.verified, len(cancelled)) == (True, 1)
    assert [event.by for event in answered(result)] == ["somebody"]


def test_wait_stays_until_somebody_answers(tmp_path: Path) -> None:
    """With wait, a question that was left open does not end run; here a cancel does."""
    left = asyncio.Event()

    async def nobody(question: endstop.Question) -> None:
        left.set()

    async def work() -> bool:
        asked = {"workspace": tmp_path, "judge": "none", "on_question": nobody, "wait": True}
        task = asyncio.create_task(endstop.run("ask", model=ScriptedModel([ASK]), **asked))
        await asyncio.wait_for(left.wait(), 30)
        for _ in range(20):
            await asyncio.sleep(0)
        running = not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return running

    assert asyncio.run(work())


def test_a_goal_that_cannot_go_on_asks() -> None:
    """Somebody reachable is asked before a reported block ends the goal, and his words go on."""
    blocked = says("", call("report_blocked", reason="no password", needs=["the password"]), repeat=2)
    said: list[str] = []

    def callback(question: endstop.Question) -> str:
        said.append(question.text)
        return "it is 1234"

    result = run_scripted([blocked, WRITE, DONE], deliverables="out.txt", on_question=callback)
    assert (result.verified, said) == (True, ["The agent says it is blocked: no password\nNeeds: the password"])
