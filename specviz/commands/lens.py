"""``specviz lens``: at which layer the target leaves a drafted token of a recorded run."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from specviz.words import decimals, visible

from . import common, options

if TYPE_CHECKING:
    from decoders.study.look.lens import Lens

DESCRIPTION = (
    "Read a place of a recorded run layer by layer (the logit lens): the probability and the rank of the drafted token "
    "and of the target's own one, as if each layer were the last. It is computed now, teacher-forced."
)


def add(parser: argparse.ArgumentParser) -> None:
    options.file(parser, "trace", "a .spectrace file", "TRACE")
    options.count(parser, "--step", "the step (from 1)", required=True)
    options.count(parser, "--node", "the node of its tree (1: the first that was drafted)", required=True)
    options.flag(parser, "--json", "print the result as one JSON object")
    options.add_model(parser, plugins=False)


def run(args: argparse.Namespace) -> int:
    from decoders import Needs, load
    from decoders.study.look.lens import LIMITS, lens
    from decoders.study.look.whatif import ReadRun

    trace = load(args.trace)
    step = common.step_number(args.step, trace)
    seen = lens(ReadRun(common.open_target(args), trace, Needs()), step, args.node)
    if args.json:
        return common.print_json({**seen.to_json(), "step": args.step})
    _table(seen)
    common.say(_sentence(seen), LIMITS)
    return 0


def _text(seen: Lens, token: int) -> str:
    return visible(repr(seen.text(token)))


def _table(seen: Lens) -> None:
    pair = [seen.drafted] if seen.own.token == seen.drafted.token else [seen.drafted, seen.own]
    names = ("drafted", "target's own")
    heads = ["layer", "first choice", "p"]
    for name, course in zip(names, pair, strict=False):
        heads += [f"{name} {_text(seen, course.token)}", "rank"]
    rows = []
    for layer, (token, prob) in enumerate(seen.tops):
        numbers = [cell for one in pair for cell in (decimals(one.probs[layer], 3), f"#{one.ranks[layer] + 1}")]
        rows.append([str(layer) if layer else "embedding", _text(seen, token), decimals(prob, 3), *numbers])
    title = f"step {seen.step + 1}, node {seen.node}: what the layers say (computed now, teacher-forced)"
    common.show_table(heads, rows, title, right=2)


def _sentence(seen: Lens) -> str:
    own = _text(seen, seen.own.token)
    if seen.own.token == seen.drafted.token:
        return f"{own} is the first choice {_from(seen.settled)}." if seen.settled is not None else f"{own} was drawn."
    if seen.decided is None:
        return f"The drafted token ranks above {own} in the end, which was drawn."
    first = "" if seen.settled is None else f", and is the first choice {_from(seen.settled)}"
    return f"Of {seen.layers} layers, {own} ranks above the drafted token {_from(seen.decided)}{first}."


def _from(layer: int | None) -> str:
    return "from the embedding on" if layer == 0 else f"from layer {layer} on"
