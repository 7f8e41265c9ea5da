"""Refusals by both sides teach a campaign, one that is nearly all refusals says so, and `check` shows the contract."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from campaigns import fuzz, run, write_target

pytestmark = pytest.mark.slow

MODEL = """
    import torch
    from onnx import TensorProto, helper

    from fuzzparity import Size, Target


    def model(nodes, inputs, output, **constants):
        infos = [helper.make_tensor_value_info(n, kind, dims) for n, (kind, dims) in inputs.items()]
        end = helper.make_tensor_value_info("y", TensorProto.FLOAT, output)
        tensors = [
            helper.make_tensor(n, TensorProto.INT64 if isinstance(v[0], int) else TensorProto.FLOAT, d, v)
            for n, (d, v) in constants.items()
        ]
        graph = helper.make_graph([helper.make_node(*n, **a) for *n, a in nodes], "g", infos, [end], tensors)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
"""

# takes its first inputs and nothing else, on both sides: another value is an index out of its table
ONLY_THE_SEED = """
    class Net(torch.nn.Module):
        def forward(self, x):
            if x.shape != (2, 4) or bool((x != 0.5).any()):
                raise ValueError("only the first inputs are taken")
            return x * 2.0


    def target():
        nodes = [
            ("Sub", ["x", "half"], ["d"], {}), ("Reshape", ["d", "shape"], ["f"], {}), ("Abs", ["f"], ["a"], {}),
            ("ReduceMax", ["a"], ["m"], {"keepdims": 0}), ("Equal", ["m", "zero"], ["same"], {}),
            ("Not", ["same"], ["other"], {}), ("Cast", ["other"], ["i"], {"to": TensorProto.INT64}),
            ("Mul", ["i", "seven"], ["j"], {}), ("Gather", ["table", "j"], ["g"], {}),
            ("Mul", ["x", "two"], ["double"], {}), ("Add", ["double", "g"], ["y"], {}),
        ]
        onnx = model(
            nodes, {"x": (TensorProto.FLOAT, ["n", "w"])}, ["n", "w"], two=([], [2.0]), half=([], [0.5]),
            zero=([], [0.0]), shape=([2], [2, 4]), table=([1], [0.0]), seven=([], [7]),
        )
        return Target(module=Net(), inputs={"x": torch.full((2, 4), 0.5)}, onnx=onnx, outputs=["y"])
"""

# heights in fours, on both sides; ids look up a table
FOURS = """
    class Net(torch.nn.Module):
        def forward(self, image, ids):
            return image.reshape(image.shape[0], image.shape[1] // 4, 4).sum(2).sum(1) + ids.float() * 0.0


    def target():
        nodes = [
            ("Shape", ["image"], ["s"], {}), ("Gather", ["s", "first"], ["b"], {}),
            ("Gather", ["s", "second"], ["h"], {}),
            ("Div", ["h", "four"], ["q"], {}), ("Concat", ["b", "q", "four"], ["shape"], {"axis": 0}),
            ("Reshape", ["image", "shape"], ["r"], {}), ("ReduceSum", ["r", "axes"], ["sum"], {"keepdims": 0}),
            ("Gather", ["table", "ids"], ["e"], {}), ("Add", ["sum", "e"], ["y"], {}),
        ]
        onnx = model(
            nodes, {"image": (TensorProto.FLOAT, ["b", "h"]), "ids": (TensorProto.INT64, ["b"])}, ["b"],
            first=([1], [0]), second=([1], [1]), four=([1], [4]), axes=([2], [1, 2]), table=([30], [0.0] * 30),
        )
        image = torch.arange(16.0).reshape(2, 8) / 16
        return Target(
            module=Net(), inputs={"image": image, "ids": torch.ones(2, dtype=torch.int64)}, onnx=onnx, outputs=["y"],
            ranges={"image": (0, 1)}, dynamic_shapes={"image": {0: Size(1, 64)}},
        )
"""


def test_a_campaign_that_is_nearly_all_refusals_says_so_with_the_words_of_both_sides(tmp_path: Path) -> None:
    write_target(tmp_path, MODEL, ONLY_THE_SEED)
    ended = fuzz(tmp_path, "--cases", 400, "--workers", 1)
    assert ended.code == 4, ended.stdout
    answer = ended.answer
    assert answer["rejected"] >= 0.9 * answer["executions"]
    assert [f for f in ended.findings if f["grade"] == "bug"] == []
    (told,) = [note for note in answer["notes"] if note.startswith("nearly all inputs were refused by both sides")]
    assert "torch refused" in told
    assert "ValueError: only the first inputs are taken" in told
    assert "indices element out of data bounds" in told
    assert "nearly all inputs were refused" in ended.stdout


def test_multiples_are_learned_told_and_pasted_back(tmp_path: Path) -> None:
    write_target(tmp_path, MODEL, FOURS)
    ended = fuzz(tmp_path, "--cases", 400, "--workers", 1)
    assert ended.code == 0
    answer = ended.answer
    assert answer["rejected"] < 0.25 * answer["executions"], "most of the sizes that it tries are taken"
    (learned,) = [note for note in answer["notes"] if "learned" in note]
    assert learned.startswith("image dim 1: a multiple of 4; learned: sizes such as ")
    change = "dynamic_shapes={'image': {1: Size(0, multiple_of=4)}}"
    assert learned.endswith(f"declare it by {change}")

    checked = run(tmp_path, "check", "subject.py", "--json", "check.json")
    assert checked.code == 0
    lines = json.loads((tmp_path / "check.json").read_text())["contract"]["understood"]
    by_subject = {f"{line['subject']}: {line['says']}": line for line in lines}
    assert by_subject["image dim 0: 1..64"]["reason"] == "declared by you"
    assert by_subject["image values: 0..1"]["change"] == "ranges={'image': (0, 1)}"
    assert by_subject["ids values: 0..29"]["reason"] == "graph: Gather over an axis of length 30"
    assert by_subject["image dim 0: equal to ids dim 0"]["reason"] == "graph: one symbol, 'b'"
    multiple = by_subject["image dim 1: a multiple of 4"]
    assert (multiple["source"], multiple["change"]) == ("learned", change)
    assert "invalid for input of size" in multiple["reason"], "torch's own words"
    assert "a multiple of 4" in checked.stdout

    text = (tmp_path / "subject.py").read_text()
    (tmp_path / "subject.py").write_text(text.replace('dynamic_shapes={"image": {0: Size(1, 64)}}', change))
    again = run(tmp_path, "check", "subject.py", "--json", "check.json")
    assert again.code == 0
    lines = json.loads((tmp_path / "check.json").read_text())["contract"]["understood"]
    assert [line for line in lines if line["source"] == "learned"] == []
    assert {"declared by you"} == {line["reason"] for line in lines if line["subject"] == "image dim 1"}
