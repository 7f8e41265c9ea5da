"""Loading a target: each form of naming it, and each wrong one as one clear message."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch

from fuzzparity.errors import InvalidTarget
from fuzzparity.sides.load import load_target

GOOD = """
import torch
from fuzzparity import Target
import near
def target():
    return Target(module=torch.nn.Bilinear(3, 2, 2), inputs={"x": torch.zeros(1, 3), "w": torch.ones(2).bfloat16()})
other = target()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    where = tmp_path / "detector"
    where.mkdir()
    (where / "target.py").write_text(GOOD)
    (where / "near.py").write_text("VALUE = 1\n")
    return where


def refusal(spec: object, **options: object) -> InvalidTarget:
    with pytest.raises(InvalidTarget) as caught:
        load_target(str(spec), **options)  # type: ignore[arg-type]
    text = str(caught.value)
    assert "Traceback" not in text
    assert caught.value.problem
    assert caught.value.advice
    return caught.value


def test_a_folder_gives_its_name_and_a_module_in_eval_mode(folder: Path) -> None:
    found = load_target(str(folder))
    assert (found.name, found.folder) == ("detector", str(folder))
    assert not found.target.module.training
    assert "eval mode" in found.notes[0]
    assert torch.get_num_threads() == 1


def test_the_seed_keeps_order_and_bfloat16(folder: Path) -> None:
    seed = load_target(str(folder)).seed
    assert list(seed.inputs) == ["x", "w"]
    assert seed.inputs["w"].dtype == ml_dtypes.bfloat16


def test_a_file_with_a_name_gives_that_target(folder: Path) -> None:
    assert load_target(f"{folder}/target.py:other").name == "detector"
    (folder / "mine.py").write_text(GOOD)
    assert load_target(f"{folder}/mine.py").name == "mine"


def test_a_working_directory_that_the_target_changes_is_put_back(folder: Path) -> None:
    here = Path.cwd()
    (folder / "target.py").write_text(f"import os\nos.chdir({str(folder)!r})\n{GOOD}")
    found = load_target(str(folder))
    assert Path.cwd() == here
    assert "working directory" in found.notes[0]


def test_a_module_name_is_imported_from_the_current_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "pair_of_mine.py").write_text(GOOD)
    monkeypatch.chdir(folder)
    found = load_target("pair_of_mine:other")
    assert (found.name, found.folder) == ("pair_of_mine", "")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import nothing_like_this", "ModuleNotFoundError"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("def target(): raise ValueError('no weights')", "no weights"),
        ("def target(): return {'a.weight': 1}", "gave dict"),
        ("def target(size): return size", "wants arguments: size"),
        ("def net(): pass", "has no 'target'"),
        ("x = (", "SyntaxError"),
        ("from fuzzparity import Target\ntarget = Target(module={'w': 1}, inputs={'x': 1})", "cannot be called"),
        ("from fuzzparity import Target\ntarget = Target(module=abs, inputs={'x': 'text'})", "input 'x' is str"),
        ("from fuzzparity import Target\ntarget = Target(module=abs, inputs={'x': [1, 2]})", "input 'x' is list"),
        ("from fuzzparity import Target\ntarget = Target(module=abs, input={})", "has no field 'input'"),
    ],
)
def test_a_wrong_target_is_one_message_without_traceback(tmp_path: Path, source: str, said: str) -> None:
    file = tmp_path / "wrong.py"
    file.write_text(source)
    assert said in str(refusal(file))


def test_a_missing_name_lists_candidates(folder: Path) -> None:
    assert "target, other" in refusal(f"{folder}/target.py:absent").advice


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    assert "no file" in str(refusal(tmp_path / "absent.py"))
    assert "no target.py" in str(refusal(tmp_path))
    assert "importing no_such_package.models" in str(refusal("no_such_package.models:net"))
    assert refusal("").stage == "load"


def test_the_traceback_rides_along_in_detail(tmp_path: Path) -> None:
    (tmp_path / "target.py").write_text("1 / 0")
    assert "ZeroDivisionError" in refusal(tmp_path).detail


def test_a_state_dict_is_no_program(tmp_path: Path) -> None:
    torch.save(torch.nn.Linear(2, 2).state_dict(), tmp_path / "weights.pt")
    error = refusal("", torch_file=str(tmp_path / "weights.pt"), onnx="m.onnx")
    assert "a state_dict of 2 tensors" in str(error)
    (tmp_path / "junk.pt").write_bytes(b"junk")
    assert "no program" in str(refusal("", torch_file=str(tmp_path / "junk.pt")))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("kind", ["torchscript", "pt2"])
def test_a_program_file_loads_with_seeds_as_inputs(tmp_path: Path, kind: str) -> None:
    module, x = torch.nn.Linear(3, 2).eval(), torch.ones(1, 3)
    path = tmp_path / ("net.pt2" if kind == "pt2" else "net.ts")
    if kind == "pt2":
        torch.export.save(torch.export.export(module, (x,)), path)
    else:
        torch.jit.save(torch.jit.trace(module, (x,)), path)
    assert "--seeds" in str(refusal("", torch_file=str(path)))
    found = load_target("", torch_file=str(path), seeds_first={"x": np.ones((1, 3), np.float32)})
    assert found.name == "net"
    torch.testing.assert_close(found.module(x), module(x))
