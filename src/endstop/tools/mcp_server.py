"""One MCP server as a session holds it: started, asked, started again when it has died, and ended for good.

A call is sent at most twice, and a second time only where the first provably did not arrive or may be sent again. Every wait
is bounded: for the start, for an answer, and for the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from mcp import Client, MCPError
from mcp.client import Transport
from mcp_types import (
    CONNECTION_CLOSED,
    INVALID_REQUEST,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    Implementation,
    PaginatedRequestParams,
    Tool,
)
from pydantic import ValidationError

from endstop import __version__
from endstop.errors import ToolError, UsageError
from endstop.host.programs import without
from endstop.host.sandbox import Sandbox
from endstop.servers import McpServer
from endstop.tools.mcp_link import Command, ServerLog, http_link, process_link

START = 30.0
"""Seconds a server may take to start and to list its tools."""
PING = 5.0
"""Seconds a server that did not answer a call may take to show that it is alive."""
BACK_OFF = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""Seconds before a dead server is started again, by how often it died without answering in between."""
CLOSE = 8.0
"""Seconds a link may take to end in good order; a process that stays takes up to 5 of them."""
WORDS = 1_000
"""Characters of a complaint that are passed on."""
PAGES = 32
"""Pages of a list of tools that are read."""
_PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TMPDIR", "TZ")


class Place(msgspec.Struct, frozen=True):
    """Where a session's servers run.

    Args:
        hidden: what a server in the sandbox cannot see.
        network: whether a server in the sandbox may use it.
        environment: what every server may get of it.
        logs: folder of what servers write to their stderr.
        clean: takes secrets out of a line.
    """

    session_id: str
    workspace: Path
    sandbox: Sandbox
    hidden: tuple[Path, ...]
    network: bool
    environment: Mapping[str, str]
    logs: Path
    clean: Callable[[str], str]


class CallFailed(ToolError):
    """A call came to nothing. ``said`` are words of the server, which are data; ``ran`` is False if it provably did not run."""

    def __init__(self, code: str, message: str, *, said: str = "", ran: bool = True) -> None:
        super().__init__(code, message)
        self.said, self.ran = said, ran


class Lost(Exception):
    """The link ended under a call. ``sent``: the call may have arrived."""

    def __init__(self, why: str, *, sent: bool) -> None:
        super().__init__(why)
        self.sent = sent


class Connection:
    """One run of a server, from its start to its end. The SDK wants both in one task, so a task holds it."""

    def __init__(self) -> None:
        self.why = ""
        self._leave = asyncio.Event()
        self._client: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None

    @property
    def alive(self) -> bool:
        """Whether a call can still be made."""
        return not self._leave.is_set()

    async def open(self, link: Transport) -> Client:
        """Start and shake hands. Raises whatever goes wrong."""
        self._task = asyncio.create_task(self._hold(link))
        try:
            async with asyncio.timeout(START):
                return await asyncio.shield(self._client)
        except BaseException:
            await self.close()
            raise

    def end(self, why: str) -> None:
        """The link is of no use any more. The first reason counts."""
        self.why = self.why or why
        self._leave.set()

    async def close(self) -> str:
        """End the server and say why it ended; nothing of it is left then, whoever is cancelled meanwhile."""
        self._leave.set()
        if self._task is not None:
            if not self._client.done():
                self._task.cancel()  # it is shaking hands, and would go on with that
            await asyncio.shield(_finish(self._task))
        return self.why

    async def _hold(self, link: Transport) -> None:
        info = Implementation(name="endstop", version=__version__)
        try:
            async with Client(link, client_info=info, cache=None) as client:
                self._client.set_result(client)
                await self._leave.wait()
        except Exception as error:  # noqa: BLE001  foreign code: however the link ends, it has ended
            if not self._client.done():
                self._client.set_exception(_root(error))
            self.end(str(_root(error)) or type(error).__name__)
        finally:
            if not self._client.done():
                self._client.cancel()
            self.end("it was stopped")


