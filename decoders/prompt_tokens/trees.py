"""PPD's trees: which guesses a step offers, and how many prompt tokens hang on each (PPD §4.2, appendix A).

The accepted node's prompt tokens make the next step's guesses, so a node with k of them leads to a tree of depth k: the
states of a chain. A candidate's chance is the product of its ranks' acceptance at each distance. Standard library and
numpy only; every function is pure.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from decoders.errors import UserError
from decoders.folders import write_json

SCHEMA = "spectrees/1"
FILE = "trees.json"  # its name beside the prompt tokens it was designed for
DESCRIPTION = "part.json"  # what says how these were trained (decoders.parts)
ASSUMED_LABEL = "assumed acceptance"
MOST_ROWS = 512  # rows of one verify forward (decoders.model.target_model.target.SPARE_ROWS)
MOST_BYTES = 4 << 20
RANKS = 10  # guesses per distance that a table holds
ROUNDING = 1e-12  # of the solution: a state that is never reached has a share of 0
RESTART = 1e-12  # makes the steady state that of a run begun in state m where a chain falls apart

Path_ = tuple[int, ...]
Table = Sequence[Sequence[float]]


@dataclass(frozen=True)
class PromptTree:
    """One state's tree. ``paths`` are its candidates, the root excluded, as ranks per distance; a parent precedes its
    children. ``prompts[0]`` prompt tokens hang on the root, ``prompts[i]`` on ``paths[i - 1]``.

    >>> tree = PromptTree(((0,), (0, 0), (1,)), (2, 2, 2, 1))
    >>> tree.parents, tree.depth, tree.rows()
    ((-1, 0, 1, 0), 2, 11)
    """

    paths: tuple[Path_, ...]
    prompts: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.prompts) != len(self.paths) + 1:
            raise ValueError(
                f"a tree needs one number of prompt tokens for the root and for each of its {len(self.paths)} "
                f"candidates; got {len(self.prompts)}"
            )
        known_paths: set[Path_] = {()}
        for path in self.paths:
            if not path or path in known_paths or path[:-1] not in known_paths or min(path) < 0:
                raise ValueError(
                    f"candidate {list(path)} is not allowed: ranks from 0, each candidate once, after its parent"
                )
            known_paths.add(path)
        if min(self.prompts) < 0 or max(self.prompts) > self.prompts[0]:
            raise ValueError(
                f"a candidate may have 0 to {self.prompts[0]} prompt tokens, as many as the root; got "
                f"{min(self.prompts)} to {max(self.prompts)}"
            )

    @cached_property
    def parents(self) -> tuple[int, ...]:
        """Each node's parent, the root (node 0, parent -1) included; ``paths[i]`` is node i + 1."""
        number = {path: node for node, path in enumerate(((), *self.paths))}
        return (-1, *(number[path[:-1]] for path in self.paths))

    @property
    def depth(self) -> int:
        """The longest path; 0 without candidates."""
        return max(map(len, self.paths), default=0)

    def rows(self, ensemble: int = 1) -> int:
        """Input rows of its verify forward: root, candidates and prompt tokens (``ensemble`` rows each)."""
        return 1 + len(self.paths) + ensemble * sum(self.prompts)

    def probabilities(self, acceptance: Table) -> list[float]:
        """p(path) of every candidate: that it is accepted, at least (proposition A.1).

        >>> tree = PromptTree(((0,), (0, 0), (1,)), (2, 2, 2, 1))
        >>> tree.probabilities([[.6, .2], [.5, .1]])
        [0.6, 0.3, 0.2]
        """
        chance: dict[Path_, float] = {(): 1.0}
        for path in self.paths:
            chance[path] = chance[path[:-1]] * acceptance[len(path) - 1][path[-1]]
        return [chance[path] for path in self.paths]

    def stops(self, acceptance: Table) -> list[float]:
        """p_stop per node, the root first (nothing is accepted): that acceptance ends there, p(path) - Σ p(children).

        >>> tree = PromptTree(((0,), (0, 0), (1,)), (2, 2, 2, 1))
        >>> [round(p, 9) for p in tree.stops([[.6, .2], [.5, .1]])]
        [0.2, 0.3, 0.3, 0.2]
        """
        remainders = [1.0, *self.probabilities(acceptance)]
        for node, p in enumerate(tuple(remainders)):
            if node:
                remainders[self.parents[node]] -= p
        return [max(0.0, p) for p in remainders]

    def expected_tokens(self, acceptance: Table) -> float:
        """f(T) = Σ p(path): accepted candidates per step, the bonus excluded (proposition A.1)."""
        return sum(self.probabilities(acceptance))


