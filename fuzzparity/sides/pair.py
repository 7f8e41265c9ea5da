"""Pair: both sides of one build, opened together in the process that runs them."""

from __future__ import annotations

import functools
import linecache
from pathlib import Path
from typing import TYPE_CHECKING

from fuzzparity.case import Case
from fuzzparity.contract import TargetFacts
from fuzzparity.decisions import Decision
from fuzzparity.execution import Environment, Execution
from fuzzparity.sides.branching import BranchingSide
from fuzzparity.sides.environment import environment
from fuzzparity.sides.exporting import was_exported_again
from fuzzparity.sides.load import LoadedTarget
from fuzzparity.sides.native import MANTISSA_BITS
from fuzzparity.sides.ort_side import OrtSide, open_ort
from fuzzparity.sides.recorders import AnyRecorder, recorder_of
from fuzzparity.sides.referee import Referee
from fuzzparity.sides.referees import Referees
from fuzzparity.sides.shapes import asked_dims, other_sample
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
        self.branching = BranchingSide(model, ort, facts.contract, loaded.folder)
        self._loaded = loaded
        self._model = model

    def run_torch(self, case: Case) -> Execution:
        """Run one case on torch."""
        return self.torch_side.run(case)

    def run_ort(self, case: Case) -> Execution:
        """Run one case on ORT."""
        return self.ort_side.run(case)

    @functools.cached_property
    def sample_path(self) -> tuple[Decision, ...]:
        """Return what torch decides on the sample that was exported."""
        loaded = self._loaded
        asked = asked_dims(loaded.target, loaded.seed)
        is_other = was_exported_again(self.facts.build.notes)
        return self.run_torch(other_sample(asked, loaded.seed) if is_other else loaded.seed).decisions

    def exact_path(self, case: Case, draw: int | None = None) -> tuple[Decision, ...]:
        """Return what the module decides in float64, with a `draw` under random rounding; empty where it cannot run."""
        self._module_referee.recorder = self._exact_recorder
        try:
            return self._module_referee.path(case, draw)
        finally:
            self._module_referee.recorder = None

    @functools.cached_property
    def _exact_recorder(self) -> AnyRecorder | None:
        return recorder_of(self._loaded.module, self._loaded.folder)

    def code_at(self, source: str) -> str:
        """Return the text of a line that decided; "" where it is not known or the target is confidential."""
        place = self.torch_side.places.get(source)
        if place is None or self.facts.confidential:
            return ""
        return linecache.getline(*place).strip()[:100]

    @functools.cached_property
    def _module_referee(self) -> Referee:
        return Referee(self._loaded, self.facts.build.computing_dtype)

    @functools.cached_property
    def referee(self) -> Referees:
        """Return the float64 referee of this target, rounding to the build's computing dtype."""
        dtype = self.facts.build.computing_dtype
        return Referees(self._module_referee, lambda: self._file_referee(dtype))

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
