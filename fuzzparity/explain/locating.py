"""Locating: from a blamed verdict to the place where its deviation is born, in the graph and in the user's own code.

The idea: blame says which trade is at fault, and so where to look: a kernel's node, the nodes that a pass rewrote, the
line at which a capture left the module, the first translated node that gives another answer than torch on torch's own
values. All of it runs in forks of the clean investigating process, since any of it may die.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fuzzparity.blame.localize import Located
from fuzzparity.case import Array, Case
from fuzzparity.execution import ORT, TORCH, Execution, Status
from fuzzparity.explain.arbiters import LONGEST_SECONDS, Bench
from fuzzparity.explain.blaming import BLAMED_KINDS
from fuzzparity.explain.pairing import map_of
from fuzzparity.explain.records import TwinSpec
from fuzzparity.oracle.where import counted
from fuzzparity.verdict import Attribution, Grade, Kind, Verdict
from fuzzparity.work.alone import Exit, run_alone
from fuzzparity.work.announce import Announcer
from fuzzparity.work.loader import Context


def located(
    context: Context,
    spec: TwinSpec,
    case: Case,
    verdict: Verdict,
    expected: Execution,
    actual: Execution,
    *,
    seconds: float,
    on_found: Callable[[Located], None] = lambda found: None,
) -> Verdict:
    """Return the verdict with the place where its deviation is born; unchanged where none was found in `seconds`.

    `on_found` is given the place itself, with the nodes and values that show it.
    """
    if verdict.kind not in BLAMED_KINDS or not spec.is_built or seconds <= 0:
        return verdict
    site = Site(context, spec, case, verdict, expected, actual, time.monotonic() + seconds)
    found = site.find()
    known = verdict.attribution or Attribution("")
    if found is None or not (found.op or found.source or found.fx_node):
        return verdict
    on_found(found)
    # a kernel inside a body is at fault, not the If or Loop that runs the body
    is_inside = bool(found.path) and verdict.blame.startswith("kernel:") and not found.is_guess
    blame = f"kernel:{found.op}" if is_inside else verdict.blame
    return replace(verdict, blame=blame, attribution=_completed(known, found))


def _completed(known: Attribution, found: Located) -> Attribution:
    return replace(
        known,
        op=found.op or known.op,
        onnx_node=found.onnx_node or known.onnx_node,
        fx_node=found.fx_node,
        module=found.module,
        source=found.source,
        place_how=found.how,
        is_guess=found.is_guess,
    )


class Site:
    """Look for the place of one verdict on one case of one build."""

    def __init__(
        self,
        context: Context,
        spec: TwinSpec,
        case: Case,
        verdict: Verdict,
        expected: Execution,
        actual: Execution,
        deadline: float,
    ) -> None:
        self._context = context
        self._spec = spec
        self._case = case
        self._verdict = verdict
        self._expected, self._actual = expected, actual
        self._deadline = deadline
        self._bench = Bench(context, spec, case)
        self.plain_ort = replace(self._bench.ort, optimization_level="none")
        names = spec.facts.outputs
        self.output = names.index(verdict.output) if verdict.output in names else None
        self.last: tuple[str, str] = ("", "")  # the node at work when a fork died

    @property
    def expected(self) -> Execution:
        """Return what torch did with the case."""
        return self._expected

    def find(self) -> Located | None:
        """Return the place, with its source line; None when none was found."""
        part, _, detail = self._verdict.blame.partition(":")
        known = self._verdict.attribution
        found: Located | None = None
        if part == "optimizer":
            found = self._fork(functools.partial(_of_passes, self, tuple(detail.split("+"))))
        elif known is not None and known.op:
            found = self._fork(functools.partial(_of_node, self, known.op, known.onnx_node))
        elif part == "capture":
            found = self._fork(functools.partial(_of_capture, self))
        elif self._verdict.kind in (Kind.CRASH, Kind.HANG):
            found = self._of_death()
        if found is None and part != "optimizer" and self._verdict.kind not in (Kind.CRASH, Kind.HANG):
            found = self._fork(functools.partial(_of_values, self))
        elif found is not None and part == "capture" and not found.op:  # the line is known, the node may be by value
            by_value = self._fork(functools.partial(_of_values, self))
            if by_value is not None:
                found = replace(found, op=by_value.op, onnx_node=by_value.onnx_node, is_guess=True)
        if found is None and part == "export":  # the decomposition itself, which the program's own values cannot show
            found = self._fork(functools.partial(_of_capture, self))
        return found

    def _of_death(self) -> Located | None:
        told = self._bench.guilty_node()
        if told is None:
            return None
        return self._fork(functools.partial(_of_node, self, *told))

    def _fork(self, body: Callable[[Callable[[Any], None]], Located | None]) -> Located | None:
        """Run a search in a process of its own; one that fails or dies has found nothing."""
        left = min(self._deadline - time.monotonic(), LONGEST_SECONDS)
        if left <= 0:
            return None

        def attempt(announcer: Announcer, send: Callable[[Any], None]) -> Located | None:
            try:
                found = body(send)
            except Exception:  # exporters, evaluators and foreign modules raise whatever they meet
                return None
            if found is None:
                return None
            return replace(found, source=self.source_of(found.stack) or found.source, value=None)

        answer = run_alone(attempt, map_path=map_of(self._context), limits=self._context.limits, total_seconds=left)
        return None if isinstance(answer, Exit) else answer

    @functools.cached_property
    def model(self) -> Any:
        """Return the model of the build."""
        import onnx

        return onnx.load(self._bench.model)

    @property
    def feeds(self) -> dict[str, Array]:
        """Return the case by ONNX input name."""
        return self._bench.feeds

    @property
    def loaded(self) -> Any:
        """Return the target."""
        return self._context.loaded

    @property
    def case(self) -> Case:
        """Return the case."""
        return self._case

    @property
    def bench(self) -> Bench:
        """Return the arbiters' bench."""
        return self._bench

    @property
    def build(self) -> Any:
        """Return the record of the build."""
        return self._spec.facts.build

    @property
    def grade(self) -> Grade:
        """Return the verdict's grade."""
        return self._verdict.grade

    @property
    def part(self) -> str:
        """Return the part that is blamed, without its detail."""
        return self._verdict.blame.partition(":")[0]

    def run_plain(self, model: bytes, feeds: Mapping[str, Array]) -> list[Any] | None:
        """Run a part on ORT without optimization."""
        from fuzzparity.sides.bare import run_bare

        return run_bare(model, feeds, self.plain_ort)

    def run_optimized(self, model: bytes, feeds: Mapping[str, Array]) -> list[Any] | None:
        """Run a part on ORT as it is tested."""
        from fuzzparity.sides.bare import run_bare

        return run_bare(model, feeds, self._bench.ort)

    def heals(self, name: str, value: Array) -> bool:
        """Tell whether the whole model, given a value, gives torch's output at the tested level."""
        from fuzzparity.blame.subgraphs import substituted
        from fuzzparity.blame.witness import sides_with

        if not self._expected.is_ok or time.monotonic() > self._deadline:
            return False
        changed = substituted(self.model, name, value).SerializeToString()
        outputs = self.run_optimized(changed, {**self.feeds, f"{name}__given": value})
        if outputs is None:
            return False
        answer = Execution(ORT, Status.OK, tuple(outputs))
        answer = counted(answer, self._expected.where)
        return sides_with(self._verdict.kind, self.output, self._expected, self._actual, answer) == TORCH

    def matters(self, program: Any, name: str, value: Array) -> bool:
        """Tell whether torch's program, going on from a value at a node, gives another output than torch's."""
        from fuzzparity.blame.witness import sides_with

        if not self._expected.is_ok:
            return False
        scope = program.run(self.case, {name: value})
        if scope.refused_at:
            return True
        outputs = tuple(scope.values[one] for one in scope.outputs if one in scope.values)
        if len(outputs) != len(scope.outputs):
            return False
        answer = counted(Execution(TORCH, Status.OK, outputs), self._expected.where)
        side = sides_with(self._verdict.kind, self.output, self._expected, self._actual, answer)
        return side not in ("", TORCH)

    def source_of(self, stack: str) -> str:
        """Return "file:line" of the user's own code in a stack, relative to the target's folder or to where we are."""
        from fuzzparity.sides.own_code import own_place, places_in

        place = own_place(places_in(stack))
        return self.relative(f"{place[0]}:{place[1]}") if place is not None else ""

    def relative(self, source: str) -> str:
        """Return a "file:line" relative to the target's folder, else to the working directory, else by name alone."""
        file, _, line = source.rpartition(":")
        path = Path(file).resolve()
        folder = Path(self.loaded.folder).resolve() if self.loaded.folder else None
        folder = folder.parent if folder is not None and folder.is_file() else folder
        for root in (folder, Path.cwd()):
            if root is not None and path.is_relative_to(root):
                return f"{path.relative_to(root)}:{line}"
        return f"{path.name}:{line}"


