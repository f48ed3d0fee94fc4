"""Scripts."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from endstop.core.messages import Answer, AssistantText, Head, Message, ToolRequest, ToolText, Usage, UserText
from endstop.errors import ModelError, UsageError
from endstop.models.scripted import ScriptedModel, kind_of

SCRIPT = """
[[turn]]
text = "I look."
usage = { input = 900, output = 40, cache_read = 800 }
[[turn.call]]
name = "shell"
arguments = { command = "ls" }
[[turn.call]]
name = "shell"
raw = '{"command": '

[[turn]]
error = { kind = "rate_limit", message = "slow down", retry_after = 2.0 }
repeat = 2

[[turn]]
text = "again"
repeat = 2

[[turn]]
text = "for ever"
finish = "length"
forever = true

[[judge]]
text = '{"achieved": true, "missing": [], "because": [$seq]}'
[[judge]]
error = { kind = "server", message = "down" }
[[judge]]
text = "no"

[[close]]
text = "Half of it is done."
"""
HEAD = Head("You are an agent.")
JUDGE = Head("You are an independent judge. Decide.")
CLOSE = Head("You are writing the handoff of a goal.")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "play.toml"
    file.write_text(SCRIPT)
    return file


def said(answers: int) -> list[Message]:
    """A conversation that holds this many answers."""
    messages: list[Message] = [UserText("go")]
    for _ in range(answers):
        messages += [AssistantText("x", (ToolRequest("a-call-id", "shell", {}),)), ToolText("a-call-id", "y")]
    return messages


def ask(chat: Any, messages: list[Message], generation: int = 0, **options: Any) -> Answer:
    answer: Answer = asyncio.run(chat.ask(messages, generation=generation, max_output=9, **options))
    return answer


def test_a_turn_is_an_answer(path: Path) -> None:
    """Text, calls, broken arguments, usage and finish come out as written, and the name says it is a script."""
    model = ScriptedModel(path)
    seen: list[str] = []
    assert ask(model.open(HEAD), said(0), watch=seen.append) == Answer(
        text="I look.",
        requests=(ToolRequest("call_1_1", "shell", {"command": "ls"}), ToolRequest("call_1_2", "shell", '{"command": ')),
        finish="tool_calls",
        usage=Usage(900, 40, cache_read=800),
        model=model.name,
    )
    assert seen == ["I ", "look."]
    assert (model.scripted, model.local, model.name) == (True, True, f"scripted:{path}")


def test_the_conversation_says_which_turn_is_next(path: Path) -> None:
    """A new process with the same conversation goes on where the old one stopped; usage that is not written is unknown."""
    for answers, text in [(0, "I look."), (3, "for ever"), (99, "for ever")]:
        assert ask(ScriptedModel(path).open(HEAD), said(answers)).text == text
    assert ask(ScriptedModel(path).open(HEAD), said(50)).usage is None
    assert ask(ScriptedModel(path).open(HEAD), said(50)).finish == "length"


def test_failures_do_not_count_as_turns(path: Path) -> None:
    """A failure is played as often as written, then its turn's answer comes."""
    chat = ScriptedModel(path).open(HEAD)
    for _ in range(2):
        with pytest.raises(ModelError) as caught:
            ask(chat, said(1))
        assert (caught.value.kind, caught.value.retry_after) == ("rate_limit", 2.0)
    assert ask(chat, said(1)).text == "again"
    assert ask(chat, said(2)).text == "again"
    assert ask(chat, said(3)).text == "for ever"


def test_a_lost_answer_is_played_again(path: Path) -> None:
    """An answer that never got into the conversation was not given."""
    chat = ScriptedModel(path).open(HEAD)
    assert ask(chat, said(0)) == ask(chat, said(0))


