"""From votes to the part at fault; where the votes leave more than one part, blame stays unknown."""

import pytest

from fuzzparity.blame import decide as words
from fuzzparity.blame.decide import Votes, decide, workaround
from fuzzparity.verdict import Statement


def votes(said: dict[str, str], **more: object) -> Votes:
    return Votes(tuple(Statement(name, side) for name, side in said.items()), **more)  # type: ignore[arg-type]


FOLDED = (words.CONSTANT_PASS,)
CAPTURE_RIGHT = {words.UNOPTIMIZED: "ort", words.CAPTURED: "torch"}


@pytest.mark.parametrize(
    ("given", "blame"),
    [
        (votes({words.UNOPTIMIZED: "ort", words.CAPTURED: "ort"}), "capture"),
        (votes({words.UNOPTIMIZED: "ort", words.TRACED: "ort"}), "capture"),
        (votes({words.UNOPTIMIZED: "torch"}, passes=("A",)), "optimizer:A"),
        (votes({words.UNOPTIMIZED: "torch"}, passes=("A", "B")), "optimizer:A+B"),
        (votes({words.UNOPTIMIZED: "torch"}), "optimizer:unknown"),
        (votes({words.UNOPTIMIZED: "torch", words.REFERENCE: "ort"}, passes=("A",)), "optimizer:A"),
        (votes({words.UNOPTIMIZED: "torch", words.REFERENCE: "torch"}, passes=FOLDED), "optimizer:ConstantFolding"),
        (votes({words.UNOPTIMIZED: "torch", words.REFERENCE: "ort"}, passes=FOLDED), "export"),
        (votes({words.UNOPTIMIZED: "torch", words.REFERENCE: "ort"}, passes=FOLDED, is_given=True), "onnx_file"),
        (votes({**CAPTURE_RIGHT, words.REFERENCE: "ort"}), "export"),
        (votes({**CAPTURE_RIGHT, words.DECOMPOSED: "ort"}), "export"),
        (votes({**CAPTURE_RIGHT, words.UNSIMPLIFIED: "torch"}), "export"),
        (votes({**CAPTURE_RIGHT, words.REFERENCE: "torch"}, op="Div", node="n"), "kernel:Div"),
        (votes({**CAPTURE_RIGHT, words.REFERENCE: "torch"}), "unknown"),
        (votes({words.UNOPTIMIZED: "ort", words.REFERENCE: "ort"}, is_given=True), "onnx_file"),
        (votes({words.UNOPTIMIZED: "ort", words.FRESH_EXPORT: "torch"}, is_given=True), "onnx_file"),
        (votes({words.UNOPTIMIZED: "ort", words.FRESH_TRACED: "torch"}, is_given=True), "onnx_file"),
        (votes({words.PLAIN: "torch"}, settings=("threads",)), "precision"),
        (votes({words.PLAIN: "ort", words.UNOPTIMIZED: "torch"}, passes=("A",)), "optimizer:A"),
        (votes({words.UNOPTIMIZED: "ort"}), "unknown"),
        (votes({}), "unknown"),
    ],
)
def test_the_first_stage_that_gives_orts_answer_is_at_fault(given: Votes, blame: str):
    found, how = decide(given)
    assert found == blame
    assert how


def test_the_workaround_names_the_passes_and_their_cost():
    given = votes({words.UNOPTIMIZED: "torch"}, passes=("A",))
    assert workaround("optimizer:A", given, {"disabled": 1.25}) == (
        "Ort(disabled_optimizers=['A']) (1.25 times the time of a run now)"
    )


def test_the_other_exporter_is_a_workaround_only_where_it_was_seen_to_heal():
    healed = votes({words.OTHER_EXPORTER: "torch"})
    assert "other exporter" in workaround("export", healed, {})
    assert workaround("export", votes({words.OTHER_EXPORTER: "ort"}), {}) == ""


def test_a_given_file_is_told_with_its_weights_and_the_exporter_that_heals_it():
    statements = (
        Statement(words.UNOPTIMIZED, "ort"),
        Statement(words.REFERENCE, "ort"),
        Statement(words.WEIGHTS, "", "it holds all 4 weights of the module"),
        Statement(words.FRESH_TRACED, "torch"),
    )
    given = Votes(statements, is_given=True)
    blame, how = decide(given)
    assert blame == "onnx_file"
    assert how.endswith("exporting again heals it; it holds all 4 weights of the module")
    assert workaround(blame, given, {}) == "export the module again (by torchscript)"
