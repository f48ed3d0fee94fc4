"""Answers out of bytes, as servers really send them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from endstop.core.messages import Answer, Head, ToolRequest, Usage
from endstop.errors import ModelError
from endstop.models.lenient import parse_arguments
from endstop.models.openai_answer import Reader, read_usage
from endstop.models.openai_wire import REASONING, Transcript
from tests.models.fake import DONE, event, whole


def read(*chunks: bytes) -> Answer:
    """The answer in these chunks."""
    reader = Reader()
    for chunk in chunks:
        reader.feed(chunk)
    return reader.close(Transcript("m", Head("s")).unique)


def calls(answer: Answer) -> list[tuple[str, Any]]:
    return [(request.name, request.arguments) for request in answer.requests]


def piece(index: int | None, name: str | None = None, arguments: Any = None, id: str | None = None) -> dict[str, Any]:
    """One piece of a tool call in a stream."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    named = {key: value for key, value in (("index", index), ("id", id)) if value is not None}
    return {"tool_calls": [{**named, "function": function}]}


STREAM = b"".join(
    [
        event({"role": "assistant", "content": ""}),
        event({"content": "Grüße, "}),
        event({"content": "😀!"}),
        event(piece(0, "shell", "", "call_aaaaaaaaa")),
        event(piece(0, arguments='{"command":')),
        event(piece(0, arguments=' "ls"}')),
        event(piece(1, "read", '{"path": "é"}', "call_bbbbbbbbb")),
        event({}, "tool_calls"),
        event(usage={"prompt_tokens": 20, "completion_tokens": 7, "total_tokens": 27}),
        DONE,
    ]
)
WANTED = Answer(
    text="Grüße, 😀!",
    requests=(
        ToolRequest("call_aaaaaaaaa", "shell", {"command": "ls"}),
        ToolRequest("call_bbbbbbbbb", "read", {"path": "é"}),
    ),
    finish="tool_calls",
    usage=Usage(20, 7),
    model="fake-1",
)


@settings(deadline=None)
@given(st.lists(st.integers(0, len(STREAM)), max_size=12), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_a_stream_reads_the_same_however_it_is_cut(cuts: list[int], line_end: bytes) -> None:
    """Packets may end anywhere, in the middle of a character or of a line end, and lines may end as SSE allows."""
    stream = STREAM.replace(b"\n", line_end)
    edges = [0, *sorted(cuts), len(stream)]
    assert read(*(stream[start:end] for start, end in pairwise(edges))) == WANTED


def test_a_stream_reads_the_same_byte_by_byte() -> None:
    """The smallest packets there are."""
    assert read(*(STREAM[at : at + 1] for at in range(len(STREAM)))) == WANTED


def test_text_comes_out_as_it_comes_in() -> None:
    """What a viewer is given adds up to the text of the answer."""
    reader = Reader()
    seen = [reader.feed(chunk + b"\n\n") for chunk in STREAM.split(b"\n\n") if chunk]
    assert [text for text in seen if text] == ["Grüße, ", "😀!"]


@pytest.mark.parametrize(
    "stream",
    [
        pytest.param(b"\xef\xbb\xbf" + STREAM, id="byte order mark"),
        pytest.param(STREAM.replace(b"data: ", b"data:"), id="no blank after data:"),
        pytest.param(
            b": hello\n\n" + STREAM.replace(b"data: ", b": ping\nevent: chunk\nid: 7\ndata: "), id="comments and fields"
        ),
        pytest.param(STREAM.removesuffix(DONE), id="no end mark"),
        pytest.param(STREAM.removesuffix(DONE)[:-2], id="no blank line at the end"),
        pytest.param(b"\n\n\n" + STREAM, id="blank lines first"),
        pytest.param(STREAM + event({"content": "late"}), id="more after the end mark"),
        pytest.param(STREAM.replace(b'"choices":[{', b'"object":"chunk","x":NaN,"choices":[{'), id="NaN where nobody looks"),
        pytest.param(STREAM.replace(b'"choices":[]', b'"choices":null'), id="null for no choices"),
        pytest.param(event(prompt_filter_results=[{"a": 1}]) + STREAM, id="an event without choices first"),
    ],
)
def test_odd_framing_changes_nothing(stream: bytes) -> None:
    """Servers differ in what stands around the events."""
    assert read(stream) == WANTED


@pytest.mark.parametrize(
    ("pieces", "wanted"),
    [
        pytest.param(
            [piece(None, "a", '{"x":1}', "id_1_______"), piece(None, "b", '{"y":2}', "id_2_______")],
            [("a", {"x": 1}), ("b", {"y": 2})],
            id="no index, told apart by id",
        ),
        pytest.param(
            [piece(None, "a", '{"x"'), piece(None, None, ":1}"), piece(None, "b", "{}")],
            [("a", {"x": 1}), ("b", {})],
            id="neither index nor id",
        ),
        pytest.param(
            [piece(0, "a", '{"x":1}', "id_1_______"), piece(0, "b", '{"y":2}', "id_2_______")],
            [("a", {"x": 1}), ("b", {"y": 2})],
            id="all with index 0, told apart by id",
        ),
        pytest.param(
            [piece(0, "a", '{"x":1}'), piece(0, "a", '{"x":2}')],
            [("a", {"x": 1}), ("a", {"x": 2})],
            id="all with index 0 and no id",
        ),
        pytest.param(
            [piece(0, "a", '{"x"', "id_1_______"), piece(0, "a", ":1}", "id_1_______")],
            [("a", {"x": 1})],
            id="id and name in every piece",
        ),
        pytest.param(
            [piece(1, "b", "{}", "id_2_______"), piece(0, "a", "{}", "id_1_______"), piece(1, None, "")],
            [("b", {}), ("a", {})],
            id="out of order",
        ),
        pytest.param([piece(0, "a", {"x": 1}, "id_1_______")], [("a", {"x": 1})], id="arguments as an object"),
        pytest.param([piece(0, "a", "", "id_1_______")], [("a", {})], id="no arguments"),
        pytest.param([piece(0, "a", '{"x": 1,}', "id_1_______")], [("a", '{"x": 1,}')], id="broken arguments"),
        pytest.param(
            [{"function_call": {"name": "a", "arguments": '{"x"'}}, {"function_call": {"arguments": ":1}"}}],
            [("a", {"x": 1})],
            id="legacy",
        ),
        pytest.param([piece(0, "a", "{}", "id_1_______"), piece(1)], [("a", {})], id="a piece that says nothing"),
    ],
)
def test_calls_are_put_together(pieces: Sequence[dict[str, Any]], wanted: list[tuple[str, Any]]) -> None:
    """Every call comes out once, whole, under its name, with an id of its own, whatever the server leaves out."""
    answer = read(*(event(each) for each in pieces), event({}, "stop"), DONE)
    assert calls(answer) == wanted
    assert len({request.tool_call_id for request in answer.requests}) == len(wanted)
    assert answer.finish == "tool_calls"


def test_ids_repeated_in_a_whole_answer_are_two_calls() -> None:
    """Two calls under one id stay two calls."""
    call = {"id": "call_same_id", "type": "function", "function": {"name": "a", "arguments": "{}"}}
    first, second = read(*whole({"content": None, "tool_calls": [call, call]}).chunks).requests
    assert first.tool_call_id == "call_same_id"
    assert second.tool_call_id != first.tool_call_id


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"content": None}, ""),
        ({"content": "plain"}, "plain"),
        ({"content": [{"type": "text", "text": "a"}, {"type": "image", "url": "x"}, "b"]}, "ab"),
        (
            {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "no"}]}, {"type": "text", "text": "yes"}]},
            "yes",
        ),
        ({"content": None, "refusal": "I will not."}, "I will not."),
        ({"content": "said", "reasoning_content": "thought", "reasoning": "thought"}, "said"),
        ({"content": 7}, ""),
    ],
)
def test_text_is_what_was_said(message: dict[str, Any], text: str) -> None:
    """Text may come as null, a string or parts; thinking is never text."""
    assert read(*whole(message).chunks).text == text


