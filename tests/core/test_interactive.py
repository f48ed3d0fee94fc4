"""Conversations without a goal: rounds, limits, stops and rules that never halt."""

from __future__ import annotations

import pytest

from endstop.core import effects
from endstop.core import events as ev
from endstop.core.apply import replay
from endstop.core.decide import decide
from endstop.core.goal import Kit, State, Verdict
from tests.core.sim import KERNEL, Sim, call, says, spec


class Chat(Sim):
    """A session of kind chat."""

    def __init__(self, model, *, tools=None, limits=None, **kit) -> None:
        super().__init__(model, tools=tools, **kit)
        specs = {s.name: s for s in KERNEL} | {name: s for name, (s, _) in self.tools.items()}
        self.kit = Kit(tools=specs, **kit)
        self.lines, self.entries, self.state = [], [], State(kit=self.kit)
        self.record(
            ev.SessionStart(
                session_id="s", version=1, producer="test", start_time="x", kind="chat", context=ev.Context(cwd="/w"),
                selected_model="m", limits=limits or {}, policy=ev.Policy(),
            )
        )  # fmt: skip

    def say(self, text: str) -> list[str]:
        """A human writes; the types of what follows until nothing is to be done."""
        at = len(self.entries)
        self.record(ev.UserMessage(message_id=f"u{at}", content=text, source="user", delivery="idle"))
        for _ in range(200):
            act = self.step()
            if isinstance(act, (effects.Idle, effects.Wait)):
                return self.types[at:]
        raise AssertionError("still going")


LOOK = {"look": (spec("look", "read"), lambda a: (True, f"seen {a}"))}


def test_a_message_opens_a_round_that_ends_with_an_answer() -> None:
    """The agent works with its tools until it only answers; then nothing runs until the next message."""
    chat = Chat(lambda s: says("", call("look", n=1)) if len(s.asked) == 1 else says("hello"), tools=LOOK)
    assert isinstance(chat.step(), effects.Idle)
    types = chat.say("look around")
    assert types.count("assistant.turn_start") == 2
    assert not any(t.startswith("goal.") for t in chat.types)
    assert (chat.state.phase, chat.state.round_open, chat.state.spend.rounds) == ("none", False, 1)
    chat.say("and again")
    assert chat.state.spend.rounds == 2
    assert replay(chat.entries, chat.kit) == chat.state


def test_rules_notice_and_refuse_but_never_halt_and_start_again_with_each_message() -> None:
    """A looping agent is refused, and goes on until a limit; the next message finds fresh counters."""
    chat = Chat(lambda s: says("", call("look", n=1)) if len(s.asked) % 9 else says("enough"), tools=LOOK, limits={"turns": 99.0})
    chat.say("go")
    assert "stall.blocked" in chat.types
    assert "stall.halted" not in chat.types
    assert len(chat.executed) == 4
    chat.say("once more")
    assert len(chat.executed) == 8


def test_a_full_limit_ends_the_round_with_an_error() -> None:
    """No phase, no closing turn: session.error names the limit."""
    chat = Chat(lambda s: says("", call("look", n=len(s.asked))), tools=LOOK, limits={"turns": 3.0})
    types = chat.say("go")
    error = chat.of(ev.SessionError)[0]
    assert types.count("assistant.turn_start") == 3
    assert (error.error_type, "turns" in error.message, chat.state.round_open) == ("limit", True, False)
    assert isinstance(chat.step(), effects.Idle)


def test_a_model_that_fails_ends_the_round_with_its_words() -> None:
    """And the next message asks it again."""
    chat = Chat(lambda s: "auth" if len(s.asked) == 1 else says("hello"), tools=LOOK)
    chat.say("hi")
    assert chat.of(ev.SessionError)[0].error_type == "auth"
    chat.say("hi again")
    assert chat.types[-1] == "assistant.turn_end"
    assert chat.state.turn.text == "hello"


def test_an_abort_interrupts_the_round_and_a_stop_message_too() -> None:
    """Open calls get their result, nothing is paused, and the next message is heard."""
    for stop in (
        ev.Abort(reason="r", by="me"),
        ev.UserMessage(message_id="x", content="stop", source="user", delivery="steering"),
    ):
        chat = Chat(lambda s: says("", call("look", n=len(s.asked))) if len(s.asked) < 3 else says("hi"), tools=LOOK)
        chat.record(ev.UserMessage(message_id="u", content="go", source="user", delivery="idle"))
        while not chat.asked:
            chat.step()
        chat.record(stop)
        while not isinstance(chat.step(), effects.Idle):
            pass
        assert chat.of(ev.TurnEnd)[-1].outcome == "interrupted"
        assert [c.error.code for c in chat.of(ev.ToolComplete)] == ["interrupted"]
        chat.say("go on")
        assert chat.of(ev.TurnEnd)[-1].outcome == "ok"


def test_questions_and_permissions_wait_without_parking() -> None:
    """The driver waits; the answer is the call's result."""
    ask = says("", call("ask_user", question="which?"))
    chat = Chat(lambda s: ask if len(s.asked) == 1 else says("thanks"), reachable=True)
    chat.say("go")
    act = decide(chat.state, chat.now)
    assert isinstance(act, effects.Wait)
    assert act.on == "question"
    chat.record(ev.QuestionAnswered(question_id=next(iter(chat.state.questions)), answer="blue", by="me"))
    while not isinstance(chat.step(), effects.Idle):
        pass
    assert chat.of(ev.ToolComplete)[-1].result.content == "blue"


