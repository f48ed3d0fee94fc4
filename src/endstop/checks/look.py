"""The folder a goal works in, as the kernel looks at it: fingerprint, changes since the start, deliverables, inputs."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

from endstop.checks import protect
from endstop.core.events import Contract, LookPurpose, WorkspaceObserved
from endstop.host.bounds import Bounds, bounded
from endstop.host.fingerprint import Scan
from endstop.host.paths import inside, shown, walk
from endstop.host.snapshot import Changes, Snapshot

PATHS = 200
"""Changed paths that one look names."""
EMPTY = "empty"

_T = TypeVar("_T")
_NO_CONTENT = sha256(b"").hexdigest()
_NOTHING = Changes([], "")


async def _apart(work: Callable[[], _T]) -> _T:
    """Look on a thread of its own, within bounds; if this task is cancelled the thread soon lets go."""
    stop = threading.Event()

    def look() -> _T:
        with bounded(Bounds(stop)):
            return work()

    try:
        return await asyncio.to_thread(look)
    except asyncio.CancelledError:
        stop.set()
        raise


class Folder:
    """``ports.Workspace`` over a real folder. ``state`` is a folder of Endstop's own, out of the agent's reach; ``path`` is
    the $PATH that gates run with (None: this process's)."""

    def __init__(self, root: Path, state: Path, path: str | None = None) -> None:
        self.root = root
        self._path = os.environ.get("PATH", os.defpath) if path is None else path
        self._snapshot = Snapshot(root, state)

    async def look(
        self, purpose: LookPurpose, world: int, contract: Contract, baseline: WorkspaceObserved | None
    ) -> WorkspaceObserved:
        """What the workspace is now. Without a baseline this look is one: it keeps the start and hashes the inputs."""
        return await _apart(lambda: self._look(purpose, world, contract, baseline))

    async def fingerprint(self, contract: Contract) -> str:
        """The fingerprint alone: the same value as in ``look`` as long as nothing changes."""
        return (await _apart(lambda: self._scan(contract))).fingerprint

    async def patch(self, contract: Contract, baseline: WorkspaceObserved) -> str:
        """The diff since the start, of any length that a person reads, without the list of files on top."""
        return await _apart(lambda: self._patch(contract, baseline))

    def _patch(self, contract: Contract, baseline: WorkspaceObserved) -> str:
        scan = self._scan(contract)
        if baseline.base is None or scan.fingerprint == baseline.fingerprint:
            return ""
        return self._snapshot.patch(baseline.base, scan)

    def _look(
        self, purpose: LookPurpose, world: int, contract: Contract, baseline: WorkspaceObserved | None
    ) -> WorkspaceObserved:
        scan = self._scan(contract)
        deliverables = {path: self._deliverable(path) for path in contract.deliverables}
        if baseline is None:
            return WorkspaceObserved(
                purpose=purpose,
                world=world,
                fingerprint=scan.fingerprint,
                paths=[],
                diff="",
                protected=[],
                deliverables=deliverables,
                inputs=protect.start(contract, self.root, self._path),
                base=self._snapshot.keep(scan),
            )
        changes = self._changes(scan, baseline)
        protected, named = protect.changed(contract, self.root, baseline.inputs or {}, self._path)
        return WorkspaceObserved(
            purpose=purpose,
            world=world,
            fingerprint=scan.fingerprint,
            paths=[shown(path) for path in changes.paths[:PATHS]],
            diff=changes.diff,
            protected=protected,
            named=named,
            deliverables=deliverables,
        )

    def _scan(self, contract: Contract) -> Scan:
        """Deliverables and inputs count even where ignore rules leave them out."""
        extra = protect.literal_inputs(contract, self.root, self._path)
        for deliverable in contract.deliverables:
            extra.update(self._files(deliverable))
        return self._snapshot.scan(extra)

    def _files(self, deliverable: str) -> list[str]:
        """The files that a deliverable is: itself, or those below it; none if it lies outside the workspace."""
        real = inside(self.root, deliverable)
        if real is None:
            return []
        if os.path.isdir(os.path.join(self.root, real)):
            return sorted(walk(self.root, "" if real == "." else real, ignore=None))
        return [real]

    def _deliverable(self, path: str) -> str:
        """ "absent", "empty" or a SHA-256: of a file its content's, of a folder one over paths, modes and contents."""
        real = inside(self.root, path)
        if real is None:
            return protect.ABSENT
        if not os.path.isdir(os.path.join(self.root, real)):
            mode, content = self._snapshot.content(real)
            if not mode.startswith("100"):
                return protect.ABSENT
            return EMPTY if content == _NO_CONTENT else content
        seen = {file: self._snapshot.content(file) for file in self._files(path)}
        return Scan("", seen, None).fingerprint if seen else EMPTY

    def _changes(self, scan: Scan, baseline: WorkspaceObserved) -> Changes:
        if scan.fingerprint == baseline.fingerprint:
            return _NOTHING
        if baseline.base is None:
            return Changes([], "The start was not kept, so there is nothing to compare with.")
        return self._snapshot.since(baseline.base, scan)
