"""The other side: a real goal. Model over HTTP, kernel with its default rules and all limits, redaction, store on disk."""

from __future__ import annotations

import asyncio
import secrets
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.meter import Meter, Plan, Watch
from endstop.checks.gates import Gates
from endstop.checks.look import Folder
from endstop.core import codec
from endstop.core import events as ev
from endstop.core.context import SYSTEM, measure_head
from endstop.core.goal import Kit
from endstop.core.limits import DEFAULTS
from endstop.core.messages import Head
from endstop.guards.redaction import Redactor
from endstop.host.sandbox import detect
from endstop.models.openai import OpenAIModel
from endstop.runtime import embedded, perform
from endstop.runtime.perform import Perform
from endstop.runtime.session import Session, load, uuid7
from endstop.store.open import Store, open_store
from endstop.store.sessions import NewSession
from endstop.tools.catalog import Catalog
from endstop.tools.functions import tool
from endstop.tools.kernel import KERNEL_SPECS

RAISED = {"tokens": 1e12, "tool-calls": 1e9}


async def drive(plan: Plan, meter: Meter) -> None:
    """All runs of a plan, side by side, in one process with one store and one model."""
    model = OpenAIModel("bench:bench", "bench", base_url=plan.url, api_key=None)
    with tempfile.TemporaryDirectory(prefix="endstop-bench-") as place:
        root = Path(place) / "workspace"
        root.mkdir()
        async with open_store(Path(place) / "home") as store:
            watch = _time_pure() if plan.timed else None
            ends = await asyncio.gather(*(_run(plan, store, model, catalog_of(meter.run()), root) for _ in range(plan.runs)))
            await model.close()
        odd = {f"{end.phase}: {end.missing}" for end in ends if end.phase != "capped"}
    if odd or meter.report is None:
        raise SystemExit(f"a run did not come to its last turn: {odd}")
    if watch is not None:
        meter.report.pure = watch.spent * 1e6 / (plan.turns * plan.runs)


def catalog_of(answer: Callable[[int], str]) -> Catalog:
    """The tools of one run."""

    @tool(effect="read")
    async def look_up(number: int) -> str:
        """Look a number up."""
        return answer(number)

    return Catalog([look_up], KERNEL_SPECS)


async def _run(plan: Plan, store: Store, model: OpenAIModel, catalog: Catalog, root: Path) -> ev.GoalEnded:
    session = await begin(store, catalog, root, plan.turns)
    home = store.path.parent / "sessions" / session.session_id
    gates = Gates(detect(), [store.path.parent], {}, False)
    perform = Perform(model, catalog, Folder(root, home), gates, None, watch=(lambda _: None) if plan.stream else None)
    state = await embedded.drive(session, perform, stay=False)
    await session.close()
    assert state.goal is not None
    assert state.goal.ended is not None
    return state.goal.ended


async def begin(store: Store, catalog: Catalog, root: Path, turns: int) -> Session:
    """A session with a goal that its limit ends after ``turns`` turns."""
    session_id, salt = uuid7(), secrets.token_hex(16)
    head = measure_head(Head(SYSTEM, tuple(catalog.specs.values())))
    kit = Kit(tools=catalog.specs, head_bytes=head, lock=str(root))
    new = NewSession(id=session_id, kind="goal", created=time.time(), workspace=str(root), salt=salt, objective="Look.")
    await store.create(new)
    session = await load(store, session_id, kit, clock=time.time, redact=Redactor([]))
    started = codec.stamp(time.time())
    session.record(
        ev.SessionStart(
            session_id=session_id,
            version=1,
            producer="bench",
            start_time=started,
            kind="goal",
            context=ev.Context(cwd=str(root)),
            salt=salt,
        ),
        ev.GoalQueued(
            goal_id=session_id,
            objective="Look things up.",
            contract=ev.Contract(),
            limits=DEFAULTS | RAISED | {"turns": turns + 1.0},
            policy=ev.Policy(),
            model="bench:bench",
            fallbacks=[],
            workspace=str(root),
            priority=0,
        ),
    )
    await session.commit(durable=True)
    return session


def _time_pure() -> Watch:
    """Time deciding, recording (redact, encode, hash, apply) and looking at results, in the loop, where caches are cold."""
    watch = Watch()
    embedded.decide = watch.around(embedded.decide)  # type: ignore[attr-defined]
    Session.record = watch.around(Session.record)  # type: ignore[method-assign]
    perform.digests = watch.around(perform.digests)  # type: ignore[attr-defined]
    return watch
