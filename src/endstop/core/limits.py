"""Limits on every axis, in its own unit, reserved before spending.

    cap         bound of an axis; an axis without a cap is unlimited
    spend       what has been used of it; never falls, survives resume
    reservation upper bound set aside for one paid call before it starts; the reported usage replaces it

Input of a call is at most the last reported input and output plus the bytes that came since, at the highest tokens per byte
seen (never under 1/3). Output is what still fits. So no limit is overshot by more than the provider's own miscount of one
call. A closing reserve is kept back for the handoff turn, unless it would eat more than a fifth of a cap.
"""

from __future__ import annotations

import re
from math import ceil, inf

import msgspec

from endstop.core.events import SessionError
from endstop.core.messages import Price
from endstop.errors import UsageError


class Axis(msgspec.Struct, frozen=True):
    """One dimension of spending. ``default`` None means: only on request."""

    unit: str
    scope: str
    default: float | None
    what: str


HOUR, DAY = 3600.0, 86400.0
AXES: dict[str, Axis] = {
    "cost": Axis("usd", "goal", 5.0, "money, where a price is known"),
    "tokens": Axis("tokens", "goal", 5_000_000, "all input (cached included) plus all output (reasoning included)"),
    "input-tokens": Axis("tokens", "goal", None, "input alone"),
    "output-tokens": Axis("tokens", "goal", None, "output alone"),
    "turns": Axis("turns", "goal", 200, "calls of the agent's model, recovery and closing included"),
    "rounds": Axis("rounds", "goal", 15, "input messages worked on until the model asks for no more tools"),
    "tool-calls": Axis("calls", "goal", 600, "executed tool calls"),
    "tool-calls/turn": Axis("calls", "turn", 24, "executed tool calls of one turn"),
    "tool-calls/round": Axis("calls", "round", None, "executed tool calls of one round"),
    "tool:web_search": Axis("calls", "goal", 50, "executed calls of one tool; any tool's name may stand behind the colon"),
    "verifications": Axis("checks", "goal", 6, "checks of a claim that ended in a return or an end"),
    "active": Axis("seconds", "goal", 4 * HOUR, "time in which the goal was not parked or paused"),
    "wall": Axis("seconds", "goal", 7 * DAY, "time since the goal was queued"),
    "output/call": Axis("tokens", "turn", 16_000, "output of one model call"),
}
DEFAULTS: dict[str, float] = {name: axis.default for name, axis in AXES.items() if axis.default is not None}

CLOSING = {"turns": 1.0, "tokens": 9_000.0, "input-tokens": 8_000.0, "output-tokens": 1_000.0, "active": 90.0, "wall": 90.0}
CLOSING_INPUT, CLOSING_OUTPUT = 8_000, 1_000
CLOSING_SHARE = 0.2
"""Part of a cap that the closing reserve may take; above it the handoff is written without a model."""
LEAST_OUTPUT = 1_024
"""A call that could answer with fewer tokens than this does not start."""
LEAST_RATIO = 1 / 3
"""Tokens per byte assumed before any usage was reported, and never under it."""
WARN_AT = 0.8
JUDGE_INPUT, JUDGE_LEAST_INPUT, JUDGE_OUTPUT = 24_000, 4_000, 2_000

_TIME = {"s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": HOUR, "d": DAY}
_COUNT = {"": 1.0, "k": 1e3, "m": 1e6}
_VALUE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z$]*)")


def axis_of(name: str) -> Axis:
    """The axis behind a name.

    Raises:
        UsageError: no axis has this name.
    """
    if name in AXES:
        return AXES[name]
    if name.startswith("tool:") and len(name) > 5:
        return AXES["tool:web_search"]
    raise UsageError(f"no limit is called '{name}'", where="limit", hint=f"one of {', '.join(AXES)}, tool:NAME")


def parse(text: str) -> tuple[str, float | None]:
    """``cost=2usd``, ``tokens=400k``, ``wall=45m`` or ``turns=none`` as (axis, cap); None is unlimited, said explicitly.

    Raises:
        UsageError: the axis is unknown or the value is no positive amount in its unit.
    """
    name, equals, raw = text.partition("=")
    name, raw = name.strip(), raw.strip().lower()
    axis = axis_of(name)
    if not equals or not raw:
        raise UsageError(f"'{text}' has no value", where="limit", hint=f"write {name}=VALUE or {name}=none")
    if raw == "none":
        return name, None
    match = _VALUE.fullmatch(raw)
    factor = _factor(axis.unit, match[2]) if match else None
    if match is None or factor is None:
        example = {"usd": "2usd", "seconds": "45m", "tokens": "400k"}.get(axis.unit, "60")
        raise UsageError(f"'{raw}' is not an amount in {axis.unit}", where=f"limit {name}", hint=f"for example {name}={example}")
    value = float(match[1]) * factor
    if value <= 0:
        raise UsageError("a limit must be above 0", where=f"limit {name}", hint=f"{name}=none switches it off")
    if axis.unit not in ("usd", "seconds") and value != int(value):
        raise UsageError(f"'{raw}' is not a whole number", where=f"limit {name}", hint=f"{axis.unit} are counted")
    return name, value


