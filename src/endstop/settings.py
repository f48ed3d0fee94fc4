"""Settings: files, environment and flags become one frozen ``Settings``, read once.

    $XDG_CONFIG_HOME/endstop/endstop.toml    the user's own
    endstop.toml                             the project's: from the workspace upward to the git root, the first found
    goal.toml                                one goal; the same keys, and an objective
    ENDSTOP_*                                the environment
    flags                                    the command line

Each source beats those above it, key by key; ``allow``, ``deny``, ``ask`` and hooks add up instead, so that nothing that comes
later takes a guard away. ``Settings.origin`` says where each value came from. A project's file is written by whoever wrote the
repository, or by the agent: it may not say where state lives, nor where a key is sent, and its hooks run in the sandbox.
``.env`` is never read.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET, Meta, UnsetType

from endstop.core import hooks, limits
from endstop.core.events import Contract, Gate, HookOn, Policy
from endstop.core.stall import NEVER, Rule, Rules
from endstop.errors import UsageError
from endstop.servers import Kind, McpServer, McpTable, check_url, expand, refuse_foreign, servers

FILE = "endstop.toml"
DEFAULT = "default"
FLAGS = "command line"
RETRIES = 4
"""How often a call that failed in a way that may pass is made again."""
LARGEST = 1 << 20
"""Bytes of a settings file above which it is not read."""

Protect = Literal["flag", "refuse", "restore"]
Mode = Literal["plan", "ask", "auto", "yolo"]
Confront = Literal["once", "always", "never"]
Humans = Literal["auto", "park", "deny"]
Review = Literal["none", "human"]
OnHalt = Literal["end", "ask"]
Effort = Literal["low", "medium", "high"]
Text = Annotated[str, Meta(min_length=1)]
Natural = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]
Amount = Annotated[float, Meta(ge=0)]
Step = Positive | Literal["never"]


class Table(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Root of what a settings file may hold. What is not set is not there."""


class Permissions(Table, kw_only=True):
    """``[permissions]``: what a goal may do. See docs/permissions.md for rules and modes."""

    mode: Mode | UnsetType = UNSET
    allow: list[Text] | UnsetType = UNSET
    deny: list[Text] | UnsetType = UNSET
    ask: list[Text] | UnsetType = UNSET
    network: bool | UnsetType = UNSET
    humans: Humans | UnsetType = UNSET


class GateTable(Table, kw_only=True):
    """``[[gate]]``: a command whose exit status 0 means it passes. ``timeout`` in seconds."""

    run: Text
    timeout: Seconds = 600.0
    retries: Natural = 0
    external: bool = False
    paths: list[Text] = []


class HookTable(Table, kw_only=True):
    """``[[hook]]``: a command that runs on an occasion and may object. ``timeout`` in seconds."""

    on: HookOn
    run: Text
    matcher: str = ""
    timeout: Seconds = 60.0


class RuleTable(Table, kw_only=True):
    """``[stall] repeat.notice = 3``: counts at which a rule notices, refuses, halts; or "never"."""

    notice: Step | UnsetType = UNSET
    refuse: Step | UnsetType = UNSET
    halt: Step | UnsetType = UNSET


class StallTable(Table, kw_only=True):
    """``[stall]``: the stall rules, all together or one by one."""

    on: bool | UnsetType = UNSET
    refusals: Positive | UnsetType = UNSET
    repeat: RuleTable | UnsetType = UNSET
    failing: RuleTable | UnsetType = UNSET
    same_failure: RuleTable | UnsetType = UNSET
    same_answer: RuleTable | UnsetType = UNSET
    poller: RuleTable | UnsetType = UNSET
    denied: RuleTable | UnsetType = UNSET
    unknown_tool: RuleTable | UnsetType = UNSET
    malformed: RuleTable | UnsetType = UNSET
    no_action: RuleTable | UnsetType = UNSET
    no_progress: RuleTable | UnsetType = UNSET
    oscillation: RuleTable | UnsetType = UNSET
    degenerate_text: RuleTable | UnsetType = UNSET