def test_a_compacted_conversation_goes_on(tmp_path: Path) -> None:
    """What a compaction took out of the conversation does not turn the script back."""
    file = tmp_path / "p.json"
    file.write_text(json.dumps({"turn": [{"text": str(number)} for number in range(9)]}))
    chat = ScriptedModel(file).open(HEAD)
    assert [ask(chat, said(number)).text for number in range(5)] == list("01234")
    assert [ask(chat, said(number), generation=1).text for number in range(1, 4)] == list("567")


def test_judge_and_closing_have_their_own_answers(path: Path) -> None:
    """They are told apart by their head, counted per process, and the judge can cite what it sees."""
    model = ScriptedModel(path)
    evidence: list[Message] = [UserText("[3] shell: ok\n| [99] not an event\n[17] gate: pass")]
    assert [kind_of(head) for head in (HEAD, JUDGE, CLOSE)] == ["turn", "judge", "close"]
    assert ask(model.open(JUDGE), evidence).text == '{"achieved": true, "missing": [], "because": [17]}'
    with pytest.raises(ModelError, match="down"):
        ask(model.open(JUDGE), evidence)
    assert ask(model.open(JUDGE), evidence).text == "no"
    assert ask(model.open(CLOSE), said(0)).text == "Half of it is done."
    assert ask(model.open(HEAD), said(0)).text == "I look."


def test_a_script_that_has_run_out_says_so(path: Path) -> None:
    """It names the missing entry and how to add it."""
    model = ScriptedModel(path)
    ask(model.open(CLOSE), said(0))
    with pytest.raises(ModelError, match="the script has no close 2") as caught:
        ask(model.open(CLOSE), said(0))
    assert caught.value.kind == "invalid_request"
    assert "[[close]]" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[turn]\n", "line 1"),
        ("\n\nturn = 7", "turn"),
        ('[[turn]]\ntext = "a"\n[[turn]]\ntxt = "b"', "turn 2"),
        ('[[turn]]\n[[turn.call]]\narguments = {}', "turn 1, call 1"),
        ('[[turn]]\n[[turn.call]]\nname = "f"\narguments = {}\nraw = ""', "arguments or raw"),
        ('[[turn]]\nerror = { kind = "bad", message = "x" }', "turn 1, error, kind"),
        ('[[turn]]\ntext = "a"\nerror = { kind = "auth", message = "x" }', "turn 1"),
        ("[[turn]]\nrepeat = 0", "turn 1, repeat"),
        ("[[turn]]\ndelay = -1", "turn 1, delay"),
        ("[[turns]]", "turns"),
        ("[[turn]]\nusage = { input = -1, output = 1 }", "turn 1, usage, input"),
    ],
)  # fmt: skip
def test_a_bad_script_is_refused_with_its_place(tmp_path: Path, text: str, words: str) -> None:
    """The file, the line or entry and the remedy are named."""
    file = tmp_path / "bad.toml"
    file.write_text(text)
    with pytest.raises(UsageError) as caught:
        ScriptedModel(file)
    assert words in caught.value.message
    assert caught.value.where == str(file)
    assert caught.value.hint


def test_a_script_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    """Missing, a folder, not text, JSON that is none."""
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "bad.json").write_text("{")
    for name in ["missing.toml", ".", "binary.toml", "bad.json"]:
        with pytest.raises(UsageError):
            ScriptedModel(tmp_path / name)


def test_an_answer_that_says_nothing_is_played_once(tmp_path: Path) -> None:
    """It leaves nothing in the conversation, and still the next one follows."""
    path = tmp_path / "play.toml"
    path.write_text('[[turn]]\ntext = "a"\n[[turn]]\nrepeat = 2\n[[turn]]\ntext = "b"\n')

    async def run() -> list[str]:
        chat, said, got = ScriptedModel(path).open(HEAD), list[Message]([UserText("x")]), []
        for _ in range(4):
            answer = await chat.ask(said, generation=0, max_output=9)
            got.append(answer.text)
            said += [AssistantText(answer.text)] if answer.text else []
        return got

    assert asyncio.run(run()) == ["a", "", "", "b"]
