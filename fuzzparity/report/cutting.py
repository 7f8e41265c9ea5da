"""Cutting: the files of a cut, and a program that is little more than the cut written out.

The idea: a model of a few nodes, its inputs and its right answer are an issue that a maintainer reads in one look; the
same three as an ONNX backend-test folder are a test of his.
"""

from __future__ import annotations

import math
import re
from dataclasses import fields
from typing import Any

import jinja2

from fuzzparity.case import Array, is_float
from fuzzparity.corpus.codec import encode
from fuzzparity.finding import Cut
from fuzzparity.report.clean import printable, without_paths
from fuzzparity.report.content import PATIENCE_SECONDS, REFERENCE, ReproducerContent, headline, limit_seconds, said
from fuzzparity.report.literal import array_literal, model_source, model_text
from fuzzparity.verdict import Kind, as_plain

_LOOSE = (1e-3, 1e-6)  # where a pattern shows the finding: numbers beside it may move


def cut_files(cut: Cut) -> dict[str, bytes]:
    """Return the files of `cut/`, name -> bytes: model, inputs and answers, and both as a backend-test folder."""
    from onnx import numpy_helper

    files = {"cut/model.onnx": cut.model, "cut/inputs.safetensors": encode(cut.feeds)}
    groups = {"input": cut.feeds} | ({"torch": cut.torch_own} if cut.torch_own else {})
    if cut.expected:
        files["cut/expected.safetensors"] = encode(cut.expected)
        groups["output"] = cut.expected
    for kind, arrays in groups.items():
        for place, (name, array) in enumerate(arrays.items()):
            data = numpy_helper.from_array(array, name).SerializeToString()
            files[f"cut/test_data_set_0/{kind}_{place}.pb"] = data
    return files


def cut_object(cut: Cut) -> dict[str, Any]:
    """Return what finding.json says of a cut; its arrays are in their own files."""
    return {item.name: as_plain(getattr(cut, item.name)) for item in fields(cut) if item.name not in _IN_FILES} | {
        "bytes": len(cut.model),
        "inputs": [f"{name}: {a.dtype.name}{list(a.shape)}" for name, a in cut.feeds.items()],
    }


_IN_FILES = ("model", "feeds", "expected", "torch_own")


def told(content: ReproducerContent) -> str:
    """Return in one line what the cut is: "2 of 40 nodes of the model, cut out of node_cond/then_branch"."""
    cut, whole = content.cut, content.facts.build.nodes
    assert cut is not None
    share = f"{cut.nodes} of {max(whole, cut.nodes)} nodes of the model" if whole else f"{cut.nodes} nodes"
    inside = f", in {' in '.join(reversed(cut.path))}" if cut.path else ""
    return f"{share}{inside}; shown by {cut.shown_by}"


def cut_program(content: ReproducerContent) -> str:
    """Return the program that shows the cut."""
    return _ENVIRONMENT.get_template("cut.py.j2").render(**cut_values(content)).rstrip() + "\n"


def cut_snippet(content: ReproducerContent) -> str | None:
    """Return the cut as a short program for a report; None where a part of it is in files, or is its owner's own."""
    cut = content.cut
    if cut is None or not content.writes_cut or cut.real_weights:
        return None
    values = cut_values(content)
    if values["reads_files"] or values["uses_reference"] or values["exporter"]:
        return None
    lines = ["import numpy as np", *(["import torch"] if values["torch_code"] else []), "import onnxruntime as ort"]
    lines += [f"from onnx import {values['imports']}", ""]
    lines += ['nan, inf = float("nan"), float("inf")'] if values["needs_constants"] else []
    if values["model_text"] is not None:
        lines += [f'model = parser.parse_model("""{values["model_text"]}""")']
        lines += [f"model.graph.initializer.append(numpy_helper.from_array({a}, {n}))" for n, a in values["weights"]]
    else:
        lines += ["def build():", values["model_source"].rstrip(), "", "", "model = build()"]
    lines += ["feeds = {" + ", ".join(f"{name}: {text}" for name, text in values["inputs"]) + "}"]
    lines += ["options = ort.SessionOptions()", f"options.intra_op_num_threads = {values['threads']}"]
    lines += [f"options.{line}" for line in values["options"]]
    lines += [f"session = ort.InferenceSession(model.SerializeToString(), options{values['session_arguments']})"]
    if values["torch_code"]:
        lines += ["", "def in_torch(" + ", ".join(values["torch_takes"]) + "):"]
        lines += [f"    {line}" for line in values["torch_code"]]
        lines += ["", "arrays = {one.name: numpy_helper.to_array(one) for one in model.graph.initializer} | feeds"]
        lines += ["arrays |= {" + ", ".join(f"{name}: {text}" for name, text in values["torch_own"]) + "}"]
        lines += [f"print(in_torch(*(torch.tensor(arrays[name]) for name in {values['torch_takes_text']})))  # torch"]
    lines += [f"print({text})  # {values['expected_from']}" for _, text in values["expected"]]
    return "\n".join([*lines, "print(session.run(None, feeds))  # what ONNX Runtime gives"])


