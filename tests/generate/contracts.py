"""Contracts, seeds and Hypothesis strategies that the tests of `generate` share."""

from __future__ import annotations

import ml_dtypes  # noqa: F401  (registers bfloat16 with numpy)
import numpy as np
from hypothesis import strategies as st

from fuzzparity.case import Case
from fuzzparity.contract import Contract, Dim, InputContract
from fuzzparity.generate.dtypes import traits_of

FLOATS = ("float16", "float32", "float64", "bfloat16", "float8_e4m3fn", "float8_e5m2")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "int4")
DTYPES = (*FLOATS, *INTEGERS, "bool", "complex64")


def seed_for(contract: Contract, number: int = 0) -> Case:
    """Make a seed of a contract's own sizes."""
    rng = np.random.default_rng(number)
    inputs = {}
    for item in contract.inputs:
        shape = tuple(dim.size for dim in item.dims)
        traits = traits_of(item.dtype)
        if traits.family == "bool":
            array = rng.random(shape) < 0.5
        elif traits.family == "int":
            array = rng.integers(0, 2, shape)
        else:
            array = rng.standard_normal(shape)
        inputs[item.name] = np.asarray(array).astype(traits.dtype)
    return Case(inputs)


def one_input(dtype: str = "float32", shape: tuple[int, ...] = (4, 6), **rest: object) -> Contract:
    """Make a contract of one static input."""
    return Contract((InputContract("x", dtype, tuple(Dim(size) for size in shape), **rest),))  # type: ignore[arg-type]


@st.composite
def contracts(draw: st.DrawFn) -> Contract:
    """Draw contracts with every dtype, static and shared free dims, bounds, index limits and forbidden NaN."""
    symbols: dict[str, Dim] = {}
    inputs = []
    for number in range(draw(st.integers(1, 3))):
        dims = []
        for _ in range(draw(st.integers(0, 3))):
            symbol = draw(st.sampled_from(["", "n", "m", "k"]))
            if symbol and symbol not in symbols:
                step = draw(st.sampled_from([1, 1, 2, 4]))
                low = draw(st.integers(0, 3))
                symbols[symbol] = Dim(
                    size=8,
                    symbol=symbol,
                    low=low,
                    high=draw(st.sampled_from([None, 8, 21, 64])),
                    multiple_of=step,
                    is_declared=draw(st.booleans()),
                )
            dims.append(symbols[symbol] if symbol else Dim(draw(st.integers(0, 5))))
        dtype = draw(st.sampled_from(DTYPES))
        is_int = dtype in INTEGERS
        index = draw(st.sampled_from(["", "limit", "symbol"])) if is_int else ""
        # an input that has to be non-empty while its indexed axis may be empty has no case at size 0: still allowed
        inputs.append(
            InputContract(
                f"x{number}",
                dtype,
                tuple(dims),
                low=draw(st.sampled_from([None, 0.1, 0])) if dtype != "complex64" else None,
                high=draw(st.sampled_from([None, 1, 5.5])) if dtype != "complex64" else None,
                allow_nonfinite=draw(st.booleans()),
                index_limit=7 if index == "limit" else None,
                index_symbol="n" if index == "symbol" and "n" in symbols else "",
            )
        )
    return Contract(
        tuple(inputs),
        sizes=tuple(draw(st.lists(st.integers(0, 40), max_size=3))),
        constants=tuple(draw(st.lists(st.sampled_from([0.5, -1.0, 2.3, 1e-10, 3.0, 65504.0, 1e30]), max_size=3))),
    )
