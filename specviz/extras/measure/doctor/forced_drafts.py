"""Drafts of a head or draft model along texts that are given: its teacher-forced acceptance.

A text is a prompt and the target's own greedy answer, which the target reads once. At places of the answer the drafter
says what it would draft, each position behind the text's own tokens and the drafter's own states. The hits that such a
chain begins with are the tokens that would be accepted there. Nothing is verified, and no place is left out because an
earlier draft was long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from decoders.draft.distributions import DraftVocab
from decoders.draft.needs import Needs
from decoders.draft_models.forced_chain import Chain, Chains, ForcedChain, chain_of
from decoders.drafters.sps import LanguageModelRun
from decoders.errors import UserError
from decoders.method.part import kinds
from decoders.model.state.memory import Context, Memory
from decoders.model.target_model.target import Session, Target

DEPTH = 5  # tokens of a draft
PLACES = 240  # places of all texts together at which drafts are made
UNREAD_LEFT = 4  # last tokens of a prompt that are there where it is not read
LOWEST_LOGPROB = -12.0  # the lowest log-probability that counts: one in 160,000


@dataclass(frozen=True, slots=True)
class Reads:
    """States of the target that a drafter is handed: ``layers`` maps the layer it asks for to the one it gets (as
    ``Needs.layers`` counts them), ``shift`` the position of each state to that of another; ``norm`` puts states through
    the target's last norm that were not, and takes the last one as it was before it. ``unread``: of the prompt only the
    last tokens (``UNREAD_LEFT``) are there for the drafter.
    """

    layers: Mapping[int, int] = field(default_factory=dict)
    shift: int = 0
    norm: bool = False
    unread: bool = False


@dataclass(frozen=True, slots=True)
class Drafting:
    """A network that drafts for a target, and what it reads. ``network`` is a part's, or a ``Target`` that drafts."""

    target: Target
    network: Any
    reads: Reads = field(default_factory=Reads)
    depth: int = DEPTH

    @property
    def forced_chain(self) -> ForcedChain:
        """The network's drafts along given texts."""
        return chain_type(self.network)(self.network, self.target)

    @property
    def layers(self) -> tuple[int, ...]:
        """The target's states that the network asks for."""
        return self.forced_chain.layers

    @property
    def deepest(self) -> int:
        """Tokens of its drafts."""
        return self.forced_chain.depth(self.depth)

    def chain(self) -> Chain:
        """The logits along drafts that are given, for one text."""
        return self.forced_chain.chain(self.deepest)

    def chains(self) -> Chains:
        """The same behind several places of one text."""
        return self.forced_chain.chains(self.deepest)

    def with_depth(self, depth: int) -> Drafting:
        """The same with drafts of at most so many tokens; parallel heads are all asked, which costs little."""
        return self if self.forced_chain.parallel else replace(self, depth=min(depth, self.depth))

    def with_reads(self, **changes: Any) -> Drafting:
        """The same network with other ``Reads``."""
        return replace(self, reads=replace(self.reads, **changes))


class LanguageModelChain(ForcedChain):
    """A whole language model's."""

    @property
    def layers(self) -> tuple[int, ...]:
        return ()

    def chain(self, depth: int) -> Chain:
        return chain_of(LanguageModelRun(self.network, self.target.info["vocab"]), depth, None)


def chain_type(network: Any) -> Callable[[Any, Target], ForcedChain]:
    """The kind of a network's drafts along given texts. Raises UserError for one that drafts inside the target's own
    forward.
    """
    if isinstance(network, Target):
        return LanguageModelChain
    for kind in kinds().values():
        if kind.chain is not None and type(network) is kind.network:
            return kind.chain
    raise UserError("it drafts inside the target's own forward, so it has no drafts to force")


