"""Hooks in the kernel: what they hold back, what their crash means, and that it replays."""

from __future__ import annotations

from typing import Any

import pytest

from endstop.core import effects, hooks
from endstop.core import events as ev
from endstop.core.apply import replay
from endstop.core.goal import Hooks, Verdict
from endstop.errors import UsageError
from tests.core.sim import Sim, call, says, spec
from tests.core.test_interactive import LOOK, Chat

DONE = says("", call("task_complete", summary="done"))
TOOLS = {"look": "read", "pay": "write", "edit": "edit", "sh": "shell"}


def hook(on: ev.HookOn, matcher: str = "", name: str = "h") -> ev.Hook:
    return ev.Hook(hook_id=f"{name}-{on}", on=on, run=f"./{name}", matcher=matcher)


def goal(*turns: Any, hooked: list[ev.Hook], say: Any = None, gates: Any = None, **more: Any) -> Sim:
    """A goal whose model plays these turns (the last one for ever) and whose hooks say what ``say`` gives."""
    tools = {name: (spec(name, effect), lambda a: (True, f"ran {a}")) for name, effect in TOOLS.items()}
    contract = ev.Contract(
        judge="none", confront="never", hooks=hooked, gates=[ev.Gate(gate_id="g", run="make")] if gates else []
    )
    return Sim(
        lambda sim: turns[min(len(sim.asked), len(turns)) - 1],
        tools=tools, contract=contract, hooks=say or (lambda run, sim: {}), gates=gates, **more,
    )  # fmt: skip


def result(sim: Sim, call_id: str) -> ev.ToolComplete:
    (found,) = [c for c in sim.of(ev.ToolComplete) if c.tool_call_id == call_id]
    return found


def started(sim: Sim) -> list[str]:
    """Hooks and calls in the order in which they began."""
    names = []
    for entry in sim.entries:
        if isinstance(entry.event, ev.HookStart):
            names.append(f"{entry.event.hook_type} {entry.event.input['of']}".strip())
        elif isinstance(entry.event, ev.ToolStart):
            names.append(entry.event.tool_call_id)
    return names


# ----------------------------------------------------------------------------------------------------------- before a call


def test_a_denied_call_does_not_run_and_says_why() -> None:
    """The result is denied, in the hook's words; another call runs."""
    sim = goal(
        says("", call("pay", "a", to="eve"), call("pay", "b", to="bob")), DONE, hooked=[hook("pre_tool")],
        say=lambda run, s: {"decision": "deny", "text": "not eve"} if "eve" in str(run.data) else {},
    )  # fmt: skip
    sim.run()
    assert (result(sim, "a").executed, result(sim, "a").error.code) == (False, "denied")
    assert "not eve" in result(sim, "a").result.content
    assert sim.executed == [("pay", {"to": "bob"})]


def test_hooks_run_right_before_their_call_and_reads_together() -> None:
    """Calls with an effect go one after the other with their hooks; reads have all hooks, then all run."""
    batch = says("", call("look", "a", n=1), call("look", "b", n=2), call("pay", "c"), call("edit", "d"), call("look", "e", n=3))
    sim = goal(batch, DONE, hooked=[hook("pre_tool")])
    sim.run()
    before = "pre_tool"
    assert started(sim) == [f"{before} a", f"{before} b", "a", "b", f"{before} c", "c", f"{before} d", "d", f"{before} e", "e"]


def test_a_matcher_is_for_the_whole_name_of_a_tool() -> None:
    """It may use the name other agents give to the same tool; what it does not match runs without the hook."""
    assert hooks.called(hook("pre_tool", "sh"), "shell") is None
    assert hooks.called(hook("pre_tool", "shell|x"), "shell") == "shell"
    assert hooks.called(hook("pre_tool", "Bash|Edit"), "shell") == "Bash"
    assert [hooks.called(hook("pre_tool", every), "anything") for every in ("", "*")] == ["anything"] * 2
    sim = goal(says("", call("pay", "a"), call("edit", "b")), DONE, hooked=[hook("pre_tool", "edit")])
    sim.run()
    assert started(sim) == ["a", "pre_tool b", "b"]


