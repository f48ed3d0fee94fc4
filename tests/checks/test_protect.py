"""Which gates are refused, which files they rely on, and what these hash to."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from endstop.checks.protect import (
    default_inputs,
    hashes,
    literal_inputs,
    missing_command,
    named_inputs,
    protected_inputs,
    refuse_masked,
)
from endstop.core.events import Contract, Gate
from endstop.errors import UsageError

MASKED = """
pytest || true
pytest ; true
pytest || :
pytest; exit 0
pytest &
pytest & true
pytest || exit 0
pytest || echo failed
pytest || echo failed >&2
pytest 2>&1 || true
pytest || true # fine
pytest ||true;
pytest; echo done
pytest; wait
pytest & wait
(pytest || true)
{ pytest || true; }
pytest || (true)
pytest || { echo x; true; }
pytest || true | true
a && b || true
set -e; pytest || true
bash -c 'pytest || true'
env A=1 sh -ec 'pytest || :'
""".strip().splitlines()

HONEST = r"""
true
pytest
pytest;
pytest -q | tee log
pytest && echo ok
pytest || exit 1
pytest || test -f known-broken
pytest || { echo failed; exit 1; }
pytest || (echo failed; exit 1)
pytest; exit $?
pytest > log 2>&1
pytest &> log
pytest # || true
set -e; pytest; echo ok
set -euo pipefail; pytest; echo ok
export A=1; true
cd sub; pytest
a || true && b
true || false
! grep -r TODO src
echo '|| true'
grep 'a;true' file
npm start & sleep 1; npm test
pytest -k 'a' # don't worry
echo a '||' true
find . -name x -exec grep y {} \;
python -c $'print("it\'s")'
if pytest; then echo ok; else exit 1; fi
bash -c 'pytest || exit 1'
""".strip().splitlines()


@pytest.mark.parametrize("command", [*MASKED, "pytest\ntrue", "pytest || \\\n true", "pytest &\n"])
def test_a_gate_that_cannot_fail_is_refused(command: str) -> None:
    """A gate whose end hides the exit status is a usage error with a remedy."""
    with pytest.raises(UsageError) as caught:
        refuse_masked(command)
    assert command in str(caught.value) or repr(command) in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize("command", [*HONEST, "pytest a\npytest b", "python - <<'EOF'\nprint(\"it's\")\nEOF"])
def test_an_honest_gate_is_taken(command: str) -> None:
    """Alternatives that can fail, pipes, groups and comments are no masks."""
    refuse_masked(command)


@pytest.mark.parametrize("command", ["", "  \n", "# nothing", "pytest 'a", 'echo "', ";"])
def test_what_is_no_command_is_refused(command: str) -> None:
    """An empty gate and one whose quotes do not close say so."""
    with pytest.raises(UsageError):
        refuse_masked(command)


@pytest.mark.parametrize(
    ("command", "missing"),
    [
        ("nosuch --flag", "nosuch"),
        ("A=1 nosuch", "nosuch"),
        ("cd sub && nosuch", "nosuch"),
        ("env A=1 nosuch", "nosuch"),
        ("! time nosuch", "nosuch"),
        ("set -e; nosuch", "nosuch"),
        ("bash -c 'nosuch x'", "nosuch"),
        ("/usr/bin/nosuch", "/usr/bin/nosuch"),
        ("ls", None),
        ("./check.sh", None),
        ("cd sub && ../check.sh", None),
        ("ci/not-yet-written.sh", None),
        ("$TOOL x", None),
        ("PATH=bin:$PATH nosuch", None),
        (". bin/activate && nosuch", None),
        ("env -u A nosuch", None),
        ("true", None),
        ("if ls; then true; fi", None),
        ("'", None),
    ],
)
def test_missing_command(tmp_path: Path, command: str, missing: str | None) -> None:
    """The first program is looked for on PATH and in the workspace; what cannot be told is not called missing."""
    assert missing_command(command, tmp_path, "/usr/bin:/bin") == missing


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace with tests, scripts and settings."""
    files = "tests/test_a.py tests/sub/test_b.py tests/sub/conftest.py tests/data.json check.py ci/test.sh x.toml setup.cfg"
    files += (
        " sub/test_c.py src/app.py Makefile package.json tox.ini README.md pytest.ini web/app.test.ts .github/workflows/ci.yml"
    )
    for name in files.split():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text('{"scripts": {"test": "jest"}}' if name == "package.json" else "")
    return tmp_path


