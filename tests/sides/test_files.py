"""Seeds: what is read, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from small_models import loaded

from fuzzparity.errors import InvalidCase, InvalidTarget
from fuzzparity.sides.files import read_seeds

ROW = np.ones((2, 3), np.float32)


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
