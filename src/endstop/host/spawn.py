"""Run a command so that nothing of it survives: its end is the end of every process it began.

A command runs in a session and process group of its own, with no standard input that could wait for somebody, and with
``ENDSTOP_CALL`` in its environment. What it leaves behind is found by that mark, by group, by session and by descent, and is
killed. Out of reach outside a sandbox: a process that cleared its environment, left the session and lost its parent before
the command ended.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from hashlib import sha256
from pathlib import Path
from typing import IO, NamedTuple

import msgspec

from endstop.errors import ToolError

MARK = "ENDSTOP_CALL"
"""Environment variable of every process of a call; comma-separated where calls are nested."""
KEEP = 64 * 1024 * 1024
"""Bytes of all output that are kept beside the shortened one."""

_MEMORY = 256 * 1024  # bytes of output held in memory; what is beyond goes to a temporary file
_CHUNK = 64 * 1024
_LINGER = 0.5  # seconds the pipe may stay open after the command itself has ended
_GRACE = 1.0  # seconds between asking to stop and killing
_PATIENCE = 3.0  # seconds of killing what is still found; a process stuck in the kernel outlasts them


class Ended(msgspec.Struct, kw_only=True, frozen=True):
    """How a command ended.

    ``exit_code`` is None if a ``signal`` ended it. ``output`` is stdout and stderr in the order they came, at most ``bound``
    bytes: beginning and end, with a line between them that says how much was left out. ``full`` is all output as bytes, only
    where ``output`` was shortened. ``errors`` is stderr alone, where it was asked for apart: then it is not in ``output``.
    """

    exit_code: int | None
    signal: int | None
    timed_out: bool
    output: str
    full: bytes | None
    duration_ms: int
    errors: str = ""


async def run(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout: float | None,
    bound: int = 16_384,
    on_output: Callable[[str], None] | None = None,
    keep: int = KEEP,
    mark: str | None = None,
    stdin: bytes | None = None,
    apart: bool = False,
) -> Ended:
    """Run a command to its end, its timeout (seconds) or the cancelling of this task; then none of its processes is left.

    Args:
        env: the whole environment; nothing is inherited.
        bound: bytes of ``Ended.output``.
        on_output: gets text as it arrives; must return at once.
        keep: bytes of ``Ended.full``.
        mark: names the call for ``kill_marked`` after a crash; must be unique on this machine (session and call).
        stdin: what the command reads as its standard input; None is an empty one.
        apart: keep stderr, at most ``bound`` bytes of it, as ``Ended.errors``.

    Raises:
        ToolError: "failed", the command could not be started.
    """
    mark = mark or uuid.uuid4().hex
    word = _word(mark)
    call = _Call(word)
    with closing(_Output(bound, keep, on_output)) as output, closing(_Output(bound, 0, None)) as errors:
        began = time.monotonic()
        process = None
        try:
            process = await _start(argv, cwd, marked(env, mark), output, errors if apart else None, stdin)
            call = _Call(word, process.pid, _born(process.pid))
            timed_out = not await _ends(process, timeout)
            duration = time.monotonic() - began
            if timed_out:
                await _ask_to_stop(call)
            else:
                await output.ended(_LINGER)
                if apart:
                    await errors.ended(_LINGER)
        except asyncio.CancelledError:
            await _ask_to_stop(call)
            raise
        finally:
            # Kills before it awaits anything: a second cancel cannot come between.
            _kill(call)
            if process:
                await _ends(process, _GRACE)
        output.drain()
        errors.drain()
        code = process.returncode
        return Ended(
            exit_code=code if code is not None and code >= 0 else None,
            signal=-code if code is not None and code < 0 else None,
            timed_out=timed_out,
            output=output.text(),
            full=output.full(),
            duration_ms=round(duration * 1000),
            errors=errors.text(),
        )


def marked(env: Mapping[str, str], mark: str) -> dict[str, str]:
    """The environment of a process that ``kill_marked(mark)`` finds, with all that it begins."""
    inherited = os.environ.get(MARK)
    return {**env, MARK: f"{inherited},{_word(mark)}" if inherited else _word(mark)}


def kill_marked(mark: str) -> int:
    """Kill what an earlier call with this mark left behind (after a crash). Returns how many processes."""
    return _kill(_Call(_word(mark)))


def _word(mark: str) -> str:
    """A mark of any text as a plain word."""
    return sha256(mark.encode("utf-8", "surrogatepass")).hexdigest()[:32]


# ------------------------------------------------------------------------------------------------------------------ start


async def _start(
    argv: Sequence[str], cwd: Path, env: Mapping[str, str], output: _Output, errors: _Output | None, stdin: bytes | None
) -> asyncio.subprocess.Process:
    """Start with our own pipes, so that the end of the command and the end of its output can be told apart."""
    if not os.path.isdir(cwd) or not os.access(cwd, os.X_OK):
        raise ToolError("failed", f"cannot run in {cwd}: it is no folder that may be entered")
    try:
        with ExitStack() as ours:
            writers = [each.open() for each in (output, errors) if each]
            for writer in writers:
                ours.callback(os.close, writer)
            return await asyncio.create_subprocess_exec(
                *argv,
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL if stdin is None else ours.enter_context(_readable(stdin)),
                stdout=writers[0],
                stderr=writers[1] if errors else subprocess.STDOUT,
                start_new_session=True,
            )
    except (OSError, ValueError) as error:
        raise ToolError("failed", f"cannot start {argv[0]!r}: {_reason(error)}") from None


def _readable(content: bytes) -> IO[bytes]:
    """An open file that holds this: unlike a pipe, it never waits for somebody to read."""
    file = tempfile.TemporaryFile()  # noqa: SIM115  closed by the caller
    file.write(content)
    file.seek(0)
    return file


def _reason(error: OSError | ValueError) -> str:
    match error:
        case FileNotFoundError():
            return "it, or the interpreter it names, is not found (installed? on PATH?)"
        case PermissionError():
            return "not executable (chmod +x, or call its interpreter)"
        case OSError():
            return (error.strerror or str(error)).lower()
    return str(error)


async def _ends(process: asyncio.subprocess.Process, timeout: float | None) -> bool:
    """Whether the command itself ended within ``timeout`` seconds."""
    try:
        async with asyncio.timeout(timeout):
            await process.wait()
    except TimeoutError:
        return False
    return True


# ----------------------------------------------------------------------------------------------------------------- output


class _Output:
    """Takes what comes through the pipe: all of it up to ``keep`` bytes, beginning and end for the one who asked."""

    def __init__(self, bound: int, keep: int, watch: Callable[[str], None] | None) -> None:
        self._head_size = bound // 2
        self._tail_size = bound - bound // 2
        self._keep = keep
        self._room = max(keep, bound)
        self._watch = watch
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._kept = tempfile.SpooledTemporaryFile(max_size=_MEMORY, buffering=0)  # noqa: SIM115  closed by close()
        self._tail = bytearray()
        self._total = 0
        self._reader: int | None = None
        self._end = asyncio.Event()

    def open(self) -> int:
        """Begin to read; returns the file descriptor to write to, which the caller closes."""
        self._reader, writer = os.pipe()
        os.set_blocking(self._reader, False)
        asyncio.get_running_loop().add_reader(self._reader, self._read)
        return writer

    async def ended(self, patience: float) -> None:
        """Wait until every writer has closed the pipe, ``patience`` seconds at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._end.wait()

    def drain(self) -> None:
        """Take what is still in the pipe, then stop reading."""
        for _ in range(16):  # 1 MiB, the most a pipe holds: a writer that cannot be killed must not hold us
            if not self._read():
                break
        self._stop()
        if self._watch and (rest := self._decoder.decode(b"", final=True)):
            self._watch(rest)

    def close(self) -> None:
        """Let go of the pipe and of what was kept."""
        self._stop()
        self._kept.close()

    def text(self) -> str:
        """The output, shortened to ``bound`` bytes."""
        if not self._shortened:
            return self._beginning(self._total).decode("utf-8", "replace")
        head = whole_end(self._beginning(self._head_size))
        tail = whole_start(bytes(self._tail[-self._tail_size :] if self._tail_size else b""))
        middle = f"\n[… {self._total - len(head) - len(tail)} bytes left out …]\n"
        return head.decode("utf-8", "replace") + middle + tail.decode("utf-8", "replace")

    def full(self) -> bytes | None:
        """All output if ``text`` is shortened, ending in what is missing of it."""
        if not self._shortened:
            return None
        kept = self._beginning(self._keep)
        missing = self._total - len(kept)
        return kept + b"\n[%d more bytes were not kept]\n" % missing if missing else kept

    @property
    def _shortened(self) -> bool:
        return self._total > self._head_size + self._tail_size

    def _beginning(self, size: int) -> bytes:
        self._kept.seek(0)
        return self._kept.read(size)

    def _read(self) -> bool:
        """Take one chunk; False if there is none now."""
        if self._reader is None:
            return False
        try:
            chunk = os.read(self._reader, _CHUNK)
        except BlockingIOError:
            return False
        if not chunk:
            self._stop()
            return False
        self._take(chunk)
        if self._watch and (piece := self._decoder.decode(chunk)):
            self._watch(piece)
        return True

    def _take(self, chunk: bytes) -> None:
        self._total += len(chunk)
        try:
            self._room -= self._kept.write(chunk[: self._room])
        except OSError:  # no room for temporary files: beginning and end will do
            self._room = 0
        self._tail += chunk
        if len(self._tail) > self._tail_size + _CHUNK:
            del self._tail[: len(self._tail) - self._tail_size]

    def _stop(self) -> None:
        if self._reader is not None:
            asyncio.get_running_loop().remove_reader(self._reader)
            os.close(self._reader)
            self._reader = None
        self._end.set()


