"""What holds for every behaviour of model, tools, checks, people, clock and crashes."""

from __future__ import annotations

from typing import Any, get_args

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from endstop.core import effects
from endstop.core import events as ev
from endstop.core.apply import replay
from endstop.core.decide import decide
from endstop.core.goal import ENDED, Verdict
from endstop.core.hooks import called
from endstop.core.limits import AXES, CLOSING
from endstop.core.messages import Answer, AssistantText, ToolSpec, ToolText
from tests.core.sim import Sim, call, says, spec

TOOLS = ("look", "pay", "put", "edit", "run")


def tools(results: list[tuple[bool, str]]) -> dict[str, Any]:
    """One tool of each class, answering from a list by how often anything ran."""
    ran = [0]

    def play(arguments: dict[str, Any]) -> tuple[bool, str]:
        ran[0] += 1
        return results[ran[0] % len(results)]

    classes = {"look": "read", "pay": "write", "put": "idempotent", "edit": "edit", "run": "shell"}
    return {name: (spec(name, effect), play) for name, effect in classes.items()}


calls = st.one_of(
    st.builds(lambda name, n: call(name, n=n), st.sampled_from(TOOLS), st.integers(0, 3)),
    st.builds(lambda n: call("nope", n=n), st.integers(0, 2)),
    st.just(call("pay", raw="{")),
    st.builds(lambda n: call("task_complete", summary=f"done {n}"), st.integers(0, 2)),
    st.just(call("report_blocked", reason="no key", needs=["key"])),
    st.just(call("ask_user", question="which?")),
    st.just(call("wait", seconds=5)),
)
answers = st.one_of(
    st.builds(
        lambda text, batch, tokens, finish: says(text, *batch, tokens=tokens, finish=finish),
        st.sampled_from(["", "words", "x" * 500]),
        st.lists(calls, max_size=5),
        st.tuples(st.integers(1, 400), st.integers(0, 200)),
        st.sampled_from(["stop", "length", "tool_calls", "odd"]),
    ),
    st.sampled_from(["network", "rate_limit", "server", "context_overflow", "auth", "invalid_request"]),
)
verdicts = st.sampled_from(
    [
        ev.GoalJudged(result="verdict", achieved=True, missing=[], because=[1], raw=""),
        ev.GoalJudged(result="verdict", achieved=False, missing=["more"], because=[1], raw=""),
        ev.GoalJudged(result="verdict", achieved=False, impossible="cannot", missing=[], because=[1], raw=""),
        ev.GoalJudged(result="unreadable", raw="?"),
        ev.GoalJudged(result="unreachable", raw="!"),
    ]
)
hooks = st.builds(
    lambda on, run, matcher: ev.Hook(hook_id=f"{on}-{run}-{matcher}", on=on, run=run, matcher=matcher),
    st.sampled_from(get_args(ev.HookOn)),
    st.sampled_from(["a", "b"]),
    st.sampled_from(["", "pay", "look|run", "Bash"]),
)
hook_words = st.sampled_from(
    [{}, {"text": "note"}, {"success": False, "error": "crashed"}]
    + [{"decision": word, "text": word} for word in ("allow", "ask", "deny", "stop")]
)
PEOPLE = ["message", "stop", "abort", "pause", "resume", "cancel", "answer", "approved", "denied", "denied for good", "late"]
moves = st.sampled_from(["step"] * 30 + ["crash", "die", *PEOPLE])
policies = st.builds(ev.Policy, humans=st.sampled_from(["auto", "park", "deny"]), on_halt=st.sampled_from(["end", "end", "ask"]))
limits = st.fixed_dictionaries(
    {"turns": st.integers(1, 14).map(float), "rounds": st.integers(1, 6).map(float), "wall": st.just(1e6)},
    optional={
        "tokens": st.integers(500, 60_000).map(float),
        "output-tokens": st.integers(100, 30_000).map(float),
        "tool-calls": st.integers(1, 20).map(float),
        "tool-calls/turn": st.integers(1, 3).map(float),
        "tool:pay": st.integers(1, 3).map(float),
        "verifications": st.integers(1, 3).map(float),
        "active": st.integers(5, 4000).map(float),
    },
)


