"""Features tell outcomes apart, ignore small differences, and stay bounded."""

from __future__ import annotations

import numpy as np
import pytest
from contracts import DTYPES

from fuzzparity.case import Case
from fuzzparity.contract import Contract, Dim, InputContract
from fuzzparity.execution import ORT, TORCH, Execution, Refusal, Status
from fuzzparity.generate.feedback import features
from fuzzparity.verdict import Comparison, Judgement, Kind

CONTRACT = Contract((InputContract("x", "float32", (Dim(4, "n"), Dim(3))),))


def case_of(size: int = 4) -> Case:
    return Case({"x": np.zeros((size, 3), np.float32)})


def features_of(output: np.ndarray, ratio: float = 0.1, size: int = 4, kind: Kind = Kind.AGREE) -> frozenset[str]:
    run = Execution(TORCH, Status.OK, (output,))
    judgement = Judgement(kind, comparisons=(Comparison(kind, error_ratio=ratio),))
    return features(case_of(size), CONTRACT, run, Execution(ORT, Status.OK, (output,)), judgement)


def test_small_changes_of_magnitude_show_nothing_new() -> None:
    base = np.array([[0.1, 0.9, 0.3]], np.float32)
    assert features_of(base) == features_of(base * np.float32(1.01), ratio=0.11)


def test_decisions_ranges_ratios_and_shapes_show() -> None:
    base = np.array([[0.1, 0.9, 0.3]], np.float32)
    assert features_of(base) != features_of(np.roll(base, 1, axis=1))
    assert features_of(base) != features_of(base * 1e6)
    assert features_of(base) != features_of(base, ratio=0.9)
    assert features_of(base) != features_of(base, size=0)
    assert features_of(base) != features_of(base, size=5)
    assert features_of(base) != features_of(np.array([[0.1, 0.9, np.nan]], np.float32))
    assert features_of(base) != features_of(base, kind=Kind.NUMERIC)


def test_refusals_show_by_their_site() -> None:
    def of(site: str) -> frozenset[str]:
        refused = Execution(ORT, Status.REFUSED, refusal=Refusal("Fail", "no", site))
        torch = Execution(TORCH, Status.OK, (np.zeros(1),))
        return features(case_of(), CONTRACT, torch, refused, Judgement(Kind.ERROR_SPLIT))

    assert of("Div math.cc:1") != of("Mul math.cc:2")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (2, 3)])
def test_outputs_of_every_dtype_have_features(dtype: str, shape: tuple[int, ...]) -> None:
    assert features_of(np.ones(shape).astype(dtype))


def test_the_number_of_features_is_bounded_over_wild_outputs() -> None:
    rng = np.random.default_rng(0)
    seen: set[str] = set()
    for _ in range(3000):
        output = rng.standard_normal((int(rng.integers(1, 9)), 1000)) * 10.0 ** rng.integers(-300, 300)
        seen |= features_of(output, ratio=10.0 ** rng.integers(-300, 300), size=int(rng.integers(0, 2000)))
    assert len(seen) < 200


def test_comparisons_with_infinite_and_zero_ratio_are_told_apart() -> None:
    base = np.ones((1, 3), np.float32)
    assert len({features_of(base, ratio=ratio) for ratio in (0.0, 1.0, float("inf"))}) == 3
    assert features_of(base, ratio=float("nan")) == features_of(base, ratio=float("inf"))
