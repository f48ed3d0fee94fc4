"""What happens next: stops, crashes, waits, closing, rounds, resumes."""

from __future__ import annotations

from typing import Any

import pytest

from endstop.core import effects
from endstop.core import events as ev
from endstop.core.apply import replay
from endstop.core.decide import decide
from endstop.core.goal import Verdict
from endstop.core.messages import Answer, ToolText
from tests.core.sim import Sim, call, says, spec

FILE = ev.Contract(deliverables=["never"], judge="none")
GATED = ev.Contract(gates=[ev.Gate(gate_id="g", run="make test")], judge="none", confront="never")
CLASSES = {"look": "read", "web": "read_outside", "edit": "edit", "put": "idempotent", "pay": "write", "sh": "shell"}
TOOLS = {name: (spec(name, effect), lambda a: (True, "did it")) for name, effect in CLASSES.items()}
YES = ev.GoalJudged(result="verdict", achieved=True, missing=[], because=[1], raw="")


def goal(*script: Any, **more: Any) -> Sim:
    """A model that plays answers by turn, the last one for ever."""

    def model(sim: Sim) -> Answer | str:
        return script[min(len(sim.asked), len(script)) - 1]

    return Sim(model, **({"tools": TOOLS, "contract": FILE, "limits": {"turns": 30.0}} | more))


def results(sim: Sim) -> list[str]:
    """Error codes of all results, "ok" for none."""
    return [r.error.code if r.error else "ok" for r in sim.of(ev.ToolComplete)]


def rest(sim: Sim) -> str:
    """The phase once nothing goes on by itself."""
    for _ in range(300):
        act = sim.step()
        if isinstance(act, effects.Idle) or (isinstance(act, effects.Wait) and act.until is None):
            return sim.state.phase
    raise AssertionError(sim.types[-20:])


# ------------------------------------------------------------------------------------------------------------------- queued, idle


def test_without_a_goal_there_is_nothing_to_do() -> None:
    """An empty journal, and one with only a start, are idle."""
    sim = goal(says("42"))
    assert isinstance(decide(replay([]), 0.0), effects.Idle)
    assert isinstance(decide(replay(sim.entries[:1]), 0.0), effects.Idle)


def test_a_queued_goal_waits_for_its_workspace() -> None:
    """It starts once lease and lock are held, and names the lock."""
    sim = goal(says("42"))
    sim.state.kit.lock = ""
    act = sim.step()
    assert isinstance(act, effects.Wait)
    assert (act.on, act.until) == ("workspace", None)
    sim.state.kit.lock = "/w"
    sim.step()
    assert sim.of(ev.GoalStarted)[0].workspace_lock == "/w"


def test_a_goal_whose_time_is_over_before_it_starts_is_capped_without_a_model() -> None:
    """Wall runs from queueing."""
    sim = goal(says("42"), limits={"wall": 1000.0})
    sim.now += 5000
    ended = sim.run()
    assert ended is not None
    assert (ended.phase, ended.handoff["detail"]["limit"]) == ("capped", "wall")
    assert sim.asked == []
    assert ended.missing == ["the goal was not started"]


# -------------------------------------------------------------------------------------------------------------------------- stops

STOPS = """\
stop|Stop.|STOP!!!| stop |please stop|Please stop.|stop please|stop, please|stop now|Stop it!|halt|Halt!|pause|please pause|cancel
Cancel.|abort|abort now|stop stop stop|stop. now.|no, stop|ok stop|stop immediately|pause…""".replace("\n", "|").split("|")
NOT_STOPS = """\
stop using tabs|please stop using tabs|don't stop|stop the server|stop when the tests pass|abort the merge first|stopwords|nonstop
cancel the order in test_a.py|pause the video player in the fixture|unstoppable|halting problem|what does stop do?|stop?|now
please|stop and think|the stop button|go on, do not stop now|stop: tabs||""".replace("\n", "|").split("|")


@pytest.mark.parametrize("text", STOPS)
def test_a_message_that_is_only_a_stop_pauses(text: str) -> None:
    """In several wordings; it does not reach the model, and only a resume goes on."""
    sim = goal(says("", call("look")))
    sim.until(effects.RunTools)
    sim.hear(text)
    act = sim.step()
    assert [type(e) for e in act.events] == [ev.GoalPaused]
    assert rest(sim) == "paused"
    sim.hear("go on")
    assert rest(sim) == "paused"
    sim.resume()
    sim.until(effects.CallModel)
    assert f"\n{text}" not in sim.prompt
    assert "go on" in sim.prompt


@pytest.mark.parametrize("text", NOT_STOPS)
def test_a_message_that_says_more_does_not_pause(text: str) -> None:
    """It is a message like any other and reaches the model."""
    sim = goal(says("", call("look", n=1)), says("", call("look", n=2)))
    sim.until(effects.RunTools)
    sim.hear(text)
    sim.until(effects.CallModel)
    assert not sim.of(ev.GoalPaused)
    assert text in [m.text for m in sim.state.window.messages]


