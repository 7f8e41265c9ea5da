"""A replay of an ordinary model pays for ONNX and ONNX Runtime only."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
from small_models import relu


def test_a_recorded_model_runs_without_torch(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(relu().SerializeToString())
    np.save(tmp_path / "x.npy", np.array([[-1.0, 0.0, 2.0]], np.float32))
    code = """
import sys
from pathlib import Path
import numpy as np
import fuzzparity.commands.replay_child
from fuzzparity.sides.recorded import run_recorded
from fuzzparity.target import Ort
folder = Path(sys.argv[1])
execution = run_recorded(folder / "model.onnx", {"x": np.load(folder / "x.npy")}, {"x": "x"}, Ort())
assert execution.outputs[0].tolist() == [[0.0, 0.0, 2.0]], execution
found = {"torch", "onnxscript"} & set(sys.modules)
assert not found, found
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
