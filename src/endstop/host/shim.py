"""The keeper of one background process: runs a command, writes down what it says and how it ends, and leaves nothing of it.

    python -I -S shim.py FOLDER FOLDER_TO_RUN_IN SECONDS PTY LC_CTYPE PROGRAM ARGUMENT…

It outlives the runtime that began it, and stands outside the sandbox, so that what it writes cannot be forged from inside.
It imports only what comes with the interpreter: it is there in milliseconds, and takes a few megabytes.

It is given: 1, a pipe that gets a byte whenever there is more output, and that closes when it is gone; 3, the file ``alive``,
locked: the kernel lets go of the lock however it ends, so the lock tells whether it lives. In FOLDER it writes output to
``out.N`` (N: how many bytes came before) and at the end ``exit``: exit code, signal, how, milliseconds. What is written to the
fifo ``keys`` is typed into the terminal. SIGTERM, which is blocked at first, stops the command.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable
from contextlib import suppress

SEGMENT = 8 * 1024 * 1024
"""Bytes of one file of output: the first is kept, and the last two, of which one is being written."""
ALIVE, KEYS, EXIT, OUT = "alive", "keys", "exit", "out."
READY, LOCK = 1, 3
"""File descriptors it is given."""

_CHUNK = 64 * 1024
_LINGER = 0.5  # seconds the output may stay open after the command itself has ended
_GRACE = 1.0  # seconds between asking to stop and killing
_PATIENCE = 3.0  # seconds of killing what still lives; a process stuck in the kernel outlasts them
_LONGEST = 3600.0
_SIZE = struct.pack("HHHH", 40, 120, 0, 0)  # of the terminal: lines, columns
_SUBREAPER = 36


class Spool:
    """Output on disk: beginning and end of it, in files that say where they belong."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._total = 0
        self._file = -1
        self._room = 0
        self._kept: list[str] = []

    def take(self, data: bytes) -> None:
        """Write what came. Where there is no room on disk it is left out, and the next file tells how much that was."""
        end = self._total + len(data)
        with suppress(OSError):
            while self._total < end:
                self._write(data[self._total - end :])
        self._total = end

    def _write(self, data: bytes) -> None:
        if not self._room:
            self._open()
        try:
            written = os.write(self._file, data[: self._room])
        except OSError:
            if self._room == SEGMENT:
                os.unlink(self._kept.pop())  # it must push nothing out
            self._room = 0
            raise
        self._room -= written
        self._total += written

    def _open(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        path = f"{self._folder}/{OUT}{self._total}"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        self._room = SEGMENT
        self._kept.append(path)
        if len(self._kept) > 3:
            os.unlink(self._kept.pop(1))


class Keeper:
    """The command and all it began. ``status`` is the command's own, as ``waitpid`` gives it."""

    def __init__(self, folder: str, pid: int, output: int, keys: int | None, wake: int) -> None:
        self.status: int | None = None
        self.children = True
        self.stopping = False
        self.output: int | None = output
        self._pid, self._keys, self._wake = pid, keys, wake
        self._typed = b""
        self._spool = Spool(folder)

    def until(self, true: Callable[[], bool], seconds: float) -> bool:
        """Do what is to be done until something is true, so many seconds at most; whether it is."""
        deadline = time.monotonic() + seconds
        while not true():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self._turn(min(left, _LONGEST))
        return True

    def _turn(self, seconds: float) -> None:
        readers = [fd for fd in (self.output, None if self._typed else self._keys, self._wake) if fd is not None]
        writers = [self.output] if self._typed and self.output is not None else []
        readable, writable, _ = select.select(readers, writers, [], seconds)
        if self._wake in readable:
            with suppress(BlockingIOError):
                os.read(self._wake, _CHUNK)
            self._bury()
        if self.output in readable:
            self.read()
        if self._keys in readable:
            with suppress(BlockingIOError):
                self._typed = os.read(self._keys or 0, _CHUNK)
        if writable and self.output is not None:
            self._type()

    def _type(self) -> None:
        try:
            self._typed = self._typed[os.write(self.output or 0, self._typed) :]
        except BlockingIOError:
            pass
        except OSError:  # nobody will read it any more
            self._typed = b""

    def read(self) -> bool:
        """Take one chunk of output; False if there is none now."""
        if self.output is None:
            return False
        try:
            data = os.read(self.output, _CHUNK)
        except BlockingIOError:
            return False
        except OSError as error:  # how a terminal says that nobody holds it any more
            if error.errno != errno.EIO:
                raise
            data = b""
        if not data:  # not closed: that would hang up on a command that is about to end by itself
            self.output, self._typed = None, b""
            return False
        self._spool.take(data)
        with suppress(OSError):  # nobody listens, or has not yet listened: both will look for themselves
            os.write(READY, b".")
        return True

    def _bury(self) -> None:
        """Reap what has ended: the command, and orphans of it, which are ours to reap."""
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return
                if pid == self._pid:
                    self.status = status
        except ChildProcessError:
            self.children = False

    def signal(self, number: signal.Signals) -> None:
        """Send it to everything that descends from the command."""
        for pid in _descendants():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        if sys.platform != "linux":
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, number)

    def stop(self, *_: object) -> None:
        """Handler of the signals by which it is told to stop."""
        self.stopping = True