def cut_values(content: ReproducerContent) -> dict[str, Any]:
    """Return what the template of a cut's program is filled with."""
    import onnx
    from onnx import numpy_helper

    cut, verdict = content.cut, content.finding.verdict
    assert cut is not None
    model = onnx.load_model_from_string(cut.model)
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    spelled = {name: spelled_array(cut, name, array) for name, array in weights.items()}
    text = model_text(model) if all(one is not None for one in spelled.values()) else None
    source = model_source(model) if text is None else None
    inputs = [(ascii(name), _or_file(cut, name, a, "input", n)) for n, (name, a) in enumerate(cut.feeds.items())]
    uses_reference = content.standalone == REFERENCE
    expected = [(ascii(name), _or_file(cut, name, a, "output", n)) for n, (name, a) in enumerate(cut.expected.items())]
    compares = bool(cut.expected) and cut.way not in ("refusal", "crash", "hang")
    computes = content.writes_torch
    written = [] if uses_reference or computes or not compares else expected
    of_torch = cut.torch_own if computes else {}
    own = [(ascii(name), _or_file(cut, name, array, "torch", n)) for n, (name, array) in enumerate(of_torch.items())]
    exports = computes and _exports(cut, weights, spelled)
    if exports:
        spelled = {name: one for name, one in spelled.items() if name in cut.torch_takes}
        inputs = [pair for pair, name in zip(inputs, cut.feeds, strict=True) if name in cut.torch_takes]
    texts = [one for _, one in (*inputs, *written, *own)]
    floats = [name for name, array in cut.expected.items() if is_float(array.dtype)]
    return {
        "headline": _in_text(headline(content)),
        "finding_id": content.finding.finding_id,
        "kind": verdict.kind.value,
        "grade": verdict.grade.value,
        "told": _in_text(told(content)),
        "standalone": content.standalone,
        "recorded": _in_text(_recorded(content)),
        "imports": _imports_to_export(cut, texts)
        if exports
        else _imports(
            text,
            source,
            uses_reference=uses_reference,
            has_weights=bool(weights),
            computes=computes,
            reads_arrays=any("HERE" in one for one in texts),
        ),
        "model_text": text,
        "model_source": source,
        "weights": [(ascii(name), one) for name, one in spelled.items()] if text is not None or exports else [],
        "inputs": inputs,
        "expected": written,
        "expected_from": _expected_from(cut),
        "compares": compares,
        "uses_reference": uses_reference,
        "torch_code": list(cut.torch_code) if computes else [],
        "torch_takes": list(cut.torch_takes),
        "torch_takes_text": ascii(list(cut.torch_takes)),
        "torch_own": own,
        "exporter": cut.exporter if exports else "",
        "opset": content.facts.build.opset_requested,
        "nodes_in_words": f"{cut.nodes} nodes do in" if cut.nodes > 1 else "one node does in",
        "inputs_taken": [name for name in cut.feeds if name in cut.torch_takes],
        "arrays_taken": [name for name in cut.torch_takes if name not in cut.feeds],
        "arrays_tables": [name for name, one in (("WEIGHTS", spelled), ("OF_TORCH", own)) if one] if exports else [],
        "outputs": ascii(list(cut.expected)),
        "allowed": [(ascii(name), ascii(_allowed(cut, name))) for name in floats] if compares else [],
        "allowed_in_words": _allowed_in_words(cut) if compares else "",
        "has_exact": len(floats) < len(cut.expected),
        "threads": content.ort.threads or 1,
        "options": _options(content),
        "session_arguments": _arguments(content),
        "on_refusal": _on_refusal(cut) if cut.way == "refusal" else "None",
        "hang_seconds": math.ceil(limit_seconds(content)) if cut.way == "hang" else 0,
        "is_crash": verdict.kind is Kind.CRASH,
        "patience": int(PATIENCE_SECONDS),
        "reads_files": (text is None and source is None and not exports) or any("HERE" in one for one in texts),
        "needs_constants": any(
            re.search(r"\b(?:nan|inf)\b", one) for one in (*texts, *spelled.values(), source) if one
        ),
    }


def _exports(cut: Cut, weights: dict[str, Array], spelled: dict[str, str | None]) -> bool:
    """Tell whether the program exports torch's code itself: all that it takes can be written out."""
    taken = [name for name in weights if name in cut.torch_takes]
    return cut.exporter in ("dynamo", "torchscript") and all(spelled[name] is not None for name in taken)


def _imports_to_export(cut: Cut, texts: list[str]) -> str:
    names = ["load_tensor", "numpy_helper"] if any("HERE" in one for one in texts) else []
    return ", ".join(sorted([*names, "printer", *(["load_from_string"] if cut.exporter == "torchscript" else [])]))


