"""One event, one change; a journal and every prefix of it replays to the same state."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from endstop.core import effects
from endstop.core import events as ev
from endstop.core.apply import apply, replay
from endstop.core.codec import Entry
from endstop.core.goal import Kit, State, allowed
from tests.core.filled import filled
from tests.core.sim import Sim, call, says, spec

READ = {"look": (spec("look", "read"), lambda a: (True, f"saw {a}"))}
FILE = ev.Contract(deliverables=["never"], judge="none")


def lived() -> Sim:
    """A goal that saw a stall, a question, a crash, a stop, a cap and a resume."""
    sim = Sim(
        lambda s: says("", call("look")) if len(s.asked) % 7 else says("", call("ask_user", question="?")),
        tools=READ,
        contract=FILE,
        limits={"turns": 20.0},
    )
    for n in range(120):
        act = sim.step()
        if isinstance(act, effects.Wait):
            sim.hear("blue")
        if isinstance(act, effects.RunTools) and n % 3 == 0:
            sim.crash()
        if n == 30:
            sim.hear("stop")
        if isinstance(act, effects.Idle):
            if sim.state.phase not in ("paused", "capped", "stuck"):
                break
            sim.resume(limits={"turns": sim.state.spend.turns + 9.0})
    return sim


def test_every_prefix_of_a_journal_replays_to_the_state_that_was() -> None:
    """State is nothing but the journal, folded."""
    sim = lived()
    assert len(set(sim.types)) > 18
    state = State(kit=sim.kit)
    for n, entry in enumerate(sim.entries, 1):
        apply(state, entry)
        if n % 11 == 0 or n == len(sim.entries):
            assert replay(sim.entries[:n], sim.kit) == state
    assert state == sim.state


def test_replay_without_a_kit_knows_the_same_phase_and_spend() -> None:
    """Whoever only wants to know where a goal stands needs no tools."""
    sim = lived()
    bare = replay(sim.entries)
    assert (bare.phase, bare.spend, bare.seq) == (sim.state.phase, sim.state.spend, sim.state.seq)


@pytest.mark.parametrize("name", sorted(ev.EVENTS))
def test_no_event_breaks_a_state_that_knows_nothing(name: str) -> None:
    """Imported journals may begin anywhere: what is allowed is taken in, whatever is missing before it."""
    event = filled(ev.EVENTS[name])
    fields = {f: getattr(event, f) for f in event.__struct_fields__}
    changes = {"late": None, "limits": {"turns": 5.0}}
    event = type(event)(**fields | {f: value for f, value in changes.items() if f in fields})
    if name == "goal.ended":
        event = ev.GoalEnded(phase="done", verified=False, verified_by=[], ended_by="claim", missing=[], handoff={})
    for phase in get_args(ev.Phase):
        state = State(phase=phase)
        if allowed(state, event) is not None:
            apply(state, Entry(1, "i", 1.0, event))
            assert state.seq == 1


def test_events_nobody_knows_keep_the_place_and_nothing_else() -> None:
    """A newer writer's event is counted, so that the next position is right."""
    state, other = State(), State()
    apply(state, Entry(9, "i", 4.0, ev.Unknown(type="goal.teleported", data={})))
    other.seq, other.time = 9, 4.0
    assert state == other


@pytest.mark.parametrize(
    "event",
    [
        ev.ToolComplete(
            tool_call_id="c1", success=False, executed=True, result=ev.Result(content="again"), hash="", norm_hash=""
        ),
        ev.ToolComplete(tool_call_id="zz", success=True, executed=True, result=ev.Result(content="?"), hash="", norm_hash=""),
        ev.ToolStart(tool_call_id="zz", tool_name="look", arguments={}, turn_id=1, effect="read", key="k"),
        ev.QuestionAnswered(question_id="zz", answer="a", by="me"),
        ev.QuestionExpired(question_id="zz"),
        ev.PermissionCompleted(request_id="zz", result=ev.Decision(kind="approved"), scope="once", by="me"),
        ev.GrantExpired(request_id="zz"),
        ev.GrantUsed(request_id="zz"),
        ev.StallBlocked(rule="repeat", count=5, identity="i", seqs=[], text="", tool_call_id="zz"),
    ],
    ids=lambda event: ev.TYPE_OF[type(event)],
)
def test_a_second_or_foreign_fact_changes_nothing(event: Any) -> None:
    """A call has one result, and events about things nobody knows are only counted."""
    sim = Sim(lambda s: says("", call("look", n=len(s.asked))), tools=READ, contract=FILE)
    sim.until(effects.RunTools)
    before = replay(sim.entries, sim.kit)
    at = Entry(sim.state.seq + 1, "i", sim.state.time, event)
    apply(sim.state, at)
    before.seq = at.seq
    assert sim.state == before


