"""Deaths of both sides, all real: each becomes a finding with its input, and the campaign goes on."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from campaigns import GIVEN, Ended, corpus_of, fuzz, rows, write_target

pytestmark = pytest.mark.slow

TORCH_DIES = """
    class Net(torch.nn.Module):
        def forward(self, x):
            rows, width = x.shape
            if bool((x == -1).any()):
                ctypes.string_at(0)
            if bool(torch.isnan(x).any()):
                os.abort()
            if width % 2 == 1 and width > 4:
                os._exit(3)
            if bool((x < -1e30).any()):
                ctypes.CDLL(None).pause()
            if rows == 0:
                os.kill(os.getpid(), signal.SIGFPE)
            if bool((x > 1e30).any()):
                torch.empty(1 << 45)
            return x * 2


    def target():
        return Target(module=Net(), inputs={"x": torch.ones(2, 4)}, onnx=doubling(), outputs=["y"])
"""

# torch answers everything; ORT (1.32, CPU) divides INT_MIN by -1, and counts a Loop to the end
ORT_DIVIDES = """
    class Net(torch.nn.Module):
        def forward(self, a, b):
            safe = torch.where(b == 0, torch.ones_like(b), b).long()
            return (torch.div(a.long(), safe, rounding_mode="trunc")).int()


    def target():
        a, b, y = (helper.make_tensor_value_info(name, TensorProto.INT32, ["n"]) for name in "aby")
        graph = helper.make_graph([helper.make_node("Div", ["a", "b"], ["y"])], "division", [a, b], [y])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        seed = torch.tensor([4, 6, 9], dtype=torch.int32)
        return Target(module=Net(), inputs={"a": seed, "b": seed}, onnx=model, outputs=["y"])
"""

ORT_LOOPS = """
    class Net(torch.nn.Module):
        def forward(self, n, x):
            return x + 0 * n


    def target():
        n = helper.make_tensor_value_info("n", TensorProto.INT64, [])
        x, y, i, c, v, c2, v2 = (
            helper.make_tensor_value_info(name, kind, shape)
            for name, kind, shape in (
                ("x", TensorProto.FLOAT, ["w"]),
                ("y", TensorProto.FLOAT, ["w"]),
                ("i", TensorProto.INT64, []),
                ("c", TensorProto.BOOL, []),
                ("v", TensorProto.FLOAT, None),
                ("c2", TensorProto.BOOL, []),
                ("v2", TensorProto.FLOAT, None),
            )
        )
        body = helper.make_graph(
            [helper.make_node("Identity", ["c"], ["c2"]), helper.make_node("Identity", ["v"], ["v2"])],
            "body",
            [i, c, v],
            [c2, v2],
        )
        loop = helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)
        graph = helper.make_graph([loop], "looping", [n, x], [y])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        return Target(module=Net(), inputs={"n": torch.tensor(3), "x": torch.ones(3)}, onnx=model, outputs=["y"])
"""

ORT_LSTM = """
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = torch.nn.LSTM(3, 4, batch_first=False)

        def forward(self, x):
            return self.lstm(x)[0]


    def target():
        return Target(module=Net(), inputs={"x": torch.ones(5, 2, 3)}, dynamic_shapes={"x": {1: "batch"}})
"""

ORT_DOES_NOT_LOAD = """
    class Net(torch.nn.Module):
        def forward(self, x):
            return torch.clamp(torch.relu(x), 0.0, 6.0)


    def target():
        x, y = (helper.make_tensor_value_info(name, TensorProto.DOUBLE, ["n"]) for name in "xy")
        bounds = [helper.make_tensor(name, TensorProto.DOUBLE, [], [v]) for name, v in (("lo", 0.0), ("hi", 6.0))]
        nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Clip", ["r", "lo", "hi"], ["y"])]
        graph = helper.make_graph(nodes, "clipping", [x], [y], bounds)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        return Target(module=Net(), inputs={"x": torch.ones(3, dtype=torch.float64)}, onnx=model, outputs=["y"])
"""

FIRST_SEED_KILLS = """
    class Net(torch.nn.Module):
        def forward(self, x):
            if not torch.compiler.is_compiling():
                ctypes.string_at(0)
            return x * 3


    def target():
        return Target(module=Net(), inputs={"x": torch.ones(2, 4)})
"""

EXPORTER_DIES = """
    class Net(torch.nn.Module):
        def forward(self, x):
            if torch.compiler.is_compiling():
                os.abort()
            return x * 3


    def target():
        return Target(module=Net(), inputs={"x": torch.ones(2, 4)})
