"""What tokens cost: the user's own prices first, else the list that the package genai-prices ships.

The list is never updated over the network here: what a goal may spend must not change under it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

from endstop.core.messages import Price
from endstop.errors import UsageError

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice

MILLION = 1_000_000
FIELDS = ("input", "output", "cache_read", "cache_write")
ALIASES = {"xai": "x-ai", "openai-responses": "openai", "openai-chat": "openai", "google-gla": "google", "bedrock": "aws"}
"""Our name of a provider where the list has another one."""


def price(provider: str, model: str, overrides: Mapping[str, Mapping[str, float]]) -> Price | None:
    """USD per token of a model; None where nobody knows.

    Args:
        overrides: "provider:model" or "model" to ``input``, ``output`` and optionally ``cache_read``, ``cache_write``, in
            USD per million tokens. A cache price that is not given is the input price.

    Raises:
        UsageError: an override is no usable price.
    """
    for name in (f"{provider}:{model}", model):
        if name in overrides:
            return _own(name, overrides[name])
    found = _find(provider, model)
    if found is None:
        return None
    now = datetime.now(UTC)
    # some prices change with the hour: the dearest of the day, so that what was reserved covers what is charged
    day = {id(listed): listed for listed in (found.get_prices(now + timedelta(hours=hour)) for hour in range(24))}
    fresh, output, read, write = (_dearest(day.values(), f"{unit}_mtok") for unit in FIELDS)
    if fresh is None or output is None:
        return None
    return _with_cache(fresh, output, read, write)


def window(provider: str, model: str) -> int | None:
    """Tokens that fit into a model's window, None where nobody knows."""
    found = _find(provider, model)
    return found.context_window if found else None


def _own(name: str, given: Mapping[str, float]) -> Price:
    values = {field: given.get(field) for field in FIELDS}
    fresh, output = values["input"], values["output"]
    hint = "give input and output, and optionally cache_read and cache_write, in USD per million tokens"
    if fresh is None or output is None or set(given) - set(FIELDS):
        raise UsageError("a price needs input and output and knows no other fields but the cache prices", hint=hint, where=name)
    for field, value in values.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (number and math.isfinite(value) and value >= 0):
            raise UsageError(f"price {field} = {value!r} is no amount", hint=hint, where=name)
    whole = _with_cache(fresh, output, values["cache_read"], values["cache_write"])
    return Price(*(getattr(whole, field) / MILLION for field in FIELDS))


def _with_cache(fresh: float, output: float, read: float | None, write: float | None) -> Price:
    return Price(fresh, output, fresh if read is None else read, fresh if write is None else write)


def _find(provider: str, model: str) -> ModelInfo | None:
    from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415  heavy: 1.6 MB of data, wanted once per process at most

    try:
        return get_snapshot().find_provider_model(model, None, ALIASES.get(provider, provider), None)[1]
    except LookupError:
        return None


def _dearest(prices: Iterable[ModelPrice], field: str) -> float | None:
    """USD per token of a listed price; of one with tiers, the base. None where it is not listed."""
    amounts = [getattr(value, "base", value) for value in (getattr(price, field, None) for price in prices)]
    known = [float(amount) / MILLION for amount in amounts if isinstance(amount, Decimal)]
    return max(known, default=None)
