"""When a difference is a branch: only what sending torch into ORT's arms explains, and a tie only on the brink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from fuzzparity.case import Case
from fuzzparity.decisions import COND, ONNX_IF, ONNX_LOOP, TENSOR_BOOL, WHILE_LOOP, Decision, Path, bucketed, outcomes
from fuzzparity.execution import ORT, TORCH, Execution, Status
from fuzzparity.oracle import Oracle, Policy
from fuzzparity.oracle.branching import shared_arms, splits
from fuzzparity.verdict import Grade, Judgement, Kind, Realism

HERE = "net.py:7"
ROW = np.array([1.0, 2.0, 3.0], np.float32)


def decision(outcome: int, what: str = TENSOR_BOOL, source: str = HERE, key: str = "", margin: float | None = None):
    side = "ort" if what in (ONNX_IF, ONNX_LOOP) else "torch"
    return Decision(key or f"{side}:{source}", outcome, source, what, margin)


class FakeArms:
    """Answer from functions; `forced` gives torch's outputs in the arms asked for."""

    def __init__(self, sample: Path, forced: Mapping[int, list[np.ndarray]], margins=lambda case, draw: None) -> None:
        self._sample, self._forced, self._margins = sample, forced, margins
        self.asked: list[dict[str, int]] = []

    def sample(self) -> Path:
        return self._sample

    def sent(self, case: Case, arms: Mapping[str, int]) -> Execution | None:
        self.asked.append(dict(arms))
        outputs = self._forced.get(next(iter(arms.values())))
        return None if outputs is None else Execution(TORCH, Status.OK, tuple(outputs))

    def exact(self, case: Case) -> Path:
        margin = self._margins(case, None)
        return () if margin is None else (decision(int(margin > 0), COND, margin=margin),)

    def rounded(self, case: Case, draw: int) -> Path:
        margin = self._margins(case, draw)
        return () if margin is None else (decision(int(margin > 0), COND, margin=margin),)

    def code(self, decision: Decision) -> str:
        return "if x.sum() > 0:"


def judged(torch: list[np.ndarray], ort: list[np.ndarray], path: Path, theirs: Path, arms: FakeArms) -> Judgement:
    expected = Execution(TORCH, Status.OK, tuple(torch), decisions=path)
    actual = Execution(ORT, Status.OK, tuple(ort), decisions=theirs)
    names = tuple(f"out{i}" for i in range(len(torch)))
    oracle = Oracle(names, Policy(names, "float32", {}), lambda case: "", lambda case: Realism.NEAR)
    return oracle.judge(Case({"x": ROW}), expected, actual, None, arms=arms)


def test_a_burnt_in_arm_takes_the_place_of_what_it_explains() -> None:
    arms = FakeArms((decision(0),), {0: [ROW, ROW]})
    (verdict,) = judged([ROW * 2, ROW[:2]], [ROW, ROW], (decision(1),), (), arms).verdicts
    assert (verdict.kind, verdict.grade, verdict.site, verdict.blame) == (
        Kind.BRANCH_SPLIT,
        Grade.BUG,
        HERE,
        "unknown",
    )
    assert verdict.headline.startswith(f"torch takes the arm at {HERE} (`if x.sum() > 0:`) that ORT does not have")
    assert arms.asked == [{f"torch:{HERE}": 0}]


def test_one_of_two_conditions_burnt_in_is_told_by_what_sending_torch_gives() -> None:
    one, two = "torch:net.py:3", "torch:net.py:9"
    sample = (decision(1, COND, key=one), decision(0, COND, key=two))
    path = (decision(0, COND, key=one), decision(1, COND, key=two))

    class Sent(FakeArms):
        def sent(self, case: Case, arms: Mapping[str, int]) -> Execution | None:
            self.asked.append(dict(arms))
            return Execution(TORCH, Status.OK, (ROW if arms.get(two) == 0 and one not in arms else ROW * 3,))

    arms = Sent(sample, {})
    theirs = (decision(0, ONNX_IF, source=""),)  # the graph kept one of them, and does not say of which line
    (verdict,) = judged([ROW * 2], [ROW], path, theirs, arms).verdicts
    assert (verdict.kind, verdict.site, verdict.grade) == (Kind.BRANCH_SPLIT, HERE, Grade.BUG)
    assert arms.asked == [{one: 1}, {two: 0}]


