"""A model that plays a script, for tests, examples and trying things out: ``scripted:PATH``.

The script is TOML, or JSON of the same shape if its name ends in ``.json``:

    [[turn]]                        # one answer of the agent's model, in order
    text = "I look first."
    usage = { input = 900, output = 40, cache_read = 0 }      # absent: the provider told nothing
    finish = "tool_calls"           # absent: stop, or tool_calls where there are calls
    delay = 0.5                     # seconds before the answer
    repeat = 3                      # plays three times; forever = true plays for ever
    [[turn.call]]
    name = "shell"
    arguments = { command = "ls" }  # or raw = '{"command": ' for arguments that are no JSON

    [[turn]]                        # a failure in place of an answer: the turn after it is played when asked again
    error = { kind = "rate_limit", message = "slow down", retry_after = 2.0 }

    [[judge]]                       # answers of the judge, in order; the same fields
    text = '{"achieved": true, "missing": [], "because": [$seq]}'

    [[close]]                       # texts of closing turns, in order
    text = "Half of it is done."

    [[summary]]                     # summaries of compactions, in order
    text = "Three files were read."

``$seq`` in a judge's text is the last event that the evidence shows. Which turn comes next follows from the conversation: it
is the number of answers in it, so a resumed process goes on where the last one stopped, and failed calls do not count.
The other parts are counted per process.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from endstop.core.messages import Answer, AssistantText, Head, Message, Price, ToolRequest, Usage, UserText
from endstop.errors import ModelError, ModelFault, UsageError
from endstop.ports import Watch

Part = Literal["turn", "judge", "close", "summary"]
OPENINGS: dict[Part, str] = {
    "close": "You are writing the handoff",
    "judge": "You are an independent judge",
    "summary": "You are shortening the record",
}
"""First words of the heads that are not the agent's own."""
SHAPE = "see the docstring of endstop.models.scripted for the shape of a script"

Natural = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]


class Spent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tokens the script says were used."""

    input: Natural
    output: Natural
    cache_read: Natural = 0


class Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One call; either ``arguments`` or ``raw``."""

    name: str
    arguments: dict[str, Any] | None = None
    raw: str | None = None

    def __post_init__(self) -> None:
        if self.arguments is not None and self.raw is not None:
            raise ValueError("a call has arguments or raw, not both")


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A failure in place of an answer."""

    kind: ModelFault
    message: str
    retry_after: Seconds | None = None


class Turn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of a script."""

    text: str = ""
    call: tuple[Call, ...] = ()
    usage: Spent | None = None
    finish: str | None = None
    error: Fault | None = None
    delay: Seconds = 0.0
    repeat: Positive = 1
    forever: bool = False

    def __post_init__(self) -> None:
        if self.error is not None and (self.text or self.call):
            raise ValueError("an entry with an error has no text and no calls")

    @property
    def speaks(self) -> bool:
        """Whether it leaves an answer in the conversation."""
        return bool(self.text or self.call)