def whole_end(data: bytes) -> bytes:
    """Without a character that is cut at the end."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(data)
    rest = len(decoder.getstate()[0])
    return data[: len(data) - rest]


def whole_start(data: bytes) -> bytes:
    """Without the rest of a character that is cut at the start."""
    start = next((i for i, byte in enumerate(data[:4]) if byte & 0xC0 != 0x80), 0)
    return data[start:]


# ------------------------------------------------------------------------------------------------------------------- tree


class _Call(NamedTuple):
    """What the processes of a call are known by. ``since`` is the birth of the first: none of them is older."""

    word: str
    root: int | None = None
    since: int = 0  # clock ticks since boot


class _Process(NamedTuple):
    """A living process. ``marks`` are the calls it belongs to."""

    pid: int
    parent: int
    group: int
    session: int
    marks: frozenset[str]


async def _ask_to_stop(call: _Call) -> None:
    """SIGTERM to the whole tree, then wait until it is gone, a short grace at most."""
    _signal(_tree(call), signal.SIGTERM)
    deadline = time.monotonic() + _GRACE
    while _tree(call) and time.monotonic() < deadline:
        await asyncio.sleep(0.02)


def _kill(call: _Call) -> int:
    """SIGKILL to everything of the call until nothing is found; returns how many processes."""
    killed: set[int] = set()
    quiet = 0
    deadline = time.monotonic() + _PATIENCE
    # Where there was something, look twice: a process that is just being replaced by another program shows no mark.
    while quiet < (2 if killed else 1) and time.monotonic() < deadline:
        found = _tree(call)
        quiet = 0 if found else quiet + 1
        if found:
            _signal(found, signal.SIGKILL)
            killed |= found
            time.sleep(0.004)
    return len(killed)


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _tree(call: _Call) -> set[int]:
    """What belongs to the call and lives: marked, in the command's group or session, or descended from such."""
    table = list(_processes(call.since))
    found = {p.pid for p in table if call.word in p.marks or call.root in (p.group, p.session)}
    grown = found
    while grown:
        grown = {p.pid for p in table if p.parent in grown} - found
        found |= grown
    return found - {os.getpid()}


