"""Targets that each do one awkward thing which real targets do; every twin is right, so nothing may be called a bug.

The nets are arithmetic that both engines carry out alike for every value, NaN and infinity included. Where a twin is
given, no exporter runs. `fuzzparity fuzz tests/corpora/awkward.py:NAME` runs one by hand.
"""

from __future__ import annotations

import tempfile
from collections import namedtuple
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import torch
from torch import Tensor, nn

from fuzzparity import Export, Ort, Size, Target, Tolerance

N, W = Size(1, None, name="n"), Size(1, None, name="w")
ROWS = {0: N, 1: W}  # a matrix [n, w] without empty dims


def x(*shape: int) -> Tensor:
    """Return numbers that no two tests share by accident, in -1..1."""
    return torch.linspace(-1, 1, int(np.prod(shape or (1,)))).reshape(shape or ()) * 0.9


def written(graph: str, opset: int = 18) -> onnx.ModelProto:
    """Return a given twin, written in ONNX's own text form."""
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : {opset}]>\n{graph}')
    onnx.checker.check_model(model)
    return model


DOUBLING = "g (float[n, w] x) => (float[n, w] y) { y = Add(x, x) }"


class Doubling(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + x


# ---- what goes in


class NestedInputs(nn.Module):
    def forward(self, tree: Mapping[str, Any], last: Tensor) -> Tensor:
        first, (second,) = tree["pair"]
        return tree["head"] * 2 + first - second + last


def nested_inputs() -> Target:
    dims = {0: N}
    return Target(
        module=NestedInputs(),
        inputs={"tree": {"head": x(3, 4), "pair": (x(3, 4) + 1, [x(3, 4) * 2])}, "last": x(3, 4)},
        dynamic_shapes={"tree": {"head": dims, "pair": (dims, [dims])}, "last": dims},
        outputs=["sum"],
    )


class KeywordOnly(nn.Module):
    def forward(self, x: Tensor, *, scale: Tensor, offset: Tensor) -> Tensor:
        return x * scale + offset


def keyword_only() -> Target:
    return Target(
        module=KeywordOnly(),
        inputs={"x": x(2, 3)},
        kwargs={"offset": x(3), "scale": x(3) + 2},  # in another order than forward's
        dynamic_shapes={"x": {0: N}, "offset": {}, "scale": {}},
    )


class OptionalInput(nn.Module):
    def forward(self, x: Tensor, mask: Tensor | None = None, bias: Tensor | None = None, mode: str = "none") -> Tensor:
        y = x if mask is None else x * mask
        y = y if bias is None else y + bias
        return y * 2 if mode == "double" else y


def optional_none() -> Target:
    return Target(
        module=OptionalInput(),
        inputs={"x": x(2, 3), "mask": None, "bias": x(3)},
        kwargs={"mode": "double"},
        dynamic_shapes={"x": {0: N}, "mask": None, "bias": {}, "mode": None},
        outputs=["y"],
    )


class Scalar(nn.Module):
    def forward(self, x: Tensor, factor: Tensor) -> tuple[Tensor, Tensor]:
        return x * factor, factor + 1


def scalar_input() -> Target:
    return Target(
        module=Scalar(),
        inputs={"x": x(2, 3), "factor": torch.tensor(0.5)},
        dynamic_shapes={"x": ROWS, "factor": {}},
        outputs=["scaled", "next"],
    )


class SmallKinds(nn.Module):
    def forward(self, keep: Tensor, pixel: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
        return torch.where(keep, pixel.float() / 255, 0.0), step + pixel.int()


def small_kinds() -> Target:
    """Bool, uint8 and int32."""
    return Target(
        module=SmallKinds(),
        inputs={
            "keep": torch.tensor([[True, False, True]]),
            "pixel": torch.tensor([[0, 128, 255]], dtype=torch.uint8),
            "step": torch.tensor([[1, -2, 3]], dtype=torch.int32),
        },
        dynamic_shapes=(ROWS, ROWS, ROWS),
        ranges={"step": (-1000, 1000)},
    )


class DropsInput(nn.Module):
    def forward(self, x: Tensor, unused: Tensor, y: Tensor) -> Tensor:
        return x + y


def dropped_by_export() -> Target:
    return Target(
        module=DropsInput(),
        inputs={"x": x(2, 3), "unused": x(4), "y": x(2, 3)},
        dynamic_shapes={"x": {0: N}, "unused": {}, "y": {0: N}},
        export=Export(exporter="torchscript"),
    )


def fewer_onnx_inputs() -> Target:
    return Target(
        module=DropsInput(),
        inputs={"x": x(2, 3), "unused": x(2), "y": x(2, 3)},
        onnx=written("g (float[n, w] x, float[n, w] y) => (float[n, w] z) { z = Add(x, y) }"),
    )


class Difference(nn.Module):
    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return left - right


def renamed_by_onnx() -> Target:
    return Target(
        module=Difference(),
        inputs={"left": x(2, 3), "right": x(2, 3) + 1},
        dynamic_shapes={"left": ROWS, "right": ROWS},
        onnx=written(
            'g (float[n, w] "input.1", float[n, w] "input.7") => (float[n, w] out) { out = Sub("input.1", "input.7") }'
        ),
    )


class Lookup(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 4)
        self.table.weight.data = x(10, 4)

    def forward(self, ids: Tensor) -> Tensor:
        return self.table(ids)


def ranged() -> Target:
    return Target(
        module=Lookup(),
        inputs={"ids": torch.arange(6).reshape(2, 3)},
        dynamic_shapes={"ids": ROWS},
        ranges={"ids": (0, 9)},
    )


class FirstOnes(nn.Module):
    def forward(self, x: Tensor, length: Tensor) -> Tensor:
        assert int(length.max()) <= x.shape[1], "longer than the row"
        return torch.where(torch.arange(x.shape[1])[None] < length[:, None], x, 0.0)


def valid_only() -> Target:
    return Target(
        module=FirstOnes(),
        inputs={"x": x(2, 4), "length": torch.tensor([4, 2])},
        dynamic_shapes={"x": ROWS, "length": {0: N}},
        valid=lambda inputs: bool((inputs["length"] >= 0).all() and inputs["length"].max() <= inputs["x"].shape[1]),
        onnx=written(
            """g (float[n, w] x, int64[n] length) => (float[n, w] y) {
                zero = Constant<value_int=0>() one = Constant<value_int=1>() nothing = Constant<value_float=0.0>()
                axis = Constant<value_ints=[1]>()
                sizes = Shape(x) width = Gather(sizes, one)
                places = Range(zero, width, one)
                bound = Unsqueeze(length, axis)
                keep = Less(places, bound)
                y = Where(keep, x, nothing)
            }"""
        ),
    )


class TwoWays(nn.Module):
    def forward(self, x: Tensor, way: Tensor) -> Tensor:
        return x + x if int(way) == 1 else x - 1


def opaque_input() -> Target:
    """Both values of `way` stand in the seeds; any other is none of the search's business."""
    return Target(
        module=TwoWays(),
        inputs={"x": x(2, 3), "way": torch.tensor(1)},
        dynamic_shapes={"x": ROWS, "way": {}},
        opaque_inputs=["way"],
        seeds=lambda: ({"x": x(rows, 3), "way": torch.tensor(way)} for rows in (1, 2) for way in (1, 2)),
        onnx=written(
            """g (float[n, w] x, int64 way) => (float[n, w] y) {
                one = Constant<value_int=1>() is_one = Equal(way, one)
                y = If(is_one) <
                    then_branch = then () => (float[n, w] a) { a = Add(x, x) },
                    else_branch = otherwise () => (float[n, w] b) { c = Constant<value_float=1.0>() b = Sub(x, c) }
                >
            }"""
        ),
    )


# ---- what comes out


class DictOutputs(nn.Module):
    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"total": x.sum(1), "double": x * 2}


def dict_outputs() -> Target:
    return Target(module=DictOutputs(), inputs={"x": x(2, 3)}, dynamic_shapes={"x": ROWS})


@dataclass
class Answer:
    double: Tensor
    half: Tensor | None = None
    quarter: Tensor | None = None


class DataclassOutputs(nn.Module):
    def forward(self, x: Tensor) -> Answer:
        return Answer(x * 2, quarter=x / 4)


def dataclass_outputs() -> Target:
    """A field is None."""
    torch.export.register_dataclass(Answer, serialized_type_name="awkward.Answer")
    return Target(module=DataclassOutputs(), inputs={"x": x(2, 3)}, dynamic_shapes={"x": ROWS})


Pair = namedtuple("Pair", ["low", "high"])


class NamedTupleOutputs(nn.Module):
    def forward(self, x: Tensor) -> Pair:
        return Pair(x - 1, x + 1)


def namedtuple_outputs() -> Target:
    return Target(module=NamedTupleOutputs(), inputs={"x": x(2, 3)}, dynamic_shapes={"x": ROWS})


class NestedOutputs(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, dict[str, Any]]:
        return x, {"heads": [x + 1, (x * 2,)], "sum": x.sum()}


def nested_outputs() -> Target:
    """One output is the input itself, another has no dims."""
    return Target(module=NestedOutputs(), inputs={"x": x(2, 3)}, dynamic_shapes={"x": ROWS})


class Padded(nn.Module):
    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        return torch.where(keep, x, 1e9)


def compare_where() -> Target:
    """What stands at padded positions is anyone's."""
    return Target(
        module=Padded(),
        inputs={"x": x(2, 4), "keep": torch.tensor([[True, True, False, False], [True, True, True, False]])},
        dynamic_shapes={"x": ROWS, "keep": ROWS},
        outputs=["y"],
        compare_where=lambda inputs: {"y": inputs["keep"]},
        onnx=written(
            """g (float[n, w] x, bool[n, w] keep) => (float[n, w] y) {
                nothing = Constant<value_float=0.0>() y = Where(keep, x, nothing)
            }"""
        ),
    )


class Boxes(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, x * 2], 1)


