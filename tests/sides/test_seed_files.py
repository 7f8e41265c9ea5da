"""Seeds: what is read of validation data, what is made to fit and said, and what is refused."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper
from PIL import Image
from safetensors.numpy import save_file
from scipy.io import wavfile
from small_models import loaded

from fuzzparity.contract import Contract, Dim, InputContract
from fuzzparity.errors import InvalidCase, InvalidTarget
from fuzzparity.sides.seed_files import first_arrays
from fuzzparity.sides.seeds import Place, SeedReader

ROW = np.ones((2, 3), np.float32)
PICTURE = torch.rand(1, 3, 8, 12, generator=torch.Generator().manual_seed(0))


def dims(shape: tuple[int, ...], **names: int) -> tuple[Dim, ...]:
    """Return dims of a first seed's shape; `batch=0` makes axis 0 dynamic under that name."""
    by_axis = {axis: name for name, axis in names.items()}
    return tuple(Dim(size, by_axis.get(axis, "")) for axis, size in enumerate(shape))


def contract(batch: str = "", **inputs: tuple[str, tuple[Dim, ...]]) -> Contract:
    items = tuple(
        InputContract(name, dtype, found, onnx_name=f"onnx_{name}") for name, (dtype, found) in inputs.items()
    )
    return Contract(items, batch=batch)


def reader_of(inputs: dict[str, Any], given: Contract | None = None, **fields: Any) -> SeedReader:
    return SeedReader(loaded(torch.nn.ReLU(), inputs, **fields), given)


def pictures(**fields: Any) -> SeedReader:
    return reader_of({"x": PICTURE}, contract(x=("float32", dims((1, 3, 8, 12), batch=0))), **fields)


def test_seed_files_of_every_kind_are_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=ROW, label=np.array(3))
    np.save(tmp_path / "b.npy", ROW.astype(np.float64))
    save_file({"x": ROW}, tmp_path / "c.safetensors")
    np.savez(tmp_path / "d.npz", ROW, np.array(3))
    torch.save(torch.ones(2, 3), tmp_path / "e.pt")
    torch.save({"x": torch.ones(2, 3), "label": 1}, tmp_path / "f.pth")
    torch.save((torch.ones(2, 3), torch.tensor(1)), tmp_path / "g.pt")
    torch.save([({"x": torch.ones(2, 3)}, 1), (torch.zeros(2, 3), 0)], tmp_path / "h.pt")
    (tmp_path / "notes.txt").write_text("not a seed")
    (tmp_path / ".hidden.npy").write_bytes(b"")
    reader = reader_of({"x": ROW})
    found = list(reader.read([tmp_path]))
    names = ["a.npz", "b.npy", "c.safetensors", "d.npz", "e.pt", "f.pth", "g.pt", "h.pt[0]", "h.pt[1]"]
    assert [Path(item.where).name for item in found] == names
    assert {item.case.inputs["x"].dtype.name for item in found} == {"float32"}
    assert not found[-1].case.inputs["x"].any()
    labels = [None if item.case.label is None else int(item.case.label) for item in found]
    assert labels == [3, None, None, 3, None, 1, 1, 1, 0]
    assert reader.skipped == []
    assert reader.notes == ["files of no known kind were passed over: .txt (1)"]


def test_unreadable_seeds_of_a_folder_are_named_and_all_of_them_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "bad.npz").write_bytes(b"PK junk")
    (tmp_path / "bad.png").write_bytes(b"junk")
    (tmp_path / "bad.pt").write_bytes(b"junk")
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "other.npz", y=ROW)
    np.savez(tmp_path / "rank.npz", x=ROW[None])
    np.savez(tmp_path / "text.npz", x=np.array([["a"]]))
    torch.save({"conv.weight": torch.ones(2, 3)}, tmp_path / "weights.pt")
    reader = reader_of({"x": ROW})
    with pytest.raises(InvalidCase, match=r"nothing could be read from .*bad\.npz.*and 5 more"):
        list(reader.read([tmp_path]))
    np.savez(tmp_path / "good.npz", x=ROW)
    again = reader_of({"x": ROW})
    assert len(list(again.read([tmp_path]))) == 1
    assert len(again.skipped) == 8
    assert all(str(tmp_path) in line for line in again.skipped)
    assert any("state_dict of 1 tensors" in line for line in again.skipped)


