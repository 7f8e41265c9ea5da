import numpy as np
import pytest
from engines import NumpyReferee, f32, judge

from fuzzparity.case import Case
from fuzzparity.oracle.draws import eps_of_maximum, one_ulp
from fuzzparity.verdict import Grade, Kind, Realism


def normal(*shape, scale=1.0, offset=0.0):
    return (np.random.default_rng(3).standard_normal(shape) * scale + offset).astype(np.float32)


def layer_norm(r, x):
    centred = r(x - r(x.mean(-1, keepdims=True)))
    return (r(centred / r(np.sqrt(r((centred * centred).mean(-1, keepdims=True)) + 1e-5))),)


def layer_norm_of_squares(r, x):
    mean = r(x.mean(-1, keepdims=True))
    variance = np.maximum(r(r((r(x * x)).mean(-1, keepdims=True)) - r(mean * mean)), 0)
    return (r(r(x - mean) / r(np.sqrt(variance + np.float32(1e-5)))),)


def layer_norm_sequential(r, x):
    mean = r(np.cumsum(x, -1, dtype=x.dtype)[..., -1:] / x.dtype.type(x.shape[-1]))
    centred = r(x - mean)
    return (r(centred / r(np.sqrt(r((centred * centred).mean(-1, keepdims=True)) + x.dtype.type(1e-5)))),)


def only(judgement):
    assert len(judgement.verdicts) == 1, judgement
    return judgement.verdicts[0]


def test_layer_norm_of_a_large_offset_is_inherent():
    verdict = only(judge(layer_norm, layer_norm_sequential, normal(4, 64, offset=40000)))
    assert (verdict.kind, verdict.grade, verdict.blame) == (Kind.NUMERIC, Grade.INHERENT, "none")
    assert "rounding alone moves the exact answer" in verdict.headline


def test_log1p_written_as_log_of_one_plus_x_is_a_bug():
    def log1p(r, x):
        return (r(r(np.log1p(x)) / x),)

    def naive(r, x):
        return (r(r(np.log(r(x + x.dtype.type(1)))) / x),)

    verdict = only(judge(log1p, naive, f32(1e-8, 3e-8, -2e-8, 4e-9)))
    assert (verdict.kind, verdict.grade, verdict.side) == (Kind.NUMERIC, Grade.BUG, "ort")
    assert verdict.evidence.far_sides == ("ort",)
    assert verdict.evidence.draws >= 44
    assert "the exact answer sides with torch" in verdict.headline
    swapped = only(judge(naive, log1p, f32(1e-8, 3e-8), referee=NumpyReferee(log1p)))
    assert (swapped.grade, swapped.side, swapped.blame) == (Grade.BUG, "torch", "torch")


def test_a_sum_in_another_order_is_never_a_bug():
    def forward(r, x):
        return (r(np.cumsum(x, -1, dtype=x.dtype)[..., -1]),)

    def backward(r, x):
        return (r(np.cumsum(x[..., ::-1], -1, dtype=x.dtype)[..., -1]),)

    for scale, offset in ((1, 0), (1e6, 0), (1, 1e6), (1e-3, 0)):
        judgement = judge(forward, backward, normal(8, 4096, scale=scale, offset=offset))
        assert all(v.grade is Grade.INHERENT for v in judgement.verdicts), judgement


def test_a_large_matmul_in_another_order_is_not_a_bug():
    def matmul(r, x, w):
        return (r(x @ w),)

    def blocked(r, x, w):
        half = x.shape[1] // 2
        return (r(r(x[:, :half] @ w[:half]) + r(x[:, half:] @ w[half:])),)

    for scale in (1.0, 1e4, 1e10):
        judgement = judge(matmul, blocked, normal(4, 512, scale=scale), normal(512, 6, offset=0.1))
        assert all(v.grade is Grade.INHERENT for v in judgement.verdicts), judgement


def test_a_bias_of_ten_times_the_noise_is_a_bug():
    def matmul(r, x, w):
        return (r(x @ w),)

    def biased(r, x, w):
        product = r(x @ w)
        return (product + np.float32(1e-5) * np.abs(product).max() + np.float32(2e-5),)

    verdict = only(judge(matmul, biased, normal(4, 64), normal(64, 6)))
    assert (verdict.grade, verdict.side) == (Grade.BUG, "ort")


