"""A git worktree and branch for one goal, beside the repository it belongs to."""

from __future__ import annotations

import re
import shlex
from contextlib import suppress
from pathlib import Path

import msgspec

from endstop.cli import view
from endstop.errors import UsageError
from endstop.host import git

WORDS = 40
"""Characters of the objective that name it."""
MOST = 100
"""Worktrees of the same name."""


class Worktree(msgspec.Struct, frozen=True):
    """Where it is. ``workspace`` is the folder in it that corresponds to the one the goal was asked for; ``left`` counts
    changes of the repository that no commit holds, and that are not in it (None where that is not known)."""

    repository: Path
    path: Path
    branch: str
    workspace: Path
    left: int | None


def make(about: git.GitState | None, workspace: Path, objective: str) -> Worktree:
    """Make it from the last commit.

    Raises:
        UsageError: there is no repository, no commit, or git refuses.
    """
    if about is None or about.head is None:
        hint = "git init and a first commit, or run it without --worktree"
        raise UsageError("there is no commit to begin from", where=f"--worktree in {workspace}", hint=hint)
    root = about.root
    for number in range(1, MOST):
        name = _name(objective) + (f"-{number}" if number > 1 else "")
        path, branch = root.parent / f"{root.name}-{name}", f"endstop/{name}"
        if path.exists() or _exists(root, branch):
            continue
        try:
            git.run_git(["worktree", "add", "--quiet", "-b", branch, str(path), about.head], root)
        except git.GitFailed as error:
            raise UsageError(f"git refuses: {error.message}", where=f"--worktree {path}", hint="see git worktree list") from None
        return Worktree(root, path, branch, path / workspace.resolve().relative_to(root.resolve()), about.dirty)
    raise UsageError("too many worktrees have this name", where=f"--worktree in {root}", hint="git worktree remove some of them")


def drop(tree: Worktree) -> None:
    """Take it back: nothing was done in it."""
    with suppress(git.GitFailed):
        git.run_git(["worktree", "remove", "--force", str(tree.path)], tree.repository)
        git.run_git(["branch", "-q", "-D", tree.branch], tree.repository)


def words(tree: Worktree) -> list[str]:
    """Where the work is, and how it is taken over or thrown away."""
    at, root = shlex.quote(str(tree.path)), shlex.quote(str(tree.repository))
    lines = view.row("worktree", f"{tree.path}, branch {tree.branch}")
    if tree.left:
        lines += view.row("", f"{tree.left} changed or untracked files of the repository are not in it: no commit holds them")
    lines += [
        "  to take it over:",
        f"    git -C {at} add -A && git -C {at} commit -m '…'",
        f"    git -C {root} merge {tree.branch}",
    ]
    lines += [
        "  to throw it away:",
        f"    git -C {root} worktree remove --force {at}",
        f"    git -C {root} branch -D {tree.branch}",
    ]
    return lines


def _name(objective: str) -> str:
    plain = re.sub(r"[^a-z0-9]+", "-", objective.lower()).strip("-")
    return plain[:WORDS].rsplit("-", 1)[0] if len(plain) > WORDS and "-" in plain[:WORDS] else plain[:WORDS] or "goal"


def _exists(root: Path, branch: str) -> bool:
    try:
        git.run_git(["rev-parse", "--verify", "--quiet", f"refs/heads/{branch}"], root)
    except git.GitFailed:
        return False
    return True
