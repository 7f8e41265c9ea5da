"""Decisions: what a side decided on the way to its answer, one record for each branch, conversion or loop it met.

The idea: two runs that took other arms computed other things, however near their inputs. Keys are stable from run to
run and from process to process, so that the path of one case can be laid beside the path of another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

TENSOR_BOOL = "Tensor.__bool__"
TENSOR_ITEM = "Tensor.item"
PYTHON_BRANCH = "python branch"
PYTHON_LOOP = "python loop"
COND = "cond"
WHILE_LOOP = "while_loop"
OPERATORS = "operators"
ONNX_IF = "If"
ONNX_LOOP = "Loop"

ARMED = frozenset({TENSOR_BOOL, PYTHON_BRANCH, COND, WHILE_LOOP, ONNX_IF})  # whose outcome is one of two arms


@dataclass(frozen=True, slots=True)
class Decision:
    """Hold one decision of one run.

    `key`: "torch:net.py:27", "ort:node_cond/then_branch/If_3"; the second time the same place decides in one run it is
    "torch:net.py:27#1", and so on. `outcome`: 1 where the condition held and 0 where it did not, else the number that
    was read (large ones as sign times number of bits, see `bucketed`) or the times a loop went around; -1 for an `If`
    of ONNX that was not reached. `source`: "net.py:27" of the user's own code, "" where it is not known. `what`: one
    of the names above; of "operators" the key is all there is to tell. `margin`: signed distance to the threshold,
    positive where the compared value is above it, None where it is not known.
    """

    key: str
    outcome: int
    source: str = ""
    what: str = PYTHON_BRANCH
    margin: float | None = None

    @property
    def has_arms(self) -> bool:
        """Tell whether the outcome is one of two arms."""
        return self.what in ARMED

    @property
    def is_reached(self) -> bool:
        """Tell whether the run came by it."""
        return self.outcome >= 0 or not self.has_arms


Path = tuple[Decision, ...]  # of one run, in the order in which it decided


def outcomes(path: Iterable[Decision]) -> Mapping[str, int]:
    """Return the outcome of each key of a path."""
    return {decision.key: decision.outcome for decision in path}


def parting(path: Iterable[Decision], other: Mapping[str, int]) -> Decision | None:
    """Return the first decision between arms that came out otherwise than in `other` (key -> outcome).

    A key that `other` does not have says nothing: what leads to it must have come out otherwise before.
    """
    return next((d for d in path if d.has_arms and d.is_reached and other.get(d.key, d.outcome) != d.outcome), None)


def bucketed(value: float) -> int:
    """Return a number that was read as an outcome: small integers as they are, others by sign and number of bits."""
    if value != value:
        return -(1 << 20)
    if abs(value) <= 64:
        return int(value)
    bits = 1025 if value in (float("inf"), float("-inf")) else int(abs(value)).bit_length()
    return (64 + bits) * (1 if value > 0 else -1)


@dataclass(frozen=True, slots=True)
class Threshold:
    """Name a place inside a run of torch at which one value decides by being above another or a step.

    `key`: the operator and how many of its kind came before it, with the user's own line where it is known. `places`:
    the deciding element of the difference of two compared tensors, or the two elements of one tensor that are ranked.
    `level`: the value at which a rounding steps. `margin`: signed distance to it on the case that it was met on.
    """

    key: str
    places: tuple[int, ...]
    level: float = 0.0
    margin: float = 0.0
