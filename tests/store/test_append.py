"""Appends: together, apart, against each other."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
import threading
from pathlib import Path

import pytest

from endstop.core.chain import link
from endstop.errors import LeaseLost, StoreError, UsageError
from endstop.ports import Appended
from endstop.store.journal import Draft
from endstop.store.open import Store, open_store
from tests.store.journals import Pen, control, new, note, scribe


async def begun(store: Store, session_id: str) -> tuple[Pen, int]:
    """A session with its first line, held by this process."""
    await store.create(new(session_id))
    lease = await store.acquire(session_id)
    pen = Pen(session_id)
    await store.append(session_id, pen.lines(), first=1, generation=lease.generation, durable=False, phase="working")
    return pen, lease.generation


def test_two_hundred_appends_at_once(tmp_path: Path) -> None:
    """Appends of two hundred sessions made in one tick are all written, each to its own journal, with few commits."""

    async def scene() -> None:
        async with open_store(tmp_path) as store:
            held = [await begun(store, f"s{number}") for number in range(200)]
            before = commits(tmp_path)
            appended = await asyncio.gather(
                *(
                    store.append(pen.session_id, pen.lines("a", "b", "c"), first=2, generation=generation, durable=True)
                    for pen, generation in held
                )
            )
            assert {(answer.moved, answer.head) for answer in appended} == {(False, 4)}
            assert commits(tmp_path) - before <= 3
            for pen, _ in held:
                verdict = await store.verify(pen.session_id)
                assert (verdict.verdict, verdict.head) == ("ok", (4, pen.hash))

    asyncio.run(scene())


def commits(home: Path) -> int:
    """Commit frames in the write-ahead log: those whose header names the size of the database."""
    log = (home / "endstop.db-wal").read_bytes()
    page = int.from_bytes(log[8:12], "big")
    return sum(log[at + 4 : at + 8] != bytes(4) for at in range(32, len(log), page + 24))


def test_a_journal_that_moved_is_not_written_to(tmp_path: Path) -> None:
    """An append for a place that is taken writes nothing and says where the head is."""

    async def scene() -> None:
        async with open_store(tmp_path) as store:
            pen, generation = await begun(store, "s")
            head = await store.append_control("s", control("s", "from elsewhere"))
            answer = await store.append("s", pen.lines("late"), first=2, generation=generation, durable=False)
            assert (head, answer.moved, answer.head) == (2, True, 2)
            assert [entry.event.message for entry in await store.entries("s", 1)] == ["from elsewhere"]  # type: ignore[attr-defined]

    asyncio.run(scene())


def test_an_overtaken_append_does_not_fork(tmp_path: Path) -> None:
    """If an append nobody awaited lost its place to one of equal length, the next one, of the right number, is refused too."""

    async def scene() -> None:
        async with open_store(tmp_path) as store:
            pen, generation = await begun(store, "s")
            await store.append_control("s", control("s", "overtakes"))
            store.append("s", pen.lines("lost"), first=2, generation=generation, durable=False)
            answer = await store.append("s", pen.lines("built on it"), first=3, generation=generation, durable=False)
            assert (answer.moved, answer.head) == (True, 2)
            assert (await store.verify("s")).verdict == "ok"

    asyncio.run(scene())


def test_bad_neighbours_harm_nobody(tmp_path: Path) -> None:
    """In one group a lost lease, an unknown session, a moved journal and a broken table row fail alone."""

    async def scene() -> None:
        async with open_store(tmp_path) as store:
            good, generation = await begun(store, "good")
            lost, old = await begun(store, "lost")
            _, held = await begun(store, "moved")
            clash, holding = await begun(store, "clash")
            plant = sqlite3.connect(store.path)
            plant.execute("INSERT INTO events VALUES ('clash', 2, 'x', 'x')")
            plant.commit()
            plant.close()
            results = await asyncio.gather(
                store.append("lost", lost.lines("x"), first=2, generation=old - 1, durable=False),
                store.append("nobody", Pen("nobody").lines(), first=1, generation=None, durable=False),
                store.append("moved", Pen("moved", 8).lines("x"), first=9, generation=held, durable=False),
                store.append("clash", clash.lines("x"), first=2, generation=holding, durable=False),
                store.append("good", good.lines("x"), first=2, generation=generation, durable=False),
                return_exceptions=True,
            )
            assert [type(result).__name__ for result in results[:2]] == ["LeaseLost", "StoreError"]
            assert results[2] == Appended(True, 1)
            assert isinstance(results[3], StoreError)
            assert results[4] == Appended(False, 2)

    asyncio.run(scene())


def test_an_error_nobody_awaited_meets_the_next_append(tmp_path: Path) -> None:
    """A failed append that was not awaited fails the session's next append, once; controls are not affected."""

    async def scene() -> None:
        async with open_store(tmp_path) as store:
            pen, generation = await begun(store, "s")
            store.append("s", Pen("s", 1, pen.hash).lines("x"), first=2, generation=generation + 1, durable=False)
            assert await store.append_control("s", control("s", "a control")) == 2
            pen = Pen.at("s", await store.position("s"))
            with pytest.raises(LeaseLost):
                await store.append("s", Pen("s", 2, pen.hash).lines("y"), first=3, generation=generation, durable=False)
            assert not (await store.append("s", pen.lines("z"), first=3, generation=generation, durable=False)).moved

    asyncio.run(scene())


