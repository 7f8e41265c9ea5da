"""Entries of the judged set: one comparison each, as data, and the few lines that turn text into a target."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import torch
from onnx import parser

from fuzzparity import Export, Target
from fuzzparity.case import Case

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Entry:
    """Hold one comparison: a module, its twin, harmless inputs, and the inputs that show something.

    `twin`: text of an ONNX graph, a function that makes a model, or None for one that fuzzparity exports. `kinds` and
    `blames`: what a fault may be called; both are empty for a sound comparison. `options`: further fields of `Target`.
    """

    name: str
    module: Callable[..., Any]
    sample: Arrays
    trigger: Arrays
    twin: str | Callable[[], Any] | None = None
    kinds: tuple[str, ...] = ()
    blames: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    is_risky: bool = False  # a side may die or hang: only in processes of its own

    def target(self) -> Target:
        """Return the target under test."""
        module = self.module.eval() if isinstance(self.module, torch.nn.Module) else self.module
        twin = parsed(self.twin) if isinstance(self.twin, str) else self.twin() if self.twin is not None else None
        return Target(module=module, inputs=dict(self.sample), onnx=twin, **self.options)

    @property
    def is_slow(self) -> bool:
        """Tell whether the module is exported by dynamo, which takes seconds."""
        return self.twin is None and self.options.get("export", Export()).exporter == "dynamo"

    @property
    def case(self) -> Case:
        """Return the inputs that show something."""
        return Case(dict(self.trigger))


def parsed(text: str, opset: int = 20) -> onnx.ModelProto:
    """Return the model that a text stands for: `(float[n] x) => (float[n] y) { y = Neg (x) }`."""
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]> graph {text}')


def normal(*shape: int, seed: int = 0, scale: float = 1.0, offset: float = 0.0, dtype: Any = np.float32) -> np.ndarray:
    """Return seeded normal values."""
    values = np.random.default_rng(seed).standard_normal(shape) * scale + offset
    return values.astype(dtype)


def uniform(*shape: int, low: float = 0.0, high: float = 1.0, seed: int = 0, dtype: Any = np.float32) -> np.ndarray:
    """Return seeded uniform values."""
    return np.random.default_rng(seed).uniform(low, high, shape).astype(dtype)


def f32(*values: float) -> np.ndarray:
    """Return a vector of float32."""
    return np.array(values, np.float32)


def i64(*values: int) -> np.ndarray:
    """Return a vector of int64."""
    return np.array(values, np.int64)
