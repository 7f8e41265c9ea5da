"""The command `report`: what is known of a target, for a terminal, as JSON, or as one page for a browser."""

from __future__ import annotations

from pathlib import Path

import click

from fuzzparity.cli.base import cli, example, json_option, known_option, output


@cli.command(epilog=example("fuzzparity report digits --html"))
@click.argument("target", metavar="TARGET|DATABASE")
@click.option(
    "--html",
    "html_to",
    is_flag=False,
    flag_value="",
    metavar="[FILE]",
    help="Write one self-contained page instead; without FILE to report-NAME.html.",
)
@known_option
@json_option
def report(target: str, html_to: str | None, known: tuple[str, ...], json_to: str | None) -> None:
    """Tell what is known of a target: four questions, causes, what was tried, where it ran, probe figures."""
    from fuzzparity.commands.reporting import default_path, knowledge
    from fuzzparity.report.overview import overview, report_object
    from fuzzparity.report.sentences import title_of

    told = knowledge(target, known, with_tensors=html_to is not None)
    if html_to is not None:
        from fuzzparity.report.html import write_html

        print(write_html(Path(html_to) if html_to else default_path(title_of(told)), told))
    if html_to is None or json_to:
        output(json_to, lambda: report_object(told), lambda: overview(told))
