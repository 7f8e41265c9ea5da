"""Sentences: what a corpus knows, said in plain words: the four questions first.

The idea: every sentence is made of figures that stand in the database, and says no more than they do; where nothing is
known, that is the answer. The text report and the page say the same.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fuzzparity.contract import Dim, TargetFacts
from fuzzparity.corpus.records import ProbeEntry
from fuzzparity.corpus.telling import Knowledge
from fuzzparity.finding import Finding
from fuzzparity.report.advice import passing_tolerance
from fuzzparity.report.causes import Cause, is_open, split
from fuzzparity.report.cells import milliseconds, shapes_text, size_text
from fuzzparity.verdict import GRADES, Comparison, Evidence, Grade, Kind, Realism, Verdict

QUESTIONS = (
    "Which part is guilty, and where in my code?",
    "Did it really run where I think?",
    "Why is a new shape slow, why does memory not come back?",
    "Is it a bug or just floating point, and which tolerance can I defend?",
)
_TOLD = 4  # causes named in an answer: more belong into the list below it
_PARTS = {
    "capture": "the captured program (the module's own code as export sees it)",
    "export": "the exporter (its translation to ONNX)",
    "onnx_file": "the given ONNX file",
    "optimizer": "ONNX Runtime's graph optimization",
    "kernel": "ONNX Runtime's kernel",
    "torch": "torch",
    "precision": "the working precision",
    "arena": "ONNX Runtime's memory arena",
}
_MOVES = {  # of `Evidence.moves`; DESIGN, "Screen, then judge"
    "one ulp": "inputs change by one ulp",
    "eps of maximum": "each float input gets noise of eps times its maximum",
    "rounded": "every intermediate is rounded at random to the working precision",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """Hold one question with what is known, a sentence or two each."""

    question: str
    sentences: tuple[str, ...]


def answers(known: Knowledge) -> tuple[Answer, ...]:
    """Return the four questions of every reader, answered from the database."""
    causes, _ = split(known.view.findings, known.rechecks)
    told = (guilty(causes), _where(known), _slow(known), _grades(known, causes))
    return tuple(Answer(question, said) for question, said in zip(QUESTIONS, told, strict=True))


def plural(count: int, name: str) -> str:
    """Return "1 cause", "2 causes"."""
    return f"{count:,} {name}{'' if count == 1 else 's'}"


def part_of(blame: str) -> str:
    """Return the part at fault in words: "ONNX Runtime's kernel Resize"."""
    name, _, detail = blame.partition(":")
    return _PARTS.get(name, blame) + (f" {detail}" if detail else "")


def place_text(finding: Finding) -> str:
    """Return where a finding lies, as far as it is known: "LayerNormalization node_x, net.py:12"."""
    op, node, source = finding.place
    return ", ".join(part for part in (" ".join(part for part in (op, node) if part), source) if part)


def guilty(causes: Sequence[Cause]) -> tuple[str, ...]:
    """Return which parts are at fault, by cause; those that nothing is known of are counted."""
    bugs = [cause for cause in causes if cause.leader.verdict.grade is Grade.BUG]
    if not bugs:
        what = (
            f"No bug is open; {plural(len(causes), 'cause')} of another grade below." if causes else "Nothing differs."
        )
        return (what,)
    known = [cause for cause in bugs if cause.leader.verdict.blame not in ("unknown", "none", "")]
    said = []
    for cause in known[:_TOLD]:
        place, attribution = place_text(cause.leader), cause.leader.verdict.attribution
        part = part_of(cause.leader.verdict.blame)
        guess = " (a guess)" if attribution is not None and attribution.is_guess else ""
        where = f", at {place}{guess}" if place else ", the place in your code is not known yet"
        said.append(f"{_subject(cause)}: {part}{where}.")
    if len(known) > _TOLD:
        said.append(f"{plural(len(known) - _TOLD, 'more cause')} with a known part below.")
    if len(known) < len(bugs):
        left = [cause.leader.finding_id for cause in bugs if cause not in known]
        more = ", ..." if len(left) > _TOLD else ""
        said.append(f"Not known yet for {len(left)} of {plural(len(bugs), 'bug')}: {', '.join(left[:_TOLD])}{more}.")
    return tuple(said)


def _subject(cause: Cause) -> str:
    outputs = cause.outputs
    shown = f" in {', '.join(outputs[:3])}{', ...' if len(outputs) > 3 else ''}" if outputs else ""
    return f"{cause.leader.verdict.kind.value.replace('_', ' ')}{shown} ({cause.leader.finding_id})"


def _where(known: Knowledge) -> tuple[str, ...]:
    said = []
    if known.places:
        total = sum(place.executions for place in known.places)
        last = known.places[0]
        if len(known.places) == 1:
            said.append(f"All {total:,} executions ran on {last.line}.")
        else:
            said.append(f"{last.executions:,} of {total:,} executions ran on {last.line}.")
            said.append(f"The others ran in {plural(len(known.places) - 1, 'other environment')}, listed below.")
    if known.facts is not None:
        build = known.facts.build
        made = "was given as an ONNX file" if build.origin == "given" else f"was {build.origin}"
        said.append(f"The twin {made}, opset {build.opset_obtained}, {build.computing_dtype}.")
        said += [f"{note[:1].upper()}{note[1:]}." for note in build.notes if "narrowed" in note or "static" in note][:3]
    splits = sum(item.verdict.kind is Kind.BRANCH_SPLIT for item in known.view.findings)
    if splits:
        said.append(f"{plural(splits, 'finding')} took different branches on the two sides.")
    return tuple(said) or ("No campaign ran yet.",)


def _slow(known: Knowledge) -> tuple[str, ...]:
    timed = [item for item in known.probes if item.ratio is not None and math.isfinite(item.ratio)]
    told = [item for item in known.view.findings if item.verdict.kind in (Kind.SLOW, Kind.LEAK) and is_open(item)]
    said = [f"{item.finding_id}: {item.verdict.headline}." for item in told[:_TOLD]]
    if not timed:
        return (*said, "Latency was not measured yet: `fuzzparity probe TARGET` does it.")
    worst = max(timed, key=_ratio)
    said.append(
        f"ONNX Runtime takes {min(map(_ratio, timed)):.2g} to {_ratio(worst):.2g} times as long as torch "
        f"(medians of {plural(len(timed), 'probed case')}); the most at {shapes_text(worst.shapes)}: "
        f"{milliseconds(worst.ort_p50_seconds)} against {milliseconds(worst.torch_p50_seconds)}."
    )
    resident = [item.rss_bytes for item in known.probes if item.rss_bytes]
    if resident:
        said.append(f"The process that probed both sides held at most {size_text(max(resident))}.")
    if not told:
        said.append("No finding says that a shape is out of proportion or that memory grows.")
    return tuple(said)


def _ratio(item: ProbeEntry) -> float:
    return item.ratio or 0.0


def _grades(known: Knowledge, causes: Sequence[Cause]) -> tuple[str, ...]:
    if not known.view.findings:
        return ("Every judged input agreed.",)
    counts = Counter(cause.leader.verdict.grade for cause in causes)
    told = ", ".join(f"{counts[grade]} {grade.value}" for grade in GRADES if counts[grade])
    waiting = sum(cause.leader.reproduced is None for cause in causes)
    unsure = f", {waiting:,} of them not confirmed yet" if waiting else ""
    said = [f"Open causes by grade: {told}{unsure}." if told else "No finding is open."]
    said += tolerances(cause.leader for cause in causes)
    return tuple(said)


def tolerances(findings: Iterable[Finding]) -> list[str]:
    """Return, for each output, the tolerance that floating point asks for, and what a bug of it would ask for."""
    needed: dict[str, float] = {}
    defended: dict[str, str] = {}
    wrong: dict[str, float] = {}
    for item in findings:
        verdict, comparison = item.verdict, item.verdict.comparison
        if comparison is None or not passing_tolerance(comparison) or not verdict.output:
            continue
        if item.realism is Realism.WILD:  # an advice for data has to come from data
            continue
        if verdict.grade in (Grade.INHERENT, Grade.TIE) and (text := defensible(verdict.evidence)):
            defended.setdefault(verdict.output, text)
        into = needed if verdict.grade in (Grade.INHERENT, Grade.TIE) else wrong if verdict.grade is Grade.BUG else {}
        into[verdict.output] = max(into.get(verdict.output, 0.0), comparison.max_abs)
    said = []
    for name, largest in list(needed.items())[:_TOLD]:
        bug = f"; a bug of it is {_times(wrong[name], largest)}" if name in wrong else ""
        said.append(f"{name}: errors up to {largest:.2g} on the inputs below are explained by rounding{bug}.")
        said += [f"{name}: {defended[name]} can be defended there."] if name in defended else []
    for name, largest in [(name, value) for name, value in wrong.items() if name not in needed][:_TOLD]:
        said.append(f"{name}: the error of {largest:.2g} is beyond rounding; no tolerance should hide it.")
    return said


def defensible(evidence: Evidence | None) -> str:
    """Return the tolerance that evidence defends, "" where it does not say one."""
    if evidence is None:
        return ""
    parts = [] if evidence.defensible_rtol is None else [f"rtol {evidence.defensible_rtol:g}"]
    parts += [] if evidence.defensible_atol is None else [f"atol {evidence.defensible_atol:g}"]
    return " with ".join(parts)


def _times(wrong: float, needed: float) -> str:
    return f"{wrong:.2g}, {times(wrong / needed)} that" if wrong >= needed else f"{wrong:.2g}, on other inputs"


def times(ratio: float) -> str:
    """Return a ratio as "3.2 times", "23,200 times", "1.2e+09 times"."""
    return f"{ratio:.2g} times" if ratio < 100 or ratio >= 1e6 else f"{float(f'{ratio:.3g}'):,.0f} times"


def figures(verdict: Verdict) -> list[str]:
    """Return the figures of a difference with what they mean, a sentence each."""
    found = verdict.comparison
    if found is None:
        return []
    said = []
    if found.detail:
        said.append(f"torch / ONNX Runtime: {found.detail}.")
    if found.index is not None:
        at = f" at {list(found.index)}" if found.index else ""
        said.append(f"Worst element{at}: torch {shown(found.expected_at)}, ONNX Runtime {shown(found.actual_at)}.")
    if found.compared:
        share = 100 * found.differing / found.compared
        said.append(f"{found.differing:,} of {plural(found.compared, 'element')} differ ({share:.3g} %).")
    if verdict.kind is Kind.NUMERIC and math.isfinite(found.max_abs) and found.max_abs > 0:
        said.append(f"The largest error is {found.max_abs:.3g}, {_share(found)} the output's largest value.")
        if math.isfinite(found.error_ratio):
            said.append(f"The error at the worst element is {times(found.error_ratio)} what is allowed there.")
    return said


def _share(found: Comparison) -> str:
    return f"{100 * found.scaled:.3g} % of" if math.isfinite(found.scaled) else "beside zero as"


def shown(value: object) -> str:
    """Return a value of an output in the digits that tell a float32 apart."""
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def evidence_sentences(evidence: Evidence | None) -> list[str]:
    """Return what the evidence says and what follows from it."""
    if evidence is None:
        return ["No arbiter was asked."]
    if evidence.source.startswith("missing"):
        said = [f"The exact answer is {evidence.source}."]
    else:
        said = [f"The exact answer comes from {evidence.source}."]
    if evidence.torch_distance is not None and evidence.ort_distance is not None:
        said.append(
            f"torch is {evidence.torch_distance:.3g} off it, ONNX Runtime {evidence.ort_distance:.3g}, at the worst "
            "element."
        )
    for name, move in evidence.moves.items():
        said.append(f"The exact answer moves by {move:.3g} when {_MOVES.get(name, name)}.")
    if evidence.rounding_bound is not None:
        said.append(f"Roundings in any order add up to {evidence.rounding_bound:.3g} at most there.")
    if evidence.far_sides:
        sides = " and ".join("ONNX Runtime" if side == "ort" else side for side in evidence.far_sides)
        are = "are" if len(evidence.far_sides) > 1 else "is"
        beyond = " (more than 8 times the largest of these moves)" if evidence.moves else ""
        said.append(f"{sides} {are} farther off than rounding explains{beyond}.")
    elif evidence.moves:
        said.append("Neither side is farther off than rounding explains (8 times the largest of these moves).")
    for side, noise in evidence.noise.items():
        name = "ONNX Runtime" if side == "ort" else side
        said.append(f"Two runs of {name} on this input differ by {noise:.3g}." if noise else f"{name} repeats itself.")
    if evidence.tie_distance is not None and math.isfinite(evidence.tie_distance):
        said.append(f"The choice flips at {evidence.tie_distance:.3g} times the change of: {evidence.tie_test}.")
    if evidence.score_gap is not None:
        said.append(f"The scores of the two choices are {evidence.score_gap:.3g} ulp apart.")
    if text := defensible(evidence):
        said.append(f"A tolerance that can be defended here: {text}.")
    return said + ([f"{evidence.note[:1].upper()}{evidence.note[1:]}."] if evidence.note else [])


def dim_text(dim: Dim) -> str:
    """Return what the contract says of a dynamic dim: "0 or more", "32 to 640 by 32"."""
    high = f"{dim.low:,} or more" if dim.high is None else f"{dim.low:,} to {dim.high:,}"
    return high + (f", multiples of {dim.multiple_of}" if dim.multiple_of > 1 else "")


def title_of(known: Knowledge) -> str:
    """Return the target's name."""
    return (known.facts.name if known.facts else "") or ", ".join(known.view.statistics.targets) or "target"