def _queued(sim: Sim) -> None:
    """Not started yet."""


def _tools(sim: Sim) -> None:
    """Calls are open."""
    sim.until(effects.CallModel)


def _question(sim: Sim) -> None:
    """A question is open."""
    sim.model = lambda s: says("", call("ask_user", question="?"))
    sim.until(effects.Wait)


def _grant(sim: Sim) -> None:
    """A permission is asked for."""
    sim.state.kit.permit, sim.state.kit.reachable = (lambda s, a: Verdict("ask")), True
    sim.until(effects.Wait)


def _silent(sim: Sim) -> None:
    """Two rounds of words, a human is asked."""
    sim.model, sim.state.kit.reachable = (lambda s: says("hm")), True
    sim.until(effects.Wait)


def _time(sim: Sim) -> None:
    """It waits for a time."""
    sim.model = lambda s: says("", call("wait", seconds=99))
    sim.until(effects.Wait)


def _model(sim: Sim) -> None:
    """It waits for a model that is down."""
    sim.model = lambda s: "network"
    sim.until(effects.Wait)


def _check(sim: Sim) -> None:
    """A claim is under check."""
    sim.model = lambda s: says("", call("task_complete", summary="x"))
    while sim.state.phase != "checking":
        sim.step()


def _report(sim: Sim) -> None:
    """It said twice that it is blocked, a human is asked."""
    sim.model, sim.state.kit.reachable = (lambda s: says("", call("report_blocked", reason="x"))), True
    sim.until(effects.Wait)


STAGES = {
    "queued": _queued,
    "tools": _tools,
    "question": _question,
    "grant": _grant,
    "silent": _silent,
    "time": _time,
    "model": _model,
    "check": _check,
    "report": _report,
}
"""Ways to bring a goal to each phase in which it can be stopped."""


@pytest.mark.parametrize("stage", STAGES)
def test_a_stop_pauses_whatever_is_open_and_a_resume_goes_on_from_there(stage: str) -> None:
    """Before anything else; nothing that was open is lost."""
    sim = goal(says("", call("look"), call("pay")))
    STAGES[stage](sim)
    phase = sim.state.phase
    sim.hear("stop")
    act = sim.step()
    assert [type(e) for e in act.events] == [ev.GoalPaused]
    assert sim.state.phase == "paused"
    sim.resume()
    assert sim.state.phase == phase
    sim.model = lambda s: says("", call("wait", seconds=1))
    for _ in range(6):
        sim.step()
    assert not {"interrupted", "cancelled"} & set(results(sim))


@pytest.mark.parametrize("stage", [s for s in STAGES if s != "queued"])
def test_an_abort_ends_the_turn_and_what_it_waits_for(stage: str) -> None:
    """Open calls are interrupted, the goal waits for the next human message and then works on it; no call has two results."""
    sim = goal(says("", call("look"), call("pay")))
    STAGES[stage](sim)
    sim.record(ev.Abort(reason="ctrl-c", by="me"))
    assert rest(sim) == "paused"
    assert sim.state.goal.pause == "interrupt"
    assert sim.state.turn.ended
    sim.model = lambda s: says("", call("look", n=7))
    sim.state.kit.permit = lambda s, a: Verdict("allow")
    sim.hear("do it another way")
    act = sim.until(effects.CallModel)
    assert act.purpose == "work"
    assert "do it another way" in sim.prompt
    assert sim.state.phase == "working"
    sim.until(effects.RunTools)
    asked = [r.tool_call_id for m in sim.of(ev.AssistantMessage) for r in m.tool_requests]
    done = [r.tool_call_id for r in sim.of(ev.ToolComplete)]
    assert len(done) == len(set(done))
    assert set(asked) == set(done)


def test_an_abort_before_the_start_waits_for_a_message_too() -> None:
    """Then the goal starts."""
    sim = goal(says("", call("look")))
    sim.record(ev.Abort(reason="r", by="me"))
    assert rest(sim) == "paused"
    sim.hear("on second thought, go")
    sim.until(effects.CallModel)
    assert "on second thought, go" in sim.prompt


def test_an_abort_that_finds_nothing_to_stop_is_not_kept_for_later() -> None:
    """Neither while paused nor after the end."""
    sim = goal(says("", call("look", n=1)))
    sim.until(effects.RunTools)
    sim.record(ev.GoalPaused(reason="user", by="me"), ev.Abort(reason="r", by="me"))
    sim.resume()
    sim.until(effects.CallModel)
    sim = goal(says("", call("look")), limits={"turns": 1.0})
    assert rest(sim) == "capped"
    sim.record(ev.Abort(reason="r", by="me"))
    sim.resume(limits={"turns": 3.0})
    sim.until(effects.CallModel)


