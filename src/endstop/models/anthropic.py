"""A model behind Anthropic's messages."""

from __future__ import annotations

from typing import Any

from endstop.core.messages import Head
from endstop.errors import ModelError
from endstop.models.anthropic_answer import Reader
from endstop.models.anthropic_wire import Dialect, Transcript, adapt, tail
from endstop.models.http import HttpModel

VERSION = "2023-06-01"
"""Of the protocol."""


class AnthropicModel(HttpModel):
    """See ``HttpModel``. The base URL may end in ``/v1`` or not."""

    endpoint = "/v1/messages"
    dialect: Dialect

    def __init__(self, name: str, model: str, *, base_url: str, **options: Any) -> None:
        bare = base_url.strip().rstrip("/").removesuffix("/messages").removesuffix("/v1")
        super().__init__(name, model, base_url=bare, **options)
        self._headers.setdefault("anthropic-version", VERSION)
        self.dialect = Dialect(self.effort)

    def credentials(self, key: str) -> dict[str, str]:
        """See ``HttpModel``."""
        return {"x-api-key": key}

    def transcript(self, head: Head) -> Transcript:
        """See ``HttpModel``."""
        return Transcript(self.model, head)

    def tail(self, max_output: int, *, stream: bool) -> bytes:
        """See ``HttpModel``."""
        return tail(self.dialect, max_output, stream=stream)

    def reader(self) -> Reader:
        """See ``HttpModel``."""
        return Reader(self.model)

    def adapt(self, dialect: Dialect, error: ModelError) -> Dialect | None:
        """See ``HttpModel``."""
        return adapt(dialect, error)
