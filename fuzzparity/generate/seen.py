"""Seen: in words what the seeds show of the inputs' values and of how inputs go together, where that tells something.

The idea: `check` says what the moves near the data will keep, so that a wrong guess is noticed before a campaign; an
input of plain noise gets no line at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fuzzparity.case import Array, Case
from fuzzparity.contract import Contract, InputContract, Role
from fuzzparity.generate.links import COUNTS, ENDS, MARKS, SHAPE, SORTED, WITHIN, Link, links_of
from fuzzparity.generate.texture import MOST_SEEDS, Channel, Texture, texture_of
from fuzzparity.generate.understood import Line, place_words

_MOST_CHANNELS = 4  # that are told one by one
_MORE = "seeds= or --seeds with more of the data you meet"
_CHANGE_LEVELS = "ranges= or valid=, where others are wrong; seeds= with more levels, where they are right"


def seen_lines(contract: Contract, seeds: Sequence[Case], *, has_real_seeds: bool) -> tuple[Line, ...]:
    """Return what the seeds show: lines of an input begin with its name and a space; lines of links come last."""
    drafts = [arrays for seed in seeds if (arrays := _arrays(contract, seed)) is not None]
    if not drafts:
        return ()
    textures = [texture_of(item, [draft[place] for draft in drafts]) for place, item in enumerate(contract.inputs)]
    of = f"seeds ({len(drafts)})" if has_real_seeds else "the first inputs"
    read = f"seeds (the first {MOST_SEEDS} of {len(drafts)})" if len(drafts) > MOST_SEEDS else of
    lines: list[Line] = []
    for item, texture in zip(contract.inputs, textures, strict=True):
        lines += _texture_lines(item, texture, read, has_real_seeds)
    lines += (_link_line(contract, link, of) for link in links_of(contract, drafts, textures))
    return tuple(lines)


def _arrays(contract: Contract, seed: Case) -> list[Array] | None:
    """Return a seed's arrays in the contract's order, None where it has other inputs or ranks."""
    if any(name not in seed.inputs for name in (item.name for item in contract.inputs)):
        return None
    arrays = [seed.inputs[item.name] for item in contract.inputs]
    is_fitting = all(array.ndim == len(item.dims) for item, array in zip(contract.inputs, arrays, strict=True))
    return arrays if is_fitting else None


def _texture_lines(item: InputContract, texture: Texture, of: str, is_real: bool) -> Iterator[Line]:
    if texture.channels and (texture.differ or (is_real and item.role is Role.IMAGE)):
        reason = f"{of}: {len(texture.channels)} channels along dim {texture.axis}; near moves keep to each one's range"
        yield Line(f"{item.name} channels", _channel_words(texture.channels), "seeds", reason, _MORE)
    if texture.is_sparse:
        says = f"sparse: {100 * texture.zeros:.3g} % exact zeros"
        reason = f"{of}: near moves leave them, and one of its own adds and removes some"
        yield Line(f"{item.name} zeros", says, "seeds", reason, _MORE)
    if texture.has_ties:
        step = f", in steps of {texture.step:.6g}" if texture.step else ""
        says = f"{texture.distinct:,} distinct values in {texture.sample:,}{step}"
        reason = f"{of}: {100 * texture.tied:.3g} % of them tie; half of the near moves keep to such values"
        yield Line(f"{item.name} ties", says, "seeds", reason, _CHANGE_LEVELS)
    if (padding := texture.padding) is not None:
        end = "start" if padding.is_left else "end"
        places = f"{padding.low}..{padding.high}" if padding.low != padding.high else f"{padding.low}"
        says = f"{padding.value:g} at the {end} of rows along dim {padding.axis}, {places} places"
        reason = f"{of}: in {padding.rows} of {padding.of} rows, and nowhere else in them; a near move moves it"
        yield Line(f"{item.name} padding", says, "seeds", reason, "compare_where=, where outputs at it do not count")


def _channel_words(channels: Sequence[Channel]) -> str:
    told = [
        f"{place}: {one.mean:.3g} ± {one.deviation:.3g} in {one.low:.3g}..{one.high:.3g}"
        for place, one in enumerate(channels[:_MOST_CHANNELS])
    ]
    rest = channels[_MOST_CHANNELS:]
    if rest:
        means = [one.mean for one in rest]
        told.append(f"{len(rest)} more with means {min(means):.3g}..{max(means):.3g}")
    return "; ".join(told)


def _link_line(contract: Contract, link: Link, of: str) -> Line:
    name, other = contract.inputs[link.index].name, contract.inputs[link.other].name if link.other >= 0 else ""
    reason = f"{of}: without an exception; it steers the search, no limit"
    if link.kind == WITHIN:
        says, rule = f"at most the size of {place_words(other, link.axis)}", f"<= inputs[{other!r}].shape[{link.axis}]"
        return Line(
            f"{name} and {other}", f"{name}: {says}", "seeds", reason, _valid(f"(inputs[{name!r}] {rule}).all()")
        )
    if link.kind == SORTED:
        rule = f"(numpy.diff(inputs[{name!r}]) >= 0).all()"
        return Line(f"{name} order", "ascending, from 0", "seeds", _kept(of), _valid(rule))
    if link.kind == ENDS:
        says, rule = f"the size of {place_words(other, link.axis)}", f"== inputs[{other!r}].shape[{link.axis}]"
        return Line(f"{name} end", says, "seeds", _kept(of), _valid(f"inputs[{name!r}][-1] {rule}"))
    if link.kind == SHAPE:
        return _shape_line(contract, link, of)
    if link.kind == MARKS:
        says = f"{name} is 0 where {other} is padded, and nowhere else"
        return Line(f"{name} and {other}", says, "seeds", f"{of}: without an exception; both move together", _MORE)
    assert link.kind == COUNTS
    says = f"{name} counts the places of {other} that are not padded"
    return Line(f"{name} and {other}", says, "seeds", f"{of}: without an exception; both move together", _MORE)


def _kept(of: str) -> str:
    return f"{of}: without an exception; kept but in cases that leave the contract on purpose"


def _shape_line(contract: Contract, link: Link, of: str) -> Line:
    one, other = contract.inputs[link.index], contract.inputs[link.other]
    symbols = [tuple(dim.symbol or dim.size for dim in item.dims) for item in (one, other)]
    subject, says = f"{one.name} and {other.name}", f"{one.name} has the shape of {other.name}"
    if symbols[0] == symbols[1]:
        reason = "graph: the same dims; every case has them equal"
        return Line(
            subject, says, "graph", reason, "other names in dynamic_shapes let them differ, where the model does"
        )
    named = {axis: dim.symbol or f"d{axis}" for axis, dim in enumerate(other.dims)}
    names = ", ".join(f"{axis}: {symbol!r}" for axis, symbol in named.items())
    change = f"dynamic_shapes={{{one.name!r}: {{{names}}}, {other.name!r}: {{{names}}}}}"
    return Line(subject, says, "seeds", f"{of}: without an exception; sizes move together in most cases", change)


def _valid(rule: str) -> str:
    return f"valid=lambda inputs: {rule}"
