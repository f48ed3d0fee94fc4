"""What a gate relies on beyond the paths it names: every way to turn it green without doing the work is seen.

Each case starts from the same small workspace and changes it as an agent could; the look says what became of the inputs.
"""

from __future__ import annotations

import asyncio
import importlib._bootstrap_external as compiled
import os
import shutil
import sys
import threading
from collections.abc import Callable
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from endstop.checks.gates import Gates
from endstop.checks.look import Folder
from endstop.core.events import Contract, Gate, WorkspaceObserved
from endstop.host import bounds
from endstop.host.sandbox import Sandbox

START = {
    ".gitignore": ".venv/\nnode_modules/\nhidden.py\n",
    "calc.py": "def add(a, b):\n    return a - b\n",
    "test_calc.py": "import unittest\n",
    "pkg/test_mod.py": "import unittest\n",
    "tests/test_p.py": "def test_p(): pass\n",
    "tools/__init__.py": "",
    "tools/__main__.py": "import sys\n",
    "plugin.py": "",
    "calendar.py": "# a module of the project that has a famous name\n",
    "Makefile": "test:\n\t@python3 -m unittest -q test_calc\n\nrun:\n\tpython3 calc.py\n",
    "package.json": '{"scripts": {"test": "jest"}, "dependencies": {}}',
    "Cargo.toml": "[package]\nname = 'x'\nversion = '1.0.0'\n",
    ".venv/bin/pytest": "#!/bin/sh\nexit 1\n",
    ".venv/pyvenv.cfg": "",
    ".venv/lib/python3.11/site-packages/x.py": "",
    "node_modules/.bin/jest": "#!/bin/sh\nexit 1\n",
    "run-tests": "#!/bin/sh\nexit 1\n",
}

Change = dict[str, str | None]
"""Paths to new contents; None removes."""


class Work:
    """A workspace, its folder and the look it started with."""

    def __init__(self, path: Path, run: str, *, search: str = "/usr/bin:/bin", files: dict[str, str] | None = None) -> None:
        self.root = path / "work"
        self.root.mkdir()
        self.change({**START, **(files or {})})
        for name in (".venv/bin/pytest", "node_modules/.bin/jest", "run-tests"):
            (self.root / name).chmod(0o755)
        self.contract = Contract(gates=[Gate(gate_id="g1", run=run)])
        self.folder = Folder(self.root, path / "state", search.replace("WORK", str(self.root)))
        self.start = self._look(None)

    def change(self, files: Change | dict[str, str]) -> None:
        for name, content in files.items():
            path = self.root / name
            if content is None:
                path.unlink()
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(content)

    def look(self) -> tuple[list[str], list[str]]:
        """Changed inputs, and those among them that send a claim back."""
        seen = self._look(self.start)
        return seen.protected, seen.named

    def _look(self, start: WorkspaceObserved | None) -> WorkspaceObserved:
        return asyncio.run(self.folder.look("claim" if start else "baseline", 1, self.contract, start))


