"""Settings to a running system: the only module that names every adapter."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import msgspec

from endstop import __version__
from endstop.checks import hooks
from endstop.checks.gates import Gates
from endstop.checks.hooks import Hooks
from endstop.checks.judge import ModelJudge
from endstop.checks.look import Folder
from endstop.core import codec
from endstop.core import events as ev
from endstop.core.apply import replay
from endstop.core.context import SYSTEM, measure_head
from endstop.core.goal import Kit, Profile, State, open_calls, with_rules
from endstop.core.messages import Head
from endstop.errors import UsageError
from endstop.guards.permission import Permissions
from endstop.guards.redaction import Redactor
from endstop.host import git, imports, spawn
from endstop.host.background import Background
from endstop.host.clock import Steady
from endstop.host.paths import inside
from endstop.host.sandbox import Sandbox, clean_environment, detect
from endstop.models.choose import make_model
from endstop.orders import check_contract, check_limits, check_secrets, read_instructions, usable_workspace
from endstop.ports import Clock, Model, Tool
from endstop.running import Running, describe
from endstop.runtime.control import control
from endstop.runtime.perform import Perform
from endstop.runtime.session import load, uuid7
from endstop.servers import McpServer
from endstop.settings import Settings
from endstop.store.open import Store, open_store
from endstop.store.sessions import NewSession
from endstop.tools.catalog import Catalog
from endstop.tools.edit import EditFile, WriteFile
from endstop.tools.files import ListFiles, ReadFile
from endstop.tools.kernel import KERNEL_SPECS
from endstop.tools.plan import Plan
from endstop.tools.processes import ProcessControl, Processes
from endstop.tools.search import Search
from endstop.tools.shell import Shell, mark_of

if TYPE_CHECKING:
    from endstop.tools.mcp import Servers

VERSION = 1
"""Of the journal format."""


class Order(msgspec.Struct, kw_only=True):
    """What a user asked for. ``limits`` are the caps in force, ``explicit`` the axes he set himself."""

    objective: str
    workspace: Path
    model: str
    contract: ev.Contract = msgspec.field(default_factory=ev.Contract)
    limits: dict[str, float] = msgspec.field(default_factory=dict)
    explicit: set[str] = msgspec.field(default_factory=set)
    fallbacks: list[str] = msgspec.field(default_factory=list)
    policy: ev.Policy = msgspec.field(default_factory=ev.Policy)


class System:
    """One process's Endstop: a store, and whatever goals it is asked to drive. Use as an async context manager."""

    def __init__(self, settings: Settings, *, tools: Iterable[Tool] = (), clock: Clock = time.time) -> None:
        self.settings = settings
        self.clock = Steady(clock)
        self.extra = tuple(tools)
        self.redact = Redactor(_secrets(settings))
        self.sandbox: Sandbox
        self._closed: list[Path] = []
        self.models: dict[str, Model] = {}
        self.store: Store

    async def __aenter__(self) -> Self:
        self.store = open_store(self.settings.home, clock=self.clock)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for model in self.models.values():
            await model.close()
        await self.store.close()
        for root in self._closed:
            imports.reopen(root)

    def model(self, name: str) -> Model:
        """The model of this name, opened once.

        Raises:
            UsageError: the provider is unknown, its key is missing, or its address cannot be used.
        """
        if name not in self.models:
            self.models[name] = make_model(name, self.settings)
        return self.models[name]

    async def queue(self, order: Order) -> Running:
        """Check everything that can be checked, then begin a session with this goal.

        Raises:
            UsageError: something of the order cannot be used; no session was begun.
        """
        root, model, judge = self.check(order)
        session_id, about = uuid7(), await git.describe(root)
        start, goal = self._opening(session_id, order, root, about)
        return await self._begin(start, (goal,), goal, root, model, judge, about)

    def check(self, order: Order) -> tuple[Path, Model, ModelJudge | None]:
        """Where, with which model and which judge an order would be pursued; nothing is begun.

        Raises:
            UsageError: as ``queue``.
        """
        root = self._place(order.workspace)
        check_secrets(order.objective, order.contract, order.policy, self.redact.clean)
        model = self.model(order.model)
        judge = self._judge(order.contract, model)
        for asked in (model, *(self.model(name) for name in order.fallbacks)):
            check_limits(order.explicit & set(order.limits), asked)
        check_contract(order.contract, root)
        self.permissions(order.policy, root)
        return root, model, judge

    async def foresee(self, order: Order) -> tuple[State, dict[str, Any]]:
        """How a session with this goal would begin, and its description; nothing is begun. Raises UsageError as ``queue``."""
        root, model, judge = self.check(order)
        about = await git.describe(root)
        start, goal = self._opening("", order, root, about)
        state = replay(codec.Entry(seq, "", self.clock(), event) for seq, event in enumerate((start, goal), 1))
        return state, describe(root, about, model, judge, self.sandbox, goal)

    async def converse(
        self, workspace: Path, model: str, limits: dict[str, float], policy: ev.Policy, *, explicit: Collection[str] = ()
    ) -> Running:
        """Begin a conversation without a goal; ``Running.control(UserMessage(…))`` and ``drive(chat=True)`` carry it on.

        Raises:
            UsageError: as ``queue``.
        """
        root, asked = self._place(workspace), self.model(model)
        check_secrets("", ev.Contract(), policy, self.redact.clean)
        check_limits(explicit, asked)
        terms = _terms(root, model, limits, policy)
        about = await git.describe(root)
        start = self._start(uuid7(), "chat", root, about, model)
        start = msgspec.structs.replace(start, limits=limits, policy=policy)
        return await self._begin(start, (), terms, root, asked, None, about)

    async def _begin(
        self,
        start: ev.SessionStart,
        events: tuple[ev.Event, ...],
        goal: ev.GoalQueued,
        root: Path,
        model: Model,
        judge: ModelJudge | None,
        about: git.GitState | None,
    ) -> Running:
        """Register a session and write its first events; a refusal leaves nothing behind."""
        new = NewSession(
            id=start.session_id,
            kind=start.kind,
            created=self.clock(),
            workspace=str(root),
            salt=start.salt or "",
            objective=self.redact.clean(goal.objective) or None,
            model=goal.model,
        )
        await self.store.create(new)
        try:
            running = await self._running(start.session_id, root, goal, model, judge, about)
        except UsageError:
            await self.store.discard(start.session_id)
            raise
        running.session.record(start, *events)
        await running.session.commit(durable=True)
        return running

    def _start(
        self, session_id: str, kind: Literal["goal", "chat"], root: Path, about: git.GitState | None, model: str
    ) -> ev.SessionStart:
        return ev.SessionStart(
            session_id=session_id,
            version=VERSION,
            producer=f"endstop {__version__}",
            start_time=codec.stamp(self.clock()),
            kind=kind,
            context=ev.Context(
                cwd=str(root),
                git_root=str(about.root) if about else None,
                branch=about.branch if about else None,
                head_commit=about.head if about else None,
            ),
            selected_model=model,
            salt=secrets.token_hex(16),
        )

    def _opening(
        self, session_id: str, order: Order, root: Path, about: git.GitState | None
    ) -> tuple[ev.SessionStart, ev.GoalQueued]:
        """The first two events of a new journal."""
        start = self._start(session_id, "goal", root, about, order.model)
        goal = ev.GoalQueued(
            goal_id=session_id,
            objective=order.objective,
            contract=order.contract,
            limits=order.limits,
            policy=order.policy,
            model=order.model,
            fallbacks=order.fallbacks,
            workspace=str(root),
            priority=0,
            instructions=read_instructions(root),
        )
        return start, goal

    async def take(self, session_id: str, *, allow: Sequence[str] = ()) -> Running:
        """Take up a session that exists; ``allow`` are permission rules that its goal gets with the event that resumes it.

        Raises:
            UsageError: another process drives it, its folder is gone, another goal works there, or a rule cannot be read.
        """
        row = await self.store.find(session_id)
        state = replay(await self.store.entries(session_id))
        root = self._place(Path(row.workspace))
        queued = with_rules(state.goal.queued, allow) if state.goal else _terms(root, state.model, state.limits, state.rules)
        model = self.model(queued.model)
        judge = self._judge(queued.contract, model)
        about = await git.describe(root)
        return await self._running(session_id, root, queued, model, judge, about)

    async def control(self, session_id: str, event: ev.Event) -> bool:
        """Append a control to any session; False if it came too late."""
        return await control(self.store, session_id, event, clock=self.clock, redact=self.redact)

    def _place(self, path: Path) -> Path:
        """The workspace, and what it can be kept in. Raises UsageError: it cannot be one."""
        root = usable_workspace(path, self.settings.home)
        self.sandbox = detect(root)
        return root

    def permissions(self, policy: ev.Policy, root: Path) -> Permissions:
        """What a policy says to calls in this folder, with the sandbox there is. Raises UsageError: a rule cannot be read."""
        return Permissions(
            policy.mode,
            policy.allow,
            policy.deny,
            policy.ask,
            sandboxed=self.sandbox.kind != "none",
            network=policy.network,
            place=lambda path: inside(root, path),
        )

    def catalog(self, policy: ev.Policy, background: Background | None = None) -> Catalog:
        """The tools of a session; commands go on in the background where there is one."""
        hidden, environment = [self.settings.home], clean_environment(os.environ, _secrets(self.settings))
        shell = Shell(self.sandbox, hidden, policy.network, environment, background=background)
        after: list[Tool] = [Processes(background), ProcessControl(background)] if background else []
        return Catalog([*_tools(shell, hidden), *after, *self.extra], KERNEL_SPECS)

    def _judge(self, contract: ev.Contract, model: Model) -> ModelJudge | None:
        if contract.judge == "none":
            return None
        if contract.judge in ("auto", model.name):
            return ModelJudge(model, independent=False)
        return ModelJudge(self.model(contract.judge), independent=True)

    async def _running(
        self,
        session_id: str,
        root: Path,
        goal: ev.GoalQueued,
        model: Model,
        judge: ModelJudge | None,
        about: git.GitState | None,
    ) -> Running:
        imports.close(root)
        self._closed.append(root)
        hidden, network = [self.settings.home], goal.policy.network
        environment = clean_environment(os.environ, _secrets(self.settings))
        background = Background(self.settings.home / "sessions" / session_id / "processes")
        catalog = self.catalog(goal.policy, background)
        kit = self._kit(catalog, goal.policy, root, model, judge, goal.fallbacks)
        session = await load(self.store, session_id, kit, clock=self.clock, redact=self.redact)
        try:
            await self.store.lock_workspace(root, session.lease)
            servers = await self._join_servers(session_id, goal.policy, root, kit, catalog)
        except BaseException:
            await self.store.release(session.lease)
            raise
        kit.lock, kit.hooks = str(root), tuple(goal.contract.hooks)
        _kill_leftovers(session.state)
        background.attach(session.state.processes)
        folder = Folder(root, self.settings.home / "sessions" / session_id)
        perform = Perform(
            model,
            catalog,
            folder,
            Gates(self.sandbox, hidden, environment, network),
            judge,
            background=background,
            others={name: self.model(name) for name in goal.fallbacks},
            hooks=Hooks(
                session_id,
                self.sandbox,
                hidden,
                environment,
                os.environ,
                network=network,
                mode=goal.policy.mode,
                transcript=partial(self.store.transcript, session_id),
            ),
            attempts=self.settings.retries + 1,
        )
        return Running(session, perform, folder, describe(root, about, model, judge, self.sandbox, goal), kit, servers)

    async def _join_servers(self, session_id: str, policy: ev.Policy, root: Path, kit: Kit, catalog: Catalog) -> Servers | None:
        """Start the MCP servers; their tools join those of the session."""
        if not self.settings.mcp:
            return None
        servers = _servers(
            self.settings.mcp,
            session_id=session_id,
            workspace=root,
            sandbox=self.sandbox,
            hidden=(self.settings.home,),
            network=policy.network,
            environment=os.environ,
            logs=self.settings.home / "mcp",
            clean=self.redact.clean,
        )
        await servers.start()
        try:
            catalog.join(servers.tools)
        except UsageError:
            await servers.close()
            raise
        kit.head_bytes = measure_head(Head(SYSTEM, tuple(catalog.specs.values())))
        return servers

    def _kit(
        self,
        catalog: Catalog,
        policy: ev.Policy,
        root: Path,
        model: Model,
        judge: ModelJudge | None,
        fallbacks: Sequence[str] = (),
    ) -> Kit:
        """What the kernel is told about its surroundings."""
        return Kit(
            tools=catalog.specs,
            rules=self.settings.stall,
            permit=self.permissions(policy, root).decide,
            price=model.price,
            judge_price=judge.model.price if judge else None,
            judge=judge.name if judge else "",
            judge_independent=judge.independent if judge else True,
            max_output=_profile(model).max_output,
            window=model.window,
            sandbox=self.sandbox.kind,
            fallbacks={name: _profile(self.model(name)) for name in fallbacks},
            head_bytes=measure_head(Head(SYSTEM, tuple(catalog.specs.values()))),
        )


