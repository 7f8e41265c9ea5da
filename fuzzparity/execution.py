"""Execution: what one side did with one case, in one record, whatever it did.

A refusal, a death or a hang of the user's code is data here and never an exception through the engine.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum

from fuzzparity.case import Array
from fuzzparity.decisions import Decision

TORCH = "torch"
TORCH_FLOAT64 = "torch:float64"
ORT = "ort"


class Status(StrEnum):
    """Name how an execution ended."""

    OK = "ok"
    REFUSED = "refused"  # an exception
    CRASHED = "crashed"  # the process died
    HANG = "hang"  # killed at the time limit
    OOM = "oom"  # out of memory, by exception or by the kernel


@dataclass(frozen=True, slots=True)
class Refusal:
    """Hold the exception of a side: class, normalized message, and the site that tells one cause from another."""

    error_class: str
    message: str  # normalized: numbers and addresses replaced, at most 400 characters
    site: str = ""  # op and source file:line when the message names them, else the class
    text: str = field(
        default="", compare=False
    )  # the message as it was, one line of at most 600 characters: for reading, never a key

    @property
    def said(self) -> str:
        """Return what to show of it."""
        return f"{self.error_class}: {self.text or self.message}"


@dataclass(frozen=True, slots=True)
class Execution:
    """Record what one side did with one case. Outputs are numpy arrays in the order of the target's outputs."""

    side: str
    status: Status
    outputs: tuple[Array, ...] = field(default=(), repr=False, compare=False)
    refusal: Refusal | None = None
    phase: str = "run"  # "load" when the side never came to run
    signal: int | None = None
    exit_code: int | None = None
    seconds: float = 0.0
    environment: str = ""  # digest of the Environment record
    # of each output: true where differences count, broadcast to it; None or no entry: everywhere
    where: tuple[Array | None, ...] = field(default=(), repr=False, compare=False)
    decisions: tuple[Decision, ...] = field(default=(), repr=False, compare=False)  # in the order they were taken

    @property
    def is_ok(self) -> bool:
        """Tell whether outputs are there to compare."""
        return self.status is Status.OK


@dataclass(frozen=True, slots=True)
class Environment:
    """Say where executions ran; `digest` is over everything here."""

    digest: str
    python: str
    platform: str
    cpu: str
    packages: dict[str, str]  # torch, numpy, onnx, onnxruntime, onnxscript -> version
    torch_device: str
    torch_precision: str
    torch_threads: int
    ort_providers: tuple[str, ...]
    ort_level: str
    ort_threads: int
    ort_config: dict[str, str] = field(default_factory=dict)

    @property
    def line(self) -> str:
        """Return the one line that every run prints."""
        versions = f"torch {self.packages.get('torch', '?')}, ORT {self.packages.get('onnxruntime', '?')}"
        return (
            f"{versions} | torch: {self.torch_device}, {self.torch_precision}, {self.torch_threads} thread(s) | "
            f"ORT: {', '.join(self.ort_providers)}, level {self.ort_level}, {self.ort_threads} thread(s)"
        )


_NUMBER = re.compile(r"(?<![A-Za-z_0-9.])[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{6,}")  # 1x0x8 is a shape
_SHAPE = re.compile(r"([\[{(])\s*N(?:\s*,\s*N)*\s*,?\s*([\]})])")
_ORT_PREFIX = re.compile(r"^\[ONNXRuntimeError\] : N : [A-Z_]+ : ")  # the error's class says as much
_SOURCE = re.compile(r"([A-Za-z_0-9]+\.(?:cc|h|cpp|cu|cuh|hpp|py)):(\d+)")
_NODE = re.compile(r"(\w+) node\. Name:\s*'([^']*)'")  # in ORT's messages of a failed run


def normalize_message(text: str) -> str:
    """Replace what changes from one occurrence to the next (addresses, numbers, shapes, paths) by placeholders."""
    text = text.strip().splitlines()[0] if text.strip() else ""
    text = _ADDRESS.sub("ADDRESS", text)
    text = re.sub(r"(?:/[\w.+-]+){2,}/", "", text)
    text = _SOURCE.sub(lambda m: f"{m[1]}:LINE", text)
    text = _SHAPE.sub(r"\1N\2", _NUMBER.sub("N", text))
    return _ORT_PREFIX.sub("", text)[:400]


_STATUS = re.compile(r"Status Message: \S*?(\w+\.(?:cc|h)):\d+ .*?\) (?=\S)")


def readable_message(text: str) -> str:
    """Return an engine's message on one line, without the boilerplate that comes before what it says."""
    line = " ".join(text.partition("Exception raised from")[0].split())  # torch appends its C++ stack
    line = re.sub(r"^\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : ", "", line)
    line = line.replace("Non-zero status code returned while running ", "")
    return re.sub(r"(?:/[\w.+-]+){2,}/", "", _STATUS.sub("", line))[:600]


def source_site(text: str) -> str:
    """Return `file:line` of the engine's source when a message names it, else an empty string."""
    found = _SOURCE.search(text)
    return f"{found[1]}:{found[2]}" if found else ""


def node_told(actual: Execution | None) -> tuple[str, str] | tuple[()]:
    """Return (operator, node) that ORT names in its refusal; empty where it names none."""
    told = _NODE.search(actual.refusal.text) if actual is not None and actual.refusal is not None else None
    return (told[1], told[2]) if told is not None else ()
