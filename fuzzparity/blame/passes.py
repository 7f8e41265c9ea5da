"""Passes: the smallest set of graph passes without which ORT gives torch's answer again, by delta debugging.

The idea: disabling one pass lets another act, and a fault may need two passes together; so sets are tried, and the
result is minimal: with any one of its passes back, the fault is back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Heals = Callable[[tuple[str, ...]], bool]


def smallest_healing_set(passes: Sequence[str], heals: Heals, most_tries: int = 200) -> tuple[str, ...] | None:
    """Return a 1-minimal subset of `passes` whose absence heals; None when even the absence of all does not.

    `heals(disabled)` opens a session without these passes and runs the case. Zeller's ddmin, after a look at each pass
    alone, which is what nearly always suffices.
    """
    whole = tuple(passes)
    if not whole or not heals(whole):
        return None
    for one in whole:
        if heals((one,)):
            return (one,)
    tries = len(whole) + 1
    parts = 2
    while len(whole) > 1 and tries < most_tries:
        size = -(-len(whole) // parts)
        chunks = [whole[start : start + size] for start in range(0, len(whole), size)]
        found: tuple[str, ...] | None = None
        for index in range(len(chunks)):
            tries += 1
            rest = tuple(name for place, chunk in enumerate(chunks) if place != index for name in chunk)
            if rest and heals(rest):
                found = rest
                break
        if found is not None:
            whole, parts = found, max(2, parts - 1)
        elif parts >= len(whole):
            break
        else:
            parts = min(len(whole), 2 * parts)
    return whole
