"""Shapes: the dynamic dims that a target asks for, in the words of each exporter, and the contract they end in.

The idea: whatever form the user writes (a name, a Size, a torch Dim, a hint) becomes one `Asked` per dim. The ONNX
inputs then say which dims are dynamic and which are equal; the user says names and bounds; a range that only the
exporter found is never a limit.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from torch.export import Dim as TorchDim
from torch.export.dynamic_shapes import _DimHint

from fuzzparity.case import Case
from fuzzparity.contract import Contract, Derived, Dim, Hint, InputContract
from fuzzparity.errors import InvalidTarget
from fuzzparity.sides.call import Call
from fuzzparity.sides.graph import GraphFacts, GraphInput
from fuzzparity.target import Size, Target, is_constant

_DERIVED = re.compile(r"(?:(?P<factor>\d+)\*)?(?P<root>[A-Za-z_]\w*)(?: *(?P<offset>[+-] *\d+))?")
_FORMS = "give a name, Size(low, high), torch.export.Dim, Dim.DYNAMIC, Dim.AUTO or None for each dim"


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """Hold what was asked of one dim. `entry` is the user's own word; `is_auto` lets the exporter decide."""

    entry: Any
    name: str = ""
    low: int = 0
    high: int | None = None
    multiple_of: int = 1
    is_auto: bool = False

    @property
    def is_declared(self) -> bool:
        """Tell whether bounds were given, not only "dynamic"."""
        return isinstance(self.entry, Size) or self.low > 0 or self.high is not None


AskedDims = dict[str, dict[int, Asked]]  # input -> dim -> what was asked; only dynamic dims stand in it


def asked_dims(target: Target, seed: Case) -> AskedDims:
    """Return the dynamic dims that a target asks for; `InvalidTarget` where names, ranks or entries do not fit."""
    asked: AskedDims = {}
    for name, entries in _by_input(target, seed):
        if entries is None:
            continue
        rank = seed.inputs[name].ndim
        if isinstance(entries, Mapping):
            pairs = list(entries.items())
        elif isinstance(entries, Sequence) and not isinstance(entries, str):
            if len(entries) != rank:
                raise _invalid(f"dynamic_shapes of {name!r} has {len(entries)} entries", f"its rank is {rank}")
            pairs = list(enumerate(entries))
        else:
            raise _invalid(f"dynamic_shapes of {name!r} is {entries!r:.60}", "give {dim: entry} or a list of entries")
        for dim, entry in pairs:
            if not isinstance(dim, int) or not -rank <= dim < rank:
                raise _invalid(f"dynamic_shapes of {name!r} names dim {dim!r}", f"its rank is {rank}")
            one = _asked(name, entry)
            if one is not None:
                asked.setdefault(name, {})[dim % rank] = one
    return asked


def _by_input(target: Target, seed: Case) -> Iterator[tuple[str, Any]]:
    """Yield (flattened input, its entries): of a dict by input, by flattened name too, or of a tuple by position."""
    shapes, given = target.dynamic_shapes, {**target.inputs, **target.kwargs}
    if shapes is None:
        return
    if isinstance(shapes, Mapping):
        unknown = [key for key in shapes if key not in given and key not in seed.inputs]
        if unknown:
            raise _invalid(
                f"dynamic_shapes names {', '.join(map(repr, unknown))}", f"the inputs: {', '.join(seed.inputs)}"
            )
        for name, entries in shapes.items():
            yield from _nested(given[name], entries, name) if name in given else ((name, entries),)
        return
    if isinstance(shapes, str) or not isinstance(shapes, Sequence) or len(shapes) > len(given):
        raise _invalid(f"dynamic_shapes is {shapes!r:.80}", f"give a dict by input or one entry for each of {[*given]}")
    for name, entries in zip(given, shapes, strict=False):  # a shorter tuple leaves the last inputs static
        yield from _nested(given[name], entries, name)


