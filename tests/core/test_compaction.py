"""Compaction: results are shortened first, pairs stay together, the journal keeps all, and too little gain is a limit."""

from __future__ import annotations

import pytest

from endstop.core import events as ev
from endstop.core.apply import replay
from endstop.core.compaction import PROMPT_BYTES, boundary, digest, prompt
from endstop.core.context import Window
from endstop.core.messages import AssistantText, ToolRequest, ToolText, UserText
from tests.core.sim import Sim, call, says, spec

BIG = "x" * 3000


def reader(text: str = BIG) -> dict:
    """A tool that reads a lot, something new each time."""
    count = [0]

    def play(arguments: dict) -> tuple[bool, str]:
        count[0] += 1
        return True, f"{count[0]} {text}"

    return {"look": (spec("look", "read"), play)}


def looks(turns: int):
    """A model that reads so often, then stops."""

    def model(sim: Sim):
        n = len(sim.asked)
        size = sim.state.window.size // 3
        return (
            says(f"turn {n}", call("look", n=n), tokens=(size, 20))
            if n <= turns
            else says("", call("task_complete", summary="x"))
        )

    return model


def whole(sim: Sim) -> None:
    """Every call's result follows it, and nothing else stands between."""
    pending: list[str] = []
    for message in sim.state.window.messages:
        if isinstance(message, ToolText):
            pending.remove(message.tool_call_id)
        else:
            assert pending == []
            pending = [r.tool_call_id for r in message.requests] if isinstance(message, AssistantText) else []


def test_old_results_are_shortened_first_without_a_model() -> None:
    """At 80 % of the known window old results keep only their ends, and nobody is asked."""
    sim = Sim(looks(12), tools=reader(), limits={"turns": 40.0}, window=12_000)
    sim.run()
    complete = sim.of(ev.SessionCompactionComplete)
    assert complete
    assert complete[0].shortened
    assert complete[0].forgot == []
    assert not [u for u in sim.of(ev.AssistantUsage) if u.initiator == "compaction"]
    assert complete[0].post_compaction_tokens < 0.8 * complete[0].pre_compaction_tokens
    assert sim.state.goal.ended.phase == "done"
    whole(sim)


def test_then_a_model_summarises_and_what_it_forgot_is_recorded() -> None:
    """Many small results cannot be shortened: a summary stands for ranges of events; head and newest messages stay."""
    sim = Sim(looks(60), tools=reader("y" * 300), limits={"turns": 90.0}, window=5_000)
    sim.run()
    complete = [c for c in sim.of(ev.SessionCompactionComplete) if c.forgot]
    assert complete
    (low, high) = complete[0].forgot[0]
    assert low < high < next(e.seq for e in sim.entries if e.event is complete[0])
    first = sim.state.window.messages[0]
    assert isinstance(first, UserText)
    assert first.text.startswith("# Goal")
    assert any(isinstance(m, UserText) and "what was done" in m.text for m in sim.state.window.messages)
    assert sim.state.window.generation >= 1
    whole(sim)
    assert replay(sim.entries, sim.kit) == sim.state


@pytest.mark.parametrize("kind", ["silent", "crash"])
def test_without_a_summary_what_is_old_is_left_out_and_said(kind: str) -> None:
    """A summariser that fails, or a process that dies while it is asked: the goal goes on with a list of what was called."""
    sim = Sim(looks(60), tools=reader("y" * 300), limits={"turns": 90.0}, window=5_000)
    sim.summary = None
    if kind == "crash":
        perform = sim.perform

        def dies(act) -> None:
            if type(act).__name__ == "Compact":
                sim.record(ev.SessionResume(resume_time="x", event_count=1, generation=2, crashed=True, open=[]))
            else:
                perform(act)

        sim.perform = dies  # type: ignore[method-assign]
    sim.run()
    complete = [c for c in sim.of(ev.SessionCompactionComplete) if c.forgot]
    assert complete
    assert not complete[0].success
    assert "look" in complete[0].summary_content
    assert sim.state.goal.ended.phase == "done"
    whole(sim)


def test_an_overflow_is_compacted_and_asked_again() -> None:
    """The provider says the context is too long although no window is known: it is made smaller and the turn is repeated."""
    state = {"refused": False}

    def model(sim: Sim):
        if len(sim.asked) == 20 and not state["refused"]:
            state["refused"] = True
            return "context_overflow"
        return looks(30)(sim)

    sim = Sim(model, tools=reader(), limits={"turns": 60.0})
    sim.run()
    assert sim.of(ev.SessionCompactionStart)[0].trigger == "overflow"
    assert sim.state.goal.ended.phase == "done"


