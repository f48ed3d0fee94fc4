"""What a person sees at a real terminal of 80 columns, without colour: captures in tmux, compared with those kept in screens/.

What varies (ids, commits, times, the folder) is masked. UPDATE_SCREENS=1 keeps what is seen as the new captures.
"""

from __future__ import annotations

import os
import re
import select
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.terminal import ASK, DONE, EDIT, GATE, LONGEST, LOOP, repository, script, source, turn

pytestmark = [pytest.mark.needs("tmux"), pytest.mark.needs("bwrap")]
SCREENS = Path(__file__).parent / "screens"
CLOSE = turn("I read calc.py and changed its sign; the tests were not run.")
WIDTH, HEIGHT = 80, 70
MASKS = (
    (r"\b[0-9a-f]{8}-[0-9a-f]{4}\b", "<id>"),
    (r"(?<=e-)\w{8}(?=/)", "<folder>"),
    (r"(?<= at )[0-9a-f]{8}", "<commit>"),
    (r" \(\d+\.\d s\)", ""),
    (r"(?<=active )\d+s|(?<=wall )\d+s", "<time>"),
    (r"(?<=record {7}ok, )\d+", "<count>"),
    (r"━+╸?|╺?━+", "<bar>"),
)


@pytest.fixture
def repo() -> Iterator[Path]:
    """A repository whose path has always the same length."""
    folder = Path(tempfile.mkdtemp(prefix="e-", dir="/tmp"))
    yield repository(folder / "repo")
    shutil.rmtree(folder)


class Terminal:
    """A terminal in which a command line was typed."""

    def __init__(self, folder: Path) -> None:
        self.socket, self.fifo = str(folder / "tmux"), folder / "seen"

    def tmux(self, *arguments: str) -> str:
        """What tmux says."""
        command = ["tmux", "-f", "/dev/null", "-S", self.socket, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout

    def until(self, words: str) -> str:
        """The screen, once these words have appeared on it."""
        seen = b""
        while words.encode() not in seen:
            assert select.select([self._reading], [], [], LONGEST)[0], seen.decode()
            seen += os.read(self._reading, 65536)
        return self.capture()

    def capture(self, *options: str) -> str:
        """The screen as it is."""
        lines = [line.rstrip() for line in self.tmux("capture-pane", "-p", "-t", "0", *options).splitlines()]
        return "\n".join(lines).strip("\n")

    def open(self, repo: Path, arguments: list[str]) -> None:
        """Type the command line; nothing of what it prints is missed."""
        os.mkfifo(self.fifo)
        self._reading = os.open(self.fifo, os.O_RDWR)  # for writing too, so that it never ends
        line = shlex.join([sys.executable, "-m", "endstop", *arguments])
        go = f"tmux -S {shlex.quote(self.socket)} wait-for go; {line}; echo left with $?; read x"
        environment = {
            "PYTHONPATH": source(),
            "NO_COLOR": "1",
            "HOME": os.environ["HOME"],
            "ENDSTOP_HOME": os.environ["ENDSTOP_HOME"],
        }
        given = [part for name, value in environment.items() for part in ("-e", f"{name}={value}")]
        size = ["-x", str(WIDTH), "-y", str(HEIGHT)]
        self.tmux("new-session", "-d", *size, *given, "-c", str(repo), f"stty -echo; {go}")
        self.tmux("pipe-pane", "-t", "0", f"cat > {shlex.quote(str(self.fifo))}")
        self.tmux("wait-for", "-S", "go")


@contextmanager
def terminal(repo: Path, *arguments: str) -> Iterator[Terminal]:
    """A terminal in which ``endstop`` runs with these arguments."""
    opened = Terminal(repo.parent)
    opened.open(repo, list(arguments))
    try:
        yield opened
    finally:
        opened.tmux("kill-server")
        os.close(opened._reading)


def check(name: str, opened: Terminal, screen: str, words: list[str]) -> None:
    """A screen reads well: nothing is wider than it, nothing was wrapped by it, the words are there, and it is as it was."""
    assert opened.capture("-J") == screen, "the terminal had to wrap a line"
    assert max(len(line) for line in screen.splitlines()) <= WIDTH
    for word in words:
        assert word in screen
    for pattern, mask in MASKS:
        screen = re.sub(pattern, mask, screen)
    path = SCREENS / f"{name}.txt"
    if os.environ.get("UPDATE_SCREENS"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{screen}\n")
    assert f"{screen}\n" == path.read_text()


def run(model: str, *options: str) -> list[str]:
    """A command line."""
    objective = "Make add() in calc.py add, and not subtract, without touching anything else"
    return ["run", objective, "-m", model, "--judge", "none", *options]


ENDS = {
    "done": ([EDIT, DONE], ["-g", GATE], ["done (verified)", "proof", "RED (exit 1) at the start", "left with 0"]),
    "claimed": ([EDIT, DONE], [], ["done (claimed)", "proof        NONE", "left with 3"]),
    "capped": (
        [EDIT, LOOP],
        ["-g", GATE, "--deliverable", "NOTES.md", "-l", "turns=3"],
        ["turns is full", "-l turns=MORE", "left with 4"],
    ),
    "stuck": ([LOOP], ["-g", GATE], ["stuck", "HALTED", "read_file", "left with 5"]),
}


@pytest.mark.parametrize("name", ENDS)
def test_the_screen_at_an_end(repo: Path, name: str) -> None:
    """The first block, the course, and how it ended, as people see them."""
    turns, options, words = ENDS[name]
    with terminal(repo, *run(script(repo.parent, *turns, close=[CLOSE]), *options)) as opened:
        check(name, opened, opened.until(words[-1]), words)


def test_the_screen_of_a_goal_that_asks(repo: Path) -> None:
    """A question stands there whole, and how to answer it."""
    with terminal(repo, *run(script(repo.parent, ASK))) as opened:
        check("asks", opened, opened.until("waits        for"), ["QUESTION     Which colour?", "1. red", "2. blue"])


def test_the_screen_of_a_goal_that_waits(repo: Path) -> None:
    """Left with Ctrl-C, it says that nothing is lost and how to go on."""
    with terminal(repo, *run(script(repo.parent, ASK), "-q")) as opened:
        opened.until("own words)")
        opened.tmux("send-keys", "-t", "0", "C-c")
        check("waits", opened, opened.until("left with 75"), ["paused (user)", "endstop resume", "left with 75"])
