"""What the kernel can ask of the outside. Each effect carries the events that must be journalled before it is performed."""

from __future__ import annotations

from typing import Any

import msgspec

from endstop.core.events import Event, Gate, GatePurpose, Hook, LookPurpose, Purpose
from endstop.core.messages import Effect as EffectClass


class Act(msgspec.Struct, frozen=True, kw_only=True):
    """Root of all effects: ``events`` are the intents."""

    events: tuple[Event, ...] = ()


class Idle(Act, frozen=True, kw_only=True):
    """Nothing to do until something comes from outside."""

    why: str


class Record(Act, frozen=True, kw_only=True):
    """Nothing to perform: only to be journalled."""


class CallModel(Act, frozen=True, kw_only=True):
    """Ask the agent's model. ``max_output`` in tokens; ``prompt`` replaces the window for a closing turn."""

    turn_id: int
    purpose: Purpose
    max_output: int
    prompt: str | None = None


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One call to run. ``again`` marks a start that a crash left without an end; ``before`` is what its start recorded."""

    tool_call_id: str
    name: str
    arguments: dict[str, Any]
    key: str
    effect: EffectClass
    again: bool = False
    before: dict[str, str] | None = None


class RunTools(Act, frozen=True, kw_only=True):
    """Run these calls side by side."""

    calls: tuple[Run, ...]


class RunGates(Act, frozen=True, kw_only=True):
    """Run these gates one after the other."""

    gates: tuple[Gate, ...]
    purpose: GatePurpose


class HookRun(msgspec.Struct, frozen=True, kw_only=True):
    """One hook to run. ``data`` is what its occasion tells it; who runs it adds what it knows of the session."""

    hook: Hook
    invocation_id: str
    data: dict[str, Any]


class RunHooks(Act, frozen=True, kw_only=True):
    """Run these hooks side by side."""

    hooks: tuple[HookRun, ...]


class AskJudge(Act, frozen=True, kw_only=True):
    """Ask the judge with evidence of at most ``budget`` bytes and an answer of at most ``max_output`` tokens."""

    budget: int
    max_output: int
    since: int  # evidence begins at this sequence number


class Compact(Act, frozen=True, kw_only=True):
    """Ask for a summary of the conversation up to event ``up_to``."""

    up_to: int
    prompt: str
    max_output: int


class Look(Act, frozen=True, kw_only=True):
    """Take the fingerprint of the workspace."""

    purpose: LookPurpose


class StopProcesses(Act, frozen=True, kw_only=True):
    """Stop these background processes with all they began."""

    ids: tuple[str, ...]


class Wait(Act, frozen=True, kw_only=True):
    """Park until ``until`` (epoch seconds) or until something comes. ``condition`` is observed by the driver."""

    on: str
    until: float | None = None
    condition: str | None = None


AnyAct = Idle | Record | CallModel | RunTools | RunGates | RunHooks | AskJudge | Compact | Look | StopProcesses | Wait