class Script(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole script."""

    turn: tuple[Turn, ...] = ()
    judge: tuple[Turn, ...] = ()
    close: tuple[Turn, ...] = ()
    summary: tuple[Turn, ...] = ()


def load(path: Path) -> Script:
    """Read a script.

    Raises:
        UsageError: no such file, or not what a script looks like; says which line or entry.
    """
    where = str(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise UsageError(
            f"cannot read the script: {reason}", hint="give the path of a script: scripted:PATH", where=where
        ) from None
    try:
        found = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
        return msgspec.convert(found, Script)
    except (msgspec.ValidationError, ValueError, RecursionError) as error:
        raise UsageError(f"not a script: {_entry(str(error))}", hint=SHAPE, where=where) from None


def _entry(text: str) -> str:
    """A complaint with entries counted from 1, as people count: ``$.turn[0].call[1]`` is turn 1, call 2."""
    steps = re.sub(r"\[(\d+)\]", lambda match: f" {int(match[1]) + 1}", text)
    return re.sub(r"- at `\$\.([^`]*)`", lambda match: "in " + match[1].replace(".", ", "), steps)


def kind_of(head: Head) -> Part:
    """Whose conversation it is, by the first words of its head."""
    return next((part for part, opening in OPENINGS.items() if head.system.startswith(opening)), "turn")


class Reel:
    """The entries of one part of a script, by position."""

    def __init__(self, part: Part, entries: tuple[Turn, ...]) -> None:
        self._part = part
        self._entries = entries

    def answer(self, position: int, failed: int) -> Turn:
        """The entry for the answer at ``position`` (from 0) once ``failed`` failures were played before it. An answer that says
        nothing leaves nothing in the conversation: it counts as a failure does.

        Raises:
            ModelError: the script has run out.
        """
        answers = failures = 0.0
        for entry in self._entries:
            if entry.speaks:
                answers += _times(entry)
            elif answers == position:
                failures += _times(entry)
            if answers > position or failures > failed:
                return entry
        raise self._out(position)

    def entry(self, position: int) -> Turn:
        """The entry at ``position`` (from 0), failures counted like answers.

        Raises:
            ModelError: the script has run out.
        """
        passed = 0.0
        for entry in self._entries:
            passed += _times(entry)
            if passed > position:
                return entry
        raise self._out(position)

    def _out(self, position: int) -> ModelError:
        hint = f"add a [[{self._part}]] to it, or forever = true to its last one"
        return ModelError("invalid_request", f"the script has no {self._part} {position + 1}", hint=hint)


def _times(entry: Turn) -> float:
    return math.inf if entry.forever else entry.repeat


class ScriptedModel:
    """Plays a script, or the one at a path. Costs nothing unless it is given a price.

    Raises:
        UsageError: the script cannot be read.
    """

    scripted = True

    def __init__(
        self,
        script: Script | str | Path,
        *,
        window: int | None = None,
        max_output: int | None = None,
        price: Price | None = None,
    ) -> None:
        self.name = "scripted:inline" if isinstance(script, Script) else f"scripted:{script}"
        self.window = window
        self.max_output = max_output
        self.price = price
        self.local = price is None
        script = script if isinstance(script, Script) else load(Path(script))
        self.reels: dict[Part, Reel] = {
            "turn": Reel("turn", script.turn),
            "judge": Reel("judge", script.judge),
            "close": Reel("close", script.close),
            "summary": Reel("summary", script.summary),
        }
        self.played: dict[Part, int] = dict.fromkeys(OPENINGS, 0)  # of the parts whose conversations are new each time

    def open(self, head: Head) -> ScriptedChat:
        """A new conversation with this head."""
        return ScriptedChat(self, kind_of(head))

    async def close(self) -> None:
        """Nothing to let go."""


class ScriptedChat:
    """One conversation with a script."""

    def __init__(self, model: ScriptedModel, part: Part) -> None:
        self._model = model
        self._part = part
        self._next = 0
        self._failed = 0  # failures played since the last answer
        self._generation: int | None = None
        self._forgotten = 0  # answers that a compaction took out of the conversation

    async def ask(
        self,
        messages: Sequence[Message],
        *,
        generation: int,
        max_output: int,
        tools: bool = True,
        watch: Watch | None = None,
    ) -> Answer:
        """See ``ports.Chat``."""
        position, turn = self._find(messages, generation)
        await asyncio.sleep(turn.delay)
        if turn.error is not None:
            self._failed += 1
            raise ModelError(turn.error.kind, turn.error.message, retry_after=turn.error.retry_after, where=self._model.name)
        self._next, self._failed = (position + 1, 0) if turn.speaks else (position, self._failed + 1)
        return self._play(turn, position, messages, watch)

    def _find(self, messages: Sequence[Message], generation: int) -> tuple[int, Turn]:
        reel, played = self._model.reels[self._part], self._model.played
        if self._part in played:
            position = played[self._part]
            turn = reel.entry(position)
            played[self._part] += 1
            return position, turn
        answers = sum(isinstance(message, AssistantText) for message in messages)
        if generation != self._generation:
            if self._generation is not None:
                self._forgotten = max(0, self._next - answers)
            self._generation = generation
        position = self._forgotten + answers
        return position, reel.answer(position, self._failed)

    def _play(self, turn: Turn, position: int, messages: Sequence[Message], watch: Watch | None) -> Answer:
        text = turn.text
        if self._part == "judge" and "$seq" in text:
            shown = [message.text for message in messages if isinstance(message, UserText)]
            text = text.replace("$seq", (re.findall(r"^\[(\d+)\]", "\n".join(shown), re.MULTILINE) or ["0"])[-1])
        if watch is not None:
            for word in re.findall(r"\S+\s*|\s+", text):
                watch(word)
        requests = tuple(
            ToolRequest(
                f"call_{position + 1}_{number}", call.name, call.raw if call.raw is not None else dict(call.arguments or {})
            )
            for number, call in enumerate(turn.call, 1)
        )
        spent = turn.usage
        return Answer(
            text=text,
            requests=requests,
            finish=turn.finish or ("tool_calls" if requests else "stop"),
            usage=Usage(spent.input, spent.output, cache_read=spent.cache_read) if spent else None,
            model=self._model.name,
        )
