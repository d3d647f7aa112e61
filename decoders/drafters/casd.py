"""CASD (papers: CASD, §3): drafts retrieved from the full context, accepted where the target finds them likely enough.

The longest suffix of the text (16 to 2 tokens) is looked up in the pool; what follows its places there is merged into a
tree (REST's retrieval). The conditional verifier (eq. 3, 4) may accept a token that greedy decoding would not have
written: the method is not lossless, and its point is the quality of the answer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from decoders.draft.draft import Candidates, Draft
from decoders.draft.needs import Needs
from decoders.draft.params import check_order, param
from decoders.draft.terms import Term
from decoders.draft.tree import DraftTree
from decoders.errors import UserError
from decoders.method.drafter import Drafter
from decoders.method.method import Method
from decoders.model.state.memory import Context
from decoders.model.target_model.target import Target
from decoders.prompt.compress import COMPRESSORS, EXTRACTIVE, compress
from decoders.prompt.pool import Match, PoolIndex, Trie
from decoders.prompt.prompt import Prompt
from decoders.trace.origins import DATASTORE
from decoders.verifiers.conditional import RULES, ConditionalVerifier

RATIOS = {"off": 1.0, "3x": 3.0, "5x": 5.0, "10x": 10.0}


@dataclass(frozen=True)
class CasdParams:
    delta: float = param(
        0.1, "Threshold δ",
        "A drafted token is accepted where the target gives it more than δ and more than the end of text. 1: plain "
        "output.",
        low=0.0, high=1.0,
    )  # fmt: skip
    rule: str = param(
        "fixed",
        "Rule",
        "fixed: the threshold. mixed: the threshold and the target's top k. top-k only: no threshold (ablation).",
        choices=RULES,
    )
    or_argmax: bool = param(
        False, "Or first choice", "Accept the target's own first choice too where it fails the rule."
    )
    top_k: int = param(5, "Top k", "How many of the target's choices the rules with top k allow.", low=1, high=100)
    longest_suffix: int = param(
        16, "Longest suffix", "The last n tokens are looked up in the pool, from this n down.", low=1, high=64
    )
    shortest_suffix: int = param(2, "Shortest suffix", "The lookup gives up below this n.", low=1, high=64)
    depth: int = param(10, "Depth", "Most tokens copied after a place in the pool.", low=1, high=64)
    nodes: int = param(64, "Nodes", "Most drafted tokens of the tree: the most frequent ones stay.", low=1, high=256)
    max_hits: int = param(
        256, "Places merged",
        "Of more places in the pool than this, this many are merged, spread evenly over all of them. REST's own code "
        "merges up to 5,000.", low=1, high=5000,
    )  # fmt: skip
    compression: str = param(
        "off", "Compression", "The target reads a context this much shorter; drafts still come from the full one.",
        choices=tuple(RATIOS),
    )  # fmt: skip
    compressor: str = param(
        EXTRACTIVE,
        "Compressor",
        "extractive: built in, keeps the central sentences. llmlingua-2: the paper's, needs its package and weights.",
        choices=COMPRESSORS,
    )

    def __post_init__(self) -> None:
        check_order(self, "shortest_suffix", "longest_suffix")


class CasdDrafter(Drafter):
    """Candidates are the places where the longest suffix ends in the pool; all of them go into the tree."""

    def __init__(self, params: CasdParams) -> None:
        self.params = params
        self.index: PoolIndex | None = None

    def prepare(self, context: Context) -> None:
        if context.pool is None:
            raise UserError(NO_CONTEXT)
        self.index = PoolIndex(context.pool, self.params.longest_suffix)

    def propose(self, context: Context, budget: int) -> Draft:
        if self.index is None:
            self.prepare(context)
        assert self.index is not None
        p = self.params
        match = self.index.find(context.tokens, p.shortest_suffix, p.max_hits)
        if not match.length:
            count = f"{p.shortest_suffix} tokens" if p.shortest_suffix > 1 else "token"
            return Draft.empty(context.root, f"the last {count} occur{'s' * (count == 'token')} nowhere in the pool")
        trie = self.index.continuations(match.ends, min(p.depth, budget), p.nodes)
        places = (-1, *trie.places)
        return Draft(
            DraftTree((context.root, *trie.tokens), (-1, *(parent + 1 for parent in trie.parents))),
            ("root",) + ("datastore",) * len(trie.tokens),
            tuple(self.index.pool.in_prompt(places).tolist()),
            candidates=self._candidates(match, trie),
            route="pool",
            pool=places,
            terms={"count": np.asarray([np.nan, *trie.counts])},
            notes={"matched": match.length, "hits": match.hits},
        )

    def _candidates(self, match: Match, trie: Trie) -> Candidates:
        """The hits, ranked by how many of them go on with the same token; the tree's first chain comes from the chosen
        one.
        """
        assert self.index is not None
        pool = self.index.pool
        _, groups, counts = np.unique(pool.tokens[match.ends + 1], return_inverse=True, return_counts=True)
        leaf = next((i for i, parent in enumerate(trie.parents) if parent != i - 1), len(trie.parents)) - 1
        choice = int(np.searchsorted(match.ends, trie.places[leaf] - leaf - 1))
        agree = counts[groups].astype(np.float64)
        return Candidates(
            pool.in_prompt(match.ends),
            agree,
            self.index.lengths(match.ends, self.params.depth),
            choice,
            {"matched": np.full(len(match.ends), match.length), "count": agree},
            pool=match.ends,
        )


NO_CONTEXT = (
    "CASD needs a context: it drafts from there. Give the prompt a context besides the question, "
    "or add a text to draft from as the pool"
)


def lacking(prompt: Prompt) -> str | None:
    """The part that the prompt lacks: a context, or a pool of its own, of at least two tokens."""
    pool = prompt.pool or prompt.context_pool()
    if pool is None:
        return NO_CONTEXT
    if len(pool.tokens) < 2:
        return f"CASD needs a context of at least two tokens; {pool.label} has {len(pool.tokens)}"
    return None


def prepare(target: Target, params: CasdParams, prompt: Prompt) -> Prompt:
    """The prompt that the target reads: as it is, or with its context compressed. One that was compressed before, as of
    a recorded run, stays.
    """
    if params.compression == "off" or prompt.compression is not None:
        return prompt
    return compress(prompt, target.tokenizer, RATIOS[params.compression], params.compressor)


METHOD = Method(
    name="casd",
    family="copy",
    title="CASD: context-aware speculative decoding",
    paper="CASD: enhancing generation accuracy via context-aware speculative decoding",
    bibtex=r"""
