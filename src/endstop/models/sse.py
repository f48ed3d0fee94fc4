"""Server-sent events: bytes as they arrive in, ``data`` payloads out. Pure.

Read by chunk and split on the blank line: a line at a time costs several times as much when many small packets arrive.
"""

from __future__ import annotations

BOM = b"\xef\xbb\xbf"
DONE = b"[DONE]"
"""What some servers say after the last event."""


class Splitter:
    """Cuts a stream into the payloads of its events, whatever the packets were cut into.

    Line ends may be LF, CRLF or CR; a blank after ``data:`` is optional; comments and other fields are ignored.
    """

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """Payloads that are complete with this chunk."""
        self._pieces.append(chunk)
        if b"\n" not in chunk and b"\r" not in chunk:
            return []  # a long event in many packets is joined once, not once per packet
        data = b"".join(self._pieces)
        held = b""
        if b"\r" in data:
            if data.endswith(b"\r"):  # perhaps one half of CRLF
                data, held = data[:-1], b"\r"
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *blocks, rest = data.split(b"\n\n")
        self._pieces = [rest, held] if held else [rest]
        return [payload for block in blocks if (payload := _payload(block))]

    def rest(self) -> list[bytes]:
        """The payload of an event that the end of the stream left without its blank line."""
        payload = _payload(b"".join(self._pieces).replace(b"\r", b"\n"))
        self._pieces = []
        return [payload] if payload else []


class Source:
    """The bytes of a response as they arrive: events of a stream, or one whole body, whichever the server sends."""

    def __init__(self) -> None:
        self.whole: list[bytes] | None = None
        self._lead: bytes | None = b""
        self._events = Splitter()

    def feed(self, chunk: bytes) -> list[bytes]:
        """Payloads of events that are complete with this chunk; none of a whole body."""
        if self._lead is not None:
            chunk = (self._lead + chunk).lstrip(BOM + b" \t\r\n")
            self._lead = None if chunk else b""
            if chunk[:1] in (b"{", b"[", b"<"):
                self.whole = []
        if self.whole is not None:
            self.whole.append(chunk)
            return []
        return self._events.feed(chunk)

    def rest(self) -> list[bytes]:
        """The payload of an event that the end of the stream left without its blank line."""
        return self._events.rest()


def _payload(block: bytes) -> bytes:
    """The joined ``data`` lines of one event; empty if it has none."""
    if block.startswith(b"data:") and b"\n" not in block:
        return block[5:].strip()
    lines = [line[5:].strip() for line in block.removeprefix(BOM).split(b"\n") if line.startswith(b"data:")]
    return b"\n".join(lines).strip()
