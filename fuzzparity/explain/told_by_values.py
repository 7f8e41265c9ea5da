"""Told by values: where a model leaves torch's values, or where one side refuses what the other answers.

The idea: the exporter's names pair values surely, so they come first; a file without them is paired by what its values
hold. Each search runs in a process of its own, which `Site` gives it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fuzzparity.blame.localize import Located
from fuzzparity.execution import Status, node_told
from fuzzparity.explain.site import Site
from fuzzparity.values import Event
from fuzzparity.verdict import Grade


def of_values(site: Site) -> Located | None:
    """Return the first place that leaves torch's values: by the exporter's names, else by what values hold."""
    from fuzzparity.blame.localize import locate_paired
    from fuzzparity.blame.origins import has_origins

    if has_origins(site.model):
        program, is_same = site.program
        scope = program.run(site.case)
        if scope.refused_at:
            return _of_torchs_refusal(site, scope)
        found = locate_paired(
            site.model,
            scope,
            site.feeds,
            site.run_plain,
            output=site.output,
            heals=site.heals,
            matters=functools.partial(site.matters, program),
            noise=program.noise,
            stages=program.steps_of,
            takes_largest=site.grade is not Grade.BUG,
        )
        if site.bench.is_given:  # a given file may have lost a node, which names do not show
            by_value = by_values(site)
            is_lost = by_value is not None and not by_value.onnx_node
            found = by_value if found is None or is_lost else found
        if found is None:
            return None
        found = found if is_same or site.bench.is_given else replace(found, is_guess=True)
        return _with_line_inside(site, found) if found.path else found
    return by_values(site)


def _with_line_inside(site: Site, found: Located) -> Located:
    """Return a place inside a body with the line in it: the program's own stack ends where the body is called."""
    from fuzzparity.blame.matching import source_of
    from fuzzparity.sides.eager import eager_events

    event = source_of(found.value, eager_events(site.loaded, site.case)) if found.value is not None else None
    return replace(found, source=site.relative(event.source), stack="") if event is not None else found


def _of_torchs_refusal(site: Site, scope: Any) -> Located | None:
    """Return the node at which torch refuses what ORT answers."""
    from fuzzparity.blame.localize import main_node
    from fuzzparity.blame.origins import origin_of

    nodes = [node for node in site.model.graph.node if origin_of(node).fx_node == scope.refused_at]
    if not nodes:
        return None
    origin = origin_of(nodes[-1])
    node = main_node(nodes, origin)
    how = f"torch refuses at {scope.refused_at}; {node.name} ({node.op_type}) stands for it and answers"
    return Located(node.op_type, node.name, scope.refused_at, origin.module, origin.stack, how=how, is_guess=False)


def by_values(site: Site) -> Located | None:
    """Return the first node that leaves torch's values, paired by what they hold."""
    import numpy as np

    from fuzzparity.blame.by_value import locate_by_values, locate_inside
    from fuzzparity.blame.origins import origin_of
    from fuzzparity.blame.subgraphs import View, label_of
    from fuzzparity.explain.programs import onnx_values

    model = site.model
    values = onnx_values(model, site.feeds, site.run_plain)
    events = site.steps
    names = [item.name for item in model.graph.output]
    wanted = names if site.output is None or site.output >= len(names) else [names[site.output]]
    if events and events[-1].is_refused:
        return _of_refused_event(site, values, events)
    match = locate_by_values(model, values, site.feeds, events, wanted, site.heals)
    if match is None:
        return None
    if match.lost is not None:
        return _of_lost(site, match)
    known = {**{name: np.asarray(value) for name, value in values.items()}, **site.feeds}
    inner = locate_inside(View(model, model.graph), match.node, known, events, site.run_plain)
    path: tuple[str, ...] = ()
    if inner is not None:
        match, path = replace(inner[0], heals=match.heals, is_sure=match.heals, part=match.part), inner[1]
    source = site.relative(match.event.source) if match.event is not None and match.event.source else ""
    origin = origin_of(match.node)
    label = f"{label_of(match.node)} ({match.node.op_type})"
    label += f" in {' in '.join(reversed(path))}" if path else ""
    said = "healed by giving it torch's value" if match.heals else "no value alone heals the output"
    if match.event is None:
        said = "no value of torch's was found for it"
    among = f", one of {match.between} nodes that values do not tell apart" if match.between > 1 else ""
    op = match.event.op if match.event is not None else ""
    beside = f"torch's {op}, which read the same, gives something else; " if match.is_sure else ""
    guess = "" if match.is_sure else ": a guess"
    how = f"born at {label}{among}: the values before it are torch's; {beside}{said}; paired by value{guess}"
    return Located(
        match.node.op_type,
        label_of(match.node),
        "",
        origin.module,
        origin.stack,
        source,
        how,
        is_guess=not match.is_sure,
        is_shown=match.heals,
        among=match.between,
        part=match.part,
    )


