"""Verdicts over journals: nothing that was changed ever passes as what was written."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from endstop.core.chain import genesis, link
from endstop.core.events import GapNoted
from endstop.errors import UsageError
from endstop.store.open import open_store
from endstop.store.verify import Verdict, verify_file, verify_lines
from tests.store.journals import Pen, control, journal, new, note

FIVE = journal("s", 5)
HEAD = (5, link(FIVE[-1]))


def edited(lines: list[bytes], number: int) -> list[bytes]:
    """One line with another text in it, its links as they were."""
    return [line.replace(b"note ", b"fake ") if at == number else line for at, line in enumerate(lines, 1)]


def rechained(lines: list[bytes]) -> list[bytes]:
    """Lines whose links were computed anew, by somebody who knows how."""
    prev, done = genesis("s"), []
    for line in lines:
        done.append(line.replace(msgspec.json.decode(line)["prev"].encode(), prev.encode()))
        prev = link(done[-1])
    return done


def forked(lines: list[bytes]) -> list[bytes]:
    """A second line 4 beside the first, written by a process that had not seen it."""
    other = Pen("s", 3, link(lines[2])).line(note("another"))
    return [*lines[:4], other, *lines[4:]]


CASES: dict[str, tuple[Callable[[list[bytes]], list[bytes]], str, int | None]] = {
    "untouched": (lambda lines: lines, "ok", None),
    "grown since": (lambda lines: journal("s", 9), "ok", None),
    "HC-CHAIN-005 never written": (lambda lines: [], "missing", 1),
    "HC-CHAIN-010 edited in the middle": (lambda lines: edited(lines, 3), "tampered", 3),
    "edited at the end": (lambda lines: edited(lines, 5), "rewritten", 5),
    "HC-CHAIN-012 swapped": (lambda lines: [lines[0], lines[2], lines[1], *lines[3:]], "tampered", 2),
    "HC-CHAIN-014 link removed": (lambda lines: [*lines[:2], lines[2].replace(b'"prev"', b'"gone"'), *lines[3:]], "tampered", 3),
    "link changed": (
        lambda lines: [*lines[:2], lines[2].replace(link(lines[1]).encode(), b"0" * 64), *lines[3:]],
        "tampered",
        3,
    ),
    "HC-CHAIN-015 number changed": (
        lambda lines: [*lines[:2], lines[2].replace(b'"seq":3', b'"seq":4'), *lines[3:]],
        "tampered",
        3,
    ),
    "HC-CHAIN-017 start edited": (lambda lines: [lines[0].replace(b"test", b"text"), *lines[1:]], "tampered", 1),
    "HC-CHAIN-018 start removed": (lambda lines: lines[1:], "missing", 1),
    "HC-CHAIN-022 edited and chained anew": (lambda lines: rechained(edited(lines, 3)), "rewritten", 5),
    "HC-CHAIN-026 field added": (lambda lines: [*lines[:2], lines[2][:-1] + b',"extra":1}', *lines[3:]], "tampered", 3),
    "HC-CHAIN-027 deleted": (lambda lines: [], "missing", 1),
    "another session's": (lambda lines: journal("t", 5), "tampered", 1),
    "one taken out": (lambda lines: [*lines[:2], *lines[3:]], "missing", 3),
    "one doubled": (lambda lines: [*lines[:3], lines[2], *lines[3:]], "tampered", 4),
    "an earlier one again": (lambda lines: [*lines[:4], lines[1], *lines[4:]], "tampered", 5),
    "forked": (forked, "fork", 4),
    "cut": (lambda lines: lines[:3], "truncated", 4),
    "cut inside the last line": (lambda lines: [*lines[:4], lines[4][:-40]], "torn_tail", 5),
    "cut inside an earlier line": (lambda lines: [*lines[:2], lines[2][:-40]], "truncated", 3),
    "HC-CHAIN-031 glued on to a torn line": (lambda lines: [*lines[:3], lines[3][:-40] + lines[4]], "truncated", 4),
    "a line of garbage": (lambda lines: [*lines[:2], b"\xff\x00", *lines[2:]], "tampered", 3),
}


@pytest.mark.parametrize("name", CASES)
def test_verdicts(name: str) -> None:
    """Each way to change a journal has its verdict and names the first line it concerns."""
    change, verdict, first_bad = CASES[name]
    found = verify_lines("s", change(FIVE), head=HEAD)
    assert (found.verdict, found.first_bad) == (verdict, first_bad)
    assert bool(found.why) == (verdict != "ok")


@given(st.integers(0, 4), st.data())
def test_no_changed_byte_passes(number: int, data: st.DataObject) -> None:
    """Changing any one byte of any line is seen."""
    at = data.draw(st.integers(0, len(FIVE[number]) - 1))
    byte = data.draw(st.integers(0, 255))
    assume(byte != FIVE[number][at])
    lines = list(FIVE)
    lines[number] = lines[number][:at] + bytes([byte]) + lines[number][at + 1 :]
    assert verify_lines("s", lines, head=HEAD).verdict != "ok"


@given(st.lists(st.sampled_from(range(5)), max_size=8))
def test_no_other_order_passes(order: list[int]) -> None:
    """Dropping, doubling or exchanging lines in any way is seen."""
    assume(order != list(range(5)))
    assert verify_lines("s", [FIVE[number] for number in order], head=HEAD).verdict != "ok"


@given(st.lists(st.binary(max_size=40) | st.sampled_from(FIVE), max_size=6))
def test_garbage_has_a_verdict(lines: list[bytes]) -> None:
    """Whatever the bytes, there is a verdict and no error."""
    assume(lines != FIVE)
    assert verify_lines("s", lines, head=HEAD).verdict != "ok"


def test_without_a_remembered_head() -> None:
    """Without a head the end cannot be vouched for, and the verdict says so; all else is seen."""
    found = verify_lines("s", FIVE[:4])
    assert (found.verdict, found.count, found.head) == ("ok", 4, (4, link(FIVE[3])))
    assert "no head" in found.why
    assert verify_lines("s", edited(FIVE, 3)).verdict == "tampered"
    assert verify_lines("s", []).verdict == "missing"
    assert verify_lines("s", [], head=(0, genesis("s"))).verdict == "ok"


def test_gaps_are_named() -> None:
    """A gap that the record itself admits is no fault, but it is shown."""
    pen = Pen("s")
    lines = [*pen.lines("a"), pen.line(GapNoted(from_=3, to=7, reason="lost by the sender"))]
    found = verify_lines("s", lines, head=(3, pen.hash))
    assert (found.verdict, found.gaps) == ("ok", [(3, 7)])


def test_a_file_verifies_itself(tmp_path: Path) -> None:
    """An exported file needs nothing else to be checked; one that cannot be read is a usage error."""
    path = tmp_path / "s.jsonl"

    def check(content: bytes, head: tuple[int, str] | None = None) -> Verdict:
        path.write_bytes(content)
        return verify_file(path, head=head)

    whole = b"".join(line + b"\n" for line in FIVE)
    assert check(whole, HEAD) == verify_lines("s", FIVE, head=HEAD)
    assert check(whole[:-1], HEAD).verdict == "ok"
    assert check(whole[:-30]).verdict == "torn_tail"
    assert check(whole.replace(b"note 3", b"note 8")).first_bad == 3
    assert check(b"").verdict == "missing"
    assert check(whole.replace(b"\n", b"\n\n")).verdict == "tampered"
    assert check(b"no json").verdict == "torn_tail"
    with pytest.raises(UsageError, match="cannot be read"):
        verify_file(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="cannot be read"):
        verify_file(tmp_path)


CHANGES = {
    "DELETE FROM events WHERE seq > 3": "truncated",
    "DELETE FROM events WHERE seq = 3": "missing",
    "DELETE FROM events": "missing",
    "UPDATE events SET line = CAST(replace(CAST(line AS TEXT), 'note', 'fake') AS BLOB) WHERE seq = 3": "tampered",
    "UPDATE sessions SET head = 4": "rewritten",
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_database(tmp_path: Path, change: str) -> None:
    """Changes made to the database behind our back are seen against the registry."""

    async def scene() -> None:
        async with open_store(tmp_path) as store:
            await store.create(new("s"))
            await store.append("s", FIVE, first=1, generation=None, durable=False)
            assert (await store.verify("s")).verdict == "ok"
            plant = sqlite3.connect(store.path)
            plant.execute(change)
            plant.commit()
            plant.close()
            assert (await store.verify("s")).verdict == CHANGES[change]
            with pytest.raises(UsageError, match="no such session"):
                await store.verify("never")

    asyncio.run(scene())


def test_lines_behind_the_end(tmp_path: Path) -> None:
    """A line that was put into the table without going through the store is tampering, however well it is chained."""

    async def scene() -> None:
        async with open_store(tmp_path) as store:
            await store.create(new("s"))
            await store.append("s", FIVE[:4], first=1, generation=None, durable=False)
            plant = sqlite3.connect(store.path)
            plant.execute("INSERT INTO events VALUES ('s', 5, 'session.error', ?)", (FIVE[4],))
            plant.commit()
            plant.close()
            found = await store.verify("s")
            assert (found.verdict, found.first_bad) == ("tampered", 5)

    asyncio.run(scene())


def test_two_honest_writers_are_no_tampering(tmp_path: Path) -> None:
    """Two stores that append to one journal in turn leave a chain that holds (HC-CHAIN-032)."""

    async def scene() -> None:
        async with open_store(tmp_path) as one, open_store(tmp_path) as two:
            await one.create(new("s"))
            for store in (one, one, two, one):
                await store.append_control("s", control("s", "x"))
            assert (await one.verify("s")).verdict == "ok"
            assert verify_file(await two.transcript("s")).count == 5

    asyncio.run(scene())
