"""Dtypes: the builds that a target asks for by `dtypes`, and the target as one of them sees it.

The idea: a build has one dtype for each input. Its module is a copy that was cast where the floats of its inputs
change, its first seed is cast alike, and everything after that (export, seeds, state, referee) is as for any target.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections.abc import Iterable
from typing import Any

import ml_dtypes
import numpy as np
import torch

from fuzzparity.case import Array, Case, is_float
from fuzzparity.errors import InvalidTarget, InvalidUsage
from fuzzparity.sides.load import LoadedTarget

Combination = dict[str, str]  # input -> dtype, for the inputs that `dtypes` names

_NARROW = {name: np.dtype(getattr(ml_dtypes, name)) for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2")}
_MOST_BUILDS = 16


def combinations(loaded: LoadedTarget) -> list[Combination]:
    """Return the builds that a target asks for, that of its first seed in front; one empty one without `dtypes`.

    Raises `InvalidTarget` for a dtype that does not exist or is of another kind than the input's.
    """
    target, seed = loaded.target, loaded.seed
    if not target.dtypes:
        return [{}]
    for name, dtypes in target.dtypes.items():
        if isinstance(dtypes, str) or not dtypes:
            raise InvalidTarget("dtypes", f"dtypes of {name!r} is {dtypes!r}", 'give a list: ["float32", "float16"]')
        for dtype in dtypes:
            _checked(name, seed.inputs[name], dtype)
    choices = [dict(zip(target.dtypes, chosen, strict=True)) for chosen in itertools.product(*target.dtypes.values())]
    if len(choices) > _MOST_BUILDS:
        raise InvalidTarget(
            "dtypes", f"dtypes ask for {len(choices)} builds", f"at most {_MOST_BUILDS} are made of one target"
        )
    if target.onnx is not None and any(choice != _own(seed, choice) for choice in choices):
        raise InvalidTarget(
            "dtypes",
            "the target gives its own ONNX, which has one dtype for each input, and asks for builds of several",
            "leave `dtypes` out, or leave `onnx` out so that each build is exported",
        )
    return sorted(choices, key=lambda choice: choice != _own(seed, choice))


def words(combination: Combination) -> tuple[str, ...]:
    """Return a combination as the command line writes it: "image=float16"."""
    return tuple(f"{name}={dtype}" for name, dtype in combination.items())


def chosen(loaded: LoadedTarget, given: Iterable[str]) -> Combination:
    """Return the build that `--dtype NAME=DTYPE` asks for, the first one when nothing is asked."""
    asked: Combination = {}
    for text in given:
        name, equals, dtype = text.partition("=")
        if not equals or name not in loaded.seed.inputs:
            raise InvalidUsage(f"--dtype {text!r} is not INPUT=DTYPE with one of {', '.join(loaded.seed.inputs)}")
        asked[name] = _checked(name, loaded.seed.inputs[name], dtype).name
    found = combinations(loaded)
    return {**found[0], **asked}


def cast_loaded(loaded: LoadedTarget, combination: Combination) -> LoadedTarget:
    """Return a target as one build sees it: its dtypes named, and what differs from the first build's cast."""
    if combination:
        loaded = dataclasses.replace(loaded, dtypes=words(combination))
    changed = {name: dtype for name, dtype in combination.items() if loaded.seed.inputs[name].dtype.name != dtype}
    if not changed:
        return loaded
    if loaded.target.onnx is not None:
        raise InvalidTarget(
            "dtypes",
            f"{', '.join(words(changed))} was asked for, and the given ONNX has its own dtypes",
            "leave `onnx` out, so that the build is exported",
        )
    inputs = {
        name: array.astype(_dtype(changed[name])) if name in changed else array
        for name, array in loaded.seed.inputs.items()
    }
    floats = [dtype for name, dtype in changed.items() if is_float(loaded.seed.inputs[name].dtype)]
    module, note = loaded.module, f"build {', '.join(words(combination))}"
    if floats and isinstance(module, torch.nn.Module):
        module = _cast(loaded, getattr(torch, floats[0]))
        note += f": the module was cast to {floats[0]}"
    target = dataclasses.replace(loaded.target, module=module) if module is not loaded.module else loaded.target
    return dataclasses.replace(loaded, target=target, module=module, seed=Case(inputs), notes=(*loaded.notes, note))


def cast_case(case: Case, seed: Case) -> Case:
    """Return a case with the dtypes of a build's first seed, as far as they are of the same kind; else as it is."""
    wanted = {name: array.dtype for name, array in seed.inputs.items() if name in case.inputs}
    others = [name for name, dtype in wanted.items() if case.inputs[name].dtype != dtype]
    if not others or any(_kind(case.inputs[name].dtype) != _kind(wanted[name]) for name in others):
        return case
    cast = {name: array.astype(wanted.get(name, array.dtype)) for name, array in case.inputs.items()}
    return Case(cast, case.label)


def _cast(loaded: LoadedTarget, dtype: torch.dtype) -> torch.nn.Module:
    """Return a copy of the module in another float dtype."""
    if isinstance(loaded.target.module, torch.export.ExportedProgram):
        raise InvalidTarget(
            "dtypes",
            f"an ExportedProgram has the dtypes it was exported with, and {dtype} was asked for",
            "give the nn.Module it was made from, or one target for each program",
        )
    module: Any = loaded.module
    try:
        cast: torch.nn.Module = copy.deepcopy(module).to(dtype)
    except Exception as error:
        raise InvalidTarget(
            "dtypes",
            f"the module cannot be copied and cast to {dtype}: {type(error).__name__}: {str(error)[:200]}",
            "write a target for each dtype, or make the module copyable",
        ) from None
    return cast


def _own(seed: Case, combination: Combination) -> Combination:
    return {name: seed.inputs[name].dtype.name for name in combination}


def _dtype(name: str) -> np.dtype[Any]:
    return _NARROW[name] if name in _NARROW else np.dtype(name)


def _checked(name: str, array: Array, dtype: str) -> np.dtype[Any]:
    """Return a dtype that an input may have instead of its own."""
    try:
        found = _dtype(dtype)
        known = isinstance(getattr(torch, found.name, None), torch.dtype)
    except (TypeError, AttributeError):
        known = False
    if not known:
        raise InvalidTarget(
            "dtypes", f"dtypes of {name!r} names {dtype!r}", "give numpy's names, such as float16 or int32"
        )
    if _kind(found) != _kind(array.dtype):
        raise InvalidTarget(
            "dtypes",
            f"input {name!r} is {array.dtype.name}, and {dtype} is another kind of number",
            "give floats for a float input and integers for an integer input",
        )
    return found


def _kind(dtype: np.dtype[Any]) -> str:
    return "float" if is_float(dtype) else "integer" if dtype.kind in "iu" else dtype.kind
