"""Models of pydantic-ai, with its own models for tests and over HTTP on loopback."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from pydantic_ai import exceptions
from pydantic_ai import messages as pa
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel
from pydantic_ai.usage import RequestUsage

from endstop.core.messages import Answer, AssistantText, Head, Message, ToolRequest, ToolSpec, ToolText, Usage
from endstop.errors import ModelError, UsageError
from endstop.models.bridge import BridgeModel
from endstop.models.bridge_wire import translate
from endstop.ports import Watch
from tests.models import test_responses as responses
from tests.models.fake import HEAD, HELLO, Reply, Server, serving

SHELL = ToolSpec("shell", "Run a command.", {"type": "object", "properties": {"command": {"type": "string"}}})
CALL = ToolRequest("call_000000001", "shell", {"command": "ls"})
Seen = list[tuple[list[pa.ModelMessage], AgentInfo]]


def ask(*answers: pa.ModelResponse, messages: Sequence[Message] = HELLO, **options: Any) -> tuple[list[Answer], Seen]:
    """Ask as often as there are answers, giving each call a result."""
    seen: Seen = []
    left = list(answers)

    def function(history: list[pa.ModelMessage], info: AgentInfo) -> pa.ModelResponse:
        seen.append((list(history), info))
        return left.pop(0)

    async def run() -> list[Answer]:
        asked = BridgeModel("bridge:x:y", FunctionModel(function), **options)
        chat, said, got = asked.open(Head("Be brief.", (SHELL,))), list(messages), []
        for _ in answers:
            answer = await chat.ask(said, generation=0, max_output=77)
            got.append(answer)
            said.append(AssistantText(answer.text, answer.requests, answer.opaque))
            said.extend(ToolText(request.tool_call_id, "done") for request in answer.requests)
        return got

    return asyncio.run(run()), seen


def shell(args: Any = None, id: str = "call_000000001", **more: Any) -> pa.ToolCallPart:
    return pa.ToolCallPart("shell", {"command": "ls"} if args is None else args, id, **more)


def test_a_conversation_with_a_call() -> None:
    """System, tools, messages and results stand where the library has them; text, calls and usage come back."""
    usage = RequestUsage(
        input_tokens=90, output_tokens=30, cache_read_tokens=60, cache_write_tokens=10, output_reasoning_tokens=5
    )
    first = pa.ModelResponse([pa.TextPart("I look."), shell()], usage=usage)
    answers, seen = ask(first, pa.ModelResponse([pa.TextPart("Done.")]))
    assert answers[0].text == "I look."
    assert answers[0].requests == (CALL,)
    assert answers[0].finish == "tool_calls"
    assert answers[0].usage == Usage(90, 30, cache_read=60, cache_write=10, reasoning=5)
    assert (answers[1].text, answers[1].finish) == ("Done.", "stop")
    history, info = seen[1]
    assert info.instructions == "Be brief."
    assert [tool.name for tool in info.function_tools] == ["shell"]
    assert info.model_settings is not None
    assert info.model_settings["max_tokens"] == 77
    kinds = [[type(part).__name__ for part in message.parts] for message in history]
    assert kinds == [["UserPromptPart"], ["TextPart", "ToolCallPart"], ["ToolReturnPart"]]
    result = history[2].parts[0]
    assert isinstance(result, pa.ToolReturnPart)
    assert (result.tool_name, result.tool_call_id, result.content) == ("shell", "call_000000001", "done")


def test_reasoning_goes_back_as_it_came() -> None:
    """The answer with its signatures and the provider's own details is in the next request, for this model only."""
    thinking = pa.ThinkingPart("hm", signature="c2ln", provider_name="x")
    parts = [thinking, pa.TextPart("I look."), shell(provider_details={"thought_signature": "abc"})]
    (first, _), seen = ask(pa.ModelResponse(parts), pa.ModelResponse([pa.TextPart("x")]))
    assert list(seen[1][0][1].parts) == parts
    said = AssistantText(first.text, first.requests, (first.opaque or "").replace("bridge:x:y", "bridge:x:z"))
    _, seen = ask(pa.ModelResponse([]), messages=[*HELLO, said, ToolText("call_000000001", "x")])
    assert [type(part).__name__ for part in seen[0][0][1].parts] == ["TextPart", "ToolCallPart"]


