import json

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load, save

from fuzzparity.case import Case
from fuzzparity.corpus.codec import decode, encode, read_safetensors, write_safetensors
from fuzzparity.errors import InvalidCase

NAMES = [
    *("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"),
    *("float16", "float32", "float64", "complex64", "complex128", "bfloat16", "float8_e4m3fn", "float8_e5m2"),
    *("float8_e8m0fnu", "float8_e4m3fnuz", "float8_e5m2fnuz", "int4", "uint4", "int2", "uint2", "float4_e2m1fn"),
]


@st.composite
def tensors(draw):
    dtype = np.dtype(getattr(ml_dtypes, name := draw(st.sampled_from(NAMES)), name))
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=4)))
    size = int(np.prod(shape)) * dtype.itemsize
    data = draw(st.binary(min_size=size, max_size=size))
    if name == "bool":
        data = bytes(byte & 1 for byte in data)
    array = np.frombuffer(data, dtype).reshape(shape) if size else np.empty(shape, dtype)
    return array.T if draw(st.booleans()) else array


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.text(max_size=20).filter(lambda name: name != "__metadata__"), tensors(), max_size=4))
def test_what_is_encoded_comes_back_bit_for_bit_and_in_order(arrays):
    decoded = decode(encode(arrays))
    assert list(decoded) == list(arrays)
    for name, array in arrays.items():
        assert (decoded[name].dtype, decoded[name].shape) == (array.dtype, array.shape)
        assert decoded[name].tobytes() == array.tobytes()
        assert decoded[name].flags.writeable
        assert decoded[name].flags.aligned
    assert Case(decoded).digest == Case(arrays).digest


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes_are_refused_or_decoded_and_never_anything_else(data):
    try:
        decode(data)
    except InvalidCase:
        pass


@settings(deadline=None)
@given(st.data())
def test_a_sound_file_with_any_byte_changed_is_refused_or_decoded(data):
    sound = bytearray(encode({"x": np.arange(3), "b": np.array([True, False]), "w": np.ones(2, ml_dtypes.int4)}))
    sound[data.draw(st.integers(0, len(sound) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode(bytes(sound))
    except InvalidCase:
        pass


def test_the_form_is_that_of_the_safetensors_library_both_ways():
    arrays = {"b": np.arange(6, dtype=np.float32).reshape(2, 3), "a": np.array(7), "f": np.array([True])}
    for name, array in load(encode(arrays)).items():
        np.testing.assert_array_equal(array, arrays[name])
    for name, array in decode(save(arrays)).items():
        np.testing.assert_array_equal(array, arrays[name])


def test_big_endian_values_survive():
    np.testing.assert_array_equal(decode(encode({"x": np.arange(4, dtype=">i4")}))["x"], np.arange(4))


@pytest.mark.parametrize("array", [np.array(["a"]), np.array([None]), np.array(["2024-01-01"], "datetime64[D]")])
def test_what_is_no_tensor_is_refused_by_name(array):
    with pytest.raises(InvalidCase, match="tensor 'x' has dtype"):
        encode({"x": array})


def file_of(header, body=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


def entry(dtype="F32", shape=(1,), offsets=(0, 4)):
    return {"x": {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "0 bytes"),
        ((1 << 62).to_bytes(8, "little") + b"{}", "claims a header"),
        (file_of(b"[" * 100_000), "no JSON"),
        (file_of(b"\xff\xfe"), "no JSON"),
        (file_of([]), "no JSON object"),
        (file_of({"x": 1}), "no JSON object"),
        (file_of(b'{"x":1,"x":2}'), "twice"),
        (file_of(entry("F99"), bytes(4)), "dtype 'F99'"),
        (file_of(entry(shape=(2,)), bytes(4)), "has 4 bytes"),
        (file_of(entry(shape=(-1,)), bytes(4)), "shape"),
        (file_of(entry(shape=(True,)), bytes(4)), "shape"),
        (file_of(entry(shape=(1,) * 40), bytes(4)), "shape"),
        (file_of(entry(shape=(0, 1 << 39, 1 << 39), offsets=(0, 0))), "shape"),
        (file_of(entry(shape=(0, 1 << 62), offsets=(0, 0))), "shape"),
        (file_of(entry(shape=(1 << 39, 1 << 39), offsets=(0, 4)), bytes(4)), "has 4 bytes"),
        (file_of(entry(offsets=(0, 8)), bytes(4)), "spans"),
        (file_of(entry(offsets=(-4, 0)), bytes(4)), "data_offsets"),
        (file_of(entry(offsets=(4, 0)), bytes(4)), "spans"),
        (file_of(entry(), bytes(5)), "belong to no tensor"),
        (file_of({**entry(), "y": entry()["x"]}, bytes(4)), "overlap"),
        (file_of(entry("BOOL", (1,), (0, 1)), b"\x02"), "neither 0 nor 1"),
        (file_of({"__metadata__": 3}), "metadata"),
        (file_of({"__metadata__": {"dtypes": '{"x": "complex128"}'}, **entry()}, bytes(4)), "cannot carry"),
        (file_of({"__metadata__": {"dtypes": '{"x": "object"}'}, **entry()}, bytes(4)), "cannot carry"),
    ],
)
def test_hostile_files_are_refused_with_a_reason(data, said):
    with pytest.raises(InvalidCase, match=said):
        decode(data)


def test_files_are_bounded_and_written_whole(tmp_path):
    path = tmp_path / "x.safetensors"
    write_safetensors(path, {"x": np.zeros(10)})
    assert list(read_safetensors(path)) == ["x"]
    assert list(tmp_path.iterdir()) == [path]
    with path.open("r+b") as file:
        file.truncate(50)
    with pytest.raises(InvalidCase, match="not a sound"):
        read_safetensors(path)
    with path.open("r+b") as file:
        file.truncate(20 << 30)  # sparse
    with pytest.raises(InvalidCase, match="at most"):
        read_safetensors(path)
    for missing in (tmp_path / "none", tmp_path):
        with pytest.raises(InvalidCase, match="is no file"):
            read_safetensors(missing)
