"""What a goal looks like in words: its start, its course, its end. Pure: state and events in, lines out."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable
from typing import Any

from endstop.cli import words
from endstop.cli.out import PLAIN_WIDTH, line
from endstop.core import events as ev
from endstop.core.codec import Entry
from endstop.core.evidence import discriminating
from endstop.core.goal import ENDED, Closing, State, active_now, waiting_humans
from endstop.core.handoff import NEXT, open_items
from endstop.core.limits import AXES, DEFAULTS, closing_reserve, show
from endstop.models.names import THINKING, is_played
from endstop.store.verify import Verdict

NOTE, GO_ON = ' --note "…"', "to go on"
LABEL = 13
"""Columns of the labels on the left."""
WIDE = 200
"""Columns of a line about one event where there is no terminal."""
DRIVEN = frozenset({"queued", "working", "checking", "closing"})
"""Phases in which something goes on; with nobody there, its process has died."""
SHORT_ID = 13
"""Characters of an id that are shown: its milliseconds."""


def short(session_id: str) -> str:
    """An id as people type it."""
    return session_id[:SHORT_ID]


def row(label: str, text: str, width: int = PLAIN_WIDTH) -> list[str]:
    """A label and its text, wrapped behind it."""
    first = f"  {label:<{LABEL - 1}} "
    return textwrap.wrap(
        line(text) or "-", width, initial_indent=first, subsequent_indent=" " * len(first), break_on_hyphens=False
    )


def _cut(label: str, text: str, width: int) -> str:
    """A label and its text in one line."""
    first = f"  {label:<{LABEL - 1}} "
    return first + line(text, width - len(first))


def rows(label: str, texts: Iterable[str], width: int = PLAIN_WIDTH) -> list[str]:
    """One row a text, the label only before the first."""
    lines: list[str] = []
    for text in texts:
        lines += row("" if lines else label, text, width)
    return lines


def standing(state: State, *, driven: bool = True) -> str:
    """The phase as people read it. Verified and claimed never look alike. ``driven`` False: its process is known to be gone."""
    goal = state.goal
    if state.phase == "done" and goal is not None and goal.ended is not None:
        return "done (verified)" if goal.ended.verified else "done (claimed)"
    if answered(state):
        return "answered, not yet resumed"
    if state.phase == "waiting" and goal is not None and goal.parked is not None:
        return f"waiting ({goal.parked.on})"
    if state.phase == "paused" and goal is not None and goal.pause:
        return f"paused ({goal.pause.replace('_', ' ')})"
    return state.phase if driven or state.phase not in DRIVEN else f"{state.phase} (left)"


def answered(state: State) -> bool:
    """Whether a person has given what a parked goal waits for, and nobody has taken it up since."""
    parked = state.goal.parked if state.goal else None
    return state.phase == "waiting" and parked is not None and parked.on in ("question", "grant") and not waiting_humans(state)


# ------------------------------------------------------------------------------------------------------------------ start


def start(about: dict[str, Any], state: State, width: int = PLAIN_WIDTH) -> list[str]:
    """The block before the first turn: what will be done where, by whom, and what it may do. Of a goal that goes on, the
    model and the limits.

    Args:
        about: ``Running.description``; ``caps`` in it are limits that hold from now on.
    """
    goal = state.goal
    assert goal is not None
    queued = goal.queued
    model = model_words(about["model"], about["scripted"], about["priced"]) + _effort(about)
    limits = _limits(goal.caps | about.get("caps", {}))
    if state.turn is not None:
        first = f"endstop  goal {short(state.session_id)} goes on: {queued.objective}"
        return [line(first, width), *(_cut(label, text, width) for label, text in (("model", model), ("limits", limits)))]
    lines = [f"endstop  goal {short(state.session_id)}"]
    lines += row("objective", queued.objective, width)
    lines += row("workspace", f"{about['workspace']} ({_git(about['git'])})", width)
    lines += row("model", model, width)
    if about["fallbacks"]:
        lines += row("fallbacks", ", ".join(about["fallbacks"]), width)
    lines += row("judge", _judge(about), width)
    lines += rows("gates", about["gates"] or [_no_gates(about)], width)
    if about["deliverables"]:
        lines += rows("deliverables", about["deliverables"], width)
    if about["review"] == "human":
        lines += row("review", "a person accepts the work before it is done", width)
    return lines + rows("may", may(about), width) + row("limits", limits, width)


def model_words(name: str, scripted: bool, priced: bool = True) -> str:
    """A model's name; one that plays a script is said to."""
    if scripted:
        return f"SCRIPTED: plays {name.partition(':')[2]}, no model is asked"
    return name if priced else f"{name} (its price is not known: no money limit binds)"


