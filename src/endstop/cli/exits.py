"""Exit codes, in one place. Scripts rely on them: see docs/cli.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from endstop.core.goal import State

OK = 0
FAILED = 1
USAGE = 2
CLAIMED = 3
CAPPED = 4
STUCK = 5
BLOCKED = 6
LATER = 75
"""EX_TEMPFAIL: waiting or paused, nothing is lost."""
CANCELLED = 130

_ENDS = {"capped": CAPPED, "stuck": STUCK, "blocked": BLOCKED, "failed": FAILED, "cancelled": CANCELLED}


def of(state: State, *, accept_claimed: bool = False) -> int:
    """The exit code for where a goal stands. ``accept_claimed`` adds to what its policy says."""
    goal = state.goal
    if state.phase != "done" or goal is None:
        return _ENDS.get(state.phase, LATER)
    ended = goal.ended
    if ended is None or ended.verified or ended.ended_by == "answer":
        return OK  # a plain answer, untouched workspace, empty contract: there was nothing to verify
    return OK if accept_claimed or goal.queued.policy.accept_claimed else CLAIMED
