"""The tools of one session by name, with arguments checked before anything runs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from endstop.core.messages import ToolSpec
from endstop.errors import UsageError
from endstop.ports import Tool
from endstop.tools.schema import checker

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
AGAIN = "again"
_AGAIN = {
    "type": "string",
    "description": "Only to insist on running the very same call a second time: why it must run again.",
}


class Catalog:
    """All tools of a session.

    ``specs`` are what kernel and model see: ``check`` is filled in, and a tool that runs once per call takes ``again``, by
    which the model insists on a repeat. ``bare`` takes it off before the tool gets its arguments. ``answered`` are specs of
    calls that the kernel answers: they have no tool behind them.

    Raises:
        UsageError: two tools share a name, or a name is none that providers accept.
    """

    def __init__(self, tools: Iterable[Tool], answered: Iterable[ToolSpec] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        self.specs: dict[str, ToolSpec] = {}
        for spec in answered:
            self._add(spec)
        self.join(tools)

    def join(self, tools: Iterable[Tool]) -> None:
        """Add tools that are known only once a session has begun.

        Raises:
            UsageError: as the catalogue itself.
        """
        for tool in tools:
            self._add(tool.spec)
            self._tools[tool.spec.name] = tool

    def _add(self, spec: ToolSpec) -> None:
        name = spec.name
        if not _NAME.fullmatch(name):
            raise UsageError(f"{name!r} is no name for a tool", where="tools", hint="use 1 to 64 of A-Z a-z 0-9 _ -")
        if name in self.specs:
            raise UsageError(f"two tools are called {name}", where="tools", hint="give one of them another name")
        parameters = _with_again(spec)
        self.specs[name] = msgspec.structs.replace(spec, parameters=parameters, check=spec.check or checker(parameters))

    def get(self, name: str) -> Tool:
        """The tool called ``name``.

        Raises:
            UsageError: there is none.
        """
        if name not in self._tools:
            raise UsageError(f"no tool is called {name}", where="tools", hint=f"there are {', '.join(self._tools)}")
        return self._tools[name]

    def bare(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Arguments as the tool itself knows them: without an ``again`` that the catalogue added."""
        if AGAIN not in arguments or name not in self._tools:
            return arguments
        if AGAIN in self._tools[name].spec.parameters.get("properties", {}):
            return arguments
        return {key: value for key, value in arguments.items() if key != AGAIN}


def _with_again(spec: ToolSpec) -> dict[str, Any]:
    """Its parameters, with ``again`` for a tool whose repeated calls are answered from memory."""
    properties = spec.parameters.get("properties", {})
    if spec.effect != "write" or spec.repeatable or AGAIN in properties:
        return spec.parameters
    return {**spec.parameters, "properties": {**properties, AGAIN: _AGAIN}}
