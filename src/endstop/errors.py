"""Every exception of Endstop, one tree, leaf by whose fault it is.

    EndstopError                 message, where (what and where), hint (the remedy)
    ├── UsageError               the caller's: settings, flags, names, paths          exit 2
    ├── ModelError               the provider's: kind says which class                -> an event
    ├── ToolError                a tool's: code says which class                      -> a result
    ├── StoreError               the disk's or the database's                         exit 1
    │   ├── StoreCorrupt         the database or the journal cannot be read           exit 1
    │   └── StoreFull            no room left: paused, resume once there is room      exit 75
    ├── LeaseLost                another process drives this session now              exit 1
    └── TransitionError          an event that its phase does not allow: our own bug  exit 1

Inside the loop a failure is an event, not an exception: these are raised at the edges and turned into events by the
runtime, or into one line with a remedy by the command line.
"""

from __future__ import annotations

from typing import Literal

ModelFault = Literal[
    "rate_limit",
    "overloaded",
    "server",
    "network",
    "context_overflow",
    "invalid_request",
    "auth",
    "content_filter",
    "truncated",
]
"""What kind of provider failure: the first four may pass by themselves, the others do not."""

PASSING: frozenset[str] = frozenset({"rate_limit", "overloaded", "server", "network"})
"""Faults that are retried, and then waited for; every other fault is final for the call."""


class EndstopError(Exception):
    """Root of the tree. ``hint`` is the remedy in one line, ``where`` names the file, setting or object."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "", where: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.where = where

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}" if self.where else self.message
        return f"{text} ({self.hint})" if self.hint else text


class UsageError(EndstopError):
    """A setting, flag, name or path cannot be used as given."""

    exit_code = 2


class ModelError(EndstopError):
    """A provider failed. ``kind`` is the class, ``status`` the HTTP status, ``retry_after`` the seconds it named.

    ``billed``: the request was taken and its answer is lost or of no use, so it counts as spent; ``used`` are its input and
    output tokens where the provider said them. Such a call is not made again without a reservation of its own.
    """

    def __init__(
        self,
        kind: ModelFault,
        message: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        billed: bool = False,
        used: tuple[int, int] | None = None,
        hint: str = "",
        where: str = "",
    ) -> None:
        super().__init__(message, hint=hint, where=where)
        self.kind: ModelFault = kind
        self.status = status
        self.retry_after = retry_after
        self.billed = billed
        self.used = used

    @property
    def passing(self) -> bool:
        """Whether the same call may succeed later without anybody changing anything."""
        return self.kind in PASSING


class ToolError(EndstopError):
    """A tool failed in a way it can name. ``code`` becomes ``error.code`` of its result."""

    def __init__(self, code: str, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.code = code


class StoreError(EndstopError):
    """The store could not do what was asked."""


class StoreCorrupt(StoreError):
    """The database or the journal in it cannot be read as what it should be."""


class StoreFull(StoreError):
    """There is no room left where the state lives."""

    exit_code = 75


class LeaseLost(EndstopError):
    """Another process has taken over this session; nothing more may be appended here."""


class TransitionError(EndstopError):
    """An event was applied in a phase that does not allow it."""
