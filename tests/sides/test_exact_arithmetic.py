"""Evidence against exact arithmetic: distances, bounds and amplification on graphs small enough for fractions."""

from __future__ import annotations

import decimal
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from small_models import case, loaded

from fuzzparity.execution import ORT, TORCH, Execution, Status
from fuzzparity.oracle import Oracle, Policy
from fuzzparity.sides.noise import Noise
from fuzzparity.sides.referee import Referee
from fuzzparity.verdict import Grade, Realism

Exact = Sequence[Fraction]
decimal.getcontext().prec = 60


def root(x: Fraction) -> Fraction:
    return Fraction((Decimal(x.numerator) / Decimal(x.denominator)).sqrt())


def power(x: Fraction) -> Fraction:
    return Fraction((Decimal(x.numerator) / Decimal(x.denominator)).exp())


def mean(x: Exact) -> Fraction:
    return sum(x, Fraction(0)) / len(x)


def variance(x: Exact) -> Fraction:
    return mean([(one - mean(x)) ** 2 for one in x])


def layer_norm(x: Exact) -> list[Fraction]:
    scale = root(variance(x) + Fraction(1e-5))
    return [(one - mean(x)) / scale for one in x]


def softmax(x: Exact) -> list[Fraction]:
    powers = [power(one - max(x)) for one in x]
    return [one / sum(powers) for one in powers]


def cumulative(x: Exact) -> list[Fraction]:
    return [sum(x[: i + 1], Fraction(0)) for i in range(len(x))]


def polynomial(x: Exact) -> list[Fraction]:
    return [((one * 3 - 2) * one + 1) * one - 4 for one in x]


def solved(x: Exact) -> list[Fraction]:
    a, b, c, d, e, f = x[:6]
    below = a * d - b * c
    return [(e * d - b * f) / below, (a * f - e * c) / below]


def torch_solved(x: torch.Tensor) -> torch.Tensor:
    a, b, c, d, e, f = x[:6].unbind()
    below = a * d - b * c
    return torch.stack([(e * d - b * f) / below, (a * f - e * c) / below])


PROGRAMS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], Callable[[Exact], Exact]]] = {
    "dot": (
        lambda x: torch.dot(x, x.flip(0)).reshape(1),
        lambda x: [sum((a * b for a, b in zip(x, x[::-1], strict=True)), Fraction(0))],
    ),
    "mean": (lambda x: x.mean(0, keepdim=True), lambda x: [mean(x)]),
    "variance": (lambda x: x.var(0, correction=0, keepdim=True), lambda x: [variance(x)]),
    "layer norm": (lambda x: torch.nn.functional.layer_norm(x, x.shape), layer_norm),
    "softmax": (lambda x: x.softmax(0), softmax),
    "cumulative sum": (lambda x: x.cumsum(0), cumulative),
    "polynomial": (lambda x: ((x * 3 - 2) * x + 1) * x - 4, polynomial),
    "solve": (torch_solved, solved),
}


def random_inputs(count: int) -> list[np.ndarray[Any, Any]]:
    """Vectors of 8 to 24 floats: tame, of many magnitudes, on a large offset, and with terms that nearly cancel."""
    rng = np.random.default_rng(7)
    made = []
    for index in range(count):
        x = rng.normal(size=int(rng.integers(4, 13)) * 2)
        if index % 4 == 1:
            x = x * 10.0 ** rng.integers(-4, 3, x.shape)
        elif index % 4 == 2:
            x = x + 1000.0
        elif index % 4 == 3:
            half = x[: x.size // 2]
            x = np.concatenate([half, -half[::-1] * (1 + 1e-6 * rng.normal(size=half.shape))]) * 30.0
        made.append(x.astype(np.float32))
    return made


def exactly(program: Callable[[Exact], Exact], x: np.ndarray[Any, Any]) -> list[Fraction]:
    return list(program([Fraction(float(one)) for one in x]))


def sequentially(name: str, x: np.ndarray[Any, Any], order: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
    """Compute a sum in float32, one term after the other in some order."""
    if name == "dot":
        return np.cumsum((x * x[::-1])[order], dtype=np.float32)[-1:]
    if name == "mean":
        return np.cumsum(x[order], dtype=np.float32)[-1:] / np.float32(x.size)
    if name == "variance":
        apart = x - np.cumsum(x[order], dtype=np.float32)[-1] / np.float32(x.size)
        return np.cumsum((apart * apart)[order], dtype=np.float32)[-1:] / np.float32(x.size)
    return None


def assert_within(answer: np.ndarray[Any, Any], wanted: Sequence[Fraction], bounds: np.ndarray[Any, Any]) -> None:
    for got, exact, bound in zip(answer.tolist(), wanted, bounds.tolist(), strict=True):
        assert bound == float("inf") or abs(Fraction(got) - exact) <= Fraction(bound), (got, float(exact), bound)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_rounding_bound_holds_for_float32_in_any_order(name: str) -> None:
    forward, program = PROGRAMS[name]
    rng = np.random.default_rng(1)
    known = 0
    for x in random_inputs(60):
        target = loaded(forward, {"x": x})
        (bounds,), unknown = Referee(target).bounds(case(x=x))
        if bounds is None:
            assert "without limit" in unknown
            continue
        wanted = exactly(program, x)
        known += int(np.isfinite(bounds).all())
        assert_within(forward(torch.from_numpy(x)).numpy(), wanted, bounds)
        for _ in range(3):
            other = sequentially(name, x, rng.permutation(x.size))
            if other is not None:
                assert_within(other, wanted, bounds)
    assert known >= 50  # elsewhere a divisor may be zero


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=2, max_size=12), st.sampled_from(["dot", "cumulative sum"]))
def test_the_rounding_bound_holds_for_any_values(values: list[float], name: str) -> None:
    forward, program = PROGRAMS[name]
    x = np.array(values, np.float32)
    (bounds,), _ = Referee(loaded(forward, {"x": x})).bounds(case(x=x))
    assert bounds is not None
    assert_within(forward(torch.from_numpy(x)).numpy(), exactly(program, x), bounds)


