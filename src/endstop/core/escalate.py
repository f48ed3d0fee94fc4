"""Asking a human before something final: a review before done, and "more, a hint, or end" before giving up."""

from __future__ import annotations

from endstop.core import events as ev
from endstop.core.effects import AnyAct, Record
from endstop.core.events import Event
from endstop.core.goal import Claim, Goal, State

ACCEPT = "accept"
MORE, END = "more", "end"
YES = frozenset({ACCEPT, "yes", "y", "ok", "accepted", "approve", "approved"})
HALF_MORE = 1.5
"""Factor by which "more" raises the limit that was full."""


def review(state: State, goal: Goal, claim: Claim) -> ev.QuestionAsked | str | None:
    """Where the contract wants a human's review: the question to ask, or what he wants changed, or None once he accepts."""
    if goal.contract.review != "human":
        return None
    asked = state.questions.get(_review_id(claim))
    if asked is None:
        look = state.evidence.look
        changed = ", ".join(look.paths[:20]) if look is not None and look.paths else "nothing"
        return ev.QuestionAsked(
            question_id=_review_id(claim),
            question=f"Everything else passed. Is it done? The agent says: {claim.summary}\nChanged: {changed}",
            options=[ACCEPT],
            allow_freeform=True,
            on_timeout="continue",
        )
    answer = (asked.answer or "").strip()
    return None if answer.lower() in YES else answer or "a human has not accepted it"


def _review_id(claim: Claim) -> str:
    return f"review-{claim.seq}"


def before_end(state: State, effect: AnyAct) -> AnyAct:
    """With on_halt = ask and somebody to ask, a question precedes closing as stuck, capped or blocked, once per end."""
    goal = state.goal
    if goal is None or goal.halt_asked or goal.queued.policy.on_halt != "ask" or not state.kit.reachable:
        return effect
    closing = next((e for e in effect.events if isinstance(e, ev.GoalClosing)), None)
    if closing is None or closing.target not in ("stuck", "capped", "blocked") or state.phase not in ("working", "checking"):
        return effect
    limit = closing.detail.get("limit")
    more = f"{MORE} (half as much again of {limit}), " if limit else ""
    question = ev.QuestionAsked(
        question_id=f"end-{state.seq}",
        question=f"The goal is about to end as {closing.target}: {closing.reason}. Answer {more}a hint, or {END}.",
        options=[MORE, END] if limit else [END],
        allow_freeform=True,
        on_timeout="continue",
        limit=limit,
    )
    parked = ev.GoalParked(on="question", ref=question.question_id, said=question.question)
    return Record(events=(question, parked))


def after_answer(state: State, question_id: str) -> tuple[Event, ...]:
    """A hint is handed to the model; "more" and "end" are no words for it."""
    question = state.questions.get(question_id)
    if question is None or not question_id.startswith("end-") or question.answer in (None, MORE, END):
        return ()
    text = f"A human was asked and says: {question.answer}"
    return (ev.UserMessage(message_id=question_id, content=text, source="system", delivery="steering", reason="hint"),)
