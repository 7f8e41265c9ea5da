"""Judge the set of tests/judged by the code of `explain`, print a table and the counts, exit 1 on a miss.

    scripts/judge_set [--workers N] [--only TEXT] [sound] [faults]

A sound comparison must not be a bug. A fault must be one of its kinds and a bug, neither inherent nor tie, with one of
its blames. Each entry runs in a fork of this process, which plays the loader: it has imported torch and ORT and opened
nothing. Seconds are those of an entry from its build to its blame, on the wall and of processors (children included);
the start of a command (about two imports of torch) comes on top.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import resource
import statistics
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any

from fuzzparity.campaign.setup import _PRELOAD
from fuzzparity.verdict import Grade, Verdict

JUDGED = Path(__file__).resolve().parent.parent / "tests" / "judged"
MOST_WRONG_BLAMES = 3  # of 60: issue 4, "at least 57 with the right blame"


@dataclass(frozen=True)
class Line:
    """Hold what came of one entry."""

    group: str
    name: str
    verdicts: tuple[Verdict, ...]
    seconds: float
    cpu_seconds: float
    fault: str = ""


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", metavar="{sound,faults}", help="default: both")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", default="", help="entries whose name holds this")
    given = parser.parse_args()
    if unknown := set(given.groups) - {"sound", "faults"}:  # as `choices`, argparse 3.11 refuses the default
        parser.error(f"no such group: {', '.join(sorted(unknown))}; there are sound and faults")
    given.groups = given.groups or ["sound", "faults"]
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    for name in _PRELOAD:
        importlib.import_module(name)
    sys.path.insert(0, str(JUDGED))
    importlib.import_module("trial")
    entries = [
        (group, entry)
        for group, module, table in (("sound", "sound", "SOUND"), ("faults", "faults", "FAULTS"))
        if group in given.groups
        for entry in getattr(importlib.import_module(module), table)
        if given.only in entry.name
    ]
    lines, wrong = [], []
    for entry, line in judged(entries, given.workers):
        said = complaints(line.group, entry, line)
        lines.append(line)
        wrong += [(line.group, what) for what in said]
        print(row(line, said), flush=True)
    return summary(lines, wrong)


def judged(entries: Sequence[tuple[str, Any]], workers: int) -> Iterator[tuple[Any, Line]]:
    """Yield each entry with what came of it, several at a time."""
    waiting, running = list(reversed(entries)), {}
    while waiting or running:
        while waiting and len(running) < workers:
            group, entry = waiting.pop()
            reader, pid = forked(group, entry)
            running[reader] = (entry, group, pid)
        for reader in wait(list(running)):
            assert isinstance(reader, Connection)
            entry, group, pid = running.pop(reader)
            try:
                line = reader.recv()
            except EOFError:
                line = Line(group, entry.name, (), 0.0, 0.0, "its process died")
            os.waitpid(pid, 0)
            yield entry, line


def forked(group: str, entry: Any) -> tuple[Connection, int]:
    """Start a process that judges one entry and sends its line."""
    reader, writer = Pipe(duplex=False)
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        writer.close()
        return reader, pid
    started, verdicts, fault = time.monotonic(), (), ""
    try:
        verdicts = importlib.import_module("trial").investigated(entry).verdicts
    except BaseException as error:  # told in the table
        fault = f"{type(error).__name__}: {error}"
    seconds = time.monotonic() - started
    uses = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu_seconds = sum(use.ru_utime + use.ru_stime for use in uses)
    writer.send(Line(group, entry.name, verdicts, seconds, cpu_seconds, fault))
    os._exit(0)


def complaints(group: str, entry: Any, line: Line) -> list[str]:
    """Return what is wrong with a line: "fault", "bug", "missed", "excused", "kind", "blame"."""
    if line.fault:
        return ["fault"]
    grades = {verdict.grade for verdict in line.verdicts}
    if group == "sound":
        return ["bug"] if Grade.BUG in grades else []
    if not line.verdicts:
        return ["missed"]
    first = line.verdicts[0]
    said = [] if Grade.BUG in grades else ["excused" if grades & {Grade.INHERENT, Grade.TIE} else "missed"]
    said += [] if first.kind.value in entry.kinds else ["kind"]
    right = all(verdict.blame in entry.blames for verdict in line.verdicts if verdict.grade is Grade.BUG)
    return said + ([] if right else ["blame"])


def row(line: Line, said: Sequence[str]) -> str:
    """Return an entry as a line of the table."""
    told = "; ".join(f"{v.kind.value} {v.grade.value} {v.blame}" for v in line.verdicts) or "agree"
    mark = f"  <-- {', '.join(said)}" if said else ""
    how = next((v.attribution.how for v in line.verdicts if v.attribution is not None), "") if "blame" in said else ""
    tail = "".join(f"\n        {text}" for text in (line.fault, how) if text)
    return f"{line.group:6} {line.name:38} {line.seconds:6.1f} s {line.cpu_seconds:6.1f} s  {told}{mark}{tail}"


def summary(lines: Sequence[Line], wrong: Sequence[tuple[str, str]]) -> int:
    """Print the counts and return the exit code."""
    bad = 0
    for group in ("sound", "faults"):
        chosen = [line for line in lines if line.group == group]
        if not chosen:
            continue
        counts = {
            what: sum(w == (group, what) for w in wrong)
            for what in ("fault", "bug", "missed", "excused", "kind", "blame")
        }
        seconds = statistics.median(line.seconds for line in chosen)
        cpu_seconds = statistics.median(line.cpu_seconds for line in chosen)
        tail = f"median {seconds:.1f} s, {cpu_seconds:.1f} s of processors"
        if group == "sound":
            print(f"sound: {len(chosen)}, {counts['bug']} bug, {counts['fault']} not judged; {tail}")
        else:
            right = len(chosen) - counts["blame"] - counts["missed"] - counts["fault"]
            print(
                f"faults: {len(chosen)}, {counts['excused']} inherent or tie, {counts['missed']} missed, "
                f"{counts['kind']} of another kind, {right} with the right blame, {counts['fault']} not judged; {tail}"
            )
        few = counts["blame"] <= MOST_WRONG_BLAMES
        bad += sum(counts.values()) - (counts["blame"] if few else 0)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
