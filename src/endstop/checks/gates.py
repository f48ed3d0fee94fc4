"""Running the user's gates: the one thing whose word about the workspace is taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import msgspec

from endstop.checks.results import read_results
from endstop.core.events import Contract, Gate, GateFinished
from endstop.errors import ToolError, UsageError
from endstop.host import spawn
from endstop.host.sandbox import Sandbox, clean_environment
from endstop.ports import Workspace

OUTPUT = 4_096
"""Characters of output that are kept: its end, where test runners say what was wrong."""
READ = 256 * 1024
"""Bytes of output, half from the beginning and half from the end, that are searched for results."""
CANNOT_RUN = (126, 127)
"""Exit codes of a shell that could not run its command."""
_NAMED = 10

Outcome = Literal["pass", "fail", "broken"]


class _Run(msgspec.Struct, kw_only=True):
    """One run of a gate, its retries in it."""

    outcome: Outcome
    exit_code: int | None = None
    output: str
    duration_ms: int = 0
    retries: int = 0


class Gates:
    """``ports.GateRunner``: every gate in the sandbox, under ``bash -o pipefail -c``, with a cleaned environment.

    Args:
        hidden: files and folders a gate cannot see.
        environment: what the environment is made from; what looks like a secret is taken out.
        network: whether gates may use it.
    """

    def __init__(self, sandbox: Sandbox, hidden: Sequence[Path], environment: Mapping[str, str], network: bool) -> None:
        self._sandbox = sandbox
        self._hidden = hidden
        self._environment = clean_environment(environment)
        self._network = network

    async def run(self, gate: Gate, contract: Contract, workspace: Workspace) -> GateFinished:
        """Run one gate. One that changes the workspace runs once more; if it changes it again it is broken.

        Outcome "broken": it could not be run (exit code 126 or 127, no shell, no sandbox) or changes the workspace each
        time. A timeout is a fail. ``exit_code`` is what the shell said, None where a signal or the timeout ended it.
        """
        before = await workspace.fingerprint(contract)
        first = await self._tries(gate, workspace.root)
        after = await workspace.fingerprint(contract)
        if after == before:
            return _finished(gate, first, after)
        start = await workspace.look("gate", 0, contract, None)
        second = await self._tries(gate, workspace.root)
        second.duration_ms += first.duration_ms
        second.retries += first.retries
        last = await workspace.fingerprint(contract)
        if last == start.fingerprint:
            return _finished(gate, second, last)
        changed = (await workspace.look("gate", 0, contract, start)).paths
        names = ", ".join(changed[:_NAMED]) + (" …" if len(changed) > _NAMED else "")
        said = f"The gate changes the workspace: {names or 'HEAD'} (let it write to an ignored path, or outside)\n"
        second.outcome, second.output = "broken", said + second.output
        return _finished(gate, second, last, stale=True)

    async def _tries(self, gate: Gate, root: Path) -> _Run:
        run = await self._once(gate, root)
        spent = run.duration_ms
        retries = 0
        while run.outcome == "fail" and retries < gate.retries:
            retries += 1
            run = await self._once(gate, root)
            spent += run.duration_ms
        run.retries, run.duration_ms = retries, spent
        return run

    async def _once(self, gate: Gate, root: Path) -> _Run:
        shell = ["bash", "-o", "pipefail", "-c", gate.run]
        try:
            command = self._sandbox.wrap(shell, workspace=root, hidden=self._hidden, network=self._network)
            # Python reads no compiled file that stands in the workspace: whoever worked there could have planted it.
            with TemporaryDirectory(prefix="endstop-", ignore_cleanup_errors=True) as compiled:
                env = {**self._environment, "PYTHONPYCACHEPREFIX": compiled}
                ended = await spawn.run(command, cwd=root, env=env, timeout=gate.timeout, bound=READ, keep=0)
        except (ToolError, UsageError, OSError) as error:
            return _Run(outcome="broken", output=f"The gate could not be run: {error}")
        run = _Run(outcome="fail", exit_code=ended.exit_code, output=ended.output, duration_ms=ended.duration_ms)
        if ended.timed_out:
            run.exit_code = None
            run.output += f"\n[timed out after {gate.timeout:g} s: killed with everything it had begun]"
        elif ended.signal is not None:
            run.output += f"\n[killed by signal {ended.signal}]"
        elif ended.exit_code in CANNOT_RUN or self._sandbox_failed(ended):
            run.outcome = "broken"
        elif ended.exit_code == 0:
            run.outcome = "pass"
        return run

    def _sandbox_failed(self, ended: spawn.Ended) -> bool:
        return self._sandbox.kind != "none" and ended.exit_code == 1 and ended.output.startswith("bwrap: ")


def _finished(gate: Gate, run: _Run, fingerprint: str, *, stale: bool = False) -> GateFinished:
    collected, failing = read_results(run.output)
    return GateFinished(
        gate_id=gate.gate_id,
        outcome=run.outcome,
        exit_code=run.exit_code,
        output=_end(run.output),
        duration_ms=run.duration_ms,
        fingerprint=fingerprint,
        stale=stale,
        collected=collected,
        failing=failing,
        retries=run.retries or None,
    )


def _end(text: str) -> str:
    """The end of an output. The number in a line of its own says, here as elsewhere, that a line, and maybe a secret in it, was
    cut through: redaction drops what is left of it."""
    if len(text) <= OUTPUT:
        return text
    end = text[-OUTPUT:]
    _, line, rest = end.partition("\n")
    if line and rest:
        return f"[… the beginning is left out …]\n{rest}"
    return f"[… {len(text) - OUTPUT} characters left out …]\n{end}"
