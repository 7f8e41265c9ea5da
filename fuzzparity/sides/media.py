"""Media: pictures and sound files as items, where the first seed leaves no doubt about layout and range.

The idea: a wrong guess (channels last, 0..255, a mean and a deviation, another rate) would test the model on data that
it never sees, in silence. So a file is read only where the first seed makes everything plain; else it is refused with
a `read` to paste into the target.
"""

from __future__ import annotations

import importlib
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fuzzparity.case import Array, Case, is_float
from fuzzparity.contract import Contract, Dim, InputContract
from fuzzparity.errors import InvalidCase

PICTURES = frozenset((".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif", ".tif", ".tiff"))
SOUNDS = frozenset((".wav",))
MOST_PIXELS = 1 << 26
MOST_SOUND_BYTES = 1 << 28
_RATE_NAMES = frozenset(("sr", "rate", "sample_rate", "sampling_rate", "samplerate", "fs"))
_REACHES_255 = 64.0  # a first seed of pictures in 0..255 goes at least this far


class NeedsRead(InvalidCase):
    """Report a file whose place in the inputs is not plain; `reason` is the same for files refused alike."""

    def __init__(self, where: str, reason: str, advice: str) -> None:
        """Say which file, why, and the `read` to write."""
        super().__init__(where, reason, advice)
        self.where = where
        self.reason = reason
        self.advice = advice

    def __str__(self) -> str:
        """Say all three."""
        return f"{self.where}: {self.reason}\n  What to do: {self.advice}"


def is_media(path: Path) -> bool:
    """Tell whether a file's suffix is that of a picture or a sound."""
    return path.suffix.lower() in PICTURES | SOUNDS


class MediaReader:
    """Read pictures and sounds as items of one target."""

    def __init__(self, seed: Case, contract: Contract) -> None:
        """Take the first seed and the contract by which layout and range are told."""
        self._seed = seed
        self._contract = contract

    def item(self, path: Path) -> dict[str, Array]:
        """Return the inputs that a file makes; `NeedsRead` where that is not plain, `InvalidCase` for a bad file."""
        if path.suffix.lower() in SOUNDS:
            return self._sound(path)
        return self._picture(path)

    def _picture(self, path: Path) -> dict[str, Array]:
        layout = picture_layout(self._seed, self._contract)
        if isinstance(layout, str):
            raise NeedsRead(str(path), layout, _picture_advice(self._seed))
        array = _pixels(path, layout.channels)
        height, width = array.shape[:2]
        if not (layout.height.admits(height) and layout.width.admits(width)):
            reason = f"a picture of {width}x{height}; input {layout.name} takes {layout.size_words}"
            raise NeedsRead(str(path), reason, _picture_advice(self._seed))
        return {layout.name: layout.placed(array)}

    def _sound(self, path: Path) -> dict[str, Array]:
        plan = sound_plan(self._seed)
        if isinstance(plan, str):
            raise NeedsRead(str(path), plan, _sound_advice(self._seed))
        rate, samples = _samples(path)
        if rate != plan.rate:
            reason = f"sampled at {rate} Hz; input {plan.rate_name} of the first seed says {plan.rate}"
            raise NeedsRead(str(path), reason, _sound_advice(self._seed))
        if samples.ndim != 1:
            raise NeedsRead(str(path), f"{samples.shape[1]} channels; one is wanted", _sound_advice(self._seed))
        dims = self._contract.input(plan.name).dims
        if not dims[-1].admits(len(samples)):
            reason = f"{len(samples)} samples; input {plan.name} takes {_size_words(dims[-1])}"
            raise NeedsRead(str(path), reason, _sound_advice(self._seed))
        shaped = samples.reshape((1,) * (len(dims) - 1) + (-1,))
        return {plan.name: shaped, plan.rate_name: self._seed.inputs[plan.rate_name]}


@dataclass(frozen=True, slots=True)
class PictureLayout:
    """Say how a picture becomes an input: where its channels go, how its values are scaled."""

    name: str
    dtype: np.dtype[Any]
    has_batch: bool
    channels_first: bool
    channels: int
    scale: float
    height: Dim
    width: Dim

    @property
    def size_words(self) -> str:
        """Return the size that the contract wants, width first."""
        return (
            f"{_size_words(self.width)} x {_size_words(self.height)} (width x height), and nothing is resized unasked"
        )

    def placed(self, pixels: Array) -> Array:
        """Return uint8 pixels [height, width, channels] as the input."""
        array = pixels.transpose(2, 0, 1) if self.channels_first else pixels
        if self.scale != 1.0 or is_float(self.dtype):
            array = (array.astype(np.float32) * np.float32(self.scale)).astype(self.dtype)
        return np.ascontiguousarray(array[None] if self.has_batch else array)