def _effort(about: dict[str, Any]) -> str:
    effort = about.get("effort")
    if not effort or about["scripted"]:
        return ""
    provider = about["model"].partition(":")[0]
    return f", effort {effort}" if provider in THINKING else f" ({provider} is not told the effort: it does not know the word)"


def _git(git: dict[str, Any] | None) -> str:
    if git is None:
        return "no git repository: changes cannot be undone"
    where = f"git {git['branch'] or 'detached'} at {git['head'][:8] if git['head'] else 'no commit yet'}"
    dirty = git["dirty"]
    return f"{where}, {'clean' if dirty == 0 else 'state unknown' if dirty is None else f'{dirty} changed or untracked'}"


def _judge(about: dict[str, Any]) -> str:
    if not about["judge"]:
        return "none"
    own = "" if about["judgeIndependent"] else " (the goal's own model in a fresh context: not independent)"
    name = "SCRIPTED" if is_played(about["judge"]) else about["judge"]
    return f"{name}{own}"


def _no_gates(about: dict[str, Any]) -> str:
    if about["deliverables"]:
        return "none"
    return "none: only the judge can verify this" if about["judge"] else "NONE, AND NO JUDGE: nothing can verify this"


def may(about: dict[str, Any]) -> list[str]:
    """What may be done: mode, sandbox, whether somebody can be asked, rules."""
    mode, network = about["mode"], about["network"]
    sandbox = about["sandbox"]
    says = {
        "plan": "mode plan: reads only",
        "ask": "mode ask: asks for everything but reading",
        "auto": "mode auto: edits in the workspace and sandboxed commands run, the rest asks",
        "yolo": "mode YOLO: NOTHING IS ASKED",
    }
    words = [says[mode]]
    if sandbox["kind"] != "none":
        reach = "WITH NETWORK" if network else "no network"
        words.append(f"commands run in a sandbox ({sandbox['kind']}), {reach}, writing only in the workspace")
    else:
        asked = "" if mode == "yolo" else " if allowed"
        words.append(f"NO SANDBOX: commands run with all your rights{asked}. {sandbox['why']}")
    for path in sandbox.get("kept", ()):
        hold = "read-only" if sandbox["kind"] != "none" else "KEPT FROM FILE TOOLS ONLY"
        words.append(f"ENDSTOP ITSELF RUNS FROM {path}, in the workspace: {hold}; better installed elsewhere")
    if mode in ("ask", "auto") and not about.get("reachable"):
        words.append("nobody can be asked here: what would ask is refused, with the rule that would allow it")
    words += [f"{kind} {rule}" for kind in ("allow", "deny", "ask") for rule in about.get(kind, ())]
    return words


def in_order(caps: dict[str, float]) -> list[tuple[str, float]]:
    """Caps in the order of the axes."""
    known = list(AXES)
    return sorted(caps.items(), key=lambda item: (known.index(item[0]) if item[0] in known else len(known), item[0]))


def _usual(axis: str, cap: float) -> bool:
    """A limit on one tool that nobody set."""
    return axis.startswith("tool:") and DEFAULTS.get(axis) == cap


