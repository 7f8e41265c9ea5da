"""Pair: both sides of one build, opened together in the process that runs them."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING

from fuzzparity.case import Case
from fuzzparity.contract import TargetFacts
from fuzzparity.execution import Environment, Execution
from fuzzparity.sides.environment import environment
from fuzzparity.sides.load import LoadedTarget
from fuzzparity.sides.ort_side import OrtSide, open_ort
from fuzzparity.sides.referee import MANTISSA_BITS, Referee
from fuzzparity.sides.referees import Referees
from fuzzparity.sides.torch_side import TorchSide
from fuzzparity.target import Ort

if TYPE_CHECKING:
    from fuzzparity.sides.file_referee import FileReferee


class Pair:
    """Run cases on torch and on ORT, and ask the float64 referee, which is built when it is first asked."""

    def __init__(self, loaded: LoadedTarget, facts: TargetFacts, ort_side: OrtSide, ort: Ort, model: Path) -> None:
        self.facts = facts
        self.torch_side = TorchSide(loaded, facts.outputs)
        self.ort_side = ort_side
        self.environment: Environment = environment(ort, ort_side.providers, loaded.device)
        self._loaded = loaded
        self._model = model

    def run_torch(self, case: Case) -> Execution:
        """Run one case on torch."""
        return self.torch_side.run(case)

    def run_ort(self, case: Case) -> Execution:
        """Run one case on ORT."""
        return self.ort_side.run(case)

    @functools.cached_property
    def referee(self) -> Referees:
        """Return the float64 referee of this target, rounding to the build's computing dtype."""
        dtype = self.facts.build.computing_dtype
        return Referees(Referee(self._loaded, dtype), lambda: self._file_referee(dtype))

    def _file_referee(self, dtype: str) -> FileReferee:
        """Return the referee that the build's file gives, without a vote where it disagrees with torch on the seed."""
        import onnx

        from fuzzparity.sides.file_referee import FileReferee

        feeds = {item.name: item.onnx_name for item in self.facts.contract.inputs}
        referee = FileReferee(onnx.load(self._model), feeds, MANTISSA_BITS.get(dtype, 23))
        if not referee.missing:
            seed = self._loaded.seed
            expected = self.run_torch(seed)
            referee.exclude(
                referee.disagreement(seed, expected.outputs) if expected.is_ok else "torch refuses the seed"
            )
        return referee


def open_pair(
    loaded: LoadedTarget, facts: TargetFacts, build_folder: Path, *, ort: Ort | None = None
) -> Pair | Execution:
    """Open both sides of a build, or return the execution (phase "load") in which ORT refused it.

    `ort` replaces the target's own session options (another level, fewer passes). Raises `InvalidTarget` for a
    provider or option that is not there.
    """
    options = ort or loaded.target.ort
    side = open_ort(build_folder / "model.onnx", options, facts.contract, loaded.folder)
    if isinstance(side, Execution):
        return side
    return Pair(loaded, facts, side, options, build_folder / "model.onnx")
