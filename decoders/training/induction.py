"""Attention heads that copy, planted: at the start by construction, later by regression on what has been learnt."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import LlamaForCausalLM


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
    config = model.config
    size, heads = config.hidden_size, config.num_attention_heads
    width = size // heads
    pairs = width // 2
    if config.num_hidden_layers < 2 or heads % 2:
        raise ValueError(
            f"copying heads need two layers and an even number of heads, not {config.num_hidden_layers} "
            f"and {heads}: give a larger model, or plant none"
        )
    generator = torch.Generator().manual_seed(seed)
    angles = config.rope_parameters["rope_theta"] ** (-torch.arange(pairs) / pairs)
    slow = torch.arange(pairs * 9 // 16, pairs)
    content = torch.cat((slow, slow + pairs))  # the dimensions of a head that can match content
    planted = heads // 2
    needed = planted * len(content) * 4
    if needed >= size:
        raise ValueError(f"copying heads need more than {needed} dimensions, not {size}: give more, or plant none")

    embeddings = model.model.embed_tokens.weight
    spread = embeddings.std().item()
    embeddings[:, 0] = 5 * spread  # what all tokens share; adds the same to every logit
    basis = torch.linalg.qr(torch.randn(size, size, generator=generator))[0]
    basis[0] = 0  # rows: coordinates, columns: directions; none reads the shared coordinate
    read, write = basis[:, : needed // 2].T, basis[:, needed // 2 : needed].T

    layers = model.model.layers
    for layer in layers:  # nothing else writes at first, so the circuit reads clean embeddings
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()
    first = layers[0].self_attn
    fast = torch.arange(pairs * 6 // 16)
    for head in range(planted):
        rows = slice(head * width, (head + 1) * width)
        query, key = torch.zeros(width, size), torch.zeros(width, size)
        query[fast, 0] = 1.5
        key[fast, 0] = 1.5 * angles[fast].cos()
        key[fast + pairs, 0] = 1.5 * angles[fast].sin()
        first.q_proj.weight[rows] = query
        first.k_proj.weight[rows] = key
        mine = slice(head * 2 * len(content), (head + 1) * 2 * len(content))
        values = torch.zeros(width, size)
        values[: 2 * len(content)] = read[mine]
        first.v_proj.weight[rows] = values
        outputs = torch.zeros(size, width)
        outputs[:, : 2 * len(content)] = 1.5 * spread * write[mine].T
        first.o_proj.weight[:, rows] = outputs

    copied = torch.linalg.qr(torch.randn(size, size, generator=generator))[0]
    gain = math.sqrt(sharpness)
    second = layers[1].self_attn
    for head in range(heads):
        rows = slice(head * width, (head + 1) * width)
        mine = slice(head * len(content), (head + 1) * len(content))
        second.q_proj.weight[rows] = _spread(gain * read[mine], content, width)
        second.k_proj.weight[rows] = _spread(gain * write[mine], content, width)
        second.v_proj.weight[rows] = copied[:, rows].T
        second.o_proj.weight[:, rows] = 4 * spread * copied[:, rows]


def _spread(rows: Tensor, places: Tensor, width: int) -> Tensor:
    """`rows` at `places` of a head's `width` dimensions, zeros elsewhere."""
    out = torch.zeros(width, rows.shape[1])
    out[places] = rows
    return out