def test_a_new_lease_is_not_blamed(tmp_path: Path) -> None:
    """A failure of the holder before does not reach the holder after."""

    async def scene() -> None:
        async with open_store(tmp_path) as store:
            await store.create(new("s"))
            lease = await store.acquire("s")
            store.append("s", Pen("s").lines(), first=1, generation=lease.generation + 7, durable=False)
            await store.release(lease)
            again = await store.acquire("s")
            assert not (await store.append("s", Pen("s").lines(), first=1, generation=again.generation, durable=False)).moved

    asyncio.run(scene())


@pytest.mark.parametrize("lines", [[], [b""], [b'{"seq":1}'], [Pen("s", 4).line(note("x"))], [Pen("s").line(note("x")) + b"\n"]])
def test_lines_that_are_not_stamped_for_their_place(tmp_path: Path, lines: list[bytes]) -> None:
    """What is no event, or an event for another place, is refused before it is handed over."""

    async def scene() -> None:
        async with open_store(tmp_path) as store:
            await store.create(new("s"))
            with pytest.raises(StoreError, match="line"):
                await store.append("s", lines, first=1, generation=None, durable=False)

    asyncio.run(scene())


def test_two_processes_and_a_holder_on_one_journal(tmp_path: Path) -> None:
    """While two other processes append controls the holder goes on; nothing is lost, doubled or forked, and he is told."""

    async def scene() -> None:
        async with open_store(tmp_path) as store:
            _, generation = await begun(store, "s")
            told: list[int] = []
            store.watch("s", lambda _, head: told.append(head), after=1)
            others = [scribe("control", tmp_path, "s", 30) for _ in range(2)]
            mine = 0
            while any(other.poll() is None for other in others) or mine < 30:
                pen = Pen.at("s", await store.position("s"))
                answer = await store.append("s", pen.lines(f"mine {mine}"), first=pen.seq, generation=generation, durable=False)
                mine += not answer.moved
            for other in others:
                other.communicate()
            texts = [entry.event.message for entry in await store.entries("s", 1)]  # type: ignore[attr-defined]
            assert len(texts) == len(set(texts)) == mine + 60
            assert (await store.verify("s")).verdict == "ok"
            assert told
            assert (await store.transcript("s")).read_bytes() == b"".join(line + b"\n" for line in await store.lines("s"))

    asyncio.run(scene())


def test_a_foreign_append_is_noticed(tmp_path: Path) -> None:
    """The watcher hears of another process's append and of a control made here, not of the holder's own appends."""

    async def scene() -> None:
        async with open_store(tmp_path) as store:
            pen, generation = await begun(store, "s")
            heard: asyncio.Queue[tuple[str, int]] = asyncio.Queue()
            notify = lambda session_id, head: heard.put_nowait((session_id, head))  # noqa: E731
            store.watch("s", notify, after=1)
            await store.append("s", pen.lines("own"), first=2, generation=generation, durable=False)
            scribe("control", tmp_path, "s", 1).communicate()
            assert await heard.get() == ("s", 3)
            await store.append_control("s", control("s", "here"))
            assert await heard.get() == ("s", 4)
            store.unwatch("s", notify)
            await store.append_control("s", control("s", "unheard"))
            store.watch("s", notify, after=4)
            assert await heard.get() == ("s", 5)
            assert heard.empty()

    asyncio.run(scene())


