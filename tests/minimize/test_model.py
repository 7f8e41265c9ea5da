"""Arrays of small models shrink and become made up while a predicate holds, and never otherwise."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fuzzparity.case import Array
from fuzzparity.minimize.model import counted, drawn, made_up, shrunk

RNG = np.random.default_rng(3)


def product(arrays: Mapping[str, Array]) -> Array | None:
    """Return x @ w, or None where the sizes do not fit, as an engine refuses."""
    x, w = arrays["x"], arrays["w"]
    return x @ w if x.shape[-1] == w.shape[0] else None


def test_axes_of_one_size_shrink_together_and_weights_are_made_up():
    start = {"x": RNG.normal(size=(2, 64)), "w": RNG.normal(size=(64, 48))}
    found = shrunk(
        start, lambda arrays: product(arrays) is not None, limit_executions=400, seconds=20, on_better=lambda one: None
    )
    assert product(found.arrays) is not None
    assert {name: array.shape for name, array in found.arrays.items()} == {"x": (1, 1), "w": (1, 1)}
    assert all(array.item() == 0 for array in found.arrays.values())


def test_weights_that_the_fault_needs_stay_and_are_told_from_made_up_ones():
    start = {"x": RNG.normal(size=(1, 40)), "w": RNG.normal(size=(40, 40))}
    needed = start["w"].copy()

    def interesting(arrays: Mapping[str, Array]) -> bool:
        return product(arrays) is not None and np.array_equal(arrays["w"], needed)

    found = shrunk(start, interesting, limit_executions=400, seconds=20)
    assert np.array_equal(found.arrays["w"], needed)
    assert not made_up(found.arrays["w"], start["w"])
    assert made_up(found.arrays["x"], start["x"])


def test_a_fault_of_many_large_weights_keeps_seeded_noise_of_their_spread_with_its_recipe():
    start = {"w": RNG.normal(0.5, 3.0, size=(50, 40)).astype(np.float32)}

    def interesting(arrays: Mapping[str, Array]) -> bool:
        return arrays["w"].shape == (50, 40) and 2.0 < float(arrays["w"].std()) < 4.0

    found = shrunk(start, interesting, limit_executions=300, seconds=20)
    assert "w" in found.recipes
    assert eval(found.recipes["w"], {"np": np}).tobytes() == found.arrays["w"].tobytes()


def test_an_integer_list_that_names_a_size_follows_it():
    start = {"x": np.ones((24, 3)), "shape": np.array([24, 3])}

    def interesting(arrays: Mapping[str, Array]) -> bool:
        return tuple(arrays["shape"]) == arrays["x"].shape

    found = shrunk(start, interesting, limit_executions=200, seconds=20)
    assert found.arrays["x"].shape == (1, 1)


def test_executions_bound_the_search():
    asked = []

    def interesting(arrays: Mapping[str, Array]) -> bool:
        asked.append(1)
        return False

    found = shrunk({"x": RNG.normal(size=(9, 9))}, interesting, limit_executions=5, seconds=20)
    assert len(asked) == found.executions == 5
    assert found.arrays["x"].shape == (9, 9)


def test_recipes_give_the_very_arrays():
    array = RNG.normal(size=(6, 7)).astype(np.float32)
    for made in (drawn(array), counted(array), counted(np.ones((5, 4), np.uint8))):
        assert made is not None
        assert eval(made[1], {"np": np}).tobytes() == made[0].tobytes()


def test_large_arrays_are_made_small_before_anything_dear_is_asked_of_them():
    asked: list[int] = []
    start = {"x": RNG.normal(size=(1, 32, 46, 46))}
    start["x"][0, :, 1, 1] = np.nan

    def interesting(arrays: dict[str, np.ndarray]) -> bool:
        asked.append(arrays["x"].size)
        x = arrays["x"]
        return min(x.shape[2:]) >= 3 and bool(np.isnan(x[:, :, :3, :3]).any())

    found = shrunk(start, interesting, limit_executions=100, seconds=20)
    assert found.arrays["x"].shape == (1, 1, 3, 3)
    assert max(asked) < start["x"].size // 8
