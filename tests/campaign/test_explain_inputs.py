"""explain on given inputs: what is said of an input was learned on that input."""

from pathlib import Path

import numpy as np
import pytest
from campaigns import run, write_target

pytestmark = pytest.mark.slow

# two faults of one output: the older exporter truncates where torch floors, and tracing keeps a number of the sample
TWO_CAUSES = """
    import torch
    from fuzzparity import Export, Target


    class Net(torch.nn.Module):
        def forward(self, x):
            y = x // 4
            return y + 7 * int((x > 100).sum())


    def target():
        x = torch.arange(8).reshape(2, 4)
        return Target(module=Net(), inputs={"x": x}, export=Export(exporter="torchscript"), outputs=["y"])
"""


def test_two_inputs_of_one_bucket_are_each_told_their_own_cause(tmp_path: Path):
    write_target(tmp_path, TWO_CAUSES)
    np.savez(tmp_path / "negative.npz", x=np.array([[-1, -2, -3, -5], [1, 2, 3, 4]]))
    np.savez(tmp_path / "large.npz", x=np.array([[101, 2, 3, 4], [5, 6, 7, 8]]))
    ids = set()
    for name, blame in (("negative.npz", "export"), ("large.npz", "capture")):
        ended = run(tmp_path, "explain", "subject.py", name, "--corpus", "corpus.sqlite", "--json", "out.json")
        assert ended.code == 1
        assert [(found["kind"], found["blame"]) for found in ended.answer["findings"]] == [("decision", blame)]
        ids |= {found["finding_id"] for found in ended.answer["findings"]}
    assert len(ids) == 1, "one bucket, or this shows nothing"
