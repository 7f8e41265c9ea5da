"""Which differing cases get a full look: each output by its own look, so that several faults do not multiply."""

import numpy as np

from fuzzparity.campaign.worker import _look_alike_keys
from fuzzparity.case import Case, Lineage
from fuzzparity.generate.generator import Proposal
from fuzzparity.verdict import Comparison, Judgement, Kind, Measure

NAMES = ("scores", "label", "mask")
PROPOSAL = Proposal(Case({"x": np.ones(2, np.float32)}), Lineage(), "mutate")


def keys(*ratios: float | None, kind: Kind = Kind.NUMERIC, broken: tuple[str, ...] = (), near: bool = False):
    looks = tuple(Comparison(Kind.AGREE if ratio is None else kind, ratio or 0.0) for ratio in ratios)
    measures = tuple(Measure(name, 0.1, breaks=True) for name in broken)
    judgement = Judgement(kind, comparisons=looks, measures=measures)
    return _look_alike_keys(PROPOSAL, judgement, NAMES, is_near=near)


def test_an_output_looks_the_same_however_far_the_others_are_off():
    first, second = keys(5.0, 5.0, None), keys(5.0, 5e6, 40.0)
    assert set(first) == {"scores", "label"}
    assert set(second) == set(NAMES)
    assert first["scores"] == second["scores"]
    assert first["label"] != second["label"]


def test_an_output_that_differs_alone_looks_otherwise():
    assert keys(5.0, None, None)["scores"] != keys(5.0, 5.0, None)["scores"]
    assert keys(5.0, None, None)["scores"] == keys(9.0, None, None)["scores"]


def test_kinds_nearness_and_metrics_are_told_apart():
    looks = [
        keys(5.0, None, None)["scores"],
        keys(5.0, None, None, kind=Kind.NONFINITE)["scores"],
        keys(5.0, None, None, near=True)["scores"],
        keys(None, None, None, broken=("accuracy",))["metric:accuracy"],
        keys(kind=Kind.ERROR_SPLIT)[""],
        keys(kind=Kind.CRASH)[""],
    ]
    assert len(set(looks)) == len(looks)


def test_a_metric_may_be_called_as_an_output_is():
    assert set(keys(5.0, None, None, broken=("scores",))) == {"scores", "metric:scores"}
