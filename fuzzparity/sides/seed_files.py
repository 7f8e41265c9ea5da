"""Seed files: what one file of validation data holds, as items.

The idea: an item names its tensors (a dict) or only places them (a tuple, in forward's order). A file is data: nothing
is unpickled, nothing larger than a bound is taken into memory, and a file that cannot be read is one `InvalidCase`.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper

from fuzzparity.errors import InvalidCase
from fuzzparity.sides.tensors import to_array

Item = Mapping[str, Any] | tuple[Any, ...]

LABEL = "label"  # what rides along in an item, unless an input is called that
MOST_BYTES = 2 << 30  # of a file, or of the arrays in it, that are read as a whole
_TEST_SET = re.compile(r"test_data_set_\d+")
_TEST_INPUT = re.compile(r"input_(\d+)\.pb")
_UNNAMED = re.compile(r"arr_(\d+)")  # how numpy.savez calls arrays given without a name


def read_items(path: Path, names: Sequence[str]) -> Iterator[Item]:
    """Yield the items of a seed file, or of an ONNX test-data folder; `names` are the target's flattened inputs.

    `.npy` arrays are mapped, not read, so that one file may hold a whole validation set. `InvalidCase` when the file
    cannot be read.
    """
    if is_test_set(path):
        reader: Callable[[Path, Sequence[str]], Iterator[Item]] = _test_set
    elif not path.is_file():
        raise InvalidCase(f"there is no file {path}; seeds are {accepted()} files or folders of them")
    else:
        found = _READERS.get(path.suffix.lower())
        if found is None:
            raise InvalidCase(
                f"{path} is no seed file: {accepted()} are accepted, and whatever the target's read takes"
            )
        reader = found
    try:
        yield from reader(path, names)
    except InvalidCase:
        raise
    except Exception as error:
        said = str(error).strip().splitlines()
        raise InvalidCase(
            f"{path} could not be read ({type(error).__name__}: {said[0][:300] if said else ''}); "
            f"wanted a sound {path.suffix or 'test data'} file of plain arrays"
        ) from None


def accepted() -> str:
    """Return the suffixes that are read without the target's help."""
    return ", ".join(_READERS)


def is_seed_file(path: Path) -> bool:
    """Tell whether a file's suffix is one of those that hold arrays."""
    return path.suffix.lower() in _READERS


def is_test_set(path: Path) -> bool:
    """Tell whether a folder is one set of ONNX test data (`test_data_set_0` with `input_0.pb` in it)."""
    return _TEST_SET.fullmatch(path.name) is not None and path.is_dir()


def first_arrays(path: Path) -> dict[str, Any]:
    """Return the first item in a file or folder by name, for a program that comes without inputs.

    `InvalidCase` when there is none. Arrays without a name are called "input", or "input_0", "input_1", ...
    """
    if path.is_dir() and not is_test_set(path):
        inside = (one for one in sorted(path.rglob("*")) if is_test_set(one) or (one.is_file() and is_seed_file(one)))
        path = next((one for one in inside if not is_test_set(one.parent)), path)
    for item in read_items(path, ()):
        if isinstance(item, Mapping):
            return {str(name): value for name, value in item.items()}
        return {f"input_{index}" if len(item) > 1 else "input": value for index, value in enumerate(item)}
    raise InvalidCase(f"{path} holds no inputs")


def _npy(path: Path, names: Sequence[str]) -> Iterator[Item]:
    yield (np.load(path, mmap_mode="r", allow_pickle=False),)


def _npz(path: Path, names: Sequence[str]) -> Iterator[Item]:
    with zipfile.ZipFile(path) as archive:
        sizes = {entry.filename.removesuffix(".npy"): entry.file_size for entry in archive.infolist()}
    wanted = _wanted(sizes, names)
    _bounded(path, sum(sizes[name] for name in wanted))
    with np.load(path, allow_pickle=False) as archive:
        item = {name: archive[name] for name in wanted}
    if item and all(_UNNAMED.fullmatch(name) for name in item) and not set(item) & set(names):
        yield tuple(item[name] for name in sorted(item, key=lambda name: int(name.removeprefix("arr_"))))
    else:
        yield item


def _safetensors(path: Path, names: Sequence[str]) -> Iterator[Item]:
    from safetensors import safe_open

    with safe_open(path, framework="pt") as archive:
        yield {name: to_array(archive.get_tensor(name)) for name in _wanted(archive.keys(), names)}


