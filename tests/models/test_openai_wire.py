"""Requests as bytes."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from endstop.core.messages import AssistantText, Head, Message, ToolRequest, ToolSpec, ToolText, UserText
from endstop.errors import ModelError
from endstop.models import openai_wire
from endstop.models.openai_wire import REASONING, Dialect, Transcript, adapt, encode_message, tail

SHELL = ToolSpec("shell", "Run a command.", {"type": "object", "properties": {"command": {"type": "string"}}})
HEAD = Head("Be brief.", (SHELL,))
END = tail(Dialect(), 500, stream=False)


def turns(count: int) -> list[Message]:
    """A conversation with one call and its result per turn."""
    messages: list[Message] = [UserText("go")]
    for number in range(count):
        request = ToolRequest(f"call-{number:09}", "shell", {"command": f"echo {number}"})
        messages += [AssistantText("", (request,)), ToolText(request.tool_call_id, str(number))]
    return messages


def body(messages: Sequence[Message], head: Head = HEAD, *, tools: bool = True) -> dict[str, object]:
    decoded: dict[str, object] = msgspec.json.decode(Transcript("m", head).body(messages, 0, END, tools=tools))
    return decoded


def test_a_request_is_what_the_api_wants() -> None:
    """System, tools and every kind of message stand where chat completions has them."""
    call = ToolRequest("call-000000", "shell", {"command": "ls"})
    assert body([UserText("hi"), AssistantText("I look.", (call,)), ToolText("call-000000", "a.txt"), AssistantText("")]) == {
        "model": "m",
        "tools": [
            {"type": "function", "function": {"name": "shell", "description": "Run a command.", "parameters": SHELL.parameters}}
        ],
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "hi"},
            {
                "role": "assistant",
                "content": "I look.",
                "tool_calls": [
                    {"id": "call-000000", "type": "function", "function": {"name": "shell", "arguments": '{"command":"ls"}'}}
                ],
            },
            {"role": "tool", "content": "a.txt", "tool_call_id": "call-000000"},
            {"role": "assistant", "content": ""},
        ],
        "max_tokens": 500,
    }


def test_without_tools_none_are_sent() -> None:
    """A call that may not use tools does not name any."""
    assert "tools" not in body([UserText("hi")], tools=False)


def test_without_a_system_text_there_is_no_system_message() -> None:
    """An empty head leaves valid JSON that begins with the first message."""
    assert body([UserText("a"), UserText("b")], Head(""))["messages"] == [
        {"role": "user", "content": "a"},
        {"role": "user", "content": "b"},
    ]


@pytest.mark.parametrize("stream", [False, True])
def test_consecutive_requests_share_everything_but_the_tail(stream: bool) -> None:
    """The common prefix of two requests is the first without its tail, so a provider's prompt cache hits."""
    transcript = Transcript("m", HEAD)
    end = tail(Dialect(), 500, stream=stream)
    messages = turns(5)
    before = transcript.body(messages, 0, end, tools=True)
    after = transcript.body([*messages, UserText("more")], 0, end, tools=True)
    assert before.endswith(end)
    assert after.startswith(before.removesuffix(end))