def contract(*commands: str, deliverables: tuple[str, ...] = (), inputs: tuple[str, ...] = ()) -> Contract:
    gates = [Gate(gate_id=f"g{number}", run=command) for number, command in enumerate(commands)]
    return Contract(gates=gates, deliverables=list(deliverables), inputs=list(inputs))


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("python check.py", {"check.py"}),
        ("bash ci/test.sh", {"ci/test.sh"}),
        ("./ci/test.sh && true", {"ci/test.sh"}),
        ("bash -c 'python check.py'", {"check.py"}),
        ("mytool --config=x.toml -c setup.cfg", {"x.toml", "setup.cfg"}),
        ("cut -d ';' x.toml | grep '|' README.md", {"x.toml"}),
        ("mytool < x.toml > README.md", {"x.toml"}),
        ("make -s all", {"Makefile"}),
        ("npm test", {"package.json#scripts"}),
        ("tox -e py", {"tox.ini"}),
        ("ruff check src/app.py", set()),
        ("uv run mypy src/app.py", set()),
        ("python -m mypy src/app.py", set()),
        ("grep -q done README.md", set()),
        ("cat ../outside /etc/passwd", set()),
        ("pytest 'unclosed", set()),
    ],
)
def test_what_a_command_names(root: Path, command: str, named: set[str]) -> None:
    """Scripts, settings and implied files are named; files a linter looks at and files written are not."""
    assert named_inputs(contract(command), root) == named


@pytest.mark.parametrize(
    "command", ["pytest tests/test_a.py::test_x", "python -m pytest tests/test_a.py", "uv run pytest -q tests/test_a.py"]
)
def test_what_pytest_relies_on(root: Path, command: str) -> None:
    """A named test brings its conftest.py files, there or not, and the settings of pytest."""
    (root / "setup.cfg").write_text("[tool:pytest]\naddopts = -q\n")
    expected = {"tests/test_a.py", "conftest.py", "tests/conftest.py", "pytest.ini", "setup.cfg#tool:pytest"}
    assert named_inputs(contract(command), root) == expected


def test_a_folder_names_the_tests_below_it_and_cd_is_followed(root: Path) -> None:
    """Directories stand for their existing tests; paths after a cd are below that folder."""
    below = named_inputs(contract("pytest tests"), root)
    assert {"tests/test_a.py", "tests/sub/test_b.py", "tests/sub/conftest.py", "tests/data.json"} <= below
    assert "sub/test_c.py" in named_inputs(contract("cd sub && pytest test_c.py"), root)


def test_inputs_of_the_contract_may_be_folders_and_globs(root: Path) -> None:
    """What the user names is protected whole."""
    assert named_inputs(contract(inputs=("src", "ci/*.sh", "nowhere", "../x")), root) == {"src/app.py", "ci/test.sh"}


@pytest.mark.parametrize("word", ["print(2**3)", "q***", "a[", "[!", "**foo", "x" * 5000, "!x*", "#*", "a\\*"])
def test_words_that_look_like_globs_do_no_harm(root: Path, word: str) -> None:
    """Code, regular expressions and broken patterns on a command line name nothing."""
    assert named_inputs(contract(f"python -c '{word}'"), root) == set()
    assert hashes(root, [word]) in ({word: "absent"}, {word: "unreadable"})


def test_a_glob_on_the_command_line_names_what_it_matches(root: Path) -> None:
    """Of a glob, as of a folder, the tests count; loops of links end."""
    (root / "loop").symlink_to(".")
    (root / "ring").symlink_to(".")
    (root / "away").symlink_to("/")
    assert named_inputs(contract("mytool away", inputs=("away/etc",)), root) == set()
    assert named_inputs(contract("node **/*.py src/*"), root) == default_inputs(root) & {
        "tests/test_a.py",
        "tests/sub/test_b.py",
        "tests/sub/conftest.py",
        "sub/test_c.py",
    }
    assert named_inputs(contract("mytool **/test_b.py"), root) == {"tests/sub/test_b.py"}


def test_a_deliverable_is_never_protected(root: Path) -> None:
    """The agent has to write its deliverables, also where a gate names them or the defaults would take them."""
    wanted = contract("python check.py", "pytest tests", deliverables=("./check.py", "tests", "web/app.test.ts"))
    assert "check.py" not in named_inputs(wanted, root) | literal_inputs(wanted, root)
    assert not any(path.startswith(("tests/", "web/")) for path in protected_inputs(wanted, root))


