"""Answers of Anthropic's messages out of bytes."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from endstop.core.messages import Answer, AssistantText, Head, ToolRequest, Usage, UserText
from endstop.errors import ModelError
from endstop.models.anthropic_answer import Reader, read_usage
from endstop.models.anthropic_wire import Transcript

CALL = "toolu_000000001"


def read(*chunks: bytes) -> Answer:
    """The answer in these chunks."""
    reader = Reader("m")
    for chunk in chunks:
        reader.feed(chunk)
    return reader.close(Transcript("m", Head("s")).unique)


def event(type: str, **fields: Any) -> bytes:
    """One event of a stream."""
    return b"event: %b\ndata: %b\n\n" % (type.encode(), msgspec.json.encode({"type": type, **fields}))


def block(index: int, given: dict[str, Any], *deltas: dict[str, Any]) -> bytes:
    """All events of one block."""
    pieces = [event("content_block_delta", index=index, delta=delta) for delta in deltas]
    return b"".join(
        [event("content_block_start", index=index, content_block=given), *pieces, event("content_block_stop", index=index)]
    )


def stream(*blocks: bytes, stop: str = "end_turn", **usage: Any) -> bytes:
    """A whole stream."""
    start = {"id": "msg_1", "model": "claude-x", "content": [], "usage": {"input_tokens": 20, "output_tokens": 1, **usage}}
    end = event("message_delta", delta={"stop_reason": stop, "stop_sequence": None}, usage={"output_tokens": 7})
    return b"".join([event("message_start", message=start), event("ping"), *blocks, end, event("message_stop")])


def whole(*content: dict[str, Any], stop: str = "end_turn", **more: Any) -> bytes:
    """An answer that is not streamed."""
    usage = {"input_tokens": 20, "output_tokens": 7}
    message = {"type": "message", "model": "claude-x", "content": content, "stop_reason": stop, "usage": usage, **more}
    return msgspec.json.encode(message)


THOUGHT = {"type": "thinking", "thinking": "Let me – see", "signature": "c2lnbmF0dXJl"}
HIDDEN = {"type": "redacted_thinking", "data": "ZW5jcnlwdGVk"}
STREAM = stream(
    block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "Let me –"},
        {"type": "thinking_delta", "thinking": " see"},
        {"type": "signature_delta", "signature": "c2lnbmF0"},
        {"type": "signature_delta", "signature": "dXJl"},
    ),
    block(1, HIDDEN),
    block(2, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Grüße, "}, {"type": "text_delta", "text": "😀!"}),
    block(
        3,
        {"type": "tool_use", "id": CALL, "name": "shell", "input": {}},
        {"type": "input_json_delta", "partial_json": ""},
        {"type": "input_json_delta", "partial_json": '{"comm'},
        {"type": "input_json_delta", "partial_json": 'and": "ls"}'},
    ),
    stop="tool_use",
    cache_read_input_tokens=100,
    cache_creation_input_tokens=30,
)
USES = {"type": "tool_use", "id": CALL, "name": "shell", "input": {"command": "ls"}}
SAME = whole(
    THOUGHT,
    HIDDEN,
    {"type": "text", "text": "Grüße, 😀!"},
    USES,
    stop="tool_use",
    usage={"input_tokens": 20, "output_tokens": 7, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 30},
)


def test_streamed_and_whole_are_the_same_answer() -> None:
    """Text, calls, usage with all input, and reasoning that goes back unchanged, in its place."""
    answer = read(STREAM)
    assert answer == read(SAME)
    assert answer.text == "Grüße, 😀!"
    assert answer.requests == (ToolRequest(CALL, "shell", {"command": "ls"}),)
    assert answer.finish == "tool_calls"
    assert answer.usage == Usage(150, 7, cache_read=100, cache_write=30)
    assert answer.model == "claude-x"
    said = AssistantText(answer.text, answer.requests, answer.opaque)
    sent = msgspec.json.decode(Transcript("m", Head("s")).body([UserText("x"), said, UserText("y")], 0, b"]}", tools=True))
    assert sent["messages"][1]["content"] == [THOUGHT, HIDDEN, {"type": "text", "text": "Grüße, 😀!"}, USES]


@settings(deadline=None)
@given(st.lists(st.integers(0, len(STREAM)), max_size=12), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_a_stream_reads_the_same_however_it_is_cut(cuts: list[int], line_end: bytes) -> None:
    """Packets may end anywhere, in the middle of a character or of a line end."""
    sent = STREAM.replace(b"\n", line_end)
    edges = [0, *sorted(cuts), len(sent)]
    assert read(*(sent[start:end] for start, end in pairwise(edges))) == read(STREAM)


def test_text_comes_out_as_it_comes_in() -> None:
    """A viewer is given text only, and it adds up to the text of the answer."""
    reader = Reader("m")
    seen = [reader.feed(piece + b"\n\n") for piece in STREAM.split(b"\n\n") if piece]
    assert [text for text in seen if text] == ["Grüße, ", "😀!"]


@pytest.mark.parametrize(
    ("stop", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "content_filter"),
        ("pause_turn", "pause_turn"),
        ("something_new", "something_new"),
    ],
)
def test_why_it_stopped_in_our_words(stop: str, finish: str) -> None:
    """Words nobody knows are passed on."""
    text = {"type": "text", "text": "x"}
    assert read(stream(block(0, text), stop=stop)).finish == finish
    assert read(whole(text, stop=stop)).finish == finish


def test_a_cut_stream_gives_what_came() -> None:
    """Text and complete calls are kept, usage is unknown, reasoning without its end does not go back."""
    for end in range(STREAM.index(b"content_block_start", STREAM.index(CALL.encode()) - 200), STREAM.index(b"message_delta")):
        answer = read(STREAM[:end])
        assert (answer.text, answer.finish, answer.usage) == ("Grüße, 😀!", "cut", None)
    assert answer.requests[0].arguments == {"command": "ls"}
    half = read(STREAM[: STREAM.index(b'and\\": \\"ls')])
    assert [request.arguments for request in half.requests] in ([], ['{"comm'])
    unsigned = stream(block(0, {"type": "thinking", "thinking": ""})).split(b"event: content_block_stop")[0]
    told = event("content_block_start", index=1, content_block={"type": "text", "text": "so"})
    assert read(unsigned + told).opaque is None


def test_a_call_of_an_answer_that_was_too_long_does_not_run() -> None:
    """The last call may lack its end, also where it looks like an object: it becomes malformed, the ones before stay."""
    first = USES | {"id": "toolu_000000002"}
    for answer in [
        read(whole(first, USES, stop="max_tokens")),
        read(
            stream(
                block(0, USES | {"id": "toolu_000000002", "input": {}}, {"partial_json": '{"command": "ls"}'}),
                block(1, USES | {"input": {}}, {"partial_json": '{"command": "l'}),
                stop="max_tokens",
            )
        ),
        read(whole(first, USES | {"input": {}}, stop="max_tokens")),
    ]:
        assert answer.requests[0].arguments == {"command": "ls"}
        assert isinstance(answer.requests[1].arguments, str)


@pytest.mark.parametrize(
    ("sent", "wanted"),
    [
        pytest.param(stream(block(0, USES | {"input": {}})), {}, id="no input is no arguments"),
        pytest.param(stream(block(0, USES)), {"command": "ls"}, id="input at the start of the block"),
        pytest.param(stream(block(0, USES | {"input": {}}, {"partial_json": "[1]"})), "[1]", id="input that is no object"),
        pytest.param(whole({"type": "tool_use", "id": CALL, "name": "shell"}), {}, id="no input at all"),
    ],
)
def test_input_of_every_kind(sent: bytes, wanted: Any) -> None:
    """Servers differ in where the input stands."""
    assert read(sent).requests[0].arguments == wanted
    assert read(sent).finish == "tool_calls"


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(STREAM.replace(b"event: ", b": "), id="no names of events"),
        pytest.param(
            STREAM.replace(b"event: ping\n", b"event: new_thing\n").replace(b'"ping"', b'"new_thing"'), id="unknown events"
        ),
        pytest.param(STREAM.replace(event("message_stop"), b""), id="no last event"),
        pytest.param(b"\xef\xbb\xbf\n\n" + STREAM, id="byte order mark"),
        pytest.param(STREAM + b"data: garbage\n\n", id="more after the end"),
        pytest.param(STREAM.replace(b'"type":"message_start"', b'"x":NaN,"type":"message_start"'), id="NaN where nobody looks"),
    ],
)
def test_odd_framing_changes_nothing(sent: bytes) -> None:
    """What stands around the answer may differ."""
    assert read(sent) == read(STREAM)


def test_an_answer_may_be_nothing() -> None:
    """No content is an empty answer, not a failure."""
    assert read(stream()).text == read(whole()).text == ""
    assert read(stream()).usage == Usage(20, 7)


@pytest.mark.parametrize(
    ("type", "kind"),
    [
        ("overloaded_error", "overloaded"),
        ("api_error", "server"),
        ("rate_limit_error", "rate_limit"),
        ("authentication_error", "auth"),
        ("permission_error", "auth"),
        ("billing_error", "auth"),
        ("invalid_request_error", "invalid_request"),
        ("not_found_error", "invalid_request"),
    ],
)
def test_an_error_inside_an_answer_has_its_kind(type: str, kind: str) -> None:
    """In the middle of a stream, or in place of a message."""
    error = {"type": type, "message": "no"}
    for sent in [
        stream(block(0, {"type": "text", "text": "so far"})).split(b"event: message_delta")[0] + event("error", error=error),
        event("error", error=error),
    ]:
        with pytest.raises(ModelError) as caught:
            read(sent)
        assert caught.value.kind == kind
    with pytest.raises(ModelError) as caught:
        read(msgspec.json.encode({"type": "error", "error": error}))
    assert caught.value.kind == kind


@pytest.mark.parametrize(
    "sent", [b"", b"data: garbage\n\n", event("ping"), b"{", b"[]", b"{}", b'{"content": "x"}', b"<html></html>"]
)
def test_what_is_no_answer_is_a_failure(sent: bytes) -> None:
    """Of the network or the server, in one line."""
    with pytest.raises(ModelError) as caught:
        read(sent)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"input_tokens": 0, "output_tokens": 3},
        {"input_tokens": "7", "output_tokens": None},
        {"input_tokens": 5, "output_tokens": True},
    ],
)
def test_usage_that_tells_nothing_is_none(given: dict[str, Any]) -> None:
    """Unknown is None, never zero."""
    assert read_usage(given) is None


def test_usage_may_name_reasoning() -> None:
    """It is part of the output."""
    given = {"input_tokens": 5, "output_tokens": 9, "output_tokens_details": {"thinking_tokens": 4}}
    assert read_usage(given) == Usage(5, 9, reasoning=4)


@settings(deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["type", "index", "delta", "text", "content_block", "message", "content", "usage", "error", "name", "input"]
                ),
                inner,
                max_size=5,
            )
        ),
        max_leaves=12,
    )
)
def test_no_json_breaks_the_reader(value: Any) -> None:
    """Whatever JSON comes, whole or streamed, there is an answer or a ``ModelError``."""
    body = msgspec.json.encode(value)
    for sent in [body, b"data: " + body + b"\n\n" + STREAM, stream(b"data: " + body + b"\n\n")]:
        with suppress(ModelError):
            assert isinstance(read(sent), Answer)
