"""kill -9 at every step of the demo's journal: nothing is lost, nothing is done twice, and what nobody can know is said."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CHUNKS = 4
LAST = 32
"""A little more than the commits of an undisturbed run."""
PLANS: list[list[list[Any]]] = [[[step, when]] for step in range(1, LAST + 1) for when in ("before", "after")]
_DRAWN = random.Random(7)
TWICE: list[list[list[Any]]] = [[[_DRAWN.randint(2, 14), "before"], [_DRAWN.randint(1, 8), "after"]] for _ in range(4)]


def lives(folder: Path, plans: list[list[list[Any]]]) -> list[dict[str, Any]]:
    """What each plan came to."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.runtime.killer", str(folder), json.dumps(plans)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


def check(came: dict[str, Any]) -> None:
    """What must hold whatever died when."""
    about = came["plan"]
    assert (came["phase"], came["verified"], came["record"]) == ("done", True, "ok"), about
    assert "sum(prices)" in came["code"], about
    assert came["code"].count("discount / 100") == 1, about
    assert came["results"], about  # exactly one result for every call
    assert came["paid"] <= 1, about
    assert came["ran"] <= 1, about
    unsure = {came["effects"][call] for call in came["unknown"]}
    assert unsure <= {"write", "shell"}, about
    for effect, done in (("write", came["paid"]), ("shell", came["ran"])):
        assert done == 1 or effect in unsure, about


@pytest.mark.needs("git")
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_killed_at_every_step_the_goal_ends_the_same_and_nothing_happens_twice(chunk: int, tmp_path: Path) -> None:
    """Whichever commit the process dies before or after, the next one ends the goal verified, with one effect each."""
    results = lives(tmp_path, PLANS[chunk::CHUNKS])
    assert len(results) == len(PLANS[chunk::CHUNKS])
    for came in results:
        check(came)
    assert sum(came["deaths"] for came in results) >= len(results) - 2


@pytest.mark.needs("git")
def test_killed_twice_it_still_ends_the_same(tmp_path: Path) -> None:
    """A second death, while the first is being recovered from, changes nothing."""
    for came in lives(tmp_path, TWICE):
        assert came["deaths"] == 2
        check(came)


@pytest.mark.needs("git")
def test_an_undisturbed_run_has_as_many_commits_as_are_tried(tmp_path: Path) -> None:
    """The loop above covers every commit: an undisturbed run has no more, and is sure of everything."""
    (came,) = lives(tmp_path, [[]])
    check(came)
    assert came["commits"] <= LAST
    assert came["unknown"] == []
    assert (came["paid"], came["ran"]) == (1, 1)
