"""Which files a verdict relies on, what they hash to, what of them changed, and which gates cannot be relied on at all."""

from __future__ import annotations

import configparser
import fnmatch
import json
import os
import re
import shutil
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from hashlib import sha256
from pathlib import Path

from pathspec import GitIgnoreSpec

from endstop.checks.commands import Call, Unreadable, calls, cannot_fail, program, simple_commands
from endstop.checks.programs import RUNNERS, TEST_FOLDERS, Kind, Place, module_words, reads, recipes
from endstop.core.events import Contract
from endstop.errors import UsageError
from endstop.host import bounds
from endstop.host.fingerprint import WHOLE, digest
from endstop.host.paths import inside, open_regular, walk

ABSENT = "absent"
THERE = "there"
"""Instead of a hash: what was at a path at the start may change, but the path was no new one."""
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


def literal_inputs(contract: Contract, root: Path, path: str = "") -> set[str]:
    """Every path that the gates' commands and the contract could mean or run, whether it is there or not, so that the same
    files always give the same set. Globs are left out. ``path`` is the gates' $PATH."""
    words = {word for gate in contract.gates for call in calls(gate.run) for word in _named_words(call)}
    words |= {word for word in contract.inputs if not _GLOB.search(word)}
    place = Place(root, path, lambda file: False, (), False)
    words |= {
        file for gate in contract.gates for call in calls(gate.run) for kind, file in reads(call, place) if kind == "program"
    }
    return {file for word in words if (file := _normal(word)) and not _is_deliverable(file, contract)}


def named_inputs(contract: Contract, root: Path, known: Collection[str] | None = None, path: str = "") -> set[str]:
    """Paths of verifier inputs that the gates' commands or ``contract.inputs`` name, and those these imply.

    A path stands here if it exists or is in ``known`` (what existed at the start; None: this is the start); a conftest.py
    that would take part stands here even if it is not there. "FILE#PART" is a part of a file. Deliverables never stand here.
    """
    return _read(contract, root, known, path).found


def protected_inputs(contract: Contract, root: Path, path: str = "") -> set[str]:
    """The inputs there are at the start: the named ones, tests, and the configuration of tests and CI."""
    return _defaults(contract, root) | named_inputs(contract, root, path=path)


def start(contract: Contract, root: Path, path: str) -> dict[str, str]:
    """What is kept of the start: a hash per input. What a later ``changed`` finds and is not here was not there."""
    reader = _read(contract, root, None, path)
    named = _defaults(contract, root) | reader.found
    found = hashes(root, named | (reader.new.keys() - reader.hides))
    kept = {file: value for file, value in found.items() if file in named or value != ABSENT}
    return dict.fromkeys(reader.hides, THERE) | kept


def changed(contract: Contract, root: Path, then: Mapping[str, str], path: str) -> tuple[list[str], list[str]]:
    """Inputs that are not what they were at the ``start``, and those of them that gates or contract name.

    A file that was not there and takes part by itself, or takes the place of one that did, is changed; it is named if it
    takes a place, or changes how tests run that a gate names. What a gate names but nobody had written yet is the agent's
    to write.
    """
    there = {file for file, value in then.items() if value != ABSENT}
    reader = _read(contract, root, there, path)
    now = hashes(root, [file for file, value in then.items() if value != THERE])
    fresh = {file for file in reader.new.keys() - there if _present(root, file)}
    found = sorted({file for file in now if now[file] != then[file]} | fresh)
    return found, [file for file in found if (reader.new[file] if file in fresh else file in reader.found & there)]


def _read(contract: Contract, root: Path, known: Collection[str] | None, path: str) -> _Reader:
    reader = _Reader(root, known, path)
    for gate in contract.gates:
        reader.gate(gate.run)
    for pattern in contract.inputs:
        reader.named(pattern, everything=True)
    reader.found = {file for file in reader.found if _counts(file, contract)}
    reader.new = {file: refused for file, refused in reader.new.items() if _counts(file, contract)}
    reader.hides &= reader.new.keys()
    return reader


def _defaults(contract: Contract, root: Path) -> set[str]:
    return {file for file in default_inputs(root) if _counts(file, contract)}


