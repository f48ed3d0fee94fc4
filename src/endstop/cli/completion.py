"""The script by which a shell completes commands, options and ids, and what it asks for."""

from __future__ import annotations

import sys

from typer._completion_classes import completion_init
from typer._completion_shared import get_completion_script

from endstop.cli import exits, here, out
from endstop.cli.out import line
from endstop.cli.view import short
from endstop.errors import EndstopError, UsageError
from endstop.settings import Settings
from endstop.store.open import Store
from endstop.store.sessions import SessionRow

VARIABLE = "_ENDSTOP_COMPLETE"
"""Set by the script when it asks."""
SHELLS = ("bash", "zsh", "fish")


def completion(shell: str) -> int:
    """Print the script of a shell.

    Raises:
        UsageError: there is none for it.
    """
    if shell not in SHELLS:
        raise UsageError(f"there is no completion for {shell!r}", where="completion", hint=f"one of {', '.join(SHELLS)}")
    script = get_completion_script(prog_name="endstop", complete_var=VARIABLE, shell=shell)
    out.write(f"{script}\n", sys.stdout)
    return exits.OK


def prepare() -> None:
    """Make ready to be asked by a shell."""
    completion_init()


def ids(incomplete: str) -> list[tuple[str, str]]:
    """Ids of this folder's sessions that begin so, each with its objective. Nothing where they cannot be read."""

    async def work(store: Store, settings: Settings) -> list[SessionRow]:
        return await store.sessions(settings.workspace)

    try:
        rows = here.with_store(None, work)
    except EndstopError:
        return []
    return [(short(row.id), line(row.objective or row.kind, 60)) for row in rows if row.id.startswith(incomplete)]
