"""Domain: what values one input may hold, and bringing an array back inside.

The idea: mutators write what they like; one function confines the result to the contract before a case leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fuzzparity.case import Array
from fuzzparity.contract import Contract, InputContract
from fuzzparity.generate.contract import extremes, rounded
from fuzzparity.generate.dtypes import Traits, cast, traits_of

_MAX_CONSTANTS = 24
_MAX_STEPS = 4
_MAX_UNITS = 24
_PLAIN_UNITS = (0.25, 0.1, 1.0)
_MAX_SEEDS_READ = 64  # their mean and ends only steer; realism reads all of them


@dataclass(frozen=True, slots=True)
class Domain:
    """Describe the values of one input: dtype, bounds that the contract sets, and what seeds and graph suggest."""

    name: str
    traits: Traits
    low: float | int | None
    high: float | int | None
    index_limit: int | None
    index_symbol: str
    allow_nonfinite: bool
    mean: float
    spread: float  # largest minus smallest finite seed value
    is_flags: bool  # bool, or numbers that are 0 or 1 in all seeds: masks, most often
    constants: tuple[float, ...] = ()
    steps: tuple[float, ...] = ()  # of quantizers
    seed_low: float = 0.0  # smallest finite seed value

    @property
    def is_bounded(self) -> bool:
        """Tell whether the contract bounds the values at all."""
        return (self.low, self.high, self.index_limit) != (None, None, None) or bool(self.index_symbol)

    @property
    def bounds(self) -> tuple[float | int, float | int]:
        """Return the smallest and largest value to try; an index bound by a symbol counts as unbounded here."""
        low = self.traits.low if self.low is None else max(self.low, self.traits.low)
        high = self.traits.high if self.high is None else min(self.high, self.traits.high)
        if self.index_limit is not None:
            low, high = max(low, 0), min(high, self.index_limit - 1)
        return low, high


def domain_of(item: InputContract, contract: Contract, arrays: Sequence[Array]) -> Domain:
    """Return the domain of one input; `arrays` are its values in the seeds."""
    traits = traits_of(item.dtype)
    low, high, mean = 0.0, 1.0, 0.5
    parts = [_finite_values(array) for array in arrays[:_MAX_SEEDS_READ]]
    parts = [part for part in parts if part.size]
    if parts:
        ends = [extremes(part) for part in parts]
        low, high = float(min(end[0] for end in ends)), float(max(end[1] for end in ends))
        mean = float(np.mean([float(part.astype(np.float64).mean()) for part in parts]))
    constants = tuple(dict.fromkeys(float(c) for c in contract.constants if np.isfinite(c)))[:_MAX_CONSTANTS]
    return Domain(
        name=item.name,
        traits=traits,
        low=_inner(item.low, traits, up=True),
        high=_inner(item.high, traits, up=False),
        index_limit=item.index_limit,
        index_symbol=item.index_symbol if item.index_limit is None else "",
        allow_nonfinite=item.allow_nonfinite,
        mean=mean,
        spread=high - low,
        is_flags=traits.family == "bool" or (bool(parts) and all(((p == 0) | (p == 1)).all() for p in parts)),
        constants=constants,
        steps=contract.steps[:_MAX_STEPS],
        seed_low=low,
    )


def units_of(contract: Contract) -> tuple[float, ...]:
    """Return what values may be rounded to multiples of: quantizers' scales, decimals, reciprocals of whole numbers."""
    units = list(contract.steps)
    for constant in contract.constants:
        if not float(constant).is_integer() and 1e-6 < abs(constant) < 1e3:
            units.append(abs(constant))
        elif 3 <= abs(constant) <= 4096:
            units.append(1.0 / abs(constant))
    return tuple(dict.fromkeys((*units[: _MAX_UNITS - len(_PLAIN_UNITS)], *_PLAIN_UNITS)))


def _finite_values(array: Array) -> Array:
    if array.dtype.kind == "V":
        array = array.astype(np.float32)
    if array.dtype.kind == "f":
        return np.asarray(array[np.isfinite(array)])
    return array if array.dtype.kind in "biu" else np.zeros(0)


def _inner(bound: float | None, traits: Traits, up: bool) -> float | int | None:
    if bound is None or traits.family in ("bool", "opaque", "complex"):
        return None
    if traits.family == "float":
        return rounded(bound, traits.dtype)
    if not np.isfinite(bound):
        return None
    return int(np.ceil(bound)) if up else int(np.floor(bound))


def confine(array: Array, domain: Domain, limit: int | None, keep_nonfinite: bool) -> Array:
    """Return the array inside the contract: of the dtype, indices modulo `limit`, in bounds, finite unless kept.

    Where `limit` is given, `index_range` must not be empty unless the array is.
    """
    traits = domain.traits
    array = cast(array, traits)
    if array.size == 0 or traits.family in ("bool", "opaque"):
        return array
    if limit is not None and traits.family == "int":
        low, high = extremes(array)
        first, last = index_range(domain, limit)
        if low < first or high > last:
            array = cast(np.mod(array.astype(np.int64) - first, last - first + 1) + first, traits)
        return array
    if traits.family in ("float", "complex") and not keep_nonfinite and not np.isfinite(array).all():
        array = cast(_finite(array, traits), traits)
    if domain.low is not None or domain.high is not None:
        array = cast(_clipped(array, domain), traits)
    return array


def index_range(domain: Domain, limit: int) -> tuple[int, int]:
    """Return the first and last index inside both the limit and the declared bounds; empty when first > last."""
    first = 0 if domain.low is None else max(0, int(domain.low))
    last = limit - 1 if domain.high is None else min(limit - 1, int(domain.high))
    return first, last


def _finite(array: Array, traits: Traits) -> Array:
    if traits.family == "complex":
        return np.asarray(np.nan_to_num(array, nan=0.0))
    wide = array.astype(traits.working)
    return np.asarray(np.nan_to_num(wide, nan=0.0, posinf=traits.high, neginf=traits.low))


def _clipped(array: Array, domain: Domain) -> Array:
    low, high = extremes(array)
    if (domain.low is None or low >= domain.low) and (domain.high is None or high <= domain.high):
        return array
    low, high = domain.bounds
    if array.dtype.kind == "V":
        array = array.astype(domain.traits.working)
    return np.asarray(np.clip(array, np.asarray(low, array.dtype), np.asarray(high, array.dtype)))
