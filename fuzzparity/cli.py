"""Command line: arguments in, records out to `report`, exit codes.

The idea: nothing heavy is imported before a command is chosen, and torch and ORT never in this process; a command's
body lives in `campaign/` or `commands/`, its words in `report/`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from fuzzparity import __version__
from fuzzparity.errors import FuzzparityError, InvalidTarget, InvalidUsage

if TYPE_CHECKING:
    from fuzzparity.campaign.options import TargetOptions
    from fuzzparity.report.live import Live

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
_INTERNAL_FAULT = 3


def _example(*lines: str) -> str:
    """Return the example that ends a command's help; click keeps lines after a backspace mark as they are."""
    return "\b\nExample:\n" + "\n".join(f"  {line}" for line in lines)


class _Commands(click.Group):
    """List commands in the order of their use, not of the alphabet."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(
    cls=_Commands,
    context_settings=_CONTEXT,
    epilog=_example(
        "fuzzparity fuzz corpora/digits --time 2m",
        "fuzzparity finding ls digits",
        "fuzzparity replay crashes/numeric-1a2b3c4d",
    ),
)
@click.version_option(__version__, prog_name="fuzzparity")
def cli() -> None:
    """Fuzz the parity of a PyTorch model and its ONNX Runtime twin."""


def _common(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of every command that opens a target."""
    for option in reversed(
        (
            click.option(
                "--torch", "torch_file", metavar="FILE", help="A .pt2 or TorchScript program, instead of TARGET."
            ),
            click.option("--onnx", metavar="FILE", help="The ONNX twin, instead of exporting."),
            click.option(
                "--seeds", multiple=True, metavar="PATH", help="Real inputs: .npz, .safetensors, .npy or a folder."
            ),
            click.option(
                "--provider",
                "providers",
                multiple=True,
                metavar="NAME",
                help="ORT execution provider; repeat in order.",
            ),
            click.option(
                "--provider-option",
                "provider_options",
                multiple=True,
                metavar="EP.KEY=VALUE",
                help="Option of a provider.",
            ),
            click.option("--device", default="cpu", show_default=True, help="Where both sides run: cpu or cuda:N."),
            click.option("--corpus", type=click.Path(path_type=Path), metavar="FILE", help="The corpus database."),
            click.option("--crashes", type=click.Path(path_type=Path), metavar="DIR", help="Where reproducers go."),
            click.option("--debug", is_flag=True, help="Show tracebacks and the log of the target's process."),
        )
    ):
        command = option(command)
    return command


