"""The goal's phases as one table, and the state that events build up.

Everything that affects phases lives in this file; the diagram in docs/phases.md is generated from ``TRANSITIONS``. A pair
that is not listed is an error for intents and facts, and ``late`` for controls. All other events keep the phase.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from endstop.core import events as ev
from endstop.core.codec import Entry
from endstop.core.context import Window
from endstop.core.events import Event, Phase
from endstop.core.evidence import Evidence
from endstop.core.limits import Spend
from endstop.core.messages import Price, ToolRequest, ToolSpec
from endstop.core.stall import Rules, Stall

ENDED: frozenset[Phase] = frozenset({"done", "capped", "stuck", "blocked", "failed", "cancelled"})
LIVE: frozenset[Phase] = frozenset({"queued", "working", "checking", "waiting", "paused", "closing"})
ACTIVE: frozenset[Phase] = frozenset({"working", "checking", "closing"})
"""Phases whose time counts as active."""

LEFT: Literal["left"] = "left"
"""To the phase that goal.parked or goal.paused remembered."""
TARGET: Literal["target"] = "target"
"""To the target that goal.closing named."""

Row = tuple[tuple[Phase, ...], str]
TRANSITIONS: dict[type[Event], tuple[Row, ...]] = {
    ev.GoalQueued: ((("none", "done", "capped", "stuck", "blocked", "failed", "cancelled"), "queued"),),
    ev.GoalStarted: ((("queued",), "working"),),
    ev.GoalClaimed: ((("working",), "checking"),),
    ev.GoalConfronted: ((("checking",), "working"),),
    ev.GoalReturned: ((("checking",), "working"),),
    ev.GoalParked: ((("working", "checking"), "waiting"),),
    ev.GoalResumed: (
        (("waiting", "paused"), LEFT),
        (("capped", "stuck", "blocked", "failed", "cancelled"), "working"),
    ),
    ev.GoalPaused: ((("queued", "working", "waiting", "checking", "closing"), "paused"),),
    ev.GoalClosing: ((("queued", "working", "waiting", "checking", "paused", "closing"), "closing"),),
    ev.GoalEnded: ((("checking",), "done"), (("closing",), TARGET)),
}
INTERACTIVE: tuple[Phase, ...] = ("none", "done", "capped", "stuck", "blocked", "failed", "cancelled")
BEGINS: dict[type[Event], tuple[Phase, ...]] = {
    ev.TurnStart: ("working", "closing", *INTERACTIVE),
    ev.ToolStart: ("working", *INTERACTIVE),
    ev.PermissionRequested: ("working", *INTERACTIVE),
    ev.QuestionAsked: ("working", "checking", *INTERACTIVE),
    ev.SessionCompactionStart: ("working", *INTERACTIVE),
    ev.GateStarted: ("working", "checking"),
    ev.GoalJudging: ("checking",),
}
"""Phases in which something may begin. A turn in closing is one with purpose close."""


class Memo(msgspec.Struct):
    """The first result of a call that must not run twice."""

    seq: int
    success: bool
    content: str
    hash: str
    norm: str
    error: ev.Failure | None
    exit_code: int | None


class Call(msgspec.Struct):
    """One call of the open turn. ``state``: open, started, done."""

    request: ToolRequest
    state: str = "open"
    seq: int = 0
    effect: str = ""
    ident: str = ""
    key: str = ""
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)
    before: dict[str, str] | None = None
    result: str | None = None  # outcome of an attached call, known when its wait ended
    blocked_by: str = ""  # the stall rule that refuses it
    grant: str = ""  # request id of the permission asked for it
    success: bool = True
    code: str = ""
    outcome: Memo | None = None  # its result, shared with identical calls of the batch


class Turn(msgspec.Struct):
    """The newest turn."""

    id: int
    purpose: str
    model: str
    seq: int
    reserved: dict[str, float] = msgspec.field(default_factory=dict)
    bytes: int = 0
    answered: bool = False
    text: str = ""
    finish: str = ""
    calls: dict[str, Call] = msgspec.field(default_factory=dict)
    ended: str = ""
    error: ev.Failure | None = None
    retry_at: float | None = None
    handled: bool = False  # its failure was dealt with


class Parked(msgspec.Struct):
    """What the goal waits for and where it goes back to."""

    on: str
    ref: str | None
    until: float | None
    since: float
    said: str
    left: Phase


class Question(msgspec.Struct):
    """A question to a human. ``answer`` None while open."""

    id: str
    call_id: str | None
    text: str
    options: list[str]
    freeform: bool
    expires_at: float | None
    on_timeout: str
    limit: str | None = None
    answer: str | None = None
    expired: bool = False
    used: bool = False


class Grant(msgspec.Struct):
    """A permission asked of a human. ``kind`` empty while open."""

    id: str
    call_id: str | None
    binding: str
    expires_at: float
    kind: str = ""
    feedback: str = ""


class Process(msgspec.Struct):
    """A background process that lives."""

    id: str
    pid: int
    command: str
    notify: bool
    stays: bool


class Exit(msgspec.Struct, frozen=True):
    """A process that ended and was not looked at since."""

    id: str
    command: str
    code: int | None
    signal: int | None
    output: str


class Claim(msgspec.Struct):
    """The claim under check."""

    by: ev.ClaimBy
    call_id: str | None
    summary: str
    seq: int
    recovering: bool
    looked: int = 0  # seq of the look taken for it
    judged: bool = False  # a verdict was given for it
    judging: bool = False
    runs: dict[str, int] = msgspec.field(default_factory=dict)  # gate -> times run for this claim


Occasion = tuple[str, str]
"""When hooks run and what for: (on, id of a call, sequence number of a claim or message, or a word)."""


class Hooks(msgspec.Struct):
    """Where the user's hooks stand."""

    due: dict[Occasion, ev.UserMessage | None] = msgspec.field(default_factory=dict)  # have to run; the message it is about
    running: dict[str, tuple[str, Occasion]] = msgspec.field(default_factory=dict)  # invocation -> hook and occasion
    said: dict[Occasion, dict[str, ev.HookEnd]] = msgspec.field(default_factory=dict)
    broken: dict[str, int] = msgspec.field(default_factory=dict)  # stop hooks that crashed, times in a row
    fault: str = ""  # how the last of them crashed
    refused: str = ""  # why a hook does not let the objective through


