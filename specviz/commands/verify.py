"""``specviz verify``: do methods give plain decoding's output, and plain decoding that of generate()?"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from decoders.draft.settings import Sampling
from decoders.errors import UserError
from decoders.folders import write_json
from specviz.groups import group
from specviz.words import column, column_texts, plural

from . import common, options, turns

if TYPE_CHECKING:
    from decoders.prompt.files import PromptRecord
    from decoders.study.judge.divergences import Divergence
    from decoders.sweep.lossless import MethodCheck


DESCRIPTION = "Decode prompts with every method and compare with plain decoding; exit code 1 on a difference."


def add(parser: argparse.ArgumentParser) -> None:
    options.add_methods(parser)
    options.add_verifier(parser)
    options.add_prompts(parser, 40)
    options.file(parser, "--pool", "a text to draft from, for methods that take one", "FILE")
    options.flag(parser, "--no-generate", "do not check plain decoding against transformers' generate()")
    options.add_settings(
        parser, Sampling, "temperature", "seed",
        temperature="above 0 tokens are drawn, alike in all methods, and generate() does not take part",
    )  # fmt: skip
    parser.add_argument(
        "--tolerance", type=options.positive, metavar="X",
        help="how far below the best logit a half-precision token may lie (default: bfloat16 0.5, float16 0.1)",
    )  # fmt: skip
    options.file(parser, "--json", "write the result to a file too, after every prompt")
    options.add_model(parser, weights=True)


def run(args: argparse.Namespace) -> int:
    common.check_writable(args.json)
    records = common.prompt_records(args)
    target = common.open_target(args)
    prompts, kept_records, note = common.fitting(target, records, args.max_new_tokens)

    sampling = options.settings_of(args, Sampling)
    settings = {"max_new_tokens": args.max_new_tokens, "sampling": sampling}
    prompts, kept_records, turns_note = turns.every_turn(target, prompts, kept_records, **settings)
    note = "; ".join(filter(None, (note, turns_note)))
    if args.pool is not None:
        pool = common.pool_file(args.pool, target)
        prompts = [replace(prompt, pool=pool) for prompt in prompts]
    methods, missing = common.chosen_methods(target, args.methods, args.set, prompts, verifier=args.verifier)
    from decoders import find_method

    pooled = any(find_method(name).needs(target, params).pool for name, params in methods.items())
    if args.pool is not None and not pooled:
        raise UserError(f"--pool is of no use to {', '.join(methods)}: they take their drafts from elsewhere")

    from decoders.model.files.catalog import format_of, precision_of
    from decoders.sweep.lossless import check_lossless

    stock = None if args.no_generate or not sampling.greedy else common.stock_model(args, target)
    about = {
        "schema": "specverify/1", "model": target.info, "max_new_tokens": args.max_new_tokens,
        "sampling": asdict(sampling), "note": note, "pool": args.pool and args.pool.name,
        "prompts": [
            {"id": r.id, "category": r.category, "turn": p.turn} for r, p in zip(kept_records, prompts, strict=True)
        ],
    }  # fmt: skip
    tell = _teller(kept_records)

    def report(index: int, outcomes: Sequence[MethodCheck]) -> None:
        tell(index, outcomes)
        if args.json:  # what is done stays, whatever comes
            failed = sum(outcome.failed for outcome in outcomes)
            entries = [outcome.to_json() for outcome in outcomes]
            write_json(args.json, {**about, "checked": index + 1, "failed": failed, "outcomes": entries})

    with common.progress_bar("verifying", lines=False) as progress:
        outcomes = check_lossless(
            target, prompts, methods, max_new_tokens=args.max_new_tokens, sampling=sampling, stock=stock,
            tolerance=args.tolerance, progress=progress, on_check=report,
        )  # fmt: skip
    _show(outcomes, [record.id for record in kept_records], target)
    if args.by_category:
        several = len(prompts) > sum(prompt.turn == 1 for prompt in prompts)
        _show_categories(outcomes, [record.category for record in kept_records], "turns" if several else "prompts")
    common.say(*_calls(outcomes))
    common.say(note, _half_precision(outcomes, format_of(target.info), args.tolerance), *missing.values())
    failed = sum(outcome.failed for outcome in outcomes)
    if failed:
        differs = failed - sum(len(outcome.errors) for outcome in outcomes)
        error_note = f", {plural(failed - differs, 'run')} ended with an error" if differs < failed else ""
        common.say(f"FAILED: {differs} {'output differs' if differs == 1 else 'outputs differ'}{error_note}")
        return 1
    is_identical = all(o.identical == o.total for o in outcomes if o.lossless and o.against)
    is_sampled = not sampling.greedy
    difference_note = (
        "no output that could fail differs: tokens were drawn" if is_sampled else "every difference is a near tie"
    )
    drawing = f", temperature {args.temperature:g}" if is_sampled else ""
    first = sum(prompt.turn == 1 for prompt in prompts)
    in_turns = f" in {plural(len(prompts), 'turn')}" if len(prompts) > first else ""
    common.say(
        f"ok: {'every output is identical' if is_identical else difference_note} ({plural(first, 'prompt')}{in_turns}, "
        f"{args.max_new_tokens} tokens, {precision_of(target.info)}{drawing})"
    )
    return 0


def _calls(outcomes: Sequence[MethodCheck]) -> Iterator[str]:
    """A line per method on outputs that hold tool calls or JSON: how many a program would read otherwise."""
    from decoders.study.judge.tool_calls import OTHER_CALL, SAME_CALL, changed_share

    for outcome in outcomes:
        change_count, total, share = changed_share(outcome.calls)
        if share is not None:
            other_calls, same_calls = outcome.calls.count(OTHER_CALL), outcome.calls.count(SAME_CALL)
            yield (
                f"{outcome.method}: tool calls or JSON in {plural(total, 'output')}; {change_count} read otherwise "
                f"({share:.1%}): {other_calls} other calls, {change_count - other_calls} broken; {same_calls} the "
                "same in other bytes"
            )


def _teller(records: Sequence[PromptRecord]) -> Callable[[int, Sequence[MethodCheck]], None]:
    """Tells of every prompt on stderr when its runs are done, where no bar can be drawn."""
    began, is_terminal = time.monotonic(), sys.stderr.isatty()

    def tell(index: int, outcomes: Sequence[MethodCheck]) -> None:
        record = records[index]
        comparisons = [outcome for outcome in outcomes if outcome.against]
        failed_prompts = {
            o.method: {*(d.prompt for d in o.divergences), *(e["prompt"] for e in o.errors)} for o in comparisons
        }
        differing = [method for method, prompts in failed_prompts.items() if index in prompts]
        state = f"{len(comparisons) - len(differing)} of {len(comparisons)} outputs identical"
        about = f" ({record.category})" if record.category else ""
        if not is_terminal:
            common.say(
                f"{index + 1} of {len(records)}: prompt {record.id}{about}, {state}"
                f"{', not ' + ', '.join(differing) if differing else ''}; {time.monotonic() - began:,.0f} s",
                error=True,
            )

    return tell


def _show_categories(outcomes: list[MethodCheck], categories: list[str], counts: str) -> None:
    """Tokens per step of every method in each category of prompts, and in all; ``counts``: what is counted."""
    from decoders.sweep.lossless import tokens_per_step
    from specviz.views.prompts import benchmark_columns

    titles = {**benchmark_columns(categories), "": "–"}
    groups = group((titles[category], i) for i, category in enumerate(categories))
    groups["Overall"] = list(range(len(categories)))
    lengths = [
        [tokens_per_step(run for run in outcome.runs if run.prompt in members) for members in groups.values()]
        for outcome in outcomes
    ]
    form = column("tokens", [length for line in lengths for length in line])
    rows = [(outcome.method, *map(form, line)) for outcome, line in zip(outcomes, lengths, strict=True)]
    heads = ("tokens per step", *groups)
    common.show_table(heads, [*rows, (counts, *map(len, groups.values()))], right=1, last_apart=True)


def _show(outcomes: list[MethodCheck], ids: list[str], target: Any) -> None:
    from rich.text import Text

    rows = []
    step_texts = column_texts("tokens", [outcome.tokens_per_step for outcome in outcomes])
    has_engines = target.engines.engine != "eager"
    for outcome, steps in zip(outcomes, step_texts, strict=True):
        state = "" if outcome.lossless else " (lossy)"
        identical = f"{outcome.identical}/{outcome.total}" if outcome.against else "–"
        style = "red" if outcome.failed else "green" if outcome.total and outcome.identical == outcome.total else ""
        first = _describe(outcome.divergences[0], ids, target) if outcome.divergences else ""
        if outcome.errors:
            error = outcome.errors[0]
            first = f"prompt {ids[error['prompt']]}: {error['error']}"
        against, ran = outcome.against or "– (the reference)", outcome.engines
        engines = [", ".join(f"{count} {engine}" for engine, count in sorted(ran.items()))] if has_engines else []
        rows.append((outcome.method + state, against, Text(identical, style), steps, *engines, first))
    columns = ("steps by engine",) if has_engines else ()
    common.show_table(("method", "against", "identical", "tokens per step", *columns, "first difference"), rows)


def _describe(first: Divergence, ids: list[str], target: Any) -> str:
    def piece(token: int | None) -> str:
        if token is None:
            return "the end"
        return repr(target.tokenizer.decode([token])) if target.tokenizer else str(token)

    tie = f" (near tie: no token lies more than {first.shortfall or 0:.2g} below the best logit)"
    verdict = {"bug": "", "near tie": tie}.get(first.verdict, f" ({first.verdict})")
    gap = "" if first.gap is None else f"; top-2 gap {first.gap:.2g}"
    place = f"prompt {ids[first.prompt]}, token {first.position}"
    return f"{place}: {piece(first.got)}, not {piece(first.expected)}{gap}{verdict}"


def _half_precision(outcomes: list[MethodCheck], dtype: str, tolerance: float | None) -> str:
    """A line on the promise of a check in half precision; "" in full precision."""
    from decoders.study.judge.divergences import tolerance_of
    from decoders.sweep.lossless import FULL_PRECISION

    if dtype in FULL_PRECISION:
        return ""
    limit = tolerance_of(dtype) if tolerance is None else tolerance
    ties = [d.shortfall or 0.0 for outcome in outcomes if outcome.lossless for d in outcome.divergences]
    farthest = f"; the farthest here lies {max(ties):.2g} below" if ties else ""
    return (
        f"{dtype} promises that no written token lies more than {limit:g} below the model's best logit{farthest}; it "
        "cannot promise equal outputs, as rows computed together round otherwise than one by one (float32 can)"
    )
