"""The builds that a target's dtypes ask for: which, in which order, and what is cast for each."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch
from small_models import case, loaded, relu
from torch import nn

from fuzzparity import Export
from fuzzparity.errors import InvalidTarget, InvalidUsage
from fuzzparity.sides.dtypes import cast_case, cast_loaded, chosen, combinations, words
from fuzzparity.sides.export import make_build
from fuzzparity.sides.pair import Pair, open_pair

TORCHSCRIPT = Export(exporter="torchscript")
ROW, IDS = np.ones((2, 3), np.float32), np.array([[1, 2], [3, 0]])


class Embedded(nn.Module):
    """Takes floats and ids, so that each can have builds of its own."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(5, 3)
        self.head = nn.Linear(3, 4)
        self.register_buffer("steps", torch.zeros(3, dtype=torch.int64))

    def forward(self, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        return self.head(x + self.table(ids).mean(1) + self.steps)


def embedded(dtypes: dict[str, object], **fields: object):
    return loaded(Embedded(), {"x": ROW, "ids": IDS}, dtypes=dtypes, **fields)


def test_builds_are_every_combination_with_that_of_the_first_seed_in_front() -> None:
    dtypes = {"x": ["float16", "float32"], "ids": ["int32", "int64"]}
    found = [words(combination) for combination in combinations(embedded(dtypes))]
    assert found[0] == ("x=float32", "ids=int64")
    assert len(set(found)) == 4
    assert combinations(embedded({})) == [{}]


@pytest.mark.parametrize(
    ("dtypes", "fields", "said"),
    [
        ({"x": ["float32", "flot16"]}, {}, "names 'flot16'"),
        ({"x": ["float32", "int8"]}, {}, "another kind of number"),
        ({"x": "float16"}, {}, "give a list"),
        ({"x": ["float32", "float16"]}, {"onnx": relu()}, "gives its own ONNX"),
    ],
)
def test_dtypes_that_cannot_be_meant_are_said(dtypes: dict[str, object], fields: dict, said: str) -> None:
    with pytest.raises(InvalidTarget) as caught:
        combinations(embedded(dtypes, **fields))
    assert said in str(caught.value)
    assert caught.value.stage == "dtypes"


def test_one_build_is_chosen_by_name() -> None:
    target = embedded({"x": ["float32", "float16"], "ids": ["int64", "int32"]})
    assert chosen(target, ()) == {"x": "float32", "ids": "int64"}
    assert chosen(target, ("x=float16",)) == {"x": "float16", "ids": "int64"}
    for text in ("y=float16", "x", "float16"):
        with pytest.raises(InvalidUsage, match="one of x, ids"):
            chosen(target, (text,))


def test_the_module_is_copied_and_cast_with_the_floats_of_its_inputs_only() -> None:
    target = embedded({"x": ["float32", "bfloat16"], "ids": ["int64", "int32"]})
    narrow = cast_loaded(target, {"x": "bfloat16", "ids": "int64"})
    assert narrow.module is narrow.target.module is not target.module
    assert {p.dtype for p in narrow.module.parameters()} == {torch.bfloat16}
    assert narrow.module.steps.dtype == torch.int64
    assert {p.dtype for p in target.module.parameters()} == {torch.float32}
    assert narrow.seed.inputs["x"].dtype == ml_dtypes.bfloat16
    assert narrow.dtypes == ("x=bfloat16", "ids=int64")
    ids_only = cast_loaded(target, {"x": "float32", "ids": "int32"})
    assert ids_only.module is target.module
    assert ids_only.seed.inputs["ids"].dtype == np.int32
    with pytest.raises(InvalidTarget, match="its own dtypes"):
        cast_loaded(loaded(nn.ReLU(), {"x": ROW}, onnx=relu()), {"x": "float16"})


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_program_that_was_exported_cannot_be_cast() -> None:
    program = torch.export.export(nn.Linear(3, 2).eval(), (torch.from_numpy(ROW),))
    with pytest.raises(InvalidTarget, match="has the dtypes it was exported with"):
        cast_loaded(loaded(program, {"x": ROW}), {"x": "float16"})


def test_each_build_runs_on_both_sides_in_its_own_dtype(tmp_path: Path) -> None:
    target = embedded({"x": ["float32", "float16", "float64"], "ids": ["int64", "int32"]}, export=TORCHSCRIPT)
    digests = set()
    for combination in combinations(target):
        one = cast_loaded(target, combination)
        facts = make_build(one, tmp_path).facts
        assert facts is not None
        digests.add(facts.build.digest)
        assert [item.dtype for item in facts.contract.inputs] == [combination["x"], combination["ids"]]
        assert facts.dtypes == words(combination)
        pair = open_pair(one, facts, Path(facts.build.folder))
        assert isinstance(pair, Pair)
        expected, actual = pair.run_torch(one.seed), pair.run_ort(one.seed)
        assert expected.outputs[0].dtype.name == actual.outputs[0].dtype.name == combination["x"]
        np.testing.assert_allclose(expected.outputs[0], actual.outputs[0], rtol=2e-2, atol=1e-2)
    assert len(digests) == 6


def test_a_case_of_another_build_is_cast_where_that_keeps_its_kind() -> None:
    seed = case(x=ROW, ids=IDS)
    assert cast_case(case(x=ROW.astype(np.float16), ids=IDS), seed).inputs["x"].dtype == np.float32
    for same in (seed, case(x=ROW, ids=IDS.astype(np.float32))):
        assert cast_case(same, seed) is same