def _limits(caps: dict[str, float]) -> str:
    return " · ".join(f"{axis} {_amount(axis, cap)}" for axis, cap in in_order(caps) if not _usual(axis, cap)) or "NONE"


def _amount(axis: str, amount: float) -> str:
    """An amount without the unit where the axis says it already."""
    words = show(axis, amount).split()
    return " ".join(words) if words[-1] == "usd" else words[0]


# ----------------------------------------------------------------------------------------------------------------- course


def progress(entry: Entry, state: State, width: int = PLAIN_WIDTH) -> list[str]:
    """What one event adds to the course of a goal: mostly one line, often none. ``state`` is the one after it."""
    say = _WORDS.get(type(entry.event))
    if say is None:
        return []
    label, text = say(entry.event, state)
    lines = [_cut(label, text, width)] if label else []
    return lines + (_denied(entry.event, width) if isinstance(entry.event, ev.ToolComplete) else [])


def _denied(event: ev.ToolComplete, width: int) -> list[str]:
    """Why a call was not allowed, whole: the rule, and how to allow it."""
    denied = event.error is not None and event.error.code == "denied"
    return row("", words.denial(event.result.content), width) if denied else []


CLAIMS = frozenset({"task_complete", "report_blocked"})
Words = tuple[str, str]
_NOTHING: Words = ("", "")


def _usage(event: ev.AssistantUsage, state: State) -> Words:
    cost = "" if event.cost is None else f", {show('cost', event.cost)}"
    cached = f", {event.cache_read_tokens} cached" if event.cache_read_tokens else ""
    about = " (estimated)" if event.estimated else ""
    label = f"turn {event.turn_id}" if event.turn_id else event.initiator
    kind = f" [{event.initiator}]" if event.turn_id and event.initiator != "work" else ""
    return label, f"{event.input_tokens} in{cached}, {event.output_tokens} out{cost}{about}{kind}"


def _says(event: ev.AssistantMessage, state: State) -> Words:
    return ("says", event.content) if event.content.strip() else _NOTHING


def _tool(event: ev.ToolComplete, state: State) -> Words:
    call = state.turn.calls.get(event.tool_call_id) if state.turn else None
    if call is not None and call.request.name in CLAIMS:
        return _NOTHING  # the claim has a line of its own
    name = call.request.name if call else "tool"
    took = f" ({event.duration_ms / 1000:.1f} s)" if event.duration_ms and event.duration_ms >= 100 else ""
    told = ": ".join(filter(None, (words.call(call.request.arguments) if call else "", words.reason(event))))
    if name == "ask_user" and event.success:
        told = event.result.content
    return name, f"{outcome_words(event)}{took}  {told}"


def outcome_words(event: ev.ToolComplete) -> str:
    """How a call came out."""
    if event.cached:
        return "from memory"
    if event.exit_code:
        return f"exit {event.exit_code}"
    if event.error is not None:
        return event.error.code.replace("_", " ")
    return "ok" if event.success else "failed"


def _gate(event: ev.GateFinished, state: State) -> Words:
    goal = state.goal
    run = next((gate.run for gate in goal.contract.gates if gate.gate_id == event.gate_id), event.gate_id) if goal else ""
    when = " at the start" if state.turn is None or state.turn.seq == 0 else ""
    return "gate", f"{gate_words(event.outcome, event.exit_code, event.failing)}{when}: {run}"


def gate_words(outcome: str, exit_code: int | None, failing: list[str] | None) -> str:
    """How a gate stands: green, red, broken, or not run."""
    if outcome == "pass":
        return "green"
    why = [f"exit {exit_code}"] if exit_code is not None else []
    why += [f"{len(failing)} failing"] if failing else []
    word = {"fail": "RED", "broken": "BROKEN"}.get(outcome, "not run")
    return f"{word} ({', '.join(why)})" if why else word


def _hook(event: ev.HookEnd, state: State) -> Words:
    if not event.success:
        return "hook", f"{event.hook_type} CRASHED: {event.error or 'it said nothing'}"
    objects = event.decision in ("ask", "deny", "stop")
    return ("hook", f"{event.hook_type}: {event.decision}: {event.text or ''}") if objects else _NOTHING


