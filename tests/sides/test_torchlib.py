"""Operators that are parsed late: the exporter's table is the same, and what is asked of an operator is the same."""

import pytest
import torch

from fuzzparity.sides.torchlib import _Late, parse_operators_late


def test_the_form_of_the_installed_onnxscript_is_known():
    assert parse_operators_late()
    assert parse_operators_late()  # a second call wraps nothing twice
    from onnxscript._internal.values import TracedOnnxFunction

    late = TracedOnnxFunction.function_ir.fget
    assert isinstance(late, _Late)
    assert not isinstance(late._parse, _Late)


def test_an_operator_that_waits_gives_what_its_parse_gives():
    from onnxscript.function_libs.torch_lib import registration
    from onnxscript.function_libs.torch_lib.ops import core  # noqa: F401 (registers)

    assert parse_operators_late()
    functions = [function for overloads in registration.default_registry.values() for function in overloads.overloads]
    late = type(functions[0]).function_ir.fget
    for function in functions[:3]:
        parsed, waiting = late._parse(function), function.function_ir
        assert waiting.domain == parsed.domain
        assert waiting.name == parsed.name
        assert len(waiting.inputs) == len(parsed.inputs)
    assert late._is_trusted


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_an_export_is_the_same_bytes_with_operators_parsed_late():
    from onnxscript._internal.values import TracedOnnxFunction

    def exported() -> bytes:
        module = torch.nn.Sequential(torch.nn.Softmax(dim=1), torch.nn.GELU()).eval()
        program = torch.onnx.export(module, (torch.ones(2, 3),), dynamo=True, verbose=False)
        data: bytes = program.model_proto.SerializeToString(deterministic=True)
        return data

    assert parse_operators_late()
    late = TracedOnnxFunction.__dict__["function_ir"]
    with_late = exported()
    TracedOnnxFunction.function_ir = property(late.fget._parse)
    try:
        without = exported()
    finally:
        TracedOnnxFunction.function_ir = late
    assert with_late == without


def test_an_operator_whose_domain_is_not_its_opsets_is_parsed_each_time():
    class Opset:
        domain = "one"

    class Function:
        _opset = Opset()

    class Parsed:
        domain = "another"

    parses: list[Parsed] = []

    def parse(function: Function) -> Parsed:
        parses.append(Parsed())
        return parses[-1]

    late = _Late(parse)
    assert late(Function()) is parses[0]
    assert late(Function()) is parses[1]
