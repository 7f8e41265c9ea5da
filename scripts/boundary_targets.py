"""Three twins whose sides part only beside a threshold: a float sum in another order, and thresholds set amiss."""

from __future__ import annotations

import onnx
import torch
from onnx import parser
from torch import Tensor, nn

from fuzzparity import Target

WIDTH = 64


def _model(text: str) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]> twin {text}')


class FloatSum(nn.Module):
    """Take an arm by the sign of a sum: both sides are right, and round it differently."""

    def forward(self, x: Tensor) -> Tensor:
        """Return [64] of [64]."""
        if x.sum() > 0:
            return x * 2
        return x - 1


class NormAbove(nn.Module):
    """Turn the rows whose norm is not above 2; the other side says 2.00001."""

    def forward(self, x: Tensor) -> Tensor:
        """Return [n, 64] of [n, 64]."""
        return torch.where(x.norm(dim=-1, keepdim=True) > 2.0, x, -x)


class AboveHalf(nn.Module):
    """Tell which elements are above 0.5; the other side says 0.50001."""

    def forward(self, x: Tensor) -> Tensor:
        """Return bool [n, 64] of [n, 64]."""
        return x > 0.5


def float_sum() -> Target:
    """Return the twin whose `If` depends on a float sum."""
    given = _model(
        """(float[64] x) => (float[64] y) <float zero = {0}, float one = {1}, float two = {2}> {
            sum = ReduceSum <keepdims = 0> (x)
            above = Greater (sum, zero)
            y = If (above) <then_branch = doubled () => (float[64] a) { a = Mul (x, two) },
                            else_branch = lowered () => (float[64] b) { b = Sub (x, one) }>
        }"""
    )
    x = torch.randn(WIDTH, generator=torch.Generator().manual_seed(0))
    return Target(module=FloatSum(), inputs={"x": x}, outputs=["y"], onnx=given)


def norm_above() -> Target:
    """Return the twin with a threshold on a norm that is 5e-6 of itself too high."""
    given = _model(
        """(float[n, 64] x) => (float[n, 64] y) <int64[1] last = {-1}, float late = {2.00001}> {
            norm = ReduceL2 (x, last)
            above = Greater (norm, late)
            turned = Neg (x)
            y = Where (above, x, turned)
        }"""
    )
    x = torch.randn(2, WIDTH, generator=torch.Generator().manual_seed(0)) * 0.3
    return Target(module=NormAbove(), inputs={"x": x}, outputs=["y"], onnx=given)


def above_half() -> Target:
    """Return the twin with a threshold on each element that is 2e-5 of itself too high."""
    given = _model("""(float[n, 64] x) => (bool[n, 64] y) <float late = {0.50001}> { y = Greater (x, late) }""")
    x = torch.randn(2, WIDTH, generator=torch.Generator().manual_seed(0))
    return Target(module=AboveHalf(), inputs={"x": x}, outputs=["y"], onnx=given)


TARGETS = {"float_sum": float_sum, "norm_above": norm_above, "above_half": above_half}
GRADES = {"float_sum": "tie", "norm_above": "bug", "above_half": "bug"}  # what the split is
