"""When a provider will answer again, out of the headers, fields and words of a refusal. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

LONGEST = 32 * 86_400.0
"""Seconds beyond which what was read is no wait: limits are by the minute, day, week or month."""
LIMITED = re.compile(r"(?P<family>anthropic-ratelimit-|x-ratelimit-)(?:reset-(?P<a>[\w-]+)|(?P<b>[\w-]+)-reset|reset)$")
"""Headers that say when one of several limits is full again; the header of the same limit that says what remains is beside."""
FIELDS = ("retry_after", "retryDelay", "retry_delay", "resets_in_seconds", "resets_in", "resets_at", "reset_at", "reset_time")
"""Fields of a complaint that say the same."""
_UNITS = {"d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|[dhms]))+")
_STEP = re.compile(r"(\d+(?:\.\d+)?)(ms|[dhms])")
_UNIT = r"(?:milliseconds?|ms|seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h|days?|d)"
_AMOUNT = rf"(?P<wait>(?:\d+(?:\.\d+)?\s*{_UNIT}(?![a-z])[\s,]*(?:and\s+)?)+)"
_IN = re.compile(rf"(?:try again|retry|resets?|available|wait)\w*(?: again)?(?: after| in| for)?:? {_AMOUNT}", re.IGNORECASE)
_AT = re.compile(
    r"(?:resets?|try again|available|until|regain access)\w*(?: again)?(?: at| on| after)?:? "
    r"(?P<at>\d{4}-\d\d-\d\d[T ](?:at )?\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?: ?Z| ?UTC|[+-]\d\d:?\d\d)?|\d{10,13}\b)",
    re.IGNORECASE,
)


def seconds(headers: Mapping[str, str], fields: Mapping[str, Any], text: str, now: float) -> float | None:
    """Seconds until the provider will answer again; None where it does not say.

    ``Retry-After`` comes first: it is meant for this very request. Then the limits that are used up, then what the complaint
    itself names in fields or words.

    Args:
        now: epoch seconds.
    """
    low = {name.lower(): value for name, value in headers.items()}
    found = _first(
        [
            *(_wait(low[name], now, unit) for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)) if name in low),
            _used_up(low, now),
            *(_wait(fields[name], now) for name in FIELDS if name in fields),
        ]
    )
    return found if found is not None else _spoken(text, now)


def _first(numbers: Iterable[float | None]) -> float | None:
    return next((number for number in numbers if number is not None), None)


def _used_up(headers: Mapping[str, str], now: float) -> float | None:
    """The longest wait among the limits of which nothing remains, or of which is not said what remains."""
    waits = []
    for name, value in headers.items():
        limit = LIMITED.match(name)
        if limit is None:
            continue
        family, which = limit["family"], limit["a"] or limit["b"]
        beside = (f"{family}remaining-{which}", f"{family}{which}-remaining", f"{family}remaining" if which is None else "")
        left = _first(_number(headers.get(name)) for name in beside)
        if left or headers.get(f"{family}{which}-status", "rejected") != "rejected":
            continue
        wait = _wait(value, now)
        if wait is not None:
            waits.append(wait)
    return max(waits, default=None)


def _wait(value: Any, now: float, unit: float = 1.0) -> float | None:
    """Seconds from ``now``: a number of seconds or of epoch seconds or milliseconds, 1m30s, an HTTP date, an RFC 3339 time."""
    number = _number(value)
    if number is not None:
        if number > 1e11:
            number /= 1000.0  # epoch milliseconds
        return _sane(number - now if number > 1e9 else number * unit)
    if not isinstance(value, str):
        return None
    text = value.strip()
    if _DURATION.fullmatch(text):
        return _sane(_duration(text))
    moment = _moment(text)
    return None if moment is None else _sane(moment - now)


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _duration(text: str) -> float:
    return sum(float(amount) * _UNITS[unit] for amount, unit in _STEP.findall(text))


def _moment(text: str) -> float | None:
    """Epoch seconds of a time; without a zone it is UTC."""
    try:
        moment = datetime.fromisoformat(re.sub(r" ?UTC$", "Z", text).replace(" at ", " ").replace(" Z", "Z"))
    except ValueError:
        try:
            moment = parsedate_to_datetime(text)
        except (ValueError, OverflowError):
            return None
    try:
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (OverflowError, OSError, ValueError):
        return None


def _sane(wait: float) -> float | None:
    return max(0.0, wait) if wait <= LONGEST else None


def _spoken(text: str, now: float) -> float | None:
    """Words like "try again in 6m0s", "resets at 2026-11-30T17:00:00Z"."""
    found = _IN.search(text)
    if found:
        steps = re.findall(r"(\d+(?:\.\d+)?)\s*(ms|milli|[dhms])", found["wait"], re.IGNORECASE)
        return _sane(sum(float(amount) * _UNITS["ms" if unit.lower() == "milli" else unit.lower()] for amount, unit in steps))
    named = _AT.search(text)
    return _wait(named["at"], now) if named else None