def _factor(unit: str, suffix: str) -> float | None:
    if unit == "usd":
        return 1.0 if suffix in ("", "usd", "$") else None
    if unit == "seconds":
        return _TIME.get(suffix or "s")
    return _COUNT.get(suffix)


class Spend(msgspec.Struct):
    """What has been used, and what is set aside for the call that runs now."""

    cost: float = 0.0
    input: int = 0
    output: int = 0
    turns: int = 0
    rounds: int = 0
    calls: int = 0
    turn_calls: int = 0
    round_calls: int = 0
    by_tool: dict[str, int] = msgspec.field(default_factory=dict)
    verifications: int = 0
    active: float = 0.0
    since: float = 0.0  # epoch seconds at which the goal was queued
    estimated: bool = False  # some of it was estimated, because a provider told nothing
    priced: bool = True  # every paid call had a price
    reserved: dict[str, float] = msgspec.field(default_factory=dict)
    warned: set[str] = msgspec.field(default_factory=set)
    last_input: int = 0
    last_output: int = 0
    ratio: float = LEAST_RATIO

    def used(self, axis: str, now: float) -> float:
        """Amount used of an axis, in its unit; ``now`` matters for wall only."""
        field = _FIELD.get(axis)
        if field is not None:
            return float(getattr(self, field))
        if axis.startswith("tool:"):
            return self.by_tool.get(axis[5:], 0)
        match axis:
            case "tokens":
                return self.input + self.output
            case "wall":
                return max(0.0, now - self.since)
            case "output/call":
                return 0
        raise KeyError(axis)

    def as_dict(self, now: float, *, ending: bool = False) -> dict[str, float]:
        """All axes for reports; money rounded to a millionth of a dollar, what is counted in whole numbers.

        ``ending``: the goal is about to end by a check, which counts with its end.
        """
        axes = [a for a in AXES if a not in ("output/call", "tool:web_search", "tool-calls/turn", "tool-calls/round")]
        out = {axis: round(self.used(axis, now), 6) for axis in axes}
        out = {axis: amount if AXES[axis].unit in ("usd", "seconds") else int(amount) for axis, amount in out.items()}
        out["verifications"] += ending
        return out | {f"tool:{name}": n for name, n in sorted(self.by_tool.items())}


_FIELD = {
    "cost": "cost",
    "input-tokens": "input",
    "output-tokens": "output",
    "turns": "turns",
    "rounds": "rounds",
    "tool-calls": "calls",
    "tool-calls/turn": "turn_calls",
    "tool-calls/round": "round_calls",
    "verifications": "verifications",
    "active": "active",
}


class Full(msgspec.Struct, frozen=True):
    """What comes next does not fit: the axis, what is spent of it, its cap."""

    axis: str
    spent: float
    cap: float


class Reservation(msgspec.Struct, frozen=True):
    """Upper bound of one paid call per axis, and the output it may use."""

    amounts: dict[str, float]
    max_output: int
    input: int = 0


Caps = dict[str, float]


def closing_reserve(caps: Caps, price: Price | None) -> dict[str, float]:
    """What is kept back for the closing turn; empty where it would take over a fifth of a cap: then no model closes."""
    reserve = dict(CLOSING)
    if price is not None:
        reserve["cost"] = CLOSING_INPUT * max(price.input, price.cache_write) + CLOSING_OUTPUT * price.output
    for axis, amount in reserve.items():  # several times a turn, so no generator
        if axis in caps and amount > CLOSING_SHARE * caps[axis]:
            return {}
    return reserve


def expected_input(spend: Spend, bytes_all: int, bytes_since: int) -> int:
    """Upper bound of the next request's input tokens."""
    if spend.last_input == 0:
        return ceil(bytes_all * spend.ratio)
    return spend.last_input + spend.last_output + ceil(bytes_since * spend.ratio)


