"""Any function as a tool, and the catalogue that checks what a model sends it."""

from __future__ import annotations

import asyncio
import enum
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from endstop.errors import ToolError, UsageError
from endstop.ports import Invocation, Outcome
from endstop.tools.catalog import Catalog
from endstop.tools.functions import BOUND, FunctionTool, tool
from endstop.tools.kernel import KERNEL_SPECS


class Colour(enum.Enum):
    """A colour."""

    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    """A point."""

    x: int
    colour: Colour = Colour.RED


class Options(TypedDict, total=False):
    """Options."""

    deep: bool


class Tree(msgspec.Struct):
    """A tree."""

    name: str
    children: list[Tree] = []


def call(function: FunctionTool[Any, Any], **arguments: Any) -> Outcome:
    invocation = Invocation(tool_call_id="c1", arguments=arguments, key="k1", workspace=Path("/w"))
    return asyncio.run(function.run(invocation))


def refused(function: FunctionTool[Any, Any], arguments: dict[str, Any]) -> str | None:
    check = Catalog([function]).specs[function.spec.name].check
    assert check
    return check(arguments)


@tool
def describe(
    point: Point,
    size: Literal["s", "m"] = "s",
    tags: list[str] | None = None,
    pair: tuple[int, str] = (1, "a"),
    weight: Annotated[float, "in kg"] = 1.5,
    options: Options | None = None,
    anything: Any = None,
) -> list[Any]:
    """Say what was given,
    on two lines.

    Not for the model.

    Args:
        point (Point): Where
            it is.
        size: How large.

    Returns:
        weight: not a parameter
    """
    return [type(point).__name__, point.colour.value, size, tags, pair, weight, options, anything]


def test_schema_comes_from_hints_and_docstring() -> None:
    """Types, defaults and words reach the model in one schema without references."""
    parameters = describe.spec.parameters
    properties = parameters["properties"]
    assert describe.spec.description == "Say what was given, on two lines."
    assert (parameters["required"], parameters["additionalProperties"]) == (["point"], False)
    assert properties["point"]["description"] == "Where it is."
    assert properties["point"]["properties"]["colour"] == {"enum": ["blue", "red"], "description": "A colour.", "default": "red"}
    assert properties["size"] == {"enum": ["m", "s"], "description": "How large.", "default": "s"}
    assert properties["weight"] == {"type": "number", "description": "in kg", "default": 1.5}
    assert "description" not in properties["tags"]
    assert "$ref" not in str(parameters)


def test_arguments_arrive_as_the_functions_own_types() -> None:
    """What the model sends is converted, what it leaves out is the function's default, and the function stays callable."""
    outcome = call(describe, point={"x": 1, "colour": "blue"}, tags=["a"], options={"deep": True}, anything={"k": [1]})
    assert (outcome.success, outcome.content) == (True, '["Point","blue","s",["a"],[1,"a"],1.5,{"deep":true},{"k":[1]}]')
    assert describe(Point(1))[1] == "red"


def test_a_type_that_contains_itself_keeps_its_references() -> None:
    """A recursive type works, checked and converted."""

    def count(tree: Tree) -> int:
        return 1 + sum(count(child) for child in tree.children)

    counter = FunctionTool(count)
    tree = {"name": "a", "children": [{"name": "b", "children": []}]}
    assert refused(counter, {"tree": tree}) is None
    assert refused(counter, {"tree": {"name": "a", "children": [{}]}}) == '"tree.children[0].name" is missing'
    assert call(counter, tree=tree).content == "2"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({}, '"point" is missing'),
        ({"point": {}}, '"point.x" is missing'),
        ({"point": {"x": "1"}}, '"point.x" must be integer, got "1"'),
        ({"point": {"x": 1, "colour": "green"}}, '"point.colour" must be one of "blue", "red", got "green"'),
        ({"point": {"x": 1}, "tags": "a"}, '"tags" must be array or null, got "a"'),
        ({"point": {"x": 1}, "tags": [1]}, '"tags[0]" must be string, got 1'),
        ({"point": {"x": 1}, "weight": "heavy" * 100}, f'"weight" must be number, got "{("heavy" * 100)[:79]}…'),
        (
            {"point": {"x": 1}, "Size": "s"},
            '"Size" is not known; known are point, size, tags, pair, weight, options, anything, again',
        ),
    ],
)
def test_wrong_arguments_are_named_in_one_sentence(arguments: dict[str, Any], sentence: str) -> None:
    """Field, problem and expectation stand in one short sentence."""
    assert refused(describe, arguments) == sentence


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.dictionaries(st.text(), inner) | st.lists(inner),
    )
)
def test_no_argument_breaks_the_check(value: Any) -> None:
    """Whatever stands in an argument, the check answers with a sentence or None."""
    sentence = refused(describe, {"point": value, "anything": value})
    assert sentence is None or len(sentence) < 400


