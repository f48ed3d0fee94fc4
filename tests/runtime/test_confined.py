"""What an agent writes into its workspace never runs outside of the sandbox, whole goals long."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from endstop.core.events import Contract, Gate
from tests.runtime.server import go, message, pursue, serving
from tests.runtime.test_goals import DONE, script

OWNED = "raise SystemExit(open({mark!r}, 'w').write('ran'))\n"
LATE = ("sitecustomize", "usercustomize", "uvloop", "brotli", "msgspec", "pathspec", "wave", "endstop_plugin")


def results(server: Any) -> list[str]:
    """What the model was told of its calls, in order."""
    histories = ([told for told in request["messages"] if told["role"] == "tool"] for request in server.requests)
    return [str(told["content"]) for told in max(histories, key=len)]


@pytest.mark.parametrize("path", ["/etc/passwd", "/no/such/file", "../outside", "link/passwd", "a\0b", "x" * 5_000])
def test_waiting_tells_nothing_of_what_lies_outside(tmp_path: Path, path: str) -> None:
    """A file outside of the workspace, there or not, ends the wait with the same words; one that cannot be is never there."""
    (tmp_path / "outside").write_text("")
    work = tmp_path / "work"
    work.mkdir()
    (work / "link").symlink_to("/etc")
    state, server = go(_pursue(script(message("", ("wait", {"file": path, "seconds": 1})), DONE), work))
    assert state.goal.ended.phase == "done"
    said = next(text for text in results(server) if "outside" in text or "over" in text)
    assert ("the time is over" if path.startswith("x") else "lies outside of the workspace, so it was not waited for") in said


def test_a_file_in_the_workspace_is_waited_for(tmp_path: Path) -> None:
    """It ends the wait when it is there, named from the workspace or as a whole path."""
    (tmp_path / "there").write_text("")
    for path in ("there", str(tmp_path / "there")):
        _, server = go(_pursue(script(message("", ("wait", {"file": path})), DONE), tmp_path))
        assert f"{path} is there" in results(server)


async def _pursue(play: Any, work: Path) -> tuple[Any, Any]:
    async with serving(play) as server:
        state, _ = await pursue(server.url, work, Contract(judge="none"))
        return state, server


@pytest.mark.parametrize("how", ["script", "path"])
def test_modules_that_the_agent_writes_are_not_loaded(tmp_path: Path, how: str) -> None:
    """A script in the workspace that runs a goal there: nothing planted runs outside, by search or by what is loaded late."""
    work, mark = tmp_path / "work", tmp_path / "ran"
    work.mkdir()
    plant = [("write_file", {"path": f"{name}.py", "content": OWNED.format(mark=str(mark))}) for name in LATE]
    play = script(message("", *plant), message("", ("search", {"pattern": "raise"})), DONE, DONE)
    (work / "agent.py").write_text(
        "import asyncio, endstop\nprint(asyncio.run(endstop.run('write', model='openai:m', judge='none')).phase)\n"
        "import wave\nprint(hasattr(wave, 'open'))\n"
    )
    environment = {**os.environ, "PYTHONPATH": "." if how == "path" else "", "OPENAI_API_KEY": "k" * 20}

    async def goal() -> tuple[subprocess.CompletedProcess[str], Any]:
        async with serving(play) as server:
            command = [sys.executable, "agent.py"]
            environment["OPENAI_BASE_URL"] = server.url
            ended = await asyncio.to_thread(
                subprocess.run, command, cwd=work, env=environment, capture_output=True, text=True, check=False
            )
            return ended, server

    ended, server = go(goal())
    assert (ended.stdout, ended.returncode) == ("done\nTrue\n", 0), ended.stderr
    assert "uvloop.py:1: raise" in results(server)[len(LATE)]
    assert not mark.exists()


@pytest.mark.needs("bwrap")
@pytest.mark.parametrize("name", ["git", "bash", "bwrap", "env", "python3", "ps"])
def test_programs_that_the_agent_plants_do_not_run_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """PATH begins in the workspace: a program written there by the first goal is started by neither it nor the next."""
    work, mark = tmp_path / "work", tmp_path / "ran"
    (work / "bin").mkdir(parents=True)
    subprocess.run(["git", "init", "-q"], cwd=work, check=True)
    monkeypatch.setenv("PATH", f"{work}/bin:{os.environ['PATH']}")
    text = f"#!/bin/sh\n: > {mark}\nexit 0\n"
    plant = message("", ("shell", {"command": f"printf '%s' '{text}' > bin/{name}; chmod +x bin/{name}"}))
    look = message("", ("shell", {"command": "echo really"}), ("search", {"pattern": "x"}))
    contract = Contract(gates=[Gate(gate_id="g", run="exit 3")], judge="none")

    async def goal() -> tuple[Any, Any]:
        async with serving(script(plant, look, DONE)) as server:
            state, _ = await pursue(server.url, work, contract)
            return state, server

    for _ in range(2):
        state, server = go(goal())
        assert not state.goal.ended.verified
        assert any("really" in text for text in results(server))
        assert (work / "bin" / name).exists()
    assert not mark.exists()
