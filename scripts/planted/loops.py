"""Loops: what people do without fuzzparity, as programs of their own: random arrays, both sides, a tolerance.

The idea: a loop prints one line for each kind of difference that it meets first, and goes on. It tells nothing apart
and knows no contract but the sizes of the model's free dims. Its process may die; whoever started it sees that.
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fuzzparity.contract import Contract
from fuzzparity.target import Target

METHODS = ("normal", "hypothesis", "finite")
_TOLERANCE = {"float32": (1e-4, 1e-3), "float64": (1e-6, 1e-5), "float16": (2e-2, 2e-2)}  # atol, rtol
_OTHER_TOLERANCE = (1e-1, 5e-2)
_MOST_GROWTH = 2  # times the size in the first seed that a free dim may have
Draw = dict[str, np.ndarray]


class Met:
    """Print each kind of difference when it is met first, with the seconds since the loop began."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.kinds: set[str] = set()
        self.inputs = 0

    @property
    def seconds(self) -> float:
        """Return how long the loop has run."""
        return time.monotonic() - self.started

    def take(self, kinds: set[str]) -> None:
        """Count one input."""
        self.inputs += 1
        for kind in sorted(kinds - self.kinds):
            self.say(kind=kind)
        self.kinds |= kinds

    def say(self, **told: Any) -> None:
        """Write a line for whoever reads."""
        sys.stdout.write(json.dumps({"seconds": self.seconds, **told}) + "\n")
        sys.stdout.flush()


def run_loop(method: str, target: Target, seconds: float, rng_seed: int) -> None:
    """Run one loop on a target; returns when the time is over."""
    import torch

    torch.set_num_threads(1)
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    if method != "normal":
        import hypothesis.extra.numpy  # noqa: F401 -- before the clock starts

    with tempfile.TemporaryDirectory(prefix="planted-loop-") as folder:
        made = _sides(target, Path(folder))
        met = Met()
        met.say(ready=True)
        if isinstance(made, str):
            met.take({made})
        else:
            run, contract, seed = made
            if method == "normal":
                _normal_loop(run, contract, seed, met, seconds, rng_seed)
            else:
                _hypothesis_loop(run, contract, seed, met, seconds, rng_seed, is_finite=method == "finite")
        met.say(inputs=met.inputs)


def _sides(target: Target, folder: Path) -> str | tuple[Callable[[Draw], set[str]], Contract, Draw]:
    """Return what runs inputs on both sides, or the kind of failure to get there."""
    import onnxruntime
    import torch

    from fuzzparity.sides.export import make_build
    from fuzzparity.sides.load import loaded_here
    from fuzzparity.sides.tensors import flatten_outputs, to_tensor

    loaded = loaded_here(target)
    built = make_build(loaded, folder)
    if built.facts is None:
        return "export_error"
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    path = Path(built.facts.build.folder) / "model.onnx"
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception:  # ORT's own exceptions share no base
        return "load_error"
    feeds = {item.name: item.onnx_name for item in built.facts.contract.inputs if item.onnx_name}

    def run(draw: Draw) -> set[str]:
        expected: Any = None
        actual: Any = None
        try:
            args, kwargs = loaded.call.arguments([to_tensor(array) for array in draw.values()])
            with torch.no_grad():
                expected = flatten_outputs(loaded.module(*args, **kwargs))
        except Exception:  # whatever the module raises is a refusal
            pass
        try:
            actual = session.run(None, {feeds[name]: array for name, array in draw.items() if name in feeds})
        except Exception:
            pass
        if expected is None or actual is None:
            return set() if expected is None and actual is None else {"error_split"}
        return {kind for e, a in zip(expected, actual, strict=True) if (kind := difference(e, a))}

    return run, built.facts.contract, dict(loaded.seed.inputs)


def difference(expected: np.ndarray, actual: np.ndarray) -> str:
    """Return the kind of difference of two outputs, "" within tolerance."""
    if expected.shape != actual.shape:
        return "shape"
    if expected.dtype != actual.dtype:
        return "dtype"
    if expected.dtype.kind in "biu":
        return "decision" if (expected != actual).any() else ""
    e, a = expected.astype(np.float64), actual.astype(np.float64)
    finite = np.isfinite(e) & np.isfinite(a)
    if not np.array_equal(e[~finite], a[~finite], equal_nan=True):
        return "nonfinite"
    atol, rtol = _TOLERANCE.get(expected.dtype.name, _OTHER_TOLERANCE)
    return "" if np.allclose(a[finite], e[finite], rtol, atol) else "numeric"


def _sizes(contract: Contract) -> dict[str, tuple[int, int]]:
    """Return the least and largest size of each free dim that a loop draws."""
    return {
        dim.symbol: (dim.low, min(_MOST_GROWTH * max(dim.size, 1), dim.high or sys.maxsize))
        for item in contract.inputs
        for dim in item.dims
        if dim.symbol
    }


def _normal_loop(
    run: Callable[[Draw], set[str]], contract: Contract, seed: Draw, met: Met, seconds: float, rng_seed: int
) -> None:
    rng, sizes = np.random.default_rng(rng_seed), _sizes(contract)
    while met.seconds < seconds:
        drawn = {symbol: int(rng.integers(max(low, 1), high + 1)) for symbol, (low, high) in sizes.items()}
        draw = {}
        for item in contract.inputs:
            shape = tuple(drawn.get(dim.symbol, dim.size) for dim in item.dims)
            kind = seed[item.name].dtype.kind
            if kind == "b":
                array = rng.random(shape) < 0.5
            elif kind in "iu":
                array = rng.integers(0, int(seed[item.name].max(initial=0)) + 1, shape)
            else:
                array = rng.standard_normal(shape)
            draw[item.name] = np.asarray(array, seed[item.name].dtype)
        met.take(run(draw))


def _hypothesis_loop(
    run: Callable[[Draw], set[str]],
    contract: Contract,
    seed: Draw,
    met: Met,
    seconds: float,
    rng_seed: int,
    *,
    is_finite: bool,
) -> None:
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import seed as seeded
    from hypothesis import strategies as st
    from hypothesis.errors import HypothesisException
    from hypothesis.extra import numpy as hnp

    sizes = st.fixed_dictionaries({name: st.integers(*ends) for name, ends in _sizes(contract).items()})

    @st.composite
    def drawn(draw: Callable[..., Any]) -> Draw:
        chosen, arrays = draw(sizes), {}
        for item in contract.inputs:
            dtype = seed[item.name].dtype
            elements = {"allow_nan": False, "allow_infinity": False} if is_finite and dtype.kind == "f" else None
            shape = tuple(chosen.get(dim.symbol, dim.size) for dim in item.dims)
            arrays[item.name] = draw(hnp.arrays(dtype, shape, elements=elements))
        return arrays

    for number in _rounds(met, seconds):

        @seeded(rng_seed * 1000 + number)
        @settings(max_examples=200, database=None, deadline=None, phases=[Phase.generate],
                  suppress_health_check=list(HealthCheck))  # fmt: skip
        @given(drawn())
        def look(draw: Draw) -> None:
            if met.seconds < seconds or not met.inputs:  # one at least, however slow the machine
                met.take(run(draw))

        try:
            look()
        except HypothesisException:  # Unsatisfiable: full-entropy arrays of this size cannot be drawn
            pass


def _rounds(met: Met, seconds: float) -> Iterator[int]:
    number = 0
    while met.seconds < seconds:
        yield number
        number += 1
