"""Load: a target as named on the command line becomes one `LoadedTarget`, or one clear `InvalidTarget`.

The idea: whatever the user's code does while it loads (raise, exit, return something else) ends in a message with its
stage, what was given, what was wanted and what to do; the traceback rides along for `--debug` and is never shown
otherwise.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from fuzzparity.case import Array, Case
from fuzzparity.errors import FuzzparityError, InvalidTarget
from fuzzparity.sides.call import Call
from fuzzparity.sides.files import load_program
from fuzzparity.sides.tensors import to_array
from fuzzparity.target import Target, leaves

DEFAULT_NAME = "target"


@dataclasses.dataclass(frozen=True)
class LoadedTarget:
    """Hold a target in memory.

    `folder`: where its own file lies ("" for a module name). `seed`: its first seed. `module`: what torch calls; it is
    `target.module`, or the module inside it when that is an ExportedProgram. `device`: where torch runs it.
    """

    target: Target
    name: str
    spec: str
    folder: str
    notes: tuple[str, ...]
    seed: Case
    module: Callable[..., Any]
    device: str = "cpu"
    dtypes: tuple[str, ...] = ()  # which of its builds: "image=float16"; none where the target asks for one build

    @functools.cached_property
    def call(self) -> Call:
        """Return how a case becomes the arguments of the module."""
        return Call.of(self.target)


def load_target(
    spec: str,
    *,
    onnx: str | None = None,
    torch_file: str | None = None,
    seeds_first: Mapping[str, Array] | None = None,
) -> LoadedTarget:
    """Load the target that a command line names.

    `spec`: a folder with a `target.py`, `path/to/file.py[:name]` or `package.module:name`. With `torch_file` (a .pt2
    or TorchScript program) and `onnx` instead, `seeds_first` gives the inputs. Raises `InvalidTarget`.
    """
    moved: list[str] = []
    torch.set_num_threads(1)  # before any of the target's code: a thread pool does not survive the fork to come
    if torch_file is not None:
        target, name, folder = _from_files(torch_file, onnx, seeds_first)
        spec = spec or torch_file
    else:
        here = Path.cwd()
        target, name, folder = _from_code(spec)
        if Path.cwd() != here:  # what a campaign writes, and what its command line names, is relative to where it began
            os.chdir(here)
            moved = ["the target's code changed the working directory; it was put back"]
        if onnx is not None:
            target = dataclasses.replace(target, onnx=str(Path(onnx).absolute()))
    return loaded_here(target, name, spec, folder, tuple(moved))


def loaded_here(
    target: Target, name: str = DEFAULT_NAME, spec: str = "", folder: str = "", notes: tuple[str, ...] = ()
) -> LoadedTarget:
    """Return a target that exists in this process as a loaded one: its module in eval mode, its inputs as a seed.

    `name` is for a target without one. Raises `InvalidTarget` where its inputs do not fit its module's forward.
    """
    module = target.module.module() if isinstance(target.module, torch.export.ExportedProgram) else target.module
    notes = (*notes, *_in_eval_mode(module))
    seed = first_seed(target)
    Call.of(target).require(module)
    return LoadedTarget(target, target.name or name, spec, folder, notes, seed, module)


def first_seed(target: Target) -> Case:
    """Return the target's inputs as a flat case, those given by keyword last; order is kept."""
    given = {**target.inputs, **target.kwargs}
    flat = (leaf for name, value in given.items() for leaf in leaves(value, name))
    return Case({name: as_array(name, value) for name, value in flat})


def as_array(name: str, value: Any) -> Array:
    """Return one input as an array; `InvalidTarget` when it is neither a tensor nor an array of numbers."""
    if isinstance(value, torch.Tensor):
        return to_array(value)
    if isinstance(value, (np.ndarray, np.generic)) and np.asarray(value).dtype.kind in "biufcV":
        array = np.asarray(value)
        return np.array(array, dtype=array.dtype.newbyteorder("="), copy=True)
    kind = f"an array of {value.dtype}" if isinstance(value, np.ndarray) else f"{type(value).__name__} {value!r:.60}"
    raise InvalidTarget(
        "inputs",
        f"input {name!r} is {kind}",
        "give a tensor or a numpy array for each input, e.g. {'image': torch.zeros(1, 3, 8, 8)}",
    )


def _from_files(torch_file: str, onnx: str | None, seeds: Mapping[str, Array] | None) -> tuple[Target, str, str]:
    module = load_program(Path(torch_file))
    if not seeds:
        raise InvalidTarget(
            "inputs",
            f"{torch_file} comes without inputs",
            "give a first seed with --seeds FILE (.npz or .safetensors, one array per input, in forward's order)",
        )
    if onnx is not None and not Path(onnx).is_file():
        raise InvalidTarget("onnx", f"there is no file {onnx}", "give the path of an ONNX file")
    path = Path(torch_file).absolute()
    given = str(Path(onnx).absolute()) if onnx is not None else None
    return Target(module=module, inputs=dict(seeds), onnx=given), path.stem, str(path.parent)


