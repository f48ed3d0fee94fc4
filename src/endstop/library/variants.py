"""The same as ``run``: as a stream of entries, and without an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import wraps
from inspect import signature
from types import TracebackType
from typing import Any, ParamSpec, Self

from endstop.core.codec import Entry
from endstop.errors import UsageError
from endstop.library.callbacks import OnEvent
from endstop.library.goals import resume, run
from endstop.library.result import Result

P = ParamSpec("P")


class Stream:
    """A goal's entries while it runs: ``async with endstop.stream(…) as entries: async for entry in entries: …``.

    Leaving the block early pauses the goal. Without ``async with`` it runs on until ``aclose``.
    """

    def __init__(self, begin: Callable[[OnEvent], Coroutine[Any, Any, Result]]) -> None:
        self._begin = begin
        self._entries: asyncio.Queue[Entry | None] = asyncio.Queue()
        self._task: asyncio.Task[Result] | None = None

    @property
    def result(self) -> Result:
        """How it stands, once all entries were seen.

        Raises:
            UsageError: it has not stopped yet.
        """
        if self._task is None or not self._task.done() or self._task.cancelled():
            raise UsageError("it has not come to a result", where="endstop.stream", hint="read all entries first")
        return self._task.result()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Entry:
        if self._task is None:
            self._task = asyncio.create_task(self._begin(self._entries.put_nowait))
            self._task.add_done_callback(lambda task: self._entries.put_nowait(None))
        entry = await self._entries.get()
        if entry is None:
            self._entries.put_nowait(None)
            if not self._task.cancelled():
                self._task.result()  # raises what went wrong
            raise StopAsyncIteration
        return entry

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Pause the goal if it still runs."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])


def _as_stream(function: Callable[P, Coroutine[Any, Any, Result]]) -> Callable[P, Stream]:
    @wraps(function)
    def stream(*args: P.args, **kwargs: P.kwargs) -> Stream:
        told: Any = kwargs.get("on_event")

        def begin(take: OnEvent) -> Coroutine[Any, Any, Result]:
            def both(entry: Entry) -> None:
                take(entry)
                if told is not None:
                    told(entry)

            return function(*args, **{**kwargs, "on_event": both})  # type: ignore[arg-type]

        return Stream(begin)

    return _named(stream, "stream", "Pursue a goal and see each entry as it is recorded; arguments as for ``run``.", Stream)


def _as_sync(function: Callable[P, Coroutine[Any, Any, Result]], name: str) -> Callable[P, Result]:
    known = function.__name__

    @wraps(function)
    def sync(*args: P.args, **kwargs: P.kwargs) -> Result:
        refuse_loop(f"endstop.{name}", f"write await endstop.{known}(…)")
        return asyncio.run(function(*args, **kwargs))

    return _named(sync, name, f"``{known}`` for code without an event loop; arguments and errors as there.", Result)


def refuse_loop(where: str, hint: str) -> None:
    """What begins an event loop of its own cannot be called inside of one.

    Raises:
        UsageError: a loop runs here.
    """
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        raise UsageError("an event loop runs here", where=where, hint=hint)


def _named(function: Callable[P, Any], name: str, doc: str, returns: type[Any]) -> Callable[P, Any]:
    """The arguments are those of the function it stands for; everything else is its own."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    function.__signature__ = signature(function).replace(return_annotation=returns)  # type: ignore[attr-defined]
    return function


stream = _as_stream(run)
run_sync = _as_sync(run, "run_sync")
resume_sync = _as_sync(resume, "resume_sync")
