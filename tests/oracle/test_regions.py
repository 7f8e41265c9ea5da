"""Slices of an output with a tolerance of their own: read and never run; the most specific wins."""

from __future__ import annotations

import numpy as np
import pytest
from engines import f32

from fuzzparity.case import Case
from fuzzparity.errors import InvalidTarget
from fuzzparity.execution import ORT, TORCH, Execution, Status
from fuzzparity.oracle.judge import Oracle
from fuzzparity.oracle.policy import Policy, calibrate
from fuzzparity.oracle.regions import parse, region_of
from fuzzparity.target import Tolerance
from fuzzparity.verdict import Grade, Judgement, Kind, Realism

CASE = Case({"x": f32(1, 2)})


def oracle_with(tolerances: dict[str, Tolerance | str], outputs: tuple[str, ...] = ("boxes",)) -> Oracle:
    policy = Policy(outputs, tolerances=tolerances)
    return Oracle(outputs, policy, breach=lambda case: "", realism=lambda case: Realism.UNKNOWN)


def judged(oracle: Oracle, expected: np.ndarray, actual: np.ndarray) -> Judgement:
    first, other = (Execution(side, Status.OK, (np.asarray(a),)) for side, a in ((TORCH, expected), (ORT, actual)))
    return oracle.judge(CASE, first, other, None)


def test_a_slice_is_read_and_never_run() -> None:
    assert parse("..., :4") == (Ellipsis, slice(None, 4))
    assert parse(" 0 ,-3, 1:-1 , ::2, 4:1:-1") == (0, -3, slice(1, -1), slice(None, None, 2), slice(4, 1, -1))
    assert region_of("a.b[0]", ["a", "a.b"]).output == "a.b"  # type: ignore[union-attr]
    assert region_of("y[0]", ["y", "y[0]"]) is None, "an output of that very name is the whole of it"


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("scores", "no output"),
        ("box[0]", "no output"),
        ("boxes[]", "'' is no integer"),
        ("boxes[..., None]", "'None' is no integer"),
        ("boxes[__import__('os')]", "is no integer"),
        ("boxes[::0]", "'::0' is no integer"),
        ("boxes[..., 0, ...]", "holds ... twice"),
    ],
)
def test_what_is_no_slice_is_refused_with_the_way_to_write_one(key: str, said: str) -> None:
    with pytest.raises(InvalidTarget, match="tolerances") as caught:
        Policy(("boxes",), tolerances={key: Tolerance(atol=1)})
    assert said in str(caught.value)


def test_a_slice_that_the_output_cannot_have_is_told_and_an_empty_one_noted() -> None:
    seed = Execution(TORCH, Status.OK, (np.zeros((3, 6), np.float32),))
    for key, said in (("boxes[0, 1, 2]", "too many indices"), ("boxes[..., 6]", "out of bounds")):
        with pytest.raises(InvalidTarget, match=said):
            Policy(("boxes",), tolerances={key: Tolerance(atol=1)}).require_fit(seed)
    notes = Policy(("boxes",), tolerances={"boxes[:, 6:]": Tolerance(atol=1)}).require_fit(seed)
    assert notes == ["tolerances 'boxes[:, 6:]' holds no element of the first seed's [3, 6]"]
    none_found = Execution(TORCH, Status.OK, (np.zeros((0, 6), np.float32),))
    assert Policy(("boxes",), tolerances={"boxes[2, :4]": "strict"}).require_fit(none_found) == []


def test_pixels_may_be_half_off_while_scores_keep_the_screen() -> None:
    oracle = oracle_with({"boxes[..., :4]": Tolerance(atol=0.5)})
    torch = np.tile(np.array([10, 20, 300, 400, 0.5], np.float32), (3, 1))
    ort = torch.copy()
    ort[1, 2] += np.float32(0.4)
    assert judged(oracle, torch, ort).kind is Kind.AGREE
    ort[1, 2] += np.float32(0.4)
    verdict = judged(oracle, torch, ort).verdicts[0]
    assert (verdict.output, verdict.kind, verdict.grade) == ("boxes", Kind.NUMERIC, Grade.BUG)
    assert verdict.comparison is not None
    assert (verdict.comparison.index, verdict.comparison.region) == ((1, 2), "boxes[..., :4]")
    assert verdict.headline.startswith("boxes[..., :4]: ORT is 0.8 off torch at [1, 2]")
    assert verdict.evidence is not None
    assert verdict.evidence.note == "user's tolerance"
    ort = torch.copy()
    ort[2, 4] += np.float32(0.4)
    verdict = judged(oracle, torch, ort).verdicts[0]
    assert verdict.comparison is not None
    assert (verdict.comparison.index, verdict.comparison.region) == ((2, 4), "")
    assert verdict.headline.startswith("boxes: ORT is 0.4 off")


