"""What a verdict rests on, in words: one line for each figure, and nothing that was not measured."""

from __future__ import annotations

import math
from dataclasses import replace

from fuzzparity import Tolerance
from fuzzparity.report.grounds import defensible, evidence_grounds, grounds
from fuzzparity.verdict import Comparison, Evidence, Grade, Kind, Verdict

NUMERIC = Comparison(Kind.NUMERIC, 1e4, 0.25, 0.08, ulp=12345.0, rms_error=0.125, differing=1, compared=3)
FAR = Evidence(
    "torch float64", 1e-7, 0.25, {"one ulp": 1e-7}, 44, ("ort",),
    explained=6.1e-5, excess={"torch": 0.0016, "ort": 4098.4}, rounding_bound=2e-4, condition=12.0,
    noise={"torch": 0.0, "ort": 2.4e-7}, seed_noise=3e-7,
)  # fmt: skip


def text_of(evidence: Evidence, grade: Grade = Grade.BUG, comparison: Comparison = NUMERIC) -> str:
    return "\n".join(grounds(Verdict(comparison.kind, grade, "y", comparison=comparison, evidence=evidence)))


def test_a_bug_says_how_many_times_beyond_arithmetic_it_is() -> None:
    told = text_of(FAR)
    assert "ORT is 4,098 times farther from exact than arithmetic explains (6.1e-05, " in told
    assert "torch is 0" not in told
    assert "roundings in any order add up to 0.0002 at most there; beyond even that: ORT" in told
    assert "the exact answer moves 12 times as far as the inputs" in told
    assert "run again on this input: torch gives the same bits, ORT moves by 2.4e-07" in told
    assert "on the seeds the sides differ by 3e-07 of the largest value" in told
    assert "error ratio 1e+04" in told
    assert "12,345 ulp there" in told
    assert "0.125 of torch's root mean square" in told


def test_an_inherent_difference_gives_the_tolerance_to_paste() -> None:
    evidence = replace(FAR, far_sides=(), excess={}, defensible_rtol=0.0, defensible_atol=3e-3)
    told = text_of(evidence, Grade.INHERENT)
    assert 'can be defended here: tolerances={"y": Tolerance(atol=0.003)}, since it covers 8 moves' in told
    line = defensible("y", evidence)
    assert eval(f"dict({line})", {"Tolerance": Tolerance}) == {"tolerances": {"y": Tolerance(atol=3e-3)}}
    assert "Tolerance(rtol=0.02)" in defensible("y", replace(evidence, defensible_rtol=0.02, defensible_atol=0.0))
    assert defensible("y", FAR) == ""


def test_ties_tell_their_distance_and_decisions_that_nothing_reaches_tell_that() -> None:
    decision = Comparison(Kind.DECISION, math.inf, 1.0)
    tie = Evidence("torch float64", draws=6, tie_distance=0.3, tie_test="one ulp", score_gap=2.0)
    told = text_of(tie, Grade.TIE, decision)
    assert "the exact answer becomes the other one at 0.3 times one ulp" in told
    assert "at most 2 ulp apart" in told
    assert "nothing tried up to 8 times" in text_of(replace(tie, tie_distance=math.inf), Grade.BUG, decision)
    assert "on the threshold itself" in text_of(replace(tie, tie_distance=0.0), Grade.TIE, decision)


def test_what_was_not_measured_is_not_said_and_an_unknown_bound_says_where_it_ends() -> None:
    bare = Verdict(Kind.NUMERIC, Grade.NOTE, "y", evidence=Evidence("missing: complex weights", note="nobody can tell"))
    assert evidence_grounds(bare) == ["exact answer: missing: complex weights", "nobody can tell"]
    assert "not known from aten.sort on" in text_of(replace(FAR, rounding_bound=None, rounding_unknown="aten.sort"))
    private = grounds(Verdict(Kind.NUMERIC, Grade.BUG, "y", comparison=NUMERIC), is_private=True)
    assert "largest error" not in "".join(private).replace("(largest error over", "")