# What follows runs in forks.


def guilty_of(nodes: list[Any], site: Site) -> Any | None:
    """Return the node of several like-named ones whose own error is largest; they are told apart by running them."""
    from fuzzparity.blame.nodes import local_error, single_nodes
    from fuzzparity.blame.reference import intermediate_values

    if len(nodes) < 2:
        return nodes[0] if nodes else None
    values = intermediate_values(site.model, site.feeds)
    wanted = {tuple(node.output) for node in nodes}
    worst: tuple[float, Any] = (-1.0, nodes[0])
    for node, single, inputs, expected in single_nodes(site.model, values, site.feeds):
        if tuple(node.output) in wanted:
            error = local_error(expected, site.run_plain(single, inputs))
            worst = (error, node) if error > worst[0] else worst
    return worst[1]


def _of_node(site: Site, op: str, name: str, send: Callable[[Any], None]) -> Located | None:
    """Return the place of a kernel's node that blame has found; inside its bodies where it has any."""
    from fuzzparity.blame.inner import guilty_inside
    from fuzzparity.blame.localize import Located, label_of
    from fuzzparity.blame.origins import origin_of

    node = guilty_of([node for node in site.model.graph.node if (node.op_type, node.name) == (op, name)], site)
    if node is None:
        return Located(op, name, how=f"at node {name}", is_guess=False)
    path: tuple[str, ...] = ()
    inner = guilty_inside(site.model, node, site.feeds, site.run_plain)
    if inner is not None:
        node, path = inner
    origin = origin_of(node)
    where = f" in {' in '.join(reversed(path))}" if path else ""
    found = Located(
        node.op_type,
        label_of(node),
        origin.fx_node,
        origin.module,
        origin.stack,
        how=f"born at {label_of(node)} ({node.op_type}){where}: run alone, it leaves the ONNX reference",
        is_guess=False,
        path=path,
    )
    return found if origin.stack else _with_matched_source(site, node, found)


