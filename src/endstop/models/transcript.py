"""The growing request of one conversation: every message is encoded once and appended to one buffer. Pure.

A request is head + buffer + tail, so that consecutive requests share all bytes but the tail and a provider's prompt cache hits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256

from endstop.core.messages import AssistantText, Message

Unique = Callable[[Sequence[str]], list[str]]
"""Repairs the ids of the calls of one answer."""
ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"


class Transcript:
    """What is the same in every dialect. A dialect says how a message is added, and what stands around the buffer."""

    def __init__(self) -> None:
        self.buffer = bytearray()
        self._encoded = 0
        self._generation = -1
        self._ids: set[str] = set()

    def add(self, message: Message) -> None:
        """Append the bytes of one message."""
        raise NotImplementedError

    def clear(self) -> None:
        """Forget what was encoded: the history was rewritten."""
        self.buffer.clear()
        self._encoded = 0

    def body(self, messages: Sequence[Message], generation: int, tail: bytes, *, tools: bool) -> bytes:
        """The next request."""
        raise NotImplementedError

    def grow(self, messages: Sequence[Message], generation: int) -> None:
        """Encode what was not encoded in this generation."""
        if generation != self._generation or len(messages) < self._encoded:
            self.clear()
            self._generation = generation
        for position in range(self._encoded, len(messages)):
            message = messages[position]
            self.add(message)
            if isinstance(message, AssistantText):
                self._ids.update(request.tool_call_id for request in message.requests)
        self._encoded = len(messages)

    def unique(self, ids: Sequence[str]) -> list[str]:
        """Ids for the calls of one answer: those given, and in place of missing, weak or used ones nine letters and digits.

        Nine, because one provider accepts no other length. Weak means short enough to come again, like ``call_0``. The new
        ones follow from the conversation alone, so the same answer to the same conversation gets the same ids.
        """
        kept: list[str] = []
        for position, id in enumerate(ids):
            tries = 0
            while not 9 <= len(id) <= 64 or id in self._ids or id in kept:
                seed = b"%b:%d:%d" % (sha256(self.buffer).digest(), position, tries)
                id, tries = _letters(sha256(seed).digest()), tries + 1
            kept.append(id)
        return kept


def _letters(digest: bytes) -> str:
    return "".join(ALPHABET[byte % 32] for byte in digest[:9])