def reserve(
    spend: Spend,
    caps: Caps,
    *,
    input: int,
    want: int,
    price: Price | None,
    keep: dict[str, float],
    turn: bool,
    least: int = LEAST_OUTPUT,
) -> Reservation | Full:
    """Set aside a paid call, or say what is full.

    Args:
        input: upper bound of its input tokens.
        want: the most output the model can give.
        keep: the closing reserve (``closing_reserve``), or empty for the closing turn itself.
        turn: whether it counts on turns (the judge does not).
        least: output below which the call is not worth starting.
    """
    if turn and "turns" in caps and spend.turns + 1 + keep.get("turns", 0) > caps["turns"]:
        return Full("turns", spend.turns, caps["turns"])
    output, least = min(want, int(caps.get("output/call", inf)) if "output/call" in caps else want), min(least, want)
    dearest = max(price.input, price.cache_write) if price else 0.0
    left = {axis: caps[axis] - spend.used(axis, 0) - keep.get(axis, 0) for axis in _POTS if axis in caps}
    if left.get("input-tokens", inf) < input:
        return Full("input-tokens", spend.input, caps["input-tokens"])
    for axis in ("tokens", "output-tokens", "cost"):
        if axis not in left:
            continue
        room = left[axis]
        if axis == "tokens":
            room -= input
        elif axis == "cost":
            if price is None:
                continue
            room = (room - input * dearest) / price.output if price.output else (inf if room >= input * dearest else -1)
        if room < least:
            return Full(axis, spend.used(axis, 0), caps[axis])
        output = min(output, int(min(room, 1e12)))
    amounts = {"tokens": float(input + output), "input-tokens": float(input), "output-tokens": float(output)}
    if price is not None:
        amounts["cost"] = input * dearest + output * price.output
    return Reservation(amounts, output, input)


_POTS = ("tokens", "input-tokens", "output-tokens", "cost")


def call_full(spend: Spend, caps: Caps, tool: str, begun: int, same: int = 0) -> Full | None:
    """Whether one more call of a tool fits beside ``begun`` others that start with it, ``same`` of them of this tool; else
    what is full."""
    for axis in ("tool-calls/turn", "tool-calls/round", "tool-calls"):
        if axis in caps and spend.used(axis, 0) + begun >= caps[axis]:
            return Full(axis, spend.used(axis, 0) + begun, caps[axis])
    axis = f"tool:{tool}"
    used = spend.by_tool.get(tool, 0) + same
    return Full(axis, used, caps[axis]) if axis in caps and used >= caps[axis] else None


def deadline(spend: Spend, caps: Caps, keep: dict[str, float], now: float, active_now: float) -> float:
    """Epoch seconds at which wall or active are full, whichever is first; infinite where neither is limited."""
    wall = spend.since + caps["wall"] - keep.get("wall", 0) if "wall" in caps else inf
    active = now + caps["active"] - keep.get("active", 0) - active_now if "active" in caps else inf
    return min(wall, active)


def warnings(spend: Spend, caps: Caps, now: float) -> list[Full]:
    """Axes of the goal that passed 80 % and were not warned of yet."""
    due = []
    for axis, cap in caps.items():
        if axis in spend.warned or axis_of(axis).scope != "goal":
            continue
        used = spend.used(axis, now)
        if used >= WARN_AT * cap:
            due.append(Full(axis, used, cap))
    return due


def limit_error(full: Full) -> SessionError:
    """How a conversation without a goal learns that a limit is full."""
    text = f"the limit {full.axis} is full"
    return SessionError(error_type="limit", message=text, hint=f"raise it: -l {full.axis}=MORE")


def show(axis: str, amount: float) -> str:
    """An amount in words: ``1.25 usd``, ``412k tokens``, ``1 turn``, ``45m``."""
    unit = axis_of(axis).unit
    if amount == 1 and unit not in ("usd", "seconds"):
        return f"1 {unit.removesuffix('s')}"
    if unit == "usd":
        return f"{amount:.2f} usd" if amount >= 0.01 or amount == 0 else f"{amount:.5f} usd"
    if unit == "seconds":
        for size, name in ((DAY, "d"), (HOUR, "h"), (60.0, "m")):
            if amount >= size:
                return f"{amount / size:.1f}".removesuffix(".0") + name
        return f"{amount:.0f}s"
    if amount >= 1e6:
        return f"{amount / 1e6:.2f}".rstrip("0").rstrip(".") + f"M {unit}"
    if amount >= 1e4:
        return f"{amount / 1e3:.0f}k {unit}"
    return f"{amount:.0f} {unit}"
