"""Claim of an acceptance: one sentence on the method that has more accepted, where it has, and why; of methods' runs
of the same prompts, as another prompt can be drafted more or less by any method.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import sqrt
from typing import Any

from decoders.errors import capital
from specviz.groups import group
from specviz.words import decimals, plural

from .sets import SetCounts, pooled_by_method

FEWEST = 10  # decided positions from which a group's rate is compared, and drawn as a bar
FEWEST_DRAFTS = 20  # of both methods, from which a place and a reason are given; of tokens right and wrong, a rank
LEVEL = 0.03  # rates and lengths that lie no further apart (of the larger) are no reason
PLACES = {"segment": "tokens copied from the {}", "class": "tokens of the kind “{}”", "origin": "tokens from “{}”"}

Set = Mapping[str, Any]  # of ``pooled_by_method``


DIFFERENT_PROMPTS = (
    "These methods drafted for different prompts, so none can be said to have more accepted. Choose runs of one prompt."
)


def claim_of_runs(runs: Iterable[SetCounts]) -> str:
    """The sentence about runs: of those prompts that every method with a draft ran."""
    drafting = [run for run in runs if not run.forced and run.acceptance.decided]
    methods = group((run.group, run.prompt) for run in drafting)
    if len(methods) < 2:
        return claim(pooled_by_method(drafting))
    prompts = {run.prompt for run in drafting}
    shared = prompts.intersection(*methods.values()) - {None}
    if not shared:
        return DIFFERENT_PROMPTS
    sentence = claim(pooled_by_method(run for run in drafting if run.prompt in shared))
    if left_out := len(prompts) - len(shared):
        sentence += f" Of {plural(len(shared), 'prompt')} that all of them ran; {left_out:,} not."
    return sentence


def claim(sets: Sequence[Set]) -> str:
    """The sentence about methods' sets, of which the first has most tokens per step; "" where none drafted.

    >>> def made(title, stood, decided=20):
    ...     depths = [{"depth": 1, "decided": decided, "stood": stood, "drafts": 20, "conditional": stood / decided}]
    ...     return {"title": title, "depths": depths, "groups": {}, "pooled": {"tokens_per_step": 1 + stood / 20},
    ...             "parts": {"drafted": 20, "first_drafts": 20, "drafts": 20, "steps": 20}}
    >>> claim([made("PLD+", 18), made("PLD: lookup", 12)])
    'PLD+ has more accepted than PLD: 1.90 against 1.60 tokens per step, because the first token of its drafts is \
accepted more often (90 % against 60 %).'
    """
    ranking = [entry for entry in sets if entry["depths"]]
    if not ranking:
        return ""
    best = ranking[0]
    if len(ranking) == 1:
        return (
            f"{_title(best)} makes {decimals(_per_step(best), 2)} tokens per step; the first token of its drafts is "
            f"accepted in {_percent(_first(best))} of them."
        )
    rival = ranking[1]
    numbers = f"{decimals(_per_step(best), 2)} against {decimals(_per_step(rival), 2)} tokens per step"
    if _per_step(best) - _per_step(rival) <= LEVEL * _per_step(best):
        return f"{_title(best)} and {_title(rival)} have as much accepted: {numbers}."
    rivals = _title(rival) if len(ranking) == 2 else f"all others, {_title(rival)} next"
    opening = f"{_title(best)} has more accepted than {rivals}: {numbers}"
    count, title = min((entry["depths"][0]["decided"], _title(entry)) for entry in (best, rival))
    if count < FEWEST_DRAFTS:
        firsts = (f"{row['stood']} of {row['decided']}" for row in (best["depths"][0], rival["depths"][0]))
        evidence = f"The first drafted token was accepted in {' drafts, against '.join(firsts)}"
        caveat = f"{plural(count, 'draft')} of {title} {'is' if count == 1 else 'are'} too few to say why"
        return f"{opening}. {evidence}; {caveat}."
    return f"{opening}{_place_clause(best, rival)}{_reason_clause(best, rival)}."


def calibration_claim(sets: Sequence[Set]) -> str:
    """The sentence on the confidences with ``FEWEST_DRAFTS`` correct and wrong tokens: a best and a worst where their
    areas lie further apart than twice the standard error.

    >>> def made(title, auroc, count):
    ...     return {"title": title, "calibration": [{"label": "q", "auroc": auroc, "count": count, "rate": 0.5}]}
    >>> calibration_claim([made("A", 0.9, 400), made("B", 0.6, 200), made("C", 1.0, 6)])
    'Of those with 20 correct and 20 wrong tokens the q of A (AUROC 0.90) tells correct tokens from wrong ones best, \
the q of B (AUROC 0.60) worst.'
    >>> calibration_claim([made("C", 1.0, 6)])
    'Too few tokens to compare confidences: none has 20 correct and 20 wrong ones.'
    """
    rows = [(entry, row, round(row["rate"] * row["count"])) for entry in sets for row in entry["calibration"]]
    fit = [
        (row["auroc"], (1 / n + 1 / (row["count"] - n)) / 12,
         f"the {row['label'].partition(' = ')[0]} of {_title(entry)} (AUROC {row['auroc']:.2f})")
        for entry, row, n in rows if FEWEST_DRAFTS <= n <= row["count"] - FEWEST_DRAFTS
    ]  # fmt: skip
    if not fit:
        few = f"none has {FEWEST_DRAFTS} correct and {FEWEST_DRAFTS} wrong ones"
        return f"Too few tokens to compare confidences: {few}." if rows else ""
    (best, error, name), (worst, other_error, other_name) = max(fit), min(fit)
    group = f"of those with {FEWEST_DRAFTS} correct and {FEWEST_DRAFTS} wrong tokens " * (len(fit) < len(rows))
    words = f"{capital(group + name)} tells correct tokens from wrong ones"
    if best - worst > 2 * sqrt(error + other_error):
        words += f" best, {other_name} worst"
    elif len(fit) > 1:
        words += f" no better than {other_name}"
    return f"{words}."


def _title(entry: Set) -> str:
    """A method's name without what its title says behind a colon."""
    name, colon, suffix = str(entry["title"]).partition(":")
    return name + (" (lossy)" if colon and suffix.endswith(" (lossy)") else "")


