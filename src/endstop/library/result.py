"""How a goal stands, as a value."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from endstop.core import handoff
from endstop.core.codec import Entry
from endstop.core.events import Phase
from endstop.core.goal import ENDED, State
from endstop.core.messages import AssistantText

Status = Literal["ok", "partial", "failed"]


class Result(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """How a goal stands. Its truth value is ``verified``: ``if await endstop.run(…):`` means that something showed it.

    Attributes:
        session_id: names its journal; ``endstop.resume`` and ``endstop show`` take it.
        phase: done, capped, stuck, blocked, failed, cancelled; or waiting or paused, which are no ends.
        verified: a gate, a deliverable or a judge showed it. False for a done that was only claimed.
        verified_by: what showed it, in words.
        answer: the agent's last words: the summary of its claim, its answer, or its handoff.
        reason: why it stands so, in one line.
        missing: what is not there yet, as far as evidence goes.
        handoff: the report for whoever goes on, as plain data (docs/kernel.md).
        spend: what was used, by axis, in the axis's unit.
        events: the whole journal, as entries with ``seq``, ``time`` (epoch seconds) and ``event``.
    """

    session_id: str
    phase: Phase
    verified: bool
    verified_by: list[str]
    answer: str
    reason: str
    missing: list[str]
    handoff: dict[str, Any]
    spend: dict[str, float]
    events: list[Entry]

    @property
    def status(self) -> Status:
        """ok for done (see ``verified``), failed for a fault, partial for everything else."""
        return "ok" if self.phase == "done" else "failed" if self.phase == "failed" else "partial"

    def __bool__(self) -> bool:
        return self.verified

    def __repr__(self) -> str:
        if self.verified:
            how = f"done (verified) by {'; '.join(self.verified_by)}"
        elif self.phase == "done":
            how = f"done (claimed, NOT verified): {self.reason.removeprefix('claimed: ')}"
        else:
            how = f"{self.phase}: {self.reason}"
        return f"<Result {how} [{self.session_id[:13]}]>"


def result(state: State, events: list[Entry], now: float) -> Result:
    """How a goal stands at ``now`` (epoch seconds); ``events`` is its journal."""
    goal = state.goal
    assert goal is not None
    ended = goal.ended if state.phase in ENDED else None
    if ended is not None:
        report = ended.handoff
    else:
        report = handoff.handoff(state, now, state.phase, [], handoff.open_items(state)) | {"reason": _standing(state)}
    words = [message.text for message in state.window.messages if isinstance(message, AssistantText) and message.text.strip()]
    return Result(
        session_id=state.session_id,
        phase=state.phase,
        verified=ended is not None and ended.verified,
        verified_by=ended.verified_by if ended is not None else [],
        answer=report["summary"] or (words[-1] if words else ""),
        reason=report["reason"],
        missing=report["missing"],
        handoff=report,
        spend=report["spend"],
        events=events,
    )


def _standing(state: State) -> str:
    goal = state.goal
    assert goal is not None
    if state.phase == "waiting" and goal.parked is not None:
        return f"waits for {goal.parked.on}: {goal.parked.said}"
    return f"paused ({goal.pause.replace('_', ' ')})" if state.phase == "paused" else state.phase