def target_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add TARGET and the options that go with it."""
    return click.argument("target", required=False, default="")(_common(command))


_json_option = click.option(
    "--json", "json_to", metavar="FILE|-", help="Write one JSON object; with - progress goes to stderr."
)


def _target(given: dict[str, Any]) -> TargetOptions:
    from fuzzparity.campaign.options import TargetOptions

    names = "target onnx torch_file seeds providers provider_options device corpus crashes debug".split()  # noqa: SIM905
    options = TargetOptions(**{name: given.pop(name) for name in names})
    if not options.target and not options.torch_file:
        raise InvalidUsage(
            "no target was given: name a folder, a file.py[:name] or module:name, or use --torch and --onnx"
        )
    if options.target and options.torch_file:
        raise InvalidUsage(f"both a target ({options.target}) and --torch {options.torch_file} were given; give one")
    return options


@cli.command(epilog=_example("fuzzparity fuzz corpora/digits --time 10m --workers 2"))
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
@click.option("--fresh", is_flag=True, help="Start a new corpus; the old one is moved aside.")
@click.option("--force", is_flag=True, help="Go on although every seed differs.")
@_json_option
def fuzz(time_text: str | None, workers: int | None, fail_on: str, json_to: str | None, **given: Any) -> None:
    """Run a campaign: mutate inputs, run torch and ORT side by side, keep and minimize what differs.

    The same command again resumes. Ctrl-C stops cleanly and keeps everything.

    """
    from fuzzparity.campaign.loop import Campaign
    from fuzzparity.campaign.options import FuzzOptions, parse_fail_on, parse_seconds
    from fuzzparity.report.text import result_object, summary

    debug = given["debug"]
    target = _target(given)
    seconds = parse_seconds(time_text) if time_text else None
    if seconds is None and given["cases"] is None and not sys.stdout.isatty():
        raise InvalidUsage("without a terminal a campaign needs --time or --cases")
    options = FuzzOptions(
        target,
        seconds=seconds,
        workers=workers or max(1, (os.cpu_count() or 2) // 2),
        fail_on=parse_fail_on(fail_on),
        command=_command(),
        **given,
    )
    with _live(json_to) as live:
        result = Campaign(options, live).run()
    if json_to:
        _write_json(json_to, result_object(result))
    live.print(summary(result, debug=debug))
    sys.exit(result.exit_code)


def _write_json(where: str, value: Any) -> None:
    text = json.dumps(value, indent=2, allow_nan=False)
    if where == "-":
        print(text, flush=True)
        return
    try:
        Path(where).write_text(text + "\n")
    except OSError as error:
        raise InvalidUsage(f"--json {where} cannot be written: {error.strerror}") from error


@cli.command(epilog=_example("fuzzparity explain corpora/digits bad_batch.npz", "fuzzparity explain numeric-1a2b3c4d"))
@click.argument("what", nargs=-1, required=True, metavar="TARGET INPUTS...|ID")
@_common
@_json_option
def explain(what: tuple[str, ...], json_to: str | None, **given: Any) -> None:
    """Say what differs on given inputs (files or folders), or tell all that is known of a stored finding.

    Nothing is mutated: each input runs on both sides, is judged with evidence, and minimized when the sides differ.
    """
    from fuzzparity.commands import database, running
    from fuzzparity.report import text

    if len(what) == 1 and not given["torch_file"]:
        path, payload = database.finding_payload(what[0], _text(given["corpus"]))
        if json_to:
            return _write_json(json_to, text.payload_object(payload))
        return _show(text.payload_text(payload, path))
    options = _target({"target": "" if given["torch_file"] else what[0], **given})
    paths = what if given["torch_file"] else what[1:]
    with _live(json_to) as live:
        explained = running.explain(options, paths, live, _command())
    if json_to:
        _write_json(json_to, text.explained_object(explained))
    live.print(text.explained_text(explained))
    sys.exit(1 if any(f.verdict.grade.value == "bug" for e in explained for f in e.findings) else 0)


@cli.command(epilog=_example("fuzzparity check my_target.py"))
@target_options
@_json_option
def check(json_to: str | None, **given: Any) -> None:
    """Load, export and run the seeds on both sides, and show the contract as understood; takes seconds."""
    from fuzzparity.commands import running
    from fuzzparity.report import text

    with _live(json_to) as live:
        prepared = running.check(_target(given), live)
    if json_to:
        _write_json(json_to, text.check_object(prepared.facts, prepared.notes, prepared.suspects, prepared.tried))
    live.print(text.check_text(prepared.facts, prepared.notes, prepared.suspects, prepared.tried))
    sys.exit(1 if any(suspect.verdict.grade.value == "bug" for suspect in prepared.suspects) else 0)


@cli.command(
    epilog=_example(
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
@_common
@_json_option
def replay(what: tuple[str, ...], is_all: bool, current: str | None, json_to: str | None, **given: Any) -> None:
    """Replay reproducers: recorded inputs and torch outputs against ORT on the folder's own model.

    A folder is data: its Python is never run. Exit code 1: shows, 0: gone, 125: cannot be judged here.

    """
    from fuzzparity.commands import database, running
    from fuzzparity.commands.replay import replay_all, replay_each
    from fuzzparity.report import text

    if current is not None:
        if len(what) != 1:
            raise InvalidUsage(f"--current replays one finding by its id; {len(what)} were given")
        payload = database.finding_payload(what[0], _text(given["corpus"]))[1]
        spec = current or (payload.facts.spec if payload.facts else "")
        with _live(json_to) as live:
            shows, examined = running.replay_current(_target({"target": spec, **given}), payload, live)
        if json_to:
            _write_json(json_to, text.examined_object(payload, examined, shows))
        live.print(text.examined_text(payload, examined, shows))
        sys.exit(1 if shows else 0)
    if not what and not is_all:
        raise InvalidUsage("nothing to replay: name a reproducer's folder or a finding's id, or give --all")
    crashes = given["crashes"] or Path("crashes")
    outcomes = list(replay_all(crashes)) if is_all else []
    outcomes += list(replay_each(what, crashes, _text(given["corpus"])))
    if json_to:
        _write_json(json_to, [{"finding_id": o.finding_id, "state": o.state.value, "text": o.text} for o in outcomes])
    else:
        for outcome in outcomes:
            _show(text.replay_text(outcome))
    sys.exit(max((outcome.exit_code for outcome in outcomes), default=0))


@cli.command("import", epilog=_example("fuzzparity import corpora/digits validation/ --limit 500"))
@click.argument("paths", nargs=-1, required=True, metavar="TARGET PATH...")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Keep at most N, spread over sizes.")
@_common
@_json_option
def import_(paths: tuple[str, ...], limit: int | None, json_to: str | None, **given: Any) -> None:
    """Read validation data into a target's corpus; campaigns start from it."""
    from fuzzparity.commands import running
    from fuzzparity.report import text

    if not given["torch_file"] and len(paths) < 2:
        raise InvalidUsage("give the target and at least one file or folder: fuzzparity import TARGET PATH...")
    options = _target({"target": "" if given["torch_file"] else paths[0], **given})
    with _live(json_to) as live:
        imported = running.import_data(options, paths if given["torch_file"] else paths[1:], limit, live)
    if json_to:
        _write_json(json_to, _plain(imported))
    live.print(text.imported_text(imported))


