"""A process of its own that drives one goal: ``run --detach`` hands it over and returns.

It has its own session, so it outlives the terminal; what it prints goes to a file below the home. It stays while the goal
waits for a human, and ends with the goal.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec

from endstop.cli import crash, exits
from endstop.cli.handover import READY, Handover
from endstop.cli.run import Following, drive_again
from endstop.errors import EndstopError


def main() -> int:
    """Be that process. The exit code."""
    told = msgspec.json.decode(sys.stdin.buffer.read(), type=Handover)

    def ready() -> None:
        sys.stdout.buffer.write(READY)
        sys.stdout.flush()
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    follow = Following(wait=True, json=False, quiet=False, reports=[Path(path) for path in told.reports], resident=ready)
    goal_file = Path(told.goal_file) if told.goal_file else None
    try:
        return drive_again(told.id, told.flags, goal_file, follow)
    except EndstopError as error:
        crash.explain(error)
        return error.exit_code
    except Exception as error:  # noqa: BLE001  the last resort, as of the command line
        crash.record(error, os.environ)
        return exits.FAILED


if __name__ == "__main__":
    sys.exit(main())
