"""Repositories, also hostile ones: read without being run, never written."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from endstop.host.git import GitState, describe
from endstop.host.snapshot import Snapshot


def git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A repository with one committed file."""
    root = tmp_path / "repo"
    root.mkdir()
    git(root, "init", "-q")
    (root / "a.txt").write_text("one\n")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "first")
    return root


def look(root: Path) -> GitState | None:
    return asyncio.run(describe(root))


def test_describe_says_branch_head_and_dirt(repo: Path) -> None:
    """Changed and untracked files count, ignored ones do not; names may hold anything."""
    (repo / ".gitignore").write_text("*.log\n")
    (repo / "x.log").write_text("")
    (repo / "a.txt").write_text("two\n")
    (repo / "line\nbreak \"quote'.txt").write_text("")
    assert look(repo) == GitState(repo, "main", git(repo, "rev-parse", "HEAD"), 3)


def test_describe_before_the_first_commit_and_detached(tmp_path: Path, repo: Path) -> None:
    """There may be no commit yet, or no branch."""
    empty = tmp_path / "empty"
    empty.mkdir()
    git(empty, "init", "-q")
    assert look(empty) == GitState(empty, "main", None, 0)
    git(repo, "checkout", "-q", "--detach")
    assert look(repo) == GitState(repo, None, git(repo, "rev-parse", "HEAD"), 0)


def test_describe_in_a_worktree_and_below_the_top(tmp_path: Path, repo: Path) -> None:
    """A linked worktree is a repository of its own branch; a folder inside belongs to the top."""
    git(repo, "worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    found = look(tmp_path / "side")
    assert found is not None
    assert (found.root, found.branch, found.dirty) == (tmp_path / "side", "side", 0)
    (repo / "sub").mkdir()
    inner = look(repo / "sub")
    assert inner is not None
    assert inner.root == repo


def test_no_repository_bare_repository_no_git(tmp_path: Path, repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a work tree, or without git, there is nothing to describe."""
    git(tmp_path, "clone", "-q", "--bare", str(repo), "bare.git")
    assert look(tmp_path) is None
    assert look(tmp_path / "bare.git") is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert look(repo) is None


def test_a_hostile_repository_runs_nothing(repo: Path, tmp_path: Path) -> None:
    """Programs named by configuration, attributes, hooks and environment are not run, by describing, scanning or diffing."""
    trap = tmp_path / "trap.sh"
    trap.write_text(f'#!/bin/sh\necho "$0 $*" >> {tmp_path}/sprung\ncat\n')
    trap.chmod(0o755)
    snapshot = Snapshot(repo, tmp_path / "state")
    start = snapshot.keep(snapshot.scan())
    settings = ["core.fsmonitor", "core.pager", "diff.external", "diff.evil.command", "diff.evil.textconv", "core.sshCommand"]
    settings += ["filter.evil.clean", "filter.evil.smudge", "filter.evil.process", "alias.status", "pager.status", "core.editor"]
    for name in settings:
        git(repo, "config", name, f"!{trap}" if name.startswith("alias") else str(trap))
    git(repo, "config", "core.hooksPath", str(repo / "hooks"))
    (repo / "hooks").mkdir()
    for hook in ("post-index-change", "reference-transaction", "post-checkout", "pre-commit"):
        (repo / "hooks" / hook).symlink_to(trap)
        (repo / ".git" / "hooks").mkdir(exist_ok=True)
        (repo / ".git" / "hooks" / hook).symlink_to(trap)
    (repo / ".gitattributes").write_text("* filter=evil diff=evil\n")
    (repo / "a.txt").write_text("three\n")
    os.utime(repo / ".gitattributes", (1, 1))
    found = look(repo)
    changes = snapshot.since(start, snapshot.scan())
    assert not (tmp_path / "sprung").exists()
    assert found is not None
    assert found.dirty == 6
    assert "+three" in changes.diff
    git(repo, "-c", "core.hooksPath=/dev/null", "diff", "--ext-diff")
    assert (tmp_path / "sprung").exists(), "the trap itself does not work"


def test_the_repository_is_never_written(repo: Path, tmp_path: Path) -> None:
    """Looking, keeping and comparing leave every file below .git as it was."""

    def content() -> dict[str, tuple[bytes, int]]:
        files = (path for path in (repo / ".git").rglob("*") if path.is_file())
        return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}

    (repo / "new.txt").write_text("new\n")
    os.utime(repo / "a.txt", (1, 1))
    before = content()
    snapshot = Snapshot(repo, tmp_path / "state")
    start = snapshot.keep(snapshot.scan())
    (repo / "a.txt").write_text("two\n")
    snapshot.since(start, snapshot.scan())
    look(repo)
    assert content() == before


@pytest.mark.needs("root")
def test_a_repository_of_somebody_else_is_read(repo: Path) -> None:
    """Another owner, as in a container with a mounted folder, is no obstacle."""
    subprocess.run(["chown", "-R", "65534", str(repo)], check=True)
    found = look(repo)
    assert found is not None
    assert found.dirty == 0
