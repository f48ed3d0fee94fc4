"""Processes that go on while nobody waits, outlive the runtime, and leave nothing behind when they are stopped."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from endstop.core.events import ProcessExited
from endstop.errors import ToolError
from endstop.host import background as module
from endstop.host import shim, spawn
from endstop.host.background import Background, Process
from endstop.host.process_folder import lives
from endstop.host.sandbox import detect
from endstop.host.spool import Spool

T = TypeVar("T")
ENV = {"PATH": os.environ["PATH"]}


def go(main: Coroutine[Any, Any, T]) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(60):
            return await main

    return asyncio.run(bounded())


def start(background: Background, command: str, folder: Path, **more: Any) -> Process:
    """A process in the background from the start."""
    process = started(background, ["bash", "-c", command], folder, **more)
    background.begun(process)
    return process


def started(background: Background, argv: list[str], folder: Path, **more: Any) -> Process:
    options: dict[str, Any] = {"timeout": 60, "mark": os.urandom(8).hex(), "command": argv[-1][:100], "env": ENV, "cwd": folder}
    return background.start(argv, tool_call_id="c1", **options | more)


async def until(true: Callable[[], object]) -> None:
    while not true():
        await asyncio.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2][:1] not in (b"Z", b"X")
    except OSError:
        return False


def pids(folder: Path) -> list[int]:
    return [int(word) for file in folder.glob("pid*") for word in file.read_text().split()]


def children() -> set[str]:
    """Our own, zombies included."""
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


# ------------------------------------------------------------------------------------------------------------------- ends


@pytest.mark.parametrize(
    ("command", "exit_code", "number", "output"),
    [
        ("echo one; echo two >&2; echo three; exit 7", 7, None, "one\ntwo\nthree\n"),
        ("kill -USR1 $$", None, signal.SIGUSR1, ""),
        ("read -r line || echo empty", 0, None, "empty\n"),
        ("printf '\\xff\\0\\x01'", 0, None, "\ufffd\0\x01"),
        ("no-such-program", 127, None, "bash: line 1: no-such-program: command not found\n"),
        ("sleep 600 & sleep 0.1; exit 3", 3, None, ""),
    ],
)
def test_an_end_is_told_with_how_and_the_last_words(
    command: str, exit_code: int | None, number: int | None, output: str, tmp_path: Path
) -> None:
    """Exit code or signal, and both streams in the order they came."""

    async def main() -> ProcessExited:
        background = Background(tmp_path / "state")
        start(background, command, tmp_path)
        return await background.wait_any()

    exited = go(main())
    assert (exited.exit_code, exited.signal, exited.output) == (exit_code, number, output)


def test_every_end_is_told_once_and_the_last_fifty_can_be_looked_at(tmp_path: Path) -> None:
    """However many end at once, none is dropped and none comes twice; of those that were told, the oldest are forgotten."""

    async def main() -> None:
        background = Background(tmp_path / "state")
        begun = [start(background, f"exit {number}", tmp_path) for number in range(51)]
        ends = [await background.wait_any() for _ in begun]
        assert sorted(end.exit_code or 0 for end in ends) == list(range(51))
        assert [background.take(process) for process in begun] == [None] * 51
        last = start(background, "true", tmp_path)
        assert [process.id for process in background.all()] == [process.id for process in begun[1:]] + [last.id]
        assert len(list((tmp_path / "state").iterdir())) == 51
        await background.wait_any()

    before = children()
    go(main())
    assert children() == before


def test_what_a_process_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    """A daemon that left the session, lost its parent and its environment, and holds the output, is gone when the end is told."""
    command = "(env -i setsid /bin/bash -c 'echo $$ > pid; exec /bin/sleep 600' &); while [ ! -s pid ]; do :; done"

    async def main() -> ProcessExited:
        background = Background(tmp_path / "state")
        start(background, command, tmp_path)
        return await background.wait_any()

    assert go(main()).exit_code == 0
    assert [alive(pid) for pid in pids(tmp_path)] == [False]


def test_a_whole_life_has_a_timeout(tmp_path: Path) -> None:
    """When its time is over a process ends, and what it said and why it ended are told."""

    async def main() -> ProcessExited:
        background = Background(tmp_path / "state")
        start(background, "echo $$ > pid; echo on; sleep 600", tmp_path, timeout=0.5)
        return await background.wait_any()

    exited = go(main())
    assert (exited.exit_code, exited.signal) == (None, signal.SIGTERM)
    assert exited.output == "on\n(stopped: its 0.5 s were over)"
    assert not any(map(alive, pids(tmp_path)))


def test_an_end_that_is_claimed_is_left_to_the_one_who_claims(tmp_path: Path) -> None:
    """While somebody looks at a process its end is his; only if he does not take it, it is told like any other."""

    async def main() -> None:
        background = Background(tmp_path / "state")
        process = start(background, "exit 5", tmp_path)
        waiting = asyncio.create_task(background.wait_any())
        with background.claim(process):
            await background.hear(process, 20)
            await asyncio.sleep(0)
            assert not waiting.done()
        assert (await waiting).exit_code == 5

    go(main())


# --------------------------------------------------------------------------------------------------------------- stopping

TREE = """
trap '' TERM
echo $$ > pid0
bash -c 'trap "" TERM; echo $$ > pid1; while :; do sleep 600; done' &
setsid bash -c 'echo $$ > pid2; exec sleep 600' >/dev/null 2>&1 &
(setsid bash -c 'echo $$ > pid3; exec sleep 600' >/dev/null 2>&1 &) &
(env -i setsid /bin/bash -c 'echo $$ > pid4; exec /bin/sleep 600' &) &
while :; do sleep 600; done
"""


def test_stopping_leaves_nothing(tmp_path: Path) -> None:
    """After kill nothing lives: neither who ignores SIGTERM, left the session, was orphaned, nor lost its environment."""

    async def main() -> ProcessExited | None:
        background = Background(tmp_path / "state")
        process = start(background, TREE, tmp_path)
        await until(lambda: len(pids(tmp_path)) == 5)
        exited = await background.kill(process.id)
        assert background.running() == []
        assert await background.kill(process.id) is None
        return exited

    exited = go(main())
    assert exited is not None
    assert exited.signal == signal.SIGKILL
    assert len(pids(tmp_path)) == 5
    assert not any(map(alive, pids(tmp_path)))


def test_who_is_asked_to_stop_may_finish(tmp_path: Path) -> None:
    """A process is asked before it is killed, and what it says then is kept."""

    async def main() -> ProcessExited | None:
        background = Background(tmp_path / "state")
        process = start(background, "trap 'echo cleaned; exit 3' TERM; echo on; while :; do sleep 0.05; done", tmp_path)
        await background.hear(process, 20, beyond=0)
        return await background.kill(process.id)

    exited = go(main())
    assert exited is not None
    assert exited.exit_code == 3
    assert exited.output.startswith("on\n")
    assert exited.output.endswith("cleaned\n")


def test_a_process_can_be_stopped_before_it_has_begun(tmp_path: Path) -> None:
    """A stop in the very moment of the start is no accident: it counts as asked for."""

    async def main() -> None:
        background = Background(tmp_path / "state")
        process = start(background, "sleep 600", tmp_path)
        assert await background.kill(process.id)
        assert process.exit
        assert process.exit.how == "stopped"

    go(main())


def test_at_the_end_of_a_goal_only_what_shall_stay_stays(tmp_path: Path) -> None:
    """``kill_all`` ends all but the processes that stay; told to, those too. Every end is told once."""

    async def main() -> None:
        background = Background(tmp_path / "state")
        gone = [start(background, "sleep 600", tmp_path) for _ in range(3)]
        stays = start(background, "sleep 600", tmp_path, stays=True, timeout=None)
        ends = await background.kill_all()
        assert {end.process_id for end in ends} == {process.id for process in gone}
        assert background.running() == [stays]
        assert [end.process_id for end in await background.kill_all(except_stays=False)] == [stays.id]
        assert [background.take(process) for process in [*gone, stays]] == [None] * 4
        assert not any(alive(process.pid) for process in [*gone, stays])

    go(main())


def test_the_death_of_the_shim_is_the_end_of_the_tree(tmp_path: Path) -> None:
    """A shim that is killed takes everything it kept with it, and the end is told."""

    async def main() -> ProcessExited:
        background = Background(tmp_path / "state")
        process = start(background, TREE, tmp_path)
        await until(lambda: len(pids(tmp_path)) == 5)
        os.kill(process.pid, signal.SIGKILL)
        return await background.wait_any()

    exited = go(main())
    assert (exited.exit_code, exited.signal, exited.output) == (None, signal.SIGKILL, "(how it ended is not known)")
    survivors = [file.name for file in tmp_path.glob("pid*") if alive(int(file.read_text()))]
    assert survivors in ([], ["pid4"])  # one that lost mark, session and parent is out of reach once the shim is gone
    for pid in pids(tmp_path):
        if alive(pid):
            os.kill(pid, signal.SIGKILL)


def test_a_shim_that_does_not_answer_is_killed_with_its_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody stopped the shim: asked in vain, it is killed, and nothing of it lives."""
    monkeypatch.setattr(module, "_STOPS", 0.2)

    async def main() -> None:
        background = Background(tmp_path / "state")
        process = start(background, "echo $$ > pid; sleep 600", tmp_path)
        await until(lambda: pids(tmp_path))
        os.kill(process.pid, signal.SIGSTOP)
        assert await background.kill(process.id)
        assert not alive(process.pid)

    go(main())
    assert not any(map(alive, pids(tmp_path)))


