"""Policy: how far an output may be off before anybody asks for evidence, with the source of every number.

The idea: the screen is cheap and errs toward asking. It allows the larger of what `torch.testing.assert_close` allows
for the computing dtype and a few times the arithmetic noise seen on the seeds; a tolerance of the user decides alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np

from fuzzparity.case import Array, is_float
from fuzzparity.errors import InvalidTarget
from fuzzparity.execution import Execution
from fuzzparity.oracle.compare import Allowance, compare
from fuzzparity.oracle.quality import Quality
from fuzzparity.oracle.regions import Region, ordered, outside, region_of
from fuzzparity.target import POLICIES, QUALITIES, Tolerance
from fuzzparity.verdict import Comparison, Kind

DEFAULTS = {  # torch.testing._comparison._DTYPE_PRECISIONS: dtype -> (rtol, atol), finest first
    "float64": (1e-7, 1e-7),
    "float32": (1.3e-6, 1e-5),
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
}
# one eps of the dtype: torch has no entry for 8-bit floats, and rtol of its 16-bit entries is one to two eps
DEFAULTS |= {"float8_e4m3fn": (0.125, 1e-5), "float8_e5m2": (0.25, 1e-5)}
NOISE_FACTOR = 4.0  # "a few times": the seeds show typical noise, not the largest
# What practice accepts between two engines, dtype -> (rtol, atol): 0.1 % is the rtol of the ONNX backend test runner,
# 1e-4 the usual atol of logits (FACTS, "Policies"); 16-bit floats some 20 and 6 eps; float64 two digits per step.
MATERIAL = {"float64": (1e-5, 1e-6), "float32": (1e-3, 1e-4), "float16": (2e-2, 2e-2), "bfloat16": (5e-2, 1e-1)}
BACKEND_RTOL = 1e-3  # rtol of the ONNX backend test runner, the loosest that is customary between two engines


@dataclass(frozen=True, slots=True)
class Precision:
    """Hold what evidence needs to know of a float dtype."""

    name: str
    eps: float
    mantissa_bits: int
    minimum_exponent: int
    smallest_normal: float
    largest: float


@lru_cache(maxsize=32)
def precision(name: str) -> Precision:
    """Return the figures of a float dtype by numpy name; complex ones by their parts."""
    dtype = np.dtype(getattr(ml_dtypes, name, None) or name)
    dtype = np.empty(0, dtype).real.dtype if dtype.kind == "c" else dtype
    info = ml_dtypes.finfo(dtype)
    return Precision(
        name=dtype.name,
        eps=float(info.eps),
        mantissa_bits=int(info.nmant),
        minimum_exponent=int(info.minexp),
        smallest_normal=float(info.tiny),
        largest=float(info.max),
    )


def coarser(one: str, other: str) -> str:
    """Return the less precise of two float dtypes."""
    return max(one, other, key=lambda name: precision(name).eps)


@dataclass(frozen=True, slots=True)
class Policy:
    """Hold what the outputs of one build may differ by.

    `noise`: output -> largest error on the seeds over the largest |expected|, as `calibrate` established it.
    `scale`: output -> largest finite |expected| on the seeds: the size at which its values matter.
    """

    outputs: tuple[str, ...]
    computing_dtype: str = "float32"
    tolerances: Mapping[str, Tolerance | str] = field(default_factory=dict)  # by output, or by a slice of one
    noise: Mapping[str, float] = field(default_factory=dict)
    scale: Mapping[str, float] = field(default_factory=dict)
    trailing_masks: tuple[str, ...] = ()  # outputs whose `compare_where` masks are aligned with their last dims
    quality: Mapping[str, Quality] = field(default_factory=dict)  # of outputs of a quantized or half twin
    decided: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # integer output -> float output, axis: argmax

    def __post_init__(self) -> None:
        """Refuse tolerances for outputs that do not exist, and slices that cannot be read."""
        for key in self.tolerances:
            region_of(key, self.outputs)

    def working_dtype(self, dtype: np.dtype[Any]) -> str:
        """Return the precision that an output can be held to: the coarser of its own dtype and the computing one."""
        if is_float(dtype) or dtype.kind == "c":
            return coarser(precision(dtype.name).name, self.computing_dtype)
        return self.computing_dtype

    def default(self, dtype: np.dtype[Any]) -> Allowance:
        """Return what `torch.testing.assert_close` allows: an error within it is never an alarm."""
        name = self.working_dtype(dtype)
        rtol, atol = DEFAULTS.get(name, (precision(name).eps, 1e-5))
        return Allowance(rtol, atol, source=f"torch.testing.assert_close, {name}")

    def allowance(self, output: str, dtype: np.dtype[Any]) -> Allowance:
        """Return the screen of one output: a user's tolerance alone, else the larger of default and noise."""
        if output in self.tolerances and self.tolerances[output] not in QUALITIES:
            return _users(self.tolerances[output])
        default = self.default(dtype)
        noise = self.noise.get(output, 0.0)
        if not noise:
            return default
        source = f"{default.source}, or {NOISE_FACTOR:g} times the noise on the seeds ({noise:.2g} of the maximum)"
        return replace(default, floor=NOISE_FACTOR * noise, source=source)

    def regions(self, output: str) -> tuple[tuple[Region, Allowance], ...]:
        """Return the slices of one output that have a tolerance of their own, the most specific first."""
        if len(self.tolerances) == sum(name in self.tolerances for name in self.outputs):
            return ()
        found = ((region_of(key, self.outputs), chosen) for key, chosen in self.tolerances.items())
        return ordered((r, _users(chosen)) for r, chosen in found if r is not None and r.output == output)

    @property
    def is_by_element(self) -> bool:
        """Tell whether every output is judged element by element under one allowance, as rows of a stack are."""
        return not self.quality and all(
            name in self.outputs and self.unordered(name) is None for name in self.tolerances
        )

    def unordered(self, output: str) -> int | None:
        """Return the axis along which the user calls an output a set, None where its order counts."""
        chosen = self.tolerances.get(output)
        return chosen.unordered if isinstance(chosen, Tolerance) else None

    def require_fit(self, execution: Execution) -> list[str]:
        """Refuse slices that the outputs of a seed cannot have, by InvalidTarget; return a note on each empty one."""
        notes = []
        for name, array in zip(self.outputs, execution.outputs, strict=False):
            for region, _ in self.regions(name):
                if problem := region.problem(array.shape):
                    raise InvalidTarget(
                        "declare",
                        f"tolerances {region.text!r} fits no output of shape {list(array.shape)}: {problem}",
                        "give a slice that the output has, as in 'boxes[..., :4]'",
                    )
                if region.is_empty(array.shape):
                    notes.append(f"tolerances {region.text!r} holds no element of the first seed's {list(array.shape)}")
        return notes

    def material(self, output: str, dtype: np.dtype[Any]) -> Allowance:
        """Return what an error must exceed to be called a bug; one that is beyond arithmetic but below it is a note.

        Kernels that round their own coordinates or approximate a sigmoid are off by more than rounding explains and by
        less than anybody minds. `atol` shrinks to 1 % of outputs that are below 0.01 throughout the seeds.
        """
        name = self.working_dtype(dtype)
        rtol, atol = MATERIAL.get(name, (8.0 * precision(name).eps, 8.0 * precision(name).eps))
        smallness = min(1.0, 100.0 * (self.scale.get(output) or 1.0))
        return Allowance(rtol, atol * smallness, source="customary between two engines")


