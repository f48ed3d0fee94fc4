"""The look at a workspace: what the kernel learns of deliverables, inputs and changes."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import msgspec
import pytest

from endstop.checks.look import PATHS, Folder
from endstop.core.codec import encode_data
from endstop.core.events import Contract, Gate, WorkspaceObserved
from endstop.ports import Workspace

CONTRACT = Contract(gates=[Gate(gate_id="g1", run="pytest tests/test_a.py")], deliverables=["report.md", "dist"])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    (root / "tests").mkdir(parents=True)
    (root / "tests" / "test_a.py").write_text("def test_a(): assert False\n")
    (root / "tests" / "test_b.py").write_text("def test_b(): pass\n")
    (root / ".gitignore").write_text("dist/\n")
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    subprocess.run(["git", "add", "-A"], cwd=root, check=True)
    subprocess.run(["git", "commit", "-qm", "first"], cwd=root, check=True)
    return root


def look(folder: Workspace, baseline: WorkspaceObserved | None = None, contract: Contract = CONTRACT) -> WorkspaceObserved:
    return asyncio.run(folder.look("claim" if baseline else "baseline", 3, contract, baseline))


def test_the_baseline_keeps_start_and_inputs(root: Path, tmp_path: Path) -> None:
    """The first look names the hash of every input and the start that later ones are compared with."""
    seen = look(Folder(root, tmp_path / "state"))
    assert seen.purpose == "baseline"
    assert seen.world == 3
    assert seen.base
    assert seen.inputs is not None
    assert {"tests/test_a.py", "tests/test_b.py", "conftest.py"} <= seen.inputs.keys()
    assert seen.inputs["conftest.py"] == "absent"
    assert (seen.paths, seen.diff, seen.protected, seen.named) == ([], "", [], [])
    assert seen.deliverables == {"report.md": "absent", "dist": "absent"}


def test_fingerprint_and_look_agree_also_after_a_restart(root: Path, tmp_path: Path) -> None:
    """The fingerprint alone is the one of the look, in the next process too."""
    folder = Folder(root, tmp_path / "state")
    seen = look(folder)
    assert asyncio.run(folder.fingerprint(CONTRACT)) == seen.fingerprint
    (root / "dist").mkdir()
    (root / "dist" / "x").write_text("built")
    changed = asyncio.run(folder.fingerprint(CONTRACT))
    assert changed != seen.fingerprint, "a deliverable counts although it is ignored"
    again = look(Folder(root, tmp_path / "state"), seen)
    assert again.fingerprint == changed
    assert again.paths == ["dist/x"]


def test_changed_inputs_are_told_apart(root: Path, tmp_path: Path) -> None:
    """Changed and deleted inputs are protected; named are those the gate names, and what changes how they run."""
    folder = Folder(root, tmp_path / "state")
    baseline = look(folder)
    (root / "tests" / "test_b.py").write_text("def test_b(): assert True\n")
    seen = look(folder, baseline)
    assert (seen.protected, seen.named) == (["tests/test_b.py"], [])
    (root / "conftest.py").write_text("")
    seen = look(folder, baseline)
    assert (seen.protected, seen.named) == (["conftest.py", "tests/test_b.py"], ["conftest.py"])
    (root / "conftest.py").unlink()
    (root / "tests" / "test_a.py").unlink()
    seen = look(folder, baseline)
    assert seen.named == ["tests/test_a.py"]
    assert "tests/test_a.py" in seen.protected
    assert "tests/test_a.py | +0 -1" in seen.diff


def test_a_named_file_that_was_not_there_is_the_agents_to_write(root: Path, tmp_path: Path) -> None:
    """Creating what a gate names but nobody had written is no tampering."""
    contract = Contract(gates=[Gate(gate_id="g1", run="bash check.sh")])
    folder = Folder(root, tmp_path / "state")
    baseline = look(folder, contract=contract)
    (root / "check.sh").write_text("true\n")
    seen = look(folder, baseline, contract)
    assert (seen.protected, seen.named) == ([], [])


@pytest.mark.parametrize("path", ["report.md", "./report.md", "sub/../report.md"])
def test_a_deliverable_is_absent_empty_or_its_hash(root: Path, tmp_path: Path, path: str) -> None:
    """A file without content is empty; with content it has the hash of that content; editing it back gives it again."""
    contract = Contract(deliverables=[path])
    folder = Folder(root, tmp_path / "state")

    def state() -> str:
        return look(folder, contract=contract).deliverables[path]

    (root / "sub").mkdir()
    assert state() == "absent"
    (root / "report.md").write_text("")
    assert state() == "empty"
    (root / "report.md").write_text("done")
    first = state()
    (root / "report.md").write_text("DONE")
    assert state() != first
    (root / "report.md").write_text("done")
    assert state() == first
    assert len(first) == 64


def test_a_folder_is_a_deliverable_by_its_files(root: Path, tmp_path: Path) -> None:
    """A folder without files is empty; any change of a file below it changes its hash."""
    folder = Folder(root, tmp_path / "state")
    (root / "dist" / "deep").mkdir(parents=True)
    assert look(folder).deliverables["dist"] == "empty"
    (root / "dist" / "deep" / "x").write_text("1")
    first = look(folder).deliverables["dist"]
    (root / "dist" / "deep" / "y").write_text("2")
    assert look(folder).deliverables["dist"] != first


@pytest.mark.parametrize("path", ["/etc/passwd", "../outside.md", "out.md", "outdir/outside.md", "fifo", "loop", "a\0b"])
def test_what_is_no_file_of_the_workspace_is_absent(root: Path, tmp_path: Path, path: str) -> None:
    """Outside files, links to them, special files and loops are no deliverables."""
    (tmp_path / "outside.md").write_text("not ours")
    (root / "out.md").symlink_to(tmp_path / "outside.md")
    (root / "outdir").symlink_to(tmp_path)
    (root / "loop").symlink_to("loop")
    os.mkfifo(root / "fifo")
    contract = Contract(deliverables=[path])
    assert look(Folder(root, tmp_path / "state"), contract=contract).deliverables == {path: "absent"}


def test_a_look_can_always_be_written_down(root: Path, tmp_path: Path) -> None:
    """Names that are no UTF-8 or hold newlines reach the journal as text, and the list of paths is bounded."""
    folder = Folder(root, tmp_path / "state")
    baseline = look(folder)
    (root / os.fsdecode(b"odd\xff\n.txt")).write_bytes(b"\xff\xfe")
    for number in range(PATHS + 50):
        (root / f"n{number}.txt").write_text("x")
    seen = look(folder, baseline)
    assert len(seen.paths) == PATHS
    assert msgspec.json.decode(encode_data(seen), type=WorkspaceObserved) == seen
    for number in range(PATHS):
        (root / f"n{number}.txt").unlink()
    assert r"odd\xff\n.txt" in look(folder, baseline).paths


def test_a_lost_state_folder_is_said(root: Path, tmp_path: Path) -> None:
    """If the kept start is gone the look still works and says that there is nothing to compare with."""
    baseline = look(Folder(root, tmp_path / "state"))
    (root / "tests" / "test_b.py").write_text("changed\n")
    dirty = look(Folder(root, tmp_path / "state"))
    (root / "new.txt").write_text("x\n")
    seen = look(Folder(root, tmp_path / "other"), dirty)
    assert "cannot be taken" in seen.diff
    assert {"new.txt", "tests/test_b.py"} <= set(seen.paths)
    assert seen.protected == []
    assert look(Folder(root, tmp_path / "other"), msgspec.structs.replace(baseline, base=None)).diff
