"""An MCP server over HTTP, made with the SDK: ``python mcp_http.py PORT``. It wants a key in ``Authorization``."""

from __future__ import annotations

import sys

import uvicorn
from mcp.server.mcpserver import MCPServer
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

server = MCPServer("sums")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def much() -> str:
    """More than anybody wants."""
    return "x" * 17 * 1024 * 1024


class Guarded:
    """Lets nobody in without the header."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app: ASGIApp | Response = self.app
        if scope["type"] == "http" and Request(scope).headers.get("authorization") != "Bearer let-me-in-please":
            app = PlainTextResponse("who are you?", status_code=401)
        await app(scope, receive, send)


uvicorn.run(Guarded(server.streamable_http_app()), host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
