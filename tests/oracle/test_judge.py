import math
from dataclasses import replace

import numpy as np
import pytest
from engines import NumpyReferee, f32, judge, make_oracle, run

from fuzzparity.case import Case
from fuzzparity.execution import ORT, TORCH, Execution, Refusal, Status
from fuzzparity.target import Tolerance
from fuzzparity.verdict import Grade, Kind, Realism

CASE = Case({"x": f32(1, 2)})


def ok(side, *outputs):
    return Execution(side, Status.OK, outputs or (f32(1, 2),))


def refused(side, message="no such thing", phase="run"):
    return Execution(side, Status.REFUSED, refusal=Refusal("InvalidArgument", message, "Gather gather.cc"), phase=phase)


def only(expected, actual, case=CASE, second=None, **options):
    judgement = make_oracle(**options).judge(case, expected, actual, None, second=second)
    assert len(judgement.verdicts) == 1, judgement
    assert judgement.kind is judgement.verdicts[0].kind
    return judgement.verdicts[0]


def test_equal_answers_agree_without_asking_anybody():
    def forbidden(case):
        raise AssertionError

    oracle = make_oracle()
    oracle.breach = forbidden
    judgement = oracle.judge(CASE, ok(TORCH), ok(ORT), None)
    assert (judgement.kind, judgement.verdicts, len(judgement.comparisons)) == (Kind.AGREE, (), 1)
    assert not oracle.screen(ok(TORCH), ok(ORT)).is_suspicious


def test_a_death_names_side_signal_and_phase_and_stays_a_bug_outside_the_contract():
    dead = Execution(ORT, Status.CRASHED, signal=11)
    verdict = only(ok(TORCH), dead, breach="wrong dtype")
    assert (verdict.kind, verdict.grade, verdict.side, verdict.site) == (Kind.CRASH, Grade.BUG, "ort", "SIGSEGV run")
    assert verdict.headline == "ORT dies with SIGSEGV; torch answers"
    left = only(ok(TORCH), Execution(ORT, Status.CRASHED, exit_code=3, phase="load"))
    assert (left.site, left.headline) == ("exit 3 load", "ORT dies with exit 3 while loading; torch answers")
    torch = only(Execution(TORCH, Status.CRASHED, signal=8), refused(ORT))
    assert (torch.side, torch.blame, torch.site) == ("torch", "torch", "SIGFPE run")
    both = make_oracle().judge(CASE, Execution(TORCH, Status.CRASHED, signal=8), dead, None)
    assert [v.side for v in both.verdicts] == ["torch", "ort"]


def test_a_hang_and_a_lack_of_memory():
    hang = only(ok(TORCH), Execution(ORT, Status.HANG, seconds=6.0))
    assert (hang.kind, hang.grade, hang.side) == (Kind.HANG, Grade.BUG, "ort")
    assert "does not answer after 6 s" in hang.headline
    assert only(ok(TORCH), Execution(ORT, Status.HANG), breach="too long").grade is Grade.CONTRACT
    oom = only(ok(TORCH), Execution(ORT, Status.OOM))
    assert (oom.kind, oom.grade, oom.side) == (Kind.OOM, Grade.NOTE, "ort")
    both_hang = make_oracle().judge(CASE, Execution(TORCH, Status.HANG), Execution(ORT, Status.HANG), None)
    assert {v.grade for v in both_hang.verdicts} == {Grade.NOTE}


@pytest.mark.parametrize("pair", [("REFUSED", "REFUSED"), ("OOM", "OOM"), ("REFUSED", "OOM"), ("OOM", "REFUSED")])
def test_two_sides_that_give_up_agree_on_rejecting(pair):
    sides = [Execution(side, Status[status]) for side, status in zip((TORCH, ORT), pair, strict=True)]
    judgement = make_oracle().judge(CASE, *sides, None)
    assert (judgement.kind, judgement.verdicts) == (Kind.REJECTED, ())


def test_ort_refusing_what_torch_answers_is_a_bug_inside_the_contract_only():
    verdict = only(ok(TORCH), refused(ORT))
    assert (verdict.kind, verdict.grade, verdict.side) == (Kind.ERROR_SPLIT, Grade.BUG, "ort")
    assert verdict.site == "Gather gather.cc"
    assert verdict.headline == "ORT refuses what torch answers: InvalidArgument: no such thing"
    assert only(ok(TORCH), refused(ORT), breach="ids out of range").grade is Grade.CONTRACT


def test_torch_refusing_is_its_word_on_the_contract_unless_the_input_is_near_the_seeds():
    for realism, grade in (
        (Realism.NEAR, Grade.BUG),
        (Realism.WILD, Grade.CONTRACT),
        (Realism.UNKNOWN, Grade.CONTRACT),
    ):
        verdict = only(refused(TORCH), ok(ORT), realism=realism)
        assert (verdict.kind, verdict.grade, verdict.side) == (Kind.ERROR_SPLIT, grade, "torch")


