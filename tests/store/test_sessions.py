"""The registry: beginning, listing, finding."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from endstop.errors import UsageError
from endstop.store.mirror import folder_of
from endstop.store.open import open_store
from endstop.store.sessions import TITLE
from tests.store.journals import Pen, control, new, note


def test_finding_by_the_beginning_of_an_id(tmp_path: Path) -> None:
    """A unique beginning or the whole id finds a session; none, several, or wildcards are clear errors."""

    async def scene() -> None:
        async with open_store(tmp_path) as store:
            for name in ("abc", "abd", "ab", "x_y", "x-y"):
                await store.create(new(name))
            assert (await store.find("abc")).id == "abc"
            assert (await store.find("ab")).id == "ab"
            assert (await store.find("x_")).id == "x_y"
            wrong = {"a": "several ids begin like this: ab, abc, abd", "q": "no session", "%": "no session", "": "needed"}
            for prefix, message in wrong.items():
                with pytest.raises(UsageError, match=message):
                    await store.find(prefix)

    asyncio.run(scene())


def test_the_latest_comes_first(tmp_path: Path) -> None:
    """Listings are ordered by the last event and can be narrowed to a folder."""

    async def scene() -> None:
        async with open_store(tmp_path) as store:
            for name, folder in (("a", "/w"), ("b", "/w"), ("c", "/v")):
                await store.create(new(name, folder))
            await store.append_control("a", control("a", "x", "y"))
            assert [row.id for row in await store.sessions()] == ["a", "c", "b"]
            assert [row.id for row in await store.sessions(Path("/w"))] == ["a", "b"]
            newest = await store.newest(Path("/w"))
            assert newest is not None
            assert newest.id == "a"
            assert await store.newest(Path("/nowhere")) is None

    asyncio.run(scene())


def test_descriptions_are_short(tmp_path: Path) -> None:
    """Listings keep the start of the objective, and what is described later replaces it."""

    async def scene() -> None:
        async with open_store(tmp_path) as store:
            await store.create(msgspec.structs.replace(new("s"), objective="o" * 5000))
            assert (await store.find("s")).objective == "o" * TITLE
            await store.describe("s", model="openai:gpt")
            await store.describe("s", objective="another")
            row = await store.find("s")
            assert (row.objective, row.model) == ("another", "openai:gpt")
            with pytest.raises(UsageError, match="no such session"):
                await store.describe("t", model="m")

    asyncio.run(scene())


def test_ids_that_cannot_be_used(tmp_path: Path) -> None:
    """An id twice, an empty or long one, and a salt that is no number are refused."""

    async def scene() -> None:
        async with open_store(tmp_path) as store:
            await store.create(new("s"))
            for bad in (new("s"), new(""), new("x" * 81), msgspec.structs.replace(new("t"), salt="salty")):
                with pytest.raises(UsageError):
                    await store.create(bad)
            assert len(await store.sessions()) == 1

    asyncio.run(scene())


def test_every_id_has_its_own_mirror(tmp_path: Path) -> None:
    """Ids that differ in case, slashes or dots never share a file, and none leads out of the folder (HC-CHAIN-035)."""
    names = ["a/b", "a_b", "A_b", "../a", "..", "a%2fb", "ä", "a b"]
    assert len({folder_of(name) for name in names}) == len(names)

    async def scene() -> None:
        async with open_store(tmp_path) as store:
            for name in names:
                await store.create(new(name))
                await store.append(name, stamped(name), first=1, generation=None, durable=False)
                path = await store.transcript(name)
                assert path.parent.parent == tmp_path / "sessions"
                assert path.resolve() == path
                assert path.read_bytes() == (await store.lines(name))[0] + b"\n"

    asyncio.run(scene())


def stamped(session_id: str) -> list[bytes]:
    """One line of a session whose id may hold anything; the id of the event itself is plain."""
    pen = Pen(session_id)
    pen.session_id = "plain"
    return [pen.line(note(session_id))]
