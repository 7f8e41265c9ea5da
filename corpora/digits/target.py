"""A small reader of handwritten digits: a convolutional body, an attention head, and images of any size.

The code is the kind that people write: large scans are halved first, blank patches are masked out of the attention,
and the ink of the upper half is returned besides the label. On 8x8 digits its ONNX twin gives the same answers.
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
CHANNELS, HEADS = 32, 4
INK = 0.25  # a patch counts as written on when its darkest pixel is darker than this; 0 is paper, 1 is ink
LARGE = 16  # scans wider than this are halved


class DigitReader(nn.Module):
    """Read one digit per image: [n, 1, height, width] -> logits [n, 10], label [n], upper [n, ceil(height / 2)]."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, CHANNELS, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1),
            nn.ReLU(),
        )
        self.query = nn.Parameter(torch.randn(1, HEADS, 1, CHANNELS // HEADS))
        self.key = nn.Linear(CHANNELS, CHANNELS)
        self.value = nn.Linear(CHANNELS, CHANNELS)
        self.classify = nn.Linear(CHANNELS, 10)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return logits, label, and the ink of each row in the upper half (the middle row included)."""
        upper = image[:, 0, : -(-image.shape[2] // 2)].mean(dim=-1)
        if image.shape[3] > LARGE:
            image = F.avg_pool2d(image, 2)
        patches = self.body(image).flatten(2).transpose(1, 2)
        is_written = F.max_pool2d(image, 3, stride=2, padding=1).flatten(2) > INK
        seen = F.scaled_dot_product_attention(
            self.query.expand(image.shape[0], -1, -1, -1),
            split_heads(self.key(patches)),
            split_heads(self.value(patches)),
            attn_mask=is_written.unsqueeze(1),
        )
        logits = self.classify(seen.flatten(1))
        return logits, logits.argmax(dim=1), upper


def split_heads(patches: Tensor) -> Tensor:
    """Turn [n, patches, channels] into [n, heads, patches, channels of a head]."""
    return patches.unflatten(2, (HEADS, -1)).transpose(1, 2)


def real_digits() -> dict[str, Tensor]:
    """Return the held-out digits that stand in seeds/: image [n, 1, 8, 8] in 0..1, label [n]."""
    return load_file(FOLDER / "seeds" / "digits.safetensors")


def seeds() -> Iterator[dict[str, Tensor]]:
    """Yield the real digits: one by one, then in batches as validation would."""
    digits = real_digits()
    for rows in (1, 32):
        for image, label in zip(digits["image"].split(rows), digits["label"].split(rows), strict=True):
            yield {"image": image, "label": label}


def target() -> Target:
    """Return the trained reader, exported with a free batch, height and width."""
    reader = DigitReader()
    reader.load_state_dict(load_file(FOLDER / "weights.safetensors"))
    return Target(
        module=reader.eval(),
        inputs={"image": real_digits()["image"][:3]},
        outputs=["logits", "label", "upper"],
        dynamic_shapes={"image": {0: "batch", 2: "height", 3: "width"}},
        seeds=seeds,
    )
