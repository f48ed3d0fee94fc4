"""A session that this process holds, and what is said of it when it starts."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from endstop.core import events as ev
from endstop.core.goal import Kit, State
from endstop.errors import EndstopError, LeaseLost, StoreFull
from endstop.host import git, imports
from endstop.host.sandbox import Sandbox
from endstop.ports import Emit, Judge, Model, Watch
from endstop.runtime.embedded import Stay, drive
from endstop.runtime.perform import Perform
from endstop.runtime.session import Session


class Diffed(Protocol):
    """The workspace as a whole diff since the start."""

    async def patch(self, contract: ev.Contract, baseline: ev.WorkspaceObserved) -> str:
        """The diff, empty if nothing differs."""
        ...


class Closing(Protocol):
    """Something that lives as long as the session is held."""

    async def close(self) -> None:
        """Let it go."""
        ...


class Running:
    """A session this process holds. ``description`` is what the start block shows."""

    def __init__(
        self,
        session: Session,
        perform: Perform,
        folder: Diffed,
        description: dict[str, Any],
        kit: Kit,
        servers: Closing | None = None,
    ) -> None:
        self.session, self.perform, self.folder, self.description, self.kit = session, perform, folder, description, kit
        self.servers = servers
        self._sound = True

    async def drive(
        self,
        *,
        stay: Stay,
        reachable: bool = False,
        emit: Emit | None = None,
        watch: Watch | None = None,
        chat: bool = False,
    ) -> State:
        """Turn the wheel until the goal ends, pauses, or waits for somebody (``stay`` True: through that too); ``chat`` also
        goes on with what was written after its end, and with a conversation that has no goal.

        A full disk pauses it, if there is room for that much: nothing after the last committed event counts.

        Raises:
            StoreFull: there is no room; resume once there is.
        """
        self.kit.reachable = reachable
        self.perform.ask.watch = watch
        if emit is not None and emit not in self.session.emit:
            self.session.emit.append(emit)
        hearing = asyncio.create_task(self._hear())
        try:
            return await drive(self.session, self.perform, stay=stay, chat=chat)
        except StoreFull:
            self._sound = False
            await self.session.pause_unwritten()
            raise
        except Exception as error:  # a defect of ours counts as a crash: the next holder must not run into it for ever
            self._sound = isinstance(error, EndstopError)
            raise
        finally:
            hearing.cancel()

    async def _hear(self) -> None:
        """The ends of background processes, as they come."""
        background = self.perform.background
        while background is not None:
            self.session.control(await background.wait_any())

    def control(self, *events: ev.Event) -> None:
        """Something a person does in this process while it runs."""
        self.session.control(*events)

    async def patch(self) -> str:
        """The whole diff of the workspace since the goal's start, as it is now, without secrets; empty if nothing differs."""
        state = self.session.state
        if state.goal is None or state.evidence.baseline is None:
            return ""
        text = await self.folder.patch(state.goal.contract, state.evidence.baseline)
        return str(self.session.redact.clean_data(text))

    async def close(self) -> None:
        """Let the session go in good order; after a full disk or a defect the next holder finds it as after a crash."""
        if self.servers is not None:
            await self.servers.close()
        if self.perform.background is not None:
            self.perform.background.close()
        if self._sound:
            with suppress(StoreFull, LeaseLost):
                await self.session.close()


def describe(
    root: Path,
    about: git.GitState | None,
    model: Model,
    judge: Judge | None,
    sandbox: Sandbox,
    goal: ev.GoalQueued,
) -> dict[str, Any]:
    """What the start block says, as plain data."""
    policy, contract = goal.policy, goal.contract
    return {
        "workspace": str(root),
        "git": {"branch": about.branch, "head": about.head, "dirty": about.dirty} if about else None,
        "model": model.name,
        "scripted": model.scripted,
        "priced": model.price is not None or model.local,
        "judge": judge.name if judge else None,
        "judgeIndependent": judge.independent if judge else None,
        "sandbox": {"kind": sandbox.kind, "why": sandbox.why, "kept": [str(path) for path in imports.kept(root)]},
        "mode": policy.mode,
        "allow": list(policy.allow),
        "deny": list(policy.deny),
        "ask": list(policy.ask),
        "network": policy.network,
        "gates": [gate.run for gate in contract.gates],
        "deliverables": list(contract.deliverables),
        "protect": contract.protect,
        "fallbacks": list(goal.fallbacks),
        "review": contract.review,
    }
