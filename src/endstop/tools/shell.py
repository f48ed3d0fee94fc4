"""``shell``: a command line of the agent's, run by bash."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from endstop.core.events import Failure
from endstop.host import spawn
from endstop.host.sandbox import Sandbox
from endstop.ports import Invocation, Outcome
from endstop.tools.functions import FunctionTool

WAITING = 75
"""Exit status of a command that waits for somebody (EX_TEMPFAIL)."""
LONGEST = 3_600
"""Seconds a command may take at most."""
_UNATTENDED = {"PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0", "GIT_EDITOR": "true", "TERM": "dumb"}


def mark_of(key: str, tool_call_id: str) -> str:
    """By which a call's processes are found after a crash. The id alone is unique in its session only."""
    return f"{key}:{tool_call_id}"


class Shell(FunctionTool[..., object]):
    """``shell(command, timeout?)``.

    Args:
        sandbox: what commands run in (its kind "none" runs them bare).
        hidden: paths that commands in the sandbox cannot see.
        network: whether commands in the sandbox reach the network.
        environment: all of it, already free of secrets.
        default_timeout: seconds.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        hidden: Sequence[Path],
        network: bool,
        environment: Mapping[str, str],
        default_timeout: float = 120,
    ) -> None:
        self._sandbox = sandbox
        self._hidden = tuple(hidden)
        self._network = network
        self._environment = dict(environment) | _UNATTENDED
        self._default = default_timeout
        super().__init__(self._shell, name="shell", effect="shell", key_argument="command")

    async def _shell(
        self,
        command: Annotated[str, msgspec.Meta(min_length=1)],
        call: Invocation,
        timeout: Annotated[float, msgspec.Meta(gt=0, le=LONGEST)] | None = None,
    ) -> Outcome:
        """Run a command with bash in the workspace and get its output and exit code. Nothing can be typed into it, and every
        process it leaves behind is stopped when it ends.

        Args:
            command: The command line; each call starts in the workspace, with nothing kept from the call before.
            timeout: Seconds it may take, at most 3600.
        """
        argv = ["bash", "-c", command]
        argv = self._sandbox.wrap(argv, workspace=call.workspace, hidden=self._hidden, network=self._network)
        seconds = timeout or self._default
        ended = await spawn.run(
            argv,
            cwd=call.workspace,
            env=self._environment,
            timeout=seconds,
            on_output=call.partial,
            mark=mark_of(call.key, call.tool_call_id),
        )
        return _outcome(ended, seconds)


def _outcome(ended: spawn.Ended, seconds: float) -> Outcome:
    """The output, and below it what the exit status means."""
    error = None
    said = ""
    if ended.timed_out:
        error = Failure(code="timeout", message=f"the command did not end within {seconds:g} s")
        said = f"(Command stopped after {seconds:g} s, with every process it began; run it with a larger timeout, or less of it)"
    elif ended.signal:
        said = f"(Command ended by signal {ended.signal}, {_signal_name(ended.signal) or 'unknown'})"
    elif ended.exit_code == WAITING:
        said = f"(waiting for someone, not broken: exit code {WAITING})"
    elif ended.exit_code:
        said = f"(Command exited with code {ended.exit_code})"
        if name := _signal_name(ended.exit_code - 128):  # the way a shell, or the sandbox, passes a signal on
            said = f"(128 + {ended.exit_code - 128}: ended by {name})\n{said}"
    output = ended.output.rstrip("\n") or "(no output)"
    return Outcome(
        success=ended.exit_code == 0 and not ended.timed_out,
        content=f"{output}\n{said}" if said else output,
        error=error,
        exit_code=None if ended.timed_out else ended.exit_code,
        full=ended.full,
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return ""
