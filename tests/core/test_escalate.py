"""A human before something final: review before done, a question before giving up."""

from __future__ import annotations

import pytest

from endstop.core import events as ev
from endstop.core.effects import Wait
from tests.core.sim import Sim, call, says, spec

REVIEWED = ev.Contract(judge="none", review="human", confront="never")


def wait(sim: Sim) -> str:
    """Turn the wheel until it waits for a human; the question."""
    for _ in range(300):
        act = sim.step()
        if isinstance(act, Wait) and act.on == "question":
            return next(q.id for q in sim.state.questions.values() if q.answer is None and not q.expired)
        if sim.state.goal.ended:
            raise AssertionError(f"ended {sim.state.phase}")
    raise AssertionError("never asked")


def answer(sim: Sim, id: str, text: str) -> None:
    """The human answers."""
    sim.record(ev.QuestionAnswered(question_id=id, answer=text, by="me"))


@pytest.mark.parametrize("words", ["accept", "Yes", "ok"])
def test_a_claim_waits_for_the_human_who_wants_to_review_it(words: str) -> None:
    """Done only once he accepts; while he thinks nothing is asked of a model. A review alone verifies nothing."""
    sim = Sim(lambda s: says("", call("task_complete", summary="x")), contract=REVIEWED)
    id = wait(sim)
    asked = len(sim.asked)
    answer(sim, id, words)
    ended = sim.run()
    assert (ended.phase, len(sim.asked)) == ("done", asked)


def test_what_he_wants_changed_is_what_is_missing() -> None:
    """Any other answer sends the claim back with his words, and the next claim asks again."""
    tools = {"edit": (spec("edit", "edit"), lambda a: (sim.files.update(f=a["text"]) or True, "edited"))}

    def model(s: Sim):
        turn = len(s.asked)
        return says("", call("edit", text=str(turn))) if turn == 2 else says("", call("task_complete", summary="x"))

    sim = Sim(model, tools=tools, contract=REVIEWED)
    answer(sim, wait(sim), "use fewer words")
    second = wait(sim)
    assert sim.of(ev.GoalReturned)[0].missing == ["a human wants: use fewer words"]
    answer(sim, second, "accept")
    assert sim.run().phase == "done"


def stuck(s: Sim):
    """A model that repeats itself until it is told something."""
    told = any("says: try the other door" in getattr(m, "text", "") for m in s.state.window.messages)
    return says("", call("task_complete", summary="x")) if told else says("", call("pay", to="x"))


def asking(model, **more) -> Sim:
    """A goal whose human wants to be asked before it ends."""
    sim = Sim(model, tools={"pay": (spec("pay"), lambda a: (True, "busy, try again later"))}, reachable=True, **more)
    fields = {name: getattr(sim.state.goal.queued, name) for name in sim.state.goal.queued.__struct_fields__}
    sim.state.goal.queued = ev.GoalQueued(**(fields | {"policy": ev.Policy(on_halt="ask")}))
    return sim


def test_a_hint_goes_to_the_model_and_the_goal_goes_on() -> None:
    """Before it ends as stuck he is asked; his words reach the model with its next call."""
    sim = asking(stuck)
    answer(sim, wait(sim), "try the other door")
    assert sim.run().phase == "done"


def test_end_ends_it_and_he_is_asked_once() -> None:
    """As what it was about to end as."""
    sim = asking(stuck)
    answer(sim, wait(sim), "end")
    for _ in range(400):
        sim.step()
        if sim.state.goal.ended:
            break
    assert sim.state.phase == "stuck"
    assert len([q for q in sim.of(ev.QuestionAsked) if q.question_id.startswith("end-")]) == 1


def test_more_raises_the_full_limit_by_half_and_asks_again_when_it_is_full() -> None:
    """What was spent stays spent."""
    sim = asking(lambda s: says("", call("pay", to=str(len(s.asked)))), limits={"turns": 10.0})
    answer(sim, wait(sim), "more")
    assert sim.state.goal.caps["turns"] == 15.0
    spent = sim.state.spend.turns
    second = wait(sim)
    assert sim.state.spend.turns > spent
    answer(sim, second, "end")
    assert sim.run().phase == "capped"


def test_nobody_reachable_means_nobody_is_asked() -> None:
    """It ends at once."""
    sim = asking(stuck)
    sim.kit.reachable = False
    assert sim.run().phase == "stuck"
    assert not sim.of(ev.QuestionAsked)
