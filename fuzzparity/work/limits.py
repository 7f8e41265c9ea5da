"""Limits of a child: it dies with its parent, its memory is bounded, its time is known.

The kernel enforces all three where it can (Linux: PR_SET_PDEATHSIG, RLIMIT_AS), so that neither a kill -9 of the
parent nor a runaway allocation leaves anything behind.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from dataclasses import dataclass

import psutil

from fuzzparity.execution import ORT, TORCH

_PR_SET_PDEATHSIG = 1

SLOWEST_SEED_FACTOR = 50.0
SHORTEST_SECONDS = 2.0
LONGEST_SECONDS = 60.0
CONFIRM_FACTOR = 3.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Bound one child: `run_seconds` for one announced run, `memory_bytes` on top of what the process has at fork.

    What is neither torch nor ORT (the referee) is no side and cannot hang as a finding; it gets `other_seconds`.
    """

    run_seconds: float = LONGEST_SECONDS
    memory_bytes: int | None = None
    other_seconds: float = 2 * LONGEST_SECONDS

    def are_passed(self, side: str, busy_seconds: float) -> bool:
        """Tell whether an announced run has gone on for too long."""
        return bool(side) and busy_seconds > (self.run_seconds if side in (TORCH, ORT) else self.other_seconds)


def run_limit_seconds(slowest_seed_seconds: float) -> float:
    """Return the time limit of one run: 50 times the slowest seed, clamped to 2-60 s (DESIGN, Work)."""
    return min(LONGEST_SECONDS, max(SHORTEST_SECONDS, SLOWEST_SEED_FACTOR * slowest_seed_seconds))


def memory_budget_bytes(workers: int) -> int:
    """Return a fair share of the machine's memory for one child: 80 % over the workers and one risky run."""
    return max(1 << 30, int(psutil.virtual_memory().available * 0.8) // (workers + 1))


def die_with_parent(parent_pid: int) -> None:
    """Ask the kernel to kill this process when its parent dies; exit at once if that has already happened."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(0)


def limit_memory(extra_bytes: int | None) -> None:
    """Bound the address space to what is mapped now plus `extra_bytes`."""
    if extra_bytes is None or sys.platform != "linux":
        return
    ceiling = psutil.Process().memory_info().vms + extra_bytes
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard != resource.RLIM_INFINITY:
        ceiling = min(ceiling, hard)
    resource.setrlimit(resource.RLIMIT_AS, (ceiling, hard))


def no_core_dump() -> None:
    """Keep real crashes of a target from filling the disk with core files."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
