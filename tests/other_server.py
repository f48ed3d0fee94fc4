"""An OpenAI-compatible server that is not ours: the package ``llmock``, as a real process."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest


@contextmanager
def other_server(folder: Path) -> Iterator[str]:
    """Its base URL, once it answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = folder / "log"
    command = [sys.executable, "-c", "from llmock.cli import app; app()", "serve", "--host", "127.0.0.1", "--port", str(port)]
    with (
        log.open("wb") as output,
        subprocess.Popen([*command, "--response-style", "echo"], stdout=output, stderr=output) as server,
    ):
        try:
            _await_health(f"http://127.0.0.1:{port}/health", server, log)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            server.terminate()


def _await_health(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(300):
        try:
            with urlopen(url, timeout=1):
                return
        except OSError:
            try:
                server.wait(0.1)  # ends early if the server does
            except subprocess.TimeoutExpired:
                continue
            pytest.fail(log.read_text())
    pytest.fail(f"the server does not answer: {log.read_text()}")
