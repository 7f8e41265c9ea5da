"""While a bug waits, time goes faster for who works on another finding."""

import time

from fuzzparity.work.hurry import HurriedClock, set_hurry


def test_time_goes_twice_as_fast_while_a_bug_waits(tmp_path):
    clock = HurriedClock(tmp_path)
    spent = []
    for is_on in (False, True, False):
        set_hurry(tmp_path, is_on=is_on)
        began, told = time.monotonic(), clock()
        time.sleep(0.05)
        spent.append((clock() - told) / (time.monotonic() - began))
    assert [round(one) for one in spent] == [1, 2, 1]


def test_a_folder_that_is_gone_tells_nobody(tmp_path):
    set_hurry(tmp_path / "gone", is_on=True)
    set_hurry(tmp_path / "gone", is_on=False)
    assert HurriedClock(tmp_path / "gone")() > 0
