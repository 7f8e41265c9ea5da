"""P-Net, the first network of MTCNN, with its published weights: where in a photo of any size a face may be.

The definition is written from the paper (Zhang, Zhang, Li and Qiao, "Joint Face Detection and Alignment Using Multitask
Cascaded Convolutional Networks", 2016); the names of its layers are those of the published weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fuzzparity import Size, Target

FOLDER = Path(__file__).resolve().parent
SMALLEST = 12  # pixels: the patch that one answer sees
STEP = 0.709  # from one image of the pyramid to the next, after the paper


class PNet(nn.Module):
    """Judge every patch: image [n, 3, height, width] in -1..1 -> boxes [n, 4, rows, columns], faces [n, 2, ...]."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.prelu1 = nn.Conv2d(3, 10, 3), nn.PReLU(10)
        self.conv2, self.prelu2 = nn.Conv2d(10, 16, 3), nn.PReLU(16)
        self.conv3, self.prelu3 = nn.Conv2d(16, 32, 3), nn.PReLU(32)
        self.conv4_1, self.conv4_2 = nn.Conv2d(32, 2, 1), nn.Conv2d(32, 4, 1)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Return the offsets of the boxes, and the probabilities of no face and of a face."""
        seen = F.max_pool2d(self.prelu1(self.conv1(image)), 2, 2, ceil_mode=True)
        seen = self.prelu3(self.conv3(self.prelu2(self.conv2(seen))))
        return self.conv4_2(seen), self.conv4_1(seen).softmax(1)


def published(name: str) -> Path:
    """Return the path of a fetched file; raise FileNotFoundError with how to fetch it."""
    path = FOLDER / "files" / name
    if not path.is_file():
        raise FileNotFoundError(f"{name} is not there; fetch it with: scripts/fetch {FOLDER.name}")
    return path


def read(path: str) -> dict[str, Tensor]:
    """Return a photo as the network wants it, image [1, 3, height, width] in -1..1."""
    from PIL import Image  # of the extra "corpora"; the network itself needs none

    with Image.open(path) as photo:
        pixels = np.array(photo.convert("RGB"))
    return {"image": (torch.from_numpy(pixels).permute(2, 0, 1)[None].float() - 127.5) / 128}


def photos() -> list[Tensor]:
    """Return the photos in seeds/."""
    return [read(str(path))["image"] for path in sorted((FOLDER / "seeds").glob("*.jpg"))]


def seeds() -> Iterator[dict[str, Tensor]]:
    """Yield every photo with its pyramid, as MTCNN makes it, and pairs of photos of one size."""
    for photo in photos():
        scale = 1.0
        while scale * min(photo.shape[2:]) >= SMALLEST:
            size = [int(side * scale + 1) for side in photo.shape[2:]]
            yield {"image": F.interpolate(photo, size, mode="area")}
            scale *= STEP
    small = [F.interpolate(photo, (24, 32), mode="area") for photo in photos()]
    yield from ({"image": torch.cat(pair)} for pair in zip(small[::2], small[1::2], strict=True))


def target() -> Target:
    """Return the network, exported with a free batch, height and width."""
    net = PNet()
    net.load_state_dict(torch.load(published("pnet.pt"), weights_only=True, map_location="cpu"))
    return Target(
        module=net.eval(),
        inputs={"image": F.interpolate(torch.cat(photos()[:1] * 2), (40, 56), mode="area")},
        outputs=["boxes", "faces"],
        dynamic_shapes={
            "image": {0: "batch", 2: Size(SMALLEST, None, name="height"), 3: Size(SMALLEST, None, name="width")}
        },
        seeds=seeds,
        read=read,
    )
