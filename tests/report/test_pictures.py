import re

import numpy as np
import pytest

from fuzzparity.report.graphs import MOST_NODES, drawn
from fuzzparity.report.pictures import picture_of
from fuzzparity.report.planes import MOST_CELLS, chosen_axes, plane_of


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((1, 3, 24, 32), (2, 3)),  # an image: height and width
        ((1, 24, 32, 3), (1, 2)),  # channels last
        ((2, 12, 64), (1, 2)),  # a sequence: steps and features
        ((1, 10), (1,)),
        ((2, 10), (1,)),  # two rows read better as a profile of the worse one
        ((32, 10), (0, 1)),
        ((7, 1, 1), (0,)),
        ((1, 1), (1,)),
        ((), ()),
    ],
)
def test_axes_are_those_a_reader_looks_for(shape, axes):
    assert chosen_axes(shape) == axes


def test_thinning_keeps_the_one_element_that_differs():
    expected = np.zeros((1000, 1003), np.float32)
    for place in ((999, 1002), (0, 0), (517, 3)):
        actual = expected.copy()
        actual[place] = 7
        plane = plane_of(expected, actual, place)
        assert plane.is_thinned
        assert max(plane.error.shape) <= MOST_CELLS
        assert plane.error.max() == 7
        assert plane.error[plane.marked] == 7


def test_nonfinite_differences_are_infinite_and_equal_ones_are_none():
    expected = np.array([np.nan, np.inf, 1, -np.inf, 5], np.float32)
    actual = np.array([np.nan, np.inf, np.nan, np.inf, 5], np.float32)
    plane = plane_of(expected, actual)
    assert plane.error.tolist() == [0, 0, np.inf, np.inf, 0]
    where = np.array([True, True, False, True, True])
    assert np.isnan(plane_of(expected, actual, None, where).error[2])
    picture = picture_of(np.tile(expected, 9), np.tile(actual, 9))
    assert [name for name, _ in picture.colours] == ["nan", "infinite"]
    without_classes = re.sub(' class="[^"]*"', "", str(picture.drawings[0]))
    assert not re.search(r'="[^"]*(nan|inf)', without_classes)  # no coordinate is one


@pytest.mark.parametrize("dtype", [np.bool_, np.int64, np.uint8, np.float16, np.float64, np.complex64])
def test_every_dtype_has_a_picture(dtype):
    expected = (np.arange(600) % 7).reshape(1, 20, 30).astype(dtype)
    actual = expected.copy()
    actual[0, 4, 5] = 0
    picture = picture_of(expected, actual, (0, 4, 5))
    assert len(picture.drawings) == 3
    assert picture_of(expected, actual[:, 1:]) is None
    assert picture_of(expected[:0], actual[:0]) is None


def test_the_largest_floats_have_a_scale():
    top = np.finfo(np.float64).max
    expected = np.where(np.arange(40) % 2, top, -top)
    drawing = str(picture_of(expected, -expected).drawings[0])
    assert "nan" not in re.sub('class="[^"]*"', "", drawing.lower())


def chain(length):
    from onnx import TensorProto, helper

    nodes = [helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"], name=f"n{i}") for i in range(length)]
    nodes.append(helper.make_node("Add", ["v1", f"v{length}"], ["y<b>"], name="last"))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("v0", "y<b>")]
    return helper.make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:])).SerializeToString()


def test_a_graph_is_drawn_around_the_node_at_fault_and_stays_small():
    found = drawn(chain(400), node="n200")
    assert str(found.drawing).count("<g>") == 10  # six before it, three after it
    assert "guilty" in str(found.drawing)
    assert ">n203<" in str(found.drawing)
    assert ">n204<" not in str(found.drawing)
    whole = drawn(chain(5), output="nothing of this name", place=0)
    assert whole.caption.startswith("the whole of it")
    assert "y&lt;b&gt;" in str(whole.drawing)
    assert str(drawn(chain(400), output="y<b>").drawing).count("<g>") <= MOST_NODES
    assert drawn(b"no model", node="n1") is None
    assert drawn(chain(5), node="not there") is None
