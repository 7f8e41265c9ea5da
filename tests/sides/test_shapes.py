"""Dynamic dims: every form a user may write, in each exporter's words, and the contract they end in."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_models import case
from torch.export import Dim

from fuzzparity import Size, Target
from fuzzparity.contract import Derived
from fuzzparity.errors import InvalidTarget
from fuzzparity.sides.call import Call
from fuzzparity.sides.graph import GraphFacts, GraphInput
from fuzzparity.sides.shapes import (
    Asked,
    asked_dims,
    dynamo_shapes,
    other_sample,
    static_dims,
    torchscript_axes,
)
from fuzzparity.sides.terms import contract_of, contract_without_model

SEED = case(a=np.zeros((1, 4), np.float32), b=np.zeros((1, 4), np.float32))


def target(shapes: object, **fields: object) -> Target:
    return Target(module=torch.nn.ReLU(), inputs=dict(SEED.inputs), dynamic_shapes=shapes, **fields)  # type: ignore[arg-type]


def graph(*dims: tuple[int | str | None, ...] | None, names: str = "ab", **facts: object) -> GraphFacts:
    inputs = tuple(GraphInput(name, "float32", item) for name, item in zip(names, dims, strict=True))
    return GraphFacts(inputs, ("y",), 1, 20, "float32", **facts)  # type: ignore[arg-type]


def test_every_form_of_an_entry_is_understood() -> None:
    wide, hint = Dim("wide", min=2, max=9), Dim.DYNAMIC(min=3, max=5)
    asked = asked_dims(target(({0: "batch", -1: Size(32, 640, multiple_of=32)}, [wide, Dim.AUTO])), SEED)
    assert (asked["a"][0].name, asked["a"][0].is_declared) == ("batch", False)
    assert (asked["a"][1].low, asked["a"][1].high, asked["a"][1].multiple_of) == (32, 640, 32)
    assert (asked["b"][0].name, asked["b"][0].low, asked["b"][0].high) == ("wide", 2, 9)
    assert asked["b"][1].is_auto
    by_name = asked_dims(target({"b": {0: hint, 1: None}}), SEED)
    assert (by_name["b"][0].low, by_name["b"][0].high, list(by_name["b"])) == (3, 5, [0])
    assert asked_dims(target(None), SEED) == asked_dims(target((None, {0: Dim.STATIC, 1: 4})), SEED) == {}


@pytest.mark.parametrize(
    "shapes",
    [{"c": {0: "n"}}, {"a": {5: "n"}}, {"a": {"n": 0}}, {"a": ["n"]}, {"a": {0: 1.5}}, {"a": "n"}, "n", [None] * 3],
)
def test_what_does_not_fit_is_said(shapes: object) -> None:
    with pytest.raises(InvalidTarget) as caught:
        asked_dims(target(shapes), SEED)
    assert caught.value.stage == "dynamic_shapes"
    assert "torch.export.Dim" in caught.value.advice


def test_a_size_becomes_a_hint_and_names_stay_names() -> None:
    asked = asked_dims(target({"a": {0: "n", 1: Size(2, 8)}}), SEED)
    call = Call.of(target(None))
    shapes = dynamo_shapes(asked, call, lambda p, b: p)
    assert shapes["b"] is None
    assert shapes["p"][0] == "n"
    assert (shapes["p"][1].min, shapes["p"][1].max) == (2, 8)
    assert dynamo_shapes(asked, call, lambda a, *rest: a) == {"a": shapes["p"], "rest": (None,)}
    assert dynamo_shapes(asked, call, torch.relu) == (shapes["p"], None)
    assert torchscript_axes(asked) == {"a": {0: "n", 1: "a_dim_1"}}
    assert dynamo_shapes(asked, call, lambda p, b: p, takes_names=False)["p"][0] is Dim.DYNAMIC
    assert dynamo_shapes({}, call, lambda a: a) is None


def test_equal_symbols_and_equal_names_make_one_group_with_merged_bounds() -> None:
    shapes = ({0: Size(1, 8, name="n")}, {0: Size(2, 64, name="m", multiple_of=2)})
    one = target(shapes)
    contract = contract_of(one, SEED, graph(("s0", 4), ("s0", None)), asked_dims(one, SEED), True)
    first, second = contract.input("a").dims[0], contract.input("b").dims[0]
    assert first.symbol == second.symbol
    assert (first.low, first.high, first.multiple_of, first.is_declared) == (2, 8, 2, True)
    assert not contract.input("a").dims[1].is_dynamic
    assert contract.input("b").dims[1].symbol == "b_1"
    other = target(({0: "n"}, {0: "n"}))
    joined = contract_of(other, SEED, graph(("s0", 4), ("s1", 4)), asked_dims(other, SEED), True)
    assert {joined.input(name).dims[0].symbol for name in "ab"} == {"n"}


def test_a_narrower_range_of_the_exporter_is_no_limit() -> None:
    one = target({"a": {1: "t"}})
    contract = contract_of(one, SEED, graph((1, "t"), (1, 4), sizes=(200, 201)), asked_dims(one, SEED), False)
    dim = contract.input("a").dims[1]
    assert (dim.low, dim.high, dim.is_declared) == (0, None, False)
    assert contract.sizes == (200, 201)


def test_index_limits_and_ranges_reach_the_contract() -> None:
    one = target(({0: "n"}, None), ranges={"a": (0, 30)}, allow_nonfinite=False)
    facts = graph(("s0", 4), (1, 4), index_limits={"a": 7, "b": "s0"})
    contract = contract_of(one, SEED, facts, asked_dims(one, SEED), False)
    assert (contract.input("a").index_limit, contract.input("b").index_symbol) == (7, "n")
    assert (contract.input("a").low, contract.input("a").high) == (0, 30)
    assert not contract.input("a").allow_nonfinite


def test_inputs_are_paired_by_name_else_by_place() -> None:
    by_place = contract_of(target(None), SEED, graph((1, 4), (1, 4), names="pq"), {}, True)
    assert [item.onnx_name for item in by_place.inputs] == ["p", "q"]
    swapped = contract_of(target(None), SEED, graph((1, 4), (1, 4), names="ba"), {}, True)
    assert [item.onnx_name for item in swapped.inputs] == ["a", "b"]
    dropped = contract_of(target(None), SEED, graph((1, 4), names="b"), {}, True)
    assert [item.onnx_name for item in dropped.inputs] == ["", "b"]
    with pytest.raises(InvalidTarget, match="wants c"):
        contract_of(target(None), SEED, graph((1, 4), (1, 4), (1, 4), names="abc"), {}, True)


@pytest.mark.parametrize("dims", [((1, 4, 1), (1, 4)), ((1, 5), (1, 4))])
def test_a_given_model_that_cannot_take_the_seed_is_said(dims: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(InvalidTarget, match=r"float32\[1, 4\]"):
        contract_of(target(None), SEED, graph(*dims), {}, True)
    assert contract_of(target(None), SEED, graph(None, (1, 4)), {}, True).input("a").dims[0].is_dynamic


def test_a_nested_input_takes_its_dims_nested_flattened_or_by_position() -> None:
    cache = {"k": (torch.zeros(1, 4), None), "v": [torch.zeros(1, 4), 3]}
    fields = {"module": torch.nn.ReLU(), "inputs": {"x": torch.zeros(1, 4), "cache": cache}}
    seed = case(**{"x": np.zeros((1, 4)), "cache.k.0": np.zeros((1, 4)), "cache.v.0": np.zeros((1, 4))})
    nested = {"k": ({0: "n"}, None), "v": [[None, "t"], None]}
    forms = {"cache": nested}, {"cache.k.0": {0: "n"}, "cache.v.0": {1: "t"}}, (None, nested)
    found = [asked_dims(Target(**fields, dynamic_shapes=form), seed) for form in forms]  # type: ignore[arg-type]
    assert found == [{"cache.k.0": {0: Asked("n", "n")}, "cache.v.0": {1: Asked("t", "t")}}] * 3
    spelled = dynamo_shapes(found[0], Call.of(Target(**fields)), lambda x, cache: x)  # type: ignore[arg-type]
    assert spelled == {"x": None, "cache": {"k": ({0: "n"}, None), "v": [{1: "t"}, None]}}
    for wrong in ({"cache": {"w": None}}, {"cache": {"k": [None]}}, {"cache": {"v": [None, {0: "n"}]}}, (nested, None)):
        with pytest.raises(InvalidTarget, match=r"cache|'x'"):
            asked_dims(Target(**fields, dynamic_shapes=wrong), seed)  # type: ignore[arg-type]


def test_inputs_by_keyword_stand_where_forward_has_them() -> None:
    one = Target(module=torch.relu, inputs={"a": torch.zeros(2)}, kwargs={"c": torch.zeros(2), "b": torch.zeros(2)})
    seed = case(a=np.zeros(2), c=np.zeros(2), b=np.zeros(2))
    asked = asked_dims(dataclasses.replace(one, dynamic_shapes=(None, ["c0"], ["b0"])), seed)
    call = Call.of(one)
    assert dynamo_shapes(asked, call, lambda x, b, c: x) == {"x": None, "b": {0: "b0"}, "c": {0: "c0"}}
    assert dynamo_shapes(asked, call, lambda x, **rest: x) == {"x": None, "rest": {"c": {0: "c0"}, "b": {0: "b0"}}}


def test_the_batch_is_as_declared_or_the_dim_that_leads_every_input() -> None:
    shapes = ({0: "n", 1: "t"}, {0: "n"})

    def batch(*dims: tuple[int | str, ...], **fields: object) -> str:
        one = target(shapes, **fields)
        return contract_of(one, SEED, graph(*dims), asked_dims(one, SEED), False).batch

    assert batch(("n", "t"), ("n", 4)) == "n"
    assert batch(("n", "t"), ("n", 4), batch="t") == "t"
    assert batch(("n", "t"), ("m", 4)) == "n"  # one name of the user's: one symbol
    assert batch((1, "t"), ("n", 4)) == batch((1, "t"), (1, 4), batch="n") == ""
    assert batch((1, "t"), ("n", 4), opaque_inputs=["a"]) == "n"
    with pytest.raises(InvalidTarget, match="no dynamic dim") as caught:
        batch(("n", "t"), ("n", 4), batch="rows")
    assert "n, t" in caught.value.advice


def test_dims_that_came_out_static_are_named() -> None:
    one = target(({0: "n", 1: Dim.AUTO}, {0: "n"}))
    asked = asked_dims(one, SEED)
    assert static_dims(asked, contract_of(one, SEED, graph((1, 4), ("n", 4)), asked, False)) == ("a[0]",)
    alone = contract_without_model(one, SEED, asked)
    assert [item.onnx_name for item in alone.inputs] == ["", ""]
    assert alone.input("a").dims[0].symbol == "n"


@given(st.integers(0, 5), st.integers(0, 5), st.integers(0, 6), st.integers(1, 4))
def test_another_sample_has_free_dims_of_two_and_more_all_different(p: int, q: int, low: int, step: int) -> None:
    seed = case(a=np.zeros((p, q)), b=np.zeros((q, p)))
    shapes = ({0: "n", 1: Size(low, None, multiple_of=step)}, {1: "n"})
    one = Target(module=torch.nn.ReLU(), inputs=dict(seed.inputs), dynamic_shapes=shapes)
    sample = other_sample(asked_dims(one, seed), seed)
    (n, m), (static, again) = sample.inputs["a"].shape, sample.inputs["b"].shape
    assert n == again >= 2
    assert static == q
    assert m >= max(2, low)
    assert m % step == 0
    assert len({n, m, q}) == 3
    assert math.prod(sample.inputs["a"].shape)


def test_a_dim_that_follows_from_another_is_no_dim_of_its_own() -> None:
    n = Dim("n", min=2, max=9)
    one = target({"a": {1: n}, "b": {1: 2 * n}})
    asked = asked_dims(one, SEED)
    assert (asked["b"][1].low, asked["b"][1].high) == (4, 18)
    contract = contract_of(one, SEED, graph((1, "n"), (1, "2*n")), asked, False)
    assert contract.derived == (Derived("2*n", "n", factor=2),)
    hints = target({"a": {1: "rows"}, "b": {1: Dim.DYNAMIC}})
    named = contract_of(hints, SEED, graph((1, "s0"), (1, "3*s0 - 2")), asked_dims(hints, SEED), False)
    assert named.derived == (Derived("3*s0 - 2", "rows", 3, -2),)
    alone = contract_of(hints, SEED, graph((1, "4*h"), (1, 4)), asked_dims(hints, SEED), False)
    assert alone.derived == ()
    assert alone.input("a").dims[1].multiple_of == 4
    assert contract_without_model(one, SEED, asked).derived == contract.derived
