"""Boundary search: lines are halved to neighbouring floats, jumps told from smooth outputs, ulps stepped exactly."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fuzzparity.case import Array, Case
from fuzzparity.decisions import Decision
from fuzzparity.execution import ORT, TORCH, Execution, Status
from fuzzparity.generate.between import joins, middle, stepped, steps_around
from fuzzparity.generate.boundary import Pair, Probe, Shown, probes, search
from fuzzparity.generate.rng import Rng

Side = Callable[[Array], Any]


def case_of(*values: float, dtype: Any = np.float32) -> Case:
    return Case({"x": np.asarray(values, dtype)})


def answers(case: Case, torch_side: Side, ort_side: Side | None = None) -> Pair:
    x = case.inputs["x"]
    expected, actual = (np.asarray(side(x)) for side in (torch_side, ort_side or torch_side))
    return Execution(TORCH, Status.OK, (expected,)), Execution(ORT, Status.OK, (actual,))


def differs(pair: Pair) -> bool:
    return not np.allclose(pair[0].outputs[0], pair[1].outputs[0], rtol=1e-3)


def run(start: Case, end: Case, torch_side: Side, ort_side: Side | None = None, rng_seed: int = 0) -> list[Pair]:
    """Return what each case of a search showed, the first decision that differs being searched."""
    ends = answers(start, torch_side, ort_side), answers(end, torch_side, ort_side)
    rng = Rng(rng_seed, 0)
    probe = next(iter(probes(*ends, ("y",), rng)))
    steps, met = search(start, end, probe, ends, rng), []
    case = next(steps, None)
    while case is not None:
        met.append(answers(case, torch_side, ort_side))
        try:
            case = steps.send(Shown(met[-1], differs(met[-1])))
        except StopIteration:
            break
    return met


def test_the_middle_is_rounded_to_the_dtypes_of_the_inputs() -> None:
    low = Case({"x": np.array([0, 1], np.float16), "n": np.array([1, 7]), "b": np.array([True, False])})
    high = Case({"x": np.array([1, 1.001], np.float16), "n": np.array([4, 7]), "b": np.array([False, False])})
    between = middle(low, high)
    assert between is not None
    assert [array.dtype for array in between.inputs.values()] == [np.float16, np.int64, np.bool_]
    assert between.inputs["x"].tolist() == [0.5, 1.0]
    assert between.inputs["n"].tolist() == [2, 7]
    assert between.inputs["b"].tolist() == [True, False]


def test_neighbours_have_nothing_between_them_but_what_goes_over_one_by_one() -> None:
    low = case_of(1, 2, 3)
    high = stepped(low, {"x": np.array([1.0, 0.0, 1.0])})
    between = middle(low, high)
    assert between is not None
    assert sorted([(between.inputs["x"] != end.inputs["x"]).sum() for end in (low, high)]) == [1, 1]
    assert middle(low, between) is None
    assert middle(Case({"n": np.array([2**60])}), Case({"n": np.array([2**60 + 9])})) is None


def test_halving_by_bits_reaches_zero_as_soon_as_other_values() -> None:
    low, high, steps = case_of(-1), case_of(1), 0
    while (between := middle(low, high, by_bits=True)) is not None:
        low, high, steps = (between, high, steps + 1) if between.inputs["x"][0] <= 0 else (low, between, steps + 1)
    assert low.inputs["x"][0] == 0.0
    assert high.inputs["x"][0] == np.finfo(np.float32).smallest_subnormal
    assert steps < 34


def test_only_finite_cases_of_one_form_that_differ_are_joined() -> None:
    assert joins(case_of(1, 2), case_of(1, 3))
    assert not joins(case_of(1, 2), case_of(1, 2))
    assert not joins(case_of(1, 2), case_of(1, 2, 3))
    assert not joins(case_of(1, 2), case_of(1, np.inf))
    assert not joins(case_of(1, 2), case_of(1, 3, dtype=np.float64))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_a_threshold_is_reached_from_both_sides_to_one_ulp(dtype: Any) -> None:
    threshold = np.asarray(0.3, dtype)
    met: list[float] = []

    def above(x: Array) -> Array:
        met.append(float(x[0]))
        return x > threshold

    found = run(case_of(-3, dtype=dtype), case_of(5, dtype=dtype), above)
    assert len(found) < 90
    above_it = float(stepped(case_of(float(threshold), dtype=dtype), {"x": np.ones(1)}).inputs["x"][0])
    assert max(x for x in met if x <= float(threshold)) == float(threshold)
    assert min(x for x in met if x > float(threshold)) == above_it


def test_a_threshold_that_one_side_has_elsewhere_is_met() -> None:
    found = run(case_of(-3, 1, 2), case_of(5, 1, 2), lambda x: x > 0.5, lambda x: x > np.float32(0.5000001))
    assert sum(differs(pair) for pair in found) >= 2


def forward(x: Array) -> Array:
    return x * 2 if np.add.accumulate(x)[-1] > 0 else x - 1


def backward(x: Array) -> Array:
    return x * 2 if np.add.accumulate(x[::-1])[-1] > 0 else x - 1


def test_sums_of_another_order_are_split_though_the_output_tells_no_decision() -> None:
    chance = np.random.default_rng(0)
    found, executions = 0, []
    for trial in range(10):
        x = chance.standard_normal(32).astype(np.float32)
        start, end = Case({"x": x - x.mean() - 0.5}), Case({"x": x - x.mean() + 0.5})
        met = run(start, end, forward, backward, trial)
        executions.append(len(met))
        found += any(map(differs, met))
    assert found >= 8
    assert max(executions) < 100


@pytest.mark.parametrize("smooth", [np.tanh, lambda x: x * x, lambda x: np.maximum(x, 0), lambda x: x])
def test_a_smooth_output_is_given_up_soon(smooth: Side) -> None:
    assert len(run(case_of(-1, 0.3, 2), case_of(3, 0.1, 1), smooth)) < 16


def test_a_rounding_step_is_met_from_both_sides() -> None:
    met: list[float] = []

    def rounding(x: Array) -> Array:
        met.append(float(x[0]))
        return np.round(x * np.float32(10)) / np.float32(10)

    run(case_of(0.31), case_of(0.39), rounding)
    assert np.nextafter(np.float32(0.35), np.float32(1)) in met
    assert float(np.float32(0.35)) in met


def test_decisions_on_the_way_come_first_and_are_read_from_their_own_side() -> None:
    def pair(torch_outcome: int, ort_outcome: int, y: float) -> Pair:
        paths = (Decision("torch:net.py:3", torch_outcome),), (Decision("ort:If_0", ort_outcome),)
        sides = (TORCH, ORT)
        first, second = (
            Execution(side, Status.OK, (np.float32([y]),), decisions=path)
            for side, path in zip(sides, paths, strict=True)
        )
        return first, second

    found = list(probes(pair(0, 0, 1), pair(1, 1, 2), ("y",), Rng(0, 0)))
    assert [probe.key for probe in found] == ["torch:net.py:3", "ort:If_0", "jump of y"]
    assert [probe.outcome(case_of(0), pair(1, 0, 3)) for probe in found[:2]] == [1, 0]
    assert [probe.key for probe in probes(pair(0, 0, 1), pair(0, 1, 1), ("y",), Rng(0, 0))] == ["ort:If_0"]


def test_sizes_integers_and_rows_are_decisions() -> None:
    def keys(one: Array, other: Array, *, of_rows: bool = False) -> list[str]:
        first, second = (answers(case_of(0), lambda x, y=y: y) for y in (one, other))
        return [probe.key for probe in probes(first, second, ("y",), Rng(0, 0), of_rows=of_rows)]

    assert keys(np.zeros(2), np.zeros(3)) == ["size of y"]
    assert keys(np.array([1, 2]), np.array([1, 3])) == ["y"]
    assert keys(np.array([1, 2]), np.array([1, 2])) == []
    one, other = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.0, 2.0], [4.0, 3.0]])
    assert keys(one, other) == ["jump of y"]
    assert keys(one, other, of_rows=True) == ["jump of y", "largest of y"]


def test_a_refusal_is_an_outcome() -> None:
    probe = Probe("y", lambda execution: 1)
    refused = Execution(TORCH, Status.REFUSED)
    assert probe.outcome(case_of(0), (refused, refused)) == "refused"
    assert probe.values((refused, refused)) is None


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_steps_of_ulps_are_those_of_numpy(dtype: Any) -> None:
    x = np.array([1, -1, 2, -2, 0, 1e-3, -1e-3, np.finfo(dtype).max], dtype)
    up = stepped(Case({"x": x}), {"x": np.ones(8)}).inputs["x"]
    with np.errstate(over="ignore"):
        wanted = np.nextafter(x, dtype(np.inf))
    wanted[[4, 7]] = x[[4, 7]]  # a zero stays, and what would be infinite
    assert up.dtype == dtype
    assert up.tolist() == wanted.tolist()
    assert stepped(Case({"x": up}), {"x": -np.ones(8)}).inputs["x"].tolist()[:7] == x.tolist()[:7]


def test_steps_around_a_boundary_leave_integers_alone_and_follow_from_chance() -> None:
    low = Case({"x": np.float32([1, 2]), "n": np.array([3])})
    high = Case({"x": stepped(low, {"x": np.float64([1, 0])}).inputs["x"], "n": np.array([3])})
    first = list(steps_around(low, high, Rng(1, 0)))
    assert len(first) == 24
    assert all(case.inputs["n"].tolist() == [3] for case in first)
    assert len({case.digest for case in first}) > 16
    assert first == list(steps_around(low, high, Rng(1, 0)))
    assert first != list(steps_around(low, high, Rng(2, 0)))
    assert list(steps_around(Case({"n": np.array([3])}), Case({"n": np.array([4])}), Rng(1, 0))) == []