def test_a_stop_that_comes_while_interrupted_stays_stopped() -> None:
    """It is no message to go on with."""
    sim = goal(says("", call("look")))
    sim.until(effects.RunTools)
    sim.record(ev.Abort(reason="r", by="me"))
    assert rest(sim) == "paused"
    sim.hear("stop")
    assert rest(sim) == "paused"
    sim.hear("go on")
    sim.until(effects.CallModel)
    assert "go on" in sim.prompt


def test_a_refusal_with_stop_ends_the_turn() -> None:
    """deny and stop: the call is interrupted, nothing of the batch runs."""
    sim = goal(says("", call("pay", n=1), call("pay", n=2)), permit=lambda s, a: Verdict("ask"), reachable=True)
    sim.until(effects.Wait)
    request = sim.of(ev.PermissionRequested)[0].request_id
    sim.record(
        ev.PermissionCompleted(
            request_id=request, result=ev.Decision(kind="denied-interactively-by-user"), scope="once", by="me", stop=True
        )
    )
    assert rest(sim) == "paused"
    assert results(sim) == ["interrupted", "interrupted"]
    assert sim.executed == []
    assert all(g.kind for g in sim.state.grants.values())


@pytest.mark.parametrize("stage", STAGES)
def test_a_cancel_ends_the_goal_from_every_phase(stage: str) -> None:
    """Open calls are cancelled, no model is asked again, the end says by whom."""
    sim = goal(says("", call("look"), call("pay")))
    STAGES[stage](sim)
    asked = len(sim.asked)
    sim.record(ev.GoalClosing(target="cancelled", reason="person", by="me", detail={}))
    assert rest(sim) == "cancelled"
    assert len(sim.asked) == asked
    assert sim.state.goal.ended.ended_by == "person"
    assert len(set(results(sim)) - {"cancelled", "not_done"}) == 0 or stage == "report"


def test_a_cancel_while_paused_and_while_closing() -> None:
    """A pause does not hold it back, nor a limit that was reached before."""
    sim = goal(says("", call("look")))
    sim.until(effects.RunTools)
    sim.record(ev.GoalPaused(reason="user", by="me"))
    assert rest(sim) == "paused"
    sim.record(ev.GoalClosing(target="cancelled", reason="person", by="me", detail={}))
    assert rest(sim) == "cancelled"
    sim = goal(says("", call("look", n=1)), limits={"turns": 5.0})
    sim.until(effects.CallModel, perform=False, purpose="close")
    sim.record(ev.GoalClosing(target="cancelled", reason="person", by="me", detail={}))
    assert rest(sim) == "cancelled"
    assert sim.of(ev.TurnEnd)[-1].outcome == "lost"
    assert [u.initiator for u in sim.of(ev.AssistantUsage)][-1] == "close"
    assert sim.state.spend.estimated


@pytest.mark.parametrize("how", ["abort", "pause", "cancel"])
def test_a_judge_that_was_stopped_has_spent_its_reservation(how: str) -> None:
    """Every paid call has exactly one usage; after a pause it is asked again."""
    sim = goal(says("", call("task_complete", summary="x")), contract=ev.Contract(confront="never"), judge=lambda s: YES)
    act = sim.until(effects.AskJudge, perform=False)
    reserved = act.events[0].reserved
    stop = {
        "abort": ev.Abort(reason="r", by="me"),
        "pause": ev.GoalPaused(reason="user", by="me"),
        "cancel": ev.GoalClosing(target="cancelled", reason="r", by="me", detail={}),
    }
    sim.record(stop[how])
    phase = rest(sim)
    (usage,) = [u for u in sim.of(ev.AssistantUsage) if u.initiator == "judge"]
    assert usage.estimated
    assert usage.input_tokens + usage.output_tokens == reserved["tokens"]
    if how == "pause":
        assert phase == "paused"
        sim.resume()
        assert rest(sim) == "done"
        assert sim.state.goal.ended.verified


# ----------------------------------------------------------------------------------------------------------------------- crashes


@pytest.mark.parametrize("kind", ["work", "recover", "close"])
def test_a_lost_answer_costs_its_reservation_and_the_turn_is_taken_again(kind: Any) -> None:
    """turn_end(lost), usage estimated; a lost closing turn is not taken twice."""
    script = [says("", call("nope"))] if kind == "recover" else [says("", call("look", n=1))]
    sim = goal(*script, limits={"turns": 12.0 if kind == "recover" else 5.0})
    act = sim.until(effects.CallModel, perform=False, purpose=kind)
    reserved = act.events[-1].reserved
    before = sim.state.spend.input + sim.state.spend.output
    sim.crash()
    sim.step()
    assert sim.of(ev.TurnEnd)[-1].outcome == "lost"
    usage = sim.of(ev.AssistantUsage)[-1]
    assert (usage.initiator, usage.estimated) == (kind, True)
    assert sim.state.spend.input + sim.state.spend.output == before + reserved["tokens"]
    sim.run()
    assert [e.purpose for e in sim.of(ev.TurnStart)].count(kind) == (1 if kind == "close" else 2 if kind == "recover" else 4)
    assert sim.state.phase in ("capped", "stuck")