# ----------------------------------------------------------------------------------------------------------------- output


def test_output_can_be_read_from_any_offset_while_it_grows(tmp_path: Path) -> None:
    """Pages follow each other without a gap, and a wait ends with the first new byte."""

    async def main() -> None:
        background = Background(tmp_path / "state")
        process = start(background, "seq 1 3; until [ -e go ]; do sleep 0.02; done; seq 4 6", tmp_path)
        await background.hear(process, 20, beyond=5)
        assert background.output(process.id, 0, 4) == (b"1\n2\n", 4)
        assert background.output(process.id, 4) == (b"3\n", 6)
        (tmp_path / "go").touch()
        await background.hear(process, 20, beyond=6)
        await background.hear(process, 20)
        assert background.output(process.id, 6) == (b"4\n5\n6\n", 12)
        assert background.output(process.id, 99) == (b"", 12)

    go(main())


def test_huge_output_takes_little_room(tmp_path: Path) -> None:
    """Of 200 MB beginning and end are on disk, the shim holds none of it in memory, and offsets still hold."""
    command = "echo first; head -c 200000000 /dev/zero | tr '\\0' x; echo last; until [ -e go ]; do sleep 0.02; done"

    async def main() -> None:
        background = Background(tmp_path / "state")
        process = start(background, command, tmp_path)
        await background.hear(process, 50, beyond=200_000_010)
        peak = next(line for line in Path(f"/proc/{process.pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
        (tmp_path / "go").touch()
        exited = await background.wait_any()
        assert exited.output.startswith("…xxx")
        assert exited.output.endswith("x" * 100 + "last\n")
        assert len(exited.output) == module.TAIL + 1
        assert background.output(process.id, 200_000_000) == (b"x" * 6 + b"last\n", 200_000_011)
        assert int(peak.split()[1]) < 64_000
        assert sum(file.stat().st_size for file in process.folder.iterdir()) < 3 * shim.SEGMENT + 10_000
        kept = process.spool.read(0, process.spool.total)
        assert kept.startswith(b"first\nxxx")
        assert " bytes left out …]\n".encode() in kept
        background.forget(process)
        assert list((tmp_path / "state").iterdir()) == []

    go(main())


def test_files_of_output_say_where_they_belong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """First and last files are kept; where the disk takes nothing, what is missing is counted, and pushes nothing out."""
    monkeypatch.setattr(shim, "SEGMENT", 10)
    folder = tmp_path / "out"
    folder.mkdir()
    writing, reading = shim.Spool(str(folder)), Spool(folder)
    writing.take(b"0123456789" * 2)
    folder.rename(tmp_path / "away")
    writing.take(b"lost")
    writing.take(b"lost too")
    (tmp_path / "away").rename(folder)
    writing.take(b"and on")
    assert reading.total == 38
    assert reading.read(0, 38) == "01234567890123456789\n[… 12 bytes left out …]\nand on".encode()
    writing.take(b"x" * 60)
    assert sorted(path.name for path in folder.iterdir()) == ["out.0", "out.82", "out.92"]
    assert (reading.total, reading.read(95, 200)) == (98, b"xxx")


@pytest.mark.needs("root")
def test_a_full_disk_costs_output_and_not_the_end(tmp_path: Path) -> None:
    """Where nothing more can be written the command runs on, its output ends early, and how it ended is known."""
    state = tmp_path / "state"
    state.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", state], capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")

    async def main() -> ProcessExited:
        background = Background(state)
        start(background, "head -c 1000000 /dev/zero | tr '\\0' x; exit 6", tmp_path)
        return await background.wait_any()

    try:
        exited = go(main())
        with pytest.raises(ToolError, match="no space left"):
            go(full(state, tmp_path))
    finally:
        subprocess.run(["umount", state], check=True)
    assert (exited.exit_code, exited.signal) == (6, None)
    assert exited.output.endswith("xxx")


async def full(state: Path, folder: Path) -> None:
    """A start with no room for it."""
    started(Background(state), ["true"], folder)


@pytest.mark.parametrize("bound", range(40, 48))
def test_no_character_is_cut_in_half(bound: int, tmp_path: Path) -> None:
    """Shortened anywhere, output holds whole characters; of a running process the unfinished one waits."""
    content = "aä€😀" * 50
    (tmp_path / "out.0").write_bytes(content.encode() + b"\xe2\x82")
    spool = Spool(tmp_path)
    shown, total = spool.text(bound, final=False)
    assert total == len(content.encode())
    assert "\ufffd" not in shown
    assert "\ufffd" not in spool.tail(bound)[:-1]
    (tmp_path / "out.0").write_bytes(content.encode() + b"\xe2\x82\xac!")
    assert spool.text(bound, total) == ("€!", total + 4)


# --------------------------------------------------------------------------------------------------------------- terminal


def test_a_terminal_can_be_typed_into(tmp_path: Path) -> None:
    """A process with a terminal reads what is typed, all of it, and its output is shown as text."""
    command = "test -t 0 && stty raw -echo; printf '\\e[1mready\\e[0m\\r\\n'; head -c 100000 | tr -d '\\n' | wc -c"

    async def main() -> ProcessExited:
        background = Background(tmp_path / "state")
        process = start(background, command, tmp_path, pty=True)
        await background.hear(process, 20, beyond=0)
        await background.write(process.id, b"12345678\n9" * 10_000)
        return await background.wait_any()

    assert go(main()).output == "ready\n90000\r\n".replace("\r", "")


def test_nobody_can_type_where_nobody_reads(tmp_path: Path) -> None:
    """A process without a terminal, one that ended, and one there is not, are refused by name."""

    async def main() -> None:
        background = Background(tmp_path / "state")
        without = start(background, "sleep 600", tmp_path)
        with pytest.raises(ToolError, match=f"process {without.id} has no terminal"):
            await background.write(without.id, b"x")
        await background.kill(without.id)
        with pytest.raises(ToolError, match="has ended"):
            await background.write(without.id, b"x")
        with pytest.raises(ToolError, match=f"no process gone .*{without.id}"):
            await background.write("gone", b"x")

    go(main())


# ---------------------------------------------------------------------------------------------------------------- restart

RUNTIME = """
import asyncio, json, os, sys
from pathlib import Path
from endstop.host.background import Background

async def main():
    background = Background(Path(sys.argv[1]))
    begun = {}
    for number, (command, timeout) in enumerate(json.loads(sys.argv[3])):
        process = background.start(
            ["bash", "-c", command], command=command, cwd=Path(sys.argv[2]), env={"PATH": os.environ["PATH"]},
            tool_call_id=f"c{number}", mark=f"{sys.argv[1]} {number}", timeout=timeout,
        )
        background.begun(process)
        begun[process.id] = process.pid
    print(json.dumps(begun), flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def crashed(folder: Path, *commands: str, timeout: float = 60) -> dict[str, int]:
    """Begin processes in a runtime that is then killed; their pids by id."""
    orders = json.dumps([(command, timeout) for command in commands])
    argv = [sys.executable, "-c", RUNTIME, str(folder / "state"), str(folder), orders]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as runtime:
        assert runtime.stdout
        begun: dict[str, int] = json.loads(runtime.stdout.readline())
        runtime.kill()
    return begun


@pytest.mark.parametrize("descriptors", [True, False])
def test_processes_outlive_the_runtime(descriptors: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After kill -9 of the runtime the next one finds what lives and what ended meanwhile, and tells every end once."""
    if not descriptors:  # as on macOS
        monkeypatch.delattr(os, "pidfd_open")
    begun = crashed(tmp_path, "echo early; exit 4", "echo late; until [ -e go ]; do sleep 0.02; done; echo later; exit 5")
    ended, living = begun

    async def main() -> None:
        await until(lambda: not lives(tmp_path / "state" / ended))
        background = Background(tmp_path / "state")
        background.attach(set(begun))
        assert [process.id for process in background.running()] == [living]
        first = await background.wait_any()
        assert (first.process_id, first.exit_code, first.output) == (ended, 4, "early\n")
        await background.hear(background.get(living), 20, beyond=0)
        (tmp_path / "go").touch()
        second = await background.wait_any()
        assert (second.process_id, second.exit_code, second.output) == (living, 5, "late\nlater\n")
        background.close()
        again = Background(tmp_path / "state")
        again.attach(set())
        assert [again.take(process) for process in again.all()] == [None, None]
        assert again.output(living, 0)[0] == b"late\nlater\n"

    go(main())


def test_what_is_found_again_can_be_stopped(tmp_path: Path) -> None:
    """The next runtime stops what an earlier one began."""
    begun = crashed(tmp_path, TREE)

    async def main() -> None:
        await until(lambda: len(pids(tmp_path)) == 5)
        background = Background(tmp_path / "state")
        background.attach(begun)
        assert [end.process_id for end in await background.kill_all()] == list(begun)

    go(main())
    assert not any(map(alive, [*begun.values(), *pids(tmp_path)]))


def test_a_timeout_holds_without_a_runtime(tmp_path: Path) -> None:
    """Nobody is there, and the process still ends when its time is over."""
    begun = crashed(tmp_path, "echo $$ > pid; sleep 600", timeout=0.5)

    async def main() -> ProcessExited:
        await until(lambda: not any(lives(tmp_path / "state" / name) for name in begun))
        background = Background(tmp_path / "state")
        background.attach(begun)
        return await background.wait_any()

    assert go(main()).output == "(stopped: its 0.5 s were over)"
    assert not any(map(alive, pids(tmp_path)))


def test_what_the_journal_does_not_know_is_ended(tmp_path: Path) -> None:
    """The runtime died before the start was journalled: the process is killed, and its end is nobody's news."""
    begun = crashed(tmp_path, "echo $$ > pid; sleep 600")

    async def main() -> None:
        await until(lambda: pids(tmp_path))
        background = Background(tmp_path / "state")
        background.attach([])
        assert background.running() == []
        assert [background.take(process) for process in background.all()] == [None]

    go(main())
    assert not any(map(alive, [*begun.values(), *pids(tmp_path)]))


def test_what_is_known_only_to_the_journal_has_ended(tmp_path: Path) -> None:
    """Its folder is gone: the end is told, so that nobody waits for ever."""

    async def main() -> ProcessExited:
        background = Background(tmp_path / "state")
        background.attach(["lost"])
        return await background.wait_any()

    exited = go(main())
    assert (exited.process_id, exited.exit_code, exited.signal) == ("lost", None, None)
    assert exited.output == "(how it ended is not known)"


@pytest.mark.parametrize("pid", [lambda: os.getpid(), lambda: 0, lambda: -1])
def test_the_pid_of_another_is_not_taken_for_it(pid: Callable[[], int], tmp_path: Path) -> None:
    """The pid of a process that ended belongs to somebody else now: it counts as ended, and the other is left alone."""
    begun = crashed(tmp_path, "sleep 600")
    (name,) = begun
    spawn.kill_marked(f"{tmp_path / 'state'} 0")
    (tmp_path / "state" / name / shim.ALIVE).write_text(f"{pid()}\n")

    async def main() -> None:
        background = Background(tmp_path / "state")
        background.attach([name])
        assert background.running() == []
        assert (await background.wait_any()).process_id == name
        assert await background.kill_all() == []

    go(main())


@pytest.mark.parametrize("content", ["", "nonsense", "1 2", "x - ended 3", "0 - eaten 3"])
def test_a_broken_record_is_an_end_nobody_saw(content: str, tmp_path: Path) -> None:
    """What cannot be read of an end is not made up; what is no process is left alone."""
    begun = crashed(tmp_path, "true")
    (name,) = begun
    folder = tmp_path / "state" / name

    async def main() -> ProcessExited:
        await until(lambda: not lives(folder))
        (folder / shim.EXIT).write_text(content)
        (tmp_path / "state/else").mkdir()
        (tmp_path / "state/else/about.json").write_text("{}")
        background = Background(tmp_path / "state")
        background.attach([name])
        return await background.wait_any()

    assert go(main()).output == "(how it ended is not known)"


# --------------------------------------------------------------------------------------------------------------- starting


@pytest.mark.parametrize(
    ("argv", "cwd", "says"),
    [
        (["bash", "-c", "a\0b"], ".", "null"),
        (["bash", "-c", "x" * 3_000_000], ".", "too long"),
        (["bash", "-c", "\ud800"], ".", "surrogates"),
        (["true"], "gone", "no folder"),
    ],
)
def test_what_cannot_be_started_says_why_and_leaves_nothing(argv: list[str], cwd: str, says: str, tmp_path: Path) -> None:
    """A failed start names the reason; no folder, process or file descriptor is left of it."""

    async def main() -> None:
        background = Background(tmp_path / "state")
        before = sorted(os.listdir("/proc/self/fd"))
        with pytest.raises(ToolError, match=says):
            started(background, argv, tmp_path / cwd)
        assert sorted(os.listdir("/proc/self/fd")) == before
        assert background.all() == []

    go(main())
    assert list(tmp_path.glob("state/*")) == []


def test_a_program_that_is_missing_is_the_processs_own_end(tmp_path: Path) -> None:
    """It ends as a shell would end it, and names what it could not start."""

    async def main() -> ProcessExited:
        background = Background(tmp_path / "state")
        background.begun(started(background, ["no-such-program"], tmp_path))
        return await background.wait_any()

    exited = go(main())
    assert exited.exit_code == 127
    assert exited.output.startswith("cannot start no-such-program")


def test_only_the_given_environment_and_no_foreign_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command has the environment it was given and its three standard files, nothing of the shim's."""
    monkeypatch.setenv("LEAK", "1")

    async def main() -> str:
        background = Background(tmp_path / "state")
        start(background, "env | cut -d= -f1; ls /proc/self/fd", tmp_path)
        return (await background.wait_any()).output

    words = set(go(main()).split())
    assert words - {"SHLVL", "_", "PWD", "OLDPWD"} == {"PATH", spawn.MARK, "0", "1", "2", "3"}  # 3: the folder ls reads


def test_nothing_stays_open(tmp_path: Path) -> None:
    """However a process ends, its file descriptors are closed, and it is buried."""

    async def main() -> None:
        background = Background(tmp_path / "state")
        before = os.listdir("/proc/self/fd")
        start(background, "true", tmp_path)
        start(background, "cat", tmp_path, pty=True)
        await background.wait_any()
        await background.kill_all()
        assert len(os.listdir("/proc/self/fd")) == len(before)
        left = start(background, "sleep 600", tmp_path)
        background.close()
        assert len(os.listdir("/proc/self/fd")) == len(before)
        assert alive(left.pid)
        again = Background(tmp_path / "state")
        again.attach([left.id])
        assert await again.kill(left.id)

    before = children()
    go(main())
    assert children() == before


@pytest.mark.needs("bwrap")
def test_in_the_sandbox_too(tmp_path: Path) -> None:
    """A sandboxed process is watched, found again and stopped like any other, and cannot see its own record."""
    work, state = tmp_path / "work", tmp_path / "state"
    work.mkdir()
    state.mkdir()

    async def main() -> None:
        background = Background(state)
        command = f"ls {state}; echo on; (setsid sleep 600 &); sleep 600"
        argv = detect().wrap(["bash", "-c", command], workspace=work, hidden=[state])
        process = started(background, argv, work)
        background.begun(process)
        await background.hear(process, 20, beyond=2)
        assert background.output(process.id, 0)[0] == b"on\n"
        background.close()
        again = Background(state)
        again.attach([process.id])
        assert await again.kill(process.id)
        assert spawn.kill_marked(process.about.mark) == 0

    go(main())
