"""Running the user's hooks: scripts written for the hook contract of other agents run as they are.

A hook gets one JSON object on its standard input. It lets things go on with exit code 0, objects with exit code 2 and its
words on stderr, or with exit code 0 and a JSON object on stdout:

    {"decision": "block", "reason": "…"}
    {"hookSpecificOutput": {"permissionDecision": "deny", "permissionDecisionReason": "…", "additionalContext": "…"}}
    {"continue": false, "stopReason": "…"}

Anything else (another exit code, a signal, a timeout, JSON that cannot be read) is a crash, and a crash has said nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from endstop.core.effects import HookRun
from endstop.core.events import HookEnd, HookOn
from endstop.core.hooks import called
from endstop.errors import ToolError, UsageError
from endstop.host import spawn
from endstop.host.programs import program, without
from endstop.host.sandbox import SHELL, Sandbox

READ = 64 * 1024
"""Bytes of each stream that are read, half from the beginning and half from the end."""
KEPT = 4_000
"""Characters that are kept of what a hook prints and says."""
OBJECTS = 2
"""Exit code of a hook that objects."""
NAMES: dict[HookOn, str] = {
    "stop": "Stop",
    "pre_tool": "PreToolUse",
    "post_tool": "PostToolUse",
    "user_prompt": "UserPromptSubmit",
    "session_start": "SessionStart",
    "session_end": "SessionEnd",
}
MODES = {"plan": "plan", "ask": "default", "auto": "acceptEdits", "yolo": "bypassPermissions"}
ARGUMENTS = {"path": "file_path", "old": "old_string", "new": "new_string"}
"""Arguments of file tools as foreign hooks know them, where a matcher used a foreign name."""
_OURS = {foreign: ours for ours, foreign in ARGUMENTS.items()}

Wish = tuple[Literal["allow", "ask", "deny", "stop"] | None, str]
"""What a hook wants and its words to the model."""


class _Specific(msgspec.Struct, rename="camel"):
    permission_decision: Literal["allow", "deny", "ask", "defer"] | None = None
    permission_decision_reason: str | None = None
    additional_context: str | None = None
    updated_input: dict[str, Any] | None = None


class _Said(msgspec.Struct, rename="camel"):
    go_on: bool | None = msgspec.field(default=None, name="continue")
    stop_reason: str | None = None
    decision: Literal["block", "approve"] | None = None
    reason: str | None = None
    hook_specific_output: _Specific | None = None


class Crash(Exception):
    """The hook did not do what a hook does; the message says how."""


class Hooks:
    """``ports.HookRunner`` of one session.

    Args:
        hidden: files and folders that a hook in the sandbox cannot see.
        environment: of hooks in the sandbox, already free of secrets.
        own: the environment of hooks from the user's own settings, which run outside of it.
        network: whether hooks in the sandbox may use it.
        mode: of the permissions.
        transcript: writes the session's journal out and says where.
    """

    def __init__(
        self,
        session_id: str,
        sandbox: Sandbox,
        hidden: Sequence[Path],
        environment: Mapping[str, str],
        own: Mapping[str, str],
        *,
        network: bool,
        mode: str,
        transcript: Callable[[], Awaitable[Path]],
    ) -> None:
        self._session_id = session_id
        self._sandbox = sandbox
        self._hidden = hidden
        self._environment = environment
        self._own = own
        self._network = network
        self._mode = mode
        self._transcript = transcript

    async def run(self, run: HookRun, root: Path) -> HookEnd:
        """Run one hook in the workspace; whatever happens to it is its end."""
        hook = run.hook
        ended: spawn.Ended | None = None
        wish: Wish = (None, "")
        error = None
        try:
            transcript = await self._transcript()
            told = self._told(run, root, transcript)
            ended = await self._command(run, root, transcript, told)
            wish = _wish(run, ended, told)
        except (Crash, ToolError, UsageError) as crash:
            error = _cut(str(crash))
        return HookEnd(
            hook_invocation_id=run.invocation_id,
            hook_type=hook.on,
            success=error is None,
            exit_code=ended.exit_code if ended else None,
            output=(_cut(ended.output) if ended else "") or None,
            error=error or (_cut(ended.errors) if ended else "") or None,
            decision=wish[0],
            text=_cut(wish[1]) or None,
        )

    async def _command(self, run: HookRun, root: Path, transcript: Path, told: dict[str, Any]) -> spawn.Ended:
        hook = run.hook
        command = [program(SHELL, root), "-c", hook.run]
        if not hook.own:
            command = self._sandbox.wrap(
                command, workspace=root, hidden=self._hidden, readable=[transcript], network=self._network
            )
        environment = without(self._own, root) if hook.own else self._environment  # outside, nothing of the agent's runs
        return await spawn.run(
            command,
            cwd=root,
            env={**environment, "CLAUDE_PROJECT_DIR": str(root)},  # existing hooks find their scripts by it
            timeout=hook.timeout,
            bound=READ,
            keep=0,
            mark=mark_of(self._session_id, run.invocation_id),
            stdin=msgspec.json.encode(told),
            apart=True,
        )

    def _told(self, run: HookRun, root: Path, transcript: Path) -> dict[str, Any]:
        """What a hook reads."""
        data = dict(run.data)
        name = NAMES[run.hook.on]
        if run.hook.on == "post_tool" and not data["tool_response"]["success"]:
            name, data["error"] = "PostToolUseFailure", data["tool_response"]["content"]
        known_as = called(run.hook, data["tool_name"]) if "tool_name" in data else None
        if known_as is not None and known_as != data["tool_name"]:
            data["tool_name"], data["tool_input"] = known_as, _foreign(data["tool_input"], root)
        return {
            "session_id": self._session_id,
            "transcript_path": str(transcript),
            "cwd": str(root),
            "permission_mode": MODES.get(self._mode, "default"),
            "hook_event_name": name,
            **data,
        }


def mark_of(session_id: str, invocation_id: str) -> str:
    """By which a hook's processes are found after a crash."""
    return f"{session_id}:{invocation_id}"


