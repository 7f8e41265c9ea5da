"""Inputs are told apart by what they are: by the target's words, the graph, names, dtypes and shapes."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from fuzzparity.case import Case
from fuzzparity.contract import Contract, Dim, Hint, InputContract, Role
from fuzzparity.generate.understood import understood
from fuzzparity.sides.roles import with_roles


def contract_for(inputs: dict[str, NDArray], dynamic: dict[str, dict[int, str]], **rest: object) -> Contract:
    """Make a contract of arrays whose dims are static but for those named."""
    return Contract(
        tuple(
            InputContract(
                name,
                array.dtype.name,
                tuple(Dim(size, dynamic.get(name, {}).get(axis, "")) for axis, size in enumerate(array.shape)),
            )
            for name, array in inputs.items()
        ),
        **rest,  # type: ignore[arg-type]
    )


def role_of(name: str, array: NDArray, **rest: object) -> tuple[Role, str]:
    found = with_roles(contract_for({name: array}, {}, **rest), Case({name: array}), ()).inputs[0]
    return found.role, found.role_reason


ONES = np.ones((2, 5), np.int64)


@pytest.mark.parametrize(
    ("name", "array", "role"),
    [
        ("attention_mask", ONES, Role.MASK),
        ("attention_mask", ONES * 7, Role.GENERIC),  # holds something else: no mask
        ("anything", np.ones((2, 5), bool), Role.MASK),
        ("input_ids", ONES, Role.TOKENS),
        ("edge_index", ONES, Role.INDICES),
        ("lengths", ONES[0], Role.LENGTHS),
        ("x_len", ONES[0], Role.LENGTHS),
        ("offsets", ONES[0], Role.OFFSETS),
        ("picture", np.zeros((1, 3, 16, 24), np.float32), Role.IMAGE),
        ("picture", np.zeros((16, 24, 3), np.uint8), Role.IMAGE),
        ("features", np.zeros((1, 80, 24), np.float32), Role.GENERIC),
        ("hidden_state", np.zeros((2, 8), np.float32), Role.STATE),
        ("estate", np.zeros((2, 8), np.float32), Role.STATE),
        ("rate", np.zeros((), np.float32), Role.SCALE),
        ("x", np.zeros((2, 8), np.float32), Role.GENERIC),
        ("talent", ONES[0], Role.GENERIC),  # neither "len" nor a name of tokens
    ],
)
def test_roles_by_name_dtype_and_shape(name: str, array: NDArray, role: Role) -> None:
    found, why = role_of(name, array)
    assert found is role
    assert why


def test_what_is_declared_comes_before_the_graph_and_that_before_names() -> None:
    state = np.zeros((2, 5), np.float32)
    contract = contract_for({"lengths": state}, {})
    assert with_roles(contract, Case({"lengths": state}), ["lengths"]).inputs[0].role is Role.STATE
    hint = Hint("lengths", "a mask: 0 and 1 are meant", "graph: cast to bool")
    assert role_of("lengths", ONES, hints=(hint,)) == (Role.MASK, "graph: cast to bool")


def test_lengths_and_offsets_count_along_the_smallest_dim_that_holds_them() -> None:
    inputs = {
        "x": np.zeros((3, 37), np.float32),
        "y": np.zeros((3, 50), np.float32),
        "lengths": np.array([30, 22, 9]),
        "values": np.arange(20),
        "offsets": np.array([0, 4, 9, 13]),
    }
    dynamic = {
        "x": {0: "b", 1: "t"},
        "y": {0: "b", 1: "u"},
        "lengths": {0: "b"},
        "values": {0: "n"},
        "offsets": {0: "k"},
    }
    contract = with_roles(contract_for(inputs, dynamic), Case(inputs), ())
    assert contract.input("lengths").counted == ("x", 1)
    assert contract.input("offsets").counted == ("values", 0)
    lines = {line.subject: line for line in understood(contract)}
    assert lines["lengths role"].says == "lengths, up to the size of x dim 1 in most cases"
    assert "steers the search" in lines["lengths role"].reason
    assert "x role" not in lines
