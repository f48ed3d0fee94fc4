"""``decide(state, now)``: the only place that chooses what happens next. Rules in order, the first that answers wins.

The numbers are those of docs/events.md. Every rule is pure: it reads the state and the clock it is given.
"""

from __future__ import annotations

from collections.abc import Callable

from endstop.core import events as ev
from endstop.core import evidence as known
from endstop.core import hooks, processes
from endstop.core.calls import settle
from endstop.core.claims import check, run_gates, verifications_full
from endstop.core.compaction import compact, compaction_lost
from endstop.core.effects import AnyAct, CallModel, Idle, Look, Record, Wait
from endstop.core.escalate import before_end
from endstop.core.events import Event
from endstop.core.goal import State, active_now, open_calls
from endstop.core.handoff import closing_prompt, ending
from endstop.core.interactive import converse
from endstop.core.limits import (
    CLOSING_INPUT,
    CLOSING_OUTPUT,
    Full,
    closing_reserve,
    deadline,
    reserve,
    warnings,
)
from endstop.core.recovery import judge_lost, recover, turn_over
from endstop.core.results import complete, withdrawn
from endstop.core.stall import Notice
from endstop.core.turns import axis_unit, capped, next_turn, nudge, rounds_full, turn_start
from endstop.core.waits import failed, park, waiting

CUT_OFF = ("content_filter", "length", "cut")
"""Ways an answer ends before it is one."""
READS = 10
"""Read-only calls after which readiness is looked at inside a round."""


def decide(state: State, now: float) -> AnyAct:
    """What happens next in this state at this time."""
    for rule in RULES:
        effect = rule(state, now)
        if effect is not None:
            return before_end(state, effect)
    return before_end(state, _call(state, now))


def _idle(s: State, now: float) -> AnyAct | None:
    """1. No live goal: a message opens a round, else nothing is to be done."""
    return hooks.due(s, now) or converse(s, now) if s.interactive else None


def _stop(s: State, now: float) -> AnyAct | None:
    """2. A stop is due, or the goal is paused."""
    if s.stop in ("pause", "hook") and s.phase != "paused":
        return Record(events=(ev.GoalPaused(reason="user", by="message" if s.stop == "pause" else "hook"),))
    if s.stop == "abort" and s.phase != "paused":
        events: list[Event] = [
            complete(c.request.tool_call_id, "Interrupted.", executed=c.state == "started", code="interrupted")
            for c in open_calls(s)
        ]
        if s.turn is not None and not s.turn.ended:
            events += turn_over(s, s.turn, "interrupted")
        return Record(events=(*events, *withdrawn(s), ev.GoalPaused(reason="interrupt", by="message")))
    if s.phase != "paused":
        return None
    goal = s.goal
    if goal is not None and goal.pause == "interrupt" and any(m.source == "user" for m in s.inbox):
        return Record(events=(ev.GoalResumed(from_="paused", cause="message"),))
    return Idle(why="paused")


def _closing(s: State, now: float) -> AnyAct | None:
    """4. The goal closes: settle what is open, one closing turn if it fits, then the end."""
    goal = s.goal
    if s.phase != "closing" or goal is None or goal.closing is None:
        return None
    turn = s.turn
    if turn is not None and not turn.ended:
        events: list[Event] = [
            complete(c.request.tool_call_id, "Cancelled: the goal ends.", executed=c.state == "started", code="cancelled")
            for c in open_calls(s)
        ]
        return Record(events=(*events, ev.TurnEnd(turn_id=turn.id, outcome="ok")))
    if s.evidence.baseline is not None and s.evidence.looked != s.evidence.world:
        return Look(purpose="close")  # the handoff says what is there now
    if goal.closing.target in ("capped", "stuck", "blocked") and not goal.closed and turn is not None:
        call = _closing_turn(s, now)
        if call is not None:
            return call
    stopping = processes.stop(s)
    if stopping is not None:
        return stopping
    target = goal.closing.target
    done: list[Event] = list(withdrawn(s))
    if target == "blocked":
        done.append(ev.SessionTaskComplete(summary=goal.closing.reason, success=False, outcome="blocked"))
    return Record(events=(*done, ending(s, now, target, verified_by=[])))


