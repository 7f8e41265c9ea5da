"""Locating: from a blamed verdict to the place where its deviation is born, in the graph and in the user's own code.

The idea: blame says which trade is at fault, and so where to look: a kernel's node, the nodes that a pass rewrote, the
line at which a capture left the module, the first translated node that gives another answer than torch on torch's own
values. All of it runs in forks of the clean investigating process, since any of it may die.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fuzzparity.blame.decide import Votes, workaround
from fuzzparity.blame.localize import Located
from fuzzparity.case import Case
from fuzzparity.execution import Execution, Status, node_told
from fuzzparity.explain.records import TwinSpec
from fuzzparity.explain.site import Site
from fuzzparity.explain.told_by_values import by_values, of_refusal, of_values
from fuzzparity.finding import BLAMED_KINDS
from fuzzparity.verdict import Attribution, Kind, Verdict
from fuzzparity.work.loader import Context

_HANGS = 1.5  # times the limit of a run: what a node may take that stands beside the one that does not end


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
    found = find(site)
    known = verdict.attribution or Attribution("")
    if verdict.kind is Kind.BRANCH_SPLIT:
        found = _of_branch(found, verdict.site)
    if found is None or not (found.op or found.source or found.fx_node):
        return verdict
    on_found(found)
    if found.reader and verdict.blame == "unknown" and spec.facts.build.origin == "given":
        known = replace(known, how="no node of the given file stands for a step of torch's, whose value there heals it")
        verdict = replace(verdict, blame="onnx_file")
    # a kernel inside a body is at fault, not the If or Loop that runs the body
    is_inside = bool(found.path) and verdict.blame.startswith("kernel:") and not found.is_guess
    if not is_inside:
        return replace(verdict, attribution=_completed(known, found))
    blame = f"kernel:{found.op}"
    known = replace(known, workaround=workaround(blame, Votes(known.statements), {}))
    return replace(verdict, blame=blame, attribution=_completed(known, found))


def _of_branch(found: Located | None, site: str) -> Located | None:
    """Return the place of a branch: the line that decided, which the path told.

    A node that was only guessed by values is left out: it computes on what the other arm gave, and decides nothing.
    """
    if ":" not in site or (found is not None and found.source == site and not found.is_guess):
        return found
    how = f"decided at {site}: torch's path parts there, and sent into the other arm torch gives ORT's answer"
    if found is not None and found.source == site:
        how = found.how
    sure = found if found is not None and not found.is_guess else Located()
    return replace(sure, source=site, how=how, is_guess=False)


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
        is_shown=found.is_shown,
        among=found.among,
        reader=found.reader,
    )


def find(site: Site) -> Located | None:
    """Return the place, with its source line; None when none was found."""
    known = site.verdict.attribution
    is_told = site.part == "optimizer" or (known is not None and known.op)
    is_death = site.verdict.kind in (Kind.CRASH, Kind.HANG)
    if is_death and not is_told:
        return _of_death(site)
    found = site.fork(functools.partial(_search, site))
    return found or (_walked_to(site) if is_death else None)  # what dies inside a body ends the search as well


def _search(site: Site, send: Callable[[Any], None]) -> Located | None:
    """Ask one search after the other, in one process: what one has loaded, the next one has."""
    part, _, detail = site.verdict.blame.partition(":")
    known = site.verdict.attribution
    if part == "optimizer":
        return _of_passes(site, tuple(detail.split("+")))
    if known is not None and known.op:
        return _of_node(site, known.op, known.onnx_node)
    found = _tried(_of_capture, site) if part == "capture" else None
    is_branch = site.verdict.kind is Kind.BRANCH_SPLIT  # decided by no node
    if found is not None and not found.op and not is_branch:  # the line is known, the node may be by value
        by_value = _tried(by_values, site)
        if by_value is not None:
            found = replace(found, op=by_value.op, onnx_node=by_value.onnx_node, is_guess=True)
    if found is None and not _refuses_inputs(site):
        found = _tried(of_values, site)
    if found is None or found.is_guess:
        found = _tried(of_refusal, site) or found
    if found is None and part == "export":  # the decomposition itself, which the program's own values cannot show
        found = _tried(_of_capture, site)
    return found


def _refuses_inputs(site: Site) -> bool:
    """Tell whether ORT refuses what it is given, before any node runs: of a node's refusal it names the node."""
    is_refused = site.verdict.kind is Kind.ERROR_SPLIT and site.actual.status is Status.REFUSED
    return is_refused and not node_told(site.actual)