@pytest.mark.parametrize(
    "opaque", ["{", '{"by": "bridge:x:y", "parts": [{"kind": "?"}]}', '{"by": "bridge:x:y", "parts": []}', "reasoning_content:x"]
)
def test_reasoning_that_cannot_be_read_is_left_out(opaque: str) -> None:
    """Text and calls go on."""
    _, seen = ask(pa.ModelResponse([]), messages=[*HELLO, AssistantText("so", (CALL,), opaque), ToolText("call_000000001", "x")])
    assert [type(part).__name__ for part in seen[0][0][1].parts] == ["TextPart", "ToolCallPart"]


def test_ids_that_come_again_are_told_apart() -> None:
    """In the answer and in what goes back."""
    answers, seen = ask(*[pa.ModelResponse([shell(id="call_0"), shell(id="call_0")])] * 2, pa.ModelResponse([]))
    ids = [request.tool_call_id for answer in answers for request in answer.requests]
    assert len(set(ids)) == 4
    sent = [part.tool_call_id for message in seen[2][0] for part in message.parts if isinstance(part, pa.ToolCallPart)]
    assert sent == ids


@pytest.mark.parametrize(("args", "wanted"), [('{"a": 1}', {"a": 1}), ("", {}), ('{"a": ', '{"a": '), ("[1]", "[1]")])
def test_arguments_of_every_kind(args: str, wanted: Any) -> None:
    """An object, or the raw text where it is none."""
    (answer,), _ = ask(pa.ModelResponse([shell(args)]))
    assert answer.requests[0].arguments == wanted


@pytest.mark.parametrize(
    ("theirs", "ours"), [("length", "length"), ("content_filter", "content_filter"), ("error", "error"), (None, "stop")]
)
def test_why_it_stopped_in_our_words(theirs: Any, ours: str) -> None:
    """An answer that may be half has no half call that looks whole."""
    (answer,), _ = ask(pa.ModelResponse([pa.TextPart("x")], finish_reason=theirs))
    assert answer.finish == ours


