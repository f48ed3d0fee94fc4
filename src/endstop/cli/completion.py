"""The script by which a shell completes commands and options."""

from __future__ import annotations

import sys

from typer._completion_shared import get_completion_script

from endstop.cli import exits, out
from endstop.errors import UsageError

SHELLS = ("bash", "zsh", "fish")


def completion(shell: str) -> int:
    """Print the script of a shell.

    Raises:
        UsageError: there is none for it.
    """
    if shell not in SHELLS:
        raise UsageError(f"there is no completion for {shell!r}", where="completion", hint=f"one of {', '.join(SHELLS)}")
    script = get_completion_script(prog_name="endstop", complete_var="_ENDSTOP_COMPLETE", shell=shell)
    out.write(f"{script}\n", sys.stdout)
    return exits.OK