def test_reasoning_is_kept_only_to_go_back_with_its_calls() -> None:
    """Reasoning text is the answer's opaque state where it asks for tools, and dropped where it does not."""
    call = {"id": "call_000001", "function": {"name": "a", "arguments": "{}"}}
    assert read(*whole({"reasoning_content": "hm", "tool_calls": [call]}).chunks).opaque == REASONING + "hm"
    assert read(*whole({"reasoning_content": "hm", "content": "x"}).chunks).opaque is None


@pytest.mark.parametrize(
    ("said", "wanted"),
    [(None, "stop"), ("stop", "stop"), ("length", "length"), ("max_tokens", "length"), ("sensitive", "sensitive")],
)
def test_unknown_finish_reasons_are_passed_on(said: str | None, wanted: str) -> None:
    """Known words become ours, others stay."""
    assert read(*whole({"content": "x"}, said).chunks).finish == wanted


def test_a_call_that_the_limit_cut_is_kept_as_it_came() -> None:
    """Half a call is raw text, and a call whose arguments never came is not one without arguments."""
    answer = read(
        event(piece(0, "a", '{"x": "lo', "id_1_______")), event(piece(1, "b", "", "id_2_______")), event({}, "length"), DONE
    )
    assert calls(answer) == [("a", '{"x": "lo'), ("b", "")]
    assert answer.finish == "length"