def _nested(pattern: Any, entries: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the entries of each tensor inside one input; their structure is that of the input."""
    if entries is None:
        return
    if isinstance(pattern, Mapping):
        if not isinstance(entries, Mapping) or not set(entries) <= set(pattern):
            raise _invalid(f"dynamic_shapes of {name!r} is {entries!r:.60}", f"give a dict by {[*pattern]}")
        for key, part in entries.items():
            yield from _nested(pattern[key], part, f"{name}.{key}")
    elif isinstance(pattern, list | tuple):
        if not isinstance(entries, list | tuple) or len(entries) != len(pattern):
            raise _invalid(
                f"dynamic_shapes of {name!r} is {entries!r:.60}", f"give a list of {len(pattern)}, one for each item"
            )
        for index, part in enumerate(entries):
            yield from _nested(pattern[index], part, f"{name}.{index}")
    elif is_constant(pattern):
        raise _invalid(f"dynamic_shapes of {name!r} is {entries!r:.60}", "it is a constant of the target: give None")
    else:
        yield name, entries


def _invalid(problem: str, advice: str) -> InvalidTarget:
    return InvalidTarget("dynamic_shapes", problem, f"{advice}; {_FORMS}")


def _asked(name: str, entry: Any) -> Asked | None:
    if entry is None or (isinstance(entry, int) and not isinstance(entry, bool)):
        return None  # an int is torch's word for a static dim
    if isinstance(entry, str):
        return Asked(entry, name=entry)
    if isinstance(entry, Size):
        return Asked(entry, entry.name, entry.low, entry.high, entry.multiple_of)
    if isinstance(entry, TorchDim):
        return Asked(entry, entry.__name__, _bound(entry.min) or 0, _bound(entry.max))
    if isinstance(entry, _DimHint):
        if entry == TorchDim.STATIC:
            return None
        return Asked(
            entry, low=_bound(entry.min) or 0, high=_bound(entry.max), is_auto=entry.type == TorchDim.AUTO.type
        )
    raise _invalid(f"dynamic_shapes of {name!r} holds {type(entry).__name__} {entry!r:.40}", "that is no dim")


def _bound(value: Any) -> int | None:
    """Return an end of a torch range as a number; None for its infinity."""
    return value if isinstance(value, int) else None


def dynamo_shapes(asked: AskedDims, call: Call, forward: Callable[..., Any]) -> Any:
    """Return `dynamic_shapes` for torch.export: by forward's parameters, in the structure of the call.

    A Size becomes a hint with its ends: a Dim raises when the exporter narrows it, a hint is narrowed and exported.
    """
    if not asked:
        return None

    def of(name: str) -> dict[int, Any] | None:
        return {dim: _dynamo_entry(one) for dim, one in asked[name].items()} if name in asked else None

    by_parameter = call.parameters(forward, of)
    if by_parameter is not None:
        return by_parameter
    args, kwargs = call.like(of)
    return (*args, *kwargs.values())


def _dynamo_entry(asked: Asked) -> Any:
    if not isinstance(asked.entry, Size):
        return asked.entry
    if asked.low == 0 and asked.high is None:
        return asked.name or TorchDim.DYNAMIC
    return TorchDim.DYNAMIC(min=asked.low or None, max=asked.high)


def torchscript_axes(asked: AskedDims) -> dict[str, dict[int, str]]:
    """Return `dynamic_axes` for the TorchScript exporter."""
    return {name: {dim: one.name or f"{name}_dim_{dim}" for dim, one in dims.items()} for name, dims in asked.items()}


def static_dims(asked: AskedDims, contract: Contract) -> tuple[str, ...]:
    """Return "image[0]" for each dim that was asked to be dynamic and is not."""
    found = []
    for item in contract.inputs:
        for dim, one in asked.get(item.name, {}).items():
            if item.onnx_name and not one.is_auto and not item.dims[dim].is_dynamic:
                found.append(f"{item.name}[{dim}]")
    return tuple(found)


def other_sample(asked: AskedDims, seed: Case) -> Case:
    """Return a case for export whose dynamic dims are at least 2 and all different; values repeat those of the seed.

    Dims with one name stay equal. torch.export takes sizes 0 and 1, and dims of one size, for constants.
    """
    sizes: dict[str, int] = {}
    inputs = {}
    for name, array in seed.inputs.items():
        for dim, one in asked.get(name, {}).items():
            key = one.name or f"{name}[{dim}]"
            if key not in sizes:
                sizes[key] = _free_size(array.shape[dim], one, {*sizes.values(), *_static_sizes(asked, seed)})
            if array.shape[dim]:
                array = np.take(array, np.arange(sizes[key]) % array.shape[dim], axis=dim)
            else:
                array = np.zeros((*array.shape[:dim], sizes[key], *array.shape[dim + 1 :]), array.dtype)
        inputs[name] = array
    return Case(inputs)


def _static_sizes(asked: AskedDims, seed: Case) -> set[int]:
    return {
        size
        for name, array in seed.inputs.items()
        for dim, size in enumerate(array.shape)
        if dim not in asked.get(name, {})
    }


def _free_size(size: int, asked: Asked, taken: set[int]) -> int:
    step = asked.multiple_of
    first = max(size, 2, asked.low)
    first += -first % step
    last = asked.high if asked.high is not None else first + 1000 * step
    upward = [n for n in range(first, last + 1, step) if n not in taken]
    downward = [n for n in range(first - step, max(asked.low, 2) - 1, -step) if n not in taken]
    return next(iter(upward or downward), size)


def contract_of(target: Target, seed: Case, graph: GraphFacts, asked: AskedDims, is_given: bool) -> Contract:
    """Return the contract of every input, from the target's words and the graph's."""
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
        graph.sizes,
        graph.constants,
        hints=_hints(paired, graph),
        equal_reasons=tuple(dict.fromkeys((symbols.of_param(one.first), one.why) for one in joined)),
    )
    contract = _with_derived(contract, symbols, paired)
    return dataclasses.replace(contract, batch=_batch(target, contract, asked))


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
