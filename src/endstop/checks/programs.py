"""What the programs that a gate calls read without being told by a path: modules, settings, and what could take their place."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from glob import escape, glob
from pathlib import Path
from typing import Literal, NamedTuple

from endstop.checks.commands import Call, calls
from endstop.host.paths import inside, open_regular

Kind = Literal["program", "setting", "manifest", "noticed", "instead", "hides"]
"""What a file is to a gate, and so what its change means.

program: it is run; who names one that is not there wants it written. setting: changes what a run does, also by appearing.
manifest: the same, but nothing works without it, so that somebody has to write the first. noticed: work may well change it.
instead: it comes before what was used at the start. hides: by appearing it hides a module; of what was there nothing is held.
"""

RUNNERS = ("uv", "uvx", "poetry", "pipenv", "pdm", "hatch", "npx", "pnpm", "yarn", "bunx")
TEST_FOLDERS = frozenset({"tests", "test", "__tests__", "spec"})
_NODE = {"npm", "npx", "yarn", "pnpm", "bun", "bunx", "jest", "mocha", "vitest", "ava"}
_SETTINGS: tuple[tuple[set[str], Kind, str], ...] = (
    ({"npm", "yarn", "pnpm", "bun"}, "manifest", "package.json#scripts"),
    (_NODE, "setting", "package.json#jest package.json#mocha jest.config.* vitest.config.* .mocharc* .npmrc"),
    ({"tox"}, "manifest", "tox.ini"),
    ({"tox"}, "setting", "pyproject.toml#tool.tox"),
    ({"nox"}, "manifest", "noxfile.py"),
    ({"coverage", "--cov"}, "setting", ".coveragerc pyproject.toml#tool.coverage setup.cfg#coverage:report"),
    ({"cargo"}, "instead", ".cargo/config.toml .cargo/config rust-toolchain.toml rust-toolchain"),
    ({"cargo"}, "setting", "Cargo.toml#targets"),
    ({"cargo"}, "noticed", "build.rs"),
    ({"go"}, "instead", "go.work"),
)
_PYTEST = [
    "pytest.toml",
    ".pytest.toml",
    "pytest.ini",
    ".pytest.ini",
    "pyproject.toml#tool.pytest",
    "tox.ini#pytest",
    "setup.cfg#tool:pytest",
]
_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
_PYTHON = re.compile(r"(python|pypy)[\d.]*|py\.?test|nose2|nosetests|coverage|trial|green|django-admin|manage\.py")
_TAKE_MODULES = {"unittest", "nose2", "nosetests", "trial", "green", "manage.py", "django-admin"}
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_PLAIN = re.compile(r"\w[\w.+-]*")
# Modules that runners import, and which a file of that name beside the tests would hide.
_IMPORTED = """
    sitecustomize usercustomize pytest _pytest py pluggy iniconfig packaging pygments xdist execnet hypothesis coverage
    pytest_cov pytest_asyncio anyio nose2 twisted django mypy mypy_extensions ruff flake8 pylint black isort pyright
"""
_HIDEABLE = (frozenset(_IMPORTED.split()) | sys.stdlib_module_names) - {"test", "this", "antigravity", "idlelib"}
_LARGEST_RECIPE = 256 * 1024


class Place(NamedTuple):
    """The workspace as a gate finds it.

    Args:
        path: $PATH of the gate.
        was_there: whether a path was there at the start.
        tests: Python tests that the gate runs, and whether it ``names`` them.
    """

    root: Path
    path: str
    was_there: Callable[[str], bool]
    tests: Collection[str]
    names: bool


def reads(call: Call, place: Place) -> Iterator[tuple[Kind, str]]:
    """Paths below the workspace that one call relies on, there or not; the last part may be a glob."""
    names = {word.rpartition("/")[2] for word in call.words}
    names |= {"--cov"} if any(word.startswith("--cov") for word in names) else set()
    folder = _option(call.words, ("-C", "--directory", "--prefix", "--cwd"), call.folder)
    yield from _programs(call, names, place)
    for programs, kind, files in _SETTINGS:
        if names & programs:
            yield from ((kind, os.path.join(folder, file)) for file in files.split())
    if names & {"make", "gmake"}:
        yield from _makefiles(folder, place)
    if names & {"pytest", "py.test"}:
        yield from _pytest(call.folder, place)
    if any(_PYTHON.fullmatch(name) for name in names):
        yield from _packages(place)
        yield from (("hides", path) for path in _hiding(call, place))


def recipes(call: Call, root: Path) -> Iterator[Call]:
    """The calls that a Makefile's recipes make, as far as they can be read; which of them are made is not asked."""
    names = {word.rpartition("/")[2] for word in call.words}
    if not names & {"make", "gmake"}:
        return
    folder = _option(call.words, ("-C", "--directory"), call.folder)
    for name in _MAKEFILES:
        try:
            with open_regular(root, os.path.normpath(os.path.join(folder, name))) as file:
                text = file.read(_LARGEST_RECIPE).decode("utf-8", "replace")
        except OSError:
            continue
        for line in text.replace("\\\n", " ").splitlines():
            if line.startswith("\t"):
                yield from (each._replace(folder=os.path.join(folder, each.folder)) for each in calls(line.strip("\t @-+")))
        return


