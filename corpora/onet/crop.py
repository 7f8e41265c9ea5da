"""Cut the crops in seeds/ out of the photos in ../pnet/seeds, where P-Net sees a face or something like one.

`python corpora/onet/crop.py` writes seeds/crops.safetensors again; it needs what corpora/pnet needs.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

FOLDER = Path(__file__).resolve().parent
PER_PHOTO = {"astronaut.jpg": 8, "astronaut_face.jpg": 8}
OTHERWISE = 4
STRIDE, PATCH = 2, 12  # pixels between two answers of P-Net, and of the patch that one of them sees


def p_net() -> Any:
    """Return the module of corpora/pnet/target.py."""
    spec = importlib.util.spec_from_file_location("pnet_target", FOLDER.parent / "pnet" / "target.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def best(photo: Tensor, pnet: Any, net: torch.nn.Module, wanted: int) -> list[Tensor]:
    """Return the crops [3, 48, 48] of one photo that P-Net takes for faces with the most confidence, one per place."""
    found: list[tuple[float, Tensor]] = []
    scale = 0.5
    while scale * min(photo.shape[2:]) >= PATCH:
        small = F.interpolate(photo, [int(side * scale + 1) for side in photo.shape[2:]], mode="area")
        with torch.no_grad():
            faces = net(small)[1][0, 1]
        peaks = F.max_pool2d(faces[None], 5, 1, 2)[0] == faces
        for row, column in peaks.nonzero().tolist():
            top, left, side = (int(place / scale) for place in (row * STRIDE, column * STRIDE, PATCH))
            patch = photo[:, :, top : top + side, left : left + side]
            if min(patch.shape[2:]) > 8:
                found.append((float(faces[row, column]), F.interpolate(patch, (48, 48), mode="area")[0]))
        scale *= pnet.STEP
    return [crop for _, crop in sorted(found, key=lambda one: -one[0])[:wanted]]


def main() -> None:
    """Write the crops."""
    pnet = p_net()
    net = pnet.PNet().eval()
    net.load_state_dict(torch.load(pnet.published("pnet.pt"), weights_only=True))
    crops: list[Tensor] = []
    for path in sorted((FOLDER.parent / "pnet" / "seeds").glob("*.jpg")):
        crops += best(pnet.read(str(path))["image"], pnet, net, PER_PHOTO.get(path.name, OTHERWISE))
    (FOLDER / "seeds").mkdir(exist_ok=True)
    pixels = (torch.stack(crops) * 128 + 127.5).round().clamp(0, 255).to(torch.uint8)
    save_file({"image": pixels}, FOLDER / "seeds" / "crops.safetensors")
    print(f"{len(pixels)} crops")


if __name__ == "__main__":
    main()
