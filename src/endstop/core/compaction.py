"""Making the window smaller before the model's own limit is met, or after it was.

Old tool results are shortened first, which costs nothing; then what is old is summarised by a model. Calls and their results
stay together, the goal's first message stays as it is, and what was forgotten is recorded as ranges of sequence numbers: the
journal keeps all of it. Two compactions that gain too little end the goal as capped, limit ``context``.
"""

from __future__ import annotations

from math import ceil

from endstop.core import events as ev
from endstop.core.context import Window, measure, shorten
from endstop.core.effects import AnyAct, Compact, Record
from endstop.core.events import Event
from endstop.core.goal import State
from endstop.core.limits import Full, Reservation, closing_reserve, expected_input, limit_error, reserve
from endstop.core.messages import AssistantText, Message, ToolText, UserText
from endstop.core.on_turn import LEAST_GAIN
from endstop.core.recovery import estimated
from endstop.core.turns import capped, next_turn

START_AT = 0.8
"""Part of the known window at which compaction starts."""
KEEP = 0.3
"""Part of the window that stays as it is: the newest messages."""
MISSES = 2
PROMPT_BYTES = 60_000
SUMMARY_OUTPUT = 2_000
EACH = 1_500
"""Characters of one message that the summariser reads."""

COMPACTION_SYSTEM = (
    "You are shortening the record of an agent's work so that it can go on. In at most 600 words say what was done, what was "
    "found out, which files and commands matter and why, what failed and must not be tried again, and what comes next. Only "
    "what the record shows; keep names, paths and numbers exact."
)


def compact(state: State, now: float) -> AnyAct | None:
    """Rule 14: a compaction if the next request would fill the known window too far."""
    window = state.profile.window
    if not window or not (state.phase == "working" or state.interactive):
        return None
    size = state.window.size + state.kit.head_bytes
    tokens = expected_input(state.spend, size, state.window.size - state.window.reported)
    return shrink(state, "threshold") if tokens > START_AT * window else None


def shrink(state: State, trigger: ev.CompactionTrigger) -> AnyAct:
    """The compaction that gains enough at the least cost, or the limit that was met."""
    window = state.window
    cut = boundary(window)
    if state.compaction_misses >= MISSES or cut <= 1:
        tokens = float(state.spend.last_input or ceil(window.size * state.spend.ratio))
        full = Full("context", tokens, float(state.profile.window or tokens))
        return Record(events=(limit_error(full),) if state.interactive else capped(full))
    start = ev.SessionCompactionStart(trigger=trigger, up_to=window.seqs[cut - 1], reserved={})
    if saved(window, cut) >= LEAST_GAIN * window.size:
        return Record(events=(start, completed(state, start.up_to, summary=None)))
    room = _room(state)
    if isinstance(room, Full):
        return Record(events=(start, completed(state, start.up_to, summary=digest(window.messages[1:cut]))))
    events: tuple[Event, ...] = (ev.SessionCompactionStart(trigger=trigger, up_to=start.up_to, reserved=room.amounts),)
    return Compact(events=events, up_to=start.up_to, prompt=prompt(window.messages[1:cut]), max_output=room.max_output)


def compaction_lost(state: State, now: float) -> AnyAct | None:
    """A summary that was asked for and never came, because of a crash or a stop: what is old is left out without one."""
    if state.compacting is None:
        return None
    cut = next(n for n, seq in enumerate([*state.window.seqs, state.compacting + 1]) if seq > state.compacting)
    done = completed(state, state.compacting, summary=digest(state.window.messages[1:cut]), success=False)
    paid = (estimated(state, "compaction", state.model, None),) if state.spend.reserved else ()
    return Record(events=(*paid, done))


def _room(state: State) -> Reservation | Full:
    turn = next_turn(state)
    if isinstance(turn, Full):
        return turn
    return reserve(
        state.spend,
        state.caps,
        input=ceil(PROMPT_BYTES * state.spend.ratio),
        want=SUMMARY_OUTPUT,
        price=state.profile.price,
        keep=closing_reserve(state.caps, state.profile.price),
        turn=False,
        least=256,
    )


def boundary(window: Window) -> int:
    """Index of the first message that stays as it is: the newest part of the window, never beginning with a result."""
    room, at = KEEP * window.size, len(window.messages)
    while at > 1:
        room -= measure(window.messages[at - 1])
        if room < 0:
            break
        at -= 1
    newest = max((n for n, m in enumerate(window.messages) if isinstance(m, AssistantText)), default=1)
    at = min(at, newest)
    while at > 1 and isinstance(window.messages[at], ToolText):
        at -= 1
    return at


def saved(window: Window, cut: int) -> int:
    """Bytes that shortening the results before ``cut`` would save."""
    old = [message for message in window.messages[1:cut] if isinstance(message, ToolText)]
    return sum(measure(message) - measure(shorten(message)) for message in old)


def completed(state: State, up_to: int, *, summary: str | None, success: bool = True) -> ev.SessionCompactionComplete:
    """What a compaction comes to. ``summary`` None only shortens results; else it stands for everything up to ``up_to``."""
    window = state.window
    cut = next(n for n, seq in enumerate([*window.seqs, up_to + 1]) if seq > up_to)
    span = [(window.seqs[1], up_to)] if cut > 1 else []
    before = window.size
    if summary is None:
        after = before - saved(window, cut)
    else:
        after = before - sum(measure(m) for m in window.messages[1:cut]) + measure(UserText(summary))
    return ev.SessionCompactionComplete(
        success=success,
        pre_compaction_tokens=ceil(before * state.spend.ratio),
        post_compaction_tokens=ceil(after * state.spend.ratio),
        forgot=span if summary is not None else [],
        shortened=span if summary is None else None,
        summary_content=summary or "",
    )


def prompt(messages: list[Message]) -> str:
    """The record for the summariser, oldest first, each message and the whole bounded."""
    lines = [_line(message, EACH) for message in messages]
    while len(lines) > 1 and sum(map(len, lines)) > PROMPT_BYTES // 2:
        lines = [f"({len(lines) // 2} older entries left out)", *lines[len(lines) // 2 + 1 :]]
    return "\n\n".join(lines)


def digest(messages: list[Message]) -> str:
    """A summary without a model: which calls were made, and what the agent said last."""
    calls = [f"{r.name} {str(r.arguments)[:120]}" for m in messages if isinstance(m, AssistantText) for r in m.requests]
    said = [m.text for m in messages if isinstance(m, AssistantText) and m.text]
    parts = [f"{len(messages)} older messages were left out; no summary of them could be made."]
    if calls:
        parts.append("The last calls among them:\n" + "\n".join(calls[-30:]))
    if said:
        parts.append(f"The last words among them: {said[-1][:600]}")
    return "\n\n".join(parts)


def _line(message: Message, limit: int) -> str:
    match message:
        case AssistantText(text=text, requests=requests):
            calls = "".join(f"\ncalls {r.name}: {str(r.arguments)[:limit]}" for r in requests)
            return f"AGENT: {text[:limit]}{calls}"
        case ToolText(text=text):
            return f"RESULT: {text[: limit // 2]}" + (f" … {text[-limit // 2 :]}" if len(text) > limit else "")
        case UserText(text=text):
            return f"MESSAGE: {text[:limit]}"
    raise TypeError(type(message).__name__)
