"""Ready-made metrics, against figures worked out by hand."""

import math

import numpy as np
import pytest

from fuzzparity import InvalidTarget, Metric, Target, metrics


def value(metric, expected, actual, output="y"):
    expected, actual = ({output: np.asarray(x)} if not isinstance(x, dict) else x for x in (expected, actual))
    return metric.fn({}, expected, actual, None)


def test_top_k_counts_rows_and_forgives_a_swap_within_the_margin():
    e = np.array([[3.0, 1.0, 2.0], [1.0, 1.00005, 0.0], [0.0, 1.0, 2.0]])
    a = np.array([[3.0, 1.0, 2.0], [1.00005, 1.0, 0.0], [5.0, 1.0, 2.0]])
    assert value(metrics.top_k("y"), e, a) == pytest.approx(2 / 3)
    assert value(metrics.top_k("y", margin=0.0), e, a) == pytest.approx(1 / 3)
    assert value(metrics.top_k("y", 2), [[3.0, 2.0, 1.0]], [[3.0, 1.0, 2.0]]) == 0.0
    assert value(metrics.top_k("y", 9), [[3.0, 2.0]], [[3.0, 2.0]]) == 1.0


def test_top_k_does_not_let_a_nan_pass_for_agreement():
    e, nan = np.array([[0.0, 3.0, 1.0]]), np.array([[np.nan, 3.0, 1.0]])
    assert value(metrics.top_k("y"), e, nan) == 0.0
    assert value(metrics.top_k("y"), nan, e) == 0.0
    assert value(metrics.top_k("y"), nan, nan) == 1.0


def test_probability_drop_looks_where_torch_is_confident():
    e = [[0.95, 0.05], [0.6, 0.4]]
    assert value(metrics.probability_drop("y"), e, [[0.93, 0.07], [0.1, 0.9]]) == pytest.approx(0.02)
    assert value(metrics.probability_drop("y"), [[0.6, 0.4]], [[0.1, 0.9]]) == 0.0
    assert math.isnan(value(metrics.probability_drop("y"), e, [[np.nan, 0.07], [0.1, 0.9]]))
    drop = value(metrics.probability_drop("y", is_logits=True), [[0.0, 5.0]], [[0.0, 0.0]])
    assert drop == pytest.approx(1 / (1 + math.exp(-5)) - 0.5)


def test_boxes_are_suppressed_and_matched_in_any_order():
    e = {"b": np.array([[0, 0, 10, 10], [20, 20, 30, 30], [1, 0, 10, 10]], float), "s": np.array([0.9, 0.8, 0.7])}
    a = {"b": np.array([[20, 20, 30, 30], [0, 0, 10, 10], [50, 50, 60, 60]], float), "s": np.array([0.8, 0.9, 0.1])}
    assert value(metrics.box_matching("b", "s"), e, a) == 1.0  # one is suppressed, one below the threshold
    assert value(metrics.box_matching("b", "s", nms_iou=None), e, a) == pytest.approx(2 / 3)
    half = {"b": np.array([[0, 0, 10, 5], [20, 20, 30, 30]], float), "s": np.array([0.9, 0.8])}
    assert value(metrics.box_matching("b", "s"), e, half) == pytest.approx(0.75)
    none = {"b": np.zeros((0, 4)), "s": np.zeros(0)}
    assert value(metrics.box_matching("b", "s"), none, none) == 1.0
    assert value(metrics.box_matching("b", "s"), e, none) == 0.0
    nan = {"b": np.full((2, 4), np.nan), "s": np.array([0.9, 0.8])}
    assert value(metrics.box_matching("b", "s"), e, nan) == 0.0


def test_boxes_come_in_three_forms_and_batches():
    corners = np.array([[[0, 0, 4, 4]], [[2, 2, 6, 8]]], float)
    sizes = np.concatenate([corners[..., :2], corners[..., 2:] - corners[..., :2]], axis=-1)
    centres = np.concatenate([(corners[..., :2] + corners[..., 2:]) / 2, sizes[..., 2:]], axis=-1)
    shifted = corners + np.array([0, 0, 0, 4])
    for form, boxes in (("xyxy", corners), ("xywh", sizes), ("cxcywh", centres)):
        assert value(metrics.box_matching("y", form=form), boxes, boxes) == 1.0
    assert value(metrics.box_matching("y"), corners, shifted) == pytest.approx((0.5 + 0.6) / 2)
    with pytest.raises(InvalidTarget, match="use one of xyxy"):
        metrics.box_matching("y", form="yxyx")


