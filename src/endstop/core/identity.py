"""Identity of a call and of a result: what makes two of them the same for memory and stall rules."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Any

import msgspec

LOOK_AT = 8 * 1024
"""Characters of each end of a result that are masked: 16 KB of source cost under 0.3 ms that way."""

# Every pattern starts with one set of characters or one word, so that source text is skipped at the speed of a scan (an
# alternation over uuid, time, path … costs 100 us per KB). Numbers without a unit, colon, dash or hex letter stay: they may
# be counts.
_DIGITS = re.compile(
    r"[0-9](?:[0-9]*+(?:\.[0-9]++)?+\s?+(?:ms|us|µs|ns|sec(?:ond)?s?|min(?:ute)?s?|s)\b"
    r"|[0-9]{0,3}+[:/-][0-9]{1,2}+[:/-][0-9]{1,4}(?:[T ]?[0-9:.,]*)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?"
    r"|[0-9]?+:[0-9]{2}(?:\.[0-9]+)?"
    r"|(?<=0)x[0-9a-fA-F]+"
    r"|[0-9a-fA-F]{7,}(?:-[0-9a-fA-F]{4,})*)"
)
_HEX = re.compile(r"[a-f](?<=\b.)(?=[a-f]*[0-9])[0-9a-f]{7,}(?:-[0-9a-f]{4,})*\b")
_HEX_AS_X = bytes.maketrans(b"0123456789abcdef", b"x" * 16)
_PIDS = {word: re.compile(rf"{word}(?<=\b{word})([ =:]+)[0-9]+") for word in ("pid", "process", "PID")}
_PATHS = re.compile(r"/(?:tmp|var|private|dev/shm|proc|run)/[^\s'\":,)]+")


def mask(text: str) -> str:
    """A result without what changes from run to run: times, durations, pids, addresses, hex ids, temporary paths."""
    if len(text) > 2 * LOOK_AT:
        text = text[:LOOK_AT] + "\n" + text[-LOOK_AT:]
    if "/" in text:
        text = _PATHS.sub("/~", text)
    for word, pattern in _PIDS.items():
        if word in text:
            text = pattern.sub(rf"{word}\1~", text)
    if b"xxxxxxxx" in text.encode("ascii", "replace").translate(_HEX_AS_X):
        text = _HEX.sub("~", text)  # first: the other pattern would leave the letters an id begins with
    return _DIGITS.sub("~", text)


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