async def _finish(task: asyncio.Task[None]) -> None:
    """Wait for a link to end; one that takes too long is cut."""
    done, _ = await asyncio.wait({task}, timeout=CLOSE)
    if not done:
        task.cancel()
        await asyncio.wait({task}, timeout=CLOSE)


class Server:
    """A configured server. ``tools`` are those it listed at its first start."""

    def __init__(self, config: McpServer, place: Place) -> None:
        self.config, self.name, self._place = config, config.name, place
        self.tools: list[Tool] = []
        self.log = ServerLog(place.logs / f"{config.name}.log", place.clean)
        self._lock = asyncio.Lock()
        self._connection: Connection | None = None
        self._client: Client | None = None
        self._deaths = 0
        self._refused: list[int] = []

    async def start(self) -> None:
        """Start it and read the list of its tools.

        Raises:
            UsageError: it does not start; says what it said last.
        """
        if not self.config.own and self._place.sandbox.kind == "none":
            hint = f"{self._place.sandbox.why}; or set the server in your own file"
            raise UsageError("a project's server runs in the sandbox only", where=f"mcp.{self.name}", hint=hint)
        try:
            async with asyncio.timeout(START):
                self.tools = await _list(await self._open())
        except UsageError:
            raise
        except Exception as error:  # noqa: BLE001  foreign code: whatever it is, it does not start
            await self.close()
            raise self._dead(error) from None
        self._deaths = 0

    async def call(self, tool: str, arguments: dict[str, Any], *, repeatable: bool) -> CallToolResult:
        """Call a tool; a dead server is started again, once.

        Raises:
            CallFailed: "timeout"; "effect_unknown", it died while a call ran that may not be sent twice; "failed".
        """
        try:
            return await self._ask(tool, arguments)
        except Lost as lost:
            if lost.sent and not repeatable:
                problem = f"the MCP server {self.name} died while the call ran: {lost}; look whether it took effect"
                raise CallFailed("effect_unknown", problem, said=self.log.last()) from None
        try:
            return await self._ask(tool, arguments)
        except Lost as lost:
            raise CallFailed("failed", f"the MCP server {self.name} died again: {lost}", said=self.log.last()) from None

    async def close(self) -> None:
        """End it, with everything it began."""
        self._client = None
        if self._connection is not None:
            await self._connection.close()

    # -- starting

    async def _open(self) -> Client:
        """A client of a living server. Raises whatever goes wrong."""
        async with self._lock:
            if self._client is not None and self._connection is not None and self._connection.alive:
                return self._client
            await self.close()
            await asyncio.sleep(BACK_OFF[min(self._deaths, len(BACK_OFF) - 1)])
            self._deaths += 1
            self._connection = Connection()
            self._client = await self._connection.open(self._link(self._connection))
            return self._client

    def _link(self, connection: Connection) -> Transport:
        config, place = self.config, self._place
        if config.url is not None:
            self._refused.clear()
            return http_link(config.url, config.headers, config.timeout + PING, self._refused)
        assert config.command is not None
        argv = [config.command, *config.args]
        if not config.own:
            argv = place.sandbox.wrap(argv, workspace=place.workspace, hidden=place.hidden, network=place.network)
        environment = {name: place.environment[name] for name in _PASSED_ON if name in place.environment}
        if config.own:  # it runs outside of the sandbox: no program of the agent's is started for it
            environment = without(environment, place.workspace)
        mark = f"mcp:{place.session_id}:{self.name}"
        command = Command(argv, config.cwd or place.workspace, {**environment, **config.env}, mark)
        return process_link(command, self.log, connection.end)

    # -- asking

    async def _ask(self, tool: str, arguments: dict[str, Any]) -> CallToolResult:
        """Send a call once.

        Raises:
            Lost: the link ended.
            CallFailed: it was not answered in time, or not as a tool answers.
        """
        try:
            client = await self._open()
        except Exception as error:  # noqa: BLE001  foreign code: whatever it is, it does not start
            problem = f"the MCP server {self.name} is gone and does not start again: {self._problem(error)[0]}"
            raise CallFailed("failed", problem, said=self.log.last(), ran=False) from None
        connection, request = self._connection, CallToolRequest(params=CallToolRequestParams(name=tool, arguments=arguments))
        assert connection is not None
        try:
            # Not Client.call_tool: it would compile the server's own output schema, whose patterns could hold us for ever.
            async with asyncio.timeout(self.config.timeout):
                result = await client.session.send_request(request, CallToolResult)
        except TimeoutError:
            raise CallFailed("timeout", await self._unanswered(client, connection)) from None
        except MCPError as error:
            if error.code == CONNECTION_CLOSED or not connection.alive:
                raise Lost(await connection.close(), sent=True) from None
            if error.code == INVALID_REQUEST and error.message == "Session terminated":
                connection.end("it has forgotten the session")
                raise Lost(await connection.close(), sent=False) from None
            raise CallFailed("failed", f"the MCP server {self.name} refuses the call", said=self._reason(error)) from None
        except (ValidationError, RuntimeError, ValueError) as error:
            raise CallFailed("failed", f"the MCP server {self.name} gave no result of a tool", said=str(error)[:WORDS]) from None
        self._deaths = 0
        return result

    async def _unanswered(self, client: Client, connection: Connection) -> str:
        """A call was not answered: find out whether the server lives; one that does not is ended, so that the next call
        finds a new one."""
        words = f"the MCP server {self.name} did not answer within {self.config.timeout:g} s; the call may have taken effect"
        try:
            async with asyncio.timeout(PING):
                await client.session.list_tools()
        except (TimeoutError, MCPError, ValidationError):
            connection.end("it hung")
            await connection.close()
            return f"{words}. It answered nothing else either and was stopped; the next call starts it again"
        return words

    # -- words

    def _reason(self, error: BaseException) -> str:
        refused = f" (HTTP {self._refused[-1]})" if self._refused else ""
        return f"{str(error).strip()[:WORDS] or type(error).__name__}{refused}"

    def _dead(self, error: BaseException) -> UsageError:
        """Why it does not start, in words: what was tried, what it said, what to do."""
        problem, hint = self._problem(error)
        tried = self._place.clean(self.config.url or " ".join([self.config.command or "", *self.config.args]))[:WORDS]
        said = self.log.last()
        told = f"; it said:\n{said}\n" if said else ""
        return UsageError(f"does not start: {tried}: {problem}{told}", where=f"mcp.{self.name}", hint=hint)

    def _problem(self, error: BaseException) -> tuple[str, str]:
        """(what is wrong with its start, what to do)"""
        match error:
            case FileNotFoundError():
                return "it, or the interpreter it names, is not found", "install it, or give its whole path"
            case PermissionError():
                return "it may not be run", "chmod +x, or call its interpreter"
            case TimeoutError():
                return f"it did not answer within {START:g} s", "does it speak MCP? run it by hand"
            case ValidationError():
                wrong = error.errors()[0]
                at = ".".join(str(part) for part in wrong["loc"])
                return f"what it answers is not valid: {at}: {wrong['msg']}", "report it to whoever makes the server"
            case _ if self.config.url:
                return self._reason(error), "is it running, and are url and headers right?"
            case MCPError(code=code) if code == CONNECTION_CLOSED and self._connection:
                return self._connection.why, "run it by hand to see why"
        return self._reason(error), "run it by hand to see why"


def _root(error: BaseException) -> BaseException:
    """The first cause inside groups of errors."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _list(client: Client) -> list[Tool]:
    found: list[Tool] = []
    cursor = None
    for _ in range(PAGES):
        page = await client.session.list_tools(params=PaginatedRequestParams(cursor=cursor))
        found += page.tools
        cursor = page.next_cursor
        if not cursor:
            break
    return found
