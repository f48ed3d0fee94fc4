"""Hooks: commands of the user's that run on an occasion and may object.

What a hook wants stands in ``hook.end``; what follows from it is decided here, so that it replays. A hook that crashed has
said nothing: at a claim it is a broken verifier and runs again, on any other occasion it is shown and nothing waits for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any

from endstop.core import events as ev
from endstop.core.codec import Entry
from endstop.core.effects import HookRun, Record, RunHooks
from endstop.core.events import Event, Hook, HookOn
from endstop.core.goal import INTERACTIVE, Call, Handlers, Occasion, State, Verdict
from endstop.core.results import prepare
from endstop.errors import UsageError

HANDLERS = Handlers()

FOREIGN = {
    "shell": "Bash",
    "read_file": "Read",
    "write_file": "Write",
    "edit_file": "Edit",
    "search": "Grep",
    "list_files": "LS",
}
"""Names by which hooks written for other agents know our tools: a matcher may use either."""
_STRICT = ("stop", "deny", "ask", "allow")
_AGAINST = ("stop", "deny")


def make(on: HookOn, run: str, matcher: str = "", timeout: float = 60.0, own: bool = False, where: str = "") -> Hook:
    """A hook as a contract holds it; the same hook always has the same id. ``where`` it was written, for an error.

    Raises:
        UsageError: the matcher is no regular expression, or stands where there is no tool.
    """
    if matcher and not on.endswith("_tool"):
        raise UsageError("there is no tool to match", where=f"{where}matcher", hint="only pre_tool and post_tool take one")
    try:
        re.compile("" if matcher == "*" else matcher)
    except re.error as error:
        hint = 'names of tools, like "shell|edit_file"'
        raise UsageError(f"is no regular expression: {error}", where=f"{where}matcher", hint=hint) from None
    name = sha256(repr((on, run, matcher, own)).encode(errors="replace")).hexdigest()[:12]
    return Hook(hook_id=name, on=on, run=run, matcher=matcher, timeout=timeout, own=own)


def check(hooks: Sequence[Hook]) -> None:
    """Hooks of a contract that somebody made without ``make``.

    Raises:
        UsageError: a matcher cannot match, or two hooks have one id.
    """
    for hook in hooks:
        make(hook.on, hook.run, hook.matcher, where=f"hook {hook.run!r}: ")
    if len({hook.hook_id for hook in hooks}) < len(hooks):
        raise UsageError("two hooks have the same id", where="hooks", hint="leave one of them out")


def called(hook: Hook, tool: str) -> str | None:
    """The name by which a hook knows a tool, None where it does not match."""
    if hook.matcher in ("", "*"):
        return tool
    return next((name for name in (tool, FOREIGN.get(tool)) if name and re.fullmatch(hook.matcher, name)), None)


def pending(state: State, occasion: Occasion) -> list[Hook]:
    """Hooks of an occasion that have not said anything yet."""
    hooks = _wanted(state)
    if not hooks:
        return []
    on, ref = occasion
    said = state.hooks.said.get(occasion, {})
    waiting = [hook for hook in hooks if hook.on == on and hook.hook_id not in said]
    if not waiting or not on.endswith("_tool"):
        return waiting
    call = _call(state, ref)
    return [hook for hook in waiting if call is not None and called(hook, call.request.name) is not None]


def _wanted(state: State) -> Sequence[Hook]:
    return state.goal.contract.hooks if state.goal else state.kit.hooks


def run(state: State, occasions: Iterable[Occasion], events: Iterable[Event] = ()) -> RunHooks | None:
    """Run what is pending of these occasions side by side, after ``events``; None where nothing is."""
    starts: list[Event] = []
    runs: list[HookRun] = []
    for occasion in occasions:
        on, ref = occasion
        for hook in pending(state, occasion):
            invocation = f"hook-{state.seq}-{len(runs) + 1}"
            about = {"hook": hook.hook_id, "run": hook.run, "of": ref}
            starts.append(ev.HookStart(hook_invocation_id=invocation, hook_type=on, input=about))
            runs.append(HookRun(hook=hook, invocation_id=invocation, data=_data(state, occasion)))
    return RunHooks(events=(*events, *starts), hooks=tuple(runs)) if runs else None


def _data(state: State, occasion: Occasion) -> dict[str, Any]:
    """What a hook is told of its occasion, in the words of the hook contract."""
    on, ref = occasion
    match on:
        case "pre_tool" | "post_tool":
            call = _call(state, ref)
            assert call is not None
            data = {"tool_name": call.request.name, "tool_input": prepare(state, call)[1], "tool_use_id": ref}
            return data if on == "pre_tool" else data | {"tool_response": _response(call)}
        case "stop":
            last, claim = state.evidence.returned, state.goal.claim if state.goal else None
            words = (state.turn.text if state.turn else "") or (claim.summary if claim else "")
            return {"stop_hook_active": last is not None and last.why == "hook", "last_assistant_message": words}
        case "user_prompt":
            message = state.hooks.due.get(occasion)
            return {"prompt": message.content if message else state.goal.queued.objective if state.goal else ""}
        case "session_start":
            return {"source": ref}
    return {"reason": ref}


def _response(call: Call) -> dict[str, Any]:
    known = call.outcome
    content = known.content if known else ""
    response: dict[str, Any] = {"success": call.success, "content": content}
    if call.effect == "shell":
        code = known.exit_code if known else None
        response |= {"stdout": content, "stderr": "", "interrupted": call.code == "timeout", "exit_code": code}
    return response


def _call(state: State, call_id: str) -> Call | None:
    return state.turn.calls.get(call_id) if state.turn else None


# --------------------------------------------------------------------------------------------------------------- occasions


def arises(state: State, occasion: Occasion, message: ev.UserMessage | None = None) -> None:
    """An occasion has come: its hooks run before anything else goes on."""
    if pending(state, occasion):
        state.hooks.due[occasion] = message


def due(s: State, now: float) -> RunHooks | Record | None:
    """After 5, and without a live goal: hooks whose occasion has come. In no other phase is anything begun for them."""
    working, refused = s.phase == "working", s.hooks.refused
    if working and refused:
        reason = f"a hook blocks this objective: {refused}"
        return Record(events=(ev.GoalClosing(target="blocked", reason=reason, detail={"rule": "hook", "needs": refused}),))
    if not s.hooks.due or not (working or s.phase in INTERACTIVE):
        return None
    return run(s, [occasion for occasion in s.hooks.due if not working or occasion[0] != "session_end"])


def forget(state: State) -> None:
    """A turn begins: what was said of the calls and the claim before is over."""
    hooks = state.hooks
    if hooks.running or hooks.said or hooks.due:
        hooks.running, hooks.said = {}, {}
        hooks.due = {occasion: message for occasion, message in hooks.due.items() if occasion[0] != "post_tool"}


# ----------------------------------------------------------------------------------------------------------------- verdicts


def verdict(state: State, call_id: str) -> Verdict | None:
    """The strictest word of the hooks before a call; None where they leave it to the rules."""
    ends = [end for end in state.hooks.said.get(("pre_tool", call_id), {}).values() if end.decision]
    if not ends:
        return None
    end = min(ends, key=lambda end: _STRICT.index(end.decision or ""))
    kind = "deny" if end.decision in _AGAINST else end.decision
    return Verdict(kind, "a hook", end.text or "it gave no reason")  # type: ignore[arg-type]


def weigh(rules: Verdict, said: Verdict | None) -> Verdict:
    """What holds for a call: a rule's denial beats every hook, a hook's word beats what would ask or be let through."""
    return rules if said is None or rules.kind == "deny" else said


def objections(state: State, occasion: Occasion) -> list[str]:
    """What the hooks of a claim hold against it."""
    ends = state.hooks.said.get(occasion, {}).values()
    return [f"a hook says: {end.text or 'not yet'}" for end in ends if end.decision in _AGAINST]


def broken(state: State, least: int) -> Hook | None:
    """A stop hook that could not be asked ``least`` times in a row."""
    return next((hook for hook in _wanted(state) if state.hooks.broken.get(hook.hook_id, 0) >= least), None)


def last_try(state: State, least: int) -> None:
    """After a wait for the verifier: one more crash parks again."""
    state.hooks.broken = {name: min(count, least - 1) for name, count in state.hooks.broken.items()}


# ------------------------------------------------------------------------------------------------------------------- events


@HANDLERS.on(ev.HookStart)
def _hook_start(state: State, entry: Entry, event: ev.HookStart) -> None:
    about = event.input
    state.hooks.running[event.hook_invocation_id] = (str(about.get("hook")), (event.hook_type, str(about.get("of", ""))))


@HANDLERS.on(ev.HookEnd)
def _hook_end(state: State, entry: Entry, event: ev.HookEnd) -> None:
    hooks = state.hooks
    hook_id, occasion = hooks.running.pop(event.hook_invocation_id, ("", ("", "")))
    on = occasion[0]
    if on == "stop" and not event.success:
        hooks.broken[hook_id] = hooks.broken.get(hook_id, 0) + 1
        hooks.fault = event.error or ""
    elif on:
        if hooks.broken.pop(hook_id, 0):
            state.evidence.parks = 0
        hooks.said.setdefault(occasion, {})[hook_id] = event
        if event.decision == "stop" and state.phase == "working":
            state.stop = "hook"
        if on == "pre_tool" and event.text and event.decision in (None, "allow"):
            state.window.notes.append(_words(event.text))
        if occasion in hooks.due and not pending(state, occasion):
            _conclude(state, occasion)


def _conclude(state: State, occasion: Occasion) -> None:
    """All hooks of an occasion have spoken."""
    on, ref = occasion
    message = state.hooks.due.pop(occasion)
    ends = state.hooks.said.pop(occasion, {}).values()
    texts = [end.text for end in ends if end.text]
    if on == "post_tool":
        for text in texts:
            state.window.note(ref, _words(text))
    elif on == "user_prompt" and any(end.decision == "deny" for end in ends):
        _withhold(state, message, "; ".join(texts) or "it gave no reason")
    elif on != "session_end":
        state.window.notes += [_words(text) for text in texts]


def _withhold(state: State, message: ev.UserMessage | None, why: str) -> None:
    """The message does not reach the model, nor does it keep open a round that it alone has opened."""
    if message is None:
        state.hooks.refused = why
    state.inbox = [waiting for waiting in state.inbox if waiting is not message]
    between = state.turn is None or bool(state.turn.ended)
    if state.interactive and between and not (state.inbox or state.round_calls):
        state.round_open = False


def _words(text: str) -> str:
    return f"[hook] {text}"
