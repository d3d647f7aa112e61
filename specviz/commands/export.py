"""``specviz export``: a trace as one interactive page that works from disk, or its times for Perfetto."""

from __future__ import annotations

import argparse

from decoders.errors import UserError
from decoders.folders import write_text
from specviz.words import plural

from . import common, options

DESCRIPTION = (
    "Write a trace as one HTML file that works from disk, or its times (draft, verify, commit) as Chrome trace JSON, "
    "which ui.perfetto.dev and chrome://tracing open."
)


def add(parser: argparse.ArgumentParser) -> None:
    options.file(parser, "trace", "a .spectrace file, or a run's rounds as JSON", "TRACE")
    options.file(parser, "--html", "the page to write")
    options.count(parser, "--step", "the step it opens on", 1)
    options.file(parser, "--perfetto", "the Chrome trace JSON to write")


def run(args: argparse.Namespace) -> int:
    if args.html is None and args.perfetto is None:
        raise UserError("say what to write: --html F, --perfetto F, or both")
    common.check_writable(args.html, args.perfetto)
    trace, *extra_traces = common.read_traces(args.trace)
    if extra_traces:
        raise UserError(
            f"{args.trace} holds {plural(len(extra_traces) + 1, 'run')}, and a page shows one: name a file of one"
        )
    step, steps = common.step_number(args.step, trace), plural(trace.rows("steps"), "step")
    if args.html is not None:
        from specviz.views.export import standalone_html

        write_text(args.html, standalone_html(trace, step=step))
        common.say(f"{args.html}: {steps}, opens from disk without a server")
    if args.perfetto is not None:
        import json

        from specviz.views.perfetto import trace_events

        write_text(args.perfetto, json.dumps(trace_events(trace), ensure_ascii=False) + "\n")
        common.say(f"{args.perfetto}: {steps}, for ui.perfetto.dev or chrome://tracing")
    return 0