def _closing_turn(s: State, now: float) -> AnyAct | None:
    goal, price = s.goal, s.profile.price
    assert goal is not None
    if not closing_reserve(goal.caps, price) or (s.turn is not None and s.turn.ended == "failed"):
        return None  # it would eat too much of a cap, or the model does not answer
    room = reserve(s.spend, goal.caps, input=CLOSING_INPUT, want=CLOSING_OUTPUT, price=price, keep={}, turn=True, least=256)
    if isinstance(room, Full) or deadline(s.spend, goal.caps, {}, now, active_now(s, now)) <= now:
        return None
    start = turn_start(s, "close", room.amounts)
    return CallModel(
        events=(start,),
        turn_id=start.turn_id,
        purpose="close",
        max_output=room.max_output,
        prompt=closing_prompt(s),
    )


def _time(s: State, now: float) -> AnyAct | None:
    """5. Wall or active time is full; every other limit stops only what would spend on it."""
    goal = s.goal
    assert goal is not None
    keep = closing_reserve(goal.caps, s.profile.price)
    active = active_now(s, now)
    if deadline(s.spend, goal.caps, keep, now, active) > now:
        return None
    wall = "wall" in goal.caps and now - s.spend.since + keep.get("wall", 0) >= goal.caps["wall"]
    full = Full("wall", now - s.spend.since, goal.caps["wall"]) if wall else Full("active", active, goal.caps["active"])
    return Record(events=capped(full))


def _start(s: State, now: float) -> AnyAct | None:
    """6. Take up a queued goal; look and run the gates once before the first turn."""
    goal = s.goal
    assert goal is not None
    if s.phase == "queued":
        if not s.kit.lock:
            return Wait(on="workspace")
        return Record(events=(ev.GoalStarted(goal_id=goal.queued.goal_id, workspace_lock=s.kit.lock, sandbox=s.kit.sandbox),))
    if s.phase != "working" or s.turn is not None:
        return None
    if s.evidence.baseline is None:
        return Look(purpose="baseline")
    todo = [
        g
        for g in goal.contract.gates
        if goal.contract.baseline and not s.evidence.gates.get(g.gate_id, known.GateState()).baseline
    ]
    return run_gates(s, todo, "baseline") if todo else None


def _checking(s: State, now: float) -> AnyAct | None:
    """8. A claim is under check."""
    return check(s, now) if s.phase == "checking" else None


def _calls(s: State, now: float) -> AnyAct | None:
    """9 and 10. A look where a stall counter stands at a threshold, then the open calls; none open ends the turn."""
    return settle(s, now)


def _halt(s: State, now: float) -> AnyAct | None:
    """11. A halt is due: one recovery turn, then closing."""
    halt = s.stall.halt
    if halt is None or s.phase != "working":
        return None
    if s.evidence.baseline is not None and s.evidence.world > s.evidence.looked:
        return Look(purpose="stall")  # what was done since may be the progress that lifts it
    target: ev.Target = "blocked" if halt.rule == "denied" else "stuck"
    if s.stall.recovered:
        claim = _round_claim(s, now) if not s.round_open else None
        return claim or Record(events=(*_halted(s, halt), _stuck(halt, target)))
    room = next_turn(s)
    if isinstance(room, Full):
        return Record(events=(*_halted(s, halt), _stuck(halt, target)))
    if not s.stall.halted:
        return Record(events=_halted(s, halt))
    start = turn_start(s, "recover", room.amounts)
    return CallModel(events=(start,), turn_id=start.turn_id, purpose="recover", max_output=room.max_output)


def _halted(s: State, halt: Notice) -> tuple[Event, ...]:
    if s.stall.halted:
        return ()
    event = ev.StallHalted(
        rule=halt.rule, count=halt.count, identity=halt.identity, seqs=halt.seqs, period=halt.period, text=halt.text
    )
    return (event,)


def _stuck(halt: Notice, target: ev.Target) -> Event:
    detail = {"rule": halt.rule, "pattern": halt.text, "count": halt.count, "seqs": halt.seqs}
    return ev.GoalClosing(target=target, reason=f"stall: {halt.text}", detail=detail)


def _ready(s: State, now: float) -> AnyAct | None:
    """12. Many reads since the last change: perhaps it is done already."""
    if s.round_open and s.phase == "working" and s.evidence.reads >= READS and s.evidence.world > 0:
        return _readiness(s)
    return None


