"""Bad input of every kind, as a user meets it: one clear error with a remedy, the right exit code, the journal intact."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from endstop.store.verify import verify_file

SCRIPT = """
[[turn]]
text = "hello"
[[turn.call]]
name = "shell"
arguments = { command = "head -c 20000 /dev/urandom | base64" }
[[turn]]
forever = true
[[turn.call]]
name = "shell"
arguments = { command = "head -c 30000 /dev/urandom | base64; date +%N" }
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a workspace, a state folder and a script."""
    (tmp_path / "ws").mkdir()
    (tmp_path / "script.toml").write_text(SCRIPT)
    return tmp_path


def endstop(place: Path, *arguments: str, home: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command, as a user would run it in the workspace."""
    environment = {**os.environ, "ENDSTOP_HOME": str(home or place / "home"), "NO_COLOR": "1", **variables}
    return subprocess.run(
        [sys.executable, "-m", "endstop", *arguments],
        cwd=place / "ws",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        stdin=subprocess.DEVNULL,
    )


def explains(ended: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    """The exit code is right, and stderr says these words in a few lines without a traceback."""
    said = ended.stderr + ended.stdout
    assert ended.returncode == code, said
    assert "Traceback" not in said
    for word in words:
        assert word in said, said


class Refusing(BaseHTTPRequestHandler):
    """A server that knows no key."""

    def do_POST(self) -> None:
        """Refuse."""
        self.rfile.read(int(self.headers["Content-Length"]))
        body = json.dumps({"error": {"message": "Incorrect API key provided", "code": "invalid_api_key"}}).encode()
        self.send_response(401)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def refusing() -> Iterator[str]:
    """Its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "do it", "-m", "opnai:gpt-5"], ["opnai", "openai"]),
        (["run", "do it", "-m", "gpt-5"], ["PROVIDER:MODEL"]),
        (["run", "do it"], ["no model is chosen", "-m"]),
        (["run", "do it", "-m", "openai:gpt-5"], ["OPENAI_API_KEY"]),
        (["run", "do it", "-m", "scripted:nowhere.toml"], ["nowhere.toml"]),
        (["run", "", "-m", "scripted:../script.toml"], ["objective"]),
        (["run", "missing-goal.toml"], ["missing-goal.toml"]),
        (["run", "do it", "-m", "scripted:../script.toml", "-l", "turns=many"], ["turns", "60"]),
        (["run", "do it", "-m", "scripted:../script.toml", "-l", "truns=6"], ["truns", "turns"]),
        (["run", "do it", "-m", "scripted:../script.toml", "-l", "cost=-1"], ["cost"]),
        (["run", "do it", "-m", "scripted:../script.toml", "-C", "../gone"], ["gone"]),
        (["run", "do it", "-m", "scripted:../script.toml", "-g", "no-such-command --x"], ["no-such-command", "gate"]),
        (["run", "do it", "-m", "scripted:../script.toml", "-g", "make test || true"], ["true"]),
        (["run", "do it", "-m", "scripted:../script.toml", "--allow", "shell(("], ["shell(("]),
        (["run", "do it", "-m", "scripted:../script.toml", "--judge", "nobody:x"], ["nobody"]),
        (["show", "ffffffff"], ["ffffffff"]),
        (["resume"], ["goal"]),
        (["nonsense"], ["nonsense"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) and value[0] in ("run", "show", "resume", "nonsense") else "",
)
def test_what_cannot_be_used_is_said_before_anything_begins(arguments: list[str], words: list[str], place: Path) -> None:
    """Exit 2, naming what, where and the remedy; no goal was queued."""
    explains(endstop(place, *arguments), 2, *words)
    listed = endstop(place, "ps", "--all")
    assert "do it" not in listed.stdout


def test_a_wrong_key_fails_the_goal(place: Path) -> None:
    """The provider refuses: exit 1, its words, no key anywhere, the record intact."""
    with refusing() as url:
        key = "sk-test-0123456789abcdefghij"
        ended = endstop(place, "run", "do it", "-m", "openai:gpt-x", "-l", "cost=none", OPENAI_BASE_URL=url, OPENAI_API_KEY=key)
    explains(ended, 1, "Incorrect API key", "OPENAI_API_KEY")
    assert key not in ended.stdout + ended.stderr
    explains(endstop(place, "verify"), 0, "verify: ok")
    assert not any(key.encode() in path.read_bytes() for path in (place / "home").rglob("*") if path.is_file())


def test_an_unreachable_server_waits(place: Path) -> None:
    """Nobody listens: exit 75, waiting for the model, and how to go on."""
    ended = endstop(
        place, "run", "do it", "-m", "openai:gpt-x", "-l", "cost=none",
        OPENAI_BASE_URL="http://127.0.0.1:9/v1", OPENAI_API_KEY="k" * 20, ENDSTOP_RETRY="0",
    )  # fmt: skip
    explains(ended, 75, "waiting", "127.0.0.1:9", "resume")
    explains(endstop(place, "verify"), 0, "verify: ok")


def test_a_corrupt_database_is_named(place: Path) -> None:
    """A file that is no database: exit 1, which file, and what to do; it is not overwritten."""
    (place / "home").mkdir()
    database = place / "home" / "endstop.db"
    database.write_bytes(b"this is no database at all" * 400)
    before = database.read_bytes()
    explains(endstop(place, "run", "do it", "-m", "scripted:../script.toml"), 1, "endstop.db")
    assert database.read_bytes() == before


def test_a_database_with_a_damaged_page_is_named(place: Path) -> None:
    """Pages overwritten in the middle: exit 1 or a verdict, never a traceback."""
    explains(endstop(place, "run", "do it", "-m", "scripted:../script.toml", "-l", "turns=3"), 4, "capped")
    database = place / "home" / "endstop.db"
    data = bytearray(database.read_bytes())
    for page in range(4096, len(data), 8192):
        data[page : page + 2048] = b"\xff" * 2048
    database.write_bytes(bytes(data))
    for command in (["ps"], ["show"], ["verify"], ["resume"]):
        ended = endstop(place, *command)
        assert ended.returncode in (1, 2), ended.stdout + ended.stderr
        assert "Traceback" not in ended.stderr + ended.stdout


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    """A small file system of its own."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def may_mount() -> bool:
    """Whether this process may mount."""
    if os.geteuid() != 0:
        return False
    probe = subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, check=False)
    return probe.returncode == 0


