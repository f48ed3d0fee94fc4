"""OpenAI's responses, the way in: answers out of the bytes of a response. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from endstop.core.messages import Answer, ToolRequest, Usage
from endstop.models import kept
from endstop.models.answer import PARTIAL, AnswerReader
from endstop.models.faults import fault, read
from endstop.models.lenient import count, encode, mend, parse_arguments
from endstop.models.responses_wire import BETWEEN, WHERE
from endstop.models.transcript import Unique

FINISH = {"max_output_tokens": "length"}
"""Their reasons for an incomplete answer in our words; others are passed on."""


class _Response(msgspec.Struct):
    """A whole answer, or what a stream says of it at its start and end."""

    object: str | None = None
    status: str | None = None
    model: str | None = None
    output: list[dict[str, Any]] | None = None
    usage: Any = None
    error: Any = None
    incomplete_details: dict[str, Any] | None = None


class _Event(msgspec.Struct):
    """One event of a stream."""

    type: str = ""
    output_index: int = 0
    content_index: int = 0
    item: dict[str, Any] | None = None
    delta: Any = None
    response: _Response | None = None
    error: Any = None


_event = msgspec.json.Decoder(_Event)
_response = msgspec.json.Decoder(_Response)
TEXT = frozenset({"response.output_text.delta", "response.refusal.delta"})
ARGUMENTS = "response.function_call_arguments.delta"
ENDS = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})


class _Item:
    """One item while its pieces arrive."""

    __slots__ = ("given", "over", "pieces")

    def __init__(self) -> None:
        self.given: dict[str, Any] = {}
        self.pieces: list[str] = []
        self.over = False

    @property
    def kind(self) -> str:
        return str(self.given.get("type", "message"))

    def text(self) -> str:
        """What it says: what came piece by piece, else what it holds as a whole."""
        return str(mend("".join(self.pieces)))


class Reader(AnswerReader[_Event, _Response]):
    """Reads responses."""

    def __init__(self, model: str) -> None:
        super().__init__(_event, _response)
        self._by = WHERE + model
        self._items: dict[int, _Item] = {}
        self._said = False  # some text is there
        self._end: _Response | None = None

    def _ended(self) -> bool:
        return self._end is not None

    def _answer(self, unique: Unique, cut: bool) -> Answer:
        items = [item for _, item in sorted(self._items.items())]
        calls = [item for item in items if item.kind == "function_call"]
        finish = "cut" if cut else self._finish(bool(calls))
        ids = unique([str(mend(call.given.get("call_id") or call.given.get("id") or "")) for call in calls])
        requests = []
        for id, call in zip(ids, calls, strict=True):
            arguments = parse_arguments(call.text(), whole=finish not in PARTIAL)
            requests.append(ToolRequest(id, str(mend(call.given.get("name") or "")), arguments))
        return Answer(
            text="".join(item.text() for item in items if item.kind == "message"),
            requests=tuple(requests),
            finish=finish,
            usage=read_usage(self._end.usage) if self._end else None,
            opaque=kept.keep(self._by, [part for item in items for part in _parts(item)]),
            model=self._model,
        )

    def _finish(self, calls: bool) -> str:
        if self._end is not None and self._end.status == "incomplete":
            reason = str((self._end.incomplete_details or {}).get("reason") or "length")
            return FINISH.get(reason, reason)
        return "tool_calls" if calls else "stop"

    def _add_whole(self, whole: _Response, body: bytes) -> None:
        if whole.output is None or whole.error:
            raise fault(200, read(body))
        self._close(whole)

    def _add(self, event: _Event, payload: bytes) -> str:
        if event.type == "error" or event.error:
            raise fault(200, read(payload))
        if event.response is not None:
            self._model = self._model or mend(event.response.model or "")
            return self._close(event.response) if event.type in ENDS else ""
        if event.item is not None:
            return self._item(event.output_index, event.item, over=event.type.endswith(".done"))
        if event.type in TEXT and isinstance(event.delta, str):
            return self._text(self._at(event.output_index), event.delta)
        if event.type == ARGUMENTS and isinstance(event.delta, str):
            self._at(event.output_index).pieces.append(event.delta)
        return ""

    def _at(self, index: int) -> _Item:
        return self._items.setdefault(index, _Item())

    def _text(self, item: _Item, text: str) -> str:
        """Add text to an item, after a blank line if another one spoke before."""
        if text and self._said and not item.pieces:
            text = BETWEEN + text
        if text:
            self._said = self.began = True
        item.pieces.append(text)
        return text

    def _item(self, index: int, given: dict[str, Any], *, over: bool) -> str:
        """Take an item that begins, or that is whole; returns the text that did not come before."""
        item = self._at(index)
        item.given, item.over = given, item.over or over
        if item.kind == "function_call":
            self.began = True
            whole = given.get("arguments")
            if over and whole:
                item.pieces = [whole if isinstance(whole, str) else encode(whole).decode()]
        elif item.kind == "message" and over and not item.pieces:
            return self._text(item, _text_of(given))
        return ""

    def _close(self, response: _Response) -> str:
        """The end: items that came in no event are in it."""
        if response.status in ("failed", "cancelled") or response.error:
            failed = {"error": response.error or {"message": f"the answer was {response.status}"}}
            raise fault(200, read(encode(failed)))
        came = ""
        for index, given in enumerate(response.output or ()):
            if index not in self._items or not self._items[index].over:
                came += self._item(index, given, over=True)
        self._over, self._end = True, response
        self._model = self._model or mend(response.model or "")
        return came


def _text_of(message: dict[str, Any]) -> str:
    """Text of a whole message; a refusal is text as well."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    texts = [part.get("text") or part.get("refusal") for part in parts]
    return "".join(text for text in texts if isinstance(text, str))


def _parts(item: _Item) -> list[Any]:
    """What ``kept`` remembers of an item. Reasoning without its content is a name of something that nobody kept."""
    if item.kind == "message":
        phase = item.given.get("phase")
        return [(len(item.text()), phase) if isinstance(phase, str) else len(item.text())]
    if item.kind == "function_call":
        return [None]
    if item.kind != "reasoning" or not item.over or not (item.given.get("encrypted_content") or item.given.get("content")):
        return []
    return [{key: value for key, value in item.given.items() if value is not None and key != "status"}]


def read_usage(given: Any) -> Usage | None:
    """Tokens out of a usage object; None where it does not tell both sides."""
    if not isinstance(given, dict):
        return None
    fresh, output = count(given.get("input_tokens")), count(given.get("output_tokens"))
    if not fresh or output is None:
        return None
    details, more = (_dict(given.get(f"{way}_tokens_details")) for way in ("input", "output"))
    cached = min(count(details.get("cached_tokens")) or 0, fresh)
    return Usage(
        input=fresh,
        output=output,
        cache_read=cached,
        cache_write=min(count(details.get("cache_write_tokens")) or 0, fresh - cached),
        reasoning=count(more.get("reasoning_tokens")),
    )


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
