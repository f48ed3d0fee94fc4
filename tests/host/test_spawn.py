"""Commands end with everything they began."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from endstop.errors import ToolError
from endstop.host import spawn

ENV = {"PATH": os.environ["PATH"]}


def shell(command: str, cwd: Path, **options: object) -> spawn.Ended:
    arguments = {"env": ENV, "timeout": 20.0} | options
    return asyncio.run(spawn.run(["bash", "-c", command], cwd=cwd, **arguments))  # type: ignore[arg-type]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2][:1] not in (b"Z", b"X")
    except OSError:
        return False


def pids(folder: Path) -> list[int]:
    return [int(word) for file in folder.glob("pid*") for word in file.read_text().split()]


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not true():
            await asyncio.sleep(0.01)


def test_exit_code_and_both_streams_in_order(tmp_path: Path) -> None:
    """What is printed to either stream comes back in the order it was printed, with the exit code."""
    ended = shell("echo one; echo two >&2; echo three; exit 7", tmp_path)
    assert (ended.exit_code, ended.signal, ended.timed_out) == (7, None, False)
    assert ended.output == "one\ntwo\nthree\n"
    assert ended.full is None


def test_a_signal_is_no_exit_code(tmp_path: Path) -> None:
    """A command that a signal ends has that signal and no exit code."""
    ended = shell("kill -USR1 $$", tmp_path)
    assert (ended.exit_code, ended.signal) == (None, signal.SIGUSR1)


def test_standard_input_is_empty(tmp_path: Path) -> None:
    """A command that reads its input sees its end at once."""
    assert shell("cat; echo done", tmp_path).output == "done\n"


def test_only_the_given_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is inherited but what is given, and the mark."""
    monkeypatch.setenv("LEAK", "1")
    names = {line.partition("=")[0] for line in shell("env", tmp_path).output.splitlines()}
    assert names - {"SHLVL", "_", "PWD", "OLDPWD"} == {"PATH", spawn.MARK}


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["no-such-program"], "not found"),
        (["./plain"], "not executable"),
        (["./no-interpreter"], "not found"),
        (["echo", "a\0b"], "null byte"),
        (["echo", "x" * 3_000_000], "too long"),
    ],
)
def test_what_cannot_be_started_says_why(tmp_path: Path, argv: list[str], says: str) -> None:
    """A command that cannot be started is a failure that names it and the reason."""
    (tmp_path / "plain").write_text("echo")
    (tmp_path / "no-interpreter").write_text("#!/no/such/interpreter\n")
    (tmp_path / "no-interpreter").chmod(0o755)
    with pytest.raises(ToolError, match=says) as caught:
        asyncio.run(spawn.run(argv, cwd=tmp_path, env=ENV, timeout=5))
    assert caught.value.code == "failed"
    assert argv[0] in str(caught.value)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    """A working folder that is gone is the failure, not the command."""
    with pytest.raises(ToolError, match="gone"):
        shell("true", tmp_path / "gone")


def test_long_output_keeps_both_ends(tmp_path: Path) -> None:
    """Output over the bound shows beginning and end and says how much is left out; all of it is beside it."""
    ended = shell("seq 100000", tmp_path, bound=1000)
    everything = "".join(f"{n}\n" for n in range(1, 100_001)).encode()
    head, _, rest = ended.output.partition("\n[… ")
    number, _, tail = rest.partition(" bytes left out …]\n")
    assert everything.startswith(head.encode())
    assert everything.endswith(tail.encode())
    assert len(head) + len(tail) == 1000
    assert int(number) == len(everything) - 1000
    assert ended.full == everything


def test_output_of_exactly_the_bound_is_whole(tmp_path: Path) -> None:
    """The bound itself still fits; one byte more does not."""
    assert shell("printf %1000s x", tmp_path, bound=1000).output == "x".rjust(1000)
    assert "1 bytes left out" in shell("printf %1001s x", tmp_path, bound=1000).output


def test_no_character_is_cut_in_half(tmp_path: Path) -> None:
    """Where output is shortened inside a character, the whole character is left out."""
    for bound in range(40, 48):
        ended = shell("printf 'aä€😀%.0s' {1..50}", tmp_path, bound=bound)
        assert "\ufffd" not in ended.output


def test_bytes_that_are_no_text_are_replaced(tmp_path: Path) -> None:
    """Bytes that are not UTF-8 become replacement characters."""
    assert shell(r"printf '\xff\xfe ok'", tmp_path).output == "\ufffd\ufffd ok"


def test_huge_output_is_bounded(tmp_path: Path) -> None:
    """Output beyond what is kept is counted, not held: the kept part ends in what is missing."""
    ended = shell("head -c 60000000 /dev/zero | tr '\\0' x", tmp_path, keep=1_000_000)
    assert ended.full is not None
    assert ended.full.startswith(b"x" * 1_000_000 + b"\n[59000000 more bytes")
    assert f"{60_000_000 - 16_384} bytes left out" in ended.output