@pytest.mark.parametrize("name", CLASSES)
def test_a_start_without_an_end_is_decided_by_its_class(name: str) -> None:
    """Reads, edits and idempotent calls run again with the same key; writes and shell are unknown, and said so."""
    sim = goal(says("", call(name, n=1)), says("", call(name, n=2)))
    act = sim.until(effects.RunTools, perform=False)
    key = act.calls[0].key
    sim.crash()
    again = sim.step()
    if name in ("pay", "sh"):
        assert results(sim) == ["effect_unknown"]
        assert sim.of(ev.ToolComplete)[0].executed
        assert sim.executed == []
        assert "Inspect what it may have done" in sim.prompt
    else:
        assert isinstance(again, effects.RunTools)
        assert [(run.key, run.again) for run in again.calls] == [(key, True)]
        assert again.events == ()
        assert results(sim) == ["ok"]
    assert sim.state.spend.calls == 1
    act = sim.until(effects.Look)
    assert act.purpose == "resume"
    sim.until(effects.CallModel)
    assert len(sim.of(ev.ToolStart)) == 1


def test_a_write_whose_effect_is_unknown_is_not_made_again_by_repeating_it() -> None:
    """Its key is taken until the model insists."""
    sim = goal(
        says("", call("pay", to="x")), says("", call("pay", to="x")), says("", call("pay", to="x", again="it was not there"))
    )
    sim.until(effects.RunTools, perform=False)
    sim.crash()
    sim.until(effects.CallModel)
    sim.until(effects.CallModel)
    assert sim.executed == []
    sim.until(effects.RunTools)
    assert sim.executed == [("pay", {"to": "x"})]


def test_what_had_not_begun_runs_once_and_what_had_ended_is_not_run_again() -> None:
    """A crash in the middle of a batch: one done, one unknown, one to come."""
    sim = goal(says("", call("pay", n=1), call("pay", n=2), call("pay", n=3)))
    sim.until(effects.RunTools)
    sim.until(effects.RunTools, perform=False)
    sim.crash()
    while not sim.state.turn.ended:
        sim.step()
    assert results(sim) == ["ok", "effect_unknown", "ok"]
    assert [a["n"] for _, a in sim.executed] == [1, 3]


def test_parallel_reads_cut_by_a_crash_all_run_again() -> None:
    """Those that had ended keep their result."""
    sim = goal(says("", *[call("look", n=n) for n in range(3)]))
    act = sim.until(effects.RunTools, perform=False)
    sim.record(sim._tool(act.calls[0]))
    sim.crash()
    again = sim.step()
    assert isinstance(again, effects.RunTools)
    assert [run.arguments["n"] for run in again.calls] == [1, 2]


def test_an_edit_is_run_again_with_what_its_start_knew() -> None:
    """Content hashes decide in the tool whether it was done."""
    sim = goal(says("", call("edit", path="a")))
    act = sim.until(effects.CallModel)
    act = decide(sim.state, sim.now)
    start = act.events[0]
    sim.record(ev.ToolStart(**{f: getattr(start, f) for f in start.__struct_fields__} | {"before": {"a": "abc"}}))
    sim.crash()
    again = sim.step()
    assert again.calls[0].before == {"a": "abc"}


@pytest.mark.parametrize("stage", ["question", "time", "grant"])
def test_a_wait_is_attached_again_and_never_begun_twice(stage: str) -> None:
    """Same question, same grant, same time."""
    sim = goal(says("", call("pay")))
    STAGES[stage](sim)
    until = sim.state.goal.parked.until
    sim.crash()
    act = sim.step()
    assert isinstance(act, effects.Wait)
    assert act.until == until
    assert sim.state.phase == "waiting"
    assert len(sim.of(ev.GoalParked)) == 1


def test_a_gate_cut_by_a_crash_runs_again() -> None:
    """Under a claim as at its confrontation, as often as it is cut."""
    for confront in ("never", "once"):
        terms = ev.Contract(gates=GATED.gates, judge="none", confront=confront)
        sim = goal(says("", call("edit"), call("task_complete", summary="x")), contract=terms, gates=lambda g, s: ("pass", 0))
        sim.until(effects.RunGates)
        for _ in range(2):
            sim.until(effects.RunGates, perform=False)
            sim.crash()
        sim.until(effects.RunGates)
        assert len(sim.of(ev.GateStarted)) == 4
        assert rest(sim) == "done"
        if confront == "once":
            assert "Gate `make test`: pass (exit 0, at the start: pass)" in sim.of(ev.GoalConfronted)[0].evidence


