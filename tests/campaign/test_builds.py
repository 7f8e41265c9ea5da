"""Builds: each combination of a target's dtypes is exported, gated and fuzzed; and a given file of other weights."""

from pathlib import Path

import pytest
from campaigns import fuzz, run, write_target

pytestmark = pytest.mark.slow

NET = """
    import io
    import warnings

    import torch
    from torch import nn

    from fuzzparity import Export, Size, Target


    class Net(nn.Module):
        def __init__(self, rng_seed=0):
            super().__init__()
            torch.manual_seed(rng_seed)
            self.conv = nn.Conv2d(3, 6, 3, padding=1)
            self.norm = nn.BatchNorm2d(6)
            self.box, self.score = nn.Linear(6, 4), nn.Linear(6, 2)
            with torch.no_grad():
                self.norm.running_mean.copy_(torch.randn(6))
                self.norm.running_var.copy_(torch.rand(6) + 0.5)
            self.eval()

        def forward(self, x):
            y = torch.relu(self.norm(self.conv(x))).mean((2, 3))
            return self.box(y), self.score(y)
"""

HALVES = """
    def target():
        return Target(
            module=Net(),
            inputs={"x": torch.rand(2, 3, 8, 8)},
            outputs=["box", "score"],
            export=Export(exporter="torchscript"),
            dynamic_shapes={"x": {0: Size(1, 8, name="n")}},
            ranges={"x": (-1, 1)},
            allow_nonfinite=False,
            dtypes={"x": ["float16", "float32", "bfloat16"]},
        )
"""

# the file's score head is of another training
FALSE_TWIN = """
    def target():
        other, file = Net(), io.BytesIO()
        other.score = Net(1).score
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                other, (torch.rand(2, 3, 8, 8),), file, dynamo=False, input_names=["x"], output_names=["box", "score"]
            )
        names = ["box", "score"]
        return Target(module=Net(), inputs={"x": torch.rand(2, 3, 8, 8)}, onnx=file.getvalue(), outputs=names)
"""


def test_every_build_is_fuzzed_and_one_that_ort_cannot_load_is_one_finding(tmp_path: Path):
    write_target(tmp_path, NET, HALVES)
    ended = fuzz(tmp_path, "--cases", "150", "--workers", "1")
    builds = {build["dtypes"]["x"]: build for build in ended.answer["builds"]}
    assert list(builds) == ["float32", "float16", "bfloat16"]
    assert ended.answer["build"] == builds["float32"]["build"]
    assert [build["executions"] for build in builds.values()] == [50, 50, 0]
    assert ended.answer["executions"] == 100
    found = {kind["kind"] for kind in ended.findings if kind["grade"] == "bug"}
    assert found == {"load_error"}, ended.findings
    (finding_id,) = builds["bfloat16"]["findings"]
    assert finding_id.startswith("load-error")
    assert builds["float32"]["exit_code"] == builds["float16"]["exit_code"] == 0
    assert ended.code == 1
    again = fuzz(tmp_path, "--cases", "30", "--workers", "1", "--dtype", "x=float16")
    (only,) = again.answer["builds"]
    assert (only["dtypes"], only["executions"]) == ({"x": "float16"}, 30)
    assert any("resumed: 50 executions" in note for note in again.answer["notes"])
    assert again.code == 0


def test_another_training_of_one_head_is_told_at_once_on_its_output(tmp_path: Path):
    write_target(tmp_path, NET, FALSE_TWIN)
    ended = fuzz(tmp_path, "--time", "5s", "--workers", "1")
    assert ended.code == 1
    assert ended.answer["executions"] == 0
    assert [(found["kind"], found["grade"], found["where"]["output"]) for found in ended.findings] == [
        ("numeric", "bug", "score")
    ]
    (told,) = [note for note in ended.answer["notes"] if "weights of the module stand" in note]
    assert told.startswith("6 of 8 weights")
    assert "score.weight differs by up to" in told
    assert any(note.startswith("every seed differs") for note in ended.answer["notes"])


def test_check_goes_through_every_build(tmp_path: Path):
    write_target(tmp_path, NET, HALVES)
    ended = run(tmp_path, "check", "subject.py", "--json", "out.json")
    assert [build["dtypes"]["x"] for build in ended.answer["builds"]] == ["float16", "bfloat16"]
    assert "build x=float16" in ended.stdout
    assert ended.code == 1