def test_argmax_between_scores_within_rounding_is_a_tie():
    def argmax(r, x):
        return (r(x * x).argmax(-1),)

    def other(r, x):
        return (r(r(x * x) + np.arange(x.shape[-1], dtype=np.float32) * np.float32(4e-6)).argmax(-1),)

    x = f32([3.0000002, 3, 1], [5, 1, 2])
    verdict = only(judge(argmax, other, x))
    assert (verdict.kind, verdict.grade) == (Kind.DECISION, Grade.TIE)


@pytest.mark.parametrize(("roundings", "grade"), [(5, Grade.TIE), (40, Grade.BUG)])
def test_argmax_of_scores_that_eight_roundings_may_reorder_is_a_tie(roundings: int, grade: Grade):
    # the inputs are too small for their own ulps to show: only what is rounded on the way can move the scores
    x = f32([0.0, roundings * 2.0**-24])

    def other(r, x):
        return (np.array([0, 1])[r(x + np.float32(1)).argmax(-1) - 1],)  # the other one

    verdict = only(judge(lambda r, x: (np.asarray((r(x.astype(np.float64) + 1.0)).argmax(-1)),), other, x))
    assert (verdict.kind, verdict.grade) == (Kind.DECISION, grade)


def test_argmax_between_distant_scores_is_a_bug():
    verdict = only(judge(lambda r, x: (x.argmax(-1),), lambda r, x: (x.argmin(-1),), f32([1, 2, 3])))
    assert (verdict.kind, verdict.grade, verdict.side) == (Kind.DECISION, Grade.BUG, "ort")


def topk_first(r, x):
    order = np.argsort(-x, axis=-1, kind="stable")[..., :2]
    return order, np.take_along_axis(x, order, -1)


def topk_last(r, x):
    order = x.shape[-1] - 1 - np.argsort(-x[..., ::-1], axis=-1, kind="stable")[..., :2]
    return order, np.take_along_axis(x, order, -1)


@pytest.mark.parametrize("score", [0.9, 0.0, -0.0, -3.5])
def test_topk_over_equal_scores_is_a_tie(score):
    scores = np.full((3, 5), score, dtype=np.float32)
    for torch, ort in ((topk_first, topk_last), (topk_last, topk_first)):
        verdict = only(judge(torch, ort, scores))
        assert (verdict.kind, verdict.grade) == (Kind.DECISION, Grade.TIE)


def test_topk_over_several_nan_is_a_tie_and_one_that_overlooks_them_is_a_bug():
    def nan_above_all(x):
        return np.where(np.isnan(x), np.inf, x)

    def first(r, x):
        return (np.argsort(-nan_above_all(x), kind="stable")[..., :2],)

    def last(r, x):
        return (np.argsort(nan_above_all(x), kind="stable")[..., ::-1][..., :2],)

    def blind(r, x):
        return (np.argsort(-np.where(np.isnan(x), -np.inf, x), kind="stable")[..., :2],)

    scores = f32([np.nan, 1.0, np.nan, 2.0, np.nan])
    for torch, ort in ((first, last), (last, first)):
        assert only(judge(torch, ort, scores)).grade is Grade.TIE
    assert only(judge(first, blind, scores)).grade is Grade.BUG
    assert only(judge(first, blind, f32([np.nan, 1.0, 3.0, 2.0, -1.0]))).grade is Grade.BUG


def test_topk_payload_gathered_by_equal_zero_scores_is_a_tie():
    def gathered(topk):
        return lambda r, s, box: (box[topk(r, s)[0]],)

    box = np.arange(8, dtype=np.float32).reshape(4, 2)
    for scores in (np.zeros(4, np.float32), np.full(4, 0.9, np.float32)):
        verdict = only(judge(gathered(topk_first), gathered(topk_last), scores, box))
        assert (verdict.kind, verdict.grade, verdict.blame) == (Kind.NUMERIC, Grade.TIE, "none")


@pytest.mark.parametrize("payload", [179.0, 3e30, np.nan, np.inf])
def test_payload_of_any_size_gathered_by_equal_scores_is_a_tie(payload):
    def gathered(topk):
        return lambda r, s, box: (box[topk(r, s)[0]],)

    box = np.zeros((4, 2), np.float32)
    box[1, 0] = payload
    for scores in (np.zeros(4, np.float32), np.full(4, 0.5, np.float32)):
        for torch, ort in ((topk_last, topk_first), (topk_first, topk_last)):
            verdict = only(judge(gathered(torch), gathered(ort), scores, box))
            assert (verdict.grade, verdict.blame) == (Grade.TIE, "none"), verdict.headline


