"""Relations without a twin: they are proven before they are used, cost little, and name the side that breaks them."""

import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
from test_stacking import Ran, Sent

from fuzzparity.campaign.gate import gate
from fuzzparity.campaign.records import GateSpec, Noted, WorkerSpec
from fuzzparity.campaign.relating import HISTORY
from fuzzparity.campaign.worker import Worker
from fuzzparity.case import Case, Lineage
from fuzzparity.contract import Contract, Dim, InputContract, Role
from fuzzparity.corpus.database import Corpus
from fuzzparity.corpus.records import KeptCase
from fuzzparity.execution import ORT, TORCH
from fuzzparity.explain.records import TwinSpec
from fuzzparity.explain.relating import told_by_relations
from fuzzparity.explain.relations import ALONE, PADDED, PERMUTED, REPEATED, paddings_of
from fuzzparity.explain.twin import Twin, open_twin
from fuzzparity.finding import Suspect
from fuzzparity.generate.contract import breach
from fuzzparity.generate.generator import Proposal
from fuzzparity.generate.rng import Rng
from fuzzparity.report.advice import known_by
from fuzzparity.sides.export import make_build
from fuzzparity.sides.load import load_target
from fuzzparity.verdict import Grade, Kind, Verdict
from fuzzparity.work.announce import Announcer
from fuzzparity.work.limits import Limits
from fuzzparity.work.loader import Context

TARGET = """
    import torch
    from onnx import TensorProto, helper

    from fuzzparity import Size, Target


    def graph(nodes, inputs, initializers=()):
        infos = [helper.make_tensor_value_info(name, kind, dims) for name, kind, dims in inputs]
        y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
        made = helper.make_graph(nodes, "graph", infos, [y], [helper.make_tensor(*one) for one in initializers])
        return helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


    NUMBERS = [("two", 1, [], [2.0]), ("half", 1, [], [0.5]), ("zero", 7, [], [0]), ("one", 7, [], [1]),
               ("zeros", 7, [1], [0]), ("ones", 7, [1], [1]), ("nine", 7, [], [9])]
    DOUBLE = [helper.make_node("Mul", ["x", "two"], ["y"])]
    LEAKY = [  # half of the first row is added to every row from the tenth on
        helper.make_node("Mul", ["x", "two"], ["double"]),
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["rows"]),
        helper.make_node("Range", ["zero", "rows", "one"], ["row"]),
        helper.make_node("GreaterOrEqual", ["row", "nine"], ["late"]),
        helper.make_node("Unsqueeze", ["late", "ones"], ["lates"]),
        helper.make_node("Slice", ["x", "zeros", "ones"], ["first"]),
        helper.make_node("Mul", ["first", "half"], ["leak"]),
        helper.make_node("Add", ["double", "leak"], ["leaked"]),
        helper.make_node("Where", ["lates", "leaked", "double"], ["y"]),
    ]


    class Double(torch.nn.Module):
        def forward(self, x):
            return x * 2


    class LeakyDouble(torch.nn.Module):
        def __init__(self, first=9):
            super().__init__()
            self.first = first

        def forward(self, x):
            late = torch.arange(x.shape[0])[:, None] >= self.first
            return torch.where(late, x * 2 + x[:1] * 0.5, x * 2)


    class Capped(torch.nn.Module):
        def forward(self, x):
            return (x * 2).clamp(max=3)


    class OfAll(torch.nn.Module):
        def forward(self, x):
            return x * 2 + x.sum(0, keepdim=True)


    OF_ALL = [
        helper.make_node("Mul", ["x", "two"], ["double"]),
        helper.make_node("ReduceSum", ["x", "zeros"], ["sum"]),
        helper.make_node("Add", ["double", "sum"], ["y"]),
    ]


    def rows(module, nodes, count=3, **rest):
        model = graph(nodes, [("x", TensorProto.FLOAT, ["n", 6])], NUMBERS)
        return Target(module=module, inputs={"x": torch.linspace(-1, 1, 6 * count).reshape(count, 6)},
                      onnx=model, outputs=["y"], ranges={"x": (-9, 9)}, **rest)


    # the sum over what a mask keeps is added; padding above `loud` gets in
    class Pooled(torch.nn.Module):
        def __init__(self, loud):
            super().__init__()
            self.loud = loud

        def forward(self, x, mask):
            kept = (mask[..., None] > 0) | (x > self.loud)
            return x + (x * kept.float()).sum(1, keepdim=True)


    def pooled(loud):
        nodes = [
            helper.make_node("Cast", ["mask"], ["flags"], to=TensorProto.BOOL),
            helper.make_node("Unsqueeze", ["flags", "last"], ["flag"]),
            helper.make_node("Greater", ["x", "loud"], ["is_loud"]),
            helper.make_node("Or", ["flag", "is_loud"], ["kept"]),
            helper.make_node("Cast", ["kept"], ["keeps"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["x", "keeps"], ["counted"]),
            helper.make_node("ReduceSum", ["counted", "middle"], ["sum"]),
            helper.make_node("Add", ["x", "sum"], ["y"]),
        ]
        inputs = [("x", TensorProto.FLOAT, ["b", "s", 4]), ("mask", TensorProto.INT64, ["b", "s"])]
        return graph(nodes, inputs, [("loud", 1, [], [loud]), ("last", 7, [1], [2]), ("middle", 7, [1], [1])])


    def padded(of_torch=1e9, of_onnx=1e9):
        x = torch.linspace(-1, 1, 24).reshape(2, 3, 4)
        return Target(
            module=Pooled(of_torch), onnx=pooled(of_onnx), outputs=["y"],
            inputs={"x": x, "mask": torch.ones(2, 3, dtype=torch.int64)},
            ranges={"x": (-1e6, 1e6), "mask": (0, 1)},
            dynamic_shapes={"x": {0: "b", 1: Size(1, 12, "s")}, "mask": {0: "b", 1: "s"}},
            compare_where=lambda inputs: {"y": inputs["mask"] > 0},
        )
"""


