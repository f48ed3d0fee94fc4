"""Fingerprint and snapshot: equal exactly as long as what matters is equal, and the diff since the start."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pytest

from endstop.host import bounds, fingerprint
from endstop.host import git as git_module
from endstop.host.bounds import Abandoned, Bounds, bounded
from endstop.host.snapshot import DIFF, Snapshot

Change = Callable[[Path], object]


def git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout.strip()


def commit(root: Path) -> None:
    git(root, "add", "-A")
    git(root, "commit", "-qm", "more")


@pytest.fixture(params=["git", "folder", "without git"])
def root(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same few files in a repository, in a plain folder, and in a plain folder on a machine without git."""
    root = tmp_path / "work"
    (root / "src").mkdir(parents=True)
    (root / ".gitignore").write_text("*.log\n")
    (root / "src" / "a.py").write_text("a = 1\n")
    (root / "src" / "b.py").write_text("b = 1\n")
    if request.param == "git":
        git(root, "init", "-q")
        commit(root)
    if request.param == "without git":
        monkeypatch.setenv("PATH", str(tmp_path))
    return root


@pytest.fixture
def snapshot(root: Path, tmp_path: Path) -> Snapshot:
    return Snapshot(root, tmp_path / "state")


def _replace(path: Path, text: str) -> None:
    times = path.stat()
    path.write_text(text)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