# ------------------------------------------------------------------------------------------------------------- the program


def _programs(call: Call, names: set[str], place: Place) -> Iterator[tuple[Kind, str]]:
    """Files of the workspace that the words of a call run: which word is a program is not asked."""
    first = call.words[0]
    found = [os.path.join(call.folder, _relative(place.root, first))] if "/" in first else []
    words = [word for word in call.words if _PLAIN.fullmatch(word)]
    if names & {*RUNNERS, "npm"}:
        found += [os.path.join(call.folder, below, word) for below in (".venv/bin", "node_modules/.bin") for word in words]
    for path in found:
        yield "program", path
        yield from _environment(path, place)
    entries = _search_path(call, place)
    if any(own is not None for _, own in entries):
        for word in words:
            yield from _on_path(word, entries, place)


def _search_path(call: Call, place: Place) -> list[tuple[str, str | None]]:
    """Folders of $PATH, each with where it lies in the workspace, None if outside."""
    named = call.variables.get("PATH", "$PATH").replace("${PATH}", "$PATH").replace("$PATH", place.path)
    folders = [os.path.join(place.root, call.folder, entry) for entry in named.split(":") if entry not in ("", ".")]
    return [(folder, inside(place.root, folder)) for folder in folders]


def _on_path(word: str, entries: list[tuple[str, str | None]], place: Place) -> Iterator[tuple[Kind, str]]:
    """What $PATH could find for a word up to what it found at the start."""
    passed: list[str] = []
    there = False
    for folder, own in entries:
        if own is not None:
            passed.append(os.path.join(own, word))
            there = place.was_there(os.path.normpath(passed[-1]))
        else:
            there = os.path.isfile(os.path.join(folder, word))
        if there:
            break
    for path in passed:
        yield ("instead" if there else "program"), path
        yield from _environment(path, place)


def _environment(path: str, place: Place) -> Iterator[tuple[Kind, str]]:
    """What a Python environment in the workspace runs at each start."""
    around = os.path.dirname(os.path.dirname(path))
    if os.path.basename(os.path.dirname(path)) == "bin" and os.path.isfile(os.path.join(place.root, around, "pyvenv.cfg")):
        for packages in glob(f"{escape(os.path.join(place.root, around))}/lib/python*/site-packages"):
            below = os.path.relpath(packages, place.root)
            yield from (("instead", os.path.join(below, name)) for name in ("sitecustomize.py", "usercustomize.py"))


# ---------------------------------------------------------------------------------------------------------------- settings


def _makefiles(folder: str, place: Place) -> Iterator[tuple[Kind, str]]:
    paths = [os.path.normpath(os.path.join(folder, name)) for name in _MAKEFILES]
    used = next((path for path in paths if place.was_there(path)), None)
    for path in paths:
        yield ("manifest" if used in (path, None) else "instead"), path
        if path == used:
            return


def _pytest(folder: str, place: Place) -> Iterator[tuple[Kind, str]]:
    """conftest.py and settings in every folder above a test; where the gate names no test, those at the top count most."""
    for above in _above(folder, place.tests):
        kind: Kind = "setting" if place.names or above in ("", folder) else "noticed"
        yield from ((kind, os.path.join(above, name)) for name in ("conftest.py", *_PYTEST))


def _packages(place: Place) -> Iterator[tuple[Kind, str]]:
    """The ``__init__.py`` of folders of tests: it runs before each test in it. A new one without a word does nothing."""
    for above in _above("", place.tests):
        path = os.path.join(above, "__init__.py")
        if not TEST_FOLDERS.isdisjoint(above.split("/")) and (place.was_there(path) or _size(place.root, path)):
            yield ("setting" if place.names else "noticed"), path


