"""Token Recycling (Luo et al. 2024): what the target nearly wrote after a token is drafted after it next time.

A matrix keeps, for every token, the target's eight likeliest next tokens where it last stood in a forward, accepted or
not. A fixed tree is filled from it, breadth first: a node's child of rank r is entry r of its token's row. The paper's
code starts from zeros, which drafts token 0 after tokens not met yet; here such a token has no children.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from decoders.draft.draft import Draft, Learned, Scored, Verdict
from decoders.draft.params import param
from decoders.draft.terms import Term
from decoders.draft.tree import DraftTree
from decoders.method.drafter import Drafter
from decoders.method.method import Method
from decoders.model.memory import Context
from decoders.model.target import Target
from decoders.trace.origins import Origin

RANKS = 8
UNKNOWN = -1
# tree "2.2.2" of the paper's code, 80 nodes: how many children each node has, by the ranks that lead to it
CHILDREN = {
    "": 8, "0": 8, "1": 4, "2": 3, "3": 2, "4": 1, "5": 1, "6": 1, "7": 1,
    "00": 8, "01": 3, "02": 2, "03": 1, "04": 1, "05": 1, "06": 1, "07": 1, "10": 2, "11": 1, "20": 1, "30": 1, "40": 1,
    "50": 1, "000": 5, "001": 2, "002": 1, "003": 1, "004": 1, "010": 1, "020": 1, "100": 1, "200": 1, "300": 1,
    "0000": 3, "0001": 1, "0002": 1, "0010": 1, "0100": 1, "1000": 1, "00000": 2, "00010": 1,
}  # fmt: skip
PATHS = sorted(f"{path}{rank}" for path, count in CHILDREN.items() for rank in range(count))  # depth first


@dataclass(frozen=True)
class RecyclingParams:
    warm: bool = param(
        False,
        "Warm start",
        "Start from what earlier warm runs with this model left in the matrix. Off: from an empty one, as comparisons "
        "need it.",
    )


class RecyclingDrafter(Drafter):
    """Fills the tree from ``matrix``, ``[vocab, 8]`` token ids, and the matrix from every row that the target scored;
    where a token stands in several rows, the last one counts.
    """

    def __init__(self, matrix: np.ndarray) -> None:
        self.matrix = matrix

    def propose(self, context: Context, budget: int) -> Draft:
        tokens, parents, ranks = [context.root], [-1], [np.nan]
        nodes = {"": 0}
        for path in PATHS:
            parent = nodes.get(path[:-1])
            if parent is None or len(path) > budget:
                continue
            token = int(self.matrix[tokens[parent], int(path[-1])])
            if token != UNKNOWN:
                nodes[path] = len(tokens)
                tokens.append(token)
                parents.append(parent)
                ranks.append(int(path[-1]))
        if len(tokens) == 1:
            return Draft.empty(context.root, "the last token was in no forward of this run before")
        return Draft(
            DraftTree(tuple(tokens), tuple(parents)),
            ("root",) + ("recycled",) * (len(tokens) - 1),
            (-1,) * len(tokens),
            route="matrix",
            terms={"row_rank": np.asarray(ranks)},
        )

    def observe(self, draft: Draft, scored: Scored, verdict: Verdict) -> Learned | None:
        likeliest = scored.logits.topk(min(RANKS, scored.logits.shape[-1]), dim=-1).indices
        self.matrix[list(draft.tree.tokens), : likeliest.shape[-1]] = likeliest.cpu().numpy()


def build(target: Target, params: RecyclingParams) -> RecyclingDrafter:
    empty = np.full((target.info["vocab"], RANKS), UNKNOWN)
    return RecyclingDrafter(target.companions.setdefault("recycling", empty) if params.warm else empty)


BIBTEX = r"""
@misc{luo2024recycling,
  author = {Xianzhen Luo and Yixuan Wang and Qingfu Zhu and Zhiming Zhang and Xuanyu Zhang and Qing Yang and
            Dongliang Xu},
  title = {Turning Trash into Treasure: Accelerating Inference of Large Language Models with Token Recycling},
  year = {2024},
  eprint = {2408.08696},
  archivePrefix = {arXiv},
}
"""

METHOD = Method(
    name="recycling",
    title="Token Recycling",
    paper="Turning trash into treasure: accelerating inference of large language models with token recycling",
    bibtex=BIBTEX,
    summary="Drafts what the target nearly wrote: its likeliest next tokens wherever a token stood before, in a tree.",
    params=RecyclingParams,
    build=build,
    origins=(
        Origin("recycled", "R", "recycled", "One of the target's likeliest tokens after this one, kept from before."),
    ),
    node_terms=(Term("row_rank", "rank in the row", "The token's place in its parent's row of the matrix.", 0, 7),),
    cold=lambda params: replace(params, warm=False),
    order=12,
)
