"""Begin a goal, or go on with one, and follow it to where it stops."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from endstop.assemble import Order, System
from endstop.core import events as ev
from endstop.core.apply import replay
from endstop.errors import UsageError
from endstop.library import limits as caps
from endstop.library.callbacks import Humans, OnEvent, OnPermission, OnQuestion, Told
from endstop.library.guest import Guest
from endstop.library.limits import AnyLimits
from endstop.library.result import Result, result
from endstop.library.resumption import resumption
from endstop.ports import Clock, Model, Tool
from endstop.running import Running
from endstop.settings import FLAGS, Confront, GateTable, Mode, Settings, load
from endstop.tools.functions import FunctionTool

Gate = GateTable


async def run(
    objective: str,
    *,
    workspace: str | Path | None = None,
    model: str | Model | None = None,
    gates: str | Sequence[str | Gate] = (),
    deliverables: str | Sequence[str] = (),
    judge: str | Model = "auto",
    limits: AnyLimits = None,
    tools: Iterable[Callable[..., Any] | Tool] = (),
    mode: Mode | None = None,
    allow: str | Sequence[str] = (),
    deny: str | Sequence[str] = (),
    network: bool | None = None,
    confront: Confront | None = None,
    protect: str | Sequence[str] = (),
    rubric: str | None = None,
    on_question: OnQuestion | None = None,
    on_permission: OnPermission | None = None,
    on_event: OnEvent | None = None,
    settings: Mapping[str, Any] | None = None,
    wait: bool = False,
) -> Result:
    """Pursue a goal to where it stops. What is not given comes from endstop.toml and the environment, as for ``endstop run``.

    Cancelling it (a time-out, Ctrl-C) pauses the goal, which ``resume`` takes up again.

    Args:
        objective: what should be reached, in words.
        workspace: the folder to work in; the current one if none is configured.
        model: ``PROVIDER:MODEL``, or a model of your own (``endstop.Model``).
        gates: commands whose exit status 0 means they pass; ``endstop.Gate(run="…", timeout=300)`` for more than that.
        deliverables: paths in the workspace that must exist, not be empty, and differ from the start.
        judge: auto (the model that is configured, else the goal's own in a fresh context), none, or a model.
        limits: ``Limits(…)``, a dict by axis, or texts as for ``endstop run -l``.
        tools: functions or tools beside the built-in ones. A bare function counts as one that changes things; say
            otherwise with ``endstop.tool``.
        mode: plan, ask, auto (default) or yolo.
        allow: permission rules for what runs without asking, like ``shell(pytest *)``.
        deny: permission rules for what never runs.
        network: whether commands reach the network.
        confront: once (default), always or never.
        protect: paths that must not change; flag or refuse among them says what happens if they do.
        rubric: what the judge is to look for.
        on_question: gets each ``Question``; what it returns is the answer, None leaves the question open.
        on_permission: gets each ``PermissionRequest``; True allows it this once, False denies it, text denies it and says
            why, None leaves it open.
        on_event: gets each entry as it is recorded, on the event loop; must return at once.
        settings: what endstop.toml may say beyond these arguments, in the same shape.
        wait: stay when something is left open, instead of returning in phase waiting.

    Callbacks may be sync or async (``on_event`` only sync); a sync ``on_question`` or ``on_permission`` has a thread, which
    nothing can stop. With either, a human counts as reachable. What one raises pauses the goal and is raised here.

    Raises:
        UsageError: something cannot be used as given; nothing was begun.
        EndstopError: the store broke, is full, or another process took the session over.
    """
    asked = asked_for(
        workspace=workspace, model=model, gates=gates, deliverables=deliverables, judge=judge, limits=limits, mode=mode,
        allow=allow, deny=deny, network=network, confront=confront, protect=protect, rubric=rubric,
    )  # fmt: skip
    found = settings_of(asked, settings)
    async with opened(found, tools, [model, judge]) as system:
        running = await system.queue(order(found, objective, model, judge))
        return await follow(system, running, Told(on_question, on_permission, on_event, wait))


async def resume(
    session_id: str,
    *,
    limits: AnyLimits = None,
    note: str | None = None,
    model: str | Model | None = None,
    judge: Model | None = None,
    tools: Iterable[Callable[..., Any] | Tool] = (),
    on_question: OnQuestion | None = None,
    on_permission: OnPermission | None = None,
    on_event: OnEvent | None = None,
    settings: Mapping[str, Any] | None = None,
    wait: bool = False,
) -> Result:
    """Go on with a goal that stopped: waiting, paused, or ended as anything but done. What was spent stays spent.

    Args:
        session_id: of its ``Result``, or the beginning of it.
        limits: higher caps; one that is full must be raised.
        note: words to the agent.
        model: the same model that it was begun with, where that was one of your own.
        judge: likewise.
        tools: the same tools that it was begun with.
        on_question: as for ``run``; what is still open is asked again.
        on_permission: likewise.
        on_event: as for ``run``; gets what comes from now on.
        settings: as for ``run``.
        wait: as for ``run``.

    Raises:
        UsageError: there is no such goal, it is done, another process drives it, or a full limit was not raised.
        EndstopError: as for ``run``.
    """
    if os.environ.get("ENDSTOP_CALL"):
        hint = "a person does this, in a process of his own"
        raise UsageError("a goal's own commands may not resume a goal", where="endstop.resume", hint=hint)
    table = caps.table(limits)
    found = settings_of({"limits": table}, settings)
    async with opened(found, tools, [model, judge]) as system:
        row = await system.store.find(session_id)
        if row.holder is not None:
            raise UsageError(f"process {row.holder.pid} drives it already", where=row.id, hint="wait until it stops")
        if model is not None and _name(model) != row.model:
            raise UsageError(f"it was begun with {row.model}", where=f"model {_name(model)}", hint="the model of a goal stays")
        state = replay(await system.store.entries(row.id))
        events = resumption(state, {axis: found.limits.get(axis) for axis in table}, note, system.clock())
        running = await system.take(row.id)
        return await follow(system, running, Told(on_question, on_permission, on_event, wait), after=row.head, events=events)


def asked_for(
    *,
    workspace: str | Path | None = None,
    model: str | Model | None = None,
    gates: str | Sequence[str | Gate] = (),
    deliverables: str | Sequence[str] = (),
    judge: str | Model = "auto",
    limits: AnyLimits = None,
    mode: Mode | None = None,
    allow: str | Sequence[str] = (),
    deny: str | Sequence[str] = (),
    network: bool | None = None,
    confront: Confront | None = None,
    protect: str | Sequence[str] = (),
    rubric: str | None = None,
) -> dict[str, Any]:
    """The arguments of ``run`` in the shape of a settings file.

    Raises:
        UsageError: a limit cannot be used.
    """
    return {
        "model": model if isinstance(model, str) else None,
        "judge": judge if isinstance(judge, str) and judge != "auto" else None,
        "gate": [_gate(gate) for gate in _many("gates", gates)],
        "deliverables": _many("deliverables", deliverables),
        "protect": _many("protect", protect),
        "confront": confront,
        "rubric": rubric,
        "workspace": None if workspace is None else str(workspace),
        "limits": caps.table(limits),
        "permissions": {"mode": mode, "allow": _many("allow", allow), "deny": _many("deny", deny), "network": network},
    }


def settings_of(asked: dict[str, Any], further: Mapping[str, Any] | None, environ: Mapping[str, str] = os.environ) -> Settings:
    """Settings files and environment, then ``further`` (in the shape of a settings file), then what was asked for.

    Raises:
        UsageError: something of it cannot be used.
    """
    if not isinstance(further, Mapping | None):
        raise UsageError("are no table", where="settings", hint="give a dict in the shape of endstop.toml")
    said = {key: str(value) if isinstance(value, Path) else value for key, value in (further or {}).items()}
    for key, value in asked.items():
        if isinstance(value, dict):
            value = _on_top(said.get(key, {}), value)
        if value not in (None, [], {}):
            said[key] = value
    workspace = said.get("workspace", ".")
    if isinstance(workspace, str) and not Path(workspace).expanduser().is_dir():
        raise UsageError("there is no such folder", where=f"workspace {workspace}", hint="create it, or name another")
    try:
        return load(cwd=Path.cwd(), environ=environ, flags=said)
    except UsageError as error:
        raise UsageError(error.message, where=error.where.replace(FLAGS, "arguments", 1), hint=error.hint) from None
    except FileNotFoundError:
        raise UsageError("the current folder is gone", where="workspace", hint="change to one that exists") from None


def _on_top(known: Any, asked: dict[str, Any]) -> Any:
    """A table with what was asked for on top; lists of rules add up, so that none takes a deny away."""
    asked = {key: value for key, value in asked.items() if value not in (None, [])}
    if not isinstance(known, Mapping):
        return known  # no table: the settings complain
    for key, value in asked.items():
        if isinstance(value, list) and isinstance(known.get(key), list):
            asked[key] = [*known[key], *value]
    return {**known, **asked}


def order(settings: Settings, objective: str, model: str | Model | None = None, judge: str | Model = "auto") -> Order:
    """What is asked for, from the settings and the models that have no name there.

    Raises:
        UsageError: there is no objective, or no model.
    """
    if not isinstance(objective, str) or not objective.strip():
        raise UsageError("there is no objective", where="objective", hint='say what should be reached, like "make it pass"')
    contract = settings.contract if isinstance(judge, str) else msgspec.structs.replace(settings.contract, judge=_name(judge))
    return Order(
        objective=objective.strip(),
        workspace=settings.workspace,
        model=model_name(settings, model),
        fallbacks=list(settings.fallbacks),
        contract=contract,
        limits=settings.limits,
        explicit=set(settings.explicit),
        policy=settings.policy,
    )


def model_name(settings: Settings, model: str | Model | None) -> str:
    """The name of the model that is asked, the caller's own or that of the settings.

    Raises:
        UsageError: there is none.
    """
    name = settings.model if model is None or isinstance(model, str) else _name(model)
    if not name:
        hint = 'model="PROVIDER:MODEL", ENDSTOP_MODEL, or model in endstop.toml'
        raise UsageError("no model is chosen", where="model", hint=hint)
    return name


def opened(settings: Settings, tools: Iterable[Any], models: Iterable[str | Model | None], clock: Clock = time.time) -> System:
    """A system with the caller's own tools and models, to be used as an async context manager.

    Raises:
        UsageError: a tool cannot be one, or two models share a name.
    """
    own = [tool if hasattr(tool, "spec") else FunctionTool(tool) for tool in _many("tools", tools)]
    lent: dict[str, Model] = {}
    for model in models:
        if model is not None and not isinstance(model, str) and lent.setdefault(_name(model), model) is not model:
            raise UsageError("two models have this name", where=model.name, hint="give one of them another name")
    return Guest(settings, tools=own, models=lent, clock=clock)


async def follow(system: System, running: Running, told: Told, *, after: int = 0, events: Sequence[ev.Event] = ()) -> Result:
    """Record ``events``, drive a goal to where it stops, and say how it stands. ``told.on_event`` gets all beyond ``after``.

    Raises:
        EndstopError: the store broke, is full, or another process took the session over.
    """
    session, humans = running.session, Humans(running, told)
    try:
        known = await system.store.entries(session.session_id)
        humans.begin(known, after)
        session.record(*events)
        humans.ask_again(known)
        state = await humans.drive()
    finally:
        await humans.stop()
        await running.close()
    return result(state, await system.store.entries(session.session_id), system.clock())


def _many(name: str, given: Any) -> list[Any]:
    """One thing is a list of it; paths are text."""
    alone = isinstance(given, str | Path | Mapping | Gate) or hasattr(given, "spec") or callable(given)
    if not alone and not isinstance(given, Iterable):
        raise UsageError(f"{given!r} is no list", where=name, hint="write a list: […]")
    return [str(thing) if isinstance(thing, Path) else thing for thing in ([given] if alone else given)]


def _gate(gate: Any) -> Any:
    return {"run": gate} if isinstance(gate, str) else msgspec.to_builtins(gate) if isinstance(gate, Gate) else gate


def _name(model: Any) -> str:
    if not isinstance(model, str) and not hasattr(model, "open"):
        raise UsageError(f"{model!r} is no model", where="model", hint='write "PROVIDER:MODEL", or give an endstop.Model')
    return model if isinstance(model, str) else str(model.name)
