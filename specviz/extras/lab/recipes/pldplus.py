"""Measurements of PLD+'s recipes beside runs: lengths of prompts, which of several places pays, tuning in two steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from decoders.trace.acceptance import token_class
from specviz.groups import group

from ..experiments.experiment import Row
from ..experiments.quantities import number_of
from ..experiments.values import head_counts, hidden_states

if TYPE_CHECKING:
    from decoders import Prompt, Target

TUNED_ON, PROMPTS, NEW = "demo:summary", 4, 64  # summaries, as in §5.5; tokens of each answer at most
FIRST_K, LENGTHS = 10, (10, 20, 30, 40, 50, 70, 100)
FIRST = {"pld+h": ("layer", hidden_states), "pld+a": ("heads", head_counts)}  # what is tuned before K


def lengths(target: Target, method: str, params: Mapping[str, Any], prompt: Prompt, new: int) -> Iterator[Row]:
    """One row: the words and tokens of a prompt. Nothing is decoded."""
    text = target.tokenizer.decode(list(prompt.tokens), skip_special_tokens=True)
    yield {"words": float(len(text.split())), "prompt_tokens": float(len(prompt.tokens))}


def tune(target: Target, method: str, params: Mapping[str, Any]) -> Iterator[Row]:
    """A row per prompt and draft length K, at the layer (of ``pld+h``) or number of heads (of ``pld+a``) that gave the
    most tokens per step at K = 10; the rows of that first step are hidden. Of equals the lowest value is taken.
    """
    from decoders import record
    from specviz.views.prompts import cases, records

    case_list = cases(target.tokenizer, records(TUNED_ON, PROMPTS))
    name, values_of = FIRST[method]

    def runs(values: Mapping[str, Any]) -> list[Row]:
        run_rows = []
        for case in case_list:
            trace = record(target, case.prompt, method, {**params, **values}, max_new_tokens=NEW)
            numbers = {key: trace.run["metrics"][key] for key in ("tokens", "steps", "tokens_per_step")}
            run_rows.append({"prompt": case.id, "category": case.category, **numbers})
        return run_rows

    speed_by_value = {}
    for value in values_of(target.info):
        rows = runs({name: value, "k": FIRST_K})
        speed_by_value[value] = number_of(rows, "tokens_per_step") or 0.0
        first = {"series": f"{method}, {name}", "param:k": str(FIRST_K), f"param:{name}": str(value), "role": "hidden"}
        yield from ({**row, **first} for row in rows)
    best = max(speed_by_value, key=lambda value: speed_by_value[value])
    for k in LENGTHS:
        for row in runs({name: best, "k": k}):
            yield {**row, "series": f"PLD+ ({method[-1]}), {name} {best}", "param:k": str(k)}


def places(target: Target, method: str, params: Mapping[str, Any], prompt: Prompt, new: int) -> Iterator[Row]:
    """Rows per step of a PLD+ run at which the last token stood at several places before: the tokens that the text
    would have accepted of the copy after the place that PLD takes (the longest n-gram, the earliest), after the place
    that PLD+ took, and after the best one. The category is the last token's class.
    """
    from decoders import record

    trace = record(target, prompt, method, params, max_new_tokens=new)
    tokens, texts = trace.tables["tokens"]["id"], trace.texts()
    candidates, context = trace.tables["candidates"], trace.tables["steps"]["context"]
    candidate_rows = (row for row, count in enumerate(candidates["would_accept"]) if count >= 0)
    for step, rows in group((candidates["step"][row], row) for row in candidate_rows).items():
        last = context[step] - 1
        chosen_rows = [row for row in rows if candidates["chosen"][row]]
        if len(rows) < 2 or not chosen_rows:
            continue
        looked_up = looked_up_place(tokens[: last + 1], [candidates["position"][row] for row in rows])
        would = [candidates["would_accept"][row] for row in rows]
        text = texts.get(tokens[last], "")
        category = "line break" if "\n" in text else token_class(text)
        for series, accepted in (
            ("where PLD copies", would[looked_up]),
            ("where PLD+ copies", candidates["would_accept"][chosen_rows[0]]),
            ("the best place", max(would)),
        ):
            labels = {"series": series, "category": category}
            yield {**labels, "accepted_there": float(accepted), "places": float(len(rows))}


def looked_up_place(tokens: Sequence[int], positions: Sequence[int], longest: int = 3) -> int:
    """PLD's choice among the positions of the last token: the one with the most tokens before it like the text's last
    ones (at most ``longest``, itself included), of equals the earliest.

    >>> looked_up_place([5, 7, 1, 6, 7, 2, 6, 7], [1, 4])
    1
    """
    import numpy as np

    from decoders.drafters.pld import suffix_lengths

    return int(np.argmax(suffix_lengths(np.asarray(tokens), np.asarray(positions), longest)))
