"""Metrics: ready-made figures of the task, for `Target.metrics`; each a factory with a bound and where it comes from.

The idea: an elementwise tolerance asks whether numbers agree, a metric whether the answer does. torch's answer is the
expected one. All of them look at every item of a batch and tell the worst, and none lets a NaN on one side pass for
agreement.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from fuzzparity.errors import InvalidTarget
from fuzzparity.target import Metric

Wide = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]
Outputs = dict[str, Any]
_FORMATS = ("xyxy", "xywh", "cxcywh")


def top_k(output: str, k: int = 1, *, margin: float = 1e-4, axis: int = -1, at_least: float = 1.0) -> Metric:
    """Return the share of rows whose top k classes, in order, are torch's; `output` holds scores or logits.

    A class that ORT ranks elsewhere is right where torch's score of it is within `margin` of the one that torch has
    there: the usual tolerance of logits (1e-4, FACTS "Policies"). NaN ranks nowhere: a row that holds one is right only
    where both sides hold it at the same places. Default bound: every row ("argmax agrees"). InvalidTarget unless k is
    a whole number from 1 up.
    """
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise InvalidTarget("declare", f"top_k has a k of {k!r}", "give a whole number from 1 up")

    def fn(inputs: Outputs, expected: Outputs, actual: Outputs, label: Any) -> float:
        e, a = _rows(expected[output], axis), _rows(actual[output], axis)
        _require_same_form(e, a)
        count = min(k, e.shape[1])
        best, found = _ranked(e, count), _ranked(a, count)
        known = np.where(np.isnan(e), -np.inf, e)  # as it is ranked
        wanted, given = np.take_along_axis(known, best, 1), np.take_along_axis(known, found, 1)
        with np.errstate(invalid="ignore"):
            right = (wanted == given) | (np.abs(wanted - given) <= margin)  # equal infinities have no difference
        return _share(right.all(axis=1) & (np.isnan(e) == np.isnan(a)).all(axis=1))

    return Metric(f"top_{k}({output})", fn, at_least=at_least, output=output)


def probability_drop(
    output: str, *, confident: float = 0.9, at_most: float = 0.01, axis: int = -1, is_logits: bool = False
) -> Metric:
    """Return how far ORT's probability of torch's top class falls below torch's, at worst, where torch is confident.

    Where torch's top probability is over 0.9 ORT's is over 0.89: the practice of shipped speech models (FACTS,
    "Policies"), so at most 0.01 is lost. 0.0 where torch is never confident, NaN where one side alone has a NaN.
    `is_logits`: softmax comes first.
    """

    def fn(inputs: Outputs, expected: Outputs, actual: Outputs, label: Any) -> float:
        e, a = _rows(expected[output], axis), _rows(actual[output], axis)
        _require_same_form(e, a)
        if not e.size:
            return 0.0
        e, a = (_softmax(e), _softmax(a)) if is_logits else (e, a)
        if (np.isnan(e) != np.isnan(a)).any():
            return math.nan
        best = _ranked(e, 1)
        top = np.take_along_axis(e, best, 1)[:, 0]
        drop = (top - np.take_along_axis(a, best, 1)[:, 0])[top > confident]
        return float(drop.max()) if drop.size else 0.0

    return Metric(f"probability_drop({output})", fn, at_most=at_most, output=output)


def box_matching(
    boxes: str,
    scores: str | None = None,
    *,
    form: str = "xyxy",
    score_threshold: float = 0.25,
    nms_iou: float | None = 0.5,
    at_least: float = 0.95,
) -> Metric:
    """Return the mean IoU of torch's boxes with ORT's, after the same greedy suppression on both sides.

    `boxes` is [n, 4] or [batch, n, 4] in `form` ("xyxy", "xywh", "cxcywh"), `scores` [n], [batch, n] or, by class,
    [..., n, classes], of which the best counts. Boxes below `score_threshold` (0.25: the
    default of widespread detectors) are left out; the others are suppressed
    where they overlap a better one by more than `nms_iou` (None: the model has done that). Matching is greedy by IoU;
    a box without a partner counts as 0. Default bound: mean IoU over 0.95 (FACTS, "Policies"). 1.0 where neither side
    has a box; where sides have a number of boxes of their own, that is a verdict of its own beside this one. A box with
    a NaN, in it or in its score, matches nothing: left out where both sides have it at the same place, else all is 0.0.
    """
    if form not in _FORMATS:
        raise InvalidTarget("declare", f"box_matching has no form {form!r}", f"use one of {', '.join(_FORMATS)}")

    def kept(outputs: Outputs) -> list[tuple[Wide, Places]]:
        found = []
        for one, scored in _detections(outputs, boxes, scores):
            weights = None if scored is None else scored.max(axis=1, initial=-np.inf)  # NaN where any class is
            counts = np.ones(len(one), bool) if weights is None else ~(weights < score_threshold)
            flags = np.isnan(one if scored is None else np.concatenate([one, scored], axis=1)) & counts[:, None]
            whole = counts & ~flags.any(axis=1)
            corners = _corners(one[whole], form)
            best = _suppressed(corners, None if weights is None else weights[whole], nms_iou)
            found.append((best, np.argwhere(flags)))
        return found

    def fn(inputs: Outputs, expected: Outputs, actual: Outputs, label: Any) -> float:
        e, a = kept(expected), kept(actual)
        if len(e) != len(a):
            raise ValueError(f"the boxes {boxes!r} are a batch of {len(e)} and one of {len(a)}; wanted as many")
        if not all(np.array_equal(one[1], other[1]) for one, other in zip(e, a, strict=True)):
            return 0.0
        pairs = [(one[0], other[0]) for one, other in zip(e, a, strict=True)]
        found = [_matched(one, other) for one, other in pairs if len(one) or len(other)]
        return float(np.concatenate(found).mean()) if found else 1.0

    return Metric(f"box_matching({boxes})", fn, at_least=at_least, output=boxes)


def mask_iou(output: str, *, threshold: float = 0.5, at_least: float = 0.95) -> Metric:
    """Return the smallest IoU over the items of a batch of two masks, cut at `threshold` (probabilities; logits: 0).

    Default bound: mean IoU over 0.95 (FACTS, "Policies"). 1.0 where both masks are empty; a NaN is in neither mask.
    """

    def fn(inputs: Outputs, expected: Outputs, actual: Outputs, label: Any) -> float:
        e, a = (np.asarray(side[output]) for side in (expected, actual))
        _require_same_form(e, a)
        e, a = (_flat(x, 1 if x.ndim > 2 else 0).astype(np.float64) > threshold for x in (e, a))
        both, either = (e & a).sum(axis=1), (e | a).sum(axis=1)
        return float(np.where(either, both / np.maximum(either, 1), 1.0).min(initial=1.0))

    return Metric(f"mask_iou({output})", fn, at_least=at_least, output=output)


def snr(output: str, *, at_least: float = 40.0) -> Metric:
    """Return the signal-to-noise ratio in dB, ORT's difference from torch being the noise; the worst of a batch.

    Default bound: 40 dB, noise of 1 % of the signal's amplitude, about what eight bits leave of a signal that fills a
    fifth of its range (6.02 dB a bit: Bennett, "Spectra of quantized signals", 1948). Infinite where nothing differs.
    """

    def fn(inputs: Outputs, expected: Outputs, actual: Outputs, label: Any) -> float:
        e, a = _items(expected[output]), _items(actual[output])
        _require_same_form(e, a)
        return float(snr_db(e, a).min(initial=math.inf))

    return Metric(f"snr({output})", fn, at_least=at_least, output=output)


def log_spectral_distance(
    output: str, *, window: int = 512, hop: int = 128, floor: float = 1e-5, at_most: float = 1.0
) -> Metric:
    """Return the log-spectral distance of two waveforms [..., samples] in dB; the worst of a batch.

    The root mean square over frequencies of the difference of log power spectra, then the mean over frames (Gray and
    Markel, "Distance measures for speech processing", 1976); each spectrum is floored at `floor` of its waveform's
    largest, so that silence does not count. Default bound: 1 dB, at which coders are called transparent (Paliwal and
    Atal, 1993).
    """

    def fn(inputs: Outputs, expected: Outputs, actual: Outputs, label: Any) -> float:
        e, a = _rows(expected[output], -1), _rows(actual[output], -1)
        _require_same_form(e, a)
        if not e.size:
            return 0.0
        one, other = _power(e, window, hop), _power(a, window, hop)
        largest = np.nan_to_num(one).max(axis=(1, 2), keepdims=True)
        least = np.maximum(largest * floor**2, np.finfo(np.float64).tiny)
        apart = 10.0 * (np.log10(np.maximum(one, least)) - np.log10(np.maximum(other, least)))
        return float(np.sqrt((apart**2).mean(axis=2)).mean(axis=1).max())

    return Metric(f"log_spectral_distance({output})", fn, at_most=at_most, output=output)


def token_edit_distance(output: str, *, padding: int | None = None, at_most: float = 0.0) -> Metric:
    """Return the edit distance of two token sequences over the longer one's length (Levenshtein, 1966); the worst row.

    `output` holds integers [tokens] or [batch, tokens]; tokens equal to `padding` are left out. Default bound: the same
    tokens, since greedy decoding of one model has one answer.
    """

    def fn(inputs: Outputs, expected: Outputs, actual: Outputs, label: Any) -> float:
        e, a = (np.atleast_2d(np.asarray(side[output])) for side in (expected, actual))
        e, a = (_flat(x, x.ndim - 1) for x in (e, a))
        if len(e) != len(a):
            raise ValueError(f"{output!r} holds {len(e)} sequences and {len(a)}; wanted as many")
        pairs = zip(e, a, strict=True)
        return max((_edits(_tokens(one, padding), _tokens(two, padding)) for one, two in pairs), default=0.0)

    return Metric(f"token_edit_distance({output})", fn, at_most=at_most, output=output)


def cosine(output: str, *, axis: int = -1, at_least: float = 0.999) -> Metric:
    """Return the smallest cosine of torch's and ORT's vectors along `axis`, for embeddings.

    Default bound: 0.999, an angle of 2.6 degrees: retrieval does not change below it, and a speaker network broken by
    quantization fell to 0.6 (FACTS, "Export"). 1.0 where both vectors are zero, 0.0 where one is.
    """

    def fn(inputs: Outputs, expected: Outputs, actual: Outputs, label: Any) -> float:
        e, a = _rows(expected[output], axis), _rows(actual[output], axis)
        _require_same_form(e, a)
        if not e.size:
            return 1.0
        # scaled first: squares of large values overflow and of small ones vanish
        e, a = (x / np.where((top := np.abs(x).max(axis=1, keepdims=True)) > 0, top, 1.0) for x in (e, a))
        sizes = np.linalg.norm(e, axis=1), np.linalg.norm(a, axis=1)
        product = sizes[0] * sizes[1]
        found = np.where(product == 0.0, 0.0, (e * a).sum(axis=1) / np.where(product == 0.0, 1.0, product))
        return float(np.where((sizes[0] == 0.0) & (sizes[1] == 0.0), 1.0, found).min())

    return Metric(f"cosine({output})", fn, at_least=at_least, output=output)


def snr_db(expected: Wide, actual: Wide) -> Wide:
    """Return the signal-to-noise ratio in dB of each row: infinite where nothing differs, -inf without a signal.

    NaN where a side is not finite and the other is not the same.
    """
    with np.errstate(all="ignore"):
        same = (expected == actual) | (np.isnan(expected) & np.isnan(actual))
        noise = np.where(same, 0.0, expected - actual)
        expected = np.where(same & ~np.isfinite(expected), 0.0, expected)
        top = np.maximum(np.abs(expected).max(axis=1, initial=0.0), np.abs(noise).max(axis=1, initial=0.0))
        scale = np.where(top > 0.0, top, 1.0)[:, None]  # squares of large values overflow
        signal, error = ((x / scale) ** 2 for x in (expected, noise))
        ratio = 10.0 * np.log10(signal.sum(axis=1) / error.sum(axis=1))
        found: Wide = np.where((noise == 0.0).all(axis=1), np.inf, ratio)
    return found


def _rows(output: Any, axis: int) -> Wide:
    """Return an output as [rows, length of `axis`] in float64."""
    wide = np.moveaxis(np.atleast_1d(np.asarray(output)).astype(np.float64), axis, -1)
    rows: Wide = _flat(wide, wide.ndim - 1)
    return rows


def _flat(array: Any, leading: int) -> Any:
    """Return an array as [elements of its leading axes, elements of the others], also where it is empty."""
    return array.reshape(math.prod(array.shape[:leading]), math.prod(array.shape[leading:]))


def _items(output: Any) -> Wide:
    """Return an output as [items of the leading axis, elements]; a vector is one item."""
    wide = np.asarray(output).astype(np.float64)
    return wide.reshape(len(wide), -1) if wide.ndim > 1 and wide.size else wide.reshape(1, -1)


def _require_same_form(one: Any, other: Any) -> None:
    if one.shape != other.shape:
        raise ValueError(f"the outputs have shapes {list(one.shape)} and {list(other.shape)}")


def _ranked(scores: Wide, count: int) -> Places:
    """Return the best classes of each row, best first; equal ones in their order, NaN last."""
    known = np.where(np.isnan(scores), -np.inf, scores)
    if count == 1:  # many times quicker than a sort
        best: Places = np.argmax(known, axis=1)[:, None]
        return best
    order: Places = np.argsort(-known, axis=1, kind="stable")[:, :count]
    return order


def _tokens(row: Any, padding: int | None) -> Any:
    return row if padding is None else row[row != padding]


def _edits(one: Any, other: Any) -> float:
    """Return the Levenshtein distance over the longer length, a row of the table at a time."""
    one, other = sorted((one, other), key=len)
    if not len(other):
        return 0.0
    steps = np.arange(len(other) + 1)
    row = steps
    for index, token in enumerate(one.tolist(), 1):
        above = np.minimum(row[1:] + 1, row[:-1] + (other != token))  # deleted, kept or replaced
        # an insertion costs 1 a place: the least of what stands to the left, each less its place, plus one's own
        row = np.minimum.accumulate(np.concatenate([[index], above]) - steps) + steps
    return float(row[-1]) / len(other)


def _power(waves: Wide, window: int, hop: int) -> Wide:
    """Return power spectra [rows, frames, frequencies] under a Hann window.

    Half a window of silence goes before and at least as much behind, so that a frame sees the first samples and the
    last ones in its middle, whatever the length.
    """
    half = window // 2
    frames_after_first = max(0, -(-(waves.shape[1] + 2 * half - window) // hop))
    waves = np.pad(waves, ((0, 0), (half, window + frames_after_first * hop - half - waves.shape[1])))
    frames = np.lib.stride_tricks.sliding_window_view(waves, window, axis=1)[:, ::hop]
    found: Wide = np.abs(np.fft.rfft(frames * np.hanning(window), axis=2)) ** 2
    return found


def _share(flags: npt.NDArray[np.bool_]) -> float:
    return float(flags.mean()) if flags.size else 1.0


def _softmax(logits: Wide) -> Wide:
    """Return the softmax of each row: NaN stays where it is, infinities share a row, -inf alone gives NaN."""
    known = np.where(np.isnan(logits), -np.inf, logits)
    top = known.max(axis=1, keepdims=True, initial=-np.inf)
    with np.errstate(all="ignore"):
        powers = np.where(known == top, 1.0, np.exp(known - top))
        powers = np.where(np.isnan(logits), 0.0, powers)
        found = powers / powers.sum(axis=1, keepdims=True)
    return np.where(np.isnan(logits) | (top == -np.inf), np.nan, found)


def _detections(outputs: Outputs, boxes: str, scores: str | None) -> list[tuple[Wide, Wide | None]]:
    """Return boxes [n, 4] and scores [n, classes] of every item; ValueError for other shapes."""
    values = np.asarray(outputs[boxes], np.float64)
    values = values.reshape(0, 4) if values.shape == (0,) else values
    if values.ndim not in (2, 3) or values.shape[-1] != 4:
        raise ValueError(f"boxes {boxes!r} have shape {list(values.shape)}; wanted [n, 4] or [batch, n, 4]")
    batches = values if values.ndim > 2 else values[None]
    if scores is None:
        return [(one, None) for one in batches]
    weights, form = np.asarray(outputs[scores], np.float64), values.shape[:-1]
    if weights.shape[: len(form)] != form or weights.ndim > len(form) + 1:
        wanted = ", ".join(map(str, form))
        got = f"scores {scores!r} have shape {list(weights.shape)}"
        raise ValueError(f"{got}; wanted [{wanted}] or [{wanted}, classes], as the boxes")
    weights = weights if weights.ndim > len(form) else weights[..., None]
    return list(zip(batches, weights if values.ndim > 2 else weights[None], strict=True))


def _corners(boxes: Wide, form: str) -> Wide:
    """Return boxes [n, 4] as (left, top, right, bottom)."""
    if form == "xyxy":
        return boxes
    first, size = boxes[:, :2], boxes[:, 2:4]
    first = first - size / 2 if form == "cxcywh" else first
    return np.concatenate([first, first + size], axis=1)


def _suppressed(boxes: Wide, scores: Wide | None, most_iou: float | None) -> Wide:
    """Return the boxes that greedy suppression keeps, best first; without scores in their order."""
    if scores is not None:
        boxes = boxes[np.argsort(-scores, kind="stable")]
    if most_iou is None:
        return boxes
    kept: list[int] = []
    left = np.arange(len(boxes))
    while left.size:
        kept.append(int(left[0]))
        overlaps = iou(boxes[left[:1]], boxes[left[1:]])[0]
        left = left[1:][~(overlaps > most_iou)]
    return boxes[kept]


def iou(one: Wide, other: Wide) -> Wide:
    """Return the intersection over union of every pair of boxes (left, top, right, bottom), [n, m]; 0.0 with a NaN."""
    with np.errstate(all="ignore"):
        low = np.maximum(one[:, None, :2], other[None, :, :2])
        high = np.minimum(one[:, None, 2:4], other[None, :, 2:4])
        both = np.clip(high - low, 0.0, None).prod(axis=2)
        areas = [np.clip(x[:, 2:4] - x[:, :2], 0.0, None).prod(axis=1) for x in (one, other)]
        found = both / (areas[0][:, None] + areas[1][None, :] - both)
    same = (one[:, None, :4] == other[None, :, :4]).all(axis=2)  # boxes without area have no ratio
    return np.where(same, 1.0, np.where(np.isfinite(found), found, 0.0))


def _matched(expected: Wide, actual: Wide) -> Wide:
    """Return the IoU of each matched pair, best pair first, and 0.0 for every box that is left over."""
    overlaps = iou(expected, actual)
    found: list[float] = []
    while overlaps.size and (best := float(overlaps.max())) > 0.0:
        row, column = np.unravel_index(int(overlaps.argmax()), overlaps.shape)
        found.append(best)
        overlaps[row, :] = overlaps[:, column] = 0.0
    return np.array(found + [0.0] * (max(len(expected), len(actual)) - len(found)))
