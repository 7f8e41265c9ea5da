"""The judged set: sound comparisons are no bugs, true faults are neither excused nor blamed on the wrong part."""

import warnings

import pytest
from entries import Entry
from faults import FAULTS
from sound import SOUND
from trial import investigated, judged

from fuzzparity.verdict import Grade

# one of each part, of each way that leads to it
BLAMED = (
    "changed_weight",
    "narrow_indices",
    "then_branch",
    "fixed_batch",
    "branch_on_a_value",
    "floor_division_of_integers",
    "all_of_floats",
    "quotient_of_integers",
    "relu_before_clip_in_double",
    "maximum_beside_nan",
    "smallest_integer_over_minus_one",
    "sine_becomes_cosine",
)


def named(entries: list[Entry]) -> list[object]:
    """Return entries as parameters; exports by dynamo, which take seconds each, are slow."""
    slow = {entry.name for entry in entries if entry.is_slow}
    return [pytest.param(e, id=e.name, marks=pytest.mark.slow if e.name in slow else ()) for e in entries]


@pytest.fixture(autouse=True)
def _hear_no_exporter():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of exporters, traced modules and torch's own deprecations
        yield


def test_names_are_told_apart_and_there_are_enough():
    names = [entry.name for entry in (*SOUND, *FAULTS)]
    assert len(set(names)) == len(names)
    assert len(SOUND) >= 60
    assert len(FAULTS) >= 60
    assert set(BLAMED) <= set(names)


@pytest.mark.parametrize("entry", named(SOUND))
def test_a_sound_comparison_looks_different_and_is_no_bug(entry: Entry):
    judgement = judged(entry)
    assert judgement.verdicts or any(comparison.max_abs > 0 for comparison in judgement.comparisons)
    assert {verdict.grade for verdict in judgement.verdicts} <= {Grade.INHERENT, Grade.TIE, Grade.NOTE}


@pytest.mark.parametrize("entry", named([entry for entry in FAULTS if not entry.is_risky]))
def test_a_fault_is_a_bug_of_its_kind(entry: Entry):
    judgement = judged(entry)
    assert judgement.verdicts
    assert {verdict.grade for verdict in judgement.verdicts} == {Grade.BUG}
    assert judgement.verdicts[0].kind.value in entry.kinds


@pytest.mark.slow
@pytest.mark.parametrize("entry", [pytest.param(e, id=e.name) for e in FAULTS if e.name in BLAMED])
def test_the_right_part_is_blamed(entry: Entry):
    verdicts = investigated(entry).verdicts
    assert verdicts
    assert {verdict.blame for verdict in verdicts} <= set(entry.blames)
