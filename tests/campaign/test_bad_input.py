"""Bad input: one clear error on stderr, exit code 2, no traceback, and nothing half-written."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from campaigns import CLEAN, GIVEN, Running, fuzz, run, write_target

# what the command line alone can tell, before a process is started
AT_ONCE = [
    (("--time", "soon"), "duration"),
    (("--time", "0s"), "duration"),
    (("--time", "-5s"), "duration"),
    (("--fail-on", "everything"), "--fail-on"),
    (("--workers", "0"), "--workers"),
    (("--cases", "none"), "--cases"),
    (("--rng-seed", "x"), "--rng-seed"),
    (("--json", "/nonexistent/x.json"), "/nonexistent/x.json"),
    (("--crashes", "/proc/x"), "/proc/x"),
    (("--corpus", "/proc/x/corpus.sqlite"), "/proc/x"),
    (("--nonsense",), "--nonsense"),
]

TARGETS = {
    "raises": ("def target():\n    raise ValueError('no weights here')", "no weights here"),
    "does not parse": ("def target(:\n    pass", "SyntaxError"),
    "exits": ("raise SystemExit(5)", "SystemExit"),
    "wrong type": ("def target():\n    return 7", "int"),
    "no target": ("other = 1", "target"),
    "unknown field": (
        "import torch\nfrom fuzzparity import Target\n"
        "target = lambda: Target(module=torch.nn.ReLU(), inputs={'x': torch.ones(2)}, colour='red')",
        "colour",
    ),
    "inputs do not fit": (
        "import torch\nfrom fuzzparity import Target\n"
        "target = lambda: Target(module=torch.nn.Linear(3, 4), inputs={'x': torch.ones(2, 5)})",
        "mat1 and mat2",
    ),
    "too many inputs": (
        "import torch\nfrom fuzzparity import Target\n"
        "target = lambda: Target(module=torch.nn.ReLU(), inputs={'x': torch.ones(2), 'y': torch.ones(2)})",
        "does not take this call",
    ),
    "onnx is text": (
        "import torch\nfrom fuzzparity import Target\n"
        "target = lambda: Target(module=torch.nn.ReLU(), inputs={'x': torch.ones(2)}, onnx='subject.py')",
        "subject.py",
    ),
    "onnx is not there": (
        "import torch\nfrom fuzzparity import Target\n"
        "target = lambda: Target(module=torch.nn.ReLU(), inputs={'x': torch.ones(2)}, onnx='gone.onnx')",
        "gone.onnx",
    ),
    "valid raises": (
        "import torch\nfrom fuzzparity import Target\n"
        "target = lambda: Target(module=torch.nn.ReLU(), inputs={'x': torch.ones(2)}, valid=lambda i: i['X'].any())",
        "valid() of the target raised KeyError",
    ),
    "inputs are out of range": (
        "import torch\nfrom fuzzparity import Target\n"
        "target = lambda: Target(module=torch.nn.ReLU(), inputs={'x': torch.ones(2)}, ranges={'x': (5, 6)})",
        "the declared range starts at 5",
    ),
    "dies while loading": ("import os\nos.abort()", "SIGABRT"),
}


def refused(folder: Path, *arguments: object, target: str = "subject.py") -> str:
    """Run `fuzz` where it must be refused; return what it says."""
    given = arguments if {"--time", "--cases"} & set(arguments) else ("--time", "5s", *arguments)
    given = given if "--json" in given else (*given, "--json", "out.json")
    ended = run(folder, "fuzz", *([target] if target else []), *given)
    assert ended.code == 2, f"exit {ended.code}: {ended.stdout}{ended.stderr}"
    assert "Traceback" not in ended.stdout + ended.stderr
    assert ended.stderr.strip()
    files = {path.name for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".std")}
    assert {name for name in files if not name.endswith(".pyc")} == {"subject.py"}
    return " ".join(ended.stderr.split())


@pytest.mark.parametrize(("arguments", "said"), AT_ONCE, ids=lambda value: " ".join(value) if value else "")
def test_a_command_line_that_cannot_be_meant_is_refused_before_anything_starts(
    tmp_path: Path, arguments: tuple[str, ...], said: str
):
    write_target(tmp_path, "raise AssertionError('the target must not be loaded')")
    assert said in refused(tmp_path, *arguments)


@pytest.mark.parametrize("target", ["gone", "gone.py", "gone.module:target", "subject.py:other", ""])
def test_a_target_that_is_not_there_is_refused(tmp_path: Path, target: str):
    write_target(tmp_path, "target = None")
    said = refused(tmp_path, target=target)
    assert (target.partition(":")[0] or "no target") in said


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_a_target_that_is_wrong_is_one_clear_message(tmp_path: Path, name: str):
    text, wanted = TARGETS[name]
    write_target(tmp_path, text)
    said = refused(tmp_path)
    assert said.startswith("fuzzparity: target is wrong at stage")
    assert wanted in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (("--provider", "CUDAExecutionProvider"), "CUDAExecutionProvider"),
        (("--provider", "Nonsense"), "Nonsense"),
        (("--device", "cuda:0"), "cuda:0"),
        (("--device", "abacus"), "abacus"),
        (("--onnx", "subject.py"), "subject.py"),
        (("--seeds", "gone.npz"), "gone.npz"),
        (("--seeds", "wrong.npz"), "wrong.npz"),
        (("--corpus", "subject.py"), "subject.py"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_does_not_fit_a_sound_target_is_one_clear_message(tmp_path: Path, arguments: tuple[str, ...], wanted: str):
    path = write_target(tmp_path, GIVEN, CLEAN)
    np.savez(tmp_path / "wrong.npz", colour=np.ones(3))
    before = path.read_bytes()
    ended = run(tmp_path, "fuzz", "subject.py", "--time", "5s", *arguments)
    assert ended.code == 2, ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr
    assert wanted in " ".join(ended.stderr.split())
    assert path.read_bytes() == before


@pytest.mark.slow
def test_a_state_dict_where_a_program_is_wanted_is_told_as_such(tmp_path: Path):
    text = "import torch; torch.save(torch.nn.Linear(3, 4).state_dict(), 'weights.pt')"
    subprocess.run([sys.executable, "-c", text], cwd=tmp_path, check=True)
    np.savez(tmp_path / "seed.npz", x=np.ones((2, 3), np.float32))
    ended = run(tmp_path, "fuzz", "--torch", "weights.pt", "--seeds", "seed.npz", "--time", "5s")
    assert ended.code == 2
    assert "state_dict" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.slow
def test_what_a_target_prints_does_not_get_into_the_answer(tmp_path: Path):
    noisy = """
        print("{ this is no JSON")
        os.system("echo and neither is this")


        class Net(torch.nn.Module):
            def forward(self, x):
                print("forward")
                os.write(1, b"raw")
                return x * 2


        def target():
            print("target")
            return Target(module=Net(), inputs={"x": torch.ones(2, 4)}, onnx=doubling(), outputs=["y"])
    """
    write_target(tmp_path, GIVEN, noisy)
    ended = fuzz(tmp_path, "--cases", "50", "--workers", "1", "--json", "-")
    assert ended.code == 0, ended.stderr
    assert ended.answer["executions"] == 50
    assert "fuzzing" in ended.stderr


@pytest.mark.slow
def test_two_campaigns_on_one_corpus_are_refused(tmp_path: Path):
    write_target(tmp_path, GIVEN, CLEAN)
    first = Running(tmp_path, "fuzz", "subject.py", "--time", "60s", "--workers", "1")
    try:
        first.wait_for("fuzzing")
        second = run(tmp_path, "fuzz", "subject.py", "--time", "5s")
        assert second.code == 2
        assert f"process {first.process.pid}" in second.stderr
        assert first.process.poll() is None
    finally:
        first.end()
