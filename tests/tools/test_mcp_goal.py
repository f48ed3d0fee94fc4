"""Goals that use MCP servers: from settings to the end of the session, with nothing left behind."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

import endstop
from endstop import events as ev
from endstop.assemble import open_system
from endstop.errors import UsageError
from endstop.settings import load
from endstop.testing import ScriptedModel, call, calls, claims, says
from tests.tools.servers import HOSTILE, lives

TIME = {"command": sys.executable, "args": ["-m", "mcp_server_time"]}
NOW = says("", call("time__convert_time", source_timezone="UTC", time="12:00", target_timezone="Asia/Tokyo"))


def pursue(folder: Path, servers: dict[str, Any], *turns: Any, **more: Any) -> endstop.Result:
    """A goal without judge and gates, with these servers of the user's."""
    model = ScriptedModel([*turns, claims("done")])
    return endstop.run_sync("look", workspace=folder, model=model, judge="none", settings={"mcp": servers}, **more)


def test_a_goal_uses_a_public_server(tmp_path: Path) -> None:
    """A reading tool runs without asking, and its result stands in the journal as any other."""
    result = pursue(tmp_path, {"time": TIME}, NOW)
    (done,) = calls(result, "time__convert_time")
    assert done.success
    assert "T21:00:00+09:00" in done.text
    start = next(entry.event for entry in result.events if isinstance(entry.event, ev.ToolStart))
    assert start.effect == "read_outside"


def test_what_may_change_things_is_asked_for(tmp_path: Path, home: Path) -> None:
    """Where nobody can be asked, a foreign tool that may change things is denied, naming the rule that lets it run."""
    work = tmp_path / "work"
    work.mkdir()
    servers = {"x": {"command": sys.executable, "args": [str(HOSTILE), str(tmp_path)], "env": {"API_KEY": "not-for-journals"}}}
    turns = says("", call("x__set")), says("", call("x__surroundings"))
    denied = pursue(work, servers, *turns)
    assert "x__set" in calls(denied, "x__set")[0].text
    assert not calls(denied, "x__set")[0].success
    allowed = pursue(work, servers, *turns, allow=["x__*"])
    assert "no tool set" in calls(allowed, "x__set")[0].text
    assert calls(allowed, "x__surroundings")[0].success
    kept = b"".join(path.read_bytes() for path in (home / "endstop").rglob("*") if path.is_file())
    assert b"not-for-journals" not in kept
    assert not any(lives(int(pid)) for pid in (tmp_path / "pids").read_text().split())


def test_a_goal_does_not_begin_without_its_servers(tmp_path: Path) -> None:
    """A server that does not start is a usage error, and no session is left of it."""
    with pytest.raises(UsageError, match=r"mcp.x: does not start: no-such-server"):
        pursue(tmp_path, {"x": {"command": "no-such-server"}})

    async def sessions() -> int:
        async with open_system(load(cwd=tmp_path, environ={})) as system:
            return len(await system.store.sessions())

    assert asyncio.run(sessions()) == 0


@pytest.mark.needs("bwrap")
def test_a_projects_server_runs_in_the_sandbox(tmp_path: Path) -> None:
    """What a project's file starts sees neither the home nor the network, and works in the workspace."""
    (tmp_path / "hostile.py").write_text(HOSTILE.read_text())
    table = f'[mcp.x]\ncommand = "{sys.executable}"\nargs = ["hostile.py", "."]\n'
    (tmp_path / "endstop.toml").write_text(table)
    model = ScriptedModel([says("", call("x__surroundings")), claims("done")])
    result = endstop.run_sync("look", workspace=tmp_path, model=model, judge="none")
    (done,) = calls(result, "x__surroundings")
    assert done.success
    assert f'"cwd": "{tmp_path}"' in done.text
    assert (tmp_path / "pids").read_text().split()[0] in {str(number) for number in range(1, 10)}  # in a world of its own