class PriceTable(Table, kw_only=True):
    """USD per million tokens. A cache price that is not given is the input price."""

    input: Amount
    output: Amount
    cache_read: Amount | UnsetType = UNSET
    cache_write: Amount | UnsetType = UNSET


class ProviderTable(Table, kw_only=True):
    """``[providers.NAME]``. ``window`` and ``max_output`` in tokens, ``concurrency`` calls at the same time, ``effort`` how much
    to think in the provider's own word."""

    base_url: Text | UnsetType = UNSET
    api_key_env: Text | UnsetType = UNSET
    window: Positive | UnsetType = UNSET
    max_output: Positive | UnsetType = UNSET
    concurrency: Positive | UnsetType = UNSET
    effort: Text | UnsetType = UNSET
    price: PriceTable | UnsetType = UNSET


class Given(Table, kw_only=True):
    """Everything one source may say."""

    objective: Text | UnsetType = UNSET
    model: Text | UnsetType = UNSET
    fallbacks: list[Text] | UnsetType = UNSET
    effort: Effort | UnsetType = UNSET
    judge: Text | UnsetType = UNSET
    rubric: Text | UnsetType = UNSET
    workspace: Text | UnsetType = UNSET
    home: Text | UnsetType = UNSET
    gate: list[GateTable] | UnsetType = UNSET
    hook: list[HookTable] | UnsetType = UNSET
    deliverables: list[Text] | UnsetType = UNSET
    protect: Text | list[Text] | UnsetType = UNSET
    confront: Confront | UnsetType = UNSET
    review: Review | UnsetType = UNSET
    on_halt: OnHalt | UnsetType = UNSET
    baseline: bool | UnsetType = UNSET
    accept_claimed: bool | UnsetType = UNSET
    retry: Natural | UnsetType = UNSET
    limits: dict[str, str | int | float] | UnsetType = UNSET
    permissions: Permissions | UnsetType = UNSET
    stall: StallTable | UnsetType = UNSET
    providers: dict[str, ProviderTable] | UnsetType = UNSET
    mcp: dict[str, McpTable] | UnsetType = UNSET
    mcp_config: Text | UnsetType = UNSET


TABLES: dict[str, type[msgspec.Struct]] = {
    "": Given,
    "permissions": Permissions,
    "gate": GateTable,
    "hook": HookTable,
    "stall": StallTable,
    "providers": ProviderTable,
    "mcp": McpTable,
    "price": PriceTable,
    **{name: RuleTable for name in Rules.__struct_fields__ if name not in ("on", "refusals")},
}
"""Which table stands behind a name, "" for the whole file."""

_PLAIN = ("home", "model", "effort", "judge", "workspace", "protect", "confront", "accept_claimed", "retry", "limits")
VARIABLES: dict[str, str] = {f"ENDSTOP_{key.upper()}": key for key in (*_PLAIN, "mcp_config")} | {
    "ENDSTOP_MODE": "permissions.mode",
    "ENDSTOP_NETWORK": "permissions.network",
    "ENDSTOP_STALL": "stall.on",
}
"""Environment variables and the keys they set. ENDSTOP_LIMITS is a list: ``cost=2usd,turns=60``."""
_NOT_OURS = {"ENDSTOP_CALL"}  # marks processes that a goal began
_SECRET = re.compile(r"_(KEY|TOKEN|SECRET|PASSWORD|PASSPHRASE)$")


