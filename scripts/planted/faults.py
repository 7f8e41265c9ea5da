"""Faults: one record for each planted fault, and how to make the twin that holds it alone.

The idea: `right` is what torch computes, `wrong` the text of an ONNX graph that agrees with it on `sample` and leaves
it on `trigger`. Faults come in families; none is taken from a published case.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
import torch

from fuzzparity import Size, Target
from planted import graphs

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Fault:
    """Hold one planted fault.

    `right`: torch's answer for the inputs of `sample`. `wrong`: an ONNX graph as text, or a function that makes the
    Target where an exporter or ORT itself is at fault. `kinds`: what a finding of it may be called; `grades` likewise.
    `deep`: where it stands in a large model: "conv:front", "transformer:seq", ... (models.py), "" for nowhere. `safe`:
    the values on which both sides agree, to which what comes before it is scaled. `sizes`: bounds of free dims.
    `extras`: further inputs in a large model, from batch and time. `source`: its line in `own.py`, found by this text.
    """

    name: str
    family: str
    right: Callable[..., Any]
    wrong: str
    sample: Arrays
    trigger: Arrays
    kinds: tuple[str, ...]
    grades: tuple[str, ...] = ("bug",)
    deep: str = ""
    safe: tuple[float, float] = (-3.0, 3.0)
    sizes: Mapping[str, Size] = field(default_factory=dict)
    extras: Callable[[int, int], Arrays] | None = None
    extra_triggers: Callable[[int, int], Arrays] | None = None
    make: Callable[[], Target] | None = None
    source: str = ""
    is_risky: bool = False  # a side may die
    seed_rows: int = 2  # rows of the seeds in a large model
    has_place: bool = True  # an operator or a line can be named

    def target(self) -> Target:
        """Return the twin that holds this fault and nothing else."""
        if self.make is not None:
            return replace(self.make(), name=self.name)
        model = graphs.named(with_size(self.wrong, ALONE_SIZE), self.name)
        return Target(
            name=self.name,
            module=Net(self.right),
            inputs=dict(self.sample),
            onnx=model,
            dynamic_shapes=free_dims(model, self.sizes),
        )

    @property
    def places(self) -> tuple[str, ...]:
        """Return the operators of its nodes."""
        text = with_size(self.wrong, ALONE_SIZE)
        return tuple({node.op_type for node in graphs.parsed(text).graph.node}) if text else ()


class Net(torch.nn.Module):
    """Wrap a function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        """Return what the function does."""
        return self.function(*inputs)


def free_dims(model: onnx.ModelProto, sizes: Mapping[str, Size]) -> dict[str, dict[int, Any]]:
    """Return the free dims of a model's inputs, as a Target declares them."""
    found: dict[str, dict[int, Any]] = {}
    for value in model.graph.input:
        dims = {i: d.dim_param for i, d in enumerate(value.type.tensor_type.shape.dim) if d.dim_param}
        found[value.name] = {i: replace(sizes[s], name=s) if s in sizes else s for i, s in dims.items()}
    return {name: dims for name, dims in found.items() if dims}


def f32(values: Any) -> np.ndarray:
    """Return float32."""
    return np.asarray(values, np.float32)


def i64(values: Any) -> np.ndarray:
    """Return int64."""
    return np.asarray(values, np.int64)


def normal(*shape: int, low: float = -2.0, high: float = 2.0, seed: int = 0) -> np.ndarray:
    """Return smooth values between two bounds that no threshold is near to."""
    return f32(np.random.default_rng(seed).uniform(low, high, shape))


ALONE_SIZE = 6  # the size that is burnt in, in the twins that hold one fault alone
NAN, INF = float("nan"), float("inf")


def rows(body: str, weights: str = "") -> str:
    """Return a graph on [n, w] whose body leads from x to y."""
    return f"(float[n, w] x) => (float[n, w] y) {f'<{weights}>' if weights else ''} {{ {body} }}"


def seq(body: str, weights: str = "", more: str = "") -> str:
    """Return a graph on [n, t, d] whose body leads from x (and further inputs) to y."""
    return f"(float[n, t, d] x{more}) => (float[n, t, d] y) {f'<{weights}>' if weights else ''} {{ {body} }}"


def maps(body: str, weights: str = "", result: str = "n, c, h, w") -> str:
    """Return a graph on [n, c, h, w] whose body leads from x to y."""
    return f"(float[n, c, h, w] x) => (float[{result}] y) {f'<{weights}>' if weights else ''} {{ {body} }}"


LAST = "int64[1] last = {-1}"


def with_size(text: str, size: int) -> str:
    """Return a text with the size that is burnt into it, SIZE, exchanged."""
    return re.sub(r"\bSIZE([+-]\d+)?\b", lambda found: str(size + int(found.group(1) or 0)), text)
