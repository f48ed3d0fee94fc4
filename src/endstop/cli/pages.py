"""Pages over journals: lists of goals, turns, events and stalls. Pure: rows and entries in, lines out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from endstop.cli import words
from endstop.cli.out import line
from endstop.cli.view import short
from endstop.core import events as ev
from endstop.core.codec import Entry, stamp, to_builtins, type_of
from endstop.core.limits import show
from endstop.core.stall import NEVER, Rules
from endstop.models.names import is_played
from endstop.store.sessions import SessionRow


def goals(found: Sequence[tuple[SessionRow, str]], now: float, width: int, *, folders: bool) -> list[str]:
    """One line a goal.

    Args:
        found: each session with its standing in words; who drives it is named by its process.
        folders: show where each works.
    """
    if not found:
        return ["no goals"]
    wide = max(16, *(len(standing) for _, standing in found)) + 2
    lines = [f"{'ID':<14}{'STANDING':<{wide}}{'AGE':>5}{'PID':>9}  OBJECTIVE"]
    for session, standing in found:
        where = f"{session.workspace}: " if folders else ""
        scripted = "[SCRIPTED] " if is_played(session.model or "") else ""
        text = line(f"{scripted}{where}{session.objective or '-'}", max(20, width - 30 - wide))
        pid = session.holder.pid if session.holder else ""
        lines.append(f"{short(session.id):<14}{standing:<{wide}}{age(now - session.time):>5}{pid:>9}  {text}")
    return lines


def age(seconds: float) -> str:
    """How long ago, in one number."""
    for size, name in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds / size:.0f}{name}"
    return f"{max(0, seconds):.0f}s"


def events(entries: Iterable[Entry], width: int) -> list[str]:
    """One line an event: number, time, type, and its data in brief."""
    lines = []
    for entry in entries:
        first = f"{entry.seq:>5} {stamp(entry.time)[11:19]} {type_of(entry.event):<24} "
        lines.append(first + line(_gist(to_builtins(entry.event)), max(20, width - len(first))))
    return lines


def _gist(data: Any) -> str:
    if not isinstance(data, dict):
        return str(data)
    return " ".join(f"{key}={_value(value)}" for key, value in data.items() if value not in (None, "", [], {}))


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_value(inner)}" for key, inner in value.items()) + "}"
    text = str(value)
    return text if len(text) <= 60 else text[:59] + "…"


class _Turn:
    def __init__(self, start: ev.TurnStart) -> None:
        self.start = start
        self.tools: Counter[str] = Counter()
        self.input = self.output = 0
        self.cost: float | None = None
        self.outcome = "runs"


def turns(entries: Iterable[Entry]) -> list[str]:
    """One line a turn: what it was for, tokens, cost, how it ended, its tools; other paid calls between them."""
    lines = [f"{'TURN':>5}  {'PURPOSE':<10}{'IN':>9}{'OUT':>8}  {'COST':<12}{'OUTCOME':<12}TOOLS"]
    found: dict[int, _Turn] = {}
    order: list[_Turn | ev.AssistantUsage] = []
    for entry in entries:
        match entry.event:
            case ev.TurnStart() as start:
                found[start.turn_id] = _Turn(start)
                order.append(found[start.turn_id])
            case ev.AssistantMessage(tool_requests=requests) if order and isinstance(order[-1], _Turn):
                order[-1].tools.update(request.name for request in requests)
            case ev.AssistantUsage(turn_id=int(number)) as usage if number in found:
                _add(found[number], usage)
            case ev.AssistantUsage() as usage:
                order.append(usage)
            case ev.TurnEnd(turn_id=number, outcome=outcome) if number in found:
                found[number].outcome = outcome
    if not order:
        return ["no turns yet"]
    return lines + [_turn_line(item) for item in order]


def _add(turn: _Turn, usage: ev.AssistantUsage) -> None:
    turn.input += usage.input_tokens
    turn.output += usage.output_tokens
    if usage.cost is not None:
        turn.cost = (turn.cost or 0.0) + usage.cost


def _turn_line(item: _Turn | ev.AssistantUsage) -> str:
    if isinstance(item, _Turn):
        tools = ", ".join(name if count == 1 else f"{name} x{count}" for name, count in item.tools.items())
        return _columns(str(item.start.turn_id), item.start.purpose, item.input, item.output, item.cost, item.outcome, tools)
    return _columns("-", item.initiator, item.input_tokens, item.output_tokens, item.cost, "ok", "")


def _columns(number: str, purpose: str, read: int, written: int, cost: float | None, outcome: str, tools: str) -> str:
    money = show("cost", cost) if cost is not None else "not known"
    return f"{number:>5}  {purpose:<10}{read:>9}{written:>8}  {money:<12}{outcome:<12}{line(tools)}".rstrip()


def stalls(entries: Iterable[Entry], rules: Rules, width: int) -> list[str]:
    """What the stall rules saw: each word of theirs with its count, period and the calls behind it, then the thresholds."""
    lines: list[str] = []
    calls: dict[int, str] = {}
    requests: dict[str, str] = {}
    for entry in entries:
        match entry.event:
            case ev.AssistantMessage(tool_requests=asked):
                requests |= {request.tool_call_id: f"{request.name} {words.call(request.arguments)}" for request in asked}
            case ev.ToolComplete() as done:
                calls[entry.seq] = requests.get(done.tool_call_id, "")
            case ev.StallNoticed() | ev.StallBlocked() | ev.StallHalted() as word:
                lines += _stall_words(entry.seq, word, calls, width)
    if not lines:
        lines = ["no stall rule has spoken"]
    if not rules.on:
        return [*lines, "", "the stall rules are off"]
    return [*lines, "", f"{'RULE':<14}{'NOTICE':>8}{'REFUSE':>8}{'HALT':>8}", *_thresholds(rules)]


def _stall_words(
    seq: int, word: ev.StallNoticed | ev.StallBlocked | ev.StallHalted, calls: dict[int, str], width: int
) -> list[str]:
    step = {ev.StallNoticed: "noticed", ev.StallBlocked: "REFUSED", ev.StallHalted: "HALTED"}[type(word)]
    every = f", every {word.period} calls" if word.period and word.period > 1 else ""
    lines = [line(f"event {seq}: {word.rule}, {words.times(word.count)}{every}: {step}", width)]
    lines += [f"    {at:>5}  {line(calls[at], width - 11)}" for at in word.seqs if at in calls]
    return lines


def _thresholds(rules: Rules) -> list[str]:
    lines = []
    for name in rules.__struct_fields__:
        rule = getattr(rules, name)
        if name in ("on", "refusals"):
            continue
        steps = "".join(f"{'-' if count >= NEVER else count:>8}" for count in (rule.notice, rule.refuse, rule.halt))
        lines.append(f"{name.replace('_', ' '):<14}{steps}")
    return [*lines, f"repeat and failing halt at refusal {rules.refusals}"]
