"""The atheris engine: libFuzzer's loop over the model's Python code, with our mutators, our oracle and our database."""

import importlib.util
import random
from pathlib import Path

import pytest
from campaigns import GIVEN, corpus_of, fuzz, rows, write_target

from fuzzparity.campaign.libfuzzer import mutated, steps_of
from fuzzparity.campaign.options import require_engine
from fuzzparity.errors import InvalidUsage

BRANCHES = """
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        if x.shape[1] == 13:
            if float(x[0, 0]) > 5.0:
                if float(x[0, 5]) < -5.0:
                    return x * 2.0
        return x * 1.0
"""

SAME = """
def model():
    from onnx import parser
    return parser.parse_model(
        '<ir_version: 9, opset_import: ["": 18]> g (float[b,n] x) => (float[b,n] y) { y = Identity(x) }'
    )
"""

TARGET = """
from fuzzparity import Target

def target():
    seed = torch.linspace(-1.0, 1.0, 16).reshape(2, 8)
    return Target(name="subject", module=Net().eval(), inputs={"x": seed}, outputs=["y"], onnx=model,
                  dynamic_shapes={"x": {0: "b", 1: "n"}})
"""


DEADLY = """
    class Net(torch.nn.Module):
        def forward(self, x):
            if x.shape[1] == 5:
                ctypes.string_at(0)
            return x * 2


    def target():
        return Target(module=Net(), inputs={"x": torch.ones(2, 4)}, onnx=doubling(), outputs=["y"])
"""


def test_chains_stay_whole_and_short():
    chance, data = random.Random(3), b""
    for _ in range(300):
        data = mutated(data, 48, chance.getrandbits(32))
        steps = steps_of(data)
        assert len(data) == 4 * len(steps)
        assert 1 <= len(steps) <= 12
    assert steps_of(data + b"\x01\x02") == steps_of(data)
    assert len(mutated(data, 3, 1)) == 4  # libFuzzer allows less than a step: the seed's alone


def test_without_atheris_the_engine_is_one_clear_error(monkeypatch: pytest.MonkeyPatch):
    require_engine("own")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InvalidUsage, match=r"pip install 'fuzzparity\[atheris\]'"):
        require_engine("atheris")
    require_engine("own")


@pytest.mark.slow
def test_atheris_reaches_a_nested_branch_of_the_model_and_keeps_its_chains(tmp_path: Path):
    pytest.importorskip("atheris")
    (tmp_path / "subject.py").write_text(BRANCHES + SAME + TARGET)
    ended = fuzz(tmp_path, "--cases", "4000", "--workers", "1", "--engine", "atheris")
    assert ended.code == 1, ended.stdout + ended.stderr
    bugs = [finding for finding in ended.answer["findings"] if finding["grade"] == "bug"]
    assert bugs, ended.stdout
    assert all(finding["reproduced"] for finding in bugs)
    assert any("subject.py" in (finding["where"] or {}).get("source", "") for finding in bugs)
    chains = list((corpus_of(tmp_path).parent / "libfuzzer").iterdir())
    assert chains
    assert all(len(chain.read_bytes()) % 4 == 0 for chain in chains)
    campaigns = rows(corpus_of(tmp_path), "select executions from campaigns")
    assert campaigns[0][0] >= 4000


@pytest.mark.slow
def test_a_death_under_atheris_is_told_by_its_signal(tmp_path: Path):
    pytest.importorskip("atheris")
    write_target(tmp_path, GIVEN, DEADLY)
    ended = fuzz(tmp_path, "--cases", "800", "--workers", "1", "--engine", "atheris")
    crashes = ended.of("crash")
    assert len(crashes) == 1, ended.stdout + ended.stderr
    assert "SIGSEGV" in crashes[0]["headline"]
    assert crashes[0]["reproduced"]
