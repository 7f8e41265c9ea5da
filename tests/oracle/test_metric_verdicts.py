"""Metrics in the oracle: what breaks a bound, how it is graded, and what the user's code may do wrong."""

import numpy as np
import pytest
import torch
from engines import NumpyReferee, f32, run

from fuzzparity import InvalidTarget, Metric, metrics
from fuzzparity.case import Case, Lineage
from fuzzparity.execution import ORT, TORCH
from fuzzparity.finding import bucket_of, suspects_of
from fuzzparity.oracle import Oracle, Policy
from fuzzparity.oracle.metrics import Meter
from fuzzparity.target import Tolerance
from fuzzparity.verdict import Grade, Kind, Realism


def linear(weights):
    return lambda r, x: (r(r(x) @ r(np.asarray(weights, x.dtype))),)


W = [[1.0, 0.0], [0.0, 1.0]]
LOOSE = {"y": Tolerance(atol=10.0)}  # so that the metric alone speaks


def judged(torch, ort, x, given, *, label=None, tolerances=LOOSE, referee=True, realism=Realism.NEAR, breach=""):
    case = Case({"x": x}, label)
    expected, actual = run(torch, case, TORCH), run(ort, case, ORT)
    oracle = Oracle(
        ("y",), Policy(("y",), "float32", tolerances), lambda case: breach, lambda case: realism, metrics=given
    )
    return case, oracle.judge(case, expected, actual, NumpyReferee(torch) if referee else None), oracle


def test_a_broken_bound_is_a_decision_of_its_own_bucket_with_value_and_bound():
    case, found, _ = judged(linear(W), linear([[0.0, 1.0], [1.0, 0.0]]), f32([3.0, 1.0]), [metrics.top_k("y")])
    (verdict,) = found.verdicts
    assert (verdict.kind, verdict.grade, verdict.output) == (Kind.DECISION, Grade.BUG, "y")
    assert verdict.site == "metric:top_1(y)"
    assert verdict.headline.startswith("metric top_1(y) is 0; wanted at least 1")
    assert verdict.evidence is not None
    assert verdict.evidence.far_sides == (ORT,)
    assert found.measures[0].value == 0.0
    assert bucket_of("b", case, verdict).key == "b|decision||y|metric:top_1(y)|bug|finite"
    other = [Metric("mine", metrics.top_k("y").fn, at_least=1.0), metrics.cosine("y")]
    case, found, _ = judged(linear(W), linear([[0.0, 1.0], [1.0, 0.0]]), f32([3.0, 1.0]), other)
    sites = {s.bucket.site: s.verdict.output for s in suspects_of("b", case, Lineage(), found, None, None)}
    assert sites == {"metric:mine": None, "metric:cosine(y)": "y"}


def test_a_numeric_difference_stays_a_verdict_beside_a_metric_and_a_metric_that_holds_says_nothing():
    _, found, _ = judged(linear(W), linear([[1.01, 0], [0, 1.0]]), f32([3.0, 1.0]), [metrics.top_k("y")], tolerances={})
    assert [(v.kind, v.site) for v in found.verdicts] == [(Kind.NUMERIC, "")]
    assert found.measures[0].value == 1.0


def test_a_bound_that_inputs_within_rounding_break_as_well_is_a_tie():
    x = f32([1.0, np.nextafter(np.float32(1.0), np.float32(2.0))])
    flip = linear([[1.0 + 2.0**-22, 0.0], [0.0, 1.0]])
    _, found, _ = judged(linear(W), flip, x, [metrics.top_k("y", margin=0.0)])
    assert [verdict.grade for verdict in found.verdicts] == [Grade.TIE]
    assert "within rounding" in found.verdicts[0].headline


def test_where_torch_itself_is_off_the_exact_answer_it_is_torchs_fault():
    wrong = linear([[0.0, 1.0], [1.0, 0.0]])
    case = Case({"x": f32([3.0, 1.0])})
    oracle = Oracle(
        ("y",), Policy(("y",), "float32", LOOSE), lambda c: "", lambda c: Realism.NEAR, metrics=[metrics.top_k("y")]
    )
    found = oracle.judge(case, run(wrong, case, TORCH), run(linear(W), case, ORT), NumpyReferee(linear(W)))
    assert [(v.grade, v.side, v.blame) for v in found.verdicts] == [(Grade.BUG, TORCH, TORCH)]


def test_outside_the_contract_it_is_contract_and_wild_without_a_referee_a_note():
    given = [metrics.top_k("y")]
    swapped = linear([[0.0, 1.0], [1.0, 0.0]])
    assert judged(linear(W), swapped, f32([3.0, 1.0]), given, breach="too long")[1].verdicts[0].grade is Grade.CONTRACT
    for realism, grade in ((Realism.WILD, Grade.NOTE), (Realism.NEAR, Grade.BUG)):
        found = judged(linear(W), swapped, f32([3.0, 1.0]), given, referee=False, realism=realism)[1]
        assert found.verdicts[0].grade is grade


def accuracy(inputs, expected, actual, label):
    return int(expected["y"].argmax() == label + 0) - int(actual["y"].argmax() == label)


