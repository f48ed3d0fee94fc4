"""A model server on this machine, on a thread: answers with canned words and keeps what it was asked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


class Server:
    """Its address, what it was asked, and what it says next."""

    def __init__(self, words: list[str], status: int) -> None:
        self.words, self.status = words, status
        self.requests: list[dict[str, Any]] = []
        self.url = ""


@contextmanager
def serving(*words: str, status: int = 200) -> Iterator[Server]:
    """A server that says ``words`` one after the other, the last of them for ever; as a stream where that is asked for."""
    server = Server(list(words), status)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            server.requests.append(asked)
            said = server.words.pop(0) if len(server.words) > 1 else server.words[0]
            if server.status != 200:
                body, kind = json.dumps({"error": {"message": said}}), "application/json"
            elif asked.get("stream"):
                body, kind = _stream(said), "text/event-stream"
            else:
                message = {"role": "assistant", "content": said}
                usage = {"prompt_tokens": 10, "completion_tokens": 2}
                body = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage})
                kind = "application/json"
            self.send_response(server.status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body.encode())))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *arguments: Any) -> None:
            """Say nothing."""

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.url = f"http://127.0.0.1:{listening.server_address[1]}/v1"
    thread = Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        listening.shutdown()
        thread.join()
        listening.server_close()


def _stream(said: str) -> str:
    pieces = [{"choices": [{"index": 0, "delta": {"content": word + " "}}]} for word in said.split()]
    end = {
        "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 2},
    }
    return "".join(f"data: {json.dumps(piece)}\n\n" for piece in [*pieces, end]) + "data: [DONE]\n\n"
