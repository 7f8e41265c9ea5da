"""Files: programs, ONNX files and seeds that a target or a command line names, read as data.

The idea: a file may be wrong or from a stranger. Nothing here unpickles, every path of ONNX external data stays in
the file's own folder, and a file that cannot be read is an error or a line in `skipped`, never silence.
"""

from __future__ import annotations

import traceback
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import torch
from onnx.external_data_helper import ExternalDataInfo, _get_all_tensors

from fuzzparity.case import Array, Case, is_float
from fuzzparity.errors import InvalidCase, InvalidTarget
from fuzzparity.target import Target

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


def given_onnx(target: Target, folder: str) -> bytes | None:
    """Return the bytes of the ONNX that a target gives, external data taken in; None when it is to be exported."""
    given = target.onnx
    if callable(given) and not isinstance(given, onnx.ModelProto):
        try:
            given = given()
        except (Exception, SystemExit) as error:
            raise InvalidTarget(
                "onnx",
                f"calling the target's onnx raised {type(error).__name__}: {_first_line(error)}",
                "give a path, bytes, a ModelProto, or a callable that returns one of these",
                traceback.format_exc(),
            ) from None
    if given is None and target.onnx is None:
        return None
    if isinstance(given, onnx.ModelProto):
        return _serialized(given, "the target's ModelProto")
    if isinstance(given, (bytes, bytearray, memoryview)):
        return _serialized(_parsed(bytes(given), "the target's onnx bytes"), "the target's onnx bytes")
    if isinstance(given, (str, Path)):
        return _read_onnx(Path(folder or ".") / given)
    raise InvalidTarget(
        "onnx",
        f"onnx is {type(given).__name__} {given!r:.60}",
        "give a path, bytes, a ModelProto, or a callable that returns one of these",
    )


def _read_onnx(path: Path) -> bytes:
    if not path.is_file():
        raise InvalidTarget("onnx", f"there is no file {path}", "give the path of an ONNX file")
    model = _parsed(path.read_bytes(), str(path))
    root = path.parent.resolve()
    for tensor in _external(model):
        location = ExternalDataInfo(tensor).location
        pure = PurePosixPath(location)
        if pure.is_absolute() or ".." in pure.parts or not (root / location).resolve().is_relative_to(root):
            raise InvalidTarget(
                "onnx",
                f"{path} keeps external data at {location!r}, outside its own folder",
                "put the data file beside the ONNX file and save it again",
            )
        if not (root / location).is_file():
            raise InvalidTarget("onnx", f"{path} wants external data {location!r}", f"put that file into {root}")
    try:
        onnx.load_external_data_for_model(model, str(root))
    except Exception as error:
        raise InvalidTarget(
            "onnx",
            f"external data of {path} could not be read: {_first_line(error)}",
            "save the model again with its data file",
            traceback.format_exc(),
        ) from None
    return _serialized(model, str(path))


def _external(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    return (t for t in _get_all_tensors(model) if t.data_location == onnx.TensorProto.EXTERNAL)


def _parsed(data: bytes, what: str) -> onnx.ModelProto:
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except Exception as error:
        raise InvalidTarget(
            "onnx",
            f"{what} is no ONNX model ({type(error).__name__}: {_first_line(error)})",
            "give a file written by torch.onnx.export or onnx.save",
        ) from None
    if not model.opset_import or not model.HasField("graph"):
        raise InvalidTarget(
            "onnx", f"{what} is no ONNX model: it has no graph or no opset", "give a file written by onnx.save"
        )
    return model


def _serialized(model: onnx.ModelProto, what: str) -> bytes:
    if any(True for _ in _external(model)):
        raise InvalidTarget(
            "onnx", f"{what} refers to external data files", "give the path of the ONNX file, so that they are found"
        )
    try:
        return bytes(model.SerializeToString(deterministic=True))
    except Exception as error:  # protobuf ends at 2 GiB
        raise InvalidTarget(
            "onnx",
            f"{what} cannot be written as one message: {_first_line(error)}",
            "models above 2 GiB are not supported yet; cut the model or use smaller weights",
        ) from None


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
