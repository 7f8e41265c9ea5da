"""O-Net, the last network of MTCNN, with its published weights: is this crop a face, where, and with which landmarks.

The definition is written from the paper (Zhang, Zhang, Li and Qiao, "Joint Face Detection and Alignment Using Multitask
Cascaded Convolutional Networks", 2016); the names of its layers are those of the published weights, which want the
last feature map as [width, height, channels].
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

from fuzzparity import Target

FOLDER = Path(__file__).resolve().parent


class ONet(nn.Module):
    """Judge crops: image [n, 3, 48, 48] in -1..1 -> box [n, 4], landmarks [n, 10], face [n, 2]."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.prelu1 = nn.Conv2d(3, 32, 3), nn.PReLU(32)
        self.conv2, self.prelu2 = nn.Conv2d(32, 64, 3), nn.PReLU(64)
        self.conv3, self.prelu3 = nn.Conv2d(64, 64, 3), nn.PReLU(64)
        self.conv4, self.prelu4 = nn.Conv2d(64, 128, 2), nn.PReLU(128)
        self.dense5, self.prelu5 = nn.Linear(1152, 256), nn.PReLU(256)
        self.dense6_1, self.dense6_2, self.dense6_3 = nn.Linear(256, 2), nn.Linear(256, 4), nn.Linear(256, 10)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the offsets of the box, five landmarks, and the probabilities of no face and of a face."""
        seen = F.max_pool2d(self.prelu1(self.conv1(image)), 3, 2, ceil_mode=True)
        seen = F.max_pool2d(self.prelu2(self.conv2(seen)), 3, 2, ceil_mode=True)
        seen = F.max_pool2d(self.prelu3(self.conv3(seen)), 2, 2, ceil_mode=True)
        seen = self.prelu4(self.conv4(seen)).permute(0, 3, 2, 1).flatten(1)
        seen = self.prelu5(self.dense5(seen))
        return self.dense6_2(seen), self.dense6_3(seen), self.dense6_1(seen).softmax(1)


def published(name: str) -> Path:
    """Return the path of a fetched file; raise FileNotFoundError with how to fetch it."""
    path = FOLDER / "files" / name
    if not path.is_file():
        raise FileNotFoundError(f"{name} is not there; fetch it with: scripts/fetch {FOLDER.name}")
    return path


def crops() -> Tensor:
    """Return the crops in seeds/ as the network wants them, [32, 3, 48, 48] in -1..1."""
    return (load_file(FOLDER / "seeds" / "crops.safetensors")["image"].float() - 127.5) / 128


def seeds() -> Iterator[dict[str, Tensor]]:
    """Yield the crops one by one, then in batches as MTCNN judges the candidates of a photo."""
    for rows in (1, 8):
        yield from ({"image": batch} for batch in crops().split(rows))


def target() -> Target:
    """Return the network, exported with a free batch."""
    net = ONet()
    net.load_state_dict(torch.load(published("onet.pt"), weights_only=True, map_location="cpu"))
    return Target(
        module=net.eval(),
        inputs={"image": crops()[:2]},
        outputs=["box", "landmarks", "face"],
        dynamic_shapes={"image": {0: "batch"}},
        seeds=seeds,
    )
