"""Anthropic's messages and OpenAI's responses over real HTTP on loopback. What all wires share is tested with the first one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from endstop.core.messages import Answer, AssistantText, Head, Message, ToolRequest, ToolSpec, ToolText, UserText
from endstop.errors import ModelError, UsageError
from endstop.models.anthropic import AnthropicModel
from endstop.models.http import HttpModel
from endstop.models.openai import OpenAIModel
from endstop.models.responses import ResponsesModel
from tests.models import test_anthropic_answer as anthropic
from tests.models import test_responses as responses
from tests.models.fake import HEAD, HELLO, Reply, Server, model, serving, text

KEY = "sk-very-secret-0123456789"
SHELL = ToolSpec("shell", "Run.", {"type": "object"})
STREAMS = {AnthropicModel: anthropic.STREAM, ResponsesModel: responses.STREAM}
WHOLE: dict[type[HttpModel], bytes] = {
    AnthropicModel: anthropic.SAME,
    ResponsesModel: responses.msgspec.json.encode(responses.response(*responses.ITEMS)),
}
KINDS = pytest.mark.parametrize("kind", [AnthropicModel, ResponsesModel])


def talk(
    kind: type[HttpModel], *replies: Reply, turns: int = 1, watch: Any = None, **options: Any
) -> tuple[list[Answer], Server]:
    """Some turns of one conversation in which each call has its result."""
    messages: list[Message] = list(HELLO)
    answers: list[Answer] = []

    async def run() -> Server:
        async with serving(*replies) as server, model(server.url, kind, **options) as asked:
            chat = asked.open(Head("s", (SHELL,)))
            for _ in range(turns):
                answer = await chat.ask(messages, generation=0, max_output=50, watch=watch)
                answers.append(answer)
                messages.append(AssistantText(answer.text, answer.requests, answer.opaque))
                messages.extend(ToolText(request.tool_call_id, "done") for request in answer.requests)
        return server

    return answers, asyncio.run(run())


@KINDS
def test_a_streamed_and_a_whole_answer_are_the_same(kind: type[HttpModel]) -> None:
    """In many small packets; only a watched call asks for a stream."""
    packets = tuple(STREAMS[kind][at : at + 9] for at in range(0, len(STREAMS[kind]), 9))
    seen: list[str] = []
    (streamed,), server = talk(kind, Reply(packets), watch=seen.append)
    (whole,), other = talk(kind, text(WHOLE[kind]))
    assert streamed == whole
    assert "".join(seen) == whole.text
    assert [server.requests[0].get("stream"), other.requests[0].get("stream")] == [True, None]


@KINDS
def test_reasoning_is_carried_through_a_conversation(kind: type[HttpModel]) -> None:
    """What came encrypted goes back unchanged in every later request, and ids that came again are told apart."""
    answers, server = talk(kind, *[text(WHOLE[kind])] * 3, turns=3)
    ids = [answer.requests[0].tool_call_id for answer in answers]
    assert len(set(ids)) == 3
    secret = b"c2lnbmF0dXJl" if kind is AnthropicModel else b"gAAAAB"
    assert [body.count(secret) for body in server.bodies] == [0, 1, 2]
    assert all(body.count(id.encode()) == 2 for body, id in zip(server.bodies[1:], ids, strict=False))


@KINDS
def test_another_model_does_not_get_it(kind: type[HttpModel]) -> None:
    """Text and calls go on, reasoning of others does not: neither among the three wires nor among models of one."""
    (answer,), _ = talk(kind, text(WHOLE[kind]))

    async def run() -> list[bytes]:
        said = AssistantText(answer.text, answer.requests, answer.opaque)
        ok = [text(WHOLE[AnthropicModel]), text(WHOLE[ResponsesModel])]
        async with serving(*ok, text('{"choices": [{"message": {"content": "ok"}}]}')) as server:
            for other in (AnthropicModel, ResponsesModel, OpenAIModel):
                asked = other("x:fake-2", "fake-2", base_url=server.url, api_key=None)
                chat = asked.open(HEAD)
                await chat.ask([*HELLO, said, UserText("y")], generation=0, max_output=9)
                await asked.close()
            return server.bodies

    for body in asyncio.run(run()):
        assert b"c2lnbmF0dXJl" not in body
        assert b"gAAAAB" not in body
        assert b"shell" in body


def test_a_key_goes_where_it_belongs() -> None:
    """Each provider has its own header, and Anthropic wants the version of its protocol."""
    _, server = talk(AnthropicModel, text(WHOLE[AnthropicModel]), api_key=KEY)
    assert server.headers[0]["x-api-key"] == KEY
    assert server.headers[0]["anthropic-version"] == "2023-06-01"
    assert "Authorization" not in server.headers[0]
    _, server = talk(ResponsesModel, text(WHOLE[ResponsesModel]), api_key=KEY)
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("end", ["", "/", "/v1", "/v1/", "/v1/messages"])
def test_the_base_url_is_taken_as_people_write_it(end: str) -> None:
    """Anthropic's own clients leave ``/v1`` out, others do not."""
    made = AnthropicModel("anthropic:m", "m", base_url=f"https://gateway.example.com/anthropic{end}", api_key=KEY)
    assert made.base + made.endpoint == "https://gateway.example.com/anthropic/v1/messages"