def _imports(
    text: str | None,
    source: str | None,
    *,
    uses_reference: bool,
    has_weights: bool,
    computes: bool,
    reads_arrays: bool,
) -> str:
    """Return what is imported from onnx; torch's code (`computes`) takes the model's weights as arrays."""
    names = []
    if source is not None:
        names += ["helper"]
    if (text, source) == (None, None):
        names += ["load"]
    if reads_arrays:
        names += ["load_tensor"]
    if reads_arrays or computes or source is not None or (text is not None and has_weights):
        names += ["numpy_helper"]
    if text is not None:
        names += ["parser"]
    line = ", ".join(names)
    return f"{line}\n    from onnx.reference import ReferenceEvaluator" if uses_reference else line


def spelled_array(cut: Cut, name: str, array: Array) -> str | None:
    """Return an expression that gives an array: its recipe, or its values where they are few; checked bit for bit."""
    recipe = cut.recipes.get(name, "")
    if recipe and _RECIPE.fullmatch(recipe):
        return recipe
    return array_literal(array)


# what `minimize.model` writes and nothing else: a stored cut is data, and its texts end in a program
_NUMBER = r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?"
_SHAPE = r"\((?:\d+,? ?)*\)"
_RECIPE = re.compile(
    rf"\(np\.random\.default_rng\(0\)\.standard_normal\({_SHAPE}\) \* {_NUMBER} \+ {_NUMBER}\)\.astype\('\w+'\)"
    rf"|\(np\.arange\(\d+\) % 7(?: - \d+)?\)\.reshape\({_SHAPE}\)\.astype\('\w+'\)"
)


def _or_file(cut: Cut, name: str, array: Array, kind: str, place: int) -> str:
    text = spelled_array(cut, name, array)
    return text or f'numpy_helper.to_array(load_tensor(HERE / "test_data_set_0" / "{kind}_{place}.pb"))'


def _expected_from(cut: Cut) -> str:
    compared = cut.shown_by.partition(" against ")[2]
    return {"torch": "what torch gives here", "the ONNX reference": "what the ONNX reference gives"}.get(
        compared, f"what ONNX Runtime gives {compared.removeprefix('itself ')}"
    )


def _allowed(cut: Cut, name: str) -> tuple[float, float]:
    """Return rtol and atol of an output: half of the recorded error is still the finding."""
    error = cut.errors.get(name, 0.0)
    if not is_float(cut.expected[name].dtype) or not 0.0 < error < float("inf"):
        return _LOOSE
    return 0.0, float(f"{error / 2:.2g}")


def _allowed_in_words(cut: Cut) -> str:
    """Return the tolerance of a cut's one output as arguments; "" where there are several, or none is a float."""
    if len(cut.expected) != 1:
        return ""
    (name,) = cut.expected
    rtol, atol = _allowed(cut, name)
    return f"rtol={rtol!r}, atol={atol!r}" if is_float(cut.expected[name].dtype) else ""


def _options(content: ReproducerContent) -> list[str]:
    lines = []
    if content.ort_level != "ORT_ENABLE_ALL":  # ORT's default
        lines.append(f"graph_optimization_level = ort.GraphOptimizationLevel.{content.ort_level}")
    lines += [f"add_session_config_entry({key!a}, {value!a})" for key, value in content.ort.config.items()]
    return lines


def _arguments(content: ReproducerContent) -> str:
    ort = content.ort
    options = {name: dict(value) for name, value in ort.provider_options.items()}
    providers = [(name, options[name]) if name in options else name for name in ort.providers]
    text = f", providers={providers!a}"
    return text + (f", disabled_optimizers={list(ort.disabled_optimizers)!a}" if ort.disabled_optimizers else "")


def _on_refusal(cut: Cut) -> str:
    """Return the expression that tells whether a refusal is the recorded one, by ORT's source file if it is named."""
    file = re.search(r"\w+\.(?:cc|h|cpp|cu|cuh|hpp)\b", cut.refusal)
    return f"True if {file[0]!a} in str(error) else None" if file else "True"


def _in_text(text: str) -> str:
    """Return a text as it can stand in a docstring: nothing in it ends the string or begins an escape."""
    plain = printable(text, 300).encode("ascii", "replace").decode()
    return plain.replace("\\", "/").replace('"', "'")


def _recorded(content: ReproducerContent) -> str:
    packages = content.facts.environment.packages
    versions = ", ".join(f"{name} {packages[name]}" for name in ("onnxruntime", "onnx", "numpy") if name in packages)
    actual = printable(without_paths(said(content.actual), content.target_folder), 200)
    return f"Recorded with {versions}: ONNX Runtime {actual}."


_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.PackageLoader("fuzzparity.report", "templates"),
    undefined=jinja2.StrictUndefined,
    autoescape=False,
    keep_trailing_newline=True,
)
