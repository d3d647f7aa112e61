"""The accuracy of the guesses of PPD and of parallel heads, on an experiment's prompts and in a training's log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decoders.errors import UserError
from decoders.names import PROMPT_TOKENS, QUICK

from .experiment import Row, methods_by_name

if TYPE_CHECKING:
    from decoders import Prompt, Target
    from decoders.parts import Part

RANKS = 10  # guesses per distance that are looked at
HELD = "held:"  # column of a distance and a number of guesses, as in held:1/5
COLUMNS = ((1, 1), (1, 5), (2, 1), (2, 5))  # distance and number of guesses, as in the paper's tables
DISTANCES = (1, 2, 3)  # of fig. 6, a chart each
ACCURACY = "accuracy"  # the recipes' quantity of it


def look(target: Target, method: str, params: Mapping[str, Any], prompt: Prompt, max_new_tokens: int) -> Iterator[Row]:
    """One row: for every distance and number of guesses, the share of the answer's positions where the guesses made
    there hold, by the prompt tokens or the heads that ``method`` drafts with. Raises UserError for a part that is
    missing or of another target.
    """
    from decoders.engine.decoding import generate
    from decoders.parts import load_part
    from decoders.study.measure.guess_acceptance import guess_ranks

    kind = methods_by_name()[method].part.kind
    ranks_of = guess_ranks if kind.name == PROMPT_TOKENS else kind.ranks
    if ranks_of is None:
        raise UserError(f"{method} guesses nothing from a position alone: choose a method with prompt tokens or heads")
    part = load_part(target, kind.name, params.get("part"))
    answer = generate(target, prompt, QUICK, max_new_tokens=max_new_tokens)
    rank_lists = ranks_of(target, part, [*prompt.tokens, *answer], len(prompt.tokens))
    yield {
        f"{HELD}{distance}/{count}": float((ranks < count).float().mean())
        for distance, ranks in enumerate(rank_lists, 1)
        for count in range(1, RANKS + 1)
        if len(ranks)
    }


def side_by_side(rows: list[Row]) -> list[Row]:
    """Each look's row as one per column of the paper's tables, a series each.

    >>> [(r["series"], r["accuracy"]) for r in side_by_side([{"series": "PPD", "held:1/1": .4, "held:2/5": .5}])]
    [('@1 top-1', 0.4), ('@2 top-5', 0.5)]
    """
    return _split(rows, [({"series": f"@{place[0]} top-{place[1]}"}, {ACCURACY: place}) for place in COLUMNS])


def by_distance(rows: list[Row]) -> list[Row]:
    """Each look's row as one per number of guesses (the parameter k), with a column for each distance of fig. 6.

    >>> by_distance([{"series": "PPD", "held:1/1": .4, "held:2/1": .2, "held:1/2": .5}])[0]
    {'series': 'PPD', 'param:k': '1', 'accuracy_1': 0.4, 'accuracy_2': 0.2}
    """
    places = [{f"{ACCURACY}_{distance}": (distance, k) for distance in DISTANCES} for k in range(1, RANKS + 1)]
    return _split(rows, [({"param:k": str(k)}, columns) for k, columns in enumerate(places, 1)])


def _split(rows: list[Row], parts: Sequence[tuple[Row, Mapping[str, tuple[int, int]]]]) -> list[Row]:
    """A row per part that was counted: its labels, and by column the share at a distance and a number of guesses."""
    split_rows: list[Row] = []
    for row in rows:
        if row.get("error"):
            split_rows.append(row)
            continue
        common = {name: value for name, value in row.items() if not name.startswith(HELD)}
        for labels, columns in parts:
            shares = {name: row[f"{HELD}{d}/{k}"] for name, (d, k) in columns.items() if f"{HELD}{d}/{k}" in row}
            if shares:
                split_rows.append({**common, **labels, **shares})
    return split_rows


def part_of(target: Target, params: Mapping[str, Any]) -> tuple[Path, Part]:
    """Folder and description of the prompt tokens that PPD's parameters name. Raises UserError where none will do."""
    from decoders.parts import find_part, load_part, read_part

    part_name = params.get("part")
    load_part(target, PROMPT_TOKENS, part_name)
    folder = Path(str(part_name or find_part(target.key, PROMPT_TOKENS))).expanduser()
    return folder, read_part(folder)


def acceptance_of(target: Target, params: Mapping[str, Any]) -> tuple[tuple[float, ...], ...]:
    """The acceptance table of prompt tokens: that of the trees designed for them, else of their training's last
    validation. Raises UserError where there is neither.
    """
    from decoders.parts import load_part
    from decoders.prompt_tokens.trees import FILE, load_trees, trained_acceptance

    folder = part_of(target, params)[0]
    if (folder / FILE).is_file():
        return load_trees(folder / FILE).acceptance
    trained = trained_acceptance(folder, load_part(target, PROMPT_TOKENS, folder).config.tokens)
    if trained is None:
        raise UserError(f"nobody measured how often the guesses of {folder} hold: `specviz tree design` does")
    return trained
