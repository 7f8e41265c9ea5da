"""Contract: what a case of a target must be like, as records; and Build, the one twin under test.

The contract is what the target declares and what the graph says. What the seeds show is never contract, only realism
(`SeedStatistics`). The records travel between processes; torch and ORT never come near them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from fuzzparity.case import Case
from fuzzparity.execution import Environment
from fuzzparity.target import Ort


class Role(StrEnum):
    """Name what an input most likely is: which moves are worth making on it, never a limit."""

    IMAGE = "image"
    TOKENS = "tokens"
    INDICES = "indices"
    MASK = "mask"
    LENGTHS = "lengths"
    OFFSETS = "offsets"
    STATE = "state"
    SCALE = "scale"
    GENERIC = "generic"


@dataclass(frozen=True, slots=True)
class Dim:
    """Describe one dim of one input. A static dim has no `symbol`; dims with one symbol are equal in every case."""

    size: int  # in the first seed
    symbol: str = ""
    low: int = 0
    high: int | None = None
    multiple_of: int = 1
    is_declared: bool = False  # a range was given by the user, not only "dynamic"

    @property
    def is_dynamic(self) -> bool:
        """Tell whether the contract lets this dim vary."""
        return bool(self.symbol)

    def admits(self, size: int) -> bool:
        """Tell whether a size is inside the contract of this dim."""
        if not self.is_dynamic:
            return size == self.size
        return self.low <= size and (self.high is None or size <= self.high) and size % self.multiple_of == 0


@dataclass(frozen=True, slots=True)
class InputContract:
    """Describe one input: dtype (numpy name), dims, value bounds, and the index limit that the graph implies.

    `index_limit`: values index an axis of this length, so 0 <= value < limit; `index_symbol` names a dim instead when
    that axis is dynamic.
    """

    name: str
    dtype: str
    dims: tuple[Dim, ...]
    low: float | None = None
    high: float | None = None
    allow_nonfinite: bool = True
    index_limit: int | None = None
    index_symbol: str = ""
    onnx_name: str = ""  # the ONNX input paired with it; empty when export dropped it
    is_opaque: bool = False  # left as in the seeds: neither values nor dims are mutated
    index_reason: str = ""  # where the graph implies the limit: "graph: Gather over an axis of length 30522"
    role: Role = Role.GENERIC
    role_reason: str = ""
    counted: tuple[str, int] | None = None  # of lengths and offsets: the input and dim along which they count


@dataclass(frozen=True, slots=True)
class Hint:
    """Say what the graph shows of an input's values, or of one dim, and what that is good for.

    It is no limit: an engine may take others, and where only one side does, that is worth finding.
    """

    input: str
    says: str
    why: str
    change: str = ""  # the text that declares it
    dim: int | None = None


@dataclass(frozen=True, slots=True)
class Derived:
    """Say that one dim follows from another in every case: size = factor * size of `root` + offset."""

    symbol: str
    root: str
    factor: int = 1
    offset: int = 0

    def of(self, root_size: int) -> int:
        """Return the size under a size of the root."""
        return self.factor * root_size + self.offset


@dataclass(frozen=True, slots=True)
class Contract:
    """Describe every input of a target, and what the model's own text suggests to try.

    `sizes`: dims worth trying (ends of narrowed export ranges and their neighbours, kernel sizes, ...). `constants`:
    numbers that stand in the module's own code and in the graph (thresholds, scales). `periods`: dims matter modulo
    these; `factors`: dims are multiplied by these; `steps`: values are rounded to multiples of these (quantizers).
    All are goals for the search, never limits. `batch`: the
    symbol of the dim along which rows are said or thought to be independent; "" when there is none. `equal_reasons`:
    symbol and why the graph has all its dims equal, where they are called by different names there. `derived`: dims
    that follow from others.
    """

    inputs: tuple[InputContract, ...]
    sizes: tuple[int, ...] = ()
    constants: tuple[float, ...] = ()
    batch: str = ""
    hints: tuple[Hint, ...] = ()
    equal_reasons: tuple[tuple[str, str], ...] = ()
    derived: tuple[Derived, ...] = ()
    periods: tuple[int, ...] = ()
    factors: tuple[float, ...] = ()
    steps: tuple[float, ...] = ()

    def input(self, name: str) -> InputContract:
        """Return the contract of one input; KeyError when there is none."""
        for item in self.inputs:
            if item.name == name:
                return item
        raise KeyError(name)

    def has_dtypes_of(self, case: Case) -> bool:
        """Tell whether a case has this contract's dtypes; a corpus may hold cases of several builds."""
        return all(case.inputs[item.name].dtype.name == item.dtype for item in self.inputs if item.name in case.inputs)


@dataclass(frozen=True, slots=True)
class Build:
    """Describe one exact twin; files stand under its folder (`model.onnx`, `state.safetensors`, `build.json`)."""

    digest: str
    folder: str
    origin: str  # "exported by dynamo", "exported by torchscript", "given"
    state_digest: str
    onnx_digest: str
    onnx_bytes: int
    nodes: int
    opset_requested: int | None
    opset_obtained: int
    computing_dtype: str  # the least precise float dtype in the graph: "float32", "float16", ...
    versions: dict[str, str]
    notes: tuple[str, ...] = ()  # warnings of the export, narrowed ranges, dims that came out static


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """Hold everything the parent process knows of a loaded target: it never sees the module."""

    name: str
    spec: str  # as given on the command line
    folder: str  # where the target's own file lies; "" for a module name
    outputs: tuple[str, ...]
    contract: Contract
    build: Build
    environment: Environment
    has_real_seeds: bool
    notes: tuple[str, ...] = ()  # "the module was in train mode: put in eval mode", ...
    confidential: bool = False
    mutates_inputs: bool = False
    source_line: str = ""
    tolerance_outputs: tuple[str, ...] = ()  # outputs for which the user set a tolerance
    ort: Ort = field(default_factory=Ort)  # the session that is tested
    dtypes: tuple[str, ...] = ()  # which of the builds that the target asks for: "image=float16"
