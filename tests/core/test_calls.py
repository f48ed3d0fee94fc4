"""Settling calls: each gets exactly one result, and what must not run twice does not."""

from __future__ import annotations

from typing import Any

import pytest

from endstop.core import effects
from endstop.core import events as ev
from endstop.core.asking import LONGEST_WAIT, wait_for
from endstop.core.goal import Verdict
from endstop.core.identity import digests
from endstop.core.messages import ToolRequest
from tests.core.sim import Sim, call, says, spec

FILE = ev.Contract(deliverables=["never"], judge="none")
RAN: dict[str, int] = {}


def counted(name: str, effect: str, **more: Any) -> Any:
    """A tool whose result says how often it ran."""

    def play(arguments: dict[str, Any]) -> tuple[bool, str]:
        RAN[name] = RAN.get(name, 0) + 1
        return True, f"{name} ran {RAN[name]}"

    return spec(name, effect, **more), play


def once(*calls: Any, tools: dict[str, Any] | None = None, then: Any = None, **more: Any) -> Sim:
    """A model that asks for this batch, and then for nothing that matters."""
    RAN.clear()
    own = {
        n: counted(n, e)
        for n, e in {
            "look": "read",
            "web": "read_outside",
            "edit": "edit",
            "put": "idempotent",
            "pay": "write",
            "sh": "shell",
        }.items()
    }
    after = then or says("", call("wait", seconds=1))
    return Sim(
        lambda s: says("", *calls) if len(s.asked) == 1 else after,
        tools=own | (tools or {}),
        contract=FILE,
        limits={"turns": 9.0},
        **more,
    )


def settled(sim: Sim) -> list[ev.ToolComplete]:
    """Results of the first turn, in the order they came."""
    sim.until(effects.CallModel)
    for _ in range(60):
        if sim.state.turn.ended:
            return sim.of(ev.ToolComplete)
        act = sim.step()
        if isinstance(act, effects.Wait) and act.until is None:
            raise AssertionError(f"waits for {act.on}")
    raise AssertionError(sim.types[-20:])


def codes(results: list[ev.ToolComplete]) -> list[str]:
    """Error codes, "ok" for none."""
    return [r.error.code if r.error else "ok" for r in results]


# ---------------------------------------------------------------------------------------------------------------- one result each


def test_every_call_of_a_batch_has_one_result_whatever_it_is() -> None:
    """Good, unknown, malformed, misfitting, twin, claim: one each."""
    tools = {
        "strict": (spec("strict", "write", check=lambda a: None if "to" in a else "'to' is missing"), lambda a: (True, "ok"))
    }
    sim = once(
        call("look", n=1),
        call("nope"),
        call("pay", raw="{"),
        call("strict"),
        call("look", n=1),
        call("task_complete", raw="[1]"),
        call("report_blocked", reason="x"),
        tools=tools,
    )
    results = settled(sim)
    asked = [r.tool_call_id for m in sim.of(ev.AssistantMessage) for r in m.tool_requests]
    assert sorted(r.tool_call_id for r in results) == sorted(asked)
    by_id = {r.tool_call_id: r for r in results}
    assert codes([by_id[i] for i in asked]) == [
        "ok",
        "unknown_tool",
        "malformed",
        "malformed",
        "ok",
        "malformed",
        "refused_claim",
    ]
    assert [r.executed for r in (by_id[i] for i in asked)] == [True, False, False, False, False, False, False]


def test_wrong_calls_say_what_is_wrong() -> None:
    """Nearest names, the broken text cut short, the schema's words."""
    tools = {"strict": (spec("strict", "write", check=lambda a: "'to' is missing"), lambda a: (True, "ok"))}
    results = settled(once(call("lok"), call("zzzzzz"), call("pay", raw="x" * 900), call("strict"), tools=tools))
    assert "There is no tool 'lok'. There is: look" in results[0].result.content
    assert "task_complete" in results[1].result.content
    assert len(results[2].result.content) < 300
    assert "The arguments do not fit strict: 'to' is missing" in results[3].result.content


def test_reads_start_together_and_everything_else_alone_and_in_order() -> None:
    """A start without an end never stands for something that had not begun."""
    sim = once(call("look", n=1), call("web", n=2), call("pay", n=3), call("edit", n=4), call("look", n=5), call("look", n=6))
    sim.until(effects.CallModel)
    batches = []
    while len(batches) < 4:
        act = sim.step()
        if isinstance(act, effects.RunTools):
            batches.append([run.name for run in act.calls])
    assert batches == [["look", "web"], ["pay"], ["edit"], ["look", "look"]]


