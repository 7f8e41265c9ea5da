"""Quantized and half twins: noise and flips against what the seeds show and what so few bits explain."""

import math

import numpy as np
import pytest

from fuzzparity import InvalidTarget, Target
from fuzzparity.case import Case
from fuzzparity.execution import ORT, TORCH, Execution, Status
from fuzzparity.oracle import Oracle, Policy
from fuzzparity.oracle.quality import calibrated, decided_by
from fuzzparity.verdict import Grade, Kind, Realism

RNG = np.random.default_rng(7)


def logits(rows=1, noise=0.02, gain=1.0):
    """Return torch's logits, and ORT's with noise of a share of their amplitude."""
    e = RNG.normal(size=(rows, 10)).astype(np.float32) * gain
    return e, (e + noise * gain * RNG.normal(size=e.shape)).astype(np.float32)


def sound():
    return calibrated("quantized", 8, [logits() for _ in range(32)])


def judged(e, a, quality, *, typical=True, labels=None):
    outputs = ("y",) if labels is None else ("y", "label")
    decided = {"label": (0, 1)} if labels is not None else {}
    policy = Policy(outputs, quality={"y": quality}, decided=decided)
    oracle = Oracle(outputs, policy, lambda c: "", lambda c: Realism.UNKNOWN, is_typical=lambda c: typical)
    sides = [(e,), (a,)] if labels is None else [(e, labels[0]), (a, labels[1])]
    executions = [Execution(s, Status.OK, o) for s, o in zip((TORCH, ORT), sides, strict=True)]
    return oracle.judge(Case({"x": np.zeros(1, np.float32)}), *executions, None)


def test_a_sound_twin_is_held_to_twice_the_noise_of_its_worst_seed():
    quality = sound()
    assert quality.is_sound
    assert quality.typical_db == pytest.approx(34.0, abs=1.5)  # 20 log10(1 / 0.02)
    assert quality.least_db == pytest.approx(quality.worst_db - 6.0)
    assert judged(*logits(), quality).kind is Kind.AGREE
    e, a = logits(noise=0.3)
    found = judged(e, a, quality)
    assert [(v.kind, v.grade) for v in found.verdicts] == [(Kind.NUMERIC, Grade.BUG)]
    assert "dB; the seeds have" in found.verdicts[0].headline
    assert found.error_ratio > 1.0


def test_a_small_signal_has_the_noise_of_the_seeds_all_the_same():
    e, a = logits(gain=0.05, noise=0.3)
    assert judged(e, a, sound()).kind is Kind.AGREE


def test_one_row_of_a_batch_is_not_hidden_by_the_others():
    e, a = logits(rows=64)
    a[5] = e[5] + 1.0
    found = judged(e, a, sound())
    assert "of item 5" in found.verdicts[0].headline


def test_more_noise_on_the_seeds_than_the_bits_explain_is_a_fault_of_every_seed_that_shows_it():
    pairs = [logits(noise=0.4) for _ in range(16)]
    quality = calibrated("quantized", 8, pairs)
    assert not quality.is_sound
    found = judged(*pairs[0], quality)
    assert found.verdicts[0].grade is Grade.BUG
    assert "8 bits give 30.1 dB" in found.verdicts[0].headline
    assert calibrated("quantized", 4, [logits(noise=0.2) for _ in range(16)]).is_sound  # four bits explain it


def test_a_flip_of_what_torch_was_sure_of_is_a_decision_and_a_flip_within_the_noise_is_none():
    quality = calibrated("quantized", 8, [logits(noise=0.01) for _ in range(32)])
    e = np.zeros((1, 10000), np.float32)
    e[0, :5000], e[0, 3] = 1.0, 1.3
    near, sure = e.copy(), e.copy()
    near[0, 4], near[0, 3] = 1.01, 1.0
    assert judged(np.where(e > 1.2, np.float32(1.005), e), near, quality).kind is Kind.AGREE
    sure[0, 4] = 1.4
    found = judged(e, sure, quality)
    assert found.verdicts[0].kind is Kind.DECISION
    assert "1 of 1 decisions flip" in found.verdicts[0].headline


def test_the_argmax_of_a_noisy_output_may_flip_where_its_noise_flips_it():
    quality = sound()
    e, label = np.array([[0.0, 1.0, 1.01]], np.float32), np.array([2])
    assert judged(e, e, quality, labels=(label, np.array([1]))).kind is Kind.AGREE
    e = np.array([[0.0, 1.0, 9.0]], np.float32)
    found = judged(e, e, quality, labels=(label, np.array([1])))
    assert [(v.output, v.grade) for v in found.verdicts] == [("label", Grade.BUG)]
    assert "torch 2, ORT 1 where torch's margin is 8" in found.verdicts[0].headline
    assert judged(e, e, quality, labels=(label, np.array([7]))).kind is Kind.DECISION  # no index at all


def test_what_is_unlike_the_seeds_is_a_note_and_a_lost_nan_is_judged_as_ever():
    e, a = logits(noise=3.0)
    assert judged(e, a, sound(), typical=False).verdicts[0].grade is Grade.NOTE
    a = e.copy()
    a[0, 0] = np.nan
    assert judged(e, a, sound()).kind is Kind.NONFINITE


def test_which_integers_are_the_argmax_of_which_output_is_seen_on_all_seeds():
    def run(e, label):
        return Execution(TORCH, Status.OK, (e, label, np.array([5])))

    names = ("y", "label", "count")
    pairs = [run(e, e.argmax(1)) for e, _ in (logits(rows=4) for _ in range(3))]
    assert decided_by(names, pairs) == {"label": (0, 1)}
    assert decided_by(names, [*pairs, run(np.eye(4, dtype=np.float32), np.zeros(4, np.int64))]) == {}
    assert decided_by(names, []) == {}


def test_exact_seeds_and_silent_ones_give_figures_that_can_be_compared():
    e, _ = logits()
    exact = calibrated("half", 11, [(e, e)])
    assert (exact.typical_db, exact.noise) == (math.inf, 0.0)
    assert judged(e, e, exact).kind is Kind.AGREE
    silent = calibrated("half", 11, [(e * 0, e)])
    assert not silent.is_sound
    assert calibrated("half", 11, []).least_db == pytest.approx(48.16)


def test_the_named_policies_without_numbers_are_for_whole_outputs():
    def target(**tolerances):
        return Target(module=print, inputs={"x": np.zeros(1)}, tolerances=tolerances)

    target(y="quantized", z="half")
    with pytest.raises(InvalidTarget, match="for a whole output"):
        target(**{"y[..., :4]": "quantized"})
    with pytest.raises(InvalidTarget, match="strict, quantized, half"):
        target(y="quantised")
