"""Where there is no sandbox, every place that could be trusted too much says so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
[[turn]]
[[turn.call]]
name = "shell"
arguments = { command = "true" }
[[turn]]
text = "fine"
[[close]]
text = "closed"
"""


def endstop(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command on a machine without bubblewrap."""
    bare = folder / "bin"
    bare.mkdir(exist_ok=True)
    for name in ("bash", "git", "python3", "sh"):
        if not (bare / name).exists():
            where = subprocess.run(["which", name], capture_output=True, text=True, check=True).stdout.strip()
            (bare / name).symlink_to(where)
    environment = {**os.environ, "PATH": str(bare), "ENDSTOP_HOME": str(folder / "home"), "NO_COLOR": "1", "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, "-m", "endstop", *arguments], cwd=folder / "ws", env=environment, capture_output=True, text=True,
        check=False, timeout=60, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def test_run_doctor_and_verify_say_loudly_that_there_is_none(tmp_path: Path) -> None:
    """run at its start, doctor among its findings, verify of what such a goal left, also as an exported file."""
    (tmp_path / "ws").mkdir()
    (tmp_path / "s.toml").write_text(SCRIPT)
    ran = endstop(tmp_path, "run", "do it", "-m", "scripted:../s.toml", "--allow", "shell", "-l", "turns=2")
    assert "NO SANDBOX" in ran.stdout, ran.stdout + ran.stderr
    assert "protects nothing" in endstop(tmp_path, "doctor").stdout
    verified = endstop(tmp_path, "verify")
    assert (verified.returncode, "NO SANDBOX" in verified.stdout) == (0, True)
    assert endstop(tmp_path, "export", "-o", "out.jsonl").returncode == 0
    assert "NO SANDBOX" in endstop(tmp_path, "verify", "./out.jsonl").stdout