@torch.no_grad()
def plant_context_heads(model: LlamaForCausalLM, documents: Sequence[Sequence[int]], seed: int) -> None:
    """Give a half-trained model heads that find the place where the last *two* tokens stood together before.

    One token does not say where a copy goes on after a full stop or a line break; two nearly always do. Left to
    itself, training had not found such heads in three million tokens, and layers 2 and 3 attended to nothing:
    switching any of their heads off changed the held-out loss by less than 0.025. So they can be overwritten:

    - Layer 2, the last four heads: attend one and two tokens back, and write down a code of what stands there.
    - Layer 3, the last six: the query is the code of the last two tokens, the key that of the two before each
      position; values and outputs carry the token found. All maps are ridge regressions on `documents`.
    """
    config = model.config
    size, width = config.hidden_size, config.hidden_size // config.num_attention_heads
    heads, pairs, codes = config.num_attention_heads, width // 2, 2 * width
    if config.num_hidden_layers < 5 or heads < 8:
        raise ValueError(
            f"context heads need five layers and eight heads, not {config.num_hidden_layers} and {heads}: "
            "give a larger model, or plant none"
        )
    generator = torch.Generator().manual_seed(seed)

    def directions(dimensions: int, count: int) -> Tensor:
        return torch.linalg.qr(torch.randn(dimensions, count, generator=generator))[0].T

    tokens = F.rms_norm(model.model.embed_tokens.weight, (size,), None, 1e-6)
    tokens = (tokens - tokens.mean(0)) / tokens.std()
    code = tokens @ directions(size, codes).T

    def said(back: int) -> Tensor:
        """The code of the token `back` places before each position of all documents; zeros where there is none."""
        rows = [F.pad(code[torch.tensor(d)], (0, 0, back, 0))[: len(d)] for d in documents]
        return torch.cat(rows)

    second, third = (model.model.layers[depth].self_attn for depth in (2, 3))
    inputs, norm = _inputs(model, 2, documents)
    constant = _ridge(inputs, torch.ones(len(inputs), 1))[0]
    present = _ridge(inputs, said(0))
    angles = config.rope_parameters["rope_theta"] ** (-torch.arange(pairs) / pairs)
    fast = torch.arange(pairs // 4)
    marks = directions(size, 4 * width)
    for place, back in enumerate((1, 1, 2, 2)):
        rows = slice((heads - 4 + place) * width, (heads - 3 + place) * width)
        query, key = torch.zeros(width, size), torch.zeros(width, size)
        query[fast] = 16 * constant
        key[fast] = 16 * (back * angles[fast]).cos()[:, None] * constant
        key[fast + pairs] = 16 * (back * angles[fast]).sin()[:, None] * constant
        second.q_proj.weight[rows] = query
        second.k_proj.weight[rows] = key
        second.v_proj.weight[rows] = present[(place % 2) * width : (place % 2 + 1) * width]
        second.o_proj.weight[:, rows] = 0.025 * norm * marks[place * width : (place + 1) * width].T

    inputs, norm = _inputs(model, 3, documents)
    slow = torch.arange(pairs * 9 // 16, pairs)
    content = torch.cat((slow, slow + pairs))
    now, before, earlier = said(0), said(1), said(2)
    found = directions(size, 6 * width)
    every = torch.cat([tokens[torch.tensor(d)] for d in documents])
    for place in range(6):
        rows = slice((heads - 6 + place) * width, (heads - 5 + place) * width)
        newer, older = directions(codes, len(content)), directions(codes, len(content))
        gain = math.sqrt(8.0)
        third.q_proj.weight[rows] = _spread(_ridge(inputs, gain * (now @ newer.T + before @ older.T)), content, width)
        third.k_proj.weight[rows] = _spread(
            _ridge(inputs, gain * (before @ newer.T + earlier @ older.T)), content, width
        )
        mine = found[place * width : (place + 1) * width]
        third.v_proj.weight[rows] = _ridge(inputs, every @ mine.T)
        third.o_proj.weight[:, rows] = 0.005 * norm * mine.T


def _inputs(model: LlamaForCausalLM, depth: int, documents: Sequence[Sequence[int]]) -> tuple[Tensor, float]:
    """What layer `depth` reads after its norm, (positions, hidden), and the mean length of the residual before it."""
    read: list[Tensor] = []
    lengths: list[Tensor] = []

    def keep(module: torch.nn.Module, given: tuple[Tensor, ...], out: Tensor) -> None:
        read.append(out[0])
        lengths.append(given[0][0].norm(dim=-1))

    hook = model.model.layers[depth].input_layernorm.register_forward_hook(keep)
    try:
        for document in documents:
            model.model(input_ids=torch.tensor([list(document)]), use_cache=False)
    finally:
        hook.remove()
    return torch.cat(read), torch.cat(lengths).mean().item()


def _ridge(inputs: Tensor, wanted: Tensor) -> Tensor:
    """The map (outputs, hidden) from `inputs` (rows, hidden) to `wanted` (rows, outputs)."""
    gram = inputs.T @ inputs + 1e-3 * len(inputs) * torch.eye(inputs.shape[1])
    return torch.linalg.solve(gram, inputs.T @ wanted).T
