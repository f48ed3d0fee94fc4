"""Settling the calls of a turn: each gets exactly one result, whatever happens.

One call, first stop writes the result: JSON parses, tool known, schema holds, stall rules, same call earlier in this batch,
memory by effect class, limits, hooks, permission, start. Calls that only read start together; any other starts alone, so that a
start without an end never stands for something that had not begun.
"""

from __future__ import annotations

from difflib import get_close_matches
from itertools import takewhile
from typing import Any

from endstop.core import events as ev
from endstop.core import hooks, stall
from endstop.core.asking import CLAIMS, Asking, ask_permission, ask_question, attached, begin_wait, wait_on
from endstop.core.effects import AnyAct, Look, Record, Run, RunTools
from endstop.core.events import Event
from endstop.core.goal import Call, Memo, State, Verdict, open_calls, waiting_humans
from endstop.core.limits import call_full, show
from endstop.core.messages import ToolSpec
from endstop.core.results import complete, key_of, prepare

PARALLEL = frozenset({"read", "read_outside"})
APPROVED = "approved"


def settle(state: State, now: float) -> AnyAct | None:
    """What the open turn needs next, or None where no turn with an answer is open."""
    turn = state.turn
    if turn is None or turn.ended or not turn.answered:
        return None
    if state.stall.due:
        return Record(events=tuple(_noticed(notice) for notice in state.stall.due))
    calls = open_calls(state)
    started = [call for call in calls if call.state == "started"]
    if started:
        return attached(state, started)
    claims = [call for call in calls if call.request.name in CLAIMS]
    ordinary = [call for call in calls if call.request.name not in CLAIMS]
    if ordinary:
        return _Batch(state, now).run(ordinary)
    if claims:
        return _claim(state, claims)
    return Record(events=(ev.TurnEnd(turn_id=turn.id, outcome="cut" if turn.finish in ("length", "cut") else "ok"),))


def _noticed(notice: stall.Notice) -> Event:
    return ev.StallNoticed(
        rule=notice.rule,
        count=notice.count,
        identity=notice.identity,
        seqs=notice.seqs,
        period=notice.period,
        text=notice.text,
        tool_call_id=notice.tool_call_id,
    )


