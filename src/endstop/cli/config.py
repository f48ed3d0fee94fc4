"""The settings that hold somewhere, each with where it came from. A secret is never among them, only that it is set."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from endstop.cli.out import line
from endstop.core.limits import AXES, show
from endstop.core.stall import NEVER, Rule
from endstop.guards.redaction import Redactor
from endstop.settings import DEFAULT, Settings

Row = tuple[str, Any]
KEY = 24
"""Columns of a key."""


def page(settings: Settings, width: int) -> list[str]:
    """One line a setting: its key, its value as it would stand in a file, and its source."""
    clean = Redactor(list(settings.keys().values())).clean
    lines = []
    for key, value in values(settings):
        lines.append(f"{key:<{KEY}} {line(clean(_written(value)), max(20, width - KEY - 20))}  ({source(settings, key)})")
    lines += [f"{name:<{KEY}} is set, and never shown" for name in sorted(settings.keys())]
    return lines


def values(settings: Settings) -> Iterator[Row]:
    """Every key of a settings file with the value that holds."""
    contract, policy = settings.contract, settings.policy
    yield from {"model": settings.model, "fallbacks": list(settings.fallbacks), "effort": settings.effort}.items()
    for key in ("judge", "rubric"):
        yield key, getattr(contract, key)
    yield from {"workspace": str(settings.workspace), "home": str(settings.home)}.items()
    yield "gate", [gate.run for gate in contract.gates]
    yield "hook", [hook.run for hook in contract.hooks]
    yield from {"deliverables": contract.deliverables, "protect": [contract.protect, *contract.inputs]}.items()
    for key in ("confront", "review", "baseline"):
        yield key, getattr(contract, key)
    yield from {"on_halt": policy.on_halt, "accept_claimed": policy.accept_claimed, "retry": settings.retries}.items()
    for axis in dict.fromkeys([*AXES, *settings.limits]):
        yield f"limits.{axis}", show(axis, settings.limits[axis]) if axis in settings.limits else "none"
    for key in ("mode", "allow", "deny", "ask", "network", "humans"):
        yield f"permissions.{key}", getattr(policy, key)
    yield from _stall(settings)
    for name, provider in settings.providers.items():
        yield from ((f"providers.{name}.{key}", value) for key, value in msgspec.structs.asdict(provider).items() if value)


def _stall(settings: Settings) -> Iterator[Row]:
    rules = settings.stall
    for name in rules.__struct_fields__:
        value = getattr(rules, name)
        if isinstance(value, Rule):
            steps = {step: getattr(value, step) for step in ("notice", "refuse", "halt")}
            value = {step: "never" if count >= NEVER else count for step, count in steps.items()}
        yield f"stall.{name}", value


def source(settings: Settings, key: str) -> str:
    """Where a value came from; of a table, from wherever parts of it came."""
    below = [where for name, where in settings.origin.items() if name == key or name.startswith(f"{key}.")]
    return ", ".join(dict.fromkeys(below)) or DEFAULT


def _written(value: Any) -> str:
    if value is None:
        return "(not set)"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_written(inner)}" for key, inner in value.items()) + " }"
    return msgspec.json.encode(value).decode()