@dataclass(slots=True)
class ReadText:
    """A prompt and its answer, read by the target: hidden states ``[tokens, hidden]`` by layer, ``raw`` the last one
    before the final norm (None where that norm is not known), ``choices`` ``[tokens]`` the target's own first choice
    behind every token, ``logits`` ``[places, vocab]`` behind those of ``places``, the positions of drafts' roots.
    """

    session: Session
    start: int
    states: dict[int, Float[Tensor, "tokens hidden"]]
    raw: Float[Tensor, "tokens hidden"] | None
    choices: Int[np.ndarray, "tokens"]
    places: tuple[int, ...]
    logits: Float[Tensor, "places vocab"]

    @property
    def tokens(self) -> Int[np.ndarray, "tokens"]:
        return self.session.buffer[: self.session.length]

    @classmethod
    def read(
        cls, target: Target, tokens: Sequence[int], start: int, layers: Sequence[int], places: Sequence[int]
    ) -> ReadText:
        """Read ``tokens``, of which the first ``start`` are the prompt's, keeping the states of ``layers``. Raises
        UserError for a text that is too long.
        """
        session = target.session(Needs(layers=tuple(sorted(set(layers)))), len(tokens) + 1)
        with _before_norm(target) as raw:
            session.prefill([*tokens, tokens[-1]], start)  # the last one is not processed: one more stands there
        states = {layer: rows[: len(tokens)] for layer, rows in session.memory.hidden.items()}
        session.length = len(tokens)
        logits = target.reference_logits(list(tokens))
        place_logits, choices = logits[list(places)].float().clone(), logits.argmax(-1).numpy(force=True)
        return cls(session, start, states, torch.cat(raw) if raw else None, choices, tuple(places), place_logits)

    def hidden(self, drafting: Drafting) -> int:
        """Number of first tokens that are not there for the drafter."""
        return max(0, self.start - UNREAD_LEFT) if drafting.reads.unread else 0

    def context(self, drafting: Drafting, length: int, memory: Memory) -> Context:
        """The text as the drafter sees it when ``length`` tokens are committed."""
        session, hidden = self.session, self.hidden(drafting)
        return Context(
            session.buffer[hidden:], length - hidden, max(1, min(self.start, length) - hidden), (), memory,
            session.cache, Needs(layers=tuple(sorted(set(drafting.layers)))), session.target.shape,
        )  # fmt: skip

    def memory(self, drafting: Drafting) -> Memory:
        """The states that the drafter is handed."""
        reads, target, layer_states = drafting.reads, drafting.target, dict[int, Tensor]()
        for layer in drafting.layers:
            place = reads.layers.get(layer, layer)
            states = self.states[place]
            if reads.norm and place == target.shape.layers:
                states = states if self.raw is None else self.raw
            elif reads.norm and (norm := final_norm(target)) is not None:
                with torch.inference_mode():
                    states = norm(states[None])[0]
            layer_states[layer] = torch.roll(states, -reads.shift, 0)[self.hidden(drafting) :]
        return Memory(layer_states)


@dataclass(slots=True)
class PlacedDrafts:
    """Drafts of a drafter at places of texts, ``[places, depth]``: each position behind the text's own tokens and the
    drafter's own states.

    ``hits``: the drafter's first choice is the text's token. ``told``: the log-probability that the drafter gives that
    token, ``later`` the one behind it, ``earlier`` the one before (at least ``LOWEST_LOGPROB``). ``outside``: the token
    cannot be drafted. ``own`` ``[places]``: the first choice is the target's own one. ``greedy`` and ``drawn``
    ``[places]``: the chance that the first token stands where the target draws at a temperature, of the drafter's first
    choice (p of it), and of one that is drawn (Σ min(p, q); Leviathan et al. 2023, theorem 3.5). ``lengths``
    ``[places]``: tokens before the draft.
    """

    hits: Bool[np.ndarray, "places depth"]
    text_logprobs: Float[np.ndarray, "places depth"]
    later_logprobs: Float[np.ndarray, "places depth"]
    earlier_logprobs: Float[np.ndarray, "places depth"]
    is_outside: Bool[np.ndarray, "places depth"]
    is_own: Bool[np.ndarray, " places"]
    greedy: Float[np.ndarray, " places"]
    drawn_probs: Float[np.ndarray, " places"]
    lengths: Int[np.ndarray, " places"]

    @property
    def length(self) -> float:
        """Mean acceptance length, the target's own token included: of a chain of first choices the hits that it begins
        with stand.
        """
        return 1 + float(np.minimum.accumulate(self.hits, 1).sum(1).mean())

    @property
    def by_position(self) -> list[float]:
        """Unconditional acceptance per position, as vLLM reports it: the share of drafts that stand so far."""
        return np.minimum.accumulate(self.hits, 1).mean(0).tolist()

    @property
    def conditional(self) -> list[float]:
        """Acceptance per position behind the text's own tokens (EAGLE's n-α), every place counted."""
        return self.hits.mean(0).tolist()


