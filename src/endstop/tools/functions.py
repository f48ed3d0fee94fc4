"""Any Python function as a tool."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar, overload

import msgspec

from endstop.core.events import Failure
from endstop.core.messages import Effect, ToolSpec
from endstop.errors import ToolError, UsageError
from endstop.ports import Invocation, Outcome
from endstop.tools.schema import read_signature

BOUND = 16_384
"""Characters of a result that reach the model; the rest is kept beside it."""

P = ParamSpec("P")
R = TypeVar("R")


class FunctionTool(Generic[P, R]):
    """A function the agent can call; called by you, it is still that function.

    A parameter annotated ``Invocation`` gets the call itself (its workspace, its idempotency key) and is not shown to the
    model. A sync function runs on a thread, which nothing can stop: after a cancel or a time-out its result is ignored.

    Raises:
        UsageError: the function's signature cannot be described to a model.
    """

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        effect: Effect = "write",
        path_argument: str | None = None,
        key_argument: str | None = None,
        repeatable: bool = False,
        irreversible: bool = False,
        poller: bool = False,
        timeout: float | None = None,
    ) -> None:
        name = name or str(getattr(function, "__name__", type(function).__name__))
        target: Callable[..., Any] = function
        if not inspect.isroutine(target):
            raise UsageError("only functions and methods can be tools", where=f"tool {name}", hint="wrap it in a def")
        if inspect.isgeneratorfunction(target) or inspect.isasyncgenfunction(target):
            raise UsageError("a generator cannot be a tool", where=f"tool {name}", hint="return the whole result")
        self._function = function
        self._signature = read_signature(function, name)
        self.spec = ToolSpec(
            name=name,
            description=self._signature.description or f"{name} (no description)",
            parameters=self._signature.parameters,
            effect=effect,
            path_argument=path_argument,
            key_argument=key_argument,
            repeatable=repeatable,
            irreversible=irreversible,
            poller=poller,
            own=True,
            timeout=timeout,
        )

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._function(*args, **kwargs)

    async def run(self, call: Invocation) -> Outcome:
        """Call the function. Whatever it raises becomes a failed outcome."""
        try:
            arguments = self._signature.convert(call.arguments)
        except msgspec.ValidationError as error:
            return failed(error)
        if self._signature.call_parameter:
            arguments[self._signature.call_parameter] = call
        function: Callable[..., Any] = self._function
        if not inspect.iscoroutinefunction(function):
            return await asyncio.to_thread(_result, function, arguments)
        try:
            return to_outcome(await function(**arguments))
        except (Exception, SystemExit) as error:  # noqa: BLE001  a foreign callable may raise anything
            return failed(error)


def _result(function: Callable[..., Any], arguments: dict[str, Any]) -> Outcome:
    """Call a sync function. On its own thread already nothing may be raised: no future takes a StopIteration."""
    try:
        return to_outcome(function(**arguments))
    except (Exception, SystemExit) as error:  # noqa: BLE001  a foreign callable may raise anything
        return failed(error)


def failed(error: BaseException) -> Outcome:
    """An exception as a result. The type comes first: rules tell kinds of failure apart by it."""
    code = error.code if isinstance(error, ToolError) else "failed"
    text = str(error).encode("utf-8", "replace").decode()
    message = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return Outcome(success=False, content=message[:BOUND], error=Failure(code=code, message=message[:BOUND]))


def to_outcome(value: Any) -> Outcome:
    """A returned value as a result: text as it is, None as "done", anything else as JSON, an ``Outcome`` untouched."""
    if isinstance(value, Outcome):
        return value
    if value is None:
        return Outcome(success=True, content="done")
    raw = value.encode("utf-8", "replace") if isinstance(value, str) else msgspec.json.encode(value, enc_hook=repr)
    text = raw.decode()
    if len(text) <= BOUND:
        return Outcome(success=True, content=text)
    half = BOUND // 2
    left_out = f"\n… ({len(text) - 2 * half} characters left out) …\n"
    return Outcome(success=True, content=text[:half] + left_out + text[-half:], full=raw)


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...


@overload
def tool(
    *,
    name: str | None = None,
    effect: Effect = "write",
    repeatable: bool = False,
    irreversible: bool = False,
    poller: bool = False,
    timeout: float | None = None,
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...


def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a function something the agent can call: bare, or with options.

    Args:
        function: any sync or async function; its type hints and docstring tell the model how to call it.
        **options: ``name`` the model sees. ``effect``: "read" changes nothing, "write" (default) may, and is not repeated
            blindly; "idempotent" may be sent again with the same key. ``repeatable``: the same call may run again.
            ``irreversible``: a human is asked first. ``poller``: equal results are normal. ``timeout`` in seconds.

    Raises:
        UsageError: an option does not exist, or the signature cannot be described to a model.
    """

    def wrap(target: Callable[..., Any]) -> FunctionTool[..., Any]:
        return FunctionTool(target, **options)

    return wrap if function is None else wrap(function)
