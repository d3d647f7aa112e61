"""The pieces of learning that every training run shares: weights and loss, optimisers, the learning rate's schedule."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from decoders.model.files.shape import token_ids

from .batches import PROMPT, RESPONSE, Batch, TrainingDocument
from .muon import Muon

CPU_ROWS, GPU_ROWS = 96, 4096  # whose logits are there at a time: they stay in a processor's caches, fill a GPU


def rows_at_once(device: torch.device) -> int:
    """Rows whose logits are there at a time."""
    return CPU_ROWS if device.type == "cpu" else GPU_ROWS


def position_weights(batch: Batch, prompt_share: float, prompt_weight: float, seed: int, step: int) -> Tensor:
    """Weight of each token's prediction, (rows, length): 1 on answers, ``prompt_weight`` on a random
    ``prompt_share`` of the prompt's positions, else 0. The choice depends on seed and step alone.
    """
    generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
    random_mask = torch.rand(batch.ids.shape, generator=generator) < prompt_share
    prompt = (batch.kinds == PROMPT) & random_mask
    return (batch.kinds == RESPONSE).float() + prompt * prompt_weight


def weighted_loss(
    head: Callable[[Tensor], Tensor] | Float[Tensor, "vocab width"],
    states: Float[Tensor, "rows length width"],
    batch: Batch,
    weights: Float[Tensor, "rows length"],
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Mean weighted cross-entropy, and the mean over answer tokens alone (without gradient).

    A weight belongs to the prediction *of* its token, which is read off the state before it. The head runs only where
    the weight is not zero; a tensor is the weight of a frozen one.
    """
    device = states.device
    weights, labels = weights[:, 1:].to(device), batch.ids[:, 1:].to(device)
    answers = (batch.kinds[:, 1:] == RESPONSE).to(device)
    mask = weights > 0
    read, weights = states[:, :-1][mask].float(), weights[mask]
    if isinstance(head, Tensor):
        loss, losses = cast(Any, HeadCrossEntropy.apply(read, head, labels[mask], weights / weights.sum()))
        return loss, losses[answers[mask]].mean()
    losses = F.cross_entropy(head(read), labels[mask], reduction="none")
    return (losses * weights).sum() / weights.sum(), losses.detach()[answers[mask]].mean()


def _logits(
    rows: Float[Tensor, "rows hidden"], head: Float[Tensor, "vocab hidden"], room: Float[Tensor, "most vocab"]
) -> Float[Tensor, "rows vocab"]:
    """In fp32, in ``room`` where products are not: memory that is new each time costs more than what is done in it."""
    logits = F.linear(rows, head)
    return logits if logits.dtype == torch.float32 else room[: len(rows)].copy_(logits)


def _softmax_in_place(logits: Float[Tensor, "rows vocab"]) -> Float[Tensor, "rows 1"]:
    """Turns logits into probabilities, and gives the logarithm of the sum of their exponentials."""
    top = logits.amax(-1, keepdim=True)
    total = logits.sub_(top).exp_().sum(-1, keepdim=True)
    logits.div_(total)
    return top + total.log()


@torch.no_grad()
def distributions(
    head: Callable[[Tensor], Tensor], states: Float[Tensor, "rows hidden"], dtype: torch.dtype
) -> tuple[Float[Tensor, "rows vocab"], Float[Tensor, " rows"], Int[Tensor, " rows"]]:
    """The distributions of a head over states, a few rows at a time: probabilities in ``dtype``, their entropies and
    first choices, both of the logits in fp32.
    """
    probs, entropies, firsts = list[Tensor](), list[Tensor](), list[Tensor]()
    for block in states.split(rows_at_once(states.device)):
        logs = head(block).float().log_softmax(-1)
        firsts.append(logs.argmax(-1))
        p = logs.exp()
        probs.append(p.to(dtype))
        entropies.append(-logs.mul_(p).sum(-1))
    return torch.cat(probs), torch.cat(entropies), torch.cat(firsts)