def test_a_judge_cut_by_a_crash_is_asked_again_and_paid_twice() -> None:
    """Its reservation is spent, marked as estimated."""
    sim = goal(says("", call("task_complete", summary="x")), contract=ev.Contract(confront="never"), judge=lambda s: YES)
    sim.until(effects.AskJudge, perform=False)
    sim.crash()
    assert rest(sim) == "done"
    judged = [u for u in sim.of(ev.AssistantUsage) if u.initiator == "judge"]
    assert [u.estimated for u in judged] == [True, False]
    assert [j.result for j in sim.of(ev.GoalJudged)] == ["unreachable", "verdict"]


def test_three_crashes_without_a_finished_turn_pause_the_goal() -> None:
    """crash_loop: a person has to look; a finished turn starts the count again, a resume too."""
    sim = goal(says("", call("look", n=1)))
    sim.until(effects.RunTools, perform=False)
    for _ in range(3):
        sim.crash()
    assert rest(sim) == "paused"
    assert sim.state.goal.pause == "crash_loop"
    sim.hear("go on")
    assert rest(sim) == "paused"
    sim.resume()
    sim.until(effects.CallModel)
    sim = goal(*[says("", call("look", n=n)) for n in range(9)])
    for _ in range(6):
        sim.until(effects.RunTools, perform=False)
        sim.crash()
        while not sim.state.turn.ended:
            sim.step()
    assert not sim.of(ev.GoalPaused)


def test_crashes_of_an_ended_goal_do_not_pause_the_next_one() -> None:
    """Each goal has its own count."""
    sim = goal(says("42"), contract=ev.Contract(judge="none"))
    sim.run()
    for _ in range(4):
        sim.crash()
    sim.record(sim.of(ev.GoalQueued)[0])
    assert rest(sim) == "done"
    assert not sim.of(ev.GoalPaused)


def test_a_holder_in_good_order_only_looks_once() -> None:
    """Somebody may have changed files meanwhile; nothing is lost or run again."""
    sim = goal(says("", call("look", n=1)))
    sim.until(effects.RunTools)
    sim.record(ev.SessionShutdown(shutdown_type="clean"))
    sim.crash(crashed=False)
    act = sim.step()
    assert isinstance(act, effects.Look)
    assert act.purpose == "resume"
    assert isinstance(sim.step(), effects.Record)
    assert sim.state.crashes == 0


@pytest.mark.parametrize("target", ["stop", "abort"])
def test_a_stop_that_meets_a_crash_still_accounts_for_the_lost_turn(target: str) -> None:
    """The usage is there whatever comes first."""
    sim = goal(says("", call("look", n=1)))
    sim.until(effects.CallModel, perform=False)
    sim.record(ev.Abort(reason="r", by="me")) if target == "abort" else sim.hear("stop")
    sim.crash()
    assert rest(sim) == "paused"
    sim.hear("go on")
    if target == "stop":
        sim.resume()
    sim.until(effects.CallModel)
    assert len(sim.of(ev.AssistantUsage)) == len(sim.of(ev.TurnStart)) == 2


@pytest.mark.parametrize("name", ["look", "pay"])
def test_a_crash_while_the_goal_closes_leaves_no_call_open(name: str) -> None:
    """Reads are cancelled, writes unknown, and it ends."""
    sim = goal(says("", call(name)))
    sim.until(effects.RunTools, perform=False)
    sim.record(ev.GoalClosing(target="cancelled", reason="r", by="me", detail={}))
    sim.crash()
    assert rest(sim) == "cancelled"
    assert results(sim) == ["cancelled" if name == "look" else "effect_unknown"]


# -------------------------------------------------------------------------------------------------------------------------- waits


def test_a_model_that_is_down_is_waited_for_and_then_blocks() -> None:
    """1, 5, 15 minutes, for 6 hours; no turn is open meanwhile; a message is queued."""
    sim = goal("network", limits={"turns": 99.0})
    waits = []
    for n in range(4):
        act = sim.until(effects.Wait)
        assert act.on == "model"
        waits.append(round(act.until - sim.now))
        if n == 0:
            sim.hear("are you there?")
            assert isinstance(sim.step(), effects.Wait)
        sim.now = act.until
    assert waits == [60, 300, 900, 900]
    ended = sim.run()
    assert ended is not None
    assert (ended.phase, ended.handoff["detail"]["rule"]) == ("blocked", "model")
    assert 6 * 3600 <= ended.handoff["spend"]["wall"] < 7 * 3600
    assert all(a.purpose == "work" for a in sim.asked)  # a model that does not answer writes no handoff


def test_a_provider_that_names_a_time_is_waited_for_until_then() -> None:
    """Rate limits say when they reset; after an answer the back-off starts again."""
    sim = goal("rate_limit", says("", call("look", n=1)), "server", says("", call("look", n=2)))
    act = sim.until(effects.CallModel, perform=False)
    sim.asked.append(act)
    failed = ev.TurnEnd(turn_id=1, outcome="failed", error=ev.Failure(code="rate_limit", message="slow"), retry_at=sim.now + 4000)
    sim.record(failed)
    act = sim.until(effects.Wait)
    assert act.until == pytest.approx(failed.retry_at)
    assert "rate_limit: slow" in sim.state.goal.parked.said
    sim.now = act.until
    sim.until(effects.RunTools)
    act = sim.until(effects.Wait)
    assert round(act.until - sim.now) == 60


