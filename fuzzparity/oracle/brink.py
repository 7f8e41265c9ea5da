"""Brink: how near a decision lies to the threshold at which it falls the other way.

The idea: the input tests are repeated with growing amplitude until the exact answer becomes the other side's, wherever
it is not so already. 0.3 means that three tenths of what nobody can tell apart flip it: a tie. What 8 times that does
not flip is no tie; that was seen already while it was weighed, and is not searched again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from fuzzparity.case import Array, Case
from fuzzparity.oracle import draws
from fuzzparity.oracle.question import Flags

LONGEST = 8.0  # times the tests: as far as decisions are weighed (DESIGN, "Evidence")
_SMALLEST = 1.0 / 8.0
_NOTHING = 2.0**-20  # of the tests, which are themselves some 2^-23 of a value: survives in float64, and no less would
_DRAWS = 3  # of each test and amplitude: an element stays unmoved the wrong way in all six with a chance of 1 in 64
_BISECTIONS = 2  # the distance is then known to a quarter


class Threshold(Protocol):
    """Say of the outputs of a draw where they give the answer that the exact one does not."""

    def flipped(self, outputs: tuple[Array, ...]) -> Flags:
        """Return a flag for each differing element."""

    @property
    def flips_by_order(self) -> bool:
        """Tell whether equal values in another order gave the other answer."""


class Search(Protocol):
    """Run the exact answer on changed inputs."""

    def exact(self, case: Case) -> tuple[Array, ...] | None:
        """Return the outputs in float64."""


def distance(threshold: Threshold, case: Case, referee: Search, working_dtype: str) -> tuple[float, str]:
    """Return the smallest amplitude at which the answer of a tie flips, and by which test.

    0.0 where next to nothing does, as another order of equal values; 1.0 where only the rounding of intermediates does,
    which has one size. At most 54 runs of the referee: 42 up the amplitudes, then 12 to bisect between the last two.
    """
    if threshold.flips_by_order:
        return 0.0, draws.RAMP
    if not draws.can_perturb(case):
        return 1.0, draws.ROUNDED
    low, high, test = 0.0, _SMALLEST, ""
    while not (test := _flips(high, threshold, case, referee, working_dtype)):
        low, high = high, 2.0 * high
        if high > LONGEST:
            return 1.0, draws.ROUNDED
    if not low and (found := _flips(_NOTHING, threshold, case, referee, working_dtype)):
        return 0.0, found
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2.0
        found = _flips(middle, threshold, case, referee, working_dtype)
        low, high, test = (low, middle, found) if found else (middle, high, test)
    return high, test


def _flips(amplitude: float, threshold: Threshold, case: Case, referee: Search, working_dtype: str) -> str:
    """Return the test under which the last differing element flips at an amplitude, "" where some never does."""
    flipped: Flags | None = None
    for test, moved in _moved(case, working_dtype, amplitude):
        outputs = referee.exact(moved)
        if outputs is None:
            continue
        flags = threshold.flipped(outputs)
        flipped = flags if flipped is None else flipped | flags
        if bool(np.all(flipped)):
            return test
    return ""


def _moved(case: Case, working_dtype: str, amplitude: float) -> Iterator[tuple[str, Case]]:
    for draw in range(_DRAWS):
        yield draws.ONE_ULP, draws.one_ulp(case, draw, amplitude)
        yield draws.EPS_OF_MAXIMUM, draws.eps_of_maximum(case, draw, working_dtype, amplitude)