class World:
    """A sim whose outside misbehaves as drawn."""

    def __init__(self, data: st.DataObject) -> None:
        draw = data.draw
        self.draw = draw
        script = draw(st.lists(answers, min_size=1, max_size=6), label="model")
        said = st.tuples(st.sampled_from(["pass", "fail", "broken"]), st.just(1))
        outcomes = draw(st.lists(said, min_size=1, max_size=4), label="gates")
        judged = draw(st.lists(verdicts, min_size=1, max_size=3), label="judge")
        result = st.tuples(st.booleans(), st.sampled_from(["ok", "y" * 40, "took 3.2 s"]))
        results = draw(st.lists(result, min_size=1, max_size=4))
        hooked = draw(st.lists(hook_words, min_size=1, max_size=6), label="hooks say")
        rules = st.dictionaries(st.sampled_from(TOOLS), st.sampled_from(["ask", "deny"]), max_size=3)
        self.permits = draw(rules, label="permits")
        count = {"gate": 0, "judge": 0, "hook": 0}

        def gate(g: ev.Gate, sim: Sim) -> tuple[str, int]:
            count["gate"] += 1
            return outcomes[count["gate"] % len(outcomes)]

        def judge(sim: Sim) -> ev.GoalJudged:
            count["judge"] += 1
            return judged[count["judge"] % len(judged)]

        def hook(run: effects.HookRun, sim: Sim) -> dict[str, Any]:
            count["hook"] += 1
            return hooked[count["hook"] % len(hooked)]

        def model(sim: Sim) -> Answer | str:
            if draw(st.booleans(), label="edits"):
                sim.files["f"] = str(draw(st.integers(0, 3), label="content"))
            return script[len(sim.asked) % len(script)]

        contract = ev.Contract(
            gates=[ev.Gate(gate_id="g1", run="make test")] if draw(st.booleans(), label="gate") else [],
            deliverables=["f"] if draw(st.booleans(), label="deliverable") else [],
            judge="auto" if draw(st.booleans(), label="judged") else "none",
            confront=draw(st.sampled_from(["once", "always", "never"])),
            review=draw(st.sampled_from(["none", "none", "human"])),
            hooks=draw(st.lists(hooks, max_size=3, unique_by=lambda h: h.hook_id), label="hooks"),
        )
        self.caps = draw(limits, label="limits")
        self.sim = Sim(
            model,
            tools=tools(results),
            contract=contract,
            limits=self.caps,
            gates=gate,
            judge=judge,
            hooks=hook,
            permit=self.permit,
            policy=draw(policies, label="policy"),
            reachable=draw(st.booleans(), label="reachable"),
            window=draw(st.sampled_from([None, 1200, 3000]), label="window"),
        )
        self.generation = 1

    def permit(self, tool: ToolSpec, arguments: dict[str, Any]) -> Verdict:
        """As drawn, allowed else."""
        return Verdict(self.permits.get(tool.name, "allow"), "rule", "why")

    def move(self, kind: str) -> None:  # noqa: C901  one case per move
        """One thing happens."""
        sim, state = self.sim, self.sim.state
        match kind:
            case "step":
                sim.step()
            case "die":  # the intent is journalled, then the process is gone
                sim.record(*effects_of(sim).events)
                self.crash()
            case "crash":
                self.crash()
            case "message" | "stop":
                words = "stop" if kind == "stop" else "go on like this"
                late = True if state.phase in ENDED else None
                sim.record(ev.UserMessage(message_id="u", content=words, source="user", delivery="steering", late=late))
            case "abort":
                sim.record(ev.Abort(reason="user", by="test"))
            case "pause" if state.phase in ("queued", "working", "waiting", "checking", "closing"):
                sim.record(ev.GoalPaused(reason="user", by="test"))
            case "resume" if state.phase in ("paused", "waiting"):
                sim.record(ev.GoalResumed(from_=state.phase, cause="person", by="test"))
            case "cancel" if state.phase not in ENDED:
                sim.record(ev.GoalClosing(target="cancelled", reason="person", by="test", detail={}))
            case "answer":
                self.answer()
            case "approved" | "denied" | "denied for good":
                self.rule_on(kind)

    def crash(self) -> None:
        """The process is gone and another takes the session up."""
        self.generation += 1
        self.sim.record(
            ev.SessionResume(resume_time="x", event_count=len(self.sim.lines), generation=self.generation, crashed=True, open=[])
        )

    def answer(self) -> None:
        """A human answers the oldest open question and grant."""
        for question in self.sim.state.questions.values():
            if question.answer is None and not question.expired:
                self.sim.record(ev.QuestionAnswered(question_id=question.id, answer="blue", by="test"))
                return

    def rule_on(self, kind: str) -> None:
        """A human decides the oldest open permission."""
        for grant in self.sim.state.grants.values():
            if not grant.kind:
                word, stop = ev.Decision(kind=kind.split()[0]), kind.endswith("good")
                self.sim.record(ev.PermissionCompleted(request_id=grant.id, result=word, scope="once", by="test", stop=stop))
                return

    def settle(self) -> None:
        """People do what is needed until nothing waits for them: then limits and rules must end it."""
        for _ in range(1500):
            act = self.sim.step()
            if isinstance(act, effects.Idle) and self.sim.state.phase == "paused":
                self.sim.record(ev.GoalResumed(from_="paused", cause="person", by="test"))
            elif isinstance(act, effects.Idle):
                return
            elif isinstance(act, effects.Wait) and act.until is None:
                self.answer()
        raise AssertionError(f"does not end: {self.sim.types[-30:]}")


