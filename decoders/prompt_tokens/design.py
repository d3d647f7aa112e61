"""Designs PPD's trees: candidates, prompt tokens, sizes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import heapify, heappop, heappush
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from decoders.errors import UserError

from .trees import (
    ASSUMED_LABEL,
    FILE,
    MOST_ROWS,
    RANKS,
    Path_,
    PromptTree,
    PromptTrees,
    Table,
    _table,
    least_size,
    load_trees,
    steady_state,
    trained_acceptance,
    transition,
)

if TYPE_CHECKING:
    from .latency import Latency

DEFAULT_SIZE = 24


def assumed_acceptance(m: int, ranks: int = RANKS) -> tuple[tuple[float, ...], ...]:
    """A table to begin with where none was measured: .35 for the first guess, halved per distance, falling by rank.

    >>> [[round(p, 3) for p in row] for row in assumed_acceptance(2, 3)]
    [[0.35, 0.124, 0.067], [0.175, 0.062, 0.034]]
    """
    return tuple(tuple(0.35 * 0.5**d / (r + 1) ** 1.5 for r in range(ranks)) for d in range(m))


def candidates(acceptance: Table, count: int, depth: int) -> list[Path_]:
    """The ``count`` likeliest paths of at most ``depth`` ranks, likeliest first: no tree has a larger f (Sequoia).

    Paths that never held are left out, so there may be fewer.

    >>> candidates([[.6, .2], [.5, .1]], 3, 2)
    [(0,), (0, 0), (1,)]
    >>> candidates([[.6, .2], [.5, .1]], 9, 1)
    [(0,), (1,)]
    """
    order = [sorted(range(len(row)), key=lambda r, row=row: (-row[r], r)) for row in acceptance[:depth]]

    def entry(prefix_prob: float, parent: Path_, place: int) -> tuple[float, Path_, float, int] | None:
        distance = len(parent)
        if distance >= len(order) or place >= len(order[distance]):
            return None
        rank = order[distance][place]
        p = prefix_prob * acceptance[distance][rank]
        return (-p, (*parent, rank), prefix_prob, place) if p > 0 else None

    likeliest: list[Path_] = []
    heap = [first] if (first := entry(1.0, (), 0)) else []
    while heap and len(likeliest) < count:
        negative, path, prefix_prob, place = heappop(heap)
        likeliest.append(path)
        for following in (entry(prefix_prob, path[:-1], place + 1), entry(-negative, path, 0)):
            if following:
                heappush(heap, following)
    return likeliest


def prune(tree: PromptTree, count: int, f: Sequence[float], acceptance: Table, min_prompts: int = 0) -> PromptTree:
    """The tree with prompt tokens removed until its candidates have ``count``, each time the one that costs least:
    ΔF = p_stop · (f_i - f_(i-1)) on a node that has i, where p_stop = p(path) - Σ p(children), as in the released code
    (proposition A.3 prints p(path)). The root keeps its own, a candidate at least ``min_prompts``.

    >>> tree = PromptTree(((0,), (0, 0), (1,)), (2, 2, 2, 2))
    >>> prune(tree, 5, (0, .8, 1.1), [[.6, .2], [.5, .1]]).prompts
    (2, 2, 2, 1)
    """
    prompts = list(tree.prompts)
    for node in _removals(prompts, tree.stops(acceptance), f, min_prompts):
        if sum(prompts[1:]) <= count:
            break
        prompts[node] -= 1
    return PromptTree(tree.paths, tuple(prompts))


def _removals(prompts: Sequence[int], stops: Sequence[float], f: Sequence[float], min_prompts: int = 0) -> list[int]:
    """The nodes that lose a prompt token, one after the other, until none but the root has more than
    ``min_prompts``.
    """
    has = list(prompts)
    heap = [(stops[i] * (f[has[i]] - f[has[i] - 1]), -i) for i in range(1, len(has)) if has[i] > min_prompts]
    heapify(heap)
    order: list[int] = []
    while heap:
        node = -heappop(heap)[1]
        order.append(node)
        has[node] -= 1
        if has[node] > min_prompts:
            heappush(heap, (stops[node] * (f[has[node]] - f[has[node] - 1]), -node))
    return order


def design(acceptance: Table, size: int, ensemble: int = 1, *, wide: bool = False) -> PromptTrees:
    """The trees of at most ``size`` rows with the largest R, over all splits into candidates and prompt tokens.

    m is the number of distances in the table. As in the paper, every candidate keeps 1 to m prompt tokens, so that no
    step goes without guesses; ``wide`` also searches trees whose candidates may lose all of theirs. A size without room
    for a candidate with a prompt token gives one without. Raises UserError for a size that is too small or too large,
    and for a table without any accepted guess at distance 1.

    >>> trees = design([[.6, .2], [.5, .1]], 11)
    >>> trees.states[2].paths, trees.states[2].prompts
    (((0,), (0, 0), (1,)), (2, 2, 2, 1))
    """
    return design_sizes(acceptance, [size], ensemble, wide=wide)[size]


def design_sizes(
    acceptance: Table, sizes: Sequence[int], ensemble: int = 1, *, wide: bool = False
) -> dict[int, PromptTrees]:
    """``design`` for several sizes at the cost of the largest."""
    table = _table(acceptance)
    for size in sizes:
        check_size(size, len(table), ensemble)
    if wide:
        return dict(_design(table, tuple(sizes), ensemble, 0))
    smallest = least_size(len(table), ensemble)
    paper = tuple(size for size in sizes if size >= smallest + ensemble)
    small = dict(_design(table, (smallest,), ensemble, 0)) if len(paper) < len(sizes) else {}
    designs = dict(_design(table, paper, ensemble, 1))
    return {size: designs[size] if size in designs else small[smallest] for size in sizes}


@lru_cache(maxsize=32)
def _design(
    table: tuple[tuple[float, ...], ...], sizes: tuple[int, ...], ensemble: int, min_prompts: int
) -> tuple[tuple[int, PromptTrees], ...]:
    if not sizes:
        return ()
    m = len(table)
    fixed, top = 1 + ensemble * m, max(sizes)
    splits: list[tuple[float, int, int]] = []  # R, rows, candidates
    path_sets = [candidates(table, top - fixed, depth) for depth in range(m + 1)]
    for count in range(1, top - fixed + 1):
        full = [_full(paths[:count], m) for paths in path_sets]
        if len(full[-1].paths) < count:
            break
        f = np.array([tree.expected_tokens(table) for tree in full])
        budgets = np.arange(count * (1 + min_prompts * ensemble), top + 1 - fixed)
        if not len(budgets):
            break
        # of every state: its row of the chain for each budget, from all prompt tokens down to the least
        chain = np.stack(
            [
                _by_hung(tree, f, table, min_prompts)[
                    _prompt_token_counts(budgets, tree, ensemble) - min_prompts * len(tree.paths)
                ]
                for tree in full
            ],
            axis=1,
        )
        gains = steady_state(chain) @ f
        splits += [(float(gain), int(rows) + fixed, count) for gain, rows in zip(gains, budgets, strict=True)]
    designs = []
    for size in sizes:
        _, rows, count = max((s for s in splits if s[1] <= size), key=lambda s: (round(s[0], 12), -s[1], s[2]))
        designs.append((size, split_trees(table, count, rows, ensemble, min_prompts)))
    return tuple(designs)


def split_trees(acceptance: Table, count: int, rows: int, ensemble: int = 1, min_prompts: int = 0) -> PromptTrees:
    """Trees of ``count`` candidates (fewer where a state has not so many) whose prompt tokens were removed greedily,
    down to ``min_prompts`` each, until each fits ``rows``."""
    table = _table(acceptance)
    full = [_full(candidates(table, count, depth), len(table)) for depth in range(len(table) + 1)]
    f = [tree.expected_tokens(table) for tree in full]
    budget = np.array(rows - 1 - ensemble * len(table))
    states = tuple(
        prune(tree, int(_prompt_token_counts(budget, tree, ensemble)), f, table, min_prompts) for tree in full
    )
    return PromptTrees(states, table, ensemble)


def wide_trees(acceptance: Table, size: int, ensemble: int = 1) -> PromptTrees:
    """``design`` by the wider search, in which a candidate may lose all of its prompt tokens."""
    trees = design(acceptance, size, ensemble, wide=True)
    return PromptTrees(trees.states, trees.acceptance, ensemble, "wide")


def naive_trees(acceptance: Table, size: int, ensemble: int = 1) -> PromptTrees:
    """The paper's naive trees (fig. 8a): as many prompt tokens on every candidate, nothing pruned.

    Each has m; where the size has no room for one such candidate, the largest number that fits.

    >>> naive_trees([[.6, .2], [.5, .1]], 11).states[2].prompts
    (2, 2, 2)
    """
    table = _table(acceptance)
    m = len(table)
    check_size(size, m, ensemble)
    remainder = size - 1 - ensemble * m
    prompt_count = min(m, (remainder - 1) // ensemble)
    count = remainder // (1 + ensemble * prompt_count) if prompt_count else 1
    full = [_full(candidates(table, count, depth), m) for depth in range(m + 1)]
    states = tuple(PromptTree(tree.paths, (m, *[prompt_count] * len(tree.paths))) for tree in full)
    return PromptTrees(states, table, ensemble, "naive")


def random_trees(acceptance: Table, size: int, ensemble: int = 1, seed: int = 0) -> PromptTrees:
    """The paper's random trees (fig. 8a): the designed split, its prompt tokens on candidates drawn at random."""
    designed_trees = design(acceptance, size, ensemble)
    draw = random.Random(f"specviz trees {seed}")
    states = []
    for tree in designed_trees.states:
        slots = [node for node in range(1, len(tree.prompts)) for _ in range(designed_trees.m)]
        prompts = [designed_trees.m, *[0] * len(tree.paths)]
        for node in draw.sample(slots, sum(tree.prompts[1:])):
            prompts[node] += 1
        states.append(PromptTree(tree.paths, tuple(prompts)))
    return PromptTrees(tuple(states), designed_trees.acceptance, ensemble, "random")


