"""Block drafters once more, in plain loops over published tensors: nothing of the package is used.

Equations: Chen et al. 2026 (DFlash) and the released code of z-lab's DFlash and DFlash2 and of DeepSpec's DSpark, which
are not importable here; transformers' own DFlash is (``test_blocks.py`` holds both against ours).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from specviz.extras.heads.tests.eagle_oracle import normal

HIDDEN, HEADS, KV_HEADS, SIZE, MLP, VOCAB, LAYERS = 64, 4, 2, 16, 48, 320, 2
QWEN: dict[str, Any] = {
    "model_type": "qwen3", "hidden_size": HIDDEN, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
    "head_dim": SIZE, "intermediate_size": MLP, "vocab_size": VOCAB, "rms_norm_eps": 1e-5, "rope_theta": 10_000.0,
    "max_position_embeddings": 512, "num_hidden_layers": LAYERS, "hidden_act": "silu", "attention_bias": False,
}  # fmt: skip
MASK, BLOCK, FEATURES, TAPS, GROUP, RANK, CANDIDATES = 319, 6, [0, 2], 2, 16, 8, 5


OF_BLOCK = {"mask_token_id": MASK, "target_layer_ids": FEATURES}


def tensors(kind: str, seed: int = 5, scale: float = 0.15, own: bool = False) -> dict[str, Tensor]:
    """Random weights of a kind by their published names; with an embedding and a head of its ``own``."""
    some = normal(torch.Generator().manual_seed(seed), scale)
    made = {
        "fc.weight": some(HIDDEN, len(FEATURES) * HIDDEN),
        **{f"{name}.weight": 1 + some(HIDDEN) for name in ("hidden_norm", "norm")},
    }
    for layer in (f"layers.{i}" for i in range(LAYERS)):
        made |= {
            f"{layer}.self_attn.q_proj.weight": some(HEADS * SIZE, HIDDEN),
            f"{layer}.self_attn.k_proj.weight": some(KV_HEADS * SIZE, HIDDEN),
            f"{layer}.self_attn.v_proj.weight": some(KV_HEADS * SIZE, HIDDEN),
            f"{layer}.self_attn.o_proj.weight": some(HIDDEN, HEADS * SIZE),
            **{f"{layer}.self_attn.{name}.weight": 1 + some(SIZE) for name in ("q_norm", "k_norm")},
            f"{layer}.mlp.gate_proj.weight": some(MLP, HIDDEN), f"{layer}.mlp.up_proj.weight": some(MLP, HIDDEN),
            f"{layer}.mlp.down_proj.weight": some(HIDDEN, MLP),
            **{f"{layer}.{name}.weight": 1 + some(HIDDEN) for name in ("input_layernorm", "post_attention_layernorm")},
        }  # fmt: skip
        if kind == "dflash2":
            for place in ("attention_conv", "mlp_conv"):
                made[f"{layer}.{place}.base_kernel"] = some(2, TAPS, HIDDEN) + 0.5
                made[f"{layer}.{place}.kernel_projection.weight"] = some(2 * TAPS * (HIDDEN // GROUP), HIDDEN)
    if kind == "dflash2":
        made |= {f"candidate_selector.{name}_codebook": 4 * some(VOCAB, RANK) for name in ("predecessor", "successor")}
        made["candidate_selector.hidden_projection.weight"] = some(RANK, HIDDEN)
    if kind == "dspark":
        made |= {
            **{f"markov_head.markov_{name}.weight": 4 * some(VOCAB, RANK) for name in ("w1", "w2")},
            "confidence_head.proj.weight": some(1, HIDDEN + RANK), "confidence_head.proj.bias": some(1),
        }  # fmt: skip
    if own or kind == "dspark":
        made |= {"embed_tokens.weight": some(VOCAB, HIDDEN), "lm_head.weight": 3 * some(VOCAB, HIDDEN)}
    return made


def configuration(kind: str, **more: Any) -> dict[str, Any]:
    """The configuration that a kind is published with, of its original authors' layout."""
    of_block = dict(OF_BLOCK)
    if kind == "dspark":
        return {
            **QWEN, **of_block, "block_size": BLOCK, "num_anchors": 512, "markov_rank": RANK,
            "markov_head_type": "vanilla", "enable_confidence_head": True, "confidence_head_with_markov": True, **more,
        }  # fmt: skip
    if kind == "dflash2":
        of_block |= {
            "conv_kernel_size": TAPS, "conv_group_size": GROUP, "selector_rank": RANK, "selector_top_k": CANDIDATES,
        }  # fmt: skip
    return {**QWEN, "block_size": BLOCK, "num_target_layers": 3, "dflash_config": of_block, **more}


def _norm(x: Tensor, weight: Tensor, eps: float = 1e-5) -> Tensor:
    return x * (x.pow(2).mean(-1, keepdim=True) + eps).rsqrt() * weight


