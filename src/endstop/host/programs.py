"""Which programs are ours to start outside of the sandbox: none that an agent could have put there.

PATH and its like may lead into the workspace (an activated environment, ``node_modules/.bin``, "."). What Endstop starts for
itself is looked up without those entries, once. The commands of the agent and the gates keep the user's PATH, inside.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from endstop.errors import UsageError

_LISTS = ("PATH", "PYTHONPATH", "NODE_PATH", "PERL5LIB", "RUBYLIB", "LD_LIBRARY_PATH", "BASH_ENV")
"""Variables from whose entries, between colons, a program or the code of one is taken."""


def program(name: str, avoid: Path | None = None) -> str:
    """The absolute path of a program on PATH that does not lie below ``avoid``, nor is found through it.

    Raises:
        UsageError: there is none.
    """
    return _find(name, os.environ.get("PATH", os.defpath), avoid)


@lru_cache(maxsize=256)
def _find(name: str, path: str, avoid: Path | None) -> str:
    for folder in _outside(path, avoid):
        found = shutil.which(name, path=os.path.realpath(folder))
        if found and is_outside(found, avoid):
            return found
    where = f"outside of {avoid}, where the agent works" if avoid else "on PATH"
    raise UsageError(f"{name} is not found {where}", where=name, hint="install it for the whole machine")


def without(environment: Mapping[str, str], avoid: Path | None) -> dict[str, str]:
    """An environment for what runs outside of the sandbox: no code is taken from below ``avoid``."""
    kept = {name: ":".join(_outside(environment[name], avoid)) for name in _LISTS if name in environment}
    if not kept.get("PATH", "."):
        kept["PATH"] = os.defpath  # an empty one would mean the current folder
    return {**environment, **kept}


def is_outside(path: str, avoid: Path | None) -> bool:
    """Whether a path really lies elsewhere. "/" avoids nothing: it is no workspace."""
    if avoid is None or avoid == Path("/"):
        return True
    return not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(avoid))


@lru_cache(maxsize=256)
def _outside(path: str, avoid: Path | None) -> tuple[str, ...]:
    """The entries that lead elsewhere; a relative one leads wherever a command runs."""
    return tuple(entry for entry in path.split(":") if os.path.isabs(entry) and is_outside(entry, avoid))
