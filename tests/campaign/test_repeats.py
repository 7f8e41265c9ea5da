"""Which repeats of a finding are asked again, and how many wait; finite numbers in place of NaN and infinity."""

import ml_dtypes
import numpy as np

from fuzzparity.campaign.looks import Lookout, traits_of
from fuzzparity.campaign.repeats import Repeat, Repeats
from fuzzparity.case import Case, Lineage
from fuzzparity.explain.finite import finite_versions
from fuzzparity.verdict import Comparison, Kind


def case(value=1.0, width=3):
    return Case({"x": np.full((1, width), value, np.float32)})


def traits(value=1.0, width=3, ratio=10.0, mutator="scale", realism="wild"):
    looks = (Comparison(Kind.NUMERIC, ratio, 0.1, index=(0, 1), expected_at=1.0, differing=1, compared=3),)
    return traits_of(case(value, width), Lineage("mutation", (), (mutator,)), "recipe", realism, looks)


def test_a_new_trait_is_sent_once_and_a_known_look_ever_less():
    lookout = Lookout()
    assert lookout.chosen(("numeric-1",), traits(), case()) == (), "nothing is known of it yet"
    lookout.meet("numeric-1", traits())
    assert lookout.chosen(("numeric-1",), traits(), case()) == ()
    for new in (traits(ratio=1e5), traits(width=8), traits(mutator="crop"), traits(realism="near")):
        assert lookout.chosen(("numeric-1",), new, case()) == ("numeric-1",)
        assert lookout.chosen(("numeric-1",), new, case()) == ()
    sent = sum(bool(lookout.chosen(("numeric-1",), traits(), case())) for _ in range(4096))
    assert 50 <= sent <= 70, "one in ever more"


def test_sizes_that_are_equal_are_a_trait():
    assert "equal x 0 1 False" in traits(width=3)
    assert "equal x 0 1 True" in traits(width=1)


def test_what_a_worker_sends_is_bounded():
    lookout = Lookout()
    lookout.meet("numeric-1", traits())
    sent = [bool(lookout.chosen(("numeric-1",), traits(mutator=f"move {n}"), case())) for n in range(200)]
    assert 48 <= sum(sent) <= 48 + 13  # new ones, and one in ever more
    large = Case({"x": np.zeros(40 << 20, np.uint8)})
    lookout.meet("numeric-2", traits())
    assert lookout.chosen(("numeric-2",), traits(mutator="a"), large)
    assert not lookout.chosen(("numeric-2",), traits(mutator="b"), large), "no more than 64 MiB of one finding"
    lookout.meet("numeric-3", traits())
    assert lookout.chosen(("numeric-2", "numeric-3"), traits(mutator="c"), large) == ("numeric-3",)


def test_the_bucket_asked_least_comes_first_and_time_is_shared():
    repeats = Repeats()
    for value in range(80):
        repeats.offer("numeric-1", Repeat(case(value), Lineage()))
        repeats.offer("numeric-1", Repeat(case(value), Lineage()))
    repeats.offer("shape-1", Repeat(case(), Lineage()))
    taken = repeats.take("numeric-1")
    values = [float(item.case.inputs["x"][0, 0]) for item in taken]
    assert values[:6] == [0.0, 79.0, 1.0, 78.0, 2.0, 77.0], "the first and the newest"
    assert len(values) == 64, "no more wait"
    assert not repeats.take("numeric-1")
    repeats.offer("numeric-1", Repeat(case(100), Lineage()))
    assert repeats.waiting() == ["shape-1", "numeric-1"]
    assert repeats.waiting(unasked=True) == ["shape-1"]
    repeats.give_back("numeric-1", taken[2:])
    assert repeats.take("numeric-1")[0].case == taken[2].case
    large = Repeats()
    for value in range(3):
        large.offer("numeric-1", Repeat(Case({"x": np.full(80 << 20, value, np.uint8)}), Lineage()))
        large.offer("shape-1", Repeat(case(value), Lineage()))
    large.offer("numeric-2", Repeat(Case({"x": np.full(80 << 20, 3, np.uint8)}), Lineage()))
    counts = [len(large.take(name)) for name in ("numeric-1", "numeric-2", "shape-1")]
    assert counts == [2, 1, 3], "no more than 256 MiB wait; what is large goes first"
    assert repeats.is_due(0.0)
    repeats.spent(20.0)
    assert not repeats.is_due(30.0)
    assert repeats.is_due(60.0)


def test_finite_versions_keep_what_is_finite_and_signs():
    given = Case({"x": np.array([np.nan, -np.inf, 2.0], np.float32), "n": np.array([7])})
    versions = finite_versions(given)
    assert len(versions) == 3
    for version in versions:
        assert version.is_finite
        assert version.inputs["x"][1] < -10
        assert version.inputs["x"][2] == 2.0
        assert version.inputs["n"].tolist() == [7]
    assert finite_versions(case()) == []
    half = Case({"x": np.array([np.inf], ml_dtypes.bfloat16)})
    assert all(version.inputs["x"].dtype == half.inputs["x"].dtype for version in finite_versions(half))
