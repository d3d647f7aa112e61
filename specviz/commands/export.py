"""``specviz export``: a trace as one interactive page that works from disk."""

from __future__ import annotations

import argparse

from . import common

HELP = "write a trace as one HTML file"
DESCRIPTION = "Write a trace as one HTML file."


def add(parser: argparse.ArgumentParser) -> None:
    common.file(parser, "trace", "a .spectrace file", "TRACE")
    common.file(parser, "--html", "the page to write", required=True)
    common.count(parser, "--step", "the step it opens on", 1)


def run(args: argparse.Namespace) -> int:
    from decoders import load
    from specviz.views.export import standalone_html

    common.check_writable(args.html)
    trace = load(args.trace)
    step = common.step_number(args.step, trace)
    args.html.write_text(standalone_html(trace, step=step), encoding="utf-8")
    common.say(f"{args.html}: {trace.rows('steps')} steps, opens from disk without a server")
    return 0
