"""From a block's states to a draft: the walk through its positions, and the lattice of candidates that it went through.

Without a transition every position's likeliest token is taken at once; with a Markov head or a candidate selector one
after another, each given the token before.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from decoders.draft.lattice import Lattice
from decoders.draft_models.drafter import Choose, first_choice

from .block_network import BlockNetwork

RECORDED = 8  # candidates per position of a lattice where no selector says how many there are


@dataclass(frozen=True, slots=True)
class Walk:
    """Tokens of a block (places among those that can be drafted), and the logits or probabilities each was taken from;
    ``alone`` are those of every position by itself, ``states`` what they were said of.
    """

    places: Int[Tensor, " positions"]
    logits: Float[Tensor, "positions drafted"]
    unigram_logits: Float[Tensor, "positions drafted"]
    states: Float[Tensor, "positions hidden"]


def tokens_at(network: BlockNetwork, places: Int[Tensor, "*some"]) -> Int[Tensor, "*some"]:
    """The target's tokens at places among those that can be drafted."""
    return places if network.drafted is None else network.drafted.long()[places]


@torch.inference_mode()
def walk_blocks(
    network: BlockNetwork, states: Float[Tensor, "positions hidden"], root: int, choose: Choose = first_choice
) -> Walk:
    """The walk behind a root, from left to right."""
    base_logits, config = network.say(states), network.config
    if choose is first_choice and not (config.markov_rank or config.selector_rank):
        return Walk(base_logits.argmax(-1), base_logits, base_logits, states)
    previous_token, places, distributions = torch.full((1,), root, device=states.device), list[Tensor](), list[Tensor]()
    for state, logits in zip(states, base_logits, strict=True):
        place, distribution = choose(score(network, logits, state, previous_token))
        places.append(place)
        distributions.append(distribution)
        previous_token = tokens_at(network, place)
    return Walk(torch.cat(places), torch.stack(distributions), base_logits, states)


def score(
    network: BlockNetwork,
    base_logits: Float[Tensor, " drafted"],
    state: Float[Tensor, " hidden"],
    previous_token: Int[Tensor, "1"],
) -> Float[Tensor, " drafted"]:
    """A position's logits given the token before it; of a candidate selector those of its candidates alone."""
    config = network.config
    if config.selector_rank:
        best, candidates = base_logits.topk(config.selector_top_k)
        whole = torch.full_like(base_logits, -torch.inf)
        return whole.index_copy_(0, candidates, best + transition(network, previous_token, candidates, state)[0])
    if config.markov_rank:
        return base_logits + transition(network, previous_token, None, state)[0]
    return base_logits


def transition(
    network: BlockNetwork, previous_tokens: Int[Tensor, " before"], places: Int[Tensor, " candidates"] | None,
    state: Float[Tensor, " hidden"],
) -> Float[Tensor, "before candidates"]:  # fmt: skip
    """The addition of tokens ``previous_tokens`` to the logits of tokens at ``places`` (None: all that can be drafted),
    where ``state`` guesses: W2 W1[x] (DSpark), or ⟨A[p] ⊙ W h, B[c]⟩ (DFlash2).
    """
    if network.config.selector_rank:
        selector = network.candidate_selector
        read = selector.predecessor_codebook[previous_tokens] * selector.hidden_projection(state)
        successors = selector.successor_codebook
    else:
        read, successors = network.markov_head.markov_w1(previous_tokens), network.markov_head.markov_w2.weight
    return (read @ (successors if places is None else successors[places]).mT).float()


@torch.inference_mode()
def confidences(network: BlockNetwork, walk: Walk, root: int) -> Float[Tensor, " positions"]:
    """DSpark's acceptance probability of each token of a walk, given the one before."""
    read = walk.states
    if network.config.confidence_markov:
        tokens = tokens_at(network, walk.places)
        previous_tokens = torch.cat([tokens.new_full((1,), root), tokens[:-1]])
        read = torch.cat([read, network.markov_head.markov_w1(previous_tokens)], -1)
    return network.confidence_head.proj(read)[:, 0].float().sigmoid()


@torch.inference_mode()
def lattice_of(network: BlockNetwork, walk: Walk, root: int) -> Lattice:
    """The likeliest candidates of every position, the walk's token among them, and the transitions between them."""
    config = network.config
    logs = walk.unigram_logits.log_softmax(-1)
    count = min(config.selector_top_k or RECORDED, logs.shape[1])
    places = logs.topk(count).indices
    on_walk = places == walk.places[:, None]
    missing_rows = ~on_walk.any(1)
    places[missing_rows, -1] = walk.places[missing_rows]
    tokens, transitions = tokens_at(network, places), None
    if config.markov_rank or config.selector_rank:
        roots = torch.full_like(tokens[0], root)
        rows = [
            transition(network, tokens[position - 1] if position else roots, places[position], state)
            for position, state in enumerate(walk.states)
        ]
        transitions = torch.stack(rows)
    walk_at = (places == walk.places[:, None]).long().argmax(1)
    return Lattice(tokens, logs.gather(1, places), walk_at, transitions)