def rank_of(logits: Float[Tensor, "rows vocab"], targets: Int[Tensor, " rows"]) -> Int[Tensor, " rows"]:
    """The rank of each wanted token, from 0: behind those of a larger logit and, where rounding made some alike, those
    of a lower id.

    >>> rank_of(torch.tensor([[1.0, 2.0, 2.0, 0.0]] * 2), torch.tensor([1, 2])).tolist()
    [0, 1]
    """
    target_logits = logits.gather(1, targets[:, None])
    is_earlier = torch.arange(logits.shape[1], device=logits.device) < targets[:, None]
    return ((logits > target_logits) | ((logits == target_logits) & is_earlier)).sum(-1)


def divergences(
    logits: Float[Tensor, "rows vocab"], target_probs: Float[Tensor, "rows vocab"], weights: Float[Tensor, " rows"]
) -> tuple[Float[Tensor, " rows"], Float[Tensor, "rows vocab"]]:
    """Cross-entropies of rows on a GPU, in fp32, and the slopes of these times ``weights`` by the logits."""
    logs, target_probs = logits.float().log_softmax(-1), target_probs.float()
    return -(target_probs * logs).sum(-1), ((logs.exp() - target_probs) * weights[:, None]).to(logits.dtype)


class HeadDivergence(torch.autograd.Function):
    """Σ weight · KL(p ‖ softmax(states · headᵀ)) of a frozen head, a few rows at a time: neither logits nor their
    gradients are ever there for all rows.

    Row i is compared with ``told[index[i]]``: probabilities, and their entropies in ``entropy``.
    """

    @staticmethod
    def forward(
        ctx: Any, states: Float[Tensor, "rows hidden"], head: Float[Tensor, "vocab hidden"],
        target_probs: Float[Tensor, "told vocab"], entropy: Float[Tensor, " told"], index: Int[Tensor, " rows"],
        weights: Float[Tensor, " rows"],
    ) -> Float[Tensor, ""]:  # fmt: skip
        read, slopes = states.to(head.dtype), torch.empty_like(states)
        block_size, loss = rows_at_once(states.device), states.new_zeros(())
        rooms = weights.new_empty(2, block_size, len(head)) if states.device.type == "cpu" else None
        for start in range(0, len(states), block_size):
            rows = slice(start, start + block_size)
            block_probs = target_probs[index[rows]]
            if rooms is None:
                divergence, slope = divergences(F.linear(read[rows], head), block_probs, weights[rows])
            else:
                logits, block_probs = (
                    _logits(read[rows], head, rooms[0]),
                    rooms[1, : len(block_probs)].copy_(block_probs),
                )
                told_of = (block_probs[:, None] @ logits[..., None])[:, 0, 0]
                divergence = _softmax_in_place(logits)[:, 0] - told_of
                slope = logits.sub_(block_probs).mul_(weights[rows, None])
            loss += ((divergence - entropy[index[rows]]) * weights[rows]).sum()
            slopes[rows] = (slope.to(head.dtype) @ head).to(slopes.dtype)
        ctx.save_for_backward(slopes)
        return loss

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return grads[0] * ctx.saved_tensors[0], None, None, None, None, None