@pytest.mark.parametrize(
    "end",
    [b"", b'data: {"choices": [{"delta": {"cont', b"data: {broken}\n\n", b"data: [1, 2]\n\n"],
    ids=["between events", "in an event", "an event that is no JSON", "an event that is no chunk"],
)
def test_a_stream_that_breaks_off_gives_what_came(end: bytes) -> None:
    """The text so far, finish cut, usage unknown."""
    answer = read(event({"content": "so far"}, usage={"prompt_tokens": 5, "completion_tokens": 1}), end)
    assert answer == Answer(text="so far", finish="cut", usage=None, model="fake-1")


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "network"),
        (event({"role": "assistant", "content": ""}), "network"),
        (DONE, "server"),
        (b'{"choices": []}', "server"),
        (b'{"choices": [{"message": {"con', "server"),
        (b"{}", "server"),
        (b"[]", "server"),
        (b"nonsense", "network"),
        (b"<!doctype html><html><p>Welcome", "invalid_request"),
        (b'{"choices": 7}', "server"),
        (b'{"error": {"message": "prompt is too long", "code": 400}}', "context_overflow"),
        (b'{"error": {"message": "slow down", "code": 429}}', "rate_limit"),
        (b'{"error": "something"}', "server"),
        (b'{"object": "error", "message": "too many requests"}', "rate_limit"),
        (b'{"choices": [{"message": {}, "error": {"code": 503, "message": "x"}}]}', "overloaded"),
        (event({"content": "x"}) + b'data: {"error": {"type": "overloaded_error", "message": "later"}}\n\n', "overloaded"),
        (b"{" * 5000, "server"),
        (b'{"choices":' + b"[" * 200_000, "server"),
    ],
)
def test_no_answer_is_a_failure_with_a_kind(body: bytes, kind: str) -> None:
    """A response with status 200 that holds no answer says why."""
    with pytest.raises(ModelError) as caught:
        read(body)
    assert caught.value.kind == kind


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_no_bytes_raise_anything_else(body: bytes) -> None:
    """Whatever a server sends, it is an answer or a ModelError."""
    for sent in (
        body,
        b'data: {"choices":[{"delta":{"content":"' + body + b'"}}]}\n\n',
        b'{"choices":[{"message":' + body + b"}]}",
    ):
        try:
            read(sent).text.encode()
        except ModelError as error:
            str(error).encode()


def test_surrogates_are_joined_over_events_or_replaced() -> None:
    """An emoji cut in two by the server is whole again; half of one is replaced; neither raises."""
    halves = [
        b'data: {"choices":[{"delta":{"content":"\\ud83d"}}]}\n\n',
        b'data: {"choices":[{"delta":{"content":"\\ude00"}}]}\n\n',
    ]
    assert read(*halves, DONE).text == "😀"
    assert read(halves[0], DONE).text == "\ufffd"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('{"a": 1}', {"a": 1}),
        (' \n{"a": 1}\n', {"a": 1}),
        ('{"a": "\\ud800"}', {"a": "\ufffd"}),
        ("", {}),
        ("null", "null"),
        ("[1]", "[1]"),
        ('"{}"', '"{}"'),
        ('{"a": NaN}', '{"a": NaN}'),
        ('{"a": 1}}', '{"a": 1}}'),
        ("{'a': 1}", "{'a': 1}"),
        ('{"a": "\ud800', '{"a": "\ufffd'),
        ('{"a":' * 100_000, '{"a":' * 100_000),
    ],
)
def test_arguments_are_an_object_or_the_raw_text(text: str, wanted: Any) -> None:
    """Only a JSON object is one; nothing is guessed."""
    assert parse_arguments(text, whole=True) == wanted


@pytest.mark.parametrize(
    ("given_", "wanted"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}, Usage(9, 2)),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 5,
                "prompt_tokens_details": {"cached_tokens": 4},
                "completion_tokens_details": {"reasoning_tokens": 3},
            },
            Usage(9, 5, cache_read=4, reasoning=3),
        ),
        ({"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 31}, Usage(9, 22)),
        ({"prompt_tokens": 9, "completion_tokens": 2, "prompt_cache_hit_tokens": 8}, Usage(9, 2, cache_read=8)),
        ({"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 99}}, Usage(9, 2, cache_read=9)),
        ({"prompt_tokens": 9.0, "completion_tokens": 0}, Usage(9, 0)),
        ({"prompt_tokens": 0, "completion_tokens": 0}, None),
        ({"prompt_tokens": 9}, None),
        ({"prompt_tokens": -1, "completion_tokens": 2}, None),
        ({"prompt_tokens": float("nan"), "completion_tokens": 2}, None),
        ({"prompt_tokens": True, "completion_tokens": "2"}, None),
        ([], None),
        (None, None),
    ],
)
def test_usage_is_told_or_unknown(given_: Any, wanted: Usage | None) -> None:
    """Absent or impossible numbers are unknown, never zero; reasoning counts as output whoever counts it."""
    assert read_usage(given_) == wanted


def test_odd_usage_does_not_cost_the_answer() -> None:
    """An answer whose usage cannot be read is an answer without usage."""
    body = b'{"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}], "usage": {"prompt_tokens": NaN}}'
    assert read(body) == Answer(text="x")


def test_the_wrong_kind_of_answer_is_read_all_the_same() -> None:
    """A stream may come where a whole answer was asked for; both are told by their first byte."""
    assert read(*whole({"content": "whole"}).chunks).text == "whole"
    assert read(b"\xef\xbb\xbf \r\n", *whole({"content": "whole"}).chunks).text == "whole"
    assert msgspec.structs.replace(read(STREAM), usage=None).text == WANTED.text
