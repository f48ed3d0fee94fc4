"""Which files a verdict relies on, what they hash to, and which gates cannot be relied on at all."""

from __future__ import annotations

import configparser
import fnmatch
import json
import os
import re
import shutil
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cached_property
from hashlib import sha256
from pathlib import Path

from pathspec import GitIgnoreSpec

from endstop.checks.commands import Unreadable, cannot_fail, program, simple_commands
from endstop.core.events import Contract
from endstop.errors import UsageError
from endstop.host.paths import inside, open_beneath, walk

ABSENT = "absent"
DEFAULTS = 5_000
"""Files protected without being named; of more, those nearest to the top."""

_TEST_NAMES = (
    "test_*.py",
    "*_test.py",
    "*_test.go",
    "*_spec.rb",
    "*_test.rb",
    "*[tT]est.java",
    "*[tT]ests.java",
    "*Test.kt",
    "*Tests.cs",
    "*.test.*",
    "*.spec.*",
    "*_test.exs",
    "*_test.dart",
)
_TEST_FOLDERS = ("tests", "test", "__tests__", "spec")
_SETTINGS = (
    "conftest.py",
    "pytest.ini",
    "tox.ini",
    "noxfile.py",
    ".coveragerc",
    "jest.config.*",
    "vitest.config.*",
    "playwright.config.*",
    "cypress.config.*",
    ".mocharc*",
    "karma.conf.*",
    "phpunit.xml*",
    ".rspec",
    ".pre-commit-config.yaml",
    ".gitlab-ci.yml",
    ".travis.yml",
    "azure-pipelines.yml",
    "Jenkinsfile",
    ".drone.yml",
)
_CI_FOLDERS = (".github/workflows/", ".github/actions/", ".circleci/", ".buildkite/")
_NPM = "package.json#scripts"
_PYTEST_TABLES = ("pyproject.toml#tool.pytest", "setup.cfg#tool:pytest")
# Programs whose arguments are what is examined, not what examines: the agent is meant to change them.
_EXAMINERS = """
    [ awk black cat clippy-driver du egrep eslint fgrep find flake8 git gofmt grep head isort jq ls mkdir mypy prettier
    pylint pyright rg rm ruff rustfmt sed shellcheck shfmt stat stylelint tail tee test touch tsc wc
"""
# What the shell knows by itself; the second list may change what PATH means.
_SHELL_WORDS = """
    if then else elif fi for in do done while until case esac function select { } [[ ]] ! time coproc
    : [ alias bg bind break builtin caller cd command compgen complete continue declare dirs disown echo enable exec
    exit export false fc fg getopts hash help history jobs kill let local logout mapfile popd printf pushd pwd read readarray
    readonly return set shift shopt suspend test times trap true type typeset ulimit umask unalias unset wait
"""
_PATH_CHANGERS = ". source eval"
_RUNNERS = ("uv", "uvx", "poetry", "pipenv", "pdm", "hatch", "npx", "pnpm", "yarn", "bunx")
_GLOB = re.compile(r"[*?\[]")
_EXAMINER = frozenset(_EXAMINERS.split())
_OF_SHELL = frozenset(_SHELL_WORDS.split())


def refuse_masked(command: str) -> None:
    """Refuse a gate whose exit status cannot say no.

    Raises:
        UsageError: the command ends in ``|| true``, ``; true``, ``|| echo``, ``&`` or the like, is empty, or its quotes
            do not close.
    """
    where = f"gate {command!r}"
    try:
        if not simple_commands(command):
            raise UsageError("a gate needs a command", where=where, hint="give the command whose exit status 0 means it passes")
        masked = cannot_fail(command)
    except Unreadable as error:
        if "<<" in command or "$'" in command:  # quotes of another kind, which bash reads and we do not
            return
        raise UsageError(str(error), where=where, hint="close the quote, or put the commands into a script") from None
    if masked:
        hint = "end with the command that decides: drop the last || or ; part, or the final &"
        raise UsageError("it passes whatever happens, because its end hides the exit status", where=where, hint=hint)


def missing_command(run: str, root: Path, path: str) -> str | None:
    """The first program a gate calls if it is neither the shell's, on ``path`` (as $PATH), nor in the workspace.

    None also where that cannot be told: ``$TOOL``, a PATH that the gate changes, a command that cannot be read.
    """
    try:
        commands = simple_commands(run)
    except Unreadable:
        return None
    folder = ""
    for words in commands:
        rest = program(words)
        name = rest[0] if rest else ""
        if name == "cd" and len(rest) > 1:
            folder = os.path.join(folder, rest[-1])
        if any(word.startswith("PATH=") for word in words) or name.startswith("-") or name in _PATH_CHANGERS.split():
            return None
        if name and name not in _OF_SHELL:
            known = any(sign in name for sign in "$`*?~") or _found(name, root, folder, path)
            return None if known else name
    return None