def test_identical_calls_run_once_and_share_the_result() -> None:
    """Also where keys are in another order, and for calls that only insist."""
    for name in ("look", "pay", "sh", "edit", "put"):
        sim = once(*[call(name, a=1, b=2), call(name, b=2, a=1), call(name, a=1, b=2), call(name, a=2, b=2)])
        results = settled(sim)
        assert RAN[name] == 2, name
        assert [r.cached for r in results].count(True) == 2
        shared = [r for r in results if r.cached]
        first = next(e for e in sim.entries if isinstance(e.event, ev.ToolComplete))
        assert all(r.of == first.seq and r.hash == first.event.hash and not r.executed for r in shared)
    results = settled(once(call("pay", to="x"), call("pay", to="x", again="sure")))
    assert RAN["pay"] == 1
    assert results[1].cached


# ------------------------------------------------------------------------------------------------------------------------- memory


def repeated(name: str, second: dict[str, Any], first_ok: bool = True, **more: Any) -> Sim:
    """The same call in two turns."""

    def play(arguments: dict[str, Any]) -> tuple[bool, str]:
        RAN[name] = RAN.get(name, 0) + 1
        return first_ok, f"ran {RAN[name]}"

    effect = more.pop("effect")
    RAN.clear()
    sim = Sim(
        lambda s: says("", call(name, to="x", **(second if len(s.asked) > 1 else {}))),
        contract=FILE,
        limits={"turns": 9.0},
        tools={name: (spec(name, effect, **more), play)},
    )
    for _ in range(3):
        sim.until(effects.CallModel)
    return sim


@pytest.mark.parametrize(
    ("effect", "more", "ran"),
    [
        ("write", {}, 1),
        ("idempotent", {}, 1),
        ("write", {"repeatable": True}, 2),
        ("shell", {}, 2),
        ("edit", {}, 2),
        ("read_outside", {}, 2),
    ],
)
def test_a_repeated_call_runs_or_not_by_its_class(effect: str, more: dict[str, Any], ran: int) -> None:
    """Writes once per key, repeatable ones, shell, edits and outside reads again."""
    sim = repeated("tool", {}, effect=effect, **more)
    assert RAN["tool"] == ran
    second = sim.of(ev.ToolComplete)[1]
    assert second.cached is (True if ran == 1 else None)
    if ran == 1:
        assert second.result.content.startswith("ran 1\n[endstop] Nothing was executed")
        assert ("again" in second.result.content) is (effect == "write")


def test_insisting_runs_a_write_once_more_under_its_own_key() -> None:
    """``again`` is stripped before the tool sees it; without it the first result stays."""
    sim = repeated("tool", {"again": "the first one was refunded"}, effect="write")
    assert RAN["tool"] == 2
    assert [arguments for _, arguments in sim.executed] == [{"to": "x"}, {"to": "x"}]
    keys = [s.key for s in sim.of(ev.ToolStart)]
    assert len(set(keys)) == 2
    sim.model = lambda s: says("", call("tool", to="x"))
    sim.until(effects.CallModel)
    sim.until(effects.CallModel)
    assert sim.of(ev.ToolComplete)[-1].result.content.startswith("ran 1")


def test_a_write_that_failed_is_remembered_and_one_that_did_not_run_is_not() -> None:
    """It may have had its effect; what provably did not run is free to run."""
    sim = repeated("tool", {}, first_ok=False, effect="write")
    assert RAN["tool"] == 1
    assert (sim.of(ev.ToolComplete)[1].success, sim.of(ev.ToolComplete)[1].cached) == (False, True)

    state = {"ran": 0}

    def play(arguments: dict[str, Any]) -> ev.ToolComplete:
        state["ran"] += 1
        asked = next(c for c in sim.state.turn.calls.values() if c.state == "started")
        raw, norm = digests("refused by the server")
        return ev.ToolComplete(
            tool_call_id=asked.request.tool_call_id,
            success=False,
            executed=False,
            result=ev.Result(content="refused by the server"),
            error=ev.Failure(code="denied", message="x"),
            hash=raw,
            norm_hash=norm,
        )

    sim = Sim(
        lambda s: says("", call("tool", to="x")), contract=FILE, limits={"turns": 9.0}, tools={"tool": (spec("tool"), play)}
    )
    for _ in range(3):
        sim.until(effects.CallModel)
    assert state["ran"] == 2


