"""The reader of corpora/digits, quantized by ONNX Runtime's own tool: sound as it comes, and with faults planted."""

from __future__ import annotations

import runpy
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_dynamic, quantize_static

from fuzzparity.oracle.compare import Allowance, compare
from fuzzparity.oracle.quality import calibrated, compare_quality
from fuzzparity.sides.coarser import coarser_kind
from fuzzparity.verdict import Kind

pytestmark = pytest.mark.slow
DIGITS = Path(__file__).parents[2] / "corpora" / "digits" / "target.py"
STRICT = Allowance(1.3e-6, 1e-5)


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Export the reader and quantize it in two ways; return (module, images, folder)."""
    names = runpy.run_path(str(DIGITS))
    target = names["target"]()
    folder = tmp_path_factory.mktemp("digits")
    images = [item["image"] for item in names["seeds"]()][::6]
    batch, height, width = (torch.export.Dim(name) for name in ("batch", "height", "width"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            target.module,
            (target.inputs["image"],),
            dynamo=True,
            dynamic_shapes=({0: batch, 2: height, 3: width},),
            input_names=["image"],
            output_names=["logits", "label", "upper"],
            verbose=False,
        )
        program.save(folder / "float.onnx")
        quantize_dynamic(folder / "float.onnx", folder / "dynamic.onnx")
        reader = _Reader(iter({"image": image.numpy()} for image in images[::2]))
        quantize_static(
            folder / "float.onnx",
            folder / "static.onnx",
            reader,
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=["Conv", "Gemm"],
        )
    return target.module, images, folder


class _Reader(CalibrationDataReader):
    def __init__(self, items: Iterator[dict[str, np.ndarray]]) -> None:
        self._items = items

    def get_next(self) -> Any:
        return next(self._items, None)


def planted(model: Path, name: str, change: Callable[[np.ndarray], np.ndarray]) -> Path:
    """Write a copy of a model in which one initializer is another for whoever dequantizes by it."""
    loaded = onnx.load(model)
    (tensor,) = [item for item in loaded.graph.initializer if item.name == name]
    values = numpy_helper.to_array(tensor)
    loaded.graph.initializer.append(numpy_helper.from_array(change(values.copy()).astype(values.dtype), "planted"))
    for node in loaded.graph.node:
        if node.op_type == "DequantizeLinear":
            node.input[:] = ["planted" if item == name else item for item in node.input]
    path = model.with_name(f"planted-{name}.onnx")
    onnx.save(loaded, path)
    return path


def logits(digits: Any, model: Path) -> list[tuple[np.ndarray, np.ndarray]]:
    module, images, _ = digits
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    with torch.no_grad():
        return [(module(x)[0].numpy(), session.run(["logits"], {"image": x.numpy()})[0]) for x in images]


def kinds(pairs: list[tuple[np.ndarray, np.ndarray]], quality: Any) -> list[Kind]:
    return [compare_quality(e, a, quality, compare(e, a, STRICT)).kind for e, a in pairs]


@pytest.mark.parametrize("name", ["dynamic", "static"])
def test_a_sound_quantized_reader_is_known_as_one_and_agrees_on_every_seed(digits: Any, name: str) -> None:
    module, _, folder = digits
    assert coarser_kind(folder / f"{name}.onnx", "float32", module) == ("quantized", 8)
    assert coarser_kind(folder / "float.onnx", "float32", module) == ("", 0)
    pairs = logits(digits, folder / f"{name}.onnx")
    quality = calibrated("quantized", 8, pairs)
    assert quality.is_sound, quality.words
    assert set(kinds(pairs, quality)) == {Kind.AGREE}
    assert {compare(e, a, STRICT).kind for e, a in pairs} == {Kind.NUMERIC}


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("classify.weight_quantized", lambda w: np.where(np.arange(w.shape[0])[:, None] == 3, w // 2, w)),
        ("relu_1_scale", lambda scale: scale / 1.5),
        ("relu_2_zero_point", lambda zero: zero + 8),
    ],
    ids=["a channel's scale", "a tensor's scale", "zero point off"],
)
def test_a_planted_fault_is_beyond_what_eight_bits_explain(digits: Any, name: str, change: Any) -> None:
    pairs = logits(digits, planted(digits[2] / "static.onnx", name, change))
    quality = calibrated("quantized", 8, pairs)  # its own seeds show the fault, as a campaign's do
    assert not quality.is_sound, quality.words
    found = [compare_quality(e, a, quality, compare(e, a, STRICT)) for e, a in pairs]
    assert sum(one.kind is Kind.NUMERIC for one in found) > len(found) / 2
    assert all("dB" in one.detail for one in found if one.kind is Kind.NUMERIC)