class Environment(dict[str, str]):
    """The environment as it was at the start. Its repr shows no value."""

    def __repr__(self) -> str:
        return f"Environment({len(self)} variables)"


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """What the user says of a provider; None where he says nothing. ``price`` in USD per million tokens."""

    base_url: str | None = None
    api_key_env: str | None = None
    window: int | None = None
    max_output: int | None = None
    concurrency: int | None = None
    effort: str | None = None
    price: dict[str, float] | None = None


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the user decided. ``limits`` are caps by axis (an axis that is not there is unlimited); ``explicit`` are
    the axes the user gave a cap himself. ``files`` are those that were read."""

    objective: str | None
    model: str | None
    effort: str | None
    fallbacks: tuple[str, ...]
    workspace: Path
    home: Path
    contract: Contract
    policy: Policy
    limits: dict[str, float]
    explicit: frozenset[str]
    stall: Rules
    retries: int
    providers: dict[str, Provider]
    mcp: tuple[McpServer, ...]
    environment: Environment
    origin: dict[str, str]
    files: tuple[Path, ...]

    @property
    def judge(self) -> str:
        """auto, none, or a model."""
        return self.contract.judge

    def keys(self) -> dict[str, str]:
        """Every variable that holds a secret, by its name or because a provider's settings name it: keys to send, and what
        must reach no log and no tool."""
        named = {provider.api_key_env for provider in self.providers.values()}
        return {name: value for name, value in self.environment.items() if value and (name in named or _SECRET.search(name))}

    def provider(self, name: str) -> Provider:
        """What is set for a provider; its ``NAME_BASE_URL`` in the environment beats the files.

        Raises:
            UsageError: the variable holds no usable address.
        """
        known = self.providers.get(name, Provider())
        variable = f"{name.upper().replace('-', '_')}_BASE_URL"
        url = self.environment.get(variable, "").strip()
        if not url:
            return known
        check_url(url, variable)
        return msgspec.structs.replace(known, base_url=url)

    def came(self, key: str) -> str:
        """Where a value came from: a file, a variable, "command line" or "default"."""
        return self.origin.get(key, DEFAULT)


def load(
    *,
    cwd: Path,
    environ: Mapping[str, str],
    flags: Mapping[str, Any] | None = None,
    goal: Path | None = None,
) -> Settings:
    """Read every source.

    Args:
        cwd: where relative paths of flags and environment begin, and the workspace unless another is named.
        flags: what the command line says, in the shape of a settings file.
        goal: a goal file.

    Raises:
        UsageError: a file, key, variable or value cannot be used; says which and what to write instead.
    """
    user = _user_file(environ)
    mine = [(str(user), read_file(user))] if user.exists() else []
    pursued = [(str(goal), read_file(goal, foreign=True))] if goal else []
    typed = [*_variables(environ, cwd), (FLAGS, _checked(dict(flags or {}), FLAGS, cwd))]
    start = next((said["workspace"] for _, said in reversed([*mine, *pursued, *typed]) if "workspace" in said), str(cwd))
    found = find_project(_folder(start))
    files = [*mine, *([(str(found), read_project(found))] if found else []), *pursued]
    merged: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for where, said in [*files, *typed]:
        _merge(merged, said, origin, where)
    return _settings(merged, origin, tuple(Path(where) for where, _ in files), cwd, environ)


def read_file(path: Path, *, foreign: bool = False) -> dict[str, Any]:
    """What a settings or goal file says, checked, with its relative paths made absolute.

    Args:
        foreign: somebody else may have written it: it may not redirect keys or state.

    Raises:
        UsageError: it cannot be read, is no TOML, or holds what is not known.
    """
    where = str(path)
    try:
        if not path.is_file() or path.stat().st_size > LARGEST:
            hint = "settings and goals are files of at most 1 MiB; an objective is more than one word"
            raise UsageError("there is no such file", where=where, hint=hint)
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", where=where, hint="repair or remove it") from None
    except UnicodeDecodeError:
        raise UsageError("is not UTF-8 text", where=where, hint="save it as UTF-8") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"is not TOML: {error or 'nested too deeply'}", where=where, hint="see https://toml.io") from None
    checked = _checked(found, where, path.parent)
    if foreign:
        _refuse_redirects(checked, where)
    for table in () if foreign else checked.get("hook", ()):
        table["own"] = True  # it runs with all rights of the user, who wrote it
    return checked


def read_project(path: Path) -> dict[str, Any]:
    """As ``read_file``, of a project's own settings: the workspace they name lies in the project.

    Raises:
        UsageError: as there.
    """
    said = read_file(path, foreign=True)
    folder = Path(said.get("workspace", path.parent)).resolve()
    if not folder.is_relative_to(path.parent.resolve()):
        where = f"{path}: workspace"
        raise UsageError("a project may not send the work elsewhere", where=where, hint="name a folder below it, or use -C")
    return said


def find_project(workspace: Path) -> Path | None:
    """The project's settings file: in the workspace, or above it up to the git root; outside a repository only in it."""
    upward = [workspace, *workspace.parents]
    root = next((number for number, folder in enumerate(upward) if os.path.lexists(folder / ".git")), 0)
    return next((folder / FILE for folder in upward[: root + 1] if os.path.lexists(folder / FILE)), None)


