"""Looks: which repeats of a known finding look different enough to be asked again whose fault they are.

The idea: a repeat is described by a few plain traits that need no evidence: how large the error is and where, sizes,
what moved it. One with a trait that the finding has not shown yet is sent to the parent, the first ones only; after
that, one in ever more. A trait counts alone, so that few are sent however the traits combine.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from fuzzparity.case import Case, Lineage
from fuzzparity.verdict import Comparison, Kind

_MOST_NOVEL = 48  # repeats of one finding that are sent for a new trait
_MOST_BYTES = 64 << 20  # of these
_PARTS = 3  # of an axis, that tell places apart


@dataclass(slots=True)
class _Known:
    traits: set[str] = field(default_factory=set)
    met: int = 0
    sent: int = 0
    bytes_left: int = _MOST_BYTES


class Lookout:
    """Choose repeats worth another look, for one worker."""

    def __init__(self) -> None:
        """Start without any finding."""
        self._known: dict[str, _Known] = {}

    def knows(self, findings: Iterable[str]) -> bool:
        """Tell whether any of some findings is one whose repeats are looked at."""
        return any(name in self._known for name in findings)

    def meet(self, finding_id: str, traits: Iterable[str]) -> None:
        """Take in what the case looks like that a finding was first told with."""
        self._known.setdefault(finding_id, _Known()).traits.update(traits)

    def chosen(self, findings: Iterable[str], traits: frozenset[str], case: Case) -> tuple[str, ...]:
        """Return those of some known findings of which this case is a repeat that should be asked again."""
        found = []
        for name in findings:
            known = self._known.get(name)
            if known is not None and known.bytes_left >= case.nbytes and self._is_worth_it(known, traits):
                known.bytes_left -= case.nbytes
                found.append(name)
        return tuple(found)

    def _is_worth_it(self, known: _Known, traits: frozenset[str]) -> bool:
        known.met += 1
        if known.sent < _MOST_NOVEL and not traits <= known.traits:
            known.traits |= traits
            known.sent += 1
            return True
        return known.met > 9 and math.isqrt(known.met) ** 2 == known.met  # one in many: 16, 25, 36, ...


def traits_of(case: Case, lineage: Lineage, label: str, realism: str, looks: Sequence[Comparison]) -> frozenset[str]:
    """Return what a differing case looks like, each trait by itself."""
    traits = {f"realism {realism}", f"label {label}", *(f"by {name}" for name in lineage.mutators)}
    for name, shape in case.shapes.items():
        traits.update(f"size {name} {axis} {size.bit_length()} {size % 2}" for axis, size in enumerate(shape))
        pairs = itertools.combinations(enumerate(shape), 2)  # what goes wrong at unequal sizes is not all there is
        traits.update(f"equal {name} {axis} {other} {size == same}" for (axis, size), (other, same) in pairs)
    for output, one in enumerate(looks):
        if one.kind is Kind.AGREE:
            continue
        ratio = one.error_ratio
        decade = str(int(math.log10(max(ratio, 1.0)))) if math.isfinite(ratio) else "inf"
        traits |= {f"kind {output} {one.kind.value}", f"decade {output} {decade}"}
        share = one.differing / one.compared if one.compared else 1.0
        traits.add(f"share {output} {math.ceil(share * _PARTS)}")
        traits.update(f"at {output} {axis} {place}" for axis, place in enumerate(one.index or ()) if place < _PARTS)
        if isinstance(one.expected_at, (int, float)) and not isinstance(one.expected_at, bool):
            traits.add(f"sign {output} {one.expected_at > 0}")
    return frozenset(traits)
