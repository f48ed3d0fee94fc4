"""``search``: a regular expression over the files of the workspace."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from endstop.core.events import Failure
from endstop.host import spawn
from endstop.host.imports import isolated
from endstop.ports import Invocation, Outcome
from endstop.tools import grep
from endstop.tools.confine import Place
from endstop.tools.functions import FunctionTool

Short = Annotated[str, msgspec.Meta(min_length=1, max_length=2_000)]


class Search(FunctionTool[..., object]):
    """``search(pattern, path?, glob?)``. ``hidden``: paths never searched; ``patience``: seconds a search may take."""

    def __init__(self, hidden: Sequence[Path] = (), patience: float = 10.0) -> None:
        self._hidden = tuple(hidden)
        self._patience = patience
        super().__init__(self._search, name="search", effect="read")

    async def _search(self, pattern: Short, call: Invocation, path: str = ".", glob: Short | None = None) -> Outcome:
        """Search text files for a regular expression, line by line. Ignored files, caches, .git and binary files are left out.

        Args:
            pattern: Regular expression (Python syntax, case matters; start with (?i) to ignore it).
            path: File or folder in the workspace.
            glob: Only these files, like *.py or src/**/*.ts.
        """
        place = Place(call.workspace, path, self._hidden)
        if not (place.root / place.name).is_dir():
            place.open().close()
        hidden = [os.path.realpath(folder) for folder in self._hidden]
        request = grep.Request(str(place.root), place.name, pattern, glob, hidden)
        ended = await spawn.run(
            isolated(grep.__name__, msgspec.json.encode(request).decode()),
            cwd=place.root,
            env={},
            timeout=self._patience,
        )
        if ended.timed_out:
            text = f"search did not end within {self._patience:g} s; use a simpler pattern, or narrow it with path or glob"
            return Outcome(success=False, content=f"{ended.output}({text})", error=Failure(code="timeout", message=text))
        if ended.exit_code == 2:
            raise ValueError(f"pattern or glob cannot be used: {ended.output.strip()}")
        if ended.exit_code:
            raise RuntimeError(f"search broke: {ended.output.strip()[-300:]}")
        return Outcome(success=ended.exit_code == 0, content=ended.output.rstrip("\n"))
