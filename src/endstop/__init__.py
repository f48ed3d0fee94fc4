"""Runs AI agents unattended and knows when to stop."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from endstop.tools.functions import tool as tool

__version__ = "0.1.0"

_NAMES = {"tool": "endstop.tools.functions"}
"""Public names and where they are: loaded on first use, so that ``import endstop`` costs nothing."""

__all__ = ["__version__", "tool"]


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(import_module(_NAMES[name]), name)
    raise AttributeError(f"module 'endstop' has no attribute '{name}'")
