"""The numbers that a trace keeps of a step's tensors: the target's choices, a draft model's, and where it looked."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from decoders.draft.distributions import NodeDistributions
from decoders.draft.draft import Looks
from decoders.model.state.transfer import fetch, rows_of, send
from decoders.top_k import top_k
from decoders.trace.tables import TABLES
from decoders.verifiers.processors import FORBIDDEN
from decoders.verifiers.residual import overlap, residual
from decoders.verifiers.sampling import Chooser

from .decoding import Step

TARGET_CHOICES = 5  # the target's first choices kept after each visited node
DRAFTER_CHOICES = 8  # those of a draft model
MEAN_LOOKS, MEAN_LEAST = 24, 0.005  # attention weights kept per node, averaged over heads: so many, if so large
LONG = 8192  # numbers of a row that is not copied to be compared
HEAD_LOOKS, HEAD_LEAST = 8, 0.02  # the same per head


def finite(values: np.ndarray) -> list[float | None]:
    """Numbers as a trace keeps them: six decimals, None for what is not finite."""
    rounded_values: list[float | None] = values.round(6).tolist()
    return rounded_values if np.isfinite(values).all() else [v if math.isfinite(v) else None for v in rounded_values]  # type: ignore


def higher(
    numbers: Float[Tensor, "all vocab"], rows: Int[Tensor, " rows"], thresholds: Float[Tensor, " rows"]
) -> Int[Tensor, " rows"]:
    """Count the numbers of a row that are higher than ``thresholds``. On a CPU, long rows are read where they lie, one
    by one; else ones are added as floats, which is done several at a time.
    """
    if numbers.device.type == "cpu" and numbers.shape[1] > LONG:
        table, pairs = numbers.numpy(force=True), zip(rows.tolist(), thresholds.tolist(), strict=True)
        return torch.tensor([np.count_nonzero(table[row] > threshold) for row, threshold in pairs], dtype=torch.int32)
    copies = numbers.index_select(0, rows)
    return torch.gt(copies, thresholds[:, None], out=copies).sum(-1, dtype=torch.float32).int()


class TargetNumbers:
    """The recorded numbers of some steps' logits, one list entry per step.

    The target's probability and rank of every node after its parent (None and -1 for the root) and of the bonus, its
    first choices after visited nodes, its entropy at the root. Of a tree, only nodes that were visited or have
    children are read: ``row`` has each one's row of ``logits``, ``probabilities`` and ``likeliest`` by (step, node).
    ``processed_logits`` are those after the run's processors, nan where these were not asked; ``node_terms`` has each
    step's numbers of nodes by them.
    """

    def __init__(self, steps: list[Step], first: int | None = None) -> None:
        self.first = first  # choices of target and drafter that are recorded, where more than usual
        self.row: dict[tuple[int, int], int] = {}
        parts, processed_rows = list[Tensor](), list[Tensor]()
        for step in steps:
            distributions = step.draft.distributions or ()
            read = sorted({0, *step.draft.tree.parents[1:], *step.verdict.path, *distributions})
            self.row |= {(step.index, node): len(self.row) + i for i, node in enumerate(read)}
            parts.append(rows_of(step.scored.logits, read))
            if (processed := step.processed) is not None:
                unknown = torch.full_like(parts[-1][:1], math.nan)
                processed_rows += [processed.row(node) if processed.knows(node) else unknown for node in read]
        self.logits = logits = parts[0] if len(parts) == 1 else torch.cat(parts)
        self.processed_logits = torch.cat(processed_rows) if processed_rows else logits
        self.node_terms = [self._term_values(step) if processed_rows else {} for step in steps]
        self.probabilities = logits.softmax(-1)
        end_flags = [step.verdict.bonus is None for step in steps]
        parents = [self.row[step.index, p] for step in steps for p in step.draft.tree.parents[1:]]
        tokens = [t for step in steps for t in step.draft.tree.tokens[1:]]
        drafted = len(tokens)
        # each step's bonus stands behind the nodes
        parents += [self.row[step.index, step.verdict.path[-1]] for step in steps]
        tokens += [step.verdict.bonus or 0 for step in steps]
        visits = [(step.index, node) for step in steps for node in step.verdict.path]
        at = [self.row[step.index, 0] for step in steps]
        parent_rows, token_ids, starts = send(
            logits.device, *(np.asarray(n, dtype=np.int64) for n in (parents, tokens, at))
        )
        choice = top_k(logits, first or TARGET_CHOICES)[1]
        highest = self.probabilities.gather(1, choice)
        roots = self.probabilities[starts]
        read = fetch(
            self.probabilities[parent_rows, token_ids], higher(logits, parent_rows, logits[parent_rows, token_ids]),
            choice, highest,
            torch.special.entr(roots).sum(-1),
        )  # fmt: skip
        token_probs, ranks, self.likeliest, chances, entropy = read
        places = [self.row[place] for place in visits]
        width = choice.shape[1]
        self.targets: dict[str, list[Any]] = {
            "step": [index for index, _ in visits for _ in range(width)],
            "node": [node for _, node in visits for _ in range(width)],
            "token": self.likeliest[places].ravel().tolist(),
            "prob": chances[places].ravel().astype(np.float64).round(6).tolist(),
        }
        self.entropy: list[float] = entropy.astype(np.float64).round(6).tolist()
        probs, rank_list = token_probs.astype(np.float64).round(6).tolist(), ranks.tolist()
        self.bonus_prob = [None if e else p for e, p in zip(end_flags, probs[drafted:], strict=True)]
        self.bonus_rank = [-1 if e else r for e, r in zip(end_flags, rank_list[drafted:], strict=True)]
        ends = accumulate((step.draft.tree.drafted for step in steps), initial=0)
        spans = [slice(*span) for span in pairwise(ends)]
        self.probs: list[list[float | None]] = [[None, *probs[span]] for span in spans]
        self.ranks: list[list[int]] = [[-1, *rank_list[span]] for span in spans]

    def _term_values(self, step: Step) -> dict[str, np.ndarray]:
        """The probability of each node after the processors, and 1 where they forbid it; nan where they were not asked,
        and where the target did so itself.
        """
        tree, nan = step.draft.tree, np.full(len(step.draft.tree), np.nan)
        numbers = {"p_after": nan, "forbidden": nan.copy()}
        if not tree.drafted:
            return numbers
        rows = [self.row[step.index, parent] for parent in tree.parents[1:]]
        (tokens,) = send(self.processed_logits.device, np.asarray(tree.tokens[1:], dtype=np.int64))
        new, old = self.processed_logits[rows, tokens], self.logits[rows, tokens]
        probs = (new - self.processed_logits.logsumexp(-1)[rows]).exp()
        forbidden = (new <= FORBIDDEN).float().masked_fill(new.isnan() | (old <= FORBIDDEN), math.nan)
        numbers["p_after"][1:], numbers["forbidden"][1:] = fetch(probs, forbidden)
        return numbers


def looked_at(looks: Looks) -> Iterator[dict[str, Any]]:
    """The largest attention weights of each node's query, averaged over heads (head -1), then head by head."""
    weights = looks.weights()
    for mean, head_weights, limit, threshold in (
        (True, weights.mean(1, keepdim=True), MEAN_LOOKS, MEAN_LEAST),
        (False, weights, HEAD_LOOKS, HEAD_LEAST),
    ):
        top, place = (tensor.numpy(force=True) for tensor in head_weights.topk(min(limit, head_weights.shape[-1])))
        indices = layer, head, node, _ = np.nonzero(top >= threshold)
        yield {
            "node": np.asarray(looks.nodes)[node].tolist(),
            "layer": np.asarray(looks.layers)[layer].tolist(),
            "head": -1 if mean else head.tolist(),
            "position": place[indices].tolist(),
            "weight": finite(top[indices].astype(np.float64)),
        }


