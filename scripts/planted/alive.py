"""Alive: show without any campaign that a planted fault agrees on its sample and differs on inputs that trigger it.

The idea: what is planted must be there, in plain torch and plain ONNX Runtime. A fault alone carries its trigger; deep
in a network one of a few plain changes of a seed must show it.
"""

from __future__ import annotations

import logging
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fuzzparity.target import Target
from planted.faults import f32
from planted.loops import difference
from planted.sets import TWINS, Twin

Draw = Mapping[str, np.ndarray]


class Sides:
    """Run inputs on plain torch and plain ONNX Runtime."""

    def __init__(self, target: Target, model: bytes | None = None) -> None:
        """Open both sides of a target that gives its ONNX, or of one whose export is given as `model`."""
        import onnxruntime
        import torch

        torch.set_num_threads(1)
        self.target = target
        options = onnxruntime.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 4, 1
        self._session = onnxruntime.InferenceSession(
            model or target.onnx.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )

    def kinds(self, draw: Draw) -> list[str]:
        """Return the kind of difference of each output, "" where it agrees."""
        import torch

        answers: list[Any] = [None, None]
        with torch.no_grad():
            try:
                result = self.target.module(*(torch.from_numpy(np.array(array)) for array in draw.values()))
                answers[0] = [one.numpy() for one in (result if isinstance(result, tuple) else (result,))]
            except (IndexError, RuntimeError, ValueError):
                pass
        try:
            answers[1] = self._session.run(None, dict(draw))
        except Exception:  # ORT's own exceptions share no base
            pass
        if answers[0] is None or answers[1] is None:
            return ["" if answers[0] is answers[1] else "error_split"]
        return [difference(e, a) for e, a in zip(*answers, strict=True)]


def moved(target: Target, twin: Twin) -> Iterator[Draw]:
    """Yield plain changes of a large model's first seed, those first that a fault's own inputs are made for."""
    first = dict(target.inputs)
    name = next(iter(first))
    x = first[name]
    for fault in twin.faults:
        if fault.extra_triggers is not None:
            extras = fault.extra_triggers(*x.shape[:2])
            yield {**first, **{f"{key}_{fault.name}": array for key, array in extras.items()}}
    values: list[np.ndarray] = []
    rng = np.random.default_rng(0)
    if x.dtype.kind == "f":
        spike, hole = x.copy(), x.copy()
        spike.reshape(-1)[x.size // 2] = 1000
        hole.reshape(-1)[x.size // 2] = np.nan
        infinite = np.where(np.isnan(hole), f32(np.inf), x)
        values = [x * f32(scale) for scale in (3, 100, 1e3, -100, 1e10, 1e25, 0, 1e-7)]
        values += [np.full_like(x, value) for value in (0.1, 0.3, 0.5, 0.7, 0.75, 1.0, 5.05)]
        values += [spike, hole, infinite, x + f32(3000), rng.random(x.shape, np.float32)]
    else:
        values = [rng.integers(low, 1000, x.shape) for low in (0, 700)]
    yield from ({**first, name: value} for value in values)
    yield from _resized(first, name)


def _resized(first: Draw, name: str) -> Iterator[Draw]:
    x = first[name]
    if x.ndim == 4:
        shapes = [(*x.shape[:2], h, w) for h, w in ((65, 65), (64, 80), (61, 64))] + [(1, *x.shape[1:])]
        shapes.append((2, 3, 65, 64))
        yield from ({**first, name: np.resize(x, shape)} for shape in shapes)
        return
    for time in (x.shape[1] - 1, x.shape[1] + 10):
        yield {
            key: np.resize(array, (array.shape[0], time, *array.shape[2:]))
            if array.ndim > 1 and array.shape[1] == x.shape[1]
            else array
            for key, array in first.items()
        }


def why_dead(twin: Twin) -> str:
    """Return why a twin is not what it is said to be, "" where it is."""
    fault = twin.faults[0] if twin.faults else None
    target = twin.target()
    if fault is not None and fault.make is not None and twin.setting == "alone" and target.onnx is None:
        return ""  # made by an exporter: the tests open these one by one
    sides = Sides(target)
    seeds = [dict(target.inputs), *(dict(seed) for seed in (target.seeds() if target.seeds else ()))]
    for seed in seeds:
        if any(kinds := sides.kinds(seed)):
            return f"its seeds differ: {', '.join(kinds)}"
    if fault is None or fault.is_risky:
        return ""
    if twin.setting == "alone":
        kinds = sides.kinds(fault.trigger)
        return "" if set(kinds) & set(fault.kinds) or _is_branch(fault.kinds, kinds) else f"its trigger: {kinds}"
    return "" if any(any(sides.kinds(draw)) for draw in moved(target, twin)) else "nothing shows it"


def _is_branch(wanted: Sequence[str], kinds: Sequence[str]) -> bool:
    return "branch_split" in wanted and any(kinds)


def check(only: Sequence[str]) -> int:
    """Print what is dead among the twins whose name holds one of some texts; return the exit code."""
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    dead = 0
    for twin in TWINS.values():
        if only and not any(text in twin.name for text in only):
            continue
        said = why_dead(twin)
        dead += bool(said)
        sys.stdout.write(f"{twin.setting:8} {twin.name:36} {said or 'as planted'}\n")
    return 1 if dead else 0


def exported_model(target: Target) -> bytes:
    """Return the ONNX bytes that the exporter makes of a target, as a campaign gets them."""
    from fuzzparity.sides.export import make_build
    from fuzzparity.sides.load import loaded_here

    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        built = make_build(loaded_here(target), Path(folder))
        assert built.facts is not None, built.error
        return (Path(built.facts.build.folder) / "model.onnx").read_bytes()
