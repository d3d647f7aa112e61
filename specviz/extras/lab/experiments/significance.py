"""Tests whether lines differ on the same prompts: a paired permutation test (Fisher's randomisation test).

If two lines were alike, each prompt's difference could as well have the other sign. p is the share of all choices of
signs whose mean difference is at least the one that was measured; one-sided. GLIDE's table 1 marks p < .01, and does
not say which test it used. No result with n prompts has a p below 2⁻ⁿ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from specviz.groups import group
from specviz.views.prompts import ALL_TASKS, NAMES
from specviz.words import column

from .experiment import Row
from .quantities import Quantity, number_of
from .results import Results

DRAWS, SEED = 100_000, 0  # choices of signs; of no more than 16 pairs there are fewer, and all are counted
LEVEL = 0.01  # below it a difference is marked
RISING = ("beta", "expected_speedup", "speedup", "tokens_per_step", "tokens_per_s")  # the more, the better
HEADS = ("metric", "task", "best other", "mean difference of a prompt", "prompts", "p")


def paired_p(differences: Sequence[float]) -> float:
    """The one-sided p of paired ``differences``: exact for at most 16 pairs, else of 100,000 drawn choices of signs.

    >>> paired_p([0.2, 0.1, 0.3]), paired_p([0.1, -0.1])
    (0.125, 0.75)
    """
    from scipy.stats import permutation_test  # takes half a second

    if len(differences) < 2:  # scipy takes no fewer
        return 0.5 if sum(differences) > 0 else 1.0
    result = permutation_test(
        (differences,), lambda values, axis: values.sum(axis), permutation_type="samples", alternative="greater",
        vectorized=True, n_resamples=DRAWS, batch=DRAWS // 10, rng=SEED,
    )  # fmt: skip
    return float(result.pvalue)


def compare_lines(results: Results, metrics: Sequence[str]) -> tuple[str, list[tuple[str, ...]]]:
    """The tests of the results' ``tested`` line as a table: its title, and rows for ``HEADS``. Per metric and task, and
    over all of them, against the other line with the highest number there. No rows where there is nothing to compare.
    """
    name = results.about.get("tested") or ""
    rows = [row for row in results.rows if row.get("role") == "run" and not row.get("error")]
    keys = [key for key in metrics if isinstance(results.quantity(key), Quantity) and key in RISING]
    result_lines = [line for key in keys for line in _of(results, name, key, rows)]
    mark = f"† p < {LEVEL:g}"
    return f"{name} against the best other line (paired permutation test over prompts, one-sided; {mark})", result_lines


def _of(results: Results, name: str, key: str, rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    quantity = results.quantity(key)
    tasks = list(dict.fromkeys(row["category"] for row in rows))
    for task in [*tasks, ALL_TASKS] if len(tasks) > 1 else [ALL_TASKS]:
        task_rows = [row for row in rows if task in (ALL_TASKS, row["category"]) and row.get(key) is not None]
        lines = group((row["series"], row) for row in task_rows)
        line_values = {label: number_of(line_rows, key) or 0.0 for label, line_rows in lines.items() if label != name}
        if name not in lines or not line_values:
            continue
        best = max(line_values, key=lambda label: line_values[label])
        own_values, rival_values = (
            {
                prompt: number_of(prompt_rows, key) or 0.0
                for prompt, prompt_rows in group((row["prompt"], row) for row in of).items()
            }
            for of in (lines[name], lines[best])
        )
        differences = [own_values[prompt] - rival_values[prompt] for prompt in own_values if prompt in rival_values]
        if not differences:
            continue
        p, difference = paired_p(differences), fmean(differences)
        level = f"{p:.4f}" if p >= 0.0001 else "< 0.0001"
        form = column(quantity.unit, [difference])
        percent = " points" if quantity.unit == "share" else ""
        yield (
            quantity.label + results.rough(quantity), str(NAMES.get(task, task)), best,
            f"{form(difference)}{percent}", str(len(differences)), f"{level} †" if p < LEVEL else level,
        )  # fmt: skip
