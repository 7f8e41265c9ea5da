"""What an error looks like: each usual mistake is told by its name, and noise by none."""

import numpy as np
import pytest

from fuzzparity.oracle.looks import looks_like

RNG = np.random.default_rng(7)
IMAGE = RNG.normal(size=(3, 4, 8, 8)).astype(np.float32)


def one_item(image: np.ndarray) -> np.ndarray:
    wrong = image.copy()
    wrong[1] += RNG.normal(size=image.shape[1:]).astype(np.float32)
    return wrong


def one_channel(image: np.ndarray) -> np.ndarray:
    wrong = image.copy()
    wrong[:, 2] *= RNG.normal(size=(3, 8, 8)).astype(np.float32)
    return wrong


def border(image: np.ndarray) -> np.ndarray:
    wrong = image + 1e-9
    noise = RNG.normal(size=image.shape).astype(np.float32)
    noise[..., 1:-1, 1:-1] = 0
    return wrong + noise


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (IMAGE[:, [2, 1, 0, 3]], "permuted along axis 1: ORT's order is torch's [2, 1, 0, 3]"),
        (IMAGE * 255, "scaled by 255"),
        (IMAGE / 255, "scaled by 1/255"),
        (IMAGE + 0.485, "offset by 0.485"),
        ((IMAGE - 0.485) / 0.229, "as by another mean and deviation"),
        (np.roll(IMAGE, 1, axis=3), "shifted by 1 along axis 3"),
        (np.roll(IMAGE, -1, axis=2), "shifted by -1 along axis 2"),
        (np.swapaxes(IMAGE, 2, 3).copy(), "axes 2 and 3 are exchanged"),
        (IMAGE[..., ::-1].copy(), "reversed along axis 3"),
        (np.clip(IMAGE, -1, 1), "saturated: ORT stays within -1 to 1"),
        (np.full_like(IMAGE, 0.25), "constant: ORT answers 0.25 everywhere"),
        (one_item(IMAGE), "only batch item 1"),
        (one_channel(IMAGE), "only channel 2"),
        (border(IMAGE), "only the border"),
    ],
)
def test_a_usual_mistake_is_told_by_its_name(wrong: np.ndarray, said: str):
    assert any(said in text for text in looks_like(IMAGE, wrong)), looks_like(IMAGE, wrong)


@pytest.mark.parametrize("rng_seed", range(100, 120))
def test_noise_looks_like_nothing(rng_seed: int):
    rng = np.random.default_rng(rng_seed)
    noisy = IMAGE + rng.normal(size=IMAGE.shape).astype(np.float32) * rng.choice([1e-3, 0.1, 1.0])
    assert looks_like(IMAGE, noisy) == ()


def test_a_true_mistake_under_noise_of_arithmetic_is_still_told():
    noisy = IMAGE[:, [1, 0, 2, 3]] * (1 + 1e-6 * RNG.normal(size=IMAGE.shape))
    assert any("permuted along axis 1" in text for text in looks_like(IMAGE, noisy.astype(np.float32)))


def test_shapes():
    assert looks_like(np.zeros((2, 5)), np.zeros((2, 6))) == ("ORT has 1 more along axis 1",)
    turned = looks_like(IMAGE, IMAGE.transpose(0, 2, 3, 1))
    assert turned == ("transposed: ORT's axes are torch's [0, 2, 3, 1]",)


@pytest.mark.parametrize("values", [[1.0], [np.nan] * 9, []])
def test_nothing_is_said_of_too_little_or_of_nan(values: list[float]):
    array = np.array(values, np.float32)
    assert looks_like(array, array + 1) == ()