def test_what_the_arms_do_not_explain_keeps_its_kind() -> None:
    nan = np.array([1.0, np.nan, 3.0], np.float32)
    arms = FakeArms((decision(0),), {0: [ROW, nan]})
    verdicts = judged([ROW * 2, nan], [ROW, ROW], (decision(1),), (), arms).verdicts
    assert [(v.kind, v.output) for v in verdicts] == [(Kind.BRANCH_SPLIT, "out0"), (Kind.NONFINITE, "out1")]


def test_a_path_that_parts_and_explains_nothing_is_no_branch() -> None:
    arms = FakeArms((decision(0),), {0: [ROW * 3]})
    assert judged([ROW * 2], [ROW], (decision(1),), (), arms).kind is Kind.NUMERIC
    assert judged([ROW * 2], [ROW], (decision(1),), (), FakeArms((decision(0),), {})).kind is Kind.NUMERIC


def test_the_sample_s_own_path_asks_nothing() -> None:
    arms = FakeArms((decision(1),), {1: [ROW]})
    assert judged([ROW * 2], [ROW], (decision(1),), (), arms).kind is Kind.NUMERIC
    assert judged([ROW], [ROW], (decision(0),), (), arms).kind is Kind.AGREE
    assert arms.asked == []


def test_what_arithmetic_leaves_after_sending_is_still_the_branch() -> None:
    large = ROW * np.float32(1e8)
    arms = FakeArms((decision(0),), {0: [large * np.float32(1 + 3e-5)]})
    assert judged([ROW], [large], (decision(1),), (), arms).kind is Kind.BRANCH_SPLIT


def test_different_arms_of_both_sides_are_a_tie_on_the_brink_and_a_bug_beyond() -> None:
    path, theirs = (decision(1, COND, margin=1e-7),), (decision(0, ONNX_IF),)

    def grade(margins) -> Grade:
        (verdict,) = judged([ROW * 2], [ROW], path, theirs, FakeArms((), {0: [ROW]}, margins)).verdicts
        assert verdict.kind is Kind.BRANCH_SPLIT
        assert "different arms" in verdict.headline
        return verdict.grade

    assert grade(lambda case, draw: 0.5) is Grade.BUG
    assert grade(lambda case, draw: 1e-7 if draw is None else 1e-7 + 1e-7 * (-1) ** draw) is Grade.TIE
    # within the inputs' own rounding: their sum is compared with 6
    assert grade(lambda case, draw: float(case.inputs["x"].astype(np.float64).sum()) - 6.0 + 1e-12) is Grade.TIE
    assert grade(lambda case, draw: float(case.inputs["x"].astype(np.float64).sum()) - 5.9) is Grade.BUG


def test_arms_pair_by_source_and_order() -> None:
    torch = (decision(1, COND), decision(0, COND, key=f"torch:{HERE}#1"), decision(1, COND, "net.py:9"))
    ort = (
        decision(0, ONNX_IF, "net.py:9", "ort:b"),
        decision(1, ONNX_IF, key="ort:a"),
        decision(-1, ONNX_IF, key="ort:a/then_branch/c"),
        decision(1, ONNX_IF, key="ort:a/else_branch/c"),
    )
    assert dict(shared_arms(torch, ort)) == {f"torch:{HERE}": 1, f"torch:{HERE}#1": 1, "torch:net.py:9": 0}
    unplaced = tuple(replace(one, source="") for one in ort[1:])
    assert dict(shared_arms(torch[:2], unplaced)) == {f"torch:{HERE}": 1, f"torch:{HERE}#1": 1}
    assert dict(shared_arms(torch, unplaced)) == {}


def test_a_loop_of_ort_says_how_often_torch_s_condition_held() -> None:
    rounds = tuple(decision(int(i < 3), WHILE_LOOP, key=f"torch:{HERE}{f'#{i}' if i else ''}") for i in range(4))
    arms = dict(shared_arms(rounds, (decision(2, ONNX_LOOP),)))
    assert list(arms.values()) == [1, 1, 0, 0]
    expected = Execution(TORCH, Status.OK, decisions=rounds)
    actual = Execution(ORT, Status.OK, decisions=(decision(2, ONNX_LOOP),))
    (split,) = splits(expected, actual, lambda: ())
    assert (split.decision.key, split.other, split.is_burnt) == (f"torch:{HERE}#2", 0, False)


def test_outcomes_and_buckets() -> None:
    assert outcomes((decision(1), decision(0, key="k"))) == {f"torch:{HERE}": 1, "k": 0}
    assert [bucketed(x) for x in (0, 3.9, -7, 65, 1e30, -1e30)] == [0, 3, -7, 71, 164, -164]
    assert bucketed(float("inf")) > bucketed(1e300) > 0 > bucketed(float("nan"))
