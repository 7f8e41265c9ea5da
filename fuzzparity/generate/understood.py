"""Understood: a contract in words, a line for each input, dim and relation, with its reason and how to change it.

The idea: whoever reads the table sees what the campaign will hold for right, why, and the text to paste into the target
where that is wrong or could be said more sharply.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fuzzparity.contract import Contract, Derived, Dim, Hint, InputContract, Role
from fuzzparity.generate.contract import SeedStatistics, near_range
from fuzzparity.generate.dtypes import traits_of
from fuzzparity.generate.relations import RefusalTally, Rule

_MOST_SHOWN = 6  # refused sizes in one line
_MOST_SAID = 160


@dataclass(frozen=True, slots=True)
class Line:
    """Say one thing that is held for right. `source`: "declared", "graph", "learned", "seeds" or "default"."""

    subject: str
    says: str
    source: str
    reason: str
    change: str = ""


def understood(
    contract: Contract,
    *,
    is_given: bool = False,
    statistics: SeedStatistics | None = None,
    rules: Sequence[Rule] = (),
    has_valid: bool = False,
    seen: Sequence[Line] = (),
) -> tuple[Line, ...]:
    """Return the contract in words; `is_given`: the ONNX model came with the target, no exporter chose its dims.

    `seen`: what the seeds show, an input's lines with its name and a space in front of one word.
    """
    lines: list[Line] = []
    derived = {one.symbol: one for one in contract.derived}
    for item in contract.inputs:
        lines += (
            _derived_line(contract, derived[dim.symbol], place_words(item.name, axis))
            if dim.symbol in derived
            else _dim_line(item, axis, dim, is_given)
            for axis, dim in enumerate(item.dims)
        )
        lines.append(_values_line(item, contract, statistics))
        lines += _role_lines(item)
        lines += (_hint_line(hint) for hint in contract.hints if hint.input == item.name and not _is_said(hint, item))
        if statistics is not None:
            lines += _realism_lines(item, statistics)
        lines += (line for line in seen if _is_of(line, item))
    lines += _equalities(contract)
    lines += (line for line in seen if not any(_is_of(line, item) for item in contract.inputs))
    lines += rule_lines(contract, rules)
    if contract.batch:
        says = f"independent along {contract.batch}: run many at once where that is proven"
        lines.append(Line("rows", says, "default", "the dim that leads the inputs", f"batch={contract.batch!r}"))
    if has_valid:
        lines.append(Line("all inputs", "valid() accepts them", "declared", "declared by you", "valid="))
    return tuple(lines)


def _is_of(line: Line, item: InputContract) -> bool:
    """Tell whether a line is about one input alone."""
    return line.subject.rpartition(" ")[0] == item.name


def rule_lines(contract: Contract, rules: Sequence[Rule]) -> Iterator[Line]:
    """Yield a line for each rule that refusals taught, with the text that declares it."""
    for rule in rules:
        places = places_of(contract, rule.symbol)
        if not places:
            continue
        subject = place_words(*places[0])
        shown = ", ".join(map(str, rule.refused[:_MOST_SHOWN])) + (", ..." if len(rule.refused) > _MOST_SHOWN else "")
        said = f" ({_cut(rule.said)})" if rule.said else ""
        what = "unequal sizes" if rule.equal_to else f"sizes such as {shown}"
        reason = f"learned: {what} were refused by both sides{said}"
        if rule.equal_to:
            other = places_of(contract, rule.equal_to)
            name = rule.equal_to
            change = _declared({**_entries(other, repr(name)), **_entries(places, repr(name))}, other + places)
            yield Line(subject, f"equal to {place_words(*other[0])}", "learned", reason, change)
        else:
            yield Line(subject, _rule_words(rule), "learned", reason, _rule_change(contract, rule, places))


def refusal_notes(
    contract: Contract, rules: Sequence[Rule], refusals: RefusalTally, is_nearly_all: bool
) -> tuple[str, ...]:
    """Return the notes that a campaign ends with on what both sides refused; none where that taught nothing."""
    notes = [
        f"{line.subject}: {line.says}; {line.reason}; declare it by {line.change}"
        for line in rule_lines(contract, rules)
    ]
    if is_nearly_all and refusals.counts:
        told = "; ".join(refusals.commonest())
        notes.append(
            f"nearly all inputs were refused by both sides, so that little was compared: {told}; "
            "give seeds that are accepted, and declare the sizes and values that are (dynamic_shapes, ranges, valid)"
        )
    return tuple(notes)


def places_of(contract: Contract, symbol: str) -> list[tuple[str, int]]:
    """Return each (input, axis) at which a symbol stands."""
    return [(item.name, axis) for item in contract.inputs for axis, dim in enumerate(item.dims) if dim.symbol == symbol]


def place_words(name: str, axis: int) -> str:
    """Return how a dim is called in a sentence."""
    return f"{name} dim {axis}"


def _dim_line(item: InputContract, axis: int, dim: Dim, is_given: bool) -> Line:
    subject = place_words(item.name, axis)
    if item.is_opaque:
        return Line(subject, "as in the seeds", "declared", "declared by you: opaque_inputs", "opaque_inputs=")
    if not dim.is_dynamic:
        advice = f"dynamic_shapes={{{item.name!r}: {{{axis}: 'name'}}}} lets it vary"
        if not item.onnx_name:
            return Line(subject, str(dim.size), "default", "the ONNX model does without this input", advice)
        return Line(subject, str(dim.size), "graph", "graph: the ONNX model has it fixed", "" if is_given else advice)
    says = dim_words(dim)
    if dim.is_declared:
        return Line(subject, says, "declared", "declared by you", _size_change(item, axis, dim))
    free = f"graph: the ONNX model leaves dim {dim.symbol!r} free" if is_given else "you asked for a dynamic dim"
    return Line(subject, says, "graph" if is_given else "declared", free, _size_change(item, axis, dim))


def _derived_line(contract: Contract, derived: Derived, subject: str) -> Line:
    places = places_of(contract, derived.root)
    root = place_words(*places[0]) if places else derived.root
    factor = f"{derived.factor} * " if derived.factor != 1 else ""
    offset = f" {'+' if derived.offset > 0 else '-'} {abs(derived.offset)}" if derived.offset else ""
    return Line(subject, f"{factor}{root}{offset}", "graph", f"graph: dim {derived.symbol!r} follows from it")


def dim_words(dim: Dim) -> str:
    """Return the sizes that a dynamic dim may have, in words."""
    if dim.low == 0 and dim.high is None and dim.multiple_of == 1:
        return "any size"
    return _span(dim.low, dim.high) + (f", a multiple of {dim.multiple_of}" if dim.multiple_of > 1 else "")


def _span(low: int, high: int | None) -> str:
    return f"{low} or more" if high is None else f"{low}..{high}"


def size_text(low: int, high: int | None, multiple_of: int = 1, name: str = "") -> str:
    """Return a `Size(...)` to paste."""
    parts = [str(low), *([str(high)] if high is not None else [])]
    parts += [f"multiple_of={multiple_of}"] if multiple_of > 1 else []
    parts += [f"name={name!r}"] if name else []
    return f"Size({', '.join(parts)})"


def _size_change(item: InputContract, axis: int, dim: Dim) -> str:
    wish = size_text(dim.low, dim.high if dim.high is not None else None, dim.multiple_of)
    if dim.low == 0 and dim.high is None:
        wish = size_text(1, max(64, 4 * dim.size), dim.multiple_of)
    return f"dynamic_shapes={{{item.name!r}: {{{axis}: {wish}}}}}"


def _values_line(item: InputContract, contract: Contract, statistics: SeedStatistics | None) -> Line:
    subject = f"{item.name} values"
    if item.is_opaque:
        return Line(subject, "as in the seeds", "declared", "declared by you: opaque_inputs", "opaque_inputs=")
    limit = _limit_words(item, contract)
    is_graphs = limit and item.high is None and item.index_reason.rpartition(", after ")[2].startswith("-")
    if (item.low is not None or item.high is not None) and not is_graphs:
        low, high = _number(item.low), _number(item.high)
        says = f"{low or 'any'}..{high or 'any'}" + (f" and {limit}" if limit else "")
        return Line(
            subject, says, "declared", "declared by you", f"ranges={{{item.name!r}: ({low or None}, {high or None})}}"
        )
    if limit:
        top = item.index_limit - 1 if item.index_limit is not None else None
        reason = item.index_reason or "graph: they index an axis"
        low = _number(item.low) or "0"
        return Line(subject, limit, "graph", reason, f"ranges={{{item.name!r}: ({low}, {top})}}")
    family = traits_of(item.dtype).family
    if family == "bool":
        return Line(subject, "True or False", "graph", f"graph: {item.dtype}")
    says, change = f"any {item.dtype}", f"ranges={{{item.name!r}: {_seen(item, statistics)}}}"
    if family in ("float", "complex"):
        says += ", NaN and infinity included" if item.allow_nonfinite else ", finite"
        change += " or allow_nonfinite=False" if item.allow_nonfinite else ""
    elif not item.dims or all(not dim.is_dynamic and dim.size == 1 for dim in item.dims):
        change += f" or opaque_inputs=[{item.name!r}]"
    return Line(subject, says, "default", "nothing bounds them", change)


def _role_lines(item: InputContract) -> Iterator[Line]:
    """Yield what an input is taken for, where something tells."""
    if item.role is Role.GENERIC or item.is_opaque:
        return
    says = item.role.value
    if item.counted is not None:
        says += f", up to the size of {place_words(*item.counted)} in most cases"
    source, _, why = item.role_reason.rpartition(": ")
    known = {"graph": "graph", "declared by you": "declared"}.get(source, "seeds")
    reason = item.role_reason if source else f"{why}; it steers the search, no limit"
    yield Line(f"{item.name} role", says, known, reason)


def _hint_line(hint: Hint) -> Line:
    subject = f"{hint.input} values" if hint.dim is None else place_words(hint.input, hint.dim)
    return Line(subject, hint.says, "graph", hint.why, hint.change)


def _is_said(hint: Hint, item: InputContract) -> bool:
    """Tell whether the target declares what a hint would advise."""
    if hint.dim is not None:
        return item.dims[hint.dim].high is not None
    return item.low is not None and item.high is not None


def _limit_words(item: InputContract, contract: Contract) -> str:
    if item.index_limit is not None:
        return f"{_number(item.low) or 0}..{item.index_limit - 1}"
    if item.index_symbol:
        places = places_of(contract, item.index_symbol)
        return f"0 up to, not including, the size of {place_words(*places[0])}" if places else ""
    return ""


def _seen(item: InputContract, statistics: SeedStatistics | None) -> str:
    spread = statistics.spreads.get(item.name) if statistics is not None else None
    if spread is None or statistics is None or not statistics.has_real_seeds:
        return "(low, high)"
    return f"({_number(spread.low)}, {_number(spread.high)})"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _realism_lines(item: InputContract, statistics: SeedStatistics) -> Iterator[Line]:
    spread = statistics.spreads.get(item.name)
    if not statistics.has_real_seeds or spread is None or item.is_opaque:
        return
    low, high = near_range(spread)
    sizes = ", ".join(str(a) if a == b else f"{a}..{b}" for a, b in spread.sizes)
    says = f"near: [{sizes}]"
    if traits_of(item.dtype).family in ("float", "int"):
        says += f", values {low:.6g}..{high:.6g}"
    what = f"seeds ({statistics.count}): for realism only, no limit"
    yield Line(f"{item.name} realism", says, "seeds", what, "seeds= or --seeds with more of the data you meet")


def _equalities(contract: Contract) -> Iterator[Line]:
    symbols = dict.fromkeys(dim.symbol for item in contract.inputs for dim in item.dims if dim.symbol)
    for symbol in symbols:
        places = places_of(contract, symbol)
        if len(places) < 2:
            continue
        why = next((reason for name, reason in contract.equal_reasons if name == symbol), "")
        reason = f"graph: {why}" if why else f"graph: one symbol, {symbol!r}"
        change = "other names in dynamic_shapes let them differ, where the model does"
        yield Line(
            place_words(*places[0]),
            f"equal to {', '.join(place_words(*p) for p in places[1:])}",
            "graph",
            reason,
            change,
        )


def _rule_words(rule: Rule) -> str:
    if rule.low == rule.high:
        return f"{rule.low} alone"
    parts = []
    if rule.low or rule.high is not None:
        parts.append(_span(rule.low, rule.high))
    if rule.step > 1:
        parts.append(f"a multiple of {rule.step}" if rule.rest == 0 else f"a multiple of {rule.step} plus {rule.rest}")
    return ", ".join(parts)


def _rule_change(contract: Contract, rule: Rule, places: Sequence[tuple[str, int]]) -> str:
    name, axis = places[0]
    if rule.step > 1 and rule.rest:
        return f"valid=lambda inputs: inputs[{name!r}].shape[{axis}] % {rule.step} == {rule.rest}"
    dim = contract.input(name).dims[axis]
    low = max(rule.low + -rule.low % rule.step, dim.low)
    high = rule.high if dim.high is None else dim.high if rule.high is None else min(rule.high, dim.high)
    wish = size_text(low, high, rule.step, dim.symbol if len(places) > 1 else "")
    return _declared(_entries(places, wish), places)


def _entries(places: Sequence[tuple[str, int]], wish: str) -> dict[tuple[str, int], str]:
    return dict.fromkeys(places, wish)


def _declared(entries: dict[tuple[str, int], str], places: Sequence[tuple[str, int]]) -> str:
    names = dict.fromkeys(name for name, _ in places)
    parts = (
        f"{name!r}: {{{', '.join(f'{axis}: {wish}' for (owner, axis), wish in entries.items() if owner == name)}}}"
        for name in names
    )
    return f"dynamic_shapes={{{', '.join(parts)}}}"


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_SAID else f"{text[: _MOST_SAID - 3]}..."
