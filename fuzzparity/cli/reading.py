"""Commands that only read a corpus, or write what the user says of it; none of them imports a target."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from fuzzparity.cli.base import Commands, cli, example, json_option, known_option, output, plain, show


@cli.group(cls=Commands, epilog=example("fuzzparity finding ls digits"))
def finding() -> None:
    """Look at findings, and say what you know of them."""


@finding.command("ls", epilog=example("fuzzparity finding ls digits --grade bug"))
@click.argument("corpus", required=False)
@click.option("--kind", default="", help="Only this kind.")
@click.option("--grade", default="", help="Only this grade.")
@known_option
@json_option
def finding_ls(corpus: str | None, kind: str, grade: str, known: tuple[str, ...], json_to: str | None) -> None:
    """List findings, of one corpus or of all below this directory."""
    from fuzzparity.commands import database
    from fuzzparity.report import tables

    found = database.findings(corpus, kind=kind, grade=grade, known=known)
    told = database.standings(corpus, known)
    output(json_to, lambda: tables.findings_object(found), lambda: tables.findings_table(found, told))


@finding.command("show", epilog=example("fuzzparity finding show numeric-1a2b"))
@click.argument("finding_id", metavar="ID")
@click.option("--corpus", help="The corpus, when the id alone is not enough.")
@known_option
@json_option
def finding_show(finding_id: str, corpus: str | None, known: tuple[str, ...], json_to: str | None) -> None:
    """Show everything known of one finding."""
    from fuzzparity.commands import database
    from fuzzparity.report import tables

    path, payload = database.finding_payload(finding_id, corpus, known)
    output(json_to, lambda: tables.payload_object(payload), lambda: tables.payload_view(payload, path))


@finding.command("ignore", epilog=example("fuzzparity finding ignore numeric-1a2b"))
@click.argument("finding_id", metavar="ID")
@click.option("--corpus", help="The corpus, when the id alone is not enough.")
@click.option("--undo", is_flag=True, help="Tell of it again.")
def finding_ignore(finding_id: str, corpus: str | None, undo: bool) -> None:
    """Keep a finding from failing campaigns."""
    from fuzzparity.commands import database

    found = database.ignore_finding(finding_id, corpus, is_ignored=not undo)
    print(f"{found.finding_id} is {'told of again' if undo else 'ignored'}")


@finding.command("note", epilog=example("fuzzparity finding note numeric-1a2b 'known, waits for onnxruntime 1.33'"))
@click.argument("finding_id", metavar="ID")
@click.argument("note")
@click.option("--corpus", help="The corpus, when the id alone is not enough.")
def finding_note(finding_id: str, note: str, corpus: str | None) -> None:
    """Write a note on a finding."""
    from fuzzparity.commands import database

    print(f"noted on {database.note_finding(finding_id, note, corpus).finding_id}")


@cli.group(cls=Commands, epilog=example("fuzzparity corpus show digits"))
def corpus() -> None:
    """Look at, check and tidy corpus databases."""


@corpus.command("ls", epilog=example("fuzzparity corpus ls"))
@click.argument("corpus", required=False)
@json_option
def corpus_ls(corpus: str | None, json_to: str | None) -> None:
    """List corpora below this directory with what they hold."""
    from fuzzparity.commands import database
    from fuzzparity.report import tables

    found = database.corpus_list(corpus)
    output(json_to, lambda: plain(found), lambda: tables.corpora_table(found))


@corpus.command("show", epilog=example("fuzzparity corpus show digits 3f2a"))
@click.argument("corpus")
@click.argument("digest", required=False, metavar="[CASE]")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Cases to list.")
@json_option
def corpus_show(corpus: str, digest: str | None, limit: int, json_to: str | None) -> None:
    """Show one corpus, or one case of it by the start of its digest."""
    from fuzzparity.commands import database
    from fuzzparity.report import tables

    if digest:
        case = database.case_show(corpus, digest)
        output(json_to, lambda: tables.case_object(case), lambda: tables.case_view(case))
    else:
        view = database.corpus_show(corpus, limit=limit)
        output(json_to, lambda: plain(view), lambda: tables.corpus_view(view))


@corpus.command("min", epilog=example("fuzzparity corpus min digits"))
@click.argument("corpus")
def corpus_min(corpus: str) -> None:
    """Keep the seeds, the cases of findings, and the smallest case of each feature; the rest is deleted."""
    from fuzzparity.commands import database

    before, after = database.corpus_min(corpus)
    print(f"{before} cases in the pool before, {after} now")


@corpus.command("merge", epilog=example("fuzzparity corpus merge digits colleague/corpus.sqlite"))
@click.argument("corpus")
@click.argument("others", nargs=-1, required=True, metavar="OTHER...")
def corpus_merge(corpus: str, others: tuple[str, ...]) -> None:
    """Take the cases of other corpora into one; each is verified first."""
    from fuzzparity.commands import database
    from fuzzparity.report.tables import merged_text

    merged = database.corpus_merge(corpus, list(others))
    show(merged_text(merged))
    sys.exit(1 if merged.problems else 0)


@corpus.command("verify", epilog=example("fuzzparity corpus verify digits"))
@click.argument("corpus")
def corpus_verify(corpus: str) -> None:
    """Check every row and every blob's sha256."""
    from fuzzparity.commands import database
    from fuzzparity.report.tables import verified_text

    problems = database.corpus_verify(corpus)
    show(verified_text(corpus, problems))
    sys.exit(1 if problems else 0)


