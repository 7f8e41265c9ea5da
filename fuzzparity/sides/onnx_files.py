"""ONNX files: the twin that a target gives, in every form, read as data.

The idea: a file may be wrong or from a stranger. Every path of external data stays in the file's own folder, and
what cannot be read is one clear error.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

import onnx
from onnx.external_data_helper import ExternalDataInfo, _get_all_tensors

from fuzzparity.errors import InvalidTarget
from fuzzparity.sides.files import first_line
from fuzzparity.target import Target


def given_onnx(target: Target, folder: str) -> onnx.ModelProto | None:
    """Return the ONNX that a target gives, external data taken in; None when it is to be exported.

    With its data a model may be above 2 GiB, which no protobuf message holds: never serialize it in one piece.
    """
    given = target.onnx
    if callable(given) and not isinstance(given, onnx.ModelProto):
        try:
            given = given()
        except (Exception, SystemExit) as error:
            raise InvalidTarget(
                "onnx",
                f"calling the target's onnx raised {type(error).__name__}: {first_line(error)}",
                "give a path, bytes, a ModelProto, or a callable that returns one of these",
                traceback.format_exc(),
            ) from None
    if given is None and target.onnx is None:
        return None
    if isinstance(given, onnx.ModelProto):
        return _complete(given, "the target's ModelProto")
    if isinstance(given, (bytes, bytearray, memoryview)):
        return _complete(_parsed(bytes(given), "the target's onnx bytes"), "the target's onnx bytes")
    if isinstance(given, (str, Path)):
        return _read_onnx(Path(folder or ".") / given)
    raise InvalidTarget(
        "onnx",
        f"onnx is {type(given).__name__} {given!r:.60}",
        "give a path, bytes, a ModelProto, or a callable that returns one of these",
    )


def _read_onnx(path: Path) -> onnx.ModelProto:
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
            f"external data of {path} could not be read: {first_line(error)}",
            "save the model again with its data file",
            traceback.format_exc(),
        ) from None
    return model


def _external(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    return (t for t in _get_all_tensors(model) if t.data_location == onnx.TensorProto.EXTERNAL)


def _parsed(data: bytes, what: str) -> onnx.ModelProto:
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except Exception as error:
        raise InvalidTarget(
            "onnx",
            f"{what} is no ONNX model ({type(error).__name__}: {first_line(error)})",
            "give a file written by torch.onnx.export or onnx.save",
        ) from None
    if not model.opset_import or not model.HasField("graph"):
        raise InvalidTarget(
            "onnx", f"{what} is no ONNX model: it has no graph or no opset", "give a file written by onnx.save"
        )
    return model


def _complete(model: onnx.ModelProto, what: str) -> onnx.ModelProto:
    """Return a model that stands alone; one that came without its folder cannot find external data."""
    if any(True for _ in _external(model)):
        raise InvalidTarget(
            "onnx", f"{what} refers to external data files", "give the path of the ONNX file, so that they are found"
        )
    return model


def keep_outputs(model: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    """Return a model with these of its outputs alone, in this order; nodes stay as they are."""
    by_name = {value.name: value for value in model.graph.output}
    kept = onnx.ModelProto()
    kept.CopyFrom(model)
    del kept.graph.output[:]
    kept.graph.output.extend(by_name[name] for name in names)
    return kept