def _found(name: str, root: Path, folder: str, path: str) -> bool:
    if "/" not in name:
        return shutil.which(name, path=path) is not None
    return os.path.exists(os.path.join(root, folder, name)) or inside(root, os.path.join(folder, name)) not in (None, ".")


# ------------------------------------------------------------------------------------------------------------ what is named


def literal_inputs(contract: Contract) -> set[str]:
    """Every path the gates' commands and the contract could mean, whether it is there or not. Globs are left out."""
    words = {path for gate in contract.gates for path in _path_words(gate.run)}
    named = {path for path in contract.inputs if not _GLOB.search(path)}
    return {path for word in words | named if (path := _normal(word)) and not _is_deliverable(path, contract)}


def named_inputs(contract: Contract, root: Path, known: Collection[str] = ()) -> set[str]:
    """Paths of verifier inputs that the gates' commands or ``contract.inputs`` name, and those these imply.

    A path stands here if it exists or is in ``known`` (what existed at the start); a conftest.py that would take part stands
    here even if it is not there. "FILE#PART" is a part of a file. Deliverables never stand here.
    """
    reader = _Reader(root, known)
    for gate in contract.gates:
        reader.gate(gate.run)
    for pattern in contract.inputs:
        reader.named(pattern, everything=True)
    return {path for path in reader.found if not _is_deliverable(path, contract) and _writable(path)}


def protected_inputs(contract: Contract, root: Path) -> set[str]:
    """All inputs that are hashed at the start: the named ones, tests, and the configuration of tests and CI."""
    default = {path for path in default_inputs(root) if not _is_deliverable(path, contract)}
    return default | named_inputs(contract, root)


class _Reader:
    """Collects the inputs of one contract."""

    def __init__(self, root: Path, known: Collection[str]) -> None:
        self.found: set[str] = set()
        self._root = root
        self._known = known

    def exists(self, path: str) -> bool:
        return path in self._known or os.path.lexists(os.path.join(self._root, path))

    def gate(self, run: str) -> None:
        tests = [file for word in _path_words(run) for file in self.named(_relative(self._root, word))]
        for words, folder in _commands(run):
            names = {word.rpartition("/")[2] for word in words}
            self._implied(words, names, folder)
            if names & {"pytest", "py.test"}:
                self._pytest(tests)

    def named(self, word: str, *, everything: bool = False) -> list[str]:
        """Add what a path, folder or glob means; of the latter two the tests, or everything. Returns what was added."""
        path = _normal(word)
        if path is None:
            return []
        if self.exists(path) and not os.path.isdir(os.path.join(self._root, path)):
            added = [path]
        else:
            added = [file for file in self._several(path) if everything or is_test(file)]
        self.found.update(added)
        return added

    def _several(self, path: str) -> list[str]:
        """Files below a folder (also one that was there at the start), or that match a glob as in ignore files."""
        if self.exists(path) or not _GLOB.search(path):
            there = walk(self._root, path) if inside(self._root, path) else ()
            return [file for file in {*there, *self._known} if file.startswith(f"{path}/")]
        try:
            return list(GitIgnoreSpec.from_lines([f"/{path}"]).match_files({*self._files, *self._known}))
        except ValueError:  # no glob after all
            return []

    @cached_property
    def _files(self) -> list[str]:
        return list(walk(self._root))

    def _implied(self, words: list[str], names: set[str], folder: str) -> None:
        folder = _option(words, ("-C", "--directory", "--prefix", "--cwd"), folder)
        if names & {"make", "gmake"}:
            self._add(folder, ("GNUmakefile", "makefile", "Makefile"))
        if names & {"npm", "yarn", "pnpm", "bun"}:
            self._add(folder, (_NPM,))
        if "tox" in names:
            self._add(folder, ("tox.ini",))

    def _add(self, folder: str, names: Iterable[str]) -> None:
        for name in names:
            path = _normal(os.path.join(folder, name))
            if path and self.exists(path if path in self._known else path.partition("#")[0]):
                self.found.add(path)

    def _pytest(self, tests: list[str]) -> None:
        self._add("", ("pytest.ini", ".pytest.ini", *_PYTEST_TABLES))
        folders = {""}
        for test in tests:
            while test:
                test = os.path.dirname(test)
                folders.add(test)
        self.found.update(os.path.join(folder, "conftest.py") for folder in folders)


def _commands(run: str) -> Iterator[tuple[list[str], str]]:
    """The simple commands of a gate, each with the folder that a ``cd`` before it leads to."""
    try:
        commands = simple_commands(run)
    except Unreadable:
        return
    folder = ""
    for words in commands:
        rest = program(words)
        if rest[:1] == ["cd"] and len(rest) > 1:
            folder = os.path.join(folder, rest[-1])
        elif rest:
            yield rest, folder


