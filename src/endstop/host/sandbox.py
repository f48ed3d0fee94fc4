"""The sandbox: a command sees the machine read-only, writes in its workspace, and cannot read what is private.

Inside: the workspace (and its git directory, where a worktree keeps that elsewhere) is writable; /tmp, /run, every home and
Endstop's own state are empty; toolchains of a home that PATH leads to are readable; processes outside cannot be seen; there
is no network but loopback unless asked for. The environment that Endstop runs from is read-only, in the workspace too. No file
gets a set-user-ID or set-group-ID bit. A signal that ends the command arrives as exit code 128 + signal.

``.git`` stays writable, since an agent commits: hooks and configuration it writes there take effect when git is run outside.
"""

from __future__ import annotations

import os
import pwd
import re
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from endstop.errors import UsageError
from endstop.host.imports import kept
from endstop.host.programs import program
from endstop.host.seccomp import filter_for

SHELL = "bash"
"""What runs a command line. It is ours and none of the workspace, whose word is not taken for what a gate says."""

_Mounts = dict[Path, list[str]]
"""What each path is inside: options of bwrap. Carried out from the top down, so that what lies deeper stands."""

_BASE = [
    "--die-with-parent",
    *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    *("--cap-drop", "ALL"),
    *("--setenv", "TMPDIR", "/tmp"),
    *("--ro-bind", "/", "/"),
]
_ROOT_MAY = ("CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_SETGID", "CAP_SETUID")
"""What root keeps, so that it can work in a folder that is not its own and put its rights down: nothing that reaches past the
mounts."""
_FILTERED = 'exec 9< <(printf "$0"); exec "$@"'
"""Gives bwrap its filter of system calls, which it reads from a file descriptor."""

_MACHINE = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/acpi", "/proc/scsi")
"""Settings of the whole machine, which a root without any privilege may still write."""
_EMPTY = ("/tmp", "/var/tmp", "/run", "/var/run", "/root", "/home")
_PRIVATE = (
    *(".ssh", ".gnupg", ".aws", ".azure", ".config", ".docker", ".kube", ".netrc", ".git-credentials", ".password-store"),
    *(".npmrc", ".yarnrc.yml", ".pypirc", ".pgpass", ".my.cnf", ".vault-token", ".mozilla", ".bash_history", ".zsh_history"),
    *(".cargo/credentials", ".cargo/credentials.toml", ".m2/settings.xml", ".gradle/gradle.properties", ".local/share/keyrings"),
)
"""In a home: hidden also where the home itself, or a toolchain around it, is shown."""
_BESIDE = {
    ".local/bin": (".local/bin", ".local/lib", ".local/pipx", ".local/share/pipx", ".local/share/uv"),
    ".cargo/bin": (".cargo", ".rustup"),
}
"""In a home: what an entry of PATH needs, where that is not simply the folder around it."""


class Sandbox(msgspec.Struct, frozen=True):
    """How commands are kept in: ``bwrap``, or not at all. ``why`` says why not; ``start`` is how bwrap begins, its options not
    in it."""

    kind: Literal["bwrap", "none"]
    why: str = ""
    start: tuple[str, ...] = ("bwrap",)

    def wrap(
        self,
        argv: Sequence[str],
        *,
        workspace: Path,
        writable: Sequence[Path] = (),
        hidden: Sequence[Path] = (),
        readable: Sequence[Path] = (),
        network: bool = False,
    ) -> list[str]:
        """The command that runs ``argv`` in ``workspace`` inside the sandbox; ``argv`` itself where there is none. ``bash`` is
        looked up outside of the workspace in both cases.

        Args:
            writable: further folders that may be written.
            hidden: files and folders that cannot be seen (Endstop's state); inside the workspace too.
            readable: files and folders in hidden ones that can be read all the same.

        Raises:
            UsageError: the workspace is no folder, or is itself hidden, or there is no bash outside of it.
        """
        workspace = _folder(workspace)
        unseen = [path.resolve() for path in hidden if path.exists()]
        if workspace in unseen or workspace == Path("/"):
            raise UsageError("cannot be a workspace", where=str(workspace), hint="choose a folder of its own for the work")
        if argv[0] == SHELL:
            argv = [program(SHELL, workspace), *argv[1:]]
        loader = {name: value for name, value in os.environ.items() if name.startswith(_LOADER)}
        if self.kind == "none":
            given = [f"{name}={value}" for name, value in loader.items()]
            return [program("env", workspace), *given, *argv] if given else list(argv)
        shown = [workspace, *_git_directory(workspace), *(path.resolve() for path in writable if path.exists())]
        mounts = _mounts(workspace, shown, unseen, network)
        mounts |= {path: ["--ro-bind", str(path), str(path)] for path in (each.resolve() for each in readable if each.exists())}
        options = [option for name, value in loader.items() for option in ("--setenv", name, value)]
        options += [option for path in sorted(mounts, key=lambda path: len(path.parts)) for option in mounts[path]]
        command = [*_BASE, *_privileges(network), *options, "--chdir", str(workspace), "--", *argv]
        return [*self.start, *command]


