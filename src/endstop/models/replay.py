"""A recorded journal as a model: ``replay:FILE`` answers again what was answered then, for looking into what happened.

The file is one session's lines (``endstop export``). Tools run for real and may give other results: only what the model says is
recorded. Answers of the judge, of closing turns and of compactions are played as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from endstop.core import codec
from endstop.core.events import (
    AssistantMessage,
    AssistantUsage,
    Event,
    GoalJudged,
    SessionCompactionComplete,
    TurnStart,
)
from endstop.core.messages import AssistantText, Head, Message
from endstop.errors import ModelError, UsageError
from endstop.models.scripted import Call, Fault, Part, Script, ScriptedChat, ScriptedModel, Spent, Turn, kind_of

TYPES = {
    "assistant.turn_start",
    "assistant.message",
    "assistant.usage",
    "goal.judged",
    "session.compaction_complete",
}
BLOB = {"blob", "size", "head", "tail"}
"""Fields of what stands in a line in place of a long text."""


class ReplayModel(ScriptedModel):
    """Plays the journal at ``path``. Costs nothing.

    Raises:
        UsageError: the file is no journal, or holds no answer.
    """

    def __init__(self, path: str | Path, *, window: int | None = None, max_output: int | None = None) -> None:
        self.turns = record(Path(path))
        super().__init__(self.turns, window=window, max_output=max_output)
        self.name = f"replay:{path}"

    def open(self, head: Head) -> ReplayChat:
        """A new conversation with this head."""
        return ReplayChat(self, kind_of(head))


class ReplayChat(ScriptedChat):
    """One conversation with a recording."""

    def __init__(self, model: ReplayModel, part: Part) -> None:
        super().__init__(model, part)
        self._spoken = [turn for turn in model.turns.turn if turn.speaks]
        self._name = model.name

    def _find(self, messages: Sequence[Message], generation: int) -> tuple[int, Turn]:
        try:
            position, turn = super()._find(messages, generation)
        except ModelError:
            raise self._refusal("the recording ends here, and the goal goes on") from None
        last = next((message for message in reversed(messages) if isinstance(message, AssistantText)), None)
        if self._part == "turn" and last is not None and position and not _same(last, self._spoken[position - 1]):
            raise self._refusal(f"the conversation is not the recorded one: its answer {position} is another")
        return position, turn

    def _refusal(self, what: str) -> ModelError:
        return ModelError("invalid_request", what, hint="go on with a model that answers", where=self._name)


def record(path: Path) -> Script:
    """What was answered, as a script.

    Raises:
        UsageError: the file cannot be read, a line of it is no event, or there is no answer in it.
    """
    turns: dict[Part, list[Turn]] = {"turn": [], "judge": [], "close": [], "summary": []}
    part: Part = "turn"
    open_turn = False  # its message came, and its usage did not
    spent: Spent | None = None  # of what comes next: only that of a turn comes behind its message
    for event in _events(path):
        match event:
            case TurnStart():
                part, open_turn = "close" if event.purpose == "close" else "turn", False
            case AssistantMessage():
                calls = tuple(_call(request.name, request.arguments) for request in event.tool_requests)
                turns[part].append(Turn(event.content, calls, finish=event.finish_reason))
                open_turn = True
            case AssistantUsage() if event.initiator in ("judge", "compaction"):
                spent = _spent(event)
            case AssistantUsage() if open_turn:
                turns[part][-1] = msgspec.structs.replace(turns[part][-1], usage=_spent(event))
                open_turn = False
            case GoalJudged():
                turns["judge"].append(_judged(event, spent))
            case SessionCompactionComplete() if event.success:
                turns["summary"].append(Turn(event.summary_content, usage=spent))
    if not turns["turn"]:
        raise UsageError("holds no answer of a model", where=str(path), hint="give a session's journal: endstop export")
    return Script(**{part: tuple(entries) for part, entries in turns.items()})


def _events(path: Path) -> Iterator[Event]:
    where = str(path)
    try:
        file = path.open("rb")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no path"
        hint = "give the path of a journal: replay:events.jsonl"
        raise UsageError(f"cannot read the recording: {reason}", where=where, hint=hint) from None
    with file:
        for number in count(1):
            try:
                line = file.readline()
            except OSError as error:
                raise UsageError(f"cannot read the recording: {error.strerror}", where=where, hint="give a file") from None
            if not line:
                return
            event = _event(line, f"{where}, line {number}")
            if event is not None:
                yield event


def _event(line: bytes, where: str) -> Event | None:
    try:
        envelope = codec.open_line(line)
        if envelope.type not in TYPES:
            return None
        if b'"blob"' in line and _holds_blob(msgspec.json.decode(envelope.data)):
            hint = "an answer over 16 KiB stands in the store only, beside its journal"
            raise UsageError("a long text is not in this file", where=where, hint=hint)
        return codec.entry(envelope).event
    except codec.BadLine as error:
        raise UsageError(f"is no event: {error}", where=where, hint="give a session's journal: endstop export") from None


def _holds_blob(value: Any) -> bool:
    if isinstance(value, dict):
        return set(value) == BLOB or any(_holds_blob(item) for item in value.values())
    return isinstance(value, list) and any(_holds_blob(item) for item in value)


def _judged(event: GoalJudged, spent: Spent | None) -> Turn:
    if event.result == "unreachable":
        return Turn(error=Fault("server", event.raw or "unreachable"))
    if event.result == "declined":
        return Turn(error=Fault("content_filter", event.raw or "declined"))
    return Turn(_cite_again(event.raw), usage=spent)


def _spent(event: AssistantUsage) -> Spent | None:
    return None if event.estimated else Spent(event.input_tokens, event.output_tokens, event.cache_read_tokens)


def _call(name: str, arguments: dict[str, Any] | str) -> Call:
    return Call(name, raw=arguments) if isinstance(arguments, str) else Call(name, arguments)


def _cite_again(verdict: str) -> str:
    """A verdict that cites the last event it is shown: the numbers it rested on are those of another journal."""
    try:
        found = json.loads(verdict)
    except ValueError:
        return verdict
    if not isinstance(found, dict) or not found.get("because"):
        return verdict
    return json.dumps(found | {"because": "$seq"}).replace('"$seq"', "[$seq]")


def _same(said: AssistantText, turn: Turn) -> bool:
    """Whether an answer of the conversation is the recorded one."""
    calls = [_call(request.name, request.arguments) for request in said.requests]
    return said.text == turn.text and calls == list(turn.call)
