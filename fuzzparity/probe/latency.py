"""Latency: time a few kept cases on both sides, fairly.

The idea: the sides take turns within each round, so that a busy machine slows both alike; the ratio of medians is the
figure that survives a change of machine. Warm-up runs are not counted: the first run of a shape allocates and tunes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import psutil

from fuzzparity.case import Case
from fuzzparity.execution import Execution


@dataclass(frozen=True, slots=True)
class ProbeRow:
    """Hold the figures of one case; seconds are those of a whole run, `ratio` is ORT over torch of the medians.

    A side that did not answer has no figures (None), and its status is in `note`. `rss_bytes` is the process after
    the case's last round, `rss_growth_bytes` what was added since before its first.
    """

    case_digest: str
    shapes: dict[str, tuple[int, ...]]
    rounds: int
    torch_p50_seconds: float | None
    torch_p90_seconds: float | None
    torch_p99_seconds: float | None
    ort_p50_seconds: float | None
    ort_p90_seconds: float | None
    ort_p99_seconds: float | None
    ratio: float | None
    rss_bytes: int
    rss_growth_bytes: int
    note: str = ""


_NO_FIGURES: tuple[float | None, float | None, float | None] = (None, None, None)


def choose(cases: Sequence[Case], count: int) -> list[Case]:
    """Return at most `count` cases: smallest, largest, and evenly between them by elements; the same for any order."""
    ordered = sorted({case.digest: case for case in cases}.values(), key=lambda case: (case.elements, case.digest))
    if count <= 0 or len(ordered) <= count:
        return ordered[: max(count, 0)]
    if count == 1:
        return [ordered[len(ordered) // 2]]
    last = len(ordered) - 1
    return [ordered[round(index * last / (count - 1))] for index in range(count)]


def measure(
    cases: Sequence[Case],
    run_torch: Callable[[Case], Execution],
    run_ort: Callable[[Case], Execution],
    *,
    rounds: int,
    warmup: int = 3,
    clock: Callable[[], float] = time.perf_counter,
) -> list[ProbeRow]:
    """Time every case `rounds` times on both sides in turn, after `warmup` rounds that do not count."""
    assert rounds > 0
    return [_measure(case, run_torch, run_ort, rounds, warmup, clock) for case in cases]


def _measure(
    case: Case,
    run_torch: Callable[[Case], Execution],
    run_ort: Callable[[Case], Execution],
    rounds: int,
    warmup: int,
    clock: Callable[[], float],
) -> ProbeRow:
    process = psutil.Process()
    before = process.memory_info().rss
    sides = (("torch", run_torch), ("ORT", run_ort))
    seconds: dict[str, list[float]] = {"torch": [], "ORT": []}
    failed: dict[str, str] = {}
    for number in range(warmup + rounds):
        # who goes first alternates: the second of a pair finds the caches warmed, or spoiled, by the first
        for name, run in sides if number % 2 == 0 else sides[::-1]:
            if name in failed:
                continue
            started = clock()
            execution = run(case)
            elapsed = clock() - started
            if not execution.is_ok:
                failed[name] = execution.status.value
            elif number >= warmup:
                seconds[name].append(elapsed)
    figures = {name: None if name in failed else percentiles(seconds[name]) for name in seconds}
    after = process.memory_info().rss
    torch, ort = figures["torch"] or _NO_FIGURES, figures["ORT"] or _NO_FIGURES
    return ProbeRow(
        case.digest,
        case.shapes,
        rounds,
        *torch,
        *ort,
        ratio=ort[0] / torch[0] if ort[0] is not None and torch[0] else None,
        rss_bytes=after,
        rss_growth_bytes=after - before,
        note=", ".join(f"{name} {status}" for name, status in failed.items()),
    )


def percentiles(seconds: Sequence[float]) -> tuple[float, float, float]:
    """Return P50, P90 and P99; the latter two are times that were measured, never between two of them."""
    p50 = float(np.percentile(seconds, 50))
    p90, p99 = (float(value) for value in np.percentile(seconds, (90, 99), method="higher"))
    return p50, p90, p99
