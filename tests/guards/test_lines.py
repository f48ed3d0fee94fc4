"""Command lines that try to get around rules, and honest ones."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from endstop.core.messages import ToolSpec
from endstop.guards.permission import Permissions

SHELL = ToolSpec(name="shell", description="", parameters={}, effect="shell", key_argument="command", own=True)
TRICKS = tomllib.loads((Path(__file__).parent / "lines.toml").read_text(encoding="utf-8"))["trick"]
KINDS = {"denied": "deny", "asked": "ask", "allowed": "allow"}
LINES = [
    pytest.param(trick, kind, line, id=f"{trick['name']}: {kind}: {line!r}")
    for trick in TRICKS
    for kind in KINDS
    for line in trick.get(kind, ())
]


@pytest.mark.parametrize(("trick", "kind", "line"), LINES)
def test_a_line_gets_what_its_rules_say(trick: dict[str, Any], kind: str, line: str) -> None:
    """Each line is denied, asked for or allowed as its group says."""
    rules = Permissions(
        trick["mode"], trick.get("allow", ()), trick.get("deny", ()), trick.get("ask", ()), sandboxed=False, network=False
    )
    verdict = rules.decide(SHELL, {"command": line})
    assert verdict.kind == KINDS[kind], verdict.why
