"""Values, counts and reasons of the journal in words that people read. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from endstop.cli.out import line
from endstop.core import events as ev

BULKY = frozenset({"old", "new", "content"})
"""Arguments beside a path that say too much for one line."""
AGAIN = "Denied before in this goal"
"""How the denial of what was denied already begins."""
REMEDY = "To allow it: "
NOBODY = re.compile(rf"Needs a human's permission and nobody can be asked \((.*?)\): .*?({REMEDY}|\Z)", re.DOTALL)
STALLS = {
    "repeat": "the same call gave the same result",
    "failing": "the same call kept failing",
    "same failure": "different calls of one tool failed in the same way",
    "same answer": "different calls of one tool gave the same answer",
    "denied": "it kept asking for what was denied",
    "unknown tool": "it called a tool that does not exist",
    "malformed": "its calls could not be read",
    "oscillation": "the workspace went back and forth between the same states",
    "degenerate text": "it said the same sentence over and over",
    "no progress": "checks came to the same result, with nothing done in between",
}
PAUSES = {
    "shutdown": "its process was told to end",
    "crash_loop": "its process died several times in a row",
    "disk": "no room was left on the disk",
}


def times(count: int) -> str:
    """How often."""
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def value(found: Any) -> str:
    """A value as people write it: no brackets, no quotes, and nothing for what is not set."""
    if isinstance(found, Mapping):
        return " ".join(filter(None, map(value, found.values())))
    if isinstance(found, list | tuple):
        nested = any(isinstance(one, Mapping | list | tuple) for one in found)
        return ("; " if nested else ", ").join(filter(None, map(value, found)))
    if found is None or isinstance(found, bool):
        return "yes" if found else ""
    return str(found)


def call(arguments: Any) -> str:
    """Arguments in a few words: the values; of a call about a file its path without the text."""
    if not isinstance(arguments, Mapping):
        return str(arguments)
    told = {key: found for key, found in arguments.items() if "path" not in arguments or key not in BULKY}
    return " ".join(key if found is True else value(found) for key, found in told.items() if value(found))


def reason(event: ev.ToolComplete) -> str:
    """Why a call failed, in its first line; empty where it did not, or where other lines say it."""
    if event.error is None or event.error.code in ("denied", "blocked_stall"):
        return ""
    return next(iter(event.error.message.strip().splitlines()), "")


def denial(said: str) -> str:
    """Why a call was denied, and how to allow it: what the agent was told, in fewer words."""
    found = NOBODY.match(said)
    if found is None:
        return said[:400]
    return f"{found[1]} asks, and nobody could be asked. {found[2]}{said[found.end() :]}".strip()[:400]


def denials(said: Iterable[str]) -> list[str]:
    """What was denied and why, each once."""
    return [denial(text) for text in dict.fromkeys(said) if not text.startswith(AGAIN)]


def remedies(said: Iterable[str], most: int = 3) -> str:
    """The options that would allow what was denied, empty where no rule can."""
    rules: dict[str, None] = {}
    for text in said:
        with suppress(ValueError):  # it was cut
            rules |= dict.fromkeys(shlex.split(text.partition(REMEDY)[2])[1::2])
    return " ".join(f"--allow {shlex.quote(line(rule))}" for rule in list(rules)[:most])


def stall(detail: Mapping[str, Any]) -> list[str]:
    """What a stall rule halted: the pattern, how often, by which tool, and the events."""
    rule, count, seqs = str(detail.get("rule", "")), detail.get("count"), detail.get("seqs") or []
    if rule not in STALLS or not isinstance(count, int):
        return []
    named = re.search(r"\(([\w.-]+)\)$", str(detail.get("pattern", "")))
    tool = f" ({named[1]})" if named else ""
    events = [f"see events {', '.join(str(seq) for seq in seqs)}"] if seqs else []
    return [f"{rule}: {STALLS[rule]}, {times(count)}{tool}", *events]


def pause(why: str, by: str) -> str:
    """Why a goal is paused."""
    return PAUSES.get(why, f"by {by}" if by else why.replace("_", " "))


def verdict(judged: ev.GoalJudged) -> str:
    """What the judge answered."""
    if judged.result != "verdict":
        return f"{judged.result}: {judged.why}" if judged.why else judged.result
    if judged.impossible:
        return f"impossible: {judged.impossible}"
    missing = "; ".join(judged.missing or ()) or "it does not say what is missing"
    return "achieved" if judged.achieved else f"not achieved: {missing}"
