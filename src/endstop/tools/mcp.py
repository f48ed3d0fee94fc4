"""Tools of MCP servers: what the servers of a session offer, as tools of ours.

A server is foreign. Its tools carry its name, what they return is fenced as data, what they do is taken from its annotations
unless the settings say otherwise, and none of them is the user's own: in mode auto, whatever may change things is asked for.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Any

import jsonschema_rs
import msgspec
from mcp_types import Tool as Listed
from mcp_types import ToolAnnotations

from endstop.core.events import Failure
from endstop.core.messages import ToolSpec
from endstop.errors import UsageError
from endstop.ports import Invocation, Outcome
from endstop.servers import Kind, McpServer
from endstop.tools.mcp_result import fence, outcome
from endstop.tools.mcp_server import CallFailed, Place, Server

MOST = 128
"""Tools of one server that are taken in."""
WORDS = 2_000
"""Characters of a description that the model is shown."""
SCHEMA = 65_536
"""Bytes of a schema above which a tool is left out."""
LONGEST = 64
"""Characters of a tool's name that providers accept."""

for _name in ("mcp", "client"):  # the SDK's: without a handler Python would write its warnings to the terminal
    logging.getLogger(_name).addHandler(logging.NullHandler())


class McpTool:
    """One tool of a server."""

    def __init__(self, server: Server, listed: Listed, spec: ToolSpec) -> None:
        self._server, self._name, self.spec = server, listed.name, spec

    async def run(self, call: Invocation) -> Outcome:
        """Call it. A server that dies, hangs or answers nonsense is a failed result."""
        repeatable = self.spec.effect != "write" or self.spec.repeatable
        try:
            result = await self._server.call(self._name, call.arguments, repeatable=repeatable)
        except CallFailed as error:
            said = f"\n{fence(self._server.name, error.said)}" if error.said else ""
            failure = Failure(code=error.code, message=error.message)
            return Outcome(success=False, content=error.message + said, error=failure, executed=error.ran)
        return outcome(self._server.name, result)


class Servers:
    """The MCP servers of one session. ``tools`` are what they offer; ``left_out`` says of which tools why they are not."""

    def __init__(self, servers: Iterable[McpServer], place: Place) -> None:
        self._servers = [Server(config, place) for config in servers]
        self.tools: list[McpTool] = []
        self.left_out: dict[str, str] = {}

    async def start(self) -> None:
        """Start all of them and read what they offer.

        Raises:
            UsageError: one does not start, or the settings name a tool it has not; none of them runs then.
        """
        try:
            await _all(self._servers)
            for server in self._servers:
                self._take(server)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End all of them; returns when nothing of them is left."""
        await asyncio.gather(*(server.close() for server in self._servers))

    def _take(self, server: Server) -> None:
        _check_names(server)
        taken: set[str] = set()
        for listed in server.tools:
            name = tool_name(server.name, listed.name)
            why = _unusable(listed, server.config, len(taken), name in taken)
            if why:
                self.left_out[f"{server.name}: {listed.name[:LONGEST]}"] = why
                server.log.say(f"[endstop] the tool {listed.name[:LONGEST]!r} is left out: {why}")
                continue
            taken.add(name)
            self.tools.append(McpTool(server, listed, make_spec(server.config, listed)))


async def _all(servers: Sequence[Server]) -> None:
    """Start side by side; the first that fails stops the others."""
    try:
        async with asyncio.TaskGroup() as group:
            for server in servers:
                group.create_task(server.start())
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None


def tool_name(server: str, tool: str) -> str:
    """``server__tool`` as providers accept it. What must be changed for that is marked by a hash, so that no two are alike."""
    legal = re.sub(r"[^A-Za-z0-9_-]", "_", f"{server}__{tool}")
    if legal == f"{server}__{tool}" and len(legal) <= LONGEST:
        return legal
    mark = sha256(tool.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{legal[: LONGEST - 9]}_{mark}"


def make_spec(config: McpServer, listed: Listed) -> ToolSpec:
    """What kernel and model are told of a tool."""
    kind = config.effect(listed.name)
    effect, irreversible, repeatable = _by_setting(kind) if kind else _by_annotations(listed.annotations)
    words = (listed.description or listed.title or "no description")[:WORDS]
    return ToolSpec(
        name=tool_name(config.name, listed.name),
        description=f"(MCP server {config.name}) {words}",
        parameters=listed.input_schema,
        effect=effect,
        irreversible=irreversible,
        repeatable=repeatable,
    )


def _by_setting(kind: Kind) -> tuple[Any, bool, bool]:
    """(effect, irreversible, repeatable)"""
    effect = "write" if kind in ("repeatable", "irreversible") else kind
    return effect, kind == "irreversible", kind == "repeatable"


def _by_annotations(hints: ToolAnnotations | None) -> tuple[Any, bool, bool]:
    """What the server says its tool does; silence is a write. Whoever destroys is asked about, idempotent or not."""
    if hints is None:
        return "write", False, False
    if hints.read_only_hint:
        return "read_outside", False, False
    return "idempotent" if hints.idempotent_hint else "write", bool(hints.destructive_hint), False


def _unusable(listed: Listed, config: McpServer, count: int, known: bool) -> str:
    """Why a tool cannot be offered, empty if it can."""
    if not config.offers(listed.name):
        return "the settings do not let it in"
    if known:
        return "another tool has this name"
    if count >= MOST:
        return f"{MOST} tools of one server are enough"
    schema = listed.input_schema
    if len(msgspec.json.encode(schema)) > SCHEMA:
        return f"its schema is larger than {SCHEMA // 1024} KiB"
    try:
        jsonschema_rs.Draft202012Validator(schema, offline=True)
    except ValueError as broken:
        return f"its schema cannot be used: {str(broken)[:200]}"
    return ""


def _check_names(server: Server) -> None:
    """A name in the settings that fits no tool is a slip, and a slip in a deny list is dangerous."""
    names = [listed.name for listed in server.tools]
    for key, pattern in _patterns(server.config):
        if not any(fnmatchcase(name, pattern) for name in names):
            hint = f"it has {', '.join(names[:20]) or 'none'}"
            raise UsageError(f"the server has no tool {pattern!r}", where=f"mcp.{server.name}.{key}", hint=hint)


def _patterns(config: McpServer) -> Iterator[tuple[str, str]]:
    yield from (("effects", pattern) for pattern in config.effects)
    yield from (("allow", pattern) for pattern in config.allow if pattern != "*")
    yield from (("deny", pattern) for pattern in config.deny)