class _Reader:
    """Collects the inputs of one contract.

    ``found`` are the named ones; ``new`` are files that count if they appear, and whether that is refused; ``hides`` those
    among them that are there now and hide a module.
    """

    def __init__(self, root: Path, known: Collection[str] | None, path: str) -> None:
        self.found: set[str] = set()
        self.new: dict[str, bool] = {}
        self.hides: set[str] = set()
        self._root = root
        self._known = known
        self._path = path

    def was_there(self, path: str) -> bool:
        """Whether there was such a file, or such a part of one, at the start."""
        return _present(self._root, path) if self._known is None else path in self._known

    def exists(self, path: str) -> bool:
        return path in (self._known or ()) or os.path.lexists(os.path.join(self._root, path))

    def gate(self, run: str) -> None:
        made = list(calls(run))
        words = [word for call in made for word in _named_words(call)]
        tests = {file for word in words for file in self.named(_relative(self._root, word)) if self.was_there(file)}
        place = Place(self._root, self._path, self.was_there, tests or self._python_tests, bool(tests))
        for call in made:
            for kind, path in reads(call, place):
                self._take(kind, path, bool(tests))
            for inner in recipes(call, self._root):
                for kind, path in reads(inner, place):
                    self._notice(kind, path)

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
        known = self._known or ()
        if self.exists(path) or not _GLOB.search(path):
            there = walk(self._root, path) if inside(self._root, path) else ()
            return [file for file in {*there, *known} if file.startswith(f"{path}/")]
        try:
            return list(GitIgnoreSpec.from_lines([f"/{path}"]).match_files({*self._files, *known}))
        except (ValueError, re.error):  # no glob after all
            return []

    @cached_property
    def _files(self) -> list[str]:
        return list(walk(self._root))

    @cached_property
    def _python_tests(self) -> set[str]:
        files = default_inputs(self._root) if self._known is None else self._known
        return {file for file in files if file.endswith(".py") and is_test(file)}

    def _take(self, kind: Kind, path: str, strict: bool) -> None:
        for file in self._matching(path):
            if kind not in ("noticed", "hides") and (self._has(file) or file.rpartition("/")[2] == "conftest.py"):
                self.found.add(file)
            if kind != "program":
                refused = kind in ("instead", "hides") or (kind == "setting" and strict)
                self.new[file] = refused or self.new.get(file, False)
            if kind == "hides":
                self.hides.add(file)

    def _notice(self, kind: Kind, path: str) -> None:
        """The same of what may or may not be called: said, never refused."""
        if kind in ("program", "manifest"):
            return
        for file in self._matching(path):
            self.new.setdefault(file, False)
            if kind == "hides":
                self.hides.add(file)

    def _has(self, path: str) -> bool:
        return path in (self._known or ()) or _present(self._root, path)

    def _matching(self, path: str) -> list[str]:
        """A path, or those that match the glob in its last part, now or at the start."""
        file = _normal(path)
        if file is None:
            return []
        folder, _, name = file.rpartition("/")
        if not _GLOB.search(name):
            return [file]
        with suppress(OSError):
            there = os.listdir(os.path.join(self._root, folder))
            return fnmatch.filter({*(os.path.join(folder, each) for each in there), *(self._known or ())}, file)
        return []


def _present(root: Path, path: str) -> bool:
    if "#" in path:
        return _hash(root, path) != ABSENT
    full = os.path.join(root, path)
    return os.path.lexists(full) and not os.path.isdir(full)


def _named_words(call: Call) -> list[str]:
    return [] if _examines(call.words) else [*_path_words(call), *module_words(call)]


def _path_words(call: Call) -> Iterator[str]:
    """Words that may be paths of verifier inputs, below the folder that a ``cd`` leads to."""
    for word in call.words:
        path = word.partition("=")[2] if re.match(r"-{0,2}[\w.-]+=", word) else word
        path = path.partition("::")[0]
        if path and path not in (".", "..") and not path.startswith("-") and not any(sign in path for sign in "$`\0"):
            yield os.path.join(call.folder, path)