def _of_lost(site: Site, match: Any) -> Located:
    """Return the place of an operator of torch's for which the model has no node: a lost write, a dropped step."""
    from fuzzparity.blame.families import family, short_name
    from fuzzparity.blame.origins import origin_of
    from fuzzparity.blame.subgraphs import label_of

    lost = match.lost
    source = site.relative(lost.source) if lost.source else ""
    reader = f"{label_of(match.node)} ({match.node.op_type})"
    how = f"born at {source}: no node of the model stands for torch's {lost.op}, and {reader} reads what it should have"
    how = f"{how} changed; paired by value: a guess"
    op = next(iter(family(lost.op)), short_name(lost.op).capitalize())
    return Located(op, "", "", origin_of(match.node).module, "", source, how, True, reader=label_of(match.node))


def _of_refused_event(site: Site, values: Mapping[str, Any], events: Sequence[Event]) -> Located | None:
    """Return the node that stands for the operator that torch refuses, and the user's line that calls it."""
    from fuzzparity.blame.by_value import counterpart_of
    from fuzzparity.blame.origins import origin_of
    from fuzzparity.blame.subgraphs import View, label_of

    event = events[-1]
    source = site.relative(event.source) if event.source else ""
    node = counterpart_of(event, View(site.model, site.model.graph), {**values, **site.feeds})
    if node is None:
        return Located(source=source, how=f"torch refuses {event.op} at {source}") if source else None
    how = f"torch refuses {event.op} at {source}; {label_of(node)} ({node.op_type}), which read the same, answers"
    return Located(node.op_type, label_of(node), "", origin_of(node).module, "", source, how, is_guess=True)


def of_refusal(site: Site) -> Located | None:
    """Return the node that ONNX Runtime names in its refusal; None where it refuses nothing or names none."""
    from fuzzparity.blame.origins import origin_of
    from fuzzparity.blame.subgraphs import label_of

    told = node_told(site.actual) if site.actual.status is Status.REFUSED else ()
    if not told:
        return None
    op, name = told
    node = next((one for one in site.model.graph.node if (one.op_type, one.name) == (op, name)), None)
    how = f"ONNX Runtime refuses at {name or op} ({op})"
    if node is None:  # inside a body, or made by a pass
        return Located(op, name, how=how, is_guess=False)
    origin = origin_of(node)
    found = Located(op, label_of(node), origin.fx_node, origin.module, origin.stack, how=how, is_guess=False)
    return found if origin.stack else _with_akin_source(site, node, found)


def _with_akin_source(site: Site, node: Any, found: Located) -> Located:
    """Return a place with the line that calls torch's operator of the node's kind on what the node read."""
    from fuzzparity.blame.by_value import event_of
    from fuzzparity.blame.cut import stepwise_values
    from fuzzparity.blame.subgraphs import View
    from fuzzparity.sides.eager import eager_events

    values = {**stepwise_values(site.model, site.feeds, site.run_plain), **site.feeds}
    event = event_of(node, View(site.model, site.model.graph), values, eager_events(site.loaded, site.case))
    if event is None or not event.source:
        return found
    source = site.relative(event.source)
    return replace(found, source=source, how=f"{found.how}; torch's {event.op} at {source} read the same: a guess")
