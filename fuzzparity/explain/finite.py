"""Finite: does a finding that was met with NaN or infinity need them.

The idea: wrong NaN semantics of a part and wrong arithmetic of the same part are two faults. What still differs with
finite numbers in place of the NaN and infinities is told with the fault on finite inputs; what does not is its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fuzzparity.case import Array, Case, is_float
from fuzzparity.execution import Execution
from fuzzparity.explain.pairing import asked_of, map_of
from fuzzparity.explain.records import TwinSpec
from fuzzparity.explain.twin import open_twin
from fuzzparity.verdict import Grade, Kind, Verdict
from fuzzparity.work.alone import run_alone
from fuzzparity.work.announce import Announcer
from fuzzparity.work.loader import Context

# (in place of NaN, of infinity): moderate, then large, then as large as half precision holds
_NUMBERS = ((1.0, 100.0), (0.0, 1e6), (0.0, 6e4))


def finite_versions(case: Case) -> list[Case]:
    """Return a case with numbers in place of NaN and of the infinities, whose signs stay; none where it has none."""
    found: dict[str, Case] = {}
    for nan, large in _NUMBERS:
        inputs = {name: _finite(array, nan, large) for name, array in case.inputs.items()}
        version = Case(inputs)
        if version.is_finite:
            found.setdefault(version.digest, version)
    found.pop(case.digest, None)
    return list(found.values())


def _finite(array: Array, nan: float, large: float) -> Array:
    if array.dtype.kind == "c" or not is_float(array.dtype):
        return array
    wide = array.astype(np.float64)
    wide = np.where(np.isnan(wide), nan, np.where(np.isinf(wide), np.copysign(large, wide), wide))
    with np.errstate(over="ignore"):
        return wide.astype(array.dtype)


def _is_like(one: Verdict, verdict: Verdict) -> bool:
    """Tell whether a bug on a finite version is that of a verdict; of a pattern of NaN, in any kind."""
    is_kind = one.kind is verdict.kind or verdict.kind is Kind.NONFINITE
    return one.grade is Grade.BUG and one.output == verdict.output and is_kind


def is_also_finite(context: Context, spec: TwinSpec, case: Case, verdict: Verdict) -> bool:
    """Tell whether a bug that was met with NaN or infinity shows in its output with finite numbers as well."""
    versions = finite_versions(case)
    if not versions or verdict.grade is not Grade.BUG or not spec.is_built:
        return False

    def body(announcer: Announcer, send: Callable[[Any], None]) -> bool:
        twin = open_twin(context, spec, announcer, case)
        if isinstance(twin, Execution):
            return False
        for version in versions:
            expected, actual = twin.run(version)
            judgement = twin.judge(version, expected, actual, asked=asked_of(verdict))
            if any(_is_like(one, verdict) for one in judgement.verdicts):
                return True
        return False

    return run_alone(body, map_path=map_of(context), limits=context.limits) is True
