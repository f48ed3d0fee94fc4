"""OpenAI's responses: requests and answers as bytes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from endstop.core.messages import Answer, AssistantText, Head, Message, ToolRequest, ToolSpec, ToolText, Usage, UserText
from endstop.errors import ModelError
from endstop.models.kept import keep
from endstop.models.responses_answer import Reader, read_usage
from endstop.models.responses_wire import WHERE, Dialect, Transcript, adapt, tail

SHELL = ToolSpec("shell", "Run a command.", {"type": "object", "properties": {"command": {"type": "string"}}})
HEAD = Head("Be brief.", (SHELL,))
END = tail(Dialect(), 500, stream=False)
HMM = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAAB"}
CALL = ToolRequest("call_000000001", "shell", {"command": "ls"})


def body(messages: Sequence[Message], head: Head = HEAD, *, tools: bool = True) -> dict[str, Any]:
    decoded: dict[str, Any] = msgspec.json.decode(Transcript("m", head).body(messages, 0, END, tools=tools))
    return decoded


def read(*chunks: bytes) -> Answer:
    """The answer in these chunks."""
    reader = Reader("m")
    for chunk in chunks:
        reader.feed(chunk)
    return reader.close(Transcript("m", Head("s")).unique)


# ------------------------------------------------------------------------------------------------------------------ the way out


def test_a_request_is_what_the_api_wants() -> None:
    """Nothing is stored, reasoning goes back before what followed it, and calls and results are items of their own."""
    thought = AssistantText("I look.\n\nNow.", (CALL,), keep(WHERE + "m", [HMM, (7, "commentary"), 6, None]))
    assert body([UserText("hi"), thought, ToolText(CALL.tool_call_id, "a.txt")]) == {
        "model": "m",
        "store": False,
        "instructions": "Be brief.",
        "tools": [
            {
                "type": "function",
                "name": "shell",
                "description": "Run a command.",
                "parameters": SHELL.parameters,
                "strict": False,
            }
        ],
        "input": [
            {"role": "user", "content": "hi"},
            HMM,
            {"role": "assistant", "content": "I look.", "phase": "commentary"},
            {"role": "assistant", "content": "Now."},
            {"type": "function_call", "call_id": CALL.tool_call_id, "name": "shell", "arguments": '{"command":"ls"}'},
            {"type": "function_call_output", "call_id": CALL.tool_call_id, "output": "a.txt"},
        ],
        "max_output_tokens": 500,
        "include": ["reasoning.encrypted_content"],
    }
    assert "tools" not in body([UserText("x")], tools=False)
    assert body([], Head(""))["input"] == []


def test_consecutive_requests_share_everything_but_the_tail() -> None:
    """The history is only ever followed."""
    transcript = Transcript("m", HEAD)
    messages: list[Message] = [UserText("go"), AssistantText("", (CALL,)), ToolText(CALL.tool_call_id, "x")]
    before = transcript.body(messages, 0, END, tools=True)
    after = transcript.body([*messages, UserText("more")], 0, END, tools=True)
    assert after.startswith(before.removesuffix(END))


@settings(deadline=None)
@given(st.lists(st.text(alphabet=st.characters(), max_size=20), min_size=1, max_size=4))
def test_no_text_breaks_the_encoding(texts: list[str]) -> None:
    """Whatever the text, a request is UTF-8 JSON in which every call has its result by the same id."""
    messages: list[Message] = []
    for text in texts:
        asked = (ToolRequest("id-of-a-call", text, {text: [text]}), ToolRequest(text * 9, text, text))
        messages += [UserText(text), AssistantText(text, asked), ToolText(text * 9, text), ToolText("id-of-a-call", text)]
    items = body(messages, Head("\ud800" + texts[0]))["input"]
    calls = [item["call_id"] for item in items if item.get("type") == "function_call"]
    results = [item["call_id"] for item in items if item.get("type") == "function_call_output"]
    assert sorted(calls) == sorted(results)


def test_what_is_asked_for_beside() -> None:
    """Effort in the provider's word, and a stream."""
    asked = msgspec.json.decode(b"{" + tail(Dialect("low", encrypted=False), 9, stream=True)[2:])
    assert asked == {"max_output_tokens": 9, "reasoning": {"effort": "low"}, "stream": True}


def test_a_model_that_does_not_reason_is_asked_without_from_then_on() -> None:
    """A refusal of encrypted reasoning changes the dialect; one that it could not be read does not."""
    no = ModelError("invalid_request", "Encrypted content is not supported with this model.", status=400)
    assert adapt(Dialect(), no) == Dialect(encrypted=False)
    assert adapt(Dialect(encrypted=False), no) is None
    plain = ModelError("invalid_request", "Unsupported parameter: 'reasoning.effort' is not supported", status=400)
    assert adapt(Dialect("low"), plain) == Dialect()
    odd = ModelError("invalid_request", "Unsupported value: 'reasoning.effort' does not support 'huge'", status=400)
    assert adapt(Dialect("huge"), odd) is None
    unread = ModelError("invalid_request", "The encrypted content gAAA could not be verified.", status=400)
    assert adapt(Dialect(), unread) is None