def test_the_most_specific_slice_decides_and_the_whole_output_has_the_rest() -> None:
    oracle = oracle_with(
        {"boxes": Tolerance(atol=100), "boxes[:, 1:3]": Tolerance(atol=10), "boxes[1]": Tolerance(atol=1)}
    )
    torch = np.zeros((3, 4), np.float32)

    def off(index: tuple[int, int], by: float) -> str:
        ort = torch.copy()
        ort[index] = by
        found = judged(oracle, torch, ort)
        return found.verdicts[0].comparison.region or "whole" if found.verdicts else "agree"  # type: ignore[union-attr]

    assert (off((0, 0), 99), off((0, 0), 101)) == ("agree", "whole")
    assert (off((0, 1), 9), off((0, 1), 11)) == ("agree", "boxes[:, 1:3]")
    assert (off((1, 1), 0.9), off((1, 1), 1.1), off((1, 3), 1.1)) == ("agree", "boxes[1]", "boxes[1]")


def test_a_place_that_a_mutated_output_lacks_holds_nothing() -> None:
    oracle = oracle_with({"boxes[5, 0]": Tolerance(atol=100), "boxes[..., :2]": Tolerance(atol=1)})
    torch = np.zeros((2, 4), np.float32)
    ort = torch + np.array([0.5, 0.5, 0, 0], np.float32)
    assert judged(oracle, torch, ort).kind is Kind.AGREE
    assert judged(oracle, torch[:0], ort[:0]).kind is Kind.AGREE
    assert judged(oracle, torch, ort[:1]).kind is Kind.SHAPE


def test_nonfinite_and_integers_keep_their_coordinates_and_the_noise_leaves_slices_out() -> None:
    torch = np.arange(12, dtype=np.float32).reshape(3, 4)
    ort = torch.copy()
    ort[1, 3] = np.nan
    found = judged(oracle_with({"boxes[:, 2:]": Tolerance(atol=5)}), torch, ort).verdicts[0].comparison
    assert found is not None
    assert (found.kind, found.index) == (Kind.NONFINITE, (1, 3))
    counts = np.array([[1, 2], [3, 4]])
    ids = judged(oracle_with({"boxes[:, 1]": Tolerance(atol=2)}), counts, counts + np.array([0, 2]))
    assert ids.kind is Kind.AGREE
    wrong = judged(oracle_with({"boxes[:, 1]": Tolerance(atol=2)}), counts, counts + np.array([1, 0])).verdicts[0]
    assert (wrong.kind, wrong.comparison.index) == (Kind.DECISION, (0, 0))  # type: ignore[union-attr]
    noisy = torch.copy()
    noisy[:, :2] *= np.float32(1.0001)
    pair = [Execution(side, Status.OK, (a,)) for side, a in ((TORCH, torch), (ORT, noisy))]
    assert calibrate(Policy(("boxes",)), [(pair[0], pair[1])]).noise["boxes"] > 1e-6
    own = Policy(("boxes",), tolerances={"boxes[:, :2]": Tolerance(atol=1)})
    assert calibrate(own, [(pair[0], pair[1])]).noise["boxes"] == 0.0


def test_a_users_word_comes_before_what_evidence_has_to_decide() -> None:
    torch = np.zeros((2, 4), np.float32)
    ort = np.array([[9, 0, 0, 0.001], [0, 0, 0, 0]], np.float32)
    verdict = judged(oracle_with({"boxes[:, 0]": Tolerance(atol=1)}), torch, ort).verdicts[0]
    assert (verdict.grade, verdict.comparison.region) == (Grade.BUG, "boxes[:, 0]")  # type: ignore[union-attr]
