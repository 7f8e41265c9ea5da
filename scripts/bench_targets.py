"""Two targets to measure one worker's speed on: a conv net of about a million parameters, and a tiny MLP."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn

from fuzzparity import Target


class ConvNet(nn.Module):
    """Classify images: six convolutions, 1.1 million parameters, every answer within arithmetic on ORT."""

    def __init__(self) -> None:
        super().__init__()
        sizes = [3, 32, 64, 128, 256, 256]
        layers: list[nn.Module] = []
        for before, after in itertools.pairwise(sizes):
            layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
        self.body = nn.Sequential(*layers)
        self.head = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))

    def forward(self, image: Tensor) -> Tensor:
        """Return logits [n, 10] of images [n, 3, h, w]."""
        return self.head(self.body(image).mean(dim=(2, 3)))


def conv() -> Target:
    """Return the conv net with a free batch, height and width."""
    torch.manual_seed(0)
    net = ConvNet().eval()
    image = torch.rand(2, 3, 96, 64)
    return Target(
        module=net,
        inputs={"image": image},
        outputs=["logits"],
        dynamic_shapes={"image": {0: "batch", 2: "height", 3: "width"}},
    )


def mlp() -> Target:
    """Return a tiny MLP with a free batch: what is measured on it is the price of everything around the model."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).eval()
    return Target(module=net, inputs={"x": torch.randn(3, 16)}, outputs=["y"], dynamic_shapes={"x": {0: "batch"}})
