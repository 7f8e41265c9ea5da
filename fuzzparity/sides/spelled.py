"""Spelled: calls of a tape written out as plain torch code.

The idea: one statement a call, in the form in which people write it: operators, methods, indices, functions by their
public names. What has no public name, or takes something that has no literal, is not spelled at all.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from fuzzparity.sides.tape import Call, Ref

_INFIX = {
    "add": "+", "__add__": "+", "sub": "-", "__sub__": "-", "mul": "*", "__mul__": "*", "div": "/", "__truediv__": "/",
    "true_divide": "/", "__floordiv__": "//", "remainder": "%", "__mod__": "%", "matmul": "@", "__matmul__": "@",
    "pow": "**", "__pow__": "**", "gt": ">", "lt": "<", "ge": ">=", "le": "<=", "eq": "==", "ne": "!=",
    "__and__": "&", "__or__": "|", "__xor__": "^", "__gt__": ">", "__lt__": "<", "__ge__": ">=", "__le__": "<=",
    "__eq__": "==", "__ne__": "!=", "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^",
}  # fmt: skip
_REVERSED = {
    "__radd__": "+", "__rsub__": "-", "__rmul__": "*", "__rdiv__": "/", "__rtruediv__": "/", "__rfloordiv__": "//",
    "__rmod__": "%", "__rpow__": "**", "__rmatmul__": "@",
}  # fmt: skip
_PREFIX = {"neg": "-", "__neg__": "-", "bitwise_not": "~", "__invert__": "~"}
_NAME = re.compile(r"torch(\.[A-Za-z]\w*)*\.[A-Za-z]\w*|torch\.ops\.aten\.\w+\.\w+|torch\.Tensor\.\w+(\.__get__)?")


class _Unspoken(Exception):
    """Say that something has no literal. Never leaves this module."""


def spelled(calls: Sequence[Call], names: Mapping[int, str], outputs: Sequence[int]) -> tuple[str, ...] | None:
    """Return the lines of a function's body that do what calls do, the last one a `return` of a tuple; None if none do.

    `names`: what the values that they start from are called, expressions included.
    """
    known = dict(names)
    lines = []
    try:
        for call in calls:
            text = _call(call, known)
            target = _target(call.results, known)
            lines.append(f"{target} = {text}" if target else text)
        returned = "".join(f"{known[number]}, " for number in outputs).rstrip()
    except (_Unspoken, KeyError):
        return None
    return (*lines, f"return ({returned if len(outputs) == 1 else returned.rstrip(',')})")


def _target(results: Any, known: dict[int, str]) -> str:
    """Return the left side of the statement, and remember the names that it gives."""
    if isinstance(results, Ref):
        known[results.number] = f"v{sum(1 for name in known.values() if re.fullmatch(r'v[0-9]+', name)) + 1}"
        return known[results.number]
    if isinstance(results, (tuple, list)):
        parts = [_target(one, known) if isinstance(one, (Ref, tuple, list)) else "_" for one in results]
        return ", ".join(parts) + ("," if len(parts) == 1 else "") if any(p != "_" for p in parts) else ""
    return ""


def _call(call: Call, known: Mapping[int, str]) -> str:
    if not _NAME.fullmatch(call.name):
        raise _Unspoken
    if not call.name.startswith("torch.Tensor."):
        return f"{call.name}({_arguments(call.args, call.kwargs, known)})"
    method = call.name.removeprefix("torch.Tensor.")
    args = [_literal(one, known) for one in call.args]
    owner = args[0] if re.fullmatch(r"[\w.()\[\], ]+", args[0]) and not args[0][0].isdigit() else f"({args[0]})"
    if method == "__getitem__":
        return f"{owner}[{_index(call.args[1], known)}]"
    if method == "__setitem__":
        return f"{owner}[{_index(call.args[1], known)}] = {args[2]}"
    if method.endswith(".__get__"):
        return f"{owner}.{method.removesuffix('.__get__')}"
    if len(args) == 2 and not call.kwargs and method in _INFIX:
        return f"{args[0]} {_INFIX[method]} {args[1]}"
    if len(args) == 2 and not call.kwargs and method in _REVERSED:
        return f"{args[1]} {_REVERSED[method]} {args[0]}"
    if len(args) == 1 and not call.kwargs and method in _PREFIX:
        return f"{_PREFIX[method]}{args[0]}"
    if method.startswith("_"):
        raise _Unspoken
    return f"{owner}.{method}({_arguments(call.args[1:], call.kwargs, known)})"


def _arguments(args: Sequence[Any], kwargs: Mapping[str, Any], known: Mapping[int, str]) -> str:
    texts = [_literal(one, known) for one in args]
    texts += [f"{key}={_literal(one, known)}" for key, one in kwargs.items()]
    return ", ".join(texts)


def _index(value: Any, known: Mapping[int, str]) -> str:
    items = value if isinstance(value, tuple) else (value,)
    texts = [_slice(one, known) if isinstance(one, slice) else _literal(one, known) for one in items]
    return ", ".join(texts) + ("," if isinstance(value, tuple) and len(items) == 1 else "")


def _slice(value: slice, known: Mapping[int, str]) -> str:
    parts = ["" if one is None else _literal(one, known) for one in (value.start, value.stop)]
    return ":".join(parts) + ("" if value.step is None else f":{_literal(value.step, known)}")


def _literal(value: Any, known: Mapping[int, str]) -> str:
    if isinstance(value, Ref):
        return known[value.number]
    if value is None or value is Ellipsis or isinstance(value, (bool, int)):
        return "..." if value is Ellipsis else repr(value)
    if isinstance(value, np.generic):
        return _literal(value.item(), known)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else f'float("{value}")'
    if isinstance(value, str) and re.fullmatch(r"[\w+-]{0,24}", value):
        return repr(value)
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
        return str(value)
    if isinstance(value, torch.device):
        return repr(str(value))
    if isinstance(value, (tuple, list)):
        texts = ", ".join(_literal(one, known) for one in value)
        return f"[{texts}]" if isinstance(value, list) else f"({texts}{',' if len(value) == 1 else ''})"
    raise _Unspoken
