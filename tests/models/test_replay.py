"""Recorded journals as models, with journals that a real run wrote."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import msgspec
import pytest

from endstop.assemble import Order, System
from endstop.core import events as ev
from endstop.core.goal import State
from endstop.core.messages import AssistantText, Head, Message, ToolRequest, ToolText, UserText
from endstop.errors import ModelError, UsageError
from endstop.models.replay import ReplayModel, record
from endstop.settings import load

SCRIPT = """
[[turn]]
text = "I look."
usage = { input = 900, output = 40, cache_read = 800 }
call = [{ name = "shell", arguments = { command = "cat word.txt; date +%N" } }]
[[turn]]
usage = { input = 910, output = 1 }
[[turn]]
call = [{ name = "write_file", arguments = { path = "out.txt", content = "done" } }, { name = "shell", raw = '{"comm' }]
[[turn]]
call = [{ name = "task_complete", arguments = { summary = "out.txt is there" } }]
repeat = 2
[[judge]]
text = '{"achieved": false, "missing": ["more"], "impossible": null, "because": [$seq]}'
usage = { input = 500, output = 30 }
[[turn]]
text = "Again."
call = [{ name = "write_file", arguments = { path = "out.txt", content = "done again" } }]
[[turn]]
call = [{ name = "task_complete", arguments = { summary = "now" } }]
repeat = 2
[[judge]]
text = '{"achieved": true, "missing": [], "impossible": null, "because": [$seq]}'
"""
AGENT = Head("You are an agent.")


def pursue(home: Path, workspace: Path, model: str, **limits: float) -> tuple[State, list[ev.Event], Path]:
    """A goal to its end; its state, its events and its exported journal."""
    workspace.mkdir(exist_ok=True)
    (workspace / "word.txt").write_text(workspace.name)

    async def run() -> tuple[State, list[ev.Event], Path]:
        settings = load(cwd=workspace, environ={"HOME": str(home), "PATH": "/usr/bin:/bin"}, flags={"home": str(home / "state")})
        async with System(settings) as system:
            contract = ev.Contract(judge="auto", rubric="out.txt says done")
            caps = settings.limits | limits
            order = Order(
                objective="Write.",
                workspace=workspace,
                model=model,
                contract=contract,
                limits=caps,
                policy=ev.Policy(mode="yolo"),
            )
            running = await system.queue(order)
            state = await running.drive(stay=False)
            await running.close()
            target = home / "export.jsonl"
            with target.open("wb") as file:
                await system.store.export(running.session.session_id, file)
            events = [entry.event for entry in await system.store.entries(running.session.session_id)]
        return state, events, target

    return asyncio.run(run())


def spoken(events: list[ev.Event]) -> list[tuple[str, list[ToolRequest]]]:
    """What the model said, without the ids of its calls."""
    said = [event for event in events if isinstance(event, ev.AssistantMessage)]
    return [(e.content, [msgspec.structs.replace(r, tool_call_id="") for r in e.tool_requests]) for e in said]


def test_a_goal_is_pursued_again(tmp_path: Path) -> None:
    """The same answers, an empty one and a broken call included, with tools that really run and say something else; judge and
    usage are played too, and the model is one that plays."""
    (tmp_path / "script.toml").write_text(SCRIPT)
    first, then, export = pursue(tmp_path, tmp_path / "one", f"scripted:{tmp_path / 'script.toml'}")
    (tmp_path / "again").mkdir()
    second, now, _ = pursue(tmp_path / "again", tmp_path / "two", f"replay:{export}")
    assert (first.phase, second.phase) == ("done", "done")
    assert second.goal is not None
    assert second.goal.ended is not None
    assert second.goal.ended.verified
    assert spoken(now) == spoken(then)
    assert any(not text and not calls for text, calls in spoken(now))
    results = ["".join(e.result.content for e in events if isinstance(e, ev.ToolComplete)) for events in (then, now)]
    assert "one" in results[0]
    assert "two" in results[1]
    assert (tmp_path / "two/out.txt").read_text() == "done again"
    judged = [[e.achieved for e in events if isinstance(e, ev.GoalJudged)] for events in (then, now)]
    assert judged == [[False, True]] * 2
    told = [e for e in now if isinstance(e, ev.AssistantUsage) and not e.estimated]
    assert [(e.initiator, e.input_tokens, e.cache_read_tokens) for e in told if e.input_tokens in (900, 910, 500)] == [
        ("work", 900, 800),
        ("work", 910, 0),
        ("judge", 500, 0),
    ]
    assert all(e.cost == 0 for e in told)


def test_a_closing_turn_is_played(tmp_path: Path) -> None:
    """The handoff's words are in the recording as well."""
    close = '\n[[close]]\ntext = "Half of it is done."\nusage = { input = 70, output = 7 }\n'
    (tmp_path / "script.toml").write_text(SCRIPT + close)
    first, _, export = pursue(tmp_path, tmp_path / "one", f"scripted:{tmp_path / 'script.toml'}", turns=5)
    (tmp_path / "again").mkdir()
    second, _, _ = pursue(tmp_path / "again", tmp_path / "two", f"replay:{export}", turns=5)
    assert (first.phase, second.phase) == ("capped", "capped")
    assert second.goal is not None
    assert second.goal.ended is not None
    assert second.goal.ended.handoff["summary"] == "Half of it is done."


