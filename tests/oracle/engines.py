"""Small numpy engines with a float64 referee of their own: a function stands for the module, another for its twin."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fuzzparity.case import Case
from fuzzparity.execution import ORT, TORCH, Execution, Status
from fuzzparity.oracle import Oracle, Policy
from fuzzparity.verdict import Judgement, Realism

Function = Callable[..., tuple[np.ndarray, ...]]


class Rounding:
    """Round intermediates: `r(x)` to a dtype, or at random to a unit roundoff; keeps the largest |value| seen."""

    def __init__(self, dtype=np.float32, unit=0.0, draw=0):
        self.dtype, self.unit, self.peak = dtype, unit, 0.0
        self.rng = np.random.default_rng(draw)

    def __call__(self, x):
        x = np.asarray(x)
        if x.dtype.kind not in "f":
            return x
        x = x.astype(self.dtype)
        finite = np.abs(x[np.isfinite(x)])
        self.peak = max(self.peak, float(finite.max())) if finite.size else self.peak
        if self.unit:
            x = x * (1.0 + self.unit * self.rng.choice((-1.0, 1.0), x.shape))
        return x


class NumpyReferee:
    """Run a function `f(r, *inputs)` in float64, as torch's referee does."""

    source, is_of_file = "torch float64", False

    def __init__(self, function: Function, unit=2.0**-24, missing=""):
        self.function, self.unit, self.missing, self.runs, self.operators = function, unit, missing, 0, 0

    def _run(self, case, rounding):
        self.runs += 1
        wide = [x.astype(np.float64) if x.dtype.kind not in "iub" else x for x in case.inputs.values()]
        with np.errstate(all="ignore"):
            return self.function(rounding, *wide)

    def exact(self, case):
        return None if self.missing else self._run(case, Rounding(np.float64))

    def rounded(self, case, draw, times=1.0):
        return None if self.missing else self._run(case, Rounding(np.float64, self.unit * times, draw))

    def peak(self, case):
        rounding = Rounding(np.float64)
        self._run(case, rounding)
        sizes = [np.abs(x.astype(np.float64)) for x in case.inputs.values()]
        return max([rounding.peak, *(float(size[np.isfinite(size)].max(initial=0.0)) for size in sizes)])

    def bounds(self, case):
        return (), "numpy"

    def unmoved(self, case):
        return frozenset()


def run(function: Function, case: Case, side: str, dtype=np.float32) -> Execution:
    """Run a function as a side of working precision `dtype`."""
    with np.errstate(all="ignore"):
        outputs = function(Rounding(dtype), *case.inputs.values())
    return Execution(side, Status.OK, tuple(np.asarray(x) for x in outputs))


def judge(torch: Function, ort: Function, *inputs, referee="own", dtype=np.float32, **options) -> Judgement:
    """Judge a case on two functions; `torch` in float64 is the exact answer."""
    case = Case({f"x{i}": x for i, x in enumerate(inputs)})
    expected, actual = run(torch, case, TORCH, dtype), run(ort, case, ORT, dtype)
    oracle = make_oracle(len(expected.outputs), np.dtype(dtype).name, **options)
    return oracle.judge(case, expected, actual, NumpyReferee(torch) if referee == "own" else referee)


def make_oracle(count=1, computing_dtype="float32", breach="", realism=Realism.NEAR, tolerances=None, noise=None):
    names = tuple(f"y{i}" for i in range(count))
    policy = Policy(names, computing_dtype, tolerances or {}, noise or {})
    return Oracle(names, policy, lambda case: breach, lambda case: realism)


def f32(*values):
    return np.array(values, dtype=np.float32)