def test_mask_iou_tells_the_worst_item_of_a_batch():
    e = np.zeros((2, 4, 4))
    e[:, :2] = 0.9
    a = e.copy()
    a[1, 0] = 0.1
    assert value(metrics.mask_iou("y"), e, e) == 1.0
    assert value(metrics.mask_iou("y"), e, a) == 0.5
    assert value(metrics.mask_iou("y"), np.zeros((1, 4, 4)), np.zeros((1, 4, 4))) == 1.0


def test_snr_is_in_decibels_of_power():
    e = np.array([[1.0, -1.0], [100.0, 100.0]])
    assert value(metrics.snr("y"), e, e * 1.01) == pytest.approx(40.0)
    assert value(metrics.snr("y"), e, e + np.array([[0.1], [0.1]])) == pytest.approx(20.0)
    assert value(metrics.snr("y"), e, e) == math.inf
    assert math.isnan(value(metrics.snr("y"), e, e * np.nan))
    assert value(metrics.snr("y"), np.array([1e300, np.inf, np.nan]), np.array([1.1e300, np.inf, np.nan])) == (
        pytest.approx(20.0)
    )


def test_log_spectral_distance_of_a_gain_is_that_gain():
    wave = np.random.default_rng(0).normal(size=(2, 4000))
    assert value(metrics.log_spectral_distance("y"), wave, wave) == 0.0
    assert value(metrics.log_spectral_distance("y"), wave, wave * 10 ** (6 / 20)) == pytest.approx(6.0)
    assert value(metrics.log_spectral_distance("y"), np.zeros(100), np.zeros(100)) == 0.0


def test_token_edit_distance_is_levenshtein_over_the_longer():
    distance = metrics.token_edit_distance("y", padding=0)
    assert value(distance, [1, 2, 3, 4], [1, 3, 4, 0]) == 0.25
    assert value(distance, [[1, 2], [5, 6]], [[1, 2], [6, 5]]) == 1.0
    assert value(distance, [[0, 0]], [[0, 0]]) == 0.0


def test_cosine_tells_the_worst_row_whatever_the_size_of_its_values():
    assert value(metrics.cosine("y"), [[1e200, 0.0], [0.0, 1.0]], [[1e200, 0.0], [1.0, 1.0]]) == (
        pytest.approx(math.sqrt(0.5))
    )
    assert value(metrics.cosine("y"), [[0.0, 0.0]], [[0.0, 0.0]]) == 1.0
    assert value(metrics.cosine("y"), [[0.0, 0.0]], [[0.0, 1.0]]) == 0.0
    assert math.isnan(value(metrics.cosine("y"), [[1.0, 0.0]], [[np.nan, 1.0]]))


def test_a_metric_without_a_bound_or_with_a_wrong_one_is_an_error_that_says_what_to_give():
    fn = metrics.top_k("y").fn
    for arguments, said in (
        ({"name": "m", "fn": fn}, r"has no bound(.|\n)*at_least= or at_most="),
        ({"name": "m", "fn": fn, "at_least": "1"}, "at_least of metric 'm' is '1'"),
        ({"name": "m", "fn": fn, "at_most": math.nan}, "finite"),
        ({"name": "m", "fn": fn, "at_least": 2, "at_most": 1}, "can have no value"),
        ({"name": "m", "fn": 3, "at_least": 2}, "cannot be called"),
        ({"name": "", "fn": fn, "at_least": 2}, "named"),
        ({"name": "m", "fn": fn, "atleast": 2}, "valid fields: name, fn, at_least, at_most, output"),
    ):
        with pytest.raises(InvalidTarget, match=said):
            Metric(**arguments)
    for given, said in (([fn], "Metric"), ("top1", "Metric"), ([metrics.top_k("y")] * 2, "two metrics are named")):
        with pytest.raises(InvalidTarget, match=said):
            Target(module=fn, inputs={"x": np.zeros(1)}, metrics=given)


def test_a_probability_that_is_nan_on_one_side_is_no_agreement():
    e, nan = [[0.95, 0.05]], [[np.nan, 0.05]]
    for is_logits in (False, True):
        drop = metrics.probability_drop("y", is_logits=is_logits)
        assert math.isnan(value(drop, nan, e))
        assert math.isnan(value(drop, e, nan))
        assert value(drop, nan, nan) == 0.0
    logits = metrics.probability_drop("y", is_logits=True)
    assert value(logits, [[np.inf, 0.0]], [[0.0, np.inf]]) == 1.0
    assert value(logits, [[np.nan, 9.0, 0.0]], [[np.nan, 0.0, 9.0]]) > 0.9
    assert math.isnan(value(logits, [[-np.inf, -np.inf]], [[0.0, 1.0]]))