def stream(watch: Watch, *, broken: bool = False) -> Answer:
    """A streamed answer, perhaps one that breaks off."""

    async def function(history: list[pa.ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        yield "I look "
        yield "– ä."
        if broken:
            raise exceptions.ModelConnectionError("y", "gone")
        yield {1: DeltaToolCall("shell", '{"comm', tool_call_id="call_000000001")}
        yield {1: DeltaToolCall(json_args='and":"ls"}')}

    async def run() -> Answer:
        asked = BridgeModel("bridge:x:y", FunctionModel(stream_function=function))
        return await asked.open(HEAD).ask(HELLO, generation=0, max_output=9, watch=watch)

    return asyncio.run(run())


def test_a_watched_answer_streams() -> None:
    """Text reaches the watcher as it comes; calls are whole."""
    seen: list[str] = []
    answer = stream(seen.append)
    assert answer.text == "".join(seen) == "I look – ä."
    assert answer.requests == (CALL,)


def test_a_stream_that_breaks_off_or_is_stopped_is_cut() -> None:
    """What came is the answer, and what it cost is not known."""

    def enough(piece: str) -> None:
        raise ModelError("truncated", "enough")

    for answer in (stream(lambda piece: None, broken=True), stream(enough)):
        assert answer.finish == "cut"
        assert answer.text.startswith("I look")
        assert answer.usage is None


@pytest.mark.parametrize(
    ("error", "kind", "wait"),
    [
        (exceptions.ModelHTTPError(429, "m", {"message": "slow"}, headers={"retry-after": "7"}), "rate_limit", 7.0),
        (exceptions.ModelHTTPError(400, "m", {"error": {"message": "prompt is too long"}}), "context_overflow", None),
        (exceptions.ModelHTTPError(401, "m", "no key"), "auth", None),
        (exceptions.ModelHTTPError(503, "m", None), "overloaded", None),
        (exceptions.ModelHTTPError(500, "m", object()), "server", None),
        (exceptions.ModelHTTPError(400, "m", {"message": "bad"}), "invalid_request", None),
        (exceptions.ModelRateLimitError("m", "try again in 3s", retry_after=3.0), "rate_limit", 3.0),
        (exceptions.ModelQuotaExceededError("m", "empty"), "auth", None),
        (exceptions.ModelOverloadedError("m", "busy"), "overloaded", None),
        (exceptions.ModelTimeoutError("m", "late"), "network", None),
        (exceptions.ModelAPIError("m", "something"), "server", None),
        (exceptions.ContentFilterError("no"), "content_filter", None),
        (exceptions.UnexpectedModelBehavior("odd"), "server", None),
        (exceptions.UserError("wrong"), "invalid_request", None),
        (ConnectionResetError("gone"), "network", None),
        (TimeoutError(), "network", None),
        (KeyError("x"), "invalid_request", None),
    ],
)
def test_failures_have_our_kinds(error: Exception, kind: str, wait: float | None) -> None:
    """By the library's class, else by status and words; in one line."""
    ours = translate(error)
    assert (ours.kind, ours.retry_after) == (kind, wait)
    assert ours.message
    assert "\n" not in str(ours)


def test_a_failure_names_the_model_and_no_secret() -> None:
    """Whatever a provider's library says."""

    def function(history: list[pa.ModelMessage], info: AgentInfo) -> pa.ModelResponse:
        raise RuntimeError("key sk-very-secret is wrong")

    async def run() -> ModelError:
        asked = BridgeModel("bridge:x:y", FunctionModel(function), secrets=["sk-very-secret"])
        with pytest.raises(ModelError) as caught:
            await asked.open(HEAD).ask(HELLO, generation=0, max_output=9)
        return caught.value

    error = asyncio.run(run())
    assert error.where == "bridge:x:y"
    assert "sk-very-secret" not in str(error)


def test_over_http(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model by its name reaches a server in the provider's protocol, with effort; and nothing is asked again unasked."""

    async def run() -> tuple[Answer, ModelError, Server, bool]:
        body = responses.msgspec.json.encode(
            responses.response(
                *responses.ITEMS, id="resp_1", created_at=1, tools=[], parallel_tool_calls=True, tool_choice="auto"
            )
        )
        busy = Reply(
            (b'{"error": {"message": "slow down", "code": "rate_limit_exceeded"}}',),
            429,
            {"Retry-After": "9", "Content-Type": "application/json"},
        )
        async with serving(Reply((body,), 200, {"Content-Type": "application/json"}), busy) as server:
            monkeypatch.setenv("OPENAI_BASE_URL", server.url)
            monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret-0123456789")
            asked = BridgeModel("bridge:openai:gpt-5", "openai:gpt-5", effort="low")
            chat = asked.open(Head("s", (SHELL,)))
            answer = await chat.ask(HELLO, generation=0, max_output=50)
            with pytest.raises(ModelError) as caught:
                await chat.ask(HELLO, generation=0, max_output=50)
            await asked.close()
            return answer, caught.value, server, asked.local

    answer, error, server, local = asyncio.run(run())
    assert answer.requests == (CALL,)
    assert answer.usage == Usage(90, 30, cache_read=60, cache_write=10, reasoning=20)
    assert (error.kind, error.status, error.retry_after) == ("rate_limit", 429, 9.0)
    assert len(server.bodies) == 2
    assert server.requests[0]["reasoning"]["effort"] == "low"
    assert server.requests[0]["max_output_tokens"] == 50
    assert local


@pytest.mark.parametrize("name", ["nobody:gpt", "openai:gpt-5", "gpt-5"])
def test_a_model_that_cannot_be_used_is_a_usage_error(name: str) -> None:
    """Unknown, without its key, or no name at all: it says so in one line."""
    with pytest.raises(UsageError) as caught:
        BridgeModel(f"bridge:{name}", name)
    assert "bridge:PROVIDER:MODEL" in caught.value.hint
    assert "\n" not in str(caught.value)


def test_without_the_library_it_says_how_to_get_it() -> None:
    """And nothing else needs it: it is not loaded by the package."""
    code = (
        "import sys; import endstop.assemble; assert not [name for name in sys.modules if name.startswith('pydantic_ai')]\n"
        "sys.modules['pydantic_ai.exceptions'] = None\n"
        "from endstop.models.bridge import BridgeModel\n"
        "from endstop.errors import UsageError\n"
        "try: BridgeModel('bridge:a:b', 'a:b')\n"
        "except UsageError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'endstop[bridge]'" in done.stdout, done.stderr
