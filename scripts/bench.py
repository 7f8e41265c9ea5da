"""Print one worker's speed as a ratio to the bare loop, in one run on one machine.

    scripts/bench [--cases N] [conv] [mlp]

A campaign of N executions with one worker is run as a user would run it. Its cases follow from `rng_seed` and outcomes
alone, so the same worker then runs once more here, untimed, to record them; the corpus proves that they are the same.
Each recorded case goes through plain torch, plain ONNX Runtime and `np.allclose`, one thread each: what one would write
by hand. Both figures are cases per second; confirming and minimizing go on beside the campaign, on another core.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from fuzzparity.case import Case, Lineage
from fuzzparity.corpus.records import KeptCase

SCRIPTS = Path(__file__).resolve().parent
ROUNDS = 3
LEAST_SECONDS = 3.0  # of bare loop per round
TARGETS = {"conv": 3000, "mlp": 20000}  # name in bench_targets.py -> executions of a campaign

Row = dict[str, np.ndarray[Any, Any]]


def run_campaign(name: str, cases: int, folder: Path) -> dict[str, Any]:
    """Run a campaign by the command line and return its `--json` object."""
    command = [sys.executable, "-m", "fuzzparity", "fuzz", f"{SCRIPTS / 'bench_targets.py'}:{name}"]
    command += ["--cases", str(cases), "--workers", "1", "--rng-seed", "0", "--json", "campaign.json"]
    command += ["--corpus", "corpus.sqlite", "--crashes", "crashes"]
    done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(
            f"{' '.join(command)}\nended with {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
    found: dict[str, Any] = json.loads((folder / "campaign.json").read_text())
    return found


class Nowhere:
    """Take the messages of a worker whose cases are only recorded."""

    def send(self, message: Any) -> None:
        """Forget a message."""


def recorded_rows(name: str, cases: int, folder: Path) -> list[Row]:
    """Return the inputs of every case that the campaign in `folder` ran, by running its worker again."""
    from fuzzparity.campaign.crew import LEASE_EXECUTIONS, LEASE_SECONDS
    from fuzzparity.campaign.gate import gate
    from fuzzparity.campaign.records import GateSpec, Lease, WorkerSpec
    from fuzzparity.campaign.worker import Worker
    from fuzzparity.corpus.database import Corpus
    from fuzzparity.explain.records import TwinSpec
    from fuzzparity.sides.export import make_build
    from fuzzparity.sides.load import load_target
    from fuzzparity.work.announce import Announcer
    from fuzzparity.work.limits import Limits
    from fuzzparity.work.loader import Context

    loaded = load_target(f"{SCRIPTS / 'bench_targets.py'}:{name}")
    facts = make_build(loaded, folder / "builds").facts
    assert facts is not None
    map_path = folder / "bench.map"
    context = Context(loaded, Nowhere(), Announcer(map_path), map_path, Limits())  # type: ignore[arg-type]
    report = gate(context, GateSpec(facts))
    seeds = tuple(case.digest for case in report.agreed)
    spec = WorkerSpec(TwinSpec(facts, report.policy, report.statistics), str(folder / "seeds.sqlite"), seeds, 0, True)
    with Corpus.open(folder / "corpus.sqlite", read_only=True) as corpus:
        kept = {row.digest: row.lineage.sequence for row in corpus.cases() if row.lineage.sequence >= 0}
        with Corpus.open(folder / "seeds.sqlite", create=True) as own:  # a corpus with nothing but the seeds
            first = [KeptCase(corpus.case(digest), Lineage(origin="seed")) for digest in seeds]
            own.keep_cases(own.begin_campaign(facts, "bench", 0), first)
    recorded: list[Case] = []
    worker = Worker(context, spec, on_case=recorded.append)
    done, number, sweep_from = 0, 0, 0
    while done < cases:
        size = min(LEASE_EXECUTIONS, cases - done)
        finished = worker.work(Lease(number, size, done, LEASE_SECONDS, sweep_from=sweep_from))
        done, number, sweep_from = done + size, number + 1, finished.sweep_position
    same = all(recorded[sequence].digest == digest for digest, sequence in kept.items())
    print(f"      {len(recorded)} cases recorded, {'the same' if same else 'NOT the same'} as the campaign kept")
    return [dict(case.inputs) for case in recorded]


def bare_sides(name: str) -> tuple[Any, Any]:
    """Return the module and an ORT session on its export, made without fuzzparity."""
    import bench_targets
    import onnxruntime
    import torch

    torch.set_num_threads(1)
    target = getattr(bench_targets, name)()
    dynamic = {key: dict.fromkeys(dims, torch.export.Dim.DYNAMIC) for key, dims in target.dynamic_shapes.items()}
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            target.module,
            tuple(target.inputs.values()),
            dynamo=True,
            input_names=list(target.inputs),
            dynamic_shapes=tuple(dynamic.values()),
            verbose=False,
        )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    model = program.model_proto.SerializeToString()
    return target.module, onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def bare_rate(module: Any, session: Any, rows: list[Row]) -> float:
    """Return rows per second of the loop that one writes by hand; a row that a side refuses counts as well."""
    import torch

    done, started = 0, time.perf_counter()
    with torch.no_grad(), np.errstate(all="ignore"):
        while time.perf_counter() - started < LEAST_SECONDS:
            for row in rows:
                done += 1
                try:
                    expected = module(*(torch.from_numpy(array) for array in row.values()))
                    np.allclose(session.run(None, row)[0], expected.numpy(), rtol=1e-4, atol=1e-5)
                except Exception:  # ORT's exceptions share no base, and a refusal is an answer
                    pass
    return done / (time.perf_counter() - started)


def bench(name: str, cases: int) -> None:
    """Measure one target and print a line."""
    with tempfile.TemporaryDirectory(prefix="fuzzparity-bench-") as text:
        folder = Path(text)
        campaign = run_campaign(name, cases, folder)
        rows = recorded_rows(name, campaign["executions"], folder)
    fuzzed = campaign["executions"] / campaign["seconds"]
    module, session = bare_sides(name)
    rates = [bare_rate(module, session, rows) for _ in range(ROUNDS)]
    bare = statistics.median(rates)
    spread = (max(rates) - min(rates)) / bare
    print(
        f"{name:5} fuzzparity {fuzzed:9.1f} cases/s ({campaign['executions']} executions,"
        f" {campaign['seconds']:.1f} s) | bare loop {bare:9.1f} cases/s (spread {spread:.0%})"
        f" | ratio {fuzzed / bare:.2f}",
        flush=True,
    )


def main() -> None:
    """Measure the targets named on the command line, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(TARGETS)}; default: all")
    parser.add_argument("--cases", type=int, help="executions of each campaign")
    options = parser.parse_args()
    for name in options.names or TARGETS:
        if name not in TARGETS:
            parser.error(f"no target {name!r}; there are {', '.join(TARGETS)}")
        bench(name, options.cases or TARGETS[name])


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported, here and in the campaign
    main()