def test_watchers_get_all_of_it_while_it_runs(tmp_path: Path) -> None:
    """The pieces handed out make up the whole output, also where a read cuts a character."""
    pieces: list[str] = []
    ended = shell("printf '€%.0s' {1..70000}; printf '\\xe2'", tmp_path, on_output=pieces.append)
    assert "".join(pieces) == "€" * 70_000 + "\ufffd"
    assert ended.full is not None


def test_a_daemon_neither_holds_the_call_nor_survives(tmp_path: Path) -> None:
    """A child that left the session and holds the pipe open is killed once the command itself has ended."""
    command = "setsid bash -c 'echo $$ > pid; exec sleep 600' & while [ ! -s pid ]; do :; done; echo started"
    ended = shell(command, tmp_path)
    assert (ended.exit_code, ended.output) == (0, "started\n")
    assert [alive(pid) for pid in pids(tmp_path)] == [False]


def test_output_of_a_child_that_outlives_the_command_is_waited_for(tmp_path: Path) -> None:
    """What a child still writes within the short grace after the command's own end is part of the output."""
    assert shell("{ sleep 0.1; echo late; } & echo first", tmp_path).output == "first\nlate\n"


TREE = """
trap '' TERM
echo $$ > pid0
bash -c 'trap "" TERM; echo $$ > pid1; while :; do sleep 600; done' &
setsid bash -c 'echo $$ > pid2; exec sleep 600' >/dev/null 2>&1 &
(setsid bash -c 'echo $$ > pid3; exec sleep 600' >/dev/null 2>&1 &) &
env -i setsid /bin/bash -c 'echo $$ > pid4; exec /bin/sleep 600' &
echo partial
while :; do sleep 600; done
"""


def test_a_timeout_ends_the_whole_tree(tmp_path: Path) -> None:
    """After the timeout nothing lives: neither who ignores SIGTERM, left the session, was orphaned, nor lost the mark."""
    for timeout in (1.0, 5.0, 19.0):  # a slow machine needs longer until all five have begun
        ended = shell(TREE, tmp_path, timeout=timeout)
        if len(pids(tmp_path)) == 5:
            break
    assert ended.timed_out
    assert (ended.exit_code, ended.signal, ended.output) == (None, signal.SIGKILL, "partial\n")
    assert len(pids(tmp_path)) == 5
    assert not any(map(alive, pids(tmp_path)))


def test_who_heeds_sigterm_may_finish(tmp_path: Path) -> None:
    """A command is asked before it is killed, and what it says then is kept."""
    ended = shell("trap 'echo cleaned; exit 3' TERM; while :; do sleep 0.05; done", tmp_path, timeout=0.5)
    assert (ended.timed_out, ended.exit_code) == (True, 3)
    assert ended.output.endswith("cleaned\n")


