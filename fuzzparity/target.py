"""Target: the pair under test and its input contract, as the user writes it down.

Plain records: what is accepted here works; an unknown name is an error that lists the valid ones. torch is never
imported; modules and tensors pass through as they are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fuzzparity.errors import InvalidTarget

_T = TypeVar("_T")


def _strict(cls: type[_T]) -> type[_T]:
    """Make a record refuse unknown names with the list of valid ones, instead of a bare TypeError."""
    names = [f.name for f in dataclasses.fields(cls)]  # type: ignore[arg-type]
    original = cls.__init__

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        unknown = sorted(set(kwargs) - set(names))
        if unknown:
            raise InvalidTarget(
                "declare",
                f"{cls.__name__} has no field {', '.join(map(repr, unknown))}",
                f"valid fields: {', '.join(names)}",
            )
        original(self, *args, **kwargs)

    cls.__init__ = __init__  # type: ignore[method-assign]
    return cls


@_strict
@dataclass(frozen=True, slots=True)
class Size:
    """Bound a dynamic dim: `Size(32, 640, multiple_of=32)`; `high=None` means no upper bound."""

    low: int = 0
    high: int | None = None
    name: str = ""
    multiple_of: int = 1

    def __post_init__(self) -> None:
        """Refuse bounds that admit nothing."""
        if self.low < 0 or (self.high is not None and self.high < self.low) or self.multiple_of < 1:
            raise InvalidTarget("declare", f"{self} admits no size", "give 0 <= low <= high and multiple_of >= 1")


@_strict
@dataclass(frozen=True, slots=True)
class Tolerance:
    """Allow an error of `atol + rtol * |expected|` for one output; the user's word, so nothing overrides it."""

    rtol: float = 0.0
    atol: float = 0.0

    def __post_init__(self) -> None:
        """Refuse negative and non-finite bounds."""
        if not (0 <= self.rtol < float("inf") and 0 <= self.atol < float("inf")):
            raise InvalidTarget("declare", f"{self} is no tolerance", "give finite rtol >= 0 and atol >= 0")


POLICIES: dict[str, Tolerance] = {  # FACTS, "Policies by kind of output"; starting values from practice
    "logits": Tolerance(atol=1e-4),
    "boxes_normalized": Tolerance(atol=1e-3),
    "boxes_pixels": Tolerance(atol=0.5),
    "mask_probabilities": Tolerance(atol=1e-2),
    "mel": Tolerance(atol=1e-2),
    "recurrent": Tolerance(atol=1e-3),
    "strict": Tolerance(atol=1e-5),
}


@_strict
@dataclass(frozen=True, slots=True)
class Export:
    """Say how fuzzparity exports the module: `exporter` is "dynamo" (torch's default) or "torchscript"."""

    exporter: str = "dynamo"
    opset: int | None = None
    optimize: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)  # further keywords of torch.onnx.export

    def __post_init__(self) -> None:
        """Refuse an exporter that does not exist."""
        if self.exporter not in ("dynamo", "torchscript"):
            raise InvalidTarget("declare", f"exporter {self.exporter!r} is unknown", "use 'dynamo' or 'torchscript'")


@_strict
@dataclass(frozen=True, slots=True)
class Ort:
    """Say which ONNX Runtime session you ship.

    `optimization_level`: "none", "basic", "extended", "layout" or "all". `threads`: intra-op threads; None means one.
    `config`: SessionOptions config entries. `disabled_optimizers`: pass names, each must exist.
    """

    providers: Sequence[str] = ("CPUExecutionProvider",)
    provider_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    optimization_level: str = "all"
    threads: int | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    disabled_optimizers: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Refuse a level that does not exist and a bare text where a list is meant."""
        if self.optimization_level not in LEVELS:
            raise InvalidTarget(
                "declare", f"optimization_level {self.optimization_level!r} is unknown", f"use one of {LEVELS}"
            )
        for name in ("providers", "disabled_optimizers"):
            if isinstance(getattr(self, name), str):
                raise InvalidTarget("declare", f"Ort.{name} is a text", "give a list of names")


LEVELS = ("none", "basic", "extended", "layout", "all")


@_strict
@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """Declare the pair under test; see README, "A target of your own", for every field.

    `module`: nn.Module, ScriptModule, ExportedProgram or any callable on tensors. `inputs`: name -> tensor or array, in
    forward's order; the first seed, and what export sees. `onnx`: None (fuzzparity exports), a path, bytes, a
    ModelProto, or a callable that returns one of these.
    """

    module: Any
    inputs: Mapping[str, Any]
    name: str = ""
    outputs: Sequence[str] | None = None
    onnx: Any = None
    export: Export = field(default_factory=Export)
    ort: Ort = field(default_factory=Ort)
    dynamic_shapes: Mapping[str, Any] | Sequence[Any] | None = None
    ranges: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict)
    allow_nonfinite: bool = True
    valid: Callable[[dict[str, Any]], bool] | None = None
    seeds: Callable[[], Iterable[Mapping[str, Any]]] | None = None
    tolerances: Mapping[str, Tolerance | str] = field(default_factory=dict)
    confidential: bool = False

    def __post_init__(self) -> None:
        """Refuse what can be seen to be wrong without loading anything."""
        if not isinstance(self.inputs, Mapping) or not self.inputs:
            raise InvalidTarget(
                "declare",
                f"inputs is {type(self.inputs).__name__} {self.inputs!r:.80}",
                "give a dict of name -> tensor, in forward's order",
            )
        if not callable(self.module):
            hint = "a state_dict is weights only; build the module and load them" if _is_state(self.module) else ""
            raise InvalidTarget(
                "declare",
                f"module is {type(self.module).__name__}, which cannot be called",
                hint or "give an nn.Module, a TorchScript module, an ExportedProgram or a callable on tensors",
            )
        for name in self.ranges:
            if name not in self.inputs:
                raise InvalidTarget(
                    "declare", f"ranges names input {name!r}", f"the inputs are {', '.join(map(repr, self.inputs))}"
                )
        for name, policy in self.tolerances.items():
            if isinstance(policy, str) and policy not in POLICIES:
                raise InvalidTarget(
                    "declare", f"tolerance {policy!r} of {name!r} is no policy", f"policies: {', '.join(POLICIES)}"
                )


def _is_state(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(key, str) for key in value)
