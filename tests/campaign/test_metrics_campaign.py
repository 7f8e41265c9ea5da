"""Metrics and labels from the command line: a campaign's finding, and the table of a validation set."""

from pathlib import Path

import pytest
from campaigns import GIVEN, fuzz, run, write_target

pytestmark = pytest.mark.slow

# the twin swaps two columns; a tolerance lets every number pass, so that the metrics alone can tell
SWAPPED = """
    from fuzzparity import Metric, Tolerance, metrics


    class Net(torch.nn.Module):
        def forward(self, x):
            return x * 2


    def swapped():
        x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3]) for name in "xy")
        matrix = helper.make_tensor("m", TensorProto.FLOAT, [3, 3], [0.0, 2, 0, 2, 0, 0, 0, 0, 2])
        graph = helper.make_graph([helper.make_node("MatMul", ["x", "m"], ["y"])], "g", [x], [y], [matrix])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


    def seeds():
        for number in range(6):
            yield {"x": torch.tensor([[1.0, 1.0 + number % 2, 5.0 * (number % 3)]]), "label": 2}


    def lost(inputs, expected, actual, label):
        right = expected["y"].argmax(1) == label + 0
        return float(right.mean() - (actual["y"].argmax(1) == label).mean())


    def target():
        return Target(
            module=Net(), inputs={"x": torch.tensor([[1.0, 1.0, 9.0]])}, onnx=swapped(), outputs=["y"], seeds=seeds,
            tolerances={"y": Tolerance(atol=1e30, rtol=1e30)}, allow_nonfinite=False,
            metrics=[metrics.top_k("y"), Metric("accuracy lost", lost, at_most=0.0)],
        )
"""


def test_a_campaign_confirms_and_minimizes_a_broken_bound_and_its_reproducer_shows_it(tmp_path: Path) -> None:
    write_target(tmp_path, GIVEN, SWAPPED)
    ended = fuzz(tmp_path, "--cases", 120, "--workers", 1)
    found = [one for one in ended.of("decision", "metric top_1(y) is") if one["grade"] == "bug"]
    assert found, ended.stdout + ended.stderr
    assert "wanted at least 1" in found[0]["headline"]
    assert found[0]["reproduced"]
    assert found[0]["minimized"]["elements"] <= 3
    assert "metric 'accuracy lost' has no answer on a case without a label" in ended.stdout + ended.stderr
    replayed = run(tmp_path, "replay", found[0]["path"])
    assert (replayed.code, "SHOWS" in replayed.stdout) == (1, True), replayed.stdout


def test_the_table_of_a_validation_set_has_each_metric_with_the_labels_of_the_data(tmp_path: Path) -> None:
    write_target(tmp_path, GIVEN, SWAPPED)
    ended = run(tmp_path, "check", "subject.py", "--all-seeds", "--json", "-")
    figures = {one["metric"]: one for one in ended.answer["validation"]["metrics"]}
    assert (figures["accuracy lost"]["answered"], figures["accuracy lost"]["unanswered"]) == (6, 0)
    assert figures["top_1(y)"]["broken"] == 1  # of six seeds, one has its largest value in a swapped column alone
    assert figures["top_1(y)"]["bound"] == "at least 1"
