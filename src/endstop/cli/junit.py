"""A report as JUnit XML, which CI systems show: gates, deliverables and the goal itself as test cases."""

from __future__ import annotations

from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from endstop.cli import exits
from endstop.core.goal import State

FAILED = frozenset({"done", "capped", "stuck", "blocked"})
"""Phases whose goal was not reached; in failed and cancelled it could not be pursued."""


def render(facts: dict[str, Any], state: State) -> str:
    """The document.

    Args:
        facts: of ``report.build``.
        state: for what the gates printed.
    """
    suite = Element("testsuite", name="endstop", time=f"{facts['spend'].get('active', 0.0):.3f}")
    _goal(suite, facts)
    for gate in state.goal.contract.gates if state.goal else ():
        known = state.evidence.gates.get(gate.gate_id)
        case = SubElement(suite, "testcase", classname="endstop.gate", name=_clean(gate.run))
        if known is None or not known.outcome:
            SubElement(case, "skipped", message="not run")
        elif known.outcome != "pass":
            said = f"exit status {known.exit_code}" if known.exit_code is not None else known.outcome
            problem = SubElement(case, "failure" if known.outcome == "fail" else "error", message=said, type=known.outcome)
            problem.text = _clean(known.output)
    for path in state.goal.contract.deliverables if state.goal else ():
        found = facts["deliverables"].get(path)
        case = SubElement(suite, "testcase", classname="endstop.deliverable", name=_clean(path))
        if found is None:
            SubElement(case, "skipped", message="not looked at")
        elif found in ("absent", "empty"):
            SubElement(case, "failure", message=found, type=found)
    for kind, attribute in (("testcase", "tests"), ("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        suite.set(attribute, str(len(list(suite.iter(kind)))))
    indent(suite)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{tostring(suite, encoding="unicode")}\n'


def _goal(suite: Element, facts: dict[str, Any]) -> None:
    case = SubElement(suite, "testcase", classname="endstop.goal", name=_clean(facts["objective"]))
    if facts["exitCode"] == exits.OK:
        return
    phase, standing = facts["phase"], facts["standing"]
    kind = "skipped" if phase in ("waiting", "paused") else "failure" if phase in FAILED else "error"
    problem = SubElement(case, kind, message=_clean(f"{standing}: {facts['reason']}"), type=standing)
    problem.text = _clean("\n".join(facts["missing"]))


def _clean(text: str) -> str:
    """What XML can hold of a text."""
    return "".join(c if c in "\t\n" or " " <= c <= "\ud7ff" or "\ue000" <= c <= "\ufffd" or c > "\uffff" else "·" for c in text)
