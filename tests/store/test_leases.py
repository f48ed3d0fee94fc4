"""Leases and workspace locks: one holder at a time."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import msgspec
import pytest

from endstop.errors import LeaseLost, StoreCorrupt, UsageError
from endstop.store import leases
from endstop.store.leases import Holder
from endstop.store.open import open_store
from tests.store.journals import Pen, new, scribe


def test_of_two_processes_one_gets_the_lease(tmp_path: Path) -> None:
    """Processes that reach for a lease at the same moment: exactly one gets it; the other is told who has it."""

    async def begin() -> None:
        async with open_store(tmp_path) as store:
            await store.create(new("s"))

    asyncio.run(begin())
    racers = [scribe("lease", tmp_path, "s") for _ in range(3)]
    answers = []
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    for racer in racers:
        assert racer.stdout is not None
        answers.append(racer.stdout.readline().strip())
    assert sorted(answers) == ["1", "refused", "refused"]

    async def held() -> None:
        async with open_store(tmp_path) as store:
            winner = racers[answers.index("1")]
            with pytest.raises(UsageError, match=f"process {winner.pid} .*drives this session.*kill {winner.pid}"):
                await store.acquire("s")
            winner.kill()
            winner.communicate()
            lease = await store.acquire("s")
            assert (lease.generation, lease.crashed) == (2, True)

    asyncio.run(held())
    for racer in racers:
        racer.communicate("stop\n") if racer.poll() is None else None


def test_a_lease_given_back_was_no_crash(tmp_path: Path) -> None:
    """After a release the next holder gets a new generation and does not see a crash; the old lease is worth nothing."""

    async def scene() -> None:
        async with open_store(tmp_path) as store:
            await store.create(new("s"))
            first = await store.acquire("s")
            assert not first.crashed
            await store.release(first)
            with pytest.raises(LeaseLost):
                await store.renew(first)
            second = await store.acquire("s")
            assert (second.generation, second.crashed) == (2, False)
            await store.release(first)
            assert (await store.renew(second)).generation == 2
            with pytest.raises(LeaseLost):
                await store.append("s", Pen("s").lines(), first=1, generation=first.generation, durable=False)

    asyncio.run(scene())


def test_a_lease_that_ran_out_can_be_taken(tmp_path: Path) -> None:
    """A lease of another machine holds until it runs out, renewed or not; then it counts as a crash."""
    now = [1000.0]
    elsewhere = Holder(1, "1", "another-machine pid:[1]")

    async def scene() -> None:
        async with open_store(tmp_path, clock=lambda: now[0]) as store:
            await store.create(new("s"))
            lease = await store.acquire("s", elsewhere)
            now[0] += leases.LEASE - 1
            lease = await store.renew(lease)
            now[0] += leases.LEASE - 1
            with pytest.raises(UsageError, match="another-machine drives"):
                await store.acquire("s")
            now[0] += 1
            taken = await store.acquire("s")
            assert (taken.generation, taken.crashed) == (2, True)
            with pytest.raises(LeaseLost):
                await store.renew(lease)

    asyncio.run(scene())


def test_a_pid_that_was_given_again_is_another_process(tmp_path: Path) -> None:
    """A living process with the pid of a holder but another start time does not keep the lease alive."""

    async def scene() -> None:
        async with open_store(tmp_path) as store:
            await store.create(new("s"))
            await store.acquire("s", msgspec.structs.replace(leases.this_process(), start="1"))
            assert (await store.acquire("s")).crashed

    asyncio.run(scene())


def test_a_changed_tail_is_not_built_upon(tmp_path: Path) -> None:
    """If the last line in the database is not the one that was written, nobody can go on from there."""

    async def scene() -> None:
        async with open_store(tmp_path) as store:
            await store.create(new("s"))
            await store.append("s", Pen("s").lines("a"), first=1, generation=None, durable=False)
            plant = sqlite3.connect(store.path)
            plant.execute("UPDATE events SET line = replace(CAST(line AS TEXT), '\"a\"', '\"b\"') WHERE seq = 2")
            plant.commit()
            plant.close()
            with pytest.raises(StoreCorrupt, match="endstop verify"):
                await store.acquire("s")
            verdict = await store.verify("s")
            assert (verdict.verdict, verdict.first_bad) == ("rewritten", 2)

    asyncio.run(scene())


def test_one_live_goal_per_folder(tmp_path: Path) -> None:
    """A folder is locked by one session, through any path to it; its own sub-agents share it; it is free with the lease."""
    folder, link = tmp_path / "work", tmp_path / "link"
    folder.mkdir()
    link.symlink_to(folder)

    async def scene() -> None:
        async with open_store(tmp_path / "home") as store:
            for name, parent in (("one", None), ("two", None), ("child", "one"), ("grandchild", "child")):
                await store.create(new(name, parent=parent))
            one, two, grandchild = [await store.acquire(name) for name in ("one", "two", "grandchild")]
            await store.lock_workspace(folder, one)
            await store.lock_workspace(folder, one)
            await store.lock_workspace(folder, grandchild)
            with pytest.raises(UsageError, match=r"session one .*works in this folder"):
                await store.lock_workspace(link, two)
            await store.release(grandchild)
            with pytest.raises(UsageError):
                await store.lock_workspace(link, two)
            await store.release(one)
            await store.lock_workspace(link, two)
            with pytest.raises(LeaseLost):
                await store.lock_workspace(folder, one)

    asyncio.run(scene())


@pytest.mark.parametrize(("first", "second"), [("work", "work/inner/deep"), ("work/inner/deep", "work")])
def test_a_folder_in_a_locked_folder_is_locked(tmp_path: Path, first: str, second: str) -> None:
    """Of two goals in folders one inside the other the second is refused; a sub-agent is not, nor is a neighbour."""
    (tmp_path / "work/inner/deep").mkdir(parents=True)
    (tmp_path / "workshop").mkdir()

    async def scene() -> None:
        async with open_store(tmp_path / "home") as store:
            for name, parent in (("one", None), ("two", None), ("child", "one")):
                await store.create(new(name, parent=parent))
            one, two, child = [await store.acquire(name) for name in ("one", "two", "child")]
            await store.lock_workspace(tmp_path / first, one)
            with pytest.raises(UsageError, match=rf"session one .*works in .*{first}"):
                await store.lock_workspace(tmp_path / second, two)
            await store.lock_workspace(tmp_path / second, child)
            await store.lock_workspace(tmp_path / first, one)
            await store.lock_workspace(tmp_path / "workshop", two)
            for lease in (child, one, two):
                await store.release(lease)
            await store.lock_workspace(tmp_path / second, await store.acquire("two"))

    asyncio.run(scene())


def test_the_lock_of_a_dead_holder_is_void(tmp_path: Path) -> None:
    """A workspace locked by a process that is gone can be locked by the next goal."""
    gone = scribe("control", tmp_path / "other", "none")
    gone.kill()
    gone.communicate()
    dead = Holder(gone.pid, "1", leases.this_host())

    async def scene() -> None:
        async with open_store(tmp_path) as store:
            await store.create(new("one"))
            await store.create(new("two"))
            await store.lock_workspace(tmp_path, await store.acquire("one", dead))
            await store.lock_workspace(tmp_path, await store.acquire("two"))
            again = await store.acquire("one")
            with pytest.raises(UsageError, match="session two"):
                await store.lock_workspace(tmp_path, again)

    asyncio.run(scene())
