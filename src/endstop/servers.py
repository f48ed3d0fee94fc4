"""MCP servers as settings name them: ``[mcp.NAME]`` tables, and the ``mcpServers`` file that other clients share.

What the user writes himself may read his environment (``${NAME}``) and runs with his rights. What a project or goal file
says was written by somebody else: only commands, run in the sandbox, with nothing from the environment.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET, Meta, UnsetType

from endstop.errors import UsageError

LARGEST = 1 << 20
"""Bytes of an ``mcpServers`` file above which it is not read."""
TIMEOUT = 60.0
"""Seconds a call may take unless the table says otherwise."""
THEIRS = "project:"
"""Before the name of a server that a project or goal file names: no name of the user's own is like it."""

Text = Annotated[str, Meta(min_length=1)]
Seconds = Annotated[float, Meta(gt=0)]
Kind = Literal["read_outside", "idempotent", "write", "repeatable", "irreversible"]
"""What a tool does to the world: an effect class, or a write that may run again or that a human is asked for."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,32}")
_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")
_SECRET = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSPHRASE|CREDENTIALS?|AUTH)$", re.IGNORECASE)


class McpTable(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """``[mcp.NAME]``: a server by ``command`` or by ``url``. ``timeout`` in seconds; the names in ``effects``, ``allow`` and
    ``deny`` are those the server gives its tools, and may hold ``*``."""

    command: Text | UnsetType = UNSET
    args: list[str] | UnsetType = UNSET
    env: dict[str, str] | UnsetType = UNSET
    cwd: Text | UnsetType = UNSET
    url: Text | UnsetType = UNSET
    headers: dict[str, str] | UnsetType = UNSET
    timeout: Seconds | UnsetType = UNSET
    effects: dict[str, Kind] | UnsetType = UNSET
    allow: list[Text] | UnsetType = UNSET
    deny: list[Text] | UnsetType = UNSET


class McpServer(msgspec.Struct, frozen=True, kw_only=True):
    """One server, ready to be started. Either ``command`` or ``url`` is set; ``own``: the user's, so it runs with his rights."""

    name: str
    own: bool
    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: Path | None = None
    url: str | None = None
    headers: dict[str, str] = {}
    timeout: float = TIMEOUT
    effects: dict[str, Kind] = {}
    allow: tuple[str, ...] = ("*",)
    deny: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"McpServer({self.name!r})"  # env and headers hold secrets

    @property
    def secrets(self) -> list[str]:
        """Values that must reach no log: every header, and what a variable's name calls secret."""
        named = [value for name, value in self.env.items() if _SECRET.search(name)]
        return [word for value in (*self.headers.values(), *named) for word in {value, *value.split()} if len(word) >= 8]

    def offers(self, tool: str) -> bool:
        """Whether the settings let this tool of the server in."""
        return _any(self.allow, tool) and not _any(self.deny, tool)

    def effect(self, tool: str) -> Kind | None:
        """What the settings say the tool does, None if they leave it to the server."""
        return next((kind for pattern, kind in self.effects.items() if fnmatchcase(tool, pattern)), None)


