"""Draws: inputs that nobody who computes in the working precision can tell from the given ones.

The idea: what the exact answer does on them is what arithmetic may do. Exact zeros are kept (an engine can hold 0.0
exactly), but for the ramps, which break ties among equal values. Every draw follows from the case's digest alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from fuzzparity.case import Array, Case, is_float
from fuzzparity.oracle.compare import as_float64, largest_finite
from fuzzparity.oracle.policy import coarser, precision

ONE_ULP = "one ulp"
EPS_OF_MAXIMUM = "eps of maximum"
ROUNDED = "rounded"
RAMP = "ramp"
AMPLIFIED = "amplified"  # the tests at several times their size: what decisions are weighed by
_STREAMS = {ONE_ULP: 1, EPS_OF_MAXIMUM: 2, RAMP: 3}

Wide = npt.NDArray[np.float64]
Change = Callable[[str, Wide, str, np.random.Generator], Wide]


def generator(case: Case, test: str, draw: int) -> np.random.Generator:
    """Return the random stream of one draw: Philox keyed by the case, the test and the draw's number."""
    key = np.array([int(case.digest[:16], 16), _STREAMS[test] << 32 | draw], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key))


def can_perturb(case: Case) -> bool:
    """Tell whether some float input holds a finite value other than zero."""
    return any(bool((np.isfinite(x) & (x != 0.0)).any()) for x in map(as_float64, _floats(case).values()))


def one_ulp(case: Case, draw: int, amplitude: float = 1.0) -> Case:
    """Move every non-zero value by one ulp of its input's own dtype, in a random direction."""

    def change(name: str, x: Wide, dtype: str, rng: np.random.Generator) -> Wide:
        moved: Wide = x + amplitude * ulp(x, dtype) * rng.choice((-1.0, 1.0), x.shape)
        return moved

    return _perturb(case, generator(case, ONE_ULP, draw), change)


def eps_of_maximum(case: Case, draw: int, working_dtype: str, amplitude: float = 1.0) -> Case:
    """Add uniform noise of at most eps times the tensor's largest |value| to every non-zero value."""

    def change(name: str, x: Wide, dtype: str, rng: np.random.Generator) -> Wide:
        size = precision(coarser(dtype, working_dtype)).eps * largest_finite(np.abs(x))
        return x + amplitude * size * rng.uniform(-1.0, 1.0, x.shape)

    return _perturb(case, generator(case, EPS_OF_MAXIMUM, draw), change)


def in_step(case: Case, working_dtype: str, amplitude: float) -> Iterator[Case]:
    """Yield cases whose values all move together: by ulps away from zero and towards it, then all up and all down.

    A sum over many values hardly moves where each goes its own way, while its roundings may all lie on one side.
    """
    for sign in (1.0, -1.0):

        def scaled(name: str, x: Wide, dtype: str, rng: np.random.Generator, sign: float = sign) -> Wide:
            return x + sign * amplitude * np.copysign(ulp(x, dtype), x)

        yield _perturb(case, generator(case, ONE_ULP, 0), scaled)
    for sign in (1.0, -1.0):

        def shifted(name: str, x: Wide, dtype: str, rng: np.random.Generator, sign: float = sign) -> Wide:
            size = precision(coarser(dtype, working_dtype)).eps * largest_finite(np.abs(x))
            return x + sign * amplitude * size

        yield _perturb(case, generator(case, EPS_OF_MAXIMUM, 0), shifted)


def ramps(case: Case, zero_size: float) -> Iterator[Case]:
    """Yield cases whose equal values differ by less than one ulp: rising and falling with the flat index, and random.

    `zero_size` is how far exact zeros move, each away from zero with its own sign (+0.0 stays positive); 0.0 keeps
    them.
    """
    for draw, steps in enumerate((_rising, _falling, _random, _random, _random, _random)):

        def change(name: str, x: Wide, dtype: str, rng: np.random.Generator, steps: Any = steps) -> Wide:
            step: Wide = steps(x.size, rng).reshape(x.shape)
            direction = 1.0 if x.size == 0 else rng.choice((-1.0, 1.0)) if steps is _random else 1.0
            moved = x + ulp(x, dtype) * step * direction
            return np.where(x == 0.0, np.copysign(zero_size * (1.0 + step), x), moved) if zero_size else moved

        yield _perturb(case, generator(case, RAMP, draw), change, keeps_zeros=zero_size == 0.0)


