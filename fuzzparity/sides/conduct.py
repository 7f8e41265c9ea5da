"""Conduct: what a module does besides answering: writes to its inputs, keeps state, answers by what ran before.

The idea: the first seed runs, runs again, and runs once more after another case. What is put back between runs is said;
what cannot be put back is seen by its answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fuzzparity.case import Array, Case, is_float
from fuzzparity.contract import Contract
from fuzzparity.errors import InvalidTarget
from fuzzparity.execution import Execution, Status
from fuzzparity.sides.load import LoadedTarget
from fuzzparity.sides.shapes import AskedDims, other_sample
from fuzzparity.sides.torch_side import TorchSide

_SAME = 1e-4  # of the largest magnitude: torch's sums depend a little on where memory lies


@dataclass(frozen=True, slots=True)
class Conduct:
    """Hold what the first seed showed. `names`: the module's own output names, "" for a place without one."""

    names: tuple[str, ...]
    outputs: tuple[Array, ...] = field(default=(), repr=False, compare=False)
    mutates_inputs: bool = False
    notes: tuple[str, ...] = ()


def observe(loaded: LoadedTarget, asked: AskedDims) -> Conduct:
    """Run the module on the first seed and around it; `InvalidTarget` when it refuses it or returns no tensor."""
    side, seed = TorchSide(loaded), loaded.seed
    first = side.run(seed)
    if first.status is not Status.OK:
        assert first.refusal is not None
        shapes = ", ".join(f"{name} {a.dtype.name}{list(a.shape)}" for name, a in seed.inputs.items())
        raise InvalidTarget(
            "run",
            f"the module refuses its own inputs ({shapes}): {first.refusal.said} ({first.refusal.site})",
            "give inputs that forward takes, by position and in its order, and in kwargs what goes by keyword",
        )
    if not first.outputs:
        raise InvalidTarget("run", "the module returns no tensor", "return at least one tensor from forward")
    again = side.run(seed)
    side.run(_another(asked, seed, loaded.target.opaque_inputs))
    notes = _history_notes(first, again, side.run(seed), loaded.target.reset is not None)
    if side.mutates_inputs:
        notes = ("the module writes to its inputs", *notes)
    state = (side.state_note,) if side.state_note else ()
    return Conduct(side.names(seed), first.outputs, side.mutates_inputs, (*notes, *state))


def _history_notes(first: Execution, again: Execution, after: Execution, has_reset: bool) -> tuple[str, ...]:
    """Return a note when three runs of one case, the last after another case, do not give one answer."""
    advice = "" if has_reset else "; give reset=callable(module)"
    if not _is_same(again, first) and _is_same(after, again):
        return (f"the module's first run answers otherwise than the later ones{advice}",)
    if not _is_same(again, first):
        return ("two runs of the module on the same inputs differ: random numbers, or state that is not put back",)
    if not _is_same(after, first):
        return (f"the module's answer depends on what ran before, in a way that is not put back{advice}",)
    return ()


def _is_same(one: Execution, other: Execution) -> bool:
    return (
        one.status is other.status
        and len(one.outputs) == len(other.outputs)
        and all(map(_is_close, one.outputs, other.outputs))
    )


def _is_close(one: Array, other: Array) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if not is_float(one.dtype):
        return bool(np.array_equal(one, other))
    with np.errstate(all="ignore"):
        wide, other = one.astype(np.float64), other.astype(np.float64)
        largest = np.max(np.abs(wide), initial=0.0, where=np.isfinite(wide))
        return bool(np.allclose(wide, other, rtol=_SAME, atol=_SAME * largest, equal_nan=True))


def _another(asked: AskedDims, seed: Case, opaque: Sequence[str]) -> Case:
    """Return a case of other sizes where they are free, with the seed's values from the end, floats halved."""
    sample = other_sample(asked, seed)
    inputs = {}
    for name, array in sample.inputs.items():
        if name in opaque:
            inputs[name] = array
            continue
        turned = np.flip(array)
        inputs[name] = (turned * 0.5).astype(array.dtype) if is_float(array.dtype) else turned
    return Case(inputs)


def require_carry(loaded: LoadedTarget, outputs: Sequence[str], conduct: Conduct, contract: Contract) -> None:
    """Refuse a `carry` whose outputs do not exist or do not fit the inputs that they are to become."""
    for output, name in loaded.target.carry.items():
        if output not in outputs:
            raise InvalidTarget("declare", f"carry names output {output!r}", f"the outputs: {', '.join(outputs)}")
        given, wanted = conduct.outputs[list(outputs).index(output)], loaded.seed.inputs[name]
        dims = contract.input(name).dims
        has_rank = given.ndim == len(dims)
        fits = has_rank and all(d.is_dynamic or size == d.size for size, d in zip(given.shape, dims, strict=True))
        if not fits or (given.dtype != wanted.dtype and not (is_float(given.dtype) and is_float(wanted.dtype))):
            raise InvalidTarget(
                "declare",
                f"carry feeds output {output!r}, {given.dtype.name}{list(given.shape)}, into input {name!r}, which is "
                f"{wanted.dtype.name}{list(wanted.shape)}",
                "carry an output into an input of its dtype and shape",
            )
