"""Requests to Anthropic's messages as bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from endstop.core.messages import AssistantText, Head, Message, ToolRequest, ToolSpec, ToolText, UserText
from endstop.errors import ModelError
from endstop.models.anthropic_wire import REACH, WHERE, Dialect, Transcript, adapt, tail
from endstop.models.kept import keep

SHELL = ToolSpec("shell", "Run a command.", {"type": "object", "properties": {"command": {"type": "string"}}})
HEAD = Head("Be brief.", (SHELL,))
END = tail(Dialect(), 500, stream=False)
MARK = {"cache_control": {"type": "ephemeral"}}
HMM = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}


def call(number: int) -> ToolRequest:
    return ToolRequest(f"toolu-{number:09}", "shell", {"command": f"echo {number}"})


def body(messages: Sequence[Message], head: Head = HEAD, *, tools: bool = True) -> dict[str, Any]:
    decoded: dict[str, Any] = msgspec.json.decode(Transcript("m", head).body(messages, 0, END, tools=tools))
    return decoded


def marks(request: Any) -> int:
    """How many breakpoints stand in a request."""
    if isinstance(request, dict):
        return ("cache_control" in request) + sum(marks(value) for value in request.values())
    return sum(marks(value) for value in request) if isinstance(request, list) else 0


def test_a_request_is_what_the_api_wants() -> None:
    """Results of one batch and what is said with them are one user message; the head and the newest block are breakpoints."""
    one, two = call(1), call(2)
    thought = AssistantText("I look.", (one, two), keep(WHERE + "m", [HMM, 7, None, None]))
    results = [ToolText(one.tool_call_id, "1"), ToolText(two.tool_call_id, ""), UserText("Hurry.")]
    assert body([UserText("hi"), UserText("there"), thought, *results]) == {
        "model": "m",
        "tools": [{"name": "shell", "description": "Run a command.", "input_schema": SHELL.parameters}],
        "system": [{"type": "text", "text": "Be brief.", **MARK}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "text", "text": "there"}]},
            {
                "role": "assistant",
                "content": [
                    HMM,
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": one.tool_call_id, "name": "shell", "input": {"command": "echo 1"}},
                    {"type": "tool_use", "id": two.tool_call_id, "name": "shell", "input": {"command": "echo 2"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": one.tool_call_id, "content": "1"},
                    {"type": "tool_result", "tool_use_id": two.tool_call_id, "content": "(empty)"},
                    {"type": "text", "text": "Hurry.", **MARK},
                ],
            },
        ],
        "max_tokens": 500,
    }


def test_without_tools_they_are_forbidden_and_kept() -> None:
    """The server refuses a history with calls to tools it was not told of; where there are none nothing is said."""
    assert body([UserText("x")], tools=False)["tool_choice"] == {"type": "none"}
    assert "tools" in body([UserText("x")], tools=False)
    assert "tool_choice" not in body([UserText("x")], Head("s"), tools=False)
    assert "tool_choice" not in body([UserText("x")])


def test_a_head_without_a_system_text_is_cached_at_its_tools() -> None:
    """And one with neither has no breakpoint."""
    request = body([UserText("x")], Head(" ", (SHELL, SHELL)))
    assert "system" not in request
    assert [marks(tool) for tool in request["tools"]] == [0, 1]
    assert marks(body([UserText("x")], Head(""))) == 1


def test_consecutive_requests_share_everything_but_the_end() -> None:
    """Up to the newest block the next request is the same bytes, so the server finds what it has cached."""
    transcript = Transcript("m", HEAD)
    messages: list[Message] = [UserText("go")]
    before = transcript.body(messages, 0, END, tools=True)
    for number in range(5):
        messages += [AssistantText("", (call(number),)), ToolText(call(number).tool_call_id, "x")]
        after = transcript.body(messages, 0, END, tools=True)
        shared = before[: before.rindex(b',"cache_control"')]
        assert after.startswith(shared)
        assert marks(msgspec.json.decode(after)) == 2
        before = after
    assert transcript.body(messages, 0, END, tools=True) == before


def test_a_turn_with_many_calls_keeps_the_breakpoint_before_it() -> None:
    """The server looks back only so far: what was cached must still be named, for one request, and also when it is sent again."""
    transcript = Transcript("m", HEAD)
    messages: list[Message] = [UserText("go")]
    transcript.body(messages, 0, END, tools=True)
    calls = tuple(call(number) for number in range(REACH))
    messages += [AssistantText("", calls), *(ToolText(one.tool_call_id, "x") for one in calls)]
    sent = [msgspec.json.decode(transcript.body(messages, 0, END, tools=True)) for _ in range(2)]
    assert sent[0] == sent[1]
    assert "cache_control" in sent[0]["messages"][0]["content"][0]
    assert marks(sent[0]) == 3
    messages += [AssistantText("", (call(99),)), ToolText(call(99).tool_call_id, "x")]
    assert marks(msgspec.json.decode(transcript.body(messages, 0, END, tools=True))) == 2


def test_a_rewritten_history_replaces_the_old_one() -> None:
    """After the generation rose, nothing of the messages before is sent and the breakpoints are new."""
    transcript = Transcript("m", HEAD)
    transcript.body([UserText("old"), AssistantText("older"), UserText("x")], 0, END, tools=True)
    sent = msgspec.json.decode(transcript.body([UserText("summary")], 1, END, tools=True))
    assert sent["messages"] == [{"role": "user", "content": [{"type": "text", "text": "summary", **MARK}]}]


def test_what_the_api_refuses_is_not_sent() -> None:
    """Blank texts, ids and names of other providers, arguments that are no object, an answer that was nothing."""
    odd = ToolRequest("functions.shell:0", "my tool!", '{"command": "l')
    request = body([UserText(" \n"), AssistantText(" "), AssistantText("\n", (odd,)), ToolText("functions.shell:0", "x")])
    user, assistant, result = request["messages"]
    assert user["content"][0]["text"] == "(empty)"
    assert assistant["content"] == [
        {"type": "tool_use", "id": "functions_shell_0", "name": "my_tool_", "input": {"malformed": '{"command": "l'}}
    ]
    assert result["content"][0]["tool_use_id"] == "functions_shell_0"


def test_reasoning_that_stands_last_has_no_breakpoint() -> None:
    """A conversation that ends with an answer, and one that is empty, are still JSON."""
    assert marks(body([UserText("x"), AssistantText("y")])) == 1
    assert body([])["messages"] == []


@settings(deadline=None)
@given(st.lists(st.text(alphabet=st.characters(), max_size=20), min_size=1, max_size=4))
def test_no_text_breaks_the_encoding(texts: list[str]) -> None:
    """Whatever the text, lone surrogates included, a request is UTF-8 JSON in which the roles take turns."""
    messages: list[Message] = []
    for text in texts:
        asked = (ToolRequest("id-of-a-call", text, {text: [text, {"deep": text}]}), ToolRequest(text, text, text))
        messages += [UserText(text), AssistantText(text, asked), ToolText(text, text), ToolText("id-of-a-call", text)]
    sent = body(messages, Head("\ud800" + texts[0]))["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant"] * len(texts) + ["user"]


def test_effort_is_asked_for_with_thinking() -> None:
    """In the provider's own word, and only where somebody set it."""
    asked = msgspec.json.decode(b"{" + tail(Dialect("high"), 9, stream=True)[2:])
    assert asked == {
        "max_tokens": 9,
        "stream": True,
        "output_config": {"effort": "high"},
        "thinking": {"type": "adaptive"},
    }