def _path_words(run: str) -> Iterator[str]:
    """Words that may be paths of verifier inputs, below the folder that a ``cd`` leads to."""
    for words, folder in _commands(run):
        if _examines(words):
            continue
        for word in words:
            path = word.partition("=")[2] if re.match(r"-{0,2}[\w.-]+=", word) else word
            path = path.partition("::")[0]
            if path and path not in (".", "..") and not path.startswith("-") and not any(sign in path for sign in "$`\0"):
                yield os.path.join(folder, path)


def _examines(words: list[str]) -> bool:
    """Whether a command looks at its arguments (a linter, grep) instead of running them."""
    rest = words[1:] if words[0] in _RUNNERS else words
    rest = rest[1:] if rest is not words and rest[:1] in (["run"], ["exec"], ["dlx"]) else rest
    rest = rest[2:] if rest[1:2] == ["-m"] else rest
    return bool(rest) and rest[0].rpartition("/")[2] in _EXAMINER


def _option(words: list[str], names: tuple[str, ...], default: str) -> str:
    for position, word in enumerate(words[:-1]):
        if word in names:
            return os.path.join(default, words[position + 1])
    return default


def _normal(path: str) -> str | None:
    """A relative path in its shortest form; None if it is the workspace itself or leads out of it."""
    short = os.path.normpath(path)
    return None if short == "." or short.startswith(("/", "../")) or short == ".." else short


def _relative(root: Path, path: str) -> str:
    return os.path.relpath(path, root) if os.path.isabs(path) else path


def _is_deliverable(path: str, contract: Contract) -> bool:
    wanted = {os.path.normpath(deliverable) for deliverable in contract.deliverables}
    file = path.partition("#")[0]
    return any(file == each or file.startswith(f"{each}/") for each in wanted)


def _writable(path: str) -> bool:
    """Whether a journal can name the path: one that is no UTF-8 cannot be protected."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


# --------------------------------------------------------------------------------------------------- what is there by default


def is_test(path: str) -> bool:
    """Whether a file is a test, by its name or folder."""
    folders, _, name = path.rpartition("/")
    return any(folder in _TEST_FOLDERS for folder in folders.split("/")) or any(fnmatch.fnmatchcase(name, p) for p in _TEST_NAMES)


def default_inputs(root: Path) -> set[str]:
    """Existing tests and the configuration of tests and CI, at most ``DEFAULTS`` of them."""
    found = []
    for path in walk(root):
        name = path.rpartition("/")[2]
        settings = path.startswith(_CI_FOLDERS) or any(fnmatch.fnmatchcase(name, pattern) for pattern in _SETTINGS)
        if (settings or is_test(path)) and _writable(path):
            found.append(path)
    found.sort(key=lambda path: (path.count("/"), path))
    return set(found[:DEFAULTS])


# ------------------------------------------------------------------------------------------------------------------- hashes


def hashes(root: Path, paths: Iterable[str]) -> dict[str, str]:
    """SHA-256 per path, "absent" where there is no such file or part, "unreadable" where it cannot be read.

    A link is followed as long as it stays in the workspace; one that leads out is hashed as a link.
    """
    return {path: _hash(root, path) for path in sorted(paths)}


def _hash(root: Path, path: str) -> str:
    file, _, part = path.partition("#")
    read = _PARTS.get(path.rpartition("/")[2]) if part else None
    real = inside(root, file if read else path)
    try:
        if real is None:
            return sha256(b"link\0" + os.fsencode(os.readlink(os.path.join(root, path)))).hexdigest()
        with open(open_beneath(root, real), "rb") as source:
            if read is None:
                return _digest(iter(lambda: source.read(1 << 20), b""))
            data = source.read()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return ABSENT
    except OSError:
        return "unreadable"
    try:
        value = read(data.decode("utf-8-sig"))
    except (ValueError, KeyError, AttributeError, configparser.Error):
        return sha256(data).hexdigest()
    return ABSENT if value is None else sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def _digest(chunks: Iterator[bytes]) -> str:
    whole = sha256()
    for chunk in chunks:
        whole.update(chunk)
    return whole.hexdigest()


def _setup_cfg(text: str) -> object:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(text)
    return dict(parser["tool:pytest"]) if parser.has_section("tool:pytest") else None


_PARTS: dict[str, Callable[[str], object]] = {
    _NPM: lambda text: json.loads(text).get("scripts"),
    _PYTEST_TABLES[0]: lambda text: tomllib.loads(text).get("tool", {}).get("pytest"),
    _PYTEST_TABLES[1]: _setup_cfg,
}
