"""Writes the tables and diagrams of the documentation that follow from the code.

    python docs/generate.py           write them
    python docs/generate.py --check   say which pages are not current; exit status 1 if any

A page marks the place: ``<!-- generated: NAME -->`` … ``<!-- end -->``. Everything else in it is written by hand.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import msgspec

from endstop.core import events as ev
from endstop.core import limits
from endstop.core.events import EVENTS, KIND_OF, TYPE_OF, Event
from endstop.core.goal import BEGINS, ENDED, LEFT, TARGET, TRANSITIONS
from endstop.core.stall import NEVER, Rule, Rules

DOCS = Path(__file__).resolve().parent
SOURCE = DOCS.parent / "src/endstop"
PLACE = re.compile(r"(<!-- generated: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)

Row = Iterable[str]


def table(head: Row, rows: Iterable[Row]) -> str:
    """A Markdown table."""
    lines = [list(head), ["---"] * len(list(head)), *(list(row) for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def sentence(thing: type) -> str:
    """The docstring of a class on one line, with fields named as on the wire."""
    return re.sub(r"``(\w+)``", lambda found: f"`{camel(found[1])}`", " ".join((thing.__doc__ or "").split())).replace("``", "`")


def camel(name: str) -> str:
    """A field's name as it stands on the wire."""
    first, *more = name.split("_")
    return first + "".join(word.title() for word in more)


# ----------------------------------------------------------------------------------------------------------------- events


def named(kind: Any) -> str:
    """A field's type in a word or two: choices, a number, the name of an object."""
    if kind == ev.Phase:
        return "a phase"
    if get_origin(kind) is Literal:
        return "/".join(str(choice) for choice in get_args(kind))
    if get_origin(kind) in (Union, UnionType):
        return " or ".join(named(part) for part in get_args(kind) if part is not NoneType)
    if get_origin(kind) in (list, tuple):
        return f"[{', '.join(dict.fromkeys(named(part) for part in get_args(kind) if part is not Ellipsis))}]"
    if get_origin(kind) is dict:
        key, value = get_args(kind)
        return "object" if value is Any else f"{{{named(key)}: {named(value)}}}"
    return {str: "text", bool: "bool", int: "int", float: "number"}.get(kind) or kind.__name__


def fields(struct: type[msgspec.Struct]) -> str:
    """The fields of an object as they stand on the wire; ° marks those that may be missing."""
    shown = []
    for field in msgspec.structs.fields(struct):
        word = named(field.type)
        shown.append(f"`{field.encode_name}`{'' if field.required else '°'}{'' if word == 'text' else f' {word}'}")
    return ", ".join(shown)


def written() -> set[str]:
    """Names of all classes that the code makes instances of: events that really come to be."""
    trees = [ast.parse(path.read_bytes()) for path in SOURCE.rglob("*.py") if path.name != "events.py"]
    calls = [node.func for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return {func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "") for func in calls}


def event_table() -> str:
    """All events; those that nothing appends yet are marked."""
    made = written()
    return table(
        ("event", "kind", "data", "means"),
        (
            (f"`{name}`{'' if cls.__name__ in made else ' ¹'}", KIND_OF[cls], fields(cls), sentence(cls))
            for name, cls in EVENTS.items()
        ),
    )