def _with_matched_source(site: Site, node: Any, found: Located) -> Located:
    """Return the place with the user's line whose value the node's own is, where torch has had such a value."""
    import numpy as np

    from fuzzparity.blame.matching import source_of
    from fuzzparity.blame.reference import intermediate_values
    from fuzzparity.sides.eager import eager_events

    values = intermediate_values(site.model, site.feeds)
    value = values.get(node.output[0])
    if not isinstance(value, np.ndarray):
        return found
    event = source_of(value, eager_events(site.loaded, site.case))
    if event is None:
        return found
    how = f"{found.how}; torch computes this value at {site.relative(event.source)} ({event.op}), by value: a guess"
    return replace(found, source=site.relative(event.source), how=how)


def _of_passes(site: Site, passes: tuple[str, ...], send: Callable[[Any], None]) -> Located | None:
    """Return the original nodes that the passes at fault rewrote."""
    from fuzzparity.blame.fused import guilty_rewrite, nodes_named, rewrites
    from fuzzparity.blame.localize import Located, label_of
    from fuzzparity.blame.origins import origin_of
    from fuzzparity.blame.reference import intermediate_values
    from fuzzparity.sides.optimized import optimized_model

    ort = site.bench.ort
    with_passes = optimized_model(site.bench.model, ort)
    less = replace(ort, disabled_optimizers=(*ort.disabled_optimizers, *passes))
    without = optimized_model(site.bench.model, less)
    if with_passes is None or without is None:
        named = nodes_named(site.model, passes)
        if not named:
            return None
        node, nodes, made = named[-1], named, ""
    else:
        places = rewrites(site.model, without, with_passes)
        values = {**intermediate_values(site.model, site.feeds), **site.feeds}
        place = guilty_rewrite(site.model, places, values, site.run_optimized, site.run_plain)
        if place is None:
            return None
        node, nodes, made = place.main, list(place.nodes), place.made
    origin = origin_of(node)
    listed = ", ".join(f"{label_of(one)} ({one.op_type})" for one in nodes[:8])
    made_of = f"{made} made of " if made else "the pattern "
    found = Located(
        node.op_type,
        label_of(node),
        origin.fx_node,
        origin.module,
        origin.stack,
        how=f"born where {'+'.join(passes)} acts: {made_of}{listed}",
        is_guess=not made,
        pattern=tuple(label_of(one) for one in nodes),
    )
    return found if origin.stack else _with_matched_source(site, node, found)


