"""The one vocabulary: every event by its name, and who may append it."""

from __future__ import annotations

import pytest

from endstop.core import events as ev

VOCABULARY = {
    "C": "session.start abort user.message external_tool.completed permission.completed grant.expired grant.revoked "
    "question.answered process.exited goal.queued",
    "K": "session.model_change session.compaction_start session.task_complete assistant.turn_start tool.execution_start "
    "permission.requested grant.used hook.start question.asked question.expired subagent.started gate.started goal.started "
    "goal.claimed goal.confronted goal.returned goal.judging goal.parked goal.resumed goal.paused goal.closing goal.ended "
    "stall.noticed stall.blocked stall.halted limit.warned limit.reached",
    "F": "session.resume session.shutdown session.error session.plan_changed session.compaction_complete assistant.message "
    "assistant.usage model.retried assistant.turn_end tool.execution_complete external_tool.requested hook.end "
    "process.started subagent.completed subagent.failed workspace.observed gate.finished goal.judged checkpoint.signed "
    "gap.noted",
    "E": "session.idle session.usage_info assistant.message_delta tool.execution_partial_result",
}


@pytest.mark.parametrize("kind", VOCABULARY)
def test_each_kind_of_append_has_exactly_its_events(kind: str) -> None:
    """Names and kinds are those of the events table; nothing more, nothing less."""
    found = {ev.TYPE_OF[cls] for cls, of in ev.KIND_OF.items() if of == kind}
    assert found == set(VOCABULARY[kind].split())


def test_names_and_classes_are_one_to_one() -> None:
    """No two events share a name or a class."""
    assert len(ev.EVENTS) == len(ev.TYPE_OF) == len(ev.KIND_OF)
    assert all(ev.TYPE_OF[cls] == name for name, cls in ev.EVENTS.items())


def test_events_cannot_be_changed() -> None:
    """What is recorded stays as it was."""
    with pytest.raises(AttributeError):
        ev.Abort(reason="r", by="b").reason = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("contract", "empty"),
    [
        (ev.Contract(), True),
        (ev.Contract(judge="none"), True),
        (ev.Contract(rubric="be nice", inputs=["a"]), True),
        (ev.Contract(judge="openai:gpt-5"), False),
        (ev.Contract(gates=[ev.Gate(gate_id="g", run="make")]), False),
        (ev.Contract(deliverables=["out.md"]), False),
    ],
)
def test_a_contract_is_empty_without_gate_deliverable_and_named_judge(contract: ev.Contract, empty: bool) -> None:
    """Only then may a plain answer end a goal."""
    assert contract.empty is empty


def test_defaults_are_the_careful_ones() -> None:
    """Verifier inputs are protected, claims confronted once, gates run at the start, nobody asked at a halt."""
    contract, policy, gate = ev.Contract(), ev.Policy(), ev.Gate(gate_id="g", run="x")
    assert (contract.protect, contract.confront, contract.baseline, contract.judge) == ("refuse", "once", True, "auto")
    assert (policy.mode, policy.humans, policy.on_halt, policy.network) == ("auto", "auto", "end", False)
    assert (gate.timeout, gate.retries, gate.external) == (600.0, 0, False)
