"""The distributions of a recorded step, rebuilt from what its trace holds of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from decoders.trace.trace import Trace

USUAL = 5  # first choices of the target that are recorded where the run does not say more
ROUNDING = 1e-6  # of a recorded probability
LOWEST_PROBABILITY = 1e-12
RESOLUTION = 1e-5  # by so much, in parts, a token is likelier than the next one: single precision tells them apart


@dataclass(frozen=True, slots=True)
class Position:
    """A recorded draft with p (and q) of its nodes, as far as they are known.

    ``known`` has per node the recorded (p, q) by token id, q None where no drafter said it; ``ranks`` are the target's
    of every node. ``rest`` is the largest mass of p and of q that is not recorded at a node with children. ``first``:
    how many first choices of the target are among the recorded tokens, where a node has any.
    """

    step: int
    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    ranks: tuple[int, ...]
    own_probs: tuple[float | None, ...]
    status: tuple[str, ...]
    accepted: int
    is_drawn: bool
    draws: tuple[float, ...]
    known_probs: tuple[Mapping[int, tuple[float, float | None]], ...]
    is_listed: tuple[bool, ...]
    first: int
    vocab: int

    @property
    def missing(self) -> bool:
        """True where some drafted token's probability is not there: nothing can be judged."""
        lacks = any(p is None for p in self.own_probs[1:])
        return lacks or (self.is_drawn and any(self._q_of(node) is None for node in self._inner()))

    def _inner(self) -> list[int]:
        return sorted(set(self.parents[1:]))

    def _q_of(self, node: int) -> float | None:
        q_values = [q for _, q in self.known_probs[node].values() if q is not None]
        return sum(q_values) if q_values else None

    @property
    def rest_mass(self) -> tuple[float, float]:
        inner = self._inner()
        p = max((max(0.0, 1 - sum(prob for prob, _ in self.known_probs[node].values())) for node in inner), default=0.0)
        q = max((max(0.0, 1 - (self._q_of(node) or 0.0)) for node in inner), default=0.0) if self.is_drawn else 0.0
        return p, q

    def rows(
        self, wide: bool
    ) -> tuple[Float[Tensor, "nodes tokens"], dict[int, Float[Tensor, " tokens"]], tuple[int, ...]]:
        """p after every node, q after every one with children, and the draft's tokens as columns of them.

        What is not recorded lies on columns of its own: behind the others, on as few as the recorded ranks allow, where
        q has its own rest in p's proportion; or, ``wide``, before them, on as many as the vocabulary has, where q's
        rest lies on a column apart. So a number draws the same token of both where the record decides it.
        """
        named_tokens = self.token_ids
        column = {token: i for i, token in enumerate(named_tokens)}
        tails = [self._tail(node, wide) for node in range(len(self.tokens))]
        width = max((len(tail) for tail in tails), default=0)
        p = torch.zeros(len(self.tokens), len(named_tokens) + width + 1, dtype=torch.float64)
        q = dict[int, Tensor]()
        inner = set(self._inner())
        for node, (token_probs, tail) in enumerate(zip(self.known_probs, tails, strict=True)):
            for token, (p_value, _) in token_probs.items():
                p[node, column[token]] = p_value
            p[node, len(named_tokens) : len(named_tokens) + len(tail)] = torch.from_numpy(tail)
            p[node] /= p[node].sum()
            if node in inner and self.is_drawn:
                q[node] = row = torch.zeros(p.shape[1], dtype=torch.float64)
                for token, (_, q_value) in token_probs.items():
                    row[column[token]] = q_value or 0.0
                remainder = max(0.0, 1 - float(row.sum()))
                if remainder > ROUNDING * len(token_probs):
                    spread = torch.from_numpy(tail)
                    if not wide and len(tail) and float(spread.sum()) > 0:
                        row[len(named_tokens) : len(named_tokens) + len(tail)] = remainder * spread / spread.sum()
                    else:
                        row[-1] = remainder
                row /= row.sum()
        offset = width + 1 if wide else 0
        q = {node: row.roll(offset) for node, row in q.items()}
        return p.roll(offset, 1), q, tuple(offset + column[token] for token in self.tokens)

    @property
    def token_ids(self) -> list[int]:
        """Token ids that a node's probabilities are recorded of, or that were drafted, rising."""
        return sorted({token for node in self.known_probs for token in node} | set(self.tokens))

    def token_at(self, column: int, columns: int, wide: bool) -> int | None:
        """The token of a column of ``rows``, which has so many; None of one that stands for tokens not recorded."""
        named_tokens = self.token_ids
        place = column - (columns - len(named_tokens) if wide else 0)
        return named_tokens[place] if 0 <= place < len(named_tokens) else None

    def _tail(self, node: int, wide: bool) -> np.ndarray:
        """The probabilities of tokens that are not recorded after a node: their sum is what the recorded ones leave of
        1, none is above the least of the listed first choices, and each child has as many above it as its rank says.
        """
        token_probs = self.known_probs[node]
        if not token_probs:
            return np.ones(1)  # nothing is asked after it but one more token
        remainder = 1 - sum(p for p, _ in token_probs.values())
        if remainder <= ROUNDING * (len(token_probs) + 1):
            return np.zeros(0)
        children = [child for child, parent in enumerate(self.parents) if parent == node]
        falling = sorted((prob for prob, _ in token_probs.values()), reverse=True)
        cap = falling[min(self.first, len(falling)) - 1] if self.is_listed[node] else 1.0
        needs, caps, ceiling = np.zeros(0), np.zeros(0), cap  # above a child, and not above the one before it
        for child in sorted(children, key=lambda sibling: self.ranks[sibling]):
            own_prob = self.own_probs[child] or 0.0
            missing_count = max(0, self.ranks[child] - sum(p > own_prob for p, _ in token_probs.values()) - len(needs))
            needs = np.append(needs, np.full(missing_count, own_prob * (1 + RESOLUTION)))
            caps = np.append(caps, np.full(missing_count, ceiling))
            ceiling = min(ceiling, max(own_prob, LOWEST_PROBABILITY))
        spare = max(0.0, remainder - float(sum(needs.tolist())))
        room = max(1, self.vocab - len(token_probs) - len(needs))
        lift = max(0.0, spare - ceiling * room) if wide else spare  # the rest lies below the last child
        rise = np.maximum(caps - needs, 0.0)
        rise = np.clip(_remainders(lift, rise)[:-1], 0.0, rise)  # the first ones take it
        needs, spare = needs + rise, float(_remainders(spare, rise)[-1])
        if spare <= 0:
            return needs
        count = room if wide else min(room, max(1, math.ceil(spare / max(ceiling, LOWEST_PROBABILITY) - 1e-9)))
        size = spare / count if wide or count == room else min(ceiling, spare)
        pieces = np.full(count, size)
        if not wide and count < room:
            pieces[-1] = spare - size * (count - 1)
        return np.concatenate([needs, pieces])