def _per_step(entry: Set) -> float:
    return entry["pooled"]["tokens_per_step"] or 0.0


def _per_draft(entry: Set) -> float:
    """Accepted tokens per draft."""
    return sum(row["stood"] for row in entry["depths"]) / (entry["depths"][0]["drafts"] or 1)


def _drafting(entry: Set) -> float:
    """Share of the steps that have a draft."""
    parts = entry["parts"]
    return parts["drafts"] / parts["steps"] if parts["steps"] else 0.0


def _first(entry: Set) -> float:
    return entry["depths"][0]["conditional"] or 0.0


def _length(entry: Set) -> float:
    """Drafted tokens per draft."""
    parts = entry["parts"]
    return parts["drafted"] / parts["first_drafts"] if parts.get("first_drafts") else 0.0


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _place_clause(best: Set, rival: Set) -> str:
    """The group of positions in which the two rates lie furthest apart, by how many positions that is."""
    gaps = []
    for name, words in PLACES.items():
        rates = {row["key"]: row for row in rival["groups"].get(name, ())}
        for row in best["groups"].get(name, ()):
            other_row = rates.get(row["key"])
            if other_row and min(row["decided"], other_row["decided"]) >= FEWEST:
                gap = (row["rate"] - other_row["rate"]) * min(row["decided"], other_row["decided"])
                gaps.append((gap, words.format(row["key"]), row["rate"], other_row["rate"]))
    gap, words, rate, other_rate = max(gaps, default=(0.0, "", 0.0, 0.0))
    if gap <= 0 or rate - other_rate <= LEVEL:
        return ""
    return f", most of all on {words} ({_percent(rate)} of them accepted, against {_percent(other_rate)})"


def _reason_clause(best: Set, rival: Set) -> str:
    draft_share, other_draft_share = _drafting(best), _drafting(rival)
    if draft_share * _per_draft(rival) > other_draft_share * _per_draft(best):  # the larger factor of the two
        shares = f"{_percent(draft_share)} against {_percent(other_draft_share)}"
        return f", because it drafts in more of its steps ({shares})"
    first, other_first = _first(best), _first(rival)
    if first - other_first > LEVEL:
        share = f"{_percent(first)} against {_percent(other_first)}"
        return f", because the first token of its drafts is accepted more often ({share})"
    length, other_length = _length(best), _length(rival)
    if length - other_length > LEVEL * length:
        share = f"{decimals(length, 1)} against {decimals(other_length, 1)} tokens"
        return f", because its drafts are longer ({share})"
    return ", because its drafts go on right for longer after their first token"
