"""Values: the fills that write classic values into an array.

The idea: a fill is a name and a pure function from an array to an array of the same shape. The sweep applies each one
to whole inputs; random recipes apply the same ones to a row, a block or one element, after anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fuzzparity.case import Array
from fuzzparity.generate.domain import Domain
from fuzzparity.generate.dtypes import Traits, cast, filled, integer_ladder

_SCALES = (-1, 1, -3, 3, 2, 4, -6, 6, -8, 8, 12, -12, 15, 18, -20, 20, 25, -30, 30, 37, 100, 150)
_PAST = 6  # constants that all values are shifted past
_BLOCKS = (32, 16, 64, 128)  # block lengths of common weight and activation quantization


@dataclass(frozen=True, slots=True)
class Fill:
    """Name a pure function that writes classic values: it gets an array of the domain and returns one of its shape."""

    name: str
    apply: Callable[[Array], Array]


def classics(domain: Domain) -> tuple[Fill, ...]:
    """Return the finite classic fills of a domain, most telling first."""
    family = domain.traits.family
    flags = _flag_fills(domain) if domain.is_flags and family != "complex" else ()
    if family == "int":
        return (*flags, *_integer_fills(domain))
    return (*flags, *_float_fills(domain)) if family in ("float", "complex") else flags


def nonfinite_classics(domain: Domain) -> tuple[Fill, ...]:
    """Return fills that plant NaN and infinities at telling positions; none where the contract forbids them."""
    return planted_nonfinite(domain) if domain.allow_nonfinite else ()


def planted_nonfinite(domain: Domain) -> tuple[Fill, ...]:
    """Return fills that plant NaN and infinities whatever the contract says; none for dtypes that have neither."""
    if domain.traits.family not in ("float", "complex"):
        return ()
    fills = []
    for label, value in (("nan", np.nan), ("inf", np.inf), ("-inf", -np.inf)):
        fills += [Fill(f"{label} {where}", _planter(value, where)) for where in _PLACES]
    fills.append(Fill("inf and -inf", lambda x: _write(_write(x, 0, np.inf), x.size - 1, -np.inf)))
    fills.append(Fill("nan and inf", lambda x: _write(_write(x, x.size // 2, np.nan), 0, np.inf)))
    return tuple(fills)


_PLACES = (
    *("last", "first", "middle", "in every row", "everywhere", "in one row", "at every other"),
    *("last in every row", "first in every row", "last of one row"),
)


def _planter(value: float, where: str) -> Callable[[Array], Array]:
    def plant(x: Array) -> Array:
        if x.size == 0:
            return x
        flat = x.copy().reshape(-1)
        width = x.shape[-1] if x.ndim else 1
        rows = max(1, flat.size // max(width, 1))
        if where == "in every row":  # at another position in each row
            flat[np.arange(rows) * width + (np.arange(rows) + 1) % width] = value
        elif where.endswith(" in every row"):
            flat[(width - 1 if where.startswith("last") else 0) :: width] = value
        elif where == "last of one row":
            flat[(rows // 2 + 1) * width - 1] = value
        elif where == "in one row":
            flat[(rows // 2) * width : (rows // 2 + 1) * width] = value
        elif where == "everywhere":
            flat[:] = value
        elif where == "at every other":
            flat[1::2] = value
        else:
            flat[{"first": 0, "middle": flat.size // 2, "last": -1}[where]] = value
        return flat.reshape(x.shape)

    return plant


def _write(x: Array, position: int, value: float) -> Array:
    if x.size == 0:
        return x
    flat = x.copy().reshape(-1)
    flat[position] = value
    return flat.reshape(x.shape)


def _float_fills(domain: Domain) -> tuple[Fill, ...]:
    traits = domain.traits
    fills = [Fill(f"all {label}", _constant(value, traits)) for label, value in _float_constants(domain)]
    fills += [
        Fill("negated", lambda x: -x),
        Fill("absolute", np.abs),
        Fill("minus absolute", lambda x: -np.abs(x)),
        Fill("sorted", lambda x: np.sort(x, axis=-1) if x.ndim else x),
        Fill("reversed", lambda x: x.reshape(-1)[::-1].reshape(x.shape)),
        Fill("all equal to the first", lambda x: np.full_like(x, x.reshape(-1)[0]) if x.size else x),
        Fill("two equal maxima", _two_maxima),
        Fill("constant rows", lambda x: np.broadcast_to(x[..., :1], x.shape).copy() if x.ndim else x),
        Fill("coarse ties", lambda x: np.round(x)),
        Fill("exact halves", lambda x: _cycled(x, (0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 3.5))),
        Fill("signed zeros", lambda x: _cycled(x, (0.0, -0.0))),
        Fill("every other zero", lambda x: x * _cycled(x, (0.0, 1.0))),
        Fill("alternating signs", lambda x: np.abs(x) * _cycled(x, (1.0, -1.0))),
        Fill("small integers", lambda x: _cycled(x, (0.0, 1.0, 2.0, -1.0, 3.0, -2.0, -3.0))),
        Fill("counting", lambda x: np.arange(x.size, dtype=x.dtype).reshape(x.shape)),
        Fill("powers of two", lambda x: _cycled(x, tuple(2.0**k for k in range(-12, 13)))),
        Fill("powers of ten", lambda x: _cycled(x, tuple(10.0**k for k in range(-4, 5)))),
        Fill("decimals", lambda x: _cycled(x, tuple(k / 10 for k in range(-13, 14)))),
        Fill("subnormals", lambda x: np.sign(x) * x.dtype.type(max(traits.subnormal, _subnormal(x)) * 3)),
        Fill("spike first", lambda x: _spike(x, 0)),
        Fill("spike last", lambda x: _spike(x, x.size - 1)),
        Fill("huge and tiny", lambda x: x * _cycled(x, (1e15, 1e-15))),
        Fill("cancelling huge", lambda x: _cycled(x, (1e8, 1.0, -1e8))),
    ]
    fills += [Fill(f"blocks of {b} with an outlier", _outliers(b)) for b in _BLOCKS]
    fills += [Fill(f"scaled 1e{k}", _scaled(10.0**k)) for k in _SCALES if _is_scale(k, traits)]
    offsets = [v for v in (1.0, -1.0, 10.0, -10.0, 100.0, -100.0, 4e4, 1e6, 1e7, 1e12) if v < traits.high]
    fills += [Fill(f"offset {v:g}", _shifted(v)) for v in offsets]
    for constant in domain.constants:
        fills.append(Fill(f"around {constant:.6g}", _around(constant, traits)))
    for constant in domain.constants[:_PAST]:  # no element is left on the other side
        fills.append(Fill(f"all above {constant:.6g}", _beyond(constant, 1.0)))
        fills.append(Fill(f"all below {constant:.6g}", _beyond(constant, -1.0)))
    fills += [Fill(f"multiples of {unit:.6g}", _multiples(unit)) for unit in domain.steps]
    return tuple(fills)


def _float_constants(domain: Domain) -> list[tuple[str, float]]:
    traits = domain.traits
    named = [("0", 0.0), ("-0", -0.0), ("1", 1.0), ("-1", -1.0), ("1e-8", 1e-8), ("-1e-8", -1e-8)]
    named += [("seed mean", domain.mean), ("smallest normal", traits.tiny), ("subnormal", traits.subnormal)]
    named += [("max", traits.high), ("-max", traits.low), ("half max", traits.high / 2), ("0.5", 0.5), ("2.5", 2.5)]
    named += [(f"{v:g}", v) for v in (1e15, -1e15, 1e25, 1e30, 1e4, 300.0, 70000.0, 2.0**24 + 2, 2.0**31, 2.0**63)]
    ends = [(f"bound {v:g}", float(v)) for v in (domain.low, domain.high) if v is not None]
    return ends + [(label, value) for label, value in named if abs(value) <= traits.high]


def _is_scale(exponent: int, traits: Traits) -> bool:
    return traits.subnormal <= 10.0**exponent <= traits.high if traits.subnormal else True


def _constant(value: float, traits: Traits) -> Callable[[Array], Array]:
    return lambda x: np.full(x.shape, value, traits.working)


def _scaled(factor: float) -> Callable[[Array], Array]:
    return lambda x: x * x.dtype.type(factor)


def _shifted(offset: float) -> Callable[[Array], Array]:
    return lambda x: x + x.dtype.type(offset)


def _outliers(block: int) -> Callable[[Array], Array]:
    """Make one element per block of the last axis 1000 times larger than a small, varied rest."""

    def apply(x: Array) -> Array:
        if x.size == 0:
            return x
        varied = x * _cycled(x, (0.31, 0.73, -0.17, 1.1, -0.59))  # a block of +-1 alone has nothing small to lose
        if not x.ndim:
            return np.asarray(varied * 1000)
        head = varied[..., ::block]
        usual = np.abs(varied).mean(axis=-1, keepdims=True)  # what happens to be small there is none yet
        varied[..., ::block] = np.where(np.abs(head) < usual, np.where(head < 0, -usual, usual), head) * 1000
        return np.asarray(varied)

    return apply


def _around(constant: float, traits: Traits) -> Callable[[Array], Array]:
    """Write values just below, at and just above a constant, and its negative, in turn."""

    def apply(x: Array) -> Array:
        if traits.dtype.itemsize < x.dtype.itemsize:  # neighbours in float16, not in the working type
            steps = (constant * (1 - traits.eps), constant, constant * (1 + traits.eps))
        else:
            c = x.dtype.type(constant)
            steps = (float(np.nextafter(c, -np.inf)), float(c), float(np.nextafter(c, np.inf)))
        return _cycled(x, (*steps, constant * 1.01, constant * 0.99, -constant))

    return apply


def _beyond(constant: float, side: float) -> Callable[[Array], Array]:
    """Shift all values to one side of a constant, the nearest of them a hundredth away."""

    def apply(x: Array) -> Array:
        if x.size == 0:
            return x
        away = x.dtype.type(constant + side * max(abs(constant), 1.0) * 0.01)
        return np.asarray(x + (away - (x.min() if side > 0 else x.max())))

    return apply


def _multiples(unit: float) -> Callable[[Array], Array]:
    """Write halves of a quantizer's step around zero and around where it saturates."""
    parts = (0.5, 1.5, -0.5, -1.5, 2.5, 1.0, 126.5, 127.5, 128.5, -127.5, -128.5, -129.0, 254.5, 255.5, 127.0, -128.0)
    return lambda x: _cycled(x, tuple(unit * part for part in parts))