def _tried(search: Callable[[Site], Located | None], site: Site) -> Located | None:
    """Return what a search has found; one that fails has found nothing, and the next one is asked."""
    try:
        return search(site)
    except Exception:  # exporters, evaluators and foreign modules raise whatever they meet
        return None


def _of_death(site: Site) -> Located | None:
    """Return the node at work when a run of the file, node by node, died or did not end."""
    told = site.bench.guilty_node() if site.verdict.kind is Kind.CRASH else None
    found = site.fork(lambda send: _of_node(site, *told)) if told is not None else None
    return found or _walked_to(site)


def _walked_to(site: Site) -> Located | None:
    """Return the node that a run of the file, node by node, came to last; None where it came to the end."""
    last: list[Located] = []
    seconds, began = _HANGS * site.run_seconds + 2.0, time.monotonic()
    site.fork(functools.partial(_walked, site), last.append, seconds)
    is_late = site.verdict.kind is Kind.CRASH and time.monotonic() - began >= seconds  # it was ended, and did not die
    if is_late or not last or last[-1].op == "":  # it came to the end
        return None
    return replace(last[-1], source=site.source_of(last[-1].stack))


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


def _walked(site: Site, send: Callable[[Any], None]) -> None:
    """Run the file node by node, telling each node before it runs."""
    from fuzzparity.blame.localize import Located
    from fuzzparity.blame.origins import origin_of
    from fuzzparity.blame.subgraphs import label_of
    from fuzzparity.blame.walking import walked

    word = "does not end" if site.verdict.kind is Kind.HANG else "kills the process"

    def told(node: Any, path: tuple[str, ...]) -> None:
        origin = origin_of(node)
        where = f" in {' in '.join(reversed(path))}" if path else ""
        how = f"node by node, the model comes to {label_of(node)} ({node.op_type}){where}, which {word} alone"
        send(
            Located(
                node.op_type, label_of(node), origin.fx_node, origin.module, origin.stack, "", how, False, path=path
            )
        )

    walked(site.model, site.feeds, site.run_plain, told)
    send(Located())


def _of_node(site: Site, op: str, name: str) -> Located | None:
    """Return the place of a kernel's node that blame has found; inside its bodies where it has any."""
    from fuzzparity.blame.inner import guilty_inside
    from fuzzparity.blame.localize import Located
    from fuzzparity.blame.origins import origin_of
    from fuzzparity.blame.subgraphs import label_of

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


def _of_passes(site: Site, passes: tuple[str, ...]) -> Located | None:
    """Return the original nodes that the passes at fault rewrote."""
    from fuzzparity.blame.fused import guilty_rewrite, nodes_named, rewrites
    from fuzzparity.blame.localize import Located
    from fuzzparity.blame.origins import origin_of
    from fuzzparity.blame.reference import intermediate_values
    from fuzzparity.blame.subgraphs import label_of
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


def _of_capture(site: Site) -> Located | None:
    """Return the user's line at which the captured program leaves the module."""
    from fuzzparity.blame.capturing import left_at
    from fuzzparity.sides.captured import captured, traced
    from fuzzparity.sides.eager import eager_events

    eager = eager_events(site.loaded, site.case)
    if site.bench.exporter == "torchscript":
        program = eager_events(traced(site.loaded), site.case)
    elif site.part == "export":  # the program that the exporter itself decomposed
        program = eager_events(site.program[0].as_target(), site.case)
    else:
        program = eager_events(captured(site.loaded), site.case)
    return left_at(eager, program, site.build.notes, site.model, site.relative, site.source_of)
