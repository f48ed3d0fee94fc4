"""A chat completions server for measurements: answers every request with one call of the tool ``look_up``.

Prints its port, then serves until its standard input ends. A protocol of its own, so that it never is the bottleneck.
"""

from __future__ import annotations

import argparse
import asyncio
import sys

CALL = (
    b'{"id":"x","object":"chat.completion","model":"bench","choices":[{"index":0,"finish_reason":"tool_calls","message":'
    b'{"role":"assistant","content":"I look at the next one.","tool_calls":[{"id":"call_%09d","type":"function",'
    b'"function":{"name":"look_up","arguments":"{\\"number\\": %d}"}}]}}],'
    b'"usage":{"prompt_tokens":%d,"completion_tokens":20,"total_tokens":%d}}'
)
DELTA = b'data: {"id":"x","model":"bench","choices":[{"index":0,"delta":{"content":"word "}}]}\n\n'
LAST = (
    b'data: {"id":"x","model":"bench","choices":[{"index":0,"finish_reason":"tool_calls","delta":{"tool_calls":[{"index":0,'
    b'"id":"call_%09d","type":"function","function":{"name":"look_up","arguments":"{\\"number\\": %d}"}}]}}]}\n\n'
    b'data: {"id":"x","model":"bench","choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":120,"total_tokens":%d}}\n\n'
    b"data: [DONE]\n\n"
)


class Answering(asyncio.Protocol):
    """One connection: requests one after the other, each answered after ``latency`` seconds."""

    calls = 0

    def __init__(self, latency: float, deltas: int, pace: float) -> None:
        self.latency, self.deltas, self.pace = latency, deltas, pace
        self.loop = asyncio.get_running_loop()
        self.head = bytearray()
        self.left = -1  # bytes of the body still to come; -1 while the head is read
        self.size = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep where answers go."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Count the body's bytes, look at none of them."""
        if self.left < 0:
            self.head += data
            end = self.head.find(b"\r\n\r\n")
            if end < 0:
                return
            lengths = [line for line in bytes(self.head[:end]).lower().split(b"\r\n") if line.startswith(b"content-length:")]
            self.size = int(lengths[0][15:])
            self.left = self.size - (len(self.head) - end - 4)
            self.head.clear()
        else:
            self.left -= len(data)
        if self.left == 0:
            self.left = -1
            self.loop.call_later(self.latency, self._answer)

    def _answer(self) -> None:
        Answering.calls += 1
        tokens = self.size // 4 + 1
        values = (self.calls, self.calls, tokens, tokens + (120 if self.deltas else 20))
        if self.deltas:
            self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
            self._stream(self.deltas, LAST % values)
            return
        body = CALL % values
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        self.transport.write(head + body)

    def _stream(self, left: int, last: bytes) -> None:
        """One delta a packet: a pause between them keeps the kernel from joining them."""
        if self.transport.is_closing():
            return
        piece = DELTA if left else last
        self.transport.write(b"%x\r\n%b\r\n" % (len(piece), piece) + (b"" if left else b"0\r\n\r\n"))
        if left:
            self.loop.call_later(self.pace, self._stream, left - 1, last)


async def serve(latency: float, deltas: int, pace: float) -> None:
    """Until standard input ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Answering(latency, deltas, pace), "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before each answer")
    parser.add_argument("--deltas", type=int, default=0, help="stream each answer in this many packets")
    parser.add_argument("--pace", type=float, default=0.005, help="seconds between two packets")
    given = parser.parse_args()
    asyncio.run(serve(given.latency, given.deltas, given.pace))
