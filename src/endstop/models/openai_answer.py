"""OpenAI's chat completions, the way in: answers out of the bytes of a response. Pure.

What servers do differently from each other is taken as it comes: ids, indexes, usage, finish reasons, text as parts,
arguments as objects, JSON that is not quite JSON.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from endstop.core.messages import Answer, ToolRequest, Usage
from endstop.errors import ModelError
from endstop.models.answer import PARTIAL, AnswerReader
from endstop.models.faults import fault, read
from endstop.models.lenient import count, mend, parse_arguments
from endstop.models.openai_wire import REASONING
from endstop.models.transcript import Unique


class _FunctionPiece(msgspec.Struct):
    name: str | None = None
    arguments: Any = None


class _CallPiece(msgspec.Struct):
    index: int | None = None
    id: str | int | None = None
    function: _FunctionPiece | None = None


class _Piece(msgspec.Struct):
    """A message, or what a stream adds to it."""

    content: Any = None
    refusal: str | None = None
    reasoning_content: Any = None
    tool_calls: list[_CallPiece] | None = None
    function_call: _FunctionPiece | None = None


class _Choice(msgspec.Struct):
    index: int | None = None
    delta: _Piece | None = None
    message: _Piece | None = None
    finish_reason: str | None = None
    error: Any = None


class _Chunk(msgspec.Struct):
    """A whole answer, or one event of a stream."""

    object: str | None = None
    model: str | None = None
    choices: list[_Choice] | None = None
    usage: Any = None
    error: Any = None


_chunk = msgspec.json.Decoder(_Chunk)
FINISH = {"function_call": "tool_calls", "max_tokens": "length"}
"""Other servers' words for ours; words known to nobody are passed on."""


class _Asked:
    """One call while its pieces arrive."""

    __slots__ = ("arguments", "id", "name")

    def __init__(self, id: str) -> None:
        self.id = id
        self.name = ""
        self.arguments: list[str] = []

    def complete(self) -> bool:
        """Whether the arguments that came are an object already."""
        if not self.arguments or not self.arguments[-1].endswith("}"):
            return False
        return isinstance(parse_arguments("".join(self.arguments), whole=False), dict)


class Reader(AnswerReader[_Chunk, _Chunk]):
    """Reads chat completions."""

    def __init__(self) -> None:
        super().__init__(_chunk, _chunk)
        self._texts: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[_Asked] = []
        self._at: dict[int, _Asked] = {}
        self._chosen = False
        self._finish: str | None = None
        self._usage: Usage | None = None

    def _ended(self) -> bool:
        return self._finish is not None or self._over

    def _answer(self, unique: Unique, cut: bool) -> Answer:
        if not self._chosen:
            used = (self._usage.input, self._usage.output) if self._usage else None
            raise ModelError("server", "the answer holds no choice", billed=True, used=used)
        finish = "cut" if cut else FINISH.get(self._finish or "stop", self._finish or "stop")
        if self._calls and finish == "stop":
            finish = "tool_calls"
        calls = [call for call in self._calls if call.name or call.arguments]
        ids = unique([mend(call.id) for call in calls])
        requests = tuple(
            ToolRequest(id, mend(call.name), parse_arguments("".join(call.arguments), whole=finish not in PARTIAL))
            for id, call in zip(ids, calls, strict=True)
        )
        return Answer(
            text=mend("".join(self._texts)),
            requests=requests,
            finish=finish,
            usage=None if cut else self._usage,
            opaque=REASONING + mend("".join(self._reasoning)) if requests and self._reasoning else None,
            model=self._model,
        )

    def _add_whole(self, whole: _Chunk, body: bytes) -> None:
        if whole.choices is None and whole.error is None:
            raise fault(200, read(body))
        self._add(whole, body)

    def _add(self, event: _Chunk, payload: bytes) -> str:
        if event.error or event.object == "error":
            raise fault(200, read(payload))
        if event.model and not self._model:
            self._model = mend(event.model)
        if event.usage is not None:
            self._usage = read_usage(event.usage) or self._usage
        choice = next((choice for choice in event.choices or () if not choice.index), None)
        if choice is None:
            return ""
        if choice.error:
            raise fault(200, read(msgspec.json.encode(choice.error)))
        self._chosen = True
        self._finish = choice.finish_reason or self._finish
        if choice.delta is not None:
            return self._piece(choice.delta, streamed=True)
        return self._piece(choice.message, streamed=False) if choice.message is not None else ""

    def _piece(self, piece: _Piece, *, streamed: bool) -> str:
        text = _text(piece.content) or piece.refusal or ""
        if text:
            self._texts.append(text)
        if piece.reasoning_content:
            self._reasoning.append(_text(piece.reasoning_content))
        for asked in piece.tool_calls or ():
            function = asked.function or _FunctionPiece()
            self._call(function, "" if asked.id is None else str(asked.id), asked.index, streamed)
        if piece.function_call is not None:
            self._call(piece.function_call, "", -1, streamed)
        self.began = self.began or bool(text or self._calls)
        return text

    def _call(self, function: _FunctionPiece, id: str, index: int | None, streamed: bool) -> None:
        """Add a piece to the call it belongs to. Not every server numbers its calls, and some number them all 0."""
        call = self._known(function, id, index) if streamed else None
        if call is None:
            call = _Asked(id)
            self._calls.append(call)
        if index is not None:
            self._at[index] = call
        call.id = call.id or id
        call.name = call.name or function.name or ""
        given = function.arguments
        if given is not None:
            call.arguments.append(given if isinstance(given, str) else json.dumps(given))

    def _known(self, function: _FunctionPiece, id: str, index: int | None) -> _Asked | None:
        if index is not None:
            call = self._at.get(index)
        elif id:
            call = next((call for call in self._calls if call.id == id), None)
        else:
            call = self._calls[-1] if self._calls else None
        if call is None or (id and call.id and id != call.id):
            return None
        if function.name and call.complete():
            return None  # a name again after arguments that are complete: the next call
        return call


def read_usage(given: Any) -> Usage | None:
    """Tokens out of a usage object; None where it does not tell both sides.

    Servers differ on whether output counts reasoning; the total tells.
    """
    if not isinstance(given, dict):
        return None
    prompt, output, total = (count(given.get(key)) for key in ("prompt_tokens", "completion_tokens", "total_tokens"))
    if not prompt or output is None:
        return None
    details = given.get("prompt_tokens_details")
    more = given.get("completion_tokens_details")
    details = details if isinstance(details, dict) else {}
    cached = count(details.get("cached_tokens")) or count(given.get("prompt_cache_hit_tokens")) or 0
    written = count(details.get("cache_write_tokens")) or 0
    return Usage(
        input=prompt,
        output=max(output, (total or 0) - prompt),
        cache_read=min(cached, prompt),
        cache_write=min(written, prompt - min(cached, prompt)),
        reasoning=count(more.get("reasoning_tokens")) if isinstance(more, dict) else None,
    )


def _text(content: Any) -> str:
    """Text of a message: a string, or its text parts. Parts that are thinking, images and the like are not text."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = [part if isinstance(part, str) else part.get("text") for part in content if isinstance(part, str | dict)]
    return "".join(part for part in parts if isinstance(part, str))
