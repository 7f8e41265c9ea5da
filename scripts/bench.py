"""Print how fast workers are, as ratios to the loop that one writes by hand, in one run on one machine.

    scripts/bench [--cases N] [--rounds N] [--workers N] [conv] [mlp]

A campaign of N executions is run as a user would run it, with one worker and with several. Its cases follow from
`rng_seed` and outcomes alone, so the same worker runs here first, untimed, and its rows are kept; the corpus of the
campaign proves that they are the same. The bare loop puts each row alone, once and in its order, through plain torch,
plain ONNX Runtime and `np.allclose`, one thread each: half of the rows before the campaign, half after it, since the
speed of a machine drifts within minutes. Several workers run for as long as one did, since a campaign's executions hold
more rows the longer it lasts. Figures are medians, and their spread is that of the rounds, each with a seed and rows of
its own. Several bare loops at a time say how much more than one core's work a machine gives at all. The untimed run
also tells where a worker's CPU time goes. `inputs` are distinct rows, an execution is one run of the pair. Confirming
and minimizing go on beside the campaign.

Polygraphy's comparator and torch.onnx's verification run on a sample of the rows. Polygraphy is no dependency: it is
measured where it can be imported (pip install --target DIR --no-deps polygraphy; PYTHONPATH=DIR scripts/bench).
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fuzzparity.case import Case, Lineage
from fuzzparity.corpus.database import Corpus
from fuzzparity.corpus.records import KeptCase
from fuzzparity.work.announce import Announcer

SCRIPTS = Path(__file__).resolve().parent
ROUNDS = 3
WORKERS = 2
MOST_SECONDS = 40.0  # of each half of a bare loop
LEAST_SECONDS = 3.0  # of the loops that run a sample of the rows
SAMPLED_ROWS = 512
MOST_BYTES = 1 << 31  # of rows that are kept
# name in bench_targets.py -> executions of a campaign; the first few hundred are the sweep, whose rows are often alike
TARGETS = {"conv": 6000, "mlp": 24000}

Row = dict[str, np.ndarray[Any, Any]]


def run_campaign(name: str, length: list[str], folder: Path, workers: int, rng_seed: int) -> dict[str, Any]:
    """Run a campaign by the command line, as long as `length` says, and return its `--json` object."""
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "fuzzparity", "fuzz", f"{SCRIPTS / 'bench_targets.py'}:{name}"]
    command += [*length, "--workers", str(workers), "--rng-seed", str(rng_seed)]
    command += ["--json", "campaign.json", "--corpus", "corpus.sqlite", "--crashes", "crashes"]
    done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(
            f"{' '.join(command)}\nended with {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
    found: dict[str, Any] = json.loads((folder / "campaign.json").read_text())
    return found


class Shares:
    """Add up CPU seconds by part of the work; what a part calls counts for the part that is called."""

    def __init__(self) -> None:
        """Start at zero."""
        self.seconds: dict[str, float] = {}
        self._inner: list[float] = []

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function with its time counted for a part."""

        def run(*args: Any, **kwargs: Any) -> Any:
            started = time.thread_time()
            self._inner.append(0.0)
            try:
                return function(*args, **kwargs)
            finally:
                spent = time.thread_time() - started
                self.seconds[part] = self.seconds.get(part, 0.0) + spent - self._inner.pop()
                if self._inner:
                    self._inner[-1] += spent

        return run

    def watch(self, worker: Any) -> None:
        """Count the parts of a worker, whose own `work` is what is left: queues, hashes, announcements."""
        from fuzzparity.campaign import stacking
        from fuzzparity.campaign import worker as inner

        twin, generator, rows = worker._twin, worker._generator, worker._stacking._features
        for part, owner, names in (
            ("torch", twin, ("run_torch",)),
            ("ORT", twin, ("run_ort",)),
            ("generate", generator, ("propose", "stack", "alone", "learn")),
            ("compare", twin, ("screen", "judge")),
            ("compare", rows, ("novel",)),
            ("compare", stacking, ("look_at_rows",)),
            ("compare", inner, ("features",)),
            ("book-keeping", worker, ("work",)),
        ):
            for name in names:
                setattr(owner, name, self.timed(part, getattr(owner, name)))

    def text(self, executions: int) -> str:
        """Return each part's share and its microseconds of one execution."""
        total = sum(self.seconds.values())
        each = sorted(self.seconds.items(), key=lambda item: -item[1])
        return ", ".join(f"{part} {spent / total:.0%} ({1e6 * spent / executions:.0f} us)" for part, spent in each)


