"""Referees: the module in float64, and where it cannot run so at all, the ONNX file.

The idea: one of them answers all questions of a case, so that an answer and its moves come from one formula.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fuzzparity.case import Array, Case
from fuzzparity.sides.referee import Referee

if TYPE_CHECKING:
    from fuzzparity.sides.file_referee import FileReferee


class Referees:
    """Ask the module's referee, and the file's once the module's has failed without ever having answered."""

    def __init__(self, module: Referee, of_file: Callable[[], FileReferee]) -> None:
        """Bind to the module's referee; `of_file` makes the other one when it is needed."""
        self._module = module
        self._make = of_file
        self._file: FileReferee | None = None
        self._has_answered = False

    @property
    def _current(self) -> Referee | FileReferee:
        return self._module if self._file is None or self._file.missing else self._file

    @property
    def source(self) -> str:
        """Return who answers."""
        return self._current.source

    @property
    def is_of_file(self) -> bool:
        """Tell whether it answers what the ONNX file means."""
        return self._current.is_of_file

    @property
    def operators(self) -> int:
        """Return how many operators the last rounded run had, 0 where that is not known."""
        return self._current.operators

    @property
    def missing(self) -> str:
        """Return why nobody can answer, "" while somebody can, or has not been asked yet."""
        if self._file is None:
            return "" if not self._has_answered else self._module.missing
        return f"{self._module.missing}; {self._file.missing}" if self._file.missing else ""

    def exact(self, case: Case) -> tuple[Array, ...] | None:
        """Return the outputs in float64, or None when no referee can run."""
        if self._file is not None:
            return self._file.exact(case)
        outputs = self._module.exact(case)
        if outputs is not None or self._has_answered:
            self._has_answered = True
            return outputs
        self._file = self._make()
        return self._file.exact(case)

    def rounded(self, case: Case, draw: int, times: float = 1.0) -> tuple[Array, ...] | None:
        """Return the outputs of one run with each intermediate rounded at random, that many times as far."""
        return self._current.rounded(case, draw, times)

    def peak(self, case: Case) -> float:
        """Return the largest finite magnitude of any float intermediate; 0.0 when it cannot run."""
        return self._current.peak(case)

    def bounds(self, case: Case) -> tuple[tuple[Array | None, ...], str]:
        """Return for each output how far roundings in any order may move it, and from where on that is not known."""
        return self._current.bounds(case)

    def unmoved(self, case: Case) -> frozenset[int]:
        """Return the places of outputs that come from integers alone."""
        return self._current.unmoved(case)