def detect(workspace: Path | None = None) -> Sandbox:
    """What this machine offers, found out by trying it once; a bwrap that lies in the workspace is none."""
    if sys.platform != "linux":
        return Sandbox("none", "bubblewrap is there for Linux only")
    try:
        bash, bwrap = program(SHELL, workspace), program("bwrap", workspace)
    except UsageError as error:
        how = "bubblewrap is not installed (apt-get install bubblewrap)" if error.where == "bwrap" else error.message
        return Sandbox("none", how)
    calls = filter_for()
    if not calls:
        return _tried((bwrap,))
    # -p: what BASH_ENV and exported functions say is not heard.
    start = (bash, "-p", "-c", _FILTERED, "".join(f"\\{byte:03o}" for byte in calls))
    return _tried((*start, bwrap, "--seccomp", "9"))


@cache
def _tried(start: tuple[str, ...]) -> Sandbox:
    found = Sandbox("bwrap", start=start)
    with tempfile.TemporaryDirectory() as folder:
        command = found.wrap(["true"], workspace=Path(folder))
        try:
            trial = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=10, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return Sandbox("none", f"bubblewrap cannot be run: {error}")
    if trial.returncode:
        said = trial.stderr.strip().splitlines() or [f"exit code {trial.returncode}"]
        return Sandbox("none", f"bubblewrap does not work here: {said[-1]}")
    return found


# ----------------------------------------------------------------------------------------------------------------- mounts


def _folder(path: Path) -> Path:
    if not path.is_dir():
        raise UsageError("is not a folder", where=str(path), hint="create it, or name another workspace")
    return path.resolve()


def _privileges(network: bool) -> Iterator[str]:
    if not network:
        yield "--unshare-net"
    if os.geteuid() == 0:
        for capability in _ROOT_MAY:
            yield from ("--cap-add", capability)


def _mounts(workspace: Path, shown: Sequence[Path], hidden: Iterable[Path], network: bool) -> _Mounts:
    """Later entries replace earlier ones of the same path."""
    homes = homes_here()
    empty = {Path(path).resolve() for path in _EMPTY if os.path.isdir(path)} | set(homes.values())
    tools = [path for path in _toolchains(homes, empty) if not _inside(path, shown)]
    private = {(home / name).resolve() for home in homes.values() for name in _PRIVATE}
    open_secrets = {path for path in private if _inside(path, (*shown, *tools)) or not _inside(path, empty)}
    mounts: _Mounts = {path: ["--tmpfs", str(path)] for path in empty}
    links = {link: home for link, home in homes.items() if link != home and _inside(link, empty)}
    mounts |= {link: ["--symlink", str(home), str(link)] for link, home in links.items()}
    mounts |= {Path("/dev"): ["--dev", "/dev"], Path("/proc"): ["--proc", "/proc"]}
    mounts |= {Path(path): ["--ro-bind-try", path, path] for path in _MACHINE}
    mounts |= {path: ["--ro-bind", str(path), str(path)] for path in tools}
    mounts |= {path: ["--bind", str(path), str(path)] for path in shown}
    for path in kept(workspace):
        # A folder between is a mount too: if it could be renamed, another could be put into its place.
        between = [folder for folder in path.parents if folder != workspace and folder.is_relative_to(workspace)]
        mounts |= {folder: ["--bind", str(folder), str(folder)] for folder in between}
        mounts[path] = ["--ro-bind", str(path), str(path)]
    mounts |= {path: _nothing(path) for path in (*open_secrets, *hidden) if path.exists()}
    names = Path("/etc/resolv.conf").resolve()
    if network and names.is_file():
        mounts.setdefault(names, ["--ro-bind", str(names), str(names)])
    return mounts


def _nothing(path: Path) -> list[str]:
    return ["--tmpfs", str(path)] if path.is_dir() else ["--ro-bind", "/dev/null", str(path)]