def test_a_box_with_a_nan_matches_nothing_but_one_at_the_same_place():
    boxes = np.array([[0, 0, 10, 10], [20, 20, 30, 30], [0, 0, 10, 9]], float)
    good = {"b": boxes, "s": np.array([0.9, 0.8, 0.1])}
    matching = metrics.box_matching("b", "s")
    for broken in (
        {"b": boxes, "s": np.array([0.9, np.nan, 0.1])},
        {"b": boxes, "s": np.array([0.9, 0.8, np.nan])},  # suppression must not hide it
        {"b": np.where(boxes == 20, np.nan, boxes), "s": good["s"]},
    ):
        assert value(matching, good, broken) == value(matching, broken, good) == 0.0
        assert value(matching, broken, broken) == 1.0


def test_log_spectral_distance_sees_both_ends_and_a_quiet_row_beside_a_loud_one():
    wave = np.random.default_rng(0).normal(size=512 + 3 * 128)
    for length in (600, 639, 640, 641):
        for place in (0, length - 1):
            other = wave[:length].copy()
            other[place] += 9.0
            assert value(metrics.log_spectral_distance("y"), wave[:length], other) > 0.1
    rows = np.stack([wave, 1e-7 * wave])
    assert value(metrics.log_spectral_distance("y"), rows, rows * [[1.0], [2.0]]) == pytest.approx(20 * math.log10(2))


def test_edit_distance_is_that_of_the_table_and_takes_long_sequences():
    def slow(one, two):
        row = list(range(len(two) + 1))
        for i, token in enumerate(one, 1):
            before, row[0] = row[0], i
            for j, another in enumerate(two, 1):
                before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (token != another))
        return row[-1] / max(len(one), len(two))

    rng = np.random.default_rng(0)
    for _ in range(50):
        one, two = (rng.integers(0, 4, rng.integers(1, 12)) for _ in range(2))
        assert value(metrics.token_edit_distance("y"), one, two) == slow(one.tolist(), two.tolist())
    long = np.arange(3000)
    assert value(metrics.token_edit_distance("y"), long, np.roll(long, 1)) == 2 / 3000


def test_what_is_empty_on_both_sides_agrees():
    for shape in ((0,), (2, 0), (0, 3)):
        assert value(metrics.token_edit_distance("y"), *[np.zeros(shape, int)] * 2) == 0.0
        assert value(metrics.probability_drop("y"), *[np.zeros(shape)] * 2) == 0.0
        assert value(metrics.top_k("y"), *[np.zeros(shape)] * 2) == 1.0
    assert value(metrics.token_edit_distance("y"), [], [1, 2]) == 1.0
    assert value(metrics.mask_iou("y"), *[np.zeros((0, 3, 3))] * 2) == 1.0
    for shapes in (((0,), (0,)), ((3, 4), (3, 0)), ((2, 0, 4), (2, 0)), ((0, 3, 4), (0, 3, 5))):
        none = dict(zip("bs", map(np.zeros, shapes), strict=True))
        assert value(metrics.box_matching("b", "s"), none, none) == 1.0


@pytest.mark.parametrize(
    ("boxes", "scores", "said"),
    [
        ((4,), (1,), r"\[4\]; wanted \[n, 4\] or \[batch, n, 4\]"),
        ((5, 3), (5,), r"\[5, 3\]; wanted \[n, 4\]"),
        ((1, 1, 5, 4), (5,), r"wanted \[n, 4\]"),
        ((2, 5, 4), (5,), r"\[5\]; wanted \[2, 5\] or \[2, 5, classes\]"),
        ((5, 4), (4,), r"\[4\]; wanted \[5\]"),
    ],
)
def test_boxes_and_scores_of_wrong_shapes_are_an_error_that_says_what_is_wanted(boxes, scores, said):
    given = {"b": np.zeros(boxes), "s": np.zeros(scores)}
    with pytest.raises(ValueError, match=said):
        value(metrics.box_matching("b", "s"), given, given)


def test_top_k_wants_a_whole_number_of_classes_and_ranks_among_minus_infinity():
    for k in (0, -1, 1.5, True, "1"):
        with pytest.raises(InvalidTarget, match="whole number from 1 up"):
            metrics.top_k("y", k)
    inf = np.inf
    assert value(metrics.top_k("y", 2), [[5.0, -inf, -inf]], [[5.0, -inf, -9e9]]) == 1.0
    assert value(metrics.top_k("y", 2), [[5.0, 1.0, -inf]], [[5.0, -inf, 1.0]]) == 0.0
