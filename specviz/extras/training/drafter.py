"""`specviz train drafter` and `specviz train glide`: a target's draft models, trained alike but for the glimpse."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from copy import deepcopy
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from decoders.draft_models.network import DraftConfig, DraftModel, TargetView, block_mask
from decoders.errors import UserError
from decoders.method.part import training_of
from decoders.model.files.shape import ModelShape
from decoders.model.state.cache_name import cache_in, cache_input
from decoders.model.state.transfer import wait
from decoders.trace.speedup import expected_speedup
from decoders.verifiers.residual import overlap

from .batches import RESPONSE, Batch, pad
from .borrowing import BorrowingRun
from .data import TrainingSource
from .learning import Optimisers, adamw, muon_and_adamw, position_weights, weighted_loss
from .recipes import DraftModelRecipe as Recipe
from .states import Shelf, States
from .teacher import Teacher

FAINT = 0.015  # of a copied output projection: it writes to a later layer's stream, which is larger
PAPER_RATE, PAPER_BATCH = 5e-4, 64  # GLIDE §5.1: AdamW's learning rate; conversations in a batch, for one epoch
GAMMA = 5  # of the validation's acceptance and expected speedup, as in the paper


def reached_mean(values: Float[Tensor, "rows length"], mask: Bool[Tensor, "rows length"], block: int) -> float:
    """The mean over wanted positions reached: up to and including the first rejection in each block, in expectation.

    ``values`` are acceptance probabilities per position; a block stands for one draft.

    >>> round(reached_mean(torch.tensor([[1.0, 0.5, 0.2, 0.9]]), torch.ones(1, 4, dtype=torch.bool), 4), 3)
    0.65
    """
    short = -values.shape[1] % block
    values, mask = F.pad(values, (0, short)), F.pad(mask, (0, short))
    values = values.unflatten(1, (-1, block))
    mask = mask.unflatten(1, (-1, block))
    survival = torch.where(mask, values, torch.ones_like(values)).cumprod(-1)
    reach = torch.cat([torch.ones_like(survival[..., :1]), survival[..., :-1]], -1) * mask
    return float((reach * values).sum() / reach.sum().clamp_min(1e-9))


class DrafterTraining(BorrowingRun):
    """A training run of a draft model, beside its frozen teacher."""

    stored, shuffled = "draft", "draft batches"

    def __init__(
        self, kind: str, folder: Path, model: Any, name: str, source: TrainingSource, recipe: Recipe, seed: int,
        states: Path | None = None, shelf: Shelf | None = None,
    ) -> None:  # fmt: skip
        config = DraftConfig.of(
            ModelShape.of(model.config), layers=recipe.layers, hidden=recipe.hidden, **training_of(kind).settings,
            mlp=recipe.mlp, kv_layer=recipe.kv_layer, shared=recipe.shared, draft_vocab=recipe.draft_vocab,
        )  # fmt: skip
        if recipe.soft and (reason := soft_refusal(model, config)):
            raise UserError(reason)
        self.draft = draft_for(model, config, seed, recipe.copied)
        super().__init__(kind, folder, model, name, source, recipe, seed, self.draft)
        self.teacher = Teacher(model, self.config.kv_layers)
        self.states: States | None = None
        if recipe.soft:
            self.states = States(model, self.config.kv_layers, states or folder / "states", half=recipe.half)
        elif shelf is not None and recipe.half:
            self.states = shelf.open(model, self.config.kv_layers)
        self.optimisers = (
            Optimisers(adamw(self.draft.parameters(), PAPER_RATE)) if recipe.recipe == "paper" else
            muon_and_adamw(self.draft, self.draft.layers, recipe.matrix_lr, recipe.vector_lr, half=recipe.half)
        )  # fmt: skip
        self.cost = measured_cost(self.teacher, self.draft)
        if recipe.fast:
            self.teacher.compile(dynamic=True)
            self.draft.compile(dynamic=True)

    def batches(self, number: int) -> list[Batch]:
        if self.recipe.recipe != "paper":
            return super().batches(number)
        documents = self.source.chunk(number)
        return [pad(documents[i : i + PAPER_BATCH], 0) for i in range(0, len(documents), PAPER_BATCH)]

    @property
    def facts(self) -> dict[str, Any]:
        return {"tokens": self.tokens, "gamma": GAMMA}

    # --- learning

    def _views(
        self, kvs: list[tuple[Tensor, Tensor]], rotary: tuple[Tensor, Tensor] | None, length: int
    ) -> list[TargetView]:
        mask = block_mask(length, self.recipe.block, self.device)
        return [TargetView(k, v, rotary[0], rotary[1], mask) for k, v in kvs] if rotary is not None else []

    def forward(self, progress: float) -> tuple[Batch, Tensor, Tensor]:
        recipe, batch = self.recipe, next(batch for batch in self.feed if bool((batch.kinds[:, 1:] == RESPONSE).any()))
        weights = position_weights(batch, recipe.prompt_share, recipe.prompt_weight, self.seed, self.step)
        ids = batch.ids.to(self.device)
        if recipe.soft:
            assert self.states is not None
            return batch, *self._soft_loss(self.states, batch, weights)
        with self.half():
            states = self.draft(ids, self._target_views(batch, ids))
            if self.draft.drafted is None:
                return batch, *weighted_loss(self._head, states, batch, weights)
            all_logits = lambda rows: self.draft.full_logits(self.draft.head(rows))  # noqa: E731
            return batch, *weighted_loss(all_logits, states, batch, weights)

    @cached_property
    def _head(self) -> Any:
        """The head, or its weight in the dtype of products where it is frozen."""
        head = self.draft.head
        if head.weight.requires_grad or not self.draft.config.shared:
            return head
        return head.weight.to(torch.bfloat16 if self.recipe.half else head.weight.dtype)

    @torch.no_grad()
    def _target_views(self, batch: Batch, ids: Int[Tensor, "rows length"]) -> list[TargetView]:
        if not self.config.kv_layers:
            return []
        if self.states is not None:
            return self._glimpses(self.states, self.states.of(batch)[0])
        kvs, rotary = self.teacher(ids)
        return self._views(kvs, rotary, ids.shape[1])

    def _soft_loss(
        self, stored_states: States, batch: Batch, weights: Float[Tensor, "rows length"]
    ) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """``learning.weighted_loss``, but of KL(target ‖ draft model) over the tokens that can be drafted."""
        kvs, target_states = stored_states.of(batch)
        weights = weights[:, 1:].to(self.device)
        answers, mask = (batch.kinds[:, 1:] == RESPONSE).to(self.device), weights > 0
        with self.half():
            states = self.draft(batch.ids.to(self.device), self._glimpses(stored_states, kvs))
            with torch.no_grad():
                labels = self.draft.head(target_states[:, :-1][mask]).float().log_softmax(-1)
            guesses = self.draft.head(states[:, :-1][mask]).float().log_softmax(-1)
        losses = F.kl_div(guesses, labels, reduction="none", log_target=True).sum(-1)
        weights = weights[mask]
        return (losses * weights).sum() / weights.sum(), losses.detach()[answers[mask]].mean()

    def _glimpses(self, kept: States, kvs: list[tuple[Tensor, Tensor]]) -> list[TargetView]:
        return self._views(kvs, kept.rotary(kvs[0][0].shape[2]), kvs[0][0].shape[2]) if kvs else []

    def _target_outputs(
        self, batch: Batch, mask: Bool[Tensor, "rows before"]
    ) -> tuple[Float[Tensor, "chosen vocab"], list[TargetView]]:
        """The target's logits after the wanted positions, and what the draft model sees of it."""
        ids = batch.ids.to(self.device)
        if self.states is None:
            target_logits, kvs, rotary = self.teacher.teach(ids, mask)
            return target_logits, self._views(kvs, rotary, ids.shape[1])
        kvs, states = self.states.of(batch)
        head = self.teacher.model.get_output_embeddings()
        return head(states[:, :-1][mask]).float(), self._glimpses(self.states, kvs)

    @torch.no_grad()
    def validate(self) -> dict[str, Any]:
        """On held-out documents, read along the text as it stands, against the target's own distributions: mean loss
        per answer token that can be drafted; β and the share of equal first choices, each averaged over the positions
        reached up to the first rejection in a block (methods.md §6).
        """
        total = told_of = count = accepted = equal = 0.0
        for batch in self.held_out:
            ids, mask = batch.ids.to(self.device), (batch.kinds[:, 1:] == RESPONSE).to(self.device)
            if not mask.any():
                continue
            with self.half():
                target_logits, views = self._target_outputs(batch, mask)
                states = self.draft(ids, views)[:, :-1].float()
                logits = self.draft.full_logits(self.draft.head(states[mask])).float()
            labels, n = ids[:, 1:][mask], int(mask.sum())
            possible = torch.isin(labels, self.draft.drafted) if self.draft.drafted is not None else slice(None)
            losses = F.cross_entropy(logits, labels, reduction="none")[possible]
            total += float(losses.sum())
            told_of += len(losses)
            count += n
            shared = torch.zeros(mask.shape, device=ids.device)
            shared[mask] = overlap(target_logits.softmax(-1), logits.softmax(-1))
            matches = torch.zeros_like(shared)
            matches[mask] = (target_logits.argmax(-1) == logits.argmax(-1)).float()
            accepted += reached_mean(shared, mask, self.recipe.block) * n
            equal += reached_mean(matches, mask, self.recipe.block) * n
        return {
            "held_out_loss": round(total / max(1, told_of), 4),
            "acceptance": round(accepted / count, 4),
            "agreement": round(equal / count, 4),
            "cost": round(self.cost, 4),
            "expected_speedup": round(expected_speedup(accepted / count, self.cost, GAMMA), 3),
        }


