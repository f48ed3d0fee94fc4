"""Any model that the library pydantic-ai knows, by its own name: ``bridge:PROVIDER:MODEL``. The library is loaded when used.

It encodes the whole history for every call, so it costs more per turn than our own wires.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from endstop.core.messages import Answer, Head, Message, Price
from endstop.errors import ModelError, UsageError
from endstop.models import faults
from endstop.models.http import Timeouts, loopback
from endstop.ports import Watch

if TYPE_CHECKING:
    from pydantic_ai.models import Model as Foreign

INSTALL = "pip install 'endstop[bridge]'"


class BridgeModel:
    """One model behind pydantic-ai.

    Args:
        name: as the user wrote it, "bridge:bedrock:…".
        model: as pydantic-ai knows it, or one of its models.
        secrets: values that must stand in no failure.

    Raises:
        UsageError: the library is not installed, does not know the model, or lacks what it needs for it.
    """

    scripted = False

    def __init__(
        self,
        name: str,
        model: str | Foreign,
        *,
        window: int | None = None,
        max_output: int | None = None,
        price: Price | None = None,
        effort: str | None = None,
        concurrency: int | None = None,
        timeouts: Timeouts | None = None,
        secrets: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.window = window
        self.max_output = max_output
        self.price = price
        self.foreign = _load(name, model)
        self.local = loopback(urlsplit(getattr(self.foreign, "base_url", None) or "").hostname or "")
        self.settings: dict[str, Any] = {"timeout": (timeouts or Timeouts()).whole, "max_retries": 0}
        if effort:
            self.settings["thinking"] = effort
        self.gate: AbstractAsyncContextManager[Any] = asyncio.Semaphore(concurrency) if concurrency else nullcontext()
        self._secrets = secrets

    def open(self, head: Head) -> BridgeChat:
        """A new conversation with this head."""
        return BridgeChat(self, head)

    async def close(self) -> None:
        """Let connections go."""
        async with self.foreign:
            pass  # leaving it is what closes them

    def ours(self, error: ModelError) -> ModelError:
        """Say whose failure it is."""
        return faults.sign(error, self.name, self._secrets)


class BridgeChat:
    """One conversation. Its history grows in the library's own words."""

    def __init__(self, model: BridgeModel, head: Head) -> None:
        from endstop.models.bridge_wire import History  # noqa: PLC0415  the optional library

        self._model = model
        self._history = History(model.name, head)

    async def ask(
        self,
        messages: Sequence[Message],
        *,
        generation: int,
        max_output: int,
        tools: bool = True,
        watch: Watch | None = None,
    ) -> Answer:
        """See ``ports.Chat``. A ``watch`` that raises ``ModelError("truncated", …)`` stops the stream."""
        model = self._model
        self._history.grow(messages, generation)
        settings = model.settings | {"max_tokens": max_output}
        try:
            async with model.gate:
                return await self._history.ask(model.foreign, settings, tools=tools, watch=watch)
        except ModelError as error:
            raise model.ours(error) from None


def _load(name: str, model: str | Foreign) -> Foreign:
    try:
        from pydantic_ai.exceptions import UserError  # noqa: PLC0415  the optional library
        from pydantic_ai.models import infer_model  # noqa: PLC0415
    except ImportError:
        raise UsageError("the bridge to other models is not installed", where=f"model {name}", hint=INSTALL) from None
    try:
        return infer_model(model)
    except (UserError, ImportError, ValueError) as error:  # unknown, without its key, or without its provider's own library
        words = " ".join(str(error).split())
        raise UsageError(
            f"pydantic-ai cannot use it: {words}", where=f"model {name}", hint="write bridge:PROVIDER:MODEL"
        ) from None
