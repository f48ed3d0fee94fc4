"""Reading git repositories that may be hostile.

The agent can write ``.git/config``, hooks and the index of its workspace, and git runs programs that a configuration names
(fsmonitor, filters, diff drivers, transports). So nothing here but ``rev-parse`` ever reads the repository's own
configuration or index. All other work is done by a ``Shadow``: a git directory of ours with a configuration of ours that
borrows the repository's objects and looks at its work tree. The user's repository is never written.
"""

from __future__ import annotations

import asyncio
import os
import select
import shutil
import signal
import stat
import subprocess
import time
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import new as new_hash
from pathlib import Path
from subprocess import PIPE, Popen
from tempfile import TemporaryDirectory, TemporaryFile

import msgspec

from endstop.errors import EndstopError, UsageError
from endstop.host import bounds
from endstop.host.paths import CACHES, open_regular
from endstop.host.programs import program, without

TIMEOUT = 60.0
"""Seconds a git command may take."""
IN_A_LOOK = 20.0
"""The same of one that looks at a workspace: a FIFO planted as an ignore file would else block it for ever."""
_AT_LEAST = 2.0
_TICK = 0.1

LINK = "120000"
SUBMODULE = "160000"

_CONFIG = """\
[core]
	bare = false
	repositoryformatversion = {version}
	fsmonitor = false
	hooksPath = /dev/null
	attributesFile = /dev/null
	looseCompression = 1
	logAllRefUpdates = false
{extensions}[gc]
	auto = 0
[status]
	relativePaths = false
"""
# Contents are taken as they are, whatever attributes the workspace claims: no conversion, no filter, no hidden diff.
_ATTRIBUTES = "* -text -filter -ident -working-tree-encoding !diff !eol\n"
_KEPT = ("PATH", "HOME", "XDG_CONFIG_HOME", "TMPDIR")
_OWN = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
    "LC_ALL": "C",
}


class GitFailed(EndstopError):
    """A git command did not do what it should, or there is no git."""


class TimedOut(GitFailed):
    """A git command took too long."""


class GitState(msgspec.Struct, frozen=True):
    """A repository as people see it. ``branch`` is None on a detached head, ``head`` None before the first commit;
    ``dirty`` counts files that differ from the last commit or are untracked, None where that cannot be told."""

    root: Path
    branch: str | None
    head: str | None
    dirty: int | None


class Repo(msgspec.Struct, frozen=True):
    """Where the parts of a repository are. ``prefix`` is the workspace below ``top``: "" or "sub/"."""

    top: Path
    prefix: str
    objects: Path
    index: Path
    exclude: Path
    format: str
    head: str | None
    branch: str | None