class Nowhere:
    """Take the messages of a worker whose cases are only recorded."""

    def send(self, message: Any) -> None:
        """Forget a message."""


class Recorder(Announcer):
    """Announce nothing but keep the distinct rows that a worker runs, in their order, and the digest of each case.

    What comes twice counts once, as in `inputs`.
    """

    def __init__(self, path: Path, places: tuple[int | None, ...]) -> None:
        """`places`: where each input has its rows."""
        super().__init__(path)
        self.rows: list[Row] = []
        self.digests: dict[int, str] = {}  # by place in the stream
        self.left_out = 0
        self._places = places
        self._met: set[int] = set()
        self._bytes = 0

    def case(self, case: Case, sequence: int = -1) -> None:
        """Keep the rows of a case that are new, while the memory for them suffices."""
        if sequence < 0:
            return
        self.digests[sequence] = case.digest
        arrays = dict(case.inputs)
        count = next(
            (a.shape[p] for a, p in zip(arrays.values(), self._places, strict=True) if p is not None and a.ndim > p), 1
        )
        for row in range(count):
            one = {
                name: a if p is None or a.ndim <= p else np.ascontiguousarray(np.take(a, [row], axis=p))
                for (name, a), p in zip(arrays.items(), self._places, strict=True)
            }
            key = hash(tuple((a.shape, a.tobytes()) for a in one.values()))
            if key in self._met:
                continue
            self._met.add(key)
            self._bytes += sum(a.nbytes for a in one.values())
            if self._bytes > MOST_BYTES:
                self.left_out += 1
            else:
                self.rows.append(one)


def recorded(name: str, cases: int, folder: Path, rng_seed: int) -> Recorder:
    """Return the rows that a campaign of these cases will run, by running its worker here."""
    from fuzzparity.campaign.crew import LEASE_EXECUTIONS, LEASE_SECONDS
    from fuzzparity.campaign.gate import gate
    from fuzzparity.campaign.records import GateSpec, Lease, WorkerSpec
    from fuzzparity.campaign.worker import Worker
    from fuzzparity.explain.records import TwinSpec
    from fuzzparity.sides.export import make_build
    from fuzzparity.sides.load import load_target
    from fuzzparity.work.limits import Limits
    from fuzzparity.work.loader import Context

    folder.mkdir(parents=True)
    loaded = load_target(f"{SCRIPTS / 'bench_targets.py'}:{name}")
    facts = make_build(loaded, folder / "builds").facts
    assert facts is not None
    map_path = folder / "bench.map"
    places = tuple(
        next((place for place, dim in enumerate(item.dims) if dim.symbol == facts.contract.batch), None)
        for item in facts.contract.inputs
    )
    recorder = Recorder(map_path, places)
    context = Context(loaded, Nowhere(), recorder, map_path, Limits())  # type: ignore[arg-type]
    report = gate(context, GateSpec(facts))
    seeds = tuple(case.digest for case in report.agreed)
    spec = WorkerSpec(
        TwinSpec(facts, report.policy, report.statistics), str(folder / "seeds.sqlite"), seeds, rng_seed, True
    )
    with Corpus.open(folder / "seeds.sqlite", create=True) as own:  # a corpus with nothing but the seeds
        first = [KeptCase(case, Lineage(origin="seed")) for case in report.agreed]
        own.keep_cases(own.begin_campaign(facts, "bench", rng_seed), first)
    worker, shares = Worker(context, spec), Shares()
    shares.watch(worker)
    done, number, sweep_from = 0, 0, 0
    while done < cases:
        size = min(LEASE_EXECUTIONS, cases - done)
        finished = worker.work(Lease(number, size, done, LEASE_SECONDS, sweep_from=sweep_from))
        done, number, sweep_from = done + size, number + 1, finished.sweep_position
    left_out = f", {recorder.left_out} more are left out" if recorder.left_out else ""
    print(
        f"      {len(recorder.rows)} distinct rows{left_out}; an execution in CPU time: {shares.text(done)}", flush=True
    )
    return recorder


def unlike(recorder: Recorder, corpus: Path) -> int:
    """Return how many of the cases that a campaign kept are not those of the worker that ran here."""
    with Corpus.open(corpus, read_only=True) as kept:
        rows = [row for row in kept.cases() if row.lineage.sequence >= 0]
    return sum(recorder.digests.get(row.lineage.sequence) != row.digest for row in rows)


