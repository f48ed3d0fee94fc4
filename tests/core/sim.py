"""A pure driver for tests of the kernel: the whole wheel, with everything outside played by functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from endstop.core import chain, codec, effects
from endstop.core import events as ev
from endstop.core.apply import apply
from endstop.core.codec import Entry
from endstop.core.compaction import completed
from endstop.core.decide import decide
from endstop.core.goal import Kit, State
from endstop.core.identity import digests
from endstop.core.limits import DEFAULTS
from endstop.core.messages import Answer, ToolRequest, ToolSpec, Usage

ToolPlay = Callable[[dict[str, Any]], "tuple[bool, str] | ev.ToolComplete"]


def spec(name: str, effect: str = "write", **more: Any) -> ToolSpec:
    """A tool that takes anything."""
    return ToolSpec(name=name, description=name, parameters={"type": "object"}, effect=effect, own=True, **more)


KERNEL = [spec(name, "attached") for name in ("task_complete", "report_blocked", "ask_user", "wait")]


def call(name: str, id: str | None = None, raw: str | None = None, **arguments: Any) -> ToolRequest:
    """A request of the model."""
    return ToolRequest(id or "", name, raw if raw is not None else arguments)


def says(text: str = "", *calls: ToolRequest, tokens: tuple[int, int] = (100, 20), finish: str = "stop") -> Answer:
    """An answer of the model."""
    return Answer(text, tuple(calls), finish, Usage(*tokens))


class Sim:
    """One session in memory. ``model`` is asked with the sim for each turn and returns an Answer or a model fault code."""

    def __init__(
        self,
        model: Callable[[Sim], Answer | str],
        *,
        tools: dict[str, tuple[ToolSpec, ToolPlay]] | None = None,
        contract: ev.Contract | None = None,
        limits: dict[str, float] | None = None,
        gates: Callable[[ev.Gate, Sim], tuple[str, int]] | None = None,
        judge: Callable[[Sim], ev.GoalJudged] | None = None,
        hooks: Callable[[effects.HookRun, Sim], dict[str, Any]] | None = None,
        files: dict[str, str] | None = None,
        policy: ev.Policy | None = None,
        **kit: Any,
    ) -> None:
        self.model, self.tools, self.gates, self.judge = model, tools or {}, gates, judge
        self.hooks = hooks
        self.files: dict[str, str] = dict(files or {})
        self.summary: str | None = "what was done"
        self.now = 1_000_000.0
        self.lines: list[bytes] = []
        self.entries: list[Entry] = []
        self.asked: list[effects.CallModel] = []
        self.executed: list[tuple[str, dict[str, Any]]] = []
        self.ids = 0
        self.prev = chain.genesis("s")
        specs = {s.name: s for s in KERNEL} | {name: s for name, (s, _) in self.tools.items()}
        self.kit = Kit(tools=specs, lock="w", judge="judge" if judge else "", **kit)
        self.state = State(kit=self.kit)
        self.record(
            ev.SessionStart(
                session_id="s", version=1, producer="test", start_time="x", kind="goal", context=ev.Context(cwd="/w")
            ),
            ev.GoalQueued(
                goal_id="g",
                objective="do it",
                contract=contract or ev.Contract(judge="none"),
                limits=DEFAULTS if limits is None else limits,
                policy=policy or ev.Policy(),
                model="m",
                fallbacks=[],
                workspace="/w",
                priority=0,
            ),
        )

    def record(self, *events: ev.Event) -> None:
        """Journal through the real codec and apply."""
        for event in events:
            self.now += 0.001
            seq = len(self.lines) + 1
            line = codec.frame(
                codec.encode_data(event), codec.type_of(event), id=f"id{seq}", seq=seq, prev=self.prev,
                timestamp=codec.stamp(self.now), parent=None,
            )  # fmt: skip
            self.prev = chain.link(line)
            entry = codec.decode(line)
            self.lines.append(line)
            self.entries.append(entry)
            apply(self.state, entry)

    def step(self) -> effects.AnyAct:
        """One turn of the wheel."""
        act = decide(self.state, self.now)
        self.record(*act.events)
        self.perform(act)
        return act

    def perform(self, act: effects.AnyAct) -> None:  # noqa: C901  one case per effect
        """Play what the outside would do."""
        match act:
            case effects.CallModel():
                self._ask(act)
            case effects.RunTools():
                for run in act.calls:
                    self.record(self._tool(run))
            case effects.RunGates():
                for gate in act.gates:
                    outcome, code = self.gates(gate, self) if self.gates else ("pass", 0)
                    self.record(
                        ev.GateFinished(
                            gate_id=gate.gate_id,
                            outcome=outcome,
                            exit_code=code,
                            output=outcome,
                            duration_ms=1,
                            fingerprint=self.fingerprint(),
                            stale=False,
                        )
                    )
            case effects.RunHooks():
                for run in act.hooks:
                    said = self.hooks(run, self) if self.hooks else {}
                    end = {"success": True, **said}
                    self.record(ev.HookEnd(hook_invocation_id=run.invocation_id, hook_type=run.hook.on, **end))
            case effects.AskJudge():
                assert self.judge is not None
                usage = ev.AssistantUsage(
                    initiator="judge", model="judge", input_tokens=50, cache_read_tokens=0, cache_write_tokens=0,
                    output_tokens=10, cost=0.0, estimated=False, attempt=1,
                )  # fmt: skip
                self.record(usage, self.judge(self))
            case effects.Compact():
                usage = ev.AssistantUsage(
                    initiator="compaction", model="m", input_tokens=50, cache_read_tokens=0, cache_write_tokens=0,
                    output_tokens=10, cost=0.0, estimated=False, attempt=1,
                )  # fmt: skip
                if self.summary is not None:
                    self.record(usage, completed(self.state, act.up_to, summary=self.summary))
            case effects.StopProcesses():
                for name in act.ids:
                    self.record(ev.ProcessExited(process_id=name, signal=15, output=""))
            case effects.Look():
                self.record(self.look(act.purpose))
            case effects.Wait():
                if act.until is not None:
                    self.now = max(self.now, act.until)

    def _ask(self, act: effects.CallModel) -> None:
        self.asked.append(act)
        self.now += 1
        answer = Answer("handoff", usage=Usage(10, 10)) if act.purpose == "close" else self.model(self)
        if isinstance(answer, str):
            self.record(ev.TurnEnd(turn_id=act.turn_id, outcome="failed", error=ev.Failure(code=answer, message=answer)))
            return
        requests = []
        for request in answer.requests:
            self.ids += 1
            requests.append(ToolRequest(request.tool_call_id or f"c{self.ids}", request.name, request.arguments))
        usage = answer.usage or Usage(int(act.events[-1].reserved["input-tokens"]), 10, estimated=True)
        self.record(
            ev.AssistantMessage(
                message_id=f"a{act.turn_id}", content=answer.text, tool_requests=requests, finish_reason=answer.finish
            ),
            ev.AssistantUsage(
                initiator=act.purpose, turn_id=act.turn_id, model="m", input_tokens=usage.input, cache_read_tokens=0,
                cache_write_tokens=0, output_tokens=usage.output, cost=0.001, estimated=usage.estimated, attempt=1,
            ),
        )  # fmt: skip
        if act.purpose == "close":
            self.record(ev.TurnEnd(turn_id=act.turn_id, outcome="ok"))

    def _tool(self, run: effects.Run) -> ev.ToolComplete:
        self.executed.append((run.name, run.arguments))
        played = self.tools[run.name][1](run.arguments)
        if isinstance(played, ev.ToolComplete):
            return played
        success, text = played
        raw, norm = digests(text)
        return ev.ToolComplete(
            tool_call_id=run.tool_call_id, success=success, executed=True, result=ev.Result(content=text),
            error=None if success else ev.Failure(code="failed", message=text), hash=raw, norm_hash=norm,
        )  # fmt: skip

    def fingerprint(self) -> str:
        """Of the played files."""
        return repr(sorted(self.files.items()))

    def look(self, purpose: str) -> ev.WorkspaceObserved:
        """What a look at the played files says."""
        wanted = self.state.goal.contract.deliverables
        states = {p: ("absent" if p not in self.files else self.files[p] or "empty") for p in wanted}
        return ev.WorkspaceObserved(
            purpose=purpose, world=self.state.evidence.world, fingerprint=self.fingerprint(), paths=[], diff="",
            protected=[], named=[], deliverables=states,
        )  # fmt: skip

    def run(self, steps: int = 2000) -> ev.GoalEnded | None:
        """Until the goal ends or nothing goes on by itself."""
        for _ in range(steps):
            act = self.step()
            if isinstance(act, effects.Idle) or (isinstance(act, effects.Wait) and act.until is None):
                return self.state.goal.ended if self.state.goal else None
        raise AssertionError(f"still going after {steps} steps, phase {self.state.phase}")

    def until(self, kind: type[effects.Act], steps: int = 400, *, perform: bool = True, **wanted: Any) -> Any:
        """Step until decide gives an effect of this kind whose fields are as wanted; ``perform`` False leaves it undone
        after its intents were journalled, as a crash would."""
        for _ in range(steps):
            act = decide(self.state, self.now)
            hit = isinstance(act, kind) and all(getattr(act, name) == value for name, value in wanted.items())
            self.record(*act.events)
            if hit and not perform:
                return act
            before = self.now
            self.perform(act)
            if hit:
                self.now = before if isinstance(act, effects.Wait) else self.now
                return act
            if isinstance(act, effects.Idle) or (isinstance(act, effects.Wait) and act.until is None):
                raise AssertionError(f"came to rest in {self.state.phase} before {kind.__name__}: {self.types[-12:]}")
        raise AssertionError(f"no {kind.__name__} in {steps} steps: {self.types[-12:]}")

    def crash(self, crashed: bool = True) -> None:
        """The holder is gone; another takes the session up."""
        self.record(
            ev.SessionResume(
                resume_time="x", event_count=len(self.lines), generation=self.state.generation + 1, crashed=crashed, open=[]
            )
        )

    def hear(self, text: str) -> None:
        """A human writes."""
        self.record(ev.UserMessage(message_id=f"u{len(self.lines)}", content=text, source="user", delivery="steering"))

    def resume(self, **more: Any) -> None:
        """A person resumes."""
        self.record(ev.GoalResumed(from_=self.state.phase, cause="person", by="test", **more))

    @property
    def prompt(self) -> str:
        """All that the model has been told, and is about to be told."""
        return "\n".join([*(m.text for m in self.state.window.messages), *self.state.window.notes])

    @property
    def types(self) -> list[str]:
        """Types of all events so far."""
        return [codec.type_of(e.event) for e in self.entries]

    def of(self, kind: type[Any]) -> list[Any]:
        """Events of one type."""
        return [e.event for e in self.entries if isinstance(e.event, kind)]