def test_a_pickle_is_never_run(tmp_path: Path) -> None:
    (tmp_path / "evil.pt").write_bytes(b"cos\nsystem\n(S'touch %s'\ntR." % os.fsencode(tmp_path / "run"))
    with pytest.raises(InvalidCase, match="could not be read"):
        list(reader_of({"x": ROW}).read([tmp_path / "evil.pt"]))
    assert not (tmp_path / "run").exists()


def test_a_named_file_of_another_kind_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "image.txt").write_bytes(b"x")
    for name, said in (("image.txt", "is no seed file: .npz, .safetensors, .npy"), ("absent.npz", "no file")):
        with pytest.raises(InvalidCase, match=said):
            list(reader_of({"x": ROW}).read([tmp_path / name]))
    with pytest.raises(InvalidCase, match=r"no seed file in .*it holds \.txt files"):
        list(reader_of({"x": ROW}).read([tmp_path]))


def test_the_targets_own_seeds_come_first_and_labels_are_ignored(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", ROW)
    items = [{"x": torch.zeros(1, 3), "label": 7}, {"x": "wrong"}, {"y": 1}]
    reader = reader_of({"x": ROW}, seeds=lambda: iter(items))
    found = list(reader.read([tmp_path]))
    assert [item.where for item in found] == ["target.seeds[0]", str(tmp_path / "a.npy")]
    assert list(found[0].case.inputs) == ["x"]
    assert len(reader.skipped) == 2
    assert [item.where for item in reader.read([tmp_path], own=False)] == [str(tmp_path / "a.npy")]


def test_seeds_that_never_end_and_tensors_without_values_are_told(tmp_path: Path) -> None:
    reader = reader_of({"x": ROW}, seeds=lambda: ({"x": ROW + n} for n in itertools.count()))
    assert len(list(reader.read(most_own=5))) == 5
    assert any("first 5 items" in note for note in reader.notes)
    np.save(tmp_path / "good.npy", ROW)
    torch.save({"x": torch.empty(2, 3, device="meta")}, tmp_path / "meta.pt")
    reader = reader_of({"x": ROW})
    assert len(list(reader.read([tmp_path]))) == 1
    assert any("meta" in text for text in reader.skipped)


def test_seeds_that_raise_are_the_targets_fault() -> None:
    with pytest.raises(InvalidTarget, match=r"no data set at test_seed_files\.py"):
        list(reader_of({"x": ROW}, seeds=_failing_seeds).read())


def _failing_seeds():
    yield {"x": ROW}
    raise OSError("no data set")


def test_reading_goes_on_behind_a_place_without_opening_what_came_before(tmp_path: Path) -> None:
    for index in range(4):
        np.save(tmp_path / f"{index}.npy", ROW * index)
    opened: list[str] = []
    reader = SeedReader(loaded(torch.nn.ReLU(), {"x": ROW}), opening=lambda source, where: opened.append(where))
    assert [item.place for item in reader.read([tmp_path])] == [Place(index, 0) for index in range(4)]
    opened.clear()
    assert [Path(item.where).name for item in reader.read([tmp_path], after=Place(1, 0))] == ["2.npy", "3.npy"]
    assert [Path(where).name for where in opened] == ["1.npy", "2.npy", "3.npy"]
    assert list(reader.read([tmp_path], after=Place(3, 0))) == []


def test_a_validation_set_in_one_array_is_divided_along_the_batch(tmp_path: Path) -> None:
    np.save(tmp_path / "set.npy", np.arange(150 * 3, dtype=np.float32).reshape(150, 3))
    np.save(tmp_path / "batch.npy", np.zeros((64, 3), np.float32))
    dynamic = contract("n", x=("float32", dims((2, 3), n=0)))
    reader = reader_of({"x": ROW}, dynamic)
    sizes = [len(item.case.inputs["x"]) for item in reader.read([tmp_path])]
    assert sizes == [64] + [2] * 75
    assert reader.notes == [
        "1 file(s) hold many items along the batch axis: read as 75 cases of 2 row(s), like the first seed"
    ]
    static = reader_of({"x": ROW})
    assert [len(item.case.inputs["x"]) for item in static.read([tmp_path])] == [2] * (32 + 75)
    # without a sign that axis 0 is a batch, it may be time: left whole
    vague = reader_of({"x": ROW}, contract(x=("float32", dims((2, 3), time=0))))
    assert [len(item.case.inputs["x"]) for item in vague.read([tmp_path])] == [64, 150]


def test_every_input_is_divided_along_its_own_batch_axis(tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", x=np.arange(300.0).reshape(100, 3), state=np.zeros((2, 100, 4)), rate=np.array(8))
    inputs = {"x": np.zeros((1, 3), np.float32), "state": np.zeros((2, 1, 4), np.float32), "rate": np.array(8)}
    given = contract(
        "n",
        x=("float32", dims((1, 3), n=0)),
        state=("float32", dims((2, 1, 4), n=1)),
        rate=("int64", ()),
    )
    cases = [item.case for item in reader_of(inputs, given).read([tmp_path / "set.npz"])]
    assert len(cases) == 100
    assert cases[7].shapes == {"x": (1, 3), "state": (2, 1, 4), "rate": ()}
    assert cases[7].inputs["x"].tolist() == [[21, 22, 23]]


def test_a_missing_batch_axis_is_added_where_there_is_one_place_for_it(tmp_path: Path) -> None:
    np.save(tmp_path / "item.npy", PICTURE.numpy()[0])
    reader = pictures()
    assert [item.case.shapes["x"] for item in reader.read([tmp_path])] == [(1, 3, 8, 12)]
    assert reader.notes == ["1 item(s) came without the batch axis: it was added"]
    np.save(tmp_path / "item.npy", np.zeros((5, 8, 12), np.float32))  # five grey pictures, or one of five channels?
    with pytest.raises(InvalidCase, match=r"has shape \[5, 8, 12\]; wanted 4 dim"):
        list(pictures().read([tmp_path]))


def test_values_that_a_dtype_cannot_hold_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([[2**40]]))
    with pytest.raises(InvalidCase, match="values that int32 cannot"):
        list(reader_of({"x": np.ones((1, 1), np.int32)}).read([tmp_path / "a.npy"]))
    np.save(tmp_path / "a.npy", np.array([[1e300]]))
    with pytest.raises(InvalidCase, match="values beyond float32"):
        list(reader_of({"x": np.ones((1, 1), np.float32)}).read([tmp_path / "a.npy"]))


def test_onnx_test_data_is_paired_by_name_or_by_position(tmp_path: Path) -> None:
    a, b = np.ones((2, 3), np.float32), np.zeros((2, 3), np.float32)
    (tmp_path / "model.onnx").write_bytes(b"not looked at")
    for number, names in enumerate((("onnx_b", "onnx_a"), ("", ""))):
        folder = tmp_path / f"test_data_set_{number}"
        folder.mkdir()
        arrays = (b, a) if names[0] else (a, b)
        for index, (name, array) in enumerate(zip(names, arrays, strict=True)):
            (folder / f"input_{index}.pb").write_bytes(numpy_helper.from_array(array, name).SerializeToString())
        (folder / "output_0.pb").write_bytes(b"not looked at")
    given = contract(a=("float32", dims((2, 3))), b=("float32", dims((2, 3))))
    for paths in ([tmp_path], [tmp_path / "test_data_set_0", tmp_path / "test_data_set_1"]):
        cases = [item.case for item in reader_of({"a": a, "b": b}, given).read(paths)]
        assert len(cases) == 2
        assert all(case.inputs["a"].all() and not case.inputs["b"].any() for case in cases)
    away = onnx.TensorProto(data_type=1, dims=[2, 3], data_location=onnx.TensorProto.EXTERNAL)
    (tmp_path / "test_data_set_1" / "input_0.pb").write_bytes(away.SerializeToString())
    reader = reader_of({"a": a, "b": b}, given)
    assert len(list(reader.read([tmp_path]))) == 1
    assert "keeps its data in another file" in reader.skipped[0]


def test_the_first_item_of_a_file_or_folder_stands_for_a_program_without_inputs(tmp_path: Path) -> None:
    folder = tmp_path / "test_data_set_0"
    folder.mkdir()
    (folder / "input_0.pb").write_bytes(numpy_helper.from_array(ROW, "x").SerializeToString())
    assert list(first_arrays(folder)) == ["x"]
    assert list(first_arrays(tmp_path)) == ["x"]
    np.save(tmp_path / "a.npy", ROW)
    assert list(first_arrays(tmp_path)) == ["input"]
    torch.save((torch.ones(1), torch.ones(2)), tmp_path / "b.pt")
    assert list(first_arrays(tmp_path / "b.pt")) == ["input_0", "input_1"]
    with pytest.raises(InvalidCase, match="there is no file"):
        first_arrays(tmp_path / "absent")


def save_pictures(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for suffix in ("png", "bmp", "jpg", "webp", "gif", "tif"):
        Image.fromarray(rng.integers(0, 256, (8, 12, 3), np.uint8)).save(folder / f"photo.{suffix}")
    Image.fromarray(rng.integers(0, 256, (8, 12), np.uint8)).save(folder / "grey.png")


def test_pictures_are_read_where_layout_and_range_are_plain(tmp_path: Path) -> None:
    save_pictures(tmp_path)
    exact = np.asarray(Image.open(tmp_path / "photo.png"))
    cases = {Path(item.where).name: item.case.inputs["x"] for item in pictures().read([tmp_path])}
    assert len(cases) == 7
    assert {array.shape for array in cases.values()} == {(1, 3, 8, 12)}
    assert np.array_equal(cases["photo.png"][0], (exact.transpose(2, 0, 1).astype(np.float32) * np.float32(1 / 255)))
    last = {"x": torch.randint(0, 256, (8, 12, 3), dtype=torch.uint8)}
    kept = {Path(item.where).name: item.case.inputs["x"] for item in reader_of(last).read([tmp_path])}
    assert np.array_equal(kept["photo.png"], exact)
    bytes_as_floats = {"x": torch.randint(0, 256, (1, 1, 8, 12)).float()}
    grey = next(iter(reader_of(bytes_as_floats).read([tmp_path / "grey.png"]))).case.inputs["x"]
    assert np.array_equal(grey[0, 0], np.asarray(Image.open(tmp_path / "grey.png")))


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"x": torch.randn(1, 3, 8, 12)}, "normalized by a mean and a deviation"),
        ({"x": torch.rand(1, 3, 8, 3)}, "two axes could hold the channels"),
        ({"x": torch.rand(1, 5, 8, 12)}, "no axis could hold the channels"),
        ({"x": torch.zeros(1, 3, 8, 12)}, r"spans 0\.\.0: neither 0\.\.1 nor 0\.\.255"),
        ({"x": torch.rand(1, 3, 8, 12) * 7}, "neither 0..1 nor 0..255"),
        ({"x": torch.rand(1, 3, 16, 12)}, "a picture of 12x8; input x takes 12 x 16"),
        ({"x": torch.rand(1, 3, 8, 12), "y": torch.rand(1)}, "the target has 2 inputs"),
        ({"x": torch.rand(4, 3, 8, 12)}, "takes 4 pictures at once"),
    ],
)
def test_pictures_whose_place_is_not_plain_are_refused_once_with_a_read_to_paste(
    tmp_path: Path, inputs: dict[str, Any], said: str
) -> None:
    save_pictures(tmp_path)
    reader = reader_of(inputs)
    with pytest.raises(InvalidCase, match=said) as caught:
        list(reader.read([tmp_path]))
    text = str(caught.value)
    assert "and 6 more file(s) of the folder" in text
    assert "def read(path):" in text
    np.savez(tmp_path / "plain.npz", **{name: value.numpy() for name, value in inputs.items()})
    mixed = reader_of(inputs)
    assert [Path(item.where).name for item in mixed.read([tmp_path])] == ["plain.npz"]
    assert len(mixed.skipped) == 1
    assert "and 6 more like it" in mixed.skipped[0]


