"""LLMA (Yang et al. 2023): copy from the reference documents what stands behind the last words written.

Of the text written so far, the longest suffix of ``max_ngram`` to ``min_ngram`` tokens that stands in a passage is the
trigger; its first occurrence counts (the first passage first), and ``k`` − 1 tokens behind it are drafted. The prompt
itself is no trigger: the first step drafts nothing. Without documents no step does, and each says so.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from decoders.draft.draft import Candidates, Draft
from decoders.draft.needs import Needs
from decoders.draft.params import check_order, param
from decoders.draft.terms import Term
from decoders.method.drafter import Drafter
from decoders.method.method import Method
from decoders.model.state.memory import Context
from decoders.prompt.pool import Match, PoolIndex
from decoders.trace.origins import DATASTORE

MOST_SHOWN = 256  # places recorded of one trigger
NO_CONTEXT = (
    "LLMA needs reference documents, and there are none: give the prompt a context, or add a text to draft from as the "
    "pool"
)


@dataclass(frozen=True)
class LlmaParams:
    max_ngram: int = param(
        5, "Longest trigger", "The last n written tokens are looked up, from this n down to the shortest.", low=1,
        high=16,
    )  # fmt: skip
    min_ngram: int = param(1, "Shortest trigger", "Lookup gives up below this n.", low=1, high=16)
    k: int = param(
        20, "Length k", "k − 1 tokens are copied behind the trigger, as in the released code.", low=2, high=129
    )

    def __post_init__(self) -> None:
        check_order(self, "min_ngram", "max_ngram")


class LlmaDrafter(Drafter):
    """Candidates are all places of the trigger; the first one wins."""

    def __init__(self, params: LlmaParams) -> None:
        self.params = params
        self.index: PoolIndex | None = None

    def prepare(self, context: Context) -> None:
        if context.pool is not None:
            self.index = PoolIndex(context.pool, self.params.max_ngram)

    def propose(self, context: Context, budget: int) -> Draft:
        if self.index is None:
            self.prepare(context)
        if self.index is None:
            return Draft.empty(context.root, NO_CONTEXT)
        answer_tokens = context.tokens[context.prompt_length :]
        if not len(answer_tokens):
            return Draft.empty(context.root, "nothing is written yet: LLMA's trigger is the answer's own text")
        match = self.index.find(answer_tokens, self.params.min_ngram)
        if not match.length:
            return Draft.empty(context.root, "the last written tokens occur nowhere in the reference documents")
        first, limit = int(match.ends[0]), min(self.params.k - 1, budget)
        count = int(self.index.lengths(match.ends[:1], limit)[0])
        return Draft.copy_from_pool(
            context.root, self.index.pool, first + 1, count, route="trigger", candidates=self._candidates(match),
            notes={"matched": match.length, "hits": match.hits},
        )  # fmt: skip

    def _candidates(self, match: Match) -> Candidates:
        assert self.index is not None
        ends = match.ends[:MOST_SHOWN]
        match_lengths = np.full(len(ends), float(match.length))
        return Candidates(
            self.index.pool.in_prompt(ends),
            match_lengths,
            self.index.lengths(ends, self.params.k - 1),
            0,
            {"matched": match_lengths},
            pool=ends,
        )


METHOD = Method(
    name="llma",
    family="copy",
    title="LLMA",
    paper="Yang et al. 2023, Inference with reference: lossless acceleration of large language models",
    bibtex=r"""
@misc{yang2023llma,
  author = {Nan Yang and Tao Ge and Liang Wang and Binxing Jiao and Daxin Jiang and Linjun Yang and
            Rangan Majumder and Furu Wei},
  title = {Inference with Reference: Lossless Acceleration of Large Language Models},
  year = {2023},
  eprint = {2304.04487},
  archivePrefix = {arXiv},
}
""",
    summary="Copies from the reference documents what follows the last written words there, first occurrence first.",
    params=LlmaParams,
    build=lambda target, params: LlmaDrafter(params),
    needs=lambda target, params: Needs(pool=True),
    origins=(DATASTORE,),
    terms=(Term("matched", "matched", "Written tokens up to this place: the trigger's length.", 0, 16),),
    step_terms=(
        Term("matched", "matched", "Length of the trigger: the longest one that stands in a document.", 0, 16),
        Term("hits", "hits", "Places in the documents where the trigger stands; the first one is copied from.", 0, 0),
    ),
    order=14,
)