def guesses(
    steps: list[Step], warpers: Chooser, target: TargetNumbers
) -> tuple[dict[str, list[Any]], dict[tuple[int, int], float]]:
    """The drafter's and the target's tokens after each node that brings a distribution, side by side: the columns of
    the table guesses, per node in the order of the drafter's ranks. And β of each (step, node).
    """
    step_pairs = [(step, NodeDistributions.of(step.draft.distributions)) for step in steps if step.draft.distributions]
    if not step_pairs:
        return {column.name: [] for column in TABLES["guesses"]}, {}
    place_of = {
        node: i
        for i, node in enumerate((step.index, node) for step, distributions in step_pairs for node in distributions)
    }
    is_drawn, vocab = step_pairs[0][0].draft.drawn, step_pairs[0][1].vocab  # of a run, all drafts or none
    rows = [target.row[node] for node in place_of]
    p = rows_of(target.processed_logits if is_drawn else target.probabilities, rows)
    p = warpers.probabilities(p).float() if is_drawn else p
    q = torch.cat([distributions.probabilities for _, distributions in step_pairs])
    starts = accumulate((len(distributions.probabilities) for _, distributions in step_pairs), initial=0)
    of = [
        start + row
        for (_, distributions), start in zip(step_pairs, starts, strict=False)
        for row in distributions.row.values()
    ]
    top_probs, first = top_k(q, target.first or DRAFTER_CHOICES)
    among = (top_probs[:, None, :] > top_probs[:, :, None]).sum(-1)  # of the drafter's first; equals share one
    overlaps = overlap(p if vocab is None else p.index_select(1, vocab.tokens), rows_of(q, of))
    firsts, ranking, betas = fetch(first if vocab is None else vocab.tokens[first], among, overlaps)

    extra_pairs = list[tuple[int, int]]()  # (place, token)
    redrawn = dict[int, float]()  # place of a draw that was replaced → what a block carried on to there (else 1)
    for step, _ in step_pairs:
        tree, (*_, last), bonus = step.draft.tree, step.verdict.path, step.verdict.bonus
        node_places = [place_of.get((step.index, node)) for node in range(len(tree))]
        children = zip(tree.parents[1:], tree.tokens[1:], strict=True)
        extra_pairs += [(place, token) for parent, token in children if (place := node_places[parent]) is not None]
        if (place := node_places[last]) is not None and bonus is not None:
            extra_pairs.append((place, bonus))
            if is_drawn and step.accepted < tree.drafted:
                block_terms = step.verdict.terms.get("block_p")
                redrawn[place] = 1.0 if block_terms is None else float(block_terms[last])
    pair_array = np.asarray(extra_pairs, dtype=np.int64).reshape(-1, 2)
    place, token, rank = _comparisons(firsts[of], ranking[of], target.likeliest[rows], pair_array)
    later_rows = np.flatnonzero(rank < 0)
    can = token if vocab is None else vocab.places[token]
    target_rows, ids, row, columns, known_mask, unranked_places = send(
        q.device, place, token, np.asarray(of)[place], can.clip(0), (can >= 0).astype(np.float32), later_rows
    )
    draft_probs = q[row, columns] * known_mask
    residual_parts = [residual(p[i] * share, q[of[i]])[ids[target_rows == i]].double() for i, share in redrawn.items()]
    new_ranks = higher(q, row[unranked_places], draft_probs[unranked_places])
    drafter_prob, prob, rank[later_rows], *instead = fetch(
        draft_probs.double(), p[target_rows, ids].double(), new_ranks, *residual_parts
    )
    residuals = np.full(len(token), np.nan)
    for i, values in zip(redrawn, instead, strict=True):
        residuals[place == i] = values
    order = np.lexsort((rank, place))
    index, node = np.asarray([*place_of])[place[order]].T
    return {
        "step": index.tolist(),
        "node": node.tolist(),
        "token": token[order].tolist(),
        "rank": rank[order].tolist(),
        "draft_prob": finite(drafter_prob[order]),
        "prob": finite(prob[order]),
        "residual": finite(residuals[order]) if redrawn else [None] * len(token),
    }, dict(zip(place_of, betas.tolist(), strict=True))


def _comparisons(
    firsts: Int[np.ndarray, "nodes k"], ranks: Int[np.ndarray, "nodes k"], likeliest: Int[np.ndarray, "nodes t"],
    extra_pairs: Int[np.ndarray, "others 2"],
) -> tuple[Int[np.ndarray, " rows"], Int[np.ndarray, " rows"], Int[np.ndarray, " rows"]]:  # fmt: skip
    """(node, token, the drafter's rank of it) of each token that is compared after a node, once: the drafter's first
    ones, the target's, and (node, token) besides. Rank -1: none of the drafter's first.
    """
    nodes = np.arange(len(firsts))
    node = np.concatenate([nodes.repeat(firsts.shape[1]), nodes.repeat(likeliest.shape[1]), extra_pairs[:, 0]])
    token = np.concatenate([firsts.ravel(), likeliest.ravel(), extra_pairs[:, 1]])
    rank = np.concatenate([ranks.ravel(), np.full(len(token) - ranks.size, -1)])
    unique_rows = np.sort(np.unique(node * (token.max() + 1) + token, return_index=True)[1])  # as they were given
    return node[unique_rows], token[unique_rows], rank[unique_rows]
