"""Values: what one run of a program gave at each of its nodes, bodies of control flow included.

The idea: a value is named by the run of the graph it stands in and by its own name there; so a fault inside the third
turn of a loop has an address, and whoever compares needs neither torch nor ORT to read it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fuzzparity.case import Array


@dataclass(frozen=True, slots=True)
class Place:
    """Say where a value comes from: the operator, the path of the module that called it, the stack of the user's code.

    `stack` is in the form of a Python traceback, outermost call first.
    """

    target: str
    module: str = ""
    stack: str = ""


@dataclass(slots=True)
class Scope:
    """Hold one run of one graph; filled while it runs.

    `graph`: the name of the body, "" for the main graph. `inputs` and `outputs`: names, in order. `numbers`: those
    values that are plain numbers of the program, not tensors. `calls`: node with bodies -> each run of one of them, in
    order. `refused_at`: the node at which the run was refused.
    """

    graph: str = ""
    values: dict[str, Array] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    outputs: tuple[str, ...] = ()
    numbers: set[str] = field(default_factory=set)
    calls: dict[str, list[Scope]] = field(default_factory=dict)
    refused_at: str = ""
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """Hold one operator that torch ran eagerly, in order: its outputs, and the user's line that called it.

    `inputs`: the tensors that it read, as they were then; what one event gave is the same array where another reads
    it. `is_inner`: a step of torch's own decomposition of the operator that comes after it.
    """

    op: str  # "aten.floor_divide.default"
    outputs: tuple[Array, ...]
    source: str = ""  # "file:line"
    is_refused: bool = False
    inputs: tuple[Array, ...] = ()
    is_inner: bool = False