# ------------------------------------------------------------------------------------------------------------------- the way in


def event(type: str, **fields: Any) -> bytes:
    """One event of a stream."""
    return b"event: %b\ndata: %b\n\n" % (type.encode(), msgspec.json.encode({"type": type, "sequence_number": 1, **fields}))


def says(text: str, **more: Any) -> dict[str, Any]:
    """A message of the answer."""
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content, **more}


def calls(arguments: str = '{"command":"ls"}', **more: Any) -> dict[str, Any]:
    """A call of the answer."""
    return {"type": "function_call", "id": "fc_1", "call_id": CALL.tool_call_id, "name": "shell", "arguments": arguments, **more}


USAGE = {
    "input_tokens": 90,
    "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
    "output_tokens": 30,
    "output_tokens_details": {"reasoning_tokens": 20},
    "total_tokens": 120,
}


def response(*output: dict[str, Any], status: str = "completed", **more: Any) -> dict[str, Any]:
    """The whole answer as an object."""
    return {"object": "response", "model": "gpt-x", "status": status, "output": output, "usage": USAGE, **more}


def item(index: int, given: dict[str, Any], *deltas: bytes) -> bytes:
    """All events of one item."""
    begun = given | {"content": [], "arguments": "", "encrypted_content": "half"}
    start = event("response.output_item.added", output_index=index, item=begun)
    return b"".join([start, *deltas, event("response.output_item.done", output_index=index, item=given)])


def text_delta(index: int, piece: str) -> bytes:
    return event("response.output_text.delta", output_index=index, content_index=0, delta=piece)


ITEMS = (HMM, says("I look – ä.", phase="commentary"), says("Now."), calls())
STREAM = b"".join(
    [
        event("response.created", response=response(status="in_progress", usage=None)),
        item(0, HMM | {"status": None}, event("response.reasoning_summary_text.delta", output_index=0, delta="hm")),
        item(1, ITEMS[1], text_delta(1, "I look – "), text_delta(1, "ä.")),
        item(2, ITEMS[2], text_delta(2, "Now.")),
        item(
            3,
            ITEMS[3],
            event("response.function_call_arguments.delta", output_index=3, delta='{"comm'),
            event("response.function_call_arguments.delta", output_index=3, delta='and":"ls"}'),
        ),
        event("response.completed", response=response(*ITEMS)),
    ]
)


def test_streamed_and_whole_are_the_same_answer() -> None:
    """Text of all messages, calls, usage, and reasoning that goes back as it came at its end, with the phases."""
    answer = read(STREAM)
    assert answer == read(msgspec.json.encode(response(*ITEMS)))
    assert answer.text == "I look – ä.\n\nNow."
    assert answer.requests == (CALL,)
    assert answer.finish == "tool_calls"
    assert answer.usage == Usage(90, 30, cache_read=60, cache_write=10, reasoning=20)
    assert answer.model == "gpt-x"
    sent = body([UserText("x"), AssistantText(answer.text, answer.requests, answer.opaque)])["input"]
    assert sent[1:4] == [
        HMM,
        {"role": "assistant", "content": "I look – ä.", "phase": "commentary"},
        {"role": "assistant", "content": "Now."},
    ]


