"""``specviz verify``: do methods give plain decoding's output, and plain decoding that of generate()?"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from decoders.folders import write_json
from specviz.words import counted

from . import common

if TYPE_CHECKING:
    from decoders.study.divergences import Divergence
    from decoders.study.lossless import Outcome


HELP = "check that methods change nothing but speed"
DESCRIPTION = "Decode prompts with every method and compare with plain decoding; exit code 1 on a difference."


def add(parser: argparse.ArgumentParser) -> None:
    common.add_methods(parser)
    common.add_prompts(parser, 40)
    common.flag(parser, "--no-generate", "do not check plain decoding against transformers' generate()")
    parser.add_argument(
        "--tolerance", type=common.positive, metavar="X",
        help="how far below the best logit a half-precision token may lie (default: bfloat16 0.5, float16 0.1)",
    )  # fmt: skip
    common.file(parser, "--json", "write the result to a file too")
    common.add_model(parser)


def run(args: argparse.Namespace) -> int:
    from decoders.prompt.files import read_prompts

    common.check_writable(args.json)
    records = read_prompts(args.prompts, args.limit)
    target = common.open_target(args)
    prompts, kept, note = common.fitting(target, records, args.max_new_tokens)
    methods, missing = common.chosen_methods(target, args.methods, args.set, prompts)

    from decoders.study.lossless import check_lossless

    stock = None if args.no_generate else common.stock_model(args, target)
    with common.progress_bar("verifying") as progress:
        outcomes = check_lossless(
            target, prompts, methods, max_new_tokens=args.max_new_tokens, stock=stock, tolerance=args.tolerance,
            progress=progress,
        )  # fmt: skip
    _show(outcomes, [record.id for record in kept], target)
    common.say(note, _half_precision(outcomes, target.info["dtype"], args.tolerance), *missing.values())
    failed = sum(outcome.failed for outcome in outcomes)
    if args.json:
        data = {"schema": "specverify/1", "model": target.info, "max_new_tokens": args.max_new_tokens, "note": note}
        write_json(args.json, {**data, "failed": failed, "outcomes": [o.to_json() for o in outcomes]})
    if failed:
        common.say(f"FAILED: {failed} {'output differs' if failed == 1 else 'outputs differ'}")
        return 1
    checked = [o for o in outcomes if o.lossless and o.against]
    same = all(o.identical == o.total for o in checked)
    what = "every output is identical" if same else "every difference is a near tie"
    common.say(f"ok: {what} ({counted(len(prompts), 'prompt')}, {args.max_new_tokens} tokens, {target.info['dtype']})")
    return 0


def _show(outcomes: list[Outcome], ids: list[str], target: Any) -> None:
    from rich.text import Text

    rows = []
    for outcome in outcomes:
        state = "" if outcome.lossless else " (lossy)"
        identical = f"{outcome.identical}/{outcome.total}" if outcome.against else "–"
        style = "red" if outcome.failed else "green" if outcome.total and outcome.identical == outcome.total else ""
        first = _described(outcome.divergences[0], ids, target) if outcome.divergences else ""
        against = outcome.against or "– (the reference)"
        steps = common.number(outcome.tokens_per_step)
        rows.append((outcome.method + state, against, Text(identical, style), steps, first))
    common.show_table(("method", "against", "identical", "tokens per step", "first difference"), rows)


def _described(first: Divergence, ids: list[str], target: Any) -> str:
    def piece(token: int | None) -> str:
        if token is None:
            return "the end"
        return repr(target.tokenizer.decode([token])) if target.tokenizer else str(token)

    tie = f" (near tie: no token lies more than {first.shortfall or 0:.2g} below the best logit)"
    verdict = {"bug": "", "near tie": tie}.get(first.verdict, f" ({first.verdict})")
    where = f"prompt {ids[first.prompt]}, token {first.position}"
    return f"{where}: {piece(first.got)}, not {piece(first.expected)}; top-2 gap {first.gap:.2g}{verdict}"


def _half_precision(outcomes: list[Outcome], dtype: str, tolerance: float | None) -> str:
    """What a check in half precision can and cannot promise, in one line; "" in full precision."""
    from decoders.study.divergences import tolerance_of
    from decoders.study.lossless import FULL_PRECISION

    if dtype in FULL_PRECISION:
        return ""
    allowed = tolerance_of(dtype) if tolerance is None else tolerance
    ties = [d.shortfall or 0.0 for outcome in outcomes if outcome.lossless for d in outcome.divergences]
    farthest = f"; the farthest here lies {max(ties):.2g} below" if ties else ""
    return (
        f"{dtype} promises that no written token lies more than {allowed:g} below the model's best logit{farthest}; it "
        "cannot promise equal outputs, as rows computed together round otherwise than one by one (float32 can)"
    )
