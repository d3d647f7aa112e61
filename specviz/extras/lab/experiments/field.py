"""Tables in the field's form: a row per method, a column per category of the benchmark, all of it in the last one.

Spec-Bench, EAGLE's papers and SPEED-Bench print such tables: accepted lengths, pooled over the steps of a category, and
speedups. They are the tables of tasks × methods (``tables``) turned round, with the benchmarks' categories as columns
and without quartiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from decoders.sweep.plan import PLAIN
from decoders.sweep.timing import spot, timings
from specviz.views.prompts import ALL_TASKS, benchmark_columns
from specviz.words import column

from .quantities import DEFINED
from .result_table import ResultTable, TableEntry
from .results import Results
from .tables import BatchTable, checks, columns_of, tables

IDENTICAL = "same as plain"


def field_tables(results: Results, metrics: Sequence[str] | None = None) -> list[ResultTable]:
    """A table per metric of a batch, methods × categories. Raises UserError as ``tables``."""
    titles = benchmark_columns(row["category"] for row in results.rows)
    return [_transpose(results, table) for table in tables(results, metrics, titles)]


def _transpose(results: Results, table: BatchTable) -> ResultTable:
    check_by_name = {check.name: check for check in checks(results)}
    heads = (
        "method",
        *(line.name.capitalize() if line.task == ALL_TASKS else line.name for line in table.lines),
        IDENTICAL,
    )
    rows = [
        (
            TableEntry(name, lossy=check_by_name[name].lossy),
            *(replace(line.cells[k].entry, spread="") for line in table.lines),
            TableEntry(check_by_name[name].text, wrong=bool(check_by_name[name].bugs)),
        )
        for k, name in enumerate(table.columns)
    ]
    counts = (table.counts, *(f"{line.prompts:,}" for line in table.lines), "")
    title = replace(table, label=DEFINED[table.metric].label).title if table.metric in DEFINED else table.title
    return ResultTable(title, heads, (*rows, counts), 1, table.formula, (len(rows),))


def field_notes(results: Results) -> list[str]:
    """Notes on the columns, and Spec-Bench's own quotient of speeds."""
    titles = benchmark_columns(row["category"] for row in results.rows)
    mt_names = [name for name, title in titles.items() if title == "MT"]
    sentences = [f"MT: MT-Bench's categories ({', '.join(mt_names)})."] if mt_names else []
    quotients = spec_bench_speedups(results)
    if quotients:
        form = column("×", list(quotients.values()))
        speed_text = ", ".join(f"{name} {form(value)}" for name, value in quotients.items())
        sentences.append(
            f"Spec-Bench and EAGLE divide mean speeds, mean tokens/s ÷ plain's mean tokens/s, overall: {speed_text}."
        )
    return sentences


def spec_bench_speedups(results: Results) -> dict[str, float]:
    """Speedup of each line over all prompts as Spec-Bench's and EAGLE's programs have it: the mean of the prompts'
    tokens/s ÷ the mean of plain decoding's, over the prompts that both have. Each is its median over the repeats.
    """
    speeds = {of: timing.median for of, timing in timings(results.rows, "tokens_per_s").items() if timing.median}
    places = list(dict.fromkeys(map(spot, results.rows)))
    quotients = {}
    for name in columns_of(results):
        pairs = [(speeds[name, p], speeds[PLAIN, p]) for p in places if (name, p) in speeds and (PLAIN, p) in speeds]
        if name != PLAIN and pairs:
            quotients[name] = fmean(speed for speed, _ in pairs) / fmean(plain for _, plain in pairs)
    return quotients