def opened(folder: Path, made: str, more: str = "") -> tuple[Context, TwinSpec, Ran]:
    """Open a worker of this process on a target."""
    torch.set_num_threads(1)
    path = folder / "subject.py"
    path.write_text(f"{textwrap.dedent(TARGET)}\n\n{more}\n\ndef target():\n    return {made}\n")
    loaded, sent = load_target(str(path)), Sent()
    facts = make_build(loaded, folder / "builds").facts
    assert facts is not None
    context = Context(loaded, sent, Announcer(folder / "map"), folder / "map", Limits())  # type: ignore[arg-type]
    report = gate(context, GateSpec(facts))
    with Corpus.open(folder / "corpus.sqlite", create=True) as corpus:
        seeds = [KeptCase(case, Lineage(origin="seed")) for case in report.agreed]
        corpus.keep_cases(corpus.begin_campaign(facts, "test", 0), seeds)
    twin = TwinSpec(facts, report.policy, report.statistics)
    digests = tuple(case.digest for case in report.agreed)
    spec = WorkerSpec(twin, str(folder / "corpus.sqlite"), digests, 0, is_deterministic=True)
    return context, twin, Ran(Worker(context, spec), sent)


def told(context: Context, spec: TwinSpec, case: Case) -> Verdict:
    """Judge a case and ask relations about its bug."""
    twin = open_twin(context, spec, context.announcer, case)
    assert isinstance(twin, Twin)
    judgement = twin.judge(case, *twin.run(case))
    (verdict,) = (verdict for verdict in judgement.verdicts if verdict.grade is Grade.BUG)
    return told_by_relations(context, spec, case, verdict, seconds=60)


def recorded(ran: Ran) -> list[str]:
    """Return where the names of relations go by which a worker runs cases again."""
    names: list[str] = []
    take = ran.worker._relating.take

    def taken() -> Proposal:
        proposal = take()
        names.extend(proposal.lineage.mutators)
        return proposal

    setattr(ran.worker._relating, "take", taken)  # noqa: B010
    return names


