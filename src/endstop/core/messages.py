"""What is said between agent and model, in no provider's dialect.

Adapters in ``endstop.models`` turn these into bytes and back; nothing else knows a provider's field names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

Effect = Literal["read", "read_outside", "edit", "idempotent", "write", "shell", "attached"]
"""Declared class of a tool: decides what happens to a start without an end and to a repeated call."""

Arguments = dict[str, Any] | str
"""Arguments of a call: an object, or the raw text where it is no JSON object (then the call is malformed)."""


class ToolRequest(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One call the model asks for. ``tool_call_id`` is unique in its session (the adapter repairs missing or repeated ids)."""

    tool_call_id: str
    name: str
    arguments: Arguments


class UserText(msgspec.Struct, frozen=True, gc=False, tag="user"):
    """A message to the model from a human, the system or a process."""

    text: str


class AssistantText(msgspec.Struct, frozen=True, gc=False, tag="assistant"):
    """What the model said. ``opaque`` is the provider's reasoning state, carried back unread."""

    text: str
    requests: tuple[ToolRequest, ...] = ()
    opaque: str | None = None


class ToolText(msgspec.Struct, frozen=True, gc=False, tag="tool"):
    """The one result of one call."""

    tool_call_id: str
    text: str


Message = UserText | AssistantText | ToolText


class ToolSpec(msgspec.Struct, frozen=True):
    """What the kernel and the model know of a tool.

    ``parameters`` is a JSON Schema object. ``check`` returns what is wrong with arguments, or None. ``path_argument``
    names the argument that holds a workspace path. ``key_arguments`` is what the permission rules match on
    (``shell(pytest *)`` matches the argument named here).
    """

    name: str
    description: str
    parameters: dict[str, Any]
    effect: Effect = "write"
    check: Callable[[dict[str, Any]], str | None] | None = None
    path_argument: str | None = None
    key_argument: str | None = None
    repeatable: bool = False
    irreversible: bool = False
    poller: bool = False
    own: bool = False  # registered by the user himself, or built in
    timeout: float | None = None  # seconds


class Usage(msgspec.Struct, frozen=True):
    """Tokens of one paid call. ``input`` counts all input, cached included; ``output`` counts reasoning; ``cost`` in USD."""

    input: int
    output: int
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int | None = None
    estimated: bool = False


class Answer(msgspec.Struct, frozen=True):
    """One answer of a model. ``usage`` is None where the provider sent none. ``finish`` is stop, tool_calls, length,
    content_filter, cut (stream ended early, or was stopped) or the provider's own unknown word."""

    text: str
    requests: tuple[ToolRequest, ...] = ()
    finish: str = "stop"
    usage: Usage | None = None
    opaque: str | None = None
    model: str = ""


class Head(msgspec.Struct, frozen=True):
    """What stays the same at the top of every request of one goal."""

    system: str
    tools: tuple[ToolSpec, ...] = ()


class Price(msgspec.Struct, frozen=True):
    """USD per token. ``cache_write`` may be dearer than ``input``: reservations use the dearer of the two."""

    input: float
    output: float
    cache_read: float
    cache_write: float

    def cost(self, usage: Usage) -> float:
        """USD of one call: cached input at its own price, the rest of the input at the full one."""
        fresh = max(0, usage.input - usage.cache_read - usage.cache_write)
        return (
            fresh * self.input
            + usage.cache_read * self.cache_read
            + usage.cache_write * self.cache_write
            + usage.output * self.output
        )


Catalog = Mapping[str, ToolSpec]
"""Tools of a session by name."""
