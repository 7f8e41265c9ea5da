"""Plain: records to JSON text and back, for columns that hold a whole record.

The idea: `as_plain` of layer 1 says how a record becomes JSON; here its type hints say how it becomes a record again.
The text may come from a stranger, so a value that does not fit its hint is a CorpusError, never a wrong record.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, TypeVar

import numpy as np

from fuzzparity.errors import CorpusError
from fuzzparity.verdict import as_plain

_T = TypeVar("_T")


def dumps(value: Any) -> str:
    """Return a record, or plain data that holds records, as JSON text."""
    return json.dumps(as_plain(value), ensure_ascii=False, default=_scalar)


def loads(text: Any) -> Any:
    """Return the data in a JSON column; CorpusError when it is no JSON."""
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise CorpusError(f"a JSON column holds {str(text)[:60]!r}, which is no JSON") from error


def from_plain(hint: type[_T], value: Any) -> _T:
    """Return a record of type `hint` made of plain data; fields that are missing take their defaults.

    Unknown fields are dropped (a newer writer's); CorpusError when a value does not fit.
    """
    try:
        return typing.cast(_T, _build(hint, value))
    except (TypeError, ValueError, KeyError, AttributeError, RecursionError) as error:
        raise CorpusError(f"{str(value)[:80]!r} does not make a {getattr(hint, '__name__', hint)}: {error}") from error


def _scalar(value: Any) -> Any:
    if isinstance(value, np.generic):
        return as_plain(value.item())
    raise TypeError(f"{type(value).__name__} has no JSON form")


@functools.cache
def _hints(cls: type[Any]) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _build(hint: Any, value: Any) -> Any:
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return _build_union(typing.get_args(hint), value)
    if origin is not None:
        return _build_container(origin, typing.get_args(hint), value)
    if hint is Any:
        return value
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        if not isinstance(value, dict):
            raise TypeError(f"a JSON object was wanted, not {type(value).__name__}")
        hints = _hints(hint)
        names = [field.name for field in dataclasses.fields(hint) if field.name in value and field.init]
        return hint(**{name: _build(hints[name], value[name]) for name in names})
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(value)
    if hint is float:
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise TypeError(f"a number was wanted, not {value!r}")
        return float(value)  # "nan" and "inf" are text in JSON
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise TypeError(f"{hint.__name__} was wanted, not {type(value).__name__}")
    return value


def _build_union(options: tuple[Any, ...], value: Any) -> Any:
    if value is None and type(None) in options:
        return None
    rest = [option for option in options if option is not type(None)]
    if len(rest) == 1:
        return _build(rest[0], value)
    if any(isinstance(option, type) and type(value) is option for option in rest):
        return value
    for option in rest:
        try:
            return _build(option, value)
        except (TypeError, ValueError):
            continue
    raise TypeError(f"{value!r} fits none of {rest}")


def _build_container(origin: Any, args: tuple[Any, ...], value: Any) -> Any:
    if origin is dict or (isinstance(origin, type) and issubclass(origin, Mapping)):
        if not isinstance(value, dict):
            raise TypeError(f"a JSON object was wanted, not {type(value).__name__}")
        return {_build(args[0], key): _build(args[1], item) for key, item in value.items()}
    if not isinstance(value, list):
        raise TypeError(f"a JSON list was wanted, not {type(value).__name__}")
    if origin is tuple and not (len(args) == 2 and args[1] is Ellipsis):
        return tuple(_build(arg, item) for arg, item in zip(args, value, strict=True))
    if origin in (tuple, frozenset, list) or (isinstance(origin, type) and issubclass(origin, Sequence)):
        items = (_build(args[0], item) for item in value)
        return list(items) if origin is list else frozenset(items) if origin is frozenset else tuple(items)
    raise TypeError(f"{origin} has no JSON form")
