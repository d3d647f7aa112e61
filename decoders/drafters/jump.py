"""Jump-forward decoding (Zheng et al. 2024, SGLang): what a grammar leaves no choice about is drafted, unasked.

Braces, quotes and the names of required fields follow from a schema. The draft is the tokens of that text as the
tokenizer splits it; the target may split it otherwise, so it is verified like any other.
"""

from __future__ import annotations

from dataclasses import dataclass

from decoders.draft.draft import Draft
from decoders.draft.params import param
from decoders.draft.tree import DraftTree
from decoders.method.drafter import Drafter
from decoders.method.method import Method
from decoders.model.state.memory import Context
from decoders.trace.origins import Origin

NO_GRAMMAR = "there is no grammar, which alone forces tokens: give one (specviz run --json-schema or --regex)"
JUMP = Origin("forced", "G", "forced", "The grammar allows no other text here.", "notched", 3)


@dataclass(frozen=True)
class JumpParams:
    k: int = param(64, "Longest draft", "Tokens drafted at most.", low=1, high=128)


class JumpDrafter(Drafter):
    """Drafts the text that the grammar forces."""

    def __init__(self, params: JumpParams) -> None:
        self.params = params

    def propose(self, context: Context, budget: int) -> Draft:
        if context.grammar is None:
            return Draft.empty(context.root, NO_GRAMMAR)
        tokens = context.grammar.find_continuation(context.tokens.tolist())[: min(budget, self.params.k)]
        if not tokens:
            return Draft.empty(context.root, "the grammar leaves a choice here")
        origins = ("root", *[JUMP.name] * len(tokens))
        return Draft(DraftTree.chain(context.root, tokens), origins, (-1,) * len(origins), route="forced")


METHOD = Method(
    name="jump",
    family="copy",
    title="Jump-forward",
    paper="Zheng et al. 2024, SGLang: efficient execution of structured language model programs",
    bibtex=r"""
@inproceedings{zheng2024sglang,
  author = {Lianmin Zheng and Liangsheng Yin and Zhiqiang Xie and Chuyue Sun and Jeff Huang and Cody Hao Yu and
            Shiyi Cao and Christos Kozyrakis and Ion Stoica and Joseph E. Gonzalez and Clark Barrett and Ying Sheng},
  title = {SGLang: Efficient Execution of Structured Language Model Programs},
  booktitle = {Advances in Neural Information Processing Systems},
  year = {2024},
}
""",
    summary="Drafts the text that a grammar leaves no choice about: braces, quotes, names of required fields.",
    params=JumpParams,
    build=lambda target, params: JumpDrafter(params),
    origins=(JUMP,),
    order=15,
)
