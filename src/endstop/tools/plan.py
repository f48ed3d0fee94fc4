"""``plan``: the agent's own list of what is to be done, kept in the journal so that nothing open gets lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from endstop.core.events import PlanItem, SessionPlanChanged
from endstop.ports import Invocation, Outcome
from endstop.tools.functions import FunctionTool

_MARK = {"open": "[ ]", "done": "[x]", "dropped": "[-]"}


class Item(msgspec.Struct, forbid_unknown_fields=True):
    """An item as the model writes it. Without an ``id`` it is the item of the same text, or a new one."""

    text: Annotated[str, msgspec.Meta(min_length=1, max_length=500)]
    status: Literal["open", "done", "dropped"] = "open"
    id: str | None = None
    reason: Annotated[str, msgspec.Meta(description="Why it is dropped.")] | None = None


class Plan(FunctionTool[..., object]):
    """``plan(items)``: replaces the whole plan."""

    def __init__(self) -> None:
        super().__init__(self._plan, name="plan", effect="read")

    async def _plan(self, items: Annotated[list[Item], msgspec.Meta(max_length=100)], call: Invocation) -> Outcome:
        """Write down the plan: always all of its items. An open item stays until it is done, or dropped with a reason.

        Args:
            items: Every item of the plan, in order.
        """
        new = _numbered(items, call.plan)
        _keep_open(new, call.plan)
        text = "\n".join(_row(item) for item in new) or "(the plan is empty)"
        if new == list(call.plan):
            return Outcome(success=True, content=f"{text}\n(unchanged)")
        operation = "update" if call.plan else "create"
        return Outcome(success=True, content=text, events=[SessionPlanChanged(operation=operation, items=new)])


def _numbered(items: Sequence[Item], plan: Sequence[PlanItem]) -> list[PlanItem]:
    """The items with their ids.

    Raises:
        ValueError: an id twice, or dropped without a reason.
    """
    known = {item.text: item.id for item in plan}
    given = {item.id for item in items if item.id} | {item.id for item in plan}
    new: list[PlanItem] = []
    for item in items:
        name = item.id or known.get(item.text) or _free(given)
        given.add(name)
        if item.status == "dropped" and not (item.reason or "").strip():
            raise ValueError(f'"{item.text}" is dropped without a reason; give one')
        if any(other.id == name for other in new):
            raise ValueError(f'two items have the id {name}: one of them is "{item.text}"; leave the id out for a new item')
        new.append(PlanItem(id=name, text=item.text, status=item.status, reason=item.reason))
    return new


def _free(taken: set[str]) -> str:
    return next(str(number) for number in range(1, len(taken) + 2) if str(number) not in taken)


def _keep_open(new: Sequence[PlanItem], plan: Sequence[PlanItem]) -> None:
    """Refuse a plan that forgets open items.

    Raises:
        ValueError: names them.
    """
    kept = {item.id for item in new}
    lost = [f'{item.id} "{item.text}"' for item in plan if item.status == "open" and item.id not in kept]
    if lost:
        raise ValueError(f"open items would vanish: {', '.join(lost)}; keep them, or mark them done, or dropped with a reason")


def _row(item: PlanItem) -> str:
    because = f" ({item.reason})" if item.reason else ""
    return f"{_MARK[item.status]} {item.id} {item.text}{because}"
