"""What is public says what it is."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src/endstop"
MODULES = sorted(SOURCE.rglob("*.py"))
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def public(tree: Documented, path: str = "") -> Iterator[tuple[str, Documented]]:
    """The public classes, functions and methods below a module or class, by name. Overloads are of one function."""
    for node in tree.body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or node.name.startswith("_"):
            continue
        if any(isinstance(decorator, ast.Name) and decorator.id == "overload" for decorator in node.decorator_list):
            continue
        yield f"{path}{node.name}", node
        if isinstance(node, ast.ClassDef):
            yield from public(node, f"{path}{node.name}.")


def undocumented(source: str) -> list[str]:
    """What lacks a docstring in a module."""
    tree = ast.parse(source)
    return [name for name, node in [("the module", tree), *public(tree)] if not (ast.get_docstring(node) or "").strip()]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_everything_public_has_a_docstring(path: Path) -> None:
    """Every public module, class, function and method says in words what it is."""
    assert undocumented(path.read_text()) == []


def test_what_lacks_one_is_found() -> None:
    """Modules, classes, methods and functions are all looked at; what is private or an overload is not."""
    source = "class A:\n    def b(self): ...\n    def _c(self): ...\nasync def d(): ...\n@overload\ndef e(): ...\ndef _f(): ...\n"
    assert undocumented(source) == ["the module", "A", "A.b", "d"]
