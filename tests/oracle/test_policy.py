import ml_dtypes
import numpy as np
import pytest

from fuzzparity.errors import InvalidTarget
from fuzzparity.execution import ORT, TORCH, Execution, Status
from fuzzparity.oracle import Policy, calibrate, relative_look
from fuzzparity.target import Tolerance
from fuzzparity.verdict import Kind

F32 = np.dtype(np.float32)


def pair(e, a):
    return Execution(TORCH, Status.OK, (e,)), Execution(ORT, Status.OK, (a,))


def test_the_default_is_that_of_the_coarser_of_output_and_computing_dtype():
    policy = Policy(("y",), "float16")
    assert (policy.allowance("y", F32).rtol, policy.allowance("y", F32).atol) == (1e-3, 1e-5)
    assert Policy(("y",), "float32").allowance("y", np.dtype(ml_dtypes.bfloat16)).rtol == 1.6e-2
    assert Policy(("y",), "float32").allowance("y", np.dtype(np.float64)).rtol == 1.3e-6
    assert Policy(("y",), "float64").allowance("y", np.dtype(np.complex128)).rtol == 1e-7
    assert "assert_close, float16" in policy.allowance("y", F32).source


def test_the_defaults_are_those_of_torch():
    comparison = pytest.importorskip("torch.testing._comparison")
    from fuzzparity.oracle.policy import DEFAULTS

    theirs = {str(k).removeprefix("torch."): v for k, v in comparison._DTYPE_PRECISIONS.items()}
    assert {name: theirs[name] for name in DEFAULTS if name in theirs} == {
        name: value for name, value in DEFAULTS.items() if name in theirs
    }


def test_a_users_tolerance_decides_alone():
    policy = Policy(("y", "z"), tolerances={"y": Tolerance(atol=0.5), "z": "logits"}, noise={"y": 1e-4})
    assert policy.allowance("y", F32).is_users
    assert (policy.allowance("y", F32).atol, policy.allowance("y", F32).floor) == (0.5, 0.0)
    assert policy.allowance("z", F32).atol == 1e-4


def test_a_tolerance_for_no_output_is_an_error_that_lists_the_outputs():
    with pytest.raises(InvalidTarget, match="the outputs are 'boxes', 'scores'"):
        Policy(("boxes", "scores"), tolerances={"box": Tolerance(atol=1)})


def test_calibration_takes_the_largest_noise_of_the_seeds_and_leaves_faults_out():
    e = np.array([100.0, 1.0], np.float32)
    policy = calibrate(Policy(("y",)), [pair(e, e + np.float32(1e-4)), pair(e, e + np.float32(2e-4)), pair(e, 2 * e)])
    assert policy.noise["y"] == pytest.approx(2e-6, rel=0.1)
    allowance = policy.allowance("y", F32)
    assert allowance.floor == pytest.approx(8e-6, rel=0.1)
    assert "noise on the seeds" in allowance.source


def test_calibration_passes_over_refusals_and_outputs_that_do_not_fit():
    e = np.zeros(2, np.float32)
    refused = (Execution(TORCH, Status.OK, (e,)), Execution(ORT, Status.REFUSED))
    assert calibrate(Policy(("y",)), [refused, pair(e, np.zeros(3, np.float32))]).noise == {}


def test_the_relative_look_sees_small_outputs_and_ignores_what_is_small_beside_its_tensor():
    tiny = np.array([1e-9, 2e-9], np.float32)
    assert relative_look(tiny, 0 * tiny).kind is Kind.NUMERIC
    assert relative_look(tiny, tiny * np.float32(1.0005)).kind is Kind.AGREE
    mixed = np.array([1.0, 1e-6], np.float32)
    assert relative_look(mixed, np.array([1.0, 1.5e-6], np.float32)).kind is Kind.AGREE
    subnormal = np.array([1e-40], np.float32)
    assert relative_look(subnormal, 0 * subnormal).kind is Kind.AGREE