@pytest.mark.parametrize("score", [np.nan, np.inf])
@pytest.mark.parametrize("payload", [1.0, np.nan, np.inf])
def test_payload_gathered_by_equal_nonfinite_scores_is_a_tie(score, payload):
    def order(x, last):
        x = np.where(np.isnan(x), 8.0 * np.finfo(np.float32).max, x.astype(np.float64))
        order = np.argsort(-x[::-1], kind="stable") if last else np.argsort(-x, kind="stable")
        return (x.size - 1 - order if last else order)[:2]

    def gathered(last):
        return lambda r, s, box: (box[order(s, last)],)

    box = np.zeros((4, 2), np.float32)
    box[0, 1] = payload
    scores = np.array([score, score, score, 0.0], np.float32)
    verdict = judge(gathered(True), gathered(False), scores, box).worst
    assert (verdict.grade, verdict.blame) == (Grade.TIE, "none"), verdict.headline


def test_nan_that_one_side_drops_is_a_bug_among_equal_values_too():
    def dropping(r, s, box):
        return (np.nan_to_num(box[topk_first(r, s)[0]], nan=0.0),)

    box = np.array([[1.0, np.nan], [np.nan, 1.0], [1.0, 1.0], [1.0, 1.0]], np.float32)
    for scores in (f32([3, 2, 1, 0]), np.zeros(4, np.float32)):
        verdict = judge(lambda r, s, box: (box[topk_first(r, s)[0]],), dropping, scores, box).worst
        assert (verdict.kind, verdict.grade) == (Kind.NONFINITE, Grade.BUG)


def test_topk_that_returns_a_smaller_score_is_a_bug_among_ties_too():
    def wrong(r, x):
        order, _ = topk_first(r, x)
        return np.where(order == 1, 3, order), np.take_along_axis(x, order, -1)

    verdict = judge(topk_first, wrong, f32([2, 2, 0, 0])).worst
    assert (verdict.kind, verdict.grade) == (Kind.DECISION, Grade.BUG)


def test_atan2_on_the_negative_axis_is_a_bug_and_no_tie():
    def naive(r, d):
        y, x = d[:, 1], d[:, 0]
        angle = r(np.arctan(y / x))
        return (r(np.where(x < 0, np.where(y > 0, angle + np.pi, angle - np.pi), angle)),)

    verdict = only(
        judge(lambda r, d: (r(np.arctan2(d[:, 1], d[:, 0])),), naive, f32([-1, 0], [-2, 0], [-3, 0.5], [-1, -0.0]))
    )
    assert (verdict.kind, verdict.grade, verdict.side) == (Kind.NUMERIC, Grade.BUG, "ort")


def test_a_threshold_at_exact_zeros_is_a_bug_and_no_tie():
    verdict = only(judge(lambda r, x: (x > 0,), lambda r, x: (x >= 0,), f32(0, 0, 1, -1)))
    assert (verdict.kind, verdict.grade, verdict.side) == (Kind.DECISION, Grade.BUG, "ort")


