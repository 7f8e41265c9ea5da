"""Shrinking: from the nodes that show a finding to the smallest and plainest arrays on which they still do.

The idea: a right answer that can be computed again lets everything else change: sizes, weights, values. A pass and a
kernel are right on ORT's other settings and on the ONNX reference; an exporter and a given file on torch's own calls,
where these were found; without them only rows that do not show the fault are left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fuzzparity.case import Array, is_finite, is_float
from fuzzparity.explain.counterpart import Counterpart
from fuzzparity.explain.showing import COMPARED, DEATHS, REFUSALS, Answer, Showing
from fuzzparity.finding import Cut
from fuzzparity.verdict import Kind

if TYPE_CHECKING:
    from fuzzparity.blame.cut import Part
    from fuzzparity.minimize.model import Shrunk

_EXECUTIONS = 1500  # of shrinking a part
_DEATHS = 150  # of those each of which takes a process
_SURE = 8.0  # times nearer to the exact answer than ORT: as far as torch has to be for its answer to be the right one
# values near those of a cut, on either side of zero, that a fault of some values does not touch
_ELSEWHERE: tuple[Callable[[Array], Array], ...] = (
    lambda array: np.abs(array) + 0.5,
    lambda array: -np.abs(array) - 0.5,
    lambda array: array * 0.5,
    lambda array: array + 0.37,
)


@dataclass(frozen=True)
class _Subject:
    """Hold what is shrunk: a cut with its model, weights, and torch's program for it where there is one."""

    start: Cut
    model: Any
    weights: Mapping[str, Array] = field(repr=False)
    torchs: Counterpart | None

    def arrays(self) -> dict[str, Array]:
        """Return all arrays by name, torch's own included."""
        known = {**self.start.feeds, **self.weights}
        return known | dict(self.torchs.own) | dict(self.torchs.differences) if self.torchs is not None else known

    def weights_for(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Return the weights of the model for other arrays."""
        related = self.torchs.related if self.torchs is not None else {}
        return {name: related[name].weight(arrays) if name in related else arrays[name] for name in self.weights}


class Shrinking(Showing):
    """Make a part smaller and tell each better cut."""

    def tell(self, part: Part) -> None:
        """Tell a part as the best so far."""
        cut = self._cut(part)
        if cut is not None:
            self._send(cut)

    def _cut(self, part: Part) -> Cut | None:
        """Return a part as a cut, asked once more under its new names; None where it then shows nothing."""
        from fuzzparity.blame.tidy import original_nodes, tidied, weights_of, with_types

        model, names = tidied(part, part.expected)
        feeds = {names[name]: array for name, array in part.feeds.items()}
        known = tuple(part.expected[name] for name in part.outputs) if part.is_known else None
        answer = self._asked(model.SerializeToString(), feeds, known)
        if not answer.shows:
            return None
        outputs = [item.name for item in model.graph.output]
        expected = dict(zip(outputs, answer.expected, strict=False))
        actual = dict(zip(outputs, answer.actual, strict=False))
        typed = with_types(model, actual)
        return replace(
            self._told(expected, actual, answer),
            model=typed.SerializeToString(),
            feeds=feeds,
            nodes=part.nodes,
            operators=original_nodes(part),
            path=part.path,
            real_weights=tuple(name for name, one in weights_of(model).items() if one.size > 1),
            real_values=tuple(feeds),
        )

    def _told(self, expected: dict[str, Array], actual: dict[str, Array], answer: Answer) -> Cut:
        """Return what is to be said of an answer."""
        from fuzzparity.blame.alike import largest_errors

        kind = self._verdict.kind
        if kind in COMPARED:
            way = answer.difference.way if answer.difference is not None else "numeric"
            errors = largest_errors(expected, actual)
            return Cut(b"", {}, way, f"ONNX Runtime against {self._compared_with}", 0, expected, errors)
        if kind in REFUSALS:
            return Cut(b"", {}, "refusal", "ONNX Runtime's refusal", 0, refusal=self._verdict.site)
        number = self._signal_number()
        way = "hang" if kind is Kind.HANG else "crash"
        return Cut(b"", {}, way, "the end of ONNX Runtime's process", 0, signal=number)

    @property
    def _compared_with(self) -> str:
        if self._part == "optimizer":
            passes = self._detail.replace("+", ", ")
            return f"itself without {passes}" if passes and passes != "unknown" else "itself without optimization"
        return "the ONNX reference" if self._part in ("kernel", "precision") else "torch"

    def _signal_number(self) -> int:
        import signal

        name = self._verdict.site.split()[0] if self._verdict.site else ""
        return int(getattr(signal, name)) if name.startswith("SIG") and hasattr(signal, name) else 0

    # with torch's program

    def _counterpart(self, start: Cut, weights: Mapping[str, Array]) -> Counterpart | None:
        """Return torch's program for a cut; None where none is sure, or torch has no part in it."""
        from fuzzparity.blame.matching import are_same
        from fuzzparity.explain.counterpart import counterpart
        from fuzzparity.sides.tape import taped

        def tapes() -> Iterator[Any]:
            for by_operator in (False, True):
                if time.monotonic() < self._deadline:
                    yield taped(self._context.loaded, self._case, by_operator=by_operator)

        try:
            agrees = partial(self._agrees_elsewhere, start, weights)
            return counterpart(tapes(), start.feeds, weights, start.expected, are_same, agrees)
        except Exception:  # foreign modules raise whatever they meet
            return None

    def _agrees_elsewhere(self, start: Cut, weights: Mapping[str, Array], torchs: Counterpart) -> bool:
        """Tell whether torch's program gives what the nodes do on values that do not show the fault."""
        import onnx

        from fuzzparity.blame.matching import are_same
        from fuzzparity.blame.tidy import with_arrays

        model = onnx.ModelProto.FromString(start.model)
        floats = [name for name, array in start.feeds.items() if array.dtype.kind == "f"]
        for change in _ELSEWHERE:
            feeds = dict(start.feeds)
            feeds |= {name: np.asarray(change(feeds[name]), feeds[name].dtype) for name in floats}
            changed, _ = with_arrays(model, feeds, weights)
            actual = self._ort(changed.SerializeToString(), feeds)
            answers = torchs.run({**feeds, **weights, **torchs.own})
            if not actual.is_ok or answers is None or len(answers) != len(actual.outputs):
                continue
            pairs = list(zip(answers, actual.outputs, strict=True))
            if all(a.shape == b.shape and a.any() and are_same(a, b) for a, b in pairs):
                return True
        return False

    def _is_sure(self, torchs: Counterpart, arrays: Mapping[str, Array], answer: Answer) -> bool:
        """Tell whether torch's answer is the right one of two: far nearer to its own in float64 than ORT's is."""
        exact = torchs.run(arrays, exact=True)
        if answer.difference is None or answer.difference.way != "numeric" or exact is None:
            return True
        for right, told, wrong in zip(exact, answer.expected, answer.actual, strict=True):
            if not is_float(told.dtype) or right.shape != told.shape or not told.size:
                continue
            with np.errstate(all="ignore"):
                far = [float(np.abs(one.astype(np.float64) - right).max()) for one in (told, wrong)]
            if all(np.isfinite(far)) and far[0] * _SURE > far[1] > 0:
                return False
        return True

    def _in_torch(self, subject: _Subject, cut: Cut, arrays: Mapping[str, Array]) -> Cut:
        """Return a cut with torch's code for it, where it can be spelled and gives the cut's right answer."""
        from fuzzparity.blame.matching import are_same
        from fuzzparity.sides.spelled import spelled

        torchs = subject.torchs
        if torchs is None or not cut.expected:
            return cut
        answers = torchs.run(arrays)
        pairs = zip(answers or (), cut.expected.values(), strict=False)
        if answers is None or not all(a.shape == b.shape and (not a.size or are_same(a, b)) for a, b in pairs):
            return cut
        code = spelled(torchs.calls, {number: _spoken(*take) for number, take in torchs.takes.items()}, torchs.outputs)
        if code is None:
            return cut
        takes = tuple(dict.fromkeys(name for name, _ in torchs.takes.values()))
        return replace(cut, torch_code=code, torch_takes=takes, torch_own={n: arrays[n] for n in torchs.own})

    # rows

    def _worst_rows(self, start: Cut) -> Cut:
        """Return a cut with only those rows of its inputs and answers that show the fault most."""
        import onnx

        from fuzzparity.blame.tidy import weights_of, with_arrays, with_types
        from fuzzparity.explain.frontier import worst_slice

        model = onnx.ModelProto.FromString(start.model)
        weights = weights_of(model)

        def run(feeds: Mapping[str, Array]) -> tuple[Array, ...] | None:
            changed, _ = with_arrays(model, feeds, weights)
            execution = self._ort(changed.SerializeToString(), feeds)
            return execution.outputs if execution.is_ok else None

        outputs = run(start.feeds)
        if not outputs:
            return start
        found = worst_slice(start.feeds, start.expected, dict(zip(start.expected, outputs, strict=False)), run)
        if found is None:
            return start
        feeds, expected = found
        changed, _ = with_arrays(model, feeds, weights)
        answer = self._asked(changed.SerializeToString(), feeds, tuple(expected.values()))
        if not answer.shows:
            return start
        actual = dict(zip(expected, answer.actual, strict=True))
        told = self._told(expected, actual, answer)
        return replace(
            start,
            model=with_types(changed, actual).SerializeToString(),
            feeds=feeds,
            expected=told.expected,
            errors=told.errors,
        )

    # sizes, weights and values

    def shrink(self, part: Part) -> None:
        """Make sizes, weights and values plainer, where a right answer can be computed again."""
        import onnx

        from fuzzparity.blame.tidy import weights_of

        start = self._cut(part)
        if start is None:
            return
        self._send(start)
        model = onnx.ModelProto.FromString(start.model)
        weights = weights_of(model)
        torchs = self._counterpart(start, weights) if self._verdict.kind in COMPARED else None
        subject = _Subject(start, model, weights, torchs)
        if self._is_torchs and torchs is None:  # torch's value belongs to these very inputs, or to rows of them
            start = self._worst_rows(start)
            self._send(replace(start, executions=self._executions, **_own(start, {**start.feeds, **weights}, {})))
            return
        if self._is_torchs and torchs is not None and not torchs.free & start.feeds.keys():
            start = self._worst_rows(start)
            start = self._in_torch(subject, start, {**subject.arrays(), **start.feeds})
            self._send(replace(start, executions=self._executions, **_own(start, {**start.feeds, **weights}, {})))
            return
        arrays = subject.arrays()
        if self._verdict.kind in COMPARED:
            self._first = self._answer(subject, arrays)[0].difference
            if self._first is None or not self._first.way:  # only against captured values
                return
        self._shrink(subject, arrays)

    def _answer(self, subject: _Subject, arrays: Mapping[str, Array]) -> tuple[Answer, Any]:
        """Return (what both sides say of other arrays, the model with them)."""
        from fuzzparity.blame.tidy import with_arrays

        feeds = {name: arrays[name] for name in subject.start.feeds}
        changed, _ = with_arrays(subject.model, feeds, subject.weights_for(arrays))
        expected = None
        if self._is_torchs and subject.torchs is not None:
            expected = subject.torchs.run(arrays)
            if expected is None:
                return Answer(False), changed
        answer = self._asked(changed.SerializeToString(), feeds, expected)
        if answer.shows and expected is not None and subject.torchs is not None:
            answer = replace(answer, shows=self._is_sure(subject.torchs, arrays, answer))
        return answer, changed

    def _shrink(self, subject: _Subject, original: Mapping[str, Array]) -> None:
        from fuzzparity.minimize.model import shrunk

        torchs = subject.torchs if self._is_torchs else None
        free = {name: one for name, one in original.items() if torchs is None or name in torchs.free}
        if torchs is None:
            free = {name: one for name, one in free.items() if name in subject.start.feeds or name in subject.weights}
        was_finite = all(is_finite(array) for array in free.values())

        def interesting(arrays: Mapping[str, Array]) -> bool:
            if was_finite and not all(is_finite(array) for array in arrays.values()):
                return False
            return self._answer(subject, {**original, **arrays})[0].shows

        told = partial(self._told_smaller, subject, original)
        limit = _DEATHS if self._verdict.kind in DEATHS else _EXECUTIONS
        left = max(0.1, self._deadline - time.monotonic())
        smallest = shrunk(free, interesting, limit_executions=limit, seconds=left, on_better=_sometimes(told))
        cut = told(smallest)
        if cut is not None and cut.torch_code and self._part == "export":
            self._tell_exported(subject, cut, {**original, **smallest.arrays})

    def _told_smaller(self, subject: _Subject, original: Mapping[str, Array], found: Shrunk) -> Cut | None:
        """Tell the cut with smaller arrays, asked once more; return it."""
        from fuzzparity.blame.tidy import with_types

        arrays = {**original, **found.arrays}
        answer, changed = self._answer(subject, arrays)
        if not answer.shows:
            return None
        outputs = [item.name for item in changed.graph.output]
        expected = dict(zip(outputs, answer.expected, strict=False))
        actual = dict(zip(outputs, answer.actual, strict=False))
        start = subject.start
        cut = replace(
            self._told(expected, actual, answer),
            model=with_types(changed, actual).SerializeToString(),
            feeds={name: arrays[name] for name in start.feeds},
            nodes=start.nodes,
            operators=start.operators,
            path=start.path,
            recipes={name: text for name, text in found.recipes.items() if name in start.feeds or name in original},
            executions=self._executions,
        )
        cut = self._in_torch(subject, cut, arrays)
        shown = {name: one for name, one in arrays.items() if not _follows(subject, name, cut)}
        cut = replace(cut, **_own(start, shown, found.recipes, original))
        self._send(cut)
        return cut

    def _tell_exported(self, subject: _Subject, cut: Cut, arrays: Mapping[str, Array]) -> None:
        """Tell the cut as one that its exporter makes of torch's code, where the model that it makes shows it too."""
        import onnx

        from fuzzparity.blame.alike import difference
        from fuzzparity.sides.parts import run_part
        from fuzzparity.sides.small_export import exported_calls

        torchs = subject.torchs
        assert torchs is not None
        if any(how for _, how in torchs.takes.values()):  # read in another form than the model's
            return
        leaves = torchs.leaves(arrays)
        numbers = {name: number for number, (name, _) in torchs.takes.items()}
        given = {numbers[name]: leaves[numbers[name]] for name in cut.feeds if name in numbers}
        fixed = {number: array for number, array in leaves.items() if number not in given}
        export = replace(self._bench.export, optimize=True, options={})
        model = exported_calls(torchs.calls, given, fixed, torchs.outputs, export)
        if model is None:
            return
        names = [item.name for item in onnx.ModelProto.FromString(model).graph.input]
        if len(names) != len(given):
            return
        feeds = dict(zip(names, given.values(), strict=True))
        actual = run_part(model, feeds, self._bench.ort, self._context.loaded.folder)
        if actual.is_ok and self._first is not None:
            found = difference(list(cut.expected.values()), actual.outputs)
            if found.way == cut.way and (found.way != "numeric" or found.keeps(self._first)):
                self._send(replace(cut, exporter=export.exporter))


def _follows(subject: _Subject, name: str, cut: Cut) -> bool:
    """Tell whether an array is not in a cut itself: it follows from others, or torch's code does not read it."""
    torchs = subject.torchs
    if torchs is None:
        return False
    return name in torchs.related or (name in torchs.own and name not in cut.torch_own)


def _spoken(name: str, how: tuple[int, ...] | str) -> str:
    """Return the expression by which torch's code reads an array of the cut."""
    if how == "T":
        return f"{name}.T"
    return name if isinstance(how, str) else f"{name}.reshape({', '.join(map(str, how)) or '()'})"


def _own(
    start: Cut,
    arrays: Mapping[str, Array],
    recipes: Mapping[str, str],
    original: Mapping[str, Array] | None = None,
) -> dict[str, Any]:
    """Return which weights and values are still the user's own."""
    from fuzzparity.minimize.model import made_up

    given = original or arrays
    left = [name for name, array in arrays.items() if name not in recipes and not made_up(array, given[name])]
    return {
        "real_weights": tuple(name for name in left if name not in start.feeds),
        "real_values": tuple(name for name in left if name in start.feeds),
    }


def _sometimes(told: Callable[[Any], Any], seconds: float = 1.0) -> Callable[[Any], None]:
    """Return `told`, called at most once in so many seconds: each time costs a run."""
    last = [time.monotonic()]

    def later(found: Any) -> None:
        if time.monotonic() - last[0] >= seconds:
            last[0] = time.monotonic()
            told(found)

    return later
