"""Paths: what leads out is noticed, links are never followed, ignore rules hold."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from endstop.host.paths import inside, open_beneath, open_regular, shown, walk


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc/passwd", "out/passwd", "a\0b"])
def test_what_leads_out_is_not_inside(tmp_path: Path, path: str) -> None:
    """Dots, absolute paths, links and NUL bytes do not make a path of the workspace out of a foreign one."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "out").symlink_to("/etc")
    assert inside(root, path) is None


def test_inside_follows_links_that_stay(tmp_path: Path) -> None:
    """A path through a link inside the workspace is the path of what it leads to, also before that exists."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert inside(tmp_path, "link/new.txt") == "real/new.txt"
    assert inside(tmp_path, str(tmp_path / "real")) == "real"
    assert inside(tmp_path, ".") == "."


def test_open_beneath_follows_no_link(tmp_path: Path) -> None:
    """Neither the last part nor a folder on the way may be a link, and ".." is refused."""
    root = tmp_path / "root"
    (root / "a").mkdir(parents=True)
    (tmp_path / "secret").write_text("s")
    (root / "file").symlink_to(tmp_path / "secret")
    (root / "folder").symlink_to(tmp_path)
    for path in ("file", "folder/secret", "a/../../secret"):
        with pytest.raises(OSError):  # noqa: PT011  which error differs by system
            open_beneath(root, path)


def test_open_beneath_does_not_block_on_a_fifo(tmp_path: Path) -> None:
    """A FIFO without a writer opens at once and can be seen for what it is."""
    os.mkfifo(tmp_path / "fifo")
    handle = open_beneath(tmp_path, "fifo")
    try:
        assert stat.S_ISFIFO(os.fstat(handle).st_mode)
    finally:
        os.close(handle)


def test_walk_names_files_and_links_only(tmp_path: Path) -> None:
    """FIFOs and .git are left out; a link is named, a loop of links ends nothing."""
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text("")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_text("")
    (tmp_path / "a" / "loop").symlink_to("..")
    os.mkfifo(tmp_path / "fifo")
    assert sorted(walk(tmp_path)) == ["a/file", "a/loop"]


def test_walk_obeys_ignore_files(tmp_path: Path) -> None:
    """The deepest .gitignore that says something decides; caches are left out; None takes everything."""
    (tmp_path / "sub" / "__pycache__").mkdir(parents=True)
    (tmp_path / ".gitignore").write_text("*.log\n")
    (tmp_path / "sub" / ".gitignore").write_text("!keep.log\n")
    for name in ("a.log", "sub/keep.log", "sub/b.log", "sub/__pycache__/m.pyc", "sub/m.py"):
        (tmp_path / name).write_text("")
    assert sorted(walk(tmp_path)) == [".gitignore", "sub/.gitignore", "sub/keep.log", "sub/m.py"]
    assert "sub/__pycache__/m.pyc" in set(walk(tmp_path, "sub", ignore=None))


def test_shown_is_one_printable_line() -> None:
    """Newlines, escape sequences and bytes that are no UTF-8 are spelled out."""
    assert shown(os.fsdecode(b"a\n\x1b[31m\xff.txt")) == r"a\n\x1b[31m\xff.txt"
    assert shown("ä b.txt") == "ä b.txt"


def test_what_is_no_file_is_not_opened_as_one(tmp_path: Path) -> None:
    """A folder, a FIFO and a missing file are an OSError, and no descriptor stays open."""
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    before = len(os.listdir("/dev/fd"))
    for name in ("folder", "fifo", "none"):
        with pytest.raises(OSError):  # noqa: PT011  which error differs
            open_regular(tmp_path, name)
    assert len(os.listdir("/dev/fd")) == before


@pytest.mark.parametrize("make", [lambda path: path.mkdir(), os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_an_ignore_file_that_is_none_ignores_nothing(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """A folder, a FIFO or a link named .gitignore stops no walk."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "x").write_text("")
    make(tmp_path / ".gitignore")
    make(tmp_path / "sub" / ".gitignore")
    assert "sub/x" in set(walk(tmp_path))


def test_a_bad_pattern_costs_only_itself(tmp_path: Path) -> None:
    """Patterns that are none, and those whose matching would not end, are left out; the others hold."""
    (tmp_path / ".gitignore").write_bytes(b"[z-a]\n!\n\xff[\n" + b"*a" * 30 + b"b\n*.log\n")
    for name in ("a.log", "a" * 200, "kept"):
        (tmp_path / name).write_text("")
    assert sorted(walk(tmp_path)) == [".gitignore", "a" * 200, "kept"]


def test_a_folder_that_cannot_be_looked_into_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is unreadable or lies too deep does not stop a walk, and whoever asks gets its name."""
    deep = tmp_path.joinpath(*["d"] * 210)
    deep.mkdir(parents=True)
    (tmp_path / "locked").mkdir()
    (tmp_path / "x").write_text("")
    real = os.scandir

    def scandir(path: str) -> object:
        if path.rstrip("/").endswith("locked"):
            raise PermissionError(path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    lost: list[str] = []
    assert list(walk(tmp_path, lost=lost)) == ["x"]
    assert "locked" in lost
    assert [path.count("/") for path in lost if path.startswith("d")] == [200]