def _processes(since: int) -> Iterable[_Process]:
    """Every process that can be seen and is not older, zombies left out."""
    if sys.platform != "linux":
        yield from _from_ps(subprocess.run(_PS, capture_output=True, text=True, errors="replace", check=False).stdout)
        return
    seen: set[str] = set()
    # Until a listing holds nothing new: a process that begins a successor and ends cannot slip through between two looks.
    while fresh := {name for name in os.listdir("/proc") if name.isdigit()} - seen:
        seen |= fresh
        yield from filter(None, (_from_proc(name, since) for name in fresh))


def _from_proc(pid: str, since: int) -> _Process | None:
    try:
        state, parent, group, session, *_, born = _stat(pid)
    except OSError:  # gone meanwhile
        return None
    if state in (b"Z", b"X") or int(born) < since:
        return None
    environment = b""
    with suppress(OSError):  # another user's: not ours
        environment = _content(f"/proc/{pid}/environ")
    return _Process(int(pid), int(parent), int(group), int(session), _marks(environment.split(b"\0")))


def _born(pid: int) -> int:
    """When a process was started, in clock ticks since boot; 0 if that cannot be known."""
    if sys.platform != "linux":
        return 0
    try:
        return int(_stat(str(pid))[-1])
    except OSError:
        return 0


def _stat(pid: str) -> list[bytes]:
    """Fields 3 (state) to 22 (start) of a process; its name before them may hold anything."""
    stat = _content(f"/proc/{pid}/stat")
    return stat[stat.rindex(b")") + 2 :].split(maxsplit=20)[:20]


def _content(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.read()


def _marks(environment: Iterable[bytes]) -> frozenset[str]:
    name = f"{MARK}=".encode()
    value = next((entry.removeprefix(name) for entry in environment if entry.startswith(name)), b"")
    return frozenset(value.decode("ascii", "replace").split(","))


_PS = ["/bin/ps", "-A", "-E", "-ww", "-o", "pid=,ppid=,pgid=,stat=,command="]


def _from_ps(text: str) -> Iterable[_Process]:
    """Lines of ``ps`` on macOS, where the environment stands behind the command."""
    for line in text.splitlines():
        pid, parent, group, state, *words = line.split()
        if not state.startswith("Z"):
            yield _Process(int(pid), int(parent), int(group), int(group), _marks(word.encode() for word in words))
