"""An OpenAI-compatible server on loopback whose answers a function gives, and goals that run against it."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from endstop.assemble import Order, System, open_system
from endstop.core.events import Contract
from endstop.core.goal import State
from endstop.ports import Tool
from endstop.running import Running
from endstop.settings import load

Reply = dict[str, Any]
Player = Callable[[dict[str, Any], int], Reply | web.StreamResponse]


def message(text: str = "", *calls: tuple[str, dict[str, Any] | str], finish: str | None = None) -> Reply:
    """A chat completion: text and calls (name, arguments)."""
    asked = [
        {
            "id": f"call_{n}",
            "type": "function",
            "function": {"name": name, "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments)},
        }
        for n, (name, arguments) in enumerate(calls)
    ]
    said: dict[str, Any] = {"role": "assistant", "content": text}
    if asked:
        said["tool_calls"] = asked
    return {
        "id": "x",
        "object": "chat.completion",
        "model": "m",
        "choices": [{"index": 0, "message": said, "finish_reason": finish or ("tool_calls" if asked else "stop")}],
        "usage": {"prompt_tokens": 120, "completion_tokens": 20, "total_tokens": 140},
    }


class Server:
    """Counts and keeps requests; ``play(request, number)`` answers those of the agent's own turns and of the closing."""

    def __init__(self, play: Player) -> None:
        self.play = play
        self.requests: list[dict[str, Any]] = []
        self.raw: list[bytes] = []
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """One request."""
        body = await request.read()
        self.raw.append(body)
        asked = json.loads(body)
        self.requests.append(asked)
        reply = self.play(asked, len(self.requests))
        return reply if isinstance(reply, web.StreamResponse) else web.json_response(reply)


@asynccontextmanager
async def serving(play: Player) -> AsyncIterator[Server]:
    """A server for the time of a test."""
    server = Server(play)
    app = web.Application(client_max_size=1 << 26)
    app.router.add_post("/v1/chat/completions", server.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield server
    finally:
        await runner.cleanup()


@asynccontextmanager
async def system(url: str, workspace: Path, tools: Iterable[Tool] = (), **more: Any) -> AsyncIterator[System]:
    """A system whose model ``openai:m`` is at this address."""
    environ = {**os.environ, "OPENAI_BASE_URL": url, "OPENAI_API_KEY": "test-key-1234567890"}
    settings = load(cwd=workspace, environ=environ, flags=more or None)
    async with open_system(settings, tools=tools) as opened:
        yield opened


async def pursue(url: str, workspace: Path, contract: Contract, tools: Iterable[Tool] = (), **more: Any) -> tuple[State, Running]:
    """One goal from queue to where it stops, with default settings and nobody to ask."""
    async with system(url, workspace, tools, **more) as opened:
        order = Order(
            objective="do it",
            workspace=workspace,
            model="openai:m",
            contract=contract,
            limits=opened.settings.limits,
            policy=opened.settings.policy,
        )
        running = await opened.queue(order)
        state = await running.drive(stay=False)
        await running.close()
        verdict = await opened.store.verify(running.session.session_id)
        assert verdict.verdict == "ok", verdict
        return state, running


def go(work: Any) -> Any:
    """Run a coroutine."""
    return asyncio.run(work)