def _cycled(x: Array, values: tuple[float, ...]) -> Array:
    return np.resize(np.asarray(values).astype(x.dtype), x.size).reshape(x.shape)


def _two_maxima(x: Array) -> Array:
    if x.size < 2:
        return x
    flat = x.copy().reshape(-1)
    largest = int(flat.argmax())
    flat[0 if largest == flat.size - 1 else -1] = flat[largest]
    return flat.reshape(x.shape)


def _spike(x: Array, position: int) -> Array:
    if x.size == 0:
        return x
    return _write(x, position, float(np.abs(x).max()) * 1000 + 1000)


def _subnormal(x: Array) -> float:
    return float(np.finfo(x.dtype).smallest_subnormal)


def _integer_fills(domain: Domain) -> tuple[Fill, ...]:
    traits = domain.traits
    low, high = (int(bound) for bound in domain.bounds)
    ladder = integer_ladder(low, high)
    ends = [(f"all {v}", v) for v in dict.fromkeys((*ladder, low, high))]
    fills = [
        Fill("negated", lambda x: -x),
        Fill("small signed", lambda x: _cycled_ints(x, (-3, 2, 3, -4, -1, 1, 0, 5, -5, 7, -7))),
        Fill("all equal to the first", lambda x: np.full_like(x, x.reshape(-1)[0]) if x.size else x),
        Fill("pairs repeated", lambda x: _cycled_ints(x, (1, 1, 1, 0, 0, 2))),
        Fill("minus itself and one", lambda x: -x - 1),
        Fill("one more", lambda x: x + 1),
        Fill("one less", lambda x: x - 1),
        Fill("counting", lambda x: np.arange(x.size, dtype=np.int64).reshape(x.shape)),
        Fill("reversed", lambda x: x.reshape(-1)[::-1].reshape(x.shape)),
        Fill("extremes", lambda x: _ladder_cycle(x, (low, -1, high, 0, 1), traits)),
        Fill("past 2**53", lambda x: _ladder_cycle(x, (2**60 + 1, 3, 2**53 + 1, -(2**53) - 1, 2**62 + 1), traits)),
        Fill("ladder", lambda x: _ladder_cycle(x, ladder, traits)),
    ]
    fills += [Fill(label, _constant_int(value, traits)) for label, value in ends]
    fills += [Fill(f"first {value}", _first_int(value, traits)) for _, value in ends if abs(value) > 3]
    for constant in domain.constants:
        if constant.is_integer() and low <= constant <= high:
            fills.append(Fill(f"around {constant:g}", _around_int(int(constant), traits)))
    return tuple(fills)