@pytest.mark.skipif(not may_mount(), reason="needs the right to mount a small tmpfs")
def test_a_full_disk_pauses_and_goes_on_once_there_is_room(place: Path) -> None:
    """Exit 75 with the remedy; what was committed verifies; with room it goes on to its end."""
    script = SCRIPT.replace("[[turn]]\nforever = true", "[[turn]]\nrepeat = 40")
    (place / "script.toml").write_text(script)
    with mounted(place / "small", "size=1500k") as home:
        run = ["run", "do it", "-m", "scripted:../script.toml", "-l", "turns=60", "--allow", "shell"]
        ended = endstop(place, *run, home=home)
        explains(ended, 75, "room")
        subprocess.run(["mount", "-o", "remount,size=60m", str(home)], check=True)
        explains(endstop(place, "verify", home=home), 0, "verify: ok")
        ended = endstop(place, "resume", home=home)
        assert ended.returncode in (1, 4, 5), ended.stdout + ended.stderr  # the script runs out, or a limit or rule ends it
        explains(endstop(place, "verify", home=home), 0, "verify: ok")
        for journal in home.glob("sessions/*/events.jsonl"):
            assert verify_file(journal).verdict == "ok"


@pytest.mark.skipif(not may_mount(), reason="needs the right to mount a small tmpfs")
def test_a_read_only_home_is_a_usage_error(place: Path) -> None:
    """Nothing can be written where the state should live: exit 2, and which variable to set."""
    with mounted(place / "ro", "size=1m,ro") as home:
        ended = endstop(place, "run", "do it", "-m", "scripted:../script.toml", home=home / "state")
        explains(ended, 2, "ENDSTOP_HOME")
        ended = endstop(place, "run", "do it", "-m", "scripted:../script.toml", home=home)
        explains(ended, 2, "ENDSTOP_HOME")