def _servers(servers: Sequence[McpServer], **place: Any) -> Servers:
    """The MCP servers of a session, not yet started. Raises UsageError where the library is missing."""
    try:
        from endstop.tools.mcp import Servers  # noqa: PLC0415  heavy and optional
        from endstop.tools.mcp_server import Place  # noqa: PLC0415
    except ModuleNotFoundError:
        hint = "pip install 'endstop[mcp]'"
        raise UsageError("MCP servers need a library that is not installed", where="mcp", hint=hint) from None
    return Servers(servers, Place(**place))


def _terms(root: Path, model: str, limits: dict[str, float], policy: ev.Policy) -> ev.GoalQueued:
    """The terms of a conversation in the shape of a goal's; never journalled."""
    return ev.GoalQueued(
        goal_id="",
        objective="",
        contract=ev.Contract(judge="none"),
        limits=limits,
        policy=policy,
        model=model,
        fallbacks=[],
        workspace=str(root),
        priority=0,
    )


def _profile(model: Model) -> Profile:
    return Profile(model.price, min(model.max_output or 16_000, 1_000_000), model.window)


def _tools(shell: Shell, hidden: Sequence[Path]) -> list[Tool]:
    """The built-in tools."""
    return [shell, ReadFile(hidden), WriteFile(hidden), EditFile(hidden), ListFiles(hidden), Search(hidden), Plan()]


def open_system(settings: Settings, *, tools: Iterable[Tool] = (), clock: Clock = time.time) -> System:
    """The system these settings describe; ``tools`` are further ones, made with ``endstop.tool``."""
    return System(settings, tools=tools, clock=clock)


def _kill_leftovers(state: State) -> None:
    """Commands that outlived a crashed holder: their effect is unknown, and they must not go on beside the new one."""
    for call in open_calls(state):
        if call.state == "started" and call.effect == "shell":
            spawn.kill_marked(mark_of(call.key, call.request.tool_call_id))
    for invocation in state.hooks.running:
        spawn.kill_marked(hooks.mark_of(state.session_id, invocation))


def _secrets(settings: Settings) -> list[str]:
    """Values that must reach no log and no tool."""
    return [*filter(None, settings.keys().values()), *(secret for server in settings.mcp for secret in server.secrets)]
