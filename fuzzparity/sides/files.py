"""Files: programs and seeds that a target or a command line names, read as data.

The idea: a file may be wrong or from a stranger. Nothing here unpickles, and a file that cannot be read is an error or
a line in `skipped`, never silence.
"""

from __future__ import annotations

import traceback
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fuzzparity.case import Array, Case, is_float
from fuzzparity.errors import InvalidCase, InvalidTarget

if TYPE_CHECKING:
    from fuzzparity.sides.load import LoadedTarget

SEED_SUFFIXES = (".npz", ".safetensors", ".npy")


def load_program(path: Path) -> Any:
    """Return the program in a .pt2 (ExportedProgram) or TorchScript file; `InvalidTarget` for weights alone."""
    if not path.is_file():
        raise InvalidTarget("torch", f"there is no file {path}", "give a .pt2 or TorchScript file")
    members = _members(path)
    try:
        if any("/code/" in f"/{name}" for name in members):
            return torch.jit.load(str(path), map_location="cpu")
        if path.suffix == ".pt2" or any("exported_program" in name or "models/" in name for name in members):
            return torch.export.load(str(path))
    except Exception as error:
        raise InvalidTarget(
            "torch",
            f"{path} could not be loaded as a program: {type(error).__name__}: {_first_line(error)}",
            "save it again with torch.export.save (.pt2) or torch.jit.save, by the same torch version",
            traceback.format_exc(),
        ) from None
    raise InvalidTarget(
        "torch",
        f"{path} holds {_weights(path)}, and a program is wanted",
        "write a target.py that builds the module and loads these weights (fuzzparity init --onnx M --torch FILE), "
        "or give a .pt2 (torch.export.save) or TorchScript (torch.jit.save) file",
    )


def _members(path: Path) -> list[str]:
    if not zipfile.is_zipfile(path):
        return []
    with zipfile.ZipFile(path) as archive:
        return archive.namelist()


def _weights(path: Path) -> str:
    """Say what a file without a program holds, read as weights only."""
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        return f"no program that torch can read ({type(error).__name__})"
    if isinstance(found, Mapping) and found and all(isinstance(value, torch.Tensor) for value in found.values()):
        return f"a state_dict of {len(found)} tensors"
    return f"a {type(found).__name__}, not a program"


def _first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return text[0][:300] if text else ""


def read_seeds(
    loaded: LoadedTarget, paths: Iterable[str | Path], skipped: list[str] | None = None
) -> Iterator[tuple[str, Case]]:
    """Yield (where it came from, case) of the target's own seeds, then of files and folders.

    Keys beyond the inputs (a "label") are ignored. What cannot be read or does not fit goes as one line each into
    `skipped`; without that list, and for a path named itself, it is an `InvalidCase`.
    """
    if loaded.target.seeds is not None:
        yield from _own_seeds(loaded, loaded.target.seeds, skipped)
    for path in map(Path, paths):
        if path.is_dir():
            for file in sorted(p for p in path.rglob("*") if p.is_file() and p.suffix in SEED_SUFFIXES):
                yield from _or_skip(lambda file=file: seed_of_file(loaded.seed, file), str(file), skipped)  # type: ignore[misc]
        else:
            yield str(path), seed_of_file(loaded.seed, path)


def _own_seeds(
    loaded: LoadedTarget, seeds: Callable[[], Iterable[Mapping[str, Any]]], skipped: list[str] | None
) -> Iterator[tuple[str, Case]]:
    try:
        for index, item in enumerate(seeds()):
            yield from _or_skip(lambda item=item: fit(loaded.seed, item), f"target.seeds[{index}]", skipped)  # type: ignore[misc]
    except InvalidCase:
        raise
    except (Exception, SystemExit) as error:
        raise InvalidTarget(
            "seeds",
            f"the target's seeds() raised {type(error).__name__}: {_first_line(error)}",
            "give a callable that returns an iterator of dicts, input name -> tensor",
            traceback.format_exc(),
        ) from None


def _or_skip(make: Callable[[], Case], where: str, skipped: list[str] | None) -> Iterator[tuple[str, Case]]:
    try:
        case = make()
    except InvalidCase as error:
        if skipped is None:
            raise InvalidCase(f"{where}: {error}") from None
        text = str(error)
        skipped.append(text if text.startswith(where) else f"{where}: {text}")
        return
    yield where, case


def seed_of_file(seed: Case, path: Path) -> Case:
    """Return the case in one .npz, .safetensors or (single-input targets) .npy file; `InvalidCase` otherwise."""
    arrays = read_arrays(path)
    if path.suffix == ".npy":
        if len(seed.inputs) != 1:
            raise InvalidCase(
                f"{path}: one .npy array cannot fill inputs {', '.join(seed.inputs)}; give .npz or .safetensors"
            )
        arrays = {next(iter(seed.inputs)): arrays[""]}
    try:
        return fit(seed, arrays)
    except InvalidCase as error:
        raise InvalidCase(f"{path}: {error}") from None


def read_arrays(path: Path) -> dict[str, Array]:
    """Return the arrays of a seed file by name ("" for .npy); `InvalidCase` when it cannot be read."""
    if not path.is_file():
        raise InvalidCase(f"there is no file {path}; seeds are {', '.join(SEED_SUFFIXES)} files or folders of them")
    try:
        if path.suffix == ".npy":
            return {"": np.load(path, allow_pickle=False)}
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as archive:
                return {name: archive[name] for name in archive.files}
        if path.suffix == ".safetensors":
            return _read_safetensors(path)
    except Exception as error:
        raise InvalidCase(
            f"{path} could not be read ({type(error).__name__}: {_first_line(error)}); "
            f"wanted a sound {path.suffix} file of plain arrays"
        ) from None
    raise InvalidCase(f"{path} is no seed file: {', '.join(SEED_SUFFIXES)} are accepted")


def _read_safetensors(path: Path) -> dict[str, Array]:
    from safetensors.torch import load_file

    from fuzzparity.sides.tensors import to_array

    return {name: to_array(tensor) for name, tensor in load_file(path).items()}


def fit(seed: Case, item: Mapping[str, Any]) -> Case:
    """Return an item's inputs as a case in the seed's order; `InvalidCase` where name, kind of dtype or rank differ."""
    from fuzzparity.sides.load import as_array

    if not isinstance(item, Mapping):
        raise InvalidCase(f"a seed is {type(item).__name__}; wanted a dict of {', '.join(seed.inputs)}")
    missing = [name for name in seed.inputs if name not in item]
    if missing:
        raise InvalidCase(f"no input {', '.join(missing)} among {', '.join(map(str, item)) or 'nothing'}")
    inputs = {}
    for name, model in seed.inputs.items():
        try:
            array = as_array(name, item[name])
        except InvalidTarget as error:
            raise InvalidCase(error.problem) from None
        if _kind(array) != _kind(model):
            raise InvalidCase(f"input {name} is {array.dtype.name}; wanted the kind of {model.dtype.name}")
        if array.ndim != model.ndim:
            raise InvalidCase(f"input {name} has shape {list(array.shape)}; wanted {model.ndim} dim(s)")
        inputs[name] = array.astype(model.dtype) if array.dtype != model.dtype else array
    return Case(inputs)


def _kind(array: Array) -> str:
    if is_float(array.dtype):
        return "float"
    return "integer" if array.dtype.kind in "iu" else array.dtype.kind