@cli.group(cls=_Commands, epilog=_example("fuzzparity finding ls digits"))
def finding() -> None:
    """Look at findings, and say what you know of them."""


@finding.command("ls", epilog=_example("fuzzparity finding ls digits --grade bug"))
@click.argument("corpus", required=False)
@click.option("--kind", default="", help="Only this kind.")
@click.option("--grade", default="", help="Only this grade.")
@_json_option
def finding_ls(corpus: str | None, kind: str, grade: str, json_to: str | None) -> None:
    """List findings, of one corpus or of all below this directory."""
    from fuzzparity.commands import database
    from fuzzparity.report import tables

    found = database.findings(corpus, kind=kind, grade=grade)
    _output(json_to, lambda: tables.findings_object(found), lambda: tables.findings_table(found))


@finding.command("show", epilog=_example("fuzzparity finding show numeric-1a2b"))
@click.argument("finding_id", metavar="ID")
@click.option("--corpus", help="The corpus, when the id alone is not enough.")
@_json_option
def finding_show(finding_id: str, corpus: str | None, json_to: str | None) -> None:
    """Show everything known of one finding."""
    from fuzzparity.commands import database
    from fuzzparity.report import tables

    path, payload = database.finding_payload(finding_id, corpus)
    _output(json_to, lambda: tables.payload_object(payload), lambda: tables.payload_view(payload, path))


@finding.command("ignore", epilog=_example("fuzzparity finding ignore numeric-1a2b"))
@click.argument("finding_id", metavar="ID")
@click.option("--corpus", help="The corpus, when the id alone is not enough.")
@click.option("--undo", is_flag=True, help="Tell of it again.")
def finding_ignore(finding_id: str, corpus: str | None, undo: bool) -> None:
    """Keep a finding from failing campaigns."""
    from fuzzparity.commands import database

    found = database.ignore_finding(finding_id, corpus, is_ignored=not undo)
    print(f"{found.finding_id} is {'told of again' if undo else 'ignored'}")


@finding.command("note", epilog=_example("fuzzparity finding note numeric-1a2b 'known, waits for onnxruntime 1.33'"))
@click.argument("finding_id", metavar="ID")
@click.argument("note")
@click.option("--corpus", help="The corpus, when the id alone is not enough.")
def finding_note(finding_id: str, note: str, corpus: str | None) -> None:
    """Write a note on a finding."""
    from fuzzparity.commands import database

    print(f"noted on {database.note_finding(finding_id, note, corpus).finding_id}")


