"""JSON as models write it: nested too deep, with halves of characters."""

from __future__ import annotations

import json
from typing import Any

import pytest

from endstop.models.lenient import DEEPEST, encode, given_arguments, mend, parse_arguments

HALF = "\\ud800"


def nested(levels: int, core: str = "1", opening: str = '{"a":', closing: str = "}") -> str:
    """JSON of so many levels."""
    return opening * levels + core + closing * levels


@pytest.mark.parametrize("core", ["1", f'"{HALF}"'])
@pytest.mark.parametrize("levels", [DEEPEST + 1, 450, 900, 990, 1500, 100_000])
def test_arguments_that_nest_too_deep_are_raw_text(levels: int, core: str) -> None:
    """Objects and lists beyond the bound stay the text they were, however deep, with or without halves of characters."""
    for text in (nested(levels, core), '{"items":' + nested(levels, core, "[", "]") + "}"):
        found = parse_arguments(text, whole=True)
        assert isinstance(found, str)
        assert found == text


def test_arguments_at_the_bound_are_an_object() -> None:
    """The bound itself is allowed, halves of characters in it are mended."""
    found: Any = parse_arguments(nested(DEEPEST, f'"x{HALF}"'), whole=True)
    for _ in range(DEEPEST):
        found = found["a"]
    assert found == "x�"


def test_arguments_that_came_as_an_object_have_the_same_bound() -> None:
    """What a library parsed is bounded as what is parsed here."""
    assert given_arguments(json.loads(nested(DEEPEST))) == json.loads(nested(DEEPEST))
    assert given_arguments(json.loads(nested(DEEPEST + 1))) == f"(nested deeper than {DEEPEST} levels)"


def test_mending_knows_no_depth_and_leaves_the_original() -> None:
    """A value is mended at any depth that JSON can have, keys too, and what was given is not changed."""
    given = json.loads(nested(900, f'["{HALF}", {{"{HALF}": ["\\ud83d\\ude00", 1, null]}}]'))
    before = json.dumps(given)
    mended = mend(given)
    assert json.dumps(given) == before
    assert encode(given) == encode(mended)
    for _ in range(900):
        mended = mended["a"]
    assert mended == ["�", {"�": ["😀", 1, None]}]
