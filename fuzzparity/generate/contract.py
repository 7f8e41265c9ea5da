"""Breach and realism: whether a case is inside a target's contract, and how close it is to the seeds.

The idea: the contract is what the target declares and the graph says, and leaving it is said in words; what the seeds
show is only realism and limits nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fuzzparity.case import Array, Case, is_finite, is_float
from fuzzparity.contract import Contract, Dim, InputContract
from fuzzparity.generate.dtypes import traits_of
from fuzzparity.verdict import Realism

Valid = Callable[[dict[str, Array]], bool]
_NEAR_WIDENING = 0.1  # DESIGN, "realism": min and max by input widened by 10 % of the span
_FEW_SEEDS = 4  # with fewer, their shapes say too little and a declared range counts as realistic


def breach(contract: Contract, case: Case, valid: Valid | None = None) -> str:
    """Return why a case is outside the contract, in words; "" when it is inside."""
    names = [item.name for item in contract.inputs]
    if list(case.inputs) != names:
        return f"the inputs are {', '.join(case.inputs) or 'none'}; the contract has {', '.join(names)}"
    sizes: dict[str, tuple[int, str]] = {}
    for item in contract.inputs:
        if reason := _form_breach(item, case.inputs[item.name], sizes):
            return reason
    for one in contract.derived:
        (root, first), (size, place) = sizes[one.root], sizes[one.symbol]
        if size != one.of(root):
            return f"dim {one.symbol} is {size} in {place}; with {root} in {first} the contract wants {one.of(root)}"
    for item in contract.inputs:
        if reason := value_breach(item, case.inputs[item.name], sizes):
            return reason
    return _valid_breach(valid, case) if valid is not None else ""


def _form_breach(item: InputContract, array: Array, sizes: dict[str, tuple[int, str]]) -> str:
    if array.dtype != traits_of(item.dtype).dtype:  # comparing dtypes is far cheaper than spelling their names
        return f"input {item.name} is {array.dtype.name}; the contract says {item.dtype}"
    if array.ndim != len(item.dims):
        return f"input {item.name} has {array.ndim} dims; the contract says {len(item.dims)}"
    for axis, (dim, size) in enumerate(zip(item.dims, array.shape, strict=True)):
        if not dim.admits(size):
            return f"input {item.name} has size {size} on axis {axis}; the contract says {_dim_words(dim)}"
        if dim.symbol:
            place = f"{item.name} axis {axis}"
            known, first = sizes.setdefault(dim.symbol, (size, place))
            if known != size:
                return f"dim {dim.symbol} is {known} in {first} but {size} in {place}; the contract has them equal"
    return ""


def _dim_words(dim: Dim) -> str:
    if not dim.is_dynamic:
        return str(dim.size)
    high = "any" if dim.high is None else dim.high
    return f"{dim.low}..{high}" + (f", a multiple of {dim.multiple_of}" if dim.multiple_of > 1 else "")


def value_breach(item: InputContract, array: Array, sizes: Mapping[str, tuple[int, str]]) -> str:
    """Return why the values of one input are outside the contract; `sizes` maps a symbol to (size, place)."""
    if array.size == 0 or array.dtype.kind == "b":
        return ""
    if not item.allow_nonfinite and not is_finite(array):
        return f"input {item.name} holds NaN or infinity, which the contract forbids"
    limit = index_limit(item, {symbol: size for symbol, (size, _) in sizes.items()})
    if limit is None and item.low is None and item.high is None:
        return ""
    if not (is_float(array.dtype) or array.dtype.kind in "iu" or "int" in array.dtype.name):
        return ""
    low, high = extremes(array)
    if limit is not None and (low < 0 or high >= limit):
        return f"input {item.name} holds index {low if low < 0 else high}; the indexed axis has {limit} items"
    if item.low is not None and low < rounded(item.low, array.dtype):
        return f"input {item.name} holds {low}; the declared range starts at {item.low}"
    if item.high is not None and high > rounded(item.high, array.dtype):
        return f"input {item.name} holds {high}; the declared range ends at {item.high}"
    return ""


def _valid_breach(valid: Valid, case: Case) -> str:
    try:
        inside = bool(valid(dict(case.inputs)))
    except Exception as error:  # the user's own code: whatever it raises says "not valid"
        return f"valid() of the target raised {type(error).__name__}: {str(error)[:120]}"
    return "" if inside else "valid() of the target refuses these inputs"


def index_limit(item: InputContract, sizes: Mapping[str, int]) -> int | None:
    """Return the length of the axis that an input's values index, None where they index none."""
    if item.index_limit is not None:
        return item.index_limit
    return sizes.get(item.index_symbol) if item.index_symbol else None


def extremes(array: Array) -> tuple[Any, Any]:
    """Return smallest and largest value, NaN left out (NaN twice when nothing is left); integers stay exact."""
    if array.dtype.kind == "V":
        array = array.astype(np.float32 if "float" in array.dtype.name else np.int64)
    if array.dtype.kind == "f":
        return float(np.fmin.reduce(array, axis=None)), float(np.fmax.reduce(array, axis=None))
    return int(array.min()), int(array.max())