@torch.inference_mode()
def drafts(drafting: Drafting, texts: Sequence[ReadText], temperature: float = 1.0) -> PlacedDrafts:
    """Draft at every place of the texts; ``temperature`` is the target's, of ``greedy`` and ``drawn``."""
    rows = list[tuple[Any, ...]]()
    depth, network = drafting.deepest, drafting.network
    vocab = DraftVocab.of(getattr(network, "drafted", None), drafting.target.info["vocab"])
    for text in texts:
        memory, tokens = text.memory(drafting), text.tokens
        contexts = [text.context(drafting, place + 1, memory) for place in text.places]
        text_tokens = [tokens[place + 1 : place + 1 + depth].tolist() for place in text.places]
        logits = drafting.chains()(contexts, text_tokens)
        for number, place in enumerate(text.places):
            log_probs = logits[number].log_softmax(-1).cpu()
            right, later_tokens, earlier_tokens = (tokens[place + 1 + by : place + 1 + by + depth] for by in (0, 1, -1))
            at, *shifted_ids = (
                ids if vocab is None else vocab.places[ids] for ids in (right, later_tokens, earlier_tokens)
            )
            first = np.asarray(log_probs.argmax(-1))
            choice = int(first[0]) if vocab is None else int(vocab.tokens[first[0]])
            p, q = (text.logits[number] / temperature).softmax(-1), log_probs[0].exp()
            acceptance = torch.minimum(p[: len(q)] if vocab is None else p[vocab.tokens.cpu()], q).sum()
            logs = log_probs.numpy()
            text_logs = [
                np.where(ids < 0, LOWEST_LOGPROB, np.maximum(logs[range(depth), ids], LOWEST_LOGPROB))
                for ids in (at, *shifted_ids)
            ]
            is_greedy = choice == text.choices[place]
            rows.append((first == at, *text_logs, at < 0, is_greedy, float(p[choice]), float(acceptance), place + 1))
    return PlacedDrafts(*(np.asarray(column) for column in zip(*rows, strict=True)))


def places_of(lengths: Sequence[tuple[int, int]], depth: int, limit: int = PLACES) -> list[list[int]]:
    """Per text of (prompt tokens, all tokens), the positions of roots behind which ``depth`` + 1 tokens follow: all, or
    evenly as many as make ``limit`` over all texts.

    >>> places_of([(4, 12), (3, 5)], 3)
    [[3, 4, 5, 6, 7], []]
    """
    all_places = [list(range(max(1, start - 1), total - depth - 1)) for start, total in lengths]
    step = max(1.0, sum(map(len, all_places)) / limit)
    return [[places[int(i * step)] for i in range(int(np.ceil(len(places) / step)))] for places in all_places]


def final_norm(target: Target) -> Any | None:
    """The target's norm behind its last layer, None where it has no name that is known."""
    names = ("norm", "final_layernorm", "ln_f", "final_norm")
    return next((getattr(target.stack, name) for name in names if hasattr(target.stack, name)), None)


@contextmanager
def _before_norm(target: Target) -> Iterator[list[Tensor]]:
    """Inputs of the final norm in the forwards inside the block, in order; empty where that norm is not known."""
    states = list[Tensor]()
    if (norm := final_norm(target)) is None:
        yield states
        return
    hook = norm.register_forward_pre_hook(lambda module, args: states.append(args[0][0].clone()))
    try:
        yield states
    finally:
        hook.remove()
