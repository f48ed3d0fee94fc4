"""The folder of one background process: what was begun, whether it lives, how it ended.

Whether it lives is told by a lock that its shim holds and that the kernel lets go of however the shim ends: no process id can
be mistaken for it, after a crash or a reboot either.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Literal, cast, get_args

import msgspec

from endstop.host import shim, spawn

How = Literal["ended", "timeout", "stopped", "lost"]


class About(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What was begun. ``timeout`` in seconds of its whole life, None for none; ``start_time`` in epoch seconds."""

    process_id: str
    command: str
    tool_call_id: str
    mark: str
    notify_on_exit: bool
    stays: bool
    pty: bool
    timeout: float | None
    start_time: float


class Exit(msgspec.Struct, frozen=True):
    """How a process ended. "stopped": it was asked to; "lost": nobody was there to see it."""

    exit_code: int | None
    signal: int | None
    how: How
    duration_ms: int = 0


def launch(folder: Path, about: About, argv: Sequence[str], cwd: Path, env: Mapping[str, str]) -> tuple[int, int]:
    """Start the shim of a process; its pid, and a pipe that gets a byte with new output and closes when it is gone.

    Raises:
        OSError, ValueError: it cannot be started.
    """
    folder.mkdir(parents=True, mode=0o700)
    (folder / "about.json").write_bytes(msgspec.json.encode(about))
    if about.pty:
        os.mkfifo(folder / shim.KEYS, 0o600)
    terminal = "pty" if about.pty else "none"
    seconds = "inf" if about.timeout is None else repr(about.timeout)
    words = [shim.__file__, str(folder), str(cwd), seconds, terminal, env.get("LC_CTYPE", ""), *argv]
    with ExitStack() as ours:

        def closed_here(fd: int) -> int:
            ours.callback(os.close, fd)
            return fd

        alive = closed_here(os.open(folder / shim.ALIVE, os.O_RDWR | os.O_CREAT, 0o600))
        lock = closed_here(fcntl.fcntl(alive, fcntl.F_DUPFD_CLOEXEC, 10))  # not the number it gets there: it must be inherited
        fcntl.flock(lock, fcntl.LOCK_EX)
        reader, writer = os.pipe()
        closed_here(writer)
        on_failure = ours.enter_context(ExitStack())
        on_failure.callback(os.close, reader)
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", *words],
            spawn.marked(env, about.mark),
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, writer, shim.READY),
                (os.POSIX_SPAWN_OPEN, 2, str(folder / "fault"), os.O_WRONLY | os.O_CREAT, 0o600),
                (os.POSIX_SPAWN_DUP2, lock, shim.LOCK),
            ],
            setsigmask=[signal.SIGTERM],
        )
        os.write(alive, b"%d\n" % pid)
        on_failure.pop_all()
        return pid, reader


def read_about(folder: Path) -> About | None:
    """What a folder is of; None if it is not one of a process."""
    try:
        about = msgspec.json.decode((folder / "about.json").read_bytes(), type=About)
    except (OSError, msgspec.DecodeError):
        return None
    return about if about.process_id == folder.name else None


def unknown(process_id: str) -> About:
    """Of a process whose folder is gone."""
    return About(
        process_id=process_id,
        command="",
        tool_call_id="",
        mark=process_id,
        notify_on_exit=True,
        stays=False,
        pty=False,
        timeout=None,
        start_time=0,
    )


def lives(folder: Path) -> bool:
    """Whether its shim does: it holds the lock for as long as it lives."""
    try:
        with (folder / shim.ALIVE).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def pid_of(folder: Path) -> int:
    """The shim's pid; 0 if it cannot be read."""
    with suppress(OSError, ValueError):
        text = (folder / shim.ALIVE).read_text().strip()
        return int(text) if text.isdecimal() else 0
    return 0


def read_exit(folder: Path) -> Exit | None:
    """What the shim wrote down at the end; None if it did not come to that."""
    try:
        code, number, how, milliseconds = (folder / shim.EXIT).read_text().split()
        found = Exit(_number(code), _number(number), cast(How, how), int(milliseconds))
    except (OSError, ValueError):
        return None
    return found if how in get_args(How) else None


def _number(word: str) -> int | None:
    return None if word == "-" else int(word)


async def type_into(folder: Path, data: bytes) -> None:
    """Type into the terminal of a process that lives; waits for as long as it does not take it.

    Raises:
        OSError: it is gone.
    """
    keys = await _patiently(lambda: os.open(folder / shim.KEYS, os.O_WRONLY | os.O_NONBLOCK))
    try:
        while data:
            data = data[await _patiently(partial(os.write, keys, data)) :]
    finally:
        os.close(keys)


async def _patiently(act: Callable[[], int]) -> int:
    """Again until it is neither that nobody reads there yet, nor that what was typed before is not taken yet."""
    while True:
        try:
            return act()
        except OSError as error:
            if error.errno not in (errno.ENXIO, errno.EAGAIN):
                raise
            await asyncio.sleep(0.02)
