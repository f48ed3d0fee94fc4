"""Real runs that ended by the model's claim: no rule may refuse or halt one of them."""

from __future__ import annotations

import json
import os
import re
from itertools import pairwise
from pathlib import Path

import pytest

from tests.core.cases.track import Track

SHARED = Path(os.environ.get("ENDSTOP_SHARED") or Path(__file__).parents[4] / "shared")
RUNS = sorted((SHARED / "logs" / "mini-swe-agent" / "swebench").glob("*.traj.json"))
BLOCK = re.compile(r"```(?:bash|sh)\s*\n(.*?)\n?```", re.DOTALL)
CODE = re.compile(r"<returncode>(-?\d+)</returncode>")
WRITES = re.compile(
    r"(?:^|[^0-9&>])>{1,2}\s*(?!/dev/null|&)[\w./$~\"'-]|\bsed\b[^|;]*\s-i|\btee\b|\bgit\s+(?:apply|checkout|stash|reset|restore|mv|rm)\b|\bpatch\b"
    r"|\b(?:rm|mv|cp|touch|mkdir)\s|\bpip\s+install\b|\.write\(|write_text|open\([^)]*['\"][wa]",
)
"""Commands that leave other files behind: there a look would find a new fingerprint."""


def replayed(path: Path) -> Track:
    """A run through the stall rules, as calls of one shell tool."""
    track = Track()
    messages = json.loads(path.read_text())["messages"]
    for asked, told in pairwise(messages[2:]):
        if asked["role"] != "assistant" or told["role"] != "user":
            continue
        blocks = BLOCK.findall(asked["content"])
        if len(blocks) != 1:
            track.wrong(unknown=False)
            continue
        code = CODE.search(told["content"])
        status = int(code[1]) if code else 124
        track.batch(
            {
                "tool": "shell",
                "arguments": {"command": blocks[0]},
                "result": told["content"],
                "effect": "shell",
                "ok": status == 0,
                "way": f"exit {status}",
            }
        )
        if WRITES.search(blocks[0]):
            track.edited()
    return track


@pytest.mark.skipif(not RUNS, reason="the recorded runs are not here: set ENDSTOP_SHARED")
@pytest.mark.parametrize("path", RUNS or [Path("none")], ids=lambda p: p.name.removesuffix(".traj.json"))
def test_a_healthy_run_is_never_refused_or_halted(path: Path) -> None:
    """Notices are words; the run goes on to its own claim."""
    track = replayed(path)
    assert track.seq > 5
    assert (track.refused, track.halted) == ([], "")
