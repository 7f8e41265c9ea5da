"""Print how many nodes are left of models with one wrong node, and after how many seconds, beside a peer's.

    scripts/bench_minimizing [chain] [ranged] [arm]

The models are those of minimizing_targets.py, and both tools get the same files. fuzzparity gets the target and an
input that differs, and confirms, blames, places and cuts it, weights and values made up; loading the target is not
counted. Polygraphy's `debug reduce` gets the file and a command that tells whether what it tries differs from the
mended file: on the same input where that fits, else on numbers between 0 and 1, as its own comparator takes them.
Polygraphy is no dependency: it is run where it can be imported
(pip install --target DIR --no-deps polygraphy onnx_graphsurgeon; PYTHONPATH=DIR scripts/bench_minimizing).
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

SCRIPTS = Path(__file__).resolve().parent
NAMES = ("chain", "ranged", "arm")
CLEAR = 1e-4  # of the largest value: beyond any rounding of these models
PEER_SECONDS = 900.0
DIFFERS = 41  # exit code of the check: a part that cannot be loaded at all does not show the fault


def nodes_of(path: Path) -> int:
    """Return how many nodes a model has, those of bodies included, constants not."""
    import onnx

    count, graphs = 0, [onnx.load(path).graph]
    while graphs:
        for node in graphs.pop().node:
            count += node.op_type != "Constant"
            graphs += [attribute.g for attribute in node.attribute if attribute.type == onnx.AttributeProto.GRAPH]
    return count


def check(path: str) -> int:
    """Return DIFFERS where a model is not what it is with its wrong node mended, else 0: the peer's question."""
    import minimizing_targets as targets
    import onnx
    import onnxruntime as ort

    model = onnx.load(path)
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    sessions = [
        ort.InferenceSession(one.SerializeToString(), options, providers=["CPUExecutionProvider"])
        for one in (model, targets.mended(model))
    ]
    rng = np.random.default_rng(1)
    feeds = {}
    for item in sessions[0].get_inputs():
        drawn = rng.random([size if isinstance(size, int) else 1 for size in item.shape])
        feeds[item.name] = drawn > 0.5 if item.type == "tensor(bool)" else drawn.astype(np.float32)
    if list(feeds) == ["x"]:
        feeds["x"] = targets.sample().numpy()
    wrong, right = (session.run(None, feeds) for session in sessions)
    gaps = [np.abs(a - b).max(initial=0) > CLEAR * np.abs(b).max(initial=0) for a, b in zip(wrong, right, strict=True)]
    return DIFFERS if any(gaps) else 0


def ours(name: str, folder: Path) -> tuple[int, float]:
    """Return (nodes left, seconds) of fuzzparity's investigation; 0 nodes where nothing was cut."""
    import minimizing_targets as targets

    from fuzzparity.campaign.options import TargetOptions
    from fuzzparity.campaign.setup import close_pool, prepare
    from fuzzparity.case import Case
    from fuzzparity.explain.records import ExamineSpec, InvestigateSpec

    before = Path.cwd()
    folder.mkdir()
    os.chdir(folder)
    asked = TargetOptions(target=f"{SCRIPTS / 'minimizing_targets.py'}:{name}")
    prepared = prepare(asked, workers=1, say=lambda stage: None)
    try:
        assert prepared.twin is not None
        spec = ExamineSpec(prepared.twin, Case({"x": targets.sample().numpy()}))
        job = "fuzzparity.explain.examine:examine"
        examined = prepared.pool.run(job, spec, limits=prepared.limits, label="examine")
        wanted = InvestigateSpec(prepared.twin, examined.suspects[0], minimize_executions=0)
        started = time.monotonic()
        job = "fuzzparity.explain.investigate:investigate"
        outcome = prepared.pool.run(job, wanted, limits=prepared.limits, label="investigate")
        seconds = time.monotonic() - started
    finally:
        close_pool(prepared.pool)
        os.chdir(before)
    return (outcome.cut.nodes if outcome.cut is not None else 0), seconds


def peers(name: str, folder: Path) -> tuple[int, float]:
    """Return (nodes left, seconds) of `polygraphy debug reduce`; 0 nodes where it left no model."""
    import minimizing_targets as targets
    import onnx

    folder.mkdir()
    onnx.save(getattr(targets, name)().onnx, folder / "wrong.onnx")
    start = "import sys; from polygraphy.tools import main; sys.exit(main())"
    command = [sys.executable, "-c", start, "debug", "reduce", "wrong.onnx", "-o", "left.onnx", "--mode", "bisect"]
    command += ["--model-input-shapes", f"x:[4,{targets.SIZE}]"]
    command += ["--fail-code", str(DIFFERS)]
    command += ["--check", sys.executable, str(Path(__file__).resolve()), "--check", "polygraphy_debug.onnx"]
    started = time.monotonic()
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PEER_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return 0, PEER_SECONDS
    seconds = time.monotonic() - started
    left = folder / "left.onnx"
    if not left.exists():
        print(f"polygraphy left no model of {name}: {done.stdout[-500:]}{done.stderr[-500:]}", file=sys.stderr)
    return (nodes_of(left) if left.exists() else 0), seconds


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*NAMES, []], help="which models; all without any")
    parser.add_argument(
        "--check", metavar="MODEL", help="tell by the exit code whether a model is wrong (the peer asks)"
    )
    given = parser.parse_args()
    sys.path.insert(0, str(SCRIPTS))
    if given.check:
        raise SystemExit(check(given.check))
    import minimizing_targets as targets
    import onnx

    has_peer = importlib.util.find_spec("polygraphy") is not None
    if not has_peer:
        print("polygraphy: not installed, left out")
    print(f"{'model':<8} {'nodes':>5}   {'fuzzparity':<18}" + ("polygraphy debug reduce" if has_peer else ""))
    with tempfile.TemporaryDirectory() as folder:
        for name in given.names or NAMES:
            path = Path(folder) / f"{name}.onnx"
            onnx.save(getattr(targets, name)().onnx, path)
            told = [_told(*ours(name, Path(folder) / f"{name}_ours"))]
            told += [_told(*peers(name, Path(folder) / f"{name}_peers"))] if has_peer else []
            print(f"{name:<8} {nodes_of(path):>5}   " + "".join(f"{text:<18}" for text in told), flush=True)


def _told(nodes: int, seconds: float) -> str:
    return f"{nodes or 'no'} left, {seconds:.1f} s"


if __name__ == "__main__":
    main()