def bare_sides(name: str) -> tuple[Any, Any, Any]:
    """Return the module, an ORT session on its export, and torch's own program, made without fuzzparity."""
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
    return target.module, onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"]), program


def rate(run: Callable[[Row], None], rows: Iterable[Row], most_seconds: float = MOST_SECONDS) -> float:
    """Return rows per second of one call each, in order, each row once; one that a side refuses counts as well."""
    done, started = 0, time.perf_counter()
    with np.errstate(all="ignore"):
        for row in rows:
            done += 1
            try:
                run(row)
            except Exception:  # ORT's exceptions share no base, and a refusal is an answer
                pass
            if done % 16 == 0 and time.perf_counter() - started >= most_seconds:
                break
    return done / (time.perf_counter() - started)


def bare_loop(module: Any, session: Any) -> Callable[[Row], None]:
    """Return what one writes by hand."""
    import torch

    def run(row: Row) -> None:
        with torch.no_grad():
            expected = module(*(torch.from_numpy(array) for array in row.values()))
        np.allclose(session.run(None, row)[0], expected.numpy(), rtol=1e-4, atol=1e-5)

    return run


def rate_of_several(name: str, rows: list[Row], path: Path, count: int) -> float:
    """Return rows per second of several bare loops at a time, in a process each: what this machine can give at all."""
    np.savez(path, **{f"{number} {key}": array for number, row in enumerate(rows) for key, array in row.items()})
    command = [sys.executable, str(SCRIPTS / "bench.py"), "--loop", str(path), name]
    loops = [subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True) for _ in range(count)]
    for one in loops:  # all are ready before the first starts
        assert one.stdout is not None
        one.stdout.readline()
    for one in loops:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    return sum(float(one.communicate()[0]) for one in loops)


def be_a_loop(name: str, path: Path) -> None:
    """Be the process of one of several bare loops: say "ready", wait for a line, and print rows per second."""
    rows: dict[int, Row] = {}
    with np.load(path, allow_pickle=False) as arrays:
        for key in arrays.files:
            number, _, item = key.partition(" ")
            rows.setdefault(int(number), {})[item] = arrays[key]
    loop = bare_loop(*bare_sides(name)[:2])
    print("ready", flush=True)
    sys.stdin.readline()
    print(rate(loop, itertools.cycle(rows.values()), LEAST_SECONDS), flush=True)


def torch_verification(program: Any) -> Callable[[Row], None]:
    """Return what `torch.onnx.verification` does with a row."""
    import torch
    from torch.onnx.verification import verify_onnx_program

    def run(row: Row) -> None:
        verify_onnx_program(program, tuple(torch.from_numpy(array) for array in row.values()))

    return run


def polygraphy_comparator(module: Any, session: Any) -> Callable[[Row], None] | None:
    """Return what Polygraphy's comparator does with a row, None where it is not installed."""
    if importlib.util.find_spec("polygraphy") is None:
        return None
    import torch
    from polygraphy.backend.base import BaseRunner
    from polygraphy.backend.onnxrt import OnnxrtRunner
    from polygraphy.common import TensorMetadata
    from polygraphy.comparator import Comparator, SimpleCompareFunc
    from polygraphy.logger import G_LOGGER

    G_LOGGER.module_severity = G_LOGGER.CRITICAL
    name = session.get_outputs()[0].name

    class TorchRunner(BaseRunner):  # type: ignore[misc]
        def get_input_metadata_impl(self) -> Any:
            metadata = TensorMetadata()
            for item in session.get_inputs():
                metadata.add(item.name, np.float32, [n if isinstance(n, int) else -1 for n in item.shape])
            return metadata

        def infer_impl(self, feed_dict: Row) -> Row:
            started = time.perf_counter()
            with torch.no_grad():
                answer = {name: module(*(torch.from_numpy(array) for array in feed_dict.values())).numpy()}
            self.inference_time = time.perf_counter() - started
            return answer

    runners = [TorchRunner("torch"), OnnxrtRunner(lambda: session)]
    compare = SimpleCompareFunc(rtol=1e-4, atol=1e-5)

    def run(row: Row) -> None:
        results = Comparator.run(runners, data_loader=[row])
        Comparator.compare_accuracy(results, compare_func=compare)

    return run