def _remainders(amount: float, parts: np.ndarray) -> np.ndarray:
    """The rest of an amount before each part is taken, and behind the last.

    >>> _remainders(1.0, np.array([0.25, 0.5])).tolist()
    [1.0, 0.75, 0.25]
    """
    return np.subtract.accumulate(np.concatenate([[amount], parts]))


def rebuilt(trace: Trace, steps: Sequence[int] | None = None) -> Iterator[Position]:
    """Every step with a draft. ``steps`` picks some."""
    tables, run = trace.tables, trace.run
    nodes = tables["nodes"]
    step_set = set(range(trace.rows("steps")) if steps is None else steps)
    rows: dict[int, list[int]] = {}
    for row, step in enumerate(nodes["step"]):
        if step in step_set:
            rows.setdefault(step, []).append(row)
    token_probs = dict[tuple[int, int], dict[int, tuple[float, float | None]]]()
    guesses, targets = tables["guesses"], tables["targets"]
    drawn_steps = {step for step, route in enumerate(tables["steps"]["route"]) if route == "drawn"}
    for i, (step, node) in enumerate(zip(guesses["step"], guesses["node"], strict=True)):
        if step in step_set and guesses["prob"][i] is not None:
            at = token_probs.setdefault((step, node), {})
            at[guesses["token"][i]] = (guesses["prob"][i], guesses["draft_prob"][i])
    known_places = set(token_probs)
    for i, (step, node) in enumerate(zip(targets["step"], targets["node"], strict=True)):
        if step in step_set and (step, node) not in known_places and targets["prob"][i] is not None:
            token_probs.setdefault((step, node), {})[targets["token"][i]] = (targets["prob"][i], None)
    known_places = set(token_probs)
    draws = nodes.get("term:draw") or [None] * len(nodes["step"])
    vocab = int(run["model"].get("vocab") or 0) or max(tables["pieces"]["id"], default=0) + 1
    for step, node_rows in rows.items():
        if len(node_rows) < 2:
            continue
        parents = tuple(nodes["parent"][row] for row in node_rows)
        tokens = tuple(nodes["token"][row] for row in node_rows)
        node_probs = tuple(nodes["prob"][row] for row in node_rows)
        next_probs = [dict(token_probs.get((step, node), {})) for node in range(len(node_rows))]
        for node in range(1, len(node_rows)):
            if node_probs[node] is not None:
                next_probs[parents[node]].setdefault(tokens[node], (node_probs[node], None))
        yield Position(
            step, tokens, parents, tuple(nodes["rank"][row] for row in node_rows), node_probs,
            tuple(nodes["status"][row] for row in node_rows), tables["steps"]["accepted"][step], step in drawn_steps,
            tuple(float(draw) for row in node_rows if (draw := draws[row]) is not None), tuple(next_probs),
            tuple((step, node) in known_places for node in range(len(node_rows))),
            int(run.get("first_choices") or USUAL), vocab,
        )  # fmt: skip