@cli.group(cls=_Commands, epilog=_example("fuzzparity corpus show digits"))
def corpus() -> None:
    """Look at, check and tidy corpus databases."""


@corpus.command("ls", epilog=_example("fuzzparity corpus ls"))
@click.argument("corpus", required=False)
@_json_option
def corpus_ls(corpus: str | None, json_to: str | None) -> None:
    """List corpora below this directory with what they hold."""
    from fuzzparity.commands import database
    from fuzzparity.report import tables

    found = database.corpus_list(corpus)
    _output(json_to, lambda: _plain(found), lambda: tables.corpora_table(found))


@corpus.command("show", epilog=_example("fuzzparity corpus show digits 3f2a"))
@click.argument("corpus")
@click.argument("digest", required=False, metavar="[CASE]")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Cases to list.")
@_json_option
def corpus_show(corpus: str, digest: str | None, limit: int, json_to: str | None) -> None:
    """Show one corpus, or one case of it by the start of its digest."""
    from fuzzparity.commands import database
    from fuzzparity.report import tables

    if digest:
        case = database.case_show(corpus, digest)
        _output(json_to, lambda: tables.case_object(case), lambda: tables.case_view(case))
    else:
        view = database.corpus_show(corpus, limit=limit)
        _output(json_to, lambda: _plain(view), lambda: tables.corpus_view(view))


@corpus.command("min", epilog=_example("fuzzparity corpus min digits"))
@click.argument("corpus")
def corpus_min(corpus: str) -> None:
    """Keep the seeds and the smallest case of each feature in the pool; nothing is deleted."""
    from fuzzparity.commands import database

    before, after = database.corpus_min(corpus)
    print(f"{before} cases in the pool before, {after} now")


@corpus.command("merge", epilog=_example("fuzzparity corpus merge digits colleague/corpus.sqlite"))
@click.argument("corpus")
@click.argument("others", nargs=-1, required=True, metavar="OTHER...")
def corpus_merge(corpus: str, others: tuple[str, ...]) -> None:
    """Take the cases of other corpora into one; each is verified first."""
    from fuzzparity.commands import database

    merged = database.corpus_merge(corpus, list(others))
    print(f"{merged.added} cases added, {merged.known} were known")
    for problem in merged.problems:
        print(f"refused: {problem}", file=sys.stderr)
    sys.exit(1 if merged.problems else 0)


@corpus.command("verify", epilog=_example("fuzzparity corpus verify digits"))
@click.argument("corpus")
def corpus_verify(corpus: str) -> None:
    """Check every row and every blob's sha256."""
    from fuzzparity.commands import database

    problems = database.corpus_verify(corpus)
    for problem in problems:
        print(problem)
    print("sound" if not problems else f"{len(problems)} problems")
    sys.exit(1 if problems else 0)


@corpus.command("export", epilog=_example("fuzzparity corpus export numeric-1a2b --crashes /tmp/out"))
@click.argument("finding_id", metavar="ID")
@click.option("--corpus", help="The corpus, when the id alone is not enough.")
@click.option("--crashes", type=click.Path(path_type=Path), default=Path("crashes"), show_default=True)
def corpus_export(finding_id: str, corpus: str | None, crashes: Path) -> None:
    """Write a finding's reproducer folder again, from the database alone."""
    from fuzzparity.commands import database
    from fuzzparity.report.reproducer import content_of_payload, write_reproducer

    _, payload = database.finding_payload(finding_id, corpus)
    print(write_reproducer(crashes, content_of_payload(payload)))


@corpus.command("snapshot", epilog=_example("fuzzparity corpus snapshot digits backup.sqlite"))
@click.argument("corpus")
@click.argument("destination", type=click.Path(path_type=Path))
def corpus_snapshot(corpus: str, destination: Path) -> None:
    """Copy a corpus as it is now, also beside a running campaign."""
    from fuzzparity.commands import database

    print(database.corpus_snapshot(corpus, destination))


