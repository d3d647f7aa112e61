"""Origins: where a drafted token came from, and how the views tell it apart."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from .run import RunOrigin, RunRecord


@dataclass(frozen=True, slots=True)
class Origin:
    """A source of drafted nodes, as the views show it. Every node but the root names one.

    ``letter`` marks a node in the tree ("" for the usual origin of a method), ``label`` names it in the legend, and
    ``sentence`` explains it. ``outline`` is the shape of its box: box, pointed, notched, spine, cut, ear or round.
    ``hue`` chooses a colour of the theme: 0 is neutral, 1 to 3 are colours of their own. ``beside``: its nodes stand
    beside the main chain, in a lane below it.
    """

    name: str
    letter: str
    label: str
    sentence: str
    outline: str = "box"
    hue: int = 0
    beside: bool = False


MAIN = Origin("main", "", "chosen copy", "Copied from the chosen earlier place.")
BRANCH = Origin(
    "branch", "B", "branch",
    "Not copied: one of the target's own likeliest tokens at the anchor; hover one to see the anchor.", "pointed", 1,
)  # fmt: skip
SUCCESSOR = Origin(
    "successor", "S", "successor", "Copied: what followed the branch's token at another earlier place.", "notched", 2
)
DATASTORE = Origin(
    "datastore", "D", "datastore", "Copied from a pool of text, where the last tokens stand too.", "spine", 3
)
EXPANSION = Origin(
    "expansion", "E", "expansion",
    "A further guess of the draft model, smaller, in a lane below the main chain; 3rd: its third choice.", "cut",
    beside=True,
)  # fmt: skip
PROMPT = Origin(
    "prompt", "P", "prompt tokens",
    "Guessed by a trained prompt token of the step before; 2nd: its second guess at that distance.", "ear",
)  # fmt: skip
DRAFTER = Origin("drafter", "", "drafter", "Written by a draft model; the main chain runs straight on.", "round")

# what a node may name in a run that was recorded before runs said so themselves: never to be changed
BEFORE_ORIGINS = (MAIN, BRANCH, SUCCESSOR, DATASTORE, EXPANSION, PROMPT, DRAFTER)


def recorded_origins(run: RunRecord) -> list[RunOrigin]:
    """The origins that a run's record declares, "main" and "prompt" by their labels of today; those of all earlier
    methods where it has none.

    >>> [origin["label"] for origin in recorded_origins(RunRecord())][:2]
    ['chosen copy', 'branch']
    """
    if "origins" not in run:
        return [RunOrigin(**asdict(origin)) for origin in BEFORE_ORIGINS]
    origins = [RunOrigin(**{"beside": origin["name"] == EXPANSION.name, **origin}) for origin in run["origins"]]
    labels = {origin.name: origin.label for origin in (MAIN, PROMPT)}
    return [RunOrigin(**{**origin, "label": labels.get(origin["name"], origin.get("label", ""))}) for origin in origins]
