"""Case: one set of named input tensors, its content hash, its lineage, and the one total order on cases.

The idea: a case is data. Its identity is the hash of its content (`digest`), its place among others is `sort_key`
(smaller is simpler), and where it came from is a `Lineage` beside it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def array_digest(array: Array) -> str:
    """Return the sha256 of an array's dtype, shape and bytes."""
    digest = hashlib.sha256(f"{array.dtype.name}{array.shape}".encode())
    digest.update(array.tobytes())
    return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class Case:
    """Hold one set of named input tensors, in the order of `forward`.

    Arrays are numpy (bfloat16 and float8 by ml_dtypes) and must not be written to: both sides get copies. Two cases
    are equal when names, dtypes, shapes and bytes are, NaN payloads included. `label` is what rode along in the seed,
    for metrics: no part of what the case is, and lost with the first change.
    """

    inputs: Mapping[str, Array] = field(repr=False)
    label: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Make arrays of numpy's scalars, which its operators give for arrays without dims."""
        if any(not isinstance(array, np.ndarray) for array in self.inputs.values()):
            object.__setattr__(self, "inputs", {name: np.asarray(array) for name, array in self.inputs.items()})

    @cached_property
    def digest(self) -> str:
        """Return the content hash (sha256, hex) of names, dtypes, shapes and bytes."""
        digest = hashlib.sha256()
        for name, array in self.inputs.items():
            digest.update(f"{name}\0{array.dtype.name}{array.shape}\0".encode())
            digest.update(array.tobytes())
        return digest.hexdigest()

    @cached_property
    def elements(self) -> int:
        """Return the number of elements over all inputs."""
        return sum(array.size for array in self.inputs.values())

    @cached_property
    def nbytes(self) -> int:
        """Return the bytes of all inputs."""
        return sum(array.nbytes for array in self.inputs.values())

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of each input by name."""
        return {name: array.shape for name, array in self.inputs.items()}

    @cached_property
    def is_finite(self) -> bool:
        """Tell whether no input holds NaN or infinity."""
        return all(is_finite(array) for array in self.inputs.values())

    def replace(self, **inputs: Array) -> Case:
        """Return a case with some inputs exchanged; order is kept."""
        return Case({**self.inputs, **inputs})

    def __eq__(self, other: object) -> bool:
        """Compare by content."""
        return isinstance(other, Case) and self.digest == other.digest

    def __hash__(self) -> int:
        """Hash by content."""
        return hash(self.digest)

    def __repr__(self) -> str:
        """Show names, dtypes and shapes, never values."""
        parts = ", ".join(f"{name}: {a.dtype.name}{list(a.shape)}" for name, a in self.inputs.items())
        return f"Case({parts})"


@dataclass(frozen=True, slots=True)
class Lineage:
    """Say where a case came from: parents by digest, the mutators applied in order, and its place in the stream."""

    origin: str = "mutation"  # or "seed", "minimize", "import", "given" (to explain or check: no seed of later runs)
    parents: tuple[str, ...] = ()
    mutators: tuple[str, ...] = ()
    rng_seed: int = 0
    lease: int = 0
    sequence: int = -1  # index in the campaign's stream of cases; -1 outside of it


def is_float(dtype: np.dtype[Any]) -> bool:
    """Tell whether a dtype is floating point, ml_dtypes (kind `V`) included."""
    return dtype.kind == "f" or (dtype.kind == "V" and "float" in dtype.name)


def is_finite(array: Array) -> bool:
    """Tell whether an array holds no NaN and no infinity (integers never do)."""
    if is_float(array.dtype):
        wide = array if array.dtype.kind == "f" else array.astype(np.float32)
        return bool(np.isfinite(wide).all())
    return array.dtype.kind != "c" or bool(np.isfinite(array).all())


def value_cost(array: Array) -> int:
    """Return how far an array's values are from simple ones, summed over elements.

    0 costs nothing, 1 and True little, small integers and few digits more, an arbitrary float most.
    """
    if array.size == 0:
        return 0
    if array.dtype.kind == "b":
        return int(array.sum())
    if array.dtype.kind == "c":
        return value_cost(array.real) + value_cost(array.imag)
    if not is_float(array.dtype):
        wide = array.astype(np.float64)
        cost = np.select([wide == 0, wide == 1, np.abs(wide) <= 10, np.abs(wide) <= 1000], [0, 1, 3, 5], 7)
        return int(cost.sum()) + int((wide < 0).sum())
    wide = array.astype(np.float64)
    with np.errstate(all="ignore"):
        hundredths = wide * 100.0
        # 1e-4: a float16 or float32 spelling of a two-digit decimal is still "few digits"
        few_digits = np.abs(hundredths - np.rint(hundredths)) <= 1e-4
        cost = np.select(
            [wide == 0, wide == 1, ~np.isfinite(wide), (wide == np.rint(wide)) & (np.abs(wide) <= 10), few_digits],
            [0, 1, 4, 3, 6],
            9,
        )
    return int(cost.sum()) + int(np.signbit(wide).sum())


def sort_key(case: Case) -> tuple[int, int, int, int, float, str]:
    """Return the key of the one total order on cases: smaller is simpler.

    Elements first, then the sum of all dims (so [1, 4] and [4, 1] tie and [2, 2] is smaller), then the cost of the
    values, then how many values are distinct, then how large they are, then the digest, so that the order is total.
    """
    return (
        case.elements,
        sum(sum(array.shape) for array in case.inputs.values()),
        sum(value_cost(array) for array in case.inputs.values()),
        sum(distinct(array) for array in case.inputs.values()),
        sum(magnitude(array) for array in case.inputs.values()),
        case.digest,
    )


def magnitude(array: Array) -> float:
    """Return the sum of log2(1 + |value|) over an array: 3.0 before 7.0, and no single value drowns the others.

    NaN and infinities count as larger than every float.
    """
    with np.errstate(all="ignore"):
        size = np.log2(1.0 + np.abs(array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)))
    return float(np.where(np.isfinite(size), size, 1025.0).sum())


def distinct(array: Array) -> int:
    """Return the number of distinct values of an array, NaN counted once."""
    wide = array.astype(np.float64) if array.dtype.kind == "V" else array
    return int(np.unique(wide).size)