def _wanted(held: Mapping[str, Any] | Sequence[str], names: Sequence[str]) -> list[str]:
    """Return which arrays of a file to read: those of the inputs, or all when none is, so that they can be told."""
    found = [name for name in held if name in names]
    return found + [LABEL for name in held if name == LABEL and LABEL not in names] if found else list(held)


def _torch(path: Path, names: Sequence[str]) -> Iterator[Item]:
    _bounded(path, path.stat().st_size)
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            _bounded(path, sum(entry.file_size for entry in archive.infolist()))
    found = torch.load(path, map_location="cpu", weights_only=True)
    if isinstance(found, Mapping) and _is_state(found, names):
        raise InvalidCase(
            f"{path} holds a state_dict of {len(found)} tensors, which is weights; wanted inputs. Load it in the "
            f"target's module, and save inputs as a dict of {', '.join(names) or 'name -> tensor'}"
        )
    yield from _of_torch(found, names, str(path))


def _is_state(found: Mapping[Any, Any], names: Sequence[str]) -> bool:
    are_tensors = bool(found) and all(isinstance(value, torch.Tensor) for value in found.values())
    return are_tensors and not set(found) & set(names) and any("." in str(key) for key in found)


def _of_torch(found: Any, names: Sequence[str], where: str) -> Iterator[Item]:
    """Yield the items of what `torch.save` wrote: a tensor, a dict, (input, label), or a list of these."""
    if isinstance(found, torch.Tensor):
        yield (found,)
    elif isinstance(found, Mapping):
        yield found
    elif isinstance(found, tuple) and found:
        if isinstance(found[0], Mapping):  # ({...}, label)
            yield {LABEL: found[1], **found[0]} if len(found) == 2 else found[0]
        else:
            yield found
    elif isinstance(found, list) and len(found) == len(names) > 1 and _are_tensors(found):
        yield tuple(found)
    elif isinstance(found, list):
        for one in found:
            yield from _of_torch(tuple(one) if isinstance(one, list) else one, names, where)
    else:
        raise InvalidCase(
            f"{where} holds {type(found).__name__}; wanted a tensor, a dict of inputs, or a list of these"
        )


def _are_tensors(values: Sequence[Any]) -> bool:
    return all(isinstance(value, torch.Tensor) for value in values)


def _test_set(folder: Path, names: Sequence[str]) -> Iterator[Item]:
    """Yield the one item of an ONNX test-data folder: by name where the files name the inputs, else by position."""
    numbered = ((_TEST_INPUT.fullmatch(path.name), path) for path in folder.iterdir())
    files = sorted((int(found[1]), path) for found, path in numbered if found is not None)
    if not files or [number for number, _ in files] != list(range(len(files))):
        raise InvalidCase(f"{folder} holds no input_0.pb, input_1.pb, ...: no ONNX test data")
    _bounded(folder, sum(path.stat().st_size for _, path in files))
    tensors = [_tensor(path) for _, path in files]
    arrays = [numpy_helper.to_array(tensor) for tensor in tensors]
    named = {tensor.name: array for tensor, array in zip(tensors, arrays, strict=True)}
    if len(named) == len(arrays) and all(named) and (not names or set(named) <= set(names)):
        yield named
    else:
        yield tuple(arrays)


def _tensor(path: Path) -> onnx.TensorProto:
    tensor = onnx.TensorProto()
    tensor.ParseFromString(path.read_bytes())
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        raise InvalidCase(f"{path} keeps its data in another file; save it with the data in it")
    if tensor.data_type == onnx.TensorProto.UNDEFINED:
        raise InvalidCase(f"{path} is no tensor: sequences and optionals are no inputs of a module")
    return tensor


def _bounded(path: Path, size_bytes: int) -> None:
    if size_bytes > MOST_BYTES:
        raise InvalidCase(
            f"{path} holds {size_bytes / (1 << 30):.1f} GiB; at most {MOST_BYTES >> 30} GiB are read at once: split "
            "it, save it as .npy (which is mapped), or yield parts of it from the target's seeds"
        )


_READERS: dict[str, Callable[[Path, Sequence[str]], Iterator[Item]]] = {
    ".npz": _npz,
    ".safetensors": _safetensors,
    ".npy": _npy,
    ".pt": _torch,
    ".pth": _torch,
}
