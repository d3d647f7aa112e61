"""SAM decoding (Hu et al. 2025, SAMD): copy behind the longest earlier match, in the text or in a corpus, else a tree.

The released code walks two suffix automata, one over the text and one over a corpus. What they answer is the longest
suffix that stands earlier and where it ends first; the same answers come here from a search of the text by vector
operations and from a suffix array over the corpus. A corpus match counts ``len_bias`` tokens less. Below
``len_threshold`` another method drafts: SAMD's own Token Recycling, or another that an annex
adds (``with_fallbacks``). In the released code a match and a copy run on over the border of a corpus's passages; here
they end there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, make_dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Int

from decoders.draft.draft import Candidates, Draft, Learned, Past, Scored, Verdict
from decoders.draft.needs import Needs
from decoders.draft.params import param
from decoders.draft.terms import Term
from decoders.errors import UserError
from decoders.method.drafter import Drafter
from decoders.method.method import Method
from decoders.model.state.memory import Context
from decoders.model.target_model.target import Target
from decoders.prompt.pool import PoolIndex
from decoders.trace.origins import DATASTORE, MAIN
from decoders.verifiers.match import MatchVerifier
from decoders.verifiers.sampling import Chooser
from decoders.verifiers.verifier import Verifier

from .adapld import METHOD as ADAPLD
from .pld import SuffixMatches
from .recycling import METHOD as RECYCLING
from .recycling import RecyclingParams

Fallbacks = Mapping[str, Method | None]


def _fallbacks(methods: Mapping[str, Method]) -> Fallbacks:
    """The methods that may draft where no match is long enough, others than the two of this card included."""
    return {"recycling": RECYCLING, **methods, "adapld": ADAPLD, "none": None}


FALLBACKS = _fallbacks({})
LONGEST_IN_CORPUS = 64  # tokens that a corpus match counts at most
MOST_SHOWN = 256  # places recorded of one step
COPIES = ("text", "corpus")  # routes


def _fallback_param(fallbacks: Mapping[str, Method | None], note: str = "") -> Any:
    return param(
        "recycling", "Fallback", "What drafts where no match is long enough: another method with its default "
        f"parameters (recycling: SAMD's tree of 60 nodes{note}), or none.",
        choices=tuple(fallbacks),
    )  # fmt: skip


@dataclass(frozen=True)
class SamParams:
    n_predicts: int = param(
        40, "Length", "Tokens of a copied chain, the last token itself included: 40 drafts 39.", low=2, high=257
    )
    len_threshold: int = param(
        5, "Threshold", "A match of fewer tokens is not copied from; the fallback drafts instead.", low=1, high=64
    )
    len_bias: int = param(5, "Bias", "A match in the corpus counts as so many tokens shorter.", low=0, high=64)
    fallback: str = _fallback_param(FALLBACKS)
    prompt: bool = param(
        True, "Learn from the prompt", "With recycling as the fallback: fill its matrix from the prompt's tokens too, "
        "while the prompt is read, as SAMD's code does.",
    )  # fmt: skip


def far_enough(ends: Int[np.ndarray, " places"], lengths: Int[np.ndarray, " places"], text: int, count: int) -> int:
    """The place that is copied from (the released code's ``to_anc``): of the longest match, the first; while fewer than
    ``count`` tokens follow it, the first place of a shorter one.

    ``ends`` ascend; ``text`` tokens stand before the last one.
    """
    order = np.lexsort((ends, -lengths))  # longest first
    first = np.minimum.accumulate(ends[order])  # of matches at least as long, the first place
    whole = np.append(lengths[order][1:] < lengths[order][:-1], True)  # where all of one length are in
    following = text - first[whole] - 1
    far_places = np.flatnonzero(following >= count)
    place = first[whole][far_places[0]] if len(far_places) else first[-1]
    return int(np.searchsorted(ends, place))


class SamDrafter(Drafter):
    """Candidates are all earlier places of the last token in the text, or the places of a corpus match."""

    def __init__(self, params: SamParams, fallback: Drafter | None = None) -> None:
        self.params, self.fallback = params, fallback
        self.index: PoolIndex | None = None
        self.matches = SuffixMatches()
        self.learns_from_any_draft = fallback is None or fallback.learns_from_any_draft

    def prepare(self, context: Context) -> None:
        self.matches.of(context.tokens)
        if context.pool is not None and context.pool.positions is None:  # a text of its own
            self.index = PoolIndex(context.pool, LONGEST_IN_CORPUS)
        if self.fallback is not None:
            self.fallback.prepare(context)

    def propose(self, context: Context, budget: int) -> Draft:
        p, tokens = self.params, context.tokens
        ends, lengths = self.matches.of(tokens)
        in_text = int(lengths.max(initial=0))
        spans = [] if self.index is None else list(self.index.intervals(tokens))
        in_corpus = len(spans) - p.len_bias
        notes = {"matched": float(in_text), "in_corpus": float(len(spans))}
        limit = min(p.n_predicts - 1, budget)
        if max(in_text, in_corpus) < p.len_threshold:
            return self._fallback(context, budget, notes)
        if in_text >= in_corpus:
            draft = self._from_text(context, ends, lengths, limit)
        else:
            draft = self._from_corpus(context, spans, limit)
        return replace(draft, notes=notes)

    def _from_text(self, context: Context, ends: np.ndarray, lengths: np.ndarray, limit: int) -> Draft:
        tokens, text = context.tokens, context.length - 1
        choice = far_enough(ends, lengths, text, self.params.n_predicts)
        place = int(ends[choice])
        offer_lengths = np.minimum(self.params.n_predicts - 1, text - ends)
        match_lengths = lengths.astype(np.float64)
        candidates = Candidates(ends, match_lengths, offer_lengths, choice, {"matched": match_lengths})
        copy_tokens = tokens[place + 1 : place + 1 + limit].tolist()
        return Draft.copy_from(context.root, copy_tokens, place + 1, route="text", candidates=candidates)

    def _from_corpus(self, context: Context, spans: list[tuple[int, int]], limit: int) -> Draft:
        """The copy behind the first place of the longest match, as far as its passage goes."""
        assert self.index is not None
        low, high = spans[-1]
        places = np.sort(self.index.place[self.index.order[low:high]])
        shown_places = places[np.arange(min(len(places), MOST_SHOWN)) * len(places) // min(len(places), MOST_SHOWN)]
        place, match_length = int(places[0]), float(len(spans))
        count = int(self.index.lengths(places[:1], limit)[0])
        candidates = Candidates(
            np.full(len(shown_places), -1), np.full(len(shown_places), match_length - self.params.len_bias),
            self.index.lengths(shown_places, self.params.n_predicts - 1), 0,
            {"matched": np.full(len(shown_places), match_length)},
            pool=shown_places, unlisted=len(places) - len(shown_places),
        )  # fmt: skip
        return Draft.copy_from_pool(
            context.root, self.index.pool, place + 1, count, route="corpus", candidates=candidates
        )

    def _fallback(self, context: Context, budget: int, notes: dict[str, float]) -> Draft:
        if self.fallback is None:
            return replace(
                Draft.empty(context.root, f"no match of {self.params.len_threshold} tokens or more"), notes=notes
            )
        draft = self.fallback.propose(context, budget)
        return replace(draft, route="fallback" if draft.tree.drafted else draft.route, notes={**draft.notes, **notes})

    def observe(self, draft: Draft, scored: Scored, verdict: Verdict) -> Learned | None:
        """Token Recycling learns from every step; what another fallback did not draft is not its own."""
        if self.fallback is None or (draft.route in COPIES and not self.learns_from_any_draft):
            return None
        return self.fallback.observe(draft, scored, verdict)

    def resume(self, context: Context, past: Sequence[Past]) -> None:
        if self.fallback is not None:
            self.fallback.resume(context, past)


def fallback_of(fallbacks: Fallbacks, params: SamParams) -> tuple[Method, Any] | None:
    """The method that drafts where no match is long enough, with its parameters."""
    entry = fallbacks[params.fallback]
    if entry is None:
        return None
    return entry, RecyclingParams(prompt=params.prompt, template="samd") if entry is RECYCLING else entry.params()


def build(fallbacks: Fallbacks, target: Target, params: SamParams) -> SamDrafter:
    fallback = fallback_of(fallbacks, params)
    return SamDrafter(params, None if fallback is None else fallback[0].build(target, fallback[1]))


def needs(fallbacks: Fallbacks, target: Target, params: SamParams) -> Needs:
    """A corpus where there is one, and what the fallback reads.

    Raises UserError for a fallback whose trained part is missing.
    """
    fallback = fallback_of(fallbacks, params)
    if fallback is None:
        return Needs(pool=True)
    if missing := fallback[0].missing(target):
        raise UserError(f"fallback={params.fallback}: {missing}, or choose another fallback")
    return Needs(pool=True) | fallback[0].needs(target, fallback[1])


def verifier(fallbacks: Fallbacks, params: SamParams, chooser: Chooser, stop_ids: frozenset[int]) -> Verifier:
    """The fallback's verifier, which matches the target's choice and records what the fallback's numbers need."""
    fallback = fallback_of(fallbacks, params)
    return MatchVerifier(chooser) if fallback is None else fallback[0].verifier(fallback[1], chooser, stop_ids)


def _unique_terms(terms: tuple[Term, ...], *term_groups: tuple[Term, ...]) -> tuple[Term, ...]:
    """Terms of several methods, each key once."""
    return tuple({term.key: term for group in (*reversed(term_groups), terms) for term in group}.values())


def with_fallbacks(methods: Mapping[str, Method], note: str) -> Method:
    """SAM decoding that may also fall back on other methods, by name; ``note`` goes on with the parameter's help."""
    fallbacks = _fallbacks(methods)
    field = ("fallback", str, _fallback_param(fallbacks, note))
    params = make_dataclass("SamParams", [field], bases=(SamParams,), frozen=True)
    return _card(fallbacks, params, *methods.values())


def _card(fallbacks: Fallbacks, params: type, *extra_methods: Method) -> Method:
    """The card; ``extra_methods`` are fallbacks besides Token Recycling and AdaPLD."""
    return Method(
        name="sam",
        family="copy",
        title="SAM decoding",
        paper="Hu et al. 2025, SAM decoding: speculative decoding via suffix automaton",
        bibtex=r"""
@inproceedings{hu2025sam,
  author = {Y. Hu and K. Wang and X. Zhang and F. Zhang and C. Li and H. Chen and J. Zhang},
  title = {{SAM} Decoding: Speculative Decoding via Suffix Automaton},
  booktitle = {Proceedings of the 63rd Annual Meeting of the Association for Computational Linguistics
            (Volume 1: Long Papers)},
  year = {2025},
  pages = {12187--12204},
}
""",
        summary="Copies behind the longest earlier match in text or corpus; where none is long, another method drafts.",
        params=params,
        build=partial(build, fallbacks),
        needs=partial(needs, fallbacks),
        verifier=partial(verifier, fallbacks),
        fallback=partial(fallback_of, fallbacks),
        origins=(
            MAIN, DATASTORE, *RECYCLING.origins, *(o for o in ADAPLD.origins if o != MAIN),
            *(origin for method in extra_methods for origin in method.origins),
        ),
        terms=_unique_terms(
            (Term("matched", "matched", "Tokens up to this place that equal the last tokens of the text.", 0, 0),),
            ADAPLD.terms,
        ),
        node_terms=_unique_terms(
            RECYCLING.node_terms, ADAPLD.node_terms, *(method.node_terms for method in extra_methods)
        ),
        step_terms=_unique_terms(
            (
                Term("matched", "matched", "Length of the longest suffix of the text that stands earlier in it.", 0, 0),
                Term("in_corpus", "in the corpus", "Length of the longest suffix that stands in the corpus.", 0, 64),
            ),
            ADAPLD.step_terms,
            *(method.step_terms for method in extra_methods),
        ),
        order=13,
    )


METHOD = _card(FALLBACKS, SamParams)