def _users(chosen: Tolerance | str) -> Allowance:
    """Return the allowance that a user's word gives."""
    tolerance = POLICIES[chosen] if isinstance(chosen, str) else chosen
    source = f"user's policy {chosen!r}" if isinstance(chosen, str) else "user's tolerance"
    return Allowance(tolerance.rtol, tolerance.atol, source=source, is_users=True)


def calibrate(policy: Policy, pairs: Iterable[tuple[Execution, Execution]]) -> Policy:
    """Return the policy with the noise of each output, measured on (torch, ORT) executions of seeds.

    Give it seeds that agree, or whose difference evidence called inherent. A fault must not become noise: what exceeds
    half the digits of the computing dtype, sqrt(eps), is left out; noise of 13 real float32 models was 1e-7 to 1e-4.
    """
    noise, scale = dict(policy.noise), dict(policy.scale)
    for expected, actual in pairs:
        if not (expected.is_ok and actual.is_ok and len(expected.outputs) == len(actual.outputs)):
            continue
        for name, e, a in zip(policy.outputs, expected.outputs, actual.outputs, strict=True):
            if (regions := policy.regions(name)) and e.shape == a.shape:
                e, a = outside(e, regions), outside(a, regions)
            if is_float(e.dtype):
                scale[name] = max(scale.get(name, 0.0), largest_magnitude(e))
            comparison = compare(e, a, policy.default(e.dtype))
            limit = precision(policy.working_dtype(e.dtype)).eps ** 0.5
            if comparison.kind in (Kind.AGREE, Kind.NUMERIC) and comparison.scaled <= limit:
                noise[name] = max(noise.get(name, 0.0), comparison.scaled)
    return replace(policy, noise=noise, scale=scale)


def largest_magnitude(array: Array) -> float:
    """Return the largest finite magnitude of a float output, 0.0 when there is none."""
    wide = np.abs(array.astype(np.float64))
    wide = wide[np.isfinite(wide)]
    return float(wide.max()) if wide.size else 0.0


def relative_look(expected: Array, actual: Array, working_dtype: str = "float32") -> Comparison:
    """Compare without an absolute bound, for a sample of cases: it asks for evidence, and never judges.

    A fixed `atol` is blind to outputs that are small altogether (1e-9 against 0 passes). Here 0.1 % of the element is
    allowed, and elements under 0.1 % of their tensor's maximum get what an element of that size would: below it, noise
    relative to the maximum (1e-6 is usual) makes every relative figure large.
    """
    return compare(expected, actual, relative_allowance(working_dtype))


def relative_allowance(working_dtype: str) -> Allowance:
    """Return the bound of the relative look: 0.1 %, or 8 times assert_close's where the dtype is coarser than that."""
    rtol = max(BACKEND_RTOL, 8.0 * DEFAULTS.get(working_dtype, (precision(working_dtype).eps, 0.0))[0])
    # atol: gradual underflow loses digits of values near the smallest normal; flushing it to zero is allowed
    smallest = precision(working_dtype).smallest_normal
    return Allowance(rtol, smallest, floor=rtol * 1e-3, source=f"relative look, {rtol:g} of the element")
