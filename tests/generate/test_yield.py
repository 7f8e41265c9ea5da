"""Inputs that one kind of fault needs are met within so many executions: counted, with stacks, never timed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from fuzzparity.case import Case
from fuzzparity.contract import Contract, Dim, InputContract, Role
from fuzzparity.generate.generator import Generator

B = Dim(3, "b")
Arrays = dict[str, np.ndarray]
Needs = Callable[[Arrays], bool]
RNG = np.random.default_rng(5)


@dataclass(frozen=True)
class Kind:
    """Hold a contract, its seed, what an input has to be like, and within how many executions it has to come."""

    contract: Contract
    seed: Arrays
    needs: Needs
    within: int


def one(dims: tuple[Dim, ...], dtype: str = "float32", role: Role = Role.GENERIC, **rest: object) -> Contract:
    return Contract((InputContract("x", dtype, dims, role=role),), **rest)  # type: ignore[arg-type]


def rows_where(test: Callable[[np.ndarray], np.ndarray]) -> Needs:
    """Ask for one row of finite x for which a test of the rows holds."""

    def needs(a: Arrays) -> bool:
        x = a["x"].astype(np.float64)
        with np.errstate(all="ignore"):
            return bool(x.size and (test(x) & np.isfinite(x).all(1)).any())

    return needs


LINE = (B, Dim(10, "t"))
FLAT = (B, Dim(8))
X = {"x": RNG.standard_normal((3, 10)).astype(np.float32)}
ROWS = {"x": RNG.standard_normal((3, 8)).astype(np.float32)}
IMAGE = (Dim(1, "b"), Dim(3), Dim(24, "h"), Dim(40, "w"))
PICTURE = {"x": RNG.standard_normal((1, 3, 24, 40)).astype(np.float32)}
TEXT = {"ids": RNG.integers(0, 900, (3, 12)), "mask": np.ones((3, 12), np.int64), "lengths": np.array([12, 7, 3])}
SPOKEN = Contract(
    (
        InputContract("ids", "int64", (B, Dim(12, "t")), index_limit=30000, role=Role.TOKENS),
        InputContract("mask", "int64", (B, Dim(12, "t")), role=Role.MASK),
        InputContract("lengths", "int64", (B,), role=Role.LENGTHS, counted=("ids", 1)),
    ),
    constants=(27331.0,),
    batch="b",
)
BAGS = Contract(
    (
        InputContract("ids", "int64", (Dim(20, "n"),), index_limit=40, role=Role.INDICES),
        InputContract("offsets", "int64", (Dim(4, "k"),), role=Role.OFFSETS, counted=("ids", 0)),
    )
)
KINDS: dict[str, Kind] = {
    "one more than a multiple of a period": Kind(
        one(LINE, periods=(48,)), X, lambda a: a["x"].shape[1] > 48 and a["x"].shape[1] % 48 == 1, 150
    ),
    "a length that only the code names": Kind(one(LINE, sizes=(2731,)), X, lambda a: a["x"].shape[1] == 2731, 300),
    "a decimal factor that rounds down": Kind(
        one(LINE, factors=(0.29,)), X, lambda a: int(a["x"].shape[1] * 0.29) != a["x"].shape[1] * 29 // 100, 200
    ),
    "sizes the other way round": Kind(one(IMAGE), PICTURE, lambda a: a["x"].shape[2:] == (40, 24), 60),
    "an extreme aspect ratio": Kind(
        one(IMAGE), PICTURE, lambda a: 4 < a["x"].shape[3] < a["x"].shape[2] / 9 < 100, 100
    ),
    "a norm between two constants": Kind(
        one(FLAT, constants=(113.7, 113.75), batch="b"),
        ROWS,
        rows_where(lambda x: (np.linalg.norm(x, axis=1) > 113.7) & (np.linalg.norm(x, axis=1) < 113.75)),
        600,
    ),
    "a sum just at a constant": Kind(
        one(FLAT, constants=(43.7,), batch="b"), ROWS, rows_where(lambda x: np.abs(x.sum(1) - 43.7) < 1e-3), 600
    ),
    "nothing past a threshold": Kind(
        one(FLAT, constants=(-61.25,)), ROWS, rows_where(lambda x: (x < -61.25).all(1) & (x > -100).all(1)), 300
    ),
    "halves of a quantizer's step": Kind(
        one(FLAT, steps=(0.0417,), batch="b"),
        ROWS,
        rows_where(lambda x: (x.astype(np.float32) / np.float32(0.0417) % 1 == 0.5).any(1)),
        100,
    ),
    "an integer past 2**53": Kind(
        one(FLAT, "int64", batch="b"),
        {"x": RNG.integers(0, 9, (3, 8))},
        lambda a: bool((np.abs(a["x"].astype(object)) > 2**53).any() and (a["x"] % 2 == 1).any()),
        60,
    ),
    "a constant row among others": Kind(
        one(FLAT),
        ROWS,
        lambda a: bool(
            a["x"].size
            and np.isfinite(a["x"]).all()
            and (a["x"] == a["x"][:, :1]).all(1).sum() == 1 < len(a["x"])
            and (a["x"] != 0).all()
        ),
        700,
    ),
    "NaN at the end of every row": Kind(
        one(FLAT),
        ROWS,
        lambda a: bool(a["x"].size and np.isnan(a["x"][:, -1]).all() and np.isnan(a["x"]).sum() == len(a["x"]) > 1),
        150,
    ),
    "a token that only the code names": Kind(SPOKEN, TEXT, lambda a: bool((a["ids"] == 27331).any()), 60),
    "one row masked, the others not": Kind(
        SPOKEN, TEXT, lambda a: bool(a["mask"].size and sorted(a["mask"].any(1))[:2] == [False, True]), 150
    ),
    "left padding": Kind(
        SPOKEN,
        TEXT,
        lambda a: bool(
            a["mask"].size
            and ((a["mask"] == 0) | (a["mask"] == 1)).all()
            and ((np.diff(a["mask"], axis=1) >= 0).all(1) & (np.ptp(a["mask"], axis=1) == 1)).any()
        ),
        150,
    ),
    "a full length beside one of 1": Kind(
        SPOKEN,
        TEXT,
        lambda a: bool((a["lengths"] == a["ids"].shape[1]).any() and (a["lengths"] == 1).any() and a["ids"].size > 12),
        150,
    ),
    "an empty bag between two others": Kind(
        BAGS,
        {"ids": np.arange(20), "offsets": np.array([0, 4, 9, 13])},
        lambda a: bool(
            a["ids"].size > 4
            and (np.diff(a["offsets"]) >= 0).all()
            and (np.diff(a["offsets"])[1:-1] == 0).any()
            and a["offsets"].max() < a["ids"].size
            and a["offsets"][0] == 0
        ),
        60,
    ),
}


def executions_until(kind: Kind, rng_seed: int) -> int:
    """Return after how many executions, stacks among them, an input is as it has to be; past the limit: one more."""
    generator = Generator(kind.contract, [Case(kind.seed)], rng_seed)
    generator.begin(0)
    for count in range(1, kind.within + 1):
        stack = None
        if generator.stacker is not None and kind.contract.batch and count % 3 == 0:
            stack = generator.stack({"near": 32, "recipe": 32, "nonfinite": 32})
        if stack is not None:
            case = stack.case
        else:
            proposal = generator.propose()
            generator.learn(proposal, frozenset({f"shape:{proposal.case.elements.bit_length()}"}))
            if proposal.contract_breaking:
                continue
            case = proposal.case
        if kind.needs(dict(case.inputs)):
            return count
    return kind.within + 1


@pytest.mark.parametrize("name", KINDS)
def test_what_a_kind_of_fault_needs_comes_within_its_executions(name: str) -> None:
    kind = KINDS[name]
    assert not kind.needs(kind.seed)
    counts = [executions_until(kind, rng_seed) for rng_seed in range(3)]
    assert max(counts) <= kind.within, counts