def run_git(
    arguments: Sequence[str],
    cwd: Path,
    *,
    environment: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    limit: int | None = None,
    timeout: float = TIMEOUT,
) -> bytes:
    """Standard output of a git command, at most ``limit`` bytes of it (then git is stopped).

    Raises:
        GitFailed: no git, an exit status that is not 0; ``TimedOut``: it took longer than ``timeout`` seconds, or than the
            look it belongs to may take.
        Abandoned: the look it belongs to was called off.
    """
    kept = without({name: os.environ[name] for name in _KEPT if name in os.environ}, cwd)
    env = kept | _OWN | dict(environment or {})
    try:
        git = program("git", cwd)  # never one that lies in the workspace
    except UsageError as error:
        raise GitFailed(error.message, where="git", hint=error.hint) from None
    command = [git, "-c", "safe.directory=*", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", *arguments]
    where = f"git {arguments[0]}"
    look = bounds.current()
    seconds = min(timeout, max(look.left, _AT_LEAST)) if look else timeout
    with TemporaryFile() as given, TemporaryFile() as said:
        given.write(stdin)
        given.seek(0)
        try:
            # A session of its own: git is ended with all that it began.
            process = Popen(command, cwd=cwd, env=env, stdin=given, stdout=PIPE, stderr=said, start_new_session=True)
        except OSError as error:
            raise GitFailed(f"cannot be run: {error.strerror}", where=where, hint="install git") from None
        try:
            data, ended = _read(process, limit, time.monotonic() + seconds)
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        if not ended:
            hint = "look for a FIFO among the ignore files"
            raise TimedOut(f"took longer than {seconds:.0f} s", where=where, hint=hint)
        if process.returncode and limit is None:
            said.seek(0)
            words = said.read().decode("utf-8", "replace").strip()
            raise GitFailed(words[-500:] or f"exit status {process.returncode}", where=where)
    return data


def _read(process: Popen[bytes], limit: int | None, until: float) -> tuple[bytes, bool]:
    """What a process writes, to its end or ``limit``; and whether that came in time."""
    assert process.stdout is not None
    pipe = process.stdout.fileno()
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    data = bytearray()
    while limit is None or len(data) < limit:
        bounds.check()
        if time.monotonic() > until:
            return bytes(data), False
        if not poll.poll(_TICK * 1000):
            continue
        part = os.read(pipe, 1 << 16)
        if not part:
            break
        data += part
    try:
        process.wait(max(_TICK, until - time.monotonic()) if limit is None else _TICK)
    except subprocess.TimeoutExpired:
        return bytes(data), limit is not None
    return bytes(data[:limit]), True


def locate(root: Path) -> Repo | None:
    """The repository ``root`` lies in; None without one, in a bare one, without git, or if git cannot read it.

    Raises:
        TimedOut: git did not answer.
    """
    if _blocks(root):
        return None
    parts = ["--show-toplevel", "--show-prefix", "--git-path", "objects", "--git-path", "index", "--git-path", "info/exclude"]
    question = ["rev-parse", "--path-format=absolute", *parts, "--show-object-format"]
    try:
        try:
            said = run_git([*question, "HEAD", "--symbolic-full-name", "HEAD"], root, timeout=IN_A_LOOK)
        except TimedOut:
            raise
        except GitFailed:  # no commit yet, or no repository at all
            said = run_git(question, root, timeout=IN_A_LOOK) + b"\n" + run_git(["symbolic-ref", "HEAD"], root, timeout=IN_A_LOOK)
        top, prefix, objects, index, exclude, kind, head, ref, _ = os.fsdecode(said).split("\n")
    except TimedOut:
        raise
    except (GitFailed, ValueError):  # ValueError: a folder with a newline in its name
        return None
    branch = ref.removeprefix("refs/heads/") if ref.startswith("refs/heads/") else None
    return Repo(Path(top), prefix, Path(objects), Path(index), Path(exclude), kind, head or None, branch)


def _blocks(root: Path) -> bool:
    """Whether git would wait for ever, or read without end, at a file of its own that is none: a FIFO, a device."""
    for folder in (root, *root.parents):
        if os.path.lexists(folder / ".git"):
            return any(_special(folder / name) for name in (".git", *(f".git/{name}" for name in _READ_FIRST)))
    return False


def _special(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


async def describe(root: Path) -> GitState | None:
    """The repository ``root`` lies in, or None where there is none (or a bare one, or no git)."""
    return await asyncio.to_thread(_describe, root)


def _describe(root: Path) -> GitState | None:
    try:
        repo = locate(root)
    except TimedOut:
        return None
    if repo is None:
        return None
    with TemporaryDirectory(prefix="endstop-") as home:
        shadow = Shadow(Path(home), repo.top, repo)
        try:
            # The user's own index is warm; it is read, never written.
            dirty = shadow.git(*_STATUS, index=repo.index).count(b"\0")
        except GitFailed:
            dirty = None
    return GitState(repo.top, repo.branch, repo.head, dirty)


_READ_FIRST = ("HEAD", "config", "config.worktree", "commondir", "packed-refs", "index", "info/exclude")
_STATUS = ("status", "--porcelain", "-z", "--untracked-files=all", "--ignore-submodules=all", "--no-renames")


class Change(msgspec.Struct, frozen=True):
    """One path that differs between two trees; the counts are None for a binary file."""

    path: str
    added: int | None
    deleted: int | None


class Shadow:
    """A git directory of our own in ``home`` that looks at the workspace ``root`` and keeps trees of it.

    Its index holds the last commit of ``repo`` (nothing where there is none), never what the user staged, and its stat
    cache is its own. All methods block and raise ``GitFailed``; one thread at a time.
    """

    def __init__(self, home: Path, root: Path, repo: Repo | None, ignore: Sequence[str] = CACHES) -> None:
        self.root = root
        self.repo = repo
        self.submodules: list[str] = []
        self._home = home
        self._index = home / "index"
        self._format = repo.format if repo else "sha1"
        self._prefix = repo.prefix if repo else ""
        self._make(ignore)

    def _make(self, ignore: Sequence[str]) -> None:
        for folder in ("objects", "refs", "info"):
            (self._home / folder).mkdir(parents=True, exist_ok=True)
        for lock in self._home.glob("*.lock"):  # left by a process that was killed
            lock.unlink(missing_ok=True)
        sha1 = self._format == "sha1"
        extensions = "" if sha1 else f"[extensions]\n\tobjectFormat = {self._format}\n"
        (self._home / "config").write_text(_CONFIG.format(version=0 if sha1 else 1, extensions=extensions))
        (self._home / "info" / "attributes").write_text(_ATTRIBUTES)
        exclude = self._home / "info" / "exclude"
        if not exclude.exists():  # once: what the agent adds to the repository's own later hides nothing
            own = _small(self.repo.exclude) if self.repo else b""
            exclude.write_bytes(b"\n".join([*map(str.encode, ignore), _user_ignores(), own]))
        head = self.repo.head if self.repo else None
        (self._home / "HEAD").write_text(f"{head}\n" if head else "ref: refs/heads/none\n")

    def git(self, *arguments: str, index: Path | None = None, stdin: bytes = b"", limit: int | None = None) -> bytes:
        """Run git in this directory on the work tree, below the workspace."""
        environment = {
            "GIT_DIR": str(self._home),
            "GIT_WORK_TREE": str(self.repo.top if self.repo else self.root),
            "GIT_INDEX_FILE": str(index or self._index),
        }
        if index is None:
            environment["GIT_OPTIONAL_LOCKS"] = "1"  # keeps what was learnt about unchanged files
        if self.repo:
            environment["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = _quoted(self.repo.objects)
        return run_git(arguments, self.root, environment=environment, stdin=stdin, limit=limit, timeout=IN_A_LOOK)

    def follow(self) -> None:
        """Bring the index to the commit of ``repo``; what is known of unchanged files stays."""
        head = self.repo.head if self.repo else None
        self.git("read-tree", *(["-m", "-i", head] if head else ["--empty"]))
        entries = self.git("ls-files", "-s", "-z").split(b"\0") if head else []
        self.submodules = [os.fsdecode(line.partition(b"\t")[2]) for line in entries if line.startswith(SUBMODULE.encode())]

    def changed(self) -> tuple[list[str], list[str]]:
        """Paths that differ from the commit or are untracked and not ignored, and folders that are repositories of their
        own (submodules among them, as the commit knows them)."""
        top = self.repo.top if self.repo else self.root
        if any(_special(folder / ".gitignore") for folder in (self.root, *self.root.parents) if folder.is_relative_to(top)):
            raise GitFailed("a FIFO or device is named .gitignore, git would wait for it", where="git status")
        lines = os.fsdecode(self.git(*_STATUS, "--", ".")).split("\0")[:-1]
        paths = [line[3:].removeprefix(self._prefix) for line in lines]
        files = [path for path in paths if not path.endswith("/")]
        return files, [path[:-1] for path in paths if path.endswith("/")] + self.submodules

    def ignores_root(self) -> bool:
        """Whether an outer repository ignores the whole workspace."""
        if not self._prefix:
            return False
        try:
            return bool(self.git("check-ignore", "."))
        except GitFailed:
            return False

    def store(self, data: bytes) -> str:
        """Keep ``data`` as a blob; returns its object id."""
        raw = b"blob %d\0%b" % (len(data), data)
        oid = new_hash(self._format, raw).hexdigest()
        path = self._home / "objects" / oid[:2] / oid[2:]
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            part = path.with_name(f"{path.name}.part")
            part.write_bytes(zlib.compress(raw, 1))
            part.replace(path)
        return oid

    def tree(self, files: Mapping[str, tuple[str, str] | None]) -> str:
        """Object id of the workspace's tree: the commit's, with ``files`` (path to mode and blob, None = gone) in it."""
        zero = "0" * (40 if self._format == "sha1" else 64)
        gone = [f"0 {zero}\t{self._prefix}{path}\0" for path, file in files.items() if file is None]
        there = [f"{file[0]} {file[1]}\t{self._prefix}{path}\0" for path, file in files.items() if file]
        index = self._home / "index.tree"
        shutil.copyfile(self._index, index)
        self.git("update-index", "-z", "--index-info", index=index, stdin=os.fsencode("".join(gone + there)))
        prefix = [f"--prefix={self._prefix}"] if self._prefix and self.git("ls-files", "-z", index=index, limit=1) else []
        tree = self.git("write-tree", "--missing-ok", *prefix, index=index)
        return tree.decode().strip()

    def changes(self, base: str, now: str) -> list[Change]:
        """What differs between two trees."""
        lines = os.fsdecode(self.git("diff-tree", "-r", "-z", "--numstat", "--no-renames", base, now)).split("\0")[:-1]
        rows = (line.split("\t", 2) for line in lines)
        return [Change(path, _count(added), _count(deleted)) for added, deleted, path in rows]

    def diff(self, base: str, now: str, limit: int) -> str:
        """The diff of two trees as text, at most ``limit`` bytes of it."""
        options = ("-r", "-p", "-M", "--no-ext-diff", "--no-textconv", "--no-color")
        return self.git("diff-tree", *options, base, now, limit=limit).decode("utf-8", "replace")


def _count(number: str) -> int | None:
    return None if number == "-" else int(number)


def _quoted(path: Path) -> str:
    """For a list that git splits at colons."""
    return '"' + str(path).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _user_ignores() -> bytes:
    """Ignore rules that the user's own configuration names; those in the default place git finds by itself."""
    try:
        named = run_git(["config", "--file", os.path.expanduser("~/.gitconfig"), "--type=path", "core.excludesFile"], Path("/"))
    except GitFailed:
        return b""
    path = Path(os.fsdecode(named).rstrip("\n"))
    return _small(path) if path.is_absolute() else b""


def _small(path: Path) -> bytes:
    try:
        with open_regular(path.parent, path.name) as file:
            return file.read(1 << 20)
    except OSError:
        return b""
