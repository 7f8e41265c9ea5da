"""Perils: learnt from deaths of one kind, rare but never gone, and forgotten when cases survive them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fuzzparity.case import Case
from fuzzparity.generate.perils import LEARNT_AFTER, RARITY, SURVIVORS, Caution, Deaths, traits_of


def case(*values: float, dtype: str = "float32") -> Case:
    return Case({"x": np.array(values, dtype)})


NAN = case(1, 2, 3, np.nan)
TAME = case(1, 2, 3, 4)


def learnt(*deadly: Case) -> Deaths:
    deaths = Deaths()
    for one in deadly:
        deaths.learn("crash", one)
    return deaths


def test_what_deaths_of_one_bucket_share_becomes_a_peril():
    deadly = [case(1, np.nan), case(1, 2, np.nan, -1), case(np.nan, 3), case(np.nan, 3, 1e31, 2)]
    assert learnt(*deadly[: LEARNT_AFTER - 1]).perils == ()
    assert learnt(*deadly).perils == (frozenset({"x nan"}),)


def test_deaths_of_two_buckets_are_learnt_apart():
    deaths = Deaths()
    for number in range(LEARNT_AFTER):
        deaths.learn("one", case(1, np.nan, *range(2, 2 + 2 * number)))
        deaths.learn("two", Case({"x": np.zeros((0, 2), np.float32)}))
    assert set(deaths.perils) == {frozenset({"x nan"}), frozenset({"x empty along 0"})}


def test_deaths_that_share_nothing_teach_nothing():
    assert learnt(case(1, np.nan), case(1, -1), case(1, 1e31), case(2, 0)).perils == ()


def test_the_least_of_an_integer_type_is_a_trait():
    least = np.iinfo(np.int32).min
    assert "x least" in traits_of(case(5, least, dtype="int32"))
    assert "x least" not in traits_of(case(5, least + 1, dtype="int32"))


def test_a_peril_is_rare_and_never_gone():
    caution = Caution([frozenset({"x nan"})])
    ran = [not caution.avoids(NAN) for _ in range(3 * RARITY)]
    assert sum(ran) == 3
    assert not any(ran[: RARITY - 1])  # each death makes a new worker, which starts to count again
    assert caution.left_out() == 3 * (RARITY - 1)
    assert caution.left_out() == 0
    assert not caution.avoids(TAME)


def test_a_peril_that_cases_survive_is_none_here_and_later():
    peril = frozenset({"x nan"})
    caution = Caution([peril])
    for _ in range(SURVIVORS):
        caution.survived(NAN)
    assert caution.harmless == (peril,)
    assert not caution.avoids(NAN)
    caution.heed([peril])  # of a campaign that does not know yet
    assert not caution.avoids(NAN)
    deaths = learnt(NAN, NAN, NAN)
    deaths.forget(deaths.perils)
    assert deaths.perils == ()


def test_cases_outside_a_peril_do_not_end_it():
    caution = Caution([frozenset({"x nan"})])
    for _ in range(2 * SURVIVORS):
        caution.survived(TAME)
    assert caution.harmless == ()
    assert caution.avoids(NAN)


DTYPES = hnp.floating_dtypes() | hnp.integer_dtypes() | hnp.boolean_dtypes() | hnp.complex_number_dtypes()


@given(st.data())
def test_every_case_has_traits_and_falls_under_its_own(data):
    shape = data.draw(hnp.array_shapes(min_dims=0, min_side=0, max_side=4))
    one = Case({"x": data.draw(hnp.arrays(data.draw(DTYPES), shape))})
    traits = traits_of(one)
    if traits:
        assert Caution([traits]).avoids(one)
