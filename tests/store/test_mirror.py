"""The mirrors: always the journal's bytes, whatever happened to the files."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from endstop.store.open import open_store
from tests.store.journals import Pen, control, new


def begun(home: Path) -> tuple[Path, bytes]:
    """A closed store with one journal; its mirror and what must stand there."""

    async def scene() -> tuple[Path, bytes]:
        async with open_store(home) as store:
            await store.create(new("s"))
            await store.append("s", Pen("s").lines(*"abcdefgh"), first=1, generation=None, durable=False)
            return await store.transcript("s"), b"".join(line + b"\n" for line in await store.lines("s"))

    return asyncio.run(scene())


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 40)


def add(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b'{"torn": ')


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("harm", [cut, add, empty, Path.unlink])
@pytest.mark.parametrize("append", [False, True])
def test_a_torn_mirror_is_healed_on_open(tmp_path: Path, harm: Callable[[Path], None], append: bool) -> None:
    """A mirror that is cut, too long, gone or empty is whole again after the store was opened, and appends go on behind it."""
    path, whole = begun(tmp_path)
    assert path.read_bytes() == whole
    harm(path)

    async def scene() -> None:
        async with open_store(tmp_path) as store:
            if append:
                await store.append_control("s", control("s", "more"))
            assert (await store.transcript("s")).read_bytes() == b"".join(line + b"\n" for line in await store.lines("s"))
            assert store.warnings == []

    asyncio.run(scene())
    assert path.read_bytes().startswith(whole)


def test_a_mirror_that_cannot_be_written(tmp_path: Path) -> None:
    """A mirror that fails never fails an append; it is told once, and healed when it can be written again."""
    path, _ = begun(tmp_path)
    path.unlink()
    path.mkdir()

    async def scene() -> None:
        async with open_store(tmp_path) as store:
            for text in "xyz":
                await store.append_control("s", control("s", text))
                await store.transcript("s")
            assert len([warning for warning in store.warnings if "cannot be written" in warning]) == 1
            path.rmdir()
            await store.append_control("s", control("s", "healed"))
            assert (await store.transcript("s")).read_bytes() == b"".join(line + b"\n" for line in await store.lines("s"))

    asyncio.run(scene())


def test_two_stores_mirror_one_journal(tmp_path: Path) -> None:
    """Two writers of one journal that take turns leave a whole mirror, even if one of them never wrote its own part."""

    async def scene() -> None:
        async with open_store(tmp_path) as one, open_store(tmp_path) as two:
            await one.create(new("s"))
            for turn in range(6):
                await (one, two)[turn % 2].append_control("s", control("s", f"turn {turn}", "more"))
            await one.transcript("s")
            path = await two.transcript("s")
            os.truncate(path, 100)
            await one.append_control("s", control("s", "a"))
            await two.append_control("s", control("s", "b"))
            await one.transcript("s")
            assert (await two.transcript("s")).read_bytes() == b"".join(line + b"\n" for line in await one.lines("s"))

    asyncio.run(scene())
