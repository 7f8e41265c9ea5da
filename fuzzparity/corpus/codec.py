"""Codec: named tensors to bytes and back, in safetensors form.

The idea: the form is a JSON header and raw little-endian bytes, so it can be read by hand, and files may come from
strangers: everything the header claims is checked against what is there before an array is made. Written here
because the numpy API of safetensors knows neither bfloat16 nor float8, loses the order of names, and has no int4.
"""

from __future__ import annotations

import functools
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from fuzzparity.case import Array
from fuzzparity.errors import InvalidCase

MAX_BYTES = 1 << 30  # of one encoded set of tensors
MAX_HEADER_BYTES = 8 << 20
MAX_RANK = 32
MAX_DIM = 1 << 40  # an empty array may claim any dims; numpy refuses products over 2**63

_Dtype = np.dtype[Any]
_TAGS: dict[str, str] = {  # numpy name -> safetensors tag
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "uint16": "U16",
    "int16": "I16",
    "uint32": "U32",
    "int32": "I32",
    "uint64": "U64",
    "int64": "I64",
    "float16": "F16",
    "float32": "F32",
    "float64": "F64",
    "complex64": "C64",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e8m0fnu": "F8_E8M0",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
}
_CARRIED: dict[str, str] = {  # dtypes without a tag: stored under another one, named in the metadata
    "int4": "I8",
    "uint4": "U8",
    "int2": "I8",
    "uint2": "U8",
    "float4_e2m1fn": "U8",
    "complex128": "F64",
}


_compact = json.JSONEncoder(separators=(",", ":")).encode
_name = functools.cache(lambda dtype: str(dtype.name))  # numpy builds the name anew each time


def _dtype(name: str) -> _Dtype:
    return np.dtype(getattr(ml_dtypes, name, name)).newbyteorder("<")


_DTYPES: dict[str, _Dtype] = {name: _dtype(name) for name in (*_TAGS, *_CARRIED)}
_NATIVE: dict[_Dtype, _Dtype] = {dtype: dtype.newbyteorder("=") for dtype in _DTYPES.values()}
_NAMES: dict[str, str] = {tag: name for name, tag in _TAGS.items()}


def encode(arrays: Mapping[str, Array]) -> bytes:
    """Return named tensors in safetensors form; the metadata keeps their order when the file has another.

    InvalidCase for a dtype that is no tensor (object, text, dates), and beyond `MAX_BYTES`.
    """
    entries: dict[str, Any] = {}
    carried: dict[str, str] = {}
    chunks: list[bytes] = []
    offset = 0
    # widest first: every tensor is then aligned in the file, as other readers of the form expect
    names = sorted(arrays, key=lambda name: -arrays[name].dtype.itemsize)
    for name in names:
        array = arrays[name]
        dtype, shape = _name(array.dtype), list(array.shape)
        if name == "__metadata__" or dtype not in _DTYPES:
            raise InvalidCase(_refused(name, dtype))
        tag = _TAGS.get(dtype, "")
        if not tag:
            carried[name] = dtype
            tag = _CARRIED[dtype]
            shape = [*shape, 2] if dtype == "complex128" else shape
        chunks.append((array if array.dtype == _DTYPES[dtype] else array.astype(_DTYPES[dtype])).tobytes())
        end = offset + len(chunks[-1])
        entries[name] = {"dtype": tag, "shape": shape, "data_offsets": [offset, end]}
        offset = end
    if offset > MAX_BYTES:
        raise InvalidCase(f"tensors of {offset:,} bytes were given; at most {MAX_BYTES:,} can be stored")
    metadata = {"dtypes": json.dumps(carried)} if carried else {}
    if names != list(arrays):
        metadata["order"] = json.dumps(list(arrays))
    header = _compact({"__metadata__": metadata, **entries} if metadata else entries).encode()
    header += b" " * (-len(header) % 8)
    return b"".join((len(header).to_bytes(8, "little"), header, *chunks))


def decode(data: bytes | memoryview, *, max_bytes: int = MAX_BYTES) -> dict[str, Array]:
    """Return the tensors in safetensors bytes, each an own aligned copy, in their first order.

    The bytes may come from a stranger: InvalidCase names what is wrong with them.
    """
    view = memoryview(data)
    if len(view) > max_bytes + MAX_HEADER_BYTES:
        raise _malformed(f"{len(view):,} bytes, at most {max_bytes:,} are read")
    header, body = _split(view)
    metadata = header.pop("__metadata__", {})
    order, carried = _metadata(metadata)
    arrays: dict[str, Array] = {}
    spans: list[tuple[int, int]] = []
    for name, entry in header.items():
        dtype, shape, begin, end = _entry(name, entry, carried.get(name))
        if not 0 <= begin <= end <= len(body):
            raise _malformed(f"tensor {name!r:.80} spans {begin}..{end} of {len(body)} bytes")
        if math.prod(shape) * dtype.itemsize != end - begin:
            raise _malformed(f"tensor {name!r:.80} of {dtype.name}{shape} has {end - begin} bytes")
        spans.append((begin, end))
        arrays[name] = _array(name, dtype, shape, body[begin:end])
    _check_cover(spans, len(body))
    names = [name for name in order if name in arrays]
    return {name: arrays[name] for name in dict.fromkeys([*names, *arrays])}