def rounded(bound: float, dtype: np.dtype[Any]) -> float:
    """Return a bound as the dtype spells it: float32(0.1) is inside a range that starts at 0.1."""
    if not is_float(dtype):
        return bound
    with np.errstate(over="ignore"):
        return float(np.asarray(bound).astype(dtype))


@dataclass(frozen=True, slots=True)
class Spread:
    """Hold what the seeds show of one input: ends of the finite values, smallest and largest size by axis."""

    low: float
    high: float
    sizes: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class SeedStatistics:
    """Hold the values and shapes that the seeds show, by input: the measure of realism."""

    has_real_seeds: bool
    count: int
    spreads: dict[str, Spread] = field(default_factory=dict)

    @classmethod
    def of(cls, seeds: Iterable[Case], has_real_seeds: bool) -> SeedStatistics:
        """Gather the statistics of seeds, one after the other; inputs whose rank changes have none."""
        tally = SeedTally()
        for seed in seeds:
            tally.add(seed)
        return tally.statistics(has_real_seeds)

    def realism(self, contract: Contract, case: Case) -> Realism:
        """Tell whether a case is near the seeds, wild, or unknown without real seeds."""
        if not self.has_real_seeds:
            return Realism.UNKNOWN
        return Realism.NEAR if self.is_typical(contract, case) else Realism.WILD

    def is_typical(self, contract: Contract, case: Case, *, any_rows: bool = False) -> bool:
        """Tell whether a case is like the seeds, be they real ones or only the target's first inputs.

        `any_rows`: however many rows it has.
        """
        free = contract.batch if any_rows else ""
        for item in contract.inputs:
            array, spread = case.inputs.get(item.name), self.spreads.get(item.name)
            if array is None or spread is None or array.dtype.name != item.dtype:
                return False
            if not (self._has_near_shape(item, array, spread, free) and _has_near_values(array, spread)):
                return False
        return True

    def _has_near_shape(self, item: InputContract, array: Array, spread: Spread, free: str) -> bool:
        if not array.ndim == len(spread.sizes) == len(item.dims):
            return False
        for size, (low, high), dim in zip(array.shape, spread.sizes, item.dims, strict=True):
            if free and dim.symbol == free:
                continue
            is_declared = self.count < _FEW_SEEDS and dim.is_declared and dim.admits(size)
            if not (low <= size <= high or is_declared):
                return False
        return True


class SeedTally:
    """Gather `SeedStatistics` from cases that come one by one and are not kept: all of a validation set counts."""

    def __init__(self) -> None:
        """Start with nothing seen."""
        self.count = 0
        self._spreads: dict[str, Spread | None] = {}  # None: the rank changes from seed to seed
        self._has_values: set[str] = set()  # inputs of which a finite value was seen

    def add(self, case: Case) -> None:
        """Take in one seed."""
        self.count += 1
        for name, array in case.inputs.items():
            ends = _finite_ends(array)
            sizes = tuple((size, size) for size in array.shape)
            fresh = Spread(*(ends or (0.0, 0.0)), sizes)
            known = self._spreads.get(name, fresh)
            if known is None or len(known.sizes) != len(sizes):
                self._spreads[name] = None
                continue
            low, high = known.low, known.high
            if ends is not None:
                has_values = name in self._has_values
                low = min(low, fresh.low) if has_values else fresh.low
                high = max(high, fresh.high) if has_values else fresh.high
                self._has_values.add(name)
            pairs = zip(known.sizes, array.shape, strict=True)
            self._spreads[name] = Spread(low, high, tuple((min(a, size), max(b, size)) for (a, b), size in pairs))

    def statistics(self, has_real_seeds: bool) -> SeedStatistics:
        """Return what was gathered so far."""
        spreads = {name: spread for name, spread in self._spreads.items() if spread is not None}
        return SeedStatistics(has_real_seeds, self.count, spreads)


def _has_near_values(array: Array, spread: Spread) -> bool:
    if array.size == 0 or array.dtype.kind not in "fiuV":
        return True
    if not is_finite(array):
        return False
    low, high = extremes(array)
    least, most = near_range(spread)
    return least <= float(low) and float(high) <= most


def near_range(spread: Spread) -> tuple[float, float]:
    """Return between which values an input is near the seeds."""
    margin = _NEAR_WIDENING * (spread.high - spread.low)
    return spread.low - margin, spread.high + margin


def _finite_ends(array: Array) -> tuple[float, float] | None:
    """Return the smallest and largest finite value of an array, None without any; flags and complex count as 0."""
    if array.dtype.kind == "b" or array.dtype.kind == "c" or array.size == 0:
        return None
    if is_float(array.dtype):
        wide = array.astype(np.float32) if array.dtype.kind == "V" else array
        array = wide if np.isfinite(wide).all() else wide[np.isfinite(wide)]
    if array.size == 0:
        return None
    low, high = extremes(array)
    return float(low), float(high)