def ordered_nonfinite(case: Case) -> Iterator[Case]:
    """Yield cases with numbers above all others for NaN and infinities: all alike first, then in six orders.

    NaN stands above infinity, as torch sorts it. Which of several NaN comes first is nobody's promise; whether NaN
    comes first at all is, and shows in the first case.
    """
    for draw, steps in enumerate((_alike, _rising, _falling, _random, _random, _random, _random)):
        rng = generator(case, RAMP, 200 + draw)
        inputs = dict(case.inputs)
        for name, array in _floats(case).items():
            x = as_float64(array)
            figures = precision(array.dtype.name)
            above = 1.0 + figures.eps * steps(x.size, rng).reshape(x.shape)
            moved = np.where(np.isnan(x), 4.0 * figures.largest * above, x)
            moved = np.where(np.isinf(x), np.copysign(2.0 * figures.largest * above, x), moved)
            inputs[name] = _unpaired(moved, array)
        yield Case(inputs)


def restored(output: Array, dtype: str) -> Array:
    """Return an output of `ordered_nonfinite` inputs with NaN and infinities where their stand-ins came through."""
    if output.dtype.kind != "f":
        return output
    largest = precision(dtype).largest
    infinite = np.where(np.abs(output) > 1.5 * largest, np.copysign(np.inf, output), output)
    return np.asarray(np.where(output > 3.0 * largest, np.nan, infinite))


def shifted_zeros(case: Case, zero_size: float) -> Case:
    """Move every exact zero by the same amount away from zero: a threshold at zero shows, an order does not."""

    def change(name: str, x: Wide, dtype: str, rng: np.random.Generator) -> Wide:
        return np.where(x == 0.0, np.copysign(zero_size, x), x)

    return _perturb(case, generator(case, RAMP, 99), change, keeps_zeros=False)


def zero_sizes(case: Case, working_dtype: str) -> tuple[float, ...]:
    """Return how far zeros are moved by ramps: none when no tensor holds two of them.

    The smallest normal leaves products alone; eps of the largest |value| (of 1 at least) survives an addition.
    """
    wide = [as_float64(x) for x in _floats(case).values()]
    if not any(int((x == 0.0).sum()) > 1 for x in wide):
        return ()
    largest = max(largest_finite(np.abs(x)) for x in wide)
    figures = precision(working_dtype)
    return (figures.smallest_normal, figures.eps * max(1.0, largest))


def ulp(x: Wide, dtype: str) -> Wide:
    """Return the distance of each value to the next one of a dtype, in float64; that of 0.0 is the smallest one."""
    figures = precision(dtype)
    _, exponent = np.frexp(np.where(np.isfinite(x), x, 1.0))
    exponent = np.where(x == 0.0, figures.minimum_exponent, exponent - 1)
    distance: Wide = np.ldexp(1.0, np.maximum(exponent, figures.minimum_exponent) - figures.mantissa_bits)
    return distance


def _alike(size: int, rng: np.random.Generator) -> Wide:
    return np.zeros(size)


def _rising(size: int, rng: np.random.Generator) -> Wide:
    return np.arange(size, dtype=np.float64) / max(size, 1)


def _falling(size: int, rng: np.random.Generator) -> Wide:
    return 1.0 - _rising(size, rng)


def _random(size: int, rng: np.random.Generator) -> Wide:
    return rng.uniform(0.0, 1.0, size)


def _floats(case: Case) -> dict[str, Array]:
    return {name: x for name, x in case.inputs.items() if is_float(x.dtype) or x.dtype.kind == "c"}


def _perturb(case: Case, rng: np.random.Generator, change: Change, *, keeps_zeros: bool = True) -> Case:
    """Return the case with its float inputs in float64 and changed; NaN, Inf and (mostly) zeros as they were."""
    inputs = dict(case.inputs)
    for name, array in _floats(case).items():
        x = as_float64(array)
        with np.errstate(all="ignore"):
            kept = ~np.isfinite(x) | (x == 0.0) if keeps_zeros else ~np.isfinite(x)
            moved = np.where(kept, x, change(name, x, array.dtype.name, rng))
        inputs[name] = _unpaired(moved, array)
    return Case(inputs)


def _unpaired(moved: Wide, like: Array) -> Array:
    """Return values as an input: pairs of reals become the complex numbers that they were made of."""
    return np.ascontiguousarray(moved).view(np.complex128)[..., 0] if like.dtype.kind == "c" else moved


def calm(case: Case) -> Case:
    """Return the case with its float inputs within -1 and 1, and zero where they are not finite."""
    inputs = dict(case.inputs)
    for name, x in _floats(case).items():
        inputs[name] = np.zeros_like(x) if x.dtype.kind == "c" else np.clip(np.nan_to_num(as_float64(x)), -1.0, 1.0)
    return Case(inputs)


def has_floats(case: Case) -> bool:
    """Tell whether any input is floating point or complex."""
    return bool(_floats(case))


def largest_input(case: Case) -> float:
    """Return the largest finite |value| of the float inputs."""
    return max((largest_finite(np.abs(as_float64(x))) for x in _floats(case).values()), default=0.0)
