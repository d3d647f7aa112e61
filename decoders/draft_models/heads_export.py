"""Hydra's and Medusa's heads in their authors' formats.

Hydra's first block passes on a linear map of all that it reads, V x + c. So states in units of their spread σ, about
their mean μ, and embeddings in units of their size, fold into its weights exactly: W (h − μ)/σ + b = (W/σ) h +
(b − (W/σ) μ), and V = [diag(1/σ), 0], c = −μ/σ. Medusa's block passes its input on as it is: there is no such weight.
"""

from __future__ import annotations

import torch
from torch import Tensor

from decoders.errors import UserError

from .borrowing import UNLIKELY
from .heads import HeadsConfig
from .part_files import PartFiles, Source


def hydra(source: Source) -> PartFiles:
    """Heads of Hydra, or Hydra++, in the authors' form. Raises UserError for a prefix layer with rotary positions other
    than the target's, which the form takes from there.
    """
    config: HeadsConfig = source.config
    weights = dict[str, Tensor]()
    for number in range(config.heads):
        for block in range(config.blocks):
            here, there = f"heads.{number}.{block}.", f"hydra_mlp.{number}.{block}."
            own = {name: source.weights[f"{here}linear.{name}"] for name in ("weight", "bias")}
            weights |= {f"{there}linear.{name}": tensor for name, tensor in own.items()}
            if block == 0:
                weights |= _first_block(source, config, here, there)
        weights |= {f"hydra_lm_head.{number}.{name}": t for name, t in _output(source, config, number, True).items()}
    if config.prefix is not None:
        weights |= _prefix(source)
    said = {
        "hydra_num_heads": config.heads, "hydra_num_layers": config.blocks, "grounded_heads": True,
        "hidden_state_offset": config.hidden_state_offset, **_sizes(source, config),
    }  # fmt: skip
    return PartFiles(said, weights)


def medusa(source: Source) -> PartFiles:
    """Heads of Medusa in the authors' form. Raises UserError for those that were trained here."""
    config: HeadsConfig = source.config
    if config.scaled:
        raise UserError(
            f"{source.place} reads states in units of their spread, about their mean, and a block of Medusa's form "
            "passes its input on as it is: no weight can make up for that; EAGLE-3's and Hydra's heads are exported "
            "(`specviz train eagle3`, `specviz train hydra`)"
        )
    if config.draft_vocab:
        raise UserError(
            f"{source.place} drafts {config.draft_vocab:,} of {config.vocab:,} tokens, and Medusa's form has no draft "
            "vocabulary"
        )
    weights = dict[str, Tensor]()
    for number in range(config.heads):
        for block in range(config.blocks):
            for name in ("weight", "bias"):
                weights[f"{number}.{block}.linear.{name}"] = source.weights[f"heads.{number}.{block}.linear.{name}"]
        weights |= {f"{number}.{config.blocks}.{name}": t for name, t in _output(source, config, number, False).items()}
    said = {"medusa_num_heads": config.heads, "medusa_num_layers": config.blocks, **_sizes(source, config)}
    return PartFiles(said, weights)


def _sizes(source: Source, config: HeadsConfig) -> dict[str, object]:
    return {"hidden_size": config.hidden, "vocab_size": config.vocab, "base_model_name_or_path": source.verifier}


def _first_block(source: Source, config: HeadsConfig, here: str, there: str) -> dict[str, Tensor]:
    """The block that reads the state and the embeddings, with the scales in it."""
    weight, bias = (source.weights[f"{here}linear.{name}"].double() for name in ("weight", "bias"))
    hidden, reads = config.hidden, weight.shape[1]
    if config.mixed:
        skip, offset = (source.weights[f"{here}skip.{name}"].double() for name in ("weight", "bias"))
    else:
        skip, offset = torch.eye(hidden, reads, dtype=torch.double), torch.zeros(hidden, dtype=torch.double)
    if config.scaled:
        center, spread, size = (source.weights[name].double() for name in ("center", "spread", "size"))
        scales = torch.cat([1 / spread, (1 / size).expand(reads - hidden)])
        weight, skip = weight * scales, skip * scales
        bias, offset = bias - weight[:, :hidden] @ center, offset - skip[:, :hidden] @ center
    folded = {
        "linear.weight": weight,
        "linear.bias": bias,
        "res_connection.weight": skip,
        "res_connection.bias": offset,
    }
    return {there + name: tensor.float() for name, tensor in folded.items()}


def _output(source: Source, config: HeadsConfig, number: int, biased: bool) -> dict[str, Tensor]:
    """A head's output layer over the whole vocabulary. One that goes through the target's is their product; tokens that
    it cannot draft get no row and, where the form has a bias, a logit that is never likely.
    """
    own = {name: source.weights[f"outputs.{number}.{name}"] for name in ("weight", "bias")[: 1 + config.bias]}
    if not config.shared:
        return own
    rows = source.rows(config).float()
    made = {name: rows @ tensor.float() for name, tensor in own.items()}
    if biased and config.draft_vocab:
        drafted = source.weights["drafted"].long()
        full = torch.zeros(config.vocab, config.hidden)
        full[drafted] = made["weight"]
        bias = torch.full((config.vocab,), UNLIKELY)
        bias[drafted] = made.get("bias", torch.zeros(len(drafted)))
        made = {"weight": full, "bias": bias}
    return made


def _prefix(source: Source) -> dict[str, Tensor]:
    from decoders.model.files.shape import rotaries

    config, shape = source.config.prefix, source.target.shape
    rope = {"rope_type": "default", **(rotaries(source.target.config) or [{}])[0]}
    if (config.rope, config.mlp, config.eps) != (rope, shape.mlp, shape.norm_eps):
        raise UserError(
            f"{source.place} has a prefix layer with rotary positions or sizes of its own, and Hydra++'s form takes "
            "them from the target: heads without a prefix layer are exported (`specviz train hydra --prefix 0`)"
        )
    names = (name for name in source.weights if name.startswith("prefix."))
    made = {name: name.replace("prefix.layer.", "layers.0.").replace("prefix.norm", "norm") for name in names}
    return {f"prefix_embeding_layer.{new}": source.weights[name] for name, new in made.items()}
