"""Runs AI agents unattended and knows when to stop."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from endstop.core import events as events
    from endstop.errors import EndstopError as EndstopError
    from endstop.errors import ToolError as ToolError
    from endstop.errors import UsageError as UsageError
    from endstop.library.callbacks import PermissionRequest as PermissionRequest
    from endstop.library.callbacks import Question as Question
    from endstop.library.conversation import Reply as Reply
    from endstop.library.conversation import Session as Session
    from endstop.library.goals import Gate as Gate
    from endstop.library.goals import resume as resume
    from endstop.library.goals import run as run
    from endstop.library.limits import NONE as NONE
    from endstop.library.limits import Limits as Limits
    from endstop.library.result import Result as Result
    from endstop.library.variants import Stream as Stream
    from endstop.library.variants import resume_sync as resume_sync
    from endstop.library.variants import run_sync as run_sync
    from endstop.library.variants import stream as stream
    from endstop.ports import Invocation as Invocation
    from endstop.ports import Model as Model
    from endstop.ports import Outcome as Outcome
    from endstop.ports import Tool as Tool
    from endstop.tools.functions import tool as tool

__version__ = "0.1.0"

_PLACES = {
    "endstop.errors": ("EndstopError", "ToolError", "UsageError"),
    "endstop.library.callbacks": ("PermissionRequest", "Question"),
    "endstop.library.conversation": ("Reply", "Session"),
    "endstop.library.goals": ("Gate", "resume", "run"),
    "endstop.library.limits": ("NONE", "Limits"),
    "endstop.library.result": ("Result",),
    "endstop.library.variants": ("Stream", "resume_sync", "run_sync", "stream"),
    "endstop.ports": ("Invocation", "Model", "Outcome", "Tool"),
    "endstop.tools.functions": ("tool",),
}
"""Public names by where they are: loaded on first use, so that ``import endstop`` costs nothing."""
_NAMES = {name: place for place, names in _PLACES.items() for name in names}
_MODULES = {"events": "endstop.core.events"}

__all__ = [
    "NONE",
    "EndstopError",
    "Gate",
    "Invocation",
    "Limits",
    "Model",
    "Outcome",
    "PermissionRequest",
    "Question",
    "Reply",
    "Result",
    "Session",
    "Stream",
    "Tool",
    "ToolError",
    "UsageError",
    "__version__",
    "events",
    "resume",
    "resume_sync",
    "run",
    "run_sync",
    "stream",
    "tool",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value: Any = import_module(_MODULES[name])
    elif name in _NAMES:
        value = getattr(import_module(_NAMES[name]), name)
    else:
        raise AttributeError(f"module 'endstop' has no attribute '{name}'")
    globals()[name] = value  # so that it is looked up once
    return value


def __dir__() -> list[str]:
    return __all__
