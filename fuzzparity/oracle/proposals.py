"""Proposals: which named policy fits an output, from what its values on the seeds are, with a reason to check it by.

The idea: dtype, range, sums and noise are evidence; a name is only a hint, and is never enough alone. Nothing proposed
here is applied by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fuzzparity.case import Array, is_float
from fuzzparity.execution import Execution
from fuzzparity.oracle.compare import as_float64
from fuzzparity.oracle.policy import Policy
from fuzzparity.oracle.quality import decided_by

DECLARED = "declared by you"
_SUM_ERROR = 1e-3  # of probabilities that sum to one: half precision keeps it
_PIXELS = 2.0  # a box that reaches beyond it is not in fractions of an image
_SILENCE = -2.0  # a log spectrogram goes at least as low (log10 of 1e-2) ...
_BINS = (40, 64, 80, 100, 128)  # ... and has as many bins as mel filter banks have
_MASK_SIDE = 8  # pixels: a map that is smaller is no mask

Wide = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Proposal:
    """Propose a policy for one output, "" where the default screen is right; `line` is what to paste."""

    output: str
    policy: str
    reason: str
    line: str = ""


def proposals(policy: Policy, executions: Sequence[Execution], carried: Sequence[str] = ()) -> tuple[Proposal, ...]:
    """Return a proposal for each output, from torch's executions of seeds; `carried`: outputs fed back as inputs."""
    done = [one.outputs for one in executions if one.is_ok and len(one.outputs) == len(policy.outputs)]
    if not done:
        return ()
    decided = decided_by(policy.outputs, executions)
    found = []
    for index, name in enumerate(policy.outputs):
        arrays = [one[index] for one in done]
        if name in policy.tolerances:
            found.append(Proposal(name, "", DECLARED))
        elif name in policy.quality:
            found.append(Proposal(name, policy.quality[name].name, f"applied: {policy.quality[name].words}"))
        else:
            found.append(_of(name, arrays, policy, decided, name in carried))
    return tuple(found)


def _of(
    name: str, arrays: Sequence[Array], policy: Policy, decided: Mapping[str, tuple[int, int]], is_carried: bool
) -> Proposal:
    if not is_float(arrays[0].dtype):
        return Proposal(name, "", _exact_reason(name, arrays, policy, decided))
    wide = [values for values in map(as_float64, arrays) if values.size and np.isfinite(values).all()]
    if not wide:
        return Proposal(name, "", "no finite value of it on the seeds")
    chosen = next(_fitting(name, wide, is_carried), None)
    if chosen is None:
        low, high = min(float(x.min()) for x in wide), max(float(x.max()) for x in wide)
        return Proposal(name, "", f"values {low:.3g}..{high:.3g} of no known kind: the screen and evidence judge")
    noise = policy.noise.get(name)
    said = f"; the seeds differ by {noise:.2g} of the largest" if noise else ""
    return Proposal(name, chosen[0], chosen[1] + said, f"tolerances={{{name!r}: {chosen[0]!r}}}")


def _fitting(name: str, wide: Sequence[Wide], is_carried: bool) -> Iterator[tuple[str, str]]:
    """Yield (policy, reason) of each kind that the values fit, the most certain first."""
    low, high = min(float(x.min()) for x in wide), max(float(x.max()) for x in wide)
    span = f"values {low:.3g}..{high:.3g}"
    hint = name.lower()
    if is_carried:
        yield "recurrent", "it is fed back as an input, so errors add up over steps"
    if low >= 0.0 and high <= 1.0 + _SUM_ERROR and all(_sums_to_one(x) for x in wide):
        yield "logits", f"{span} that sum to one along an axis: probabilities"
    if all(_is_map(x) for x in wide) and low >= 0.0 and high <= 1.0:
        yield "mask_probabilities", f"{span} over maps of {list(wide[0].shape)}"
    if all(x.ndim >= 2 and x.shape[-1] in (4, 5, 6) and len(x.reshape(-1, x.shape[-1])) for x in wide):
        corners = all(_are_boxes(x) for x in wide)
        if corners or "box" in hint:
            kind = "boxes_pixels" if high > _PIXELS else "boxes_normalized"
            how = "four columns with left < right and top < bottom" if corners else f"columns of {wide[0].shape[-1]}"
            yield kind, f"{how}, {span}" + ("" if corners else ", and the name says boxes")
    if low < _SILENCE and all(x.ndim >= 2 and set(x.shape[-2:]) & set(_BINS) for x in wide) and "mel" in hint:
        yield "mel", f"{span} over {wide[0].shape[-2]} x {wide[0].shape[-1]}, and the name says mel"
    if ("logit" in hint or "score" in hint) and low < 0.0 < high:
        yield "logits", f"{span} of both signs, and the name says {'logits' if 'logit' in hint else 'scores'}"


def _exact_reason(name: str, arrays: Sequence[Array], policy: Policy, decided: Mapping[str, tuple[int, int]]) -> str:
    kind = "booleans" if arrays[0].dtype.kind == "b" else "integers"
    if name in decided:
        place, axis = decided[name]
        source = policy.outputs[place]
        return f"{kind}, the argmax of {source} along axis {axis} on every seed: exact, and ties of {source} are told"
    return f"{kind}: compared exactly, and what sits on a threshold is told as a tie"


def _sums_to_one(values: Wide) -> bool:
    return any(
        values.shape[axis] > 1 and bool((np.abs(values.sum(axis) - 1.0) <= _SUM_ERROR).all())
        for axis in range(values.ndim)
    )


def _is_map(values: Wide) -> bool:
    return values.ndim >= 3 and min(values.shape[-2:]) >= _MASK_SIDE


def _are_boxes(values: Wide) -> bool:
    """Tell whether the first four columns are corners: left below right, top below bottom, in every row."""
    rows = values.reshape(-1, values.shape[-1])
    return bool(len(rows)) and bool(((rows[:, 2] > rows[:, 0]) & (rows[:, 3] > rows[:, 1])).all())
