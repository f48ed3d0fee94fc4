"""What is known of the workspace and of the criteria: fresh or stale, red or green, and what that shows.

A criterion (gate or deliverable) discriminates if it was red or absent at the start and is green now: then the work has
shown itself. A gate that was green before and is green after shows nothing of the objective.
"""

from __future__ import annotations

import msgspec

from endstop.core.events import Contract, Gate, GateFinished, GoalJudged, ReturnedWhy, WorkspaceObserved


class GateState(msgspec.Struct):
    """One gate. ``world`` and ``fingerprint`` are those its last result belongs to."""

    baseline: str = ""  # pass, fail, broken; empty where it did not run
    baseline_collected: int | None = None
    outcome: str = ""
    output: str = ""
    exit_code: int | None = None
    failing: list[str] | None = None
    collected: int | None = None
    retries: int | None = None
    seq: int = 0
    world: int = -1
    fingerprint: str = ""
    started: bool = False
    broken: int = 0  # in a row
    absent: bool = False  # its command was not found at the start: the work has to bring it


class Returned(msgspec.Struct, frozen=True):
    """The last return, to answer the same claim in the same world again."""

    why: ReturnedWhy
    missing: list[str]
    world: int
    fingerprint: str


class Evidence(msgspec.Struct):
    """Everything that is evidence, as of the last look."""

    world: int = 0
    looked: int = -1  # world at the last look
    look: WorkspaceObserved | None = None
    baseline: WorkspaceObserved | None = None
    fingerprint: str = ""
    gates: dict[str, GateState] = msgspec.field(default_factory=dict)
    reads: int = 0  # read-only calls in a row since world last rose
    ready_world: int = -1  # world at which readiness was tried
    confronted: int = -1  # world at the last confrontation
    blocked_confronted: bool = False
    returned: Returned | None = None
    verdict: GoalJudged | None = None
    verdict_seq: int = 0
    judge_fault: str = ""
    judge_broken: int = 0  # unreadable, unreachable or declined in a row
    parks: int = 0  # times in a row the goal was parked for its verifier
    broken_since: float = 0.0  # when it was parked so first
    judge_name: str = ""
    judge_independent: bool = True
    impossible: str = ""  # the judge said so once already
    tool_lines: int = 0  # results since the goal began

    def touch(self) -> None:
        """An effectful call begins: gates and looks from before are older than the world."""
        self.world += 1
        self.reads = 0

    @property
    def untouched(self) -> bool:
        """Nothing was begun, or all that was begun left the workspace as it was at the start."""
        if self.world == 0:
            return True
        return self.baseline is not None and self.looked == self.world and self.fingerprint == self.baseline.fingerprint


def fresh(evidence: Evidence, gate: Gate) -> bool:
    """Whether the gate's last result belongs to the world and the workspace as they are."""
    state = evidence.gates.get(gate.gate_id)
    return (
        state is not None
        and state.outcome in ("pass", "fail")
        and state.world == evidence.world
        and state.fingerprint == evidence.fingerprint
    )


NOT_FOUND = 127
"""Exit status of a shell for a command it does not find."""


def finished(evidence: Evidence, state: GateState, event: GateFinished, seq: int) -> bool:
    """Take in a gate's result; True if it is progress: a failing gate passes, or fails in fewer tests."""
    outcome = event.outcome
    if outcome == "broken" and event.exit_code == NOT_FOUND and (state.absent or not state.baseline):
        outcome, state.absent = "fail", True
    better = state.outcome == "fail" and (
        outcome == "pass"
        or (
            outcome == "fail"
            and bool(event.failing)
            and bool(state.failing)
            and len(event.failing or ()) < len(state.failing or ())
        )
    )
    state.outcome, state.output, state.exit_code = outcome, event.output, event.exit_code
    state.failing, state.collected, state.retries = event.failing, event.collected, event.retries
    state.seq, state.world, state.fingerprint, state.started = seq, evidence.world, event.fingerprint, False
    if outcome != "broken" and state.broken:
        evidence.parks = 0
    state.broken = state.broken + 1 if outcome == "broken" else 0
    return better


def last_try(evidence: Evidence, broken: int) -> None:
    """After a wait for the verifier: one more broken check parks again."""
    evidence.judge_broken = min(evidence.judge_broken, broken - 1)
    for gate in evidence.gates.values():
        gate.broken = min(gate.broken, broken - 1)


def red_gates(evidence: Evidence, contract: Contract) -> list[str]:
    """Missing items for the gates that do not pass."""
    missing = []
    for gate in contract.gates:
        state = evidence.gates.get(gate.gate_id)
        if state is None or state.outcome != "pass":
            missing.append(f"gate fails: {gate.run}" + (_why(state) if state else " (not run)"))
    return missing


