"""A model behind an OpenAI-compatible server: chat completions."""

from __future__ import annotations

from typing import Any

from endstop.core.messages import Head
from endstop.errors import ModelError
from endstop.models.http import HttpModel
from endstop.models.openai_answer import Reader
from endstop.models.openai_wire import Dialect, Transcript, adapt, tail


class OpenAIModel(HttpModel):
    """See ``HttpModel``."""

    endpoint = "/chat/completions"
    dialect: Dialect

    def __init__(self, name: str, model: str, **options: Any) -> None:
        super().__init__(name, model, **options)
        # OpenAI's own newer models refuse the old word, and all its chat models take the new one
        field = "max_completion_tokens" if self.host == "api.openai.com" else "max_tokens"
        self.dialect = Dialect(field, effort=self.effort)

    def transcript(self, head: Head) -> Transcript:
        """See ``HttpModel``."""
        return Transcript(self.model, head)

    def tail(self, max_output: int, *, stream: bool) -> bytes:
        """See ``HttpModel``."""
        return tail(self.dialect, max_output, stream=stream)

    def reader(self) -> Reader:
        """See ``HttpModel``."""
        return Reader()

    def adapt(self, dialect: Dialect, error: ModelError) -> Dialect | None:
        """See ``HttpModel``."""
        return adapt(dialect, error)
