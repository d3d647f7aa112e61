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
    view = lens(ReadRun(common.open_target(args), trace, Needs()), step, args.node)
    if args.json:
        return common.print_json({**view.to_json(), "step": args.step})
    _table(view)
    common.say(_sentence(view), LIMITS)
    return 0


def _text(view: Lens, token: int) -> str:
    return visible(repr(view.text(token)))


def _table(view: Lens) -> None:
    pair = [view.drafted] if view.own.token == view.drafted.token else [view.drafted, view.own]
    names = ("drafted", "target's own")
    heads = ["layer", "first choice", "p"]
    for name, course in zip(names, pair, strict=False):
        heads += [f"{name} {_text(view, course.token)}", "rank"]
    rows = []
    for layer, (token, prob) in enumerate(view.tops):
        numbers = [
            cell
            for token_course in pair
            for cell in (decimals(token_course.probs[layer], 3), f"#{token_course.ranks[layer] + 1}")
        ]
        rows.append([str(layer) if layer else "embedding", _text(view, token), decimals(prob, 3), *numbers])
    title = f"step {view.step + 1}, node {view.node}: what the layers say (computed now, teacher-forced)"
    common.show_table(heads, rows, title, right=2)


def _sentence(view: Lens) -> str:
    own_text = _text(view, view.own.token)
    if view.own.token == view.drafted.token:
        return (
            f"{own_text} is the first choice {_from(view.settled)}."
            if view.settled is not None
            else f"{own_text} was drawn."
        )
    if view.decided is None:
        return f"The drafted token ranks above {own_text} in the end, which was drawn."
    first = "" if view.settled is None else f", and is the first choice {_from(view.settled)}"
    return f"Of {view.layers} layers, {own_text} ranks above the drafted token {_from(view.decided)}{first}."


def _from(layer: int | None) -> str:
    return "from the embedding on" if layer == 0 else f"from layer {layer} on"