@pytest.mark.parametrize("fault", ["auth", "invalid_request", "content_filter", "truncated"])
def test_a_fault_that_will_not_pass_fails_the_goal(fault: str) -> None:
    """The error is named, no closing turn is tried."""
    sim = goal(fault)
    ended = sim.run()
    assert ended is not None
    assert (ended.phase, ended.ended_by, ended.handoff["detail"]["error"]) == ("failed", "error", fault)
    assert len(sim.asked) == 1


def test_a_full_window_caps_on_context() -> None:
    """The model's own limit, named as such."""
    sim = goal(says("", call("look", n=1)), "context_overflow")
    for _ in range(200):
        act = sim.step()
        if isinstance(act, effects.Idle) or not isinstance(act, effects.AnyAct.__args__):
            break
    ended = sim.state.goal.ended
    assert ended is not None
    assert (ended.phase, ended.handoff["detail"]["limit"], ended.handoff["detail"]["unit"]) == ("capped", "context", "tokens")


def test_time_that_runs_out_while_it_waits_caps_the_goal() -> None:
    """Wall counts parked time; the question is left open."""
    sim = goal(says("", call("ask_user", question="?")), limits={"wall": 1000.0})
    sim.until(effects.Wait)
    sim.now += 2000
    assert rest(sim) == "capped"
    assert sim.state.goal.ended.handoff["detail"]["limit"] == "wall"
    assert results(sim) == ["cancelled"]


def test_a_paused_goal_is_not_capped_until_it_is_resumed() -> None:
    """Nothing happens while paused."""
    sim = goal(says("", call("look")), limits={"wall": 1000.0})
    sim.until(effects.RunTools)
    sim.record(ev.GoalPaused(reason="user", by="me"))
    sim.now += 5000
    assert rest(sim) == "paused"
    sim.resume()
    assert rest(sim) == "capped"


def test_the_kernels_question_takes_a_message_as_its_answer_and_opens_a_round() -> None:
    """The answer to a question without a call reaches the model with the question."""
    sim = goal(says("what now?"), reachable=True)
    sim.until(effects.Wait)
    assert sim.state.phase == "waiting"
    rounds = sim.state.spend.rounds
    sim.hear("write the file")
    sim.until(effects.CallModel)
    assert "A human answered your question." in sim.prompt
    assert "Answer: write the file" in sim.prompt
    assert sim.state.spend.rounds == rounds + 1
    assert len(sim.of(ev.QuestionAsked)) == 1
    assert rest(sim) == "waiting"


def test_the_kernels_question_without_an_answer_blocks() -> None:
    """Expired means no answer."""
    sim = goal(says("what now?"), reachable=True)
    sim.until(effects.Wait)
    sim.record(ev.QuestionExpired(question_id=sim.of(ev.QuestionAsked)[0].question_id))
    assert rest(sim) == "blocked"


def test_a_question_with_a_time_expires_by_itself() -> None:
    """Then policy says continue or blocked."""
    for policy, phase in (("continue", "working"), ("blocked", "blocked")):
        sim = goal(says("", call("ask_user", question="?")), says("", call("wait", seconds=1)))
        sim.until(effects.CallModel)
        act = decide(sim.state, sim.now)
        begin, asked = act.events
        later = {f: getattr(asked, f) for f in asked.__struct_fields__} | {"expires_at": sim.now + 50, "on_timeout": policy}
        sim.record(begin, ev.QuestionAsked(**later))
        act = sim.until(effects.Wait)
        sim.now = act.until
        sim.step()
        assert sim.of(ev.QuestionExpired)
        assert sim.state.phase == ("closing" if phase == "blocked" else phase)


@pytest.mark.parametrize("on", ["child", "budget"])
def test_other_waits_end_at_their_time(on: Any) -> None:
    """Whatever a later version parks on."""
    sim = goal(says("", call("look", n=1)))
    sim.until(effects.RunTools)
    sim.record(ev.GoalParked(on=on, until=sim.now + 30, said="x"))
    act = sim.step()
    assert isinstance(act, effects.Wait)
    sim.step()
    assert sim.state.phase == "working"
    assert sim.of(ev.GoalResumed)[-1].cause == f"{on} over"


# --------------------------------------------------------------------------------------------------------------- rounds, messages


def test_a_human_message_is_steering_inside_a_round() -> None:
    """It goes with the next request, opens no round and keeps the goal."""
    sim = goal(says("", call("look", n=1)), says("", call("look", n=2)))
    sim.until(effects.RunTools)
    sim.hear("look in src")
    sim.until(effects.CallModel)
    assert sim.state.window.messages[-2].text == "look in src"
    assert sim.state.spend.rounds == 1