def parts(kind: Any) -> Iterator[type[msgspec.Struct]]:
    """The objects inside a type, at any depth."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
        for field in msgspec.structs.fields(kind):
            yield from parts(field.type)
    for inner in get_args(kind):
        yield from parts(inner)


def object_table() -> str:
    """The objects that stand inside events."""
    found = dict.fromkeys(part for cls in EVENTS.values() for part in parts(cls) if not issubclass(part, Event))
    return table(("object", "fields", "means"), ((part.__name__, fields(part), sentence(part)) for part in found))


# ----------------------------------------------------------------------------------------------------------------- phases

RUNNING = {"queued", "working", "checking", "waiting"}
UNFINISHED = set(get_args(ev.Target))
GROUPS: dict[str, set[str]] = {"ended": set(ENDED), "unfinished": UNFINISHED, "running": RUNNING}
"""Phases that mostly go together, drawn as one box."""


def grouped(phases: Iterable[str]) -> list[str]:
    """Phases with the groups that are all there named instead of their members."""
    left, found = list(phases), []
    for name, members in GROUPS.items():
        if members <= set(left):
            found.append(name)
            left = [phase for phase in left if phase not in members]
    return [*left, *found]


def targets(froms: tuple[str, ...], to: str) -> list[str]:
    """Where a transition may lead."""
    if to == TARGET:
        return grouped(get_args(ev.Target))
    return [to]


def edges() -> Iterator[tuple[str, str, str]]:
    """(from, to, event) of every transition; what goes back to the phase it left is drawn as such."""
    came = {
        "waiting": [phase for froms, _ in TRANSITIONS[ev.GoalParked] for phase in froms],
        "paused": [phase for froms, _ in TRANSITIONS[ev.GoalPaused] for phase in froms],
    }
    for event, rows in TRANSITIONS.items():
        for froms, to in rows:
            for start in grouped(froms):
                for end in grouped(came[start]) if to == LEFT else targets(froms, to):
                    yield start, end, TYPE_OF[event]


def diagram() -> str:
    """All phases as a Mermaid state diagram; arrows between the same two are one."""
    lines = ["```mermaid", "stateDiagram-v2", "    state running {"]
    lines += [f"        {phase}" for phase in ("queued", "working", "checking", "waiting")]
    lines += ["    }", "    state ended {", "        done", "        state unfinished {"]
    lines += [f"            {phase}" for phase in get_args(ev.Target)]
    lines += ["        }", "    }"]
    arrows: dict[tuple[str, str], list[str]] = {}
    for start, end, name in edges():
        arrows.setdefault(("[*]" if start == "none" else start, end), []).append(name)
    lines += [f"    {start} --> {end}: {', '.join(names)}" for (start, end), names in arrows.items()]
    return "\n".join([*lines, "```", ""])


_WORDS = {LEFT: "the phase it left", TARGET: "the target that `goal.closing` named"}


def transition_table() -> str:
    """Every transition of TRANSITIONS."""
    rows = [
        (f"`{TYPE_OF[event]}`", KIND_OF[event], ", ".join(froms), _WORDS.get(to, to))
        for event, found in TRANSITIONS.items()
        for froms, to in found
    ]
    return table(("event", "kind", "from", "to"), rows)


def begins_table() -> str:
    """What may begin in which phase."""
    return table(("may begin", "in"), ((f"`{TYPE_OF[event]}`", ", ".join(grouped(phases))) for event, phases in BEGINS.items()))


# ------------------------------------------------------------------------------------------------------- limits and rules


def axis_table() -> str:
    """Every axis of limits with its default."""
    rows = [
        (f"`{name}`", axis.unit, axis.scope, "on request" if axis.default is None else limits.show(name, axis.default), axis.what)
        for name, axis in limits.AXES.items()
    ]
    return table(("axis", "unit", "per", "default", "counts"), rows)


def rule_table() -> str:
    """Every stall rule with its thresholds."""
    rows = []
    for name in Rules.__struct_fields__:
        rule = getattr(Rules(), name)
        if isinstance(rule, Rule):
            steps = (rule.notice, rule.refuse, rule.halt)
            rows.append((f"`{name}`", *("–" if step == NEVER else str(step) for step in steps)))
    return table(("rule", "notice", "refuse", "halt"), rows)


BLOCKS: Mapping[str, Callable[[], str]] = {
    "events": event_table,
    "objects": object_table,
    "diagram": diagram,
    "transitions": transition_table,
    "begins": begins_table,
    "axes": axis_table,
    "rules": rule_table,
}


def current(text: str) -> str:
    """A page with everything generated in it made anew."""
    return PLACE.sub(lambda found: found[1] + BLOCKS[found[2]]() + found[3], text)


def main(arguments: list[str]) -> int:
    """Write the pages, or with --check only say which are stale."""
    check = arguments == ["--check"]
    if arguments and not check:
        sys.stderr.write("usage: python docs/generate.py [--check]\n")
        return 2
    stale = [path for path in sorted(DOCS.glob("*.md")) if current(path.read_text("utf-8")) != path.read_text("utf-8")]
    for path in stale:
        if check:
            sys.stderr.write(f"docs/{path.name} is not current: python docs/generate.py\n")
        else:
            path.write_text(current(path.read_text("utf-8")), "utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