def _examines(words: list[str]) -> bool:
    """Whether a command looks at its arguments (a linter, grep) instead of running them."""
    rest = words[1:] if words[0] in RUNNERS else words
    rest = rest[1:] if rest is not words and rest[:1] in (["run"], ["exec"], ["dlx"]) else rest
    rest = rest[2:] if rest[1:2] == ["-m"] else rest
    return bool(rest) and rest[0].rpartition("/")[2] in _EXAMINER


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


def _counts(path: str, contract: Contract) -> bool:
    return not _is_deliverable(path, contract) and _writable(path)


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
    return not TEST_FOLDERS.isdisjoint(folders.split("/")) or any(fnmatch.fnmatchcase(name, p) for p in _TEST_NAMES)


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

    A link is followed as long as it stays in the workspace, and where it leads counts too; one that leads out is hashed as a
    link. Of a file larger than ``fingerprint.WHOLE`` size, beginning and end count; "unreadable" is also what comes after
    ``bounds.BYTES`` of content.
    """
    room, found = bounds.BYTES, {}
    for path in sorted(paths):
        with suppress(OSError, ValueError):
            room -= min(os.stat(os.path.join(root, path.partition("#")[0])).st_size, WHOLE)
        found[path] = _hash(root, path) if room >= 0 else "unreadable"
    return found


def _hash(root: Path, path: str) -> str:
    bounds.check()
    file, _, part = path.partition("#")
    read = _PARTS.get(path.rpartition("/")[2]) if part else None
    name = file if read else path
    real = inside(root, name)
    try:
        if real is None:
            return sha256(b"link\0" + os.fsencode(os.readlink(os.path.join(root, path)))).hexdigest()
        if os.path.isdir(os.path.join(root, real)):
            return ABSENT
        with open_regular(root, real) as source:
            if read is None:
                return _led(real, name, digest(source, os.fstat(source.fileno()).st_size))
            data = source.read(_LARGEST_SETTINGS)
    except (FileNotFoundError, NotADirectoryError):
        return ABSENT
    except OSError:
        return "unreadable"
    try:
        value = read(data.decode("utf-8-sig"))
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError, configparser.Error):
        return sha256(data).hexdigest()
    return ABSENT if value is None else sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def _led(real: str, name: str, content: str) -> str:
    """A hash that also says where a link led: to put a link in the place of a file is a change."""
    return content if real == os.path.normpath(name) else sha256(os.fsencode(f"link\0{real}\0{content}")).hexdigest()


def _section(name: str) -> Callable[[str], object]:
    def read(text: str) -> object:
        parser = configparser.ConfigParser(interpolation=None)
        parser.read_string(text)
        return dict(parser[name]) if parser.has_section(name) else None

    return read


def _table(name: str) -> Callable[[str], object]:
    return lambda text: tomllib.loads(text).get("tool", {}).get(name)


def _key(name: str) -> Callable[[str], object]:
    return lambda text: json.loads(text).get(name)


def _cargo_targets(text: str) -> object:
    """What decides which tests cargo runs, and what it builds them from; a new dependency is none of it."""
    whole = tomllib.loads(text)
    package = whole.get("package", {})
    found = {name: package[name] for name in ("build", "autotests", "autobins") if name in package}
    found |= {name: whole[name] for name in ("test", "patch", "replace") if name in whole}
    for kind in ("lib", "bin"):
        targets = whole.get(kind, [])
        targets = targets if isinstance(targets, list) else [targets]
        switched = [target for target in targets if {"test", "harness", "doctest"} & target.keys()]
        found |= {kind: switched} if switched else {}
    return found or None


_LARGEST_SETTINGS = 8 << 20
_PARTS: dict[str, Callable[[str], object]] = {
    **{f"package.json#{name}": _key(name) for name in ("scripts", "jest", "mocha")},
    **{f"pyproject.toml#tool.{name}": _table(name) for name in ("pytest", "tox", "coverage")},
    **{f"setup.cfg#{name}": _section(name) for name in ("tool:pytest", "coverage:report")},
    "tox.ini#pytest": _section("pytest"),
    "Cargo.toml#targets": _cargo_targets,
}
