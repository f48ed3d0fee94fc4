"""The shape of the house: who may import whom, what the core may call, how long things may be.

Layers and the core's imports are contracts of import-linter (pyproject.toml); the rest is read from the syntax tree. Each
guard is broken on purpose once, on a copy, so that none of them can be asleep.
"""

from __future__ import annotations

import ast
import os
import shutil
import socket
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src/endstop"
MODULES = sorted(path for path in SOURCE.rglob("*.py") if "migrations" not in path.parts)

LONGEST_FUNCTION, LONGEST_MODULE, LONGEST_CORE_MODULE = 50, 400, 300
EXCEPTIONS: dict[str, tuple[int, str]] = {
    "core/events.py": (550, "one vocabulary on one page: declarations only, a class per event"),
}
"""Module or "module:function" to its own limit in code lines, and why."""

SILENT = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER),
}
BANNED_NAMES = {"utils", "util", "helpers", "helper", "common", "base", "manager", "misc"}
BANNED_CALLS = {"open", "print", "input", "exec", "eval", "compile", "__import__", "breakpoint"}
BANNED_CLOCKS = {"now", "utcnow", "today"}
ADAPTERS = {
    *("models.openai", "models.anthropic", "models.bridge", "models.scripted", "models.replay"),
    *("checks.judge", "checks.gates", "checks.look"),
    *("tools.shell", "tools.files", "tools.edit", "tools.search", "tools.mcp"),
}
"""What carries out a port or a tool: chosen by ``assemble`` alone (and by ``testing``, which ships fakes)."""


def name_of(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def code_lines(path: Path) -> set[int]:
    """Numbers of the lines that are neither blank, comment nor docstring."""
    left_out = {
        line
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    with path.open("rb") as file:
        tokens = [token for token in tokenize.tokenize(file.readline) if token.type not in SILENT]
    return {line for token in tokens for line in range(token.start[0], token.end[0] + 1)} - left_out


def too_long(path: Path) -> Iterator[str]:
    """What exceeds its limit in one module."""
    lines = code_lines(path)
    name = name_of(path)
    usual = LONGEST_CORE_MODULE if name.startswith("core/") else LONGEST_MODULE
    limit, _ = EXCEPTIONS.get(name, (usual, ""))
    if len(lines) > limit:
        yield f"{name}: {len(lines)} code lines, {limit} allowed"
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            size = len(lines & set(range(node.lineno, (node.end_lineno or node.lineno) + 1)))
            limit, _ = EXCEPTIONS.get(f"{name}:{node.name}", (LONGEST_FUNCTION, ""))
            if size > limit:
                yield f"{name}:{node.name}: {size} code lines, {limit} allowed"


def touches(source: str) -> Iterator[str]:
    """What a core module must not call. A field or variable of its own may be named like a builtin, but not called."""
    tree = ast.parse(source)
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id in BANNED_CALLS]
    own = {node.id for node in names if isinstance(node.ctx, ast.Store)} | {
        n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)
    }
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for name in names:
        if id(name) in called or (isinstance(name.ctx, ast.Load) and name.id not in own):
            yield f"line {name.lineno}: {name.id}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in BANNED_CLOCKS:
            holder = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
            if holder in ("datetime", "date"):
                yield f"line {node.lineno}: {holder}.{node.attr}"


