"""``specviz explain``: the inspector's sentences on steps of a recorded run."""

from __future__ import annotations

import argparse

from specviz.commands import common, options
from specviz.words import mark_unseen

DESCRIPTION = (
    "Say why steps of a recorded run came as they did, in the sentences of the inspector's panel Why: what was drafted "
    "and from where, what the model kept, and what it wrote instead."
)


def add(parser: argparse.ArgumentParser) -> None:
    options.file(parser, "trace", "a .spectrace file", "TRACE")
    options.count(parser, "--step", "this step, from 1 (default: all steps)")
    options.flag(parser, "--json", "print JSON; steps are counted from 1 there, too")


def run(args: argparse.Namespace) -> int:
    from decoders import load

    from .explain.sentences import sentences_of

    trace = load(args.trace)
    count = trace.rows("steps")
    steps = range(count) if args.step is None else [common.step_number(args.step, trace)]
    sentences = sentences_of(trace, steps) if count else []
    if args.json:
        return common.print_json([{"step": row.step + 1, "of": count, "text": row.text} for row in sentences])
    common.say(*(f"Step {row.step + 1} of {count}: {mark_unseen(row.text)}" for row in sentences))
    return 0