def sliced_tolerances() -> Target:
    """The twin rounds the corners to whole pixels; the sizes beside them are exact."""
    return Target(
        module=Boxes(),
        inputs={"x": x(3, 2) * 100},
        dynamic_shapes={"x": {0: N}},
        outputs=["boxes"],
        tolerances={"boxes[..., :2]": Tolerance(rtol=1e-6, atol=0.5), "boxes[..., 2:]": Tolerance(atol=0.0)},
        onnx=written(
            """g (float[n, 2] x) => (float[n, 4] boxes) {
                corners = Round(x) sizes = Add(x, x) boxes = Concat<axis=1>(corners, sizes)
            }"""
        ),
    )


class ThroughComplex(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        turned = torch.view_as_complex(x) * 1j
        return torch.view_as_real(turned + 1)


def through_complex() -> Target:
    return Target(module=ThroughComplex(), inputs={"x": x(3, 2)}, dynamic_shapes={"x": {0: N}}, allow_nonfinite=False)


# ---- modules that keep or change something


class ShapeCache(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.grids: dict[int, Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1] not in self.grids:
            self.grids[x.shape[1]] = torch.arange(x.shape[1], dtype=x.dtype)
        return x + self.grids[x.shape[1]]


def shape_cache() -> Target:
    return Target(
        module=ShapeCache(),
        inputs={"x": x(2, 3)},
        dynamic_shapes={"x": ROWS},
        onnx=written(
            """g (float[n, w] x) => (float[n, w] y) {
                zero = Constant<value_int=0>() one = Constant<value_int=1>() sizes = Shape(x)
                width = Gather(sizes, one) places = Range(zero, width, one) grid = Cast<to=1>(places) y = Add(x, grid)
            }"""
        ),
    )


class CountsCalls(nn.Module):
    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.seen: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.seen.append(x.shape[0])
        return x + x


def counts_calls() -> Target:
    return Target(module=CountsCalls(), inputs={"x": x(2, 3)}, dynamic_shapes={"x": ROWS}, onnx=written(DOUBLING))


class InPlace(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mul_(2).add_(1)


def in_place() -> Target:
    return Target(module=InPlace(), inputs={"x": x(2, 3)}, dynamic_shapes={"x": ROWS})


class Running(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last: Tensor | None = None

    def clear(self) -> None:
        self.last = None

    def forward(self, x: Tensor) -> Tensor:
        last, self.last = self.last, x.detach().clone()
        return x + x if last is None or last.shape != x.shape else x + last


def has_reset() -> Target:
    """Answers from the last call; its twin is what it answers to the first."""
    return Target(
        module=Running(),
        inputs={"x": x(2, 3)},
        dynamic_shapes={"x": ROWS},
        reset=lambda module: module.clear(),
        onnx=written(DOUBLING),
    )


class Cell(nn.Module):
    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        new = state * 0.5 + x
        return new.sum(1), new


def carried() -> Target:
    return Target(
        module=Cell(),
        inputs={"x": x(2, 3), "state": torch.zeros(2, 3)},
        dynamic_shapes={"x": {0: N}, "state": {0: N}},
        outputs=["y", "stateN"],
        carry={"stateN": "state"},
    )


class InTraining(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop, self.norm = nn.Dropout(0.5), nn.BatchNorm1d(3)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.drop(x))


def left_in_training() -> Target:
    return Target(module=InTraining().train(), inputs={"x": x(2, 3)}, dynamic_shapes={"x": {0: N}})


# ---- kinds of modules


def plain_function() -> Target:
    return Target(
        module=lambda x, y: x * 2 + y,
        inputs={"x": x(2, 3), "y": x(2, 3)},
        dynamic_shapes={"x": {0: torch.export.Dim("n", min=1)}, "y": {0: torch.export.Dim("n", min=1)}},
    )


def script_module() -> Target:
    return Target(
        module=torch.jit.trace(Doubling(), (x(2, 3),)),
        inputs={"x": x(2, 3)},
        dynamic_shapes={"x": ROWS},
        onnx=lambda: written(DOUBLING),  # a callable
    )


def exported_program() -> Target:
    dims = {0: torch.export.Dim("n", min=1, max=4096)}
    program = torch.export.export(DictOutputs(), (x(2, 3),), dynamic_shapes=(dims,))
    return Target(module=program, inputs={"x": x(2, 3)}, dynamic_shapes={"x": {0: Size(1, 4096, name="n")}})


# ---- kinds of twins


def external_data() -> Target:
    folder = Path(tempfile.mkdtemp())
    table = onnx.helper.make_tensor("table", onnx.TensorProto.FLOAT, [10, 4], x(10, 4).flatten().tolist())
    ids = onnx.helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, ["n", "w"])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", "w", 4])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Gather", ["table", "ids"], ["y"])], "g", [ids], [y], [table])
    whole = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)
    path = folder / "lookup.onnx"
    onnx.save(whole, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    return Target(
        module=Lookup(),
        inputs={"ids": torch.arange(6).reshape(2, 3)},
        dynamic_shapes={"ids": ROWS},
        ranges={"ids": (0, 9)},
        onnx=path,
    )


def unnamed_dims() -> Target:
    model = written(DOUBLING)
    for value in (*model.graph.input, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            dim.Clear()
    return Target(module=Doubling(), inputs={"x": x(2, 3)}, onnx=model.SerializeToString())


def listed_initializers() -> Target:
    """Initializers stand among the graph's inputs, as before IR version 4."""
    model = written("g (float[n, 3] x, float[3] offset) => (float[n, 3] y) { y = Add(x, offset) }")
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1, 2, 3], np.float32), "offset"))
    model.ir_version = 3
    return Target(
        module=lambda x: x + torch.tensor([1.0, 2.0, 3.0]),
        inputs={"x": x(2, 3)},
        dynamic_shapes={"x": {0: N}},
        onnx=model,
    )


