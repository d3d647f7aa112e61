"""Token Recycling (Luo et al. 2025): what the target nearly wrote after a token is drafted after it next time.

A matrix keeps, for every token, the target's eight likeliest next tokens where it last stood in a forward, accepted or
not. A fixed tree is filled from it, level by level: a node's child of rank r is entry r of its token's row. Rows are
written back in the same order, so that of a token that stands several times the deepest one counts, and on one level
the last. The paper's code starts from zeros, which drafts token 0 after tokens not met yet; here such a token has no
children. SAM decoding's variant (SAMD) learns from the prompt too, and fills a smaller template: both are options.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from jaxtyping import Int

from decoders.draft.draft import Draft, Learned, Scored, Verdict
from decoders.draft.growing import GrowingTree
from decoders.draft.needs import Needs
from decoders.draft.params import param
from decoders.draft.terms import Term
from decoders.method.drafter import Drafter
from decoders.method.kept import kept_with
from decoders.method.method import Method
from decoders.model.state.memory import Context
from decoders.model.state.transfer import fetch
from decoders.model.target_model.target import Target
from decoders.top_k import top_k
from decoders.trace.origins import Origin

RANKS = 8
UNKNOWN = -1
# per tree, how many children each node has, by the ranks that lead to it; "2.2.2" is the paper's code's, "samd" SAMD's
CHILDREN = {
    "2.2.2": {
        "": 8, "0": 8, "1": 4, "2": 3, "3": 2, "4": 1, "5": 1, "6": 1, "7": 1,
        "00": 8, "01": 3, "02": 2, "03": 1, "04": 1, "05": 1, "06": 1, "07": 1, "10": 2, "11": 1, "20": 1, "30": 1,
        "40": 1, "50": 1, "000": 5, "001": 2, "002": 1, "003": 1, "004": 1, "010": 1, "020": 1, "100": 1, "200": 1,
        "300": 1, "0000": 3, "0001": 1, "0002": 1, "0010": 1, "0100": 1, "1000": 1, "00000": 2, "00010": 1,
    },
    "samd": {
        "": 7, "0": 6, "1": 5, "2": 3, "3": 2, "4": 2, "5": 1, "6": 1,
        "00": 3, "01": 2, "02": 2, "03": 1, "04": 1, "10": 3, "11": 2, "12": 1, "13": 1, "20": 1, "21": 1, "30": 1,
        "40": 1, "50": 1, "000": 2, "001": 1, "010": 1, "100": 2, "110": 1, "200": 1, "0000": 2, "0010": 1, "1000": 1,
    },
}  # fmt: skip
TEMPLATES = {
    name: sorted(f"{path}{rank}" for path, count in children.items() for rank in range(count))  # depth first
    for name, children in CHILDREN.items()
}
PATHS = TEMPLATES["2.2.2"]


def paths_of(count: int, template: str = "2.2.2") -> list[str]:
    """The first ``count`` nodes of a template, level by level, first ranks first; listed depth first.

    >>> paths_of(9)[:3]
    ['0', '00', '1']
    """
    return sorted(sorted(TEMPLATES[template], key=lambda path: (len(path), path))[:count])


class Matrix:
    """``rows`` ``[vocab, 8]``: per token, the target's likeliest next tokens where it last stood; -1 where it never
    did.
    """

    unit = "tokens with a row"

    def __init__(self, vocab: int) -> None:
        self.rows = np.full((vocab, RANKS), UNKNOWN, dtype=np.int32)

    def __len__(self) -> int:
        return int((self.rows[:, 0] != UNKNOWN).sum())

    def write(self, tokens: np.ndarray, likeliest: Int[np.ndarray, "tokens ranks"]) -> None:
        """New rows; of a token that stands there several times the last one counts."""
        last = dict(zip(tokens.tolist(), range(len(tokens)), strict=True))
        self.rows[[*last], : likeliest.shape[-1]] = likeliest[[*last.values()]]


@dataclass(frozen=True)
class RecyclingParams:
    warm: bool = param(
        False,
        "Warm start",
        "Start from what earlier warm runs with this model left in the matrix. Off: from an empty one, as comparisons "
        "need it.",
    )
    anew: bool = param(
        False, "Empty it first", "With a warm start: empty the matrix before this run, for this one and later ones."
    )
    prompt: bool = param(
        False, "Learn from the prompt", "Fill the matrix from the prompt's tokens too, as SAM decoding's variant does."
    )
    template: str = param(
        "2.2.2", "Tree", "The tree that is filled: the paper's of 80 nodes (2.2.2), or SAM decoding's of 60 (samd).",
        choices=tuple(TEMPLATES),
    )  # fmt: skip
    nodes: int = param(
        80, "Nodes", "Drafted tokens of the tree at most: of a larger tree those nearest the root.", low=1, high=80
    )

    def __post_init__(self) -> None:
        if self.anew and not self.warm:
            raise ValueError("anew=true empties what warm runs share: set warm=true too")


class RecyclingDrafter(Drafter):
    """Fills the tree of ``paths`` from the matrix, and the matrix from every row that the target scored."""

    learns_from_any_draft = True

    def __init__(self, matrix: Matrix, paths: list[str] = PATHS, *, prompt: bool = False, warm: bool = False) -> None:
        self.keeps, self.paths, self.prompt, self.warm = matrix, paths, prompt, warm

    def prepare(self, context: Context) -> None:
        if self.prompt and context.length > 1:
            self.keeps.write(context.tokens[:-1], context.top_ids[:, :RANKS].cpu().numpy())

    def propose(self, context: Context, budget: int) -> Draft:
        tree, nodes, matrix = GrowingTree(context.root), {"": 0}, self.keeps.rows
        for path in self.paths:
            parent = nodes.get(path[:-1])
            if parent is None or len(path) > budget:
                continue
            rank = int(path[-1])
            token = int(matrix[tree.tokens[parent], rank])
            if token != UNKNOWN:
                nodes[path] = tree.add(parent, token, "recycled", row_rank=rank)
        return tree.draft(route="matrix", reason="the last token was in no forward of this run before")

    def observe(self, draft: Draft, scored: Scored, verdict: Verdict) -> Learned | None:
        tokens, rows = np.asarray(draft.tree.tokens), fetch(top_k(scored.logits, RANKS)[1])[0]
        if draft.tree.drafted:
            order = np.argsort(draft.tree.depths, kind="stable")  # level by level: the released template's order
            tokens, rows = tokens[order], rows[order]
        self.keeps.write(tokens, rows)
        return None


def build(target: Target, params: RecyclingParams) -> RecyclingDrafter:
    empty = partial(Matrix, target.info["vocab"])
    matrix = kept_with(target).of("recycling", empty, anew=params.anew) if params.warm else empty()
    paths = paths_of(params.nodes, params.template)
    return RecyclingDrafter(matrix, paths, prompt=params.prompt, warm=params.warm and len(matrix) > 0)


METHOD = Method(
    name="recycling",
    family="ngram",
    title="Token Recycling",
    paper="Turning trash into treasure: accelerating inference of large language models with token recycling",
    bibtex=r"""
@inproceedings{luo2025recycling,
  author = {X. Luo and Y. Wang and Q. Zhu and Z. Zhang and X. Zhang and Q. Yang and D. Xu},
  title = {Turning Trash into Treasure: Accelerating Inference of Large Language Models with Token Recycling},
  booktitle = {Proceedings of the 63rd Annual Meeting of the Association for Computational Linguistics
            (Volume 1: Long Papers)},
  year = {2025},
  pages = {6816--6831},
}
""",
    summary="Drafts what the target nearly wrote: its likeliest next tokens wherever a token stood before, in a tree.",
    params=RecyclingParams,
    build=build,
    needs=lambda target, params: Needs(top_tokens=RANKS if params.prompt else 0, top_of_prompt=params.prompt),
    origins=(
        Origin("recycled", "R", "recycled", "One of the target's likeliest tokens after this one, kept from before."),
    ),
    node_terms=(Term("row_rank", "rank in the row", "The token's place in its parent's row of the matrix.", 0, 7),),
    cold=lambda params: replace(params, warm=False, anew=False),
    keeps="matrix",
    order=12,
)
