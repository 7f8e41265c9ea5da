"""Train the digit reader on scikit-learn's digits and write weights.safetensors and seeds/digits.safetensors.

Run from anywhere: `python corpora/digits/train.py`. It needs scikit-learn (extra `test`) and under a minute on one CPU.
Seeds are drawn from the held-out part, so that the model has never seen what a campaign starts from.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from sklearn.datasets import load_digits
from target import FOLDER, DigitReader
from torch import Tensor

RNG_SEED = 0
HELD_OUT = 450  # of 1797 images
SEEDS = 256  # of the held-out images
EPOCHS = 40
BATCH = 64


def split_digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return train images, train labels, held-out images, held-out labels; pixels 0..16 become 0..1."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16.0
    labels = torch.tensor(digits.target, dtype=torch.int64)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(RNG_SEED))
    kept, held_out = order[HELD_OUT:], order[:HELD_OUT]
    return images[kept], labels[kept], images[held_out], labels[held_out]


def accuracy(reader: DigitReader, images: Tensor, labels: Tensor) -> float:
    """Return the share of images that are read right."""
    with torch.no_grad():
        return float((reader(images)[1] == labels).float().mean())


def train(images: Tensor, labels: Tensor) -> DigitReader:
    """Train a reader from scratch with Adam and a falling learning rate."""
    torch.manual_seed(RNG_SEED)
    reader = DigitReader()
    optimizer = torch.optim.Adam(reader.parameters(), lr=2e-3, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    for epoch in range(EPOCHS):
        losses = []
        for rows in torch.randperm(len(images)).split(BATCH):
            optimizer.zero_grad()
            loss = F.cross_entropy(reader(images[rows])[0], labels[rows])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        schedule.step()
        print(f"epoch {epoch + 1:2}: loss {sum(losses) / len(losses):.4f}", flush=True)
    return reader.eval()


def main() -> None:
    """Train, say how good it is on images it has not seen, and write both files."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    train_images, train_labels, images, labels = split_digits()
    reader = train(train_images, train_labels)
    print(f"train accuracy {accuracy(reader, train_images, train_labels):.4f} on {len(train_images)} images")
    print(f"held-out accuracy {accuracy(reader, images, labels):.4f} on {len(images)} images")
    save_file(
        {name: tensor.contiguous() for name, tensor in reader.state_dict().items()}, FOLDER / "weights.safetensors"
    )
    (FOLDER / "seeds").mkdir(exist_ok=True)
    save_file(
        {"image": images[:SEEDS].clone(), "label": labels[:SEEDS].clone()}, FOLDER / "seeds" / "digits.safetensors"
    )


if __name__ == "__main__":
    main()
