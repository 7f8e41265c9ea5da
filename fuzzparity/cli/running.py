"""Commands that open a target: fuzz, explain, check, replay, import, probe."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from fuzzparity.cli.base import (
    cli,
    command_line,
    common_options,
    example,
    existing,
    json_option,
    live_for,
    path_text,
    plain,
    show,
    target_of,
    target_options,
    write_json,
)
from fuzzparity.errors import InvalidUsage
from fuzzparity.work.ahead import start_ahead


@cli.command(epilog=example("fuzzparity fuzz corpora/digits --time 10m --workers 2"))
@target_options
@click.option(
    "--time", "time_text", metavar="DURATION", help="Fuzzing time, e.g. 90s, 10m, 1h30m; then 30 s to finish."
)
@click.option("--cases", type=click.IntRange(1), metavar="N", help="Number of torch+ORT executions instead of a time.")
@click.option("--workers", type=click.IntRange(1, 256), help="Worker processes; default: half the cores, at least 1.")
@click.option("--rng-seed", type=int, default=0, show_default=True, help="Seed of all chance.")
@click.option(
    "--fail-on",
    default="bug",
    show_default=True,
    metavar="RULES",
    help="What makes exit code 1: grade[:realism] or kind, comma separated; or never.",
)
@click.option(
    "--engine",
    type=click.Choice(["own", "atheris"]),
    default="own",
    show_default=True,
    help="Who chooses what to prolong: atheris is libFuzzer's loop, guided by the branches of the model's Python code.",
)
@click.option("--fresh", is_flag=True, help="Start a new corpus; the old one is moved aside.")
@click.option("--force", is_flag=True, help="Go on although every seed differs.")
@json_option
def fuzz(time_text: str | None, workers: int | None, fail_on: str, json_to: str | None, **given: Any) -> None:
    """Run a campaign: mutate inputs, run torch and ORT side by side, keep and minimize what differs.

    The same command again resumes. Ctrl-C stops cleanly and keeps everything.

    """
    start_ahead()
    from fuzzparity.campaign.builds import run_builds
    from fuzzparity.campaign.options import FuzzOptions, parse_fail_on, parse_seconds, require_engine
    from fuzzparity.report.builds import builds_object, builds_text
    from fuzzparity.report.text import result_object, summary

    debug = given["debug"]
    require_engine(given["engine"])
    target = target_of(given)
    seconds = parse_seconds(time_text) if time_text else None
    if seconds is None and given["cases"] is None and not sys.stdout.isatty():
        raise InvalidUsage("without a terminal a campaign needs --time or --cases")
    options = FuzzOptions(
        target,
        seconds=seconds,
        workers=workers or max(1, (os.cpu_count() or 2) // 2),
        fail_on=parse_fail_on(fail_on),
        command=command_line(),
        **given,
    )
    with live_for(json_to) as live:
        result, runs = run_builds(options, live)
    if json_to:
        write_json(json_to, result_object(result) | {"builds": builds_object(runs)})
    live.print(summary(result, debug=debug))
    if len(runs) > 1:
        live.print(builds_text(runs))
    sys.exit(result.exit_code)


@cli.command(
    epilog=example(
        "fuzzparity explain corpora/digits bad_batch.npz            # run it on both sides: verdict, evidence, blame",
        "fuzzparity explain corpora/digits photos/                  # a folder: a table",
        "fuzzparity explain numeric-1a2b3c4d                        # a stored finding, by id or the start of it",
        "fuzzparity explain numeric-1a2b --policy logits=1e-3       # the same, had 1e-3 been allowed; runs nothing",
        "fuzzparity explain digits --policy logits                  # every finding under the policy 'logits'",
        "fuzzparity explain digits --policy 'boxes[..., :4]=boxes_pixels' --policy scores=rtol:1e-3,atol:1e-4",
    )
)
@click.argument("what", nargs=-1, required=True, metavar="TARGET INPUTS...|ID|CORPUS")
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="[OUTPUT=]POLICY",
    help="Judge under this instead of the target's tolerances: a named policy, an atol, or rtol:R,atol:A; repeatable.",
)
@common_options
@json_option
def explain(what: tuple[str, ...], policies: tuple[str, ...], json_to: str | None, **given: Any) -> None:
    """Say what differs on given inputs (files or folders), or tell all that is known of a stored finding.

    Nothing is mutated: each input runs on both sides, is judged with evidence, and minimized when the sides differ. A
    folder, or many inputs, become a table: outcomes, error ratios by output, the worst files by name.

    With --policy, what is stored (a finding, or all of a target's) is judged again by its recorded outputs, without
    running anything. Exit code 1: a bug is left that is not known.
    """
    if len(what) > 1 or given["torch_file"]:
        start_ahead()
    from fuzzparity.campaign.policies import parse_policies
    from fuzzparity.commands import database, running
    from fuzzparity.report import text, validation
    from fuzzparity.report.known import standings_text
    from fuzzparity.report.layout import pairs

    if len(what) == 1 and not given["torch_file"]:
        name = database.named_finding(what[0], path_text(given["corpus"]), or_corpus=bool(policies))
        if policies:
            sys.exit(_rejudge(name, policies, json_to, path_text(given["corpus"]), given["known"]))
        path, payload = database.finding_payload(name, path_text(given["corpus"]), given["known"])
        if json_to:
            return write_json(json_to, text.payload_object(payload))
        return show(text.payload_text(payload, path))
    options = replace(
        target_of({"target": "" if given["torch_file"] else what[0], **given}),
        tolerances=parse_policies(policies) if policies else None,
    )
    paths = existing(what if given["torch_file"] else what[1:])
    with live_for(json_to) as live:
        result, explained, table = running.explain(options, paths, live, command_line())
    if json_to:
        whole = validation.explained_table_object(result, table) if table else None
        write_json(json_to, whole or text.explained_object(result, explained))
    if table is not None:
        live.print(validation.validation_text(table))
        live.print(validation.ranges_text(table.ranges))
        live.print(text.summary(result, debug=options.debug))
    else:
        live.print(text.explained_text(explained, result.facts.outputs))
        if result.known:
            live.print(standings_text(result.known))
        if options.tolerances is None:
            live.print(pairs(text.replays(result.findings)))
        elif result.findings:  # stored apart: the usual places know nothing of it, or another verdict
            show_it = f"fuzzparity finding show {result.findings[0].finding_id} --corpus {result.corpus_path}"
            live.print(pairs([("all of it", show_it)]))
    sys.exit(result.exit_code)


def _rejudge(what: str, texts: tuple[str, ...], json_to: str | None, corpus: str | None, known: tuple[str, ...]) -> int:
    """Show what is stored under another policy, and return the exit code."""
    from fuzzparity.campaign.policies import parse_policies
    from fuzzparity.commands.rejudging import rejudge_stored
    from fuzzparity.report.rejudged import rejudged_object, rejudged_text

    chosen = parse_policies(texts)
    path, found, is_one = rejudge_stored(what, chosen, corpus, known)
    code = int(any(item.is_bug for item in found))
    if json_to:
        write_json(json_to, rejudged_object(found, chosen, path, code))
    else:
        show(rejudged_text(found, chosen, path, is_one=is_one))
    return code


@cli.command(
    epilog=example("fuzzparity check my_target.py", "fuzzparity check my_target.py --all-seeds --seeds photos/")
)
@target_options
@click.option("--all-seeds", is_flag=True, help="Run all of the data, --seeds included, and show a table of outcomes.")
@json_option
def check(all_seeds: bool, json_to: str | None, **given: Any) -> None:
    """Load, export and run the seeds on both sides, and show the contract as understood; takes seconds."""
    start_ahead()
    from fuzzparity.commands import running
    from fuzzparity.report import answers, text, validation
    from fuzzparity.report.builds import checked_object, checked_text
    from fuzzparity.report.understood import understood_object, understood_text

    options = target_of(given)
    with live_for(json_to) as live:
        prepared, seen, table = running.check_all(options, live) if all_seeds else (*running.check(options, live), None)
        others = running.check_builds(options, prepared.loaded.builds, live)
    if json_to:
        told = text.check_object(prepared.facts, prepared.notes, prepared.suspects, prepared.tried)
        told["contract"]["understood"] = understood_object(prepared.understood)
        told["ranges"] = plain(prepared.ranges)
        told |= answers.seen_object(seen)
        if table is not None:
            told |= {"validation": validation.validation_object(table), "inputs": validation.rows_object(table)}
        told["builds"] = [checked_object(other) for other in others]
        write_json(json_to, told)
    shown = (prepared.facts, prepared.notes, prepared.suspects, prepared.tried, seen.findings)
    live.print(text.check_text(*shown, differing=table.beyond if table is not None else None))
    live.print(understood_text(prepared.understood))
    live.print(validation.ranges_text(prepared.ranges))
    if table is not None:
        live.print(validation.validation_text(table))
    live.print(answers.seen_text(seen))
    for other in others:
        live.print(checked_text(other))
    if table is not None and table.stopped:
        sys.exit(130)
    sys.exit(1 if any(found.has_bug for found in (running.Checked(prepared, seen=seen), *others)) else 0)


@cli.command(
    epilog=example(
        "fuzzparity replay crashes/numeric-1a2b3c4d",
        "fuzzparity replay numeric-1a2b --current",
        "fuzzparity replay --all",
    )
)
@click.argument("what", nargs=-1, metavar="PATH|ID...")
@click.option("--all", "is_all", is_flag=True, help="Every reproducer under --crashes.")
@click.option(
    "--current", is_flag=False, flag_value="", default=None, metavar="[TARGET]", help="Both sides of today's code."
)
@common_options
@json_option
def replay(what: tuple[str, ...], is_all: bool, current: str | None, json_to: str | None, **given: Any) -> None:
    """Replay reproducers: recorded inputs and torch outputs against ORT on the folder's own model.

    A folder is data: its Python is never run. Exit code 1: shows, 0: gone, 125: cannot be judged here.

    """
    from fuzzparity.commands import database, running
    from fuzzparity.commands.knowing import replayed
    from fuzzparity.commands.replay import replay_all, replay_each
    from fuzzparity.report import text
    from fuzzparity.report.answers import replay_object
    from fuzzparity.report.known import known_mark, known_object, standings_text

    if current is not None:
        if len(what) != 1:
            raise InvalidUsage(f"--current replays one finding by its id; {len(what)} were given")
        path, payload = database.finding_payload(what[0], path_text(given["corpus"]), given["known"])
        spec = current or (payload.facts.spec if payload.facts else "")
        with live_for(json_to) as live:
            options = target_of({"target": spec, **given})
            shows, examined, told = running.replay_current(options, payload, path, live)
        if json_to:
            write_json(json_to, text.examined_object(payload, examined, shows) | {"known_issues": known_object(told)})
        live.print(text.examined_text(payload, examined, shows))
        if told:
            live.print(standings_text(told))
        sys.exit(1 if shows else 0)
    if not what and not is_all:
        raise InvalidUsage("nothing to replay: name a reproducer's folder or a finding's id, or give --all")
    crashes = given["crashes"] or Path("crashes")
    outcomes = list(replay_all(crashes)) if is_all else []
    outcomes += list(replay_each(what, crashes, path_text(given["corpus"])))
    findings, told = replayed(outcomes, given["known"])
    if json_to:
        write_json(json_to, [replay_object(outcome, found) for outcome, found in zip(outcomes, findings, strict=True)])
    else:
        for outcome, found in zip(outcomes, findings, strict=True):
            show(text.replay_text(outcome, known_mark(found) if found is not None else ""))
        if told:
            show(standings_text(told))
    # one that was named is answered for, known or not; among all of them the known ones do not count
    counted = [
        outcome.exit_code
        for outcome, found in zip(outcomes, findings, strict=True)
        if not (is_all and found is not None and found.is_silent and outcome.exit_code == 1)
    ]
    sys.exit(max(counted, default=0))


@cli.command("import", epilog=example("fuzzparity import corpora/digits validation/ --limit 500"))
@click.argument("paths", nargs=-1, required=True, metavar="TARGET PATH...")
@click.option(
    "--limit", type=click.IntRange(1), metavar="N", help="Keep at most N, as different from each other as possible."
)
@common_options
@json_option
def import_(paths: tuple[str, ...], limit: int | None, json_to: str | None, **given: Any) -> None:
    """Read validation data into a target's corpus; campaigns start from it.

    Arrays (.npy .npz .safetensors .pt), ONNX test-data folders, whatever the target's read takes; pictures and .wav
    where the first seed makes layout and range plain.
    """
    start_ahead()
    from fuzzparity.commands import running
    from fuzzparity.report import validation

    if not given["torch_file"] and len(paths) < 2:
        raise InvalidUsage("give the target and at least one file or folder: fuzzparity import TARGET PATH...")
    options = target_of({"target": "" if given["torch_file"] else paths[0], **given})
    data = existing(paths if given["torch_file"] else paths[1:])
    with live_for(json_to) as live:
        imported = running.import_data(options, data, limit, live)
    if json_to:
        write_json(json_to, plain(imported))
    live.print(validation.imported_text(imported))
    sys.exit(130 if imported.stopped else 0)


@cli.command(epilog=example("fuzzparity probe corpora/digits --rounds 200"))
@target_options
@click.option("--cases", type=click.IntRange(1), default=4, show_default=True, help="Kept cases to time.")
@click.option("--rounds", type=click.IntRange(1), default=50, show_default=True, help="Runs of each on each side.")
@json_option
def probe(cases: int, rounds: int, json_to: str | None, **given: Any) -> None:
    """Time both sides on a few kept cases: P50, P90, P99, ratio and memory."""
    start_ahead()
    from fuzzparity.commands import running
    from fuzzparity.report import text

    with live_for(json_to) as live:
        rows = running.probe(target_of(given), live, cases=cases, rounds=rounds)
    if json_to:
        write_json(json_to, plain(rows))
    live.print(text.probe_text(rows))
