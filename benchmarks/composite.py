"""Joined drafters against each alone: ``python -m benchmarks.composite SPEC_BENCH --prompts 32 --write FILE``.

Three quarters of the prompts are Spec-Bench's, its categories in turn, the others rewrite a text (demo:code_edit and
demo:text_edit). Every prompt is decoded plainly, by each drafter alone and by ``composite`` with 16 rows and with all;
tokens per step are pooled over the steps of a column, and every output has to be plain decoding's. ``--write`` has the
tables as a section of docs/results.md. ``--clock`` times ``--length auto`` in their place, in a new order for each
prompt, as tokens per second ÷ plain decoding's of the same prompt and round: it wants an idle machine.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks import parser_of
from benchmarks.lengths import spread
from decoders import load_target
from decoders.engine.decoding import Decoding
from decoders.sweep.contenders import run_unrecorded
from decoders.sweep.plan import PLAIN, Measurement
from specviz.views.prompts import benchmark_columns, records

EDITS, SHARE = "demo:code_edit,text_edit", 4  # one prompt of so many rewrites a text
ALL, LEAST_GAIN, LEAST_TIME = "all", 1.15, 0.97
Label = tuple[str, str, dict[str, Any] | None]  # name in the tables, method, parameters


def contenders(drafters: str, clock: bool) -> list[Label]:
    """The runs of each prompt: plain decoding first, then each drafter alone."""
    joined = {"drafters": drafters}
    singles: list[Label] = [(name, name, None) for name in drafters.split(",")]
    if clock:
        return [(PLAIN, PLAIN, None), *singles, (f"composite({drafters})", "composite", joined)]
    rows: list[Label] = [
        (f"composite({drafters}), {count or 'all'} rows", "composite", {**joined, "rows": count})
        for count in (16, None)
    ]
    return [(PLAIN, PLAIN, None), *singles, *rows]


def prompts_of(file: str, count: int, tokenizer: Any) -> list[tuple[str, Any]]:
    """Prompts, each with its column."""
    edit_count = count // SHARE
    chosen = spread(records(file, 5000), count - edit_count)
    titles, edits = benchmark_columns(record.category for record in chosen), spread(records(EDITS, 100), edit_count)
    for place, edit in enumerate(edits, 1):  # among the others: a run that ends early has some of each
        chosen.insert(place * SHARE - 1, edit)
    return [(titles.get(record.category, "Edits"), record.prompt(tokenizer, chat=True)) for record in chosen]


def measure(target: Any, prompt: Any, label: Label, tokens: int, length: str) -> Measurement:
    name, method, params = label
    return run_unrecorded(
        name, lambda: Decoding.of(target, prompt, method, params, max_new_tokens=tokens, length=length)
    )


Row = tuple[str, list[float]]


def table_of(head: str, rows: Sequence[Row], columns: Sequence[str]) -> dict[str, Any]:
    """A table as ``assets/measured`` has it, best numbers in bold."""
    best = [max(values[i] for _, values in rows) for i in range(len(columns))]
    cells = [
        [f"`{name}`", *(f"**{value:.2f}**" if value == best[i] else f"{value:.2f}" for i, value in enumerate(values))]
        for name, values in rows
    ]
    return {"heads": [head, *columns], "rows": cells}


def columns_and_rows(
    samples: dict[str, dict[str, list[Any]]], number: Callable[[list[Any]], float]
) -> tuple[list[str], list[Row]]:
    columns = [*next(iter(samples.values())), ALL]
    rows = []
    for name, by_column in samples.items():
        values = [number(by_column[column]) for column in columns[:-1]]
        rows.append((name, [*values, number([one for some in by_column.values() for one in some])]))
    return columns, rows


def count_steps(options: argparse.Namespace, target: Any, prompts: Sequence[tuple[str, Any]]) -> int:
    """Tokens per step of all contenders. 1 where an output differs or the aim is missed."""
    labels, differing, start_time = contenders(options.drafters, False), list[str](), time.monotonic()
    samples: dict[str, dict[str, list[Any]]] = {name: defaultdict(list) for name, _, _ in labels[1:]}
    better = defaultdict[str, list[Any]](list)
    for number, (column, prompt) in enumerate(prompts, 1):
        if time.monotonic() - start_time > 60 * options.minutes:
            prompts = prompts[: number - 1]
            break
        plain = measure(target, prompt, labels[0], options.tokens, "fixed").output
        counts = []
        for label in labels[1:]:
            run = measure(target, prompt, label, options.tokens, "fixed")
            if run.output != plain:
                differing.append(f"{label[0]} on prompt {number}")
            samples[label[0]][column].append((len(run.output), run.sample.steps))
            counts.append(run.sample.steps)
        better[column].append((len(plain), min(counts[: len(options.drafters.split(","))])))
        print(f"\rprompt {number} of {len(prompts)}", end="", file=sys.stderr, flush=True)
    samples["better drafter of each prompt"] = better
    columns, rows = columns_and_rows(samples, lambda pairs: sum(a for a, _ in pairs) / sum(b for _, b in pairs))
    single = max(values[-1] for name, values in rows[: len(options.drafters.split(","))])
    whole = {name: values[-1] for name, values in rows}
    gain = whole[labels[-1][0]] / single
    outputs = "every output was plain decoding's" if not differing else f"other outputs: {', '.join(differing)}"
    sentence = f"All rows: {gain:.2f} × the better drafter alone (aim {LEAST_GAIN}); {outputs}."
    missed = bool(differing) or gain < LEAST_GAIN
    return report(options, prompts, table_of("tokens per step", rows, columns), sentence, missed)


def time_runs(options: argparse.Namespace, target: Any, prompts: Sequence[tuple[str, Any]]) -> int:
    """Speed of all contenders with draft length auto. 1 where an output differs or the aim is missed."""
    labels, differing, order = contenders(options.drafters, True), list[str](), random.Random(1)
    samples: dict[str, dict[str, list[Any]]] = {name: defaultdict(list) for name, _, _ in labels[1:]}
    for label in labels:  # compiled, and costs measured
        measure(target, prompts[0][1], label, options.tokens, "auto")
    for repeat in range(options.repeats):
        for number, (column, prompt) in enumerate(prompts, 1):
            runs = {
                label[0]: measure(target, prompt, label, options.tokens, "fixed" if label[0] == PLAIN else "auto")
                for label in order.sample(labels, len(labels))
            }
            plain = runs.pop(PLAIN)
            for name, run in runs.items():
                if run.output != plain.output:
                    differing.append(f"{name} on prompt {number}")
                samples[name][column].append((run.sample.tokens_per_s or 0) / (plain.sample.tokens_per_s or math.inf))
            print(f"\rround {repeat + 1}, prompt {number} of {len(prompts)}", end="", file=sys.stderr, flush=True)
    columns, rows = columns_and_rows(samples, median)
    *singles, (_, joined) = rows
    least = min(value / max(values[i] for _, values in singles) for i, value in enumerate(joined))
    overall = joined[-1] / max(values[-1] for _, values in singles)
    outputs = "every output was plain decoding's" if not differing else f"other outputs: {', '.join(differing)}"
    sentence = (
        f"composite ÷ the best single method of a column: {least:.2f} at least (aim {LEAST_TIME}), {overall:.2f} over "
        f"all prompts (aim: above 1); {outputs}."
    )
    missed = bool(differing) or least < LEAST_TIME or overall <= 1
    return report(options, prompts, table_of("× plain", rows, columns), sentence, missed)


def report(
    options: argparse.Namespace, prompts: Sequence[Any], table: dict[str, Any], sentence: str, missed: bool
) -> int:
    shown = Table(*table["heads"])
    for row in table["rows"]:
        shown.add_row(*(cell.strip("`*") for cell in row))
    print(file=sys.stderr)
    Console(width=160).print(shown)
    print(sentence)
    if options.write:
        edits = sum(column == "Edits" for column, _ in prompts)
        command = f"python -m benchmarks.composite SPEC_BENCH --prompts {len(prompts)} --tokens {options.tokens}"
        what = (
            f"tokens per second ÷ plain decoding's with `--length auto`, medians of {options.repeats} rounds"
            if options.clock else "tokens per step, pooled; no clock is read"
        )
        about = (
            f"`{options.drafters}` joined in one tree, {options.model}, greedy, {len(prompts) - edits} prompts of "
            f"Spec-Bench, its categories in turn, and {edits} that rewrite a text, at most {options.tokens} tokens "
            f"each: {what} (`{command}{' --clock' * options.clock}`)."
        )
        title = "Two drafters, one tree" + ", by the clock" * options.clock
        text = json.dumps({"title": title, "blocks": [about, table, sentence]}, indent=1, ensure_ascii=False)
        options.write.write_text(text + "\n", "utf-8")
    return 1 if missed else 0


def main() -> int:
    options = arguments()
    torch.set_num_threads(options.threads)
    target = load_target(options.model, engine=options.engine)
    prompts = prompts_of(options.spec_bench, options.prompts, target.tokenizer)
    prompts = [(c, p) for c, p in prompts if len(p.tokens) + options.tokens < target.context_length]
    return (time_runs if options.clock else count_steps)(options, target, prompts)


def arguments() -> argparse.Namespace:
    parser = parser_of("composite", __doc__)
    parser.add_argument("spec_bench", help="Spec-Bench's prompts, or another file or set")
    parser.add_argument("--prompts", type=int, default=32, metavar="N", help="prompts, a quarter of them edits")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--drafters", default="pld+h,eagle3")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--clock", action="store_true", help="time --length auto on an idle machine")
    parser.add_argument("--repeats", type=int, default=2, help="rounds with --clock")
    parser.add_argument("--minutes", type=float, default=60.0, help="then no further prompt begins (without --clock)")
    parser.add_argument("--write", type=Path, metavar="FILE", help="the tables as a section of docs/results.md")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