def epoch_steps(source: TrainingSource) -> int:
    """Steps of one epoch by the paper's recipe. Raises UserError for data without an end."""
    documents = getattr(source, "epoch", None)
    if documents is None:
        raise UserError(f"{source.label} has no end, so that no epoch is one: give --steps or --minutes, or files")
    return -(-documents // PAPER_BATCH)


def soft_refusal(model: Any, config: DraftConfig) -> str | None:
    """The reason why the target's distributions cannot be learnt, in one sentence; None if they can."""
    if not config.shared:
        return "learning the target's distributions needs its embedding and head: leave the width out"
    return ModelShape.of(model.config).unlike_llama("distributions cannot be learnt of", "they can of")


@torch.no_grad()
def draft_for(model: Any, config: DraftConfig, seed: int, copied: bool = False) -> DraftModel:
    """A new draft model, random but for the target's query norm. ``copied``: its glimpse asks and answers as the target
    layer does that it reads, faintly, instead of adding nothing at first. Raises UserError for another width.
    """
    draft = DraftModel(config, seed).float()
    if copied and (config.hidden != ModelShape.of(model.config).hidden or not config.kv_layers):
        raise UserError("a layer's projections can be copied to a GLIDE draft model of the target's width alone")
    for layer, place in zip(draft.layers, config.kv_layers, strict=False):
        if copied:
            target_layer, glimpse = model.model.layers[place], layer.glimpse
            glimpse.norm.weight.copy_(target_layer.input_layernorm.weight)
            glimpse.query.load_state_dict(target_layer.self_attn.q_proj.state_dict())
            glimpse.out.weight.copy_(target_layer.self_attn.o_proj.weight * FAINT)
        if config.query_norm:
            layer.glimpse.query_norm.copy_(model.model.layers[place].self_attn.q_norm.weight.float())
    return draft


@torch.no_grad()
def measured_cost(teacher: Teacher, draft: DraftModel, rows: int = 256, times: int = 23) -> float:
    """c: the time of a draft forward of one token ÷ that of the target, both behind ``rows`` tokens that the target
    has cached, in alternation; medians (Leviathan §3, GLIDE table 1). Both forwards are stock code's, so it is another
    number than a run's ``draft_cost``, which is of the engine's forwards in the run's own contexts.
    """
    config, device = draft.config, draft.norm.weight.device
    ids = torch.zeros(1, 1, dtype=torch.long, device=device)
    kv_heads = ModelShape.of(teacher.model.config).kv_heads
    keys = torch.zeros(1, kv_heads, rows, config.target_head_dim, device=device)
    angle = torch.zeros(1, config.target_head_dim, device=device)
    views = [TargetView(keys, keys, angle + 1, angle) for _ in config.kv_layers]

    read = torch.zeros(1, rows, dtype=torch.long, device=device)
    cache = cache_in(teacher.model(input_ids=read, use_cache=True, logits_to_keep=1))
    caches = [deepcopy(cache) for _ in range(times)]

    def target() -> None:
        teacher.model(input_ids=ids, **cache_input(teacher.model, caches.pop()), use_cache=True)

    def seconds(call: Callable[[], Any]) -> float:
        start_s = time.perf_counter()
        call()
        wait(device)
        return time.perf_counter() - start_s

    durations = [(seconds(lambda: draft.head(draft(ids, views))), seconds(target)) for _ in range(times)]
    drafts, targets = zip(*durations[3:], strict=True)  # the first ones warm up
    return statistics.median(drafts) / statistics.median(targets)
