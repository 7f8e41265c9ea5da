import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzzparity.case import Case
from fuzzparity.execution import ORT, TORCH, Execution, Status
from fuzzparity.probe.latency import choose, measure, percentiles


def case(elements: int, fill: float = 0.0) -> Case:
    return Case({"x": np.full(elements, fill, np.float32)})


class Clock:
    """Stand still but for what the sides take."""

    def __init__(self):
        self.now = 0.0
        self.calls = []

    def side(self, name, seconds, status=Status.OK):
        def run(case):
            self.calls.append(name)
            self.now += next(seconds)
            return Execution(name, status)

        return run


def constant(value):
    while True:
        yield value


def test_the_sides_take_turns_and_warm_up_does_not_count():
    clock = Clock()
    slow_start = iter([9.0, 9.0, 9.0] + [0.002] * 10)
    rows = measure(
        [case(3)],
        clock.side(TORCH, constant(0.001)),
        clock.side(ORT, slow_start),
        rounds=10,
        clock=lambda: clock.now,
    )
    assert clock.calls[:6] == [TORCH, ORT, ORT, TORCH, TORCH, ORT]
    assert len(clock.calls) == 26
    assert rows[0].ratio == pytest.approx(2.0)
    assert rows[0].ort_p99_seconds == pytest.approx(0.002)
    assert rows[0].rss_bytes > 0


def test_a_side_that_does_not_answer_has_no_figures_and_is_not_run_again():
    clock = Clock()
    refusing = clock.side(ORT, constant(0.0), Status.REFUSED)
    row = measure([case(1)], clock.side(TORCH, constant(0.5)), refusing, rounds=4, clock=lambda: clock.now)[0]
    assert row.ort_p50_seconds is None
    assert row.ratio is None
    assert row.torch_p50_seconds == pytest.approx(0.5)
    assert row.note == "ORT refused"
    assert clock.calls.count(ORT) == 1


def test_real_clocks_give_ordered_percentiles():
    def work(case):
        np.linalg.norm(case.inputs["x"])
        return Execution(TORCH, Status.OK)

    row = measure([case(1000)], work, work, rounds=50)[0]
    assert 0 < row.torch_p50_seconds <= row.torch_p90_seconds <= row.torch_p99_seconds
    assert row.ratio > 0


@given(st.lists(st.floats(0, 1e3), min_size=1))
def test_percentiles_are_ordered_and_the_tail_was_measured(seconds):
    p50, p90, p99 = percentiles(seconds)
    assert min(seconds) <= p50 <= p90 <= p99 <= max(seconds)
    assert p90 in seconds
    assert p99 in seconds


@given(st.lists(st.integers(0, 20)), st.integers(0, 8), st.randoms())
def test_a_choice_is_fixed_holds_the_extremes_and_has_no_doubles(sizes, count, random):
    cases = [case(size) for size in sizes]
    chosen = choose(cases, count)
    random.shuffle(cases)
    assert chosen == choose(cases, count)
    assert len(chosen) == len(set(chosen)) == min(count, len(set(cases)))
    if count >= 2 and cases:
        assert {min(sizes), max(sizes)} <= {chosen[0].elements, chosen[-1].elements}
