"""What a child tells its parent is plain: the parent must not import an engine to read it."""

import pickletools
from multiprocessing.reduction import ForkingPickler

import numpy as np
import torch
from small_models import loaded, relu

from fuzzparity.sides.export import make_build


def test_facts_travel_without_a_class_of_an_engine(tmp_path):
    target = loaded(torch.nn.ReLU(), {"x": np.ones((2, 3), np.float32)}, onnx=relu())
    facts = make_build(target, tmp_path).facts
    assert facts is not None
    sent = bytes(ForkingPickler.dumps(facts, 2))  # which spells every class as "module name"
    classes = {argument for code, argument, _ in pickletools.genops(sent) if code.name == "GLOBAL"}
    assert classes
    assert all(name.startswith(("fuzzparity.", "__builtin__ ")) for name in classes), classes
