"""Localize: the first value where a deviation is born, not where it is largest.

The idea: a place is suspected because its nodes, alone and on torch's own values, give another answer than torch; it is
confirmed because the whole graph, given torch's value there, gives torch's output. What cannot be confirmed is told as
a guess.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx

from fuzzparity.blame.by_value import locate_in
from fuzzparity.blame.cut import Part
from fuzzparity.blame.families import DOES_OWN, main_place, weight
from fuzzparity.blame.matching import are_same
from fuzzparity.blame.nodes import onnx_eps
from fuzzparity.blame.origins import Origin, origin_of
from fuzzparity.blame.paired import Run, Step, container_of, inner_steps, pairs_of, steps
from fuzzparity.blame.subgraphs import View, label_of, substituted
from fuzzparity.case import Array, is_finite, is_float
from fuzzparity.values import Event, Scope

# error of a step alone, over its largest |value|: 64 times eps is past the rounding of sums up to some thousands; the
# same as in `nodes`
CLEAR = 64.0
_MOVES = 8.0  # DESIGN, Verdict: what stays within 8 moves of the exact answer is inherent
_HEALED = "healed by giving it torch's value"
_NOT_SHOWN = "no value alone heals the output"
_MOST_CONFIRMED = 24  # substitutions that are tried; each is a session of the whole model

Heals = Callable[[str, Array], bool]  # ONNX value, torch's value -> the output is torch's again
Matters = Callable[[str, Array], bool]  # FX name, the nodes' answer -> torch, going on from it, leaves its output
Stages = Callable[[str], Sequence[Event]]  # FX name -> what torch runs for it, step by step
Noise = Callable[[str], "tuple[Array, Array] | None"]  # FX name -> (exact value, largest move), float64


@dataclass(frozen=True, slots=True)
class Located:
    """Say where a deviation is born. `nodes`: the ONNX nodes of the place by name, `ops` their types."""

    op: str = ""
    onnx_node: str = ""
    fx_node: str = ""
    module: str = ""
    stack: str = ""  # of the user's code, outermost call first
    source: str = ""
    how: str = ""
    is_guess: bool = True
    is_shown: bool = False  # by a substitution: torch's value there heals the output, or its answer breaks torch's
    among: int = 1  # nodes, of which this is one, that values do not tell apart
    reader: str = ""  # the node that reads what a step of torch's, for which no node stands, should have changed
    path: tuple[str, ...] = ()
    also: tuple[str, ...] = ()  # further places with an error of their own
    value: Array | None = field(default=None, repr=False, compare=False)  # torch's, at the place
    part: Part | None = field(default=None, repr=False, compare=False)  # its nodes, on torch's values
    pattern: tuple[str, ...] = ()  # all nodes that a pass rewrote there, by name


def locate_paired(
    model: onnx.ModelProto,
    scope: Scope,
    feeds: Mapping[str, Array],
    run: Run,
    *,
    output: int | None,
    heals: Heals,
    matters: Matters = lambda name, value: False,
    noise: Noise = lambda name: None,
    stages: Stages = lambda name: (),
    takes_largest: bool = False,
    on_node: Callable[[str, str], None] = lambda op, name: None,
) -> Located | None:
    """Return where the error of an output is born, by torch's decomposed program; None when no step has an error.

    `output`: its place among the graph's outputs; None: any. `takes_largest`: where no step's own error is beyond
    arithmetic, as for what is inherent, the step with the largest one.
    """
    view = View(model, model.graph)
    pairs = pairs_of(view, scope)
    outputs = [item.name for item in model.graph.output]
    wanted = outputs if output is None or output >= len(outputs) else [outputs[output]]
    found = list(steps(view, scope, pairs, feeds, run, among=view.ancestors(wanted), on_node=on_node))
    guilty = [step for step in found if step.actual is not None and step.error > CLEAR]
    clear = [step for step in guilty if not is_inherent(step, noise)]
    if not clear and not takes_largest:  # near a jump, as of a floor, every answer is arithmetic: what heals is told
        clear = [step for step in guilty[:_MOST_CONFIRMED] if heals(step.value, step.expected)]
    if not clear:
        left = _left_the_finite(found, heals)
        if left is not None or not takes_largest:
            return left
        return _of_the_largest(found, guilty, view, scope, feeds, run)
    first, told, is_guess, also = _born(clear[:_MOST_CONFIRMED], heals, matters)
    located = _inside(view, scope, feeds, run, first, stages)
    is_shown = told != _NOT_SHOWN
    return replace(located, how=f"{located.how}; {told}", is_guess=is_guess, is_shown=is_shown, also=also)


def _born(steps_: Sequence[Step], heals: Heals, matters: Matters) -> tuple[Step, str, bool, tuple[str, ...]]:
    """Return (the first step whose own error reaches the output, how that is known, is it a guess, further ones).

    Torch's value at a step heals all that comes before it as well, so a later step that heals does not clear an earlier
    one; torch, going on from the earlier one's own answer, does.
    """
    able = [step for step in steps_ if step.actual is not None and matters(step.fx_node, step.actual)]
    healing = next((step for step in steps_ if heals(step.value, step.expected)), None)
    if able:
        rest = tuple(dict.fromkeys(step.fx_node for step in able[1:] if step.nodes[-1].name != able[0].nodes[-1].name))
        if healing is not None and healing.value == able[0].value:
            return able[0], _HEALED, False, rest[:5]
        more = f"; not the only one: {', '.join(rest[:5])}" if rest else ""
        return able[0], f"given to torch, its answer leaves torch's output{more}", not rest, rest[:5]
    if healing is not None:
        return healing, _HEALED, False, ()
    return max(steps_, key=lambda step: step.error), _NOT_SHOWN, True, ()


def _of_the_largest(
    found: Sequence[Step], guilty: Sequence[Step], view: View, scope: Scope, feeds: Mapping[str, Array], run: Run
) -> Located | None:
    """Return the step with the largest error of its own where none is beyond arithmetic: for what is inherent."""
    known = guilty or [step for step in found if step.actual is not None and step.error > 0]
    if not known:
        return None
    worst = max(known, key=lambda step: step.error)
    located = _inside(view, scope, feeds, run, worst)
    told = "within what arithmetic explains, but larger than elsewhere"
    return replace(located, how=f"{located.how}; {told}", is_guess=True)


def _left_the_finite(found: Sequence[Step], heals: Heals) -> Located | None:
    """Return the first step at which torch leaves the finite numbers, where no step alone gives another value.

    A runtime that keeps a wider type between nodes goes on there: no node is wrong, and torch's value heals.
    """
    for step in found:
        if not is_float(step.expected.dtype) or is_finite(step.expected):
            continue
        if all(is_finite(array) for array in step.feeds.values()) and heals(step.value, step.expected):
            located = place_of(step)
            node = f"{located.onnx_node} ({located.op})"
            how = f"torch leaves the finite numbers at {node}, which alone does so in ONNX Runtime too; in the whole"
            how = f"{how} model ONNX Runtime goes on with finite ones; healed by giving it torch's value"
            return replace(located, how=how, is_guess=False, part=None)
    return None


def _inside(
    view: View,
    scope: Scope,
    feeds: Mapping[str, Array],
    run: Run,
    step: Step,
    stages: Stages = lambda name: (),
) -> Located:
    """Return the place of a step; of one that runs bodies, the first step in them with an error of its own."""
    if container_of(step) is not None:
        for inner in inner_steps(view, scope, step, feeds, run):
            if inner.actual is not None and inner.error > CLEAR:
                return place_of(inner)
        return place_of(step)
    return place_of(step, _told_apart(step, run, stages(step.fx_node)) if len(step.nodes) > 1 else None)


def _told_apart(step: Step, run: Run, events: Sequence[Event]) -> onnx.NodeProto | None:
    """Return the one node of a pattern that leaves what torch runs step by step for it; None where none is sure.

    What only chooses or tests, as a mask's condition does, is no answer: the pattern is then at fault as a whole.
    """
    if not events or step.view is None:
        return None
    names = [name for node in step.nodes for name in node.output if name]
    answer = run(step.view.model_of(list(step.nodes), step.feeds, names), step.feeds)
    if answer is None:
        return None
    model = onnx.ModelProto.FromString(step.view.model_of(list(step.nodes), step.feeds, [step.value]))

    def heals(name: str, value: Array) -> bool:
        changed = substituted(model, name, value).SerializeToString()
        outputs = run(changed, {**step.feeds, f"{name}__given": value})
        return bool(outputs) and are_same(np.asarray(outputs[0]), step.expected) if outputs else False

    values = {**dict(zip(names, map(np.asarray, answer), strict=True)), **step.feeds}
    match = locate_in(View(model, model.graph), values, step.feeds.keys(), events, [step.value], heals)
    if match is None or not match.is_sure or weight(match.node.op_type) < DOES_OWN:
        return None
    return match.node


def is_inherent(step: Step, noise: Noise) -> bool:
    """Tell whether both sides of a step are as near to the exact value as one ulp in torch's inputs moves it.

    Asked only where the nodes translate this one FX node: else their inputs are not its arguments.
    """
    if step.actual is None or step.actual.shape != step.expected.shape or not is_float(step.expected.dtype):
        return False
    if any(origin_of(node).fx_node not in ("", step.fx_node) for node in step.nodes):
        return False
    known = noise(step.fx_node)
    if known is None or known[0].shape != step.expected.shape:
        return False
    exact, move = known
    with np.errstate(all="ignore"):
        unit = onnx_eps(step.expected.dtype) * np.abs(exact)
        bound = _MOVES * np.maximum(move, unit).max(initial=0.0)
        far = [np.abs(side.astype(np.float64) - exact).max(initial=0.0) for side in (step.expected, step.actual)]
    return bool(np.isfinite(bound) and all(distance <= bound for distance in far))


def place_of(step: Step, guilty: onnx.NodeProto | None = None) -> Located:
    """Return the place of a step as a record, its error in figures; `guilty`: the one of its nodes, where known."""
    origin = origin_of(step.nodes[-1])
    node = guilty or main_node(step.nodes, origin)
    where = f" in {' in '.join(reversed(step.path))}" if step.path else ""
    others = [one.op_type for one in step.nodes if label_of(one) != label_of(node)]
    beside = f" (with {', '.join(dict.fromkeys(others))})" if others else ""
    how = f"born at {label_of(node)} ({node.op_type}){beside}{where}: {figures(step)}"
    return Located(
        node.op_type,
        label_of(node),
        step.fx_node or origin.fx_node,
        origin.module,
        origin.stack,
        how=how,
        path=step.path,
        value=step.expected,
        part=part_of(step),
    )


def part_of(step: Step) -> Part | None:
    """Return the nodes of a step as a model of their own, with what torch says that they read and give."""
    if step.view is None:
        return None
    model = step.view.model_of(list(step.nodes), step.feeds, [step.value])
    answer = {step.value: step.expected}
    return Part(model, dict(step.feeds), (step.value,), answer, len(step.nodes), step.path)


def figures(step: Step) -> str:
    """Return a step's own error in words: "off by 3e-2 alone, where 4e-7 is rounding"."""
    expected, actual = step.expected, step.actual
    if actual is None:
        return "ORT refuses these nodes"
    if expected.shape != actual.shape:
        return f"alone it gives shape {list(actual.shape)}, torch {list(expected.shape)}"
    if not is_float(expected.dtype):
        differing = np.argwhere(expected != actual)
        where = tuple(int(i) for i in differing[0]) if len(differing) else ()
        return f"alone it gives {actual[where]} at {list(where)}, torch {expected[where]}"
    wide, other = expected.astype(np.float64), actual.astype(np.float64)
    with np.errstate(all="ignore"):
        gap = np.array(np.abs(wide - other))  # np.abs gives no array of a single number
        gap[(wide == other) | (np.isnan(wide) & np.isnan(other))] = 0.0
        gap[np.isnan(gap)] = np.inf
        at: tuple[Any, ...] = np.unravel_index(int(gap.argmax()), gap.shape) if gap.size else ()
        size = np.abs(wide[np.isfinite(wide)]).max(initial=0.0)
    index = [int(i) for i in at]
    rounding = CLEAR * onnx_eps(expected.dtype) * size
    if not np.isfinite(gap[at]):
        return f"alone it gives {other[at]:.6g} at {index}, torch {wide[at]:.6g}"
    return f"alone it is off by {gap[at]:.2g} at {index}, where {rounding:.1g} is rounding"


def main_node(nodes: Sequence[onnx.NodeProto], origin: Origin) -> onnx.NodeProto:
    """Return the node that gives a pattern its meaning, among those that the torch operator itself was written as."""
    own = [node for node in nodes if origin_of(node).fx_node in ("", origin.fx_node)] or list(nodes)
    return own[main_place(origin.target, [node.op_type for node in own])]