def check_size(size: int, m: int, ensemble: int = 1) -> None:
    """Raise UserError unless trees for m prompt tokens can have ``size`` rows."""
    smallest = least_size(m, ensemble)
    if not smallest <= size <= MOST_ROWS:
        raise UserError(
            f"a tree size of {size} is not allowed: with {m} prompt tokens"
            + (f" of {ensemble} vectors" if ensemble > 1 else "")
            + f" at least {smallest} rows (the root, its prompt tokens, one guess) and at most {MOST_ROWS}"
        )


def best_size(trees: dict[int, PromptTrees], latency: Latency) -> int:
    """argmax τ(n)/L(n) over the sizes (PPD §4.2.2); the smaller one on a tie. Raises UserError where L knows none."""
    measured_trees = {n: t for n, t in trees.items() if t.size <= latency.largest}
    if not measured_trees:
        raise UserError(
            f"the latency was measured up to {latency.largest} rows and every tree has more: measure it again with "
            "`specviz tree latency --max-size N --again`"
        )
    return max(
        sorted(measured_trees), key=lambda n: measured_trees[n].tokens_per_step / latency.ms(measured_trees[n].size)
    )


@dataclass(frozen=True)
class SizePoint:
    """A size in a comparison: its designed trees, τ of the naive and of random trees of this size, and L(n) in
    milliseconds with that of one row (None where the latency is not known)."""

    size: int
    trees: PromptTrees
    naive: float
    random: float
    ms: float | None = None
    one_row_ms: float | None = None

    @property
    def tokens_per_ms(self) -> float | None:
        """τ(n)/L(n)."""
        return None if self.ms is None else self.trees.tokens_per_step / self.ms

    @property
    def speedup(self) -> float | None:
        """Predicted, against plain decoding: τ(n) · L(1)/L(n) (fig. 8b)."""
        if self.ms is None or self.one_row_ms is None:
            return None
        return self.trees.tokens_per_step * self.one_row_ms / self.ms

    def to_json(self) -> dict[str, Any]:
        """Numbers for tables and curves, without the trees."""
        last = self.trees.states[-1]
        return {
            "size": self.size, "rows": self.trees.size, "candidates": len(last.paths), "prompts": sum(last.prompts),
            "R": self.trees.R, "tokens_per_step": self.trees.tokens_per_step, "naive": self.naive,
            "random": self.random, "ms": self.ms, "tokens_per_ms": self.tokens_per_ms, "speedup": self.speedup,
        }  # fmt: skip