@settings(deadline=None)
@given(st.lists(st.integers(0, len(STREAM)), max_size=12), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_a_stream_reads_the_same_however_it_is_cut(cuts: list[int], line_end: bytes) -> None:
    """Packets may end anywhere."""
    sent = STREAM.replace(b"\n", line_end)
    edges = [0, *sorted(cuts), len(sent)]
    assert read(*(sent[start:end] for start, end in pairwise(edges))) == read(STREAM)


def test_text_comes_out_as_it_comes_in() -> None:
    """A viewer is given text only, and it adds up to the text of the answer, also where it came in one piece at its end."""
    for sent in [STREAM, event("response.completed", response=response(*ITEMS)), item(0, ITEMS[1]) + item(1, ITEMS[2])]:
        reader = Reader("m")
        seen = "".join(reader.feed(piece + b"\n\n") for piece in sent.split(b"\n\n") if piece)
        assert seen == "I look – ä.\n\nNow."


@pytest.mark.parametrize(
    ("reason", "finish"), [("max_output_tokens", "length"), ("content_filter", "content_filter"), ("some_new", "some_new")]
)
def test_an_incomplete_answer_says_why(reason: str, finish: str) -> None:
    """With what it cost, and half a call is malformed."""
    half = response(says("so"), calls('{"comm', status="incomplete"), status="incomplete", incomplete_details={"reason": reason})
    for sent in [msgspec.json.encode(half), event("response.incomplete", response=half)]:
        answer = read(sent)
        assert (answer.text, answer.finish) == ("so", finish)
        assert answer.requests[0].arguments == '{"comm'
        assert answer.usage is not None


def test_a_cut_stream_gives_what_came() -> None:
    """Finish "cut", unknown usage; reasoning that nothing followed does not go back."""
    end = STREAM.index(b"event: response.output_item.added", STREAM.index("ä.".encode()))
    answer = read(STREAM[:end])
    assert (answer.text, answer.finish, answer.usage) == ("I look – ä.", "cut", None)
    with pytest.raises(ModelError, match="connection ended"):
        read(STREAM[: STREAM.index(b"I look")])
    assert read(item(0, ITEMS[2], text_delta(0, "Now.")) + item(1, HMM)).opaque is None


def test_reasoning_that_nobody_can_read_does_not_go_back() -> None:
    """Without its content it names something the server did not keep; a local server's plain content goes back."""
    bare = {key: value for key, value in HMM.items() if key != "encrypted_content"}
    assert read(msgspec.json.encode(response(bare, says("x")))).opaque is None
    plain = bare | {"content": [{"type": "reasoning_text", "text": "hm"}]}
    assert "hm" in (read(msgspec.json.encode(response(plain, says("x")))).opaque or "")


def test_a_refusal_is_text() -> None:
    """Streamed or whole."""
    refused = says("") | {"content": [{"type": "refusal", "refusal": "No."}]}
    streamed = item(0, refused, event("response.refusal.delta", output_index=0, delta="No."))
    assert read(msgspec.json.encode(response(refused))).text == "No."
    assert read(streamed + event("response.completed", response=response(refused))).text == "No."


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"code": "rate_limit_exceeded", "message": "slow"}, "rate_limit"),
        ({"code": "server_error", "message": "x"}, "server"),
        ({"code": "context_length_exceeded", "message": "x"}, "context_overflow"),
        ({"code": "invalid_prompt", "message": "x"}, "invalid_request"),
        ({"code": "bio_policy", "message": "x"}, "content_filter"),
        ({"code": "insufficient_quota", "message": "x"}, "auth"),
    ],
)
def test_an_error_inside_an_answer_has_its_kind(error: dict[str, Any], kind: str) -> None:
    """As an event, as a failed answer, in a stream or whole."""
    failed = response(status="failed", error=error)
    for sent in [
        event("error", **error),
        event("error", error=error),
        event("response.failed", response=failed),
        STREAM[: STREAM.index(b"event: response.completed")] + event("response.failed", response=failed),
        msgspec.json.encode(failed),
    ]:
        with pytest.raises(ModelError) as caught:
            read(sent)
        assert caught.value.kind == kind


@pytest.mark.parametrize(
    "sent", [b"", b"data: garbage\n\n", b"{", b"[]", b"{}", b'{"output": "x"}', b"<html></html>", b"data: [DONE]\n\n"]
)
def test_what_is_no_answer_is_a_failure(sent: bytes) -> None:
    """Of the network or the server, in one line."""
    with pytest.raises(ModelError) as caught:
        read(sent)
    assert "\n" not in str(caught.value)


def test_usage_that_tells_nothing_is_none() -> None:
    """Unknown is None, never zero; more cached than sent cannot be."""
    assert [read_usage(given) for given in (None, {}, {"input_tokens": 0, "output_tokens": 1}, {"input_tokens": 5})] == [None] * 4
    odd = {"input_tokens": 5, "output_tokens": 1, "input_tokens_details": {"cached_tokens": 9}}
    assert read_usage(odd) == Usage(5, 1, cache_read=5)


KEYS = "type output_index delta item response output status content error usage arguments"
WORDS = "message function_call reasoning error response.completed response.output_text.delta failed"
LEAVES = st.none() | st.integers() | st.sampled_from(WORDS.split())


@settings(deadline=None)
@given(st.recursive(LEAVES, lambda x: st.lists(x, max_size=3) | st.dictionaries(st.sampled_from(KEYS.split()), x), max_leaves=12))
def test_no_json_breaks_the_reader(value: Any) -> None:
    """Whatever JSON comes, whole or streamed, there is an answer or a ``ModelError``."""
    sent = msgspec.json.encode(value)
    for given_ in [sent, b"data: " + sent + b"\n\n" + STREAM, STREAM[:-900] + b"\n\ndata: " + sent + b"\n\n"]:
        with suppress(ModelError):
            assert isinstance(read(given_), Answer)
