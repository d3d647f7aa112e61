"""Untrained draft models and prompt tokens for tiny targets, saved where methods look for parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from decoders.draft.draft import Draft
from decoders.draft.needs import Needs
from decoders.draft_models.block_network import BlockConfig, BlockNetwork
from decoders.draft_models.eagle_head import EagleConfig, EagleHead
from decoders.draft_models.heads import HeadsConfig, ParallelHeads
from decoders.draft_models.mtp_head import MtpConfig, MtpHead
from decoders.draft_models.network import DraftConfig, DraftModel
from decoders.drafters import select_method
from decoders.model.target_model.target import Target
from decoders.parts import Part, own_place, save_part
from decoders.prompt_tokens.tokens import PromptConfig, PromptTokens
from decoders.training.drafter import draft_for

from .models import save_model, session_behind


def _random(made: Any, target: Target, seed: int, *, vectors: bool = True) -> Any:
    """``made`` with random weights that matter, sharing the target's embedding and head. Without ``vectors``, its
    norms and biases stay.
    """
    generator = torch.Generator().manual_seed(seed)
    for parameter in made.parameters():
        if vectors or parameter.ndim == 2:
            parameter.data.normal_(0, 0.12, generator=generator)
    made = made.requires_grad_(False).to(target.dtype)
    if made.config.draft_vocab:
        drafted = torch.randperm(made.config.vocab, generator=generator)[: made.config.draft_vocab]
        made.drafted.copy_(drafted.sort().values)
    made.share(target.embeddings.weight, target.head.weight)
    return made


def tiny_draft(target: Target, kind: str, *, layers: int = 1, seed: int = 3, **options: Any) -> DraftModel:
    """A random draft model whose glimpse matters; same seed, same weights."""
    config = DraftConfig.of(target.shape, glimpse=kind == "glide", layers=layers, **options)
    model = draft_for(target.model, config, seed) if target.shape.family == "qwen3" else DraftModel(config, seed)
    return _random(model, target, seed, vectors=False)


def tiny_prompts(target: Target, *, tokens: int = 3, vectors: int = 1, seed: int = 3, **options: Any) -> PromptTokens:
    """Random prompt tokens; same seed, same embeddings."""
    made = PromptTokens(PromptConfig.of(target.shape, tokens=tokens, vectors=vectors, **options))
    for name, parameter in made.named_parameters():
        generator = torch.Generator().manual_seed(seed)
        if name.endswith("weights"):
            parameter.data.uniform_(0.2, 0.8, generator=generator)
        else:
            parameter.data.normal_(0, 0.12 if name == "head" else 0.3, generator=generator)
    return made.requires_grad_(False).to(target.dtype)


def tiny_heads(target: Target, kind: str, *, seed: int = 3, **options: Any) -> ParallelHeads:
    """Random heads whose blocks matter; same seed, same weights."""
    config = HeadsConfig.of(target.shape, **{"grounded": kind == "hydra", **options})
    return _random(ParallelHeads(config, seed), target, seed)


def tiny_eagle(target: Target, kind: str, *, seed: int = 3, **options: Any) -> EagleHead:
    """A random EAGLE head; same seed, same weights."""
    config = EagleConfig.of(target.shape, third=kind == "eagle3", **options)
    return _random(EagleHead(config), target, seed, vectors=False)


def tiny_mtp(target: Target, kind: str, *, seed: int = 3, **options: Any) -> MtpHead:
    """Random MTP layers; same seed, same weights."""
    return _random(MtpHead(MtpConfig.of(target.shape, target.config, **options)), target, seed, vectors=False)


BLOCKS: dict[str, dict[str, Any]] = {
    "dflash": {}, "dspark": {"markov_rank": 8, "confidence": True, "confidence_markov": True, "anchor": True},
    "dflash2": {"conv_taps": 2, "conv_group": 16, "selector_rank": 8, "selector_top_k": 5},
}  # fmt: skip


def tiny_block(target: Target, kind: str, *, seed: int = 3, **options: Any) -> BlockNetwork:
    """A random block drafter; same seed, same weights."""
    config = BlockConfig.of(target.shape, **{"layers": 2, "block": 5, **BLOCKS[kind], **options})
    return _random(BlockNetwork(config), target, seed, vectors=False)


TINY: dict[str, Any] = {
    "ppd": lambda target, kind, **options: tiny_prompts(target, **options), "medusa": tiny_heads, "hydra": tiny_heads,
    "eagle": tiny_eagle, "eagle3": tiny_eagle, "mtp": tiny_mtp,
    **dict.fromkeys(BLOCKS, tiny_block),
}  # fmt: skip


def save_tiny_part(target: Target, kind: str, folder: Path | None = None, **options: Any) -> Path:
    """A part of random weights for this target; without a folder, where methods find it (set SPECVIZ_HOME first)."""
    model = TINY.get(kind, tiny_draft)(target, kind, **options)
    part = Part(kind, target.key, target.name, model.config, {"steps": 0})
    return save_part(part, model.state_dict(), folder or own_place(kind, target.key), dtype=torch.float32)


def saved_drafters(places: Any) -> dict[str, str]:
    """Drafters on disk by family: the target itself, another one, one with sliding windows. ``places`` is pytest's
    ``tmp_path_factory``.
    """
    seeds = {"llama": 1, "gpt2": 2, "mistral-window": 3}
    return {family: save_model(places.mktemp(family), family, seed) for family, seed in seeds.items()}


def draft_behind(target: Target, method: str, tokens: list[int], budget: int = 64, **params: Any) -> tuple[Draft, Any]:
    """A method's draft behind a text, and its drafter."""
    entry, values = select_method(method, params)
    context = session_behind(target, tokens, len(tokens) + 40, entry.needs(target, values)).context
    drafter = entry.build(target, values)
    drafter.prepare(context)
    return drafter.propose(context, budget), drafter


def drafts_behind(target: Target, method: str, texts: list[list[int]], **params: Any) -> list[Draft]:
    """Drafts behind each of these texts, by one drafter that reads them one after another."""
    entry, values = select_method(method, params)
    drafter, needs = entry.build(target, values), entry.needs(target, values)
    return [drafter.propose(session_behind(target, tokens, 200, needs).context, 64) for tokens in texts]


def learnt_states(target: Target, network: Any, texts: list[list[int]]) -> dict[str, torch.Tensor]:
    """The target's states of texts of one length that a network learns from, as a training keeps them."""
    layers = tuple(sorted({*network.config.features, target.shape.layers}))
    kept: dict[str, list[torch.Tensor]] = {}
    for text in texts:
        session = session_behind(target, [*text, 5], 64, Needs(layers=layers))
        for layer in layers:
            name = "states" if layer == target.shape.layers else f"hidden.{layer}"
            kept.setdefault(name, []).append(session.context.hidden_at(layer).clone())
    return {name: torch.stack(parts) for name, parts in kept.items()}
