"""What the OpenHands stuck detectors call stuck, ours ends if it goes on; what they call fine, ours lets run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.core.cases.track import LAPS, Track

CASES: dict[str, Any] = {c["id"]: c for c in json.loads((Path(__file__).parent / "openhands_stuck.json").read_text())}
EFFECTS = {"terminal": "shell", "run": "shell", "ipython": "shell", "read": "read", "edit": "edit", "browse": "read_outside"}
NOT_APPLICABLE = {
    "oh-012": "their own settings; ours are checked with the settings",
    "oh-017": "a resume from stuck, which is a rule of phases",
    "ohv0-020": "compactions without gain end on the limit context, which is no stall rule",
    "ohv0-037": "a child's end is a result of its parent's call, never the parent's own end",
}
DIFFERS = {
    "ohv0-033": "two rounds without a call in a row ask a human, or block where nobody can be reached; one is nudged",
}


def turns(case: dict[str, Any]) -> list[tuple[str, Any]]:
    """The case as moves of a track: batches, edits, words, people."""
    moves: list[tuple[str, Any]] = []
    asked: list[dict[str, Any]] = []
    got: list[dict[str, Any]] = []
    for step in [*case["steps"], {"event": "end"}]:
        kind = step["event"]
        if kind == "observation" and asked:
            got.append(step)
            continue
        if asked and got:
            moves.append(("batch", [_call(a, g) for a, g in zip(asked, got, strict=False)]))
            moves += [("edit", None) for a in asked if a["tool"] == "edit"]
        if got or kind != "action":
            asked, got = [], []
        match kind:
            case "action":
                asked.append(step)
            case "agent_message":
                moves.append(("words", None))
            case "user_message" if not step.get("is_corrective_nudge"):
                moves.append(("human", None))
    return moves


def _call(action: dict[str, Any], seen: dict[str, Any]) -> dict[str, Any]:
    code = seen.get("exit_code")
    failed = bool(seen.get("error_kind")) or (isinstance(code, int) and code > 0)
    way = "failed" if seen.get("error_kind") else f"exit {code}"
    return {
        "tool": action["tool"],
        "arguments": action["args"],
        "result": str(seen.get("result") or ""),
        "effect": EFFECTS.get(action["tool"], "write"),
        "ok": not failed,
        "way": way,
    }


def play(track: Track, moves: list[tuple[str, Any]]) -> None:
    """Put moves through the rules."""
    for kind, what in moves:
        match kind:
            case "batch":
                track.batch(*what)
            case "edit":
                track.edited()
            case "words":
                track.words()
            case "human":
                track.human()


def wanted(case: dict[str, Any]) -> str:
    """What is right: their verdict, unless the case says what it should be."""
    return str(case["expected"].get("desired", case["expected"].get("outcome")))


@pytest.mark.parametrize("name", [n for n in CASES if n not in NOT_APPLICABLE])
def test_stuck_ends_if_it_goes_on_and_fine_goes_on(name: str) -> None:
    """Each case by its right verdict."""
    case, track = CASES[name], Track()
    moves = turns(case)
    assert moves
    play(track, moves)
    want = wanted(case)
    if name in DIFFERS:
        assert track.halted == "no action"
    elif "stuck" in want:
        since = max((n for n, (kind, _) in enumerate(moves) if kind == "human"), default=-1) + 1
        loop = [m for m in (moves[since:] or moves) if m[0] != "human"] or [m for m in moves if m[0] != "human"]
        laps = 0
        while not track.halted:
            play(track, loop)
            laps += 1
            assert laps <= LAPS
    else:
        assert want in ("none", "nudge", "nudge_per_streak")
        assert (track.refused, track.halted) == ([], "")
        if want != "none":
            assert track.noticed


def test_every_case_is_accounted_for() -> None:
    """Held, differing on purpose and not applicable make up all of them."""
    assert set(NOT_APPLICABLE) | set(DIFFERS) <= set(CASES)
    held = len(CASES) - len(NOT_APPLICABLE) - len(DIFFERS)
    sys.stdout.write(f"openhands: {held} held, {len(DIFFERS)} differ on purpose, {len(NOT_APPLICABLE)} not applicable\n")
    assert (held, len(DIFFERS), len(NOT_APPLICABLE)) == (38, 1, 4)
