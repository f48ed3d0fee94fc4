"""What every test stands on: its own home, no keys, no network beyond this machine."""

from __future__ import annotations

import ipaddress
import os
import re
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from endstop.host import sandbox

_SECRET = re.compile(r"_(KEY|TOKEN|SECRET|PASSWORD)$|^(ENDSTOP|GIT|OPENAI|ANTHROPIC|GEMINI|MISTRAL|OPENROUTER)_|^XDG_")
_connect, _connect_ex = socket.socket.connect, socket.socket.connect_ex


class OutsideNetwork(BaseException):
    """A test reached for the network. Not an ``Exception``: nothing may swallow it."""


def _stay_here(sock: socket.socket, address: Any) -> None:
    if sock.family not in (socket.AF_INET, socket.AF_INET6) or address[0] == "localhost":
        return
    try:
        here = ipaddress.ip_address(address[0]).is_loopback
    except ValueError:
        here = False
    if not here:
        raise OutsideNetwork(f"a test may only connect to this machine, not to {address[0]}")


def _guarded(connect: Callable[[socket.socket, Any], Any]) -> Callable[[socket.socket, Any], Any]:
    def guard(self: socket.socket, address: Any) -> Any:
        _stay_here(self, address)
        return connect(self, address)

    return guard


socket.socket.connect = _guarded(_connect)  # type: ignore[assignment,method-assign]
socket.socket.connect_ex = _guarded(_connect_ex)  # type: ignore[assignment,method-assign]


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of the test's own, with a git identity and Endstop's state below it; provider settings are gone."""
    path = tmp_path_factory.mktemp("home")
    (path / ".gitconfig").write_text("[user]\nname = Test\nemail = test@example.invalid\n[init]\ndefaultBranch = main\n")
    for name in [name for name in os.environ if _SECRET.search(name)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(path))
    monkeypatch.setenv("ENDSTOP_HOME", str(path / "endstop"))
    return path


def _missing(name: str) -> str:
    """Why ``name`` cannot be used here, empty if it can."""
    if name == "bwrap":
        found = sandbox.detect()
        return "" if found.kind == "bwrap" else found.why
    if name == "root":
        return "" if os.geteuid() == 0 else "not run as root"
    return "" if shutil.which(name) else "not installed"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """``@pytest.mark.needs("bwrap")``: skipped by name where it is missing; in CI that is a failure."""
    for mark in item.iter_markers("needs"):
        for name in mark.args:
            if why := _missing(name):
                if os.environ.get("CI") == "true":
                    pytest.fail(f"needs {name}: {why} (make test-deps)", pytrace=False)
                pytest.skip(f"needs {name}: {why}")