REFUSED = [
    ("python3 -m unittest -q test_calc", "test_calc.py", ""),
    ("python3 -m unittest test_calc.T.test_a", "test_calc.py", ""),
    ("python3 -m unittest pkg.test_mod", "pkg/test_mod.py", ""),
    ("PYTHONPATH=pkg python3 -m unittest test_mod", "pkg/test_mod.py", ""),
    ("cd pkg && nose2 test_mod", "pkg/test_mod.py", ""),
    ("python3 -m tools check", "tools/__main__.py", ""),
    ("coverage run -m unittest test_calc", "test_calc.py", ""),
    ("pytest -p plugin tests", "plugin.py", ""),
    ("pytest --pyargs pkg.test_mod", "pkg/test_mod.py", ""),
    ("python3 -m pytest pkg", "pkg/test_mod.py", ""),
    (".venv/bin/pytest -q tests", ".venv/bin/pytest", ""),
    ("WORK/.venv/bin/pytest -q tests", ".venv/bin/pytest", ""),
    ("PATH=.venv/bin:$PATH pytest -q tests", ".venv/bin/pytest", ""),
    ("export PATH=.venv/bin:$PATH; pytest -q", ".venv/bin/pytest", ""),
    (". .venv/bin/activate && timeout 60 pytest -q", ".venv/bin/pytest", ""),
    ("uv run pytest -q", ".venv/bin/pytest", ""),
    ("node_modules/.bin/jest", "node_modules/.bin/jest", ""),
    ("npx jest --ci", "node_modules/.bin/jest", ""),
    ("./run-tests", "run-tests", ""),
    ("python3 -m unittest test_calc", "unittest/__init__.py", ""),
    ("python3 -m unittest test_calc", "unittest.py", ""),
    ("python3 -m unittest test_calc", "argparse.so", ""),
    ("python3 test_calc.py", "unittest.pyc", ""),
    ("python3 -m unittest test_calc", "test_calc/__init__.py", ""),
    ("python3 -m unittest test_calc", "test_calc.cpython-311-x86_64-linux-gnu.so", ""),
    ("python3 -m unittest test_calc", "sitecustomize.py", ""),
    ("python3 -m pytest tests", "pytest.py", ""),
    ("python3 -m pytest tests", "pytest/__init__.py", ""),
    ("pytest tests/test_p.py", "tests/json.py", ""),
    ("pytest tests/test_p.py", "conftest.py", ""),
    ("pytest tests/test_p.py", "tests/conftest.py", ""),
    ("pytest tests", "pytest.ini", ""),
    ("pytest tests", "tests/pytest.ini", ""),
    ("pytest tests/test_p.py", "tests/pytest.toml", ""),
    ("pytest tests/test_p.py", "tests/__init__.py", ""),
    ("python3 -m unittest tests.test_p", "tests/__init__.py", ""),
    ("pytest --cov tests", ".coveragerc", ""),
    ("pytest tests", "tox.ini", "[pytest]\naddopts = --version\n"),
    ("pytest tests", "pyproject.toml", "[tool.pytest.ini_options]\naddopts = '--version'\n"),
    ("pytest tests", "setup.cfg", "[tool:pytest]\naddopts = --version\n"),
    ("make test", "Makefile", ""),
    ("make test", "GNUmakefile", ""),
    ("make test", "makefile", ""),
    ("npm test", "package.json", '{"scripts": {"test": "true"}}'),
    ("cargo test", ".cargo/config.toml", ""),
    ("cargo test", "rust-toolchain", ""),
    ("go test ./...", "go.work", ""),
    (".venv/bin/pytest tests", ".venv/lib/python3.11/site-packages/sitecustomize.py", ""),
    ("jest tests", "jest.config.js", ""),
]


@pytest.mark.parametrize(("run", "path", "content"), REFUSED)
def test_what_a_gate_runs_is_named(tmp_path: Path, run: str, path: str, content: str) -> None:
    """A change of what a gate runs or reads, or a file that takes its place, sends the claim back by its name."""
    work = Work(tmp_path, run.replace("WORK", str(tmp_path / "work")))
    work.change({path: content or "something else"})
    assert [name.partition("#")[0] for name in work.look()[1]] == [path]


FLAGGED = [
    ("pytest -q", "conftest.py", ""),
    ("pytest -q", "tests/conftest.py", ""),
    ("pytest -q", "pyproject.toml", "[tool.pytest.ini_options]\naddopts = '--version'\n"),
    ("pytest -q", "tests/test_p.py", ""),
    ("pytest -q", "tests/__init__.py", ""),
    ("make test", "unittest/__init__.py", ""),
    ("make test", "test_calc.py", ""),
    ("cargo test", "build.rs", ""),
    ("cargo test", "Cargo.toml", "[lib]\ntest = false\n"),
    ("jest", "jest.config.js", ""),
]


@pytest.mark.parametrize(("run", "path", "content"), FLAGGED)
def test_what_honest_work_may_change_is_said(tmp_path: Path, run: str, path: str, content: str) -> None:
    """Where the gate names no test, new settings and changed tests are said and not refused."""
    work = Work(tmp_path, run)
    work.change({path: content or "something else"})
    changed, named = work.look()
    assert ([name.partition("#")[0] for name in changed], named) == ([path], [])


