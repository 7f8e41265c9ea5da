"""ONNX files and seeds: what is read, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from safetensors.numpy import save_file
from small_models import loaded, model, relu

from fuzzparity.errors import InvalidCase, InvalidTarget
from fuzzparity.sides.files import given_onnx, read_seeds

ROW = np.ones((2, 3), np.float32)


def target_of(given: object):
    return loaded(torch.nn.ReLU(), {"x": ROW}, onnx=given).target


def test_every_form_of_a_given_model_gives_its_bytes(tmp_path: Path) -> None:
    wanted = relu().SerializeToString(deterministic=True)
    onnx.save(relu(), tmp_path / "m.onnx")
    for given in ("m.onnx", tmp_path / "m.onnx", relu(), wanted, relu, lambda: wanted):
        assert given_onnx(target_of(given), str(tmp_path)) == wanted
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
    data = given_onnx(target_of("m.onnx"), str(tmp_path))
    assert data is not None
    assert len(data) > 1600


def test_seed_files_of_every_kind_are_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=ROW, label=np.array(3))
    np.save(tmp_path / "b.npy", ROW.astype(np.float64))
    save_file({"x": ROW}, tmp_path / "c.safetensors")
    (tmp_path / "notes.txt").write_text("not a seed")
    found = list(read_seeds(loaded(torch.nn.ReLU(), {"x": ROW}), [tmp_path]))
    assert [Path(where).name for where, _ in found] == ["a.npz", "b.npy", "c.safetensors"]
    assert {case.inputs["x"].dtype.name for _, case in found} == {"float32"}


def test_unreadable_seeds_of_a_folder_are_reported(tmp_path: Path) -> None:
    (tmp_path / "bad.npz").write_bytes(b"PK junk")
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "other.npz", y=ROW)
    np.savez(tmp_path / "rank.npz", x=ROW[0])
    np.savez(tmp_path / "text.npz", x=np.array([["a"]]))
    skipped: list[str] = []
    assert not list(read_seeds(loaded(torch.nn.ReLU(), {"x": ROW}), [tmp_path], skipped))
    assert len(skipped) == 5
    assert all(str(tmp_path) in line for line in skipped)


def test_a_named_file_of_another_kind_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "image.jpg").write_bytes(b"x")
    for name, said in (("image.jpg", ".npz, .safetensors, .npy are accepted"), ("absent.npz", "no file")):
        with pytest.raises(InvalidCase, match=said):
            list(read_seeds(loaded(torch.nn.ReLU(), {"x": ROW}), [tmp_path / name]))


def test_the_targets_own_seeds_come_first_and_labels_are_ignored() -> None:
    items = [{"x": torch.zeros(1, 3), "label": 7}, {"x": "wrong"}, {"y": 1}]
    skipped: list[str] = []
    found = list(read_seeds(loaded(torch.nn.ReLU(), {"x": ROW}, seeds=lambda: iter(items)), [], skipped))
    assert [where for where, _ in found] == ["target.seeds[0]"]
    assert list(found[0][1].inputs) == ["x"]
    assert len(skipped) == 2


def test_seeds_that_raise_are_the_targets_fault() -> None:
    with pytest.raises(InvalidTarget, match="no data set"):
        list(read_seeds(loaded(torch.nn.ReLU(), {"x": ROW}, seeds=_failing_seeds), [], []))


def _failing_seeds():
    yield {"x": ROW}
    raise OSError("no data set")
