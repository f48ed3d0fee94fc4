"""The report every ended goal leaves: what it came to, what shows it, what is open, what it cost, how to go on."""

from __future__ import annotations

from typing import Any, Literal

from endstop.core import evidence as known
from endstop.core.events import GoalEnded, Phase
from endstop.core.goal import State, active_now
from endstop.core.limits import CLOSING_INPUT, show

EndedBy = Literal["claim", "answer", "readiness", "limit", "stall", "report", "error", "person"]
ENDED_BY: dict[str, EndedBy] = {
    "capped": "limit",
    "stuck": "stall",
    "blocked": "report",
    "failed": "error",
    "cancelled": "person",
}
NEXT = {
    "capped": "raise the limit and resume: endstop resume ID -l {limit}=MORE",
    "stuck": 'read the pattern (endstop show ID --stall), then resume with a hint: endstop resume ID --note "…"',
    "blocked": 'give what is needed, then: endstop resume ID --note "…"',
    "failed": "repair the cause named above, then: endstop resume ID",
    "cancelled": "to go on: endstop resume ID",
}


def ending(state: State, now: float, phase: Phase, *, verified_by: list[str], ended_by: EndedBy | None = None) -> GoalEnded:
    """The event that ends the goal, with its handoff."""
    missing = [] if phase == "done" else open_items(state)
    return GoalEnded(
        phase=phase,
        verified=bool(verified_by) and phase == "done",
        verified_by=verified_by,
        ended_by=ended_by or ENDED_BY[phase],
        missing=missing,
        handoff=handoff(state, now, phase, verified_by, missing),
    )


def open_items(state: State) -> list[str]:
    """What is missing as far as evidence goes, and the open items of the plan."""
    goal, seen = state.goal, state.evidence
    assert goal is not None
    if seen.baseline is None:
        missing = ["the goal was not started"]
    else:
        missing = known.absent(seen, goal.contract) + known.tampered(seen, goal.contract) + known.red_gates(seen, goal.contract)
        if seen.returned is not None:
            missing += [
                item for item in seen.returned.missing if item not in missing and seen.returned.why in ("judge", "impossible")
            ]
    if goal.closing is not None and goal.closing.detail.get("missing"):
        missing.append(str(goal.closing.detail["missing"]))
    return missing + [f"plan: {item.text}" for item in state.plan if item.status == "open"]


def handoff(state: State, now: float, phase: Phase, verified_by: list[str], missing: list[str]) -> dict[str, Any]:
    """The structured report. Sequence numbers point into the journal."""
    goal, seen = state.goal, state.evidence
    assert goal is not None
    closing = goal.closing
    gates = [
        {
            "run": gate.run,
            "atStart": seen.gates[gate.gate_id].baseline or None,
            "now": seen.gates[gate.gate_id].outcome,
            "fresh": known.fresh(seen, gate),
            "event": seen.gates[gate.gate_id].seq,
        }
        for gate in goal.contract.gates
        if gate.gate_id in seen.gates
    ]
    report: dict[str, Any] = {
        "objective": goal.queued.objective,
        "phase": phase,
        "verified": bool(verified_by) and phase == "done",
        "verifiedBy": verified_by,
        "reason": closing.reason if closing else _why_claimed(state, verified_by),
        "missing": missing,
        "gates": gates,
        "deliverables": dict(seen.look.deliverables) if seen.look else {},
        "changedFiles": list(seen.look.paths) if seen.look else [],
        "protectedChanged": list(dict.fromkeys([*seen.look.named, *seen.look.protected])) if seen.look else [],
        "plan": [{"text": item.text, "status": item.status} for item in state.plan],
        "spend": state.spend.as_dict(now, ending=phase == "done") | {"active": round(active_now(state, now), 3)},
        "denied": state.denied,
        "spendEstimated": state.spend.estimated,
        "priced": state.spend.priced,
        "summary": _summary(state),
    }
    if closing is not None:
        report["detail"] = closing.detail
        report["next"] = NEXT[phase].format(limit=closing.detail.get("limit", "LIMIT"))
    return report


def _why_claimed(state: State, verified_by: list[str]) -> str:
    if verified_by:
        return "verified"
    goal, look = state.goal, state.evidence.look
    if goal is not None and goal.contract.gates and look is not None and look.protected:
        return f"the gates are green, but files they rely on were changed: {', '.join(look.protected[:5])}"
    if goal is not None and goal.contract.gates:
        return "gates still green, nothing shows the objective"
    return "claimed: nothing that looked could show the objective"


def _summary(state: State) -> str:
    goal = state.goal
    assert goal is not None
    if goal.closing is not None:
        return goal.closing.text
    return goal.claim.summary if goal.claim else ""


CLOSING_SYSTEM = (
    "You are writing the handoff of a goal that ends now. You have no tools. In at most 200 words, for an engineer who goes on "
    "with it: what was tried, what was learned, what is open, and the next step you would take. Only what the facts below show."
)


def closing_prompt(state: State) -> str:
    """The closing turn's only message, built from state; with its system text it fits into what is reserved for it."""
    goal = state.goal
    assert goal is not None
    assert goal.closing is not None
    spend = state.spend
    parts = [
        f"Objective: {goal.queued.objective[:4000]}",
        f"It ends as: {goal.closing.target}. Reason: {goal.closing.reason[:1000]}",
        "Missing:\n" + ("\n".join(f"- {item[:300]}" for item in open_items(state)[:40])[:4000] or "- nothing known"),
        f"Spent: {spend.turns} turns, {spend.calls} tool calls, {show('tokens', spend.input + spend.output)}",
    ]
    if state.evidence.look is not None:
        parts.append("Changed files: " + (", ".join(state.evidence.look.paths[:60])[:3000] or "none"))
    texts = [message.text for message in state.window.messages[-12:] if message.text]
    parts.append("The last of the conversation:\n" + "\n---\n".join(text[-700:] for text in texts))
    text = "\n\n".join(parts)[: CLOSING_INPUT * 2]
    room = int(CLOSING_INPUT / spend.ratio) - len(CLOSING_SYSTEM)
    return text.encode(errors="replace")[:room].decode(errors="ignore")
