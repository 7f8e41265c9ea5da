"""Fitting: what a user's item of data becomes as cases of a target.

The idea: names, kinds of dtype and ranks must be those of the first seed; what is added (a missing batch axis) or
divided (a file with a whole validation set in one array) is done only where the contract leaves one reading, and is
said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuzzparity.case import Array, Case, is_float
from fuzzparity.contract import Contract, Dim, InputContract
from fuzzparity.errors import InvalidCase, InvalidTarget
from fuzzparity.sides.call import Call
from fuzzparity.sides.load import as_array
from fuzzparity.sides.seed_files import LABEL, Item
from fuzzparity.target import Target

MOST_CASE_BYTES = 1 << 30
_FAR_LARGER = 8  # times the batch of the first seed: then a file holds a validation set, not a batch
_A_BATCH = 64  # rows that people run at once
_MOST_PARTS = 1 << 17  # cases of one file
_MOST_NESTED = 4  # levels of a label: boxes of images of a batch, by name


@dataclass(frozen=True, slots=True)
class Batch:
    """Say along which axis of which inputs a batch lies, how many rows the first seed has, and whether it may vary."""

    axes: dict[str, int]
    rows: int
    is_dynamic: bool


class Fitting:
    """Make cases of items; `notes` says what was added or divided."""

    def __init__(self, target: Target, seed: Case, contract: Contract | None = None) -> None:
        """Take the first seed as the pattern; without a contract every dim is as in the seed."""
        self._call = Call.of(target)
        self._seed = seed
        self.contract = contract or _as_seed(seed)
        self._dims = {item.name: item.dims for item in self.contract.inputs}
        self.batch = batch_of(self.contract)
        self._counts: Counter[str] = Counter()

    @property
    def notes(self) -> list[str]:
        """Return what was done to items to make them fit, a line each."""
        counts = self._counts
        rows = self.batch.rows if self.batch else 1
        lines = [f"{counts['axes']} item(s) came without the batch axis: it was added"] if counts["axes"] else []
        if counts["files"]:
            lines.append(
                f"{counts['files']} file(s) hold many items along the batch axis: read as {counts['parts']} cases of "
                f"{rows} row(s), like the first seed"
            )
        lines += [f"{counts['left']} row(s) at the end of a file were too few for a case"] if counts["left"] else []
        if counts["dropped"]:
            lines.append(
                f"inputs that the ONNX graph lacks were taken from the first seed in {counts['dropped']} item(s)"
            )
        if counts["labels"]:
            lines.append(f"the label of {counts['labels']} item(s) is no number, text, array or list of them: left out")
        return lines

    def cases(self, item: Item, *, divide: bool = False, by_onnx: bool = False) -> Iterator[Case]:
        """Yield the cases of one item; `InvalidCase` where it does not fit.

        `divide`: an item with far more rows than the first seed becomes many cases. `by_onnx`: a tuple goes by the
        inputs of the ONNX graph.
        """
        values, label = self._with_batch_axis(self._named(item, by_onnx)), self._label(item, by_onnx)
        if divide and (batch := self._divisible(values)) is not None:
            yield from (self._case(part, rows) for part, rows in self._parts(values, batch, label))
        else:
            yield self._case(values, label)

    def _label(self, item: Item, by_onnx: bool) -> Any:
        """Return what rode along in an item: under "label", or behind the inputs of a tuple; None when nothing did."""
        if isinstance(item, tuple):
            rest = () if by_onnx else item[len(self._seed.inputs) :]
            given: Any = rest[0] if len(rest) == 1 else rest or None
        else:
            given = item.get(LABEL) if isinstance(item, Mapping) and LABEL not in self._seed.inputs else None
        label = as_label(given)
        self._counts["labels"] += label is None and given is not None
        return label

    def _named(self, item: Item, by_onnx: bool) -> dict[str, Any]:
        names = list(self._seed.inputs)
        if isinstance(item, tuple):
            places = [part.name for part in self.contract.inputs if part.onnx_name] if by_onnx else names
            if len(item) < len(places):
                raise InvalidCase(
                    f"{len(item)} array(s) without names cannot fill inputs {', '.join(places)}; "
                    "give .npz or .safetensors"
                )
            item = dict(zip(places, item, strict=False))  # what stands behind the inputs is a label
        if not isinstance(item, Mapping):
            raise InvalidCase(f"a seed is {type(item).__name__}; wanted a dict of {', '.join(names)}")
        held = self._call.item(item)
        if by_onnx and len(held) < len(names):
            lost = {part.name: self._seed.inputs[part.name] for part in self.contract.inputs if not part.onnx_name}
            self._counts["dropped"] += bool(lost)
            held = {**lost, **held}
        missing = [name for name in names if name not in held]
        if missing:
            raise InvalidCase(f"no input {', '.join(missing)} among {', '.join(map(str, item)) or 'nothing'}")
        return {name: self._number(name, held[name]) for name in names}

    def _number(self, name: str, value: Any) -> Any:
        """Return a plain number as the array that it stands for where the first seed has no dims either."""
        model = self._seed.inputs[name]
        if isinstance(value, (bool, int, float)) and model.ndim == 0:
            return np.asarray(value)
        return value

    def _with_batch_axis(self, values: dict[str, Any]) -> dict[str, Any]:
        """Add the batch axis that items of a data set lack, where only one place of it fits the contract."""
        axes = {}
        for name, value in values.items():
            shape, dims = _shape(value), self._dims.get(name, ())
            if shape is None or len(shape) != len(dims) - 1:
                continue
            axis = self.batch.axes.get(name) if self.batch else None
            places = range(len(dims)) if axis is None else [axis]
            fits = {(*shape[:k], 1, *shape[k:]): k for k in places if _admits(dims, (*shape[:k], 1, *shape[k:]))}
            if len(fits) != 1:
                return values
            axes[name] = next(iter(fits.values()))
        carries = set(self.batch.axes) if self.batch else set()
        if not axes or (carries & set(axes) and not carries <= set(axes)):  # half of the batch has its axis
            return values
        self._counts["axes"] += 1
        return {
            name: value[(slice(None),) * axes[name] + (None,)] if name in axes else value
            for name, value in values.items()
        }

    def _divisible(self, values: dict[str, Any]) -> Batch | None:
        """Return the batch along which to divide an item that holds a whole validation set; None to leave it whole."""
        batch = self.batch
        if batch is None:
            return None
        sizes = set()
        for name, axis in batch.axes.items():
            shape, dims = _shape(values[name]), list(self._dims[name])
            if shape is None or len(shape) != len(dims):
                return None
            sizes.add(shape[axis])
            dims[axis] = Dim(shape[axis])
            if not _admits(tuple(dims), shape):
                return None
        if len(sizes) != 1 or batch.rows == 0:
            return None
        rows = sizes.pop()
        is_larger = rows > max(_A_BATCH, _FAR_LARGER * batch.rows) if batch.is_dynamic else rows > batch.rows
        return batch if is_larger else None

    def _parts(self, values: dict[str, Any], batch: Batch, label: Any) -> Iterator[tuple[dict[str, Any], Any]]:
        name, axis = next(iter(batch.axes.items()))
        rows = int(values[name].shape[axis])
        if rows > _MOST_PARTS * batch.rows:
            raise InvalidCase(f"{rows:,} rows in one file; at most {_MOST_PARTS * batch.rows:,} are read: split it")
        whole = rows if batch.is_dynamic else rows - rows % batch.rows
        self._counts["files"] += 1
        self._counts["left"] += rows - whole
        for start in range(0, whole, batch.rows):
            self._counts["parts"] += 1
            part = slice(start, min(start + batch.rows, whole))
            divided = {
                name: value[(slice(None),) * batch.axes[name] + (part,)] if name in batch.axes else value
                for name, value in values.items()
            }
            is_by_row = isinstance(label, (list, np.ndarray)) and len(np.shape(label)) and len(label) == rows
            yield divided, label[part] if is_by_row else label

    def _case(self, values: Mapping[str, Any], label: Any = None) -> Case:
        inputs = {name: _as_input(name, value, self._seed.inputs[name]) for name, value in values.items()}
        return Case(inputs, label)


def as_label(value: Any, depth: int = 0) -> Any:
    """Return a label as numbers, texts, arrays, and lists and dicts of them; None where it is anything else."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)) and depth < _MOST_NESTED:
        parts = [as_label(one, depth + 1) for one in value]
        return parts if all(part is not None or one is None for part, one in zip(parts, value, strict=True)) else None
    if isinstance(value, Mapping) and depth < _MOST_NESTED:
        return {str(key): as_label(one, depth + 1) for key, one in value.items()}
    try:
        return as_array(LABEL, value)
    except (InvalidTarget, InvalidCase):
        return None


