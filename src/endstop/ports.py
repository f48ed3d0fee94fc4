"""The seams, on one page: what the runtime needs from the outside, and nothing about how it is done."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from endstop.core.codec import Entry
from endstop.core.effects import HookRun
from endstop.core.events import Contract, Event, Failure, Gate, GateFinished, GoalJudged, HookEnd, LookPurpose, WorkspaceObserved
from endstop.core.messages import Answer, Head, Message, Price, ToolSpec, Usage

Watch = Callable[[str], None]
"""Called with each piece of text while it arrives; must return at once."""


class Chat(Protocol):
    """One conversation with a model, holding its encoded history so that nothing is encoded twice."""

    async def ask(
        self,
        messages: Sequence[Message],
        *,
        generation: int,
        max_output: int,
        tools: bool = True,
        watch: Watch | None = None,
    ) -> Answer:
        """Send the conversation, get one answer.

        Args:
            messages: all messages so far; those already sent in this generation are never changed, only followed.
            generation: rises when the history was rewritten (compaction): then everything is encoded anew.
            max_output: bound for the answer, in tokens.
            tools: False sends no tools (closing turn, judge, compaction).
            watch: gets text as it arrives; its presence makes the call stream.

        Raises:
            ModelError: with one of the kinds of ``errors.ModelFault``.
        """
        ...


class Model(Protocol):
    """A model of a provider, ready to be asked."""

    name: str  # as the user wrote it: "openai:gpt-5"
    scripted: bool  # plays a script: said wherever results are shown
    window: int | None  # tokens, None where unknown
    max_output: int | None  # tokens, None where unknown
    price: Price | None  # None where unknown
    local: bool  # a loopback server: costs nothing

    def open(self, head: Head) -> Chat:
        """A new conversation with this head."""
        ...

    async def close(self) -> None:
        """Let connections go."""
        ...


class Outcome(msgspec.Struct, kw_only=True):
    """What a tool did. ``full`` is all output where ``content`` was shortened. ``events`` are further facts to record."""

    success: bool
    content: str
    error: Failure | None = None
    exit_code: int | None = None
    full: bytes | None = None
    executed: bool = True
    events: list[Event] = msgspec.field(default_factory=list)


class Invocation(msgspec.Struct, kw_only=True):
    """One call as a tool gets it. ``key`` is the idempotency key; ``partial`` takes output while it arrives."""

    tool_call_id: str
    arguments: dict[str, Any]
    key: str
    workspace: Path
    plan: Sequence[Any] = ()
    partial: Watch | None = None


class Tool(Protocol):
    """Something the agent can call."""

    spec: ToolSpec

    async def run(self, call: Invocation) -> Outcome:
        """Do it. A failure is an outcome; an exception is turned into one by the runtime. Cancelling the task must stop
        everything that was begun."""
        ...


class Workspace(Protocol):
    """The folder a goal works in, as the kernel looks at it."""

    root: Path

    async def look(
        self, purpose: LookPurpose, world: int, contract: Contract, baseline: WorkspaceObserved | None
    ) -> WorkspaceObserved:
        """Take the fingerprint, the diff against the baseline, deliverables and protected inputs."""
        ...

    async def fingerprint(self, contract: Contract) -> str:
        """The fingerprint alone."""
        ...


class GateRunner(Protocol):
    """Runs the user's gates."""

    async def run(self, gate: Gate, contract: Contract, workspace: Workspace) -> GateFinished:
        """Run one gate under ``bash -o pipefail -c`` and say what it said."""
        ...


class HookRunner(Protocol):
    """Runs the user's hooks."""

    async def run(self, run: HookRun, root: Path) -> HookEnd:
        """Run one hook in the workspace ``root`` and say what it wants. A crash is an end too, never an exception."""
        ...


class Judge(Protocol):
    """An independent reader of the evidence."""

    name: str
    model: Model
    independent: bool

    async def judge(
        self, objective: str, contract: Contract, entries: Sequence[Entry], max_output: int, budget: int
    ) -> tuple[GoalJudged, Usage | None]:
        """Render the evidence from the journal, at most ``budget`` bytes of it, and ask for a typed verdict.

        Raises:
            ModelError: the judge cannot be reached or refuses.
        """
        ...


class Appended(msgspec.Struct, frozen=True):
    """What an append came to: ``moved`` means nothing was written because the head is no longer where it was seen."""

    moved: bool
    head: int


class Journal(Protocol):
    """The store's side of one process: all its sessions share one writer."""

    def append(
        self,
        session_id: str,
        lines: Sequence[bytes],
        *,
        first: int,
        generation: int | None,
        durable: bool,
        phase: str,
        blobs: Sequence[tuple[str, bytes]] = (),
    ) -> Awaitable[Appended]:
        """Append stamped lines whose first has sequence number ``first``.

        Args:
            generation: of the holder's lease, checked in the same transaction; None for a control.
            durable: True makes the commit survive a power cut (before outside effects, at the end of a phase).
            phase: of the session after these lines, kept beside it for listings.
            blobs: salted hash and content of the texts that the lines name, written in the same transaction.

        Raises:
            LeaseLost: another holder has a newer generation.
            StoreFull: no room; nothing was written.
        """
        ...


class Human(Protocol):
    """A way to reach a human."""

    @property
    def reachable(self) -> bool:
        """Whether anybody could see a question now."""
        ...


Clock = Callable[[], float]
"""Epoch seconds."""
Emit = Callable[[Entry], None]
"""Gets every recorded entry, for viewers; must return at once."""