def picture_layout(seed: Case, contract: Contract) -> PictureLayout | str:
    """Return how pictures fit a target, or in words why that is not plain."""
    if len(seed.inputs) != 1:
        return f"the target has {len(seed.inputs)} inputs, and a picture is one"
    (name, array), item = next(iter(seed.inputs.items())), contract.inputs[0]
    if array.ndim not in (3, 4):
        return f"input {name} has {array.ndim} dims; a picture has channels, height and width"
    if array.ndim == 4 and not item.dims[0].admits(1):
        return f"input {name} takes {_size_words(item.dims[0])} pictures at once, and a file is one"
    scale = picture_scale(array, item)
    if isinstance(scale, str):
        return scale
    first = array.ndim - 3
    places = [
        axis for axis in (first, array.ndim - 1) if array.shape[axis] in (1, 3) and not item.dims[axis].is_dynamic
    ]
    if len(places) != 1:
        what = "two axes" if places else "no axis"
        return f"input {name} has shape {list(array.shape)}: {what} could hold the channels"
    channels_first = places[0] == first
    height, width = (item.dims[axis] for axis in ((first + 1, first + 2) if channels_first else (first, first + 1)))
    return PictureLayout(
        name, array.dtype, array.ndim == 4, channels_first, array.shape[places[0]], scale, height, width
    )


def picture_scale(array: Array, item: InputContract) -> float | str:
    """Return the factor that takes 0..255 to the range of an input, or in words why that is not plain."""
    if array.dtype == np.uint8:
        return 1.0
    name = item.name
    if not is_float(array.dtype):
        return f"input {name} is {array.dtype.name}; pictures are uint8 or floating point"
    if (item.low, item.high) in ((0, 1), (0, 255)):
        return 1 / 255 if item.high == 1 else 1.0
    wide = array.astype(np.float32)
    if array.size == 0 or not np.isfinite(wide).all():
        return f"the first seed of {name} is empty or not finite, so its range is unknown"
    low, high = float(wide.min()), float(wide.max())
    told = f"the first seed of {name} spans {low:.3g}..{high:.3g}"
    if low < 0:
        return f"{told}: pixels normalized by a mean and a deviation that only you know"
    if high <= 1 and high > low:
        return 1 / 255
    if _REACHES_255 <= high <= 255:
        return 1.0
    return f"{told}: neither 0..1 nor 0..255"


@dataclass(frozen=True, slots=True)
class SoundPlan:
    """Say which input takes the samples, and which one names their rate."""

    name: str
    rate_name: str
    rate: int


def sound_plan(seed: Case) -> SoundPlan | str:
    """Return how sounds fit a target, or in words why that is not plain."""
    rates = [
        name
        for name, array in seed.inputs.items()
        if name.rpartition(".")[2].lower() in _RATE_NAMES and array.size == 1 and array.dtype.kind in "iu"
    ]
    others = [name for name in seed.inputs if name not in rates]
    if len(others) != 1:
        return f"the target has inputs {', '.join(seed.inputs)}, and a sound is one"
    name, array = others[0], seed.inputs[others[0]]
    if not is_float(array.dtype) or array.ndim not in (1, 2):
        return f"input {name} is {array.dtype.name} with {array.ndim} dims; samples are floats of 1 or 2 dims"
    if len(rates) != 1:
        return f"no input says at which rate {name} is sampled, and a file may have any"
    wide = array.astype(np.float32)
    if array.size == 0 or not np.isfinite(wide).all() or not -1 <= wide.min() < 0 < wide.max() <= 1:
        return f"the first seed of {name} shows no samples within -1..1 on both sides of zero"
    return SoundPlan(name, rates[0], int(seed.inputs[rates[0]].reshape(-1)[0]))


