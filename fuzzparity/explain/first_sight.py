"""First sight: repeats that the known causes of a bucket explain, many in one process.

The idea: most repeats show the loudest cause alone. Where torch's values in the places of the known causes leave
nothing that a screen sees, and what those places read is what torch read there, no other cause lies before or behind
them. The sessions stay the same from case to case, so that this costs little more than the runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from fuzzparity.case import Array
from fuzzparity.execution import Execution
from fuzzparity.explain.given import answers_given, with_given
from fuzzparity.explain.pairing import map_of
from fuzzparity.explain.programs import onnx_values
from fuzzparity.explain.records import AskSpec, Cause
from fuzzparity.explain.site import Site
from fuzzparity.explain.twin import Twin, open_twin
from fuzzparity.finding import VALUE_KINDS
from fuzzparity.verdict import Grade, Kind, Verdict
from fuzzparity.work.alone import Exit, run_alone
from fuzzparity.work.announce import Announcer
from fuzzparity.work.loader import Context

_MOST_DEATHS = 2  # of the process; then what is left is not looked at


def explained_at_first_sight(
    context: Context, spec: AskSpec, seconds: float, *, most_open: int | None = None
) -> dict[int, bool] | None:
    """Return by place whether the known causes explain the cases of a spec behind its own; None where that is not told.

    It ends after `most_open` that they do not explain, since these are worth a closer look first.
    """
    if spec.bucket.kind not in VALUE_KINDS or any(cause.part == "capture" for cause in spec.causes):
        return None
    deadline = time.monotonic() + seconds
    looked: dict[int, bool] = {}
    start = spec.own
    for _ in range(_MOST_DEATHS + 1):
        left = deadline - time.monotonic()
        still = most_open - list(looked.values()).count(False) if most_open is not None else len(spec.cases)
        if start >= len(spec.cases) or left <= 0 or still <= 0:
            break
        answer = run_alone(
            partial(_look, context, spec, start, still, deadline),
            map_path=map_of(context),
            limits=context.limits,
            on_message=looked.update,
            total_seconds=left,
        )
        if not isinstance(answer, Exit):
            return looked if answer else None
        start = max((start, *(place + 1 for place in looked)))  # the one at which it died
        looked[start] = False
        start += 1
    return looked


# What follows runs in forks.


def _look(
    context: Context,
    spec: AskSpec,
    start: int,
    most_open: int,
    deadline: float,
    announcer: Announcer,
    send: Callable[[Any], None],
) -> bool:
    """Send {place: whether the known causes explain that case}; tell whether the sides could be opened."""
    from fuzzparity.sides.bare import Sessions

    twin = open_twin(context, spec.twin, announcer, spec.cases[start])
    if isinstance(twin, Execution):
        return False
    verdict = Verdict(Kind(spec.bucket.kind), Grade(spec.bucket.grade), spec.bucket.output)
    site: Site | None = None
    for place in range(start, len(spec.cases)):
        if time.monotonic() > deadline or not most_open:
            break
        case = spec.cases[place]
        expected, actual = twin.run(case)
        if site is None:
            site = Site(context, spec.twin, case, verdict, expected, actual, deadline, Sessions())
            beside = _before_output(site, spec.others)
        site = site.on(case, expected, actual)
        try:
            is_explained = _differs(twin, site, actual) and (
                _is_explained(twin, site, spec.causes)
                or (bool(beside) and _is_explained(twin, site, (*spec.causes, *beside)))
            )
        except Exception:  # evaluators and foreign modules raise whatever they meet
            is_explained = False
        most_open -= not is_explained
        send({place: is_explained})
    return True


def _is_explained(twin: Twin, site: Site, causes: tuple[Cause, ...]) -> bool:
    """Tell whether torch's values at all causes leave nothing, and no other cause lies before them."""
    return any(
        not _differs(twin, site, answer) and _read_what_torch_read(site, causes, values)
        for answer, values in answers_given(site, causes)
    )


def _before_output(site: Site, causes: tuple[Cause, ...]) -> tuple[Cause, ...]:
    """Return those of some causes whose nodes the output that is asked about depends on."""
    from fuzzparity.blame.subgraphs import label_of

    outputs = [item.name for item in site.model.graph.output]
    if site.output is None or site.output >= len(outputs):
        return ()
    needed = site.view.ancestors([outputs[site.output]])
    nodes = {label_of(node) for node in site.model.graph.node if needed & set(node.output)}
    return tuple(cause for cause in causes if cause.node in nodes)


def _differs(twin: Twin, site: Site, answer: Execution) -> bool:
    """Tell whether an answer differs in the output that is asked about, as far as a screen sees."""
    looks = twin.oracle.screen(site.expected, answer, relative=True).comparisons
    return site.output is None or site.output >= len(looks) or looks[site.output].kind is not Kind.AGREE


def _read_what_torch_read(site: Site, causes: tuple[Cause, ...], values: dict[str, Array]) -> bool:
    """Tell whether all that the nodes of causes read, torch read at their lines as well, once these gave its values.

    That torch had such a value somewhere says nothing: a step between the two may be lost. What a graph computes from
    sizes, torch has computed in Python.
    """
    from fuzzparity.blame.matching import are_same
    from fuzzparity.blame.subgraphs import label_of, needs_of

    nodes = {label_of(node): node for node in site.model.graph.node}
    if not all(cause.node in nodes and cause.source for cause in causes):
        return False
    known = site.ort_values
    if len(causes) > 1:  # one may lie behind another
        model, feeds = with_given(site, values)
        known = onnx_values(model, feeds, site.run_plain, prefers_run=True)
    known = {**site.feeds, **known, **values}
    for cause in causes:
        read = [one for event in site.steps if site.relative(event.source) == cause.source for one in event.inputs]
        asked = [need for need in needs_of(nodes[cause.node]) if not site.view.is_of_sizes(need)]
        if not all(need in known and any(are_same(one, known[need]) for one in read) for need in asked):
            return False
    return True