def test_a_human_message_pre_empts_the_nudge() -> None:
    """Between rounds it opens the next one, and the kernel keeps quiet."""
    sim = goal(says("hm"), says("", call("look", n=1)))
    sim.until(effects.CallModel)
    sim.step()
    sim.hear("write the file")
    sim.until(effects.CallModel)
    assert "asked for no tool" not in sim.prompt
    assert "write the file" in sim.prompt
    assert sim.state.spend.rounds == 2


def test_a_human_message_during_a_check_at_the_end_of_a_round_pre_empts_the_nudge_too() -> None:
    """Readiness misses, and he is heard instead of told off."""
    sim = goal(says("", call("edit")), says("hm"), contract=GATED, gates=lambda g, s: ("fail", 1))
    while sim.state.phase != "checking":
        sim.step()
    sim.hear("the gate wants a file")
    sim.until(effects.CallModel)
    assert [r.why for r in sim.of(ev.GoalReturned)] == ["gate"]
    assert "Not done yet" not in sim.prompt
    assert "the gate wants a file" in sim.prompt


def test_a_message_that_came_as_the_goal_closed_is_kept_for_the_resume() -> None:
    """It is not lost."""
    sim = goal(says("", call("look", n=1)), limits={"turns": 2.0})
    while sim.state.phase != "closing":
        sim.step()
    sim.hear("one more thing")
    assert rest(sim) == "capped"
    sim.resume(limits={"turns": 9.0})
    sim.until(effects.CallModel)
    assert "one more thing" in sim.prompt


def test_messages_of_other_agents_are_no_human_words() -> None:
    """They neither stop nor reset, and open no round beyond the limit."""
    sim = goal(says("", call("look")))
    sim.until(effects.RunTools)
    sim.record(ev.UserMessage(message_id="m", content="stop", source="agent", delivery="queued"))
    sim.until(effects.CallModel)
    assert not sim.of(ev.GoalPaused)
    assert "stop" in [m.text for m in sim.state.window.messages]


# ------------------------------------------------------------------------------------------------------------------------- resume


def ended_as(phase: str) -> Sim:
    """A goal that ended as this."""
    if phase == "capped":
        sim = goal(says("", call("look", n=1)), says("", call("look", n=2)), limits={"turns": 2.0})
    elif phase == "stuck":
        sim = goal(says("", call("look")))
    elif phase == "blocked":
        sim = goal(says("hm"))
    elif phase == "failed":
        sim = goal("auth")
    else:
        sim = goal(says("", call("look", n=1)))
        sim.until(effects.RunTools)
        sim.record(ev.GoalClosing(target="cancelled", reason="r", by="me", detail={}))
    assert rest(sim) == phase
    return sim


@pytest.mark.parametrize("phase", ["capped", "stuck", "blocked", "failed", "cancelled"])
def test_every_end_but_done_can_be_resumed(phase: str) -> None:
    """Spend and baseline stay; stall counters, recovery and closing turn start again; the note is heard."""
    sim = ended_as(phase)
    spend, looks = sim.state.spend.turns, len([e for e in sim.of(ev.WorkspaceObserved) if e.purpose == "baseline"])
    assert isinstance(sim.step(), effects.Idle)
    sim.model = lambda s: says("", call("look", n=len(s.asked)))
    sim.resume(limits={"turns": spend + 6.0}, note="try the other file")
    assert sim.state.phase == "working"
    sim.until(effects.CallModel)
    assert "try the other file" in sim.prompt
    assert sim.state.spend.turns == spend + 1
    ended = sim.run()
    assert ended is not None
    assert (ended.phase, ended.handoff["detail"]["limit"]) == ("capped", "turns")
    assert sim.asked[-1].purpose == "close" or spend + 6 < 5
    assert len([e for e in sim.of(ev.WorkspaceObserved) if e.purpose == "baseline"]) == looks


def test_a_full_limit_that_was_not_raised_ends_it_again_at_once() -> None:
    """No turn is taken."""
    sim = ended_as("capped")
    asked = len(sim.asked)
    sim.resume()
    assert rest(sim) == "capped"
    assert len([a for a in sim.asked[asked:] if a.purpose == "work"]) == 0


def test_a_goal_that_was_resumed_with_its_old_words_does_not_take_them_for_an_answer() -> None:
    """What the model said before the end is not a claim made now."""
    sim = goal(says("no idea", finish="length"), contract=ev.Contract(judge="none"), limits={"turns": 1.0})
    assert rest(sim) == "capped"
    sim.state.turn.finish = "stop"
    sim.resume(limits={"turns": 5.0})
    sim.until(effects.CallModel)