def _from_code(spec: str) -> tuple[Target, str, str]:
    path, attribute = _split(spec)
    if path is None:
        module_name, _, attribute = spec.partition(":")
        with _user_code(f"importing {module_name}"):
            module = _import_named(module_name)
        name = module_name.rpartition(".")[2]
        return _target_of(module, attribute or DEFAULT_NAME, spec, name), name, ""
    file = path / "target.py" if path.is_dir() else path
    if not file.is_file():
        what = f"folder {path} holds no target.py" if path.is_dir() else f"there is no file {path}"
        raise InvalidTarget(
            "load", what, "give a folder with a target.py, path/to/file.py[:name] or package.module:name"
        )
    folder = file.absolute().parent
    name = folder.name if path.is_dir() or file.name == "target.py" else file.stem
    with _first_on_path(folder):
        with _user_code(f"importing {file}"):
            module = _import_file(file)
        return _target_of(module, attribute, spec, name), name, str(folder)


def _split(spec: str) -> tuple[Path | None, str]:
    """Return (path, name) of a spec that names a file or folder, (None, "") of one that names a module."""
    if not spec:
        raise InvalidTarget("load", "no target was named", "name a folder with a target.py, a .py file or module:name")
    if Path(spec).exists():
        return Path(spec), DEFAULT_NAME
    head, colon, tail = spec.rpartition(":")
    if colon and (head.endswith(".py") or Path(head).exists()):
        return Path(head), tail or DEFAULT_NAME
    looks_like_module = all(part.isidentifier() for part in (head or spec).split("."))
    if not looks_like_module or spec.endswith(".py") or not (colon or "." in spec):
        return Path(spec), DEFAULT_NAME
    return None, ""


def _import_file(file: Path) -> ModuleType:
    if file.suffix != ".py":
        raise InvalidTarget("load", f"{file} is no Python file", "a program and its ONNX file go by --torch and --onnx")
    name = f"fuzzparity_target_{file.stem}"
    found = importlib.util.spec_from_file_location(name, file.absolute())
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module  # dataclasses and torch.export look their module up here
    found.loader.exec_module(module)
    return module


def _import_named(name: str) -> ModuleType:
    with _first_on_path(Path.cwd()):
        return importlib.import_module(name)


def _target_of(module: ModuleType, attribute: str, spec: str, name: str) -> Target:
    found = getattr(module, attribute, None)
    if found is None:
        known = [key for key, value in vars(module).items() if _may_be_target(key, value, module)]
        raise InvalidTarget(
            "load",
            f"{spec} has no {attribute!r}",
            f"candidates: {', '.join(known)}; name one with {spec.partition(':')[0]}:NAME"
            if known
            else "define `def target() -> fuzzparity.Target` in it",
        )
    if callable(found) and not isinstance(found, (Target, torch.nn.Module)):
        _require_no_arguments(found, spec, attribute)
        with _user_code(f"calling {attribute}() of {name}"):
            found = found()
    if isinstance(found, Target):
        return found
    advice = "return fuzzparity.Target(module=..., inputs={'name': tensor})"
    if isinstance(found, Mapping):
        advice += "; a state_dict is weights only: build the module and load them"
    raise InvalidTarget("load", f"{attribute!r} of {spec} gave {type(found).__name__}, not a Target", advice)


def _may_be_target(key: str, value: Any, module: ModuleType) -> bool:
    if key.startswith("_"):
        return False
    own = getattr(value, "__module__", None) == module.__name__
    return isinstance(value, Target) or (inspect.isfunction(value) and own and not _required(value))


def _required(function: Any) -> list[str]:
    """Return the names of the parameters that a call must give."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.default is p.empty and p.kind not in variable]


def _require_no_arguments(found: Any, spec: str, attribute: str) -> None:
    required = _required(found)
    if required:
        raise InvalidTarget(
            "load",
            f"{attribute!r} of {spec} wants arguments: {', '.join(required)}",
            "give a Target, or a callable without required arguments that returns one",
        )


def _in_eval_mode(module: Any) -> tuple[str, ...]:
    """Put an nn.Module in eval mode and return the note that says so, if it was not."""
    if not isinstance(module, torch.nn.Module) or not any(part.training for part in module.modules()):
        return ()
    try:
        module.eval()
    except NotImplementedError:  # modules of torch.export have fixed their mode at export
        return ()
    return ("the module was in train mode: put in eval mode",)


@contextlib.contextmanager
def _first_on_path(folder: Path) -> Iterator[None]:
    """Put a folder first on sys.path, and leave it there at the end: targets import lazily."""
    text = str(folder)
    sys.path.insert(0, text)
    try:
        yield
    finally:
        sys.path.remove(text)
        sys.path.append(text)


@contextlib.contextmanager
def _user_code(doing: str) -> Iterator[None]:
    """Turn whatever the user's code raises into one `InvalidTarget` with the place in it."""
    try:
        yield
    except FuzzparityError:
        raise
    except (Exception, SystemExit) as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<frozen")]
        place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if len(frames) > 1 else ""
        text = str(error).strip().splitlines()
        said = f": {text[0][:300]}" if text else ""
        raise InvalidTarget(
            "load",
            f"{doing} raised {type(error).__name__}{said}{place}",
            "run the file with Python by itself until it loads",
            "".join(traceback.format_exception(error)),
        ) from None
