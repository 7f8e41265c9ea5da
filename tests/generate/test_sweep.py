"""The sweep covers the classics that it promises."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from contracts import one_input, seed_for

from fuzzparity.case import Case
from fuzzparity.contract import Contract, Dim, InputContract
from fuzzparity.generate.generator import Generator, Proposal


def swept(contract: Contract, seed: Case | None = None) -> list[Proposal]:
    generator = Generator(contract, [seed or seed_for(contract)], 0)
    generator.begin(0)
    proposals = []
    while generator.sweep_position is not None:
        proposals.append(generator.propose())
    return proposals


def arrays(proposals: list[Proposal], name: str = "x") -> list[np.ndarray]:
    return [p.case.inputs[name] for p in proposals if not p.contract_breaking]


def test_each_free_dim_is_tried_at_every_classic_size() -> None:
    contract = Contract(
        (InputContract("x", "float32", (Dim(9, "n", high=50), Dim(5, "m"))),), sizes=(16,), constants=(2.3,)
    )
    sizes = {p.case.inputs["x"].shape for p in swept(contract) if not p.contract_breaking}
    for size in (0, 1, 2, 3, 7, 8, 10, 13, 18, 19, 15, 16, 17, 49, 50):
        assert (size, 5) in sizes, size
    for size in (0, 1, 2, 4, 6, 10, 11, 16, 17, 100):
        assert (9, size) in sizes, size
    assert {(0, 0), (1, 1), (0, 1), (1, 0)} <= sizes


def test_sizes_keep_their_multiple() -> None:
    contract = Contract((InputContract("x", "float32", (Dim(64, "n", low=32, high=640, multiple_of=32),)),))
    sizes = {p.case.inputs["x"].shape[0] for p in swept(contract) if not p.contract_breaking}
    assert {32, 64, 96, 608, 640} <= sizes
    assert all(size % 32 == 0 for size in sizes)


CLASSIC_FLOATS: dict[str, Callable[[np.ndarray], bool]] = {
    "plus zero": lambda x: bool((x == 0).all() and not np.signbit(x).any()),
    "minus zero": lambda x: bool((x == 0).all() and np.signbit(x).all()),
    "ones": lambda x: bool((x == 1).all()),
    "tiny": lambda x: bool(((x != 0) & (np.abs(x) <= 1e-8)).all()),
    "subnormal": lambda x: bool(((x != 0) & (np.abs(x) < 1.2e-38)).all()),
    "1e15": lambda x: bool((x == np.float32(1e15)).all()),
    "largest": lambda x: bool((x == np.finfo(np.float32).max).all()),
    "offset": lambda x: bool(x.min() > 30000 and x.max() - x.min() < 100 and x.max() > x.min()),
    "one spike": lambda x: bool((np.abs(x) > 500).sum() == 1),
    "outlier per block": lambda x: x.ndim == 2 and bool((np.abs(x[:, ::32]) > 50 * np.abs(x[:, 1:32]).max()).any()),
    "exact halves": lambda x: {0.5, 1.5, 2.5, -0.5} <= set(x.reshape(-1).tolist()),
    "sorted": lambda x: bool((np.diff(x, axis=-1) >= 0).all() and x.std() > 0.1),
    "just above a constant": lambda x: bool((x == np.nextafter(np.float32(0.7), np.float32(1))).any()),
    "just below a constant": lambda x: bool((x == np.nextafter(np.float32(0.7), np.float32(0))).any()),
    "all small": lambda x: bool((np.abs(x) < 0.01).all() and x.std() > 0),
    "one NaN, last": lambda x: bool(np.isnan(x).sum() == 1 and np.isnan(x.reshape(-1)[-1])),
    "one NaN, first": lambda x: bool(np.isnan(x).sum() == 1 and np.isnan(x.reshape(-1)[0])),
    "a NaN in every row": lambda x: bool((np.isnan(x).sum(-1) == 1).all()),
    "one infinity": lambda x: bool((x == np.inf).sum() == 1),
    "one minus infinity": lambda x: bool((x == -np.inf).sum() == 1),
}


@pytest.mark.parametrize("classic", CLASSIC_FLOATS)
def test_floats_see_every_classic(classic: str) -> None:
    contract = Contract(one_input("float32", (4, 64)).inputs, constants=(0.7,))
    with np.errstate(all="ignore"):
        assert any(CLASSIC_FLOATS[classic](x) for x in arrays(swept(contract)))


def test_ties_come_with_two_equal_maxima() -> None:
    found = [x for x in arrays(swept(one_input("float32", (1, 9)))) if np.isfinite(x).all()]
    assert any((x == x.max()).sum() == 2 and (x != x.max()).any() for x in found)


def test_integers_see_signs_extremes_and_what_float64_cannot_hold() -> None:
    values = {int(v) for x in arrays(swept(one_input("int64", (5,)))) for v in x}
    wanted = {0, 1, -1, 2, -2, 3, -3, -4, 2**40, 2**53 + 1, 2**60 + 1, 2**62 + 1, 2**63 - 1, -(2**63)}
    assert wanted <= values


def test_indices_stay_below_their_limit_unless_they_break_it_on_purpose() -> None:
    proposals = swept(one_input("int64", (4,), index_limit=6))
    inside = {int(v) for x in arrays(proposals) for v in x}
    broken = {int(v) for p in proposals if p.contract_breaking for v in np.asarray(p.case.inputs["x"], int).reshape(-1)}
    assert {0, 5} <= inside <= set(range(6))
    assert {-1, 6} <= broken
    assert any(len(set(x.tolist())) < 4 for x in arrays(proposals))


@pytest.mark.parametrize("dtype", ["bool", "int64", "float32"])
def test_masks_see_every_classic(dtype: str) -> None:
    seed = Case({"x": np.ones((2, 6), dtype)})
    seen = {x.astype(bool).tobytes() for x in arrays(swept(one_input(dtype, (2, 6)), seed)) if np.isin(x, (0, 1)).all()}
    for rows in ("000000 000000", "111111 000000", "000111 000111", "111000 111000", "101010 101010", "111111 111110"):
        flags = np.array([[int(flag) for flag in row] for row in rows.split()], bool)
        assert flags.tobytes() in seen, rows


def test_pairs_of_inputs_get_extremes_together() -> None:
    dims = (Dim(3, "n"),)
    ints = swept(Contract((InputContract("a", "int32", dims), InputContract("b", "int32", dims))))
    pairs = {(int(p.case.inputs["a"][0]), int(p.case.inputs["b"][0])) for p in ints if p.case.inputs["a"].size}
    assert {(-(2**31), -1), (-1, -(2**31)), (-(2**31), 0), (-7, 2)} <= pairs
    floats = swept(Contract((InputContract("a", "float32", dims), InputContract("b", "float32", dims))))
    scales = [[float(np.abs(p.case.inputs[n]).max(initial=0)) for n in "ab"] for p in floats if p.case.is_finite]
    assert any(a > 1e24 and 1e14 < b < 1e17 for a, b in scales)
    zeros = [(p.case.inputs["a"], p.case.inputs["b"]) for p in floats]
    assert any((a == 0).all() and not np.signbit(a).any() and (b < 0).all() for a, b in zeros if a.size)
