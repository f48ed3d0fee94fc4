"""A model server on loopback that answers each request as the test says, in as many packets as it says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from aiohttp import web

from endstop.core.messages import Answer, Head, Message, UserText
from endstop.models.http import HttpModel
from endstop.models.openai import OpenAIModel
from endstop.ports import Watch

HELLO: tuple[Message, ...] = (UserText("hello"),)
HEAD = Head("You are a test.")


class Reply(msgspec.Struct, frozen=True):
    """One answer: ``chunks`` are written one by one; ``cut`` drops the connection after them, ``hang`` never ends."""

    chunks: tuple[bytes, ...]
    status: int = 200
    headers: dict[str, str] = {}
    cut: bool = False
    hang: bool = False


def text(body: str | bytes, status: int = 200, **headers: str) -> Reply:
    """A whole body as it is."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply((body.encode() if isinstance(body, str) else body,), status, named)


def whole(message: dict[str, Any], finish: str | None = "stop", **more: Any) -> Reply:
    """An answer that is not streamed."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    return text(msgspec.json.encode({"model": "fake-1", "choices": [choice], **more}))


def event(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> bytes:
    """One event of a stream."""
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    return b"data: " + msgspec.json.encode({"model": "fake-1", "choices": choices, **more}) + b"\n\n"


DONE = b"data: [DONE]\n\n"


class Server:
    """What is listening, and what it was sent."""

    def __init__(self, replies: Sequence[Reply]) -> None:
        self.replies = list(replies)
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.url = ""
        self.gone = asyncio.Event()  # a client left in the middle of an answer

    @property
    def requests(self) -> list[dict[str, Any]]:
        return [msgspec.json.decode(body) for body in self.bodies]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(await request.read())
        self.headers.append(dict(request.headers))
        reply = self.replies.pop(0)
        response = web.StreamResponse(status=reply.status, headers=reply.headers)
        await response.prepare(request)
        try:
            for chunk in reply.chunks:
                await response.write(chunk)
                await asyncio.sleep(0)
            if reply.hang:
                while True:
                    await asyncio.sleep(0.01)
                    await response.write(b": still here\n\n" if reply.headers.get("chatty") else b"")
                    if request.transport is None or request.transport.is_closing():
                        raise ConnectionResetError
        except (ConnectionResetError, asyncio.CancelledError):
            self.gone.set()
            raise
        if reply.cut and request.transport is not None:
            request.transport.abort()
        return response


@asynccontextmanager
async def serving(*replies: Reply) -> AsyncIterator[Server]:
    """A server that gives these replies, one per request."""
    server = Server(replies)
    app = web.Application(client_max_size=2**26)
    for path in ("chat/completions", "messages", "responses"):
        app.router.add_post(f"/v1/{path}", server.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield server
    finally:
        await runner.cleanup()


@asynccontextmanager
async def model(url: str, kind: type[HttpModel] = OpenAIModel, **options: Any) -> AsyncIterator[HttpModel]:
    """A model behind that URL."""
    made = kind("openai:fake-1", "fake-1", base_url=url, api_key=options.pop("api_key", None), **options)
    try:
        yield made
    finally:
        await made.close()


def ask(*replies: Reply, messages: Sequence[Message] = HELLO, watch: Watch | None = None, **options: Any) -> Answer:
    """Ask once, against these replies."""

    async def run() -> Answer:
        async with serving(*replies) as server, model(server.url, **options) as asked:
            return await asked.open(HEAD).ask(messages, generation=0, max_output=100, watch=watch)

    return asyncio.run(run())
