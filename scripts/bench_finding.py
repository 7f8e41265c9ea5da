"""Measure which planted faults campaigns find as themselves, how soon, and what they alarm on where nothing is wrong.

    scripts/bench_finding --quick                    12 twins of every setting
    scripts/bench_finding --only masked_row          twins whose name holds a text; repeatable
    scripts/bench_finding --cases DIR                published cases beside them: a folder with a README of rows
    scripts/bench_finding --report                   the table and the plot of what was measured before
    scripts/bench_finding --check                    is every planted fault alive? no campaign is run

Twins stand alone, deep in networks of about a million parameters, five in one network, and as sound controls. Each is
fuzzed as a user would fuzz it, and by loops that people write by hand: random normal arrays, and Hypothesis arrays with
its defaults or finite floats, on both sides with a tolerance. "ours blind" learns nothing from what it sees. A campaign
is stopped once each of its faults is found as itself; on a control it runs to its end. Runs that are over are kept in a
file and not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fuzzparity.corpus.database import Corpus
from fuzzparity.errors import CorpusError
from fuzzparity.report.plain import finding_object

SCRIPTS = Path(__file__).resolve().parent
TARGETS = SCRIPTS / "planted_targets.py"
RESULTS = Path(".fuzzparity/bench_finding.jsonl")
OURS, BLIND = "ours", "ours blind"
_FINISHING_SECONDS = 600.0  # to load, build and finish, beyond the time that a run may take; slow machines included
_STUCK_SECONDS = 20.0  # without a word, after which a loop's side is taken to hang


@dataclass(frozen=True)
class Plan:
    """Say how long each run takes and how often it is repeated, by setting."""

    alone_seconds: float = 60.0
    deep_seconds: float = 120.0
    alone_seeds: int = 5
    deep_seeds: int = 2
    loop_seconds: float = 15.0

    def runs(self, setting: str, method: str) -> tuple[float, int]:
        """Return seconds and repetitions of one method on a twin of a setting."""
        if method not in (OURS, BLIND):
            return self.loop_seconds, 1
        large = setting in ("deep", "several")
        return (self.deep_seconds, self.deep_seeds) if large else (self.alone_seconds, self.alone_seeds)


QUICK = Plan(alone_seconds=12.0, deep_seconds=24.0, alone_seeds=1, deep_seeds=1, loop_seconds=6.0)


@dataclass
class Run:
    """Hold one run that is over: when each fault was met, as itself and as something of its kind, and alarms."""

    twin: str
    setting: str
    method: str
    seconds: float
    rng_seed: int
    itself: dict[str, float | None] = field(default_factory=dict)
    kind: dict[str, float | None] = field(default_factory=dict)
    alarms: list[str] = field(default_factory=list)
    inputs: int = 0
    setup_seconds: float = 0.0
    findings: list[dict[str, Any]] = field(default_factory=list)
    problem: str = ""

    @property
    def key(self) -> tuple[str, str, float, int]:
        """Return what makes it the same run again."""
        return self.twin, self.method, self.seconds, self.rng_seed


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="12 twins, short runs")
    parser.add_argument("--only", action="append", default=[], help="twins whose name holds this")
    parser.add_argument("--cases", type=Path, help="a folder of published cases with a README of rows")
    parser.add_argument("--methods", default="", help="comma separated: ours, ours blind, normal, hypothesis, finite")
    parser.add_argument("--settings", default="", help="comma separated: alone, deep, several, control, case")
    parser.add_argument("--jobs", type=int, help="runs at a time; default: half of the cores, all of them for --quick")
    parser.add_argument("--results", type=Path, default=RESULTS, help=f"runs that are over; default: {RESULTS}")
    parser.add_argument("--seconds", type=float, help="of each campaign instead of the plan's")
    parser.add_argument("--seeds", type=int, help="campaigns of each twin instead of the plan's")
    parser.add_argument("--report", action="store_true", help="run nothing")
    parser.add_argument("--check", action="store_true", help="show that each fault is alive")
    parser.add_argument("--loop", nargs=4, metavar=("METHOD", "SPEC", "SECONDS", "SEED"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    sys.path.insert(0, str(SCRIPTS))
    if given.loop:
        return loop(*given.loop)
    if given.check:
        from planted.alive import check

        return check(given.only)
    from planted.loops import METHODS

    methods = [name.strip() for name in given.methods.split(",") if name.strip()] or [OURS, BLIND, *METHODS]
    unknown = sorted(set(methods) - {OURS, BLIND, *METHODS})
    if unknown:
        parser.error(f"no method {', '.join(unknown)}; there are {', '.join([OURS, BLIND, *METHODS])}")
    subjects = chosen(given)
    if not given.report:
        cores = os.cpu_count() or 2
        jobs = given.jobs or (cores if given.quick else max(1, cores // 2))
        run_all(subjects, methods, plan_of(given), given.results, jobs)
    return report(given.results, subjects, methods)


def plan_of(given: argparse.Namespace) -> Plan:
    """Return the plan that the command line asks for."""
    plan = QUICK if given.quick else Plan()
    seconds = given.seconds or 0.0
    return Plan(
        seconds or plan.alone_seconds,
        seconds or plan.deep_seconds,
        given.seeds or plan.alone_seeds,
        given.seeds or plan.deep_seeds,
        plan.loop_seconds,
    )


def chosen(given: argparse.Namespace) -> list[Any]:
    """Return the subjects that the command line asks for."""
    from planted.judging import case_subjects, planted_subjects
    from planted.sets import QUICK as FEW

    found = planted_subjects(TARGETS)
    if given.quick and not given.only:
        found = [subject for subject in found if subject.name in FEW]
    if given.cases:
        found += case_subjects(given.cases.resolve())
    settings = {name.strip() for name in given.settings.split(",") if name.strip()}
    found = [subject for subject in found if not settings or subject.setting in settings]
    return [subject for subject in found if not given.only or any(text in subject.name for text in given.only)]


# Runs


def run_all(subjects: Sequence[Any], methods: Sequence[str], plan: Plan, results: Path, jobs: int) -> None:
    """Run what is not over yet, several at a time, and add each run to the results as it ends."""
    over = {run.key for run in read(results) if not run.problem}
    work = []
    for subject in subjects:
        for method in methods:
            seconds, seeds = plan.runs(subject.setting, method)
            for rng_seed in range(seeds):
                if (subject.name, method, seconds, rng_seed) not in over:
                    work.append((subject, method, seconds, rng_seed))
    print(f"{len(work)} runs to do, {len(over)} over before: {results}", flush=True)
    results.parent.mkdir(parents=True, exist_ok=True)
    lock, left = threading.Lock(), len(work)

    def one(item: tuple[Any, str, float, int]) -> None:
        nonlocal left
        run = run_ours(*item) if item[1] in (OURS, BLIND) else run_loop(*item)
        with lock, results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(run)) + "\n")
            left -= 1
            print(f"{left:4} left  {line_of(run)}", flush=True)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one, work))


def line_of(run: Run) -> str:
    """Return a run in one line."""
    found = [
        f"{name} {seconds:.1f} s" if seconds is not None else f"{name} as a kind {run.kind[name]:.1f} s"
        for name, seconds in (run.itself | {n: None for n in run.kind if n not in run.itself}).items()
        if seconds is not None or run.kind.get(name) is not None
    ]
    missed = [name for name in run.kind if run.kind[name] is None and run.itself.get(name) is None]
    said = [*found, *(f"{name} MISSED" for name in missed), *(f"ALARM {text}" for text in run.alarms)]
    problem = f" PROBLEM {run.problem}" if run.problem else ""
    return f"{run.method:10} {run.twin:32} {'; '.join(said) or 'silent'}{problem}"


def read(results: Path) -> list[Run]:
    """Return the runs that are over; a line that was cut off by a kill is none."""
    if not results.is_file():
        return []
    runs: dict[tuple[str, str, float, int], Run] = {}
    for line in results.read_text(encoding="utf-8").splitlines():
        try:
            run = Run(**json.loads(line))
        except json.JSONDecodeError:
            continue
        runs[run.key] = run  # one that gave no result is run again, and replaced
    return list(runs.values())


def run_ours(subject: Any, method: str, seconds: float, rng_seed: int) -> Run:
    """Run a campaign by the command line and look for the faults among its findings."""
    run = Run(subject.name, subject.setting, method, seconds, rng_seed)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    spec = subject.spec
    if method == BLIND:
        environment["PLANTED_WITHOUT_FEEDBACK"] = "1"
        if subject.case is not None:
            environment["PLANTED_CASE"] = str(subject.case)
            spec = f"{TARGETS}:case"
    with tempfile.TemporaryDirectory(prefix="bench-finding-") as folder:
        command = [sys.executable, "-m", "fuzzparity", "fuzz", spec, "--time", f"{seconds:g}s", "--workers", "1"]
        command += ["--rng-seed", str(rng_seed), "--json", "out.json", "--corpus", "c.sqlite", "--crashes", "crashes"]
        with (Path(folder) / "log").open("w+b") as log:
            with subprocess.Popen(
                command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            ) as process:
                code = until_found(process, subject, Path(folder) / "c.sqlite", seconds + _FINISHING_SECONDS)
            log.seek(0)
            said = log.read().decode(errors="replace").strip()[-300:]
        out = Path(folder) / "out.json"
        if code not in (0, 1, 4) or not out.is_file():
            run.problem = f"exit {code}: {said}"
            found: dict[str, Any] = {"findings": []}
        else:
            found = json.loads(out.read_text(encoding="utf-8"))
    run.inputs, run.setup_seconds = found.get("inputs", 0), found.get("setup_seconds", 0.0)
    kept = ("kind", "grade", "realism", "blame", "where", "headline", "first_seen_seconds", "reproduced")
    run.findings = [{key: finding.get(key) for key in kept} for finding in found["findings"]]
    judge(run, subject)
    return run


def until_found(process: subprocess.Popen[bytes], subject: Any, corpus: Path, most_seconds: float) -> int:
    """Wait for a campaign, and end it as a user would, by Ctrl-C, once it has all that there is; return its exit code.

    0 for one that was ended so: only somebody else's Ctrl-C cuts a run short. One that is still there after
    `most_seconds` is killed.
    """
    started, is_told = time.monotonic(), False
    while process.poll() is None:
        try:
            process.wait(1.0)
        except subprocess.TimeoutExpired:
            if time.monotonic() - started > most_seconds:
                process.kill()
            elif subject.wanted and not is_told and has_all(subject, corpus):
                process.send_signal(signal.SIGINT)
                is_told = True
    return 0 if is_told and process.returncode == 128 + signal.SIGINT else process.returncode


def has_all(subject: Any, path: Path) -> bool:
    """Tell whether the corpus of a campaign that runs holds each fault of a subject as itself."""
    from planted.judging import ITSELF

    try:
        with Corpus.open(path, read_only=True) as corpus:
            found = [finding_object(one, is_new=True) for one in corpus.findings()]
    except (CorpusError, sqlite3.Error):  # not made yet
        return False
    return all(any(wanted.level(finding) == ITSELF for finding in found) for wanted in subject.wanted)


def judge(run: Run, subject: Any) -> None:
    """Say when each fault of a subject was met by a campaign, and what it alarmed on where there is none."""
    from planted.judging import ITSELF

    at = [float(finding["first_seen_seconds"] or 0.0) for finding in run.findings]
    itself, near = {}, {}
    for wanted in subject.wanted:
        levels = [wanted.level(finding) for finding in run.findings]
        itself[wanted.name] = [place for place, level in enumerate(levels) if level == ITSELF]
        near[wanted.name] = [place for place, level in enumerate(levels) if level]
    taken = {place for places in itself.values() for place in places}
    for name, places in itself.items():
        run.itself[name] = run.kind[name] = min((at[place] for place in places), default=None)
        left = [place for place in near[name] if place not in taken]
        if not places and left:  # a finding stands for one fault, not for every one of its kind
            first = min(left, key=at.__getitem__)
            taken.add(first)
            run.kind[name] = at[first]
    if not subject.wanted:
        run.alarms = [f"{one['kind']}: {one['headline']}" for one in run.findings if one["grade"] == "bug"]


def run_loop(subject: Any, method: str, seconds: float, rng_seed: int) -> Run:
    """Run a loop in a process of its own, again with another seed when it dies, until the time is over."""
    run = Run(subject.name, subject.setting, method, seconds, rng_seed)
    met: dict[str, float] = {}
    spent, attempt = 0.0, 0
    while spent < seconds and attempt < 20:
        spec = str(subject.case) if subject.case is not None else subject.name
        arguments = [method, spec, str(seconds - spent), str(1000 * rng_seed + attempt)]
        lines, ended = attended([sys.executable, str(Path(__file__).resolve()), "--loop", *arguments])
        ready = [line for line in lines if line.get("ready")]
        for line in lines:
            if "kind" in line:
                met.setdefault(line["kind"], spent + line["seconds"])
            run.inputs = line.get("inputs", run.inputs)
        if not ready:
            run.problem = f"the loop did not start: {ended}"
            break
        if not ended:
            break
        spent += max(0.5, lines[-1]["seconds"])
        met.setdefault(ended, spent)
        attempt += 1
    for wanted in subject.wanted:  # a kind that was met stands for one fault, however many are planted
        kind = min((kind for kind in met if kind in wanted.kinds), key=met.__getitem__, default=None)
        run.kind[wanted.name] = None if kind is None else met.pop(kind)
    if not subject.wanted:
        run.alarms = sorted(met)
    return run


def attended(command: Sequence[str]) -> tuple[list[dict[str, Any]], str]:
    """Return what a loop printed, and "crash" or "hang" where it did not end by itself."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    limit = float(command[-2]) + _FINISHING_SECONDS / 4
    with tempfile.TemporaryFile() as log, subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.DEVNULL
    ) as process:  # fmt: skip
        started = time.monotonic()
        ended = ""
        while process.poll() is None:
            time.sleep(0.1)
            log.seek(0)
            is_ready = b"ready" in log.read()
            if not is_ready:
                started_running = time.monotonic()
            late = is_ready and time.monotonic() - started_running > float(command[-2]) + _STUCK_SECONDS
            if late or time.monotonic() - started > limit:
                process.kill()
                ended = "hang" if is_ready else "no start"
        if not ended and process.returncode != 0:
            ended = "crash" if process.returncode < 0 else f"exit {process.returncode}"
        log.seek(0)
        return [json.loads(line) for line in log.read().decode().splitlines() if line.startswith("{")], ended


def loop(method: str, spec: str, seconds: str, rng_seed: str) -> int:
    """Be the process of one loop."""
    from planted.loops import run_loop as looped

    if spec.endswith(".py"):
        os.environ["PLANTED_CASE"] = spec
        import planted_targets

        target = planted_targets.case()
    else:
        from planted.sets import TWINS

        target = TWINS[spec].target()
    looped(method, target, float(seconds), int(rng_seed))
    return 0


def report(results: Path, subjects: Sequence[Any], methods: Sequence[str]) -> int:
    """Print the tables of the runs that are over on these subjects, and write the plot beside them."""
    from planted.figures import plot, tables
    from rich.console import Console

    known = {subject.name: subject for subject in subjects}
    runs = [run for run in read(results) if run.twin in known and run.method in methods]
    for run in runs:
        if run.method in (OURS, BLIND):  # findings are stored, so what counts may have changed since
            judge(run, known[run.twin])
    if not runs:
        print(f"nothing was measured yet: {results}")
        return 1
    console = Console(width=None if sys.stdout.isatty() else 150)
    for table in tables(runs, methods):
        console.print(table)
    path = results.with_suffix(".svg")
    path.write_text(plot(runs, methods), encoding="utf-8")
    print(f"plot: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