def compare_sizes(
    acceptance: Table, sizes: Sequence[int], ensemble: int = 1, latency: Latency | None = None
) -> list[SizePoint]:
    """Designed, naive and random trees of every size with their time on this machine (fig. 8a and 8b).

    >>> [point] = compare_sizes([[.6, .2], [.5, .1]], [11])
    >>> round(point.trees.tokens_per_step, 3), round(point.naive, 3), point.speedup
    (2.05, 1.9, None)
    """
    points = []
    for size, trees in design_sizes(acceptance, sizes, ensemble).items():
        naive = naive_trees(acceptance, size, ensemble).tokens_per_step
        random_rate = random_trees(acceptance, size, ensemble).tokens_per_step
        if latency is not None and trees.size <= latency.largest:
            points.append(SizePoint(size, trees, naive, random_rate, latency.ms(trees.size), latency.ms(1)))
        else:
            points.append(SizePoint(size, trees, naive, random_rate))
    return points


def sizes_up_to(largest: int, m: int, ensemble: int = 1) -> list[int]:
    """Sizes worth comparing, from the smallest tree to ``largest`` rows.

    >>> sizes_up_to(40, 3)
    [5, 6, 8, 10, 12, 16, 20, 24, 28, 32, 40]
    """
    check_size(largest, m, ensemble)
    smallest, sizes, step = least_size(m, ensemble), [], 2
    size = smallest
    while size < largest:
        sizes.append(size)
        step = 2 if size < 12 else 4 if size < 32 else 8 if size < 64 else 16 if size < 128 else 64
        size = (size // step + 1) * step
    return [*sizes, largest]


def trees_for(
    folder: Path | None, m: int, size: int | None = None, latency: Latency | None = None, ensemble: int = 1
) -> PromptTrees:
    """The trees a run uses for the prompt tokens in ``folder``, in one call.

    Designed from the acceptance table kept there (``trees.json``), else from the one of their training, else from an
    assumed one. ``size`` None: the best for this machine where its latency is known, else the size of the kept trees,
    else a default. Raises UserError.
    """
    on_file = load_trees(folder / FILE) if folder is not None and (folder / FILE).is_file() else None
    if on_file is not None and on_file.m < m:
        raise UserError(f"{folder}/{FILE} was designed for {on_file.m} prompt tokens, not {m}: `specviz tree design`")
    trained = trained_acceptance(folder, m) if folder is not None and not on_file else None
    table = on_file.acceptance[:m] if on_file else trained or assumed_acceptance(m)
    if size is None and latency is not None and latency.largest >= least_size(m, ensemble):
        largest = min(latency.largest, MOST_ROWS)
        designed_trees = design_sizes(table, sizes_up_to(largest, m, ensemble), ensemble)
        trees = designed_trees[best_size(designed_trees, latency)]
    elif on_file is not None and (m, ensemble) == (on_file.m, on_file.ensemble) and size in (None, on_file.size):
        return on_file
    else:
        rows = size or max(on_file.size if on_file else DEFAULT_SIZE, least_size(m, ensemble))
        trees = design(table, rows, ensemble)
    if on_file:
        return trees
    return PromptTrees(trees.states, trees.acceptance, ensemble, "acceptance in training" if trained else ASSUMED_LABEL)


def _full(paths: Sequence[Path_], m: int) -> PromptTree:
    """A tree of these candidates, depth first, with m prompt tokens on every node."""
    return PromptTree(tuple(sorted(paths)), (m,) * (len(paths) + 1))


def _prompt_token_counts(budget: np.ndarray, tree: PromptTree, ensemble: int) -> np.ndarray:
    """Count the prompt tokens that candidates may keep where they and their prompt tokens have ``budget`` rows."""
    return np.clip((budget - len(tree.paths)) // ensemble, 0, tree.prompts[0] * len(tree.paths))


def _by_hung(tree: PromptTree, f: Sequence[float] | np.ndarray, acceptance: Table, min_prompts: int = 0) -> np.ndarray:
    """``[prunings + 1, m + 1]``: ``transition`` of the tree, pruned to ``min_prompts`` per candidate, one more, … of
    them.
    """
    stops, has = tree.stops(acceptance), list(tree.prompts)
    row = transition(tree, acceptance)
    rows = [row]
    for node in _removals(has, stops, f, min_prompts):  # pyright: ignore[reportArgumentType]
        row = row.copy()
        row[has[node]] -= stops[node]
        row[has[node] - 1] += stops[node]
        has[node] -= 1
        rows.append(row)
    return np.array(rows[::-1])