# -------------------------------------------------------------------------------------------------------------- one source


def _user_file(environ: Mapping[str, str]) -> Path:
    return _xdg(environ, "XDG_CONFIG_HOME", ".config") / "endstop" / FILE


def _xdg(environ: Mapping[str, str], variable: str, default: str) -> Path:
    folder = environ.get(variable, "")
    if os.path.isabs(folder):  # a relative one is to be ignored, says the XDG specification
        return Path(folder)
    return Path(environ.get("HOME") or os.path.expanduser("~"), default)


def _folder(path: str) -> Path:
    folder = Path(path)
    if not folder.is_dir():
        raise UsageError("the workspace is not a folder", where=path, hint="create it, or name another with -C")
    return folder.resolve()


def _variables(environ: Mapping[str, str], cwd: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """What each ENDSTOP_* variable says; an empty one says nothing."""
    for name, raw in environ.items():
        if not name.startswith("ENDSTOP_") or name in _NOT_OURS or not raw.strip():
            continue
        if name not in VARIABLES:
            raise UsageError("no setting has this name", where=name, hint=_near(name, VARIABLES))
        table, dot, key = VARIABLES[name].rpartition(".")
        value: Any = raw.strip()
        if key == "limits":
            value = {axis.strip(): cap for axis, _, cap in (part.partition("=") for part in raw.split(",") if part.strip())}
        yield name, _checked({table: {key: value}} if dot else {key: value}, name, cwd, lax=True)


def _checked(found: dict[str, Any], where: str, folder: Path, *, lax: bool = False) -> dict[str, Any]:
    """One source as plain objects that hold only what it sets: types checked, limits as caps, paths absolute."""
    try:
        given = msgspec.convert(found, Given, strict=not lax)
    except msgspec.ValidationError as error:
        raise _complaint(str(error), where) from None
    said: dict[str, Any] = msgspec.to_builtins(given)
    if "limits" in said:
        said["limits"] = {axis: _cap(axis, value, where) for axis, value in said["limits"].items()}
    for number, table in enumerate(said.get("hook", ()), 1):
        hooks.make(**table, where=f"{where}: hook {number}.")
    for name, provider in said.get("providers", {}).items():
        if "base_url" in provider:
            check_url(provider["base_url"], f"{where}: providers.{name}.base_url")
    for key in said.keys() & {"workspace", "home"}:
        said[key] = os.path.join(folder, os.path.expanduser(said[key]))
    for key in said.keys() & {"model", "judge", "fallbacks"}:
        said[key] = _from_anywhere(said[key], folder)
    expand(said, where, folder)
    return said


def _from_anywhere(model: Any, folder: Path) -> Any:
    """A model that is played from a file, or a list of models, named so that the goal resumes from any folder."""
    if isinstance(model, list):
        return [_from_anywhere(one, folder) for one in model]
    provider, _, path = model.partition(":")
    played = provider in ("scripted", "replay") and path
    return f"{provider}:{os.path.abspath(folder / Path(path).expanduser())}" if played else model


def _cap(axis: str, value: str | int | float, where: str) -> float | None:
    if axis not in limits.AXES and not axis.startswith("tool:"):
        named = "--limit" if where == FLAGS else f"{where}: limits"
        raise UsageError(f"no limit is called '{axis}'", where=named, hint=_near(axis, [*limits.AXES, "tool:NAME"]))
    try:
        return limits.parse(f"{axis}={value}")[1]
    except UsageError as error:
        named = error.where if where == FLAGS else f"{where}: {error.where}"
        raise UsageError(error.message, where=named, hint=error.hint) from None


def _refuse_redirects(said: dict[str, Any], where: str) -> None:
    hint = f"set it in your own file, ~/.config/endstop/{FILE}, or in the environment"
    refuse_foreign(said, where)
    if "home" in said:
        raise UsageError("a project may not say where state lives", where=f"{where}: home", hint=hint)
    if said.get("permissions", {}).get("mode") == "yolo":
        raise UsageError("a project may not switch all questions off", where=f"{where}: permissions.mode", hint=hint)
    for name, provider in said.get("providers", {}).items():
        at = f"{where}: providers.{name}"
        if "api_key_env" in provider:
            raise UsageError("a project may not choose the key that is sent", where=f"{at}.api_key_env", hint=hint)
        if "base_url" in provider and not _loopback(provider["base_url"]):
            raise UsageError("a project may not say where a key is sent", where=f"{at}.base_url", hint=hint)


def _loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


# ----------------------------------------------------------------------------------------------------------------- words

_AT = re.compile(r" - at `(?:key in )?\$\.?([^`]*)`")
_UNKNOWN = re.compile(r"unknown field `([^`]*)`")
_WORDS = {"mode": Mode, "confront": Confront, "humans": Humans, "review": Review, "on_halt": OnHalt, "effort": Effort}
_TABLE_WORDS = {"hook.on": HookOn, "effects": Kind}
CHOICES: dict[str, tuple[str, ...]] = {key: get_args(kind) for key, kind in (_WORDS | _TABLE_WORDS).items()}
_HINTS = {
    **{key: f"one of {', '.join(choices)}" for key, choices in CHOICES.items()},
    **dict.fromkeys(Rule.__struct_fields__, 'a whole number from 1, or "never"'),
    "limits": 'an amount: "2usd", 60 or "none"',
    "bool": "write true or false",
    "int": "write a whole number",
    "float": "write a number",
    "str": 'write text in quotes: "…"',
    "array": 'write a list: ["…", "…"]',
    "object": "write it as a table",
}


def _complaint(text: str, where: str) -> UsageError:
    """A validator's complaint in words: file, key, what, remedy."""
    at = _AT.search(text)
    place = re.sub(r"\[(\d+)\]", lambda found: f" {int(found[1]) + 1}", at[1] if at else "").replace("[...]", ".NAME")
    key = re.split(r"[ .]", re.sub(r" \d+$|\.NAME$", "", place))[-1]
    key = "hook.on" if re.fullmatch(r"hook \d+\.on", place) else key
    unknown = _UNKNOWN.search(text)
    if unknown:
        table = TABLES.get(key, Given)
        inside = f"{place}.{unknown[1]}" if place else unknown[1]
        return UsageError("no setting has this name", where=f"{where}: {inside}", hint=_near(unknown[1], table.__struct_fields__))
    said = (text[: at.start()] if at else text).replace("`", "")
    wanted = re.match(r"Expected ([a-z]+)", said)
    hint = _HINTS.get(key) or _HINTS.get(wanted[1] if wanted else "", "see docs/settings.md")
    said = said.replace("Object missing required field", "lacks").replace("Expected", "expected")
    named = re.search(r"Invalid enum value (.+)", said)
    said = f"unknown value {named[1].strip(' -')}" if named else "unknown value" if key in CHOICES else said
    return UsageError(said, where=f"{where}: {place}" if place else where, hint=hint)


def _near(name: str, known: Any) -> str:
    near = get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"


# ----------------------------------------------------------------------------------------------------------------- merging


def _merge(into: dict[str, Any], said: Mapping[str, Any], origin: dict[str, str], where: str, path: str = "") -> None:
    """Put one source on top of the others, key by key."""
    for key, value in said.items():
        full, source = f"{path}{key}", where
        if isinstance(value, dict):
            _merge(into.setdefault(key, {}), value, origin, where, f"{full}.")
            continue
        if full in ("permissions.allow", "permissions.deny", "permissions.ask", "hook"):
            joined = [*into.get(key, ()), *value]
            value = [item for at, item in enumerate(joined) if item not in joined[:at]]
            source = f"{origin[full]}, {where}" if full in origin else where
        into[key], origin[full] = value, source


def _settings(
    merged: dict[str, Any], origin: dict[str, str], files: tuple[Path, ...], cwd: Path, environ: Mapping[str, str]
) -> Settings:
    caps = {**limits.DEFAULTS, **merged.get("limits", {})}
    home = merged.get("home") or _xdg(environ, "XDG_STATE_HOME", ".local/state") / "endstop"
    return Settings(
        objective=merged.get("objective"),
        model=merged.get("model"),
        effort=merged.get("effort"),
        fallbacks=tuple(merged.get("fallbacks", ())),
        workspace=_folder(merged.get("workspace") or str(cwd)),
        home=Path(os.path.abspath(home)),
        contract=_contract(merged),
        policy=Policy(**merged.get("permissions", {}), **_only(merged, "on_halt", "accept_claimed")),
        limits={axis: cap for axis, cap in caps.items() if cap is not None},
        explicit=frozenset(axis for axis, cap in merged.get("limits", {}).items() if cap is not None),
        stall=_rules(merged.get("stall", {})),
        retries=merged.get("retry", RETRIES),
        providers={name: Provider(**table) for name, table in merged.get("providers", {}).items()},
        mcp=servers(merged, environ),
        environment=Environment(environ),
        origin=origin,
        files=files,
    )


def _contract(merged: dict[str, Any]) -> Contract:
    gates = [Gate(gate_id=f"gate-{number}", **table) for number, table in enumerate(merged.get("gate", ()), 1)]
    protect = merged.get("protect", "refuse")
    words = [protect] if isinstance(protect, str) else protect
    actions = [word for word in words if word in get_args(Protect)]
    inputs = [word for word in words if word not in actions]
    if "restore" in actions:
        raise UsageError("restore is not there yet", where="protect", hint="refuse returns a claim that changed verifier inputs")
    if len(actions) > 1:
        raise UsageError(f"protect says {' and '.join(actions)}", where="protect", hint="name one of them, and paths")
    return Contract(
        gates=gates,
        protect=actions[0] if actions else "refuse",  # type: ignore[arg-type]
        inputs=list(dict.fromkeys([*inputs, *(path for gate in gates for path in gate.paths)])),
        hooks=[hooks.make(**table) for table in merged.get("hook", ())],
        **_only(merged, "deliverables", "rubric", "judge", "review", "confront", "baseline"),
    )


def _only(merged: dict[str, Any], *keys: str) -> dict[str, Any]:
    """What is set of these keys; for the others the struct's own defaults hold."""
    return {key: merged[key] for key in keys if key in merged}


def _rules(table: dict[str, Any]) -> Rules:
    """The stall rules with what is set on top of the defaults."""

    def changed(name: str, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        steps = {step: NEVER if count == "never" else count for step, count in value.items()}
        return msgspec.structs.replace(getattr(Rules(), name), **steps)

    return msgspec.structs.replace(Rules(), **{name: changed(name, value) for name, value in table.items()})