def test_a_model_that_does_not_load_is_a_load_error():
    verdict = only(ok(TORCH), refused(ORT, "relu_clip_fusion.cc", phase="load"))
    assert (verdict.kind, verdict.grade, verdict.site) == (Kind.LOAD_ERROR, Grade.BUG, "Gather gather.cc")
    assert verdict.headline.startswith("ORT does not load the model: ")
    torch_too = only(refused(TORCH), refused(ORT, phase="load"))
    assert (torch_too.kind, torch_too.side) == (Kind.LOAD_ERROR, "ort")


def test_another_number_of_outputs_is_a_shape_of_the_whole_case():
    verdict = only(ok(TORCH, f32(1), f32(2)), ok(ORT, f32(1)), count=2)
    assert (verdict.kind, verdict.output, verdict.headline) == (Kind.SHAPE, None, "2 outputs / 1 outputs (torch / ORT)")


def test_each_output_has_its_own_verdict_and_the_first_kind_leads():
    expected = ok(TORCH, f32(1), f32(math.nan), np.array([3]), f32(1, 1), f32(4))
    actual = ok(ORT, f32(2), f32(1), np.array([4]), f32(1), f32(4))
    judgement = make_oracle(5).judge(Case({"x": np.array([1])}), expected, actual, None)
    kinds = [(v.output, v.kind) for v in judgement.verdicts]
    assert kinds == [("y3", Kind.SHAPE), ("y1", Kind.NONFINITE), ("y2", Kind.DECISION), ("y0", Kind.NUMERIC)]
    assert judgement.kind is Kind.SHAPE
    assert judgement.error_ratio == math.inf
    assert (
        judgement.verdicts[0].headline == "y3: shape [2] / [1] (torch / ORT)"
        or "no exact" in judgement.verdicts[0].headline
    )


def test_outside_the_contract_everything_is_contract_and_the_referee_is_not_asked():
    referee = NumpyReferee(lambda r, x: (x,))
    judgement = judge(lambda r, x: (x,), lambda r, x: (x + 1,), f32(1), referee=referee, breach="NaN is forbidden")
    assert [v.grade for v in judgement.verdicts] == [Grade.CONTRACT]
    assert referee.runs == 0


def test_beyond_a_users_tolerance_is_a_bug_without_evidence_and_within_it_agreement():
    def plus(delta):
        return lambda r, x: (r(x + np.float32(delta)),)

    tolerances = {"y0": Tolerance(atol=0.5)}
    referee = NumpyReferee(plus(0))
    over = judge(plus(0), plus(0.75), f32(1), referee=referee, tolerances=tolerances)
    assert [v.grade for v in over.verdicts] == [Grade.BUG]
    assert referee.runs == 0
    assert judge(plus(0), plus(0.4), f32(1), referee=referee, tolerances=tolerances).kind is Kind.AGREE


def test_a_side_that_differs_from_itself_is_unstable():
    first = (ok(TORCH, f32(1, math.nan)), ok(ORT, f32(1, -math.nan)))
    same = make_oracle().judge(CASE, *first, None, second=(ok(TORCH, f32(1, -math.nan)), ok(ORT, f32(1, math.nan))))
    assert same.kind is Kind.AGREE
    verdict = only(*first, second=(first[0], ok(ORT, f32(2, math.nan))))
    assert (verdict.kind, verdict.grade, verdict.side) == (Kind.UNSTABLE, Grade.BUG, "ort")
    assert "ORT differs from itself" in verdict.headline
    slight = only(*first, second=(first[0], ok(ORT, f32(np.float32(1) + np.float32(1e-7), math.nan))))
    assert (slight.kind, slight.grade) == (Kind.UNSTABLE, Grade.NOTE)
    torch = only(*first, second=(ok(TORCH, f32(5, math.nan)), first[1]))
    assert (torch.grade, torch.side) == (Grade.NOTE, "torch")
    gone = only(*first, second=(first[0], refused(ORT)))
    assert (gone.kind, gone.grade) == (Kind.UNSTABLE, Grade.BUG)


