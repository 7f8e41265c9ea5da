"""What an export says of itself: guards and warnings with the user's own line, and what the other exporter would do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from small_models import Conv, loaded
from torch import nn

from fuzzparity import Export
from fuzzparity.case import Case
from fuzzparity.explain.unbuilt import export_verdict
from fuzzparity.sides.export import BuildResult, facts_without_model, make_build
from fuzzparity.sides.own_code import own_place, place_of_error, places_in
from fuzzparity.sides.pair import Pair, open_pair

ROW = np.ones((2, 3), np.float32)
TORCHSCRIPT = Export(exporter="torchscript", opset=17)


class ValueBranch(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.sum() > 0 else x  # VALUE


class SizeBranches(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if x.shape[1] > 16:  # RANGE
            x = x * 2
        if x.shape[0] > y.shape[0]:  # RELATION
            x = x + 1
        return x.reshape(x.shape[0], -1, 3).sum((1, 2)), y.sum()


class NoSuchOperator(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        return torch.linalg.eigvalsh(y @ x.T)  # OPERATOR


def line(mark: str) -> str:
    """Return "test_exporting.py:12" of the line that ends with a mark."""
    lines = Path(__file__).read_text().splitlines()
    (number,) = [place for place, text in enumerate(lines, 1) if text.endswith(f"# {mark}")]
    return f"{Path(__file__).name}:{number}"


def built(module: object, tmp_path: Path, **fields: object) -> BuildResult:
    fields.setdefault("inputs", {"x": ROW})
    return make_build(loaded(module, **fields), tmp_path)


def notes_of(result: BuildResult) -> tuple[str, ...]:
    assert result.facts is not None, result.error
    return result.facts.build.notes


@pytest.mark.slow
def test_a_branch_on_a_value_is_refused_by_one_exporter_and_frozen_by_the_other(tmp_path: Path) -> None:
    result = built(ValueBranch(), tmp_path)
    assert result.error is not None
    assert result.kind == "export_error"
    assert result.error.site == line("VALUE")
    paste = 'the torchscript exporter takes it: export=Export(exporter="torchscript")'
    assert paste in result.notes
    assert any(note.startswith("torchscript: TracerWarning") and line("VALUE") in note for note in result.notes)
    assert any(note.startswith(f"the dynamo exporter stops at {line('VALUE')}: `return x * 2") for note in result.notes)
    headline = export_verdict(result.error).headline
    assert paste in headline
    assert line("VALUE") in headline
    facts = facts_without_model(loaded(ValueBranch(), {"x": ROW}), notes=result.notes)
    assert facts.build.notes == result.notes


@pytest.mark.slow
def test_an_operator_that_neither_exporter_has_is_told_with_both_reasons(tmp_path: Path) -> None:
    result = built(NoSuchOperator(), tmp_path, export=TORCHSCRIPT)
    assert result.error is not None
    assert result.error.error_class == "UnsupportedOperatorError"
    assert result.error.site == line("OPERATOR")
    told = next(note for note in result.notes if note.startswith("the dynamo exporter fails too"))
    assert "linalg_eigh" in told
    assert line("OPERATOR") in told


@pytest.mark.slow
def test_conditions_on_dims_that_an_export_takes_for_granted_are_noted(tmp_path: Path) -> None:
    inputs = {"x": np.ones((5, 9), np.float32), "y": np.ones((3, 9), np.float32)}
    shapes = {"x": {0: "b", 1: "t"}, "y": {0: "c"}}
    notes = notes_of(built(SizeBranches(), tmp_path, inputs=inputs, dynamic_shapes=shapes))
    assert f"the exporter narrowed x[1] to 0..16 (decided at {line('RANGE')})" in notes
    (taken,) = [note for note in notes if "for granted" in note]
    assert taken.startswith(f"the exporter takes x[0] > y[0] for granted ({line('RELATION')})")


@pytest.mark.slow
def test_a_sound_dynamo_export_has_nothing_to_say(tmp_path: Path) -> None:
    net = Conv()
    with torch.no_grad():
        net.norm.running_mean += 0.5
    inputs = {"image": np.ones((2, 3, 8, 6), np.float32)}
    shapes = {"image": {0: "batch", 2: "height", 3: "width"}}
    assert notes_of(built(net, tmp_path, inputs=inputs, dynamic_shapes=shapes)) == ()


def test_warnings_are_told_with_the_users_own_line(tmp_path: Path) -> None:
    (note,) = notes_of(built(ValueBranch(), tmp_path, export=TORCHSCRIPT))
    assert note.startswith("TracerWarning: Converting a tensor to a Python boolean")
    assert note.endswith(f"({line('VALUE')})")


def test_confidential_targets_keep_their_code_to_themselves(tmp_path: Path) -> None:
    result = built(NoSuchOperator(), tmp_path, export=TORCHSCRIPT, confidential=True)
    assert result.error is not None
    assert not any("eigvalsh(y" in text for text in (*result.notes, result.error.text))


def test_the_users_own_line_is_the_innermost_outside_of_every_package() -> None:
    inside = torch.__file__
    assert own_place([("/home/me/run.py", 3), ("/home/me/net.py", 7), (inside, 9)]) == ("/home/me/net.py", 7)
    assert own_place([(inside, 9), ("<string>", 1)]) is None
    library = str(Path(torch.__file__).parent.parent / "model_library" / "net.py")
    assert own_place([(library, 5), (inside, 9)]) == (library, 5)
    assert own_place([("/home/me/net.py", 7), (library, 5)]) == ("/home/me/net.py", 7)
    assert places_in('File "/a/b.py", line 4, in forward') == [("/a/b.py", 4)]
    try:
        ValueBranch()("no tensor")
    except AttributeError as error:
        place = place_of_error(error)
        assert place is not None
        assert f"{Path(place[0]).name}:{place[1]}" == line("VALUE")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_exported_programs_keep_their_state_keywords_and_dims(tmp_path: Path) -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("scale", torch.tensor([1.0, 2.0, 3.0]))

        def forward(self, x: torch.Tensor, *, shift: torch.Tensor) -> torch.Tensor:
            return x * self.scale + shift

    x, shift = torch.from_numpy(ROW), torch.ones(3)
    shapes = {"x": {0: torch.export.Dim("n")}, "shift": None}
    program = torch.export.export(Scaled().eval(), (x,), {"shift": shift}, dynamic_shapes=shapes)
    target = loaded(program, {"x": ROW}, kwargs={"shift": shift}, dynamic_shapes={"x": {0: "n", 1: "w"}})
    result = make_build(target, tmp_path)
    notes = notes_of(result)
    assert result.facts is not None
    assert [dim.is_dynamic for dim in result.facts.contract.input("x").dims] == [True, False]
    assert any("fixed by torch.export.export" in note for note in notes)
    assert "asked to be dynamic, static in the ONNX model: x[1]" in notes
    pair = open_pair(target, result.facts, Path(result.facts.build.folder))
    assert isinstance(pair, Pair)
    case = Case({"x": np.ones((5, 3), np.float32), "shift": np.zeros(3, np.float32)})
    assert pair.run_torch(case).outputs[0].tolist() == pair.run_ort(case).outputs[0].tolist() == [[1.0, 2.0, 3.0]] * 5
