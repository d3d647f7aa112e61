"""REST (He et al. 2023): drafts retrieved from a datastore of texts.

The longest suffix of the text (16 down to 2 tokens, the last one included) that stands in the datastore is looked up;
what follows its places there is merged into a tree of the most frequent continuations. The released code drafts token
100 where nothing is found, and its token ids end at 65,535: neither is so here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from decoders.draft.draft import Draft
from decoders.draft.needs import Needs
from decoders.draft.params import check_order, param
from decoders.draft.terms import Term
from decoders.draft.tree import DraftTree
from decoders.errors import UserError
from decoders.folders import typed_path
from decoders.method.drafter import Drafter
from decoders.method.kept import kept_with
from decoders.method.method import Method
from decoders.model.state.memory import Context
from decoders.model.target_model.target import Target
from decoders.prompt.datastore import DEEPEST, LONGEST, Datastore, open_datastore
from decoders.prompt.pool import PoolIndex
from decoders.trace.origins import DATASTORE

NO_DATASTORE = (
    "there is nothing to draft from: name a text or JSONL file (parameter datastore), give the prompt a context, or "
    "add a text as the pool"
)


@dataclass(frozen=True)
class RestParams:
    datastore: str | None = param(
        None, "Datastore", "Text or JSONL file to draft from: it is indexed once, and the index kept on disk. Off: the "
        "prompt's context, or the pool.",
    )  # fmt: skip
    longest_suffix: int = param(
        16, "Longest suffix", "The last n tokens are looked up, from this n down.", low=1, high=LONGEST
    )
    shortest_suffix: int = param(2, "Shortest suffix", "The lookup gives up below this n.", low=1, high=LONGEST)
    depth: int = param(10, "Depth", "Most tokens copied behind a place.", low=1, high=DEEPEST)
    nodes: int = param(64, "Nodes", "Most drafted tokens of the tree: the most frequent ones stay.", low=1, high=256)
    max_hits: int = param(
        5000, "Places merged", "Of more places than this, those are merged that come first when sorted by what follows "
        "them, as in the released code's suffix array.", low=1, high=5000,
    )  # fmt: skip

    def __post_init__(self) -> None:
        check_order(self, "shortest_suffix", "longest_suffix")


class Stores(dict[str, Datastore]):
    """Opened datastores by file and time of its last change."""

    unit = "opened files"


class RestDrafter(Drafter):
    """Drafts from ``store``, or without one from the context's pool."""

    def __init__(self, params: RestParams, store: Datastore | None = None) -> None:
        self.params, self.store = params, store
        self.index: PoolIndex | None = None

    def prepare(self, context: Context) -> None:
        if self.store is None and context.pool is not None:
            self.index = PoolIndex(context.pool, self.params.longest_suffix)

    def propose(self, context: Context, budget: int) -> Draft:
        p, depth = self.params, min(self.params.depth, budget)
        if self.store is not None:
            store_match = self.store.find(context.tokens, p.longest_suffix, p.shortest_suffix, p.max_hits)
            if not store_match.length:
                return self._empty_draft(context)
            length, hits = store_match.length, store_match.hits
            trie = self.store.continuations(store_match, depth, p.nodes, p.max_hits)
            places, sources = (), (-1,) * (1 + len(trie.tokens))
        else:
            if self.index is None:
                self.prepare(context)
            if self.index is None:
                return Draft.empty(context.root, NO_DATASTORE)
            match = self.index.find(context.tokens, p.shortest_suffix)
            if not match.length:
                return self._empty_draft(context)
            length, hits = match.length, match.hits
            trie = self.index.continuations(match.ends, depth, p.nodes, p.max_hits)
            places = (-1, *trie.places)
            sources = tuple(self.index.pool.in_prompt(places).tolist())
        sample_size = min(hits, p.max_hits)
        share = np.asarray([np.nan, *trie.counts]) / sample_size
        return Draft(
            DraftTree((context.root, *trie.tokens), (-1, *(parent + 1 for parent in trie.parents))),
            ("root",) + ("datastore",) * len(trie.tokens),
            sources,
            route="datastore" if self.store is not None else "pool",
            pool=places,
            terms={"count": np.asarray([np.nan, *trie.counts]), "share": share},
            notes={"matched": float(length), "hits": float(hits)},
        )

    def _empty_draft(self, context: Context) -> Draft:
        n, source = self.params.shortest_suffix, "pool" if self.store is None else "datastore"
        last = f"{n} tokens occur" if n > 1 else "token occurs"
        return Draft.empty(context.root, f"the last {last} nowhere in the {source}")


def build(target: Target, params: RestParams) -> RestDrafter:
    if params.datastore is None:
        return RestDrafter(params)
    if target.tokenizer is None:
        raise UserError(f"{target.name} has no tokenizer, which a datastore's text needs")
    path = typed_path(params.datastore)
    stores: Stores = kept_with(target).of("rest", Stores)
    version = f"{path.resolve()} {path.stat().st_mtime_ns if path.is_file() else 0}"
    if version not in stores:
        stores[version] = open_datastore(path, target.tokenizer)
    return RestDrafter(params, stores[version])


METHOD = Method(
    name="rest",
    family="copy",
    title="REST",
    paper="He et al. 2023, REST: retrieval-based speculative decoding",
    bibtex=r"""
@misc{he2023rest,
  author = {Zhenyu He and Zexuan Zhong and Tianle Cai and Jason D. Lee and Di He},
  title = {{REST}: Retrieval-Based Speculative Decoding},
  year = {2023},
  eprint = {2311.08252},
  archivePrefix = {arXiv},
}
""",
    summary="Looks the last tokens up in a datastore of texts and drafts the most frequent continuations as a tree.",
    params=RestParams,
    build=build,
    needs=lambda target, params: Needs(pool=params.datastore is None),
    origins=(DATASTORE,),
    node_terms=(
        Term("count", "count", "Places in the datastore whose continuation goes through this node.", 0, 0),
        Term("share", "share", "That count ÷ all places that were looked at.", 0, 1),
    ),
    step_terms=(
        Term("matched", "matched", "Length of the longest suffix of the text found in the datastore.", 0, 16),
        Term("hits", "hits", "Places in the datastore where that suffix stands.", 0, 0),
    ),
    keeps="datastores",
    order=18,
)
