"""Gates as real commands: what they say, what they may not do, and what is left of them."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from endstop.checks.gates import OUTPUT, Gates
from endstop.checks.look import Folder
from endstop.checks.results import read_results
from endstop.core.events import Contract, Gate, GateFinished
from endstop.host.sandbox import Sandbox, detect

NONE = Sandbox("none", "not wanted here")


class Place:
    """A workspace and what runs gates in it."""

    def __init__(self, path: Path) -> None:
        self.root = path / "work"
        self.root.mkdir()
        self.folder = Folder(self.root, path / "state")

    def run(
        self, command: str, *, sandbox: Sandbox = NONE, timeout: float = 60, retries: int = 0, hidden: tuple[Path, ...] = ()
    ) -> GateFinished:
        gate = Gate(gate_id="g1", run=command, timeout=timeout, retries=retries)
        environment = {**os.environ, "MY_API_KEY": "sk-secret", "ENDSTOP_X": "1"}
        return asyncio.run(Gates(sandbox, hidden, environment, False).run(gate, Contract(gates=[gate]), self.folder))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.parametrize(
    ("command", "outcome", "code"),
    [
        ("true", "pass", 0),
        ("exit 3", "fail", 3),
        ("false | cat", "fail", 1),
        ("nosuch-command", "broken", 127),
        ("touch-me-not/x", "broken", 127),
        ("echo > x.pyc; ./x.pyc", "broken", 126),
        ("kill -9 $$", "fail", None),
    ],
)
def test_the_exit_status_decides(place: Place, command: str, outcome: str, code: int | None) -> None:
    """0 passes, 126 and 127 are broken, all else fails; a pipe fails with any of its parts."""
    finished = place.run(command)
    assert (finished.outcome, finished.exit_code, finished.stale) == (outcome, code, False)


def test_a_timeout_is_a_fail_that_says_so(place: Place, tmp_path: Path) -> None:
    """A gate that takes too long is killed with all it began, and its output so far is kept."""
    finished = place.run("echo begun; sleep 1000 & echo $! > x.pyc; wait", timeout=1)
    assert (finished.outcome, finished.exit_code) == ("fail", None)
    assert "begun" in finished.output
    assert "timed out after 1 s" in finished.output
    assert gone(int((place.root / "x.pyc").read_text()))


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(") ")[1].startswith("Z")
    except FileNotFoundError:
        return True


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_daemon_neither_holds_nor_survives_the_gate(place: Place) -> None:
    """A background process that left the session and keeps the pipe open does not hold the gate and is dead after it."""
    finished = place.run("setsid sleep 1000 & echo $! > x.pyc; echo ok")
    assert finished.outcome == "pass"
    assert gone(int((place.root / "x.pyc").read_text()))


def test_endless_output_is_bounded_to_its_end(place: Place) -> None:
    """Of 50 MB the last characters are kept, where the result stands."""
    finished = place.run("yes 0123456789 | head -c 50000000; echo; echo '3 passed, 1 failed in 0.1s'; exit 1")
    assert finished.outcome == "fail"
    assert len(finished.output) < OUTPUT + 100
    assert finished.output.endswith("3 passed, 1 failed in 0.1s\n")
    assert finished.collected == 4


def test_output_that_is_no_text_does_no_harm(place: Place) -> None:
    """Bytes that are no UTF-8 and NUL bytes come out as text."""
    finished = place.run(r"printf '\xff\xfe\x00end'")
    assert finished.output.endswith("end")
    finished.output.encode()


def test_secrets_and_own_settings_do_not_reach_a_gate(place: Place) -> None:
    """Variables that look like secrets and Endstop's own are taken out of the environment."""
    finished = place.run("env")
    assert "PATH=" in finished.output
    assert "sk-secret" not in finished.output
    assert "ENDSTOP_X" not in finished.output


def test_a_gate_that_changes_the_workspace_once_runs_again(place: Place) -> None:
    """What the first run had to create is there for the second, whose word counts."""
    finished = place.run("test -e made || { echo x > made; exit 1; }")
    assert (finished.outcome, finished.stale) == ("pass", False)
    assert finished.fingerprint == asyncio.run(place.folder.fingerprint(Contract(gates=[Gate(gate_id="g1", run="true")])))


def test_a_gate_that_changes_the_workspace_each_time_is_broken(place: Place) -> None:
    """It is named together with what it changes, although its exit status was 0."""
    finished = place.run("echo $RANDOM$RANDOM >> counter.txt; echo fine")
    assert (finished.outcome, finished.stale) == ("broken", True)
    assert "changes the workspace: counter.txt" in finished.output
    assert (place.root / "counter.txt").read_text().count("\n") == 2


def test_retries_are_counted(place: Place) -> None:
    """A flaky gate passes when a retry passes; a red one fails after all of them; a broken one is not tried again."""
    flaky = place.run('echo x >> n.pyc; test "$(wc -l < n.pyc)" -ge 3', retries=5)
    assert (flaky.outcome, flaky.retries) == ("pass", 2)
    assert (red := place.run("false", retries=2)).outcome == "fail"
    assert red.retries == 2
    assert place.run("nosuch-command", retries=2).retries is None
    assert place.run("true", retries=2).retries is None


