"""Records that stand in for a loaded target: the database never sees a module."""

import numpy as np
import pytest

from fuzzparity.case import Case, Lineage
from fuzzparity.contract import Build, Contract, Dim, InputContract, TargetFacts
from fuzzparity.execution import ORT, TORCH, Environment, Execution, Status
from fuzzparity.finding import Suspect, bucket_of
from fuzzparity.verdict import Comparison, Evidence, Grade, Kind, Realism, Verdict


def make_facts(folder):
    build = Build("b" * 64, str(folder), "exported by dynamo", "s", "o", 11000, 7, None, 20, "float32", {"torch": "2"})
    environment = Environment(
        "e" * 64, "3.11", "Linux", "cpu", {"torch": "2.13.0"}, "cpu", "float32", 1, ("CPUExecutionProvider",), "all", 1
    )
    contract = Contract((InputContract("x", "float32", (Dim(2, "batch"), Dim(3))),))
    return TargetFacts("digits", "corpora/digits", "", ("logits",), contract, build, environment, True)


def suspect_of(value=1.0, elements=6, kind=Kind.NUMERIC, site="", ratio=3.5):
    case = Case({"x": np.full((elements,), value, np.float32)})
    comparison = Comparison(kind, ratio, index=(0, 1), expected_at=1.0, actual_at=float("nan"))
    evidence = Evidence("torch float64", 1e-3, 2.0, {"ulp": float("inf")}, 16, ("ort",))
    verdict = Verdict(kind, Grade.BUG, "logits", "ort", site, comparison, evidence, headline="logits differ")
    outputs = (np.array([[value, np.nan]], np.float32),)
    return Suspect(
        bucket_of("b" * 64, case, verdict),
        case,
        Lineage("mutation", ("p" * 64,), ("special_values",), 7, 3, 41),
        verdict,
        Realism.NEAR,
        Execution(TORCH, Status.OK, outputs, seconds=0.5, environment="e" * 64),
        Execution(ORT, Status.OK, outputs),
    )


@pytest.fixture
def facts(tmp_path):
    folder = tmp_path / "build"
    folder.mkdir()
    (folder / "model.onnx").write_bytes(b"onnx bytes " * 1000)
    (folder / "model.onnx.data").write_bytes(bytes(range(256)) * 40)
    return make_facts(folder)


@pytest.fixture
def make_suspect():
    return suspect_of
