import ast

import ml_dtypes
import numpy as np
import onnx
import pytest
import twins
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from onnx import TensorProto, helper, numpy_helper

from fuzzparity.report.literal import array_literal, model_source, needs_ml_dtypes

NAMES = {"np": np, "ml_dtypes": ml_dtypes, "nan": float("nan"), "inf": float("inf"), "helper": helper}


def rebuilt(literal):
    ast.parse(literal, mode="eval")
    return eval(literal, dict(NAMES))


DTYPES = ["float16", "float32", "float64", "int8", "uint8", "int32", "int64", "uint64", "bool"]


@given(st.sampled_from(DTYPES).flatmap(lambda d: hnp.arrays(d, hnp.array_shapes(min_dims=0, min_side=0, max_side=4))))
def test_a_literal_rebuilds_its_array_bit_for_bit(array):
    literal = array_literal(array, most_elements=256)
    again = rebuilt(literal)
    assert (again.dtype, again.shape, again.tobytes()) == (array.dtype, array.shape, array.tobytes())


@given(st.lists(st.integers(0, 2**16 - 1), max_size=8))
def test_a_bfloat16_literal_rebuilds_its_array(bits):
    array = np.array(bits, np.uint16).view(ml_dtypes.bfloat16)
    again = rebuilt(array_literal(array))
    assert again.dtype == array.dtype
    assert again.tobytes() == array.tobytes()
    assert needs_ml_dtypes([array])


def test_payloads_of_nan_survive_and_large_uniform_arrays_are_short():
    payload = np.array([0x7FC12345, 0xFFC00000], np.uint32).view(np.float32)
    assert rebuilt(array_literal(payload)).tobytes() == payload.tobytes()
    assert array_literal(np.zeros((3, 224, 224), np.float32)) == "np.zeros((3, 224, 224), 'float32')"
    assert rebuilt(array_literal(np.full((99, 2), -0.0))).tobytes() == np.full((99, 2), -0.0).tobytes()
    assert array_literal(np.arange(65)) is None
    assert array_literal(np.array(["text"])) is None


def without_metadata(model):
    again = onnx.ModelProto.FromString(model.SerializeToString())
    for node in again.graph.node:
        node.ClearField("metadata_props")
    for tensor in again.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor), tensor.name))
    return again


@pytest.mark.parametrize(
    "make", [twins.add_model, twins.lstm_model, twins.div_model, twins.clip_model, twins.reshape_model]
)
def test_a_model_written_out_is_the_same_model(make):
    model = make()
    model.graph.node[0].metadata_props.add(key="pkg.torch.onnx.stack_trace", value="/home/x.py")
    source = "def model():\n" + model_source(model)
    space = {**NAMES, "numpy_helper": numpy_helper}
    exec(compile(source, "model", "exec"), space)
    assert space["model"]().SerializeToString(deterministic=True) == without_metadata(model).SerializeToString(
        deterministic=True
    )


def test_every_plain_attribute_survives():
    value = numpy_helper.from_array(np.array([1.5, np.nan], np.float32), "t")
    node = helper.make_node(
        "Op",
        ["x"],
        ["y"],
        domain="own",
        i=3,
        f=0.1,
        s="a'\n",
        ints=[1, 2],
        floats=[0.1, 2.0],
        strings=["a", "b"],
        t=value,
    )
    info = twins.info("x", TensorProto.FLOAT, [None, "n", 3]), twins.info("y", TensorProto.FLOAT, None)
    model = twins.to_model([node], [info[0]], [info[1]])
    space = {**NAMES, "numpy_helper": numpy_helper}
    exec(compile("def model():\n" + model_source(model), "model", "exec"), space)
    assert space["model"]().SerializeToString(deterministic=True) == model.SerializeToString(deterministic=True)


def test_a_model_with_a_body_or_too_many_nodes_stays_in_its_file():
    assert model_source(twins.loop_model()) is None
    nodes = [helper.make_node("Relu", [f"x{i}"], [f"x{i + 1}"]) for i in range(13)]
    info = [twins.info(name, TensorProto.FLOAT, [1]) for name in ("x0", "x13")]
    assert model_source(twins.to_model(nodes, info[:1], info[1:])) is None