@pytest.mark.parametrize(
    ("value", "content"),
    [("text", "text"), (None, "done"), (3, "3"), ([1, "ü"], '[1,"ü"]'), (Point(1), '{"x":1,"colour":"red"}'), ("\ud800", "?")],
)
def test_returned_values_become_text(value: Any, content: str) -> None:
    """Text stays, None is done, everything else is JSON that can be recorded."""

    def give() -> Any:
        return value

    assert call(FunctionTool(give)) == Outcome(success=True, content=content)


def test_a_long_result_is_shortened_and_kept_whole() -> None:
    """The model reads both ends of a long result; all of it is kept beside."""

    def give() -> str:
        return "a" * BOUND + "z"

    outcome = call(FunctionTool(give))
    assert outcome.content.startswith("aaa")
    assert outcome.content.endswith("z")
    assert len(outcome.content) < BOUND + 100
    assert outcome.full == give().encode()


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ValueError("no such town"), "failed", "ValueError: no such town"),
        (KeyError("x"), "failed", "KeyError: 'x'"),
        (ToolError("denied", "closed", hint="come back"), "denied", "ToolError: closed (come back)"),
        (TimeoutError(), "failed", "TimeoutError"),
        (SystemExit(3), "failed", "SystemExit: 3"),
        (StopIteration("x"), "failed", "StopIteration: x"),
    ],
)
@pytest.mark.parametrize("asynchronous", [False, True])
def test_exceptions_become_results(error: BaseException, code: str, message: str, asynchronous: bool) -> None:
    """Whatever a function raises is its result, the type first; nothing ends the run."""

    def fail() -> None:
        raise error

    async def fail_later() -> None:
        raise error

    outcome = call(FunctionTool(fail_later if asynchronous else fail))
    assert not outcome.success
    assert outcome.error
    assert outcome.error.code == code
    if not isinstance(error, StopIteration):  # which a coroutine or a thread cannot raise as itself
        assert outcome.error.message == outcome.content == message


def test_a_sync_function_does_not_block_the_loop() -> None:
    """While a sync function waits, the loop goes on: here it is the loop that lets the function end."""
    released = threading.Event()

    @tool
    def wait() -> bool:
        return released.wait(10)

    async def main() -> Outcome:
        running = asyncio.create_task(wait.run(Invocation(tool_call_id="c", arguments={}, key="k", workspace=Path("/w"))))
        await asyncio.sleep(0)
        released.set()
        return await running

    assert asyncio.run(main()).content == "true"


def test_the_call_itself_can_be_asked_for() -> None:
    """A parameter annotated Invocation gets the call and is hidden from the model."""

    @tool(effect="idempotent")
    async def pay(amount: int, call: Invocation) -> str:
        return f"{amount} {call.key}"

    assert list(pay.spec.parameters["properties"]) == ["amount"]
    assert call(pay, amount=3).content == "3 k1"


