"""The ONNX that a target gives, in every form: what is read, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from small_models import loaded, model, relu

from fuzzparity.errors import InvalidTarget
from fuzzparity.sides.onnx_files import given_onnx

ROW = np.ones((2, 3), np.float32)


def target_of(given: object):
    return loaded(torch.nn.ReLU(), {"x": ROW}, onnx=given).target


def test_every_form_of_a_given_model_gives_its_bytes(tmp_path: Path) -> None:
    wanted = relu().SerializeToString(deterministic=True)
    onnx.save(relu(), tmp_path / "m.onnx")
    for given in ("m.onnx", tmp_path / "m.onnx", relu(), wanted, relu, lambda: wanted):
        found = given_onnx(target_of(given), str(tmp_path))
        assert found is not None
        assert found.SerializeToString(deterministic=True) == wanted
    assert given_onnx(target_of(None), "") is None


@pytest.mark.parametrize("given", ["absent.onnx", b"junk", b"", 3, lambda: None, lambda: 1 / 0, "junk.onnx"])
def test_a_file_that_is_no_onnx_is_said(tmp_path: Path, given: object) -> None:
    (tmp_path / "junk.onnx").write_bytes(b"\x08\x01 not a model")
    with pytest.raises(InvalidTarget) as caught:
        given_onnx(target_of(given), str(tmp_path))
    assert caught.value.stage == "onnx"


@pytest.mark.parametrize("location", ["../secret", "/etc/hostname", "link", "absent"])
def test_external_data_stays_in_its_folder(tmp_path: Path, location: str) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(bytes(64))
    (folder / "link").symlink_to(tmp_path / "secret")
    row = (TensorProto.FLOAT, [4])
    made = model([helper.make_node("Add", ["x", "w"], ["y"])], {"x": row}, {"y": row}, {"w": np.ones(4, np.float32)})
    tensor = made.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    (folder / "m.onnx").write_bytes(made.SerializeToString())
    with pytest.raises(InvalidTarget):
        given_onnx(target_of("m.onnx"), str(folder))


def test_external_data_beside_the_model_is_taken_in(tmp_path: Path) -> None:
    row = (TensorProto.FLOAT, [400])
    made = model([helper.make_node("Add", ["x", "w"], ["y"])], {"x": row}, {"y": row}, {"w": np.ones(400, np.float32)})
    onnx.save_model(made, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    found = given_onnx(target_of("m.onnx"), str(tmp_path))
    assert found is not None
    assert len(found.graph.initializer[0].raw_data) == 1600