def test_one_more_message_is_one_more_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a chat of 2000 messages a further one costs one encoding; a new generation encodes all anew."""
    encoded: list[Message] = []

    def counting(message: Message) -> bytes:
        encoded.append(message)
        return encode_message(message)

    monkeypatch.setattr(openai_wire, "encode_message", counting)
    transcript = Transcript("m", HEAD)
    messages = turns(1000)[:2000]
    transcript.body(messages, 0, END, tools=True)
    encoded.clear()
    messages.append(UserText("one more"))
    transcript.body(messages, 0, END, tools=True)
    transcript.body(messages, 0, END, tools=True)
    assert encoded == [UserText("one more")]
    transcript.body(messages[-3:], 1, END, tools=True)
    assert encoded[1:] == messages[-3:]


def test_a_rewritten_history_replaces_the_old_one() -> None:
    """After the generation rose, nothing of the messages before is sent."""
    transcript = Transcript("m", HEAD)
    transcript.body([UserText("old"), UserText("older")], 0, END, tools=True)
    sent = transcript.body([UserText("summary")], 1, END, tools=True)
    assert b"old" not in sent
    assert b"summary" in sent


@settings(deadline=None)
@given(st.lists(st.text(alphabet=st.characters(), max_size=20), min_size=1, max_size=4))
def test_no_text_breaks_the_encoding(texts: list[str]) -> None:
    """Whatever the text, lone surrogates included, a request is UTF-8 JSON with one message per message."""
    messages: list[Message] = []
    for text in texts:
        call = ToolRequest("id-of-a-call", text, {text: [text, {"deep": text}]})
        messages += [UserText(text), AssistantText(text, (call, ToolRequest("x", text, text))), ToolText(text, text)]
    sent = body(messages, Head("\ud800" + texts[0]))["messages"]
    assert isinstance(sent, list)
    assert len(sent) == len(messages) + 1


def test_halves_of_a_pair_become_one_character() -> None:
    """A surrogate pair that came in two halves is joined, a lone half is replaced."""
    assert msgspec.json.decode(encode_message(UserText("\ud83d\ude00 \ud83d")))["content"] == "😀 \ufffd"


@pytest.mark.parametrize(
    ("name", "wanted"), [("shell", "shell"), ("my tool!", "my_tool_"), ("", "unknown"), ("ä" * 99, "_" * 64), ("a.b", "a_b")]
)
def test_a_name_the_model_made_up_goes_back_as_a_legal_one(name: str, wanted: str) -> None:
    """A call by an impossible name does not make every later request invalid."""
    sent = msgspec.json.decode(encode_message(AssistantText("", (ToolRequest("id", name, {}),))))
    assert sent["tool_calls"][0]["function"]["name"] == wanted


def test_broken_arguments_go_back_as_json() -> None:
    """Servers that parse arguments of the history get an object, with the broken text inside."""
    sent = msgspec.json.decode(encode_message(AssistantText("", (ToolRequest("id", "shell", '{"command": "l'),))))
    assert msgspec.json.decode(sent["tool_calls"][0]["function"]["arguments"]) == {"malformed": '{"command": "l'}


def test_only_own_reasoning_goes_back() -> None:
    """Reasoning text of this wire is sent back with its message, another adapter's state is not."""
    own = msgspec.json.decode(encode_message(AssistantText("x", opaque=REASONING + "hm")))
    other = msgspec.json.decode(encode_message(AssistantText("x", opaque="signed:abc")))
    assert own["reasoning_content"] == "hm"
    assert "reasoning_content" not in other


def test_ids_that_can_come_again_are_replaced() -> None:
    """Missing, short, repeated and already used ids become new ones, good ones stay, and the same input gives the same ids."""
    messages: list[Message] = [UserText("x"), AssistantText("", (ToolRequest("call_used_before", "f", {}),))]

    def repaired() -> list[str]:
        transcript = Transcript("m", HEAD)
        transcript.body(messages, 0, END, tools=True)
        return transcript.unique(["", "call_0", "call_used_before", "call_fresh_id", "call_fresh_id", "x" * 500])

    ids = repaired()
    assert len(set(ids)) == 6
    assert ids[3] == "call_fresh_id"
    assert all(len(id) == 9 and id.isalnum() for id in ids[:3] + ids[4:])
    assert repaired() == ids


def refused(message: str, status: int = 400) -> ModelError:
    return ModelError("invalid_request", message, status=status)


def test_a_refusal_that_names_a_difference_changes_the_dialect() -> None:
    """Stream usage is dropped and the limit's field swapped when the server says so, and not otherwise."""
    plain = Dialect()
    assert adapt(plain, refused("Unknown field stream_options")) == Dialect(stream_usage=False)
    assert adapt(plain, refused("'max_tokens' is not supported, use 'max_completion_tokens'")) == Dialect("max_completion_tokens")
    assert adapt(Dialect("max_completion_tokens"), refused("Unrecognized: max_completion_tokens")) == plain
    assert adapt(plain, refused("max_tokens is too large: 99")) is None
    assert adapt(plain, refused("stream_options are odd", status=404)) is None
    assert adapt(Dialect(stream_usage=False), refused("Unknown field stream_options")) is None
    assert adapt(Dialect(effort="low"), refused("Unrecognized request argument supplied: reasoning_effort")) == plain
    assert adapt(Dialect(effort="huge"), refused("Unsupported value: 'reasoning_effort' does not support 'huge'")) is None
    assert adapt(plain, ModelError("rate_limit", "stream_options", status=400)) is None
