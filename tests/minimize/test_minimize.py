import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fuzzparity.case import Case, sort_key
from fuzzparity.contract import Contract, Dim, InputContract
from fuzzparity.errors import NotReproduced
from fuzzparity.minimize import minimize

RNG = np.random.default_rng(11)


def contract(**inputs):
    """Make a contract of name -> dims; a text is a symbol, a number a static size."""
    return Contract(
        tuple(
            InputContract(name, "float32", tuple(Dim(2, d) if isinstance(d, str) else d for d in dims))
            for name, dims in ((n, [Dim(x) if isinstance(x, int) else x for x in ds]) for n, ds in inputs.items())
        )
    )


def run(case, interesting, rules, limit=20_000, **options):
    asked = []

    def counted(candidate):
        asked.append(candidate)
        return interesting(candidate)

    found = minimize(case, counted, limit_executions=limit, deadline_seconds=60, contract=rules, **options)
    assert found.executions == len(asked) == sum(p.executions for p in found.passes.values()) + 1
    assert interesting(found.case)
    assert sort_key(found.case) <= sort_key(case)
    return found


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def test_a_start_that_is_not_interesting_is_an_error_after_one_execution():
    asked = []
    with pytest.raises(NotReproduced, match="does not show"):
        minimize(
            Case({"x": normal(2)}),
            lambda case: bool(asked.append(case)),
            limit_executions=9,
            deadline_seconds=9,
            contract=contract(x=["n"]),
        )
    assert len(asked) == 1


def test_a_large_case_with_one_guilty_value_becomes_a_single_small_one():
    x = normal(4, 3, 64, 64)
    x[2, 1, 17, 40] = 41234.567
    found = run(Case({"x": x}), lambda c: bool((c.inputs["x"] > 256).any()), contract(x=["n", 3, "h", "w"]))
    assert found.case.inputs["x"].shape == (1, 3, 1, 1)
    assert sorted(found.case.inputs["x"].ravel().tolist()) == [0, 0, 257]
    assert found.reached_fixpoint
    assert found.executions < 200


def test_a_threshold_of_a_length_is_found_by_bisection():
    found = run(Case({"x": normal(3, 500)}), lambda c: c.inputs["x"].shape[1] > 200, contract(x=["n", "t"]))
    assert found.case.inputs["x"].shape[1] == 201
    assert not found.case.inputs["x"].any()


def test_odd_lengths_and_multiples_keep_to_what_is_interesting_and_to_the_contract():
    odd = run(Case({"x": normal(37)}), lambda c: c.inputs["x"].shape[0] % 2 == 1, contract(x=["n"]))
    assert odd.case.inputs["x"].shape == (1,)
    dims = [Dim(64, "n", low=32, high=640, multiple_of=32)]
    bounded = run(Case({"x": normal(320)}), lambda c: True, contract(x=dims))
    assert bounded.case.inputs["x"].shape == (32,)


def test_dims_of_one_symbol_move_together_and_static_ones_stay():
    case = Case({"a": normal(6, 7), "b": normal(7, 7), "c": normal(6, 5)})
    rules = contract(a=["n", "t"], b=["t", "t"], c=["n", 5])

    def is_sound(c):
        a, b, d = (c.inputs[k].shape for k in "abc")
        assert a[0] == d[0]
        assert a[1] == b[0] == b[1]
        assert d[1] == 5
        return a[1] >= 3 and a[0] >= 2

    assert run(case, is_sound, rules).case.shapes == {"a": (2, 3), "b": (3, 3), "c": (2, 5)}


def test_a_static_dim_that_breaks_the_contract_already_may_shrink():
    found = run(Case({"x": normal(9, 4)}), lambda c: c.inputs["x"].shape[1] != 3, contract(x=["n", 3]))
    assert found.case.inputs["x"].shape == (0, 0)


def test_an_empty_dim_stays_and_scalars_work():
    case = Case({"x": normal(5, 0, 4), "s": np.array(3.25, np.float32)})
    found = run(case, lambda c: c.inputs["x"].size == 0, contract(x=["n", "t", 4], s=[]))
    assert found.case.inputs["x"].shape in ((0, 0, 4), (0, 1, 4))
    assert found.case.inputs["s"] == 0


def test_nan_is_kept_single_and_a_tie_stays_a_tie():
    x = normal(4, 8)
    x[1, 2:6] = np.nan
    nan = run(Case({"x": x}), lambda c: bool(np.isnan(c.inputs["x"]).any()), contract(x=["n", "t"]))
    assert nan.case.inputs["x"].shape == (1, 1)
    y = normal(6)
    y[[1, 4]] = 7.7182

    def has_tie(c):
        v = c.inputs["y"]
        return bool(((v[:, None] == v[None]) & (v[:, None] > 0.5)).sum() > (v > 0.5).sum())

    tie = run(Case({"y": y}), has_tie, contract(y=["n"]))
    assert tie.case.inputs["y"].tolist() == [1, 1]


