"""Events with every field given, for tests of what holds for all of them."""

from __future__ import annotations

from typing import Any

import msgspec


def filled(kind: Any) -> Any:
    """A value of a type, with every optional field given."""
    return fill(msgspec.inspect.type_info(kind))


def fill(info: Any) -> Any:  # noqa: C901  one case per kind of type
    """A value of an inspected type."""
    match info:
        case msgspec.inspect.StructType():
            return info.cls(**{f.name: fill(f.type) for f in info.fields})
        case msgspec.inspect.UnionType(types=types):
            return fill(next(t for t in types if not isinstance(t, msgspec.inspect.NoneType)))
        case msgspec.inspect.ListType(item_type=item):
            return [fill(item)]
        case msgspec.inspect.TupleType(item_types=items):
            return tuple(fill(item) for item in items)
        case msgspec.inspect.DictType(value_type=value):
            return {"key": fill(value)}
        case msgspec.inspect.LiteralType(values=values):
            return values[0]
        case msgspec.inspect.BoolType():
            return True
        case msgspec.inspect.IntType():
            return 7
        case msgspec.inspect.FloatType():
            return 1.5
        case msgspec.inspect.StrType():
            return 'ü"\n\u2028\\x'
        case msgspec.inspect.AnyType():
            return {"deep": [1, None, "x"]}
    raise AssertionError(info)
