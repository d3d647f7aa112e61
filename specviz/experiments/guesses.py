"""The accuracy of PPD's guesses, on an experiment's prompts and in a training's log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decoders.errors import UserError
from decoders.names import PROMPT_TOKENS, QUICK

from .experiment import Row

if TYPE_CHECKING:
    from decoders import Prompt, Target
    from decoders.parts import Part

RANKS = 10  # guesses per distance that are looked at
HELD = "held:"  # column of a distance and a number of guesses, as in held:1/5
COLUMNS = ((1, 1), (1, 5), (2, 1), (2, 5))  # distance and number of guesses, as in the paper's tables
ACCURACY = "accuracy"  # the recipes' quantity of it


def look(target: Target, _: str, params: Mapping[str, Any], prompt: Prompt, max_new_tokens: int) -> Iterator[Row]:
    """One row: for every distance and number of guesses, the share of the answer's positions where the guesses made
    there hold. Raises UserError for prompt tokens that are missing or of another target.
    """
    from decoders.engine.decoding import generate
    from decoders.parts import load_part
    from decoders.study.measure.guess_acceptance import guess_ranks

    prompts = load_part(target, PROMPT_TOKENS, params.get("part"))
    answer = generate(target, prompt, QUICK, max_new_tokens=max_new_tokens)
    guessed = guess_ranks(target, prompts, [*prompt.tokens, *answer], len(prompt.tokens))
    yield {
        f"{HELD}{distance}/{count}": float((ranks < count).float().mean())
        for distance, ranks in enumerate(guessed, 1)
        for count in range(1, RANKS + 1)
        if len(ranks)
    }


def side_by_side(rows: list[Row]) -> list[Row]:
    """Each look's row as one per column of the paper's tables, a series each.

    >>> [(r["series"], r["accuracy"]) for r in side_by_side([{"series": "PPD", "held:1/1": .4, "held:2/5": .5}])]
    [('@1 top-1', 0.4), ('@2 top-5', 0.5)]
    """
    return _apart(rows, COLUMNS, lambda distance, count: {"series": f"@{distance} top-{count}"})


def by_distance(rows: list[Row]) -> list[Row]:
    """Each look's row as one per distance (a series each) and number of guesses (the parameter k)."""
    places = [(distance, count) for distance in range(1, 17) for count in range(1, RANKS + 1)]
    return _apart(rows, places, lambda distance, count: {"series": f"distance {distance}", "param:k": str(count)})


def _apart(rows: list[Row], places: Iterable[tuple[int, int]], labels: Callable[[int, int], Row]) -> list[Row]:
    apart: list[Row] = []
    for row in rows:
        if row.get("error"):
            apart.append(row)
            continue
        common = {name: value for name, value in row.items() if not name.startswith(HELD)}
        for place in places:
            share = row.get(f"{HELD}{place[0]}/{place[1]}")
            if share is not None:
                apart.append({**common, **labels(*place), ACCURACY: share})
    return apart


def part_of(target: Target, params: Mapping[str, Any]) -> tuple[Path, Part]:
    """Folder and description of the prompt tokens that PPD's parameters name. Raises UserError where none will do."""
    from decoders.parts import find_part, load_part, read_part

    named = params.get("part")
    load_part(target, PROMPT_TOKENS, named)
    folder = Path(str(named or find_part(target.key, PROMPT_TOKENS))).expanduser()
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
