"""Waiting without burning turns: on a human, a time, a file, a model that does not answer, a verifier that is broken."""

from __future__ import annotations

from endstop.core import events as ev
from endstop.core import processes
from endstop.core.claims import BACKOFF, VERIFIER_HOURS
from endstop.core.compaction import shrink
from endstop.core.effects import AnyAct, Record, Wait
from endstop.core.escalate import after_answer
from endstop.core.events import Event
from endstop.core.goal import State
from endstop.core.results import complete
from endstop.errors import PASSING

MODEL_HOURS = 6
LONGEST_RESET = 24
"""Hours up to which a usage limit with a known reset is waited for."""


def waiting(s: State, now: float) -> AnyAct | None:
    """7. Waiting: met or expired, else wait on."""
    goal = s.goal
    if s.phase != "waiting" or goal is None or goal.parked is None:
        return None
    parked = goal.parked
    over = parked.until is not None and now >= parked.until
    resumed = ev.GoalResumed(from_="waiting", cause=f"{parked.on} over" if over else parked.on)
    spoken = any(m.source == "user" for m in s.inbox)
    match parked.on:
        case "question":
            return _waiting_question(s, parked.ref, over, resumed) or Wait(on="question", until=parked.until)
        case "grant":
            return _waiting_grant(s, over, resumed) or Wait(on="grant", until=parked.until)
        case "time" | "condition":
            if over or spoken:
                cause = "a human wrote" if spoken else "the time is over"
                return Record(events=(ev.GoalResumed(from_="waiting", cause=cause),))
            path = parked.said.removeprefix("file ") if parked.on == "condition" else None
            return Wait(on=parked.on, until=parked.until, condition=path)
        case "process":
            return processes.waiting(s, parked.ref or "", over, spoken, parked.until)
        case "verifier":
            if spoken and goal.claim is not None:
                claim = goal.claim
                text = "Not verified: the check cannot run, and a human wrote meanwhile."
                returned = ev.GoalReturned(tool_call_id=claim.call_id, why="unverified", missing=[parked.said])
                done = (complete(claim.call_id, text, code="not_done"),) if claim.call_id else ()
                return Record(events=(resumed, returned, *done))
            if now - s.evidence.broken_since >= VERIFIER_HOURS * 3600:
                return Record(events=blocked(f"unverifiable: {parked.said}", "verifier"))
    return Record(events=(resumed,)) if over else Wait(on=parked.on, until=parked.until)


def _waiting_question(s: State, ref: str | None, over: bool, resumed: Event) -> AnyAct | None:
    question = s.questions.get(ref or "")
    if question is None or question.answer is not None:
        return Record(events=(resumed, *after_answer(s, ref or "")))
    if not (over or question.expired):
        return None
    expired = () if question.expired else (ev.QuestionExpired(question_id=question.id),)
    if question.on_timeout == "blocked":
        return Record(events=(*expired, *blocked(f"no answer to: {question.text}", "no answer")))
    return Record(events=(*expired, resumed))


def _waiting_grant(s: State, over: bool, resumed: Event) -> AnyAct | None:
    still = [g for g in s.grants.values() if not g.kind]
    if not still:
        return Record(events=(resumed,))
    return Record(events=(*[ev.GrantExpired(request_id=g.id) for g in still], resumed)) if over else None


def blocked(reason: str, rule: str) -> tuple[Event, ...]:
    """The event that closes a goal as blocked."""
    return (ev.GoalClosing(target="blocked", reason=reason, detail={"rule": rule, "needs": reason}),)


def failed(s: State, now: float) -> AnyAct | None:
    """After 10: the model did not answer. What may pass is waited for, the rest ends the goal."""
    turn = s.turn
    if turn is None or turn.ended != "failed" or turn.handled or turn.error is None or s.phase != "working":
        return None
    code = turn.error.code
    if code == "context_overflow":
        return shrink(s, "overflow")
    fallback = next((m for m in s.goal.queued.fallbacks if m not in (s.model, *s.tried)), None) if s.goal else None
    if fallback is not None:
        change = ev.SessionModelChange(previous_model=s.model, new_model=fallback, reason=f"{code}: {turn.error.message}")
        return Record(events=(change,))
    if code not in PASSING:
        detail = {"error": code, "message": turn.error.message}
        return Record(events=(ev.GoalClosing(target="failed", reason=turn.error.message, detail=detail),))
    if now - s.failing_since >= MODEL_HOURS * 3600:
        return Record(events=blocked(f"the model does not answer: {turn.error.message}", "model"))
    if (turn.retry_at or 0.0) - now > LONGEST_RESET * 3600:
        return Record(events=blocked(f"the model answers again only in more than a day: {turn.error.message}", "model"))
    until = max(now + BACKOFF[min(s.failures, len(BACKOFF)) - 1], turn.retry_at or 0.0)
    return Record(events=(ev.GoalParked(on="model", until=until, said=f"{code}: {turn.error.message}"),))


def park(s: State, now: float) -> AnyAct | None:
    """A poller that sees nothing change is parked on time: 1, 5, 15 minutes."""
    if not s.stall.park or s.phase != "working":
        return None
    wait = BACKOFF[min(s.stall.polls, len(BACKOFF) - 1)]
    return Record(events=(ev.GoalParked(on="time", until=now + wait, said="polling brought nothing new"),))
