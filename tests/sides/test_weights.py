"""Whether the weights of a module stand in an ONNX file: folded, joined, transposed, quantized, of another training."""

from __future__ import annotations

import io
import warnings

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import nn

from fuzzparity.sides.weights import same_weights


class Net(nn.Module):
    """A convolution with a trained batch norm behind it, a recurrent layer and a head."""

    def __init__(self, rng_seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(rng_seed)
        self.conv = nn.Conv2d(3, 6, 3)
        self.norm = nn.BatchNorm2d(6)
        self.rnn = nn.LSTM(6, 5, batch_first=True)
        self.head = nn.Linear(5, 4)
        with torch.no_grad():
            self.norm.running_mean.copy_(torch.randn(6))
            self.norm.running_var.copy_(torch.rand(6) + 0.5)
            self.norm.weight.copy_(torch.rand(6) + 0.5)
            self.norm.bias.copy_(torch.randn(6))
        self.eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.norm(self.conv(x))).flatten(2).transpose(1, 2)
        return self.head(self.rnn(y)[0])


def exported(module: nn.Module) -> onnx.ModelProto:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (torch.ones(1, 3, 6, 6),), buffer, dynamo=False, verbose=False)
    return onnx.load_from_string(buffer.getvalue())


def test_the_same_weights_are_found_folded_transposed_and_joined() -> None:
    model = exported(Net())
    assert not any("norm" in tensor.name for tensor in model.graph.initializer), "batch norm was not folded"
    said = same_weights(Net(), model)
    assert said.startswith("12 of 12 weights of the module stand in the ONNX file: these are the same weights"), said


def test_another_training_is_told_by_the_layers_that_differ() -> None:
    said = same_weights(Net(1), exported(Net(0)))
    assert said.startswith("0 of 12"), said
    assert "weight differs by up to" in said
    assert said.endswith("was it exported from another training?")


def test_one_layer_of_another_training_is_named_with_its_distance() -> None:
    model, module = exported(Net()), Net()
    with torch.no_grad():
        module.head.weight[0, 0] += 0.25
    said = same_weights(module, model)
    assert said.startswith("11 of 12 weights"), said
    assert "head.weight differs by up to 0.25" in said


def test_weights_under_the_name_of_another_or_transposed_are_named() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)).eval()
    weights = {name: tensor.detach().numpy() for name, tensor in net.state_dict().items()}

    def file_of(**changed: np.ndarray) -> onnx.ModelProto:
        held = {name: changed.get(name.replace(".", "_"), array) for name, array in weights.items()}
        tensors = [numpy_helper.from_array(np.ascontiguousarray(array), name) for name, array in held.items()]
        return onnx.helper.make_model(onnx.helper.make_graph([], "weights", [], [], tensors))

    assert "these are the same weights" in same_weights(net, file_of())
    swapped = same_weights(net, file_of(**{"0_weight": weights["2.weight"], "2_weight": weights["0.weight"]}))
    assert "0.weight holds the values of 2.weight there" in swapped
    assert "2.weight is transposed there" in same_weights(net, file_of(**{"2_weight": weights["2.weight"].T}))


def test_files_without_float_weights_are_said() -> None:
    model = onnx.ModelProto()
    assert "no weights: they cannot" in same_weights(Net(), model)
    model.graph.initializer.append(numpy_helper.from_array(np.ones((2, 2), np.int8), "w"))
    assert "only quantized weights" in same_weights(Net(), model)
    assert "no weights of its own" in same_weights(nn.ReLU(), model)


def trained(norm: nn.Module) -> nn.Module:
    """Give a batch norm statistics and gains of its own."""
    torch.manual_seed(3)
    with torch.no_grad():
        for tensor in (norm.running_mean, norm.running_var, norm.weight, norm.bias):
            tensor.copy_(torch.rand_like(tensor) + 0.5)
    return norm.eval()


def holding(*tensors: torch.Tensor) -> onnx.ModelProto:
    """Return a file that holds tensors under names that say nothing."""
    arrays = [numpy_helper.from_array(t.detach().numpy(), f"t{i}") for i, t in enumerate(tensors)]
    return onnx.helper.make_model(onnx.helper.make_graph([], "weights", [], [], arrays))


def scale_and_shift(norm: nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
    scale = norm.weight / torch.sqrt(norm.running_var + norm.eps)
    return scale, norm.bias - norm.running_mean * scale


def test_a_transposed_convolution_by_groups_is_folded_along_its_outputs() -> None:
    layer, norm = nn.ConvTranspose2d(4, 6, 3, groups=2), trained(nn.BatchNorm2d(6))
    scale, shift = scale_and_shift(norm)
    first, second = layer.weight[:2] * scale[:3, None, None], layer.weight[2:] * scale[3:, None, None]
    model = holding(torch.cat([first, second]), layer.bias * scale + shift)
    assert same_weights(nn.Sequential(layer, norm), model).startswith("6 of 6")


def test_a_linear_layer_is_found_folded_and_transposed() -> None:
    layer, norm = nn.Linear(4, 6), trained(nn.BatchNorm1d(6))
    scale, shift = scale_and_shift(norm)
    model = holding((layer.weight * scale[:, None]).T.contiguous(), layer.bias * scale + shift)
    assert same_weights(nn.Sequential(layer, norm), model).startswith("6 of 6")


def test_a_batch_norm_in_front_of_a_layer_scales_its_inputs() -> None:
    layer, norm = nn.Linear(4, 6), trained(nn.BatchNorm1d(4))
    scale, shift = scale_and_shift(norm)
    model = holding(layer.weight * scale, layer.bias + layer.weight @ shift)
    assert same_weights(nn.Sequential(norm, layer), model).startswith("6 of 6")


def test_a_batch_norm_may_be_left_as_a_product_and_a_sum() -> None:
    norm = trained(nn.BatchNorm2d(5))
    scale, shift = scale_and_shift(norm)
    assert same_weights(nn.Sequential(norm), holding(scale.reshape(1, 5, 1, 1), shift)).startswith("4 of 4")


def test_a_mean_that_was_folded_wrong_is_not_taken_for_the_same() -> None:
    layer, norm = nn.Conv2d(3, 6, 3), trained(nn.BatchNorm2d(6))
    scale, shift = scale_and_shift(norm)
    model = holding(layer.weight * scale[:, None, None, None], layer.bias * scale + shift + 0.1)
    said = same_weights(nn.Sequential(layer, norm), model)
    assert said.startswith("1 of 6"), said
    assert "running_mean" in said or "bias" in said
