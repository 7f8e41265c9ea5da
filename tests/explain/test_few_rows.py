"""Which one or two rows of a case are tried first when a finding is minimized."""

import numpy as np
import pytest

from fuzzparity.case import Case
from fuzzparity.contract import Contract, Dim, InputContract
from fuzzparity.explain.few_rows import few_rows


def contract(multiple_of: int = 1, low: int = 0) -> Contract:
    batch = Dim(8, "n", low, multiple_of=multiple_of)
    image = InputContract("image", "float32", (batch, Dim(2, "w")))
    state = InputContract("state", "float32", (Dim(2), batch))
    return Contract((image, state, InputContract("rate", "int64", ())), batch="n")


def case(rows: int = 40) -> Case:
    image = np.arange(rows * 2, dtype=np.float32).reshape(rows, 2)
    return Case({"image": image, "state": image.T.copy(), "rate": np.array(8)})


def rows_of(found: Case) -> list[int]:
    rows = (found.inputs["image"][:, 0] / 2).tolist()
    assert np.array_equal(found.inputs["state"], found.inputs["image"].T, equal_nan=True), "rows stay together"
    return [int(row) if np.isfinite(row) else -1 for row in rows]


def test_the_rows_that_the_index_may_name_are_tried_in_every_input():
    found = list(few_rows(case(), contract(), (7, 39, 7, 99)))
    assert [rows_of(one) for one in found] == [[7], [39]], "99 is no row"
    assert all(one.inputs["rate"] == 8 for one in found)
    assert [rows_of(one) for one in few_rows(case(), contract(), None)] == [[0]]


@pytest.mark.parametrize(("multiple_of", "low", "rows"), [(4, 0, 4), (1, 3, 3)])
def test_as_many_rows_as_the_contract_wants(multiple_of: int, low: int, rows: int):
    assert [rows_of(one) for one in few_rows(case(), contract(multiple_of, low), (5,))] == [[5] * rows]


def test_a_row_with_nan_stands_beside_where_it_is_part_of_the_finding():
    given = case()
    given.inputs["image"][9] = np.nan
    given.inputs["state"][:, 9] = np.nan
    assert [rows_of(one) for one in few_rows(given, contract(), (30,))] == [[30, -1]]
    assert [rows_of(one) for one in few_rows(given, contract(), (9,))] == [[-1]]


def test_nothing_is_tried_where_there_is_little_to_gain():
    assert list(few_rows(case(7), contract(), (3,))) == []
    assert list(few_rows(case(), Contract(contract().inputs), (3,))) == [], "no batch dim"
