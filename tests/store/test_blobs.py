"""Long texts beside the journal."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from endstop.core.codec import ENDS, SPILL
from endstop.core.events import Result, ToolComplete
from endstop.errors import StoreCorrupt, UsageError
from endstop.store.blobs import blob_of, inflate, is_blob, pack, seal, spill
from endstop.store.open import open_store
from tests.store.journals import SALT, Pen, new, note

SIZES = [("x", SPILL + 1), ("ä", SPILL), ("𝄞", SPILL // 4 + 1), ("x", SPILL), ("é", SPILL // 2)]
LONG = st.sampled_from(SIZES).map(lambda size: size[0] * size[1])
TEXT = st.one_of(st.text(max_size=8), LONG)
FAKE = st.fixed_dictionaries({"blob": TEXT, "size": st.integers(), "head": TEXT, "tail": TEXT})
DATA: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), TEXT, FAKE),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["result", "full", "blob", "head", "a"]), inner, max_size=3),
        st.fixed_dictionaries({"blob": inner, "size": inner, "head": inner, "tail": inner}),
    ),
    max_leaves=6,
)


@given(DATA)
@example({"arguments": {"blob": "0" * 64, "size": 1, "head": "", "tail": ""}})
@example({"result": {"full": "x" * (SPILL + 1)}})
def test_spill_and_inflate_undo_each_other(data: Any) -> None:
    """Whatever the data, also if it looks like a blob, it comes back as it was; no long text stays behind."""
    spilled, kept = spill(data, SALT)
    assert inflate(spilled, dict(kept).get) == data
    assert all(seal(SALT, content) == name for name, content in kept)
    assert all(len(content) <= SPILL for content in texts(spilled) if content not in whole(data))


def texts(data: Any) -> list[bytes]:
    """All texts in data."""
    if isinstance(data, str):
        return [data.encode()]
    inner = data if isinstance(data, list) else data.values() if isinstance(data, dict) else []
    return [text for item in inner for text in texts(item)]


def whole(data: Any) -> list[bytes]:
    """Texts in the one place that is never touched."""
    result = data.get("result") if isinstance(data, dict) else None
    return texts(result.get("full")) if isinstance(result, dict) else []


def test_an_erased_text_keeps_its_ends() -> None:
    """Of an erased text head and tail remain, with a marker that says how much is gone."""
    text = "a" * ENDS + "middle" * SPILL + "z" * ENDS
    spilled, _ = spill([text], SALT)
    assert inflate(spilled, lambda _: None) == [f"{'a' * ENDS}\n[… erased: {len(text)} bytes …]\n{'z' * ENDS}"]


def test_a_kept_blob_stays_an_object(tmp_path: Path) -> None:
    """The full output beside a shortened result is read back as the blob it is, its long neighbour as text."""
    blob, content = blob_of("all of it " * 5000, SALT)
    event = ToolComplete(
        tool_call_id="c", success=True, executed=True, result=Result(content="y" * 20000, full=blob), hash="h", norm_hash="n"
    )

    async def scene() -> None:
        async with open_store(tmp_path) as store:
            await store.create(new("s"))
            pen = Pen("s")
            await store.append("s", [pen.line(event)], first=1, generation=None, durable=False, blobs=[content, *pen.blobs])
            (entry,) = await store.entries("s")
            assert entry.event == event
            assert await store.get("s", blob.blob) == content[1]

    asyncio.run(scene())


@pytest.mark.parametrize("text", ["short", "x" * SPILL])
def test_short_texts_stay_in_the_line(text: str) -> None:
    """A text of up to 16 KiB is no blob, even if the whole line is longer."""
    data, kept = pack(note(text), SALT)
    assert text.encode() in data
    assert kept == []


def test_put_get_erase(tmp_path: Path) -> None:
    """Bytes are kept once per session under a hash that depends on the session's salt."""

    async def scene() -> None:
        async with open_store(tmp_path) as store:
            await store.create(new("s"))
            name = await store.put("s", b"\xff\x00")
            assert name == await store.put("s", b"\xff\x00") == seal(SALT, b"\xff\x00") != seal("00", b"\xff\x00")
            assert await store.get("s", name) == b"\xff\x00"
            assert await store.get("t", name) is None
            assert await store.erase("s", name)
            assert await store.get("s", name) is None
            with pytest.raises(UsageError, match="no such session"):
                await store.put("t", b"x")

    asyncio.run(scene())


@pytest.mark.parametrize("change", ["data = x'00'", "data = x'ff'"])
def test_an_altered_blob_is_found(tmp_path: Path, change: str) -> None:
    """A blob whose content changed is tampering, and is not read as if it were the text."""

    async def scene() -> None:
        async with open_store(tmp_path) as store:
            await store.create(new("s"))
            pen = Pen("s")
            await store.append("s", pen.lines("l" * 20000), first=1, generation=None, durable=False, blobs=pen.blobs)
            plant = sqlite3.connect(store.path)
            plant.execute(f"UPDATE blobs SET {change}")
            plant.commit()
            plant.close()
            verdict = await store.verify("s")
            assert (verdict.verdict, verdict.first_bad) == ("tampered", 2)
            with pytest.raises(StoreCorrupt, match="was altered"):
                await store.entries("s")

    asyncio.run(scene())


def test_what_looks_like_a_blob() -> None:
    """Only an object with exactly the four fields of their types is one."""
    good = {"blob": "b", "size": 1, "head": "", "tail": ""}
    assert is_blob(good)
    assert not any(is_blob(other) for other in (good | {"more": 1}, good | {"size": "1"}, good | {"blob": None}, {}))