def test_a_workspace_that_is_gone_is_broken(place: Place) -> None:
    """Without a folder to run in the gate is broken and says why."""
    place.root.rmdir()
    finished = place.run("true")
    assert finished.outcome == "broken"
    assert str(place.root) in finished.output


def test_real_pytest(place: Place) -> None:
    """Real test runs tell how many tests there were and which failed, and leave no change behind."""
    (place.root / "test_a.py").write_text(
        "import pytest\n"
        "def test_ok(): pass\n"
        "@pytest.mark.parametrize('x', ['a - b', 'c'])\n"
        "def test_bad(x): assert x == 'a - b', 'ERROR x::y'\n"
        "@pytest.fixture\n"
        "def broken(): raise OSError\n"
        "def test_error(broken): pass\n"
    )
    python = sys.executable
    finished = place.run(f"{python} -m pytest -q test_a.py")
    assert (finished.outcome, finished.exit_code, finished.stale) == ("fail", 1, False)
    assert finished.collected == 4
    assert finished.failing == ["test_a.py::test_bad[c]", "test_a.py::test_error"]
    (place.root / "test_a.py").write_text("def test_ok(): pass\n")
    finished = place.run(f"{python} -m pytest test_a.py")
    assert (finished.outcome, finished.collected, finished.failing) == ("pass", 1, [])
    (place.root / "test_a.py").write_text("def test_ok(: pass\n")
    finished = place.run(f"{python} -m pytest -q")
    assert (finished.outcome, finished.failing) == ("fail", ["test_a.py"])
    (place.root / "test_a.py").write_text("")
    finished = place.run(f"{python} -m pytest -q")
    assert (finished.outcome, finished.exit_code, finished.collected) == ("fail", 5, 0)


@pytest.mark.needs("bwrap")
def test_in_the_sandbox(place: Place, tmp_path: Path) -> None:
    """A gate sees its workspace but not what is hidden, writes nowhere else, and exit codes pass through."""
    secret = tmp_path / "secret"
    secret.write_text("hush")
    sandbox = detect()
    assert "hush" not in place.run(f"cat {secret}", sandbox=sandbox, hidden=(secret,)).output
    place.run(f"echo x > {tmp_path}/escape", sandbox=sandbox)
    assert not (tmp_path / "escape").exists()
    (place.root / "file").write_text("here")
    seen = place.run("cat file; exit 7", sandbox=sandbox)
    assert (seen.outcome, seen.exit_code, seen.output) == ("fail", 7, "here")
    assert place.run("nosuch-command", sandbox=sandbox).outcome == "broken"


@pytest.mark.parametrize(
    ("command", "first"),
    [
        ("seq 5000", "[… the beginning is left out …]"),
        ("printf %05000d 1", f"[… {5_000 - OUTPUT} characters left out …]"),
        ("echo; printf %05000d 1", f"[… {5_001 - OUTPUT} characters left out …]"),
    ],
)
def test_a_shortened_output_says_whether_a_line_was_cut_through(place: Place, command: str, first: str) -> None:
    """Redaction has to know: what is left of such a line may be half of a secret."""
    output = place.run(command).output
    assert output.splitlines()[0] == first
    assert len(output) <= OUTPUT + len(first) + 1


OUTPUTS = {
    "pytest, log lines look like results": (
        "ERROR    root:a.py:5 boom\n=== short test summary info ===\n"
        "FAILED t/a.py::b[x y] - assert 0\nERROR t/c.py\n=== 1 failed, 2 passed, 1 error in 1.2s ===",
        (4, ["t/a.py::b[x y]", "t/c.py"]),
    ),
    "pytest, coloured, two runs": ("\x1b[32m\x1b[1m3 passed\x1b[0m, 1 warning in 0.1s\n2 passed, 1 deselected in 0.2s", (5, [])),
    "unittest": (
        "FAIL: test_a (pkg.T.test_a)\nTraceback\nRan 7 tests in 0.1s\nFAILED (failures=1)",
        (7, ["test_a (pkg.T.test_a)"]),
    ),
    "cargo": (
        "test a::ok ... ok\ntest a::bad ... FAILED\ntest result: FAILED. 3 passed; 1 failed; 2 ignored; 0 measured",
        (6, ["a::bad"]),
    ),
    "go": ("--- FAIL: TestA (0.00s)\n    --- FAIL: TestA/sub (0.00s)\nFAIL", (None, ["TestA", "TestA/sub"])),
    "go, verbose": ("=== RUN   TestA\n--- PASS: TestA (0.00s)\nPASS", (1, [])),
    "jest": ("  ● Console\n  ● sum › adds\n\n  ● sum › adds\nTests:       1 failed, 5 passed, 6 total", (6, ["sum › adds"])),
    "vitest": (" FAIL  src/a.test.ts > adds\n      Tests  1 failed | 5 passed (6)", (6, ["src/a.test.ts > adds"])),
    "TAP": ("ok 1 - a\nnot ok 2 - b\n# tests 2", (2, ["b"])),
    "nothing known": ("FAILED to connect to db.py - sorry\n12 passed the exam", (None, None)),
    "empty": ("", (None, None)),
}


@pytest.mark.parametrize(("output", "expected"), OUTPUTS.values(), ids=OUTPUTS.keys())
def test_results_of_test_runners(output: str, expected: tuple[int | None, list[str] | None]) -> None:
    """Counts and failing tests are read from what well-known runners print, and from nothing else."""
    assert read_results(output) == expected