def test_the_key_is_over_goal_tool_and_arguments() -> None:
    """The same call in another goal has another key."""
    keys = []
    for goal in ("g", "h"):
        sim = once(call("put", a=1), call("put", a=2))
        sim.state.goal.queued = ev.GoalQueued(
            **{f: getattr(sim.state.goal.queued, f) for f in ev.GoalQueued.__struct_fields__} | {"goal_id": goal}
        )
        settled(sim)
        keys += [s.key for s in sim.of(ev.ToolStart)]
    assert len(set(keys)) == 4


# --------------------------------------------------------------------------------------------------------------------- permission


def asking(*names: str) -> Any:
    """A permission that asks for these tools."""
    return lambda s, a: Verdict("ask", "mode ask", "it pays") if s.name in names else Verdict("allow")


def decided(sim: Sim, kind: str, *requests: str, **more: Any) -> None:
    """A human decides all open grants, or those named."""
    for grant in list(sim.state.grants.values()):
        if not grant.kind and (not requests or grant.id in requests):
            sim.record(ev.PermissionCompleted(request_id=grant.id, result=ev.Decision(kind=kind), scope="once", by="me", **more))


def test_allowed_calls_run_first_then_all_that_ask_are_asked_at_once() -> None:
    """The goal waits with the turn open; nothing that asks has run."""
    sim = once(call("pay", n=1), call("look", n=2), call("pay", n=3), call("edit", n=4), permit=asking("pay"), reachable=True)
    act = sim.until(effects.Wait)
    assert (act.on, sim.state.phase) == ("grant", "waiting")
    assert [name for name, _ in sim.executed] == ["look", "edit"]
    asked = sim.of(ev.PermissionRequested)
    assert [r.permission_request["arguments"] for r in asked] == [{"n": 1}, {"n": 3}]
    assert len({r.request_id for r in asked}) == 2
    assert all(r.why == "it pays" and r.risk == "write" and len(r.binding) == 64 for r in asked)
    assert act.until == pytest.approx(asked[0].expires_at)
    assert sim.state.turn.ended == ""


def test_an_approved_call_runs_with_its_grant_used_in_the_same_append() -> None:
    """Until every one is decided the goal waits; then each approved call starts with its grant."""
    sim = once(call("pay", n=1), call("pay", n=2), permit=asking("pay"), reachable=True)
    sim.until(effects.Wait)
    first, second = (r.request_id for r in sim.of(ev.PermissionRequested))
    decided(sim, "approved", first)
    sim.until(effects.Wait)
    assert sim.executed == []
    decided(sim, "denied-interactively-by-user", second, feedback="too dear")
    act = sim.until(effects.RunTools)
    assert [type(e) for e in act.events] == [ev.GrantUsed, ev.ToolStart]
    assert act.events[0].request_id == first
    results = settled_rest(sim)
    assert [a["n"] for _, a in sim.executed] == [1]
    assert codes(results) == ["ok", "denied"]
    assert results[1].result.content == "Denied by a person. too dear"


def settled_rest(sim: Sim) -> list[ev.ToolComplete]:
    """All results once the turn is over."""
    while not sim.state.turn.ended:
        sim.step()
    return sim.of(ev.ToolComplete)


def test_nobody_decides_for_a_day_and_it_is_denied() -> None:
    """Silence is never consent."""
    sim = once(call("pay", n=1), permit=asking("pay"), reachable=True)
    act = sim.until(effects.Wait)
    assert act.until - sim.now == pytest.approx(24 * 3600, abs=1)
    sim.now = act.until
    results = settled_rest(sim)
    assert codes(results) == ["denied"]
    assert sim.executed == []
    assert [e.request_id for e in sim.of(ev.GrantExpired)] == [r.request_id for r in sim.of(ev.PermissionRequested)]


def test_identical_calls_that_ask_are_asked_once() -> None:
    """One permission, one run, two results."""
    sim = once(call("pay", n=1), call("pay", n=1), permit=asking("pay"), reachable=True)
    sim.until(effects.Wait)
    assert len(sim.of(ev.PermissionRequested)) == 1
    decided(sim, "approved")
    results = settled_rest(sim)
    assert len(sim.executed) == 1
    assert [r.cached for r in results] == [None, True]


