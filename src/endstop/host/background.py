"""Processes that go on while nobody waits for them, and outlive the runtime that began them.

Each is kept by a shim (``shim.py``) with a folder of its own below the session's state (``process_folder.py``). Which ends are
still to be reported is told by the journal, the only record that cannot disagree with itself.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import time
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from endstop.core.events import ProcessExited, ProcessStarted
from endstop.errors import ToolError
from endstop.host import spawn
from endstop.host.process_folder import About, Exit, launch, lives, pid_of, read_about, read_exit, type_into, unknown
from endstop.host.spool import Spool

KEPT_PROCESSES, KEPT_BYTES = 50, 64 * 1024 * 1024
"""How many processes that ended, and how much of their output, can still be looked at: the oldest go first."""
TAIL = 2_000
"""Bytes of output that the event of an end carries."""

_LOOK = 0.25  # seconds between two looks where nothing tells us
_STOPS = 6.0  # seconds a shim may take to stop everything; it needs four at most
_TYPES = 5.0  # seconds a terminal may take to accept what is typed


class Process:
    """One process as it is known here. ``seen`` is for its reader: bytes of output that were shown already."""

    def __init__(self, about: About, folder: Path, *, kept: bool) -> None:
        self.about, self.folder, self.kept = about, folder, kept
        self.id = about.process_id
        self.spool = Spool(folder, terminal=about.pty)
        self.pid = 0
        self.exit: Exit | None = None
        self.reported = False
        self.seen = 0
        self.claims = 0
        self.changed = asyncio.Event()
        self.told = False  # whether we hear of its output
        self.watched: int | None = None


class Background:
    """The background processes of one session, used from one event loop. Nothing here is polled where the kernel tells.

    Args:
        state: the session's folder for them; made when it is needed, hidden from commands.
    """

    def __init__(self, state: Path) -> None:
        self._state = state
        self._processes: dict[str, Process] = {}
        self._ended = asyncio.Event()
        self._look: asyncio.TimerHandle | None = None

    # -- beginning

    def attach(self, started: Collection[str]) -> None:
        """Find what an earlier runtime began.

        Args:
            started: processes that the journal knows as started and not exited. Of these every end is reported, once, also
                one that came while nobody looked. Others were never journalled, or ended long ago: what lives of them is killed.
        """
        for folder in sorted(self._state.glob("*")):
            if (about := read_about(folder)) is not None:
                self._found(Process(about, folder, kept=about.process_id in started))
        for process_id in set(started) - set(self._processes):
            process = Process(unknown(process_id), self._state / process_id, kept=True)
            process.exit = Exit(None, None, "lost")
            self._processes[process_id] = process

    def _found(self, process: Process) -> None:
        self._processes[process.id] = process
        process.reported = not process.kept
        process.pid = pid_of(process.folder)
        lived = lives(process.folder)
        if lived and process.kept and process.pid:
            self._watch(process)
            return
        process.exit = read_exit(process.folder)
        if lived or process.exit is None:
            spawn.kill_marked(process.about.mark)
            process.exit = Exit(None, None, "lost")

    def start(
        self,
        argv: Sequence[str],
        *,
        command: str,
        cwd: Path,
        env: Mapping[str, str],
        tool_call_id: str,
        mark: str,
        timeout: float | None,
        notify_on_exit: bool = True,
        stays: bool = False,
        pty: bool = False,
    ) -> Process:
        """Start a process. Until ``begun`` it belongs to whoever started it, and its end is not reported.

        Args:
            argv: what runs, sandbox and all; ``command`` is what it is called.
            env: the whole environment; nothing is inherited.
            mark: names it for ``spawn.kill_marked``; must be unique on this machine (session and call).
            timeout: seconds of its whole life; it holds without us too.
            stays: it is to outlive the goal.
            pty: it gets a terminal, into which can be typed; else its input is empty.

        Raises:
            ToolError: "failed", it could not be started.
        """
        about = About(
            process_id=uuid.uuid4().hex[:8],
            command=command,
            tool_call_id=tool_call_id,
            mark=mark,
            notify_on_exit=notify_on_exit,
            stays=stays,
            pty=pty,
            timeout=timeout,
            start_time=time.time(),
        )
        if not os.path.isdir(cwd) or not os.access(cwd, os.X_OK):
            raise ToolError("failed", f"cannot run in {cwd}: it is no folder that may be entered")
        process = Process(about, self._state / about.process_id, kept=False)
        try:
            process.pid, reader = launch(process.folder, about, argv, cwd, env)
        except (OSError, ValueError) as error:
            spawn.kill_marked(mark)
            shutil.rmtree(process.folder, ignore_errors=True)
            reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
            raise ToolError("failed", f"cannot start the command: {reason.lower()}") from None
        self._processes[process.id] = process
        process.told, process.watched = True, reader
        asyncio.get_running_loop().add_reader(reader, self._told, process)
        return process

    def begun(self, process: Process) -> ProcessStarted:
        """From now on it is a background process: ``wait_any`` reports its end. Returns the fact to journal."""
        process.kept = True
        self._ended.set()  # it may have ended already
        self._forget_oldest()
        about = process.about
        return ProcessStarted(
            process_id=process.id,
            pid=process.pid,
            start_time=about.start_time,
            command=about.command,
            tool_call_id=about.tool_call_id,
            notify_on_exit=about.notify_on_exit,
            stays=about.stays,
        )

    def forget(self, process: Process) -> None:
        """Let go of a process that ended, and of its output."""
        self._unwatch(process)
        self._processes.pop(process.id, None)
        shutil.rmtree(process.folder, ignore_errors=True)

    def _forget_oldest(self) -> None:
        over = [process for process in self.all() if process.exit and process.reported]
        sizes = [process.spool.total for process in over]
        while over and (len(over) > KEPT_PROCESSES or sum(sizes) > KEPT_BYTES):
            sizes.pop(0)
            self.forget(over.pop(0))

    # -- looking

    def all(self) -> list[Process]:
        """Every process that is known, the oldest first."""
        return sorted(self._processes.values(), key=lambda process: process.about.start_time)

    def running(self) -> list[Process]:
        """Those that run in the background, the oldest first."""
        return [process for process in self.all() if process.kept and process.exit is None]

    def get(self, process_id: str) -> Process:
        """The process of this id.

        Raises:
            ToolError: "failed", there is none.
        """
        if process_id not in self._processes:
            known = ", ".join(process.id for process in self.all()[-10:]) or "none"
            raise ToolError("failed", f"there is no process {process_id}", hint=f"known are {known}")
        return self._processes[process_id]

    def output(self, process_id: str, offset: int, limit: int = 16_384) -> tuple[bytes, int]:
        """At most ``limit`` bytes of output from an offset on, and the offset behind them.

        Raises:
            ToolError: as ``get``.
        """
        spool = self.get(process_id).spool
        until = min(max(offset, 0) + limit, spool.total)
        return spool.read(offset, until), until

    async def hear(self, process: Process, seconds: float, beyond: int | None = None) -> None:
        """Wait until it has ended, or has said more than ``beyond`` bytes in all; so many seconds at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while process.exit is None and (beyond is None or process.spool.total <= beyond):
                    process.changed.clear()
                    with suppress(TimeoutError):
                        async with asyncio.timeout(None if process.told or beyond is None else _LOOK):
                            await process.changed.wait()

    # -- ends

    async def wait_any(self) -> ProcessExited:
        """The next end of a background process that nobody has been told of."""
        while True:
            for process in self.all():
                if not process.claims and (event := self.take(process)) is not None:
                    return event
            self._ended.clear()
            await self._ended.wait()

    def take(self, process: Process) -> ProcessExited | None:
        """Its end, to be journalled; None if it lives, or whoever asked before has it."""
        if process.exit is None or process.reported or not process.kept:
            return None
        process.reported = True
        said = {"timeout": f"(stopped: its {process.about.timeout or 0:g} s were over)", "lost": "(how it ended is not known)"}
        output = process.spool.tail(TAIL)
        if words := said.get(process.exit.how):
            output = f"{output.rstrip()}\n{words}".lstrip()
        return ProcessExited(process_id=process.id, exit_code=process.exit.exit_code, signal=process.exit.signal, output=output)

    @contextmanager
    def claim(self, process: Process) -> Iterator[None]:
        """While this is held, ``wait_any`` leaves its end to the holder."""
        process.claims += 1
        try:
            yield
        finally:
            process.claims -= 1
            self._ended.set()

    # -- acting

    async def write(self, process_id: str, data: bytes) -> None:
        """Type into its terminal.

        Raises:
            ToolError: "failed", it has ended, has no terminal, or does not read.
        """
        process = self.get(process_id)
        if process.exit is not None:
            raise ToolError("failed", f"process {process_id} has ended, nothing can be typed into it")
        if not process.about.pty:
            raise ToolError("failed", f"process {process_id} has no terminal, its input is empty", hint="start it with pty=true")
        try:
            async with asyncio.timeout(_TYPES):
                await type_into(process.folder, data)
        except TimeoutError:
            raise ToolError("failed", f"process {process_id} does not read what is typed") from None
        except OSError as error:
            raise ToolError("failed", f"nothing can be typed into process {process_id}: {error.strerror}") from None

    async def kill(self, process_id: str) -> ProcessExited | None:
        """Stop it and all it began: asked first, killed a second later. Its end, unless that was told before.

        Raises:
            ToolError: "failed", there is no such process, or something of it cannot be stopped.
        """
        process = self.get(process_id)
        with self.claim(process):
            if process.exit is None:
                await self._stop(process)
            return self.take(process)

    async def kill_all(self, *, except_stays: bool = True) -> list[ProcessExited]:
        """Stop all of them, those that stay only if it is said; the ends that nobody was told of."""
        ours = [process for process in self.all() if process.exit is None and not (except_stays and process.about.stays)]
        ends = await asyncio.gather(*(self.kill(process.id) for process in ours), return_exceptions=True)
        for end in ends:
            if isinstance(end, BaseException) and not isinstance(end, ToolError):
                raise end
        return [end for end in ends if isinstance(end, ProcessExited)]

    async def _stop(self, process: Process) -> None:
        if lives(process.folder):
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGTERM)
        await self.hear(process, _STOPS)
        if process.exit is None:  # the shim itself hangs, or was stopped
            await asyncio.to_thread(spawn.kill_marked, process.about.mark)
            await self.hear(process, 1)
        if process.exit is None:
            raise ToolError("failed", f"process {process.id} (pid {process.pid}) cannot be stopped")

    def close(self) -> None:
        """Stop watching. What runs goes on."""
        for process in self._processes.values():
            self._unwatch(process)
        if self._look is not None:
            self._look.cancel()

    # -- watching

    def _told(self, process: Process) -> None:
        """The shim has something new to say, or is gone."""
        assert process.watched is not None
        if os.read(process.watched, 65_536):
            process.changed.set()
        else:
            self._over(process)

    def _watch(self, process: Process) -> None:
        """Watch a process that is not our child."""
        try:
            process.watched = os.pidfd_open(process.pid)
        except (AttributeError, OSError):
            self._look = self._look or asyncio.get_running_loop().call_later(_LOOK, self._look_around)
            return
        asyncio.get_running_loop().add_reader(process.watched, self._over, process)
        if not lives(process.folder):  # and the pid was another's already
            self._over(process)

    def _look_around(self) -> None:
        """Where there are no descriptors of processes."""
        self._look = None
        unwatched = [process for process in self.running() if process.watched is None]
        for process in unwatched:
            if not lives(process.folder):
                self._over(process)
        if any(process.exit is None for process in unwatched):
            self._look = asyncio.get_running_loop().call_later(_LOOK, self._look_around)

    def _over(self, process: Process) -> None:
        self._unwatch(process)
        with suppress(ChildProcessError):
            os.waitpid(process.pid, 0 if process.told else os.WNOHANG)
        found = read_exit(process.folder)
        if found is None or sys.platform != "linux":  # there the shim loses nothing of what it kept
            spawn.kill_marked(process.about.mark)
        process.exit = found or Exit(None, signal.SIGKILL, "lost")
        process.changed.set()
        self._ended.set()

    def _unwatch(self, process: Process) -> None:
        if process.watched is not None:
            asyncio.get_running_loop().remove_reader(process.watched)
            os.close(process.watched)
            process.watched = None
