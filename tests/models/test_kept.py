"""What goes back to a provider as it came."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from endstop.core.messages import AssistantText, ToolRequest
from endstop.models.kept import Said, keep, parts_of

CALL = ToolRequest("call_000000001", "shell", {"command": "ls"})
HMM = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}


def test_parts_come_back_in_their_order() -> None:
    """Reasoning stands where it stood, between text and calls, and is equal to what came."""
    opaque = keep("w:m", [HMM, 3, None, {"deep": [1, {"x": None}]}, (4, "final"), None])
    message = AssistantText("Oneäöü!", (CALL, CALL), opaque)
    assert list(parts_of(message, "w:m")) == [HMM, Said("One"), CALL, {"deep": [1, {"x": None}]}, Said("äöü!", "final"), CALL]


def test_nobody_else_reads_it() -> None:
    """Another wire, another model of the same wire, and broken or foreign text give text and calls alone."""
    opaque = keep("w:m", [HMM, 2, None])
    for by, text in [
        ("w:n", opaque),
        ("v:m", opaque),
        ("w:m", "reasoning_content:hm"),
        ("w:m", "{"),
        ("w:m", '{"by": 1}'),
        ("w:m", None),
        ("w:m", '{"by": "w:m", "parts": [true, "x", 1.5]}'),
    ]:
        assert list(parts_of(AssistantText("ab", (CALL,), text), by)) == [Said("ab"), CALL]


def test_what_a_secret_was_cut_out_of_does_not_go_back() -> None:
    """The provider would refuse the whole conversation: signed reasoning is sent as it came, or not at all."""
    opaque = (keep("w:m", [HMM, 2, None]) or "").replace("hm", "the key is [redacted:openai-key]")
    assert list(parts_of(AssistantText("ab", (CALL,), opaque), "w:m")) == [Said("ab"), CALL]


@pytest.mark.parametrize("parts", [[], [3], [3, None], [None, HMM], [HMM], [0, HMM, HMM]])
def test_what_needs_no_keeping_is_not_kept(parts: list[Any]) -> None:
    """Text and calls in their usual order, and reasoning that nothing follows."""
    opaque = keep("w:m", parts)
    assert opaque is None


@settings(deadline=None)
@given(st.text(max_size=30), st.lists(st.integers(0, 9), max_size=6), st.integers(0, 3), st.integers(0, 3))
def test_no_text_and_no_call_is_lost(text: str, sizes: list[int], asked: int, kept: int) -> None:
    """Whatever became of the text meanwhile (a secret was cut out), all of it and all calls go back."""
    opaque = keep("w:m", [HMM, *sizes, *[None] * kept, {"x": 1}, 1])
    parts = list(parts_of(AssistantText(text, (CALL,) * asked, opaque), "w:m"))
    assert "".join(part.text for part in parts if isinstance(part, Said)) == text
    assert sum(isinstance(part, ToolRequest) for part in parts) == asked
