"""The trace of a case as a table, as JSON and as a picture."""

from __future__ import annotations

import io
import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from rich.console import Console

from fuzzparity.cli import main
from fuzzparity.explain.tracing import Range, Traced, TraceRow, compared, range_of
from fuzzparity.report.trace import interesting, trace_svg, trace_text
from fuzzparity.verdict import Attribution, Grade, Kind, Verdict

TARGET = """
import numpy as np
import torch
from onnx import TensorProto, helper, numpy_helper
from fuzzparity import Target


class Net(torch.nn.Module):
    def forward(self, x):
        shares = torch.softmax(torch.exp(x), 1)
        return torch.tanh(shares) * 2


def target():
    nodes = [
        helper.make_node("Exp", ["x"], ["a"], "exp"),
        helper.make_node("Softmax", ["a"], ["b"], "soft", axis=0),
        helper.make_node("Tanh", ["b"], ["c"], "tanh"),
        helper.make_node("Mul", ["c", "two"], ["y"], "twice"),
    ]
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])],
        [numpy_helper.from_array(np.array(2, np.float32), "two")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    same = np.ones((3, 3), np.float32)  # equal along both axes: the seed agrees
    return Target(module=Net(), inputs={"x": same}, onnx=model, dynamic_shapes={"x": {0: "n"}})
"""


def row(order: int, local: float, whole: float, **more: object) -> TraceRow:
    expected = np.ones(4, np.float32)
    return TraceRow(
        order,
        f"node_{order}",
        ("Mul",),
        f"value_{order}",
        local=compared(expected, expected + np.float32(local)),
        accumulated=compared(expected, expected + np.float32(whole)),
        torch_range=Range(1.0, 1.0),
        **more,  # type: ignore[arg-type]
    )


def traced_of(count: int, guilty: int) -> Traced:
    rows = [row(i, 0.5 if i == guilty else 0.0, 0.5 if i >= guilty else 0.0, source="<net>.py:7") for i in range(count)]
    place = Attribution("", op="Mul", onnx_node=f"node_{guilty}", place_how=f"born at node_{guilty}")
    return Traced(tuple(rows), Verdict(Kind.NUMERIC, Grade.BUG, "y", attribution=place, headline="y differs"))


def text_of(traced: Traced, *, is_whole: bool = False) -> str:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(trace_text(traced, "case.npz", is_whole=is_whole))
    return console.export_text()


def test_a_long_trace_shows_the_rows_that_matter_and_all_on_demand():
    traced = traced_of(300, 140)
    shown = interesting(traced)
    assert len(shown) < 50
    assert [r.order for r in shown] == sorted(r.order for r in shown)
    assert 140 in [r.order for r in shown]
    assert traced.first is not None
    assert traced.first.order == 140
    assert "born at node_140" in text_of(traced)
    assert "node_71 " not in text_of(traced)
    assert "node_71 " in text_of(traced, is_whole=True)


def test_the_picture_is_escaped_svg_with_the_place_marked():
    picture = trace_svg(traced_of(30, 12), "<script>alert(1)</script>")
    root = ElementTree.fromstring(picture)
    assert "<script" not in picture
    assert [e.get("class") for e in root.iter() if e.get("class") == "born"] == ["born"]
    assert "<net>.py:7" in "".join(root.itertext())


def test_values_without_a_size_are_drawn_and_told():
    nothing = compared(np.zeros(2, np.float32), np.zeros(3, np.float32))
    traced = Traced((TraceRow(0, "n", ("Shape",), "v", accumulated=nothing), row(1, 0.0, float("nan"))))
    ElementTree.fromstring(trace_svg(traced, "odd"))
    assert "shape [2] / [3]" in text_of(traced)
    assert range_of(np.array([np.nan, 1, np.inf], np.float32)) == Range(1.0, 1.0, 2)


def test_trace_of_a_given_file_finds_the_wrong_node(tmp_path: Path, monkeypatch, capsys):
    (tmp_path / "net.py").write_text(TARGET)
    np.savez(tmp_path / "bad.npz", x=np.linspace(-1, 1, 6).reshape(2, 3).astype(np.float32))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main(["trace", "net.py", "bad.npz", "--plot", "trace.svg", "--json", "trace.json"])
    assert end.value.code == 0, capsys.readouterr()
    found = json.loads((tmp_path / "trace.json").read_text())
    assert (found["born"]["op"], found["born"]["source"]) == ("Softmax", "net.py:10")
    assert found["paired_by"] == "value"
    assert [r["onnx_node"] for r in found["rows"]] == ["exp", "soft", "tanh", "twice"]
    assert found["rows"][0]["accumulated"]["error_ratio"] < 1
    ElementTree.fromstring((tmp_path / "trace.svg").read_text())
