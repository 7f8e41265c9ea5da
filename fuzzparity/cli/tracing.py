"""Command `trace`: the error of one case along the graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fuzzparity.cli.base import (
    cli,
    common_options,
    example,
    existing,
    json_option,
    live_for,
    path_text,
    target_of,
    write_json,
)
from fuzzparity.errors import InvalidUsage


@cli.command(
    epilog=example("fuzzparity trace my_target.py bad_batch.npz --plot trace.svg", "fuzzparity trace numeric-1a2b3c4d")
)
@click.argument("what", nargs=-1, required=True, metavar="TARGET INPUTS|ID")
@click.option("--all", "is_whole", is_flag=True, help="Every row, not only those where something begins or changes.")
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", help="Write the error over the nodes as SVG.")
@common_options
@json_option
def trace(what: tuple[str, ...], is_whole: bool, plot: Path | None, json_to: str | None, **given: Any) -> None:
    """Follow the error of one input along the graph: each node's own, and what has come together so far.

    From the id of a finding: its stored case, on today's code of its target. Says where the error is born, with the
    line of your code, and at which value it is first over the policy. Nothing is minimized or stored.
    """
    from fuzzparity.commands import database, tracing
    from fuzzparity.report.trace import trace_object, trace_svg, trace_text

    payload = None
    if len(what) == 1 and not given["torch_file"]:
        _, payload = database.finding_payload(what[0], path_text(given["corpus"]), given["known"])
        target = payload.facts.spec if payload.facts is not None else ""
        if not target:
            raise InvalidUsage(f"the target of {what[0]} is not recorded: `fuzzparity trace TARGET INPUTS`")
    else:
        target = "" if given["torch_file"] else what[0]
    options = target_of({"target": target, **given})
    with live_for(json_to) as live:
        if payload is not None:
            result = tracing.trace_finding(options, payload, live)
        else:
            result = tracing.trace_inputs(options, existing(what if given["torch_file"] else what[1:]), live)
    if plot is not None:
        try:
            plot.write_text(trace_svg(result.traced, f"{result.facts.name}: {result.name}"))
        except OSError as error:
            raise InvalidUsage(f"--plot {plot} cannot be written: {error.strerror}") from error
    if json_to:
        write_json(json_to, trace_object(result.traced, result.name, result.facts))
    live.print(trace_text(result.traced, result.name, is_whole=is_whole))
