"""Opening: what is made, what is refused, what survives."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from endstop.errors import StoreCorrupt, StoreFull, UsageError
from endstop.store import sqlite
from endstop.store.open import open_store
from endstop.store.tables import metadata
from tests.store.journals import Pen, new, scribe


def made(home: Path) -> Path:
    """A home with a database; returns its path."""

    async def scene() -> Path:
        async with open_store(home) as store:
            await store.create(new("s"))
            lines = Pen("s").lines(*["x" * 3000] * 100)
            await store.append("s", lines, first=1, generation=None, durable=True)
            return store.path

    return asyncio.run(scene())


def test_a_new_home_is_private(tmp_path: Path) -> None:
    """Folder, database, log and mirrors can be read by their owner only."""
    home = tmp_path / "deep" / "home"
    path = made(home)
    mirror = home / "sessions" / "s" / "events.jsonl"
    found = [file.stat().st_mode & 0o777 for file in (home, path, mirror.parent, mirror)]
    assert found == [0o700, 0o600, 0o700, 0o600]
    store = open_store(home)
    assert path.with_name("endstop.db-wal").stat().st_mode & 0o777 == 0o600
    asyncio.run(store.close())


def test_migrations_build_the_tables(tmp_path: Path) -> None:
    """The schema that the migrations leave is the one the code speaks to."""
    engine = sqlite.connect(made(tmp_path), writer=False)
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    engine.dispose()


def test_processes_that_open_a_new_home_together(tmp_path: Path) -> None:
    """Several processes may make the database at the same time."""
    command = (
        "import asyncio, pathlib, sys; from endstop.store.open import open_store;"
        "asyncio.run(open_store(pathlib.Path(sys.argv[1])).close())"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    many = [subprocess.Popen([sys.executable, "-c", command, str(tmp_path / "h")], env=env) for _ in range(3)]
    assert [one.wait() for one in many] == [0, 0, 0]


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"this is no database, whatever its name says. " * 200, StoreCorrupt),
        (b"SQLite format 3\0" + b"\xff" * 8000, StoreCorrupt),
    ],
)
def test_a_file_that_is_no_database(tmp_path: Path, content: bytes, error: type[Exception]) -> None:
    """A file that is no database is named with the remedy, and stays as it was."""
    path = tmp_path / "endstop.db"
    path.write_bytes(content)
    with pytest.raises(StoreCorrupt) as caught:
        open_store(tmp_path)
    assert str(path) in str(caught.value)
    assert "move the file away" in str(caught.value)
    assert path.read_bytes() == content


def test_somebody_elses_database(tmp_path: Path) -> None:
    """A database of another program is not touched."""
    with sqlite3.connect(tmp_path / "endstop.db") as other:
        other.execute("CREATE TABLE recipes(name)")
    other.close()
    with pytest.raises(StoreCorrupt, match="not Endstop's"):
        open_store(tmp_path)


def test_a_newer_schema(tmp_path: Path) -> None:
    """A database of a newer version is refused with the remedy."""
    with sqlite3.connect(made(tmp_path)) as plant:
        plant.execute("UPDATE alembic_version SET version_num='9999'")
    plant.close()
    with pytest.raises(UsageError, match="upgrade Endstop"):
        open_store(tmp_path)


@pytest.mark.parametrize("home", ["/proc/nowhere", "/dev/null", "/dev/null/below"])
def test_a_home_that_cannot_be_made(home: str) -> None:
    """A home that cannot be made is a usage error that names ENDSTOP_HOME."""
    with pytest.raises(UsageError, match="ENDSTOP_HOME"):
        open_store(Path(home))


def test_damaged_pages(tmp_path: Path) -> None:
    """Damage inside the database is reported as such by whoever meets it, and the mirror still holds the journal."""
    path = made(tmp_path)
    whole = bytearray(path.read_bytes())
    whole[4096 * 12 :] = os.urandom(len(whole) - 4096 * 12)
    path.write_bytes(whole)

    async def scene() -> None:
        async with open_store(tmp_path) as store:
            with pytest.raises(StoreCorrupt, match="cannot be read"):
                await store.lines("s")

    asyncio.run(scene())
    assert len((tmp_path / "sessions" / "s" / "events.jsonl").read_bytes().splitlines()) == 101


@pytest.mark.parametrize("acknowledged", [1, 4, 23, 60])
def test_a_killed_writer(tmp_path: Path, acknowledged: int) -> None:
    """After kill -9 at any point every acknowledged line is there, the chain holds, blobs are there, the mirror is whole."""
    home = tmp_path / "home"

    async def begin() -> None:
        async with open_store(home) as store:
            await store.create(new("s"))
            await store.release(await store.acquire("s"))

    asyncio.run(begin())
    for turn in range(2):
        writer = scribe("write", home, "s")
        assert writer.stdout is not None
        assert writer.stdout.readline() == f"crashed={turn > 0}\n"
        seen = [int(writer.stdout.readline()) for _ in range(acknowledged)]
        writer.kill()
        seen += [int(line) for line in writer.communicate()[0].splitlines()]

        async def look(last: int) -> None:
            async with open_store(home) as store:
                lines = await store.lines("s")
                assert len(lines) >= last
                verdict = await store.verify("s")
                assert (verdict.verdict, verdict.erased) == ("ok", [])
                assert verdict.blobs >= 1
                assert (await store.transcript("s")).read_bytes() == b"".join(line + b"\n" for line in lines)

        asyncio.run(look(seen[-1]))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of three megabytes."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", place], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"needs mount: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


@pytest.mark.needs("root", "mount")
def test_a_full_disk(small_disk: Path) -> None:
    """On a full disk an append fails as such and writes nothing; once there is room the session goes on."""
    home, ballast = small_disk / "home", small_disk / "ballast"

    async def scene() -> None:
        async with open_store(home) as store:
            await store.create(new("s"))
            lease = await store.acquire("s")
            pen = Pen("s")
            await store.append("s", pen.lines("a"), first=1, generation=lease.generation, durable=True)
            with ballast.open("wb", buffering=0) as file:
                for block in (64 * 1024, 512, 1):
                    try:
                        while True:
                            file.write(bytes(block))
                    except OSError:
                        continue
            before = await store.position("s")
            full = Pen.at("s", before)
            store.append("s", full.lines("x" * 12000, *["y" * 12000] * 40), first=3, generation=lease.generation, durable=False)
            with pytest.raises(StoreFull, match="nothing was written"):
                await store.append("s", full.lines("z"), first=full.seq, generation=lease.generation, durable=True)
            assert await store.position("s") == before
            ballast.unlink()
            answer = await store.append("s", pen.lines("b"), first=3, generation=lease.generation, durable=True)
            assert (answer.moved, answer.head) == (False, 3)
            assert (await store.verify("s")).verdict == "ok"
            assert (await store.transcript("s")).read_bytes().count(b"\n") == 3

    asyncio.run(scene())


@pytest.mark.needs("root", "mount")
def test_no_room_for_a_home(small_disk: Path) -> None:
    """Where there is no room to make the database, that is what is said."""
    with contextlib.suppress(OSError):
        (small_disk / "ballast").write_bytes(bytes(4 * 1024 * 1024))
    with pytest.raises(StoreFull, match="free some space"):
        open_store(small_disk / "home")


@pytest.mark.needs("root", "mount")
def test_a_read_only_home(small_disk: Path) -> None:
    """A home on a read-only disk is a usage error that names the remedy."""
    made(small_disk / "home")
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(UsageError, match="ENDSTOP_HOME"):
        open_store(small_disk / "home")


def test_the_log_does_not_grow_without_bound(tmp_path: Path) -> None:
    """However much is appended, the write-ahead log stays within its limit."""

    async def scene() -> None:
        async with open_store(tmp_path) as store:
            await store.create(new("s"))
            pen = Pen("s")
            pages = sqlite.WAL_PAGES * 4096
            for _ in range(12):
                first = pen.seq + 1
                await store.append("s", pen.lines(*["x" * 15000] * 200), first=first, generation=None, durable=False)
            assert (tmp_path / "endstop.db-wal").stat().st_size < 2 * pages
            assert store.path.stat().st_size > pages

    asyncio.run(scene())


def test_an_erased_blob_leaves_no_trace(tmp_path: Path) -> None:
    """After a blob was erased and the store closed its content is nowhere in the database."""
    secret = "the secret words " * 2000

    async def scene() -> None:
        async with open_store(tmp_path) as store:
            await store.create(new("s"))
            pen = Pen("s")
            lines = pen.lines("head" * 300 + secret + "tail" * 300)
            await store.append("s", lines, first=1, generation=None, durable=False, blobs=pen.blobs)
            assert secret in (await store.entries("s"))[1].event.message  # type: ignore[attr-defined]
            assert await store.erase("s", pen.blobs[0][0])
            assert not await store.erase("s", pen.blobs[0][0])
            assert "… erased: " in (await store.entries("s"))[1].event.message  # type: ignore[attr-defined]
            verdict = await store.verify("s")
            assert (verdict.verdict, verdict.erased) == ("ok", [pen.blobs[0][0]])

    asyncio.run(scene())
    assert b"secret words" not in b"".join(file.read_bytes() for file in tmp_path.glob("endstop.db*"))


def test_alembic_is_loaded_only_when_needed(tmp_path: Path) -> None:
    """Opening a database of the right schema does not load the migration library, which costs as much as all the rest."""
    made(tmp_path)
    command = (
        "import asyncio, pathlib, sys; from endstop.store.open import open_store;"
        "asyncio.run(open_store(pathlib.Path(sys.argv[1])).close()); sys.exit('alembic' in sys.modules)"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", command, str(tmp_path)], env=env, check=False).returncode == 0