def test_the_relative_look_finds_a_small_output_that_is_all_wrong():
    def log1p(r, x):
        return (r(np.log1p(x)),)

    def naive(r, x):
        return (r(np.log(r(x + x.dtype.type(1)))),)

    case = Case({"x": f32(1e-9, 2e-9)})
    from engines import run

    expected, actual = run(log1p, case, TORCH), run(naive, case, ORT)
    referee = NumpyReferee(log1p)
    oracle = make_oracle()
    oracle.policy = replace(oracle.policy, scale={"y0": 2e-9})  # the seeds are as small
    assert not oracle.screen(expected, actual).is_suspicious
    screening = oracle.screen(expected, actual, relative=True)
    assert screening.is_suspicious
    assert screening.is_relative
    verdict = oracle.judge(case, expected, actual, referee, relative=True).verdicts[0]
    assert (verdict.kind, verdict.grade, verdict.side) == (Kind.NUMERIC, Grade.BUG, "ort")
    of_size_one = make_oracle().judge(case, expected, actual, referee, relative=True).verdicts[0]
    assert of_size_one.grade is Grade.NOTE, "beside outputs of size one, 1e-9 is nobody's loss"


def test_headlines_of_numbers_say_difference_place_and_bound():
    judgement = judge(lambda r, x: (x,), lambda r, x: (x + np.float32(0.25),), f32(1, 2))
    headline = judgement.verdicts[0].headline
    assert headline.startswith(
        "y0: ORT is 0.25 off torch at [0] (torch 1, ORT 1.25; allowed 1.1e-05); the exact answer"
    )
    assert headline.endswith("sides with torch (torch 0 off it, ORT 0.25)")


def test_scalars_and_empty_inputs_are_judged():
    assert judge(
        lambda r, x: (r(x.sum()),), lambda r, x: (r(x.sum() + 1),), np.float32(3) * np.ones((), np.float32)
    ).verdicts
    empty = judge(lambda r, x: (r(x.sum()),), lambda r, x: (r(x.sum() + 1),), np.zeros((0, 4), np.float32))
    assert empty.verdicts[0].grade is Grade.BUG


def test_what_is_beyond_arithmetic_but_below_what_practice_accepts_is_a_note():
    def scaled(factor):
        return lambda r, x: (r(x * np.float32(factor)),)

    kept = judge(lambda r, x: (x,), scaled(1.0005), f32(1, 2)).verdicts[0]
    assert (kept.kind, kept.grade) == (Kind.NUMERIC, Grade.NOTE)
    assert judge(lambda r, x: (x,), scaled(1.005), f32(1, 2)).verdicts[0].grade is Grade.BUG


def test_a_torch_side_that_overflows_where_the_exact_answer_is_finite_makes_no_bug_of_ort():
    def ratio(r, x):
        with np.errstate(all="ignore"):
            return (r(r(x * x) / r(x * x)),)

    verdicts = judge(ratio, lambda r, x: (x * 0,), f32(3e19, 3e19)).verdicts
    assert [(verdict.kind, verdict.grade) for verdict in verdicts] == [(Kind.NONFINITE, Grade.INHERENT)]


def test_only_what_is_asked_gets_a_verdict_and_evidence():
    def torch(r, x):
        return (r(x * 2), r(x * 3), (x > 0).astype(np.int64))

    def ort(r, x):
        return (r(x * 2.5), r(x * 4), (x >= 0).astype(np.int64))

    case = Case({"x0": f32(1.0, 0.0, -2.0)})
    expected, actual = run(torch, case, TORCH), run(ort, case, ORT)
    oracle = make_oracle(3)
    whole = oracle.judge(case, expected, actual, NumpyReferee(torch))
    assert {verdict.output for verdict in whole.verdicts} == {"y0", "y1", "y2"}
    asked = oracle.judge(case, expected, actual, NumpyReferee(torch), asked=frozenset({"y1"}))
    (verdict,) = asked.verdicts
    like = next(one for one in whole.verdicts if one.output == "y1")
    assert replace(verdict, evidence=None) == replace(like, evidence=None)
    assert asked.comparisons == whole.comparisons
    assert asked.kind is whole.kind is Kind.DECISION
    nothing = oracle.judge(case, expected, actual, NumpyReferee(torch), asked=frozenset({"z"}))
    assert (nothing.verdicts, nothing.kind) == ((), Kind.DECISION)


def test_a_brief_look_sees_the_same_bug_with_a_fraction_of_the_runs():
    def torch(r, x):
        return (r(x * 2),)

    def ort(r, x):
        return (r(x * 2.1),)

    case = Case({"x0": f32(1.0, 0.5, -2.0)})
    expected, actual = run(torch, case, TORCH), run(ort, case, ORT)
    full, brief = NumpyReferee(torch), NumpyReferee(torch)
    whole = make_oracle(1).judge(case, expected, actual, full)
    short = make_oracle(1).judge(case, expected, actual, brief, is_brief=True)
    for judgement in (whole, short):
        assert [(v.kind, v.grade, v.side) for v in judgement.verdicts] == [(Kind.NUMERIC, Grade.BUG, "ort")]
    assert 0 < brief.runs < full.runs / 3
