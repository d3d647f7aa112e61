"""Hydra's and Medusa's heads in their authors' formats.

Hydra's first block passes on a linear map of all that it reads, V x + c. So states in units of their spread σ, about
their mean μ, and embeddings in units of their size, fold into its weights exactly: W (h − μ)/σ + b = (W/σ) h +
(b − (W/σ) μ), and V = [diag(1/σ), 0], c = −μ/σ. Medusa's block passes its input on as it is: there is no such weight.
"""

from __future__ import annotations

import torch
from torch import Tensor

from decoders.draft_models.borrowing import UNLIKELY
from decoders.draft_models.part_files import PartFiles, PartSource
from decoders.errors import UserError
from decoders.method.part import train_command

from .heads import HeadsConfig


def hydra(source: PartSource) -> PartFiles:
    """Heads of Hydra, or Hydra++, in the authors' form. Raises UserError for a prefix layer with rotary positions other
    than the target's, which the form takes from there.
    """
    config: HeadsConfig = source.config
    weights = dict[str, Tensor]()
    for number in range(config.heads):
        for block in range(config.blocks):
            source_prefix, export_prefix = f"heads.{number}.{block}.", f"hydra_mlp.{number}.{block}."
            block_tensors = {name: source.weights[f"{source_prefix}linear.{name}"] for name in ("weight", "bias")}
            weights |= {f"{export_prefix}linear.{name}": tensor for name, tensor in block_tensors.items()}
            if block == 0:
                weights |= _first_block(source, config, source_prefix, export_prefix)
        weights |= {f"hydra_lm_head.{number}.{name}": t for name, t in _output(source, config, number, True).items()}
    if config.prefix is not None:
        weights |= _prefix(source)
    config_fields = {
        "hydra_num_heads": config.heads, "hydra_num_layers": config.blocks, "grounded_heads": True,
        "hidden_state_offset": config.hidden_state_offset, **_sizes(source, config),
    }  # fmt: skip
    return PartFiles(config_fields, weights)


def training_hint(*kinds: str, options: str = "") -> str:
    """The commands that train these kinds, in brackets behind a space; "" where nothing trains them."""
    commands = [f"`{command}{options}`" for kind in kinds if (command := train_command(kind))]
    return f" ({', '.join(commands)})" if commands else ""


def medusa(source: PartSource) -> PartFiles:
    """Heads of Medusa in the authors' form. Raises UserError for those that were trained here."""
    config: HeadsConfig = source.config
    if config.scaled:
        raise UserError(
            f"{source.place} reads states in units of their spread, about their mean, and a block of Medusa's form "
            "passes its input on as it is: no weight can make up for that; EAGLE-3's and Hydra's heads are exported"
            + training_hint("eagle3", "hydra")
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
    config_fields = {"medusa_num_heads": config.heads, "medusa_num_layers": config.blocks, **_sizes(source, config)}
    return PartFiles(config_fields, weights)


def _sizes(source: PartSource, config: HeadsConfig) -> dict[str, object]:
    return {"hidden_size": config.hidden, "vocab_size": config.vocab, "base_model_name_or_path": source.verifier}


def _first_block(source: PartSource, config: HeadsConfig, source_prefix: str, export_prefix: str) -> dict[str, Tensor]:
    """The block that reads the state and the embeddings, with the scales in it."""
    weight, bias = (source.weights[f"{source_prefix}linear.{name}"].double() for name in ("weight", "bias"))
    hidden, reads = config.hidden, weight.shape[1]
    if config.mixed:
        skip, offset = (source.weights[f"{source_prefix}skip.{name}"].double() for name in ("weight", "bias"))
    else:
        skip, offset = torch.eye(hidden, reads, dtype=torch.double), torch.zeros(hidden, dtype=torch.double)
    if config.scaled:
        center, spread, size = (source.weights[name].double() for name in ("center", "spread", "size"))
        scales = torch.cat([1 / spread, (1 / size).expand(reads - hidden)])
        weight, skip = weight * scales, skip * scales
        bias, offset = bias - weight[:, :hidden] @ center, offset - skip[:, :hidden] @ center
    block_tensors = {
        "linear.weight": weight,
        "linear.bias": bias,
        "res_connection.weight": skip,
        "res_connection.bias": offset,
    }
    return {export_prefix + name: tensor.float() for name, tensor in block_tensors.items()}


def _output(source: PartSource, config: HeadsConfig, number: int, biased: bool) -> dict[str, Tensor]:
    """A head's output layer over the whole vocabulary. One that goes through the target's is their product; tokens that
    it cannot draft get no row and, where the form has a bias, a logit that is never likely.
    """
    tensors = {name: source.weights[f"outputs.{number}.{name}"] for name in ("weight", "bias")[: 1 + config.bias]}
    if not config.shared:
        return tensors
    rows = source.rows(config).float()
    output_tensors = {name: rows @ tensor.float() for name, tensor in tensors.items()}
    if biased and config.draft_vocab:
        drafted = source.weights["drafted"].long()
        full = torch.zeros(config.vocab, config.hidden)
        full[drafted] = output_tensors["weight"]
        bias = torch.full((config.vocab,), UNLIKELY)
        bias[drafted] = output_tensors.get("bias", torch.zeros(len(drafted)))
        output_tensors = {"weight": full, "bias": bias}
    return output_tensors


def _prefix(source: PartSource) -> dict[str, Tensor]:
    from decoders.model.files.shape import rotaries

    config, shape = source.config.prefix, source.target.shape
    rope = {"rope_type": "default", **(rotaries(source.target.config) or [{}])[0]}
    if (config.rope, config.mlp, config.eps) != (rope, shape.mlp, shape.norm_eps):
        raise UserError(
            f"{source.place} has a prefix layer with rotary positions or sizes of its own, and Hydra++'s form takes "
            "them from the target: heads without a prefix layer are exported"
            + training_hint("hydra", options=" --prefix 0")
        )
    names = (name for name in source.weights if name.startswith("prefix."))
    new_names = {name: name.replace("prefix.layer.", "layers.0.").replace("prefix.norm", "norm") for name in names}
    return {f"prefix_embeding_layer.{new}": source.weights[name] for name, new in new_names.items()}