def test_a_metric_that_needs_a_label_is_passed_over_without_one_and_that_is_said_once():
    given = [Metric("accuracy lost", accuracy, at_most=0.0)]
    swapped = linear([[0.0, 1.0], [1.0, 0.0]])
    _, found, oracle = judged(linear(W), swapped, f32([3.0, 1.0]), given)
    assert found.verdicts == ()
    (note,) = oracle.meter.taken()
    assert note.startswith("metric 'accuracy lost' has no answer on a case without a label: it is passed over on those")
    assert "TypeError" in note
    oracle.judge(
        Case({"x": f32([1.0, 2.0])}), *(run(linear(W), Case({"x": f32([1.0, 2.0])}), s) for s in (TORCH, ORT)), None
    )
    assert oracle.meter.taken() == []
    _, found, _ = judged(linear(W), swapped, f32([3.0, 1.0]), given, label=0)
    assert found.verdicts[0].headline.startswith("metric accuracy lost is 1; wanted at most 0")


@pytest.mark.parametrize(
    ("fn", "said"),
    [
        (lambda i, e, a, label: "good", "it gave str 'good'; wanted a number"),
        (lambda i, e, a, label: e["y"], "it gave ndarray of shape"),
        (lambda i, e, a, label: None, "it gave NoneType; wanted a number"),
        (lambda i, e, a, label: e["z"], "it raised KeyError: 'z'"),
        (lambda i, e, a, label: e["y"].fill(0), "ValueError"),
        (lambda i, e, a, label: exit(3), "it raised SystemExit: 3"),
    ],
)
def test_what_a_metric_does_wrong_is_said_by_name_and_an_error_on_a_seed_with_a_label(fn, said):
    case, found, oracle = judged(linear(W), linear(W), f32([3.0, 1.0]), [Metric("m", fn, at_least=0)], label=1)
    assert found.kind is Kind.AGREE
    assert said in found.measures[0].why
    assert "'m'" in oracle.meter.taken()[0]
    with pytest.raises(InvalidTarget, match="metric 'm' fails on a seed"):
        oracle.meter.require(case, found.measures)
    oracle.meter.require(Case(case.inputs), found.measures)


def test_one_element_arrays_and_booleans_are_numbers_and_nan_keeps_no_bound_where_the_sides_differ():
    for fn, value in ((lambda i, e, a, n: np.array([[2.0]]), 2.0), (lambda i, e, a, n: True, 1.0)):
        assert (
            judged(linear(W), linear(W), f32([3.0, 1.0]), [Metric("m", fn, at_least=0)])[1].measures[0].value == value
        )
    undefined = [Metric("m", lambda i, e, a, n: np.nan, at_least=0)]
    _, found, oracle = judged(linear(W), linear(W), f32([3.0, 1.0]), undefined, label=1)
    assert found.kind is Kind.AGREE
    oracle.meter.require(Case({}, 1), found.measures)
    _, found, _ = judged(linear(W), linear([[9.0, 0], [0, 99.0]]), f32([3.0, 1.0]), undefined)
    assert found.verdicts[0].headline.startswith("metric m is NaN")


def test_a_metric_about_an_output_that_does_not_exist_is_an_error_that_lists_the_outputs():
    with pytest.raises(InvalidTarget, match="the outputs are 'y'"):
        judged(linear(W), linear(W), f32([3.0, 1.0]), [metrics.top_k("logits")])


def test_a_metric_cannot_change_what_was_recorded():
    def spoils(inputs, expected, actual, label):
        for array in (*inputs.values(), *expected.values(), *actual.values()):
            array.flags.writeable = True
            torch.from_numpy(array).fill_(7.0)
        return 1.0

    case = Case({"x": f32([3.0, 1.0])})
    expected, actual = run(linear(W), case, TORCH), run(linear(W), case, ORT)
    Meter([Metric("m", spoils, at_least=0)], ("y",)).measure(case, expected, actual, agrees=True)
    for array in (case.inputs["x"], *expected.outputs, *actual.outputs):
        assert array.ravel().tolist() == [3.0, 1.0]


@pytest.mark.parametrize(
    "given", [torch.tensor(2.0), torch.tensor([[2]]), np.array(2.0), np.array([2]), np.float16(2), np.longdouble(2)]
)
def test_whatever_has_one_element_is_a_number(given):
    metric = Metric("m", lambda i, e, a, n: given, at_least=0)
    assert judged(linear(W), linear(W), f32([3.0, 1.0]), [metric])[1].measures[0].value == 2.0


def test_a_tensor_of_more_is_refused_and_an_error_without_a_message_stays_an_answer_that_is_missing():
    class Mute(Exception):
        def __str__(self):
            raise ValueError

    def mute(inputs, expected, actual, label):
        raise Mute

    given = [Metric("two", lambda i, e, a, n: torch.zeros(2), at_least=0), Metric("mute", mute, at_least=0)]
    two, silent = judged(linear(W), linear(W), f32([3.0, 1.0]), given)[1].measures
    assert two.why == "it gave Tensor of shape [2]; wanted a number"
    assert silent.why.startswith("it raised Mute: its message cannot be read at test_metric_verdicts.py:")