def _descendants() -> list[int]:
    """All of them. None is lost: orphans become our own children."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc") if sys.platform == "linux" else ():
        if name.isdigit():
            with suppress(OSError), open(f"/proc/{name}/stat", "rb", buffering=0) as file:
                parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
    found: list[int] = []
    grown = [os.getpid()]
    while grown:
        grown = [pid for pid, parent in parents.items() if parent in grown]
        found += grown
    return found


def _begin(argv: list[str], cwd: str, ctype: str, output: int, source: int, terminal: bool) -> int:
    """Start the command with these as its output and input; its pid."""
    pid = os.fork()
    if pid:
        return pid
    try:
        signal.set_wakeup_fd(-1)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # this interpreter ignores them, and what is ignored is inherited
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        if terminal:
            fcntl.ioctl(output, termios.TIOCSCTTY, 0)
            fcntl.ioctl(output, termios.TIOCSWINSZ, _SIZE)
        os.dup2(source, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.environ.pop("LC_CTYPE", None)  # this interpreter may have set its own
        if ctype:
            os.environ["LC_CTYPE"] = ctype
        os.chdir(cwd)
        os.execvp(argv[0], argv)
    except OSError as error:
        os.write(2, f"cannot start {argv[0]} in {cwd}: {error.strerror}\n".encode(errors="replace"))
    finally:
        os._exit(127)


def _ends(terminal: bool) -> tuple[int, int, int]:
    """Where we read, where the command writes, where it reads."""
    if terminal:
        ours, its = os.openpty()
        return ours, its, its
    reader, writer = os.pipe()
    return reader, writer, os.open(os.devnull, os.O_RDONLY)


def _keep(folder: str, cwd: str, seconds: str, terminal: bool, ctype: str, argv: list[str]) -> None:
    began = time.monotonic()
    wake, waker = os.pipe()  # gets a byte with every signal, so that none is slept through
    for fd in (wake, waker):
        os.set_blocking(fd, False)
    signal.set_wakeup_fd(waker)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    output, writer, reader = _ends(terminal)
    keys = os.open(f"{folder}/{KEYS}", os.O_RDWR | os.O_NONBLOCK) if terminal else None
    end = _room_for_the_end(folder)
    pid = _begin(argv, cwd, ctype, writer, reader, terminal)
    for fd in {writer, reader}:
        os.close(fd)
    os.set_blocking(output, False)
    keeper = Keeper(folder, pid, output, keys, wake)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, keeper.stop)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # what came before there was something to stop is heard now

    over = keeper.until(lambda: keeper.status is not None or keeper.stopping, float(seconds))
    how = "timeout" if not over else "stopped" if keeper.status is None else "ended"
    duration = time.monotonic() - began
    if how == "ended":
        keeper.until(lambda: keeper.output is None or keeper.stopping, _LINGER)
    else:
        keeper.signal(signal.SIGTERM)
        keeper.until(lambda: not keeper.children, _GRACE)
    deadline = time.monotonic() + _PATIENCE
    while keeper.children and time.monotonic() < deadline:
        keeper.signal(signal.SIGKILL)
        keeper.until(lambda: not keeper.children, 0.02)
    for _ in range(16):  # what a pipe can hold: a writer that cannot be killed must not hold us
        if not keeper.read():
            break
    _tell(folder, end, keeper.status, how, round(duration * 1000))


def _room_for_the_end(folder: str) -> int:
    """A file that takes the last line also when the disk is full by then."""
    file = os.open(f"{folder}/{EXIT}.new", os.O_WRONLY | os.O_CREAT, 0o600)
    os.write(file, b" " * 80)
    return file


def _tell(folder: str, file: int, status: int | None, how: str, milliseconds: int) -> None:
    """Write down the end, whole or not at all."""
    code = os.WEXITSTATUS(status) if status is not None and os.WIFEXITED(status) else "-"
    number = os.WTERMSIG(status) if status is not None and os.WIFSIGNALED(status) else "-"
    os.pwrite(file, f"{code} {number} {how} {milliseconds}\n".encode(), 0)
    os.replace(f"{folder}/{EXIT}.new", f"{folder}/{EXIT}")


def main() -> None:
    """Keep the process that the arguments name."""
    _, folder, cwd, seconds, terminal, ctype, *argv = sys.argv
    os.setsid()
    os.chdir("/")
    for name in os.listdir("/dev/fd"):  # what the runtime itself inherited and did not keep to itself
        if int(name) > LOCK:
            with suppress(OSError):
                os.close(int(name))
    for fd in (READY, LOCK):
        os.set_inheritable(fd, False)
    os.set_blocking(READY, False)
    if sys.platform == "linux":
        import ctypes  # noqa: PLC0415  only this process needs it

        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    _keep(folder, cwd, seconds, terminal == "pty", ctype, argv)


if __name__ == "__main__":
    main()