CHANGES: dict[str, Change] = {
    "content": lambda root: (root / "src/a.py").write_text("a = 2\n"),
    "content of equal size, old time put back": lambda root: _replace(root / "src/a.py", "a = 3\n"),
    "mode": lambda root: (root / "src/a.py").chmod(0o755),
    "new": lambda root: (root / "src/c.py").write_text(""),
    "gone": lambda root: (root / "src/b.py").unlink(),
    "renamed": lambda root: (root / "src/b.py").rename(root / "src/d.py"),
    "link": lambda root: (root / "link").symlink_to("src/a.py"),
    "file to folder": lambda root: (
        (root / "src/b.py").unlink(),
        (root / "src/b.py").mkdir(),
        (root / "src/b.py/x").write_text(""),
    ),
    "name that is no UTF-8": lambda root: (root / os.fsdecode(b"\xff\n'\".txt")).write_text("odd"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_what_matters_changes_the_value(root: Path, snapshot: Snapshot, change: Change) -> None:
    """Every change of path, mode or content gives a new value, and the diff since the start names it."""
    before = snapshot.scan()
    start = snapshot.keep(before)
    assert snapshot.scan().fingerprint == before.fingerprint
    change(root)
    now = snapshot.scan()
    assert now.fingerprint != before.fingerprint
    changes = snapshot.since(start, now)
    assert changes.paths
    assert changes.diff


QUIET: dict[str, Change] = {
    "ignored": lambda root: (root / "x.log").write_text("noise"),
    "cache": lambda root: ((root / "src/__pycache__").mkdir(), (root / "src/__pycache__/a.pyc").write_text("")),
    "touched": lambda root: os.utime(root / "src/a.py"),
    "FIFO": lambda root: os.mkfifo(root / "fifo"),
    "empty folder": lambda root: (root / "empty").mkdir(),
    "edited back": lambda root: ((root / "src/a.py").write_text("else"), (root / "src/a.py").write_text("a = 1\n")),
}


@pytest.mark.parametrize("change", QUIET.values(), ids=QUIET.keys())
def test_what_does_not_matter_keeps_the_value(root: Path, snapshot: Snapshot, change: Change) -> None:
    """Ignored files, caches, times and special files are no change, and there is no diff."""
    before = snapshot.scan()
    start = snapshot.keep(before)
    change(root)
    now = snapshot.scan()
    assert now.fingerprint == before.fingerprint
    assert snapshot.since(start, now).paths == []


def test_an_ignored_path_counts_when_asked_for(root: Path, snapshot: Snapshot) -> None:
    """Deliverables and inputs count even where ignore rules leave them out, absent ones too."""
    absent = snapshot.scan(["out.log"]).fingerprint
    (root / "out.log").write_text("result")
    there = snapshot.scan(["out.log"]).fingerprint
    (root / "out.log").write_text("resulT")
    assert len({absent, there, snapshot.scan(["out.log"]).fingerprint}) == 3


def test_an_edit_within_the_same_time_stamp_is_seen(root: Path, snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hash taken right after the file was written is not trusted later, even if size, times and inode are equal."""
    path = root / "src" / "new.py"
    path.write_text("x = 1\n")
    monkeypatch.setattr(fingerprint, "_identity", lambda found: (found.st_size,))
    first = snapshot.scan().fingerprint
    path.write_text("x = 2\n")
    assert snapshot.scan().fingerprint != first


def test_an_unchanged_file_is_hashed_once(root: Path, snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once its times are old enough a file is not opened again until something of it changes."""
    (root / "src" / "new.py").write_text("x = 1\n")
    opened: list[str] = []
    real = fingerprint.open_regular
    monkeypatch.setattr(fingerprint, "open_regular", lambda root, path: opened.append(path) or real(root, path))
    later = time.time_ns() + 10 * fingerprint.RACY_NS
    monkeypatch.setattr(fingerprint.time, "time_ns", lambda: later)
    snapshot.scan()
    assert "src/new.py" in opened
    opened.clear()
    snapshot.scan()
    assert opened == []


def test_links_are_never_followed(root: Path, snapshot: Snapshot, tmp_path: Path) -> None:
    """What a link points to outside, and a loop of links, is neither read nor part of the value."""
    (tmp_path / "outside").write_text("one")
    (root / "out").symlink_to(tmp_path / "outside")
    (root / "loop").symlink_to("loop")
    start = snapshot.keep(snapshot.scan())
    before = snapshot.scan().fingerprint
    (tmp_path / "outside").write_text("SECRET")
    assert snapshot.scan().fingerprint == before
    (root / "more").symlink_to(tmp_path / "outside")
    assert "SECRET" not in snapshot.since(start, snapshot.scan()).diff


def test_a_socket_does_not_stop_the_look(root: Path, snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket in the workspace is passed over, also where it is asked for."""
    monkeypatch.chdir(root)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        assert snapshot.scan(["socket"]).seen["socket"] == ("other", "")


def test_what_cannot_be_read_is_named(root: Path, snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unreadable file is said to be so in the diff and stops nothing."""
    start = snapshot.keep(snapshot.scan())
    (root / "src" / "locked.py").write_text("x")
    real = fingerprint.open_regular

    def refuse(root: Path, path: str) -> BinaryIO:
        if path.endswith("locked.py"):
            raise PermissionError(path)
        return real(root, path)

    monkeypatch.setattr(fingerprint, "open_regular", refuse)
    changes = snapshot.since(start, snapshot.scan())
    assert "could not be read: src/locked.py" in changes.diff
    assert changes.paths == ["src/locked.py"]


def test_the_diff_shows_only_what_came_after_the_start(root: Path, snapshot: Snapshot, tmp_path: Path) -> None:
    """Changes made before the start are no part of it, and a new process gives the same diff."""
    (root / "src" / "a.py").write_text("a = 'before'\n")
    (root / "untracked.py").write_text("old\n")
    start = snapshot.keep(snapshot.scan())
    (root / "src" / "b.py").write_text("b = 'after'\n")
    (root / "untracked.py").write_text("new\n")
    (root / "blob.bin").write_bytes(b"\0\1\2")
    changes = snapshot.since(start, snapshot.scan())
    assert changes.paths == ["blob.bin", "src/b.py", "untracked.py"]
    assert changes.diff.startswith("blob.bin | binary\nsrc/b.py | +1 -1\nuntracked.py | +1 -1\n")
    assert "-old\n+new" in changes.diff
    assert "before" not in changes.diff
    again = Snapshot(root, tmp_path / "state")
    assert again.since(start, again.scan()) == changes


def test_the_diff_is_bounded_and_fair(root: Path, snapshot: Snapshot) -> None:
    """A huge change keeps its bound and does not crowd a small one out; the list on top names both."""
    start = snapshot.keep(snapshot.scan())
    (root / "aaa.txt").write_text("".join(f"{number}\n" for number in range(8_000)))
    (root / "huge.txt").write_bytes(b"x" * (3 << 20))
    (root / "zzz.txt").write_text("the small one\n")
    diff = snapshot.since(start, snapshot.scan()).diff
    assert len(diff) <= DIFF + 200
    assert "aaa.txt | +8000 -0" in diff
    assert "+the small one" in diff
    assert "huge.txt" in diff


def test_many_files_are_counted(root: Path, snapshot: Snapshot) -> None:
    """Of very many changed files the first are listed and the rest counted."""
    start = snapshot.keep(snapshot.scan())
    for number in range(300):
        (root / f"n{number:03}.txt").write_text("x\n")
    changes = snapshot.since(start, snapshot.scan())
    assert len(changes.paths) == 300
    assert "… and 240 more files" in changes.diff
    assert len(changes.diff) <= DIFF + 200


def test_own_state_inside_the_workspace_is_not_seen(root: Path) -> None:
    """Endstop's own folder never counts, even if somebody put it into the workspace."""
    snapshot = Snapshot(root, root / ".endstop" / "state")
    before = snapshot.scan()
    snapshot.keep(before)
    assert snapshot.scan().fingerprint == before.fingerprint


# ------------------------------------------------------------------------------------------------------------- git alone


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    root.mkdir()
    git(root, "init", "-q")
    (root / "a.txt").write_text("one\n")
    commit(root)
    return root


def test_a_commit_changes_head_but_not_the_diff(repo: Path, tmp_path: Path) -> None:
    """What was committed since the start is still part of what changed since the start."""
    snapshot = Snapshot(repo, tmp_path / "state")
    start = snapshot.keep(snapshot.scan())
    (repo / "a.txt").write_text("two\n")
    dirty = snapshot.scan()
    commit(repo)
    committed = snapshot.scan()
    assert committed.head != dirty.head
    assert snapshot.since(start, committed) == snapshot.since(start, dirty)
    assert snapshot.since(start, committed).paths == ["a.txt"]


def test_staging_and_index_flags_hide_nothing(repo: Path, tmp_path: Path) -> None:
    """Neither the index nor its flags, nor ignore rules the agent adds to .git, make a change invisible."""
    snapshot = Snapshot(repo, tmp_path / "state")
    before = snapshot.scan().fingerprint
    git(repo, "update-index", "--assume-unchanged", "a.txt")
    (repo / ".git" / "info").mkdir(exist_ok=True)
    (repo / ".git" / "info" / "exclude").write_text("new.txt\n")
    (repo / "new.txt").write_text("new\n")
    (repo / "a.txt").write_text("two\n")
    edited = snapshot.scan()
    assert {"a.txt", "new.txt"} <= edited.seen.keys()
    git(repo, "add", "-f", "new.txt")
    assert snapshot.scan().fingerprint == edited.fingerprint
    git(repo, "rm", "-qf", "--cached", "new.txt")
    (repo / "new.txt").unlink()
    (repo / "a.txt").write_text("one\n")
    assert snapshot.scan().fingerprint == before


def test_files_of_submodules_and_nested_repositories_count(repo: Path, tmp_path: Path) -> None:
    """An edit inside a submodule, or inside a repository the agent cloned, is a change and is shown."""
    library = tmp_path / "library"
    library.mkdir()
    git(library, "init", "-q")
    (library / "lib.txt").write_text("lib\n")
    commit(library)
    git(repo, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(library), "sub")
    commit(repo)
    (repo / "nested").mkdir()
    git(repo / "nested", "init", "-q")
    snapshot = Snapshot(repo, tmp_path / "state")
    start = snapshot.keep(snapshot.scan())
    assert snapshot.since(start, snapshot.scan()).paths == []
    (repo / "sub" / "lib.txt").write_text("changed\n")
    (repo / "nested" / "n.txt").write_text("n\n")
    changes = snapshot.since(start, snapshot.scan())
    assert changes.paths == ["nested/n.txt", "sub/lib.txt"]
    assert "-lib\n+changed" in changes.diff


def test_a_folder_of_a_repository_sees_only_itself(repo: Path, tmp_path: Path) -> None:
    """With a workspace below the top, what happens beside it does not count and paths are its own."""
    (repo / "sub").mkdir()
    (repo / "sub" / "s.txt").write_text("s\n")
    commit(repo)
    snapshot = Snapshot(repo / "sub", tmp_path / "state")
    before = snapshot.scan()
    start = snapshot.keep(before)
    (repo / "a.txt").write_text("beside\n")
    assert snapshot.scan().fingerprint == before.fingerprint
    (repo / "sub" / "s.txt").write_text("changed\n")
    assert snapshot.since(start, snapshot.scan()).paths == ["s.txt"]


def test_a_workspace_that_an_outer_repository_ignores_is_still_seen(repo: Path, tmp_path: Path) -> None:
    """A scratch folder below an ignored path is looked at as a folder without git."""
    (repo / ".gitignore").write_text("scratch/\n")
    (repo / "scratch").mkdir()
    snapshot = Snapshot(repo / "scratch", tmp_path / "state")
    start = snapshot.keep(snapshot.scan())
    (repo / "scratch" / "x.txt").write_text("x\n")
    assert snapshot.since(start, snapshot.scan()).paths == ["x.txt"]


def test_attributes_cannot_hide_a_change(repo: Path, tmp_path: Path) -> None:
    """An attribute that calls a file binary, or converts it, does not keep its diff out of sight."""
    snapshot = Snapshot(repo, tmp_path / "state")
    start = snapshot.keep(snapshot.scan())
    (repo / ".gitattributes").write_text("*.txt -diff text eol=crlf ident working-tree-encoding=UTF-16\n")
    (repo / "a.txt").write_text("two\n")
    changes = snapshot.since(start, snapshot.scan())
    assert "-one\n+two" in changes.diff


def test_a_destroyed_repository_stops_nothing(repo: Path, tmp_path: Path) -> None:
    """Without .git, or with a broken one, the files are still seen and the diff says why it is missing."""
    snapshot = Snapshot(repo, tmp_path / "state")
    start = snapshot.keep(snapshot.scan())
    (repo / "a.txt").write_text("two\n")
    (repo / ".git").rename(tmp_path / "away")
    now = snapshot.scan()
    changes = snapshot.since(start, now)
    assert "a.txt" in now.seen
    assert changes.paths == ["a.txt"]
    (repo / ".git").write_text("gitdir: /nowhere\n")
    assert "a.txt" in snapshot.scan().seen


def test_a_stale_lock_of_a_killed_process_is_no_obstacle(repo: Path, tmp_path: Path) -> None:
    """A lock file left in our own git directory does not stop the next process."""
    Snapshot(repo, tmp_path / "state").scan()
    (tmp_path / "state" / "git" / "index.lock").write_text("")
    snapshot = Snapshot(repo, tmp_path / "state")
    (repo / "a.txt").write_text("two\n")
    commit(repo)
    now = snapshot.scan()
    assert now.shadow is not None
    assert now.head == git(repo, "rev-parse", "HEAD")


# ------------------------------------------------------------------------------------------------------------------ bounds


def test_a_huge_file_is_read_at_both_ends_only(root: Path, snapshot: Snapshot) -> None:
    """Of 400 GB that are nothing but a size the look reads two megabytes, says so in the value, and still sees a change."""
    with (root / "huge").open("wb") as file:
        file.truncate(400 << 30)
    start = snapshot.keep(snapshot.scan())
    before = snapshot.scan()
    assert before.seen["huge"][1].startswith(fingerprint.SAMPLED)
    assert snapshot.scan().fingerprint == before.fingerprint
    with (root / "huge").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"x")
    assert snapshot.since(start, snapshot.scan()).paths == ["huge"]


def test_what_exceeds_a_look_is_known_by_size(root: Path, snapshot: Snapshot) -> None:
    """Beyond the bytes of one look contents are not read; the value stays while nothing changes, and the diff says so."""
    start = snapshot.keep(snapshot.scan())
    for number in range(4):
        (root / f"n{number}").write_bytes(b"x" * 1000)
    with bounded(Bounds(threading.Event(), size=2500)):
        first = snapshot.scan()
    with bounded(Bounds(threading.Event(), size=2500)):
        second = snapshot.scan()
    assert "known by size and time only" in first.partial
    assert first.fingerprint == second.fingerprint
    assert "looked at in part" in snapshot.since(start, second).diff
    (root / "n3").write_bytes(b"xy" * 1000)
    assert snapshot.scan().fingerprint != second.fingerprint


def test_more_files_than_a_look_names(root: Path, snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of too many files the first are looked at, and that is said."""
    monkeypatch.setattr(bounds, "FILES", 5)
    for number in range(9):
        (root / f"n{number}").write_text("x")
    scan = snapshot.scan()
    assert len(scan.seen) == 5
    assert scan.partial == "only the first 5 files were looked at"
    assert snapshot.scan().fingerprint == scan.fingerprint


def test_a_look_that_is_called_off_ends(root: Path, snapshot: Snapshot) -> None:
    """Whoever walks, hashes or waits for git notices that nobody waits any more."""
    stop = threading.Event()
    stop.set()
    with bounded(Bounds(stop)), pytest.raises(Abandoned):
        snapshot.scan()
    assert snapshot.scan().fingerprint == snapshot.scan().fingerprint, "and the next look is not hindered"


def test_an_ignore_file_that_blocks_git_costs_one_timeout(repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A FIFO below the top makes git wait; then the files are looked at without it, and git is left alone for a while."""
    monkeypatch.setattr(git_module, "IN_A_LOOK", 0.5)
    (repo / "sub").mkdir()
    (repo / "sub" / "x.txt").write_text("x")
    os.mkfifo(repo / "sub" / ".gitignore")
    snapshot = Snapshot(repo, tmp_path / "state")
    first = snapshot.scan()
    assert {"a.txt", "sub/x.txt"} <= first.seen.keys()
    asked: list[object] = []
    monkeypatch.setattr(git_module, "run_git", lambda *given, **_: asked.append(given))
    assert snapshot.scan().fingerprint == first.fingerprint
    assert asked == []


@pytest.mark.parametrize("name", [".git/config", ".git/HEAD", ".git/info/exclude", ".gitignore"])
def test_a_fifo_in_the_place_of_a_file_of_git_is_not_waited_for(repo: Path, tmp_path: Path, name: str) -> None:
    """Git is not even asked where it would wait for ever at its first step."""
    (repo / name).parent.mkdir(exist_ok=True)
    (repo / name).unlink(missing_ok=True)
    os.mkfifo(repo / name)
    scan = Snapshot(repo, tmp_path / "state").scan()
    assert "a.txt" in scan.seen
