"""Everything that can happen, as one vocabulary. Our sessions, reports from elsewhere and imported logs are these events.

An event is a frozen struct; ``@event(name, kind)`` gives it its wire name and the way it may be appended:

    K  intent or decision of the lease holder, at the position ``decide`` saw
    F  fact, what an effect did, by the lease holder, at the head
    C  control, by anyone authorised, at the head, without a lease
    E  ephemeral: sent to viewers, never stored

A type known to the Copilot vocabulary keeps that name and its required fields. Absent means unknown, never zero: optional
fields are None and left out of the line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar

import msgspec

from endstop.core.messages import Effect, ToolRequest

Kind = Literal["K", "F", "C", "E"]
Phase = Literal[
    "none",
    "queued",
    "working",
    "checking",
    "waiting",
    "paused",
    "closing",
    "done",
    "capped",
    "stuck",
    "blocked",
    "failed",
    "cancelled",
]
Target = Literal["capped", "stuck", "blocked", "failed", "cancelled"]
CompactionTrigger = Literal["threshold", "overflow", "manual"]
Purpose = Literal["work", "recover", "close"]
LimitScope = Literal["turn", "round", "goal", "day", "month"]


class Event(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Root of all events. Fields are the event's ``data``; the envelope is added when it is appended."""


EVENTS: dict[str, type[Event]] = {}
TYPE_OF: dict[type[Event], str] = {}
KIND_OF: dict[type[Event], Kind] = {}

E = TypeVar("E", bound=type[Event])


def event(name: str, kind: Kind) -> Callable[[E], E]:
    """Register a struct as the event ``name`` that is appended as ``kind``."""

    def register(cls: E) -> E:
        EVENTS[name] = cls
        TYPE_OF[cls] = name
        KIND_OF[cls] = kind
        return cls

    return register


