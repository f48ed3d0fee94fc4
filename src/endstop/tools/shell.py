"""``shell``: a command line of the agent's, run by bash."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from endstop.core.events import Failure
from endstop.host import spawn
from endstop.host.background import Background, Process
from endstop.host.sandbox import Sandbox
from endstop.ports import Invocation, Outcome, Watch
from endstop.tools.functions import BOUND, FunctionTool

WAITING = 75
"""Exit status of a command that waits for somebody (EX_TEMPFAIL)."""
LONGEST = 86_400
"""Seconds a command may take at most."""
WATCHED, UNWATCHED = 120, 1_800
"""Seconds it may take if nothing is said: where the call waits for its end, and where the command can go on without it."""
_UNATTENDED = {"PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0", "GIT_EDITOR": "true", "TERM": "dumb"}


Seconds = Annotated[float, msgspec.Meta(gt=0, le=LONGEST)]
Command = Annotated[str, msgspec.Meta(min_length=1)]


def mark_of(key: str, tool_call_id: str) -> str:
    """By which a call's processes are found after a crash. The id alone is unique in its session only."""
    return f"{key}:{tool_call_id}"


class Shell(FunctionTool[..., object]):
    """``shell(command, timeout?, …)``.

    Args:
        sandbox: what commands run in (its kind "none" runs them bare).
        hidden: paths that commands in the sandbox cannot see.
        network: whether commands in the sandbox reach the network.
        environment: all of it, already free of secrets.
        default_timeout: seconds; ``WATCHED`` or ``UNWATCHED`` if it is not given.
        background: where commands go on that are not over soon; without it every call waits for the end.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        hidden: Sequence[Path],
        network: bool,
        environment: Mapping[str, str],
        default_timeout: float | None = None,
        background: Background | None = None,
    ) -> None:
        self._sandbox = sandbox
        self._hidden = tuple(hidden)
        self._network = network
        self._environment = dict(environment) | _UNATTENDED
        self._default = default_timeout or (UNWATCHED if background else WATCHED)
        self._background = background
        function = self._watched if background is None else self._shell
        super().__init__(function, name="shell", effect="shell", key_argument="command")

    async def _watched(self, command: Command, call: Invocation, timeout: Seconds | None = None) -> Outcome:
        """Run a command with bash in the workspace and get its output and exit code. Nothing can be typed into it, and every
        process it leaves behind is stopped when it ends.

        Args:
            command: The command line; each call starts in the workspace, with nothing kept from the call before.
            timeout: Seconds it may take, at most a day; 120 if you say nothing.
        """
        seconds = timeout or self._default
        ended = await spawn.run(
            self._argv(command, call),
            cwd=call.workspace,
            env=self._environment,
            timeout=seconds,
            on_output=call.partial,
            mark=mark_of(call.key, call.tool_call_id),
        )
        return _outcome(ended, seconds)

    async def _shell(
        self,
        command: Command,
        call: Invocation,
        timeout: Seconds | None = None,
        yield_ms: Annotated[int, msgspec.Meta(ge=0, le=600_000)] = 10_000,
        background: bool = False,
        notify_on_exit: bool = True,
        stays: bool = False,
        pty: bool = False,
    ) -> Outcome:
        """Run a command with bash in the workspace and get its output and exit code. If it is not over after yield_ms it goes
        on in the background: look at it with process, act on it with process_control. Every process it leaves behind is
        stopped when it ends.

        Args:
            command: The command line; each call starts in the workspace, with nothing kept from the call before.
            timeout: Seconds it may live, in the background too, at most a day; 1800 if you say nothing (none with stays).
            yield_ms: Milliseconds to wait for its end before it goes on in the background.
            background: Do not wait at all; for servers and watchers.
            notify_on_exit: You are told when it ends in the background; if you only end your turn, its end is waited for.
            stays: It goes on after the goal is done; for what the user wants to keep running.
            pty: Give it a terminal, into which process_control can type; without one its input is empty.
        """
        assert self._background is not None
        seconds = timeout or (None if stays else self._default)
        process = self._background.start(
            self._argv(command, call),
            command=command,
            cwd=call.workspace,
            env=self._environment,
            tool_call_id=call.tool_call_id,
            mark=mark_of(call.key, call.tool_call_id),
            timeout=seconds,
            notify_on_exit=notify_on_exit,
            stays=stays,
            pty=pty,
        )
        try:
            await _follow(self._background, process, 0 if background else yield_ms / 1000, call.partial)
            if process.exit is None:
                return _going_on(self._background, process)
            return _outcome(await asyncio.to_thread(_ended, process), seconds)
        finally:
            if not process.kept:
                await self._let_go(self._background, process)

    def _argv(self, command: str, call: Invocation) -> list[str]:
        argv = ["bash", "-c", command]
        return self._sandbox.wrap(argv, workspace=call.workspace, hidden=self._hidden, network=self._network)

    async def _let_go(self, background: Background, process: Process) -> None:
        """Of a command that the call does not leave behind: it has ended, or the call was cancelled."""
        try:
            if process.exit is None:
                await background.kill(process.id)
        finally:
            background.forget(process)


async def _follow(background: Background, process: Process, seconds: float, watch: Watch | None) -> None:
    """Until a process has ended, so many seconds at most; meanwhile its output is handed on if somebody watches."""
    if watch is None:
        await background.hear(process, seconds)
        return
    loop = asyncio.get_running_loop()
    deadline, at = loop.time() + seconds, 0
    while process.exit is None and (left := deadline - loop.time()) > 0:
        await background.hear(process, left, beyond=at)
        text, at = process.spool.text(BOUND, at, final=process.exit is not None)
        if text:
            watch(text)


def _going_on(background: Background, process: Process) -> Outcome:
    """The call returns, the command does not."""
    started = background.begun(process)
    output = unseen(process) or "(no output so far)"
    how = f'process(action="poll", process_id="{process.id}") shows what comes'
    if process.about.notify_on_exit:
        how += "; you are told when it ends"
    said = f"(Command still running: process {process.id}, pid {process.pid}. {how})"
    return Outcome(success=True, content=f"{output}\n{said}", events=[started])


def unseen(process: Process) -> str:
    """What a process has said since it was last looked at, shortened; a terminal's without what only a screen understands."""
    text, process.seen = process.spool.text(BOUND, process.seen, final=process.exit is not None)
    return text.rstrip("\n")