def test_the_read_that_is_advised_works_as_it_stands(tmp_path: Path) -> None:
    save_pictures(tmp_path)
    for inputs in ({"x": torch.randn(1, 3, 16, 20)}, {"x": torch.randn(4, 5, 1)}, {"x": torch.rand(1, 1, 9, 7)}):
        with pytest.raises(InvalidCase) as caught:
            list(reader_of(inputs).read([tmp_path]))
        lines = str(caught.value).split("for instance\n")[1].splitlines()
        scope: dict[str, Any] = {}
        exec("\n".join(line.removeprefix("      ") for line in lines if "Target(" not in line), scope)
        cases = [item.case for item in reader_of(inputs, read=scope["read"]).read([tmp_path])]
        assert len(cases) == 7
        assert {case.shapes["x"] for case in cases} == {tuple(inputs["x"].shape)}


def test_huge_pictures_are_refused_before_they_are_decoded(tmp_path: Path) -> None:
    Image.new("1", (10_000, 10_000)).save(tmp_path / "huge.png")
    with pytest.raises(InvalidCase, match=r"10000x10000 pixels; at most 67,108,864"):
        list(pictures().read([tmp_path / "huge.png"]))


def test_sounds_are_read_where_an_input_says_their_rate(tmp_path: Path) -> None:
    wave = (np.sin(np.arange(400) / 5) * 20_000).astype(np.int16)
    wavfile.write(tmp_path / "a.wav", 16_000, wave)
    wavfile.write(tmp_path / "b.wav", 16_000, (wave / 32768).astype(np.float32))
    audio = torch.rand(1, 256) - 0.5
    given = contract(audio=("float32", dims((1, 256), t=1)), sr=("int64", ()))
    found = list(reader_of({"audio": audio, "sr": torch.tensor(16_000)}, given).read([tmp_path]))
    assert [item.case.shapes["audio"] for item in found] == [(1, 400)] * 2
    assert np.array_equal(found[0].case.inputs["audio"], found[1].case.inputs["audio"])
    assert abs(found[0].case.inputs["audio"]).max() < 1
    for inputs, said in (
        ({"audio": audio, "sr": torch.tensor(8_000)}, "sampled at 16000 Hz; input sr of the first seed says 8000"),
        ({"audio": audio}, "no input says at which rate audio is sampled"),
        ({"audio": audio * 9, "sr": torch.tensor(16_000)}, "no samples within -1..1"),
        ({"audio": audio, "sr": torch.tensor(16_000)}, "400 samples; input audio takes 256"),
        ({"audio": audio, "sr": torch.tensor(16_000), "state": audio}, "a sound is one"),
    ):
        with pytest.raises(InvalidCase, match=said) as caught:
            list(reader_of(inputs).read([tmp_path]))
        assert "def read(path):" in str(caught.value)


