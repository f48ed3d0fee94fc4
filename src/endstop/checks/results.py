"""What test runners print at their end: how many tests there were and which failed."""

from __future__ import annotations

import re

NAMES = 200
"""Failing tests that are named, and characters of each name."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_PYTEST_HEADER = re.compile(r"^=+ short test summary info =+$", re.MULTILINE)
_PYTEST_TOTAL = re.compile(
    r"^(?:=+ )?(\d+ (?:passed|failed|error|skipped|xfailed|xpassed|deselected|warning)[^\n]*?) in [\d.]+s\b", re.MULTILINE
)
_PYTEST_PART = re.compile(r"(\d+) (?:passed|failed|errors?|skipped|xfailed|xpassed)\b")
_PYTEST_NONE = re.compile(r"^(?:=+ )?no tests (?:ran|collected)\b", re.MULTILINE)

_FAILING = (
    re.compile(r"^(?:FAIL|ERROR): (\S+ \([\w.]+\))", re.MULTILINE),  # unittest
    re.compile(r"^test (\S+)(?: - should panic)? \.\.\. FAILED$", re.MULTILINE),  # cargo
    re.compile(r"^\s*--- FAIL: (\S+)", re.MULTILINE),  # go
    re.compile(r"^\s+● (?!Console$)(\S[^\n]*)$", re.MULTILINE),  # jest
    re.compile(r"^ FAIL +(\S+ > [^\n]*)$", re.MULTILINE),  # vitest
    re.compile(r"^\s*not ok \d+ -? ?(\S[^\n]*)$", re.MULTILINE),  # TAP
)
_TOTALS = (
    re.compile(r"^Ran (\d+) tests? in ", re.MULTILINE),  # unittest
    re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored", re.MULTILINE),  # cargo
    re.compile(r"^Tests: [^\n]*?(\d+) total$", re.MULTILINE),  # jest
    re.compile(r"^ *Tests  [^\n]*\((\d+)\)$", re.MULTILINE),  # vitest
    re.compile(r"^# tests (\d+)$", re.MULTILINE),  # TAP
)
_GO_RUN = re.compile(r"^=== RUN ", re.MULTILINE)


def read_results(output: str) -> tuple[int | None, list[str] | None]:
    """Tests collected and names of those that failed, both None where no test runner is recognised."""
    text = _COLOUR.sub("", output)
    failing = _pytest_failing(text)
    for pattern in _FAILING:
        failing += pattern.findall(text)
    collected = _collected(text)
    if collected is None and not failing:
        return None, None
    return collected, [name[:NAMES] for name in dict.fromkeys(failing)][:NAMES]


def _pytest_failing(text: str) -> list[str]:
    if not _PYTEST_TOTAL.search(text):
        return []
    header = _PYTEST_HEADER.search(text)
    lines = (text[header.end() :] if header else text).splitlines()
    names = [line.partition(" ")[2].partition(" - ")[0].rstrip() for line in lines if line.startswith(("FAILED ", "ERROR "))]
    return [name for name in names if not name.startswith(" ") and ("::" in name or name.endswith(".py"))]


def _collected(text: str) -> int | None:
    pytest = _PYTEST_TOTAL.findall(text)
    counts = [int(number) for total in pytest for number in _PYTEST_PART.findall(total)]
    for pattern in _TOTALS:
        for match in pattern.finditer(text):
            counts += [int(number) for number in match.groups()]
    counts += [1] * len(_GO_RUN.findall(text))
    return sum(counts) if counts or pytest or _PYTEST_NONE.search(text) else None
