"""Campaigns on targets that say which differences count: padded positions do not, pixels may be half off."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from campaigns import Ended, fuzz, run, write_target

from fuzzparity.corpus.codec import decode

pytestmark = pytest.mark.slow

# self-attention over the positions that a mask lets through, as an ONNX file; torch leaves other values at the rest
PADDED = """
    import numpy as np
    import torch
    from onnx import TensorProto, helper, numpy_helper

    from fuzzparity import Size, Target


    def attention():
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", "s", 4])
        mask = helper.make_tensor_value_info("mask", TensorProto.INT64, ["b", "s"])
        y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["b", "s", 4])
        weights = [
            helper.make_tensor("one", TensorProto.FLOAT, [], [1.0]),
            helper.make_tensor("far", TensorProto.FLOAT, [], [-10000.0]),
            helper.make_tensor("axis", TensorProto.INT64, [1], [1]),
        ]
        nodes = [
            helper.make_node("Cast", ["mask"], ["m"], to=TensorProto.FLOAT),
            helper.make_node("Sub", ["one", "m"], ["left"]),
            helper.make_node("Mul", ["left", "far"], ["bias"]),
            helper.make_node("Unsqueeze", ["bias", "axis"], ["wide"]),
            helper.make_node("Transpose", ["x"], ["t"], perm=[0, 2, 1]),
            helper.make_node("MatMul", ["x", "t"], ["scores"]),
            helper.make_node("Add", ["scores", "wide"], ["masked"]),
            helper.make_node("Softmax", ["masked"], ["p"], axis=-1),
            helper.make_node("MatMul", ["p", "x"], ["y"]),
        ]
        graph = helper.make_graph(nodes, "attention", [x, mask], [y], weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


    class Net(torch.nn.Module):
        def forward(self, x, mask):
            bias = (1.0 - mask.float()) * -10000.0
            y = torch.softmax(x @ x.transpose(1, 2) + bias[:, None], -1) @ x
            y = self.planted(x, y)
            return torch.where(mask[..., None] > 0, y, torch.full_like(y, PADDING))

        def planted(self, x, y):
            return y


    def target():
        x = torch.linspace(-1, 1, 24).reshape(2, 3, 4)
        mask = torch.tensor([[1, 1, 1], [1, 1, 0]])
        return Target(
            module=Net(), inputs={"x": x, "mask": mask}, onnx=attention(), outputs=["y"],
            ranges={"x": (-4, 4), "mask": (0, 1)},
            dynamic_shapes={"x": {0: "b", 1: Size(1, 12, "s")}, "mask": {0: "b", 1: "s"}},
            compare_where=WHERE,
        )
"""
COUNTS = """
    PADDING = float("nan")
    WHERE = lambda inputs: {"y": inputs["mask"] > 0}
"""
FAULTY = """
    PADDING = 7.0
    WHERE = lambda inputs: {"y": inputs["mask"] > 0}


    def planted(self, x, y):
        return torch.where(x > 3.5, y + 0.25, y)


    Net.planted = planted
"""


def repro(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "repro.py"], cwd=path, capture_output=True, text=True, timeout=120, check=False
    )


def bugs(ended: Ended) -> list[dict[str, object]]:
    return [finding for finding in ended.findings if finding["grade"] == "bug"]


def test_padded_positions_do_not_count_and_without_the_mask_they_would(tmp_path: Path) -> None:
    write_target(tmp_path, PADDED, COUNTS)
    ended = fuzz(tmp_path, "--cases", 500, "--workers", 1)
    assert (ended.code, bugs(ended)) == (0, []), ended.stdout
    assert {finding["grade"] for finding in ended.findings} <= {"contract"}
    assert ended.answer["executions"] == 500
    write_target(tmp_path, PADDED, COUNTS, "WHERE = None", name="bare.py")
    bare = run(tmp_path, "check", "bare.py")
    assert bare.code == 1
    assert "torch nan" in bare.stdout


def test_a_fault_where_it_counts_is_found_and_its_reproducer_keeps_the_mask(tmp_path: Path) -> None:
    write_target(tmp_path, PADDED, FAULTY)
    ended = fuzz(tmp_path, "--cases", 400, "--workers", 1)
    assert ended.code == 1
    finding = next(f for f in bugs(ended) if f["kind"] == "numeric")
    folder = tmp_path / str(finding["path"])
    arrays = decode((folder / "expected.safetensors").read_bytes())
    assert list(arrays) == ["y", "where.y"]
    assert arrays["where.y"].dtype == np.bool_
    counts = np.broadcast_to(arrays["where.y"], arrays["y"].shape)
    assert counts[tuple(finding["where"]["index"])]  # type: ignore[index]
    assert (arrays["y"][~counts] == 0).all()
    shown = repro(folder)
    assert shown.returncode == 1, shown.stdout
    replayed = run(tmp_path, "replay", folder.name)
    assert replayed.code == 1, replayed.stdout
    # from the database alone, in another place
    exported = run(tmp_path, "corpus", "export", folder.name, "--crashes", "again")
    assert exported.code == 0, exported.stderr
    assert repro(tmp_path / "again" / folder.name).returncode == 1
    # nothing but what does not count differs: gone (repro.py holds the cut, and reads nothing of the folder)
    _spoil_padding(folder, arrays)
    assert run(tmp_path, "replay", folder.name).code == 0


def _spoil_padding(folder: Path, arrays: dict[str, np.ndarray]) -> None:
    """Record what ORT answers as torch's answer, but where it does not count: NaN."""
    import onnxruntime as ort

    from fuzzparity.corpus.codec import encode

    inputs = decode((folder / "inputs.safetensors").read_bytes())
    (y,) = ort.InferenceSession(str(folder / "model.onnx")).run(None, inputs)
    y[~np.broadcast_to(arrays["where.y"], y.shape)] = np.nan
    (folder / "expected.safetensors").write_bytes(encode({"y": y, "where.y": arrays["where.y"]}))


def test_a_wrong_compare_where_is_one_message(tmp_path: Path) -> None:
    write_target(tmp_path, PADDED, COUNTS, "WHERE = lambda inputs: {'y': np.ones(5, bool)}")
    ended = run(tmp_path, "check", "subject.py")
    assert ended.code == 2
    assert "compare_where() gave 'y' a mask of shape [5]; the output has [2, 3, 4]" in " ".join(ended.stderr.split())
    assert "Traceback" not in ended.stderr


BOXES = """
    import torch
    from onnx import TensorProto, helper

    from fuzzparity import Target, Tolerance


    class Net(torch.nn.Module):
        def forward(self, x):
            y = x * 2.0
            y = y + torch.where(x[..., :1] > 3, torch.tensor([OFF, OFF, OFF, OFF, SCORE]), torch.zeros(5))
            return y


    def target():
        x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 5]) for name in ("x", "boxes"))
        two = helper.make_tensor("two", TensorProto.FLOAT, [], [2.0])
        graph = helper.make_graph([helper.make_node("Mul", ["x", "two"], ["boxes"])], "g", [x], [y], [two])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        return Target(module=Net(), inputs={"x": torch.ones(2, 5)}, onnx=model, outputs=["boxes"],
                      ranges={"x": (-100, 100)}, tolerances={"boxes[..., :4]": Tolerance(atol=0.5)})
"""


def test_a_slice_has_the_users_tolerance_and_the_rest_the_screen(tmp_path: Path) -> None:
    write_target(tmp_path, BOXES, "OFF, SCORE = 0.4, 0.0")
    ended = fuzz(tmp_path, "--cases", 300, "--workers", 1)
    assert (ended.code, bugs(ended)) == (0, [])
    for number, (off, score, region) in enumerate(((0.75, 0.0, "boxes[..., :4]"), (0.25, 0.25, ""))):
        folder = tmp_path / str(number)
        write_target(folder, BOXES, f"OFF, SCORE = {off}, {score}")
        ended = fuzz(folder, "--cases", 300, "--workers", 1)
        assert ended.code == 1
        finding = next(f for f in bugs(ended) if f["kind"] == "numeric")
        place = folder / str(finding["path"])
        told = json.loads((place / "finding.json").read_text())
        assert told["finding"]["verdict"]["comparison"]["region"] == region
        assert told["regions"] == {"boxes[..., :4]": {"rtol": 0.0, "atol": 0.5, "unordered": None}}
        assert (finding["where"]["output"], finding["where"]["index"][-1] < 4) == ("boxes", bool(region))  # type: ignore[index]
        assert str(finding["headline"]).startswith(region or "boxes: ")
        assert repro(place).returncode == 1
        assert run(folder, "replay", place.name).code == 1
