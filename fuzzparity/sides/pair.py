"""Pair: both sides of one build, opened together in the process that runs them."""

from __future__ import annotations

import functools
from pathlib import Path

from fuzzparity.case import Case
from fuzzparity.contract import TargetFacts
from fuzzparity.execution import Environment, Execution
from fuzzparity.sides.environment import environment
from fuzzparity.sides.load import LoadedTarget
from fuzzparity.sides.ort_side import OrtSide, open_ort
from fuzzparity.sides.referee import Referee
from fuzzparity.sides.torch_side import TorchSide
from fuzzparity.target import Ort


class Pair:
    """Run cases on torch and on ORT, and ask the float64 referee, which is built when it is first asked."""

    def __init__(self, loaded: LoadedTarget, facts: TargetFacts, ort_side: OrtSide, ort: Ort) -> None:
        self.facts = facts
        self.torch_side = TorchSide(loaded, facts.outputs)
        self.ort_side = ort_side
        self.environment: Environment = environment(ort, ort_side.providers, loaded.device)
        self._loaded = loaded

    def run_torch(self, case: Case) -> Execution:
        """Run one case on torch."""
        return self.torch_side.run(case)

    def run_ort(self, case: Case) -> Execution:
        """Run one case on ORT."""
        return self.ort_side.run(case)

    @functools.cached_property
    def referee(self) -> Referee:
        """Return the float64 referee of this target, rounding to the build's computing dtype."""
        return Referee(self._loaded, self.facts.build.computing_dtype)


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
    return Pair(loaded, facts, side, options)