def _resumed(event: ev.GoalResumed, state: State) -> Words:
    more = [event.note or "", *(f"--allow {rule}" for rule in event.allow or ())]
    more += [f"{axis} {_amount(axis, cap)}" for axis, cap in (event.limits or {}).items()]
    cause = {"question": "it was answered", "grant": "a person has decided"}.get(event.cause, event.cause)
    return "goes on", ": ".join(filter(None, (cause, ", ".join(filter(None, more)))))


def _parked(event: ev.GoalParked, state: State) -> Words:
    return "waits", f"for {event.on}: {event.said}"


def _missing(missing: list[str], otherwise: str) -> str:
    return "; ".join(missing) or otherwise


_WORDS: dict[type[ev.Event], Callable[[Any, State], Words]] = {
    ev.AssistantUsage: _usage,
    ev.AssistantMessage: _says,
    ev.ModelRetried: lambda e, s: ("retry", f"{e.error_type.replace('_', ' ')}, again in {e.wait_seconds:.1f} s"),
    ev.TurnEnd: lambda e, s: ("model", f"{e.error.code}: {e.error.message}") if e.error else _NOTHING,
    ev.ToolComplete: _tool,
    ev.GateFinished: _gate,
    ev.HookEnd: _hook,
    ev.WorkspaceObserved: lambda e, s: ("CHANGED", f"verifier inputs: {', '.join(e.protected)}") if e.protected else _NOTHING,
    ev.PermissionRequested: lambda e, s: ("permission?", f"{e.why}: {words.call(e.permission_request.get('arguments', {}))}"),
    ev.PermissionCompleted: lambda e, s: ("permission", f"{e.result.kind} by {e.by}"),
    ev.QuestionAsked: lambda e, s: ("question?", e.question),
    ev.QuestionAnswered: lambda e, s: ("answer", f"{e.answer} (by {e.by})"),
    ev.UserMessage: lambda e, s: ("message", e.content) if e.source != "system" else _NOTHING,
    ev.GoalClaimed: lambda e, s: ("claim", f"by {e.by.replace('_', ' ')}: {e.summary}"),
    ev.GoalConfronted: lambda e, s: ("confronted", _missing(e.missing, "nothing known to be missing; is it really done?")),
    ev.GoalReturned: lambda e, s: ("returned", f"{e.why}: {_missing(e.missing, 'not shown')}"),
    ev.GoalJudging: lambda e, s: ("judge", f"asked{'' if e.independent else ' (not independent)'}"),
    ev.GoalJudged: lambda e, s: ("judge", words.verdict(e)),
    ev.GoalParked: _parked,
    ev.GoalResumed: _resumed,
    ev.GoalPaused: lambda e, s: ("paused", words.pause(e.reason, e.by)),
    ev.GoalClosing: lambda e, s: ("closing", f"as {e.target}: {e.reason}"),
    ev.StallNoticed: lambda e, s: ("stall", f"{e.rule}, {words.times(e.count)}: noticed"),
    ev.StallBlocked: lambda e, s: ("stall", f"{e.rule}, {words.times(e.count)}: REFUSED"),
    ev.StallHalted: lambda e, s: ("stall", f"{e.rule}, {words.times(e.count)}: HALTED"),
    ev.LimitWarned: lambda e, s: ("limit", f"{e.limit}: {show(e.limit, e.spent)} of {show(e.limit, e.cap)} used"),
    ev.LimitReached: lambda e, s: ("limit", f"{e.limit} FULL: {show(e.limit, e.spent)} of {show(e.limit, e.cap)}"),
    ev.SessionError: lambda e, s: ("error", f"{e.message} ({e.hint})"),
    ev.SessionResume: lambda e, s: ("taken up", "after a crash" if e.crashed else "where it was left"),
    ev.SessionModelChange: lambda e, s: ("model", f"{e.new_model} in place of {e.previous_model}: {e.reason}"),
    ev.SessionCompactionComplete: lambda e, s: ("compacted", f"{e.pre_compaction_tokens} to {e.post_compaction_tokens} tokens"),
}


