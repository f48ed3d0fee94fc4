"""Values, counts and reasons in words."""

from __future__ import annotations

from typing import Any

import pytest

from endstop.cli import words
from endstop.core import events as ev

NOBODY = (
    "Needs a human's permission and nobody can be asked (mode ask): everything but reading is asked for; allow it with the "
    "rule shell(…). To allow it: --allow '{}'"
)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"items": [{"text": "see it fail"}, {"text": "repair", "status": "done"}]}, "see it fail; repair done"),
        ({"question": "Which?", "options": ["red", "blue"], "free": True, "until": None}, "Which? red, blue free"),
        ({"path": "calc.py", "old": "a - b", "new": "a + b"}, "calc.py"),
        ({"content": "no path beside it"}, "no path beside it"),
        ({"again": False, "n": 0}, "0"),
        ({}, ""),
        ("{broken", "{broken"),
    ],
)
def test_a_call_is_said_without_brackets(arguments: Any, said: str) -> None:
    """Lists and tables become words, what is off or absent is left out, and a file's path stands without the text."""
    assert words.call(arguments) == said


def test_a_denial_says_the_rule_and_how_to_allow_it() -> None:
    """What the agent was told is said shorter; nothing of a denial in other words is lost."""
    asked = "Needs a human's permission and nobody can be asked (ask shell): it wants a human's word."
    plain = ["Denied by deny shell(rm *)", "Denied before in this goal; not again."]
    said = words.denials([NOBODY.format("shell(npm ci)"), asked, *plain])
    assert said == [
        "mode ask asks, and nobody could be asked. To allow it: --allow 'shell(npm ci)'",
        "ask shell asks, and nobody could be asked.",
        "Denied by deny shell(rm *)",
    ]


def test_what_was_denied_can_be_allowed_by_options() -> None:
    """Each rule once, quoted for a shell, at most three; a denial by a rule or a person has no remedy."""
    echo = """shell(echo '"'"'a'"'"')"""
    said = [*map(NOBODY.format, ["shell(npm ci)", f"shell(npm ci)' --allow '{echo}", "a", "b"]), "Denied by a person."]
    assert words.remedies(said) == f"--allow 'shell(npm ci)' --allow '{echo}' --allow a"
    assert words.remedies([NOBODY.format("shell(npm ci)")[:-1]]) == ""
    assert words.remedies(["Denied by deny shell(rm *)"]) == ""


@pytest.mark.parametrize(("count", "said"), [(1, "once"), (2, "twice"), (3, "3 times")])
def test_counts_are_said_as_people_do(count: int, said: str) -> None:
    """Once, twice, and then a number."""
    assert words.times(count) == said


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"result": "verdict", "achieved": True}, "achieved"),
        ({"result": "verdict", "achieved": False, "missing": ["a", "b"]}, "not achieved: a; b"),
        ({"result": "verdict", "achieved": False, "missing": []}, "not achieved: it does not say what is missing"),
        ({"result": "verdict", "achieved": False, "impossible": "no such file"}, "impossible: no such file"),
        ({"result": "unreadable", "why": "no JSON"}, "unreadable: no JSON"),
        ({"result": "unreachable"}, "unreachable"),
    ],
)
def test_a_verdict_in_words(given: dict[str, Any], said: str) -> None:
    """Achieved or not and what is missing, or why it is no verdict."""
    assert words.verdict(ev.GoalJudged(raw="", **given)) == said


def test_a_stall_without_its_pattern_has_no_words() -> None:
    """A closing by something else, or from an older journal, keeps its own reason."""
    assert words.stall({"limit": "turns"}) == []
    assert words.stall({"rule": "repeat", "seqs": [4]}) == []
    assert words.stall({"rule": "denied", "count": 5, "pattern": "denied: 5 times (shell)"}) == [
        "denied: it kept asking for what was denied, 5 times (shell)"
    ]