def homes_here() -> dict[Path, Path]:
    """Homes of this user, as named and where they really lie. One that is / or holds the system cannot be emptied."""
    named = {os.environ.get("HOME", "")}
    with suppress(KeyError):  # a user without a name, as in some containers
        named.add(pwd.getpwuid(os.geteuid()).pw_dir)
    found = {Path(path): Path(path).resolve() for path in named if os.path.isabs(path) and os.path.isdir(path)}
    return {path: home for path, home in found.items() if not _inside(Path("/usr/bin").resolve(), [home])}


def _toolchains(homes: Mapping[Path, Path], empty: Collection[Path]) -> Iterator[Path]:
    """Folders inside emptied ones that PATH, or the Python that runs us, needs."""
    entries = [Path(entry) for entry in os.environ.get("PATH", "").split(":") if os.path.isabs(entry)]
    closed = {*empty, *(home / name for home in homes.values() for name in _PRIVATE)}
    for entry in (*entries, Path(sys.prefix, "bin"), Path(sys.base_prefix, "bin")):
        home = next((home for home in homes if entry.is_relative_to(home)), None)
        inner = homes[home] / entry.relative_to(home) if home else entry
        for root in _roots(inner, homes.values(), closed):
            if _inside(root, empty) and root not in closed and root.is_dir():
                yield root


def _roots(entry: Path, homes: Iterable[Path], closed: Collection[Path]) -> list[Path]:
    """What must be seen for one entry of PATH: mostly the folder around its ``bin``."""
    for home in homes:
        for name, beside in _BESIDE.items():
            if entry == home / name:
                return [home / path for path in beside]
    around = entry.parent
    return [around if entry.name in ("bin", "sbin", "shims", "condabin") and around not in closed else entry]


def _inside(path: Path, folders: Iterable[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def _git_directory(workspace: Path) -> list[Path]:
    """The git directory of a worktree or submodule, which lies elsewhere.

    ``.git`` is then a file that the agent could have written to name any folder. So the folder must name the workspace in
    turn, at a place that only git writes and that no agent working here can: ``worktrees/NAME/gitdir``, or
    ``core.worktree`` of a submodule.
    """
    link = workspace / ".git"
    git = _real(workspace / _text(link).removeprefix("gitdir:").strip())
    if _inside(git, [workspace]):
        return []
    around = git.parent.parent
    if git.parent.name == "worktrees" and (around / "HEAD").is_file() and (around / "objects").is_dir():
        return [around] if _real(git / _text(git / "gitdir").strip()) == link else []
    back = re.search(r"^\s*worktree\s*=\s*(.+?)\s*$", _text(git / "config"), re.MULTILINE)
    return [git] if back and _real(git / back[1]) == workspace else []


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))  # Path.resolve raises on a loop of links


def _text(path: Path) -> str:
    """The beginning of a file that may be anything; empty if it is no file."""
    if not path.is_file():
        return ""
    try:
        with path.open("rb") as file:
            return file.read(65_536).partition(b"\0")[0].decode("utf-8", "surrogateescape")
    except OSError:
        return ""


# ------------------------------------------------------------------------------------------------------------ environment

_SECRET_PART = re.compile(
    r".*(TOKENS?|SECRETS?|PASSWORDS?|PASSWD|PASSPHRASE|CREDENTIALS?|APIKEYS?|ACCESSKEYS?|PRIVATEKEYS?)"
    r"|KEYS?|O?AUTH\d?|AUTHORIZATION|PASS|PAT|PWD|COOKIES?"
)
_SECRET_VALUE = re.compile(r"://[^/\s:@]*:[^/\s@]+@")  # a password inside an address
_LOADER = ("LD_", "DYLD_")
"""Variables of the loader of programs. They may lead into the workspace, so they are set for the command itself only, and not
for what is started outside of the sandbox on the way to it."""
_KEPT = {"PATH", "HOME", "LANG", "TERM", "PWD", "OLDPWD", "VIRTUAL_ENV", "CONDA_PREFIX"}


def clean_environment(env: Mapping[str, str], secrets: Collection[str] = ()) -> dict[str, str]:
    """The environment without what looks like a secret by name or value, without Endstop's own variables, and without those of
    the loader, which ``Sandbox.wrap`` gives to the command.

    Args:
        secrets: values that must not pass, wherever they stand.
    """
    return {name: value for name, value in env.items() if name in _KEPT or not _suspect(name, value, secrets)}


def _suspect(name: str, value: str, secrets: Collection[str]) -> bool:
    parts = re.split(r"[^A-Z0-9]+", name.upper())
    return (
        parts[0] == "ENDSTOP"
        or name.startswith(_LOADER)
        or any(_SECRET_PART.fullmatch(part) for part in parts)
        or _SECRET_VALUE.search(value) is not None
        or any(secret and secret in value for secret in secrets)
    )