def read_safetensors(path: Path, *, max_bytes: int = MAX_BYTES) -> dict[str, Array]:
    """Return the tensors in a file; InvalidCase when it is missing, too large or malformed."""
    try:
        if not path.is_file():
            raise InvalidCase(f"{path} is no file; a .safetensors file was wanted")
        size = path.stat().st_size
        if size > max_bytes + MAX_HEADER_BYTES:
            raise InvalidCase(f"{path} has {size:,} bytes; at most {max_bytes:,} are read")
        data = path.read_bytes()
    except OSError as error:
        raise InvalidCase(f"{path} cannot be read: {error.strerror or error}") from error
    try:
        return decode(data, max_bytes=max_bytes)
    except InvalidCase as error:
        raise InvalidCase(f"{path}: {error}") from None


def write_safetensors(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write tensors to a file, whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(encode(arrays))
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _refused(name: str, dtype: str) -> str:
    if name == "__metadata__":
        return "a tensor is named '__metadata__', which the safetensors form keeps for itself; give it another name"
    return f"tensor {name!r} has dtype {dtype}, which no tensor can have here; one of {', '.join(_DTYPES)} was wanted"


def _malformed(problem: str) -> InvalidCase:
    return InvalidCase(f"not a sound safetensors file: {problem}")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        raise _malformed("a name stands in its header twice")
    return entries


def _split(view: memoryview) -> tuple[dict[str, Any], memoryview]:
    """Return header and body; the header is a dict, nothing in it is checked yet."""
    if len(view) < 8:
        raise _malformed(f"{len(view)} bytes, at least 8 are needed")
    length = int.from_bytes(view[:8], "little")
    if length > min(len(view) - 8, MAX_HEADER_BYTES):
        raise _malformed(f"it claims a header of {length:,} bytes in a file of {len(view):,}")
    try:
        header = json.loads(bytes(view[8 : 8 + length]), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        raise _malformed(f"its header is no JSON ({type(error).__name__})") from None
    if not isinstance(header, dict):
        raise _malformed("its header is no JSON object")
    return header, view[8 + length :]


def _metadata(metadata: Any) -> tuple[list[str], dict[str, str]]:
    """Return the order of names and the dtypes of carried tensors; both may be missing (another writer's file)."""
    if not isinstance(metadata, dict):
        raise _malformed("its metadata is no JSON object")
    if not metadata:
        return [], {}
    try:
        order = json.loads(metadata.get("order", "[]"))
        carried = json.loads(metadata.get("dtypes", "{}"))
    except (ValueError, TypeError, RecursionError):
        return [], {}  # another writer's "order"
    if not isinstance(order, list) or not all(isinstance(name, str) for name in order):
        order = []
    if not isinstance(carried, dict) or not all(isinstance(value, str) for value in carried.values()):
        carried = {}
    return order, carried


def _entry(name: str, entry: Any, carried: str | None) -> tuple[_Dtype, tuple[int, ...], int, int]:
    """Return dtype, shape and span of one header entry, each of the right type and bounded."""
    if not isinstance(entry, dict):
        raise _malformed(f"the entry of tensor {name!r:.80} is no JSON object")
    tag: Any = entry.get("dtype")
    shape: Any = entry.get("shape")
    span: Any = entry.get("data_offsets")
    numpy_name = _NAMES.get(tag) if isinstance(tag, str) else None
    if numpy_name is None:
        raise _malformed(f"tensor {name!r:.80} has dtype {tag!r:.40}, known are {', '.join(_NAMES)}")
    if not _are_sizes(shape) or len(shape) > MAX_RANK or max(shape, default=0) > MAX_DIM:
        raise _malformed(f"tensor {name!r:.80} has shape {shape!r:.80}")
    if not _are_sizes(span) or len(span) != 2:
        raise _malformed(f"tensor {name!r:.80} has data_offsets {span!r:.80}")
    if carried is not None:
        if _CARRIED.get(carried) != tag:
            raise _malformed(f"tensor {name!r:.80} is {tag} and cannot carry {carried!r:.40}")
        numpy_name = carried
        if carried == "complex128":
            if not shape or shape[-1] != 2:
                raise _malformed(f"tensor {name!r:.80} is complex128 and its last dim is not 2")
            shape = shape[:-1]
    return _DTYPES[numpy_name], tuple(shape), span[0], span[1]


def _are_sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)


def _array(name: str, dtype: _Dtype, shape: tuple[int, ...], data: memoryview) -> Array:
    """Return an own copy of the bytes as an array of native byte order."""
    native = _NATIVE[dtype]
    try:
        if not len(data):
            return np.empty(shape, native)
        array = np.frombuffer(data, np.uint8 if dtype.kind == "b" else dtype)
    except ValueError as error:  # dims whose product numpy cannot hold, one of them 0
        raise _malformed(f"tensor {name!r:.80} of shape {shape}: {error}") from None
    if dtype.kind == "b":
        if array.max() > 1:
            raise _malformed(f"tensor {name!r:.80} is bool and holds a byte that is neither 0 nor 1")
        array = array.view(np.bool_)
    return array.astype(native, copy=True).reshape(shape)


def _check_cover(spans: list[tuple[int, int]], size: int) -> None:
    """Refuse overlaps and holes: every byte belongs to one tensor."""
    at = 0
    for begin, end in sorted(spans):
        if begin != at:
            raise _malformed(f"tensors overlap or leave a hole at byte {min(begin, at)}")
        at = end
    if at != size:
        raise _malformed(f"{size - at} bytes belong to no tensor")