def test_what_was_denied_is_not_asked_again() -> None:
    """The same action is refused in words; a rule that allows it now lets it run."""
    sim = once(call("pay", n=1), then=says("", call("pay", n=1)), permit=asking("pay"), reachable=True)
    sim.until(effects.Wait)
    decided(sim, "denied-interactively-by-user")
    settled_rest(sim)
    sim.until(effects.CallModel)
    results = settled_rest(sim)
    assert "Denied before" in results[-1].result.content
    assert len(sim.of(ev.PermissionRequested)) == 1
    sim.state.kit.permit = lambda s, a: Verdict("allow")
    sim.until(effects.RunTools)
    assert len(sim.executed) == 1


@pytest.mark.parametrize(
    ("humans", "reachable", "asked"),
    [("auto", True, True), ("auto", False, False), ("park", False, True), ("deny", True, False)],
)
def test_who_may_be_asked_is_policy(humans: Any, reachable: bool, asked: bool) -> None:
    """auto asks where somebody can be reached, park always, deny never; else the rule is named."""
    sim = once(call("pay", n=1), permit=asking("pay"), reachable=reachable)
    sim.state.goal.queued = ev.GoalQueued(
        **{f: getattr(sim.state.goal.queued, f) for f in ev.GoalQueued.__struct_fields__} | {"policy": ev.Policy(humans=humans)}
    )
    sim.until(effects.CallModel)
    while not sim.state.turn.ended and sim.state.phase == "working":
        sim.step()
    assert (sim.state.phase == "waiting") is asked
    if not asked:
        assert codes(sim.of(ev.ToolComplete)) == ["denied"]
        assert "nobody can be asked (mode ask): it pays" in sim.of(ev.ToolComplete)[0].result.content


@pytest.mark.parametrize(("why", "text"), [("never", "Denied by rule: never"), ("", "Denied by rule")])
def test_a_deny_rule_is_named(why: str, text: str) -> None:
    """Nothing runs, nobody is asked."""
    results = settled(once(call("pay"), permit=lambda s, a: Verdict("deny", "rule", why), reachable=True))
    assert (codes(results), results[0].result.content) == (["denied"], text)


def test_an_approved_call_that_meanwhile_does_not_fit_does_not_run() -> None:
    """Limits are looked at again when the grant comes."""
    sim = once(call("pay", n=1), permit=asking("pay"), reachable=True)
    sim.until(effects.Wait)
    sim.state.goal.caps["tool-calls"] = 0.0
    sim.state.goal.caps["tool:pay"] = 0.0
    decided(sim, "approved")
    assert codes(settled_rest(sim)) == ["over_limit"]


def test_a_person_who_resumes_over_an_open_grant_does_not_decide_it() -> None:
    """It waits on, until the grant's own time."""
    sim = once(call("pay", n=1), permit=asking("pay"), reachable=True)
    act = sim.until(effects.Wait)
    sim.resume()
    again = sim.until(effects.Wait)
    assert again.until == pytest.approx(act.until)
    assert sim.executed == []


def test_an_approved_call_waits_for_those_that_run() -> None:
    """A grant is used in one append with its own start."""
    sim = once(call("pay", n=1), call("sh", n=2), permit=asking("pay", "sh"), reachable=True)
    sim.until(effects.Wait)
    decided(sim, "approved")
    acts = [sim.until(effects.RunTools) for _ in range(2)]
    assert [[run.name for run in act.calls] for act in acts] == [["pay"], ["sh"]]
    sim = once(call("look", n=1), call("pay", n=2), permit=asking("pay", "look"), reachable=True)
    sim.until(effects.Wait)
    decided(sim, "approved")
    acts = [sim.until(effects.RunTools) for _ in range(2)]
    assert [[run.name for run in act.calls] for act in acts] == [["look"], ["pay"]]


def test_reads_beside_an_approved_call_still_run() -> None:
    """An approved call never shares an append with reads that happen to stand before it."""
    sim = once(call("pay", n=1), call("look", n=2), permit=asking("pay"), reachable=True)
    sim.until(effects.Wait)
    decided(sim, "approved")
    settled_rest(sim)
    assert sorted(name for name, _ in sim.executed) == ["look", "pay"]


# ----------------------------------------------------------------------------------------------------------------- ask_user, wait