def _pixels(path: Path, channels: int) -> Array:
    """Return the first frame of a picture as uint8 [height, width, channels]."""
    image_module = _library("PIL.Image", "pillow", path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd metadata; size is bounded below
            with image_module.open(path) as image:
                if image.width * image.height > MOST_PIXELS:
                    raise InvalidCase(
                        f"{path} has {image.width}x{image.height} pixels; at most {MOST_PIXELS:,} are read: "
                        "make it smaller, or read it by the target's read"
                    )
                if image.mode in ("I", "F") or image.mode.startswith("I;16"):
                    raise InvalidCase(
                        f"{path} has more than 8 bits a channel; the target's read says how to scale them"
                    )
                array = np.asarray(image.convert("RGB" if channels == 3 else "L"))
    except InvalidCase:
        raise
    except Exception as error:
        raise InvalidCase(f"{path} could not be read as a picture ({type(error).__name__}: {error!s:.200})") from None
    return array if array.ndim == 3 else array[:, :, None]


def _samples(path: Path) -> tuple[int, Array]:
    """Return rate and samples of a sound as float32 in -1..1: [samples], or [samples, channels]."""
    wavfile = _library("scipy.io.wavfile", "scipy", path)
    if path.stat().st_size > MOST_SOUND_BYTES:
        raise InvalidCase(
            f"{path} is larger than {MOST_SOUND_BYTES >> 20} MiB: split it, or read it by the target's read"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # chunks that scipy does not know
            rate, array = wavfile.read(path)
    except Exception as error:
        raise InvalidCase(f"{path} could not be read as a sound ({type(error).__name__}: {error!s:.200})") from None
    if array.dtype == np.uint8:
        return rate, ((array.astype(np.float32) - 128) / 128).astype(np.float32)
    if array.dtype.kind == "i":
        return rate, (array.astype(np.float64) / float(1 << (8 * array.dtype.itemsize - 1))).astype(np.float32)
    return rate, array.astype(np.float32)


def _library(module: str, package: str, path: Path) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise InvalidCase(f"{path} needs {package} to be read: pip install 'fuzzparity[data]'") from None


def _size_words(dim: Dim) -> str:
    if not dim.is_dynamic:
        return str(dim.size)
    high = "any" if dim.high is None else str(dim.high)
    return f"{dim.low}..{high}" + (f" by {dim.multiple_of}" if dim.multiple_of > 1 else "")


def _picture_advice(seed: Case) -> str:
    """Return the `read` to paste, after the shape of the first seed."""
    name, array = max(seed.inputs.items(), key=lambda item: item[1].ndim)
    shape = array.shape
    is_last = len(shape) >= 3 and shape[-1] in (1, 3) and shape[-3] not in (1, 3)
    height, width = (shape[-3:-1] if is_last else shape[-2:]) if len(shape) >= 3 else (224, 224)
    grey = len(shape) >= 3 and shape[-1 if is_last else -3] == 1
    mean, deviation = ("0.5", "0.5") if grey else ("[0.485, 0.456, 0.406]", "[0.229, 0.224, 0.225]")
    is_normalized = bool(array.size) and is_float(array.dtype) and float(array.astype(np.float32).min()) < 0
    turned = "pixels" if is_last else "pixels.transpose(2, 0, 1)"
    turned = f"{turned}[None]" if len(shape) == 4 else turned
    lines = [
        "give the target a read that does what your own loading does, for instance",
        "      import numpy as np",
        "      from PIL import Image",
        "",
        *([f"      MEAN, STD = {mean}, {deviation}  # those of your training", ""] if is_normalized else []),
        "      def read(path):",
        "          with Image.open(path) as file:",
        f'              image = file.convert("{"L" if grey else "RGB"}").resize(({width}, {height}))',
        f"          pixels = np.asarray(image, np.float32).reshape({height}, {width}, {1 if grey else 3}) / 255",
        *(["          pixels = (pixels - np.float32(MEAN)) / np.float32(STD)"] if is_normalized else []),
        f'          return {{"{name}": {turned}}}',
        "",
        "      Target(..., read=read)",
    ]
    return "\n".join(lines)


def _sound_advice(seed: Case) -> str:
    name, array = max(seed.inputs.items(), key=lambda item: item[1].size)
    lines = [
        "give the target a read that does what your own loading does, for instance",
        "      import numpy as np",
        "      from scipy.io import wavfile",
        "",
        "      def read(path):",
        "          rate, samples = wavfile.read(path)  # resample, mix down and cut as in training",
        "          samples = samples.astype(np.float32) / 32768",
        f'          return {{"{name}": samples{"[None]" if array.ndim == 2 else ""}}}'
        + ("" if len(seed.inputs) == 1 else "  # and the other inputs"),
        "",
        "      Target(..., read=read)",
    ]
    return "\n".join(lines)
