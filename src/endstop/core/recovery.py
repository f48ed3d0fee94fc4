"""After a crash: what to do with starts that have no end, by what they were."""

from __future__ import annotations

from typing import Literal

from endstop.core import events as ev
from endstop.core.effects import AnyAct, Look, Record, Run, RunTools
from endstop.core.events import Event
from endstop.core.goal import State, Turn, open_calls
from endstop.core.results import complete

Outcome = Literal["ok", "interrupted", "lost"]
CRASH_LOOP = 3
"""Crashes in a row without a finished turn after which the goal is paused."""


def recover(s: State, now: float) -> AnyAct | None:
    """3. After a crash: starts without an end, by what they were; then one look."""
    if s.recover and s.crashes >= CRASH_LOOP and s.phase in ("working", "checking", "waiting", "queued"):
        return Record(events=(ev.GoalPaused(reason="crash_loop", by="kernel"),))
    effect = lost(s)
    if effect is not None:
        return effect
    if s.look_due and s.phase in ("working", "checking"):
        return Look(purpose="resume")
    return None


def lost(s: State) -> AnyAct | None:
    """What one start without an end needs, or None. Nothing runs while anything is decided: what has no end will get none."""
    turn = s.turn
    if turn is None or turn.ended:
        return None
    if not turn.answered:
        return Record(events=turn_over(s, turn, "lost"))
    started = [c for c in open_calls(s) if c.state == "started" and c.effect != "attached"]
    unknown = [c for c in started if c.effect in ("write", "shell")]
    if unknown:
        text = (
            "The runtime ended while this ran. Whether it took effect is unknown, and it was not run again. "
            "Inspect what it may have done before you go on."
        )
        return Record(events=tuple(complete(c.request.tool_call_id, text, executed=True, code="effect_unknown") for c in unknown))
    if not started or not (s.phase == "working" or s.interactive):
        return None
    runs = [
        Run(
            tool_call_id=c.request.tool_call_id,
            name=c.request.name,
            arguments=c.arguments,
            key=c.key,
            effect=c.effect,  # type: ignore[arg-type]
            again=True,
            before=c.before,
        )
        for c in started
    ]
    return RunTools(calls=tuple(runs))


def judge_lost(s: State, now: float) -> AnyAct | None:
    """A judge that was asked and never answered, because of a crash or a stop."""
    claim = s.goal.claim if s.goal else None
    if claim is None or not claim.judging:
        return None
    judged = ev.GoalJudged(result="unreachable", raw="stopped before it answered")
    return Record(events=(estimated(s, "judge", s.evidence.judge_name, None), judged))


def turn_over(s: State, turn: Turn, outcome: Outcome) -> tuple[Event, ...]:
    """The end of a turn; one without an answer has spent what was reserved for it."""
    end = ev.TurnEnd(turn_id=turn.id, outcome=outcome)
    return (end,) if turn.answered else (estimated(s, turn.purpose, turn.model, turn.id), end)


def estimated(s: State, initiator: str, model: str, turn_id: int | None) -> ev.AssistantUsage:
    """Usage of a call whose answer was lost: its whole reservation, marked."""
    reserved = s.spend.reserved
    return ev.AssistantUsage(
        initiator=initiator,  # type: ignore[arg-type]
        turn_id=turn_id,
        model=model,
        input_tokens=int(reserved.get("input-tokens", 0)),
        cache_read_tokens=0,
        cache_write_tokens=0,
        output_tokens=int(reserved.get("output-tokens", 0)),
        cost=reserved.get("cost"),
        estimated=True,
        attempt=1,
    )