@pytest.mark.parametrize(
    ("before", "message", "after"),
    [
        (Dialect(), "max_tokens: 16000 > 8192, which is the maximum allowed number of output tokens", Dialect(most=8192)),
        (Dialect("low"), "adaptive thinking is not supported on this model", Dialect("low", adaptive=False)),
        (Dialect("low", adaptive=False), "adaptive thinking is not supported on this model", None),
        (Dialect("low"), "This model does not support the effort parameter.", Dialect()),
        (Dialect("huge"), "output_config.effort: Extra value: unknown value 'huge'", None),
        (Dialect(), "adaptive thinking is not supported on this model", None),
        (Dialect(), "messages: at least one message is required", None),
    ],
)
def test_a_refusal_that_names_a_difference_changes_the_dialect(before: Dialect, message: str, after: Dialect | None) -> None:
    """The model's own bound of an answer, and models that think another way."""
    assert adapt(before, ModelError("invalid_request", message, status=400)) == after
    assert adapt(before, ModelError("invalid_request", message, status=404)) is None


def test_the_bound_of_an_answer_is_kept_once_it_is_known() -> None:
    """Smaller answers are asked for as they are."""
    assert [b'"max_tokens":%d}' % most in tail(Dialect(most=100), most, stream=False) for most in (50, 100, 101)] == [
        True,
        True,
        False,
    ]
