"""The measurements run, and their table tells what is over. Small numbers: nothing here asserts a speed in seconds."""

from __future__ import annotations

import json
import time
from hashlib import sha256

import pytest

from bench import run
from bench.meter import SOURCE
from endstop.core.identity import mask

SMALL = {
    "floor": ({"turns": 3}, ()),
    "endstop": ({"turns": 3, "result": 16384, "timed": True}, ()),
    "floor, streamed": ({"turns": 3, "runs": 2, "stream": True}, ("--deltas", "5", "--latency", "0.01")),
    "endstop, streamed": ({"turns": 3, "runs": 2, "stream": True}, ("--deltas", "5", "--latency", "0.01")),
}


@pytest.mark.parametrize("name", SMALL)
def test_each_side_is_measured(name: str) -> None:
    """Floor and goal both come to their last turn, also streamed and side by side, and report what they took."""
    plan, serve = SMALL[name]
    with run.server(serve) as url:
        report = run.measure("bench.work", name.partition(",")[0], json.dumps({**plan, "url": url}))
    assert report["cpu"] > 0
    assert report["wall"] > 0
    assert (report["pure"] > 0) == bool(plan.get("timed"))


def test_the_parts_are_measured() -> None:
    """Replay, commit and masking are timed over a journal of a real goal."""
    report = run.measure("bench.parts", "5")
    assert set(report) == {"replay", "commit", "sync", "mask"}
    assert min(report.values()) > 0


def test_the_table_tells_what_is_over(capsys: pytest.CaptureFixture[str]) -> None:
    """A figure above its gate is shown as OVER and fails the whole, one below passes."""
    figures = dict.fromkeys(("cpu", "loop", "wall", "memory", "start", "early", "late", "pure"), 0.1)
    seen = {f"{case} {side}": figures for case in run.cases(quick=True) for side in ("floor", "endstop")}
    seen["parts"] = {"replay": 1.0, "commit": 0.3, "sync": 0.1, "mask": 0.1}
    assert run.show(run.rows(seen))
    assert "OVER" not in capsys.readouterr().out
    seen["parts"]["replay"] = 99.0
    assert not run.show(run.rows(seen))
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "OVER" in line]
    assert "replay" in line


def test_looking_at_a_result_is_cheap() -> None:
    """Masking 16 KB of source takes at most 120 times what hashing it takes (measured: 15 to 30; an alternation: 200)."""
    text = SOURCE[:16384]
    data = text.encode()

    def best(work: object, *given: object) -> float:
        spent = []
        for _ in range(20):
            begun = time.perf_counter()
            work(*given)  # type: ignore[operator]
            spent.append(time.perf_counter() - begun)
        return min(spent)

    assert best(mask, text) < 120 * best(lambda: sha256(data).digest())