def _constant_int(value: int, traits: Traits) -> Callable[[Array], Array]:
    return lambda x: filled(x.shape, value, traits)


def _first_int(value: int, traits: Traits) -> Callable[[Array], Array]:
    def apply(x: Array) -> Array:
        if x.size == 0:
            return x
        flat = cast(x, traits).reshape(-1).copy()
        flat[0] = value
        return flat.reshape(x.shape)

    return apply


def _around_int(value: int, traits: Traits) -> Callable[[Array], Array]:
    return lambda x: _ladder_cycle(x, (value, value + 1, value - 1, -value), traits)


def _cycled_ints(x: Array, values: tuple[int, ...]) -> Array:
    return np.resize(np.asarray(values, np.int64), x.size).reshape(x.shape)


def _ladder_cycle(x: Array, values: Sequence[int], traits: Traits) -> Array:
    low, high = int(traits.low), int(traits.high)
    kept = [value for value in values if low <= value <= high] or [0]
    wide = np.uint64 if high > 2**63 - 1 else np.int64
    return np.resize(np.asarray(kept, wide).astype(traits.dtype), x.size).reshape(x.shape)


def _flag_fills(domain: Domain) -> tuple[Fill, ...]:
    patterns: tuple[tuple[str, Callable[[tuple[int, ...]], Array]], ...] = (
        ("all false", lambda s: np.zeros(s, bool)),
        ("all true", lambda s: np.ones(s, bool)),
        ("middle row false", lambda s: _row(s, 0.5)),
        ("first row false", lambda s: _row(s, 0.0)),
        ("last row false", lambda s: _row(s, 1.0)),
        ("left padding", lambda s: _positions(s) >= 0.5),
        ("right padding", lambda s: _positions(s) < 0.5),
        ("ragged right padding", _ragged),
        ("ragged left padding", lambda s: np.flip(_ragged(s), -1) if s else _ragged(s)),
        ("first column false", lambda s: _positions(s) > 0.0),
        ("holes", lambda s: (np.arange(int(np.prod(s))) % 3 != 1).reshape(s)),
        ("alternating", lambda s: (np.arange(int(np.prod(s))) % 2 == 0).reshape(s)),
        ("first only", lambda s: (np.arange(int(np.prod(s))) == 0).reshape(s)),
        ("all but the first", lambda s: (np.arange(int(np.prod(s))) != 0).reshape(s)),
        ("last only", lambda s: (np.arange(int(np.prod(s))) == int(np.prod(s)) - 1).reshape(s)),
        ("all but the last", lambda s: (np.arange(int(np.prod(s))) != int(np.prod(s)) - 1).reshape(s)),
        ("lower triangle", _triangle),
    )
    fills = [Fill(label, _patterned(pattern, domain.traits)) for label, pattern in patterns]
    return (*fills, Fill("inverted", lambda x: x == 0))


def _patterned(pattern: Callable[[tuple[int, ...]], Array], traits: Traits) -> Callable[[Array], Array]:
    return lambda x: pattern(x.shape).astype(traits.dtype)


def _row(shape: tuple[int, ...], place: float) -> Array:
    flags = np.ones(shape, bool)
    if flags.size:
        rows = flags.reshape(-1, shape[-1] if shape else 1)
        rows[round(place * (len(rows) - 1))] = False
    return flags


def _positions(shape: tuple[int, ...]) -> Array:
    width = shape[-1] if shape else 1
    return np.broadcast_to((np.arange(width) / max(width, 1)).reshape((width,) if shape else ()), shape)


def _ragged(shape: tuple[int, ...]) -> Array:
    """Return rows that are true up to a place of their own: all of the first, one element of the last."""
    if not shape:
        return np.ones((), bool)
    kept = np.linspace(shape[-1], 1, int(np.prod(shape[:-1]))).round()
    return np.asarray(np.arange(shape[-1]) < kept.reshape((*shape[:-1], 1)))


def _triangle(shape: tuple[int, ...]) -> Array:
    return np.tril(np.ones(shape, bool)) if len(shape) > 1 else np.ones(shape, bool)
