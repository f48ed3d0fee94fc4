"""What the Hermes guardrails block or halt, ours ends if it goes on; what is fine by them, ours lets run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from endstop.core.identity import identity
from endstop.core.limits import Spend, call_full
from endstop.core.stall import Rules
from tests.core.cases.track import LAPS, Track

CASES: dict[str, Any] = {c["id"]: c for c in json.loads((Path(__file__).parent / "hermes_guardrails.json").read_text())}
EFFECTS = {
    "terminal": "shell", "read_file": "read", "web_search": "read_outside", "skill_view": "read", "skills_list": "read",
    "write_file": "edit", "patch": "edit", "vision": "read", "mcp_ci_job_status": "read_outside",
}  # fmt: skip
POLLERS = {"job_poll", "other_get_result"}
CALLS = ("call", "outcome", "observe")
SETTINGS = "their own settings; ours are checked with the settings"
TEXT = "ours never guesses from a text whether a call failed: success is a field"
STUB = "equal long results are not replaced by a reference: the provider's cache makes them cheap"
WORDS = "ours does not read intentions: a round without a call is nudged, whatever it announces"
NOT_APPLICABLE = {
    **dict.fromkeys(["hg-002", "hg-004a", "hg-004c", "hg-004h", "hg-005"], SETTINGS),
    **dict.fromkeys(["hd-013", "hg-013", "hg-014"], TEXT),
    **dict.fromkeys(["sg-021", "sg-024"], STUB),
    "hg-062": "a limit on children, not a repetition",
    "rt-003": "its failures before are only numbers; one result a call is checked with the calls",
    "rt-004": "its failures before are only numbers; a refused call that never starts is checked with the calls",
    "rt-007": "its failures before are only numbers; a refused call beside others is checked with the calls",
    **dict.fromkeys([name for name in CASES if name.startswith("sg-03")], WORDS),
}
DIFFERS = {
    "hg-010": "theirs never blocks while somebody watches; ours refuses the fifth equal failure always, a person can speak",
    "hg-051": "the same for equal results of a watched session",
    "rt-002": "the same for a watched surface",
}


def moves(case: dict[str, Any]) -> list[dict[str, Any]]:
    """Calls of the case as a track takes them, ``edits`` beside."""
    made = []
    for step in case["steps"]:
        if step["op"] not in CALLS or (step["result"] is None and step.get("expect", {}).get("pre") == "block"):
            continue
        tool = step["tool"]
        made.append(
            {
                "tool": tool,
                "arguments": step["args"],
                "result": str(step["result"] or ""),
                "ok": not step["error"],
                "effect": EFFECTS.get(tool, "read_outside"),
                "way": "exit 1" if tool == "terminal" else "failed",
                "poller": tool in POLLERS,
            }
        )
    return made


def play(track: Track, made: list[dict[str, Any]]) -> None:
    """Each call in a batch of its own; an edit that succeeds leaves other files behind."""
    for one in made:
        track.batch(one)
        if one["effect"] == "edit" and one["ok"]:
            track.edited()


def wanted(case: dict[str, Any]) -> str:
    """What is right, in their words."""
    expected = case["expected"]
    if "desired" in expected:
        return str(expected["desired"])
    if expected.get("exit") == "guardrail_halt":
        return "halt"
    return "warn" if expected.get("warned") else str(expected.get("outcome"))


@pytest.mark.parametrize(
    "name", [n for n in CASES if n not in NOT_APPLICABLE and n not in ("hg-001", "hg-061", "hd-010", "hg-056")]
)
def test_blocked_and_halted_end_if_they_go_on_and_the_rest_goes_on(name: str) -> None:
    """Each case by its right verdict."""
    case, track = CASES[name], Track()
    made = moves(case)
    assert made
    play(track, made)
    want = wanted(case)
    if name in DIFFERS:
        assert track.refused
    elif want in ("block", "halt", "warn_or_halt"):
        loop = [one for one in made if one["effect"] != "edit"]
        laps = 0
        while not track.halted:
            play(track, loop)
            laps += 1
            assert laps <= 11  # different calls with the same failure: eleven of them
            assert laps <= LAPS or len({json.dumps(one["arguments"]) for one in loop}) > 1
    else:
        assert want in ("none", "warn", "none_if_the_file_was_edited_between")
        assert (track.refused, track.halted) == ([], "")
        if want == "warn":
            while not track.noticed:
                play(track, made[-1:])
                assert track.seq <= len(made) + 1
            assert not track.refused


def test_identity_hides_arguments_and_ignores_the_order_of_keys() -> None:
    """Case hg-001."""
    (step,) = CASES["hg-001"]["steps"]
    assert identity(step["tool"], step["args_a"]) == identity(step["tool"], step["args_b"])
    assert "secret" not in identity(step["tool"], step["args_a"])


def test_a_tool_has_its_own_cap_whatever_repeats() -> None:
    """Case hg-061: the fourth search is over a cap of three, by the limit and not by a rule."""
    spend, caps = Spend(), {"tool:web_search": 3.0}
    fits = []
    for step in CASES["hg-061"]["steps"]:
        full = call_full(spend, caps, step["tool"], 0)
        fits.append("allow" if full is None else "block")
        if full is None:
            spend.by_tool[step["tool"]] = spend.by_tool.get(step["tool"], 0) + 1
    assert fits == [step["expect"]["pre"] for step in CASES["hg-061"]["steps"]]


def test_rules_that_are_off_say_nothing() -> None:
    """Case hd-010."""
    track = Track(Rules(on=False))
    play(track, moves(CASES["hd-010"]))
    assert (track.noticed, track.refused, track.halted) == (0, [], "")


def test_fields_that_look_like_times_are_output() -> None:
    """Case hg-056: a job whose counts and seconds move is progressing."""
    track = Track()
    made = moves(CASES["hg-056"])
    assert len({one["result"] for one in made}) == len(made)
    play(track, made)
    assert (track.noticed, track.refused, track.halted) == (0, [], "")


def test_every_case_is_accounted_for() -> None:
    """Held, differing on purpose and not applicable make up all of them."""
    assert set(NOT_APPLICABLE) | set(DIFFERS) <= set(CASES)
    held = len(CASES) - len(NOT_APPLICABLE) - len(DIFFERS)
    sys.stdout.write(f"hermes: {held} held, {len(DIFFERS)} differ on purpose, {len(NOT_APPLICABLE)} not applicable\n")
    assert (held, len(DIFFERS), len(NOT_APPLICABLE)) == (33, 3, 24)