@pytest.mark.parametrize(
    ("rules", "words", "runs", "asks"),
    [
        ("ask", ["allow"], True, False), ("deny", ["allow"], False, False), ("allow", ["ask"], False, True),
        ("deny", ["ask"], False, False), ("allow", ["allow", "deny"], False, False), ("ask", ["allow", "ask"], False, True),
        ("allow", [None], True, False), ("ask", [None], False, True),
    ],
)  # fmt: skip
def test_the_strictest_word_counts_and_a_deny_rule_beats_them_all(rules: Any, words: list[Any], runs: bool, asks: bool) -> None:
    """allow skips asking, ask asks, deny denies, silence leaves it to the rules."""
    hooked = [hook("pre_tool", name=f"h{n}") for n in range(len(words))]
    say = {h.hook_id: {"decision": word, "text": "so"} for h, word in zip(hooked, words, strict=True)}
    sim = goal(
        says("", call("pay", "a")), DONE, hooked=hooked, say=lambda run, s: say[run.hook.hook_id], reachable=True,
        permit=lambda spec, arguments: Verdict(rules, "the rule", "because"),
    )  # fmt: skip
    if asks:
        sim.until(effects.Wait, on="grant")
    else:
        sim.run()
    assert bool(sim.executed) is runs
    assert bool(sim.of(ev.PermissionRequested)) is asks
    if asks:
        sim.record(
            ev.PermissionCompleted(
                request_id=sim.of(ev.PermissionRequested)[0].request_id,
                result=ev.Decision(kind="approved"),
                scope="once",
                by="me",
            )
        )
        sim.run()
        assert sim.executed == [("pay", {})]
        assert len(sim.of(ev.HookStart)) == len(hooked)  # not asked again after the grant


def test_a_crash_before_a_call_is_recorded_and_the_call_runs() -> None:
    """A hook that crashed has said nothing."""
    sim = goal(
        says("", call("pay", "a")), DONE, hooked=[hook("pre_tool")], say=lambda run, s: {"success": False, "error": "exit code 1"}
    )
    sim.run()
    assert sim.executed == [("pay", {})]
    assert [end.success for end in sim.of(ev.HookEnd)] == [False]


def test_a_hook_that_denies_for_ever_does_not_hold_the_goal() -> None:
    """The stall rules see its denials: the goal ends blocked."""
    sim = goal(says("", call("pay", to="eve")), hooked=[hook("pre_tool")], say=lambda run, s: {"decision": "deny", "text": "no"})
    ended = sim.run()
    assert ended.phase == "blocked"
    assert sim.executed == []


def test_a_hook_without_an_end_runs_again_and_one_with_an_end_does_not() -> None:
    """Killed between the hook's start and end, or between its end and the call's start: one start of the call."""
    sim = goal(says("", call("pay", "a")), DONE, hooked=[hook("pre_tool"), hook("pre_tool", name="other")])
    act = sim.until(effects.RunHooks, perform=False)
    first = act.hooks[0]
    sim.record(ev.HookEnd(hook_invocation_id=first.invocation_id, hook_type="pre_tool", success=True, decision="allow"))
    sim.crash()
    again = sim.until(effects.RunHooks)
    assert [run.hook.hook_id for run in again.hooks] == ["other-pre_tool"]
    sim.crash()
    sim.run()
    assert sim.executed == [("pay", {})]
    assert replay(sim.entries, sim.kit) == sim.state


def test_a_late_end_of_a_run_before_the_crash_is_not_taken_twice() -> None:
    """An end that names no running hook changes nothing."""
    sim = goal(says("", call("pay", "a")), DONE, hooked=[hook("pre_tool")])
    sim.until(effects.RunHooks)
    before = repr(sim.state.hooks)
    sim.record(ev.HookEnd(hook_invocation_id="nobody", hook_type="pre_tool", success=True, decision="deny", text="x"))
    assert repr(sim.state.hooks) == before


def test_words_before_a_call_reach_the_model_with_its_next_request() -> None:
    """Context without an objection is a note."""
    sim = goal(says("", call("look", "a")), DONE, hooked=[hook("pre_tool")], say=lambda run, s: {"text": "mind the gap"})
    sim.run()
    assert sim.prompt.count("[hook] mind the gap") == 1


def test_a_call_over_its_limit_or_from_memory_asks_no_hook() -> None:
    """Hooks stand after memory and limits."""
    batch = says("", call("pay", "a", n=1), call("pay", "b", n=2))
    sim = goal(batch, says("", call("pay", "c", n=1)), DONE, hooked=[hook("pre_tool")], limits={"tool:pay": 1.0, "turns": 5.0})
    sim.run()
    assert started(sim) == ["pre_tool a", "a"]
    assert result(sim, "b").error.code == "over_limit"
    assert result(sim, "c").cached