def test_options_stand_in_the_spec() -> None:
    """Each option of the decorator is what kernel and guards read; without options a tool may write and is the user's own."""

    @tool(name="look", effect="read", repeatable=True, irreversible=True, timeout=2.5, poller=True)
    def function() -> None:
        """Look."""

    spec = function.spec
    assert (spec.name, spec.effect, spec.repeatable, spec.irreversible, spec.timeout, spec.poller, spec.own) == (
        *("look", "read", True, True, 2.5, True),
        True,
    )
    assert (describe.spec.effect, describe.spec.own, describe.spec.irreversible) == ("write", True, False)


def starred(*args: int) -> None: ...


def positional(a: int, /) -> None: ...


def unknown(a: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821


def two_classes(a: Point | Tree) -> None: ...


def generator() -> Any:
    yield 1


@pytest.mark.parametrize("function", [starred, positional, unknown, two_classes, generator, Point, 3])
def test_what_cannot_be_a_tool_is_refused_with_a_remedy(function: Any) -> None:
    """A signature that cannot be told to a model is refused where it is written."""
    with pytest.raises(UsageError) as caught:
        tool(function)
    assert "tool " in caught.value.where
    assert caught.value.hint


def test_catalogue_refuses_doubles_and_bad_names() -> None:
    """Two tools of one name, or a name no provider takes, are refused; an unknown one is answered with those there are."""
    with pytest.raises(UsageError, match="two tools are called describe"):
        Catalog([describe, describe])
    with pytest.raises(UsageError, match="no name for a tool"):
        Catalog([FunctionTool(starless, name="a b")])
    with pytest.raises(UsageError, match="there are describe"):
        Catalog([describe]).get("descibe")


def starless() -> None: ...


def test_again_is_added_and_taken_off() -> None:
    """A tool that runs once per call takes ``again``, and never sees it; others are left as they are."""
    reading = FunctionTool(starless, name="reading", effect="read")
    catalog = Catalog([describe, reading], KERNEL_SPECS)
    arguments = {"point": {"x": 1}, "again": "it was lost"}
    assert "again" in catalog.specs["describe"].parameters["properties"]
    assert "again" not in catalog.specs["reading"].parameters["properties"]
    assert "again" not in describe.spec.parameters["properties"]
    assert catalog.bare("describe", arguments) == {"point": {"x": 1}}
    assert catalog.bare("wait", {"seconds": 1}) == {"seconds": 1}
    check = catalog.specs["describe"].check
    assert check
    assert check(arguments) is None


def test_a_tool_with_a_broken_schema_is_refused_not_run() -> None:
    """A schema from elsewhere that cannot be used refuses its calls, with the reason."""
    broken = FunctionTool(starless)
    broken.spec = msgspec.structs.replace(broken.spec, parameters={"type": 3}, effect="read")
    assert "own schema cannot be used" in (refused(broken, {}) or "")
    broken.spec = msgspec.structs.replace(broken.spec, parameters={"$ref": "http://127.0.0.1:9/x"})
    assert "own schema cannot be used" in (refused(broken, {}) or "")


@pytest.mark.parametrize(
    ("name", "arguments", "problem"),
    [
        ("wait", {"seconds": 5}, None),
        ("wait", {"file": "out.txt", "until": "2026-11-30T17:02:11Z"}, None),
        ("wait", {}, "the arguments must hold at least 1 of seconds, until, file, process"),
        ("wait", {"seconds": 0}, '"seconds" must be more than 0, got 0'),
        ("wait", {"seconds": 90_000}, '"seconds" must be at most 86400, got 90000'),
        ("wait", {"until": "soon"}, '"until": "soon" is not a "date-time"'),
        ("ask_user", {"question": "Which?", "options": ["a"], "allow_freeform": False}, None),
        ("task_complete", {"summary": ""}, '"summary": "" is shorter than 1 character'),
        ("report_blocked", {"reason": "x", "needs": []}, '"needs": [] has less than 1 item'),
    ],
)
def test_calls_that_the_kernel_answers(name: str, arguments: dict[str, Any], problem: str | None) -> None:
    """The kernel's own calls are checked like any other."""
    spec = Catalog([], KERNEL_SPECS).specs[name]
    assert spec.effect == "attached"
    assert spec.check
    assert spec.check(arguments) == problem
