"""MCP servers as tests start them."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from endstop.host.sandbox import Sandbox
from endstop.ports import Invocation, Outcome
from endstop.servers import McpServer
from endstop.tools.mcp import Servers
from endstop.tools.mcp_server import Place

HOSTILE = Path(__file__).with_name("mcp_hostile.py")


class Held:
    """Started servers and their tools by name."""

    def __init__(self, servers: Servers, folder: Path) -> None:
        self.servers, self.folder = servers, folder
        self.tools = {tool.spec.name: tool for tool in servers.tools}

    async def call(self, name: str, **arguments: Any) -> Outcome:
        """Call a tool of the server ``x``, or one by its whole name."""
        tool = self.tools[name if "__" in name else f"x__{name}"]
        return await tool.run(Invocation(tool_call_id="c", arguments=arguments, key="k", workspace=self.folder))

    def pids(self) -> list[int]:
        """Processes the hostile server wrote down, in order."""
        return [int(line) for line in (self.folder / "pids").read_text().split()]


def place(folder: Path, sandbox: Sandbox | None = None) -> Place:
    """Where servers of a test run."""
    return Place(
        session_id=str(folder),
        workspace=folder,
        sandbox=sandbox or Sandbox("none", "not asked for"),
        hidden=(),
        network=False,
        environment=os.environ,
        logs=folder / "logs",
        clean=lambda line: line.replace("verysecret", "[redacted]"),
    )


@asynccontextmanager
async def started(folder: Path, *configs: McpServer, sandbox: Sandbox | None = None) -> AsyncIterator[Held]:
    """Servers from their start to their end."""
    servers = Servers(configs, place(folder, sandbox))
    await servers.start()
    try:
        yield Held(servers, folder)
    finally:
        await servers.close()


def hostile(folder: Path, *words: str, name: str = "x", **more: Any) -> McpServer:
    """The hostile server, the user's own unless said otherwise."""
    return McpServer(
        **{"name": name, "own": True, "command": sys.executable, "args": (str(HOSTILE), str(folder), *words), **more}
    )


def public(module: str, name: str, **more: Any) -> McpServer:
    """A public server, installed as a Python package."""
    return McpServer(name=name, own=True, command=sys.executable, args=("-m", module), **more)


def lives(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