"""

EXPORTER_REFUSES = """
    class Net(torch.nn.Module):
        def forward(self, x):
            return x * 2 if x.sum() > 0 else x * 3


    def target():
        return Target(module=Net(), inputs={"x": torch.ones(2, 4)})
"""


@pytest.fixture(scope="module")
def torch_dies(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    folder = tmp_path_factory.mktemp("torch_dies")
    write_target(folder, GIVEN, TORCH_DIES)
    return fuzz(folder, "--cases", "600", "--workers", "2")  # a number, so that no slow machine sees less


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("crash", "torch dies with SIGSEGV"),
        ("crash", "torch dies with SIGABRT"),
        ("crash", "torch dies with SIGFPE"),
        ("crash", "torch dies with exit 3"),
        ("hang", "torch does not answer"),
        ("oom", "torch runs out of memory"),
    ],
)
def test_a_death_of_torch_is_a_reproduced_finding_with_its_input(torch_dies: Ended, kind: str, said: str):
    found = torch_dies.of(kind, said)
    assert found, [finding["headline"] for finding in torch_dies.findings]
    for one in found:  # a second one where inputs that hold NaN show the same
        assert_whole(torch_dies, one)
        assert one["headline"].endswith("; ORT answers")


def test_the_campaign_goes_on_after_deaths(torch_dies: Ended):
    assert torch_dies.code == 1
    assert torch_dies.answer["executions"] > 40
    assert torch_dies.answer["interrupted_by"] is None


def test_no_internal_fault_is_told_of_deaths(torch_dies: Ended):
    assert "internal fault" not in torch_dies.stdout + torch_dies.stderr


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        (ORT_DIVIDES, "crash", "ORT dies with SIGFPE; torch answers"),
        (ORT_LOOPS, "hang", "ORT does not answer"),
        (ORT_LSTM, "crash", "ORT dies with SIGABRT; torch answers"),
    ],
    ids=["division", "loop", "lstm"],
)
def test_a_death_of_ort_is_a_reproduced_finding_that_its_folder_shows(tmp_path: Path, text: str, kind: str, said: str):
    write_target(tmp_path, GIVEN, text)
    ended = fuzz(tmp_path, "--time", "6s", "--workers", "1")
    assert ended.code == 1, ended.stdout + ended.stderr
    found = ended.of(kind, said)
    assert len(found) == 1, [finding["headline"] for finding in ended.findings]
    assert_whole(ended, found[0])
    assert_shows(ended, found[0])
    assert ended.answer["executions"] > 50


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        (ORT_DOES_NOT_LOAD, "load_error", "ORT does not load the model"),
        (FIRST_SEED_KILLS, "crash", "torch dies with SIGSEGV on the target's own inputs"),
        (EXPORTER_DIES, "export_error", "the exporting process ended with SIGABRT"),
        (EXPORTER_REFUSES, "export_error", "the module cannot be exported"),
    ],
    ids=["load", "first seed", "exporter dies", "exporter refuses"],
)
def test_a_twin_that_cannot_be_made_or_opened_is_one_confirmed_finding(tmp_path: Path, text: str, kind: str, said: str):
    write_target(tmp_path, GIVEN, text)
    ended = fuzz(tmp_path, "--time", "5s", "--workers", "1", "--force")
    assert ended.code == 1, ended.stdout + ended.stderr
    assert [(f["kind"], f["grade"]) for f in ended.findings] == [(kind, "bug")]
    assert said in ended.findings[0]["headline"]
    assert_whole(ended, ended.findings[0])
    assert ended.answer["executions"] == 0  # nothing can be fuzzed, --force or not
    assert ended.seconds < 200


def assert_whole(ended: Ended, found: dict) -> None:
    """Check that a finding is stored with its input, reproduced, and has a folder."""
    assert found["reproduced"] is True
    folder = ended.folder / found["path"]
    names = {path.name for path in folder.iterdir()}
    assert {"repro.py", "inputs.safetensors", "finding.json", "issue.md"} <= names
    assert json.loads((folder / "finding.json").read_text())["finding_id"] == found["finding_id"]
    finding_id = found["finding_id"]
    cases = rows(
        corpus_of(ended.folder),
        f"select c.digest from findings f join cases c on c.digest = f.case_digest where finding_id = '{finding_id}'",
    )
    assert len(cases) == 1


def assert_shows(ended: Ended, found: dict) -> None:
    """Run a reproducer from another folder."""
    script = ended.folder / found["path"] / "repro.py"
    shown = subprocess.run([sys.executable, script], cwd="/", capture_output=True, text=True, timeout=120, check=False)
    assert shown.returncode == 1, shown.stdout + shown.stderr
