"""Model names and what models cost."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from endstop.core.messages import Price
from endstop.errors import UsageError
from endstop.models.names import PROVIDERS, parse
from endstop.models.prices import price, window


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("openai:gpt-5", ("openai", "gpt-5")),
        ("ollama:qwen3:8b", ("ollama", "qwen3:8b")),
        (" OpenAI: gpt-5 ", ("openai", "gpt-5")),
        ("openrouter:openai/gpt-5", ("openrouter", "openai/gpt-5")),
        ("scripted:/tmp/a b.toml", ("scripted", "/tmp/a b.toml")),
    ],
)
def test_a_name_is_provider_and_model(name: str, wanted: tuple[str, str]) -> None:
    """Only the first colon parts them."""
    assert parse(name) == wanted


@pytest.mark.parametrize(
    ("name", "offer"),
    [
        ("gpt-5", "openai:gpt-5"),
        ("", "PROVIDER:MODEL"),
        ("opnai:gpt-5", "openai"),
        ("anthropics:x", "anthropic"),
        ("zzz:x", "known are"),
        ("openai:", "MODEL"),
        ("scripted:", "SCRIPT"),
        (":x", "known are"),
    ],
)
def test_a_name_that_means_nothing_is_refused_with_an_offer(name: str, offer: str) -> None:
    """The nearest names, or how a name is written."""
    with pytest.raises(UsageError) as caught:
        parse(name)
    assert offer in caught.value.hint


def test_every_provider_has_an_address() -> None:
    """Remote ones by TLS and with a key, local ones without."""
    for provider in PROVIDERS.values():
        assert provider.base_url.startswith("https://" if provider.key_env else "http://127.0.0.1:")


def test_known_models_have_a_price() -> None:
    """From the shipped list, in USD per token; a cache price that is not listed is the input price."""
    known = price("openai", "gpt-5", {})
    assert known is not None
    assert 0 < known.cache_read < known.input == known.cache_write < known.output < 0.001
    assert price("xai", "grok-4", {}) is not None
    assert (window("openai", "gpt-5") or 0) > 100_000


@pytest.mark.parametrize(
    ("provider", "model"), [("openai", "nobody-knows-this"), ("ollama", "qwen3:8b"), ("scripted", "x"), ("", "")]
)
def test_unknown_models_have_none(provider: str, model: str) -> None:
    """Unknown is None, never zero."""
    assert price(provider, model, {}) is None
    assert window(provider, model) is None


def test_own_prices_win() -> None:
    """By the full name before the model alone, in USD per million tokens."""
    own = {
        "gpt-5": {"input": 2.0, "output": 4.0},
        "openai:gpt-5": {"input": 1.0, "output": 8, "cache_read": 0.0, "cache_write": 3.0},
    }
    assert price("openai", "gpt-5", own) == Price(1e-6, 8e-6, 0.0, 3e-6)
    assert price("azure", "gpt-5", own) == Price(2e-6, 4e-6, 2e-6, 2e-6)


@pytest.mark.parametrize(
    "own",
    [
        {"input": 1.0},
        {"input": -1.0, "output": 1.0},
        {"input": "1", "output": 1},
        {"input": 1, "output": float("nan")},
        {"input": 1, "output": 1, "per": 2},
    ],
)
def test_an_own_price_that_is_none_is_refused(own: dict[str, Any]) -> None:
    """It names the entry and the unit."""
    with pytest.raises(UsageError) as caught:
        price("openai", "gpt-5", {"openai:gpt-5": own})
    assert caught.value.where == "openai:gpt-5"
    assert "per million" in caught.value.hint


def test_the_list_is_loaded_only_when_asked() -> None:
    """Importing the module, or using an own price, does not load the heavy list."""
    code = (
        "import sys; from endstop.models.prices import price;"
        "price('a', 'b', {'b': {'input': 1, 'output': 1}}); sys.exit('genai_prices' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