def effects_of(sim: Sim) -> effects.AnyAct:
    """What decide wants now."""
    return decide(sim.state, sim.now)


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data())
def test_every_goal_ends_within_its_limits_and_every_call_has_one_result(data: st.DataObject) -> None:
    """It stops; limits hold; after a cap only the closing turn; one result a call; any prefix replays to the same state."""
    world = World(data)
    sim = world.sim
    for kind in data.draw(st.lists(moves, max_size=40), label="moves"):
        world.move(kind)
    middle = data.draw(st.integers(1, len(sim.entries)), label="prefix")
    world.settle()
    ended = sim.state.goal.ended
    assert ended is not None
    limits_hold(world)
    one_result_each(sim)
    conversation_is_whole(sim)
    assert replay(sim.entries, sim.kit) == sim.state
    assert replay(sim.entries[:middle], sim.kit).seq == middle
    honest(sim, ended)
    hooks_are_heard(sim)


def limits_hold(world: World) -> None:
    """Nothing is spent beyond its cap: the provider's reports were within what was reserved for them or say so."""
    sim, caps = world.sim, world.caps
    spend = sim.state.spend
    assert spend.turns <= caps["turns"]
    assert spend.rounds <= caps["rounds"]
    assert spend.calls <= caps.get("tool-calls", 1e9)
    assert spend.by_tool.get("pay", 0) <= caps.get("tool:pay", 1e9)
    assert spend.verifications <= caps.get("verifications", 1e9)
    overshoot = miscount(sim)
    assert spend.input + spend.output <= caps.get("tokens", 1e9) + overshoot
    capped = False
    for entry in sim.entries:
        if isinstance(entry.event, ev.LimitReached):
            capped = True
        elif isinstance(entry.event, ev.TurnStart) and capped:
            assert entry.event.purpose == "close"


