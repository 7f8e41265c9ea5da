"""Implied: what the nodes of a graph say about the values and dims of its inputs.

The idea: only what follows from an operator's definition is a rule (an index has to lie on its axis, the inner dims of
a product are equal); what engines compute for any value, as for a mask or a length, is a hint for the reader alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from onnx import NodeProto, TensorProto

from fuzzparity.case import Array
from fuzzparity.contract import Hint

_COMPARES = frozenset({"Less", "LessOrEqual", "Greater", "GreaterOrEqual"})
_FAR = -1e3  # a mask's complement times this or less is a bias that hides positions
_INTEGERS = frozenset({"int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64"})
MASK = "a mask: 0 and 1 are meant, other numbers are tried too"

Shape = tuple[int | str | None, ...]


class Tables(Protocol):
    """Hold the flat tables of one walk over a graph: see `graph`."""

    nodes: list[NodeProto]
    shapes: dict[str, Shape]
    small: dict[str, Array]


@dataclass(frozen=True, slots=True)
class Equal:
    """Say that two symbols of a graph have one size in every run, and why."""

    first: str
    second: str
    why: str


@dataclass(frozen=True, slots=True)
class Implied:
    """Hold what a graph implies; hints name ONNX inputs. `positions`: symbol -> length of the axis that 0, 1, 2, ...,
    up to the symbol's size, index.
    """

    hints: tuple[Hint, ...] = ()
    equals: tuple[Equal, ...] = ()
    positions: dict[str, int] = field(default_factory=dict)


def implied(tables: Tables, dtypes: Mapping[str, str], copies: Mapping[str, str]) -> Implied:
    """Read a graph's tables. `dtypes`: input -> dtype; `copies`: value -> the value it is a re-arranged copy of."""
    integers = {name for name, dtype in dtypes.items() if dtype in _INTEGERS}
    roots = dict(copies) | {name: name for name in dtypes}
    hints = {hint.input: hint for hint in _lengths(tables, integers, roots)}
    hints |= {hint.input: hint for hint in _masks(tables, integers, roots)}
    return Implied(tuple(hints.values()), tuple(dict.fromkeys(_equals(tables))), _position_tables(tables, roots))


def _masks(tables: Tables, integers: set[str], roots: Mapping[str, str]) -> Iterator[Hint]:
    """Yield integer inputs that are cast to bool, or whose complement becomes a bias that hides positions."""
    complements: dict[str, str] = {}  # value -> the input whose complement it is
    for node in tables.nodes:
        root = next((roots[name] for name in node.input if roots.get(name) in integers), None)
        if node.op_type == "Cast" and root is not None and _attribute(node, "to") == TensorProto.BOOL:
            yield _mask(root, "cast to bool")
        elif node.op_type == "Sub" and root is not None and _scalar(tables, node.input[0]) == 1.0:
            complements[node.output[0]] = root
        elif node.op_type == "Mul":
            hidden = next((complements[name] for name in node.input if name in complements), None)
            factor = next((value for name in node.input if (value := _scalar(tables, name)) is not None), 0.0)
            if hidden is not None and factor <= _FAR:
                yield _mask(hidden, f"1 minus it, times {factor:.4g}, is added to scores")


def _mask(name: str, why: str) -> Hint:
    return Hint(name, MASK, f"graph: {why}", "(0, 1)")


def _lengths(tables: Tables, integers: set[str], roots: Mapping[str, str]) -> Iterator[Hint]:
    """Yield integer inputs that are compared with positions 0, 1, 2, ..."""
    ranges = {node.output[0] for node in tables.nodes if node.op_type == "Range" and node.output}
    for node in tables.nodes:
        if node.op_type not in _COMPARES or len(node.input) != 2:
            continue
        for one, other in (node.input, tuple(reversed(node.input))):
            root, positions = roots.get(one), roots.get(other, other)
            if root not in integers or roots.get(other) in integers:
                continue
            count = _positions(tables, positions, ranges)
            if count is not None:
                ends = f"0..{count}" if count else "0 up to their number"
                change = f"(0, {count})" if isinstance(count, int) and count else "(0, the longest)"
                yield Hint(
                    root,
                    f"lengths: {ends} is meant, other numbers are tried too",
                    "graph: compared with positions",
                    change,
                )


def _position_tables(tables: Tables, roots: Mapping[str, str]) -> dict[str, int]:
    """Return the shortest axis that positions up to a symbol's size look up: a table of position embeddings."""
    ranges = {node.output[0] for node in tables.nodes if node.op_type == "Range" and _counts_from_zero(tables, node)}
    found: dict[str, int] = {}
    for node in tables.nodes:
        shape = tables.shapes.get(node.input[0]) if node.op_type == "Gather" and len(node.input) > 1 else None
        axis = _attribute(node, "axis")
        if not shape or not -len(shape) <= axis < len(shape):
            continue
        length, symbol = shape[axis], _positions(tables, roots.get(node.input[1], node.input[1]), ranges)
        if isinstance(length, int) and isinstance(symbol, str) and symbol:
            found[symbol] = min(length, found.get(symbol, length))
    return found


def _counts_from_zero(tables: Tables, node: NodeProto) -> bool:
    ends = [_scalar(tables, node.input[place]) for place in (0, 2)] if len(node.input) == 3 else []
    return ends == [0.0, 1.0] and bool(node.output)


def _positions(tables: Tables, name: str, ranges: set[str]) -> int | str | None:
    """Return how many positions a value counts through: a number, a symbol, "" if unknown; None if it does not."""
    if name in ranges:
        shape = tables.shapes.get(name)
        return (shape[0] or "") if shape else ""
    array = tables.small.get(name)
    if array is None or array.size < 2 or array.dtype.kind not in "iu":
        return None
    flat = array.reshape(-1)
    return int(flat.size) if np.array_equal(flat, np.arange(flat.size)) else None


def _equals(tables: Tables) -> Iterator[Equal]:
    """Yield pairs of symbols that Concat, MatMul and Gemm need to be equal."""
    for node in tables.nodes:
        shapes = [tables.shapes.get(name) for name in node.input]
        if node.op_type == "Concat":
            yield from _of_concat(node, [shape for shape in shapes if shape])
        elif node.op_type in ("MatMul", "Gemm") and len(shapes) >= 2:
            first, second = shapes[0], shapes[1]
            if first and second and min(len(first), len(second)) >= 2:
                is_gemm = node.op_type == "Gemm"
                inner = first[-2] if is_gemm and _attribute(node, "transA") else first[-1]
                other = second[-1] if is_gemm and _attribute(node, "transB") else second[-2]
                yield from _pair(inner, other, f"{node.op_type} multiplies along them")


def _of_concat(node: NodeProto, shapes: Sequence[Shape]) -> Iterator[Equal]:
    if len({len(shape) for shape in shapes}) != 1:
        return
    axis = _attribute(node, "axis") % len(shapes[0])
    for shape in shapes[1:]:
        for place, (one, other) in enumerate(zip(shapes[0], shape, strict=True)):
            if place != axis:
                yield from _pair(one, other, "Concat joins them along another axis")


def _pair(one: int | str | None, other: int | str | None, why: str) -> Iterator[Equal]:
    if isinstance(one, str) and isinstance(other, str) and one != other:
        yield Equal(min(one, other), max(one, other), why)


def _scalar(tables: Tables, name: str) -> float | None:
    array = tables.small.get(name)
    return float(array.reshape(-1)[0]) if array is not None and array.size == 1 else None


def _attribute(node: NodeProto, name: str) -> int:
    return next((int(attribute.i) for attribute in node.attribute if attribute.name == name), 0)
