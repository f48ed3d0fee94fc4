"""``endstop run`` in a terminal against an OpenAI-compatible server that is not ours, streaming."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.other_server import other_server


class Passing(BaseHTTPRequestHandler):
    """Passes requests on and answers back as they come, keeping what was asked."""

    target = ""
    asked: list[dict[str, Any]] = []  # noqa: RUF012  one server, one test

    def do_POST(self) -> None:
        """One exchange, chunk by chunk."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.asked.append(json.loads(body))
        parts = urlsplit(self.target)
        upstream = HTTPConnection(parts.hostname or "", parts.port)
        upstream.request("POST", self.path, body, {"Content-Type": "application/json", "Authorization": "Bearer any-key-at-all"})
        answer = upstream.getresponse()
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.headers["Content-Type"])
        self.send_header("Connection", "close")
        self.end_headers()
        while chunk := answer.read1(65536):
            self.wfile.write(chunk)
            self.wfile.flush()
        upstream.close()
        self.close_connection = True

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def passing(target: str) -> Iterator[str]:
    """The address of something that passes on to ``target``."""
    Passing.target, Passing.asked = target, []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Passing)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def in_terminal(arguments: list[str], folder: Path, environment: dict[str, str], types: dict[str, str]) -> tuple[int, str]:
    """Run a command in a terminal, typing an answer when words appear; exit code and all it showed."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execve(sys.executable, [sys.executable, *arguments], environment)
    shown, waiting, until = "", dict(types), time.monotonic() + 60
    while time.monotonic() < until:
        ready, _, _ = select.select([terminal], [], [], 1.0)
        if not ready:
            continue
        try:
            data = os.read(terminal, 65536)
        except OSError:
            break
        if not data:
            break
        shown += data.decode(errors="replace")
        for words, answer in list(waiting.items()):
            if words in shown:
                del waiting[words]
                os.write(terminal, answer.encode())
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    return os.waitstatus_to_exitcode(status), shown


def test_a_goal_runs_in_a_terminal_streaming_from_a_foreign_server(tmp_path: Path) -> None:
    """The server asks its question through our tool, is answered at the terminal, and its words end the goal as claimed."""
    workspace = tmp_path / "ws"
    workspace.mkdir()
    with other_server(tmp_path) as target, passing(target) as url:
        environment = {
            **os.environ, "OPENAI_BASE_URL": url, "OPENAI_API_KEY": "any-key-at-all", "ENDSTOP_HOME": str(tmp_path / "home"),
            "TERM": "xterm", "COLUMNS": "80", "LINES": "30",
        }  # fmt: skip
        arguments = ["-m", "endstop", "run", "Say hello in one line", "-m", "openai:gpt-4o"]
        code, shown = in_terminal(arguments, workspace, environment, {"mock-question": "green\r"})
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown)
    assert code == 0, plain
    assert "done (claimed)" in plain
    assert "Traceback" not in plain
    assert len(Passing.asked) == 2
    assert all(request["stream"] for request in Passing.asked)
    results = [message["content"] for message in Passing.asked[1]["messages"] if message["role"] == "tool"]
    assert results == ["green"]