@dataclass
class Figures:
    """Hold what each round measured."""

    found: dict[str, list[float]] = field(default_factory=dict)

    def add(self, name: str, value: float) -> None:
        """Add a round's figure."""
        self.found.setdefault(name, []).append(value)

    def latest(self) -> str:
        """Return what the last round measured."""
        return ", ".join(f"{name} {values[-1]:.4g}" for name, values in self.found.items())

    def line(self, target: str, key: str, words: str, form: str) -> str:
        """Return a line of the table: median, spread as a share of it, least and most."""
        values = self.found[key]
        median = statistics.median(values)
        spread = (max(values) - min(values)) / median if median else 0.0
        figures = f"{median:>12{form}} {spread:>7.0%} {min(values):>12{form}} {max(values):>12{form}}"
        return f"{target:6} {words:38} {figures}"


HEAD = f"{'target':6} {'figure':38} {'median':>12} {'spread':>7} {'least':>12} {'most':>12}"


def bench(name: str, cases: int, rounds: int, workers: int) -> list[str]:
    """Measure one target and return its lines of the table."""
    module, session, program = bare_sides(name)
    loop, figures = bare_loop(module, session), Figures()
    sample: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="fuzzparity-bench-") as text:
        for number in range(rounds):
            folder = Path(text) / str(number)
            recorder = recorded(name, cases, folder / "here", number)
            rows = recorder.rows
            half = len(rows) // 2
            before = rate(loop, rows[:half])
            one = run_campaign(name, ["--cases", str(cases)], folder / "one", 1, number)
            after = rate(loop, rows[half:])
            bare = 2 / (1 / before + 1 / after)
            many = run_campaign(name, ["--time", f"{max(1.0, one['seconds']):.0f}s"], folder / "many", workers, number)
            sample = rows[:: max(1, len(rows) // SAMPLED_ROWS)]
            alone = rate_of_several(name, sample, folder / "rows.npz", 1)
            side_by_side = rate_of_several(name, sample, folder / "rows.npz", workers)
            if others := unlike(recorder, folder / "one" / "corpus.sqlite"):
                print(f"      {others} cases of the campaign are NOT those whose rows the bare loop ran")
            inputs, all_inputs = one["inputs"] / one["seconds"], many["inputs"] / many["seconds"]
            for key, value in (
                ("inputs", inputs),
                ("executions", one["executions"] / one["seconds"]),
                ("bare", bare),
                ("ratio", inputs / bare),
                ("workers", all_inputs / inputs),
                ("workers' executions", many["executions"] / many["seconds"] / (one["executions"] / one["seconds"])),
                ("bare loops", side_by_side / alone),
            ):
                figures.add(key, value)
            print(f"      round {number}: {figures.latest()}", flush=True)
    plain = session.get_inputs()  # a first run that has to succeed: what raises at once looks fast
    peers: Iterable[tuple[str, Callable[[Row], None] | None]] = (
        ("Polygraphy's comparator", polygraphy_comparator(module, session)),
        ("torch.onnx verification", torch_verification(program)),
    )
    for peer, run in peers:
        if run is None:
            print(f"      {peer}: not installed, not measured")
            continue
        run({item.name: np.ones([n if isinstance(n, int) else 64 for n in item.shape], np.float32) for item in plain})
        for ours in figures.found["inputs"]:
            speed = rate(run, itertools.cycle(sample), LEAST_SECONDS)
            figures.add(f"rows/s of {peer}", speed)
            figures.add(f"one worker / {peer}", ours / speed)
    words = {
        "inputs": "inputs/s of one worker",
        "executions": "executions/s of one worker",
        "bare": "rows/s of the bare loop",
        "bare loops": f"{workers} bare loops / one bare loop",
        "ratio": "one worker / bare loop",
        "workers": f"{workers} workers / one worker",
        "workers' executions": f"{workers} workers / one, in executions",
    }
    lines = [
        figures.line(name, key, words.get(key, key), ".2f" if "/ " in words.get(key, key) else ".0f")
        for key in figures.found
    ]
    return lines


def main() -> None:
    """Measure the targets named on the command line, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(TARGETS)}; default: all")
    parser.add_argument("--cases", type=int, help="executions of each campaign")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"of each measurement; default {ROUNDS}")
    parser.add_argument("--workers", type=int, default=WORKERS, help=f"against one; default {WORKERS}")
    parser.add_argument("--loop", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.loop:
        be_a_loop(options.names[0], options.loop)
        return
    table = [HEAD]
    for name in options.names or TARGETS:
        if name not in TARGETS:
            parser.error(f"no target {name!r}; there are {', '.join(TARGETS)}")
        print(f"{name}: {options.rounds} rounds", flush=True)
        table += bench(name, options.cases or TARGETS[name], options.rounds, options.workers)
    print("\n".join(table))


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported, here and in the campaign
    main()