def confirmed_text(shown_runs: int, tries: int, finding: Finding) -> str:
    """Return whether a finding came back in fresh sessions."""
    if finding.reproduced is None:
        return "not tried in a fresh session yet"
    if not tries:
        return "comes back in a fresh session" if finding.reproduced else "did not come back in a fresh session"
    return f"{shown_runs} of {plural(tries, 'run')} in fresh sessions showed it"


def facts_of(facts: TargetFacts) -> list[tuple[str, str]]:
    """Return build and environment, name and value."""
    build, env = facts.build, facts.environment
    packages = ", ".join(f"{name} {version}" for name, version in env.packages.items())
    return [
        ("target", f"{facts.name} ({facts.spec})" if facts.spec != facts.name else facts.name),
        ("build", f"{build.digest[:12]}, {build.origin}"),
        ("graph", f"{build.nodes:,} nodes, opset {build.opset_obtained}, {size_text(build.onnx_bytes)} of ONNX"),
        ("computing dtype", build.computing_dtype),
        ("torch ran on", f"{env.torch_device}, {env.torch_precision}, {plural(env.torch_threads, 'thread')}"),
        (
            "ONNX Runtime ran on",
            f"{', '.join(env.ort_providers)}, optimization level {env.ort_level}, {plural(env.ort_threads, 'thread')}",
        ),
        ("settings", ", ".join(f"{key}={value}" for key, value in env.ort_config.items())),
        ("disabled optimizers", ", ".join(facts.ort.disabled_optimizers)),
        ("packages", packages),
        ("machine", f"{env.cpu}, {env.platform}, Python {env.python}"),
    ]