def _turn(x: Tensor, position: int) -> Tensor:
    """Rotary positions of one row [heads, size]."""
    half = SIZE // 2
    angles = position * 10_000.0 ** (-torch.arange(half, dtype=x.dtype) / half)
    a, b = x[:, :half], x[:, half:]
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)


class Block:
    """A drafter of published tensors. ``states`` [positions, features, hidden] are the target's before the root.
    ``causal``: no row sees later ones (JetSpec).
    """

    def __init__(self, weights: dict[str, Tensor], embedding: Tensor, head: Tensor, causal: bool = False) -> None:
        self.causal = causal
        self.w = {name: tensor.double() for name, tensor in weights.items()}
        self.embedding = self.w.get("embed_tokens.weight", embedding.double())
        self.head = self.w.get("lm_head.weight", head.double())

    def _mix(self, place: str, x: Tensor, read: Tensor, side: int) -> Tensor:
        base = self.w[f"{place}.base_kernel"][side]
        added = (read @ self.w[f"{place}.kernel_projection.weight"].T).view(len(x), 2, TAPS, HIDDEN // GROUP)[:, side]
        out = torch.zeros_like(x)
        for i in range(len(x)):
            for tap in range(min(i + 1, TAPS)):
                for group in range(HIDDEN // GROUP):
                    some = slice(group * GROUP, (group + 1) * GROUP)
                    out[i, some] += (base[tap, some] + added[i, tap, group]) * x[i - tap, some]
        return out

    def states(self, root: int, states: Tensor) -> Tensor:
        """Final states of the block's rows."""
        w, start = self.w, len(states)
        context = _norm(states.double().flatten(1) @ w["fc.weight"].T, w["hidden_norm.weight"])
        x = torch.stack([self.embedding[root], *[self.embedding[MASK]] * (BLOCK - 1)])
        for layer in (f"layers.{i}" for i in range(LAYERS)):
            attention = f"{layer}.self_attn"
            read = normed = _norm(x, w[f"{layer}.input_layernorm.weight"])
            conv = f"{layer}.attention_conv.base_kernel" in w
            if conv:
                read = self._mix(f"{layer}.attention_conv", normed, normed, 0)
            keys, values = [], []
            for position, row in enumerate([*context, *read]):
                key = (row @ w[f"{attention}.k_proj.weight"].T).view(KV_HEADS, SIZE)
                keys.append(_turn(_norm(key, w[f"{attention}.k_norm.weight"]), position))
                values.append((row @ w[f"{attention}.v_proj.weight"].T).view(KV_HEADS, SIZE))
            out = torch.zeros_like(x)
            for i, row in enumerate(read):
                query = (row @ w[f"{attention}.q_proj.weight"].T).view(HEADS, SIZE)
                query = _turn(_norm(query, w[f"{attention}.q_norm.weight"]), start + i)
                made = []
                for head in range(HEADS):
                    group = head * KV_HEADS // HEADS
                    stop = start + i + 1 if self.causal else len(keys)
                    scores = torch.stack([query[head] @ key[group] for key in keys[:stop]]) * SIZE**-0.5
                    made.append((scores.softmax(0)[:, None] * torch.stack([v[group] for v in values[:stop]])).sum(0))
                out[i] = torch.cat(made) @ w[f"{attention}.o_proj.weight"].T
            x = x + (self._mix(f"{layer}.attention_conv", out, normed, 1) if conv else out)
            read = normed = _norm(x, w[f"{layer}.post_attention_layernorm.weight"])
            if conv:
                read = self._mix(f"{layer}.mlp_conv", normed, normed, 0)
            gate, up = (read @ w[f"{layer}.mlp.{name}_proj.weight"].T for name in ("gate", "up"))
            out = (torch.nn.functional.silu(gate) * up) @ w[f"{layer}.mlp.down_proj.weight"].T
            x = x + (self._mix(f"{layer}.mlp_conv", out, normed, 1) if conv else out)
        return _norm(x, w["norm.weight"])

    def draft(self, kind: str, root: int, states: Tensor, anchor: bool) -> tuple[list[int], list[float]]:
        """The block's tokens and, of DSpark, how likely each is to stand."""
        rows = self.states(root, states)[0 if anchor else 1 :]
        before, tokens, sure = root, list[int](), list[float]()
        for row in rows:
            logits = row @ self.head.T
            if kind == "dspark":
                read = self.w["markov_head.markov_w1.weight"][before]
                joined = torch.cat([row, read])
                said = joined @ self.w["confidence_head.proj.weight"][0] + self.w["confidence_head.proj.bias"][0]
                sure.append(float(said.sigmoid()))
                logits = logits + self.w["markov_head.markov_w2.weight"] @ read
            if kind == "dflash2":
                best = logits.topk(CANDIDATES)
                read = self.w["candidate_selector.predecessor_codebook"][before] * (
                    self.w["candidate_selector.hidden_projection.weight"] @ row
                )
                added = self.w["candidate_selector.successor_codebook"][best.indices] @ read
                before = int(best.indices[(best.values + added).argmax()])
            else:
                before = int(logits.argmax())
            tokens.append(before)
        return tokens, sure
