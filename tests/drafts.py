"""Untrained draft models and prompt tokens for tiny targets, saved where methods look for parts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from decoders.draft.draft import Draft
from decoders.draft.needs import Needs
from decoders.draft_models.network import DraftConfig, DraftModel
from decoders.drafters import methods, select_method
from decoders.method.part import kinds
from decoders.model.target_model.target import Target
from decoders.parts import Part, own_place, save_part
from decoders.prompt_tokens.tokens import PromptConfig, PromptTokens

from .models import save_model, session_behind, tiny_target

ROOT = Path(__file__).resolve().parent.parent


def random_weights(made: Any, target: Target, seed: int, *, vectors: bool = True) -> Any:
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
    model = DraftModel(config, seed).float()
    if config.query_norm:
        for layer, place in zip(model.layers, config.kv_layers, strict=False):
            layer.glimpse.query_norm.data.copy_(target.model.model.layers[place].self_attn.q_norm.weight)
    return random_weights(model, target, seed, vectors=False)


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


@dataclass(frozen=True)
class PartFacts:
    """A kind of part: methods that draft with it, and parameters of the first one; options of a part; and changes of
    its configuration that no longer fit the target, with the reason that is given.
    """

    methods: tuple[str, ...]
    settings: tuple[dict[str, Any], ...] = ({},)
    options: dict[str, Any] = field(default_factory=dict)
    damages: tuple[tuple[dict[str, Any], str], ...] = ()
    command: str = "train {kind}"  # that makes one
    rules: tuple[dict[str, Any], ...] = ({},)  # by which a sampled run has plain decoding's own draws


def methods_here(*names: str) -> list[str]:
    """The methods of these that are there: others are of annexes that were deleted."""
    return [name for name in names if name in methods()]


@cache
def annex_parts() -> list[Any]:
    """Modules of annexes' tests with ``TINY`` (kind → function that makes a random part) and ``FACTS`` of kinds."""
    files = sorted(ROOT.glob("specviz/extras/*/tests/tiny_parts.py"))
    return [import_module(".".join(file.relative_to(ROOT).with_suffix("").parts)) for file in files]


def tiny_part(target: Target, kind: str, **options: Any) -> Any:
    """The network of a part of random weights."""
    made = {"ppd": lambda target, kind, **options: tiny_prompts(target, **options)}
    for module in annex_parts():
        made |= module.TINY
    return made.get(kind, tiny_draft)(target, kind, **options)


def needs_kinds(*kinds_needed: str) -> pytest.MarkDecorator:
    """Skips where parts of a kind are unknown: the annex that brings it was deleted."""
    missing = sorted(set(kinds_needed) - set(kinds()))
    return pytest.mark.skipif(bool(missing), reason=f"no method here drafts with {', '.join(missing)}")


def save_tiny_part(target: Target, kind: str, folder: Path | None = None, **options: Any) -> Path:
    """A part of random weights for this target; without a folder, where methods find it (set SPECVIZ_HOME first)."""
    model = tiny_part(target, kind, **options)
    part = Part(kind, target.key, target.name, model.config, {"steps": 0})
    return save_part(part, model.state_dict(), folder or own_place(kind, target.key), dtype=torch.float32)


def target_with_parts(kinds: Iterable[str], family: str = "llama", **options: Any) -> Target:
    """A tiny target with a random part of each kind, where methods find them (set SPECVIZ_HOME first)."""
    target = tiny_target(family, **options)
    for kind in kinds:
        save_tiny_part(target, kind)
    return target


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
