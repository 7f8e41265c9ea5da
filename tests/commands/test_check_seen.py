"""`check` tells what the seeds show of values and of inputs together, as text and as JSON, and nothing of noise."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SOURCE = """
import torch
from fuzzparity import Target


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(50, 8)

    def forward(self, ids, mask, noise):
        return (self.table(ids) * mask[..., None]).sum(1) + noise


def inputs(kept):
    ids = torch.randint(3, 50, (3, 12))
    ids[torch.arange(12) >= torch.tensor(kept)[:, None]] = 0
    return {"ids": ids, "mask": (ids != 0).float(), "noise": torch.randn(3, 8)}


def target():
    torch.manual_seed(0)
    dims = {"ids": {0: "b", 1: "t"}, "mask": {0: "b", 1: "t"}, "noise": {0: "b"}}
    first = inputs([9, 12, 4])
    return Target(module=Net(), inputs=first, dynamic_shapes=dims, seeds=lambda: [inputs([7, 2, 12])])
"""


def test_padding_and_links_are_told_with_reason_and_remedy(tmp_path: Path) -> None:
    (tmp_path / "target.py").write_text(SOURCE)
    command = [sys.executable, "-m", "fuzzparity", "check", "target.py", "--json", "check.json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = json.loads((tmp_path / "check.json").read_text())["contract"]["understood"]
    told = {(line["subject"], line["says"]): line for line in lines}
    padding = told["ids padding", "0 at the end of rows along dim 1, 0..10 places"]
    assert padding["reason"].startswith("seeds (2): in 4 of 6 rows, and nowhere else in them")
    assert padding["change"]
    assert told["mask and ids", "mask has the shape of ids"]["source"] == "graph"
    assert told["mask and ids", "mask is 0 where ids is padded, and nowhere else"]["source"] == "seeds"
    kinds = ("channels", "zeros", "ties", "padding")
    assert not [subject for subject, _ in told if subject in {f"noise {kind}" for kind in kinds}]
    assert "ids padding" in done.stdout