def test_integers_without_a_float_in_sight_are_a_bug():
    x = np.array([5, -7, 8])
    verdict = only(judge(lambda r, x: (x // 2,), lambda r, x: (np.trunc(x / 2).astype(np.int64),), x))
    assert (verdict.kind, verdict.grade, verdict.side) == (Kind.DECISION, Grade.BUG, "ort")
    missing = only(judge(lambda r, x: (x,), lambda r, x: (x + 1,), x, referee=None))
    assert missing.grade is Grade.BUG


def test_rounding_up_within_an_ulp_of_the_threshold_is_a_tie_and_beyond_it_a_bug():
    def ceil(r, x):
        return (np.ceil(r(x * x.dtype.type(1.1))).astype(np.int64),)

    def late(r, x):
        return (np.ceil(r(x * x.dtype.type(1.1)) - x.dtype.type(1e-6)).astype(np.int64),)

    near = only(judge(ceil, late, f32(9.09091)))
    assert (near.kind, near.grade) == (Kind.DECISION, Grade.TIE)

    def much_too_late(r, x):
        return (np.ceil(r(x * x.dtype.type(1.1)) - x.dtype.type(1e-3)).astype(np.int64),)

    assert only(judge(ceil, much_too_late, f32(10.0002 / 1.1))).grade is Grade.BUG


def test_a_length_that_depends_on_a_value_within_an_ulp_is_a_tie_and_a_wrong_length_a_bug():
    def repeat(step):
        return lambda r, x: (np.zeros(int(np.ceil(r(x[0] * x.dtype.type(1.1)) - x.dtype.type(step)))),)

    near = only(judge(repeat(0), repeat(1e-6), f32(9.09091)))
    assert (near.kind, near.grade) == (Kind.SHAPE, Grade.TIE)
    wrong = only(judge(lambda r, x: (x[: -(-len(x) // 2)],), lambda r, x: (x[: len(x) // 2],), f32(1, 2, 3)))
    assert (wrong.kind, wrong.grade, wrong.side) == (Kind.SHAPE, Grade.BUG, "ort")


def test_a_numeric_jump_at_a_threshold_within_rounding_is_a_tie():
    def step(threshold):
        return lambda r, x: (r(np.where(x > threshold, 10.0, 0.0)),)

    assert only(judge(step(3.0), step(np.nextafter(np.float32(3), np.float32(4))), f32(3.0000002))).grade is Grade.TIE
    assert only(judge(step(3.0), step(3.1), f32(3.05))).grade is Grade.BUG


def test_nan_semantics_of_nonfinite_inputs_are_a_bug():
    verdict = only(judge(lambda r, x: (x.max(-1),), lambda r, x: (np.fmax.reduce(x, -1),), f32([1, np.nan, 3])))
    assert (verdict.kind, verdict.grade, verdict.side) == (Kind.NONFINITE, Grade.BUG, "ort")


def test_a_mean_of_nothing_that_is_zero_is_a_bug():
    def mean(r, x):
        return (r(np.where(x > 0, x, 0).sum() / (x > 0).sum()),)

    verdict = only(judge(mean, lambda r, x: (np.nan_to_num(mean(r, x)[0]),), f32(-1, -2)))
    assert (verdict.kind, verdict.grade, verdict.side) == (Kind.NONFINITE, Grade.BUG, "ort")


def test_an_overflow_by_another_order_of_products_is_a_bug():
    def scaled_first(r, a, b):
        return (r(r(a * a.dtype.type(1e-10)) @ b),)

    def scaled_last(r, a, b):
        return (r(r(a @ b) * np.float32(1e-10)),)

    a, b = normal(2, 3, scale=1e20), np.abs(normal(3, 2, scale=1e20))
    verdict = only(judge(scaled_first, scaled_last, a, b))
    assert (verdict.kind, verdict.grade, verdict.side) == (Kind.NONFINITE, Grade.BUG, "ort")


def test_an_overflow_at_the_margin_of_torchs_own_formulation_is_inherent():
    def product(r, x):
        return (r(r(x * x) * x.dtype.type(1e-30)),)

    def doubled(r, x):
        return (r(r(x * x * np.float32(4)) * np.float32(2.5e-31)),)

    verdict = only(judge(product, doubled, f32(1e19)))
    assert (verdict.kind, verdict.grade, verdict.blame) == (Kind.NONFINITE, Grade.INHERENT, "precision")


def test_the_range_of_the_precision_is_told_as_the_reason_and_not_rounding():
    def product(r, x):
        return (r(r(x * x) * x.dtype.type(1e-38)),)

    def clipped(r, x):
        return (np.minimum(r(r(x * x) * x.dtype.type(1e-38)), np.float32(2)),)

    verdict = only(judge(product, clipped, f32(1.8e19)))
    assert (verdict.kind, verdict.grade, verdict.blame) == (Kind.NUMERIC, Grade.INHERENT, "precision")
    assert "leaves the range of the working precision; torch is" in verdict.headline
    assert verdict.headline.endswith("off the exact answer, ORT 1.2")
    assert "rounding alone" not in verdict.headline


def test_torch_overflowing_in_half_precision_while_ort_computes_wider_is_inherent():
    def square_root(r, x):
        return (r(np.sqrt(r(x * x))),)

    def wide(r, x):
        return (np.sqrt(x.astype(np.float32) ** 2).astype(np.float16),)

    verdict = only(judge(square_root, wide, np.array([300.0, 2.0], np.float16), dtype=np.float16))
    assert (verdict.kind, verdict.grade, verdict.blame) == (Kind.NONFINITE, Grade.INHERENT, "precision")


def test_an_overflow_of_double_precision_is_inherent_since_the_referee_overflows_too():
    def forward(r, x):
        return (r(np.cumsum(x, -1)[..., -1]),)

    def backward(r, x):
        return (r(np.cumsum(x[..., ::-1], -1)[..., -1]),)

    largest = np.finfo(np.float64).max
    verdict = only(judge(forward, backward, np.array([[largest, largest, -largest]]), dtype=np.float64))
    assert (verdict.kind, verdict.grade, verdict.blame) == (Kind.NONFINITE, Grade.INHERENT, "precision")

    def wrong(r, x):
        return (r(np.where(x > 5, np.inf, x)),)

    verdict = only(judge(lambda r, x: (r(x),), wrong, np.array([1.0, 9.0]), dtype=np.float64))
    assert (verdict.kind, verdict.grade) == (Kind.NONFINITE, Grade.BUG)


def test_squares_inside_one_operator_that_overflow_in_double_precision_are_inherent_too():
    def norm(r, x):  # one operator: only the inputs and the result are seen
        return (r(x / np.sqrt((x * x).mean(-1, keepdims=True)) * np.inf / np.inf),)

    def of_zeros(r, x):
        return (np.where(np.isfinite(x * x), r(x / np.sqrt((x * x).mean(-1, keepdims=True))), 0.0),)

    verdict = only(judge(norm, of_zeros, np.array([[1e170, -3e172]]), dtype=np.float64))
    assert (verdict.kind, verdict.grade, verdict.blame) == (Kind.NONFINITE, Grade.INHERENT, "precision")


def test_an_infinity_that_meets_one_of_an_overflow_is_inherent_in_any_order_of_a_sum():
    def forward(r, x):
        return (r(np.cumsum(x, -1)[..., -1]),)

    def backward(r, x):
        return (r(np.cumsum(x[..., ::-1], -1)[..., -1]),)

    half = float(np.finfo(np.float32).max) * 0.75
    verdict = only(judge(backward, forward, np.array([[half, half, -np.inf]], np.float32)))
    assert (verdict.kind, verdict.grade, verdict.blame) == (Kind.NONFINITE, Grade.INHERENT, "precision")
    # far from the largest float, NaN for an infinity is what it looks like
    verdict = only(judge(forward, lambda r, x: (x[..., 0] * np.nan,), np.array([[1.0, 2.0, -np.inf]], np.float32)))
    assert (verdict.kind, verdict.grade) == (Kind.NONFINITE, Grade.BUG)


def test_a_mask_of_the_largest_float_does_not_excuse_a_nan():
    lowest = float(np.finfo(np.float32).min)

    def softmax(r, x):
        raised = np.exp(x - x.max(-1, keepdims=True))
        return raised / raised.sum(-1, keepdims=True)

    def masked(r, x, mask):
        return (r(softmax(r, r(np.where(mask, x, x.dtype.type(lowest))))),)

    def dropped(r, x, mask):
        return (r(softmax(r, np.where(mask, x, x.dtype.type(-np.inf)))),)

    verdict = only(judge(masked, dropped, normal(2, 3), np.array([[True] * 3, [False] * 3])))
    assert (verdict.kind, verdict.grade, verdict.side) == (Kind.NONFINITE, Grade.BUG, "ort")


def test_a_choice_among_overflown_values_is_inherent():
    def largest(r, x):
        return (np.argmax(r(r(x * x.dtype.type(8)) * x.dtype.type(0.5))),)

    def scaled(r, x):
        return (np.argmax(r(x * np.float32(4))),)

    verdict = only(judge(largest, scaled, f32(6e37, 7e37, 8e37)))
    assert (verdict.kind, verdict.grade, verdict.blame) == (Kind.DECISION, Grade.INHERENT, "precision")


def test_a_norm_that_overflows_inside_is_inherent():
    def normalized(r, x):
        return (r(x / (x * x).sum() ** 0.5),)

    def partly(r, x):
        return (np.zeros_like(x) + np.float32(0.01),)

    verdict = only(judge(normalized, partly, f32(3e37, 4e37)))
    assert (verdict.kind, verdict.grade, verdict.blame) == (Kind.NUMERIC, Grade.INHERENT, "precision")


def test_an_overflow_of_torch_that_meets_an_infinite_input_is_inherent():
    def difference(r, x):
        return (r(r(x[:2] * x.dtype.type(1e30)) - x[2]),)

    def wide(r, x):
        return ((x[:2].astype(np.float64) * 1e30 - x[2]).astype(np.float32),)

    verdict = only(judge(difference, wide, f32(1e20, 1, np.inf)))
    assert (verdict.kind, verdict.grade, verdict.blame) == (Kind.NONFINITE, Grade.INHERENT, "precision")


def test_a_nan_of_ort_on_moderate_inputs_is_a_bug():
    verdict = only(
        judge(lambda r, x: (r(x / (np.abs(x) + 1)),), lambda r, x: (r(x / np.where(x > 5, 0 * x, x)),), f32(1, 7))
    )
    assert (verdict.kind, verdict.grade, verdict.side) == (Kind.NONFINITE, Grade.BUG, "ort")


def test_without_a_referee_only_what_noise_cannot_explain_is_a_bug():
    def plus(delta):
        return lambda r, x: (r(x + np.float32(delta)),)

    x = f32(1, 2, 3)
    for referee in (None, NumpyReferee(plus(0), missing="complex weights")):
        big = only(judge(plus(0), plus(0.1), x, referee=referee))
        small = only(judge(plus(0), plus(1e-4), x, referee=referee))
        assert (big.grade, small.grade) == (Grade.BUG, Grade.NOTE)
        assert big.evidence.source.startswith("missing: ")
    assert "complex weights" in small.headline
    assert only(judge(plus(0), plus(0.1), x, referee=None, realism=Realism.WILD)).grade is Grade.NOTE


def test_both_far_from_float64_but_near_each_other_is_no_bug():
    def narrow(r, x):
        return (r(x + np.float32(1 if r.dtype is np.float64 else 0)),)

    judgement = judge(narrow, lambda r, x: (narrow(r, x)[0] * np.float32(1 + 5e-6),), f32(100, 200))
    assert all(v.grade is not Grade.BUG or len(v.evidence.far_sides) == 2 for v in judgement.verdicts)


def test_draws_are_the_same_for_the_same_case_and_keep_zeros_nan_and_integers():
    case = Case({"x": f32(0, -0.0, 1, np.nan, np.inf, 1e-40), "i": np.array([1, 2])})
    for make in (lambda d: one_ulp(case, d), lambda d: eps_of_maximum(case, d, "float32")):
        assert make(3) == make(3)
        assert make(3) != make(4)
        moved = make(3).inputs
        assert moved["x"].dtype == np.float64
        np.testing.assert_array_equal(moved["x"][[0, 1, 3, 4]], case.inputs["x"][[0, 1, 3, 4]].astype(np.float64))
        assert np.signbit(moved["x"][1])
        assert moved["x"][2] != 1.0
        np.testing.assert_array_equal(moved["i"], [1, 2])
    assert np.abs(one_ulp(case, 0).inputs["x"][2] - 1.0) in (2.0**-23, 2.0**-24)


def test_draws_stop_as_soon_as_the_answer_is_clear():
    referee = NumpyReferee(layer_norm)
    judge(layer_norm, layer_norm_sequential, normal(4, 64, offset=40000), referee=referee)
    assert referee.runs <= 1 + 6 + 6


def test_a_decision_that_comes_from_integers_alone_takes_the_least_draws():
    def floor(r, k, x):
        return (k // 4, r(x * 2))

    def trunc(r, k, x):
        return ((k / 4).astype(np.int64), r(x * 2))

    class Following(NumpyReferee):
        def unmoved(self, case):
            return frozenset({0})

    inputs = np.array([-3, 9], np.int64), f32(1.5, 2.5)
    plain, following = NumpyReferee(floor), Following(floor)
    verdicts = [only(judge(floor, trunc, *inputs, referee=one)) for one in (plain, following)]
    for verdict in verdicts:
        assert (verdict.kind, verdict.grade, verdict.side) == (Kind.DECISION, Grade.BUG, "ort")
    assert 0 < following.runs < 10 < plain.runs
