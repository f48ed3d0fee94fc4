"""Caps of a goal as Python says them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final

import msgspec

from endstop.core.limits import AXES, parse
from endstop.errors import UsageError

NONE: Final = "none"
"""As a limit: unlimited, said explicitly."""
Amount = float | str


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Caps of a goal, one per axis: ``Limits(cost=2, tokens="400k", wall="45m", turns=NONE, tools={"deploy": 1})``.

    A number is in the axis's unit (USD, seconds, a count); text may carry it (``2usd``, ``45m``, ``400k``). ``None`` leaves
    the default, ``endstop.NONE`` is unlimited. ``tools`` caps the calls of single tools. See docs/limits.md.

    Raises:
        UsageError: an amount is none of its unit.
    """

    cost: Amount | None = None
    tokens: Amount | None = None
    input_tokens: Amount | None = None
    output_tokens: Amount | None = None
    turns: Amount | None = None
    rounds: Amount | None = None
    tool_calls: Amount | None = None
    tool_calls_per_turn: Amount | None = None
    tool_calls_per_round: Amount | None = None
    verifications: Amount | None = None
    active: Amount | None = None
    wall: Amount | None = None
    output_per_call: Amount | None = None
    tools: Mapping[str, Amount] = {}

    def __post_init__(self) -> None:
        self.table()

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Limits:
        """Limits as the command line takes them: ``["turns=60", "wall=45m", "tool:deploy=1"]``.

        Raises:
            UsageError: an axis is not known, or an amount is none of its unit.
        """
        fields: dict[str, Any] = {"tools": {}}
        for text in texts:
            if not isinstance(text, str):
                raise UsageError(f"{text!r} is no text", where="limits", hint='write them like "turns=60"')
            axis, cap = parse(text)
            value = NONE if cap is None else cap
            if axis.startswith("tool:"):
                fields["tools"][axis[5:]] = value
            else:
                fields[_field(axis)] = value
        return cls(**fields)

    def table(self) -> dict[str, str]:
        """What is set, by axis, as a settings file says it."""
        caps = {axis: getattr(self, _field(axis)) for axis in AXES if ":" not in axis}
        caps |= {f"tool:{name}": cap for name, cap in self.tools.items()}
        return {axis: _amount(axis, cap) for axis, cap in caps.items() if cap is not None}


def _field(axis: str) -> str:
    return axis.replace("/", "_per_").replace("-", "_")


def _amount(axis: str, cap: Any) -> str:
    """An amount as text, in plain digits; refused here, where the caller's own line is in the traceback."""
    text = format(Decimal(repr(cap)), "f") if isinstance(cap, float) else str(cap)
    parse(f"{axis}={text}")
    return text


AnyLimits = Limits | Mapping[str, Amount | None] | Iterable[str] | None


def table(given: AnyLimits) -> dict[str, str]:
    """Limits in any form they may be given in, by axis.

    Raises:
        UsageError: an axis is not known, or an amount is none of its unit.
    """
    if given is None:
        return {}
    if isinstance(given, Limits):
        return given.table()
    if isinstance(given, Mapping):
        axes = {_field(axis): axis for axis in AXES}
        return {axes.get(name, name): _amount(axes.get(name, name), cap) for name, cap in given.items() if cap is not None}
    if not isinstance(given, Iterable):
        raise UsageError(f"{given!r} are no limits", where="limits", hint="give endstop.Limits(…), a dict, or a list of texts")
    return Limits.parse([given] if isinstance(given, str) else given).table()
