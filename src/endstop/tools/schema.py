"""JSON Schemas of tools: made from a function's signature, and checked against what a model sends."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import jsonschema_rs
import msgspec

from endstop.errors import UsageError
from endstop.ports import Invocation

SHOWN = 80
"""Characters of a wrong value that are shown back."""


class Signature(msgspec.Struct, frozen=True):
    """What a function takes. ``fields`` converts a call's arguments, ``call_parameter`` gets the call itself."""

    description: str
    parameters: dict[str, Any]
    fields: type[msgspec.Struct]
    call_parameter: str | None

    def convert(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Arguments as the function's own types; those the model left out stay out, so its defaults hold.

        Raises:
            msgspec.ValidationError: a value does not fit its type.
        """
        values = msgspec.convert(arguments, self.fields, strict=False, str_keys=True)
        given = ((name, getattr(values, name)) for name in self.fields.__struct_fields__)
        return {name: value for name, value in given if value is not msgspec.UNSET}


def read_signature(function: Callable[..., Any], name: str) -> Signature:
    """The schema of a function: types from its hints, words from its docstring and from ``Annotated[T, "words"]``.

    Raises:
        UsageError: a parameter cannot be described to a model.
    """
    summary, words = read_docstring(inspect.getdoc(function) or "")
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as error:
        raise _unusable(name, f"a type hint cannot be found: {error}", "define the type at module level") from None
    fields: list[tuple[str, Any, Any]] = []
    defaults: dict[str, Any] = {}
    call_parameter = None
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise _unusable(name, f"parameter {parameter} has no fixed name", "name every parameter")
        hint = hints.get(parameter.name, Any)
        if hint is Invocation:
            call_parameter = parameter.name
            continue
        described = _described(hint, words.get(parameter.name))
        if parameter.default is parameter.empty:
            fields.append((parameter.name, described, msgspec.NODEFAULT))
        else:
            fields.append((parameter.name, described | msgspec.UnsetType, msgspec.UNSET))
            defaults[parameter.name] = parameter.default
    try:
        struct = msgspec.defstruct("arguments", fields, kw_only=True)
        parameters = _schema(struct)
    except (TypeError, ValueError) as error:
        hint = "use str, int, list, dict, Literal or a dataclass"
        raise _unusable(name, f"its signature has no JSON form: {error}", hint) from None
    _show_defaults(parameters["properties"], defaults)
    return Signature(summary, parameters, struct, call_parameter)


def _unusable(name: str, problem: str, hint: str) -> UsageError:
    return UsageError(problem, where=f"tool {name}", hint=hint)


def _described(hint: Any, words: str | None) -> Any:
    """The hint with words for the model; those in ``Annotated`` come before those of the docstring."""
    if get_origin(hint) is Annotated:
        words = next((extra for extra in get_args(hint)[1:] if isinstance(extra, str)), words)
    return Annotated[hint, msgspec.Meta(description=words)] if words else hint


def _schema(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """JSON Schema of a struct. Parts stand where they are used, as some providers cannot follow ``$ref``; only types that
    contain themselves keep their references."""
    (reference,), parts = msgspec.json.schema_components([struct], ref_template="#/$defs/{name}")
    top = parts.pop(_part(reference))
    try:
        top = _inline(top, parts, ())
    except RecursionError:
        top["$defs"] = parts
    top["additionalProperties"] = False
    return dict(top)


def _part(reference: dict[str, str]) -> str:
    return reference["$ref"].removeprefix("#/$defs/")


def _inline(node: Any, parts: dict[str, Any], above: tuple[str, ...]) -> Any:
    if isinstance(node, list):
        return [_inline(item, parts, above) for item in node]
    if not isinstance(node, dict):
        return node
    if not isinstance(node.get("$ref"), str):
        return {key: _inline(value, parts, above) for key, value in node.items() if key != "title" or isinstance(value, dict)}
    name = _part(node)
    if name in above:
        raise RecursionError(name)
    rest = {key: value for key, value in node.items() if key != "$ref"}
    return {**_inline(parts[name], parts, (*above, name)), **rest}


def _show_defaults(properties: dict[str, Any], defaults: dict[str, Any]) -> None:
    """Tell the model the defaults that can be told; None and what has no JSON form say nothing."""
    for name, value in defaults.items():
        if isinstance(value, (str, int, float, bool)):
            properties[name]["default"] = msgspec.to_builtins(value)


# -------------------------------------------------------------------------------------------------------------- docstrings

_SECTION = re.compile(r"^(Args|Arguments|Parameters|Returns|Yields|Raises|Examples?|Notes?|Warnings?):\s*$")
_ARGUMENTS = re.compile(r"^(Args|Arguments|Parameters):\s*$")
_ENTRY = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)$")


def read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """First paragraph, and the words of each parameter in a Google style ``Args:`` section (text without common indent)."""
    lines = text.splitlines()
    summary: list[str] = []
    for line in lines:
        if not line.strip() or _SECTION.match(line):
            break
        summary.append(line.strip())
    start = next((number for number, line in enumerate(lines) if _ARGUMENTS.match(line)), len(lines))
    return " ".join(summary), _entries(lines[start + 1 :])


def _entries(lines: list[str]) -> dict[str, str]:
    words: dict[str, str] = {}
    indent = name = None
    for line in lines:
        if line.strip() and not line[0].isspace():
            break
        depth = len(line) - len(line.lstrip())
        if not line.strip():
            continue
        indent = depth if indent is None else indent
        entry = _ENTRY.match(line.strip()) if depth <= indent else None
        if entry:
            name = entry[1]
            words[name] = entry[2]
        elif name:
            words[name] = f"{words[name]} {line.strip()}".strip()
    return words


# ---------------------------------------------------------------------------------------------------------------- checking


def checker(parameters: dict[str, Any]) -> Callable[[dict[str, Any]], str | None]:
    """What ``ToolSpec.check`` is: one sentence about the first thing wrong with arguments, or None. Compiled at first use."""
    compiled: list[jsonschema_rs.Validator] = []

    def check(arguments: dict[str, Any]) -> str | None:
        try:
            if not compiled:
                compiled.append(jsonschema_rs.Draft202012Validator(parameters, offline=True, validate_formats=True))
            error = next(iter(compiled[0].iter_errors(arguments)), None)
        except ValueError as broken:
            # The schema came from elsewhere. The call is refused: running it unchecked would be worse.
            return f"the tool's own schema cannot be used: {str(broken)[:SHOWN]}"
        return _sentence(error, parameters) if error else None

    return check


def _sentence(error: jsonschema_rs.ValidationError, parameters: dict[str, Any]) -> str:
    """Field, problem, expectation."""
    detail = error.kind.as_dict()
    path = list(error.instance_path)
    field = _field(path)
    match error.kind.name:
        case "required":
            return f"{_field([*path, detail['property']])} is missing"
        case "additionalProperties":
            known = ", ".join(parameters.get("properties", {})) if not path else ""
            unknown = " and ".join(_field([*path, name]) for name in detail["unexpected"][:3])
            return f"{unknown} is not known" + (f"; known are {known}" if known else "")
        case "type":
            problem = f"must be {' or '.join(detail['types'])}"
        case "enum":
            problem = f"must be one of {', '.join(_short(option) for option in detail['options'][:12])}"
        case "anyOf":
            return _no_alternative(error, detail["context"], parameters)
        case "minProperties":
            return f"{field} must hold at least {detail['limit']} of {', '.join(parameters.get('properties', {}))}"
        case "minimum" | "exclusiveMinimum":
            problem = f"must be {'at least' if error.kind.name == 'minimum' else 'more than'} {detail['limit']}"
        case "maximum" | "exclusiveMaximum":
            problem = f"must be {'at most' if error.kind.name == 'maximum' else 'less than'} {detail['limit']}"
        case _:
            return f"{field}: {str(error.message)[:200]}"
    return f"{field} {problem}, got {_short(error.instance)}"


def _no_alternative(
    error: jsonschema_rs.ValidationError, context: list[list[jsonschema_rs.ValidationError]], parameters: dict[str, Any]
) -> str:
    """Of several forms none fits: what is wrong with the one of the right type, else which types there are."""
    first = [branch[0] for branch in context if branch]
    near = next((part for part in first if part.kind.name != "type" or part.instance_path != error.instance_path), None)
    if near:
        return _sentence(near, parameters)
    names = [name for part in first for name in part.kind.as_dict()["types"]]
    return f"{_field(error.instance_path)} must be {' or '.join(dict.fromkeys(names))}, got {_short(error.instance)}"


def _field(path: Sequence[Any]) -> str:
    """A path inside the arguments as the model wrote it: ``items[0].status``."""
    if not path:
        return "the arguments"
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return f'"{text[1:] if text[0] == "." else text}"'


def _short(value: Any) -> str:
    text = msgspec.json.encode(value, enc_hook=str).decode()
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