class HeadCrossEntropy(torch.autograd.Function):
    """Cross-entropy of each row's label in what a frozen head says of its state, as ``HeadDivergence`` a few rows at a
    time; and Σ weight · it, which alone has a gradient.
    """

    @staticmethod
    def forward(
        ctx: Any, states: Float[Tensor, "rows hidden"], head: Float[Tensor, "vocab hidden"],
        labels: Int[Tensor, " rows"], weights: Float[Tensor, " rows"],
    ) -> tuple[Float[Tensor, ""], Float[Tensor, " rows"]]:  # fmt: skip
        read, slopes, losses = states.to(head.dtype), torch.empty_like(states), weights.new_empty(len(states))
        block_size = rows_at_once(states.device)
        room = weights.new_empty(block_size, len(head))
        for start in range(0, len(states), block_size):
            rows = slice(start, start + block_size)
            logits, block_labels = _logits(read[rows], head, room), labels[rows, None]
            label_logits = logits.gather(1, block_labels)
            losses[rows] = (_softmax_in_place(logits) - label_logits)[:, 0]
            slope = logits.scatter_add_(1, block_labels, logits.new_full(block_labels.shape, -1.0)).mul_(
                weights[rows, None]
            )
            slopes[rows] = (slope.to(head.dtype) @ head).to(slopes.dtype)
        ctx.save_for_backward(slopes)
        ctx.mark_non_differentiable(losses)
        return (losses * weights).sum(), losses

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return grads[0] * ctx.saved_tensors[0], None, None, None


def commonest(documents: Iterable[TrainingDocument], config: Any, generation: Any) -> Int[Tensor, " draft_vocab"]:
    """The ``config.draft_vocab`` tokens that answers and prompts hold most often, then those with low ids, which
    tokenizers learn first; and all that end a text, as ``generation`` names them. Ascending.
    """
    ids, kinds = (torch.tensor([*chain(*parts)]) for parts in zip(*((d.ids, d.kinds) for d in documents), strict=True))
    frequencies = torch.bincount(ids, torch.where(kinds == RESPONSE, 1.0, 0.1).double(), minlength=config.vocab)
    frequencies -= torch.arange(config.vocab) * 1e-9
    frequencies[list(token_ids(generation.eos_token_id))] = math.inf
    return frequencies.topk(config.draft_vocab).indices.sort().values.to(torch.int32)


class Optimisers:
    """Optimisers that step together; each has its own learning rate, and all follow one schedule."""

    def __init__(self, *optimisers: torch.optim.Optimizer) -> None:
        self.optimisers = optimisers
        self.rates = [optimiser.defaults["lr"] for optimiser in optimisers]

    def step(self, factor: float) -> None:
        """One step at ``factor`` times the learning rates; the gradients are gone afterwards."""
        for optimiser, rate in zip(self.optimisers, self.rates, strict=True):
            for group in optimiser.param_groups:
                group["lr"] = rate * factor
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)

    def state(self) -> list[dict[str, Any]]:
        return [optimiser.state_dict() for optimiser in self.optimisers]

    def load(self, state: list[dict[str, Any]]) -> None:
        for optimiser, optimiser_state in zip(self.optimisers, state, strict=True):
            optimiser.load_state_dict(optimiser_state)


def adamw(parameters: Iterable[nn.Parameter], rate: float) -> torch.optim.AdamW:
    """AdamW with β .9 and .95: for embeddings, norms and the like, or all (GLIDE's authors, Medusa's)."""
    return torch.optim.AdamW(parameters, rate, betas=(0.9, 0.95), weight_decay=0.0)


def muon_and_adamw(
    model: nn.Module, layers: nn.Module, matrix_rate: float, vector_rate: float, *, half: bool
) -> Optimisers:
    """Muon for the matrices in ``layers``, AdamW for all else of ``model``; ``half`` iterates in bf16."""
    matrices = [p for p in layers.parameters() if p.ndim == 2]
    vectors = [p for p in model.parameters() if not any(p is m for m in matrices)]
    dtype = torch.bfloat16 if half else torch.float32
    return Optimisers(Muon(matrices, matrix_rate, weight_decay=0.01, dtype=dtype), adamw(vectors, vector_rate))


def cosine_factor(step: int, share: float, warmup_steps: int) -> float:
    """Of the learning rates: linear warm-up, then a cosine to 0 over the whole budget."""
    return min(1.0, (step + 1) / warmup_steps) * 0.5 * (1 + math.cos(math.pi * min(1.0, share)))