HONEST: list[tuple[str, Change]] = [
    ("pytest -q", {"calc.py": "fixed", "tests/test_new.py": "", "tests/deep/test_more.py": "", "src/new.py": ""}),
    ("pytest tests", {"calc.py": "fixed", "tests/test_new.py": "", "tests/data.json": "", "tests/__init__.py": ""}),
    ("python3 -m unittest -q test_calc", {"calc.py": "fixed", "calendar.py": "fixed too", "test_new.py": "", "util.py": ""}),
    ("python3 -m unittest test_new", {"test_new.py": "import unittest\n"}),
    ("python3 -m newtool --check", {"newtool/__init__.py": "", "newtool/__main__.py": ""}),
    ("python3 -m unittest test_calc", {"__pycache__/test_calc.cpython-311.pyc": "left by a run"}),
    ("pytest tests", {"pyproject.toml": "[project]\nname = 'x'\n", "setup.cfg": "[metadata]\nname = x\n"}),
    ("pytest tests", {"tools/json.py": "", "tools/email/__init__.py": ""}),
    ("npm test", {"package.json": '{"scripts": {"test": "jest"}, "dependencies": {"left": "1"}}'}),
    ("cargo test", {"Cargo.toml": "[package]\nname = 'x'\nversion = '1.1.0'\n[dependencies]\nserde = '1'\n", "src/lib.rs": ""}),
    ("make test", {"calc.py": "fixed", "new.mk": ""}),
    ("make -C sub all", {"sub/other.c": ""}),
    ("./new-tests", {"new-tests": "#!/bin/sh\n"}),
    (".venv/bin/ruff check calc.py", {"calc.py": "fixed", ".venv/bin/ruff": "#!/bin/sh\n"}),
    ("uv run ruff check calc.py", {"calc.py": "fixed", ".venv/bin/ruff": "#!/bin/sh\n"}),
]


@pytest.mark.parametrize(("run", "change"), HONEST)
def test_honest_work_is_no_change_of_inputs(tmp_path: Path, run: str, change: Change) -> None:
    """Sources, new tests, dependencies and what nobody had written yet are the agent's to write."""
    work = Work(tmp_path, run)
    work.change(change)
    assert work.look() == ([], [])


def test_a_program_is_the_one_that_path_finds(tmp_path: Path) -> None:
    """A program of the workspace on $PATH is an input, and so is one that would now be found before it; others are not."""
    work = Work(tmp_path, "sh -c 'pytest -q'", search="WORK/bin:WORK/.venv/bin:/usr/bin:/bin")
    work.change({".venv/bin/other": "", "bin/other": ""})
    assert work.look() == ([], [])
    work.change({"bin/pytest": "#!/bin/sh\n"})
    assert work.look() == (["bin/pytest"], ["bin/pytest"])
    work.change({"bin/pytest": None, ".venv/bin/pytest": "#!/bin/sh\n"})
    assert work.look() == ([".venv/bin/pytest"], [".venv/bin/pytest"])


def test_an_ignored_program_counts_in_the_fingerprint(tmp_path: Path) -> None:
    """Ignore rules and caches do not hide a gate's program: a verdict on the old one is not fresh for the new one."""
    work = Work(tmp_path, ".venv/bin/pytest -q")
    before = asyncio.run(work.folder.fingerprint(work.contract))
    work.change({".venv/bin/pytest": "#!/bin/sh\nexit 0\n"})
    assert asyncio.run(work.folder.fingerprint(work.contract)) != before


def test_ignore_rules_hide_no_module(tmp_path: Path) -> None:
    """A file that hides a module is seen although a .gitignore of the agent's names it."""
    work = Work(tmp_path, "python3 test_calc.py")
    work.change({".gitignore": "unittest.py\n", "unittest.py": ""})
    assert work.look()[1] == ["unittest.py"]


def test_a_link_in_the_place_of_a_test_is_a_change(tmp_path: Path) -> None:
    """Even with the same content: what it leads to is no input, and could change unseen."""
    work = Work(tmp_path, "python3 -m unittest test_calc")
    (work.root / "test_calc.py").rename(work.root / "t2")
    (work.root / "test_calc.py").symlink_to("t2")
    assert work.look()[1] == ["test_calc.py"]


