"""Fused: which nodes of a model the graph passes at fault rewrote, by comparing the graph with and without them.

The idea: ORT writes the graph that it runs. A node that is only there with the passes stands for those that are only
there without them; where a pass acted in several places, each one's own nodes are run alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from fuzzparity.blame.nodes import local_error
from fuzzparity.blame.paired import Run
from fuzzparity.blame.subgraphs import View, needs_of
from fuzzparity.case import Array


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Hold one place where passes acted: the node they made, and the original ones it stands for, in order."""

    made: str  # op type of the new node
    nodes: tuple[onnx.NodeProto, ...]

    @property
    def main(self) -> onnx.NodeProto:
        """Return the original node whose value the new one gives."""
        return self.nodes[-1]


def rewrites(original: onnx.ModelProto, without: onnx.ModelProto, with_passes: onnx.ModelProto) -> list[Rewrite]:
    """Return the places where passes acted, in the order of the original graph."""
    view = View(original, original.graph)
    before = {_key(node) for node in without.graph.node}
    after = {name for node in with_passes.graph.node for name in node.output}
    found: list[tuple[int, Rewrite]] = []
    for node in with_passes.graph.node:
        if _key(node) in before:
            continue
        wanted = [name for name in node.output if name in view.makers]
        known = {name for name in needs_of(node)} | {item.name for item in original.graph.input}
        # what other nodes still make is no part of this one
        known |= {name for name in after if name in view.makers and name not in node.output}
        part = view.between(wanted, known) if wanted else None
        if part is not None and part[0]:
            found.append((view.order[wanted[0]], Rewrite(node.op_type, tuple(part[0]))))
    return [rewrite for _, rewrite in sorted(found, key=lambda item: item[0])]


def _key(node: onnx.NodeProto) -> tuple[str, tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    attributes = sorted(attribute.SerializeToString(deterministic=True).hex() for attribute in node.attribute)
    return node.op_type, tuple(node.input), tuple(node.output), tuple(attributes)


def guilty_rewrite(
    original: onnx.ModelProto, places: Sequence[Rewrite], values: Mapping[str, Array], optimized: Run, plain: Run
) -> Rewrite | None:
    """Return the first place whose original nodes, alone on given values, answer otherwise when optimized.

    The most different one where no pattern, shape or integer differs; the first place where none can be run.
    """
    view = View(original, original.graph)
    worst: tuple[float, Rewrite] | None = None
    for place in places:
        wanted = [name for name in place.main.output if name]
        part = view.between(wanted, values.keys() - {name for node in place.nodes for name in node.output})
        if part is None or not part[0]:
            continue
        fed = {name: np.asarray(values[name]) for name in part[1] if name in values and name not in view.constants}
        model = view.model_of(part[0], fed, wanted)
        expected = plain(model, fed)
        if expected is None:
            continue
        error = local_error(expected, optimized(model, fed))
        if worst is None or error > worst[0]:
            worst = (error, place)
    if worst is not None and worst[0] > 0:
        return worst[1]
    return places[0] if places else None


def nodes_named(model: onnx.ModelProto, passes: Sequence[str]) -> list[onnx.NodeProto]:
    """Return the nodes whose operators the passes' own names hold: for a pass that fails before it has written a graph.

    "FuseReluClip" names Relu and Clip; a node counts where it reads from or feeds another operator of the name.
    """
    words = {word for name in passes for word in re.findall(r"[A-Z][a-z0-9]+|[A-Z]+(?![a-z])", name)}
    named = [node for node in model.graph.node if node.op_type in words or node.op_type in "".join(passes)]
    made = {name: node for node in named for name in node.output}
    joined = [node for node in named if any(name in made for name in node.input)]
    before = [made[name] for node in joined for name in node.input if name in made]
    return [*before, *joined] or named
