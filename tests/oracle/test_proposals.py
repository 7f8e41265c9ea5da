"""Proposals of policies: by what values are, with names as no more than a hint."""

import numpy as np

from fuzzparity.execution import TORCH, Execution, Status
from fuzzparity.oracle import Policy
from fuzzparity.oracle.proposals import proposals

RNG = np.random.default_rng(3)


def proposed(carried=(), tolerances=None, **outputs):
    policy = Policy(tuple(outputs), tolerances=tolerances or {})
    found = proposals(policy, [Execution(TORCH, Status.OK, tuple(outputs.values()))], carried)
    return {one.output: one for one in found}


def f32(x):
    return np.asarray(x, np.float32)


def test_values_tell_probabilities_boxes_masks_states_and_indices():
    scores = f32(RNG.uniform(size=(3, 10)))
    probabilities = scores / scores.sum(1, keepdims=True)
    corners = f32(RNG.uniform(0, 100, (3, 8, 2)))
    found = proposed(
        p=probabilities,
        where=np.concatenate([corners, corners + 20], axis=2),
        small=np.concatenate([corners, corners + 20], axis=2) / 200,
        mask=f32(RNG.uniform(size=(1, 1, 16, 16))),
        h=f32(RNG.normal(size=(1, 8))),
        best=probabilities.argmax(1),
        other=f32(RNG.normal(size=(3, 10))),
        carried=("h",),
    )
    policies = {name: one.policy for name, one in found.items()}
    assert policies == {
        **{"p": "logits", "where": "boxes_pixels", "small": "boxes_normalized", "mask": "mask_probabilities"},
        **{"h": "recurrent", "best": "", "other": ""},
    }
    assert found["where"].line == "tolerances={'where': 'boxes_pixels'}"
    assert "left < right" in found["where"].reason
    assert "argmax of p along axis 1" in found["best"].reason
    assert found["other"].line == ""


def test_a_name_alone_is_never_enough_and_what_is_declared_is_left_alone():
    values = f32(RNG.normal(size=(3, 10)))
    assert proposed(boxes=values)["boxes"].policy == ""
    assert proposed(logits=np.abs(values) + 2)["logits"].policy == ""
    assert proposed(logits=values)["logits"].policy == "logits"
    declared = proposed(logits=values, tolerances={"logits": "strict"})["logits"]
    assert (declared.policy, declared.reason) == ("", "declared by you")
    assert proposed(y=f32([np.nan]))["y"].policy == ""
    assert proposals(Policy(("y",)), []) == ()