def test_a_hook_can_pause_the_goal() -> None:
    """continue: false pauses before the call; when a person resumes, the call is denied in its words."""
    sim = goal(
        says("", call("pay", "a")), DONE, hooked=[hook("pre_tool")], say=lambda run, s: {"decision": "stop", "text": "halt"}
    )
    sim.run()
    assert (sim.state.phase, sim.of(ev.GoalPaused)[0].by) == ("paused", "hook")
    sim.resume()
    sim.run()
    assert sim.executed == []
    assert "halt" in result(sim, "a").result.content
    assert sim.state.phase == "done"


# ------------------------------------------------------------------------------------------------------------ after a call


def test_words_after_a_call_stand_on_its_result() -> None:
    """They follow the result they are about, also of a call that failed; the hook saw what came."""
    told: list[dict[str, Any]] = []

    def say(run: effects.HookRun, sim: Sim) -> dict[str, Any]:
        told.append(run.data)
        return {"decision": "deny", "text": f"about {run.data['tool_use_id']}"}

    batch = says("", call("look", "a", n=1), call("look", "b", n=2), call("sh", "c"))
    sim = goal(batch, DONE, hooked=[hook("post_tool")], say=say)
    sim.run()
    texts = {m.tool_call_id: m.text for m in sim.state.window.messages if hasattr(m, "tool_call_id")}
    assert all(texts[name].endswith(f"[hook] about {name}") for name in "abc")
    assert [data["tool_response"]["content"] for data in told] == ["ran {'n': 1}", "ran {'n': 2}", "ran {}"]
    assert told[2]["tool_response"]["stdout"] == "ran {}"


def test_what_did_not_run_has_no_hook_after_it() -> None:
    """Unknown, malformed, denied and remembered calls, claims and waits: nothing ran."""
    batch = says("", call("nope"), call("pay", raw="{"), call("pay", "a"), call("wait", seconds=1))
    sim = goal(batch, says("", call("pay", "b")), DONE, hooked=[hook("post_tool")])
    sim.run()
    assert started(sim)[:2] == ["a", "post_tool a"]
    assert [e.input["of"] for e in sim.of(ev.HookStart)] == ["a"]


def test_a_crash_after_a_result_asks_the_hook_again() -> None:
    """The result is there, the hook's end is not: it runs again before anything else goes on."""
    sim = goal(says("", call("pay", "a")), DONE, hooked=[hook("post_tool")], say=lambda run, s: {"text": "seen"})
    sim.until(effects.RunHooks, perform=False)
    sim.crash()
    sim.run()
    assert len(sim.of(ev.HookStart)) == 2
    assert sim.prompt.count("[hook] seen") == 1
    assert sim.executed == [("pay", {})]


# -------------------------------------------------------------------------------------------------------------- at a claim


def test_a_claim_is_returned_with_the_words_of_a_stop_hook() -> None:
    """why is hook; gates are not run for it; the next claim passes once the hook is content."""
    sim = goal(
        DONE, hooked=[hook("stop")], gates=lambda g, s: ("pass", 0),
        say=lambda run, s: {} if run.data["stop_hook_active"] else {"decision": "deny", "text": "write the changelog"},
    )  # fmt: skip
    ended = sim.run()
    returned = sim.of(ev.GoalReturned)
    assert [(r.why, r.missing) for r in returned] == [("hook", ["a hook says: write the changelog"])]
    assert ended.phase == "done"
    order = [t for t in sim.types if t in ("hook.start", "goal.returned", "gate.started")]
    assert order == ["gate.started", "hook.start", "goal.returned", "hook.start"]  # the first is the baseline


def test_stop_hooks_come_after_deliverables_and_before_gates() -> None:
    """What is missing for certain is told without asking a hook."""
    sim = goal(DONE, hooked=[hook("stop")])
    queued = sim.state.goal.queued
    contract = ev.Contract(judge="none", confront="never", deliverables=["f"], hooks=queued.contract.hooks)
    sim = Sim(lambda s: DONE, contract=contract, limits={"turns": 4.0})
    sim.run()
    assert sim.of(ev.GoalReturned)[0].why == "deliverable"
    assert sim.of(ev.HookStart) == []


def test_a_stop_hook_that_always_objects_does_not_run_for_ever() -> None:
    """Each return counts as a verification and the stall rules see it."""
    sim = goal(DONE, hooked=[hook("stop")], say=lambda run, s: {"decision": "deny", "text": "never"})
    assert sim.run().phase in ("stuck", "capped")
    assert len(sim.of(ev.HookStart)) <= 6


