"""The phases as one table: every pair of phase and event, listed or refused."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from endstop.core import events as ev
from endstop.core.apply import apply
from endstop.core.codec import Entry
from endstop.core.goal import (
    BEGINS,
    ENDED,
    LIVE,
    TRANSITIONS,
    Claim,
    Closing,
    Goal,
    Grant,
    Parked,
    Question,
    State,
    active_now,
    allowed,
    open_calls,
    waiting_humans,
)
from endstop.core.messages import ToolRequest
from endstop.errors import TransitionError
from tests.core.filled import filled

PHASES: tuple[ev.Phase, ...] = get_args(ev.Phase)

QUEUED = ev.GoalQueued(
    goal_id="g", objective="o", contract=ev.Contract(), limits={}, policy=ev.Policy(), model="m", fallbacks=[], workspace="/w",
    priority=0,
)  # fmt: skip
ENDINGS: tuple[ev.Phase, ...] = ("capped", "stuck", "blocked", "failed", "cancelled")


def at(phase: ev.Phase, left: ev.Phase = "working") -> State:
    """A state in a phase, with what that phase remembers."""
    state = State(phase=phase)
    if phase != "none":
        state.goal = Goal(QUEUED, {}, 1, left=left)
    if state.goal is not None and phase == "waiting":
        state.goal.parked = Parked("time", None, 5.0, 0.0, "", left)
    if state.goal is not None and phase == "checking":
        state.goal.claim = Claim("task_complete", None, "", 1, False)
    if state.goal is not None and phase == "closing":
        state.goal.closing = Closing("capped", "", {})
    return state


MADE: tuple[ev.Event, ...] = (
    QUEUED,
    ev.GoalStarted(goal_id="g", workspace_lock="w"),
    ev.GoalClaimed(by="task_complete", summary=""),
    ev.GoalConfronted(by="task_complete", evidence="", missing=[]),
    ev.GoalReturned(why="gate", missing=[]),
    ev.GoalParked(on="time", until=9.0, said=""),
    ev.GoalPaused(reason="user", by="me"),
    ev.GoalClosing(target="stuck", reason="r", detail={}),
    ev.TurnStart(turn_id=1, model="m", purpose="work", request_hash="", reserved={}),
    ev.ToolStart(tool_call_id="c", tool_name="t", arguments={}, turn_id=1, effect="read", key="k"),
    ev.PermissionRequested(request_id="p", permission_request={}, binding="b", risk="r", why="", expires_at=1.0),
    ev.QuestionAsked(question_id="q", question="?", options=[], allow_freeform=True, on_timeout="continue"),
    ev.SessionCompactionStart(trigger="manual", up_to=1),
    ev.GateStarted(gate_id="g", purpose="claim", command="c", world=0, fingerprint="f"),
    ev.GoalJudging(
        attempt=1,
        model="j",
        independent=True,
        evidence=ev.EvidenceRange(from_=1, to=2, tool_lines=0, gaps=0, bytes=1),
        reserved={},
    ),
)


def made(kind: type[ev.Event], phase: ev.Phase) -> Any:
    """An event of a kind as it would come in a phase."""
    if kind is ev.GoalResumed:
        return ev.GoalResumed(from_=phase, cause="c", by="me")
    if kind is ev.GoalEnded:
        to: ev.Phase = "done" if phase == "checking" else "capped"
        return ev.GoalEnded(phase=to, verified=False, verified_by=[], ended_by="claim", missing=[], handoff={})
    return next(event for event in MADE if type(event) is kind)


LISTED: dict[type[ev.Event], dict[str, str]] = {
    ev.GoalQueued: {phase: "queued" for phase in ("none", "done", *ENDINGS)},
    ev.GoalStarted: {"queued": "working"},
    ev.GoalClaimed: {"working": "checking"},
    ev.GoalConfronted: {"checking": "working"},
    ev.GoalReturned: {"checking": "working"},
    ev.GoalParked: {"working": "waiting", "checking": "waiting"},
    ev.GoalResumed: {"waiting": "working", "paused": "working", **dict.fromkeys(ENDINGS, "working")},
    ev.GoalPaused: dict.fromkeys(("queued", "working", "waiting", "checking", "closing"), "paused"),
    ev.GoalClosing: dict.fromkeys(("queued", "working", "waiting", "checking", "paused"), "closing"),
    ev.GoalEnded: {"checking": "done", "closing": "capped"},
}
ONLY_IN: dict[type[ev.Event], set[str]] = {
    ev.TurnStart: {"working", "closing"},
    ev.ToolStart: {"working"},
    ev.PermissionRequested: {"working"},
    ev.QuestionAsked: {"working", "checking"},
    ev.SessionCompactionStart: {"working"},
    ev.GateStarted: {"working", "checking"},
    ev.GoalJudging: {"checking"},
}
"""Of a live goal; without one, sessions that are interactive may begin all but gates and judge."""
INTERACTIVE = {"none", "done", *ENDINGS}


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("name", [name for name, cls in ev.EVENTS.items() if cls in LISTED])
def test_a_pair_of_phase_and_event_is_listed_or_an_error(phase: ev.Phase, name: str) -> None:
    """The whole table: a listed pair leads where the table says, any other raises and changes nothing."""
    kind = ev.EVENTS[name]
    state, event = at(phase), made(kind, phase)
    to = LISTED[kind].get(phase)
    assert allowed(state, event) == to
    if to is not None:
        apply(state, Entry(2, "i", 1.0, event))
        assert state.phase == to
        return
    before = repr(state)
    with pytest.raises(TransitionError, match=f"{name} is not allowed in {phase}"):
        apply(state, Entry(2, "i", 1.0, event))
    assert repr(state) == before


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("kind", ONLY_IN, ids=lambda cls: ev.TYPE_OF[cls])
def test_work_begins_only_in_its_phases(phase: ev.Phase, kind: type[ev.Event]) -> None:
    """A turn, a tool, a gate or the judge begins only where the table allows it, and keeps the phase."""
    state, event = at(phase), made(kind, phase)
    inside = phase in ONLY_IN[kind] or (phase in INTERACTIVE and kind not in (ev.GateStarted, ev.GoalJudging))
    assert allowed(state, event) == (phase if inside else None)


@pytest.mark.parametrize("phase", PHASES)
def test_all_other_events_keep_every_phase(phase: ev.Phase) -> None:
    """Facts and controls are never refused: what happened, happened."""
    free = [cls for cls in ev.TYPE_OF if cls not in TRANSITIONS and cls not in BEGINS]
    assert len(free) + len(TRANSITIONS) + len(BEGINS) == len(ev.TYPE_OF)
    for cls in free:
        assert allowed(at(phase), filled(cls)) == phase


def test_the_tables_here_and_there_have_the_same_rows() -> None:
    """No transition is untested."""
    assert set(TRANSITIONS) == set(LISTED)
    assert set(BEGINS) == set(ONLY_IN)
    assert set(PHASES) == ENDED | LIVE | {"none"}


@pytest.mark.parametrize("left", ["queued", "working", "waiting", "checking", "closing"])
def test_a_pause_goes_back_to_the_phase_it_left(left: ev.Phase) -> None:
    """Whatever was paused goes on from there."""
    state = at(left)
    apply(state, Entry(2, "i", 1.0, ev.GoalPaused(reason="user", by="me")))
    apply(state, Entry(3, "i", 2.0, ev.GoalResumed(from_="paused", cause="person", by="me")))
    assert state.phase == left


@pytest.mark.parametrize("left", ["working", "checking"])
def test_pause_and_park_remember_apart(left: ev.Phase) -> None:
    """working or checking → waiting → paused → waiting → back."""
    state = at(left)
    for event, phase in (
        (ev.GoalParked(on="time", until=9.0, said=""), "waiting"),
        (ev.GoalPaused(reason="user", by="me"), "paused"),
        (ev.GoalResumed(from_="paused", cause="person"), "waiting"),
        (ev.GoalResumed(from_="waiting", cause="time over"), left),
    ):
        apply(state, Entry(2, "i", 1.0, event))
        assert state.phase == phase


def test_a_resume_that_comes_from_another_phase_is_refused() -> None:
    """Who resumed a pause that is a wait by now did not see what he resumes."""
    state = at("waiting")
    assert allowed(state, ev.GoalResumed(from_="paused", cause="person", by="me")) is None
    assert allowed(at("paused"), ev.GoalResumed(from_="capped", cause="person", by="me")) is None


def test_only_a_cancel_closes_a_goal_that_closes_already() -> None:
    """closing → closing only if the target is cancelled, and then it ends as cancelled."""
    state = at("closing")
    for target in ("capped", "stuck", "blocked", "failed"):
        assert allowed(state, ev.GoalClosing(target=target, reason="", detail={})) is None
    apply(state, Entry(2, "i", 1.0, ev.GoalClosing(target="cancelled", reason="", by="me", detail={})))
    end = ev.GoalEnded(phase="capped", verified=False, verified_by=[], ended_by="limit", missing=[], handoff={})
    assert allowed(state, end) is None
    assert (
        allowed(state, ev.GoalEnded(phase="cancelled", verified=False, verified_by=[], ended_by="person", missing=[], handoff={}))
        == "cancelled"
    )


@pytest.mark.parametrize("target", ENDINGS)
def test_closing_ends_as_its_target_and_as_nothing_else(target: ev.Phase) -> None:
    """goal.ended must name the phase that goal.closing named; done only comes out of checking."""
    state = at("closing")
    assert state.goal is not None
    state.goal.closing = Closing(target, "", {})
    for phase in ("done", *ENDINGS):
        end = ev.GoalEnded(phase=phase, verified=False, verified_by=[], ended_by="error", missing=[], handoff={})
        assert allowed(state, end) == (target if phase == target else None)
    claimed = ev.GoalEnded(phase="capped", verified=False, verified_by=[], ended_by="claim", missing=[], handoff={})
    assert allowed(at("checking"), claimed) is None


@pytest.mark.parametrize(
    "event",
    [
        ev.GoalPaused(reason="user", by="me", late=True),
        ev.GoalResumed(from_="waiting", cause="x", late=True),
        ev.GoalClosing(target="cancelled", reason="", detail={}, late=True),
        ev.UserMessage(message_id="m", content="hello", source="user", delivery="queued", late=True),
        ev.QuestionAnswered(question_id="q", answer="a", by="me", late=True),
        ev.PermissionCompleted(request_id="p", result=ev.Decision(kind="approved"), scope="once", by="me", late=True),
    ],
    ids=lambda event: ev.TYPE_OF[type(event)],
)
def test_what_came_too_late_changes_nothing_but_the_place(event: ev.Event) -> None:
    """A late control is kept in the journal and has no effect, in any phase."""
    for phase in PHASES:
        state, other = at(phase), at(phase)
        apply(state, Entry(7, "i", 0.0, event))
        other.seq = 7
        assert state == other


def test_an_open_call_is_one_without_a_result_in_a_turn_without_an_end() -> None:
    """No turn, an ended turn and finished calls have no open calls."""
    state = at("working")
    assert open_calls(state) == []
    apply(state, Entry(2, "i", 1.0, made(ev.TurnStart, "working")))
    asked = [ToolRequest("a", "t", {}), ToolRequest("b", "t", {})]
    apply(state, Entry(3, "i", 1.0, ev.AssistantMessage(message_id="m", content="", tool_requests=asked, finish_reason="stop")))
    assert [c.request.tool_call_id for c in open_calls(state)] == ["a", "b"]
    done = ev.ToolComplete(tool_call_id="a", success=True, executed=False, result=ev.Result(content=""), hash="", norm_hash="")
    apply(state, Entry(4, "i", 1.0, done))
    assert [c.request.tool_call_id for c in open_calls(state)] == ["b"]
    apply(state, Entry(5, "i", 1.0, ev.TurnEnd(turn_id=1, outcome="interrupted")))
    assert open_calls(state) == []


def test_a_human_is_waited_for_while_a_question_or_grant_is_open() -> None:
    """Answered, expired and decided ones wait for nobody."""
    state = at("working")
    assert not waiting_humans(state)
    state.questions["q"] = Question("q", None, "?", [], True, None, "continue")
    assert waiting_humans(state)
    state.questions["q"].expired = True
    assert not waiting_humans(state)
    state.grants["p"] = Grant("p", None, "b", 1.0)
    assert waiting_humans(state)
    state.grants["p"].kind = "approved"
    assert not waiting_humans(state)


@pytest.mark.parametrize(
    ("phase", "runs"),
    [("working", 1), ("checking", 1), ("closing", 1), ("waiting", 0), ("paused", 0), ("queued", 0), ("capped", 0)],
)
def test_active_time_runs_only_while_the_goal_is_worked_on(phase: ev.Phase, runs: int) -> None:
    """Parked, paused and queued time counts to wall alone."""
    state = at(phase)
    state.time = 100.0
    state.spend.active = 5.0
    assert active_now(state, 130.0) == 5.0 + 30.0 * runs
    assert active_now(state, 90.0) == 5.0
    apply(state, Entry(2, "i", 140.0, ev.HookEnd(hook_invocation_id="h", hook_type="stop", success=True)))
    assert state.spend.active == 5.0 + 40.0 * runs