def batch(rows: int) -> Case:
    values = np.random.default_rng(3).uniform(-2, 2, (rows, 6))
    return Case({"x": values.astype(np.float32)})


@pytest.mark.parametrize(
    ("made", "side", "other"),
    [("rows(Double(), LEAKY)", ORT, TORCH), ("rows(LeakyDouble(), DOUBLE)", TORCH, ORT)],
    ids=["ort", "torch"],
)
def test_the_side_that_minds_other_rows_is_named(tmp_path: Path, made: str, side: str, other: str) -> None:
    context, spec, _ = opened(tmp_path, made)
    verdict = told(context, spec, batch(12))
    name = {ORT: "ORT", TORCH: "torch"}[side]
    assert f"only {name} answers otherwise when the row runs alone" in verdict.headline
    assert verdict.attribution is not None
    (statement,) = verdict.attribution.statements
    assert (statement.arbiter, statement.sides_with) == ("relation: one row alone", other)
    other_name = {ORT: "ORT", TORCH: "torch"}[other]
    assert f"relation: one row alone: {other_name} keeps it, {name} does not" in known_by(verdict)[-1]


def test_a_fault_of_single_rows_and_rows_that_are_meant_to_mix_tell_no_side(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    context, spec, _ = opened(tmp_path / "one", "rows(Capped(), DOUBLE)")
    verdict = told(context, spec, batch(12))
    assert verdict.attribution is None
    # of near rows as well, torch mixes two and ORT does not: which of them is meant, no relation can say
    (tmp_path / "all").mkdir()
    context, spec, _ = opened(tmp_path / "all", "rows(LeakyDouble(1), DOUBLE, 1)")
    assert told(context, spec, batch(12)).attribution is None
    # unless the target says that rows are independent
    (tmp_path / "said").mkdir()
    context, spec, _ = opened(
        tmp_path / "said", "rows(LeakyDouble(1), DOUBLE, 1, dynamic_shapes={'x': {0: 'n'}}, batch='n')"
    )
    assert "; only torch answers otherwise when the row runs alone" in told(context, spec, batch(12)).headline


LOUD = Case(
    {
        "x": np.where(np.arange(3) < 2, 1.0, 1e6)[None, :, None].repeat(4, 2).astype(np.float32),
        "mask": np.array([[1, 1, 0]]),
    }
)


def test_padding_is_what_a_mask_says(tmp_path: Path) -> None:
    context, spec, ran = opened(tmp_path, "padded()")
    seed = context.loaded.seed
    keeping, other = paddings_of(spec.facts.contract, seed)
    assert (keeping.source.name, keeping.keeps_nonzero, other.keeps_nonzero) == ("mask", True, False)
    assert [(item.name, *axes) for item, *axes in keeping.places] == [("x", 0, 1)]
    base = keeping.with_padding(seed)
    assert base.inputs["mask"].tolist() == [[1, 1, 0], [1, 1, 0]]
    related = keeping.changed(base, Rng(0, 0))
    assert related is not None
    same = related.case.inputs["x"] == base.inputs["x"]
    assert same[:, :2].all()
    assert not same[:, 2].all()
    assert keeping.changed(seed, Rng(0, 0)) is None
    assert ran.worker._relating.relations == ("rows", "padding")
    names = recorded(ran)
    assert ran.run(700).bugs == []
    assert {PADDED, PERMUTED} <= {*names} <= {PADDED, PERMUTED, ALONE, REPEATED, HISTORY}


def test_padding_is_what_lengths_leave() -> None:
    rows, positions = Dim(2, "b"), Dim(4, "t")
    contract = Contract(
        (
            InputContract("audio", "float32", (rows, Dim(3), positions), low=-1.0, high=1.0),
            InputContract("ids", "int64", (rows, positions), index_limit=9, role=Role.TOKENS),
            InputContract("lengths", "int64", (rows,), role=Role.LENGTHS, counted=("audio", 2)),
        )
    )
    audio = np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 3, 4)
    seed = Case({"audio": audio, "ids": np.arange(8).reshape(2, 4), "lengths": np.array([4, 4])})
    (padding,) = paddings_of(contract, seed)
    assert [(item.name, *axes) for item, *axes in padding.places] == [("audio", 0, 2), ("ids", 0, 1)]
    base = padding.with_padding(seed)
    assert base.inputs["lengths"].tolist() == [3, 3]
    case = base.replace(lengths=np.array([1, 4]))
    for draw in range(20):
        related = padding.changed(case, Rng(draw, 0))
        assert related is not None
        assert breach(contract, related.case) == ""
        assert (related.case.inputs["audio"][0, :, :1] == audio[0, :, :1]).all()
        assert (related.case.inputs["audio"][1] == audio[1]).all()
        assert (related.case.inputs["ids"][1] == seed.inputs["ids"][1]).all()
        assert not (related.case.inputs["audio"][0, :, 1:] == audio[0, :, 1:]).all()


