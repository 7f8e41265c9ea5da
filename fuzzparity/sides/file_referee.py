"""File referee: the exact answer from the ONNX file, for targets whose module cannot run in float64.

The idea: the same questions as of the module's referee, answered by the specification's evaluator in float64. It has a
vote only when it agrees with torch on a seed to within its own noise: else it would speak for a faulty file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from fuzzparity.case import Array, Case, is_float
from fuzzparity.sides.noise import Noise
from fuzzparity.sides.onnx_double import MOVES, SUMS, Unfit, WideEvaluator, arrays

SOURCE = "ONNX reference in float64"
_DRAWS = 4
_MOVES = 8.0  # as far as evidence lets a side be from exact
_UNITS = 32.0  # units roundoff of the largest value that any output may be off: assert_close allows 22 in float32


class FileReferee:
    """Answer in float64 for the oracle by the ONNX file. `missing` says why there is no answer."""

    source = SOURCE
    is_of_file = True
    operators = 0  # not counted: each node costs the same here

    def __init__(self, model: onnx.ModelProto, feeds: Mapping[str, str], bits: int) -> None:
        """Bind to a model; `feeds`: input name -> ONNX input name, `bits`: mantissa of the working precision."""
        self.missing = ""
        self._feeds = dict(feeds)
        self._bits = bits
        self._evaluator: WideEvaluator | None = None
        try:
            self._evaluator = WideEvaluator(model)
        except Exception as error:  # the evaluator raises whatever it likes about operators that it lacks
            self.missing = _reason(error)

    def unmoved(self, case: Case) -> frozenset[int]:
        """Return no output: where values come from is not followed here."""
        return frozenset()

    def exact(self, case: Case) -> tuple[Array, ...] | None:
        """Return the outputs in float64 (integers stay integers), or None when the evaluator cannot."""
        return self._run(case, None)

    def rounded(self, case: Case, draw: int, times: float = 1.0) -> tuple[Array, ...] | None:
        """Return the outputs of one run with each node's result rounded at random; one `draw`, one answer."""
        noise = Noise(self._bits, draw, times)

        def watch(
            op: str, run: Callable[..., Sequence[Any]], inputs: tuple[Any, ...], outputs: Sequence[Any]
        ) -> Sequence[Any]:
            if op in MOVES:
                return outputs
            if op in SUMS and not all(noise.fits(x) for x in arrays(outputs)):
                outputs = run(*(noise.noisy(x) if isinstance(x, np.ndarray) else x for x in inputs))
            return tuple(noise.rounded(x) if isinstance(x, np.ndarray) else x for x in outputs)

        return self._run(case, watch)

    def peak(self, case: Case) -> float:
        """Return the largest finite magnitude of inputs and of what any node gives; 0.0 when it cannot run."""
        largest = max((_largest(x) for x in case.inputs.values()), default=0.0)

        def watch(
            op: str, run: Callable[..., Sequence[Any]], inputs: tuple[Any, ...], outputs: Sequence[Any]
        ) -> Sequence[Any]:
            nonlocal largest
            largest = max([largest, *map(_largest, arrays(outputs))])
            return outputs

        return largest if self._run(case, watch) is not None else 0.0

    def bounds(self, case: Case) -> tuple[tuple[Array | None, ...], str]:
        """Return nothing: rounding bounds are followed through torch's operators alone."""
        return (), ""

    def disagreement(self, case: Case, expected: Sequence[Array]) -> str:
        """Return why torch's outputs on a seed are not those of the file to within its noise, "" when they are."""
        exact = self.exact(case)
        if exact is None:
            return self.missing
        moved = [outputs for draw in range(_DRAWS) if (outputs := self.rounded(case, draw)) is not None]
        if len(exact) != len(expected):
            return f"the ONNX reference gives {len(exact)} outputs and torch {len(expected)}"
        for place, (one, wanted) in enumerate(zip(exact, expected, strict=True)):
            if not self._agrees(one, wanted, [outputs[place] for outputs in moved]):
                return f"on the seed the ONNX reference gives another output {place} than torch: the file is at fault"
        return ""

    def exclude(self, why: str) -> None:
        """Take the vote from this referee, with a reason; "" leaves it."""
        if why:
            self.missing, self._evaluator = why, None

    def _agrees(self, exact: Array, wanted: Array, moved: Sequence[Array]) -> bool:
        if exact.shape != wanted.shape:
            return False
        if not is_float(wanted.dtype):
            return bool((exact == wanted).all())
        one, other = exact.astype(np.float64), wanted.astype(np.float64)
        finite = np.isfinite(one)
        if not np.array_equal(one[~finite], other[~finite], equal_nan=True) or not np.isfinite(other[finite]).all():
            return False
        moves = [np.abs(x - one)[finite] for x in moved if x.shape == one.shape]
        largest = np.abs(one[finite]).max(initial=0.0)
        allowed: Array = np.full(int(finite.sum()), _UNITS * 2.0 ** -(self._bits + 1) * largest)
        for move in moves:
            allowed = np.maximum(allowed, _MOVES * np.nan_to_num(move))
        return bool((np.abs(one - other)[finite] <= allowed).all())

    def _run(self, case: Case, watch: Any) -> tuple[Array, ...] | None:
        if self._evaluator is None:
            return None
        feeds = {onnx_name: _wide(case.inputs[name]) for name, onnx_name in self._feeds.items() if onnx_name}
        try:
            outputs = self._evaluator.run(feeds, watch)
        except Exception as error:  # numpy's and the evaluator's own
            self.missing = _reason(error)
            return None
        self.missing = ""
        return outputs


def _wide(array: Array) -> Array:
    return array.astype(np.float64) if is_float(array.dtype) else array


def _largest(array: Array) -> float:
    if not is_float(array.dtype):
        return 0.0
    size = np.abs(array.astype(np.float64))
    return float(np.max(size, initial=0.0, where=np.isfinite(size)))


def _reason(error: Exception) -> str:
    if isinstance(error, Unfit):
        return str(error)
    text = str(error).strip().splitlines()
    return f"the ONNX reference cannot run the file: {type(error).__name__}{': ' + text[0][:160] if text else ''}"