def _of_values(site: Site, send: Callable[[Any], None]) -> Located | None:
    """Return the first place that leaves torch's values: by the exporter's names, else by what values hold."""
    from fuzzparity.blame.localize import locate_paired
    from fuzzparity.blame.origins import has_origins
    from fuzzparity.explain.programs import program_of

    if has_origins(site.model):
        program, is_same = program_of(site.loaded, site.build, site.bench.model.parent)
        scope = program.run(site.case)
        if scope.refused_at:
            return _of_refusal(site, scope)
        found = locate_paired(
            site.model,
            scope,
            site.feeds,
            site.run_plain,
            output=site.output,
            heals=site.heals,
            matters=functools.partial(site.matters, program),
            noise=program.noise,
            takes_largest=site.grade is not Grade.BUG,
        )
        if found is None:
            return None
        found = found if is_same or site.bench.is_given else replace(found, is_guess=True)
        return _with_line_inside(site, found) if found.path else found
    return _by_values(site)


def _with_line_inside(site: Site, found: Located) -> Located:
    """Return a place inside a body with the line in it: the program's own stack ends where the body is called."""
    from fuzzparity.blame.matching import source_of
    from fuzzparity.sides.eager import eager_events

    event = source_of(found.value, eager_events(site.loaded, site.case)) if found.value is not None else None
    return replace(found, source=site.relative(event.source), stack="") if event is not None else found


def _of_refusal(site: Site, scope: Any) -> Located | None:
    """Return the node at which torch refuses what ORT answers."""
    from fuzzparity.blame.localize import Located, main_node
    from fuzzparity.blame.origins import origin_of

    nodes = [node for node in site.model.graph.node if origin_of(node).fx_node == scope.refused_at]
    if not nodes:
        return None
    origin = origin_of(nodes[-1])
    node = main_node(nodes, origin)
    how = f"torch refuses at {scope.refused_at}; {node.name} ({node.op_type}) stands for it and answers"
    return Located(node.op_type, node.name, scope.refused_at, origin.module, origin.stack, how=how, is_guess=False)


def _by_values(site: Site) -> Located | None:
    from fuzzparity.blame.localize import Located, label_of
    from fuzzparity.blame.matching import locate_by_values
    from fuzzparity.blame.origins import origin_of
    from fuzzparity.explain.programs import onnx_values
    from fuzzparity.sides.eager import eager_events

    model = site.model
    values = onnx_values(model, site.feeds, site.run_plain)
    events = eager_events(site.loaded, site.case)
    names = [item.name for item in model.graph.output]
    wanted = names if site.output is None or site.output >= len(names) else [names[site.output]]
    match = locate_by_values(model, values, site.feeds, events, wanted, site.heals)
    if match is None:
        return None
    origin = origin_of(match.node)
    source = site.relative(match.event.source) if match.event is not None and match.event.source else ""
    said = "healed by giving it torch's value" if match.heals else "no value of torch's was found for it"
    among = f", one of {match.between} nodes that values do not tell apart" if match.between > 1 else ""
    how = (
        f"born at {label_of(match.node)} ({match.node.op_type}){among}: the values before it are "
        f"torch's; {said}; paired by value: a guess"
    )
    return Located(
        match.node.op_type, label_of(match.node), "", origin.module, origin.stack, source, how, True, part=match.part
    )


def _of_capture(site: Site, send: Callable[[Any], None]) -> Located | None:
    """Return the user's line at which the captured program leaves the module."""
    from fuzzparity.blame.capturing import left_at
    from fuzzparity.explain.programs import program_of
    from fuzzparity.sides.captured import captured, traced
    from fuzzparity.sides.eager import eager_events

    eager = eager_events(site.loaded, site.case)
    if site.bench.exporter == "torchscript":
        program = eager_events(traced(site.loaded), site.case)
    elif site.part == "export":  # the program that the exporter itself decomposed
        program = eager_events(program_of(site.loaded, site.build, site.bench.model.parent)[0].as_target(), site.case)
    else:
        program = eager_events(captured(site.loaded), site.case)
    return left_at(eager, program, site.build.notes, site.model, site.relative, site.source_of)