def test_a_stop_hook_that_crashes_is_no_yes_and_no_no() -> None:
    """Three crashes in a row and the goal waits for its verifier, naming the hook; repaired, it ends."""
    broken = [True]
    sim = goal(
        DONE, hooked=[hook("stop")], say=lambda run, s: {"success": False, "error": "exit code 1: no jq"} if broken[0] else {}
    )
    sim.until(effects.Wait, on="verifier")
    assert len(sim.of(ev.HookEnd)) == 3
    assert sim.of(ev.GoalReturned) == []
    assert sim.state.goal.parked.said == "the stop hook cannot run: ./h: exit code 1: no jq"
    sim.now = sim.state.goal.parked.until + 1
    sim.until(effects.Wait, on="verifier")
    assert len(sim.of(ev.HookEnd)) == 4  # one more try after each wait
    broken[0] = False
    sim.now = sim.state.goal.parked.until + 1
    assert sim.run().phase == "done"
    assert sim.state.evidence.parks == 0


def test_a_stop_hook_that_stays_broken_ends_as_unverifiable() -> None:
    """After a day it is blocked, never done."""
    sim = goal(DONE, hooked=[hook("stop")], say=lambda run, s: {"success": False, "error": "gone"})
    ended = sim.run()
    assert (ended.phase, sim.state.goal.closing.detail["rule"]) == ("blocked", "verifier")


def test_every_claim_asks_anew() -> None:
    """What a hook said of one claim does not count for the next."""
    said = iter([{"decision": "deny", "text": "1"}, {"decision": "deny", "text": "2"}, {}])
    sim = goal(DONE, hooked=[hook("stop")], say=lambda run, s: next(said))
    assert sim.run().phase == "done"
    assert [r.missing for r in sim.of(ev.GoalReturned)] == [["a hook says: 1"], ["a hook says: 2"]]


# ------------------------------------------------------------------------------------------------- prompts, start and end


def test_the_objective_can_be_blocked() -> None:
    """The goal is blocked in the hook's words before the model is asked."""
    sim = goal(DONE, hooked=[hook("user_prompt")], say=lambda run, s: {"decision": "deny", "text": f"no: {run.data['prompt']}"})
    ended = sim.run()
    assert ended.phase == "blocked"
    assert "no: do it" in ended.handoff["reason"]
    assert [act.purpose for act in sim.asked] == []


def test_a_blocked_message_never_reaches_the_model_and_the_others_do() -> None:
    """Two messages, one of them refused; words for the other stand beside it."""

    def say(run: effects.HookRun, sim: Sim) -> dict[str, Any]:
        prompt = run.data["prompt"]
        return {"decision": "deny", "text": "secret"} if "password" in prompt else {"text": f"context of {prompt}"}

    sim = goal(says("", call("look", n=1)), says("", call("look", n=2)), DONE, hooked=[hook("user_prompt")], say=say)
    sim.until(effects.CallModel)
    sim.hear("the password is x")
    sim.hear("use tabs")
    sim.run()
    assert "password" not in sim.prompt
    assert "use tabs" in sim.prompt
    assert "[hook] context of use tabs" in sim.prompt
    assert "[hook] context of do it" in sim.prompt
    assert "secret" not in sim.prompt


def test_a_start_is_told_once_and_again_when_taken_up() -> None:
    """Before the first turn, and after each resume, with its source; its words reach the model."""
    sim = goal(
        says("", call("look", n=1)),
        DONE,
        hooked=[hook("session_start")],
        say=lambda run, s: {"text": f"source {run.data['source']}"},
    )
    sim.until(effects.CallModel)
    assert sim.types.index("hook.start") < sim.types.index("assistant.turn_start")
    sim.crash()
    sim.run()
    assert [e.input["of"] for e in sim.of(ev.HookStart)] == ["startup", "resume"]
    assert sim.prompt.count("[hook] source") == 2


def test_an_end_is_told_once_and_nothing_comes_of_it() -> None:
    """After goal.ended, with the phase as its reason; what it says changes nothing."""
    sim = goal(DONE, hooked=[hook("session_end")], say=lambda run, s: {"success": False, "error": "x"})
    assert sim.run().phase == "done"
    assert sim.types[-3:] == ["goal.ended", "hook.start", "hook.end"]
    assert sim.of(ev.HookStart)[0].input["of"] == "done"
    assert isinstance(sim.step(), effects.Idle)


