"""Every kind of shape and value that a campaign is to try is proposed on a plain contract within so many proposals.

Counted, never timed; kinds that lean on stacks and on structure of their own are in `test_yield`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest

from fuzzparity.case import Case
from fuzzparity.contract import Contract, Dim, InputContract, Role
from fuzzparity.generate.contract import SeedStatistics
from fuzzparity.generate.generator import Generator
from fuzzparity.verdict import Realism

Arrays = dict[str, np.ndarray]
Needs = Callable[[Arrays], bool]
RNG = np.random.default_rng(1)
B = Dim(3, "b")


@dataclass(frozen=True)
class Kind:
    """Hold a contract and its seed, and what cases among the first `within` have to be like, one for each need."""

    contract: Contract
    seed: Arrays
    needs: tuple[Needs, ...]
    within: int = 1000


def one(dims: tuple[Dim | int, ...], dtype: str = "float32", role: Role = Role.GENERIC, **rest: object) -> Contract:
    bounds = {key: rest.pop(key) for key in ("low", "high", "index_limit") if key in rest}
    told = tuple(dim if isinstance(dim, Dim) else Dim(dim) for dim in dims)
    return Contract((InputContract("x", dtype, told, role=role, **bounds),), **rest)  # type: ignore[arg-type]


def normal(*shape: int, dtype: object = np.float32) -> Arrays:
    return {"x": RNG.standard_normal(shape).astype(dtype)}  # type: ignore[call-overload]


def x_is(*tests: Callable[[np.ndarray], object], finite: bool = True) -> tuple[Needs, ...]:
    """Ask for cases of which x is as a test says; x has elements, and is finite unless told otherwise."""

    def needs_of(test: Callable[[np.ndarray], object]) -> Needs:
        def needs(a: Arrays) -> bool:
            x = a["x"].astype(np.float64) if a["x"].dtype.kind in "fV" else a["x"]
            return bool(x.size and (not finite or x.dtype.kind in "iub" or np.isfinite(x).all()) and test(x))

        return needs

    return tuple(needs_of(test) for test in tests)


def sizes(*tests: Callable[..., bool]) -> tuple[Needs, ...]:
    return tuple(lambda a, test=test: test(*a["x"].shape) for test in tests)  # type: ignore[misc]


LINE, X = (B, Dim(10, "t")), normal(3, 10)
IMAGE = one((Dim(1, "b"), 3, Dim(24, "h"), Dim(40, "w")), role=Role.IMAGE)
PICTURE = normal(1, 3, 24, 40)
FLAT, ROWS = one((B, 64)), normal(3, 64)
INTEGERS, NUMBERS = one((B, 8), "int64"), {"x": RNG.integers(0, 9, (3, 8))}
THREE = Contract(tuple(InputContract(name, "float32", (B, Dim(6))) for name in "abc"))
TRIPLE = {name: RNG.standard_normal((3, 6)).astype(np.float32) for name in "abc"}
PAIR = Contract(tuple(InputContract(name, "float32", (Dim(4, symbol), Dim(6))) for name, symbol in ("an", "bm")))
BOTH = {name: RNG.standard_normal((4, 6)).astype(np.float32) for name in "ab"}
MASKED = Contract(
    (
        InputContract("ids", "int64", (B, Dim(12, "t")), role=Role.TOKENS, index_limit=900),
        InputContract("mask", "bool", (B, Dim(12, "t")), role=Role.MASK),
    )
)
TEXT = {"ids": RNG.integers(0, 900, (3, 12)), "mask": np.ones((3, 12), bool)}


def rows_of(mask: np.ndarray) -> np.ndarray:
    """Return the steps between neighbours in each row of a mask that is wide enough to have some."""
    return np.diff(mask.astype(int), axis=1) if mask.shape[1] > 3 else np.zeros((0, 0), int)


def scales(a: Arrays) -> list[float]:
    """Return the largest magnitude of each input; none where one is not finite or has no values."""
    largest = [float(np.abs(x).max(initial=0.0)) for x in a.values()]
    return largest if all(np.isfinite(one) and one > 0 for one in largest) else []


def magnitudes(test: Callable[..., bool]) -> Needs:
    return lambda a: bool((found := scales(a)) and test(*found))


SHAPES: dict[str, Kind] = {
    "ends of a declared range, and one inside": Kind(
        one((B, Dim(10, "t", 5, 73, is_declared=True))), X, sizes(*(lambda b, t, n=n: t == n for n in (5, 6, 72, 73)))
    ),
    "a size that is compared with, and its neighbours": Kind(
        one(LINE, sizes=(4097,)), X, sizes(*(lambda b, t, n=n: t == n for n in (4096, 4097, 4098)))
    ),
    "a decimal factor that rounds to another integer": Kind(
        one(LINE, factors=(0.29,)), X, sizes(lambda b, t: int(t * 0.29) != t * 29 // 100)
    ),
    "a decimal scale times a size that lands on an integer": Kind(
        one((Dim(1), 3, Dim(24, "h"), Dim(41, "w")), factors=(1.3,)),
        normal(1, 3, 24, 41),
        sizes(lambda b, c, h, w: h > 1 and h * 13 % 10 == 0, lambda b, c, h, w: w > 1 and w * 13 % 10 == 0),
    ),
    "a multiple of a period, and one beside it": Kind(
        one(LINE, periods=(48,)), X, sizes(*(lambda b, t, r=r: t > 48 and t % 48 == r for r in (0, 1, 47)))
    ),
    "odd sizes, one and both": Kind(
        IMAGE,
        PICTURE,
        sizes(
            lambda b, c, h, w: h % 2 == 1 and w % 2 == 0,
            lambda b, c, h, w: h % 2 == 0 and w % 2 == 1,
            lambda b, c, h, w: h % 2 == 1 and w % 2 == 1,
        ),
    ),
    "nothing along one axis at a time": Kind(
        IMAGE, PICTURE, sizes(*(lambda *s, k=k: [i for i, n in enumerate(s) if n == 0] == [k] for k in (0, 2, 3)))
    ),
    "one along one axis, of one input or both": Kind(
        PAIR,
        BOTH,
        (
            lambda a: a["a"].shape[0] == 1 < a["b"].shape[0],
            lambda a: a["b"].shape[0] == 1 < a["a"].shape[0],
            lambda a: a["a"].shape[0] == a["b"].shape[0] == 1,
        ),
    ),
    "two dims in the other order": Kind(IMAGE, PICTURE, sizes(lambda b, c, h, w: (h, w) == (40, 24))),
    "extreme aspect ratios, either way": Kind(
        IMAGE, PICTURE, sizes(lambda b, c, h, w: 0 < 9 * w < h, lambda b, c, h, w: 0 < 30 * h < w)
    ),
    "growth far beyond the seed": Kind(IMAGE, PICTURE, x_is(lambda x: x.size > 64 * 2880, finite=False), 3000),
}

NEIGHBOURS = np.nextafter(np.float32(0.7), np.array([0, 1], np.float32))
HALF, TENTHS = np.float16, (np.arange(-30, 31) / 10).astype(np.float32)
TENS = np.array([10.0**k for k in range(-4, 5)], np.float32)
VALUES: dict[str, Kind] = {
    "exact halves, all or a few": Kind(
        FLAT, ROWS, x_is(lambda x: (x % 1 == 0.5).mean() > 0.9, lambda x: 0 < (x % 1 == 0.5).mean() < 0.3)
    ),
    "powers of two": Kind(FLAT, ROWS, x_is(lambda x: (np.frexp(x)[0] == 0.5).all() and len(np.unique(x)) > 8)),
    "powers of ten": Kind(FLAT, ROWS, x_is(lambda x: np.isin(x, TENS).mean() > 0.9 and len(np.unique(x)) > 6)),
    "decimal multiples": Kind(FLAT, ROWS, x_is(lambda x: np.isin(x, TENTHS).all() and len(np.unique(x)) > 10)),
    "a constant and the floats beside it": Kind(
        one((B, 64), constants=(0.7,)), ROWS, x_is(lambda x: np.isin([*NEIGHBOURS, np.float32(0.7)], x).all())
    ),
    "the seed but for last digits": Kind(
        FLAT, ROWS, x_is(lambda x: x.shape == (3, 64) and 0 < np.abs(x / ROWS["x"] - 1).max() < 1e-6)
    ),
    "zeros of both signs": Kind(FLAT, ROWS, x_is(lambda x: (zeros := np.signbit(x[x == 0])).any() and not zeros.all())),
    "subnormals, alone and beside usual values": Kind(
        FLAT,
        ROWS,
        x_is(
            lambda x: ((x != 0) & (np.abs(x) < 1.1e-38)).mean() > 0.9,
            lambda x: ((x != 0) & (np.abs(x) < 1.1e-38)).any() and (np.abs(x) > 0.01).any(),
        ),
    ),
    "subnormals of float16": Kind(
        one((B, 64), "float16"), normal(3, 64, dtype=HALF), x_is(lambda x: ((x != 0) & (np.abs(x) < 6e-5)).mean() > 0.5)
    ),
    "the largest bfloat16": Kind(
        one((B, 64), "bfloat16"),
        normal(3, 64, dtype=ml_dtypes.bfloat16),
        x_is(lambda x: x.max() == float(ml_dtypes.finfo(ml_dtypes.bfloat16).max)),
    ),
    "exponents across inputs: all tiny, all huge, one huge and another tiny": Kind(
        THREE,
        TRIPLE,
        (
            magnitudes(lambda a, b, c: max(a, b, c) < 1e-18),
            magnitudes(lambda a, b, c: min(a, b, c) > 1e15),
            magnitudes(lambda a, b, c: a > 1e15 and b < 1e-10),
            magnitudes(lambda a, b, c: b > 1e15 and c < 1e-10),
            magnitudes(lambda a, b, c: c > 1e15 and a < 1e-10),
            magnitudes(lambda a, b, c: a * b > 1e39 and 1e-3 < c < 1e3),
        ),
    ),
    "a large offset with a small spread": Kind(
        FLAT, ROWS, x_is(lambda x: np.abs(x).min() > 1e3 and 0 < np.ptp(x) < 1e-2 * np.abs(x).min())
    ),
    "constant rows, all and one": Kind(
        FLAT,
        ROWS,
        x_is(lambda x: (np.ptp(x, 1) == 0).all() and np.ptp(x) > 0, lambda x: (np.ptp(x, 1) == 0).sum() == 1 < len(x)),
    ),
    "exact zeros: all, many, one row": Kind(
        FLAT,
        ROWS,
        x_is(
            lambda x: not x.any(),
            lambda x: 0.2 < (x == 0).mean() < 0.9,
            lambda x: (x == 0).all(1).sum() == 1 < len(x),
        ),
    ),
    "no element past a threshold, on either side, the nearest close to it": Kind(
        one((B, 64), constants=(0.5,)),
        ROWS,
        x_is(
            lambda x: 0.3 < x.max() < 0.5 and np.ptp(x) > 0.1,
            lambda x: 0.5 < x.min() < 0.7 and np.ptp(x) > 0.1,
            lambda x: x.max() < 0.5 and len(np.unique(x)) == 1,
        ),
    ),
    "two equal maxima": Kind(FLAT, ROWS, x_is(lambda x: ((x == x.max(1, keepdims=True)).sum(1) == 2).any())),
    "indices that repeat, all and most": Kind(
        one((B, 8), "int64", Role.INDICES, index_limit=40),
        {"x": RNG.integers(0, 40, (3, 8))},
        x_is(lambda x: x.size > 8 and len(np.unique(x)) == 1, lambda x: x.size > 8 and len(np.unique(x)) in (2, 3)),
    ),
    "negative indices, the least among them": Kind(
        one((B, 8), "int64", Role.INDICES, low=-40, high=39),
        {"x": RNG.integers(0, 40, (3, 8))},
        x_is(lambda x: (x == -1).any(), lambda x: (x == -40).any(), lambda x: 0.3 < (x < 0).mean() < 1),
    ),
    "NaN and infinities: first, last, everywhere, in each row, both signs, one row": Kind(
        FLAT,
        ROWS,
        x_is(
            lambda x: np.isnan(x).sum() == 1 and np.isnan(x.flat[0]),
            lambda x: np.isnan(x).sum() == 1 and np.isnan(x.flat[-1]),
            lambda x: np.isnan(x).all(),
            lambda x: np.isposinf(x).any(1).all() and np.isposinf(x).mean() < 0.2,
            lambda x: np.isposinf(x).any() and np.isneginf(x).any(),
            lambda x: np.isnan(x).all(1).sum() == 1 < len(x),
            finite=False,
        ),
    ),
    "masks: all masked, one row, right and left padding of several lengths, holes": Kind(
        MASKED,
        TEXT,
        (
            lambda a: a["mask"].size > 0 and not a["mask"].any(),
            lambda a: sorted(a["mask"].all(1))[:2] == [False, True] and (~a["mask"]).all(1).sum() == 1,
            lambda a: bool(
                (steps := rows_of(a["mask"])).size and (steps <= 0).all() and len(set(a["mask"].sum(1))) > 1
            ),
            lambda a: bool(
                (steps := rows_of(a["mask"])).size and (steps >= 0).all() and len(set(a["mask"].sum(1))) > 1
            ),
            lambda a: bool((np.abs(rows_of(a["mask"])).sum(1) > 2).any()),
        ),
    ),
    "integers past 2**53 that float64 does not hold, and both limits": Kind(
        INTEGERS,
        NUMBERS,
        x_is(
            lambda x: (x == 2**53 + 1).any(),
            lambda x: (x == 2**63 - 1).any(),
            lambda x: (x == -(2**63)).any(),
            lambda x: ((x.astype(object) > 2**53) & (x % 2 == 1)).mean() > 0.5,
        ),
    ),
    "int32 limits, and past 2**24": Kind(
        one((B, 8), "int32"),
        {"x": NUMBERS["x"].astype(np.int32)},
        x_is(*(lambda x, n=n: (x == n).any() for n in (2**31 - 1, -(2**31), 2**24 + 1))),
    ),
    "an outlier in each block of 32": Kind(
        FLAT,
        ROWS,
        x_is(
            lambda x: (
                np.diff(np.sort(np.abs(x).reshape(-1, 32)))[:, -1] > 50 * np.sort(np.abs(x).reshape(-1, 32))[:, -2]
            ).all()
        ),
    ),
    "halves of a step where a quantizer saturates, signed, unsigned, and with a zero point": Kind(
        one((B, 64), steps=(0.05,)),
        ROWS,
        x_is(
            *(lambda x, e=e: (np.abs(x / 0.05 - e) < 1e-3).any() for e in (126.5, 127.5, -128.5, 255.5, -37.5, 217.5))
        ),
    ),
}


def missing(kind: Kind, rng_seed: int) -> set[int]:
    """Return which needs no proposal meets; those that break the contract do not count."""
    generator = Generator(kind.contract, [Case(kind.seed)], rng_seed)
    generator.begin(0)
    left = set(range(len(kind.needs)))
    with np.errstate(all="ignore"):
        for _ in range(kind.within):
            proposal = generator.propose()
            generator.learn(proposal, frozenset({f"shape:{proposal.case.elements.bit_length()}"}))
            if not proposal.contract_breaking:
                left -= {number for number in left if kind.needs[number](dict(proposal.case.inputs))}
            if not left:
                break
    return left


@pytest.mark.parametrize("name", [*SHAPES, *VALUES])
def test_every_kind_is_proposed(name: str) -> None:
    kind = {**SHAPES, **VALUES}[name]
    assert missing(kind, 0) == set()


def test_large_and_small_cases_take_turns() -> None:
    generator = Generator(IMAGE, [Case(PICTURE)], 0)
    generator.begin(1)
    made = [generator.propose() for _ in range(3000)]
    sizes = [proposal.case.elements for proposal in made]
    turns = [
        (one, two, three)
        for one, two, three in zip(range(len(made)), range(1, len(made)), range(2, len(made)), strict=False)
        if sizes[one] > 4 * sizes[two] and made[one].case.digest == made[three].case.digest
    ]
    assert turns


NEAR = {
    "gain": "gain",
    "brightness": "offset",
    "shift": "roll",
    "crop and resampling": "resample",
    "mix of two seeds": "mix",
    "noise at -40 dB": "noise",
    "channels of their own": "channel gains",
    "token swaps": "token swaps",
}


@pytest.mark.parametrize("name", NEAR)
def test_realistic_moves_are_made_and_told_apart_from_wild_ones(name: str) -> None:
    is_text = name == "token swaps"
    contract = MASKED if is_text else IMAGE
    seeds = [
        Case(TEXT if is_text else PICTURE),
        Case({**TEXT, "ids": TEXT["ids"][::-1].copy()} if is_text else {"x": -PICTURE["x"]}),
    ]
    statistics = SeedStatistics.of(seeds, True)
    generator = Generator(contract, seeds, 0)
    generator.begin(1)
    made = [generator.propose() for _ in range(3000)]
    found = [proposal for proposal in made if proposal.label == "near" and proposal.lineage.mutators == (NEAR[name],)]
    assert found
    told = [statistics.realism(contract, proposal.case) for proposal in found]
    assert told.count(Realism.NEAR) > len(told) // 2
    assert any(statistics.realism(contract, proposal.case) is Realism.WILD for proposal in made)