def test_claims_and_waits_have_no_place() -> None:
    """There is no goal to finish and nothing to park: both are told so, and the round goes on."""
    answers = [says("", call("task_complete", summary="x"), call("wait", seconds=5)), says("fine")]
    chat = Chat(lambda s: answers[min(len(s.asked), 2) - 1])
    chat.say("go")
    assert [c.error.code for c in chat.of(ev.ToolComplete)] == ["failed", "refused_claim"]
    assert chat.state.turn.text == "fine"


def test_a_crash_in_a_round_is_recovered_from() -> None:
    """A command whose end nobody saw is unknown, a lost answer is counted, and the round goes on."""
    tools = {"run": (spec("run", "shell"), lambda a: (True, "ok"))}
    chat = Chat(lambda s: says("", call("run", n=1)) if len(s.asked) == 1 else says("done"), tools=tools)
    chat.record(ev.UserMessage(message_id="u", content="go", source="user", delivery="idle"))
    while True:
        act = decide(chat.state, chat.now)
        chat.record(*act.events)
        if isinstance(act, effects.RunTools):
            break
        chat.perform(act)
    chat.record(ev.SessionResume(resume_time="x", event_count=1, generation=2, crashed=True, open=[]))
    while not isinstance(chat.step(), effects.Idle):
        pass
    assert chat.of(ev.ToolComplete)[0].error.code == "effect_unknown"
    assert chat.state.turn.text == "done"
    assert chat.executed == []


def test_after_a_goal_a_message_opens_a_round_and_never_resumes_it() -> None:
    """The goal stays ended; the conversation goes on with what is left of its limits."""
    sim = Sim(lambda s: says("all is well"), limits={"turns": 20.0})
    assert sim.run().phase == "done"
    sim.record(ev.UserMessage(message_id="u", content="thanks, and why?", source="user", delivery="idle"))
    while not isinstance(sim.step(), effects.Idle):
        pass
    assert sim.state.phase == "done"
    assert len(sim.asked) == 2


def test_a_named_fallback_takes_over_and_is_recorded() -> None:
    """A refusing model is followed by the next one named, never by another; then the goal fails."""
    asked: list[str] = []

    def model(s: Sim):
        asked.append(s.state.model)
        return "auth" if s.state.model != "c" else says("", call("task_complete", summary="x"))

    for fallbacks, phase, models in ((["b", "c"], "done", ["m", "b", "c", "c"]), (["b"], "failed", ["m", "b"])):
        asked.clear()
        sim = Sim(model)
        queued = sim.state.goal.queued
        sim.lines, sim.entries = [], []
        sim.state = State(kit=sim.kit)
        fields = {name: getattr(queued, name) for name in queued.__struct_fields__} | {"fallbacks": fallbacks}
        sim.record(
            ev.SessionStart(session_id="s", version=1, producer="t", start_time="x", kind="goal", context=ev.Context(cwd="/w")),
            ev.GoalQueued(**fields),
        )
        assert sim.run().phase == phase
        assert asked == models
        assert [c.new_model for c in sim.of(ev.SessionModelChange)] == fallbacks
        assert {u.model for u in sim.of(ev.TurnStart)} == set(models)


@pytest.mark.parametrize(("word", "ran"), [("approved", 1), ("denied-interactively-by-user", 0), ("abort", 0)])
def test_a_permission_is_waited_for_inside_the_round(word: str, ran: int) -> None:
    """Nothing is parked; the decision yields the call's one result, and an abort withdraws the request."""
    tools = {"pay": (spec("pay"), lambda a: (True, "paid"))}
    chat = Chat(
        lambda s: says("", call("pay", n=1)) if len(s.asked) == 1 else says("so"),
        tools=tools,
        reachable=True,
        permit=lambda s, a: Verdict("ask", "mode ask", "it pays"),
    )
    chat.say("go")
    act = decide(chat.state, chat.now)
    assert isinstance(act, effects.Wait)
    assert act.on == "grant"
    (request,) = chat.of(ev.PermissionRequested)
    if word == "abort":
        chat.record(ev.Abort(reason="r", by="me"))
    else:
        decision = ev.Decision(kind=word)
        chat.record(ev.PermissionCompleted(request_id=request.request_id, result=decision, scope="once", by="me"))
    while not isinstance(chat.step(), effects.Idle):
        pass
    assert len(chat.executed) == ran
    assert len(chat.of(ev.ToolComplete)) == 1
    assert all(grant.kind for grant in chat.state.grants.values())
    assert not chat.of(ev.GoalParked)


def test_a_conversation_that_fills_its_window_is_made_smaller() -> None:
    """Old results are shortened, and the round goes on."""
    tools = {"look": (spec("look", "read"), lambda a: (True, f"{a} " + "x" * 3000))}
    chat = Chat(
        lambda s: (
            says("", call("look", n=len(s.asked)), tokens=(s.state.window.size // 3, 20)) if len(s.asked) < 16 else says("so")
        ),
        tools=tools,
        window=10_000,
    )
    chat.say("go")
    assert chat.of(ev.SessionCompactionComplete)
    assert chat.state.turn.text == "so"


def test_what_is_written_between_an_abort_and_the_end_of_its_round_is_heard() -> None:
    """The interrupted round ends, and the message that came meanwhile is answered."""
    chat = Chat(lambda s: says("", call("look", n=len(s.asked))) if len(s.asked) < 2 else says("heard"), tools=LOOK)
    chat.record(ev.UserMessage(message_id="u", content="go", source="user", delivery="idle"))
    while not chat.asked:
        chat.step()
    chat.record(
        ev.Abort(reason="r", by="me"), ev.UserMessage(message_id="v", content="no, this", source="user", delivery="steering")
    )
    while not isinstance(chat.step(), effects.Idle):
        pass
    assert (chat.state.turn.text, chat.state.inbox) == ("heard", [])
