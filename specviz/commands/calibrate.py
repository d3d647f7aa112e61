"""``specviz calibrate``: find a model's copying heads and the layer whose hidden states rank best."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from specviz.words import column_texts, plural

from . import common, options, turns

if TYPE_CHECKING:
    from decoders.model.files.calibration import Calibration

SHADES = " ░▒▓█"


DESCRIPTION = "Find the heads that copy and the best layer for PLD+; the result is kept beside your settings."


def add(parser: argparse.ArgumentParser) -> None:
    options.add_prompts(parser, 40)
    options.file(parser, "--out", "write the calibration to this file instead of the settings")
    options.file(parser, "--html", "write the heat map of heads to a file")
    options.add_model(parser, plugins=False)


def run(args: argparse.Namespace) -> int:
    from decoders.prompt.files import read_prompts

    common.check_writable(args.out, args.html)
    records = read_prompts(args.prompts, args.limit)
    target = common.open_target(args)
    prompts, _, note = common.fitting(target, records, args.max_new_tokens)

    from decoders.model.files.calibration import save_calibration
    from decoders.study.measure.calibrate import calibrate

    with common.progress_bar("calibrating") as progress:
        calibration = calibrate(target, prompts, max_new_tokens=args.max_new_tokens, progress=progress)
    path = save_calibration(calibration, args.out)
    _show(calibration)
    common.say(note, turns.first_turns(prompts), f"kept in {path}")
    if args.html:
        from specviz.views.charts import heads_chart, layers_chart, write_page

        data = calibration.to_json()
        write_page(args.html, f"Copying heads of {calibration.model}", [heads_chart(data), layers_chart(data)])
    return 0


def heat_map(counts: tuple[tuple[int, ...], ...]) -> list[str]:
    """One line per layer, one cell per head, shaded by count.

    >>> heat_map(((0, 4), (2, 1)))
    ['   0   ██', '   1 ▒▒░░']
    """
    top = max(1, max(max(row) for row in counts))
    cells = [[SHADES[0 if n == 0 else max(1, round(n / top * (len(SHADES) - 1)))] * 2 for n in row] for row in counts]
    return [f"{layer:>4} {''.join(row)}" for layer, row in enumerate(cells)]


def _show(calibration: Calibration) -> None:
    steps, length = calibration.tokens_per_step, calibration.draft_length
    best = f"{calibration.best_layer} (best)"
    layers = [best if layer == calibration.best_layer else str(layer) for layer in range(len(steps))]
    numbers = zip(layers, column_texts("tokens", steps), strict=True)
    common.show_table(("hidden state", "tokens per step"), numbers, f"PLD+(h), drafts of {length}", bold=best)
    heads = [(layer, head, calibration.head_counts[layer][head]) for layer, head in calibration.top_heads(10)]
    copying = [(layer, head, f"{n} ({n / calibration.tokens_counted:.0%})") for layer, head, n in heads if n]
    common.show_table(("layer", "head", "copied"), copying, "Heads that copy most")
    common.say("Copies per layer (down) and head (across):")
    common.say(
        *heat_map(calibration.head_counts),
        f"{calibration.model}: {calibration.tokens_counted} copied tokens of "
        f"{plural(calibration.prompts, 'prompt')}; best hidden state {calibration.best_layer} of 0–{len(steps) - 1}",
    )