class _Batch:
    """One pass over the calls of a turn that have no result yet."""

    def __init__(self, state: State, now: float) -> None:
        self.state = state
        self.now = now
        self.events: list[Event] = []
        self.runs: list[Run] = []
        self.asks: list[Asking] = []
        self.hooked: list[tuple[str, dict[str, Any], str]] = []  # calls whose hooks run first: tool, arguments, id
        self.look = False

    def run(self, calls: list[Call]) -> AnyAct:
        """Settle in order until something has to happen outside."""
        waits: list[Call] = []
        for call in calls:
            if call.request.name == "ask_user" and (self.runs or self.asks or self.hooked):
                break
            if self._one(call, waits):
                break
        if self.look:
            return Look(purpose="stall")
        if self.runs:
            return RunTools(events=tuple(self.events), calls=tuple(self.runs))
        before = hooks.run(self.state, [("pre_tool", call_id) for _, _, call_id in self.hooked], self.events)
        if before is not None:
            return before
        if self.events:
            return Record(events=tuple(self.events))
        if self.asks:
            return Record(events=tuple(ask_permission(self.state, self.now, self.asks)))
        if waits:
            return Record(events=tuple(begin_wait(self.state, self.now, waits[0])))
        until = min((grant.expires_at for grant in self.state.grants.values() if not grant.kind), default=None)
        return wait_on(self.state, "grant", until, said="permission")

    def _one(self, call: Call, waits: list[Call]) -> bool:
        """Settle one call; True ends the pass."""
        spec, arguments, ident, again = prepare(self.state, call)
        call_id = call.request.tool_call_id
        wrong = self._wrong(call, spec, arguments)
        if wrong is not None:
            self.events.append(wrong)
            return False
        assert spec is not None
        if spec.name == "wait":
            waits.append(call)
            return False
        if spec.name == "ask_user":
            self.events += ask_question(self.state, call, arguments)
            return True
        evidence = self.state.evidence
        if (
            evidence.world > evidence.looked
            and evidence.baseline
            and stall.near(self.state.stall, self.state.kit.rules, spec, ident)
        ):
            self.look = not (self.runs or self.events)
            return True
        known = self._known(call, spec, ident, arguments, again)
        if known is not None:
            self.events.extend(known)
            return False
        begun = [(run.name, run.arguments) for run in self.runs] + [(asked.name, args) for _, asked, args, _ in self.asks]
        begun += [(name, args) for name, args, _ in self.hooked]
        if (spec.name, arguments) in begun:
            return False  # waits for its twin, then shares its result
        return self._permitted(
            call, spec, arguments, ident, key_of(self.state, spec.name, arguments, again, self.state.seq), call_id
        )

    def _wrong(self, call: Call, spec: ToolSpec | None, arguments: dict[str, Any]) -> Event | None:
        call_id, name = call.request.tool_call_id, call.request.name
        if not isinstance(call.request.arguments, dict):
            shown = call.request.arguments[:200]
            return complete(call_id, f"The arguments are no JSON object, nothing was run: {shown}", code="malformed")
        if spec is None:
            near = get_close_matches(name, self.state.kit.tools, 3, 0.5) or list(self.state.kit.tools)[:12]
            return complete(call_id, f"There is no tool '{name}'. There is: {', '.join(near)}", code="unknown_tool")
        problem = spec.check(arguments) if spec.check else None
        if problem is not None:
            return complete(call_id, f"The arguments do not fit {name}: {problem}. Nothing was run.", code="malformed")
        return None

    def _known(self, call: Call, spec: ToolSpec, ident: str, arguments: dict[str, Any], again: str) -> list[Event] | None:
        """A refusal by a stall rule, a twin's result or a remembered one."""
        call_id = call.request.tool_call_id
        refused = stall.refusal(self.state.stall, self.state.kit.rules, spec, ident, call_id)
        if refused is not None:
            blocked = ev.StallBlocked(
                rule=refused.rule,
                count=refused.count,
                identity=refused.identity,
                seqs=refused.seqs,
                period=refused.period,
                text=refused.text,
                tool_call_id=call_id,
            )
            return [blocked, complete(call_id, refused.text, code="blocked_stall")]
        twin = self._twin(call, ident)
        if twin is not None:
            return [complete(call_id, twin.content, memo=twin)]
        if spec.effect not in ("write", "idempotent") or spec.repeatable or again:
            return None
        memo = self.state.memo.get(key_of(self.state, spec.name, arguments, "", 0))
        if memo is None:
            return None
        insist = ' To really run it once more, add the argument again: "why".' if spec.effect == "write" else ""
        text = f"{memo.content}\n[endstop] Nothing was executed: this is the result of the first call (event {memo.seq}).{insist}"
        return [complete(call_id, text, memo=memo)]

    def _twin(self, call: Call, ident: str) -> Memo | None:
        turn = self.state.turn
        assert turn is not None
        before = takewhile(lambda other: other is not call, turn.calls.values())
        return next((other.outcome for other in before if other.state == "done" and other.ident == ident and other.effect), None)

    def _permitted(self, call: Call, spec: ToolSpec, arguments: dict[str, Any], ident: str, key: str, call_id: str) -> bool:
        """Limits, hooks and permission, then the start; True ends the pass."""
        caps = self.state.caps
        same = sum(run.name == spec.name for run in self.runs)
        full = call_full(self.state.spend, caps, spec.name, len(self.runs), same)
        if full is not None:
            text = f"Over the limit {full.axis} ({show(full.axis, full.cap)}): not run."
            self.events.append(complete(call_id, text, code="over_limit"))
            return False
        if hooks.pending(self.state, ("pre_tool", call_id)):
            return self._before(spec, arguments, call_id)
        said = hooks.verdict(self.state, call_id)
        if said is not None and said.kind == "deny":
            self.events.append(complete(call_id, _denial(said), code="denied"))
            return False
        if call.grant:
            return self._granted(call, spec, arguments, key)
        verdict = hooks.weigh(self.state.kit.permit(spec, arguments), said)
        return self._ruled(call, spec, arguments, key, ident, verdict)

    def _before(self, spec: ToolSpec, arguments: dict[str, Any], call_id: str) -> bool:
        """Its hooks run right before it: those of calls that start together at once, those of any other alone."""
        parallel = spec.effect in PARALLEL
        if self.runs or (self.hooked and not parallel):
            return True
        self.hooked.append((spec.name, arguments, call_id))
        return not parallel

    def _ruled(self, call: Call, spec: ToolSpec, arguments: dict[str, Any], key: str, ident: str, verdict: Verdict) -> bool:
        """What a verdict means for a call; True ends the pass."""
        call_id = call.request.tool_call_id
        if self.state.stall.denials.get(ident) and verdict.kind != "allow":
            self.events.append(complete(call_id, "Denied before in this goal; not asked again.", code="denied"))
            return False
        if verdict.kind == "ask" and self._may_ask():
            self.asks.append((call, spec, arguments, verdict.why))
            return False
        if verdict.kind != "allow":
            self.events.append(complete(call_id, _denial(verdict), code="denied"))
            return False
        return self._start(call, spec, arguments, key)

    def _may_ask(self) -> bool:
        policy = self.state.policy
        if policy.humans == "auto":
            return self.state.kit.reachable
        return policy.humans == "park"

    def _start(self, call: Call, spec: ToolSpec, arguments: dict[str, Any], key: str) -> bool:
        parallel = spec.effect in PARALLEL
        if (self.runs or self.hooked) and not parallel:
            return True
        turn = self.state.turn
        assert turn is not None
        self.events.append(
            ev.ToolStart(
                tool_call_id=call.request.tool_call_id,
                tool_name=spec.name,
                arguments=arguments,
                turn_id=turn.id,
                effect=spec.effect,
                key=key,
            )
        )
        self.runs.append(
            Run(tool_call_id=call.request.tool_call_id, name=spec.name, arguments=arguments, key=key, effect=spec.effect)
        )
        return not parallel

    def _granted(self, call: Call, spec: ToolSpec, arguments: dict[str, Any], key: str) -> bool:
        grant = self.state.grants[call.grant]
        if not grant.kind:
            return False
        if grant.kind.startswith(APPROVED):
            self.events.append(ev.GrantUsed(request_id=grant.id))
            self._start(call, spec, arguments, key)
            return True
        words = f"Denied by a person. {grant.feedback}" if grant.feedback else "Denied: no permission was given."
        self.events.append(complete(call.request.tool_call_id, words.strip(), code="denied"))
        return False


