"""``specviz export``: a trace as one interactive page that works from disk."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from . import common


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "export", help="write a trace as one HTML file", description="Write a trace as one HTML file."
    )
    parser.add_argument("trace", type=Path, metavar="TRACE", help="a .spectrace file")
    common.file(parser, "--html", "the page to write", required=True)
    parser.add_argument("--step", type=common.whole(0), default=0, metavar="N", help="the step it opens on (from 0)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from decoders import load
    from specviz.views.export import standalone_html

    common.check_writable(args.html)
    trace = load(args.trace)
    steps = trace.rows("steps")
    if args.step >= max(1, steps):
        raise common.UserError(f"--step {args.step} is out of range: the trace has {steps} steps (from 0)")
    args.html.write_text(standalone_html(trace, step=args.step), encoding="utf-8")
    common.say(f"{args.html}: {steps} steps, opens from disk without a server")
    return 0
