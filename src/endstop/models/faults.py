"""What a provider said when it would not answer, as one of our kinds of failure. Pure.

Codes and words come first and the HTTP status second: gateways put the same complaint under many statuses.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from endstop.errors import PASSING, ModelError, ModelFault
from endstop.models import resets

QUOTA = re.compile(
    r"insufficient[_ ]quota|billing[_ ](hard[_ ])?limit|billing[_ ](not[_ ]active|error)|insufficient (balance|credits)"
    r"|credit balance is too low"
)
SPENT = re.compile(r"specified api usage limits|usage limit has been reached|usage_limit_reached")
"""A limit over a day or month, which comes back by itself, whatever the status."""
WORDS: tuple[tuple[ModelFault, re.Pattern[str]], ...] = (
    ("auth", QUOTA),
    (
        "rate_limit",
        re.compile(r"rate[_ -]?limit|too many requests|(tokens|requests) per (minute|day)|resource_exhausted"),
    ),
    (
        "context_overflow",
        re.compile(
            r"context[_ ](length|window|size|limit)|maximum context|(prompt|input) is too long|too many (input )?tokens"
            r"|reduce the length|token count .{0,40}exceeds|string_above_max_length"
        ),
    ),
    (
        "content_filter",
        re.compile(
            r"content[_ ](filter|policy|management)|responsible ?ai|safety system|moderation|(bio|cyber)_policy|policy_violation"
        ),
    ),
    ("overloaded", re.compile(r"overloaded|capacity|currently unavailable|server is busy")),
    ("auth", re.compile(r"invalid[_ ]api[_ ]key|authentication_error|permission_error|unauthorized")),
)
"""Read in this order, where the status leaves open what is meant."""

STATUS: dict[int, ModelFault] = {
    401: "auth",
    402: "auth",
    403: "auth",
    408: "network",
    409: "server",
    413: "context_overflow",
    425: "server",
    429: "rate_limit",
    498: "overloaded",
    503: "overloaded",
    529: "overloaded",
}
OPEN = frozenset({200, 400, 403, 422, 429, 500})
"""Statuses under which the words decide. Under the others only a full window is looked for."""
VAGUE = frozenset({200, 429, 500})
"""Statuses under which text alone may mean a fault that passes; elsewhere it could be a quotation, and only codes may."""

REFUSED = re.compile(r"invalid_(request|prompt)|not_found_error|request_too_large")
"""Codes by which a complaint inside an answer is the request's fault."""

SHORT = 500
"""Characters kept of what a server says of its failure."""
BILLING = "the account has no credit left: see the provider's billing page, or choose another model"
UNSUPPORTED = re.compile(
    r"unsupported|not support|unrecognized|unknown|unexpected|extra|not permitted|not allowed", re.IGNORECASE
)
"""Words of a server that does not know a field; which one, it names."""
BAD_VALUE = re.compile(r"\bvalue", re.IGNORECASE)
"""A field it knows, with a value it does not."""
HINTS: dict[ModelFault, str] = {
    "auth": "check the API key of this provider and what it may use",
    "context_overflow": "the conversation is longer than the model's window",
    "content_filter": "the provider's filter refused this conversation; another model may take it",
}
UNKNOWN = "unknown model or wrong base URL: check both; the base URL of most servers ends in /v1"


class Said(msgspec.Struct, frozen=True):
    """A server's complaint: its text, its codes and types in one lower-case line, and whatever fields stood beside."""

    text: str
    codes: str = ""
    status: int | None = None
    fields: dict[str, Any] = {}


def read(body: bytes) -> Said:
    """The complaint in a body of whatever shape: ``error`` as object or text, ``message``, ``detail``, or no JSON at all."""
    try:
        found = json.loads(body.decode("utf-8-sig", "replace"), strict=False)
    except (ValueError, RecursionError):
        return Said(_plain(body.decode("utf-8", "replace")))
    if isinstance(found, list) and found:
        found = found[0]
    if not isinstance(found, dict):
        return Said(_plain(str(found)))
    inner = found.get("error") or found
    if not isinstance(inner, dict):
        return Said(_plain(str(inner)))
    text = _plain(_words(inner.get("message")) or _words(inner.get("detail")) or _words(inner.get("msg")) or json.dumps(inner))
    param = inner.get("param")
    if isinstance(param, str) and param not in text:
        text = f"{text} [{param}]"
    codes = " ".join(str(inner[key]) for key in ("code", "type", "status") if isinstance(inner.get(key), str | int)).lower()
    code = inner.get("code")
    return Said(text, codes, code if isinstance(code, int) and 400 <= code < 600 else None, inner)


def fault(status: int, said: Said, retry_after: float | None = None) -> ModelError:
    """The failure that a status and a complaint come to. Status 200 stands for an error inside an answer."""
    if status == 200 and said.status is not None:
        status = said.status
    kind = _spoken(status, said) or STATUS.get(status)
    if kind is None:
        passing = status >= 500 or (status == 200 and not REFUSED.search(said.codes))
        kind = "server" if passing else "invalid_request"
    if kind == "auth" and (status == 402 or QUOTA.search(f"{said.codes} {said.text.lower()}")):
        hint = BILLING
    elif status in (404, 405) or 300 <= status < 400:
        hint = UNKNOWN
    else:
        hint = HINTS.get(kind, "")
    number = f"HTTP {status}: " if status != 200 else ""
    return ModelError(kind, number + (said.text or "no reason given"), status=status, retry_after=retry_after, hint=hint)


def sign(error: ModelError, where: str, secrets: Sequence[str], key_name: str | None = None) -> ModelError:
    """Say whose failure it is, and none of the secrets that a server may have repeated."""
    error.where = where
    if error.kind == "auth" and key_name and error.hint != BILLING:
        error.hint = f"check {key_name}, and what that key may use"
    for secret in secrets:
        error.message = error.message.replace(secret, "[secret]")
    if len(error.message) > SHORT:
        error.message = error.message[:SHORT] + "…"
    error.args = (error.message,)
    return error


def _spoken(status: int, said: Said) -> ModelFault | None:
    text = said.text.lower()
    if SPENT.search(said.codes) or SPENT.search(text):
        return "rate_limit"
    for kind, pattern in WORDS:
        quoted = not pattern.search(said.codes)
        if quoted and not pattern.search(text):
            continue
        if kind == "context_overflow" and status != 429 and status < 500:
            return kind
        if status in OPEN and kind != "context_overflow" and (status in VAGUE or not quoted or kind not in PASSING):
            return kind
    return None


def retry_after(headers: Mapping[str, str], said: Said, now: float) -> float | None:
    """Seconds a server asks to wait, wherever it says so; None where it does not.

    Args:
        now: epoch seconds.
    """
    return resets.seconds(headers, said.fields, said.text, now)


def _words(value: Any) -> str:
    """Text of a complaint: a string, or the ``msg`` of each entry of a list of validation errors."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "; ".join(f"{one.get('loc', '')} {one.get('msg', '')}" if isinstance(one, dict) else str(one) for one in value)
    return "" if value is None else json.dumps(value)


def _plain(text: str) -> str:
    """One line, without markup or lone surrogates."""
    if "<html" in text[:500].lower():
        text = re.sub(r"<[^>]*>", " ", text)
    return " ".join(text.encode("utf-8", "replace").decode().split())