def test_a_manifest_that_nobody_had_written_is_said(tmp_path: Path) -> None:
    """The first Makefile or package.json is the agent's to write, but what it says shows nothing by itself."""
    (tmp_path / "a").mkdir()
    scripts = '{"scripts": {"test": "true"}}'
    for run, path, content in (
        ("cd new && make test", "new/Makefile", "test:\n"),
        ("npm --prefix new test", "new/package.json", scripts),
    ):
        work = Work(tmp_path / "a", run)
        work.change({path: content})
        changed, named = work.look()
        assert ([name.partition("#")[0] for name in changed], named) == ([path], [])
        shutil.rmtree(work.root)


def test_inputs_that_are_accepted_are_no_change_any_more(tmp_path: Path) -> None:
    """A new start taken after the change knows all that the look reported."""
    work = Work(tmp_path, "python3 -m pytest tests")
    work.change({"pytest.py": "", "conftest.py": "", "tests/test_p.py": "", "setup.cfg": "[tool:pytest]\n"})
    assert len(work.look()[0]) == 4
    work.start = work._look(None)
    assert work.look() == ([], [])


def test_inputs_beyond_the_bytes_of_a_look_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not fit stays equal as long as nothing before it changes its size."""
    monkeypatch.setattr(bounds, "BYTES", 40)
    work = Work(tmp_path, "pytest -q")
    assert work.start.inputs is not None
    assert work.start.inputs["tests/test_p.py"] == "unreadable"
    assert work.look() == ([], [])


@pytest.mark.parametrize("kind", ["unchecked hash", "time stamp"])
def test_planted_compiled_files_are_not_read(tmp_path: Path, kind: str) -> None:
    """A __pycache__ that says something else than the source decides no gate, whatever it claims to be compiled from."""
    (tmp_path / "work").mkdir()
    source = tmp_path / "work" / "check_me.py"
    source.write_text("raise SystemExit(3)\n")
    code = compile("pass\n", str(source), "exec")
    planted = Path(cache_from_source(str(source)))
    planted.parent.mkdir()
    stat = source.stat()
    if kind == "time stamp":
        planted.write_bytes(compiled._code_to_timestamp_pyc(code, int(stat.st_mtime), stat.st_size))  # type: ignore[attr-defined]
    else:
        planted.write_bytes(compiled._code_to_hash_pyc(code, b"12345678", False))  # type: ignore[attr-defined]
    gate = Gate(gate_id="g1", run=f"{sys.executable} -c 'import check_me'")
    gates = Gates(Sandbox("none", "not wanted here"), (), os.environ, False)
    folder = Folder(tmp_path / "work", tmp_path / "state")
    assert asyncio.run(gates.run(gate, Contract(gates=[gate]), folder)).exit_code == 3


def test_a_cancelled_look_lets_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever cancels a look need not wait for its thread, and the thread ends by itself."""
    work = Work(tmp_path, "true")
    begun, ended = threading.Event(), threading.Event()

    def slow(*_: object) -> None:
        begun.set()
        try:
            while True:
                bounds.check()
        except bounds.Abandoned:
            ended.set()
            raise

    monkeypatch.setattr(work.folder, "_scan", slow)

    async def cancel() -> None:
        task = asyncio.ensure_future(work.folder.fingerprint(work.contract))
        await asyncio.to_thread(begun.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(ended.wait, 30)

    asyncio.run(cancel())


@pytest.mark.parametrize("spoil", ["conftest.py", "pytest.ini", "Makefile", "package.json", "tests", "unittest", ".gitignore"])
def test_folders_and_fifos_in_the_place_of_inputs_stop_no_look(tmp_path: Path, spoil: str) -> None:
    """Whatever stands where an input could be, the look comes to an end and can be taken again."""
    make: tuple[Callable[[Path], object], ...] = (os.mkfifo, Path.mkdir, lambda path: path.symlink_to(path.name))
    work = Work(tmp_path, "python3 -m pytest tests && make test && npm test")
    for build in make:
        path = work.root / spoil
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        build(path)
        assert isinstance(work.look(), tuple)
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
