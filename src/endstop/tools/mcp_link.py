"""The two ways to an MCP server: a process of its own, spoken to over its pipes, and an address, spoken to over HTTP.

A message is bounded, so that no server fills our memory; what a process writes to its stderr goes to a bounded log; and a
process ends with its link, with everything it began.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import httpx2
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification, jsonrpc_message_adapter

from endstop.host import spawn

LARGEST = 16 * 1024 * 1024
"""Bytes of one message, or of one HTTP answer, above which the link is given up."""
LOG = 1024 * 1024
"""Bytes of a server's log; then it is begun anew, and the one before is kept beside it."""
LINE = 2_000
"""Characters of one line in the log."""
GRACE = 2.0
"""Seconds a server may take to end after its standard input was closed, and half of it once more after SIGTERM."""
LINGER = 0.5
"""Seconds for what it said last, after it has ended."""
_LAST = 12  # lines of stderr that an error shows

Inbox = MemoryObjectSendStream[SessionMessage | Exception]
Outbox = MemoryObjectReceiveStream[SessionMessage]
Link = AbstractAsyncContextManager[tuple[Any, Any]]
"""What a client of the SDK speaks over: entering it yields its two streams."""


class ServerLog:
    """What a server says beside the protocol, without secrets, in a file of bounded size.

    Args:
        clean: takes secrets out of a line.
    """

    def __init__(self, path: Path, clean: Callable[[str], str]) -> None:
        self.path = path
        self._clean = clean
        self._last: deque[str] = deque(maxlen=_LAST)
        self._rest = ""

    def take(self, text: str) -> None:
        """Add text as it comes; a line is written once it is whole, or too long to wait for."""
        *lines, self._rest = (self._rest + text).split("\n")
        if len(self._rest) > LINE:
            lines, self._rest = [*lines, self._rest], ""
        if lines:
            self.say(*lines)

    def say(self, *lines: str) -> None:
        """Add whole lines."""
        cleaned = [self._clean(line.rstrip("\r"))[:LINE] for line in lines]
        self._last.extend(line for line in cleaned if line.strip())
        with suppress(OSError):  # a log that cannot be written must not stop a goal
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            if self.path.exists() and self.path.stat().st_size > LOG:
                self.path.replace(self.path.with_suffix(".log.1"))
            with self.path.open("a", encoding="utf-8", errors="replace") as file:
                file.writelines(f"{line}\n" for line in cleaned)

    def last(self) -> str:
        """The last lines, the unfinished one too."""
        if self._rest.strip():
            self.say(self._rest)
            self._rest = ""
        return "\n".join(self._last)


# ---------------------------------------------------------------------------------------------------------------- process


class Command(msgspec.Struct, frozen=True):
    """How a server's process is started. ``mark`` names it for ``spawn.kill_marked``, unique on this machine."""

    argv: Sequence[str]
    cwd: Path
    env: Mapping[str, str]
    mark: str


@asynccontextmanager
async def process_link(command: Command, log: ServerLog, on_end: Callable[[str], None]) -> AsyncIterator[tuple[Any, Any]]:
    """Start a server and speak with it; at the end nothing of it is left.

    Args:
        on_end: gets the reason when the server ends the link; must return at once.

    Raises:
        OSError: it cannot be started.
    """
    spawn.kill_marked(command.mark)  # what a crash of ours left of it
    process, stdout, stderr = await _start(command)
    send_in, inbox = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outbox, receive_out = anyio.create_memory_object_stream[SessionMessage](0)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_read, stdout, send_in, log, on_end)
            group.start_soon(_write, process, receive_out)
            group.start_soon(_listen, stderr, log)
            group.start_soon(_await_end, process, stdout, send_in, on_end)
            try:
                yield inbox, outbox
            finally:
                with anyio.CancelScope(shield=True):
                    await _stop(process, command.mark)
                group.cancel_scope.cancel()
    finally:
        spawn.kill_marked(command.mark)  # before anything else is awaited: a second cancel cannot come between
        for stream in (send_in, inbox, outbox, receive_out):
            stream.close()
        for pipe in (stdout, stderr):
            pipe.close()


class _Pipe:
    """The reading end of a pipe, apart from the process: its end and the end of its output can be told apart."""

    def __init__(self) -> None:
        self.reader = asyncio.StreamReader(limit=LARGEST)
        self.finished = asyncio.Event()
        self._end, self.writer = os.pipe()

    async def open(self) -> None:
        """Begin to read."""
        protocol = asyncio.StreamReaderProtocol(self.reader)
        file = os.fdopen(self._end, "rb", buffering=0)
        self._transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, file)

    def close(self) -> None:
        """Let go of it."""
        self._transport.close()