@misc{casd,
  author = {Anonymous},
  title = {{CASD}: Enhancing Generation Accuracy via Context-Aware Speculative Decoding},
  note = {Under double-blind review},
}
""",
    summary="Drafts trees from the full context and accepts what the target finds likely enough: not lossless.",
    params=CasdParams,
    build=lambda target, params: CasdDrafter(params),
    needs=lambda target, params: Needs(pool=True),
    signal="the longest match in the pool of passages",
    lossless=False,
    origins=(DATASTORE,),
    terms=(
        Term("matched", "matched", "Tokens up to this place that equal the last tokens of the text.", 0, 16),
        Term("count", "agreeing places", "Places, this one included, that go on with the same token.", 0, 0),
    ),
    node_terms=(
        Term("count", "count", "Places in the pool whose continuation goes through this node.", 0, 0),
        Term("p_eos", "p(EOS)", "The target's probability that the text ends before this token.", 0, 1),
    ),
    step_terms=(
        Term("matched", "matched", "Length of the longest suffix of the text found in the pool.", 0, 16),
        Term("hits", "hits", "Places in the pool where that suffix stands.", 0, 0),
    ),
    verifier_params=("delta", "rule", "or_argmax", "top_k"),
    verifier=lambda p, chooser, stop_ids: ConditionalVerifier(
        chooser, stop_ids, delta=p.delta, rule=p.rule, top_k=p.top_k, or_argmax=p.or_argmax
    ),
    prompt=prepare,
    applies=lacking,
    order=11,
)