def test_ask_user_ends_the_batch() -> None:
    """Calls before it run, calls after it did not, claims are refused, and the goal waits without an end."""
    sim = once(
        call("task_complete", summary="x"),
        call("look", n=1),
        call("ask_user", question="which?", options=["a", 2]),
        call("pay", n=2),
        call("report_blocked", reason="y"),
    )
    sim.until(effects.CallModel)
    while sim.state.phase == "working":
        sim.step()
    assert (sim.state.phase, sim.state.goal.parked.on, sim.state.goal.parked.until) == ("waiting", "question", None)
    by_name = {
        r.name: c.code
        for m in sim.of(ev.AssistantMessage)
        for r in m.tool_requests
        for i, c in sim.state.turn.calls.items()
        if i == r.tool_call_id
    }
    assert by_name == {
        "task_complete": "refused_claim",
        "look": "",
        "ask_user": "",
        "pay": "not_run_question",
        "report_blocked": "not_run_question",
    }
    assert [name for name, _ in sim.executed] == ["look"]
    (question,) = sim.of(ev.QuestionAsked)
    assert (question.question, question.options, question.allow_freeform, question.on_timeout) == (
        "which?",
        ["a", "2"],
        True,
        "continue",
    )


@pytest.mark.parametrize("way", ["answer", "message"])
def test_an_answer_is_the_calls_result(way: str) -> None:
    """Given as an answer, or as the message a human writes while one free-form question is open."""
    sim = once(call("ask_user", question="which?"))
    sim.until(effects.Wait)
    if way == "answer":
        sim.record(ev.QuestionAnswered(question_id=sim.of(ev.QuestionAsked)[0].question_id, answer="blue", by="me"))
    else:
        sim.hear("blue")
    results = settled_rest(sim)
    assert [(r.success, r.result.content) for r in results] == [(True, "blue")]
    assert sim.state.inbox == []


def test_a_message_is_no_answer_to_a_choice() -> None:
    """Where only options are allowed it is queued."""
    sim = once(call("ask_user", question="which?", options=["a", "b"], allow_freeform=False))
    sim.until(effects.Wait)
    sim.hear("neither, use c")
    assert sim.until(effects.Wait).on == "question"
    assert [m.content for m in sim.state.inbox] == ["neither, use c"]
    sim.record(ev.QuestionAnswered(question_id=sim.of(ev.QuestionAsked)[0].question_id, answer="a", option=0, by="me"))
    sim.until(effects.CallModel)
    assert "neither, use c" in sim.prompt


def test_an_expired_question_is_answered_with_no_answer() -> None:
    """Typed, never consent; the goal goes on."""
    sim = once(call("ask_user", question="which?"))
    sim.until(effects.Wait)
    sim.record(ev.QuestionExpired(question_id=sim.of(ev.QuestionAsked)[0].question_id))
    results = settled_rest(sim)
    assert (codes(results), results[0].success) == (["no_answer"], False)
    sim.record(ev.QuestionAnswered(question_id=sim.of(ev.QuestionAsked)[0].question_id, answer="late", by="me"))


def test_ask_user_waits_for_permissions_before_it() -> None:
    """A batch with a call that asks and a question has one at a time."""
    sim = once(call("pay", n=1), call("ask_user", question="?"), permit=asking("pay"), reachable=True)
    assert sim.until(effects.Wait).on == "grant"
    decided(sim, "approved")
    assert sim.until(effects.Wait).on == "question"
    assert [name for name, _ in sim.executed] == ["pay"]


@pytest.mark.parametrize(
    ("arguments", "on", "seconds"),
    [
        ({"seconds": 90}, "time", 90),
        ({"until": 1_000_500.0}, "time", 500),
        ({"until": "1970-01-12T14:11:40Z"}, "time", 1500),
        ({"seconds": 30, "file": "done.txt"}, "condition", 30),
        ({"file": "done.txt"}, "condition", 24 * 3600),
    ],
)
def test_wait_parks_until_its_time_or_file(arguments: dict[str, Any], on: str, seconds: float) -> None:
    """No model call and no tool is open meanwhile; its end is the call's result."""
    sim = once(call("wait", **arguments))
    act = sim.until(effects.Wait)
    assert (act.on, act.condition) == (on, arguments.get("file"))
    assert act.until == pytest.approx(1_000_000 + seconds, abs=3)
    assert sim.state.phase == "waiting"
    if on == "condition":
        sim.record(ev.GoalResumed(from_="waiting", cause="done.txt is there"))
    else:
        sim.now = act.until
    results = settled_rest(sim)
    assert results[0].success
    assert results[0].result.content == ("done.txt is there" if on == "condition" else "the time is over")
    assert sim.state.spend.calls == 0


