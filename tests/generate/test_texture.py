"""What the seeds show of values and of inputs together is told, and kept or moved by the moves near the data."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fuzzparity.case import Case
from fuzzparity.contract import Contract, Dim, InputContract, Role
from fuzzparity.generate.generator import Generator, Proposal
from fuzzparity.generate.links import COUNTS, MARKS, SHAPE, SORTED, WITHIN
from fuzzparity.generate.scene import Scene
from fuzzparity.generate.seen import seen_lines
from fuzzparity.generate.texture import Padding, texture_of
from fuzzparity.generate.understood import understood

RNG = np.random.default_rng(3)
NOISE = RNG.standard_normal((2, 3, 32, 32)).astype(np.float32)
PIXELS = (RNG.integers(0, 256, (2, 3, 32, 32)) / 255).astype(np.float32)
MEANS = np.array([0.485, 0.456, 0.406], np.float32).reshape(1, 3, 1, 1)
DEVIATIONS = np.array([0.05, 0.2, 0.4], np.float32).reshape(1, 3, 1, 1)
SPARSE = np.where(RNG.random((4, 64)) < 0.7, 0, RNG.standard_normal((4, 64))).astype(np.float32)
SPEECH = RNG.standard_normal((3, 20, 8)).astype(np.float32)
SPEECH[0, 15:], SPEECH[2, 8:] = 0, 0
IDS = RNG.integers(5, 900, (3, 12))
IDS[0, 9:], IDS[2, 5:] = 0, 0
B, T = Dim(3, "b"), Dim(12, "t")


def one(array: np.ndarray, role: Role = Role.GENERIC, **rest: object) -> InputContract:
    return InputContract("x", array.dtype.name, tuple(map(Dim, array.shape)), role=role, **rest)  # type: ignore[arg-type]


TEXT = Contract(
    (
        InputContract("ids", "int64", (B, T), index_limit=900, role=Role.TOKENS),
        InputContract("mask", "int64", (B, T), role=Role.MASK),
        InputContract("lengths", "int64", (B,), role=Role.LENGTHS, counted=("ids", 1)),
        InputContract("offsets", "int32", (Dim(4),), role=Role.OFFSETS, counted=("ids", 1)),
    )
)
SEED = Case(
    {
        "ids": IDS,
        "mask": (IDS != 0).astype(np.int64),
        "lengths": (IDS != 0).sum(1),
        "offsets": np.array([0, 3, 6, 9], np.int32),
    }
)


def proposals(contract: Contract, seed: Case, count: int, *, sweep: bool = False) -> list[Proposal]:
    generator = Generator(contract, [seed], 0)
    generator.begin(0 if sweep else 1)
    return [generator.propose() for _ in range(count)]


def test_noise_has_no_texture() -> None:
    for array, role in ((NOISE, Role.IMAGE), (NOISE[0, 0], Role.GENERIC), (NOISE.astype(np.float16), Role.IMAGE)):
        texture = texture_of(one(array, role), [array])
        assert texture.is_plain
        assert not texture.differ


@pytest.mark.parametrize(
    "array",
    [
        np.array([[0, 0, 0, 1, 1, 1]] * 2),
        np.array([[0, 0, 1, 1, 2, 2]] * 2),
        np.arange(24).reshape(2, 12),
        np.ones((3, 12), np.int64),
        np.zeros((3, 12), np.float32),
        RNG.integers(0, 4, (8, 16)),
        SPARSE,
    ],
)
def test_types_counts_and_constants_are_not_taken_for_padding(array: np.ndarray) -> None:
    assert texture_of(one(array), [array]).padding is None


@pytest.mark.parametrize(
    ("array", "padding"),
    [
        (IDS, Padding(1, 0.0, False, 0, 7, 2, 3)),
        (IDS[:, ::-1].copy(), Padding(1, 0.0, True, 0, 7, 2, 3)),
        (np.where(IDS == 0, 2, IDS)[2], Padding(0, 2.0, False, 7, 7, 1, 1)),
        (SPEECH, Padding(1, 0.0, False, 0, 12, 2, 3)),
        (np.moveaxis(SPEECH, 1, 2), Padding(2, 0.0, False, 0, 12, 2, 3)),
    ],
)
def test_padding_is_known_by_value_side_and_lengths(array: np.ndarray, padding: Padding) -> None:
    found = texture_of(one(array, Role.TOKENS if array.dtype.kind == "i" else Role.GENERIC), [array]).padding
    assert found == padding
    places = padding.places(array)
    assert places is not None
    assert np.array_equal(places, np.broadcast_to(array == padding.value, array.shape))


def test_zeros_levels_steps_and_channels_are_known() -> None:
    assert texture_of(one(SPARSE), [SPARSE]).is_sparse
    pixels = texture_of(one(PIXELS, Role.IMAGE), [PIXELS])
    assert (pixels.distinct, pixels.step) == (256, pytest.approx(1 / 255))
    normal = (PIXELS - MEANS) / DEVIATIONS
    texture = texture_of(one(normal, Role.IMAGE), [normal])
    assert texture.differ
    assert [channel.low for channel in texture.channels] == pytest.approx(normal.min(axis=(0, 2, 3)).tolist())
    assert [one.deviation for one in texture.channels] == pytest.approx(normal.std(axis=(0, 2, 3)).tolist(), rel=1e-4)
    assert np.array_equal(texture.snapped(normal), normal)
    whole = RNG.integers(-3000, 3000, (1, 9000)) / np.float32(32768)
    assert texture_of(one(whole), [whole]).step == pytest.approx(1 / 32768)


def test_links_hold_in_every_seed_or_are_not_believed() -> None:
    def kinds(*seeds: Case) -> set[tuple[str, int]]:
        return {(link.kind, link.index) for link in Scene(TEXT, seeds, 1 << 20, 1 << 24).links}

    assert kinds(SEED) == {(SORTED, 3), (WITHIN, 2), (WITHIN, 3), (SHAPE, 1), (MARKS, 1), (COUNTS, 2)}
    odd = SEED.replace(offsets=np.array([0, 6, 3, 9], np.int32), lengths=np.array([13, 1, 1]))
    assert kinds(SEED, odd) == {(WITHIN, 3), (SHAPE, 1), (MARKS, 1)}


def test_inputs_of_one_shape_in_all_seeds_mostly_keep_it_though_their_dims_have_other_names() -> None:
    dims = {name: (Dim(3, f"b{name}"), Dim(12, f"t{name}")) for name in ("ids", "mask")}
    contract = Contract(
        (
            InputContract("ids", "int64", dims["ids"], index_limit=900, role=Role.TOKENS),
            InputContract("mask", "int64", dims["mask"], role=Role.MASK),
        )
    )
    seed = Case({"ids": IDS, "mask": (IDS != 0).astype(np.int64)})
    made = [p for p in proposals(contract, seed, 2000) if p.lineage.mutators in (("resize one axis",), ("grow",))]
    resized = [p.case.inputs for p in made if p.case.inputs["ids"].shape != (3, 12)]
    shares = np.mean([case["ids"].shape == case["mask"].shape for case in resized])
    assert 0.5 < shares < 1.0
    (line,) = [line for line in seen_lines(contract, [seed], has_real_seeds=True) if "has the shape of" in line.says]
    assert line.change == "dynamic_shapes={'mask': {0: 'bids', 1: 'tids'}, 'ids': {0: 'bids', 1: 'tids'}}"


def test_offsets_that_end_at_the_size_in_all_seeds_do_so_in_every_case() -> None:
    contract = Contract(
        (
            InputContract("x", "float32", (Dim(12, "n"), Dim(4))),
            InputContract("starts", "int64", (Dim(5, "k"),), role=Role.OFFSETS, counted=("x", 0)),
        )
    )
    seed = Case({"x": RNG.standard_normal((12, 4)).astype(np.float32), "starts": np.array([0, 2, 7, 7, 12])})
    made = [p.case.inputs for p in proposals(contract, seed, 800) if not p.contract_breaking]
    assert all(case["starts"][-1] == len(case["x"]) for case in made if len(case["starts"]) > 1)
    assert len({len(case["x"]) for case in made}) > 20
    said = {line.subject: line for line in seen_lines(contract, [seed], has_real_seeds=False)}
    assert said["starts end"].says == "the size of x dim 0"


def near(contract: Contract, seed: Case, count: int = 400) -> list[dict[str, np.ndarray]]:
    made = [proposal for proposal in proposals(contract, seed, 12 * count) if proposal.label == "near"]
    arithmetic = {"gain", "offset", "noise", "channel gains", "contrast"}
    kept = [proposal for proposal in made if set(proposal.lineage.mutators) <= arithmetic]
    assert len(kept) > count // 8
    return [dict(proposal.case.inputs) for proposal in kept]


def test_near_moves_leave_the_zeros_of_sparse_data() -> None:
    contract = Contract((one(SPARSE),))
    cases = near(contract, Case({"x": SPARSE}), 100)
    assert all((case["x"][SPARSE == 0] == 0).all() for case in cases)
    assert any((case["x"] != SPARSE).mean() > 0.2 for case in cases)
    shares = [float((p.case.inputs["x"] == 0).mean()) for p in proposals(contract, Case({"x": SPARSE}), 600)
              if p.lineage.mutators == ("more or fewer zeros",)]  # fmt: skip
    assert min(shares) < 0.65 < 0.75 < max(shares)


def test_near_moves_keep_padding_and_half_of_them_the_levels() -> None:
    pad = SPEECH == 0
    assert all((case["x"][pad] == 0).all() for case in near(Contract((one(SPEECH),)), Case({"x": SPEECH}), 100))
    cases = near(Contract((one(PIXELS[:1, :, :8, :8], Role.IMAGE),)), Case({"x": PIXELS[:1, :, :8, :8]}), 100)
    at_levels = [np.abs(case["x"] * 255 - np.round(case["x"] * 255)).max() < 1e-3 for case in cases]
    assert 0.3 < np.mean(at_levels) < 0.9


def test_each_channel_keeps_to_its_own_range() -> None:
    image = ((PIXELS[:, :, :8, :8] - MEANS) / DEVIATIONS).astype(np.float32)
    made = proposals(Contract((one(image, Role.IMAGE),)), Case({"x": image}), 3000)
    gains = [p.case.inputs["x"] for p in made if p.lineage.mutators == ("channel gains",)]
    assert gains
    low, high = image.min(axis=(0, 2, 3), keepdims=True), image.max(axis=(0, 2, 3), keepdims=True)
    assert all(((one >= low - 1e-4) & (one <= high + 1e-4)).all() for one in gains)


MOVES: dict[str, Callable[[np.ndarray], bool]] = {
    "shorter": lambda ids: bool((ids[2] != 0).sum() in range(6, 12)),
    "longer": lambda ids: bool(0 < (ids[2] != 0).sum() < 5),
    "none": lambda ids: bool((ids != 0).all()),
    "all but one place": lambda ids: bool(((ids != 0).sum(1) == 1).any()),
    "the other side": lambda ids: bool(((ids[:, 0] == 0) & (ids[:, -1] != 0)).any()),
}


@pytest.fixture(scope="module")
def padded() -> list[dict[str, np.ndarray]]:
    """Return the cases that one move of padding makes of the seed."""
    made = proposals(TEXT, SEED, 2500)
    return [dict(p.case.inputs) for p in made if p.lineage.mutators == ("move padding",) and not p.nonfinite]


@pytest.mark.parametrize("name", MOVES)
def test_padding_is_moved(name: str, padded: list[dict[str, np.ndarray]]) -> None:
    assert any(MOVES[name](case["ids"]) for case in padded)


def test_the_sweep_pads_rows_from_none_to_all_but_one_place_with_mask_and_lengths() -> None:
    made = {p.lineage.mutators[0]: p.case.inputs for p in proposals(TEXT, SEED, 400, sweep=True)}
    assert (made["ids without padding"]["ids"] != 0).all()
    assert made["ids padded but for one place"]["lengths"].tolist() == [1, 1, 1]
    assert made["ids padded from one place to all but one"]["lengths"].tolist() == [11, 6, 1]
    other = made["ids padded at the other end"]
    assert other["ids"][2].tolist() == [0] * 11 + [IDS[2, 0]]
    assert all(
        np.array_equal(case["mask"], case["ids"] != 0) for name, case in made.items() if name.startswith("ids pad")
    )


def test_mask_and_lengths_follow_the_padding_most_of_the_time(padded: list[dict[str, np.ndarray]]) -> None:
    follows = [np.array_equal(case["mask"], case["ids"] != 0) for case in padded]
    counts = [np.array_equal(case["lengths"], (case["ids"] != 0).sum(1)) for case in padded]
    assert 0.7 < np.mean(follows) < 1.0
    assert 0.7 < np.mean(counts) < 1.0


@pytest.mark.parametrize("sweep", [False, True])
def test_offsets_stay_in_order_but_in_cases_that_break_it_on_purpose(sweep: bool) -> None:
    made = proposals(TEXT, SEED, 1500, sweep=sweep)
    plain = [p.case.inputs for p in made if not p.contract_breaking]
    for case in plain:
        offsets = case["offsets"]
        assert offsets[0] == 0
        assert (np.diff(offsets) >= 0).all()
        assert offsets[-1] <= case["ids"].shape[1]
    broken = [p.case.inputs["offsets"] for p in made if p.contract_breaking and "offsets" in p.lineage.mutators[0]]
    assert any((np.diff(one.astype(np.int64)) < 0).any() for one in broken)
    assert len(plain) > 0.9 * len(made)


def test_check_says_what_the_seeds_show_and_nothing_of_noise() -> None:
    noise = Contract((one(NOISE, Role.IMAGE),))
    assert seen_lines(noise, [Case({"x": NOISE})], has_real_seeds=False) == ()
    lines = understood(TEXT, seen=seen_lines(TEXT, [SEED], has_real_seeds=True))
    told = {line.subject: line for line in lines}
    assert told["ids padding"].says == "0 at the end of rows along dim 1, 0..7 places"
    assert told["ids padding"].reason.startswith("seeds (1): in 2 of 3 rows")
    assert told["offsets order"].change == "valid=lambda inputs: (numpy.diff(inputs['offsets']) >= 0).all()"
    subjects = [line.subject for line in lines]
    assert subjects.index("ids padding") < subjects.index("mask dim 0")
    said = [line.says for line in lines]
    assert "lengths: at most the size of ids dim 1" in said
    assert "mask has the shape of ids" in said
    assert "mask is 0 where ids is padded, and nowhere else" in said
    assert "lengths counts the places of ids that are not padded" in said


def test_check_says_channels_zeros_and_ties() -> None:
    contract = Contract((one(PIXELS, Role.IMAGE),))
    told = {line.subject: line for line in seen_lines(contract, [Case({"x": PIXELS})], has_real_seeds=True)}
    assert told["x ties"].says == "256 distinct values in 6,144, in steps of 0.00392157"
    assert told["x channels"].says.startswith("0: 0.4")
    (line,) = seen_lines(Contract((one(SPARSE),)), [Case({"x": SPARSE})], has_real_seeds=False)
    assert line.says.startswith("sparse: 69.9 %")
    assert line.reason.startswith("the first inputs")
