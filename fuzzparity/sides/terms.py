"""Terms: the contract of a target's inputs, from the target's own words and the graph's.

The idea: the ONNX inputs say which dims are dynamic and which are equal; the user says names and bounds; a range that
only the exporter found is never a limit.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from fuzzparity.case import Case
from fuzzparity.contract import Contract, Derived, Dim, Hint, InputContract
from fuzzparity.errors import InvalidTarget
from fuzzparity.sides.graph import GraphFacts, GraphInput
from fuzzparity.sides.mining import Mined
from fuzzparity.sides.roles import with_roles
from fuzzparity.sides.shapes import Asked, AskedDims
from fuzzparity.target import Target

_T = TypeVar("_T")
_MOST_FROM_CODE = 12  # numbers that come before those of the graph
_MOST_SIZES = 64
_MOST_CONSTANTS = 80
_MOST_PERIODS = 24
_DERIVED = re.compile(r"(?:(?P<factor>\d+)\*)?(?P<root>[A-Za-z_]\w*)(?: *(?P<offset>[+-] *\d+))?")


_NOTHING = Mined()


def contract_of(
    target: Target, seed: Case, graph: GraphFacts, asked: AskedDims, is_given: bool, code: Mined = _NOTHING
) -> Contract:
    """Return the contract of every input, from the target's words and the graph's; `code`: what its own code says."""
    paired = pair_inputs(list(seed.inputs), graph)
    if is_given:
        _require_fit(seed, paired)
    symbols = _Symbols(seed, paired, asked)
    sizes = _sizes_of_params(seed, paired)
    joined = [
        one
        for one in graph.implied.equals
        if sizes.get(one.first) == sizes.get(one.second) and symbols.join(one.first, one.second)
    ]
    inputs = []
    for name, array in seed.inputs.items():
        onnx_input = paired[name]
        limit = graph.index_limits.get(onnx_input.name) if onnx_input else None
        low, high = target.ranges.get(name, (None, None))
        least = graph.index_lows.get(onnx_input.name) if onnx_input else None
        if least is not None and (low is None or low < least):
            low = least
        inputs.append(
            InputContract(
                name=name,
                dtype=array.dtype.name,
                dims=tuple(symbols.dim(name, dim, size) for dim, size in enumerate(array.shape)),
                low=low,
                high=high,
                allow_nonfinite=target.allow_nonfinite,
                index_limit=limit if isinstance(limit, int) else None,
                index_symbol=symbols.of_param(limit) if isinstance(limit, str) else "",
                onnx_name=onnx_input.name if onnx_input else "",
                is_opaque=name in target.opaque_inputs,
                index_reason=graph.index_reasons.get(onnx_input.name, "") if onnx_input else "",
            )
        )
    contract = Contract(
        tuple(inputs),
        _first_of(_MOST_SIZES, code.sizes[:_MOST_FROM_CODE], graph.sizes, code.sizes),
        _first_of(_MOST_CONSTANTS, code.constants[:_MOST_FROM_CODE], graph.constants, code.constants),
        hints=_hints(paired, graph),
        equal_reasons=tuple(dict.fromkeys((symbols.of_param(one.first), one.why) for one in joined)),
        periods=_first_of(_MOST_PERIODS, code.periods, graph.periods),
        factors=_first_of(_MOST_PERIODS, code.factors, graph.factors),
        steps=graph.steps,
    )
    contract = with_roles(_with_derived(contract, symbols, paired), seed, target.carry.values())
    return dataclasses.replace(contract, batch=_batch(target, contract, asked))


def _first_of(most: int, *parts: Sequence[_T]) -> tuple[_T, ...]:
    return tuple(dict.fromkeys(value for part in parts for value in part))[:most]


def _with_derived(contract: Contract, symbols: _Symbols, paired: Mapping[str, GraphInput | None]) -> Contract:
    """Return the contract with the dims that ONNX calls "2*n" or "n + 1" as following from n.

    Where no input has n itself, such a dim can still only be a multiple.
    """
    derived: dict[str, Derived] = {}
    multiples: dict[str, int] = {}
    for param in dict.fromkeys(dim for item in paired.values() if item is not None for dim in item.dims or ()):
        found = _DERIVED.fullmatch(param) if isinstance(param, str) else None
        if found is None:
            continue
        factor, offset = int(found["factor"] or 1), int((found["offset"] or "0").replace(" ", ""))
        symbol, root = symbols.of_param(str(param)), symbols.of_param(found["root"])
        if root and root != symbol and (factor, offset) != (1, 0):
            derived[symbol] = Derived(symbol, root, factor, offset)
        elif not root and not offset:
            multiples[symbol] = factor
    derived = {symbol: one for symbol, one in derived.items() if one.root not in derived}
    inputs = tuple(
        dataclasses.replace(
            item,
            dims=tuple(
                dataclasses.replace(dim, multiple_of=math.lcm(dim.multiple_of, multiples[dim.symbol]))
                if dim.symbol in multiples
                else dim
                for dim in item.dims
            ),
        )
        for item in contract.inputs
    )
    return dataclasses.replace(contract, inputs=inputs, derived=tuple(derived.values()))


def _sizes_of_params(seed: Case, paired: Mapping[str, GraphInput | None]) -> dict[str, int]:
    """Return the size that each ONNX symbol has in the first seed."""
    return {
        dim: size
        for name, item in paired.items()
        if item is not None
        for dim, size in zip(item.dims or (), seed.inputs[name].shape, strict=False)
        if isinstance(dim, str)
    }


def _hints(paired: Mapping[str, GraphInput | None], graph: GraphFacts) -> tuple[Hint, ...]:
    """Return what the graph shows of the inputs' values, by the target's names, with the text that declares it."""
    names = {item.name: name for name, item in paired.items() if item is not None}
    found = [
        dataclasses.replace(hint, input=names[hint.input], change=f"ranges={{{names[hint.input]!r}: {hint.change}}}")
        for hint in graph.implied.hints
        if hint.input in names
    ]
    places: dict[Any, tuple[str, int]] = {}
    for name, item in paired.items():
        for dim, symbol in enumerate(item.dims or () if item is not None else ()):
            places.setdefault(symbol, (name, dim))
    for symbol, length in graph.implied.positions.items():
        if symbol in places:
            name, dim = places[symbol]
            why = f"graph: positions up to it look up an axis of length {length}"
            change = f"dynamic_shapes={{{name!r}: {{{dim}: Size(1, {length})}}}}"
            found.append(Hint(name, f"up to {length} is meant, larger ones are tried too", why, change, dim))
    return tuple(found)


def _batch(target: Target, contract: Contract, asked: AskedDims) -> str:
    """Return the symbol of the batch dim: as declared, else the only one that leads every input that is not opaque."""
    symbols = sorted({dim.symbol for item in contract.inputs for dim in item.dims if dim.is_dynamic})
    if target.batch is not None:
        if target.batch in symbols:
            return target.batch
        if any(one.name == target.batch for dims in asked.values() for one in dims.values()):
            return ""  # it came out static, which is said
        raise InvalidTarget(
            "declare",
            f"batch is {target.batch!r}, which is no dynamic dim",
            f"the dynamic dims: {', '.join(symbols) or 'none'}; name one in dynamic_shapes, as in {{0: 'batch'}}",
        )
    leading = {item.dims[0].symbol if item.dims else "" for item in contract.inputs if not item.is_opaque}
    return leading.pop() if len(leading) == 1 else ""


def contract_without_model(target: Target, seed: Case, asked: AskedDims) -> Contract:
    """Return the contract as the target alone declares it: no ONNX input is paired with any of its inputs."""
    dims = {
        name: tuple(
            (asked[name][dim].name or f"{name}_{dim}") if dim in asked.get(name, {}) else size
            for dim, size in enumerate(array.shape)
        )
        for name, array in seed.inputs.items()
    }
    inputs = tuple(GraphInput(name, array.dtype.name, dims[name]) for name, array in seed.inputs.items())
    graph = GraphFacts(inputs, (), nodes=0, opset=0, computing_dtype="float32")
    contract = contract_of(target, seed, graph, asked, is_given=False)
    unpaired = tuple(dataclasses.replace(item, onnx_name="") for item in contract.inputs)
    return Contract(unpaired, batch=contract.batch, derived=contract.derived)


def pair_inputs(names: Sequence[str], graph: GraphFacts) -> dict[str, GraphInput | None]:
    """Pair target inputs with ONNX inputs, by name, else by position; None for one that the export dropped."""
    by_name = {item.name: item for item in graph.inputs}
    if not any(name in by_name for name in names) and len(graph.inputs) == len(names):
        return dict(zip(names, graph.inputs, strict=True))
    rest = [item for item in graph.inputs if item.name not in names]
    unpaired = [name for name in names if name not in by_name]
    paired: dict[str, GraphInput | None] = {name: by_name.get(name) for name in names}
    if rest and len(rest) == len(unpaired):
        paired.update(zip(unpaired, rest, strict=True))
    elif rest:
        raise InvalidTarget(
            "inputs",
            f"the ONNX model wants {', '.join(item.name for item in rest)}, which no input of the target fits",
            f"name the target's inputs ({', '.join(names)}) as the ONNX model does, in forward's order",
        )
    return paired


def _require_fit(seed: Case, paired: Mapping[str, GraphInput | None]) -> None:
    """Refuse a given ONNX model whose inputs cannot take the first seed."""
    for name, array in seed.inputs.items():
        item = paired[name]
        if item is None:
            continue
        has_rank = item.dims is None or len(item.dims) == array.ndim
        fits = has_rank and all(
            not isinstance(dim, int) or dim == size for dim, size in zip(item.dims or (), array.shape, strict=False)
        )
        if not fits or (item.dtype and item.dtype != array.dtype.name):
            raise InvalidTarget(
                "inputs",
                f"input {name!r} is {array.dtype.name}{list(array.shape)}, and the ONNX input {item.name!r} wants "
                f"{item.dtype}{list(item.dims) if item.dims is not None else ''}",
                "give inputs that both sides take: right dtype, rank and static sizes",
            )


class _Symbols:
    """Group dims that are equal in every case: by ONNX symbol, and by a name that the user gave to several."""

    def __init__(self, seed: Case, paired: Mapping[str, GraphInput | None], asked: AskedDims) -> None:
        self._parent: dict[str, str] = {}
        self._key: dict[tuple[str, int], str] = {}
        self._asked: dict[str, list[Asked]] = {}
        for name, array in seed.inputs.items():
            for dim in range(array.ndim):
                self._enter(name, dim, paired[name], asked.get(name, {}).get(dim))

    def _enter(self, name: str, dim: int, item: GraphInput | None, one: Asked | None) -> None:
        onnx_dim = item.dims[dim] if item is not None and item.dims is not None else None
        if isinstance(onnx_dim, int) or (item is None and one is None):
            return
        key = f"onnx:{onnx_dim}" if onnx_dim else f"dim:{name}_{dim}"
        self._key[name, dim] = key
        self._parent.setdefault(key, key)
        if one is not None:
            if one.name:
                self._parent.setdefault(f"user:{one.name}", f"user:{one.name}")
                self._parent[self._root(key)] = self._root(f"user:{one.name}")
            self._asked.setdefault(key, []).append(one)

    def _root(self, key: str) -> str:
        while self._parent[key] != key:
            key = self._parent[key]
        return key

    def join(self, first: str, second: str) -> bool:
        """Make one group of two ONNX symbols that the graph has equal; False where an input lacks one of them."""
        keys = [f"onnx:{symbol}" for symbol in (first, second)]
        if not all(key in self._parent for key in keys):
            return False
        one, other = (self._root(key) for key in keys)
        if other.startswith("user:") and not one.startswith("user:"):
            one, other = other, one
        self._parent[other] = one
        return True

    def of_param(self, onnx_dim: str) -> str:
        """Return the contract's symbol for an ONNX symbol; "" when no input has that dim."""
        key = f"onnx:{onnx_dim}"
        return self._name(self._root(key)) if key in self._parent else ""

    def _name(self, root: str) -> str:
        # the user's names are roots wherever a group has one
        return root.partition(":")[2]

    def dim(self, name: str, dim: int, size: int) -> Dim:
        """Return the contract of one dim, the bounds of its whole group merged."""
        key = self._key.get((name, dim))
        if key is None:
            return Dim(size)
        root = self._root(key)
        group = [one for other, found in self._asked.items() if self._root(other) == root for one in found]
        highs = [one.high for one in group if one.high is not None]
        return Dim(
            size=size,
            symbol=self._name(root),
            low=max((one.low for one in group), default=0),
            high=min(highs, default=None),
            multiple_of=math.lcm(*(one.multiple_of for one in group)) if group else 1,
            is_declared=any(one.is_declared for one in group),
        )