@dataclass(frozen=True)
class PromptTrees:
    """The trees of all states: ``states[k]`` follows an accepted node that had k prompt tokens, k = 0 … m.

    ``acceptance[d][r]`` is the table they were made from: the chance that the guess of rank r at distance d + 1 is the
    target's token. A prompt token takes ``ensemble`` rows. ``label`` says how they came about.

    >>> one = PromptTree(((0,), (1,)), (2, 2, 1))
    >>> two = PromptTree(((0,), (0, 0), (1,)), (2, 2, 2, 1))
    >>> trees = PromptTrees((PromptTree((), (2,)), one, two), ((.6, .2), (.5, .1)))
    >>> [round(f, 9) for f in trees.f], [round(p, 9) for p in trees.pi], round(trees.R, 9)
    ([0, 0.8, 1.1], [0.0, 0.2, 0.8], 1.04)
    >>> trees.size, round(trees.tokens_per_step, 9)
    (11, 2.04)
    """

    states: tuple[PromptTree, ...]
    acceptance: tuple[tuple[float, ...], ...]
    ensemble: int = 1
    label: str = "designed"

    def __post_init__(self) -> None:
        check_table(self.acceptance)
        m = len(self.states) - 1
        if m < 1 or len(self.acceptance) != m:
            raise ValueError(
                f"{len(self.states)} trees need as many distances less one in the acceptance table; got "
                f"{len(self.acceptance)}"
            )
        if self.ensemble < 1:
            raise ValueError(f"a prompt token takes at least one row; got {self.ensemble}")
        for k, tree in enumerate(self.states):
            if tree.prompts[0] != m:
                raise ValueError(f"the root of state {k} has {tree.prompts[0]} prompt tokens; it always has all {m}")
            if tree.depth > k:
                raise ValueError(f"the tree of state {k} is {tree.depth} deep; {k} prompt tokens guess no further")
            if any(path[-1] >= len(self.acceptance[len(path) - 1]) for path in tree.paths):
                raise ValueError(f"the tree of state {k} uses a rank that the acceptance table does not have")

    @property
    def m(self) -> int:
        """Prompt tokens at most on one node: the longest distance guessed."""
        return len(self.states) - 1

    @property
    def size(self) -> int:
        """Rows of the largest verify forward: root, candidates and prompt tokens."""
        return max(tree.rows(self.ensemble) for tree in self.states)

    @cached_property
    def f(self) -> tuple[float, ...]:
        """f(T_k) per state: accepted candidates expected in one step."""
        return tuple(tree.expected_tokens(self.acceptance) for tree in self.states)

    @cached_property
    def transitions(self) -> np.ndarray:
        """``[m + 1, m + 1]``: from state (row) to the next step's state."""
        return np.array([transition(tree, self.acceptance) for tree in self.states])

    @cached_property
    def pi(self) -> tuple[float, ...]:
        """π: the share of steps spent in each state in the long run."""
        return tuple(float(p) for p in steady_state(self.transitions))

    @property
    def R(self) -> float:
        """Accepted candidates per step in the long run, the bonus excluded: Σ π_k f(T_k) (proposition A.4)."""
        return sum(p * f for p, f in zip(self.pi, self.f, strict=True))

    @property
    def tokens_per_step(self) -> float:
        """τ: the bonus included."""
        return 1 + self.R

    def to_json(self) -> dict[str, Any]:
        """All of it, with what follows from it (for the views): p and p_stop per node, π, f, R, τ."""
        states = [
            {
                "paths": [list(path) for path in tree.paths], "prompts": list(tree.prompts),
                "p": tree.probabilities(self.acceptance), "stop": tree.stops(self.acceptance),
                "prompt_tokens": sum(tree.prompts), "rows": tree.rows(self.ensemble), "f": f, "pi": pi,
            }
            for tree, f, pi in zip(self.states, self.f, self.pi, strict=True)
        ]  # fmt: skip
        return {
            "schema": SCHEMA, "label": self.label, "m": self.m, "ensemble": self.ensemble, "size": self.size,
            "acceptance": [list(row) for row in self.acceptance], "states": states,
            "transitions": self.transitions.tolist(), "R": self.R, "tokens_per_step": self.tokens_per_step,
        }  # fmt: skip

    @classmethod
    def from_json(cls, data: Any) -> PromptTrees:
        """Back from ``to_json``; what follows from the rest is computed again. Raises ValueError in one sentence."""
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            raise ValueError(f"not a tree file of this version ({SCHEMA})")
        try:
            table = tuple(tuple(float(p) for p in row) for row in data["acceptance"])
            states = tuple(
                PromptTree(
                    tuple(tuple(_whole(rank) for rank in path) for path in state["paths"]),
                    tuple(_whole(count) for count in state["prompts"]),
                )
                for state in data["states"]
            )
            ensemble, label = _whole(data.get("ensemble", 1)), str(data.get("label", ""))[:200]
        except (KeyError, TypeError) as error:
            raise ValueError(f"a damaged tree file ({type(error).__name__}: {error})") from None
        return cls(states, table, ensemble, label)