# -------------------------------------------------------------------------------------------------------------------- end


def summary(state: State, record: Verdict | None, now: float, width: int = PLAIN_WIDTH, *, driver: str = "") -> list[str]:
    """Where a goal stands: phase, what proves it, what is missing, what changed, what it cost, how to go on.

    Args:
        record: what checking the journal found; None leaves it out.
        driver: who drives it now; then there is nothing to resume. Empty: nobody does.
        now: epoch seconds.
    """
    goal = state.goal
    assert goal is not None
    first = standing(state, driven=bool(driver))
    lines = [f"{first}  {line(goal.queued.objective, max(20, width - len(first) - 2))}"]
    lines += rows("why", _why(state, driven=bool(driver)), width)
    lines += rows("proof", _proof(state), width)
    lines += rows("missing", missing(state), width)
    lines += rows("denied", denied(state), width)
    lines += rows("gates", gate_rows(state), width)
    seen = state.evidence.look
    if seen is not None:
        since = "" if state.evidence.looked == state.evidence.world else " (as of the last look; something was done since)"
        lines += row("changed", changed_words(seen.paths) + since, width)
        if seen.protected or seen.named:
            names = ", ".join(dict.fromkeys([*seen.named, *seen.protected]))
            lines += row("CHANGED", f"verifier inputs: {names}", width)
    lines += rows("says", _said(state), width)
    if is_played(goal.queued.model):
        lines += row("model", model_words(goal.queued.model, True), width)
    lines += row("spent", " · ".join(spent(state, now, driven=bool(driver))), width)
    if record is not None:
        lines += row("record", record_words(record), width)
    if driver:
        return lines + row("driven by", driver, width)
    return lines + rows("next", following(state), width)


def missing(state: State) -> list[str]:
    """What is missing, as far as it is known."""
    if state.phase == "done" or state.goal is None:
        return []
    ended = state.goal.ended
    return ended.missing if ended is not None else open_items(state)


def denied(state: State) -> list[str]:
    """What was denied to the agent, and how to allow it."""
    ended = state.goal.ended if state.goal else None
    return words.denials(ended.handoff.get("denied", ()) if ended is not None else state.denied)


def _why(state: State, *, driven: bool) -> list[str]:
    goal = state.goal
    assert goal is not None
    if not driven and state.phase in DRIVEN:
        return ["its process is gone (killed, or the machine went down); nothing that was recorded is lost"]
    if goal.closing is not None and state.phase != "done":
        return _why_closed(goal.closing, goal.limit, kept=bool(closing_reserve(goal.caps, None)))
    if answered(state):
        return ["what it asked is answered, and nobody has resumed it since"]
    if state.phase == "waiting" and goal.parked is not None:
        return [goal.parked.said]
    return []


def _why_closed(closing: Closing, limit: ev.LimitReached | None, *, kept: bool) -> list[str]:
    if limit is None or closing.target != "capped":
        return words.stall(closing.detail) or [closing.reason]
    used = f"{_amount(limit.limit, limit.spent)} of {show(limit.limit, limit.cap)} are used in this {limit.scope}"
    if limit.spent >= limit.cap:
        return [f"the limit {limit.limit} is full: {used}"]
    beside = " beside what is kept back for the closing turn" if kept else ""
    return [f"the limit {limit.limit} is reached: {used}, and what comes next does not fit{beside}"]


def _proof(state: State) -> list[str]:
    goal = state.goal
    if goal is None or state.phase != "done":
        return []
    if goal.ended is not None and goal.ended.verified:
        return goal.ended.verified_by or discriminating(state.evidence, goal.contract)
    reason = goal.ended.handoff.get("reason", "") if goal.ended is not None else ""
    return [f"NONE: {str(reason).removeprefix('claimed: ')}. Look yourself"]


