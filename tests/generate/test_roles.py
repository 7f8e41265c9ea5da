"""Masks, lengths, offsets and tokens get the structure that chance does not draw."""

from __future__ import annotations

import dataclasses

import numpy as np

from fuzzparity.case import Case
from fuzzparity.contract import Contract, Dim, InputContract, Role
from fuzzparity.generate.generator import Generator, Proposal
from fuzzparity.generate.rng import Rng
from fuzzparity.generate.roles import ROLE_MOVES, special_tokens
from fuzzparity.generate.scene import Scene

B, T = Dim(3, "b"), Dim(12, "t")
TEXT = Contract(
    (
        InputContract("ids", "int64", (B, T), index_limit=30000, role=Role.TOKENS),
        InputContract("mask", "int64", (B, T), role=Role.MASK),
        InputContract("lengths", "int64", (B,), role=Role.LENGTHS, counted=("ids", 1)),
        InputContract("offsets", "int32", (Dim(4, "k"),), role=Role.OFFSETS, counted=("ids", 1)),
    ),
    constants=(27331.0, 0.5, 40000.0),
)
SEED = Case(
    {
        "ids": np.arange(36).reshape(3, 12),
        "mask": np.ones((3, 12), np.int64),
        "lengths": np.array([12, 7, 3]),
        "offsets": np.array([0, 3, 6, 9], np.int32),
    }
)


def proposals(rng_seed: int, count: int, *, sweep: bool) -> list[Proposal]:
    generator = Generator(TEXT, [SEED], rng_seed)
    generator.begin(0 if sweep else 1)
    return [generator.propose() for _ in range(count)]


def moved(name: str, count: int = 200) -> list[dict[str, np.ndarray]]:
    """Return what one role move makes of the seed."""
    scene, rng = Scene(TEXT, [SEED], 1 << 20, 1 << 24), Rng(0, 0)
    move = next(mutator.move for _, mutator in ROLE_MOVES if mutator.name == name)
    draft = list(SEED.inputs.values())
    made = [move(scene, draft, draft, rng) for _ in range(count)]
    return [dict(zip(SEED.inputs, one, strict=True)) for one in made if one is not None]


def test_masks_get_padding_on_either_side_holes_and_empty_rows() -> None:
    masks = [one["mask"] for one in moved("structured mask")]
    assert all(set(np.unique(mask)) <= {0, 1} for mask in masks)
    steps = [np.diff(mask, axis=1) for mask in masks]
    assert any((step <= 0).all() and (step < 0).any() for step in steps), "right padding"
    assert any((step >= 0).all() and (step > 0).any() for step in steps), "left padding"
    assert any(sorted(mask.sum(1).tolist()) == [0, 12, 12] for mask in masks), "one row without anything"
    assert any((mask.sum(1) == 1).all() for mask in masks), "one element in each row"


def test_lengths_lie_within_the_size_with_full_and_single_ones() -> None:
    lengths = [one["lengths"] for one in moved("lengths")]
    assert all(((one >= 0) & (one <= 12)).all() for one in lengths)
    assert any((one == 12).sum() == 1 and (one == 1).sum() == 1 for one in lengths)
    assert any((one == 12).all() for one in lengths)


def test_offsets_are_sorted_from_zero_with_empty_parts() -> None:
    offsets = [one["offsets"] for one in moved("sorted offsets")]
    assert all((np.diff(one) >= 0).all() and one[0] == 0 and one[-1] <= 12 for one in offsets)
    assert any((np.diff(one) == 0).any() for one in offsets)
    assert any(one[-1] == 12 for one in offsets)
    assert all(one.dtype == np.int32 for one in offsets)


def test_tokens_that_the_code_names_are_swapped_in() -> None:
    scene = Scene(TEXT, [SEED], 1 << 20, 1 << 24)
    assert special_tokens(scene, 0).tolist() == [27331]
    ids = [one["ids"] for one in moved("token swaps")]
    assert any((one == 27331).sum() == 1 for one in ids)
    assert any((one[:, -4:] == 27331).all() and not (one == 27331).all() for one in ids), "the end padded with it"


def test_the_sweep_writes_full_lengths_and_empty_parts() -> None:
    swept = [p.case.inputs for p in proposals(0, 400, sweep=True) if not p.contract_breaking]
    kept = [one for one in swept if one["ids"].shape == (3, 12)]
    assert any(one["lengths"].tolist() == [12, 1, 6] for one in kept)
    assert any(one["offsets"].tolist() == [0, 6, 6, 9] for one in kept)


def test_most_recipes_keep_lengths_within_the_size_and_some_do_not() -> None:
    made = [p.case.inputs for p in proposals(1, 600, sweep=False) if p.label == "recipe"]
    inside = [bool(((one["lengths"] >= 0) & (one["lengths"] <= one["ids"].shape[1])).all()) for one in made]
    assert 0.75 < np.mean(inside) < 1.0


def test_without_roles_nothing_is_assumed() -> None:
    plain = dataclasses.replace(
        TEXT, inputs=tuple(dataclasses.replace(one, role=Role.GENERIC, counted=None) for one in TEXT.inputs)
    )
    generator = Generator(plain, [SEED], 0)
    assert not {mutator.name for _, mutator in ROLE_MOVES} & generator.statistics().keys()
