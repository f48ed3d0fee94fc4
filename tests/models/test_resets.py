"""When a provider will answer again."""

from __future__ import annotations

from email.utils import formatdate
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from endstop.models.faults import fault, read, retry_after
from endstop.models.resets import seconds

NOW = 1_796_000_000.0  # 2026-11-30T00:53:20Z


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": formatdate(NOW + 90, usegmt=True)}, 90.0),
        ({"retry-after-ms": "1500", "retry-after": "2"}, 1.5),
        ({"Retry-After": "-3"}, 0.0),
        ({"anthropic-ratelimit-tokens-reset": "2026-11-30T00:54:20Z", "anthropic-ratelimit-tokens-remaining": "0"}, 60.0),
        ({"anthropic-ratelimit-tokens-reset": "2026-11-30T00:54:20Z", "anthropic-ratelimit-tokens-remaining": "12"}, None),
        (
            {
                "anthropic-ratelimit-requests-reset": "2026-11-30T00:53:30Z",
                "anthropic-ratelimit-requests-remaining": "49",
                "anthropic-ratelimit-input-tokens-reset": "2026-11-30T00:55:20Z",
                "anthropic-ratelimit-input-tokens-remaining": "0",
                "anthropic-ratelimit-output-tokens-reset": "2026-11-30T00:54:20Z",
                "anthropic-ratelimit-output-tokens-remaining": "0",
            },
            120.0,
        ),
        (
            {
                "anthropic-ratelimit-unified-5h-reset": str(int(NOW) + 3600),
                "anthropic-ratelimit-unified-5h-status": "rejected",
                "anthropic-ratelimit-unified-7d-reset": str(int(NOW) + 500_000),
                "anthropic-ratelimit-unified-7d-status": "allowed",
            },
            3600.0,
        ),
        ({"x-ratelimit-reset-requests": "6m0s", "x-ratelimit-remaining-requests": "0"}, 360.0),
        ({"x-ratelimit-reset-tokens": "2m59.56s", "x-ratelimit-remaining-tokens": "0"}, 179.56),
        ({"x-ratelimit-reset-tokens": "120ms", "x-ratelimit-remaining-tokens": "0"}, 0.12),
        ({"x-ratelimit-reset-requests": "1d2h", "x-ratelimit-remaining-requests": "5"}, None),
        ({"X-RateLimit-Reset": str(int(NOW + 30) * 1000), "X-RateLimit-Remaining": "0"}, 30.0),
        ({"X-RateLimit-Reset": str(int(NOW + 30)), "X-RateLimit-Remaining": "1"}, None),
        ({"Retry-After": "2", "x-ratelimit-reset-requests": "9h", "x-ratelimit-remaining-requests": "0"}, 2.0),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "nan"}, None),
        ({"Retry-After": "9" * 400}, None),
        ({"Retry-After": "99999999"}, None),
        ({"x-ratelimit-limit-requests": "60"}, None),
        ({}, None),
    ],
)
def test_headers_say_when(headers: dict[str, str], wait: float | None) -> None:
    """The wait for this request first, then the longest of the limits that are used up; nonsense is nothing."""
    assert seconds(headers, {}, "", NOW) == (None if wait is None else pytest.approx(wait))


@pytest.mark.parametrize(
    ("body", "wait"),
    [
        ('{"error": {"message": "Rate limit reached. Please try again in 6m0s. Visit x"}}', 360.0),
        ('{"error": {"message": "Please try again in 1.5s."}}', 1.5),
        ('{"error": {"message": "Please try again in 20ms."}}', 0.02),
        ('{"error": {"message": "retry after 2 minutes and 5 seconds"}}', 125.0),
        ('{"error": {"message": "Please retry in 31.29s."}}', 31.29),
        ('{"error": {"message": "Your limit resets at 2026-11-30T01:53:20Z."}}', 3600.0),
        ('{"error": {"message": "usage limit reached, resets at 1796000060"}}', 60.0),
        ('{"error": {"message": "You will regain access on 2026-12-01 at 00:00 UTC."}}', 83_200.0),
        ('{"error": {"type": "usage_limit_reached", "message": "x", "resets_at": 1796000600, "resets_in_seconds": 600}}', 600.0),
        ('{"error": {"message": "x", "resets_at": 1796000600}}', 600.0),
        ('{"error": {"message": "x", "retry_after": "3"}}', 3.0),
        ('{"error": {"message": "reset your key at the page 2026 or try again later"}}', None),
        ('{"error": {"message": "x", "retry_after": true, "resets_at": {"a": 1}}}', None),
        ("slow down", None),
        ("[]", None),
    ],
)
def test_a_complaint_says_when(body: str, wait: float | None) -> None:
    """In a field or in words."""
    found = retry_after({}, read(body.encode()), NOW)
    assert found == (None if wait is None else pytest.approx(wait))


def test_a_monthly_limit_is_waited_for_whatever_its_status() -> None:
    """It is no broken request, although one provider answers 400."""
    body = b'{"error": {"type": "invalid_request_error", "message": "You have reached your specified API usage limits."}}'
    assert fault(400, read(body)).kind == "rate_limit"


@settings(deadline=None)
@given(
    st.dictionaries(st.sampled_from(["Retry-After", "x-ratelimit-reset", "x-ratelimit-reset-a"]), st.text(max_size=30)), st.text()
)
def test_no_header_and_no_word_breaks_it(headers: dict[str, Any], text: str) -> None:
    """Whatever is sent, the wait is a number of seconds that somebody could wait, or none."""
    wait = seconds(headers, {"reset_at": text}, text, NOW)
    assert wait is None or 0 <= wait < 3e6
