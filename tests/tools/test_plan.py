"""The plan: nothing open gets lost."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from endstop.core.events import PlanItem, SessionPlanChanged
from endstop.ports import Invocation, Outcome
from endstop.tools.plan import Plan

PLAN = [
    PlanItem(id="1", text="read", status="done"),
    PlanItem(id="2", text="write", status="open"),
    PlanItem(id="x", text="test", status="open"),
]


def plan(items: list[dict[str, Any]], before: list[PlanItem] | None = None) -> Outcome:
    call = Invocation(tool_call_id="c", arguments={"items": items}, key="k", workspace=Path("/w"), plan=before or [])
    return asyncio.run(Plan().run(call))


def items_of(outcome: Outcome) -> list[PlanItem]:
    (event,) = outcome.events
    assert isinstance(event, SessionPlanChanged)
    return event.items


def test_a_new_plan_gets_ids() -> None:
    """Items without an id are numbered, and the whole plan is one event and one text."""
    outcome = plan([{"text": "a", "status": "open"}, {"text": "b", "status": "done", "id": "1"}])
    assert [(item.id, item.text, item.status) for item in items_of(outcome)] == [("2", "a", "open"), ("1", "b", "done")]
    assert outcome.content == "[ ] 2 a\n[x] 1 b"


def test_items_are_found_by_id_or_text() -> None:
    """An item keeps its id by its text, may be reworded by its id, and a closed one may go."""
    outcome = plan(
        [
            {"text": "write", "status": "done"},
            {"id": "x", "text": "test it", "status": "dropped", "reason": "no tests here"},
            {"text": "new", "status": "open"},
        ],
        PLAN,
    )
    assert [(item.id, item.text) for item in items_of(outcome)] == [("2", "write"), ("x", "test it"), ("3", "new")]
    assert "[-] x test it (no tests here)" in outcome.content


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ([], ['2 "write"', 'x "test"']),
        ([{"text": "write", "status": "done"}], ['x "test"']),
        ([{"text": "write", "status": "done"}, {"text": "test", "status": "dropped"}], ['"test" is dropped without a reason']),
        ([{"text": "write", "status": "done"}, {"text": "test", "status": "dropped", "reason": " "}], ["without a reason"]),
        ([{"text": "a", "status": "open", "id": "2"}, {"text": "write", "status": "open"}], ["two items have the id 2"]),
    ],
)
def test_an_open_item_cannot_vanish(items: list[dict[str, Any]], words: list[str]) -> None:
    """A plan that forgets open items is refused, naming them, and changes nothing."""
    outcome = plan(items, PLAN)
    assert not outcome.success
    assert not outcome.events
    assert all(word in outcome.content for word in words)


def test_an_unchanged_plan_is_no_event() -> None:
    """Saying the same plan again records nothing."""
    outcome = plan([{"id": item.id, "text": item.text, "status": item.status} for item in PLAN], PLAN)
    assert (outcome.success, outcome.events) == (True, [])