def _ended(process: Process) -> spawn.Ended:
    """A process that ended while the call waited, as the end of a command."""
    assert process.exit is not None
    output, total = process.spool.text(BOUND)
    return spawn.Ended(
        exit_code=process.exit.exit_code,
        signal=process.exit.signal,
        timed_out=process.exit.how == "timeout",
        output=output,
        full=process.spool.read(0, total) if total > BOUND else None,
        duration_ms=process.exit.duration_ms,
    )


def _outcome(ended: spawn.Ended, seconds: float | None) -> Outcome:
    """The output, and below it what the exit status means."""
    error = None
    said = ""
    if ended.timed_out:
        error = Failure(code="timeout", message=f"the command did not end within {seconds or 0:g} s")
        said = (
            f"(Command timed out after {seconds or 0:g} seconds and was stopped, with every process it began. "
            "Verify the resulting state before retrying, with a larger timeout or less to do)"
        )
    elif ended.signal:
        said = f"(Command ended by signal {ended.signal}, {signal_name(ended.signal) or 'unknown'})"
    elif ended.exit_code == WAITING:
        said = f"(waiting for someone, not broken: exit code {WAITING})"
    elif ended.exit_code:
        said = f"(Command exited with code {ended.exit_code})"
        if name := signal_name(ended.exit_code - 128):  # the way a shell, or the sandbox, passes a signal on
            said = f"(128 + {ended.exit_code - 128}: ended by {name})\n{said}"
    output = ended.output.rstrip("\n") or "(no output)"
    return Outcome(
        success=ended.exit_code == 0 and not ended.timed_out,
        content=f"{output}\n{said}" if said else output,
        error=error,
        exit_code=None if ended.timed_out else ended.exit_code,
        full=ended.full,
    )


def signal_name(number: int) -> str:
    """SIGTERM for 15; empty for a number that is no signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return ""
