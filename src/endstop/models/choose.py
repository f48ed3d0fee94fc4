"""A model by its name, as the settings describe its provider."""

from __future__ import annotations

from endstop.errors import UsageError
from endstop.models import names, prices
from endstop.models.anthropic import AnthropicModel
from endstop.models.bridge import BridgeModel
from endstop.models.http import HttpModel
from endstop.models.openai import OpenAIModel
from endstop.models.replay import ReplayModel
from endstop.models.responses import ResponsesModel
from endstop.models.scripted import ScriptedModel
from endstop.ports import Model
from endstop.settings import Provider, Settings

PROTOCOLS: dict[str, type[HttpModel]] = {names.ANTHROPIC: AnthropicModel, names.RESPONSES: ResponsesModel}
"""Providers that do not speak chat completions."""


def make_model(name: str, settings: Settings) -> Model:
    """The model behind a name.

    Raises:
        UsageError: the provider is unknown, its key is missing, or its address cannot be used.
    """
    provider, model = names.parse(name)
    own = settings.provider(provider)
    if provider == names.SCRIPTED:
        return ScriptedModel(model)
    if provider == names.REPLAY:
        return ReplayModel(model)
    if provider == names.BRIDGE:
        return _bridged(name, model, own, settings)
    known = names.PROVIDERS[provider]
    beside = settings.provider(known.beside or provider)
    key_env = own.api_key_env or beside.api_key_env or known.key_env
    key = settings.environment.get(key_env) if key_env else None
    make = PROTOCOLS.get(provider, OpenAIModel)
    made = make(
        name,
        model,
        base_url=own.base_url or beside.base_url or known.base_url,
        api_key=key,
        window=own.window or prices.window(provider, model),
        max_output=own.max_output,
        price=prices.price(provider, model, {model: own.price} if own.price else {}),
        effort=effort(provider, settings),
        concurrency=own.concurrency,
        key_name=key_env,
    )
    if not key and key_env and not made.local:
        raise UsageError(f"no key for {provider}", where=f"model {name}", hint=f"set {key_env}")
    if made.local and own.price is None:
        made.price = None
    return made


def effort(provider: str, settings: Settings) -> str | None:
    """How much a provider's models are told to think: the setting for all where they know it, else the provider's own."""
    return (settings.effort if provider in names.THINKING else None) or settings.provider(provider).effort


def _bridged(name: str, model: str, own: Provider, settings: Settings) -> Model:
    """A model behind the bridge. Address and key are what the library finds in the environment."""
    if own.base_url or own.api_key_env:
        hint = "set what pydantic-ai reads for this provider, like OPENAI_BASE_URL and OPENAI_API_KEY"
        raise UsageError("the bridge takes no base_url and no api_key_env", where="providers.bridge", hint=hint)
    provider, _, bare = model.partition(":")
    return BridgeModel(
        name,
        model,
        window=own.window or prices.window(provider, bare),
        max_output=own.max_output,
        price=prices.price(provider, bare, {bare: own.price} if own.price else {}),
        effort=effort(names.BRIDGE, settings),
        concurrency=own.concurrency,
        secrets=list(settings.keys().values()),
    )