def own_session() -> Target:
    return Target(
        module=nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)),
        inputs={"x": x(2, 3)},
        dynamic_shapes={"x": {0: N}},
        ort=Ort(
            optimization_level="extended",
            threads=2,
            config={"session.intra_op.allow_spinning": "0", "session.set_denormal_as_zero": "0"},
            disabled_optimizers=["ConstantFolding"],
        ),
    )


class Affine(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(x(4) + 2)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor + 1


def half() -> Target:
    return Target(
        module=Affine(),
        inputs={"x": x(2, 4)},
        dynamic_shapes={"x": {0: N}},
        dtypes={"x": ["float32", "float16"]},
    )


def double() -> Target:
    return Target(module=Affine(), inputs={"x": x(2, 4)}, dynamic_shapes={"x": {0: N}}, dtypes={"x": ["float64"]})


def brain_half() -> Target:
    """bfloat16 outside, float32 within: ORT's CPU kernels have little bfloat16."""
    return Target(
        module=lambda x: (x.float() * 2).to(torch.bfloat16),
        inputs={"x": x(2, 4).to(torch.bfloat16)},
        dynamic_shapes={"x": {0: N}},
    )


def seeds_of_arrays() -> Iterator[dict[str, Any]]:
    """Yield numpy arrays with a label riding along."""
    for rows in (1, 2, 5):
        yield {"x": np.linspace(0, 1, rows * 3, dtype=np.float32).reshape(rows, 3), "label": rows}


def labelled_seeds() -> Target:
    return Target(
        module=Doubling(),
        inputs={"x": x(2, 3).numpy()},
        seeds=seeds_of_arrays,
        dynamic_shapes=[ROWS],
        onnx=written(DOUBLING),
    )
