"""Gate: seeds that differ are findings; when all do, nothing is fuzzed unless it is forced."""

from pathlib import Path

import numpy as np
import pytest
from campaigns import GIVEN, fuzz, write_target

pytestmark = pytest.mark.slow

# the file was made from another training: every input but zero differs
FALSE_TWIN = """
    class Net(torch.nn.Module):
        def forward(self, x):
            return x * 2


    def target():
        return Target(module=Net(), inputs={"x": torch.ones(2, 4)}, onnx=doubling(2.5), outputs=["y"])
"""

PARTLY = """
    class Net(torch.nn.Module):
        def forward(self, x):
            return torch.where(x > 3, x * 3, x * 2)


    def target():
        return Target(module=Net(), inputs={"x": torch.ones(2, 4)}, onnx=doubling(), outputs=["y"])
"""

REFUSES_ALL_BUT_THE_SEED = """
    class Net(torch.nn.Module):
        def forward(self, x):
            if not torch.equal(x, torch.ones(2, 4)):
                raise ValueError("only ones")
            return x * 2


    def target():
        x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 4]) for name in "xy")
        one = helper.make_tensor("one", TensorProto.FLOAT, [], [1.0])
        two = helper.make_tensor("two", TensorProto.FLOAT, [1], [2.0])
        # the index into one value is 0 where every element is one, else 1, which Gather refuses
        nodes = [
            helper.make_node("Equal", ["x", "one"], ["is_one"]),
            helper.make_node("Not", ["is_one"], ["is_other"]),
            helper.make_node("Cast", ["is_other"], ["counts"], to=TensorProto.INT64),
            helper.make_node("ReduceMax", ["counts"], ["index"], keepdims=0),
            helper.make_node("Gather", ["two", "index"], ["factor"]),
            helper.make_node("Mul", ["x", "factor"], ["y"]),
        ]
        graph = helper.make_graph(nodes, "picky", [x], [y], [one, two])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        return Target(module=Net(), inputs={"x": torch.ones(2, 4)}, onnx=model, outputs=["y"])
"""


def test_a_false_twin_is_one_finding_and_is_not_fuzzed(tmp_path: Path):
    write_target(tmp_path, GIVEN, FALSE_TWIN)
    ended = fuzz(tmp_path, "--time", "5s", "--workers", "1")
    assert ended.code == 1
    assert [(found["kind"], found["grade"]) for found in ended.findings] == [("numeric", "bug")]
    assert ended.answer["executions"] == 0
    again = fuzz(tmp_path, "--cases", "5", "--workers", "1")
    assert again.code == 1  # known by now, and still nothing can be judged behind it
    assert [found["new"] for found in again.findings] == [False]


def test_a_false_twin_is_fuzzed_when_forced(tmp_path: Path):
    write_target(tmp_path, GIVEN, FALSE_TWIN)
    ended = fuzz(tmp_path, "--cases", "300", "--workers", "1", "--force")
    assert ended.code == 1
    assert ended.answer["executions"] == 300
    assert ended.of("numeric")


def test_a_campaign_goes_on_from_the_seeds_that_agree(tmp_path: Path):
    write_target(tmp_path, GIVEN, PARTLY)
    seeds = tmp_path / "seeds"
    seeds.mkdir()
    for place, value in enumerate((0.5, 1.5, 7.0)):
        np.savez(seeds / f"{place}.npz", x=np.full((2, 4), value, np.float32))
    ended = fuzz(tmp_path, "--cases", "300", "--workers", "1", "--seeds", "seeds")
    assert ended.code == 1
    assert ended.answer["executions"] == 300
    assert ("near", True) in {(found["realism"], found["reproduced"]) for found in ended.of("numeric")}


def test_nearly_everything_rejected_is_no_judgement(tmp_path: Path):
    write_target(tmp_path, GIVEN, REFUSES_ALL_BUT_THE_SEED)
    ended = fuzz(tmp_path, "--cases", "500", "--workers", "1", "--fail-on", "never")
    assert ended.code == 4, ended.stdout
    assert ended.answer["rejected"] >= 0.95 * 500