def test_what_was_there_at_the_start_stays_named(root: Path) -> None:
    """A file that was deleted meanwhile is still one that the gate names."""
    known = {"tests/test_a.py", "tests/test_gone.py", "Makefile", "package.json#scripts"}
    (root / "Makefile").unlink()
    (root / "package.json").unlink()
    named = named_inputs(contract("pytest tests/test_gone.py", "pytest tests", "make", "npm test"), root, known)
    assert known <= named


def test_literal_inputs_depend_on_the_contract_alone(tmp_path: Path) -> None:
    """Whether a path exists plays no part, so that the same files always give the same fingerprint."""
    assert {"check.py", "a/b.toml"} <= literal_inputs(contract("python check.py", inputs=("a/b.toml", "c/*.py")), tmp_path)
    outside = contract("python ../x /etc/passwd .", inputs=("..",))
    assert not {path for path in literal_inputs(outside, tmp_path) if "x" in path}


def test_default_inputs_are_tests_and_their_settings(root: Path) -> None:
    """Tests by name or folder, settings of tests and of CI; no sources, nothing ignored."""
    (root / ".gitignore").write_text("tests/generated/\n")
    (root / "tests" / "generated").mkdir()
    (root / "tests" / "generated" / "test_g.py").write_text("")
    (root / os.fsdecode(b"tests/test_\xff.py")).write_text("")
    expected = {"tests/test_a.py", "tests/sub/test_b.py", "tests/sub/conftest.py", "tests/data.json", "sub/test_c.py", "tox.ini"}
    assert default_inputs(root) == expected | {"pytest.ini", "web/app.test.ts", ".github/workflows/ci.yml"}


def test_only_the_part_that_counts_is_hashed(root: Path) -> None:
    """A new dependency is no change of the scripts or of the pytest settings; a changed script is one."""
    package, project, setup = root / "package.json", root / "pyproject.toml", root / "setup.cfg"
    paths = ["package.json#scripts", "pyproject.toml#tool.pytest", "setup.cfg#tool:pytest"]
    package.write_text(json.dumps({"scripts": {"test": "jest"}}))
    project.write_text("[tool.pytest.ini_options]\naddopts = '-q'\n")
    setup.write_text("[tool:pytest]\naddopts = -q\n")
    before = hashes(root, paths)
    package.write_text(json.dumps({"dependencies": {"left": "1"}, "scripts": {"test": "jest"}}, indent=4))
    project.write_text("[project]\nname = 'x'\n[tool.pytest.ini_options]\naddopts = '-q'\n")
    setup.write_text("[metadata]\nname = x\n[tool:pytest]\naddopts = -q\n")
    assert hashes(root, paths) == before
    package.write_text(json.dumps({"scripts": {"test": "true"}}))
    project.write_text("[tool.pytest.ini_options]\naddopts = '--collect-only'\n")
    setup.write_text("[tool:pytest]\naddopts = --collect-only\n")
    after = hashes(root, paths)
    assert all(after[path] != before[path] for path in paths)


@pytest.mark.parametrize("content", ["{", "[]", '"x"', "[tool.pytest", "[tool:pytest]\n[tool:pytest]\n", "\ufeff{}"])
def test_a_broken_settings_file_is_hashed_whole(root: Path, content: str) -> None:
    """What cannot be read as settings still has a value, and repairing it changes that."""
    paths = ["package.json#scripts", "pyproject.toml#tool.pytest", "setup.cfg#tool:pytest"]
    for path in paths:
        (root / path.partition("#")[0]).write_text(content)
    assert set(hashes(root, paths)) == set(paths)


def test_hashes_follow_links_only_inside(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A link inside the workspace is its content, one that leads out is a link, a missing or special file is absent."""
    outside = tmp_path_factory.mktemp("outside") / "secret"
    outside.write_text("one")
    (root / "in").symlink_to("check.py")
    (root / "out").symlink_to(outside)
    os.mkfifo(root / "fifo")
    before = hashes(root, ["in", "out", "gone", "src", "check.py", "gone.json#scripts"])
    assert before["in"] != before["check.py"], "a link in the place of a file is a change"
    assert before["gone"] == before["src"] == before["gone.json#scripts"] == "absent"
    outside.write_text("two")
    (root / "check.py").write_text("changed")
    after = hashes(root, ["in", "out"])
    assert after["in"] != before["in"]
    assert after["out"] == before["out"]
