"""Where a command is typed: its settings, and the goal it means."""

from __future__ import annotations

import asyncio
import getpass
import os
import sys
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

from endstop.cli import crash
from endstop.errors import UsageError
from endstop.settings import Settings, load
from endstop.store.open import Store, open_store
from endstop.store.sessions import SessionRow

T = TypeVar("T")


def settings(flags: Mapping[str, Any] | None = None, goal: Path | None = None, *, workspace: Path | None = None) -> Settings:
    """The settings that hold in ``workspace``, or in the current folder.

    Raises:
        UsageError: one of them cannot be used, or the folder is gone.
    """
    asked = {**(flags or {}), **({"workspace": str(workspace)} if workspace else {})}
    return load(cwd=folder(), environ=os.environ, flags=asked, goal=goal)


def folder() -> Path:
    """The current folder.

    Raises:
        UsageError: it is gone.
    """
    try:
        return Path.cwd()
    except OSError:
        raise UsageError("the current folder is gone", hint="change to one that exists") from None


def run(work: Coroutine[Any, Any, T]) -> T:
    """Do asynchronous work; an error that nobody waits for is kept in a file like every other defect."""

    async def watched() -> T:
        asyncio.get_running_loop().set_exception_handler(_unseen)
        return await work

    return asyncio.run(watched())


def _unseen(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    error = context.get("exception")
    if isinstance(error, Exception):
        crash.record(error, os.environ)


def with_store(workspace: Path | None, work: Callable[[Store, Settings], Coroutine[Any, Any, T]]) -> T:
    """Do ``work`` with the store of the settings that hold in ``workspace``."""

    async def opened() -> T:
        found = settings(workspace=workspace)
        async with open_store(found.home) as store:
            return await work(store, found)

    return run(opened())


async def find(store: Store, found: Settings, id: str | None) -> SessionRow:
    """The goal an id means; without one, the newest of this folder.

    Raises:
        UsageError: there is none, or several begin so.
    """
    if id is not None:
        try:
            return await store.find(id)
        except UsageError as error:
            raise UsageError(error.message, where=error.where, hint="endstop ps --all shows every goal") from None
    goals = [row for row in await store.sessions(found.workspace) if row.kind == "goal" and row.parent is None]
    if not goals:
        hint = "name one by its id (endstop ps --all shows every goal), or begin one with endstop run"
        raise UsageError("no goal was begun in this folder", where=str(found.workspace), hint=hint)
    return goals[0]


def refuse_inside(what: str) -> None:
    """What only a person may do is refused to what a goal has begun."""
    if inside():
        raise UsageError(f"a goal's own commands may not {what}", hint="a person does this, in a terminal of his own")


def inside() -> bool:
    """Whether a goal has begun this process."""
    return bool(os.environ.get("ENDSTOP_CALL"))


def person() -> str:
    """Who sits here, for the journal."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in some containers
        return f"uid {os.getuid()}"


def interactive() -> bool:
    """Whether a person sits at this terminal and can be asked."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
