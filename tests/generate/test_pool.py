"""The pool is bounded, keeps the smallest case per feature and never loses a seed."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzzparity.case import Case
from fuzzparity.generate.pool import MAX_FEATURES, Entry, Pool
from fuzzparity.generate.rng import Rng


def case_of(size: int, value: float = 0.0) -> Case:
    return Case({"x": np.full(size, value, np.float32)})


def pool_of(entries: int = 8, nbytes: int = 1 << 20) -> Pool:
    seed = case_of(3)
    return Pool([Entry(seed, list(seed.inputs.values()), is_seed=True)], entries, nbytes)


def offer(pool: Pool, case: Case, *features: str) -> bool:
    return pool.offer(case, list(case.inputs.values()), frozenset(features))


offers = st.lists(
    st.tuples(
        st.integers(0, 40),
        st.integers(0, 5),
        st.sets(st.sampled_from([f"f{i % 3}:{i}" for i in range(30)]), max_size=4),
    ),
    max_size=60,
)


@given(offers)
@settings(max_examples=60, deadline=None)
def test_books_add_up_and_bounds_hold(stream: list[tuple[int, int, set[str]]]) -> None:
    pool = pool_of(entries=8, nbytes=600)
    rng = Rng(0, 0)
    for size, value, features in stream:
        offer(pool, case_of(size, value), *features)
        pool.check()
        assert len(pool.entries) <= 8
        assert pool.nbytes <= 600
        assert pool.choose(rng).case is not None
    assert len(pool.seeds) == 1


def test_a_smaller_case_takes_over_a_feature() -> None:
    pool = pool_of()
    assert offer(pool, case_of(9), "kind:a")
    assert not offer(pool, case_of(10), "kind:a")
    assert offer(pool, case_of(2), "kind:a")
    assert [entry.case.elements for entry in pool.entries.values()] == [2]


def test_what_was_evicted_is_not_new_again() -> None:
    pool = pool_of(entries=4)
    for number in range(20):
        offer(pool, case_of(number + 1), f"kind:{number}")
    gone = next(f"kind:{n}" for n in range(20) if not any(f"kind:{n}" in e.owned for e in pool.entries.values()))
    assert not offer(pool, case_of(1), gone)


def test_the_number_of_features_is_bounded() -> None:
    pool = pool_of(entries=4)
    for number in range(MAX_FEATURES + 100):
        pool.note([f"kind:{number}"])
    assert len(pool.hits) == MAX_FEATURES
    assert not offer(pool, case_of(1), "kind:never seen")


def test_rare_features_lend_their_case_more_often() -> None:
    pool = pool_of(entries=50)
    for number in range(10):
        offer(pool, case_of(number + 10), f"kind:{number}")
    for _ in range(500):
        pool.note(f"kind:{number}" for number in range(1, 10))
    rng = Rng(1, 1)
    drawn = [pool.choose(rng).case.elements for _ in range(2000)]
    assert drawn.count(10) > 2 * drawn.count(15)