def test_the_rounding_bound_of_a_sum_grows_with_its_length_and_is_zero_for_what_is_exact() -> None:
    bounds = []
    for size in (8, 80, 800):
        x = np.ones(size, np.float32)
        bounds.append(Referee(loaded(lambda x: x.sum(0, keepdim=True), {"x": x})).bounds(case(x=x))[0][0])
    relative = [float(bound[0]) / size for bound, size in zip(bounds, (8, 80, 800), strict=True) if bound is not None]
    assert len(relative) == 3
    np.testing.assert_allclose(np.array(relative) * 2.0**24, [7, 79, 799], rtol=1e-3)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    exact, unknown = Referee(loaded(lambda x: (x.flip(0), x.relu(), x[:, 1:].amax(1)), {"x": x})).bounds(case(x=x))
    assert not unknown
    assert all(bound is not None and not bound.any() for bound in exact)


def test_the_rounding_bound_says_from_which_operator_on_it_is_unknown() -> None:
    x = np.linspace(0.1, 0.9, 6, dtype=np.float32)

    def forward(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        scaled = x * 0.3
        chosen = x[scaled.argsort()]  # which rounding may turn
        return scaled, torch.special.digamma(scaled) + 1, chosen, x[(scaled > 100).nonzero()[:, 0]]

    (scaled, unknown, chosen, none), first = Referee(loaded(forward, {"x": x})).bounds(case(x=x))
    assert scaled is not None
    assert (scaled > 0).all()
    assert unknown is None
    assert first == "aten.index, which follows a choice that rounding may turn"
    assert chosen is None
    assert none is not None  # no value is near enough to 100 for rounding to carry it over


def test_the_rounding_bound_follows_what_is_written_in_place() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        made = torch.zeros_like(x)
        made[0] = x[1] / 3
        made[1:] += x[1:]
        made.mul_(x).sub_(x[0])
        return made

    x = np.linspace(1, 2, 5, dtype=np.float32)
    (bounds,), unknown = Referee(loaded(forward, {"x": x})).bounds(case(x=x))
    assert bounds is not None, unknown
    one = [Fraction(float(v)) for v in x]
    wanted = [one[1] / 3 * one[0] - one[0], *(v * v - one[0] for v in one[1:])]
    assert_within(forward(torch.from_numpy(x)).numpy(), wanted, bounds)
    assert bounds.max() < 1e-6


def ort(nodes: list[Any], x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Run a graph from x to y on ONNX Runtime."""
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("x", "y")]
    model = helper.make_model(
        helper.make_graph(nodes, "small", info[:1], info[1:]),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=10,
    )
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    answer: np.ndarray[Any, Any] = session.run(None, {"x": x})[0]
    return answer


def verdict_of(forward: Any, x: np.ndarray[Any, Any], actual: np.ndarray[Any, Any]) -> Any:
    expected = Execution(TORCH, Status.OK, (forward(torch.from_numpy(x)).numpy(),))
    oracle = Oracle(("y",), Policy(("y",), "float32", {}, {}), lambda case: "", lambda case: Realism.NEAR)
    referee = Referee(loaded(forward, {"x": x}))
    return oracle.judge(case(x=x), expected, Execution(ORT, Status.OK, (actual,)), referee).worst


@pytest.mark.parametrize(
    ("name", "nodes"),
    [
        ("softmax", [helper.make_node("Neg", ["x"], ["e"]), helper.make_node("Softmax", ["e"], ["y"], axis=0)]),
        ("cumulative sum", [helper.make_node("Identity", ["x"], ["y"])]),
        ("layer norm", [helper.make_node("MeanVarianceNormalization", ["x"], ["c"], axes=[0]),
                        helper.make_node("Neg", ["c"], ["y"])]),
    ],
)  # fmt: skip
def test_the_distances_of_both_sides_to_the_exact_answer_are_those_of_fractions(name: str, nodes: list[Any]) -> None:
    forward, program = PROGRAMS[name]
    for x in random_inputs(12):
        torch_answer, ort_answer, wanted = forward(torch.from_numpy(x)).numpy(), ort(nodes, x), exactly(program, x)
        verdict = verdict_of(forward, x, ort_answer)
        assert verdict is not None
        assert verdict.grade is Grade.BUG
        torchs, orts = (
            [abs(Fraction(got) - exact) for got, exact in zip(answer.tolist(), wanted, strict=True)]
            for answer in (torch_answer, ort_answer)
        )
        # the element shown is one of them: both figures belong to it
        scale = float(max(map(abs, wanted)))
        assert any(
            abs(float(one) - verdict.evidence.torch_distance) <= 1e-10 * scale
            and abs(float(other) - verdict.evidence.ort_distance) <= 1e-10 * float(other)
            for one, other in zip(torchs, orts, strict=True)
        )
        assert verdict.evidence.excess["ort"] > 1.0
        assert verdict.evidence.excess["ort"] == pytest.approx(
            verdict.evidence.ort_distance / verdict.evidence.explained, rel=1e-12
        )


@pytest.mark.parametrize(
    ("forward", "x", "condition"),
    [
        (lambda x: x - 1.0, 1.001, 1001.0),
        (lambda x: x.log(), 1.0005, 2000.5),
        (lambda x: x * 7.0, 3.0, 1.0),
        (lambda x: x.exp(), 20.0, 20.0),
        (lambda x: x.sqrt(), 5.0, 0.5),
    ],
)
def test_the_amplification_is_the_condition_number(forward: Any, x: float, condition: float) -> None:
    x32 = np.full(4, x, np.float32)
    verdict = verdict_of(forward, x32, forward(torch.from_numpy(x32)).numpy() * np.float32(1.1))
    exact = float(x32[0])
    true = {1001.0: exact / (exact - 1), 2000.5: 1 / np.log(exact)}.get(condition, condition)
    assert true / 1.5 <= verdict.evidence.condition <= true * 1.5


def test_the_defensible_tolerance_covers_the_difference_and_eight_moves_and_has_one_digit() -> None:
    def sums(x: torch.Tensor) -> torch.Tensor:
        return x.sum(-1)

    rng = np.random.default_rng(0)
    half = rng.normal(size=(6, 2000)) * 1e2
    x = np.concatenate([half, -half + rng.normal(size=half.shape)], 1).astype(np.float32)
    actual = np.cumsum(x[:, ::-1], 1, dtype=np.float32)[:, -1]
    expected = sums(torch.from_numpy(x)).numpy()
    verdict = verdict_of(sums, x, actual)
    assert verdict.grade is Grade.INHERENT
    evidence = verdict.evidence
    rtol, atol = evidence.defensible_rtol, evidence.defensible_atol
    assert (rtol == 0.0) != (atol == 0.0)
    assert (np.abs(actual - expected) <= atol + rtol * np.abs(expected)).all()
    assert atol + rtol * np.abs(expected).max() >= 8 * max(evidence.moves.values())
    assert sum(one not in "0." for one in f"{rtol or atol:e}".partition("e")[0]) == 1


def test_roundings_several_times_as_far_leave_what_fits_as_it_is():
    values = np.random.default_rng(0).uniform(1.0, 2.0, 4096)
    fits = values.astype(np.float32).astype(np.float64)
    once, often = Noise(23, 0).rounded(values), Noise(23, 0, 8.0).rounded(values)
    assert np.array_equal(Noise(23, 0, 8.0).rounded(fits), fits)
    assert np.allclose(often - values, 8.0 * (once - values), rtol=0, atol=2.0**-50)
    assert np.abs(often - values).max() > 4.0 * 2.0**-23
    odd = np.array([np.nan, np.inf, -np.inf, 0.0, 1e300])
    assert np.array_equal(Noise(23, 0, 8.0).rounded(odd), Noise(23, 0).rounded(odd), equal_nan=True)