def check_url(url: str, where: str, secret: str = "api_key_env") -> None:
    """Raises UsageError where this is no address without a password; ``secret`` names the key for one."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        raise UsageError("is no address", where=where, hint="like https://host/v1") from None
    if parts.username or parts.password:
        raise UsageError("holds a user or password", where=where, hint=f"name a variable for the key: {secret}")
    if not usable:
        raise UsageError(f"{url!r} is no http address", where=where, hint="like https://host/v1")


def _any(patterns: tuple[str, ...], name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def expand(said: dict[str, Any], where: str, folder: Path) -> None:
    """Finish one source in place: the servers of its ``mcp_config`` file join its own tables, folders become absolute.

    Raises:
        UsageError: the file cannot be used, or a server has no usable name.
    """
    tables = said.get("mcp", {})
    if "mcp_config" in said:
        said["mcp_config"] = str(folder / Path(said["mcp_config"]).expanduser())
        shared = read_shared(Path(said["mcp_config"]))
        tables = {name: shared.get(name, {}) | tables.get(name, {}) for name in {**shared, **tables}}
    for name, table in tables.items():
        if not _NAME.fullmatch(name):
            raise UsageError(f"{name!r} cannot name a server", where=f"{where}: mcp", hint="use 1 to 32 of A-Z a-z 0-9 _ -")
        if "cwd" in table and "$" not in table["cwd"]:
            table["cwd"] = str(folder / Path(table["cwd"]).expanduser())
    if tables:
        said["mcp"] = tables


def read_shared(path: Path) -> dict[str, dict[str, Any]]:
    """The servers of an ``mcpServers`` file, in the shape of ``[mcp.NAME]`` tables. Keys of other clients are passed over,
    and so are servers switched off by ``disabled``.

    Raises:
        UsageError: it cannot be read, or holds a server that cannot be used.
    """
    where = str(path)
    try:
        if path.stat().st_size > LARGEST:
            raise UsageError("is larger than 1 MiB", where=where, hint="is it the right file?")
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", where=where, hint="correct mcp_config") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"is not JSON: {error or 'nested too deeply'}", where=where, hint="correct it") from None
    servers = found.get("mcpServers") if isinstance(found, dict) else None
    if not isinstance(servers, dict):
        hint = '{"mcpServers": {"NAME": {"command": "…", "args": ["…"]}}}'
        raise UsageError("holds no mcpServers", where=where, hint=hint)
    return {re.sub(r"[^A-Za-z0-9_-]", "_", name)[:32]: table for name, table in _shared(servers, where)}


def _shared(servers: dict[str, Any], where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, server in servers.items():
        at = f"{where}: mcpServers.{name}"
        if not isinstance(server, dict):
            raise UsageError("is no object", where=at, hint='write {"command": "…"} or {"url": "…"}')
        if server.get("disabled") is True:
            continue
        kind = server.get("type", "stdio" if "command" in server else "http")
        if kind not in ("stdio", "http", "streamable-http", "streamableHttp"):
            raise UsageError(f"the transport {kind!r} is not spoken", where=at, hint='use "stdio" or "http"')
        known = {key: server[key] for key in ("command", "args", "env", "cwd", "url", "headers") if key in server}
        try:
            yield name, msgspec.to_builtins(msgspec.convert(known, McpTable))
        except msgspec.ValidationError as error:
            raise UsageError(str(error).replace("`", ""), where=at, hint="see docs/mcp.md") from None


def refuse_foreign(said: dict[str, Any], where: str) -> None:
    """Set the servers of a project or goal file apart, in place.

    Raises:
        UsageError: one would reach further than a command in the sandbox.
    """
    hint = "set it in your own file, ~/.config/endstop/endstop.toml, or name a file of yours in ENDSTOP_MCP_CONFIG"
    for name, table in said.get("mcp", {}).items():
        at = f"{where}: mcp.{name}"
        if "url" in table or "headers" in table:
            raise UsageError("a project may not choose a server that is reached over the network", where=at, hint=hint)
        if "cwd" in table:
            raise UsageError("a project's server runs in the workspace", where=f"{at}.cwd", hint="leave cwd out")
        if _VARIABLE.search(json.dumps(table)):
            raise UsageError("a project may not read your environment", where=at, hint=hint)
    if "mcp" in said:
        said["mcp"] = {f"{THEIRS}{name}": table for name, table in said["mcp"].items()}


def servers(merged: Mapping[str, Any], environ: Mapping[str, str]) -> tuple[McpServer, ...]:
    """Every server of the merged settings.

    Raises:
        UsageError: one cannot be used, or a project names one that the user has named.
    """
    tables = merged.get("mcp", {})
    made = []
    for full, table in tables.items():
        name = full.removeprefix(THEIRS)
        own = name == full
        if not own and name in tables:
            hint = "let the project choose another name"
            raise UsageError("is yours; a project or goal file may not change it", where=f"mcp.{name}", hint=hint)
        made.append(_server(name, _filled(table, name, environ) if own else table, own=own))
    return tuple(made)


def _server(name: str, table: dict[str, Any], *, own: bool) -> McpServer:
    where = f"mcp.{name}"
    if ("command" in table) == ("url" in table):
        problem = "has both a command and a url" if "command" in table else "has neither a command nor a url"
        raise UsageError(problem, where=where, hint='set one of them: command = "…" or url = "https://…"')
    beside = {"args", "env", "cwd"} if "url" in table else {"headers"}
    for key in beside & table.keys():
        kind = "a url" if "url" in table else "a command"
        raise UsageError(f"{key} means nothing beside {kind}", where=where, hint=f"leave {key} out")
    if "url" in table:
        check_url(table["url"], where, secret="headers")
    made: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
    if "cwd" in table:
        made["cwd"] = Path(table["cwd"])
    return McpServer(name=name, own=own, **made)


def _filled(table: dict[str, Any], name: str, environ: Mapping[str, str]) -> dict[str, Any]:
    """A table with its ``${NAME}`` and ``${NAME:-default}`` put in."""

    def value(found: re.Match[str]) -> str:
        filled = environ.get(found[1]) or found[2]
        if filled is None:
            hint = f"set {found[1]}, or write ${{{found[1]}:-DEFAULT}}"
            raise UsageError(f"the variable {found[1]} is not set", where=f"mcp.{name}", hint=hint)
        return filled

    def fill(part: Any) -> Any:
        match part:
            case str():
                return _VARIABLE.sub(value, part)
            case list():
                return [fill(each) for each in part]
            case dict():
                return {key: fill(each) for key, each in part.items()}
        return part

    return {key: fill(part) if key not in ("effects", "allow", "deny") else part for key, part in table.items()}