def test_read_gets_every_file_that_is_not_hidden_and_its_errors_are_about_that_file(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for name in ("a.dat", "b.dat", "c.npy", "deep/d.dat", "e.dat", ".hidden"):
        (tmp_path / name).write_text(name)

    def read(path: str) -> Any:
        name = Path(path).name
        if name == "a.dat":
            return {"x": ROW, "label": 3}
        if name == "b.dat":
            return ({"x": ROW * n} for n in range(3))
        if name == "c.npy":
            raise ValueError("no header")
        return None if name == "e.dat" else [{"x": "text"}]

    reader = reader_of({"x": torch.from_numpy(ROW)}, read=read)
    names = [item.where.removeprefix(f"{tmp_path}/") for item in reader.read([tmp_path])]
    assert names == ["a.dat", "b.dat[0]", "b.dat[1]", "b.dat[2]"]
    said = ["c.npy: the target's read raised ValueError: no header at test_seed_files.py", "d.dat: input 'x' is str"]
    said.append("e.dat: the target's read returned nothing")
    assert all(part in line for part, line in zip(said, reader.skipped, strict=True))
    with pytest.raises(InvalidCase, match="no header"):
        list(reader_of({"x": ROW}, read=read).read([tmp_path / "c.npy"]))


def test_nested_items_of_read_and_plain_numbers_fit(tmp_path: Path) -> None:
    (tmp_path / "a.dat").touch()
    inputs = {"x": ROW, "cache": [{"key": ROW, "mode": "fast"}], "rate": torch.tensor(3)}
    item = {"x": ROW, "cache": [{"key": ROW * 2, "mode": "fast"}], "rate": 4}
    case = next(iter(reader_of(inputs, read=lambda path: item).read([tmp_path]))).case
    assert case.shapes == {"x": (2, 3), "cache.0.key": (2, 3), "rate": ()}
    assert case.inputs["rate"].tolist() == 4