def _readiness(s: State) -> AnyAct | None:
    goal = s.goal
    if goal is None or s.evidence.ready_world == s.evidence.world or not known.may_show(s.evidence, goal.contract):
        return None
    if verifications_full(s, goal) is not None:
        return None
    return Record(events=(ev.GoalClaimed(by="readiness", summary="every criterion may hold"),))


def _round_claim(s: State, now: float) -> AnyAct | None:
    """The claim that the end of a round makes by itself, if any."""
    goal, turn = s.goal, s.turn
    assert goal is not None
    ready = _readiness(s)
    if ready is not None:
        return ready
    if turn is None or not turn.text.strip() or not goal.contract.empty or turn.finish in CUT_OFF:
        return None
    if s.evidence.world and s.evidence.looked != s.evidence.world:
        return Look(purpose="claim")
    if not s.evidence.untouched:
        return None
    return Record(events=(ev.GoalClaimed(by="answer", summary=turn.text),))


def _round_over(s: State, now: float) -> AnyAct | None:
    """13. The round is over: a waiting message, a claim by itself, a nudge, or a question with the model's words."""
    goal, turn = s.goal, s.turn
    if s.phase != "working" or s.round_open or goal is None or turn is None:
        return None
    answers = [q for q in s.questions.values() if q.call_id is None and q.answer is not None and not q.used]
    if answers:
        text = f"A human answered your question. Question: {answers[0].text}\nAnswer: {answers[0].answer}"
        return Record(events=_as_message(s, answers[0].id, text))
    if s.inbox or turn.handled:
        return _next_round(s)
    parked = processes.round_over(s, now)
    if parked is not None:
        return parked
    claim = _round_claim(s, now)
    if claim is not None:
        return claim
    rules = s.kit.rules
    if rules.on and s.stall.silent >= rules.no_action.halt:
        return _no_action(s, turn.text)
    text = (
        "Your last message asked for no tool. If the goal is reached, call task_complete; if you cannot go on, call "
        "report_blocked; otherwise go on working."
    )
    return Record(events=nudge(s, text))


def _next_round(s: State) -> AnyAct | None:
    """Somebody wrote or resumed: the next turn opens a round, if one fits."""
    full = rounds_full(s)
    return Record(events=capped(full)) if full is not None else None


def _as_message(s: State, question_id: str, text: str) -> tuple[Event, ...]:
    return tuple(
        ev.UserMessage(message_id=question_id, content=text, source="system", delivery="queued", reason="answer")
        if isinstance(event, ev.UserMessage)
        else event
        for event in nudge(s, text)
    )


def _no_action(s: State, words: str) -> AnyAct:
    """Two rounds of words: a human is asked, and where nobody can be reached the goal is blocked."""
    said = words.strip()[:1000] or "(an empty message)"
    if s.kit.reachable:
        question = ev.QuestionAsked(
            question_id=f"q{s.seq}",
            question=f"The agent stopped acting and says: {said}",
            options=[],
            allow_freeform=True,
            on_timeout="blocked",
        )
        return Record(events=(question, ev.GoalParked(on="question", ref=question.question_id, said=question.question)))
    halt = Notice(
        "no action", s.stall.silent, "round", [s.seq], f"no action: {s.stall.silent} rounds without a tool call: {said}"
    )
    return Record(events=(*_halted(s, halt), _stuck(halt, "blocked")))


def _call(s: State, now: float) -> AnyAct:
    """15. Ask the model if it fits on every axis."""
    goal = s.goal
    assert goal is not None
    room = next_turn(s)
    if isinstance(room, Full):
        return Record(events=capped(room))
    warned = tuple(
        ev.LimitWarned(limit=w.axis, unit=axis_unit(w.axis), scope="goal", spent=round(w.spent, 6), cap=w.cap)
        for w in warnings(s.spend, goal.caps, now)
    )
    start = turn_start(s, "work", room.amounts)
    return CallModel(events=(*warned, start), turn_id=start.turn_id, purpose="work", max_output=room.max_output)


RULES: tuple[Callable[[State, float], AnyAct | None], ...] = (
    _idle,
    judge_lost,
    compaction_lost,
    _stop,
    recover,
    _closing,
    _time,
    hooks.due,
    _start,
    waiting,
    _checking,
    _calls,
    failed,
    _halt,
    park,
    _ready,
    _round_over,
    compact,
)