def line(type: str, seq: int = 1, **data: object) -> str:
    """A line of a journal."""
    around = {"id": "x", "seq": seq, "prev": "0", "timestamp": "2026-11-30T17:02:11.482Z", "parentId": None}
    return json.dumps({**around, "type": type, "data": data}) + "\n"


START = line("assistant.turn_start", turnId=1, model="m", purpose="work", requestHash="", reserved={})
LOOK = {"toolCallId": "call_000000001", "name": "shell", "arguments": {"command": "ls"}}
SAYS = line("assistant.message", messageId="a1", content="I look.", toolRequests=[LOOK], finishReason="tool_calls")
ENDS = line("assistant.message", messageId="a2", content="Done.", toolRequests=[], finishReason="stop")


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    path = tmp_path / "events.jsonl"
    path.write_text(START + SAYS + START + ENDS + line("somebody.else", anything=[1]))
    return path


def ask(model: ReplayModel, messages: list[Message]) -> str:
    return asyncio.run(model.open(AGENT).ask(messages, generation=0, max_output=9)).text


def test_the_place_follows_from_the_conversation(journal: Path) -> None:
    """A new process, or a new conversation, goes on where the messages stand; results of tools may be others."""
    model = ReplayModel(journal)
    assert (model.name, model.scripted, model.local) == (f"replay:{journal}", True, True)
    look = AssistantText("I look.", (ToolRequest("other-id", "shell", {"command": "ls"}),))
    assert ask(model, [UserText("x")]) == "I look."
    assert ask(model, [UserText("x"), look, ToolText("other-id", "another result")]) == "Done."


@pytest.mark.parametrize(
    ("said", "word"),
    [
        ([AssistantText("I look.", (ToolRequest("x", "shell", {"command": "rm"}),))], "not the recorded one"),
        ([AssistantText("Another.")], "not the recorded one"),
        ([AssistantText("I look.", (ToolRequest("x", "shell", {"command": "ls"}),)), AssistantText("Done.")], "ends here"),
    ],
)
def test_a_conversation_that_departs_or_goes_on_is_an_error(journal: Path, said: list[Message], word: str) -> None:
    """It names the recording, and nothing waits for it to pass."""
    with pytest.raises(ModelError, match=word) as caught:
        ask(ReplayModel(journal), [UserText("x"), *said])
    assert not caught.value.passing
    assert caught.value.where == f"replay:{journal}"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "no answer"),
        (START, "no answer"),
        ("hello\n", "line 1"),
        (SAYS + "{}\n", "line 2"),
        (SAYS + SAYS[: len(SAYS) // 2], "line 2"),
        (line("assistant.message", messageId=1), "line 1"),
        (SAYS.replace('"I look."', '{"blob": "0", "size": 20000, "head": "a", "tail": "b"}'), "16 KiB"),
        (SAYS.replace('"ls"', '{"blob": "0", "size": 20000, "head": "a", "tail": "b"}'), "16 KiB"),
    ],
)
def test_a_file_that_cannot_be_played_is_a_usage_error(tmp_path: Path, text: str, word: str) -> None:
    """It says which line, why, and what to give."""
    path = tmp_path / "events.jsonl"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        ReplayModel(path)
    assert word in str(caught.value)
    assert caught.value.hint


def test_a_path_that_is_no_file_is_a_usage_error(tmp_path: Path) -> None:
    """Missing, a folder, or no path at all."""
    for path in (tmp_path / "none", tmp_path, "a\0b"):
        with pytest.raises(UsageError):
            ReplayModel(path)


def test_a_judge_that_failed_fails_again(tmp_path: Path) -> None:
    """Unreachable and declined are no verdicts; a verdict cites what the new evidence shows."""
    verdict = '{"achieved": true, "missing": [], "because": [17, 18]}'
    path = tmp_path / "events.jsonl"
    judged = [("unreachable", "down"), ("declined", "no"), ("unreadable", "what?"), ("verdict", verdict), ("unreachable", "")]
    path.write_text(SAYS + "".join(line("goal.judged", result=result, raw=raw) for result, raw in judged))
    played = record(path).judge
    assert [turn.error.kind if turn.error else turn.text for turn in played] == [
        "server",
        "content_filter",
        "what?",
        '{"achieved": true, "missing": [], "because": [$seq]}',
        "server",
    ]


def test_what_is_paid_without_an_answer_changes_no_answer(tmp_path: Path) -> None:
    """The usage of a lost turn does not become that of the turn before it."""

    def paid(tokens: int) -> str:
        counts = {"inputTokens": tokens, "cacheReadTokens": 0, "cacheWriteTokens": 0, "outputTokens": 1}
        return line("assistant.usage", initiator="work", turnId=1, model="m", estimated=False, attempt=1, **counts)

    path = tmp_path / "events.jsonl"
    path.write_text(START + SAYS + paid(10) + START + paid(99))
    (turn,) = record(path).turn
    assert turn.usage is not None
    assert turn.usage.input == 10
