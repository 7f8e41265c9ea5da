"""Shapes: the dynamic dims that a target asks for, in the words of each exporter.

The idea: whatever form the user writes (a name, a Size, a torch Dim, a hint; by input, by position, nested as the input
is) becomes one `Asked` per dim of a flattened input.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from torch.export import Dim as TorchDim
from torch.export.dynamic_shapes import _DimHint

from fuzzparity.case import Case
from fuzzparity.contract import Contract
from fuzzparity.errors import InvalidTarget
from fuzzparity.sides.call import Call
from fuzzparity.target import Size, Target, is_constant

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


def dynamo_shapes(asked: AskedDims, call: Call, forward: Callable[..., Any], *, takes_names: bool = True) -> Any:
    """Return `dynamic_shapes` for torch.export: by forward's parameters, in the structure of the call.

    A Size becomes a hint with its ends: a Dim raises when the exporter narrows it, a hint is narrowed and exported.
    `takes_names`: torch.onnx.export does, and turns a name into a hint; torch.export does not.
    """
    if not asked:
        return None

    def of(name: str) -> dict[int, Any] | None:
        return {dim: _dynamo_entry(one, takes_names) for dim, one in asked[name].items()} if name in asked else None

    by_parameter = call.parameters(forward, of)
    if by_parameter is not None:
        return by_parameter
    args, kwargs = call.like(of)
    return (*args, *kwargs.values())


def _dynamo_entry(asked: Asked, takes_names: bool) -> Any:
    if not isinstance(asked.entry, Size | str):
        return asked.entry
    if asked.low == 0 and asked.high is None:
        return asked.name if asked.name and takes_names else TorchDim.DYNAMIC
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