def test_a_control_without_lines_changes_nothing(tmp_path: Path) -> None:
    """A control that finds nothing to say leaves the journal alone; one with a phase changes it."""

    async def scene() -> None:
        async with open_store(tmp_path) as store:
            await begun(store, "s")
            assert await store.append_control("s", lambda position: Draft([])) == 1
            await store.append_control("s", control("s", "stop", phase="paused"))
            assert (await store.find("s")).phase == "paused"
            with pytest.raises(UsageError, match="no such session"):
                await store.append_control("t", control("t", "x"))

    asyncio.run(scene())


def test_the_stored_bytes_are_the_bytes(tmp_path: Path) -> None:
    """What was stamped is read, exported and mirrored unchanged, and the registry knows its end."""

    async def scene() -> None:
        async with open_store(tmp_path) as store:
            pen, generation = await begun(store, "s")
            lines = await store.lines("s") + pen.lines("ä\u2028", '"quoted"\\')
            await store.append("s", lines[1:], first=2, generation=generation, durable=True)
            with (tmp_path / "out.jsonl").open("wb") as target:
                assert await store.export("s", target) == 3
            whole = b"".join(line + b"\n" for line in lines)
            assert (tmp_path / "out.jsonl").read_bytes() == whole == (await store.transcript("s")).read_bytes()
            row = await store.find("s")
            assert (row.head, row.hash, row.time) == (3, link(lines[-1]), 4.0)
            assert row.hash == hashlib.sha256(lines[-1]).hexdigest()

    asyncio.run(scene())


def test_closing_writes_what_was_handed_over(tmp_path: Path) -> None:
    """Appends nobody awaited are there after the store was closed; later ones are refused."""

    async def scene() -> None:
        store = open_store(tmp_path)
        pen, generation = await begun(store, "s")
        for text in "abc":
            store.append("s", pen.lines(text), first=pen.seq, generation=generation, durable=False)
        await store.close()
        with pytest.raises(StoreError, match="closed"):
            store.append("s", pen.lines("d"), first=pen.seq, generation=generation, durable=False)
        async with open_store(tmp_path) as again:
            assert (await again.position("s")).seq == 4

    asyncio.run(scene())


def test_lines_that_do_not_fit_are_not_tried_for_ever(tmp_path: Path) -> None:
    """A control whose lines are not chained to the end of the journal is an error, not an endless retry."""

    async def scene() -> None:
        async with open_store(tmp_path) as store:
            await begun(store, "s")
            with pytest.raises(StoreError, match="not stamped"):
                await store.append_control("s", lambda at: Draft(Pen("s", at.seq, "0" * 64).lines("x")))

    asyncio.run(scene())


def test_a_snapshot_is_of_one_moment(tmp_path: Path) -> None:
    """Events and end of the journal read together fit, while another store appends."""

    async def scene() -> None:
        async with open_store(tmp_path) as store, open_store(tmp_path) as other:
            await begun(store, "s")

            async def disturb() -> None:
                for number in range(50):
                    await other.append_control("s", control("s", f"{number}"))

            task = asyncio.create_task(disturb())
            while not task.done():
                entries, position = await store.snapshot("s")
                assert (entries[-1].seq, entries[-1].id) == (position.seq, position.id)
            await task

    asyncio.run(scene())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_nobody_waits_for_a_writer_that_failed(tmp_path: Path) -> None:
    """If the writing thread ends by a defect, whoever waits gets an error, and so does whoever comes later."""

    async def scene() -> None:
        async with open_store(tmp_path) as store:
            pen, generation = await begun(store, "s")
            waited = threading.Event()
            broken = asyncio.ensure_future(store._writer.run(lambda _: waited.wait() and 1 // 0))
            await asyncio.sleep(0)
            later = store.append("s", pen.lines("x"), first=2, generation=generation, durable=False)
            asyncio.get_running_loop().call_soon(waited.set)
            results = await asyncio.gather(broken, later, return_exceptions=True)
            assert [str(result).count("writer failed") for result in results] == [1, 1]
            with pytest.raises(StoreError, match="writer failed"):
                await store.append("s", pen.lines("y"), first=3, generation=generation, durable=False)

    asyncio.run(scene())
