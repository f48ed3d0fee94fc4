"""Models by their names, as settings describe their providers."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest

from endstop.errors import UsageError
from endstop.models.anthropic import AnthropicModel
from endstop.models.bridge import BridgeModel
from endstop.models.choose import make_model
from endstop.models.http import HttpModel
from endstop.models.names import is_played, parse
from endstop.models.openai import OpenAIModel
from endstop.models.replay import ReplayModel
from endstop.models.responses import ResponsesModel
from endstop.models.scripted import ScriptedModel
from endstop.settings import Settings, load
from tests.models import test_replay

KEYS = {"OPENAI_API_KEY": "sk-openai-0123456789", "ANTHROPIC_API_KEY": "sk-ant-0123456789"}


def settings(home: Path, toml: str = "", **environ: str) -> Settings:
    """What the user's own file and the environment say."""
    own = home / ".config/endstop/endstop.toml"
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_text(toml)
    return load(cwd=home, environ={"HOME": str(home), **KEYS, **environ})


@pytest.mark.parametrize(
    ("name", "kind", "base"),
    [
        ("openai:gpt-5", OpenAIModel, "https://api.openai.com/v1"),
        ("openai-responses:gpt-5", ResponsesModel, "https://api.openai.com/v1"),
        ("anthropic:claude-sonnet-4-5", AnthropicModel, "https://api.anthropic.com"),
        ("ollama:qwen3:8b", OpenAIModel, "http://127.0.0.1:11434/v1"),
    ],
)
def test_each_provider_has_its_protocol(tmp_path: Path, name: str, kind: type[HttpModel], base: str) -> None:
    """With its address, its price where it is known, and its window."""
    made = make_model(name, settings(tmp_path))
    assert type(made) is kind
    assert made.base == base
    assert (made.price is None) is made.local
    assert (made.window is None) is made.local


def test_what_is_played_is_labelled(tmp_path: Path) -> None:
    """Scripts and recordings, and nothing else."""
    (tmp_path / "s.toml").write_text('[[turn]]\ntext = "x"\n')
    (tmp_path / "e.jsonl").write_text(test_replay.SAYS)
    for name, kind in [(f"scripted:{tmp_path}/s.toml", ScriptedModel), (f"replay:{tmp_path}/e.jsonl", ReplayModel)]:
        made = make_model(name, settings(tmp_path))
        assert (type(made), made.name, made.scripted, is_played(name)) == (kind, name, True, True)
    assert not is_played("openai:scripted:x")


def test_a_bridged_model_has_the_price_of_its_provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library finds address and key in the process's environment."""
    monkeypatch.setenv("OPENAI_API_KEY", KEYS["OPENAI_API_KEY"])
    made = make_model("bridge:openai:gpt-5", settings(tmp_path, "[providers.bridge]\neffort = 'low'\nconcurrency = 1\n"))
    assert isinstance(made, BridgeModel)
    assert made.price == make_model("openai:gpt-5", settings(tmp_path)).price
    assert made.settings["thinking"] == "low"
    assert isinstance(made.gate, asyncio.Semaphore)
    for line in ("base_url = 'https://x/v1'", "api_key_env = 'X_KEY'"):
        with pytest.raises(UsageError, match="takes no base_url"):
            make_model("bridge:openai:gpt-5", settings(tmp_path, f"[providers.bridge]\n{line}\n"))


def gate(made: Any) -> Any:
    return made._gate


def test_concurrency_and_effort_reach_each_model(tmp_path: Path) -> None:
    """By provider, in a settings file."""
    tables = "".join(
        f"[providers.{name}]\nconcurrency = 1\neffort = 'low'\n" for name in ("openai", "anthropic", "openai-responses")
    )
    for name in ("openai:gpt-5", "anthropic:claude-sonnet-4-5", "openai-responses:gpt-5"):
        plain, set_ = make_model(name, settings(tmp_path)), make_model(name, settings(tmp_path, tables))
        assert isinstance(gate(plain), contextlib.nullcontext)
        assert isinstance(gate(set_), asyncio.Semaphore)
        assert isinstance(set_, HttpModel)
        assert set_.effort == "low"


@pytest.mark.parametrize(
    ("toml", "environ", "base"),
    [
        ("", {"OPENAI_BASE_URL": "https://one/v1"}, "https://one/v1"),
        ("", {"OPENAI_BASE_URL": "https://one/v1", "OPENAI_RESPONSES_BASE_URL": "https://two/v1"}, "https://two/v1"),
        ("[providers.openai]\nbase_url = 'https://three/v1'\n", {}, "https://three/v1"),
        (
            "[providers.openai-responses]\nbase_url = 'https://four/v1'\n",
            {"OPENAI_BASE_URL": "https://one/v1"},
            "https://four/v1",
        ),
    ],
)
def test_responses_go_where_chat_completions_go(tmp_path: Path, toml: str, environ: dict[str, str], base: str) -> None:
    """Unless they have an address of their own."""
    made = make_model("openai-responses:gpt-5", settings(tmp_path, toml, **environ))
    assert isinstance(made, ResponsesModel)
    assert made.base == base


def test_a_missing_key_is_named(tmp_path: Path) -> None:
    """The variable to set."""
    own = tmp_path / ".config"
    assert not own.exists()
    bare = load(cwd=tmp_path, environ={"HOME": str(tmp_path)})
    for name, variable in [("anthropic:x", "ANTHROPIC_API_KEY"), ("openai-responses:x", "OPENAI_API_KEY")]:
        with pytest.raises(UsageError) as caught:
            make_model(name, bare)
        assert variable in caught.value.hint


def test_files_that_are_played_resume_from_anywhere(tmp_path: Path) -> None:
    """Paths of models are absolute once they are read, in fallbacks too."""
    said = settings(tmp_path, "model = 'replay:a.jsonl'\nfallbacks = ['scripted:b.toml', 'openai:gpt-5']\n")
    folder = tmp_path / ".config/endstop"
    assert said.model == f"replay:{folder}/a.jsonl"
    assert said.fallbacks == (f"scripted:{folder}/b.toml", "openai:gpt-5")


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("bridge:gpt-5", "bridge:PROVIDER:MODEL"),
        ("bridge:", "bridge:PROVIDER:MODEL"),
        ("replay:", "replay:FILE"),
        ("anthropic:", "anthropic:MODEL"),
    ],
)
def test_a_name_without_its_model_says_what_belongs_there(name: str, write: str) -> None:
    """In the form of its provider."""
    with pytest.raises(UsageError) as caught:
        parse(name)
    assert write in caught.value.hint
