"""What Endstop starts for itself is never taken from where an agent works."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from endstop.errors import UsageError
from endstop.host import git
from endstop.host.programs import program, without


@pytest.fixture
def work(tmp_path: Path) -> Path:
    path = tmp_path / "work"
    path.mkdir()
    return path


def plant(folder: Path, name: str, text: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(text or f"#!/bin/sh\ntouch {folder}/ran\nexit 1\n")
    path.chmod(0o755)
    return path


def test_programs_of_the_workspace_are_passed_over(work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program in the workspace is not found, whether PATH names it, is relative, or leads there through a link."""
    planted = plant(work / ".venv/bin", "tool")
    real = plant(tmp_path / "bin", "tool")
    (tmp_path / "linked").symlink_to(planted.parent)
    plant(tmp_path / "links", "other")
    (tmp_path / "links/tool").symlink_to(planted)
    entries = [str(planted.parent), "", ".", ".venv/bin", f"{work}/../work/.venv/bin", *map(str, tmp_path.glob("link*"))]
    monkeypatch.chdir(work)
    monkeypatch.setenv("PATH", ":".join([*entries, str(real.parent)]))
    assert program("tool", work) == str(real)
    assert program("tool") == str(planted)
    monkeypatch.setenv("PATH", ":".join(entries))
    with pytest.raises(UsageError, match=f"tool is not found outside of {work}.*install it"):
        program("tool", work)


@pytest.mark.needs("git")
def test_a_planted_git_is_never_started(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at a workspace whose environment is activated runs the machine's git, not the one an agent put there."""
    subprocess.run(["git", "init", "-q"], cwd=work, check=True)
    planted = plant(work / ".venv/bin", "git")
    monkeypatch.setenv("PATH", f"{planted.parent}:{os.environ['PATH']}")
    assert git.locate(work) is not None
    assert not (planted.parent / "ran").exists()


def test_without_git_elsewhere_git_is_said_to_be_missing(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the only git lies in the workspace, there is none."""
    planted = plant(work / "bin", "git")
    monkeypatch.setenv("PATH", str(planted.parent))
    with pytest.raises(git.GitFailed, match="install"):
        git.run_git(["--version"], work)
    assert not (planted.parent / "ran").exists()


def test_variables_lead_no_code_in(work: Path) -> None:
    """An environment for outside keeps what it held, but for entries below the workspace and relative ones."""
    given = {
        "PATH": f"{work}/bin:/usr/bin:.",
        "PYTHONPATH": f".:{work}/src:/opt/lib",
        "NODE_PATH": f"{work}/node_modules",
        "HOME": str(work),
    }
    assert without(given, work) == {"PATH": "/usr/bin", "PYTHONPATH": "/opt/lib", "NODE_PATH": "", "HOME": str(work)}
    assert without({"PATH": f"{work}/bin"}, work) == {"PATH": os.defpath}
    assert without({"PATH": "/usr/bin", "LANG": "C"}, None) == {"PATH": "/usr/bin", "LANG": "C"}
