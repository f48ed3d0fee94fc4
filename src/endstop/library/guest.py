"""A system that shares: goals of one event loop with their state in one place use one store, its writer and its commits."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from endstop.assemble import System
from endstop.ports import Clock, Model, Tool
from endstop.settings import Settings
from endstop.store.open import Store, open_store


class _Shared:
    """A store and how many use it."""

    def __init__(self, store: Store) -> None:
        self.store, self.users = store, 0


_Key = tuple[asyncio.AbstractEventLoop, Path, Clock]
_OPEN: dict[_Key, _Shared] = {}
"""The first to come opens a store, the last to go closes it."""


class Guest(System):
    """A system in a shared store, with models of the caller's own, which it does not close."""

    def __init__(self, settings: Settings, *, tools: list[Tool], models: Mapping[str, Model], clock: Clock) -> None:
        super().__init__(settings, tools=tools, clock=clock)
        self._lent = dict(models)

    async def __aenter__(self) -> Self:
        self._key: _Key = (asyncio.get_running_loop(), self.settings.home, self.clock)
        if self._key not in _OPEN:
            _OPEN[self._key] = _Shared(open_store(self.settings.home, clock=self.clock))
        shared = _OPEN[self._key]
        shared.users += 1
        self.store = shared.store
        self.models.update(self._lent)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        shared = _OPEN[self._key]
        shared.users -= 1
        if not shared.users:
            del _OPEN[self._key]
        try:
            for name, model in self.models.items():
                if name not in self._lent:
                    await model.close()
        finally:
            if not shared.users:
                await shared.store.close()
