"""Hands a goal over to a process of its own, for ``run --detach``; ``resident`` is that process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from endstop.cli import view
from endstop.errors import EndstopError

READY = b"ready\n"
FOLDER = "resident"
"""Below the home: what the processes print."""


class Handover(msgspec.Struct, frozen=True):
    """What it is told, on standard input: which goal, and the flags and goal file that its settings were made of."""

    id: str
    flags: dict[str, Any]
    goal_file: str | None
    reports: list[str]


def start(home: Path, told: Handover) -> tuple[int, Path]:
    """Begin it and wait until it holds the goal: its process id, and the file that it writes to.

    Raises:
        EndstopError: it could not take the goal up, which is where it was.
    """
    log = home / FOLDER / f"{view.short(told.id)}.log"
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "endstop.cli.resident"],  # -P: nothing from the current folder
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=file,
            start_new_session=True,
        )
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin, process.stdout:
        process.stdin.write(msgspec.json.encode(told))
        process.stdin.close()
        if process.stdout.readline() != READY:
            process.wait()
            hint = f"read {log}, then: endstop resume {view.short(told.id)}"
            raise EndstopError("the resident process could not take it up", where=view.short(told.id), hint=hint)
    return process.pid, log
