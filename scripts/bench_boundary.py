"""Print after how many executions a split beside a threshold is met: by campaigns, and by random arrays.

    scripts/bench_boundary [--cases N] [--random N] [--seeds N] [float_sum] [norm_above] [above_half]

The twins are those of boundary_targets.py. A campaign is run as a user would run it; its figure is the place in the
stream of the case that showed the split first. Random arrays are normal, of the sample's shape and spread, and run
through plain torch and plain ONNX Runtime until the sides part by more than a thousandth, which rounding does not.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

SCRIPTS = Path(__file__).resolve().parent
APART = 1e-3  # both arms, and both answers of a comparison, are farther apart; roundings of these sums are not


def by_campaign(name: str, cases: int, rng_seed: int) -> tuple[int | None, str]:
    """Return the place in the stream of the first split, None for none within `cases`, and what was told."""
    from boundary_targets import GRADES

    from fuzzparity.corpus.database import Corpus

    with tempfile.TemporaryDirectory(prefix="bench-boundary-") as folder:
        command = [sys.executable, "-m", "fuzzparity", "fuzz", f"{SCRIPTS / 'boundary_targets.py'}:{name}"]
        command += ["--cases", str(cases), "--workers", "1", "--rng-seed", str(rng_seed), "--json", "out.json"]
        command += ["--corpus", "corpus.sqlite", "--crashes", "crashes"]
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        if done.returncode not in (0, 1):
            raise SystemExit(f"{' '.join(command)}\nended with {done.returncode}\n{done.stderr[-2000:]}")
        told = json.loads((Path(folder) / "out.json").read_text(encoding="utf-8"))["findings"]
        kinds = ("branch_split", "numeric", "decision")
        places = []
        with Corpus.open(Path(folder) / "corpus.sqlite", read_only=True) as corpus:
            for finding in corpus.findings():
                if finding.verdict.kind.value in kinds and finding.verdict.grade.value == GRADES[name]:
                    places.append(corpus.case_row(finding.first_case_digest).lineage.sequence)
        return min(places, default=None), ", ".join(sorted({f"{one['kind']} {one['grade']}" for one in told}))


def by_random(name: str, most: int, rng_seed: int) -> int | None:
    """Return after how many normal arrays the sides part, None where `most` did not show it."""
    import boundary_targets
    import onnxruntime
    import torch

    torch.set_num_threads(1)
    target = boundary_targets.TARGETS[name]()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(target.onnx.SerializeToString(), options, providers=["CPUExecutionProvider"])
    sample = target.inputs["x"].numpy()
    rng = np.random.default_rng(rng_seed)
    with torch.no_grad():
        for number in range(most):
            x = (rng.standard_normal(sample.shape) * sample.std()).astype(np.float32)
            expected = target.module(torch.from_numpy(x)).numpy().astype(np.float64)
            if np.abs(expected - session.run(None, {"x": x})[0].astype(np.float64)).max() > APART:
                return number + 1
    return None


def main() -> int:
    """Measure the twins named on the command line, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="of float_sum, norm_above, above_half; default: all")
    parser.add_argument("--cases", type=int, default=2000, help="executions of a campaign; default 2000")
    parser.add_argument("--random", type=int, default=300_000, help="random arrays; default 300000")
    parser.add_argument("--seeds", type=int, default=3, help="of each; default 3")
    given = parser.parse_args()
    sys.path.insert(0, str(SCRIPTS))
    from boundary_targets import TARGETS

    if unknown := sorted(set(given.names) - set(TARGETS)):
        parser.error(f"no twin {', '.join(unknown)}; there are {', '.join(TARGETS)}")
    for name in given.names or TARGETS:
        for rng_seed in range(given.seeds):
            ours, told = by_campaign(name, given.cases, rng_seed)
            random = by_random(name, given.random, rng_seed)
            campaign = f"split at execution {ours}" if ours is not None else f"no split in {given.cases} executions"
            arrays = f"at {random}" if random is not None else f"none in {given.random}"
            print(
                f"{name:11} seed {rng_seed}: {campaign} ({told or 'nothing told'}); random arrays: {arrays}", flush=True
            )
    return 0


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported, here and in the campaign
    sys.exit(main())