def test_a_goal_that_goes_on_after_its_end_tells_its_next_end_too() -> None:
    """capped, resumed, done: two ends, two hooks."""
    sim = goal(says("", call("pay")), DONE, hooked=[hook("session_end")], limits={"turns": 1.0})
    assert sim.run().phase == "capped"
    sim.resume(limits={"turns": 9.0})
    assert sim.run().phase == "done"
    assert [e.input["of"] for e in sim.of(ev.HookStart)] == ["capped", "done"]


def test_without_hooks_nothing_of_them_is_in_the_journal() -> None:
    """No event, no state, no word."""
    sim = goal(says("", call("pay")), DONE, hooked=[])
    sim.run()
    assert not [t for t in sim.types if t.startswith("hook.")]
    assert sim.state.hooks == Hooks()


def test_what_was_said_does_not_pile_up() -> None:
    """A hundred calls leave no more behind than one."""
    turns = [says("", call("look", n=n)) for n in range(100)]
    sim = goal(*turns, DONE, hooked=[hook("pre_tool"), hook("post_tool")], limits={})
    sim.run()
    assert len(sim.of(ev.HookEnd)) == 200
    known = sim.state.hooks
    assert len(known.due) + len(known.said) + len(known.running) <= 2


# ----------------------------------------------------------------------------------------------------- without a goal


def chat(say: Any, *ons: ev.HookOn) -> Chat:
    """A conversation whose agent looks once a round and then answers, with these hooks."""
    session = Chat(
        lambda s: says("", call("look", n=len(s.asked))) if len(s.asked) % 2 else says("ok"), tools=LOOK,
        hooks=tuple(hook(on) for on in ons),
    )  # fmt: skip
    session.hooks = say
    return session


def test_a_conversation_without_a_goal_has_the_hooks_it_was_given() -> None:
    """Before and after its calls; there is no claim and no end to hook."""
    session = chat(lambda run, s: {"text": run.hook.on} if run.hook.on == "post_tool" else {}, "pre_tool", "post_tool", "stop")
    session.say("hello")
    assert [e.hook_type for e in session.of(ev.HookStart)] == ["pre_tool", "post_tool"]
    assert session.prompt.count("[hook] post_tool") == 1
    session = chat(lambda run, s: {"decision": "deny", "text": "no looking"}, "pre_tool")
    session.say("hello")
    assert session.executed == []


def test_a_blocked_message_asks_no_model() -> None:
    """The round it opened is over; the next message opens one, and while a round runs a blocked message changes nothing."""

    def say(run: effects.HookRun, sim: Sim) -> dict[str, Any]:
        return {"decision": "deny", "text": "no"} if "bad" in run.data["prompt"] else {}

    session = chat(say, "user_prompt")
    session.say("bad")
    assert (session.asked, session.state.round_open) == ([], False)
    session.record(ev.UserMessage(message_id="a", content="good", source="user", delivery="idle"))
    session.until(effects.RunTools)
    session.say("bad too")
    assert len(session.asked) == 2
    assert "bad" not in session.prompt


# -------------------------------------------------------------------------------------------------------------- contracts


@pytest.mark.parametrize(("on", "matcher"), [("pre_tool", "("), ("stop", "shell"), ("session_start", "x")])
def test_a_matcher_that_cannot_match_is_refused(on: Any, matcher: str) -> None:
    """No regular expression, or no tool to match: an error that names the key."""
    with pytest.raises(UsageError, match=r"^x\.matcher: "):
        hooks.make(on, "true", matcher, where="x.")


def test_hooks_that_somebody_made_by_hand_are_checked() -> None:
    """A matcher that is none, and one id for two."""
    with pytest.raises(UsageError, match=r"^hook './h': matcher: is no regular expression"):
        hooks.check([hook("pre_tool", "(")])
    with pytest.raises(UsageError, match="the same id"):
        hooks.check([hook("stop"), hook("stop")])
    hooks.check([hook("stop"), hook("pre_tool", "*")])


def test_the_same_hook_has_the_same_id_and_another_has_another() -> None:
    """Ids follow what a hook is, not where it stands."""
    one = hooks.make("stop", "true")
    assert hooks.make("stop", "true", timeout=5).hook_id == one.hook_id
    others = [hooks.make("session_end", "true"), hooks.make("stop", "false"), hooks.make("stop", "true", own=True)]
    assert len({one.hook_id, *(other.hook_id for other in others)}) == 4
