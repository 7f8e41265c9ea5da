"""Blame by real arbiters on real faults: each part of the way from module to answer is found guilty of its own."""

import os
import textwrap
from pathlib import Path

import numpy as np
import pytest

from fuzzparity.campaign.options import TargetOptions
from fuzzparity.campaign.setup import close_pool, prepare
from fuzzparity.case import Case
from fuzzparity.explain.records import ExamineSpec, InvestigateSpec, Investigation
from fuzzparity.verdict import Verdict

pytestmark = pytest.mark.slow

HEAD = """
    import torch
    from onnx import TensorProto, helper, parser

    from fuzzparity import Export, Target
"""

# sizes: -(-n // 2) becomes an ONNX Div, which truncates
CEIL = """
    class Net(torch.nn.Module):
        def forward(self, x):
            return x[: -(-x.shape[0] // 2)] * 2


    def target():
        return Target(module=Net(), inputs={"x": torch.ones(4, 3)}, dynamic_shapes={"x": {0: "rows"}})
"""

# a tensor's value decides in Python: tracing keeps one arm
BRANCH = """
    class Net(torch.nn.Module):
        def forward(self, x):
            return x * 2 if x.abs().max() < 3 else x - 1


    def target():
        return Target(module=Net(), inputs={"x": torch.ones(4, 3)}, export=Export(exporter="torchscript"))
"""

# a graph pass: (1 / x) * z becomes z / x, which is no identity for integers
PASS = '''
    class Net(torch.nn.Module):
        def forward(self, x, z):
            return torch.div(torch.ones_like(x), x, rounding_mode="trunc") * z


    def target():
        model = parser.parse_model("""<ir_version: 9, opset_import: ["" : 18]>
            quotients (int64[n] x, int64[n] z) => (int64[n] y)
            <int64 one = {1}> { r = Div (one, x)  y = Mul (r, z) }""")
        return Target(
            module=Net(),
            inputs={"x": torch.tensor([1, 1]), "z": torch.tensor([3, 5])},
            onnx=model,
            outputs=["y"],
            ranges={"x": (1, 9)},
        )
'''

# a kernel: int64 sums run through double
KERNEL = '''
    class Net(torch.nn.Module):
        def forward(self, x):
            return x.sum(0, keepdim=True)


    def target():
        model = parser.parse_model("""<ir_version: 9, opset_import: ["" : 18]>
            sums (int64[n] x) => (int64[1] y) { y = ReduceSum (x) }""")
        return Target(module=Net(), inputs={"x": torch.tensor([1, 2])}, onnx=model, outputs=["y"])
'''

# a file that means something else than the module
FILE = '''
    class Net(torch.nn.Module):
        def forward(self, x):
            return torch.where(x > 3, x * 3, x * 2)


    def target():
        model = parser.parse_model("""<ir_version: 9, opset_import: ["" : 18]>
            doubling (float[n] x) => (float[n] y) <float two = {2}> { y = Mul (x, two) }""")
        return Target(module=Net(), inputs={"x": torch.ones(2)}, onnx=model, outputs=["y"])
'''


def explained(folder: Path, text: str, case: Case) -> Verdict:
    """Judge, confirm, minimize and blame one case, as `explain` does."""
    (folder / "subject.py").write_text(textwrap.dedent(HEAD) + "\n\n" + textwrap.dedent(text))
    before = Path.cwd()
    os.chdir(folder)
    try:
        prepared = prepare(TargetOptions(target="subject.py"), workers=1, say=lambda stage: None)
        try:
            assert prepared.twin is not None
            spec = ExamineSpec(prepared.twin, case)
            job = "fuzzparity.explain.examine:examine"
            examined = prepared.pool.run(job, spec, limits=prepared.limits, label="examine")
            (suspect,) = examined.suspects
            limits = {"minimize_executions": 100, "minimize_seconds": 3.0, "blame_seconds": 300.0}
            found = prepared.pool.run(
                "fuzzparity.explain.investigate:investigate",
                InvestigateSpec(prepared.twin, suspect, **limits),
                limits=prepared.limits,
                label="investigate",
            )
            assert isinstance(found, Investigation)
            assert found.verdict is not None
            return found.verdict
        finally:
            close_pool(prepared.pool)
    finally:
        os.chdir(before)


@pytest.mark.parametrize(
    ("text", "inputs", "blame", "known"),
    [
        (CEIL, {"x": np.ones((5, 3), np.float32)}, "export", "ONNX reference gives ORT's"),
        (BRANCH, {"x": np.full((4, 3), 7, np.float32)}, "capture", "traced module"),
        (
            PASS,
            {"x": np.array([2, 3], np.int64), "z": np.array([7, 9], np.int64)},
            "optimizer:DivMulFusion",
            "without DivMulFusion alone it is healed",
        ),
        (KERNEL, {"x": np.array([2**60 + 1, 2], np.int64)}, "kernel:ReduceSum", "ORT differs at every level"),
        (FILE, {"x": np.array([5, 1], np.float32)}, "onnx_file", "exporting again heals it"),
    ],
    ids=["export", "capture", "optimizer", "kernel", "file"],
)
def test_the_guilty_part_is_named_and_how_it_is_known(
    tmp_path: Path, text: str, inputs: dict[str, np.ndarray], blame: str, known: str
):
    verdict = explained(tmp_path, text, Case(inputs))
    assert verdict.blame == blame
    assert verdict.attribution is not None
    assert known in verdict.attribution.how
    assert all(said.arbiter for said in verdict.attribution.statements)