def miscount(sim: Sim) -> int:
    """By how much usage reports went over what was reserved for their calls."""
    over, reserved = 0, {}
    for entry in sim.entries:
        if isinstance(entry.event, (ev.TurnStart, ev.GoalJudging, ev.SessionCompactionStart)):
            reserved = entry.event.reserved
        elif isinstance(entry.event, ev.AssistantUsage):
            over += max(0, entry.event.input_tokens + entry.event.output_tokens - int(reserved["tokens"]))
    return over


def one_result_each(sim: Sim) -> None:
    """Every call the model asked for has exactly one result, and what must not run twice ran once."""
    asked = [r.tool_call_id for m in sim.of(ev.AssistantMessage) for r in m.tool_requests]
    results = [c.tool_call_id for c in sim.of(ev.ToolComplete)]
    assert sorted(asked) == sorted(results)
    usages = [e for e in sim.of(ev.AssistantUsage) if e.initiator not in ("judge", "compaction")]
    failed = {e.turn_id for e in sim.of(ev.TurnEnd) if e.outcome == "failed"}
    assert sorted(e.turn_id for e in usages) == [e.turn_id for e in sim.of(ev.TurnStart) if e.turn_id not in failed]
    assert len(sim.of(ev.GoalJudging)) == len([e for e in sim.of(ev.AssistantUsage) if e.initiator == "judge"])
    paid = [(name, repr(arguments)) for name, arguments in sim.executed if name == "pay"]
    assert len(paid) == len(set(paid))


def conversation_is_whole(sim: Sim) -> None:
    """No orphan reaches a provider: results follow their calls, all of them, before anything else is said."""
    pending: list[str] = []
    for message in sim.state.window.messages:
        if isinstance(message, ToolText):
            pending.remove(message.tool_call_id)
        else:
            assert not pending
            if isinstance(message, AssistantText):
                pending = [request.tool_call_id for request in message.requests]


def honest(sim: Sim, ended: ev.GoalEnded) -> None:
    """Done comes only from green gates and present deliverables; verified only from something that shows it."""
    if ended.phase != "done":
        assert not ended.verified
        return
    contract, seen = sim.state.goal.contract, sim.state.evidence
    assert all(seen.gates[g.gate_id].outcome == "pass" for g in contract.gates)
    assert all(path in sim.files for path in contract.deliverables)
    if ended.verified:
        judged = any(j.result == "verdict" and j.achieved for j in sim.of(ev.GoalJudged))
        was_red = any(gate.baseline == "fail" for gate in seen.gates.values())
        assert judged or was_red or contract.deliverables


def hooks_are_heard(sim: Sim) -> None:
    """Nothing starts that its hooks did not let through, and no goal is done against a hook's word or without it."""
    wanted = {hook.hook_id: hook for hook in sim.state.goal.contract.hooks}
    about: dict[str, tuple[str, str]] = {}
    passed: dict[str, set[str]] = {}
    for entry in sim.entries:
        match entry.event:
            case ev.HookStart(hook_invocation_id=id, input=input):
                about[id] = (input["of"], input["hook"])
            case ev.HookEnd(hook_invocation_id=id, success=success, decision=decision):
                of, hook = about[id]
                if decision not in ("deny", "stop") and (success or wanted[hook].on != "stop"):
                    passed.setdefault(of, set()).add(hook)
                elif wanted[hook].on == "pre_tool":
                    passed.setdefault(of, set()).discard(hook)
            case ev.ToolStart(tool_call_id=call_id, tool_name=name, effect=effect) if effect != "attached":
                before = {id for id, hook in wanted.items() if hook.on == "pre_tool" and called(hook, name)}
                assert before <= passed.get(call_id, set())
            case ev.GoalClaimed():
                claim = str(entry.seq)
            case ev.GoalEnded(phase="done"):
                at_stop = {id for id, hook in wanted.items() if hook.on == "stop"}
                assert {id for id in at_stop if id in passed.get(claim, set())} == at_stop


def test_closing_is_kept_back_on_every_axis() -> None:
    """The closing reserve names real axes."""
    assert set(CLOSING) <= set(AXES)