@cli.command(epilog=_example("fuzzparity probe corpora/digits --rounds 200"))
@target_options
@click.option("--cases", type=click.IntRange(1), default=4, show_default=True, help="Kept cases to time.")
@click.option("--rounds", type=click.IntRange(1), default=50, show_default=True, help="Runs of each on each side.")
@_json_option
def probe(cases: int, rounds: int, json_to: str | None, **given: Any) -> None:
    """Time both sides on a few kept cases: P50, P90, P99, ratio and memory."""
    from fuzzparity.commands import running
    from fuzzparity.report import text

    with _live(json_to) as live:
        rows = running.probe(_target(given), live, cases=cases, rounds=rounds)
    if json_to:
        _write_json(json_to, _plain(rows))
    live.print(text.probe_text(rows))


@cli.command(epilog=_example("fuzzparity report digits"))
@click.argument("target")
@_json_option
def report(target: str, json_to: str | None) -> None:
    """Tell what is known of a target: findings, coverage of shapes, environment, probe figures."""
    from fuzzparity.commands import database
    from fuzzparity.report import tables

    view = database.corpus_show(target, limit=1)
    history = database.probe_history(target, 8)
    _output(
        json_to,
        lambda: {**_plain(view), "probes": _plain(history)},
        lambda: tables.report_view(view, history),
    )


@cli.command(epilog=_example("fuzzparity status digits"))
@click.argument("target", required=False)
@_json_option
def status(target: str | None, json_to: str | None) -> None:
    """Show the running campaign, or how the last one ended."""
    from fuzzparity.commands import database
    from fuzzparity.report import tables

    views = database.status(target)
    _output(json_to, lambda: _plain(views), lambda: tables.status_view(views))


@cli.command(epilog=_example("fuzzparity init --onnx model.onnx --output my_target.py"))
@click.option("--onnx", required=True, metavar="FILE", help="The ONNX model.")
@click.option("--torch", "torch_file", metavar="FILE", help="The .pt2 or TorchScript program it was made from.")
@click.option("--output", type=click.Path(path_type=Path), default=Path("target.py"), show_default=True)
def init(onnx: str, torch_file: str | None, output: Path) -> None:
    """Write a first target.py to fill in, from an ONNX model's inputs."""
    from fuzzparity.commands.init import write_target

    written = write_target(Path(onnx), Path(torch_file) if torch_file else None, output)
    print(f"wrote {written}: fill it in, then run `fuzzparity check {written}`")


def _text(path: Path | None) -> str | None:
    return str(path) if path is not None else None


def _command() -> str:
    return " ".join(sys.argv[1:])


def _plain(value: Any) -> Any:
    from fuzzparity.verdict import as_plain

    return as_plain(value)


def _live(json_to: str | None) -> Live:
    from fuzzparity.report.live import Live

    return Live(to_stderr=json_to == "-")


def _show(renderable: Any) -> None:
    from fuzzparity.report.live import console

    console().print(renderable)


def _output(json_to: str | None, value: Callable[[], Any], renderable: Callable[[], Any]) -> None:
    """Write JSON where it is asked for, else show."""
    if json_to:
        _write_json(json_to, value())
    else:
        _show(renderable())


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line; every error of ours is one clear message and its exit code."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `fuzzparity ... | head` ends quietly
    debug = "--debug" in (arguments if arguments is not None else sys.argv)
    try:
        cli.main(args=arguments, prog_name="fuzzparity", standalone_mode=False)
        code = 0
    except click.exceptions.Exit as exit_:
        code = exit_.exit_code
    except click.ClickException as error:
        error.show()
        code = 2
    except (click.Abort, KeyboardInterrupt):
        print("stopped", file=sys.stderr)
        code = 130
    except FuzzparityError as error:
        print(f"fuzzparity: {error}", file=sys.stderr)
        if debug and isinstance(error, InvalidTarget) and error.detail:
            print(error.detail, file=sys.stderr)
        code = error.exit_code
    except Exception as error:
        if debug:
            raise
        print(f"fuzzparity: internal fault: {type(error).__name__}: {error} (--debug shows more)", file=sys.stderr)
        code = _INTERNAL_FAULT
    sys.exit(code)
