"""Model names as people write them, ``PROVIDER:MODEL``, and what is known of each provider."""

from __future__ import annotations

from difflib import get_close_matches

import msgspec

from endstop.errors import UsageError


class Provider(msgspec.Struct, frozen=True):
    """Where a provider listens and which variable holds its key. A local server needs no key."""

    base_url: str
    key_env: str | None = None
    beside: str | None = None  # another provider at the same address: what is set for it holds here too


SCRIPTED, REPLAY = "scripted", "replay"
"""Play a script, and a recorded journal; what stands behind the colon is the path of it."""
BRIDGE = "bridge"
"""Whatever pydantic-ai knows; what stands behind the colon is its own name of provider and model."""
ANTHROPIC, RESPONSES = "anthropic", "openai-responses"
"""Speak protocols of their own."""

PROVIDERS: dict[str, Provider] = {
    "openai": Provider("https://api.openai.com/v1", "OPENAI_API_KEY"),
    RESPONSES: Provider("https://api.openai.com/v1", "OPENAI_API_KEY", beside="openai"),
    ANTHROPIC: Provider("https://api.anthropic.com", "ANTHROPIC_API_KEY"),
    "google": Provider("https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY"),
    "mistral": Provider("https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    "deepseek": Provider("https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    "groq": Provider("https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "xai": Provider("https://api.x.ai/v1", "XAI_API_KEY"),
    "openrouter": Provider("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "together": Provider("https://api.together.xyz/v1", "TOGETHER_API_KEY"),
    "fireworks": Provider("https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
    "cerebras": Provider("https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
    "ollama": Provider("http://127.0.0.1:11434/v1"),
    "lmstudio": Provider("http://127.0.0.1:1234/v1"),
    "llamacpp": Provider("http://127.0.0.1:8080/v1"),
    "vllm": Provider("http://127.0.0.1:8000/v1"),
}
"""All but the two named above speak OpenAI's chat completions; a base URL in the settings replaces the one here."""
WANTED = {SCRIPTED: "the path of a script", REPLAY: "the path of a file", BRIDGE: "a provider and its model"}
"""What stands behind the colon, where it is no model."""
THINKING = frozenset({"openai", RESPONSES, ANTHROPIC, "google", "openrouter", BRIDGE})
"""Those who know low, medium and high as words for how much to think; others may refuse a request that says it."""


def is_played(name: str) -> bool:
    """Whether no model is asked: what it says was written down before."""
    return name.partition(":")[0] in (SCRIPTED, REPLAY)


def parse(name: str) -> tuple[str, str]:
    """Provider and model of a name. Only the first colon parts them: ``ollama:qwen3:8b`` is model ``qwen3:8b``.

    Raises:
        UsageError: there is no colon, nothing behind it, or nobody of that name.
    """
    provider, colon, model = name.strip().partition(":")
    provider, model = provider.strip().lower(), model.strip()
    if not colon:
        raise UsageError(
            f'model "{name}" names no provider', hint=f'write PROVIDER:MODEL, for example "openai:{provider or "gpt-5"}"'
        )
    known = [*PROVIDERS, *WANTED]
    if provider not in known:
        near = get_close_matches(provider, known, n=3)
        offer = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(known)}"
        raise UsageError(
            f'unknown provider "{provider}" in model "{name}"',
            hint=f"{offer} Any other OpenAI-compatible server: openai:MODEL with its own base URL",
        )
    if not model or (provider == BRIDGE and ":" not in model):
        what = WANTED.get(provider, "a model")
        write = "PROVIDER:MODEL" if provider == BRIDGE else what.split()[-1].upper()
        raise UsageError(f'model "{name}" lacks {what} behind the colon', hint=f'write "{provider}:{write}"')
    return provider, model
