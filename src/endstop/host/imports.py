"""Which Python code is ours to load: none that an agent could have put there.

The folder of a script, PYTHONPATH and packages installed for editing may put a workspace on ``sys.path``, and much is imported
late. So a module that is also found elsewhere is loaded from there, and one that is found only in a workspace is not loaded
while an agent may work in it. Where Endstop's own environment lies in the workspace, that environment is ``kept``: commands
in the sandbox and file tools cannot change it, and it is loaded from like any other place.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Sequence
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

import msgspec
import pathspec

from endstop.errors import UsageError

_START = "import sys; sys.path += sys.argv[1:-1]; from {module} import main; sys.exit(main(sys.argv[-1]))"


def isolated(module: str, argument: str) -> list[str]:
    """The command that runs ``main(argument)`` of a module of ours in a Python of its own.

    Neither the environment, the current folder nor an installed ``sitecustomize`` or ``.pth`` file has a say in it. Beside the
    standard library it finds what Endstop, msgspec and pathspec are installed with.
    """
    options = ("-I", "-S", "-B", "-X", "utf8", "-W", "ignore", "-c", _START.format(module=module))
    return [sys.executable, *options, *map(os.path.realpath, _installed()), argument]


def kept(workspace: Path) -> list[Path]:
    """Folders of the environment that Endstop runs from, as far as they really lie below the workspace."""
    return [home for home in _environments() if home.is_relative_to(os.path.realpath(workspace))]


def refuse_own(workspace: Path) -> None:
    """Raises UsageError: an agent that works here would change Endstop itself, and nothing could keep it from that."""
    root = Path(os.path.realpath(workspace))
    inner = kept(root)
    for place in (*_installed(), Path(sys.executable).parent, Path(sys.prefix)):
        real = Path(os.path.realpath(place))
        around = place in _installed() and root.is_relative_to(real)
        if root in inner or around or _theirs(real, root, inner) or _linked(place, root, inner):
            hint = "install it elsewhere (pipx install endstop), or work in a git worktree"
            raise UsageError(f"Endstop itself runs from {place}", where=f"workspace {workspace}", hint=hint)


def _theirs(real: Path, root: Path, inner: Sequence[Path]) -> bool:
    return real.is_relative_to(root) and not any(real.is_relative_to(folder) for folder in inner)


def _linked(place: Path, root: Path, inner: Sequence[Path]) -> bool:
    """Whether a link that the agent could lead elsewhere is on the way."""
    links = [path for path in (place, *place.parents) if path.is_symlink()]
    return any(_theirs(Path(os.path.realpath(link.parent)), root, inner) for link in links)


@cache
def _environments() -> list[Path]:
    places = (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix)
    return sorted({Path(os.path.realpath(place)) for place in places})


@cache
def _installed() -> list[Path]:
    """The folders in which Endstop and what ``isolated`` needs lie, as they are named."""
    files = (__file__, *(package.__file__ or "" for package in (msgspec, pathspec)))
    return list(dict.fromkeys(Path(file).absolute().parents[at] for file, at in zip(files, (2, 1, 1), strict=True)))


# ---------------------------------------------------------------------------------------------------------------- finding


class _Guard(MetaPathFinder):
    """Asked before all other finders. ``known`` are workspaces, by how many hold them now."""

    def __init__(self) -> None:
        self.known: Counter[Path] = Counter()

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The module from outside of every workspace; None leaves it to the other finders.

        Raises:
            ModuleNotFoundError: it is only there where an agent works.
        """
        refused = ""
        for finder in sys.meta_path if self.known else ():
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec: ModuleSpec | None = find(name, path, target)
            if spec is not None and (place := self._inside(spec)):
                refused = place
                elsewhere = [entry for entry in (sys.path if path is None else path) if not self._around(entry)]
                spec = PathFinder.find_spec(name, elsewhere, target) if finder is PathFinder else None
            if spec is not None:
                return spec
        if refused and any(self.known[root] for root in self._around(refused)):
            why = f"{name} lies where an agent works ({refused}): import it before the goal begins, or in another process"
            raise ModuleNotFoundError(why, name=name)
        return None

    def _inside(self, spec: ModuleSpec) -> str:
        """Where in a workspace all of the module lies; empty if some of it lies elsewhere."""
        places = [spec.origin or ""] if spec.has_location else list(spec.submodule_search_locations or ())
        return places[0] if places and all(map(self._around, places)) else ""

    def _around(self, path: str) -> list[Path]:
        """The workspaces that a path lies in; none for what is kept from the agent."""
        try:
            real = Path(os.path.realpath(path))
        except OSError:  # relative, and the current folder is gone
            return []
        return [root for root in list(self.known) if _theirs(real, root, kept(root))]


_guard = _Guard()


def close(workspace: Path) -> None:
    """From now on load from the workspace only what is nowhere else, and nothing at all until it is opened as often."""
    _guard.known[Path(os.path.realpath(workspace))] += 1
    if _guard not in sys.meta_path:
        sys.meta_path.insert(0, _guard)


def reopen(workspace: Path) -> None:
    """No agent of ours works there any more."""
    _guard.known[Path(os.path.realpath(workspace))] -= 1
