"""Initial weights that already copy: previous-token heads below, induction heads above."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from decoders.model.files.shape import ModelShape


@torch.no_grad()
def plant_copying_heads(model: LlamaForCausalLM, seed: int, *, sharpness: float = 8.0) -> None:
    """Give a freshly initialised Llama the circuit of Olsson et al. 2022, "In-context Learning and Induction Heads".

    A model of five million parameters spends most of a short training run before it finds this circuit, because
    neither half of it lowers the loss alone. Planted, both halves are there to be refined from the first step:

    - Layer 0, half of the heads: attend to the previous token and write what it is into a subspace of their own.
      Their queries and keys read one coordinate that all embeddings share; rotary positions do the rest, as
      q·k is the sum over frequencies of cos(θ (i - j - 1)), which is largest at j = i - 1.
    - Layer 1: the query is the present token, the key what came before each position, so the heads attend to
      what followed the last time; values and outputs copy that token. Only low frequencies match content, since
      high ones turn too far between a prompt and its answer.
    """
    shape = ModelShape.of(model.config)
    size, heads = shape.hidden, shape.heads
    width = size // heads
    pairs = width // 2
    if shape.layers < 2 or heads % 2:
        raise ValueError(
            f"copying heads need two layers and an even number of heads, not {shape.layers} "
            f"and {heads}: give a larger model, or plant none"
        )
    generator = torch.Generator().manual_seed(seed)
    angles = shape.rotary_theta ** (-torch.arange(pairs) / pairs)
    slow = torch.arange(pairs * 9 // 16, pairs)
    content = torch.cat((slow, slow + pairs))  # the dimensions of a head that can match content
    copy_heads = heads // 2
    min_width = copy_heads * len(content) * 4
    if min_width >= size:
        raise ValueError(f"copying heads need more than {min_width} dimensions, not {size}: give more, or plant none")

    embeddings = model.model.embed_tokens.weight
    spread = embeddings.std().item()
    embeddings[:, 0] = 5 * spread  # what all tokens share; adds the same to every logit
    basis = torch.linalg.qr(torch.randn(size, size, generator=generator))[0]
    basis[0] = 0  # rows: coordinates, columns: directions; none reads the shared coordinate
    read, write = basis[:, : min_width // 2].T, basis[:, min_width // 2 : min_width].T

    layers: Any = model.model.layers
    for layer in layers:  # nothing else writes at first, so the circuit reads clean embeddings
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()
    first = layers[0].self_attn
    fast = torch.arange(pairs * 6 // 16)
    query, key = torch.zeros(width, size), torch.zeros(width, size)
    query[fast, 0] = 1.5
    key[fast, 0] = 1.5 * angles[fast].cos()
    key[fast + pairs, 0] = 1.5 * angles[fast].sin()
    for head in range(copy_heads):
        rows = slice(head * width, (head + 1) * width)
        head_slice = slice(head * 2 * len(content), (head + 1) * 2 * len(content))
        dims = torch.arange(2 * len(content))
        first.q_proj.weight[rows], first.k_proj.weight[rows] = query, key
        first.v_proj.weight[rows] = _spread(read[head_slice], dims, width)
        first.o_proj.weight[:, rows] = _spread(1.5 * spread * write[head_slice], dims, width).T

    value_basis = torch.linalg.qr(torch.randn(size, size, generator=generator))[0]
    gain = math.sqrt(sharpness)
    second = layers[1].self_attn
    for head in range(heads):
        rows = slice(head * width, (head + 1) * width)
        head_slice = slice(head * len(content), (head + 1) * len(content))
        second.q_proj.weight[rows] = _spread(gain * read[head_slice], content, width)
        second.k_proj.weight[rows] = _spread(gain * write[head_slice], content, width)
        second.v_proj.weight[rows] = value_basis[:, rows].T
        second.o_proj.weight[:, rows] = 4 * spread * value_basis[:, rows]


def _spread(rows: Tensor, places: Tensor, width: int) -> Tensor:
    """`rows` at `places` of a head's `width` dimensions, zeros elsewhere."""
    out = torch.zeros(width, rows.shape[1])
    out[places] = rows
    return out