@KINDS
def test_a_key_that_no_header_may_hold_is_a_usage_error(kind: type[HttpModel]) -> None:
    """It is refused before it is sent, and not shown."""
    with pytest.raises(UsageError) as caught:
        kind("x:m", "m", base_url="http://127.0.0.1/v1", api_key="sk-secret\n")
    assert "sk-secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "type", "message", "kind"),
    [
        (400, "invalid_request_error", "messages: roles must alternate", "invalid_request"),
        (400, "invalid_request_error", "prompt is too long: 208310 tokens > 200000 maximum", "context_overflow"),
        (
            400,
            "invalid_request_error",
            "input length and `max_tokens` exceed context limit: 199000 + 16000 > 200000",
            "context_overflow",
        ),
        (400, "invalid_request_error", "Your credit balance is too low to access the Anthropic API.", "auth"),
        (400, "invalid_request_error", "You have reached your specified API usage limits.", "rate_limit"),
        (401, "authentication_error", "invalid x-api-key", "auth"),
        (403, "permission_error", "no", "auth"),
        (404, "not_found_error", "model: claude-x", "invalid_request"),
        (413, "request_too_large", "Request exceeds the maximum size", "context_overflow"),
        (429, "rate_limit_error", "This request would exceed your organization's rate limit", "rate_limit"),
        (500, "api_error", "Internal server error", "server"),
        (529, "overloaded_error", "Overloaded", "overloaded"),
    ],
)
def test_refusals_of_anthropic_have_their_kinds(status: int, type: str, message: str, kind: str) -> None:
    """By code, by words, and by status; the key is not in them."""
    body = anthropic.msgspec.json.encode({"type": "error", "error": {"type": type, "message": f"{message} {KEY}"}})
    with pytest.raises(ModelError) as caught:
        talk(AnthropicModel, text(body, status), api_key=KEY, key_name="ANTHROPIC_API_KEY")
    error = caught.value
    assert (error.kind, error.status) == (kind, status)
    assert KEY not in str(error) + repr(error)
    if status == 401:
        assert "ANTHROPIC_API_KEY" in error.hint
    if "credit" in message:
        assert "billing" in error.hint


def test_a_limit_with_a_known_end_says_when() -> None:
    """The header of the limit that is used up becomes the wait."""
    headers = {
        "anthropic-ratelimit-input-tokens-remaining": "0",
        "anthropic-ratelimit-input-tokens-reset": "2099-01-01T00:00:00Z",
        "retry-after": "33",
    }
    with pytest.raises(ModelError) as caught:
        talk(AnthropicModel, Reply((b"{}",), 429, headers))
    assert caught.value.retry_after == 33.0


def test_a_model_with_a_smaller_answer_is_asked_for_that() -> None:
    """The refusal that names the bound costs one request once."""
    no = b'{"error": {"type": "invalid_request_error", "message": "max_tokens: 50 > 40, which is the maximum allowed number"}}'
    ok = text(WHOLE[AnthropicModel])
    _, server = talk(AnthropicModel, text(no, 400), ok, ok, turns=2)
    assert [request["max_tokens"] for request in server.requests] == [50, 40, 40]


def test_a_model_that_does_not_reason_is_asked_without() -> None:
    """The refusal costs one request once."""
    no = b'{"error": {"message": "Encrypted content is not supported with this model."}}'
    ok = text(WHOLE[ResponsesModel])
    _, server = talk(ResponsesModel, text(no, 400), ok, ok, turns=2)
    assert ["include" in request for request in server.requests] == [True, False, False]


def test_what_another_conversation_learnt_meanwhile_is_not_unlearnt() -> None:
    """Two calls refused at the same time for the same word both end with the other word."""
    no = text('{"error": {"message": "\'max_tokens\' is not supported, use \'max_completion_tokens\'"}}', 400)
    ok = text('{"choices": [{"message": {"content": "ok"}}]}')

    async def run() -> Server:
        async with serving(no, no, ok, ok) as server, model(server.url) as asked:
            await asyncio.gather(*(asked.open(HEAD).ask(HELLO, generation=0, max_output=9) for _ in range(2)))
            return server

    words = [next(key for key in request if key.startswith("max")) for request in asyncio.run(run()).requests]
    assert words == ["max_tokens"] * 2 + ["max_completion_tokens"] * 2


@KINDS
def test_a_dropped_connection_is_the_network(kind: type[HttpModel]) -> None:
    """Before any of the answer it is a failure that may pass; after some, a cut answer."""
    stream = STREAMS[kind]
    with pytest.raises(ModelError) as caught:
        talk(kind, Reply((stream[:40],), cut=True), watch=lambda piece: None)
    assert caught.value.kind == "network"
    (answer,), _ = talk(kind, Reply((stream[: stream.rindex(b"ls")],), cut=True), watch=lambda piece: None)
    assert answer.finish == "cut"
    assert answer.text


@KINDS
def test_effort_is_asked_for(kind: type[HttpModel]) -> None:
    """In each provider's own field."""
    _, server = talk(kind, text(WHOLE[kind]), effort="high")
    request = server.requests[0]
    assert (request.get("output_config") or request.get("reasoning")) == {"effort": "high"}


def test_chat_completions_have_effort_too() -> None:
    """And without one nothing is said."""
    ok = text('{"choices": [{"message": {"content": "ok"}}]}')
    asked = [talk(OpenAIModel, ok, **options)[1].requests[0].get("reasoning_effort") for options in ({}, {"effort": "low"})]
    assert asked == [None, "low"]


def test_tools_that_are_forbidden() -> None:
    """The last call of a history with calls may not call: Anthropic is told so, the others get no tools."""

    async def run(kind: type[HttpModel]) -> dict[str, Any]:
        async with serving(text(WHOLE[kind])) as server, model(server.url, kind) as asked:
            said = AssistantText("", (ToolRequest("call_000000001", "shell", {}),))
            messages = [*HELLO, said, ToolText("call_000000001", "x")]
            await asked.open(Head("s", (SHELL,))).ask(messages, generation=0, max_output=9, tools=False)
            return server.requests[0]

    assert asyncio.run(run(AnthropicModel))["tool_choice"] == {"type": "none"}
    assert "tools" not in asyncio.run(run(ResponsesModel))
