"""Against a server that is not ours, in all three protocols: the package ``llmock``, as a real process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from endstop.core.messages import Answer, AssistantText, Head, Message, ToolSpec, ToolText, UserText
from endstop.errors import ModelError
from endstop.models.anthropic import AnthropicModel
from endstop.models.http import HttpModel
from endstop.models.openai import OpenAIModel
from endstop.models.responses import ResponsesModel
from endstop.ports import Watch
from tests.models.fake import model
from tests.other_server import other_server

WEATHER = ToolSpec(
    "get_weather",
    "Weather of a city.",
    {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]},
)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server, once it answers."""
    with other_server(tmp_path_factory.mktemp("llmock")) as address:
        yield address


def at(url: str, kind: type[HttpModel]) -> str:
    """Where the server speaks that protocol."""
    return url.replace("/v1", "/anthropic") if kind is AnthropicModel else url


KINDS = pytest.mark.parametrize("kind", [OpenAIModel, AnthropicModel, ResponsesModel])


@KINDS
@pytest.mark.parametrize("streamed", [False, True])
def test_a_round_with_a_tool(url: str, kind: type[HttpModel], streamed: bool) -> None:
    """The server calls the offered tool with arguments by its schema, takes the result back and answers in text, with usage."""
    seen: list[str] = []
    watch: Watch | None = seen.append if streamed else None

    async def run() -> tuple[Answer, Answer]:
        async with model(at(url, kind), kind, api_key="any-key-will-do") as asked:
            chat = asked.open(Head("You are a test.", (WEATHER,)))
            messages: list[Message] = [UserText("Weather in Köln?")]
            first = await chat.ask(messages, generation=0, max_output=200, watch=watch)
            messages.append(AssistantText(first.text, first.requests, first.opaque))
            messages += [ToolText(request.tool_call_id, "18 degrees") for request in first.requests]
            return first, await chat.ask(messages, generation=0, max_output=200, watch=watch)

    first, second = asyncio.run(run())
    assert [(request.name, request.arguments) for request in first.requests] == [
        ("get_weather", {"city": "mock-city", "days": 1})
    ]
    assert first.finish == "tool_calls"
    assert first.usage is not None
    assert "Köln" in second.text
    assert second.finish == "stop"
    assert second.usage is not None
    assert second.usage.output > 0
    assert "".join(seen) == (first.text + second.text if streamed else "")


@KINDS
@pytest.mark.parametrize(("status", "fault"), [(401, "auth"), (429, "rate_limit"), (500, "server"), (503, "overloaded")])
def test_its_failures_have_our_kinds(url: str, kind: type[HttpModel], status: int, fault: str) -> None:
    """Errors in another server's words are told apart as well."""

    async def run() -> ModelError:
        async with model(at(url, kind), kind, extra_headers={"x-llmock-force-status": str(status)}) as asked:
            with pytest.raises(ModelError) as caught:
                await asked.open(Head("s")).ask([UserText("x")], generation=0, max_output=9)
            return caught.value

    error = asyncio.run(run())
    assert (error.kind, error.status) == (fault, status)