def test_integers_booleans_and_small_floats_become_simple():
    case = Case(
        {
            "i": np.array([2**62 + 12345, -7, 9], np.int64),
            "b": np.array([True, False, True, True]),
            "h": np.array([3.14, 2.71], ml_dtypes.bfloat16),
            "u": np.array([200, 3], np.uint8),
            "q": np.array([5, -3], ml_dtypes.int4),
            "c": np.array([1 + 2j, 3]),
        }
    )

    def interesting(c):
        return c.inputs["i"].max() > 2**53 and c.inputs["b"].any() and c.inputs["u"].max() > 100

    found = run(case, interesting, contract(i=[3], b=[4], h=[2], u=[2], q=[2], c=[2]))
    values = {name: array.astype(object).tolist() for name, array in found.case.inputs.items()}
    assert sorted(values["i"]) == [0, 0, 2**53 + 1]
    assert sum(values["b"]) == 1
    assert sorted(values["u"]) == [0, 101]
    assert not found.case.inputs["h"].astype(np.float32).any()
    assert not found.case.inputs["q"].astype(int).any()
    assert not found.case.inputs["c"].any()


def test_a_long_run_of_accepted_deletions_costs_a_logarithm():
    x = np.zeros(4096, np.float32)
    x[4000] = 1

    def interesting(c):
        return c.inputs["x"].sum() == 1 and c.inputs["x"].size >= 1

    assert run(Case({"x": x}), interesting, contract(x=["n"])).executions < 150


def test_the_budget_ends_the_search_with_the_best_so_far():
    x = normal(64, 64)

    def interesting(c):
        return c.inputs["x"].shape[0] >= 30

    few = run(Case({"x": x}), interesting, contract(x=["n", "t"]), limit=5)
    assert few.executions == 5
    assert not few.reached_fixpoint
    ticks = iter(range(10_000))
    late = minimize(
        Case({"x": x}),
        interesting,
        limit_executions=10_000,
        deadline_seconds=7,
        contract=contract(x=["n", "t"]),
        clock=lambda: float(next(ticks)),
    )
    assert not late.reached_fixpoint
    assert late.executions <= 8


def test_every_improvement_is_told_and_each_is_simpler_than_the_one_before():
    told = []
    found = run(
        Case({"x": normal(9, 9)}), lambda c: c.inputs["x"].size > 3, contract(x=["n", "t"]), on_better=told.append
    )
    keys = [sort_key(case) for case in told]
    assert keys == sorted(keys, reverse=True)
    assert len(set(keys)) == len(keys)
    assert told[-1] is found.case


PREDICATES = {
    "a negative value": lambda x: bool((x < 0).any()),
    "a large value": lambda x: bool((np.abs(x) > 20).any()),
    "three values": lambda x: x.size >= 3,
    "a sum": lambda x: float(np.clip(np.nan_to_num(x), -100, 100).sum()) > 10,
    "not finite": lambda x: not np.isfinite(x).all(),
    "two rows": lambda x: x.shape[0] >= 2 and x.shape[1] % 2 == 1,
}
FLOATS = hnp.arrays(
    np.float32,
    hnp.array_shapes(min_dims=2, max_dims=2, max_side=6),
    elements=st.floats(width=32, min_value=-1000, max_value=1000) | st.sampled_from([math.nan, math.inf, 0.0, -0.0]),
)


@pytest.mark.parametrize("name", PREDICATES)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(x=FLOATS)
def test_minimizing_never_grows_and_minimizing_again_changes_nothing(name, x):
    predicate = PREDICATES[name]
    if not predicate(x):
        return
    rules = contract(x=["n", "t"])
    first = run(Case({"x": x}), lambda c: predicate(c.inputs["x"]), rules)
    assert first.reached_fixpoint
    again = run(first.case, lambda c: predicate(c.inputs["x"]), rules)
    assert again.case == first.case


@pytest.mark.parametrize(("name", "least"), [("a negative value", -1), ("a large value", 21), ("not finite", math.nan)])
@settings(max_examples=25, deadline=None)
@given(x=FLOATS)
def test_different_starts_reach_the_same_minimum(name, least, x):
    predicate = PREDICATES[name]
    # an infinity is not brought back to finite values: a bucket never mixes the two
    if not predicate(x) or np.isinf(x).any():
        return
    found = run(Case({"x": x}), lambda c: predicate(c.inputs["x"]), contract(x=["n", "t"])).case.inputs["x"]
    np.testing.assert_array_equal(found, [[least]])