def _size(root: Path, path: str) -> int:
    try:
        return os.stat(os.path.join(root, path)).st_size
    except OSError:
        return 0


def _above(folder: str, tests: Iterable[str]) -> set[str]:
    folders = {"", folder}
    for test in tests:
        while test:
            test = os.path.dirname(test)
            folders.add(test)
    return folders


# ----------------------------------------------------------------------------------------------------------------- modules


def module_words(call: Call) -> Iterator[str]:
    """Paths that the modules named in a call of Python could have: files, packages and folders."""
    folders = [call.folder, *_python_path(call)]
    for module in _modules(call.words):
        for count in range(1, module.count(".") + 2):
            start = os.path.join(*module.split(".")[:count])
            yield from (os.path.join(folder, f"{start}.py") for folder in folders)
        whole = module.replace(".", "/")
        for folder in folders:
            yield from (os.path.join(folder, whole, name) for name in ("__init__.py", "__main__.py", ""))


def _modules(words: list[str]) -> Iterator[str]:
    """Names of modules in a command: after ``-m``, what test runners take, plugins of pytest."""
    for position, word in enumerate(words):
        name, after = word.rpartition("/")[2], words[position + 1 :]
        if re.fullmatch(r"(python|pypy)[\d.]*", name) or (name == "run" and "coverage" in words):
            yield from _run_by_python(after)
        elif name in _TAKE_MODULES:
            yield from filter(_MODULE.fullmatch, after)
        elif name in ("pytest", "py.test"):
            plugins = [after[at + 1] for at, option in enumerate(after[:-1]) if option == "-p"]
            plugins += [option[2:] for option in after if option.startswith("-p")]
            yield from filter(_MODULE.fullmatch, [*plugins, *(after if "--pyargs" in after else ())])


def _run_by_python(words: list[str]) -> Iterator[str]:
    for position, word in enumerate(words):
        if word == "-m":
            yield from filter(_MODULE.fullmatch, words[position + 1 : position + 2])
        elif word.startswith("-m"):
            yield from filter(_MODULE.fullmatch, [word[2:]])
        if not word.startswith("-") or word.startswith(("-m", "-c")):
            return


def _python_path(call: Call) -> list[str]:
    entries = call.variables.get("PYTHONPATH", "").split(":")
    return [os.path.join(call.folder, entry) for entry in entries if entry and "$" not in entry]


def _hiding(call: Call, place: Place) -> Iterator[str]:
    """Importable files that come before modules a runner imports, and before the tests themselves."""
    folders = {call.folder, *_python_path(call)}
    folders |= {os.path.join(call.folder, os.path.dirname(word)) for word in call.words if word.endswith(".py")}
    folders |= {_option(call.words, ("-s", "--start-directory", "-t"), call.folder)}
    folders |= {_import_folder(place.root, test) for test in place.tests}
    stems: dict[str, set[str]] = {}
    for test in place.tests:
        stems.setdefault(os.path.dirname(test), set()).add(os.path.basename(test).partition(".")[0])
    for folder in {os.path.normpath(folder or ".") for folder in folders} | {folder or "." for folder in stems}:
        own = stems.get("" if folder == "." else folder, set())
        if inside(place.root, folder) is not None:
            yield from (path for path in _importable(place.root, folder, own) if path not in place.tests)


def _import_folder(root: Path, test: str) -> str:
    """The folder that pytest puts before all others for a test: the first above it that is no package."""
    folder = os.path.dirname(test)
    while folder and os.path.isfile(os.path.join(root, folder, "__init__.py")):
        folder = os.path.dirname(folder)
    return folder


def _importable(root: Path, folder: str, own: set[str]) -> Iterator[str]:
    try:
        names = sorted(os.listdir(os.path.join(root, folder)))
    except OSError:
        return
    for name in names:
        stem, _, suffix = name.partition(".")
        if stem not in own and stem not in _HIDEABLE:
            continue
        path = os.path.normpath(os.path.join(folder, name))
        if suffix.rpartition(".")[2] in ("py", "pyc", "so"):
            yield path
        elif not suffix:
            yield from (os.path.relpath(file, root) for file in glob(f"{escape(os.path.join(root, path))}/__init__.*"))


def _relative(root: Path, path: str) -> str:
    return os.path.relpath(path, root) if os.path.isabs(path) else path


def _option(words: list[str], names: tuple[str, ...], default: str) -> str:
    for position, word in enumerate(words[:-1]):
        if word in names:
            return os.path.join(default, words[position + 1])
    return default