def batch_of(contract: Contract) -> Batch | None:
    """Return the batch of a contract: what it names, else axis 0 where it is plain; None where it is not."""
    symbol = contract.batch or _plain_symbol(contract)
    wide = [item for item in contract.inputs if len(item.dims) >= 2]
    if not symbol:
        sizes = {item.dims[0].size for item in wide if not item.dims[0].is_dynamic}
        if not wide or len(sizes) != 1 or any(item.dims[0].is_dynamic for item in wide):
            return None
        return Batch({item.name: 0 for item in wide}, sizes.pop(), is_dynamic=False)
    axes = {}
    rows = 0
    for item in contract.inputs:
        found = [(axis, dim.size) for axis, dim in enumerate(item.dims) if dim.symbol == symbol]
        if len(found) > 1:
            return None
        for axis, size in found:
            axes[item.name], rows = axis, size
    return Batch(axes, rows, is_dynamic=True) if axes else None


def _plain_symbol(contract: Contract) -> str:
    """Return the symbol of axis 0 where all inputs share it and it can hardly be anything but a batch."""
    wide = [item for item in contract.inputs if len(item.dims) >= 2]
    firsts = {item.dims[0].symbol for item in wide}
    symbol = next(iter(firsts)) if len(firsts) == 1 else ""
    if not symbol:
        return ""
    is_named = "batch" in symbol.lower() or symbol.lower() in ("b", "n", "bs")
    is_single = all(item.dims[0].size == 1 for item in wide)
    return symbol if is_named or is_single or any(len(item.dims) >= 4 for item in wide) else ""