def test_two_compactions_that_gain_too_little_cap_the_goal() -> None:
    """A model that refuses whatever is sent ends as capped, limit context, and not in a loop."""

    def model(sim: Sim):
        return "context_overflow" if len(sim.asked) > 6 else looks(30)(sim)

    sim = Sim(model, tools=reader("z" * 50), limits={"turns": 60.0})
    ended = sim.run()
    assert ended.phase == "capped"
    assert ended.handoff["detail"]["limit"] == "context"
    assert len(sim.asked) < 16


def test_the_plan_and_what_is_missing_are_said_anew() -> None:
    """What stood only in the forgotten part and still holds is added to the first request after it."""
    sim = Sim(looks(60), tools=reader("y" * 300), limits={"turns": 90.0}, window=5_000)
    while not sim.of(ev.SessionCompactionComplete):
        if len(sim.asked) == 3 and not sim.state.plan:
            items = [ev.PlanItem(id="1", text="mend the roof", status="open")]
            sim.record(ev.SessionPlanChanged(operation="update", items=items))
        sim.step()
    asked = len(sim.asked)
    while len(sim.asked) == asked:
        sim.step()
    assert any("mend the roof" in m.text for m in sim.state.window.messages)


@pytest.mark.parametrize("left", [12_000.0, 16_000.0])
def test_where_no_summary_fits_the_old_part_is_left_out_without_one(left: float) -> None:
    """Whether the next turn would still fit or not: no model is paid for it."""
    free = Sim(looks(60), tools=reader("y" * 300), limits={"turns": 90.0}, window=5_000)
    while not free.of(ev.SessionCompactionStart):
        free.step()
    spent = free.state.spend.used("tokens", 0) - sum(
        u.input_tokens + u.output_tokens for u in free.of(ev.AssistantUsage) if u.initiator == "compaction"
    )
    sim = Sim(looks(60), tools=reader("y" * 300), limits={"turns": 90.0, "tokens": spent + left}, window=5_000)
    ended = sim.run()
    assert ended is not None
    assert (ended.phase, ended.handoff["detail"]["limit"]) == ("capped", "tokens")
    assert "no summary of them could be made" in sim.of(ev.SessionCompactionComplete)[0].summary_content
    assert not [u for u in sim.of(ev.AssistantUsage) if u.initiator == "compaction"]


def test_the_newest_part_never_begins_with_a_result() -> None:
    """A call and all its results are kept or left out together."""
    window = Window()
    asked = tuple(ToolRequest(f"c{n}", "look", {}) for n in range(3))
    for n, message in enumerate(
        [
            UserText("goal"),
            AssistantText("a", asked),
            *[ToolText(f"c{n}", BIG if n < 2 else "ok") for n in range(3)],
            AssistantText("b"),
            UserText("c"),
        ]
    ):
        window.add(message, n)
    assert boundary(window) == 1


def test_what_the_summariser_reads_is_bounded() -> None:
    """The oldest entries give way."""
    text = prompt([UserText(f"{n} " + BIG) for n in range(400)])
    assert len(text) <= PROMPT_BYTES
    assert "older entries left out" in text
    assert "399 xxx" in text


def test_a_digest_says_what_there_was() -> None:
    """Calls and last words where there were any."""
    assert digest([UserText("x")]) == "1 older messages were left out; no summary of them could be made."
    said = digest([AssistantText("I looked", (ToolRequest("c", "look", {"n": 1}),))])
    assert "look {'n': 1}" in said
    assert "I looked" in said
    with pytest.raises(TypeError):
        prompt(["no message"])  # type: ignore[list-item]


def test_what_the_last_check_missed_is_said_anew() -> None:
    """It stood in a result that is left out now."""
    terms = ev.Contract(deliverables=["out.md"], judge="none", confront="never")
    first = [True]

    def model(sim: Sim):
        if first.pop() if first else False:
            return says("", call("task_complete", summary="x"), tokens=(500, 20))
        return looks(60)(sim)

    sim = Sim(model, tools=reader("y" * 300), contract=terms, limits={"turns": 90.0}, window=5_000)
    while not sim.of(ev.SessionCompactionComplete):
        sim.step()
    assert any("Missing at the last check:\n- deliverable absent: out.md" in note for note in sim.state.window.notes)
