"""spend: what was spent, added up over all journals."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path

import msgspec

from endstop.cli import exits, here, out
from endstop.cli.view import short
from endstop.core import codec
from endstop.core import events as ev
from endstop.core.codec import Entry
from endstop.core.limits import show
from endstop.errors import StoreCorrupt, UsageError
from endstop.settings import Settings
from endstop.store.open import Store
from endstop.store.sessions import SessionRow

UNITS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
USAGE = b'"type":"assistant.usage"'
HEAD = 400
"""Bytes of a line among which its type stands."""
BY: dict[str, Callable[[SessionRow, Entry, ev.AssistantUsage], str]] = {
    "model": lambda row, entry, usage: usage.model,
    "day": lambda row, entry, usage: datetime.fromtimestamp(entry.time).strftime("%Y-%m-%d"),
    "goal": lambda row, entry, usage: f"{short(row.id)} {row.objective or row.kind}",
}


class Sum(msgspec.Struct):
    """Paid calls added up. ``unpriced`` of them have no known cost, ``estimated`` no reported tokens."""

    calls: int = 0
    input: int = 0
    output: int = 0
    cost: float = 0.0
    unpriced: int = 0
    estimated: int = 0

    def add(self, usage: ev.AssistantUsage) -> None:
        """Count one call."""
        self.calls += 1
        self.input += usage.input_tokens
        self.output += usage.output_tokens
        self.cost += usage.cost or 0.0
        self.unpriced += usage.cost is None
        self.estimated += usage.estimated


def spend(workspace: Path | None, since: str | None, by: str) -> int:
    """Print sums by goal, model or day, and their total."""
    if by not in BY:
        raise UsageError(f"{by!r} is nothing to add up by", where="--by", hint=f"one of {', '.join(BY)}")
    begin = moment(since, time.time()) if since else 0.0

    async def work(store: Store, settings: Settings) -> dict[str, Sum]:
        found: dict[str, Sum] = {}
        for row in await store.sessions(settings.workspace if workspace else None):
            if row.time < begin:
                break  # the latest come first
            for entry, usage in usages(row.id, await store.lines(row.id)):
                if entry.time >= begin:
                    found.setdefault(BY[by](row, entry, usage), Sum()).add(usage)
        return found

    out.say(table(here.with_store(workspace, work), by, out.columns()))
    return exits.OK


def usages(id: str, lines: Iterable[bytes]) -> Iterable[tuple[Entry, ev.AssistantUsage]]:
    """The paid calls of a journal; nothing else in it is read.

    Raises:
        StoreCorrupt: one of them cannot be read.
    """
    for line in lines:
        if USAGE not in line[:HEAD]:
            continue
        try:
            entry = codec.decode(line)
        except codec.BadLine as error:
            raise StoreCorrupt(f"cannot be read: {error}", where=id, hint=f"endstop verify {short(id)}") from None
        if isinstance(entry.event, ev.AssistantUsage):
            yield entry, entry.event


def moment(text: str, now: float) -> float:
    """``7d``, ``12h`` or a date (local midnight) as epoch seconds.

    Raises:
        UsageError: it is none of these.
    """
    age = re.fullmatch(r"(\d+)\s*([mhdw])", text.strip().lower())
    if age:
        return now - int(age[1]) * UNITS[age[2]]
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError, OSError):
        raise UsageError(f"{text!r} is neither an age nor a date", where="--since", hint="like 7d, 12h or 2026-11-01") from None


def table(found: dict[str, Sum], by: str, width: int) -> list[str]:
    """One line a sum, the dearest first (days in order), and the total."""
    if not found:
        return ["nothing was spent"]
    order = sorted(found) if by == "day" else sorted(found, key=lambda name: (-found[name].cost, -found[name].input, name))
    room = max(20, width - 46)
    lines = [f"{by.upper():<{room}} {'CALLS':>7}{'IN':>12}{'OUT':>10}  COST"]
    lines += [_line(name, found[name], room) for name in order]
    total = Sum()
    for one in found.values():
        for field in one.__struct_fields__:
            setattr(total, field, getattr(total, field) + getattr(one, field))
    if len(found) > 1:
        lines.append(_line("total", total, room))
    if total.estimated:
        lines.append(f"{total.estimated} calls reported no tokens: theirs are estimated")
    return lines


def _line(name: str, one: Sum, room: int) -> str:
    if one.unpriced == one.calls:
        cost = "not known"
    else:
        cost = show("cost", one.cost) + (f" + {one.unpriced} unpriced" if one.unpriced else "")
    return f"{out.line(name, room):<{room}} {one.calls:>7}{one.input:>12}{one.output:>10}  {cost}"