def _as_seed(seed: Case) -> Contract:
    return Contract(
        tuple(
            InputContract(name, array.dtype.name, tuple(map(Dim, array.shape)), onnx_name=name)
            for name, array in seed.inputs.items()
        )
    )


def _shape(value: Any) -> tuple[int, ...] | None:
    shape = getattr(value, "shape", None)
    return tuple(map(int, shape)) if shape is not None else None


def _admits(dims: tuple[Dim, ...], shape: tuple[int, ...]) -> bool:
    return all(dim.admits(size) for dim, size in zip(dims, shape, strict=True))


def _as_input(name: str, value: Any, model: Array) -> Array:
    """Return a value as an array with the rank and dtype of the first seed; `InvalidCase` where it cannot be."""
    shape = _shape(value)  # told before anything is copied: the value may be a mapped file of any size
    if shape is not None and len(shape) != model.ndim:
        raise InvalidCase(f"input {name} has shape {list(shape)}; wanted {model.ndim} dim(s)")
    if getattr(value, "nbytes", 0) > MOST_CASE_BYTES:
        size = value.nbytes / (1 << 30)
        raise InvalidCase(
            f"input {name} is {size:.1f} GiB, {list(shape or ())}; at most {MOST_CASE_BYTES >> 30} are run"
        )
    try:
        array = as_array(name, value)
    except InvalidTarget as error:
        raise InvalidCase(error.problem) from None
    if _kind(array) != _kind(model):
        hint = "; the target's read says how its values are scaled" if is_float(model.dtype) else ""
        raise InvalidCase(f"input {name} is {array.dtype.name}; wanted the kind of {model.dtype.name}{hint}")
    if array.dtype == model.dtype:
        return array
    with np.errstate(over="ignore", invalid="ignore"):
        cast: Array = array.astype(model.dtype)
    if array.dtype.kind in "iu" and not np.array_equal(cast, array):
        raise InvalidCase(f"input {name} holds values that {model.dtype.name} cannot; they were {array.dtype.name}")
    if array.dtype.kind == "f" and bool((np.isfinite(array) & ~np.isfinite(cast.astype(np.float64))).any()):
        raise InvalidCase(f"input {name} holds values beyond {model.dtype.name}; they were {array.dtype.name}")
    return cast


def _kind(array: Array) -> str:
    if is_float(array.dtype):
        return "float"
    return "integer" if array.dtype.kind in "iu" else array.dtype.kind