def test_cancelling_ends_the_whole_tree(tmp_path: Path) -> None:
    """Cancelling the task leaves no process and no zombie, and the task is cancelled."""

    async def scenario() -> None:
        task = asyncio.create_task(spawn.run(["bash", "-c", TREE], cwd=tmp_path, env=ENV, timeout=None))
        await until(lambda: len(pids(tmp_path)) == 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
    assert not any(map(alive, pids(tmp_path)))
    assert not [line for line in children_of(os.getpid()) if line.endswith(" Z")]


def children_of(parent: int) -> list[str]:
    """Pid and state of every child, zombies included."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, ppid = stat.read_text().rpartition(") ")[2].split()[:2]
        except OSError:
            continue
        if int(ppid) == parent:
            found.append(f"{stat.parent.name} {state}")
    return found


def test_a_second_cancel_does_not_save_the_tree(tmp_path: Path) -> None:
    """Cancelled again during the grace, everything is killed at once."""

    async def scenario() -> None:
        task = asyncio.create_task(spawn.run(["bash", "-c", TREE], cwd=tmp_path, env=ENV, timeout=None))
        await until(lambda: len(pids(tmp_path)) == 5)
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
    assert not any(map(alive, pids(tmp_path)))


def test_cancelling_at_any_moment_of_the_start_leaves_nothing(tmp_path: Path) -> None:
    """However early the cancel comes, no process of the call remains."""

    async def scenario(turns: int) -> None:
        task = asyncio.create_task(
            spawn.run(["sleep", "600"], cwd=tmp_path, env=ENV, timeout=None, mark=f"early-{turns}-{tmp_path}")
        )
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    for turns in range(8):
        asyncio.run(scenario(turns))
        assert spawn.kill_marked(f"early-{turns}-{tmp_path}") == 0


def test_nothing_stays_open(tmp_path: Path) -> None:
    """However a call ends, its file descriptors are closed."""

    async def scenario() -> None:
        before = os.listdir("/proc/self/fd")
        await spawn.run(["seq", "200000"], cwd=tmp_path, env=ENV, timeout=20)
        await spawn.run(["sleep", "600"], cwd=tmp_path, env=ENV, timeout=0.1)
        with pytest.raises(ToolError):
            await spawn.run(["no-such-program"], cwd=tmp_path, env=ENV, timeout=20)
        task = asyncio.create_task(spawn.run(["sleep", "600"], cwd=tmp_path, env=ENV, timeout=None))
        await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.wait([task])
        assert len(os.listdir("/proc/self/fd")) == len(before)

    asyncio.run(scenario())


def test_a_moving_target_is_hit(tmp_path: Path) -> None:
    """Processes that begin a successor in a new session and exit, over and over, are caught."""
    chain = tmp_path / "chain"
    chain.write_text('#!/bin/bash\n[ "$1" -lt 3000 ] || exit\nsetsid "$0" $(($1 + 1)) &\n')
    chain.chmod(0o755)
    mark = f"chain-{tmp_path}"
    shell(f"{chain} 0; {chain} 0; {chain} 0", tmp_path, mark=mark)
    assert spawn.kill_marked(mark) == 0


def test_leftovers_of_a_crash_are_found_by_their_mark(tmp_path: Path) -> None:
    """After kill -9 of the process that ran it, a call's processes are killed by mark; those of another call live on."""
    script = (
        "import asyncio, pathlib, sys\nfrom endstop.host import spawn\nname, folder = sys.argv[1:]\n"
        "command = ['bash', '-c', f'echo $$ > {name}; exec sleep 600']\n"
        f"asyncio.run(spawn.run(command, cwd=pathlib.Path(folder), env={ENV!r}, timeout=None, mark=name + folder))"
    )
    source = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(spawn.__file__).parents[2]), *sys.path])}
    runners = [
        subprocess.Popen([sys.executable, "-c", script, name, str(tmp_path)], env=source) for name in ("pid-mine", "pid-other")
    ]
    asyncio.run(until(lambda: len(pids(tmp_path)) == 2))
    for runner in runners:
        runner.kill()
        runner.wait()
    mine, other = (int((tmp_path / name).read_text()) for name in ("pid-mine", "pid-other"))
    assert (alive(mine), alive(other)) == (True, True)
    assert spawn.kill_marked(f"pid-mine{tmp_path}") == 1
    assert (alive(mine), alive(other)) == (False, True)
    assert spawn.kill_marked(f"pid-other{tmp_path}") == 1


def test_a_call_inside_a_call_belongs_to_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Endstop itself runs inside a call, the marks add up."""
    monkeypatch.setenv(spawn.MARK, "outer")
    outer, _, inner = shell(f"printf %s ${spawn.MARK}", tmp_path, mark="inner").output.partition(",")
    assert outer == "outer"
    assert len(inner) == 32


def test_many_at_once(tmp_path: Path) -> None:
    """Calls side by side do not end one another."""

    async def scenario() -> list[spawn.Ended]:
        calls = (spawn.run(["bash", "-c", f"sleep 0.2; echo {n}"], cwd=tmp_path, env=ENV, timeout=20) for n in range(30))
        return await asyncio.gather(*calls)

    assert [ended.output for ended in asyncio.run(scenario())] == [f"{n}\n" for n in range(30)]


def test_the_table_of_ps_is_read() -> None:
    """Where there is no /proc, lines of ps give the same: zombies left out, marks found behind the command."""
    table = (
        "  401   400   401 S+   sleep 600 PATH=/bin ENDSTOP_CALL=aa,bb HOME=/x\n"
        "  402   401   401 Z    (bash)\n"
        "  403     1   403 Ss   /usr/sbin/daemon\n"
    )
    found = list(spawn._from_ps(table))
    assert [(p.pid, p.parent, p.group) for p in found] == [(401, 400, 401), (403, 1, 403)]
    assert {"aa", "bb"} <= found[0].marks


def test_standard_input_is_given_whole_and_nobody_has_to_read_it(tmp_path: Path) -> None:
    """A megabyte comes through byte by byte; a command that reads none of it ends as well."""
    content = b"x" * 1_000_000
    assert shell("wc -c", tmp_path, stdin=content).output.strip() == "1000000"
    assert shell("true", tmp_path, stdin=content).exit_code == 0


def test_errors_can_be_kept_apart_and_are_bounded(tmp_path: Path) -> None:
    """What goes to stderr is not in the output then, and is shortened on its own."""
    script = "echo out; echo err >&2; head -c 100000 /dev/zero | tr '\\0' e >&2"
    ended = shell(script, tmp_path, apart=True, bound=1000)
    assert ended.output == "out\n"
    assert ended.errors.startswith("err\neee")
    assert "bytes left out" in ended.errors
    assert len(ended.errors) < 1100
    assert shell("echo e >&2", tmp_path).errors == ""