def test_a_human_message_ends_a_wait() -> None:
    """It is delivered with the call's result."""
    sim = once(call("wait", seconds=9999))
    sim.until(effects.Wait)
    sim.hear("go on now")
    results = settled_rest(sim)
    assert results[0].result.content == "a human wrote"
    sim.until(effects.CallModel)
    assert "go on now" in sim.prompt


def test_two_waits_of_a_batch_come_one_after_the_other_and_after_all_other_calls() -> None:
    """Each has its own end."""
    sim = once(call("wait", seconds=10), call("wait", seconds=20), call("look", n=1))
    results = settled(sim)
    assert [r.result.content for r in results] == ["look ran 1", "the time is over", "the time is over"]
    assert [p.said for p in sim.of(ev.GoalParked)] == ["10 seconds", "20 seconds"]


@pytest.mark.parametrize(
    ("arguments", "until"),
    [
        ({}, LONGEST_WAIT),
        ({"seconds": 10**9}, LONGEST_WAIT),
        ({"seconds": -5}, 0.0),
        ({"seconds": "soon"}, LONGEST_WAIT),
        ({"until": "whenever"}, LONGEST_WAIT),
        ({"until": None}, LONGEST_WAIT),
        ({"until": "1970-01-01T00:02:00"}, 20.0),
        ({"seconds": 50, "until": 120.0}, 20.0),
    ],
)
def test_a_wait_is_at_most_a_day(arguments: dict[str, Any], until: float) -> None:
    """Nonsense is the longest wait, the nearer of two counts, a time without a zone is UTC."""
    assert wait_for(arguments, 100.0)[0] == 100.0 + until


# ---------------------------------------------------------------------------------------------------------------------- claims


def test_the_claim_comes_after_all_other_calls_of_its_batch() -> None:
    """Wherever it stands."""
    sim = once(call("task_complete", summary="x"), call("look", n=1), call("pay", n=2))
    sim.until(effects.CallModel)
    while not sim.of(ev.GoalClaimed):
        sim.step()
    assert [name for name, _ in sim.executed] == ["look", "pay"]


def test_only_the_first_of_several_claims_is_checked() -> None:
    """The others are refused in words and do not count."""
    sim = once(call("task_complete", summary="one"), call("task_complete", summary="two"), call("report_blocked", reason="three"))
    results = settled(sim)
    assert sorted(codes(results)) == ["not_done", "refused_claim", "refused_claim"]
    assert [c.summary for c in sim.of(ev.GoalClaimed)] == ["one"]


def test_a_claim_with_broken_arguments_claims_nothing() -> None:
    """It is a malformed call like any other."""
    results = settled(once(call("task_complete", raw="{")))
    assert codes(results) == ["malformed"]


def test_a_claim_is_refused_while_a_question_is_open() -> None:
    """The kernel's own question still waits for its answer when a person resumes over it."""
    sim = Sim(
        lambda s: says("hm") if len(s.asked) < 3 else says("", call("task_complete", summary="x")), contract=FILE, reachable=True
    )
    sim.until(effects.Wait)
    sim.resume()
    sim.state.round_open = True
    sim.until(effects.CallModel)
    assert codes(settled_rest(sim)) == ["refused_claim"]
    assert "task_complete" not in [c.by for c in sim.of(ev.GoalClaimed)]


def test_needs_and_reason_are_what_a_blocked_report_says() -> None:
    """Both reach the human."""
    sim = once(call("report_blocked", reason="no key", needs=["API key", "VPN"]))
    settled(sim)
    assert sim.of(ev.GoalClaimed)[0].summary == "no key\nNeeds: API key; VPN"


def test_a_cut_answer_ends_its_turn_as_cut() -> None:
    """Its calls have run all the same."""
    for finish, outcome in (("length", "cut"), ("cut", "cut"), ("stop", "ok"), ("odd", "ok")):
        sim = Sim(
            lambda s, f=finish: says("", call("look"), finish=f),
            tools={"look": counted("look", "read")},
            contract=FILE,
            limits={"turns": 2.0},
        )
        sim.run()
        assert sim.of(ev.TurnEnd)[0].outcome == outcome


def test_arguments_that_are_no_object_stay_text_to_the_end() -> None:
    """The provider is told its own text again, never an invented object."""
    sim = once(call("pay", raw='{"to": '))
    settled(sim)
    asked = next(m for m in sim.state.window.messages if getattr(m, "requests", ()))
    assert asked.requests[0] == ToolRequest("c1", "pay", '{"to": ')
