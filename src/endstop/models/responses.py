"""A model behind OpenAI's responses."""

from __future__ import annotations

from typing import Any

from endstop.core.messages import Head
from endstop.errors import ModelError
from endstop.models.http import HttpModel
from endstop.models.responses_answer import Reader
from endstop.models.responses_wire import Dialect, Transcript, adapt, tail


class ResponsesModel(HttpModel):
    """See ``HttpModel``."""

    endpoint = "/responses"
    dialect: Dialect

    def __init__(self, name: str, model: str, **options: Any) -> None:
        super().__init__(name, model, **options)
        self.dialect = Dialect(self.effort)

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
