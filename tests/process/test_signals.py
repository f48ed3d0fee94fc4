"""One wish is one wish, however often its signal comes: wrappers signal the process and then its whole group."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SCRIPT = """
[[turn]]
[[turn.call]]
name = "shell"
arguments = { command = "echo begun; sleep 3" }
[[turn]]
delay = 30
text = "never said"
"""


def begun(folder: Path) -> subprocess.Popen[str]:
    """A goal whose command runs."""
    (folder / "ws").mkdir()
    (folder / "s.toml").write_text(SCRIPT)
    environment = {**os.environ, "ENDSTOP_HOME": str(folder / "home"), "NO_COLOR": "1"}
    command = [sys.executable, "-m", "endstop", "run", "do it", "-m", "scripted:../s.toml", "--allow", "shell", "--json"]
    process = subprocess.Popen(
        command, cwd=folder / "ws", env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdout is not None
    for line in process.stdout:
        if "tool.execution_start" in line:
            return process
    raise AssertionError(process.communicate())


@pytest.mark.parametrize("gap", [0.005, 0.03, 0.2])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_doubled_signal_pauses_like_one(number: signal.Signals, gap: float, tmp_path: Path) -> None:
    """Exit 75 and paused, never cancelled and never killed by the echo."""
    process = begun(tmp_path)
    process.send_signal(number)
    time.sleep(gap)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 75, err
    assert "goal.paused" in out
    assert "goal.closing" not in out


def test_a_second_signal_that_is_meant_cancels(tmp_path: Path) -> None:
    """After more than a second it is a second wish: exit 130."""
    process = begun(tmp_path)
    process.send_signal(signal.SIGINT)
    time.sleep(1.3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "goal.closing" in out