class Closing(msgspec.Struct):
    """Where a closing goal is going."""

    target: Phase
    reason: str
    detail: dict[str, Any]
    by: str | None = None
    text: str = ""  # what the closing turn wrote


class Goal(msgspec.Struct):
    """The goal as it was queued, and where it is."""

    queued: ev.GoalQueued
    caps: dict[str, float]
    seq: int
    started: bool = False
    left: Phase = "queued"  # phase that goal.paused left
    pause: str = ""  # reason of the pause
    parked: Parked | None = None
    claim: Claim | None = None
    closing: Closing | None = None
    halt_asked: bool = False  # a human was asked before this end
    closed: bool = False  # the closing turn since the last resume was taken
    ended: ev.GoalEnded | None = None
    limit: ev.LimitReached | None = None

    @property
    def contract(self) -> ev.Contract:
        """What done means."""
        return self.queued.contract


class Verdict(msgspec.Struct, frozen=True):
    """What holds for one call: the rule that decided it (or "mode auto"), and why, for people and models. ``remedy``: the
    allow rules that would let just this call run; empty where no rule can."""

    kind: Literal["allow", "deny", "ask"]
    rule: str = ""
    why: str = ""
    remedy: tuple[str, ...] = ()


def _allow(spec: ToolSpec, arguments: dict[str, Any]) -> Verdict:
    return Verdict("allow")


class Profile(msgspec.Struct, frozen=True):
    """What is known of a model: ``price`` None where unknown, ``max_output`` and ``window`` in tokens."""

    price: Price | None = None
    max_output: int = 16_000
    window: int | None = None


class Kit(msgspec.Struct):
    """What the kernel is told about its surroundings: never journalled, the same for a whole run."""

    tools: dict[str, ToolSpec] = msgspec.field(default_factory=dict)
    rules: Rules = msgspec.field(default_factory=Rules)
    permit: Callable[[ToolSpec, dict[str, Any]], Verdict] = _allow
    price: Price | None = None
    judge_price: Price | None = None
    judge: str = ""  # model that judges; empty: none
    judge_independent: bool = True
    max_output: int = 16_000
    window: int | None = None  # tokens the model takes, None where unknown
    fallbacks: dict[str, Profile] = msgspec.field(default_factory=dict)
    head_bytes: int = 0
    reachable: bool = False  # a terminal, a resident process or a notifier exists
    lock: str = ""  # the workspace lock that is held
    sandbox: str | None = None  # what commands run in
    hooks: tuple[ev.Hook, ...] = ()  # of a session without a goal; a goal's own stand in its contract