async def _start(command: Command) -> tuple[asyncio.subprocess.Process, _Pipe, _Pipe]:
    stdout, stderr = _Pipe(), _Pipe()
    await stdout.open()
    await stderr.open()
    try:
        process = await asyncio.create_subprocess_exec(
            *command.argv,
            cwd=command.cwd,
            env=spawn.marked(command.env, command.mark),
            stdin=subprocess.PIPE,
            stdout=stdout.writer,
            stderr=stderr.writer,
            start_new_session=True,
        )
    except BaseException:
        stdout.close()
        stderr.close()
        raise
    finally:
        os.close(stdout.writer)
        os.close(stderr.writer)
    return process, stdout, stderr


async def _read(stdout: _Pipe, inbox: Inbox, log: ServerLog, on_end: Callable[[str], None]) -> None:
    """Pass on one message a line. What is none goes to the log, as many servers greet on stdout; notifications are dropped:
    nothing here needs one, and a flood of them then costs nobody else."""
    async with inbox:
        while True:
            try:
                line = await stdout.reader.readline()
            except ValueError:
                on_end(f"it sent a message of more than {LARGEST // 2**20} MiB")
                return
            if not line:
                stdout.finished.set()
                return
            try:
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError:
                log.say(f"[stdout] {line[:LINE].decode(errors='replace').rstrip()}")
                message = None
            if message is None or isinstance(message, JSONRPCNotification):
                await asyncio.sleep(0)
                continue
            try:
                await inbox.send(SessionMessage(message))
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return


async def _write(process: asyncio.subprocess.Process, outbox: Outbox) -> None:
    assert process.stdin is not None
    async with outbox:
        async for item in outbox:
            data = item.message.model_dump_json(by_alias=True, exclude_unset=True)
            with suppress(OSError):  # it is gone: its end says so to everybody
                process.stdin.write(data.encode("utf-8", "replace") + b"\n")
                await process.stdin.drain()


async def _listen(stderr: _Pipe, log: ServerLog) -> None:
    while chunk := await stderr.reader.read(65_536):
        log.take(chunk.decode(errors="replace"))
        await asyncio.sleep(0)


async def _await_end(process: asyncio.subprocess.Process, stdout: _Pipe, inbox: Inbox, on_end: Callable[[str], None]) -> None:
    """Whatever still holds the pipe: where the server itself has ended, nobody answers any more."""
    code = await process.wait()
    with anyio.move_on_after(LINGER):
        await stdout.finished.wait()
    on_end(f"it ended with exit code {code}" if code >= 0 else f"it was ended by signal {-code}")
    inbox.close()


async def _stop(process: asyncio.subprocess.Process, mark: str) -> None:
    """Close its standard input, then ask, then kill: every wait is bounded."""
    assert process.stdin is not None
    try:
        process.stdin.close()
        if not await _ends(process, GRACE):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGTERM)
            await _ends(process, GRACE / 2)
    finally:
        spawn.kill_marked(mark)
    if not await _ends(process, GRACE):  # somebody out of reach still holds the other end of its standard input
        process.stdin.transport.abort()


async def _ends(process: asyncio.subprocess.Process, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await process.wait()
    except TimeoutError:
        return False
    return True


# ------------------------------------------------------------------------------------------------------------------- HTTP


class _Bounded(httpx2.AsyncByteStream):
    """The body of an answer, given up where it grows too large."""

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > LARGEST:
                raise httpx2.ReadError(f"an answer of more than {LARGEST // 2**20} MiB")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


@asynccontextmanager
async def http_link(url: str, headers: Mapping[str, str], seconds: float, seen: list[int]) -> AsyncIterator[tuple[Any, Any]]:
    """Speak with a server at an address. ``seen`` gets the status of every answer that is an error; ``seconds`` is how long
    the server may be silent."""

    async def look(response: httpx2.Response) -> None:
        if response.status_code >= 400:
            seen.append(response.status_code)
        # Nothing packed: its size after unpacking is not bounded by what comes over the wire.
        response.headers.pop("content-encoding", None)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _Bounded(response.stream)

    async with (
        httpx2.AsyncClient(
            headers={**headers, "accept-encoding": "identity"},
            timeout=httpx2.Timeout(30.0, read=seconds),
            event_hooks={"response": [look]},
        ) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=LARGEST) as streams,
    ):
        yield streams