def _why(state: GateState) -> str:
    if state.failing:
        more = f" and {len(state.failing) - 3} more" if len(state.failing) > 3 else ""
        return f" ({', '.join(state.failing[:3])}{more})"
    return f" (exit {state.exit_code})" if state.exit_code is not None else ""


def absent(evidence: Evidence, contract: Contract) -> list[str]:
    """Missing items for the deliverables: absent, empty, or the same as at the start."""
    now = evidence.look.deliverables if evidence.look else {}
    start = evidence.baseline.deliverables if evidence.baseline else {}
    missing = []
    for path in contract.deliverables:
        state = now.get(path, "absent")
        if state in ("absent", "empty"):
            missing.append(f"deliverable {state}: {path}")
        elif start.get(path) == state:
            missing.append(f"deliverable unchanged since the start: {path}")
    return missing


def tampered(evidence: Evidence, contract: Contract) -> list[str]:
    """Missing items for named verifier inputs that were changed."""
    if contract.protect == "flag" or evidence.look is None:
        return []
    return [f"verifier input modified: {path}" for path in evidence.look.named]


def discriminating(evidence: Evidence, contract: Contract) -> list[str]:
    """Criteria that were red or absent at the start and are green now."""
    shown = []
    changed = evidence.look is not None and bool(evidence.look.protected or evidence.look.named) and contract.protect != "flag"
    for gate in () if changed else contract.gates:  # green, but not by the checks that were there at the start
        state = evidence.gates.get(gate.gate_id)
        if state and state.outcome == "pass" and state.baseline == "fail" and fresh(evidence, gate):
            shown.append(f"gate {gate.run} (red at the start, green now)")
    if evidence.baseline is not None:
        gone = set(absent(evidence, contract))
        for path in contract.deliverables:
            if not any(item.endswith(f": {path}") for item in gone):
                shown.append(f"deliverable {path}")
    return shown


def may_show(evidence: Evidence, contract: Contract) -> bool:
    """Whether any criterion was red or absent at the start, so that readiness could ever show something."""
    if evidence.baseline is None:
        return False
    return bool(contract.deliverables) or any(state.baseline == "fail" for state in evidence.gates.values())


def standing(evidence: Evidence, missing: list[str]) -> str:
    """What "no progress" compares: missing items, gate results and the fingerprint."""
    gates = ",".join(f"{name}={state.outcome}:{len(state.failing or ())}" for name, state in sorted(evidence.gates.items()))
    return "\n".join([*missing, gates, evidence.fingerprint])


def confrontation(evidence: Evidence, contract: Contract, open_items: list[str], missing: list[str]) -> str:
    """The text a first claim is answered with: evidence read fresh, and a short checklist. Shapes no verdict."""
    look = evidence.look
    parts = ["Before this counts as done, here is what can be seen right now."]
    if missing:
        parts.append("Missing:\n" + "\n".join(f"- {item}" for item in missing))
    for gate in contract.gates:
        state = evidence.gates.get(gate.gate_id)
        if state is not None:
            parts.append(gate_report(gate, state))
    if contract.deliverables and look is not None:
        parts.append(
            "Deliverables:\n"
            + "\n".join(f"- {path}: {look.deliverables.get(path, 'absent')[:12]}" for path in contract.deliverables)
        )
    if look is not None and (look.named or look.protected):
        listed = "\n".join(f"- {path}" for path in dict.fromkeys([*look.named, *look.protected]))
        parts.append(f"Changed files that the verification relies on:\n{listed}")
    if open_items:
        parts.append("Open items of your plan:\n" + "\n".join(f"- {item}" for item in open_items))
    changed = look.diff.strip() if look is not None and look.diff.strip() else "nothing"
    parts.append(f"Changed since the start:\n{changed}")
    parts.append(CHECKLIST)
    return "\n\n".join(parts)


CHECKLIST = """\
Ask yourself: does this do all of what the goal asks, or part of it? Did you see it work, or do you expect it to? Is anything
left over that you created only on the way? If it holds, call task_complete again. If not, go on working."""


def gate_report(gate: Gate, state: GateState) -> str:
    """One gate in words, with the end of its output where it does not pass."""
    was = f", at the start: {state.baseline}" if state.baseline else ""
    fewer = ""
    if state.collected is not None and state.baseline_collected is not None and state.collected < state.baseline_collected:
        fewer = f"\nFewer tests were collected than at the start: {state.collected}, then {state.baseline_collected}."
    retried = f", after {state.retries} retries" if state.retries else ""
    head = f"Gate `{gate.run}`: {state.outcome} (exit {state.exit_code}{was}{retried}){fewer}"
    return head if state.outcome == "pass" else f"{head}\n{state.output[-2000:].strip()}"
