"""Anthropic's messages, the way in: answers out of the bytes of a response. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from endstop.core.messages import Answer, Arguments, ToolRequest, Usage
from endstop.errors import ModelError
from endstop.models import kept
from endstop.models.answer import PARTIAL, AnswerReader
from endstop.models.anthropic_wire import WHERE
from endstop.models.faults import fault, read
from endstop.models.lenient import count, encode, given_arguments, mend, parse_arguments
from endstop.models.transcript import Unique

FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}
"""Their words for ours; others (``pause_turn``) are passed on."""


class _Delta(msgspec.Struct):
    """What a stream adds to a block, or to the message."""

    text: str | None = None
    partial_json: str | None = None
    thinking: str | None = None
    signature: str | None = None
    stop_reason: str | None = None


class _Event(msgspec.Struct):
    """One event of a stream, or a whole message."""

    type: str | None = None
    index: int = 0
    content_block: dict[str, Any] | None = None
    delta: _Delta | None = None
    message: dict[str, Any] | None = None
    content: Any = None
    stop_reason: str | None = None
    model: str | None = None
    usage: Any = None
    error: Any = None


_event = msgspec.json.Decoder(_Event)


class _Block:
    """One block while its pieces arrive. ``given`` is how it began, or the whole of it."""

    __slots__ = ("given", "kind", "over", "pieces", "signature")

    def __init__(self, given: dict[str, Any], over: bool = False) -> None:
        self.given = given
        self.kind = str(given.get("type", "text"))
        self.pieces: list[str] = []
        self.signature: list[str] = []
        self.over = over

    def add(self, delta: _Delta) -> str:
        """Take a piece; returns it if it is text of the answer."""
        self.pieces.append(delta.text or delta.partial_json or delta.thinking or "")
        if delta.signature:
            self.signature.append(delta.signature)
        return delta.text or "" if self.kind == "text" else ""

    def text(self) -> str:
        """Its text."""
        begun = self.given.get("text")
        return str(mend((begun if isinstance(begun, str) else "") + "".join(self.pieces)))

    def arguments(self, whole: bool) -> Arguments:
        """The input of a call. An object that came whole, but from an answer that was cut, may lack its end."""
        given = self.given.get("input")
        if self.pieces or not isinstance(given, dict) or not (given or whole):
            return parse_arguments("".join(self.pieces), whole=whole)
        return given_arguments(given) if whole else encode(given).decode()[:-1]

    def unread(self) -> dict[str, Any]:
        """The block as it has to go back."""
        block = dict(self.given)
        if self.kind == "thinking":
            block["thinking"] = str(block.get("thinking") or "") + "".join(self.pieces)
            signature = str(block.get("signature") or "") + "".join(self.signature)
            if signature:
                block["signature"] = signature
        elif self.pieces:  # a call of a tool of the server's own
            block["input"] = parse_arguments("".join(self.pieces), whole=True)
        return block


class Reader(AnswerReader[_Event, _Event]):
    """Reads messages."""

    def __init__(self, model: str) -> None:
        super().__init__(_event, _event)
        self._by = WHERE + model
        self._begun = False  # there is a message, if only an empty one
        self._blocks: dict[int, _Block] = {}
        self._finish: str | None = None
        self._usage: dict[str, Any] = {}

    def _ended(self) -> bool:
        return self._finish is not None

    def _answer(self, unique: Unique, cut: bool) -> Answer:
        if not self._begun:
            raise ModelError("server", "the answer holds no message", billed=True)
        finish = "cut" if cut else FINISH.get(self._finish or "end_turn", self._finish or "stop")
        blocks = [block for _, block in sorted(self._blocks.items())]
        calls = [block for block in blocks if block.kind == "tool_use"]
        if calls and finish == "stop":
            finish = "tool_calls"
        ids = unique([str(mend(call.given.get("id") or "")) for call in calls])
        requests = []
        for id, call in zip(ids, calls, strict=True):
            whole = finish not in PARTIAL or call is not blocks[-1]
            requests.append(ToolRequest(id, str(mend(call.given.get("name") or "")), call.arguments(whole)))
        return Answer(
            text="".join(block.text() for block in blocks if block.kind == "text"),
            requests=tuple(requests),
            finish=finish,
            usage=None if cut else read_usage(self._usage),
            opaque=kept.keep(self._by, [part for block in blocks for part in _parts(block)]),
            model=self._model,
        )

    def _add_whole(self, whole: _Event, body: bytes) -> None:
        if whole.error or not isinstance(whole.content, list):
            raise fault(200, read(body))
        for index, block in enumerate(whole.content):
            if isinstance(block, dict):
                self._blocks[index] = _Block(block, over=True)
        self._message(whole.model, whole.usage)
        self._finish = whole.stop_reason

    def _add(self, event: _Event, payload: bytes) -> str:
        if event.error or event.type == "error":
            raise fault(200, read(payload))
        text = ""
        if event.type == "content_block_delta" and event.delta is not None:
            block = self._blocks.get(event.index)
            if block is None:
                block = self._blocks[event.index] = _Block({})
            text = block.add(event.delta)
        elif event.type == "content_block_start" and event.content_block is not None:
            block = self._blocks[event.index] = _Block(event.content_block)
            text = block.text() if block.kind == "text" else ""
        elif event.type == "content_block_stop" and event.index in self._blocks:
            self._blocks[event.index].over = True
        elif event.type == "message_start" and event.message is not None:
            self._message(event.message.get("model"), event.message.get("usage"))
        elif event.type == "message_delta":
            self._message(None, event.usage)
            self._finish = (event.delta and event.delta.stop_reason) or self._finish
        elif event.type == "message_stop":
            self._over, self._finish = True, self._finish or "end_turn"
        self.began = self.began or bool(text) or (event.index in self._blocks and self._blocks[event.index].kind == "tool_use")
        return text

    def _message(self, model: Any, usage: Any) -> None:
        """What is said of the message as a whole; counts that come later replace those that came at its start."""
        self._begun = True
        if isinstance(model, str) and not self._model:
            self._model = mend(model)
        if isinstance(usage, dict):
            self._usage |= {key: value for key, value in usage.items() if value is not None}


def _parts(block: _Block) -> list[Any]:
    """What ``kept`` remembers of a block. One that broke off cannot go back."""
    if block.kind == "text":
        return [len(block.text())]
    if block.kind == "tool_use":
        return [None]
    return [block.unread()] if block.over else []


def read_usage(given: dict[str, Any]) -> Usage | None:
    """Tokens out of a usage object, in which input means what was neither read from the cache nor written to it."""
    fresh, output = count(given.get("input_tokens")), count(given.get("output_tokens"))
    cached, written = (count(given.get(f"cache_{way}_input_tokens")) or 0 for way in ("read", "creation"))
    if output is None or not (fresh or cached or written):
        return None
    details = given.get("output_tokens_details")
    return Usage(
        input=(fresh or 0) + cached + written,
        output=output,
        cache_read=cached,
        cache_write=written,
        reasoning=count(details.get("thinking_tokens")) if isinstance(details, dict) else None,
    )
