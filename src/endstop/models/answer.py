"""What every protocol's reader does alike: bytes of a response in, streamed or whole, one answer out. Pure."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from endstop.core.messages import Answer
from endstop.errors import ModelError
from endstop.models.faults import UNKNOWN, fault, read
from endstop.models.lenient import Unreadable, decode
from endstop.models.sse import DONE, Source
from endstop.models.transcript import Unique

PARTIAL = frozenset({"length", "cut", "content_filter"})
"""Finishes after which the last call may be half a call."""
EventT = TypeVar("EventT")
WholeT = TypeVar("WholeT")


class AnswerReader(Generic[EventT, WholeT]):
    """Makes an answer out of the bytes of a response: some servers send a whole one though a stream was asked for, or a
    stream unasked. A subclass knows what an event and a whole answer hold.

    Args:
        events: decodes one event of a stream.
        wholes: decodes a whole answer.
    """

    def __init__(self, events: msgspec.json.Decoder[EventT], wholes: msgspec.json.Decoder[WholeT]) -> None:
        self.began = False  # some of the answer is there
        self._events = events
        self._wholes = wholes
        self._source = Source()
        self._over = False  # the end came, or something unreadable
        self._broken = False
        self._model = ""

    def feed(self, chunk: bytes) -> str:
        """Take bytes as they arrive; returns the text that came with them.

        Raises:
            ModelError: the server says in the middle of its answer that it failed.
        """
        return self._take(self._source.feed(chunk))

    def close(self, unique: Unique) -> Answer:
        """The answer, when no more bytes come; a stream that broke off gives what came, with finish "cut".

        Raises:
            ModelError: there is no answer in what came.
        """
        if self._source.whole is not None:
            self._take_whole(b"".join(self._source.whole))
            return self._answer(unique, cut=False)
        self._take(self._source.rest())
        cut = self._broken or not self._ended()
        if cut and not self.began:
            raise ModelError("network", "the connection ended before an answer came", billed=True)
        return self._answer(unique, cut)

    def _take(self, payloads: list[bytes]) -> str:
        came = ""
        for payload in payloads:
            if self._over:
                break
            if payload == DONE:
                self._over = True
                break
            try:
                event = decode(payload, self._events)
            except Unreadable:
                self._over = self._broken = True
                break
            came += self._add(event, payload)
        return came

    def _take_whole(self, body: bytes) -> None:
        if body.startswith(b"<"):
            raise ModelError("invalid_request", "the server answered with a web page", hint=UNKNOWN)
        try:
            whole = decode(body, self._wholes)
        except Unreadable:
            raise fault(200, read(body)) from None
        self._add_whole(whole, body)

    def _ended(self) -> bool:
        """Whether the stream came to its end."""
        raise NotImplementedError

    def _add(self, event: EventT, payload: bytes) -> str:
        """Take an event; returns the text in it."""
        raise NotImplementedError

    def _add_whole(self, whole: WholeT, body: bytes) -> None:
        """Take a whole answer."""
        raise NotImplementedError

    def _answer(self, unique: Unique, cut: bool) -> Answer:
        """What came, as an answer."""
        raise NotImplementedError