class State(msgspec.Struct):
    """Everything a journal says, folded. Only ``apply`` changes it, in place."""

    kit: Kit = msgspec.field(default_factory=Kit)
    session_id: str = ""
    kind: str = "goal"
    salt: str = ""
    model: str = ""  # the one that is asked now
    tried: list[str] = msgspec.field(default_factory=list)  # models given up in this goal
    limits: dict[str, float] = msgspec.field(default_factory=dict)  # of an interactive session
    rules: ev.Policy = msgspec.field(default_factory=ev.Policy)  # likewise
    seq: int = 0
    time: float = 0.0
    generation: int = 0
    phase: Phase = "none"
    goal: Goal | None = None
    turn: Turn | None = None
    turns: int = 0  # turns of the session, the next one's id less one
    round_open: bool = False
    round_calls: bool = False  # the round asked for a tool
    round_parked: bool = False
    spend: Spend = msgspec.field(default_factory=Spend)
    stall: Stall = msgspec.field(default_factory=Stall)
    evidence: Evidence = msgspec.field(default_factory=Evidence)
    window: Window = msgspec.field(default_factory=Window)
    inbox: list[ev.UserMessage] = msgspec.field(default_factory=list)
    memo: dict[str, Memo] = msgspec.field(default_factory=dict)
    plan: list[ev.PlanItem] = msgspec.field(default_factory=list)
    questions: dict[str, Question] = msgspec.field(default_factory=dict)
    grants: dict[str, Grant] = msgspec.field(default_factory=dict)
    processes: dict[str, Process] = msgspec.field(default_factory=dict)
    denied: list[str] = msgspec.field(default_factory=list)  # what was refused last, in words
    exits: dict[str, Exit] = msgspec.field(default_factory=dict)  # ends to be told of
    process_waits: int = 0  # times in a row a wait for a process ran out
    hooks: Hooks = msgspec.field(default_factory=Hooks)
    stop: str = ""  # abort, pause or hook (pause, wanted by a hook), until decide has dealt with it
    recover: bool = False  # a crash left starts without an end
    look_due: bool = False  # after a resume
    crashes: int = 0  # in a row, without a finished turn
    failures: int = 0  # model calls that failed in a row
    failing_since: float = 0.0
    answered: bool = False  # the model answered at least once in this goal
    compacting: int | None = None  # the event up to which a compaction runs
    compaction_misses: int = 0  # compactions in a row that gained too little

    @property
    def interactive(self) -> bool:
        """No live goal: a conversation in rounds, without phases."""
        return self.phase in INTERACTIVE

    @property
    def caps(self) -> dict[str, float]:
        """The limits in force."""
        return self.goal.caps if self.goal is not None else self.limits

    @property
    def policy(self) -> ev.Policy:
        """What may be done."""
        return self.goal.queued.policy if self.goal is not None else self.rules

    @property
    def profile(self) -> Profile:
        """Of the model that is asked now."""
        kit = self.kit
        return kit.fallbacks.get(self.model) or Profile(kit.price, kit.max_output, kit.window)


def open_round(state: State, counts: bool = True) -> None:
    """A round begins; one that only says that nothing happened does not count."""
    state.round_open, state.round_calls, state.round_parked = True, False, False
    state.spend.rounds += counts
    state.spend.round_calls = 0


Handler = Callable[[State, Entry, Any], None]


class Handlers(dict[type[Event], Handler]):
    """Functions that take in events, by type."""

    def on(self, kind: type[Event]) -> Callable[[Handler], Handler]:
        """Register the function for one type."""

        def register(handler: Handler) -> Handler:
            self[kind] = handler
            return handler

        return register


def allowed(state: State, event: Event) -> Phase | None:
    """The phase after an event, or None where the event is not allowed now. Events without a rule keep the phase."""
    kind = type(event)
    rows = TRANSITIONS.get(kind)
    if rows is None:
        begins = BEGINS.get(kind)
        return state.phase if begins is None or state.phase in begins else None
    if isinstance(event, ev.GoalClosing) and state.phase == "closing" and event.target != "cancelled":
        return None
    if isinstance(event, ev.GoalResumed) and event.from_ != state.phase:
        return None  # meant for another phase than the one it meets
    for froms, to in rows:
        if state.phase in froms:
            return _arrive(state, event, to)
    return None


def _arrive(state: State, event: Event, to: str) -> Phase | None:
    goal = state.goal
    if to == TARGET:
        if goal is None or goal.closing is None or not isinstance(event, ev.GoalEnded):
            return None
        return goal.closing.target if event.phase == goal.closing.target else None
    if to == "done" and isinstance(event, ev.GoalEnded) and event.phase != to:
        return None
    if to == LEFT and goal is not None:
        if state.phase == "paused":
            return goal.left
        return goal.parked.left if goal.parked is not None else None
    return to  # type: ignore[return-value]


def with_rules(queued: ev.GoalQueued, allow: Sequence[str]) -> ev.GoalQueued:
    """A goal's terms with further allow rules."""
    policy = msgspec.structs.replace(queued.policy, allow=list(dict.fromkeys([*queued.policy.allow, *allow])))
    return msgspec.structs.replace(queued, policy=policy)


def open_calls(state: State) -> list[Call]:
    """Calls of the newest turn without a result yet, in the order the model gave them."""
    if state.turn is None or state.turn.ended:
        return []
    return [call for call in state.turn.calls.values() if call.state != "done"]


def waiting_humans(state: State) -> bool:
    """A question or grant is open."""
    return any(q.answer is None and not q.expired for q in state.questions.values()) or any(
        not g.kind for g in state.grants.values()
    )


def active_now(state: State, now: float) -> float:
    """Active seconds so far; time since the last event counts while the goal works."""
    running = max(0.0, now - state.time) if state.phase in ACTIVE else 0.0
    return state.spend.active + running
