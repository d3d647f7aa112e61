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
from decoders.draft_models.block_network import BlockNetwork
from decoders.draft_models.block_run import BlockRun
from decoders.draft_models.block_walk import score
from decoders.draft_models.draft_run import DraftRun, target_rotary
from decoders.draft_models.eagle_head import EagleHead
from decoders.draft_models.eagle_run import EagleRun
from decoders.draft_models.heads import ParallelHeads
from decoders.draft_models.heads_prefix import PrefixRun
from decoders.draft_models.mtp_head import MtpHead
from decoders.draft_models.mtp_run import MtpRun
from decoders.draft_models.network import DraftModel
from decoders.drafters.sps import LanguageModelRun
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


# logits [depth, drafted] of the tokens behind a context, each behind the tokens that are given before it
Chain = Callable[[Context, Sequence[int]], Float[Tensor, "depth drafted"]]


@dataclass(frozen=True, slots=True)
class Drafting:
    """A network that drafts for a target, and what it reads. ``network`` is a part's, or a ``Target`` that drafts."""

    target: Target
    network: Any
    reads: Reads = field(default_factory=Reads)
    depth: int = DEPTH

    @property
    def layers(self) -> tuple[int, ...]:
        """The target's states that the network asks for."""
        if isinstance(self.network, ParallelHeads):
            return (self.network.config.layer(self.target.shape),)
        has_features = isinstance(self.network, EagleHead | BlockNetwork | MtpHead)
        return tuple(self.network.config.features) if has_features else ()

    @property
    def deepest(self) -> int:
        """Tokens of its drafts."""
        config: Any = getattr(self.network, "config", None)
        if isinstance(self.network, ParallelHeads):
            return min(self.depth, config.heads)
        if isinstance(self.network, BlockNetwork):
            return min(self.depth, config.places)
        if isinstance(self.network, MtpHead) and config.layers > 1:
            return min(self.depth, config.layers)
        return self.depth

    def chain(self) -> Chain:
        """The logits along drafts that are given, for one text."""
        network, depth = self.network, self.deepest
        if isinstance(network, ParallelHeads):
            return _heads_chain(network, self.layers[0], depth)
        if isinstance(network, EagleHead):
            return _eagle_chain(EagleRun(network), depth)
        if isinstance(network, MtpHead):
            return _eagle_chain(MtpRun(network, getattr(self.target.stack, "rotary_emb", None)), depth)
        if isinstance(network, BlockNetwork):
            return _block_chain(BlockRun(network), depth)
        if isinstance(network, DraftModel):
            return _model_chain(DraftRun(network, target_rotary(self.target.stack)), depth, network.drafted)
        return _model_chain(LanguageModelRun(network, self.target.info["vocab"]), depth, None)

    def with_depth(self, depth: int) -> Drafting:
        """The same with drafts of at most so many tokens; parallel heads are all asked, which costs little."""
        return self if isinstance(self.network, ParallelHeads) else replace(self, depth=min(depth, self.depth))

    def with_reads(self, **changes: Any) -> Drafting:
        """The same network with other ``Reads``."""
        return replace(self, reads=replace(self.reads, **changes))


def _heads_chain(heads: ParallelHeads, layer: int, depth: int) -> Chain:
    prefix = None if heads.prefix is None else PrefixRun(heads.prefix, layer)

    def chain(context: Context, tokens: Sequence[int]) -> Tensor:
        state = context.hidden_at(layer)[-1] if prefix is None else prefix.read(context)
        if not heads.config.grounded:
            return heads.say_all(state, depth).float()
        path = heads.embedding(torch.tensor([[context.root, *tokens[: depth - 1]]], device=state.device))
        head_logits = [heads.say(n, heads.state(n, state[None], path[:, : n + 1]))[0] for n in range(depth)]
        return torch.stack(head_logits).float()

    return chain


def _block_chain(run: BlockRun, depth: int) -> Chain:
    network = run.network

    def chain(context: Context, tokens: Sequence[int]) -> Tensor:
        states = run.block(context)[:depth]
        prior_tokens = torch.tensor([context.root, *tokens[: depth - 1]], device=states.device)[:, None]
        rows = zip(network.say(states), states, prior_tokens, strict=True)
        return torch.stack([score(network, row_logits, state, token) for row_logits, state, token in rows])

    return chain


def _eagle_chain(run: EagleRun | MtpRun, depth: int) -> Chain:
    def chain(context: Context, tokens: Sequence[int]) -> Tensor:
        step_logits = [run.read(context)]
        parent_row = torch.zeros(1, dtype=torch.long, device=run.device)
        step_logits += [
            run.extend(torch.tensor([token], device=run.device), parent_row)[0] for token in tokens[: depth - 1]
        ]
        return torch.stack(step_logits)

    return chain


def _model_chain(run: DraftRun | LanguageModelRun, depth: int, drafted: Tensor | None) -> Chain:
    def chain(context: Context, tokens: Sequence[int]) -> Tensor:
        step_logits = [run.read(context)]
        step_logits += [run.extend([token], [place - 1])[0] for place, token in enumerate(tokens[: depth - 1])]
        logits = torch.stack(step_logits)
        return logits if drafted is None else logits[:, drafted.long()]

    return chain


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
        chain, memory, tokens = drafting.chain(), text.memory(drafting), text.tokens
        for number, place in enumerate(text.places):
            right, later_tokens, earlier_tokens = (tokens[place + 1 + by : place + 1 + by + depth] for by in (0, 1, -1))
            log_probs = chain(text.context(drafting, place + 1, memory), right.tolist()).log_softmax(-1).cpu()
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