@corpus.command("export", epilog=example("fuzzparity corpus export numeric-1a2b --crashes /tmp/out"))
@click.argument("finding_id", metavar="ID")
@click.option("--corpus", help="The corpus, when the id alone is not enough.")
@click.option("--crashes", type=click.Path(path_type=Path), default=Path("crashes"), show_default=True)
@click.option("--share", metavar="DIR", type=click.Path(path_type=Path), help="Write only what can be given away here.")
def corpus_export(finding_id: str, corpus: str | None, crashes: Path, share: Path | None) -> None:
    """Write a finding's reproducer folder again, from the database alone.

    With --share, a copy that holds no real data, weights, source or paths, or the reasons why there can be none.
    """
    from fuzzparity.commands import database
    from fuzzparity.report.reproducer import content_of_payload, write_reproducer
    from fuzzparity.report.sharing import write_shared

    _, payload = database.finding_payload(finding_id, corpus)
    content = content_of_payload(payload)
    print(write_reproducer(crashes, content) if share is None else write_shared(share, content))


@corpus.command("snapshot", epilog=example("fuzzparity corpus snapshot digits backup.sqlite"))
@click.argument("corpus")
@click.argument("destination", type=click.Path(path_type=Path))
def corpus_snapshot(corpus: str, destination: Path) -> None:
    """Copy a corpus as it is now, also beside a running campaign."""
    from fuzzparity.commands import database

    print(database.corpus_snapshot(corpus, destination))


@cli.command(epilog=example("fuzzparity status digits"))
@click.argument("target", required=False)
@known_option
@json_option
def status(target: str | None, known: tuple[str, ...], json_to: str | None) -> None:
    """Show the running campaign, or how the last one ended."""
    from fuzzparity.commands import database
    from fuzzparity.report import tables

    views = database.status(target, known)
    output(json_to, lambda: plain(views), lambda: tables.status_view(views))


@cli.command(epilog=example("fuzzparity init --onnx model.onnx --output my_target.py"))
@click.option("--onnx", required=True, metavar="FILE", help="The ONNX model.")
@click.option("--torch", "torch_file", metavar="FILE", help="The .pt2 or TorchScript program it was made from.")
@click.option("--output", type=click.Path(path_type=Path), default=Path("target.py"), show_default=True)
def init(onnx: str, torch_file: str | None, output: Path) -> None:
    """Write a first target.py to fill in, from an ONNX model's inputs."""
    from fuzzparity.commands.init import write_target

    written = write_target(Path(onnx), Path(torch_file) if torch_file else None, output)
    print(f"wrote {written}: fill it in, then run `fuzzparity check {written}`")