def _claim(state: State, claims: list[Call]) -> AnyAct:
    """The claim comes last: refused while a human is asked, else it is checked."""
    first, others = claims[0], claims[1:]
    events: list[Event] = []
    for call in others:
        events.append(complete(call.request.tool_call_id, "Only the first claim of a turn is checked.", code="refused_claim"))
    spec, arguments, _, _ = prepare(state, first)
    wrong = _Batch(state, 0.0)._wrong(first, spec, arguments)
    call_id = first.request.tool_call_id
    if wrong is not None:
        events.append(wrong)
    elif state.goal is None or state.phase != "working":
        events.append(complete(call_id, "There is no goal to finish: just answer.", code="refused_claim"))
    elif waiting_humans(state):
        events.append(complete(call_id, "A question is still open: it has to be answered first.", code="refused_claim"))
    else:
        by: ev.ClaimBy = "task_complete" if first.request.name == "task_complete" else "report_blocked"
        needs = arguments.get("needs") or []
        summary = str(arguments.get("summary") or arguments.get("reason") or "")
        if needs:
            summary += "\nNeeds: " + "; ".join(str(need) for need in needs)
        events.append(ev.GoalClaimed(by=by, tool_call_id=call_id, summary=summary))
    return Record(events=tuple(events))


def _denial(verdict: Verdict) -> str:
    """Why a call does not run, and the options that would let just this one through, quoted for a shell."""
    if verdict.kind == "deny":
        return f"Denied by {verdict.rule}: {verdict.why}" if verdict.why else f"Denied by {verdict.rule}"
    quoted = ["--allow '" + rule.replace("'", "'\"'\"'") + "'" for rule in verdict.remedy]
    remedy = f" To allow it: {' '.join(quoted)}" if quoted else ""
    return f"Needs a human's permission and nobody can be asked ({verdict.rule}): {verdict.why}.{remedy}"
