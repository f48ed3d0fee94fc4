"""Conversations without a goal."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import endstop
from endstop import events as ev
from endstop.testing import ScriptedModel, call, fails, says

ASK = says("", call("ask_user", question="Which?", options=["red", "blue"]))


def talk(workspace: Path, turns: list[Any], *texts: str, **more: Any) -> list[endstop.Reply]:
    """One conversation with these messages."""

    async def work() -> list[endstop.Reply]:
        async with endstop.Session(workspace=workspace, model=ScriptedModel(turns), **more) as session:
            return [await session.send(text) for text in texts]

    return asyncio.run(work())


def test_messages_are_answered_in_rounds(tmp_path: Path) -> None:
    """Each message is worked on with tools until the agent only answers; the next one knows what was before."""
    turns = [says("I write.", call("write_file", path="a.txt", content="x")), says("It is written."), says("You are welcome.")]
    heard: list[int] = []
    first, second = talk(tmp_path, turns, "write a.txt", "thanks", on_event=lambda entry: heard.append(entry.seq))
    assert (str(first), first.error, first.waits, second.text) == ("It is written.", "", "", "You are welcome.")
    assert (tmp_path / "a.txt").read_text() == "x"
    assert isinstance(first.events[0].event, ev.UserMessage)
    assert heard == sorted(set(heard))
    assert set(range(1, second.events[-1].seq + 1)) == set(heard)


def test_a_conversation_goes_on_later(tmp_path: Path) -> None:
    """By its id it is taken up where it was, with what it had spent; a goal is no conversation."""
    model = ScriptedModel([says("One."), says("Two.")])

    async def work() -> tuple[str, float, list[str]]:
        async with endstop.Session(workspace=tmp_path, model=model) as session:
            first, id = await session.send("count"), session.session_id
        async with endstop.Session(id, model=model) as session:
            second = await session.send("on")
            spent = session.spend["turns"]
        goal = await endstop.run("x", workspace=tmp_path, model=ScriptedModel([says("y")]), judge="none")
        with pytest.raises(endstop.UsageError, match="this is no conversation"):
            async with endstop.Session(goal.session_id, model=model):
                pass
        return id, spent, [first.text, second.text]

    id, spent, texts = asyncio.run(work())
    assert (len(id), spent, texts) == (36, 2.0, ["One.", "Two."])


def test_limits_and_failures_are_errors_of_the_reply(tmp_path: Path) -> None:
    """A full limit or a failing model ends the round with its reason, not with an exception."""
    again = says("", call("list_files"), repeat=9)
    (capped,) = talk(tmp_path, [again], "look", limits={"turns": 2})
    assert (capped.error, capped.text) == ("the limit turns is full", "")
    failed, fine = talk(tmp_path, [fails("auth", "the key is wrong"), says("Hello.")], "hi", "again", settings={"retry": 0})
    assert ("the key is wrong" in failed.error, fine.text, fine.error) == (True, "Hello.", "")


def test_a_question_is_answered_by_callback_or_by_the_next_message(tmp_path: Path) -> None:
    """With a callback the round goes on; without one it waits, and the next message is the answer."""
    (by_callback,) = talk(tmp_path, [ASK, says("Blue it is.")], "paint", on_question=lambda question: "blue")
    assert (by_callback.text, by_callback.waits) == ("Blue it is.", "")
    waiting, answered = talk(tmp_path, [ASK, says("Red it is.")], "paint", "red")
    assert (waiting.waits, waiting.text, waiting.error) == ("Which?", "", "")
    assert (answered.text, answered.waits) == ("Red it is.", "")


def test_a_permission_is_asked_for(tmp_path: Path) -> None:
    """What a mode asks for goes to the callback."""
    turns = [says("", call("write_file", path="a.txt", content="x")), says("Done.")]
    (reply,) = talk(tmp_path, turns, "write", mode="ask", on_permission=lambda request: request.tool == "write_file")
    assert (reply.text, (tmp_path / "a.txt").exists()) == ("Done.", True)


def test_a_cancelled_send_interrupts_the_round(tmp_path: Path) -> None:
    """The call that runs is stopped, and the conversation goes on with the next message."""
    began = asyncio.Event()

    async def forever() -> None:
        began.set()
        await asyncio.Event().wait()

    async def work() -> tuple[endstop.Reply, list[str]]:
        model = ScriptedModel([says("", call("forever")), says("Stopped.")])
        results: list[str] = []

        def watch(entry: Any) -> None:
            if isinstance(entry.event, ev.ToolComplete):
                results.append(entry.event.error.code)

        async with endstop.Session(workspace=tmp_path, model=model, tools=forever, on_event=watch) as session:
            sending = asyncio.create_task(session.send("go"))
            await asyncio.wait_for(began.wait(), 30)
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            return await session.send("stop that"), results

    reply, results = asyncio.run(work())
    assert (reply.text, results) == ("Stopped.", ["interrupted"])


def test_what_a_callback_raises_comes_out_and_the_session_stays(tmp_path: Path) -> None:
    """The round is interrupted, send raises, and the next message works."""

    async def work() -> str:
        model = ScriptedModel([ASK, says("Never mind.")])
        async with endstop.Session(workspace=tmp_path, model=model, on_question=lambda question: 1 // 0) as session:
            with pytest.raises(ZeroDivisionError):
                await session.send("paint")
            return (await session.send("leave it")).text

    assert asyncio.run(work()) == "Never mind."


def test_messages_wait_their_turn(tmp_path: Path) -> None:
    """Two at once are answered one after the other."""

    async def work() -> list[str]:
        model = ScriptedModel([says("One.", delay=0.05), says("Two.")])
        async with endstop.Session(workspace=tmp_path, model=model) as session:
            return [reply.text for reply in await asyncio.gather(session.send("a"), session.send("b"))]

    assert asyncio.run(work()) == ["One.", "Two."]


def test_what_cannot_be_used_is_told(tmp_path: Path) -> None:
    """Empty messages, closed sessions, unknown ids and missing models are usage errors."""
    with pytest.raises(endstop.UsageError, match="the message is empty"):
        talk(tmp_path, [], " ")
    with pytest.raises(endstop.UsageError, match="no model is chosen"):
        asyncio.run(endstop.Session(workspace=tmp_path).__aenter__())
    with pytest.raises(endstop.UsageError, match="the session is not open"):
        _ = endstop.Session(workspace=tmp_path).session_id
    with pytest.raises(endstop.UsageError, match="no session has this id"):
        asyncio.run(endstop.Session("zzz", workspace=tmp_path).__aenter__())
    with pytest.raises(endstop.UsageError, match="no limit is called"):
        endstop.Session(limits={"x": 1})
