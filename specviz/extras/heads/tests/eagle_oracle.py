"""EAGLE's heads and trees once more, in plain loops over published tensors: nothing of the package is used.

Equations: Li et al. 2024a (§4), 2024b (§4.1, 4.2), 2025 (§3.1), and the released code (``cnets1.py``, ``cnets.py``).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

HIDDEN, HEADS, KV_HEADS, SIZE, MLP, VOCAB = 64, 4, 2, 16, 48, 320
LLAMA: dict[str, Any] = {
    "hidden_size": HIDDEN, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "intermediate_size": MLP,
    "vocab_size": VOCAB, "rms_norm_eps": 1e-5, "rope_theta": 10_000.0, "max_position_embeddings": 512,
    "num_hidden_layers": 1, "hidden_act": "silu",
}  # fmt: skip


def normal(generator: torch.Generator, scale: float) -> Callable[..., Tensor]:
    """Draws weights of a shape, normal with this standard deviation."""
    return lambda *shape: torch.randn(shape, generator=generator) * scale


def tensors(
    third: bool, *, drafted: int = 0, bias: bool = True, seed: int = 5, scale: float = 0.15, norms: Sequence[str] = ()
) -> dict[str, Tensor]:
    """Random weights by their published names; ``drafted`` tokens of the vocabulary have a place in EAGLE-3's head."""
    generator = torch.Generator().manual_seed(seed)
    some = normal(generator, scale)
    layer, reads = ("midlayer", 2 * HIDDEN) if third else ("layers.0", HIDDEN)
    made = {
        "fc.weight": some(HIDDEN, 3 * HIDDEN if third else 2 * HIDDEN),
        f"{layer}.self_attn.q_proj.weight": some(HEADS * SIZE, reads),
        f"{layer}.self_attn.k_proj.weight": some(KV_HEADS * SIZE, reads),
        f"{layer}.self_attn.v_proj.weight": some(KV_HEADS * SIZE, reads),
        f"{layer}.self_attn.o_proj.weight": some(HIDDEN, HEADS * SIZE),
        f"{layer}.mlp.gate_proj.weight": some(MLP, HIDDEN),
        f"{layer}.mlp.up_proj.weight": some(MLP, HIDDEN),
        f"{layer}.mlp.down_proj.weight": some(HIDDEN, MLP),
        f"{layer}.post_attention_layernorm.weight": 1 + some(HIDDEN),
    }
    if not third:
        return {**made, **({"fc.bias": some(HIDDEN)} if bias else {})}
    made |= {
        **{name: 1 + some(3 * HIDDEN if name.startswith("input") else HIDDEN) for name in norms},
        f"{layer}.hidden_norm.weight": 1 + some(HIDDEN), f"{layer}.input_layernorm.weight": 1 + some(HIDDEN),
        "norm.weight": 1 + some(HIDDEN), "lm_head.weight": 3 * some(drafted or VOCAB, HIDDEN),
    }  # fmt: skip
    if drafted:
        ids = torch.randperm(VOCAB, generator=generator)[:drafted].sort().values
        made["d2t"] = ids - torch.arange(drafted)
        made["t2d"] = torch.zeros(VOCAB, dtype=torch.bool).index_fill_(0, ids, True)
    return made


def publish(folder: Path, config: dict[str, Any], weights: dict[str, Tensor], pickled: bool = False) -> str:
    """A checkpoint's folder, as it would be published."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if pickled:
        torch.save(weights, folder / "pytorch_model.bin")
    else:
        save_file({name: tensor.contiguous() for name, tensor in weights.items()}, folder / "model.safetensors")
    return str(folder)


def speculators(config: dict[str, Any], weights: dict[str, Tensor], **more: Any) -> tuple[dict, dict]:
    """An EAGLE-3 checkpoint in the form of speculators."""
    verifier = {"name_or_path": "org/target", "architectures": ["LlamaForCausalLM"]}
    said = {
        "speculators_model_type": "eagle3", "transformer_layer_config": config, **more,
        "speculators_config": {"algorithm": "eagle3", "verifier": verifier},
    }  # fmt: skip
    return said, {name.replace("midlayer.", "layers.0."): tensor for name, tensor in weights.items()}


@dataclass
class Row:
    """A pair in the head's sequence: what it sees of the rows before it, its position, what its layer made of it."""

    sees: list[int]
    position: int
    key: Tensor = field(default_factory=lambda: torch.zeros(0))
    value: Tensor = field(default_factory=lambda: torch.zeros(0))
    state: Tensor = field(default_factory=lambda: torch.zeros(0))


def norm(x: Tensor, weight: Tensor) -> Tensor:
    return x / (x.pow(2).mean() + 1e-5).sqrt() * weight


def turn(x: Tensor, position: int) -> Tensor:
    """Rotary positions of one head, pair by pair."""
    half, out = SIZE // 2, x.clone()
    for i in range(half):
        angle = position * 10_000.0 ** (-2 * i / SIZE)
        a, b = x[i], x[half + i]
        out[i], out[half + i] = a * math.cos(angle) - b * math.sin(angle), b * math.cos(angle) + a * math.sin(angle)
    return out


