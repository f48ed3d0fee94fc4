"""What is said between agent and model, and what it costs."""

from __future__ import annotations

import msgspec
import pytest

from endstop.core.messages import AssistantText, Message, Price, ToolRequest, ToolText, Usage, UserText

PRICE = Price(input=2e-6, output=10e-6, cache_read=0.2e-6, cache_write=2.5e-6)


@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        (Usage(0, 0), 0.0),
        (Usage(1000, 0), 0.002),
        (Usage(0, 1000), 0.010),
        (Usage(1000, 0, cache_read=1000), 0.0002),
        (Usage(1000, 0, cache_write=1000), 0.0025),
        (Usage(1000, 100, cache_read=600, cache_write=300), 100 * 2e-6 + 600 * 0.2e-6 + 300 * 2.5e-6 + 0.001),
        (Usage(100, 0, cache_read=500), 500 * 0.2e-6),
    ],
)
def test_each_token_is_paid_once_at_its_own_price(usage: Usage, cost: float) -> None:
    """Cached input is not paid again as input, also where a provider reports more cached than input."""
    assert PRICE.cost(usage) == pytest.approx(cost)


def test_reasoning_is_part_of_the_output() -> None:
    """Reasoning tokens are counted in output, not on top."""
    assert PRICE.cost(Usage(0, 1000, reasoning=900)) == pytest.approx(0.010)


@pytest.mark.parametrize(
    "message",
    [
        UserText("hi"),
        AssistantText("", (ToolRequest("c1", "read", {"path": "a"}), ToolRequest("c2", "read", "{broken")), "opaque"),
        ToolText("c1", "text"),
    ],
)
def test_messages_survive_json(message: Message) -> None:
    """A message reads back as its own kind; arguments that were no JSON object stay text."""
    assert msgspec.json.decode(msgspec.json.encode(message), type=Message) == message  # type: ignore[type-var]