def test_the_side_that_minds_padding_is_named(tmp_path: Path) -> None:
    # a leak that only loud padding shows, and the seeds are not loud
    context, spec, ran = opened(tmp_path, "padded(1e9, 1e3)")
    assert "padding" in ran.worker._relating.relations
    verdict = told(context, spec, LOUD)
    assert "only ORT answers otherwise when the padding holds other values" in verdict.headline


def test_what_both_sides_mind_alike_is_a_note_and_no_finding(tmp_path: Path) -> None:
    _, _, ran = opened(tmp_path, "padded(1e3, 1e3)")
    relating, run = ran.worker._relating, ran.worker._twin.run
    proposal = Proposal(LOUD, Lineage(), "recipe")
    ran.worker.generator.begin(1)
    for _ in range(20 * 64):
        if relating.has_next:
            made = relating.take()
            assert made.label == ("near" if HISTORY in made.lineage.mutators else "recipe")
            relating.note(made, *run(made.case), is_suspicious=False)
        relating.note(proposal, *run(LOUD), is_suspicious=False)
    notes = [message.text for message in ran.sent.messages if isinstance(message, Noted)]
    assert notes == ["padding changed: output y changes on both sides alike, which is no fault of parity"]


def test_relations_cost_little_and_are_not_used_where_they_do_not_hold(tmp_path: Path) -> None:
    (tmp_path / "right").mkdir()
    ran = opened(tmp_path / "right", "rows(Double(), DOUBLE)")[2]
    names = recorded(ran)
    assert ran.run(1000).bugs == []
    assert 3 <= len(names) <= 1000 / 64
    assert PERMUTED in names
    (tmp_path / "all").mkdir()
    ran = opened(tmp_path / "all", "rows(OfAll(), OF_ALL)")[2]
    assert ran.worker._relating.relations == ()
    assert ran.run(300).bugs == []


KEPT = """
    CALLS = []


    class Tiring(torch.nn.Module):
        def forward(self, x):
            CALLS.append(len(CALLS))
            self.calls = len(CALLS)
            return x * 2 if len(CALLS) < 400 else x * 2.5


    def reset(module):
        RESET
"""


@pytest.mark.parametrize("resets", [True, False])
def test_a_module_that_answers_otherwise_after_many_calls_is_unstable(tmp_path: Path, resets: bool) -> None:
    kept = textwrap.dedent(KEPT).replace("RESET", "CALLS.clear()" if resets else "module.calls = 0")
    ran = opened(tmp_path, "rows(Tiring(), DOUBLE, reset=reset)", kept)[2].run(700)
    unstable = [m for m in ran.sent.messages if isinstance(m, Suspect) and m.verdict.kind is Kind.UNSTABLE]
    notes = [m.text for m in ran.sent.messages if isinstance(m, Noted) and "the first seed" in m.text]
    if resets:
        assert (unstable, notes, ran.bugs) == ([], [], [])
        return
    (suspect,) = unstable
    assert (suspect.verdict.side, suspect.verdict.grade) == (TORCH, Grade.NOTE)
    assert "torch differs from itself on the same input" in suspect.verdict.headline
    assert len(notes) == 1