class Part(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Root of the objects that stand inside events."""


class Blob(msgspec.Struct, frozen=True, rename="camel"):
    """Stands for a field over 16 KiB: ``blob`` is a salted SHA-256, ``size`` bytes, ``head`` and ``tail`` its ends."""

    blob: str
    size: int
    head: str
    tail: str


class Failure(Part, frozen=True, kw_only=True):
    """Why a call or turn failed: a code that rules read, and words for people and models."""

    code: str
    message: str


# ---------------------------------------------------------------------------------------------------------------- session


class Context(Part, frozen=True, kw_only=True):
    """Where a session works."""

    cwd: str
    git_root: str | None = None
    branch: str | None = None
    head_commit: str | None = None


class Parent(Part, frozen=True, kw_only=True):
    """The session and call that began a child session."""

    session_id: str
    tool_call_id: str


@event("session.start", "C")
class SessionStart(Event, frozen=True, kw_only=True):
    """First event of a journal."""

    session_id: str
    version: int
    producer: str
    start_time: str
    kind: Literal["goal", "chat", "exec", "foreign"]
    context: Context
    selected_model: str | None = None
    parent: Parent | None = None
    limits: dict[str, float] | None = None  # of an interactive session; a goal has its own
    policy: Policy | None = None  # likewise
    salt: str | None = None  # hex, mixed into blob hashes so that a known text cannot be looked up by its hash


@event("session.resume", "F")
class SessionResume(Event, frozen=True, kw_only=True):
    """A holder took the session up. ``crashed``: the one before went without ``session.shutdown``; ``open`` lists the
    sequence numbers of starts without an end."""

    resume_time: str
    event_count: int
    generation: int
    crashed: bool
    open: list[int]


@event("session.shutdown", "F")
class SessionShutdown(Event, frozen=True, kw_only=True):
    """The holder let the session go in good order."""

    shutdown_type: str


@event("session.error", "F")
class SessionError(Event, frozen=True, kw_only=True):
    """Something failed that people should see. ``hint`` is the remedy."""

    error_type: str
    message: str
    hint: str
    status_code: int | None = None


@event("session.model_change", "K")
class SessionModelChange(Event, frozen=True, kw_only=True):
    """A named fallback takes over from the pinned model."""

    previous_model: str
    new_model: str
    reason: str


class PlanItem(Part, frozen=True, kw_only=True):
    """One item of the agent's plan. An open item cannot vanish, only be dropped with a reason."""

    id: str
    text: str
    status: Literal["open", "done", "dropped"]
    reason: str | None = None


@event("session.plan_changed", "F")
class SessionPlanChanged(Event, frozen=True, kw_only=True):
    """The agent's plan, whole, after ``operation``."""

    operation: str
    items: list[PlanItem]


@event("session.compaction_start", "K")
class SessionCompactionStart(Event, frozen=True, kw_only=True):
    """The window is about to be made smaller, up to the message of event ``up_to``. A paid call if something is reserved."""

    trigger: CompactionTrigger
    up_to: int
    reserved: dict[str, float] = msgspec.field(default_factory=dict)


@event("session.compaction_complete", "F")
class SessionCompactionComplete(Event, frozen=True, kw_only=True):
    """What the compaction forgot, as ranges of sequence numbers, and the summary that stands for it; ``shortened`` are
    ranges whose results keep only their ends. ``success`` False: the summary was made without a model."""

    success: bool
    shortened: list[tuple[int, int]] | None = None
    pre_compaction_tokens: int
    post_compaction_tokens: int
    forgot: list[tuple[int, int]]
    summary_content: str


@event("session.task_complete", "K")
class SessionTaskComplete(Event, frozen=True, kw_only=True):
    """Stands right before ``goal.ended`` once per end in done or blocked. ``success`` means verified."""

    summary: str
    success: bool
    outcome: Literal["completed", "blocked"]


@event("session.idle", "E")
class SessionIdle(Event, frozen=True, kw_only=True):
    """Nothing runs and nothing is queued."""


@event("session.usage_info", "E")
class SessionUsageInfo(Event, frozen=True, kw_only=True):
    """How full the model's window is."""

    token_limit: int
    current_tokens: int
    messages_length: int


@event("abort", "C")
class Abort(Event, frozen=True, kw_only=True):
    """Ends the turn only: open calls are interrupted and the goal waits for the next human message."""

    reason: str
    by: str


@event("user.message", "C")
class UserMessage(Event, frozen=True, kw_only=True):
    """A message into the conversation. Only source user is a human; from system or process it is a decision (K)."""

    message_id: str
    content: str
    source: Literal["user", "agent", "system", "process"]
    delivery: Literal["idle", "steering", "queued"]
    is_autopilot_continuation: bool | None = None
    reason: str | None = None
    late: bool | None = None


# ------------------------------------------------------------------------------------------------------------------- turn


@event("assistant.turn_start", "K")
class TurnStart(Event, frozen=True, kw_only=True):
    """A paid call of the agent's model begins. ``reserved`` holds the upper bound per axis that was set aside for it."""

    turn_id: int
    model: str
    purpose: Purpose
    request_hash: str
    reserved: dict[str, float]


@event("assistant.message", "F")
class AssistantMessage(Event, frozen=True, kw_only=True):
    """What the model answered."""

    message_id: str
    originating_message_id: str | None = None
    content: str
    tool_requests: list[ToolRequest]
    reasoning_opaque: str | None = None
    finish_reason: str


@event("assistant.usage", "F")
class AssistantUsage(Event, frozen=True, kw_only=True):
    """Spend of one paid call of any kind. Input counts cached tokens, output counts reasoning; ``cost`` in USD where a
    price is known; ``estimated`` where the provider told nothing."""

    initiator: Literal["work", "recover", "close", "judge", "compaction", "why"]
    turn_id: int | None = None
    model: str
    input_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    output_tokens: int
    reasoning_tokens: int | None = None
    cost: float | None = None
    estimated: bool
    attempt: int


@event("assistant.message_delta", "E")
class AssistantMessageDelta(Event, frozen=True, kw_only=True):
    """A piece of text while it arrives, for viewers."""

    message_id: str
    delta_content: str


@event("model.retried", "F")
class ModelRetried(Event, frozen=True, kw_only=True):
    """A provider failure that may pass; the same request is sent again after ``wait_seconds``."""

    turn_id: int | None = None
    attempt: int
    error_type: str
    wait_seconds: float


@event("assistant.turn_end", "F")
class TurnEnd(Event, frozen=True, kw_only=True):
    """The turn and its tools are over. ``error.code`` of a failed one is a ``ModelFault``; ``retry_at`` is when the
    provider said it would answer again (epoch seconds)."""

    turn_id: int
    outcome: Literal["ok", "failed", "cut", "interrupted", "lost"]
    error: Failure | None = None
    retry_at: float | None = None


# ------------------------------------------------------------------------------------------------------------------- tool


@event("tool.execution_start", "K")
class ToolStart(Event, frozen=True, kw_only=True):
    """A call runs now. ``before`` holds content hashes of what an edit will change (path: sha-256 or "absent")."""

    tool_call_id: str
    tool_name: str
    arguments: dict[str, Any]
    turn_id: int
    effect: Effect
    key: str
    before: dict[str, str] | None = None


class Result(Part, frozen=True, kw_only=True):
    """Text of a result as the model sees it; ``full`` is the blob that keeps all of it where the text was shortened."""

    content: str
    full: Blob | None = None


@event("tool.execution_complete", "F")
class ToolComplete(Event, frozen=True, kw_only=True):
    """The one result of a call. A fact after a start; without a start it is a decision: the call did not run.

    ``hash`` and ``norm_hash`` are of the result before any notice was added, raw and masked.
    """

    tool_call_id: str
    success: bool
    executed: bool
    result: Result
    error: Failure | None = None
    exit_code: int | None = None
    duration_ms: int | None = None
    cached: bool | None = None
    of: int | None = None
    hash: str
    norm_hash: str


@event("tool.execution_partial_result", "E")
class ToolPartial(Event, frozen=True, kw_only=True):
    """Output of a running tool, for viewers."""

    tool_call_id: str
    partial_output: str


@event("external_tool.requested", "F")
class ExternalToolRequested(Event, frozen=True, kw_only=True):
    """A call that a connected client has to run."""

    request_id: str
    tool_call_id: str
    tool_name: str
    arguments: dict[str, Any]


@event("external_tool.completed", "C")
class ExternalToolCompleted(Event, frozen=True, kw_only=True):
    """A connected client answered."""

    request_id: str


# ----------------------------------------------------------------------------------------------------- permission, grants


@event("permission.requested", "K")
class PermissionRequested(Event, frozen=True, kw_only=True):
    """A human is asked to allow one exact action. ``binding`` is the SHA-256 the grant is bound to."""

    request_id: str
    tool_call_id: str | None = None
    permission_request: dict[str, Any]
    binding: str
    risk: str
    why: str
    expires_at: float


class Decision(Part, frozen=True, kw_only=True):
    """A permission decision, in the Copilot vocabulary (approved, denied-interactively-by-user, …)."""

    kind: str


@event("permission.completed", "C")
class PermissionCompleted(Event, frozen=True, kw_only=True):
    """A human decided. ``stop``: refuse and end the turn."""

    request_id: str
    result: Decision
    scope: Literal["once", "timed", "standing"]
    until: float | None = None
    by: str
    feedback: str | None = None
    stop: bool | None = None
    late: bool | None = None


@event("grant.used", "K")
class GrantUsed(Event, frozen=True, kw_only=True):
    """The grant was consumed, in one append with the start it allowed."""

    request_id: str


@event("grant.expired", "C")
class GrantExpired(Event, frozen=True, kw_only=True):
    """Nobody decided in time."""

    request_id: str


@event("grant.revoked", "C")
class GrantRevoked(Event, frozen=True, kw_only=True):
    """A standing or timed grant was taken back."""

    request_id: str


@event("hook.start", "K")
class HookStart(Event, frozen=True, kw_only=True):
    """A user's hook begins."""

    hook_invocation_id: str
    hook_type: str
    input: dict[str, Any]


@event("hook.end", "F")
class HookEnd(Event, frozen=True, kw_only=True):
    """A user's hook ended. ``success`` False: it crashed or could not be understood, and ``error`` says how. ``decision`` is
    what it wants, ``text`` its words to the model."""

    hook_invocation_id: str
    hook_type: str
    success: bool
    exit_code: int | None = None
    output: str | None = None
    error: str | None = None
    decision: Literal["allow", "ask", "deny", "stop"] | None = None
    text: str | None = None


# -------------------------------------------------------------------------------------------------- questions, processes


@event("question.asked", "K")
class QuestionAsked(Event, frozen=True, kw_only=True):
    """A human is asked for an answer. Without a tool call the answer opens a round."""

    question_id: str
    tool_call_id: str | None = None
    question: str
    options: list[str]
    allow_freeform: bool
    expires_at: float | None = None
    on_timeout: Literal["continue", "blocked"]
    limit: str | None = None  # the full limit that the answer "more" raises by half


@event("question.answered", "C")
class QuestionAnswered(Event, frozen=True, kw_only=True):
    """The answer of a human."""

    question_id: str
    answer: str
    option: int | None = None
    by: str
    late: bool | None = None


@event("question.expired", "K")
class QuestionExpired(Event, frozen=True, kw_only=True):
    """Nobody answered in time: typed as no answer, never as consent."""

    question_id: str


@event("process.started", "F")
class ProcessStarted(Event, frozen=True, kw_only=True):
    """A background process lives."""

    process_id: str
    pid: int
    start_time: float
    command: str
    tool_call_id: str
    notify_on_exit: bool
    stays: bool


@event("process.exited", "C")
class ProcessExited(Event, frozen=True, kw_only=True):
    """A background process ended."""

    process_id: str
    exit_code: int | None = None
    signal: int | None = None
    output: str


@event("subagent.started", "K")
class SubagentStarted(Event, frozen=True, kw_only=True):
    """A child goal begins, with its share of the limits."""

    tool_call_id: str
    agent_name: str
    session_id: str
    limits: dict[str, float]


@event("subagent.completed", "F")
class SubagentCompleted(Event, frozen=True, kw_only=True):
    """A child goal ended."""

    tool_call_id: str
    agent_name: str
    session_id: str
    phase: Phase
    verified: bool
    spend: dict[str, float]
    handoff: dict[str, Any]


@event("subagent.failed", "F")
class SubagentFailed(Event, frozen=True, kw_only=True):
    """A child goal could not be run."""

    tool_call_id: str
    agent_name: str
    session_id: str
    error: str


# -------------------------------------------------------------------------------------------------------- world and gates

LookPurpose = Literal["baseline", "confront", "claim", "gate", "stall", "resume", "close", "undo"]


@event("workspace.observed", "F")
class WorkspaceObserved(Event, frozen=True, kw_only=True):
    """What the workspace is now. ``paths`` are those that differ from the start, ``diff`` their bounded diff.

    ``deliverables`` maps each deliverable to "absent", "empty" or its SHA-256; ``protected`` lists verifier inputs whose
    hash differs from the start, ``named`` those among them that the gates or the contract name.
    """

    purpose: LookPurpose
    world: int
    fingerprint: str
    paths: list[str]
    diff: str
    protected: list[str]
    named: list[str] = msgspec.field(default_factory=list)
    deliverables: dict[str, str] = msgspec.field(default_factory=dict)
    inputs: dict[str, str] | None = None  # at baseline: hash per protected input
    base: str | None = None  # at baseline: the tree that later diffs are taken against


GatePurpose = Literal["baseline", "confront", "claim", "readiness"]


@event("gate.started", "K")
class GateStarted(Event, frozen=True, kw_only=True):
    """A gate is about to run."""

    gate_id: str
    purpose: GatePurpose
    command: str
    world: int
    fingerprint: str


@event("gate.finished", "F")
class GateFinished(Event, frozen=True, kw_only=True):
    """What a gate said. ``fingerprint`` is the one after the run; ``stale`` if the workspace changed while it ran."""

    gate_id: str
    outcome: Literal["pass", "fail", "broken"]
    replayed_of: int | None = None
    exit_code: int | None = None
    output: str
    duration_ms: int
    fingerprint: str
    stale: bool
    collected: int | None = None
    failing: list[str] | None = None
    retries: int | None = None


# ------------------------------------------------------------------------------------------------------------------- goal


class Gate(Part, frozen=True, kw_only=True):
    """A command of the user's whose exit status 0 means it passes. ``timeout`` in seconds."""

    gate_id: str
    run: str
    timeout: float = 600.0
    retries: int = 0
    external: bool = False
    paths: list[str] = msgspec.field(default_factory=list)


HookOn = Literal["stop", "pre_tool", "post_tool", "user_prompt", "session_start", "session_end"]


class Hook(Part, frozen=True, kw_only=True):
    """A command of the user's that runs on an occasion and may object. ``matcher`` is a regular expression for the tool's
    whole name, empty for every tool; ``timeout`` in seconds; ``own``: it stands in the user's own settings, so it runs with
    all his rights, not in the sandbox."""

    hook_id: str
    on: HookOn
    run: str
    matcher: str = ""
    timeout: float = 60.0
    own: bool = False


class Contract(Part, frozen=True, kw_only=True):
    """What "done" means for a goal."""

    gates: list[Gate] = msgspec.field(default_factory=list)
    deliverables: list[str] = msgspec.field(default_factory=list)
    protect: Literal["flag", "refuse", "restore"] = "refuse"
    inputs: list[str] = msgspec.field(default_factory=list)  # paths the user protects by name
    rubric: str | None = None
    judge: str = "auto"  # auto, none, or a model
    review: Literal["none", "human"] = "none"
    confront: Literal["once", "always", "never"] = "once"
    baseline: bool = True
    hooks: list[Hook] = msgspec.field(default_factory=list)

    @property
    def empty(self) -> bool:
        """No gate, no deliverable, no named judge: a plain answer may end the goal."""
        return not (self.gates or self.deliverables or self.judge not in ("auto", "none"))


class Policy(Part, frozen=True, kw_only=True):
    """What the goal may do and what happens when a human is needed."""

    mode: Literal["plan", "ask", "auto", "yolo"] = "auto"
    allow: list[str] = msgspec.field(default_factory=list)
    deny: list[str] = msgspec.field(default_factory=list)
    ask: list[str] = msgspec.field(default_factory=list)
    humans: Literal["auto", "park", "deny"] = "auto"
    on_halt: Literal["end", "ask"] = "end"
    network: bool = False
    accept_claimed: bool = False


@event("goal.queued", "C")
class GoalQueued(Event, frozen=True, kw_only=True):
    """A goal is wanted. ``limits`` maps an axis to its cap, absent axes are unlimited."""

    goal_id: str
    objective: str
    contract: Contract
    limits: dict[str, float]
    policy: Policy
    model: str
    fallbacks: list[str]
    workspace: str
    priority: int
    instructions: str | None = None  # of the repository: AGENTS.md, else CLAUDE.md
    late: bool | None = None


@event("goal.started", "K")
class GoalStarted(Event, frozen=True, kw_only=True):
    """Lease and workspace lock are held; work begins. ``sandbox`` is what commands run in: bwrap, or none."""

    goal_id: str
    workspace_lock: str
    sandbox: str | None = None


ClaimBy = Literal["task_complete", "report_blocked", "answer", "readiness"]


@event("goal.claimed", "K")
class GoalClaimed(Event, frozen=True, kw_only=True):
    """Somebody says the goal is reached (or cannot be): a request, never an end."""

    by: ClaimBy
    tool_call_id: str | None = None
    summary: str


@event("goal.confronted", "K")
class GoalConfronted(Event, frozen=True, kw_only=True):
    """The claim was answered with evidence read fresh."""

    tool_call_id: str | None = None
    by: ClaimBy
    evidence: str
    missing: list[str]


ReturnedWhy = Literal["deliverable", "protected", "hook", "gate", "judge", "review", "impossible", "stale", "unverified"]


@event("goal.returned", "K")
class GoalReturned(Event, frozen=True, kw_only=True):
    """The claim did not hold; ``missing`` says what is. It stands in one append with the result of the claim's call, or
    with the nudge that opens the next round; a miss of readiness inside a round is silent."""

    tool_call_id: str | None = None
    why: ReturnedWhy
    missing: list[str]


class EvidenceRange(Part, frozen=True, kw_only=True):
    """Which part of the journal the judge reads."""

    from_: int = msgspec.field(name="from")
    to: int
    tool_lines: int
    gaps: int
    bytes: int


@event("goal.judging", "K")
class GoalJudging(Event, frozen=True, kw_only=True):
    """The judge is asked. A paid call."""

    attempt: int
    model: str
    independent: bool
    evidence: EvidenceRange
    reserved: dict[str, float] = msgspec.field(default_factory=dict)


@event("goal.judged", "F")
class GoalJudged(Event, frozen=True, kw_only=True):
    """What the judge answered. ``because`` are sequence numbers of tool, gate or diff events."""

    result: Literal["verdict", "unreadable", "unreachable", "declined"]
    why: str | None = None  # it is no verdict
    achieved: bool | None = None
    impossible: str | None = None
    missing: list[str] | None = None
    because: list[int] | None = None
    raw: str


ParkedOn = Literal["question", "grant", "process", "child", "time", "condition", "model", "verifier", "budget"]


@event("goal.parked", "K")
class GoalParked(Event, frozen=True, kw_only=True):
    """The goal waits without burning turns. ``until`` in epoch seconds; ``said`` is for people."""

    on: ParkedOn
    ref: str | None = None
    until: float | None = None
    said: str


@event("goal.resumed", "K")
class GoalResumed(Event, frozen=True, kw_only=True):
    """The goal goes on. From capped, stuck, blocked, failed or cancelled only a person may do this (then it is a C).
    ``allow``: permission rules that a person adds to the goal's."""

    from_: Phase = msgspec.field(name="from")
    cause: str
    limits: dict[str, float] | None = None
    allow: list[str] | None = None
    note: str | None = None
    by: str | None = None
    late: bool | None = None


@event("goal.paused", "K")
class GoalPaused(Event, frozen=True, kw_only=True):
    """Nothing runs until somebody resumes (for interrupt: until the next human message). By a user it is a C."""

    reason: Literal["user", "interrupt", "shutdown", "crash_loop", "disk"]
    by: str
    late: bool | None = None


@event("goal.closing", "K")
class GoalClosing(Event, frozen=True, kw_only=True):
    """The goal will end as ``target``; what is open is settled first. Target cancelled comes from a person (C)."""

    target: Target
    reason: str
    by: str | None = None
    detail: dict[str, Any]
    late: bool | None = None


@event("goal.ended", "K")
class GoalEnded(Event, frozen=True, kw_only=True):
    """The end, what proves it, what is missing, and the report for whoever goes on."""

    phase: Phase
    verified: bool
    verified_by: list[str]
    ended_by: Literal["claim", "answer", "readiness", "limit", "stall", "report", "error", "person"]
    missing: list[str]
    handoff: dict[str, Any]


# ----------------------------------------------------------------------------------------------------- stalls and limits


@event("stall.noticed", "K")
class StallNoticed(Event, frozen=True, kw_only=True):
    """A rule noticed repetition; ``text`` is added to the result the model reads."""

    rule: str
    count: int
    identity: str
    seqs: list[int]
    period: int | None = None
    text: str
    tool_call_id: str | None = None


@event("stall.blocked", "K")
class StallBlocked(Event, frozen=True, kw_only=True):
    """A rule refused a call."""

    rule: str
    count: int
    identity: str
    seqs: list[int]
    period: int | None = None
    text: str
    tool_call_id: str | None = None


@event("stall.halted", "K")
class StallHalted(Event, frozen=True, kw_only=True):
    """A rule wants the goal to stop: one recovery turn, else closing(stuck)."""

    rule: str
    count: int
    identity: str
    seqs: list[int]
    period: int | None = None
    text: str


@event("limit.warned", "K")
class LimitWarned(Event, frozen=True, kw_only=True):
    """80 % of a limit are used."""

    limit: str
    unit: str
    scope: str
    spent: float
    cap: float


@event("limit.reached", "K")
class LimitReached(Event, frozen=True, kw_only=True):
    """What comes next does not fit into a limit any more."""

    limit: str
    unit: str
    scope: LimitScope
    spent: float
    cap: float


@event("checkpoint.signed", "F")
class CheckpointSigned(Event, frozen=True, kw_only=True):
    """A signature over the head at ``up_to``."""

    up_to: int
    head: str
    key_id: str
    signature: str


@event("gap.noted", "F")
class GapNoted(Event, frozen=True, kw_only=True):
    """Something is missing from the record and stays missing (ingest and import only)."""

    from_: int = msgspec.field(name="from")
    to: int
    reason: str


class Unknown(Event, frozen=True, kw_only=True):
    """An event of a type this version does not know, kept as it is."""

    type: str
    data: dict[str, Any]