def check_table(acceptance: Table) -> None:
    """Raise ValueError unless every distance has chances of distinct guesses: none negative, together at most 1."""
    if not acceptance or not all(len(row) for row in acceptance):
        raise ValueError("an acceptance table needs at least one distance, each with at least one rank")
    for distance, row in enumerate(acceptance, 1):
        if not all(0 <= p <= 1 for p in row) or sum(row) > 1 + 1e-6:
            raise ValueError(
                f"the acceptance at distance {distance} is not allowed: chances of different tokens, 0 or more and "
                f"together at most 1, but they add up to {sum(row):.3f}"
            )


def transition(tree: PromptTree, acceptance: Table) -> np.ndarray:
    """``[m + 1]``: the chance of each next state, by the prompt tokens of the node where acceptance ends. The root has
    m: where nothing is accepted, state m follows."""
    row = np.zeros(tree.prompts[0] + 1)
    for prompts, stop in zip(tree.prompts, tree.stops(acceptance), strict=True):
        row[prompts] += stop
    return row


def steady_state(transitions: np.ndarray) -> np.ndarray:
    """π of transition matrices ``[..., states, states]``, of a run begun in the last state.

    >>> steady_state(np.array([[.2, .8], [.2, .8]])).round(9).tolist()
    [0.2, 0.8]
    """
    n = transitions.shape[-1]
    chain = transitions * (1 - RESTART)
    chain[..., -1] += RESTART
    system = np.eye(n) - np.swapaxes(chain, -1, -2)
    system[..., 0, :] = 1.0
    right = np.zeros((*transitions.shape[:-1], 1))
    right[..., 0, 0] = 1.0
    solution = np.linalg.solve(system, right)[..., 0]
    shares = np.where(solution < ROUNDING, 0.0, solution)
    return shares / shares.sum(-1, keepdims=True)


def least_size(m: int, ensemble: int = 1) -> int:
    """Rows of the smallest tree: the root, its m prompt tokens and one candidate."""
    return 2 + ensemble * m


def trained_acceptance(folder: Path, m: int) -> tuple[tuple[float, ...], ...] | None:
    """The acceptance table that the training of the prompt tokens in ``folder`` logged last, on held-out text; None
    where it has none of at least m distances.
    """
    try:
        with (folder / DESCRIPTION).open("rb") as file:
            log = json.loads(file.read(MOST_BYTES))["training"]["log"]
        rows = [line["ranks"] for line in log if "ranks" in line][-1]
        table = tuple(tuple(float(p) for p in row) for row in rows)[:m]
        check_table(table)
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        return None
    return table if len(table) == m and any(table[0]) else None


def load_trees(path: str | Path, max_rows: int = MOST_ROWS) -> PromptTrees:
    """Trees from a file. Raises UserError where it is missing, malformed, without candidates or above ``max_rows``
    rows.
    """
    path = Path(path).expanduser()
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ValueError(f"{path.stat().st_size >> 20} MiB, and no tree file is larger than {MOST_BYTES >> 20}")
        trees = PromptTrees.from_json(json.loads(path.read_text(encoding="utf-8")))
    except OSError:
        raise UserError(f"there is no tree file {path}: make one with `specviz tree design --out {path}`") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is no usable tree file: {error}") from None
    smallest = least_size(trees.m, trees.ensemble)
    if trees.size < smallest:
        raise UserError(f"the trees in {path} take {trees.size} rows; with a candidate they take at least {smallest}")
    if trees.size > max_rows:
        raise UserError(
            f"the trees in {path} take {trees.size} rows; at most {max_rows} are allowed: design smaller ones"
        )
    return trees


def save_trees(trees: PromptTrees, path: Path) -> Path:
    """Write a tree file, whole or not at all."""
    return write_json(path, trees.to_json())


def _table(acceptance: Table) -> tuple[tuple[float, ...], ...]:
    table = tuple(tuple(float(p) for p in row) for row in acceptance)
    check_table(table)
    if not any(table[0]):
        raise UserError(
            "no guess at distance 1 was ever accepted, so there is no tree to design: measure on more prompts, or "
            "train the prompt tokens longer"
        )
    return table


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r} is not a whole number")
    return value