def gate_rows(state: State) -> list[str]:
    """One text a gate: how it stands, and how it stood at the start."""
    goal = state.goal
    texts = []
    for gate in goal.contract.gates if goal else ():
        known = state.evidence.gates.get(gate.gate_id)
        if known is None:
            texts.append(f"not run: {gate.run}")
            continue
        at_start = {"pass": "green", "fail": "red", "broken": "broken"}.get(known.baseline, "not run")
        texts.append(f"{gate_words(known.outcome, known.exit_code, known.failing)} (at the start {at_start}): {gate.run}")
    return texts


def changed_words(paths: list[str], most: int = 8) -> str:
    """Changed files in a few words."""
    if not paths:
        return "nothing differs from the start"
    more = f" and {len(paths) - most} more" if len(paths) > most else ""
    return f"{len(paths)} {'file' if len(paths) == 1 else 'files'}: {', '.join(paths[:most])}{more}"


def _said(state: State) -> list[str]:
    goal = state.goal
    assert goal is not None
    ended = goal.ended
    text = str(ended.handoff.get("summary") or "") if ended is not None else ""
    return [line(text, 600)] if text.strip() else []


def spent(state: State, now: float, *, driven: bool = True) -> list[str]:
    """What was used on each axis that has a cap or was used, against its cap. The clock of an ended goal stands still, and
    active time does where nobody drives it."""
    goal = state.goal
    assert goal is not None
    at = state.time if state.phase in ENDED else now
    caps = dict(in_order(goal.caps))
    texts = []
    for axis in ("cost", "tokens", "turns", "rounds", "tool-calls", "verifications", "active", "wall", *caps):
        used = active_now(state, at if driven else state.time) if axis == "active" else state.spend.used(axis, at)
        if axis in ("output/call", "tool-calls/turn", "tool-calls/round") or (axis.startswith("tool:") and not used):
            continue
        text = f"{axis} {_amount(axis, used)}" + (f" of {_amount(axis, caps[axis])}" if axis in caps else "")
        if axis == "cost" and not state.spend.priced:
            text = "cost not known (no price)"
        texts.append(text + (" (estimated)" if axis == "tokens" and state.spend.estimated else ""))
    return list(dict.fromkeys(texts))


def record_words(record: Verdict) -> str:
    """What checking a journal found, in one line."""
    if record.verdict == "ok":
        erased = f", {len(record.erased)} erased" if record.erased else ""
        return f"ok, {record.count} events{erased}"
    return f"{record.verdict.upper().replace('_', ' ')} at event {record.first_bad}: {record.why}"


def following(state: State) -> list[str]:
    """How to go on from here."""
    goal, id_ = state.goal, short(state.session_id)
    assert goal is not None
    if state.phase == "done":
        if goal.ended is not None and goal.ended.verified:
            return []
        allow = words.remedies(denied(state))
        more = [f"what was denied is allowed by: {allow}"] if allow else []
        return ["next time give a gate (-g) that fails now and passes when it is done, or a judge (--judge)", *more]
    if state.phase in ENDED:
        limit = goal.limit.limit if goal.limit else "LIMIT"
        what, _, command = NEXT[state.phase].replace(" ID", f" {id_}").format(limit=limit).rpartition(": ")
        if allow := words.remedies(denied(state)):
            what = "allow what was denied" if what == GO_ON else f"allow what was denied; {what}"
            command = f"{command.removesuffix(NOTE)} {allow}"
        return [f"{what}:", command] if what != GO_ON else [command]  # a command on a line of its own, to be copied
    parked = goal.parked
    if state.phase == "waiting" and parked is not None and parked.on in ("question", "grant") and not answered(state):
        what = '"…"' if parked.on == "question" else "yes|no"
        return [f"endstop answer {id_} {what}", f"then: endstop resume {id_}"]
    return [f"endstop resume {id_}"]