class Head:
    """A head beside a target's embedding and output layer, in double precision, one pair at a time, nothing cached but
    each row's own key and value.
    """

    def __init__(
        self, weights: dict[str, Tensor], embedding: Tensor, output: Tensor, *, before: bool = False,
        normed: bool = False, window: int = 1 << 30,
    ) -> None:  # fmt: skip
        """``normed``: the state after the last norm goes back in; ``window``: how many positions a row sees."""
        self.normed, self.window = normed, window
        self.w = {name.replace("midlayer.", "layers.0."): tensor.double() for name, tensor in weights.items()}
        self.third, self.before = "norm.weight" in weights, before
        self.embedding, self.output = embedding.double(), output.double()
        self.rows: list[Row] = []

    def pair(self, features: Tensor | None, state: Tensor | None, token: int, sees: list[int], position: int) -> int:
        """One more pair: of the target's ``features``, or the head's own ``state``, with a token. Its row's number."""
        w, row, e = self.w, Row(sees, position), self.embedding[token]
        if self.third:
            x = state if features is None else w["fc.weight"] @ self.into_fc(features.double())
            normed = norm(x, w["layers.0.hidden_norm.weight"])
            read = torch.cat([norm(e, w["layers.0.input_layernorm.weight"]), normed])
            residual = normed if self.before else x
        else:
            f = features.double() if features is not None else state
            read = residual = w["fc.weight"] @ torch.cat([e, f]) + w.get("fc.bias", torch.zeros(HIDDEN))
        query = (w["layers.0.self_attn.q_proj.weight"] @ read).view(HEADS, SIZE)
        row.key = (w["layers.0.self_attn.k_proj.weight"] @ read).view(KV_HEADS, SIZE)
        row.value = (w["layers.0.self_attn.v_proj.weight"] @ read).view(KV_HEADS, SIZE)
        self.rows.append(row)
        heads = []
        for head in range(HEADS):
            group, q = head // (HEADS // KV_HEADS), turn(query[head], position)
            seen = [self.rows[i] for i in [*sees, len(self.rows) - 1]]
            seen = [one for one in seen if one.position > position - self.window]
            scores = torch.stack([q @ turn(one.key[group], one.position) / math.sqrt(SIZE) for one in seen])
            heads.append(sum(p * one.value[group] for p, one in zip(scores.softmax(0), seen, strict=True)))
        x = residual + w["layers.0.self_attn.o_proj.weight"] @ torch.cat(heads)
        into = norm(x, w["layers.0.post_attention_layernorm.weight"])
        gate = torch.nn.functional.silu(w["layers.0.mlp.gate_proj.weight"] @ into)
        row.state = x + w["layers.0.mlp.down_proj.weight"] @ (gate * (w["layers.0.mlp.up_proj.weight"] @ into))
        if self.normed:
            row.state = norm(row.state, w["norm.weight"])
        return len(self.rows) - 1

    def into_fc(self, features: Tensor) -> Tensor:
        """The target's states, joined, with the norms that some heads have in front."""
        if "input_norm.weight" in self.w:
            return norm(features, self.w["input_norm.weight"])
        each = [self.w.get(f"fc_norm.{i}.weight") for i in range(3)]
        states = zip(features.chunk(3), each, strict=True)
        return torch.cat([state if weight is None else norm(state, weight) for state, weight in states])

    def after(self, row: int) -> list[tuple[float, int]]:
        """Log-probabilities of the tokens that can be drafted after a row, best first, as (log-probability, token)."""
        state = self.rows[row].state
        if not self.third:
            logs = (self.output @ state).log_softmax(0)
            ids = range(VOCAB)
        else:
            said = state if self.normed else norm(state, self.w["norm.weight"])
            logs = (self.w["lm_head.weight"] @ said).log_softmax(0)
            ids = range(len(logs)) if "d2t" not in self.w else [i + int(d) for i, d in enumerate(self.w["d2t"])]
        return sorted(((float(p), i) for p, i in zip(logs, ids, strict=True)), reverse=True)

    def commit(self, features: Tensor, tokens: list[int]) -> int:
        """All pairs of a text: the target's features at j with the token at j + 1. The number of the last row."""
        for j in range(len(tokens) - 1):
            self.pair(features[j], None, tokens[j + 1], list(range(j)), j)
        return len(self.rows) - 1

    def below(self, row: int, token: int, text: int) -> int:
        """A drafted token below a row; ``text`` pairs were committed."""
        own = self.rows[row]
        line = own.sees if row < text else [*own.sees, row]
        depth = len([i for i in line if i >= text])
        sees = list(range(text)) + [i for i in line if i >= text]
        return self.pair(None, own.state, token, sees, text + depth)


Path_ = tuple[int, ...]


def settle(head: Head, last: int, ranks: list[Path_]) -> dict[Path_, tuple[float, int]]:
    """EAGLE-1: tokens' path → (cumulative log-probability, position) of the tree whose nodes are paths of ranks."""
    text, row_of, token_of = last + 1, {(): last}, {(): ()}
    made: dict[Path_, tuple[float, int]] = {(): (0.0, 0)}
    for path in sorted(ranks, key=len):
        above = path[:-1]
        if above not in row_of:
            row_of[above] = head.below(row_of[above[:-1]], token_of[above][-1], text)
        log, token = head.after(row_of[above])[path[-1]]
        token_of[path] = (*token_of[above], token)
        made[token_of[path]] = (made[token_of[above]][0] + log, len(path))
    return made


def dynamic(head: Head, last: int, depth: int, top_k: int, total: int) -> tuple[dict[Path_, float], dict[Path_, float]]:
    """EAGLE-2: the kept paths with their scores, and all that were scored."""
    text, frontier, rows = last + 1, [()], {(): last}
    scored: dict[Path_, float] = {(): 0.0}
    for _ in range(depth + 1):
        new = []
        for path in frontier:
            if path not in rows:
                rows[path] = head.below(rows[path[:-1]], path[-1], text)
            for log, token in head.after(rows[path])[:top_k]:
                scored[(*path, token)] = scored[path] + log
                new.append((*path, token))
        frontier = sorted(new, key=lambda path: -scored[path])[:top_k]
    best = sorted((path for path in scored if path), key=lambda path: -scored[path])[: total - 1]
    return {path: scored[path] for path in best}, scored
