"""What the tests of the command line type, and where: a repository with a failing test, scripts, and terminals."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from endstop.cli.main import main

GATE = "grep -q 'a + b' calc.py"
LONGEST = 30.0
"""Seconds a terminal may say nothing before a test gives up."""


class Said(NamedTuple):
    """What a command line came to."""

    code: int
    out: str
    err: str


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> Said:
    """Type a command line in this process."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    out, err = capsys.readouterr()
    code = ended.value.code
    return Said(code if isinstance(code, int) else 0, out, err)


def start(*arguments: str, cwd: Path, **environ: str) -> subprocess.Popen[str]:
    """Type a command line in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "endstop.cli.main", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": source(), **environ},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def source() -> str:
    """Where the package is."""
    return str(Path(__file__).parents[2] / "src")


def typed(arguments: Sequence[str], answers: Sequence[tuple[str, str]], cwd: Path, **environ: str) -> tuple[str, int]:
    """Type a command line at a terminal; each answer is typed once the words before it have appeared after the last one.

    Returns:
        Everything on the screen, without what moves and colours it, and the exit code.
    """
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(cwd)
        os.environ.update({"PYTHONPATH": source(), "TERM": "xterm", "COLUMNS": "100", "LINES": "40", **environ})
        os.execv(sys.executable, [sys.executable, "-m", "endstop", *arguments])
    screen, seen, waiting = b"", 0, list(answers)
    while select.select([terminal], [], [], LONGEST)[0]:
        try:
            data = os.read(terminal, 65536)
        except OSError:  # the other end is closed
            break
        screen += data
        while waiting and (at := plain(screen).find(waiting[0][0], seen)) >= 0:
            seen = at + len(waiting[0][0])
            os.write(terminal, waiting.pop(0)[1].encode())
    os.close(terminal)
    return plain(screen), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def plain(screen: bytes) -> str:
    """A screen's text alone."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.decode(errors="replace")).replace("\r", "")


def turn(text: str = "", *calls: tuple[str, dict[str, Any]], **more: Any) -> dict[str, Any]:
    """One entry of a script."""
    made = [{"name": name, "arguments": arguments} for name, arguments in calls]
    return {"text": text, "call": made, "usage": {"input": 900, "output": 40}, **more}


DONE = turn("", ("task_complete", {"summary": "add() adds now"}), repeat=2)
EDIT = turn("I correct the sign.", ("edit_file", {"path": "calc.py", "old": "a - b", "new": "a + b"}))
LOOP = turn("", ("read_file", {"path": "calc.py"}), forever=True)
ASK = turn("", ("ask_user", {"question": "Which colour?", "options": ["red", "blue"]}))
PAINT = turn("", ("write_file", {"path": "colour.txt", "content": "blue"}))
SLEEP = turn("", ("shell", {"command": "sleep 60"}))


def script(folder: Path, *turns: dict[str, Any], **parts: list[dict[str, Any]]) -> str:
    """Write a script; the name of the model that plays it."""
    path = folder / f"script{len(list(folder.glob('script*')))}.json"
    path.write_bytes(msgspec.json.encode({"turn": list(turns), **parts}))
    return f"scripted:{path}"


def repository(folder: Path) -> Path:
    """A git repository with a function that does not do what it says."""
    folder.mkdir()
    (folder / "calc.py").write_text("def add(a, b):\n    return a - b\n")
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "Add"]):
        subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True)
    return folder
