"""Identity of a call and of a result: what makes two of them the same for memory and stall rules."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Any

import msgspec

LOOK_AT = 8 * 1024
"""Characters of each end of a result that are masked: 16 KB of source cost under 0.3 ms that way."""

# Both patterns start with a digit or a slash, so that source text is skipped at the speed of a scan (an alternation over
# uuid, time, path … costs 100 us per KB). Numbers without a unit, colon, dash or hex letter stay: they may be counts.
_DIGITS = re.compile(
    r"[0-9]+(?:\.[0-9]+)?\s?(?:ms|us|µs|ns|sec(?:ond)?s?|min(?:ute)?s?|s)\b"
    r"|[0-9]{1,4}[:/-][0-9]{1,2}[:/-][0-9]{1,4}(?:[T ]?[0-9:.,]*)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?"
    r"|[0-9]{1,2}:[0-9]{2}(?:\.[0-9]+)?"
    r"|0x[0-9a-fA-F]+"
    r"|[0-9][0-9a-fA-F]{7,}(?:-[0-9a-fA-F]{4,})*"
)
_HEX = re.compile(r"\b[a-f](?=[a-f]*[0-9])[0-9a-f]{7,}(?:-[0-9a-f]{4,})*\b")
_PID = re.compile(r"\b(pid|process|PID)([ =:]+)[0-9]+")
_PATHS = re.compile(r"/(?:tmp|var|private|dev/shm|proc|run)/[^\s'\":,)]+")


def mask(text: str) -> str:
    """A result without what changes from run to run: times, durations, pids, addresses, hex ids, temporary paths."""
    if len(text) > 2 * LOOK_AT:
        text = text[:LOOK_AT] + "\n" + text[-LOOK_AT:]
    if "/" in text:
        text = _PATHS.sub("/~", text)
    if "pid" in text or "PID" in text or "process" in text:
        text = _PID.sub(r"\1\2~", text)
    text = _DIGITS.sub("~", text)
    return _HEX.sub("~", text)


def digests(text: str) -> tuple[str, str]:
    """Hash of a result, raw and masked."""
    raw = text.encode(errors="replace")
    masked = mask(text)
    first = sha256(raw).hexdigest()
    return first, (first if masked is text or masked == text else sha256(masked.encode(errors="replace")).hexdigest())


def canonical(arguments: dict[str, Any]) -> bytes:
    """Arguments as bytes that do not depend on the order of keys at any depth."""
    return msgspec.json.encode(arguments, order="deterministic")


def identity(tool: str, arguments: dict[str, Any]) -> str:
    """Identity of a call: no prose, no ids. Insisting on a repetition ("again") leaves it the same call."""
    if "again" in arguments:
        arguments = {key: value for key, value in arguments.items() if key != "again"}
    return f"{tool}:{sha256(canonical(arguments)).hexdigest()[:32]}"