def test_an_answer_once_given_stays() -> None:
    """The first of two answers counts, an expiry after it is nothing; the same for a decided grant."""
    sim = Sim(lambda s: says("", call("ask_user", question="?")), contract=FILE)
    sim.until(effects.Wait)
    asked = sim.of(ev.QuestionAsked)[0].question_id
    for event in (
        ev.QuestionAnswered(question_id=asked, answer="one", by="me"),
        ev.QuestionAnswered(question_id=asked, answer="two", by="me"),
        ev.QuestionExpired(question_id=asked),
    ):
        sim.record(event)
    question = sim.state.questions[asked]
    assert (question.answer, question.expired) == ("one", False)


def test_a_decision_once_made_stays() -> None:
    """Neither an expiry after a denial nor an approval after an expiry changes it."""
    sim = Sim(lambda s: says(""), contract=FILE)
    sim.until(effects.CallModel)
    denied, approved = ev.Decision(kind="denied-interactively-by-user"), ev.Decision(kind="approved")
    for name in ("p", "q"):
        sim.record(ev.PermissionRequested(request_id=name, permission_request={}, binding="b", risk="r", why="", expires_at=9.0))
    sim.record(ev.PermissionCompleted(request_id="p", result=denied, scope="once", by="me"), ev.GrantExpired(request_id="p"))
    sim.record(ev.GrantExpired(request_id="q"), ev.PermissionCompleted(request_id="q", result=approved, scope="once", by="me"))
    assert [g.kind for g in sim.state.grants.values()] == ["denied-interactively-by-user", "denied-no-answer"]


def test_a_session_knows_its_start() -> None:
    """Id, kind and salt."""
    state = State()
    start = ev.SessionStart(
        session_id="abc", version=1, producer="p", start_time="t", kind="chat", context=ev.Context(cwd="/"), salt="ff"
    )
    apply(state, Entry(1, "i", 1.0, start))
    assert (state.session_id, state.kind, state.salt, state.phase) == ("abc", "chat", "ff", "none")


def test_the_plan_is_what_it_was_set_to() -> None:
    """Whole, after each change; open items stand in the handoff."""
    sim = Sim(lambda s: says("42"))
    items = [ev.PlanItem(id="1", text="one", status="done"), ev.PlanItem(id="2", text="two", status="open")]
    sim.record(ev.SessionPlanChanged(operation="set", items=items))
    assert sim.state.plan == items


def test_money_without_a_price_is_said_to_be_unknown() -> None:
    """Never zero."""
    sim = Sim(lambda s: says("42"))
    sim.record(
        ev.AssistantUsage(
            initiator="why",
            model="m",
            input_tokens=5,
            cache_read_tokens=0,
            cache_write_tokens=0,
            output_tokens=5,
            estimated=False,
            attempt=1,
        )
    )
    assert not sim.state.spend.priced
    assert sim.state.spend.last_input == 0


def test_a_kit_is_never_journalled() -> None:
    """What the kernel is told of its surroundings does not come from events."""
    sim = lived()
    kit = Kit(judge="other")
    assert replay(sim.entries, kit).kit is kit


def test_a_foreign_closing_turn_and_usage_are_taken_in_without_a_goal() -> None:
    """Journals of other agents hold turns without messages and goals."""
    state = State()
    start = ev.TurnStart(turn_id=1, model="m", purpose="close", request_hash="", reserved={})
    said = ev.AssistantMessage(message_id="a", content="bye", tool_requests=[], finish_reason="stop")
    usage = filled(ev.AssistantUsage)
    apply(state, Entry(1, "i", 1.0, start))
    apply(state, Entry(2, "i", 1.0, said))
    assert state.turn is not None
    assert (state.turn.text, state.window.messages) == ("bye", [])
    state = State()
    apply(state, Entry(1, "i", 1.0, ev.TurnStart(turn_id=1, model="m", purpose="work", request_hash="", reserved={})))
    told = {f: getattr(usage, f) for f in usage.__struct_fields__} | {"initiator": "work", "estimated": False}
    apply(state, Entry(2, "i", 1.0, ev.AssistantUsage(**told)))
    assert state.spend.ratio == 1 / 3
    assert state.spend.last_input == 7
