"""``process`` looks at commands that go on in the background, ``process_control`` acts on them."""

from __future__ import annotations

import string
from typing import Annotated, Literal

import msgspec

from endstop.core.events import Event
from endstop.errors import ToolError
from endstop.host.background import Background, Process
from endstop.ports import Outcome
from endstop.tools.functions import BOUND, FunctionTool
from endstop.tools.shell import signal_name, unseen

_NAME = 48  # characters of a command by which it is known in a list
_ANSWERS = 0.5  # seconds to wait for what a process says to what was typed

ProcessId = Annotated[str, msgspec.Meta(min_length=1)]
Key = Annotated[str, msgspec.Meta(pattern="^(enter|tab|escape|backspace|up|down|right|left|home|end|ctrl-[a-z])$")]
_KEYS = {
    **{"enter": b"\r", "tab": b"\t", "escape": b"\x1b", "backspace": b"\x7f"},
    **{"up": b"\x1b[A", "down": b"\x1b[B", "right": b"\x1b[C", "left": b"\x1b[D", "home": b"\x1b[H", "end": b"\x1b[F"},
    **{f"ctrl-{letter}": bytes([number]) for number, letter in enumerate(string.ascii_lowercase, 1)},
}


class Processes(FunctionTool[..., object]):
    """``process(action, process_id?, wait_ms?, offset?)``: changes nothing."""

    def __init__(self, background: Background) -> None:
        self._background = background
        super().__init__(self._process, name="process", effect="read_outside", poller=True)

    async def _process(
        self,
        action: Literal["list", "poll", "log"],
        process_id: ProcessId | None = None,
        wait_ms: Annotated[int, msgspec.Meta(ge=0, le=30_000)] = 0,
        offset: Annotated[int, msgspec.Meta(ge=0)] | None = None,
    ) -> Outcome:
        """Look at commands in the background: list all, poll one for what it said since you last looked, or read its log.

        Args:
            action: What to look at.
            process_id: Which process, for poll and log.
            wait_ms: For poll: wait so long for something new or its end.
            offset: For log: from which byte on; its end if you say nothing.
        """
        if action == "list":
            rows = [_row(process) for process in self._background.all()]
            return Outcome(success=True, content="\n".join(rows) or "(no process)")
        process = _named(self._background, process_id, action)
        if action == "log":
            return _looked(self._background, process, _log(process, offset))
        with self._background.claim(process):
            await self._background.hear(process, wait_ms / 1000, beyond=process.seen)
            return _looked(self._background, process, unseen(process) or "(no new output)")


class ProcessControl(FunctionTool[..., object]):
    """``process_control(action, process_id, text?, keys?)``. What is typed is judged like a command line: it may be one."""

    def __init__(self, background: Background) -> None:
        self._background = background
        super().__init__(self._control, name="process_control", effect="shell", key_argument="text")

    async def _control(
        self,
        action: Literal["write", "send_keys", "kill"],
        process_id: ProcessId,
        text: Annotated[str, msgspec.Meta(min_length=1, max_length=65_536)] | None = None,
        keys: Annotated[list[Key], msgspec.Meta(min_length=1, max_length=100)] | None = None,
    ) -> Outcome:
        """Act on a command in the background: type text or keys into its terminal (it must have been started with pty), or
        stop it with every process it began.

        Args:
            action: What to do.
            process_id: Which process.
            text: For write: the text; end it with a newline to send the line.
            keys: For send_keys: enter, tab, escape, backspace, up, down, left, right, home, end, ctrl-a to ctrl-z.
        """
        process = _named(self._background, process_id, action)
        if action == "kill":
            return await self._kill(process)
        if (text is None) != (action == "send_keys") or (keys is None) != (action == "write"):
            raise ToolError("failed", "write takes text and nothing else, send_keys takes keys and nothing else")
        typed = b"".join(_KEYS[key] for key in keys or ()) if text is None else text.encode("utf-8", "replace")
        with self._background.claim(process):
            await self._background.write(process.id, typed)
            await self._background.hear(process, _ANSWERS)
            return _looked(self._background, process, unseen(process) or "(no new output)")

    async def _kill(self, process: Process) -> Outcome:
        if process.exit is not None:
            return _looked(self._background, process, "It had ended already.")
        exited = await self._background.kill(process.id)
        output = unseen(process)
        content = (
            f"{output}\n\nProcess stopped, with everything it began." if output else "Process stopped, with everything it began."
        )
        return Outcome(success=True, content=content, events=[exited] if exited else [])


def _named(background: Background, process_id: str | None, action: str) -> Process:
    if process_id is None:
        raise ToolError("failed", f"{action} needs a process_id", hint='process(action="list") shows them')
    return background.get(process_id)


def _looked(background: Background, process: Process, output: str) -> Outcome:
    """What was seen, and whether it lives. Whoever sees an end first carries it to the journal."""
    exited = background.take(process)
    events: list[Event] = [exited] if exited else []
    return Outcome(success=True, content=f"{output}\n\nProcess {_state(process)}.", events=events)


def _log(process: Process, offset: int | None) -> str:
    total = process.spool.total
    start = max(total - BOUND, 0) if offset is None else min(offset, total)
    until = min(start + BOUND, total)
    text = process.spool.decoded(process.spool.read(start, until))
    return f"{text.rstrip()}\n(bytes {start} to {until} of {total})"


def _row(process: Process) -> str:
    about = process.about
    notes = [f"pid {process.pid}"] if process.exit is None else []
    notes += [word for word, holds in (("pty", about.pty), ("stays", about.stays)) if holds]
    return "  ".join([process.id, _state(process), name_of(about.command), f"({', '.join(notes)})" if notes else ""]).rstrip()


def name_of(command: str) -> str:
    """A command in a few words: on one line, without its middle where it is long."""
    line = " ".join(command.split())
    return line if len(line) <= _NAME else f"{line[: _NAME // 2]}…{line[-(_NAME // 2 - 1) :]}"


def _state(process: Process) -> str:
    end = process.exit
    if end is None:
        return "still running"
    if end.how == "timeout":
        return f"stopped: its {process.about.timeout or 0:g} seconds were over"
    if end.how == "stopped":
        return "stopped"
    if end.signal is not None:
        return f"ended by signal {end.signal}, {signal_name(end.signal) or 'unknown'}"
    return "gone, nobody saw how" if end.exit_code is None else f"exited with code {end.exit_code}"