def adapters_in(path: Path) -> Iterator[str]:
    """Adapters of other areas that a module imports."""
    area = name_of(path).partition("/")[0]
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.module:
            named = {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            named = {alias.name for alias in node.names}
        else:
            continue
        found = {name.removeprefix("endstop.") for name in named} & ADAPTERS
        yield from (name for name in found if not name.startswith(f"{area}."))


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_nothing_is_too_long(path: Path) -> None:
    """Functions and modules keep to their limits; an exception is listed with its reason."""
    assert list(too_long(path)) == []


def test_exceptions_are_needed_and_explained() -> None:
    """Every exception names something that exists, exceeds the usual limit, and says why."""
    for name, (limit, why) in EXCEPTIONS.items():
        module, _, function = name.partition(":")
        usual = LONGEST_FUNCTION if function else LONGEST_CORE_MODULE if module.startswith("core/") else LONGEST_MODULE
        assert (SOURCE / module).exists()
        assert limit > usual
        assert len(why) > 20
        if not function:
            assert len(code_lines(SOURCE / module)) > usual


@pytest.mark.parametrize("path", sorted((SOURCE / "core").rglob("*.py")), ids=name_of)
def test_the_core_calls_nothing_that_touches_the_world(path: Path) -> None:
    """No file, no terminal, no clock: what the core needs comes in as arguments."""
    assert list(touches(path.read_text())) == []


@pytest.mark.parametrize(
    "line",
    ["open('x')", "print(1)", "x = eval('1')", "f = open", "datetime.now()", "f = date.today", "datetime.datetime.utcnow()"],
)
def test_the_guard_of_the_core_sees_each_of_them(line: str) -> None:
    """Every forbidden call is found, also where it is only named."""
    assert len(list(touches(f"def f():\n    {line}\n"))) == 1


def test_names_say_what_is_inside() -> None:
    """No module is called after being useful."""
    assert [name_of(path) for path in SOURCE.rglob("*") if path.stem in BANNED_NAMES] == []


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_only_assemble_names_adapters(path: Path) -> None:
    """Which model, tool, gate runner or judge it is, is decided in one place."""
    if name_of(path) not in ("assemble.py", "testing.py"):
        assert list(adapters_in(path)) == []


def lint(source: Path) -> subprocess.CompletedProcess[str]:
    start = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    command = [sys.executable, "-c", start, "--no-cache", "--no-logo"]
    env = {**os.environ, "PYTHONPATH": str(source / "src"), "NO_COLOR": "1", "COLUMNS": "200"}
    return subprocess.run(command, cwd=source, env=env, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A copy of the sources to break."""
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_the_layers_hold(house: Path) -> None:
    """Every import of the real sources points down."""
    done = lint(house)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("core/bad.py", "import os", "The core touches nothing"),
        ("core/bad.py", "from pathlib import Path", "The core touches nothing"),
        ("core/bad.py", "from endstop.host import spawn", "only point down"),
        ("tools/bad.py", "import endstop.store", "only point down"),
        ("models/bad.py", "from endstop import checks", "only point down"),
        ("host/bad.py", "import endstop.runtime", "only point down"),
        ("somewhere.py", "", "only point down"),
    ],
)
def test_a_broken_layer_is_seen(house: Path, module: str, line: str, contract: str) -> None:
    """An import that points up or sideways, out of the core, or a module that is in no layer, fails the check."""
    (house / "src/endstop" / module).write_text(line + "\n")
    done = lint(house)
    assert done.returncode != 0
    assert contract in done.stdout


def test_a_test_cannot_leave_this_machine() -> None:
    """Connecting to any other address is refused before a packet is sent; loopback is not."""
    with socket.socket() as sock, pytest.raises(BaseException, match="only connect to this machine"):
        sock.connect(("192.0.2.1", 9))
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname(), timeout=5) as sock:
        assert sock.getpeername() == server.getsockname()


def test_a_missing_part_is_an_error_in_ci_only(tmp_path: Path) -> None:
    """A test that needs a program that is not there is skipped by name, and in CI it fails."""
    shutil.copy(ROOT / "tests/conftest.py", tmp_path)
    (tmp_path / "test_it.py").write_text("import pytest\n@pytest.mark.needs('no-such-program')\ndef test_it(): pass\n")
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml")]
    command += ["--rootdir", ".", "test_it.py"]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    local, ci = (
        subprocess.run(command, cwd=tmp_path, env={**env, "CI": value}, capture_output=True, text=True, check=False)
        for value in ("", "true")
    )
    assert "needs no-such-program: not installed" in local.stdout
    assert (local.returncode, ci.returncode) == (0, 1)
    assert "make test-deps" in ci.stdout