def _foreign(arguments: dict[str, Any], root: Path) -> dict[str, Any]:
    """Arguments of a file tool as foreign hooks expect them: other names, whole paths."""
    named = {ARGUMENTS.get(name, name): value for name, value in arguments.items()}
    if isinstance(named.get("file_path"), str):
        named["file_path"] = str(root / named["file_path"])
    return named


def _cut(text: str) -> str:
    text = text.strip()
    return text if len(text) <= KEPT else f"{text[: KEPT // 2]}\n[…]\n{text[-KEPT // 2 :]}"


# ------------------------------------------------------------------------------------------------------------------ reading


def _wish(run: HookRun, ended: spawn.Ended, told: dict[str, Any]) -> Wish:
    """What a hook that ended wants.

    Raises:
        Crash: it did not end as a hook does.
    """
    on = run.hook.on
    if ended.timed_out:
        raise Crash(f"it did not end within {run.hook.timeout:g} s and was killed")
    if ended.exit_code == OBJECTS and on not in ("session_start", "session_end"):  # those two cannot stop anything
        return "deny", ended.errors.strip() or ended.output.strip() or "it gave no reason"
    if ended.exit_code != 0:
        how = f"signal {ended.signal}" if ended.exit_code is None else f"exit code {ended.exit_code}"
        raise Crash(f"{how}: {ended.errors.strip() or ended.output.strip() or 'no word'}")
    output = ended.output.strip()
    if not output.startswith("{"):
        return None, output if on in ("user_prompt", "session_start") else ""
    try:
        said = msgspec.json.decode(output.encode(errors="replace"), type=_Said)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Crash(f"its JSON cannot be understood: {error}") from None
    return _meant(run, said, told)


def _meant(run: HookRun, said: _Said, told: dict[str, Any]) -> Wish:
    on = run.hook.on
    specific = said.hook_specific_output or _Specific()
    reason = specific.permission_decision_reason or said.reason or "it gave no reason"
    context = specific.additional_context or ""
    if said.go_on is False:
        # A stop hook that wants the agent to stop does not object to its end.
        return (None, "") if on in ("stop", "session_end") else ("stop", said.stop_reason or reason)
    if on == "pre_tool":
        if specific.updated_input not in (None, told["tool_input"]):
            return "deny", _instead(run, told, specific.updated_input or {})
        return _before(said, specific, reason, context)
    if said.decision == "block" and on not in ("session_start", "session_end"):
        return "deny", f"{reason}\n{context}".strip()
    if on == "stop" and context:  # words to the model are a reason to go on
        return "deny", context
    return None, context


def _instead(run: HookRun, told: dict[str, Any], arguments: dict[str, Any]) -> str:
    """A hook wants other arguments. What was asked for and what ran are the same in the record, so the model has to ask."""
    if told["tool_name"] != run.data["tool_name"]:
        arguments = {_OURS.get(name, name): value for name, value in arguments.items()}
    return f"Call it with these arguments instead: {msgspec.json.encode(arguments).decode()}"


def _before(said: _Said, specific: _Specific, reason: str, context: str) -> Wish:
    wish = specific.permission_decision or {"block": "deny", "approve": "allow"}.get(said.decision or "")
    match wish:
        case "deny" | "ask":
            return wish, reason
        case "allow":
            return "allow", context
    return None, context
