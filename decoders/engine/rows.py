"""What steps become in a trace: rows and their numbers."""

from __future__ import annotations

import math
import re
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import torch

from decoders.draft.draft import Looks
from decoders.draft.needs import Needs
from decoders.draft.params import controls
from decoders.draft.terms import Term

from .decoding import Step

TARGET_CHOICES = 5  # the target's first choices kept after each visited node
MEAN_LOOKS, MEAN_LEAST = 24, 0.005  # attention weights kept per node, averaged over heads: so many, if so large
HEAD_LOOKS, HEAD_LEAST = 8, 0.02  # the same per head


def _add_looks(rows: dict[str, list[Any]], index: int, looks: Looks) -> None:
    """The largest attention weights of each node's query, averaged over heads (head -1) and head by head."""
    weights = looks.weights()
    for mean, shown, most, least in (
        (True, weights.mean(1, keepdim=True), MEAN_LOOKS, MEAN_LEAST),
        (False, weights, HEAD_LOOKS, HEAD_LEAST),
    ):
        top, place = (found.numpy(force=True) for found in shown.topk(min(most, shown.shape[-1])))
        kept = layer, head, node, _ = np.nonzero(top >= least)
        rows["step"] += [index] * len(layer)
        rows["node"] += np.asarray(looks.nodes)[node].tolist()
        rows["layer"] += np.asarray(looks.layers)[layer].tolist()
        rows["head"] += [-1] * len(layer) if mean else head.tolist()
        rows["position"] += place[kept].tolist()
        rows["weight"] += _finite(top[kept].astype(np.float64))


def recorded_params(params: Any) -> dict[str, Any]:
    """A method's parameters as a trace keeps them: of paths their last name alone."""
    return {c.name: _without_folder(getattr(params, c.name)) for c in controls(type(params))}


def _without_folder(value: Any) -> Any:
    """A parameter as it is recorded: of a path its last name alone, as a trace may be given away. Hub ids stay.

    >>> _without_folder("/models/draft"), _without_folder("org/name"), _without_folder(4)
    ('draft', 'org/name', 4)
    """
    if not isinstance(value, str) or not any(mark in value for mark in "/\\"):
        return value
    given = Path(value).expanduser()
    local = value.startswith((".", "/", "~")) or "\\" in value or value.count("/") > 1 or given.exists()
    return re.split(r"[/\\]", str(given.resolve() if given.exists() else value).rstrip("/\\"))[-1] if local else value


def _described(term: Term) -> dict[str, Any]:
    return {"key": term.key, "label": term.label, "help": term.help, "low": term.low, "high": term.high}


def _resolved(params: Any, needs: Needs) -> dict[str, int]:
    """What layer and heads came to where the parameters left them open."""
    found: dict[str, int] = {}
    if getattr(params, "layer", 0) is None and needs.layers:
        found["layer"] = max(needs.layers)
    if getattr(params, "heads", 0) is None and needs.heads:
        found["heads"] = len(needs.heads)
    return found


def _finite(values: np.ndarray) -> list[float | None]:
    """Numbers as a trace keeps them: six decimals, None for what is not finite."""
    rounded: list[float | None] = values.round(6).tolist()
    return rounded if np.isfinite(values).all() else [v if math.isfinite(v) else None for v in rounded]  # type: ignore


class _Numbers:
    """What a trace keeps of the logits of some steps, one list entry per step.

    The target's probability and rank of every node after its parent (None and -1 for the root) and of the bonus, its
    first choices after visited nodes, its entropy at the root.
    """

    def __init__(self, steps: list[Step]) -> None:
        parts = [step.scored.logits for step in steps]
        logits = parts[0] if len(parts) == 1 else torch.cat(parts)
        starts = [0, *accumulate(len(part) for part in parts[:-1])]
        normaliser = logits.logsumexp(-1)
        lse: list[float] = normaliser.tolist()

        device = logits.device
        placed = list(zip(steps, starts, strict=True))
        parents = [start + p for step, start in placed for p in step.draft.tree.parents[1:]]
        tokens = [t for step in steps for t in step.draft.tree.tokens[1:]]
        drafted = len(tokens)
        parents += [start + step.verdict.path[-1] for step, start in placed]  # each step's bonus, behind the nodes
        tokens += [step.verdict.bonus or 0 for step in steps]
        before = logits[torch.tensor(parents, device=device, dtype=torch.long)]
        mine = before.gather(1, torch.tensor(tokens, device=device, dtype=torch.long)[:, None])
        ranks: list[int] = (before > mine).sum(-1, dtype=torch.int32).tolist()
        probs = [round(math.exp(x - lse[p]), 6) for x, p in zip(mine.flatten().tolist(), parents, strict=True)]

        visited = [(step.index, start, node) for step, start in placed for node in step.verdict.path]
        rows = torch.tensor([start + node for _, start, node in visited], device=device)
        top, choice = logits[rows].topk(min(TARGET_CHOICES, logits.shape[-1]), dim=-1)
        width = top.shape[1]
        self.targets: dict[str, list[Any]] = {
            "step": [index for index, _, _ in visited for _ in range(width)],
            "node": [node for _, _, node in visited for _ in range(width)],
            "token": choice.flatten().tolist(),
            "prob": (top - normaliser[rows][:, None]).exp().double().mul_(1e6).round_().div_(1e6).flatten().tolist(),
        }
        roots = logits[starts] - normaliser[starts][:, None]
        self.entropy = [round(e, 6) for e in (-(roots.exp() * roots.clamp_min(-1e30)).sum(-1)).tolist()]

        self.probs: list[list[float | None]] = []
        self.ranks: list[list[int]] = []
        ended = [step.verdict.bonus is None for step in steps]
        self.bonus_prob = [None if e else p for e, p in zip(ended, probs[drafted:], strict=True)]
        self.bonus_rank = [-1 if e else r for e, r in zip(ended, ranks[drafted:], strict=True)]
        at = 0
        for step in steps:
            n = step.draft.tree.drafted
            self.probs.append([None, *probs[at : at + n]])
            self.ranks.append([-1, *ranks[at : at + n]])
            at += n
