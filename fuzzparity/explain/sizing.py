"""Sizing: a few dozen runs over the sizes of a target, so that `check` can tell which of them both sides refuse.

The idea: sizes are tried one axis at a time from the first seed, then together on axes of one size where alone nothing
is taken; then what was learned is made sharp: bounds by bisection, multiples by the ones next to them. It runs in a
forked child; the number of runs and their elements are bounded.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from fuzzparity.case import Array, Case
from fuzzparity.execution import Execution, Status
from fuzzparity.explain.sizes import Sized, SizingSpec
from fuzzparity.explain.twin import open_twin
from fuzzparity.generate.relations import RefusalTally, Rule
from fuzzparity.generate.scene import Scene
from fuzzparity.generate.shapes import Axis
from fuzzparity.work.loader import Context

MOST_RUNS = 96
_MOST_SECONDS = 8.0  # `check` takes seconds: a slow model is looked at less
_MOST_GROWTH = 16  # times the elements of the seed, that one run may have
_LEAST_ELEMENTS = 1 << 14
_FIRST = (1, 2, 3, 5, 7, 8, 16)


def size_up(context: Context, spec: SizingSpec) -> Sized:
    """Try sizes on both sides and return the relations that they follow."""
    target, contract = context.loaded.target, spec.twin.facts.contract
    twin = open_twin(context, spec.twin, context.announcer, spec.seed)
    most = max(_LEAST_ELEMENTS, _MOST_GROWTH * spec.seed.elements)
    scene = Scene(contract, [spec.seed], most, max(1 << 24, _MOST_GROWTH * spec.seed.nbytes))
    if isinstance(twin, Execution) or not scene.seeds:
        return Sized(has_valid=target.valid is not None)
    tried: set[tuple[int, ...]] = set()
    one_sided: dict[str, str] = {}
    deadline = time.monotonic() + _MOST_SECONDS
    base = scene.seeds[0]
    for wanted in _plan(scene, base):
        sizes = scene.sizes(base) | wanted
        draft = _resized(scene, base, wanted)
        key = tuple(sizes.values())
        if draft is None or key in tried:
            continue
        if len(tried) >= MOST_RUNS or time.monotonic() > deadline:
            break
        tried.add(key)
        case = scene.case(draft)
        if case.digest in spec.skip or (target.valid is not None and twin.oracle.breach(case)):
            continue
        expected, actual = twin.run(case)
        _observe(scene, case, expected, actual, one_sided)
    return Sized(scene.relations.rules, len(tried), target.valid is not None, tuple(one_sided.values()))


def _resized(scene: Scene, base: list[Array], wanted: dict[str, int]) -> list[Array] | None:
    if scene.sizes(base) | wanted == scene.sizes(base):
        return base
    draft = scene.resize(base, wanted, exactly=True)
    return None if draft is None else scene.settle(draft, keep_nonfinite=False)


def _observe(scene: Scene, case: Case, expected: Execution, actual: Execution, one_sided: dict[str, str]) -> None:
    failed = {Status.REFUSED, Status.OOM}
    refused = expected.status in failed and actual.status in failed
    said = RefusalTally().add(expected, actual) if refused else ""
    for _ in range(2 if refused else 1):  # nothing but the size was changed: a second refusal would be the same
        scene.note_refusal(case, refused, said)
    if not refused and not (expected.is_ok and actual.is_ok):
        side = expected if not expected.is_ok else actual
        words = side.refusal.said if side.refusal is not None else side.status.value
        shapes = ", ".join(f"{name} {list(shape)}" for name, shape in case.shapes.items())
        one_sided.setdefault(f"{side.side}{words[:40]}", f"only {side.side} refuses {shapes}: {words[:160]}")


def _plan(scene: Scene, base: list[Array]) -> Iterator[dict[str, int]]:
    """Yield wishes for sizes, each chosen when those before it have been observed."""
    yield {}
    now = scene.sizes(base)
    graphs = scene.contract.sizes
    wishes = {a.symbol: _first_sizes(a, now[a.symbol], graphs, scene.menus[a.symbol]) for a in scene.axes}
    for rank in range(max(map(len, wishes.values()), default=0)):
        for symbol, sizes in wishes.items():
            if rank < len(sizes):
                yield {symbol: sizes[rank]}
    yield from _together(scene, now)
    for _ in range(3):
        for rule in scene.relations.rules:
            yield from _sharpened(scene, rule, now[rule.symbol])


def _first_sizes(axis: Axis, size: int, graphs: Sequence[int], menu: list[int]) -> list[int]:
    """Return the sizes to try on one axis alone: around the seed's, its halves and doubles, small ones, graph's."""
    wishes = [size + 1, 2 * size, size - 1, size + 2, 3 * size, size // 2, *_FIRST, 0, 4 * size, size + 4, size + 8]
    wishes += [wish for known in graphs[:4] for wish in (known, known + 1, known + 2, 2 * known + 1)]
    admitted = [axis.nearest(wish) for wish in wishes if wish >= 0] + menu[:12]
    return [wish for wish in dict.fromkeys(admitted) if wish != size and axis.admits(wish)]


def _together(scene: Scene, now: dict[str, int]) -> Iterator[dict[str, int]]:
    """Yield sizes for all axes of one size at once, where each of them alone takes no other."""
    accepted = scene.relations.accepted
    stuck = [a for a in scene.axes if all(sizes[a.symbol] == now[a.symbol] for sizes in accepted)]
    for size in dict.fromkeys(now[axis.symbol] for axis in stuck):
        group = [axis for axis in stuck if now[axis.symbol] == size]
        if len(group) < 2:
            continue
        for wish in (size + 1, 2 * size, max(1, size // 2), size + 2):
            yield {axis.symbol: axis.nearest(wish) for axis in group}


def _sharpened(scene: Scene, rule: Rule, size: int) -> Iterator[dict[str, int]]:
    """Yield sizes at which a rule could still be wrong: its bounds, and multiples next to what was taken."""
    if rule.equal_to:
        return
    others = [other.symbol for other in scene.relations.rules if other.equal_to == rule.symbol]

    def wish(value: int) -> dict[str, int]:
        return dict.fromkeys((rule.symbol, *others), value)

    taken = sorted({sizes[rule.symbol] for sizes in scene.relations.accepted})
    lowest = rule.nearest(0)
    while rule.low and taken[0] - lowest >= rule.step:
        middle = rule.nearest((lowest + taken[0]) // 2)
        yield wish(middle)
        now = next((r for r in scene.relations.rules if r.symbol == rule.symbol), rule)
        taken = sorted({sizes[rule.symbol] for sizes in scene.relations.accepted})
        if now.nearest(0) == lowest and middle not in taken:
            break
        lowest = now.nearest(0)
    if rule.high is not None:
        yield from (wish(rule.high), wish((taken[-1] + rule.high) // 2), wish(rule.high + 1))
    if rule.step > 1:
        yield from (wish(rule.nearest(size) + rule.step), wish(rule.nearest(size) + rule.step // 2))
        yield from (wish(taken[-1] + rule.step), wish(max(0, taken[0] - rule.step)))
