"""models: what is configured, what is known of it, and whether it answers."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from endstop.cli import exits, here, out
from endstop.cli.view import model_words, rows
from endstop.core.messages import Head, UserText
from endstop.errors import EndstopError, ModelError
from endstop.models import names
from endstop.models.choose import make_model
from endstop.ports import Model
from endstop.settings import Settings

MILLION = 1_000_000
LEAST_OUTPUT = 64
"""Tokens the answer to a trial may have."""


class Found(msgspec.Struct, frozen=True):
    """One configured model: what it is for, its name, what is said of it, and whether it can be used."""

    role: str
    name: str
    texts: list[str]
    usable: bool = True


def models(workspace: Path | None, *, ask: bool) -> int:
    """List the models that the settings name, and the providers whose keys are there."""
    settings = here.settings(workspace=workspace)
    width, usable = out.columns(), True
    named = list(configured(settings))
    for role, name in named:
        found = here.run(_look(role, name, settings, ask))
        usable = usable and found.usable
        out.say(rows(found.role, [found.name, *found.texts], width))
    if not named:
        out.say(['no model is configured: -m PROVIDER:MODEL, ENDSTOP_MODEL, or model = "…" in endstop.toml'])
    out.say(["", *rows("keys", [", ".join(keys()) or "no provider's key is in the environment"], width)])
    return exits.OK if usable else exits.FAILED


def configured(settings: Settings) -> Iterator[tuple[str, str]]:
    """Role and name of every model that the settings name."""
    if settings.model:
        yield "model", settings.model
    yield from (("fallback", name) for name in settings.fallbacks)
    if settings.judge not in ("auto", "none"):
        yield "judge", settings.judge


def keys() -> list[str]:
    """Providers whose key is in the environment."""
    return [name for name, provider in names.PROVIDERS.items() if provider.key_env and os.environ.get(provider.key_env)]


async def _look(role: str, name: str, settings: Settings, ask: bool) -> Found:
    try:
        model = make_model(name, settings)
    except EndstopError as error:
        return Found(role, name, [f"CANNOT BE USED: {error.message}", error.hint], usable=False)
    try:
        shown = model_words(name, model.scripted) if model.scripted else name
        texts = [known(model), f"from {settings.came(role if role != 'fallback' else 'fallbacks')}"]
        if ask and not model.scripted:
            texts.append(await _ask(model))
        return Found(role, shown, texts)
    except ModelError as error:
        return Found(role, name, [f"DOES NOT ANSWER ({error.kind.replace('_', ' ')}): {error.message}", error.hint], usable=False)
    finally:
        await model.close()


def known(model: Model) -> str:
    """Window and price of a model, as far as they are known."""
    window = f"window {model.window} tokens" if model.window else "window not known"
    price = model.price
    if price is not None:
        return f"{window}, {price.input * MILLION:g} usd in and {price.output * MILLION:g} out per million tokens"
    return f"{window}, {'costs nothing' if model.local or model.scripted else 'price not known: no money limit binds'}"


async def _ask(model: Model) -> str:
    begun = time.perf_counter()
    chat = model.open(Head("Answer in one word."))
    answer = await chat.ask([UserText("Say ok.")], generation=0, max_output=LEAST_OUTPUT, tools=False)
    took = time.perf_counter() - begun
    return f"answers in {took:.1f} s: {out.line(answer.text, 40) or '(nothing)'}"