def test_a_person_resumes_a_pause_and_limits_can_be_raised_with_it() -> None:
    """Caps change at once."""
    sim = goal(says("", call("look", n=1)))
    sim.until(effects.RunTools)
    sim.record(ev.GoalPaused(reason="user", by="me"))
    sim.resume(limits={"turns": 77.0})
    assert sim.state.goal.caps["turns"] == 77.0
    assert sim.state.phase == "working"


def test_resuming_a_wait_ends_it() -> None:
    """A person says go on."""
    sim = goal(says("", call("wait", seconds=9999)), says("", call("look")))
    sim.until(effects.Wait)
    sim.resume()
    sim.until(effects.CallModel)
    assert sim.of(ev.ToolComplete)[0].result.content == "person"


def test_a_second_goal_in_the_session_starts_from_nothing_but_the_journal() -> None:
    """Spend, memory, evidence, plan and window are its own; turn ids go on."""
    sim = goal(says("", call("pay", to="x")), says("", call("task_complete")), contract=ev.Contract(judge="none"))
    sim.run()
    turns = sim.state.turns
    sim.asked.clear()
    sim.record(sim.of(ev.GoalQueued)[0])
    ended = sim.run()
    assert ended is not None
    assert ended.phase == "done"
    assert len(sim.executed) == 2
    assert sim.of(ev.TurnStart)[turns].turn_id == turns + 1
    assert sim.state.spend.turns == 3


# ------------------------------------------------------------------------------------------------------------------------ closing


def test_the_closing_turn_has_a_prompt_of_its_own_and_no_tools_are_run_from_it() -> None:
    """Its text is the handoff's summary."""
    sim = goal(says("", call("look", n=1)), limits={"turns": 5.0})
    ended = sim.run()
    assert ended is not None
    close = sim.asked[-1]
    assert (close.purpose, close.max_output) == ("close", 1000)
    assert close.prompt is not None
    assert "Objective: do it" in close.prompt
    assert ended.handoff["summary"] == "handoff"
    assert all(not isinstance(m, ToolText) or m.text != "handoff" for m in sim.state.window.messages)


def test_a_closing_turn_is_taken_once_since_the_last_resume() -> None:
    """Paused in the middle, it is not asked again; after a resume from the end it may be."""
    sim = goal(says("", call("look", n=1)), limits={"turns": 5.0})
    sim.until(effects.CallModel, purpose="close")
    sim.hear("stop")
    assert rest(sim) == "paused"
    sim.resume()
    assert rest(sim) == "capped"
    sim.resume(limits={"turns": 12.0})
    rest(sim)
    assert [a.purpose for a in sim.asked].count("close") == 2


def test_a_goal_that_ends_before_any_turn_asks_no_model() -> None:
    """Also where the session had turns before."""
    sim = goal(says("42"), contract=ev.Contract(judge="none"))
    sim.run()
    asked = len(sim.asked)
    queued = sim.of(ev.GoalQueued)[0]
    again = {f: getattr(queued, f) for f in queued.__struct_fields__} | {
        "limits": {"turns": 40.0, "tokens": 50_000.0, "input-tokens": 41_000.0}
    }
    sim.record(ev.GoalQueued(**again))
    sim.state.kit.head_bytes = 200_000
    ended = sim.run()
    assert ended is not None
    assert (ended.phase, ended.handoff["detail"]["limit"]) == ("capped", "input-tokens")
    assert len(sim.asked) == asked


def test_a_failed_or_cancelled_goal_gets_no_closing_turn() -> None:
    """Nor one whose time is over."""
    for phase in ("failed", "cancelled"):
        assert all(a.purpose == "work" for a in ended_as(phase).asked)
    sim = goal(says("", call("look", n=1)), limits={"wall": 1000.0})
    sim.until(effects.RunTools)
    sim.now += 5000
    assert rest(sim) == "capped"
    assert all(a.purpose == "work" for a in sim.asked)


def test_the_answer_that_fills_a_limit_still_has_its_calls_run_and_its_claim_checked() -> None:
    """A limit stops only what would spend on it."""
    sim = goal(
        says("", call("edit"), call("task_complete", summary="x")),
        contract=GATED,
        gates=lambda g, s: ("pass", 0) if s.executed else ("fail", 1),
        limits={"turns": 1.0},
    )
    assert rest(sim) == "done"
    assert sim.state.goal.ended.verified
    assert sim.executed == [("edit", {})]


def test_a_provider_that_answers_again_only_after_a_day_blocks_the_goal() -> None:
    """So long a wait is a human's to decide."""
    sim = goal("rate_limit")
    act = sim.until(effects.CallModel, perform=False)
    failure = ev.Failure(code="rate_limit", message="monthly quota")
    sim.record(ev.TurnEnd(turn_id=act.turn_id, outcome="failed", error=failure, retry_at=sim.now + 30 * 3600))
    assert rest(sim) == "blocked"
    assert "monthly quota" in sim.state.goal.ended.handoff["reason"]
