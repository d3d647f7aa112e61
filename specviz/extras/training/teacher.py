"""The target as a teacher: cached keys and values of chosen layers for whole batches, and its own distributions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from decoders.draft_models.network import rotate
from decoders.model.files.shape import ModelShape
from decoders.model.target_model.load import own_attention

KeysValues = tuple[Tensor, Tensor]


class Teacher(nn.Module):
    """A frozen target that runs only as deep as the layers whose keys are read.

    Batches are padded at the right; as attention is causal, padding changes nothing before it.
    """

    def __init__(self, model: Any, kv_layers: Sequence[int] = ()) -> None:
        super().__init__()
        self.model = model.eval().requires_grad_(False)
        self.model.set_attn_implementation(own_attention(model))  # causal by itself where no mask is given
        self.kv_layers = tuple(kv_layers)
        self.windows = ModelShape.of(model.config).layer_windows

    def forward(self, ids: Int[Tensor, "batch length"]) -> tuple[list[KeysValues], tuple[Tensor, Tensor]]:
        """Keys and values per chosen layer (after rotary), and the positions' cos and sin; no deeper than they need."""
        return self._run(ids, whole=False)[1:]

    def teach(
        self, ids: Int[Tensor, "batch length"], mask: Bool[Tensor, "batch before"]
    ) -> tuple[Float[Tensor, "chosen vocab"], list[KeysValues], tuple[Tensor, Tensor] | None]:
        """The target's logits after the wanted positions (of all but the last), and what ``forward`` gives."""
        if not self.kv_layers:
            return self.model(input_ids=ids, use_cache=False).logits[:, :-1][mask].float(), [], None
        x, kvs, rotary = self._run(ids, whole=True)
        states = self.model.model.norm(x)[:, :-1][mask]
        return self.model.get_output_embeddings()(states).float(), kvs, rotary

    def _run(
        self, ids: Tensor, whole: bool
    ) -> tuple[Float[Tensor, "batch length hidden"], list[KeysValues], tuple[Tensor, Tensor]]:
        stack = self.model.model
        x = stack.embed_tokens(ids)
        positions = torch.arange(ids.shape[1], device=ids.device)[None]
        rotary = stack.rotary_emb(x, position_ids=positions)
        kvs: dict[int, KeysValues] = {}
        deepest = max(self.kv_layers)
        for i, layer in enumerate(stack.layers):
            if i in self.kv_layers:
                kvs[i] = _keys_values(layer, x, rotary)
            if i == deepest and not whole:
                break
            mask = window_mask(ids.shape[1], self.windows[i], ids.device)
            x = layer(
                x, attention_mask=None if mask is None else mask[None, None], position_ids=positions,
                position_embeddings=rotary,
            )  # fmt: skip
        return x, [kvs[i] for i in self.kv_layers], (rotary[0][0], rotary[1][0])


def window_mask(length: int, window: int | None, device: torch.device) -> Bool[Tensor, "rows seen"] | None:
    """Positions that each position sees in a sliding window; None where plain causal attention will do."""
    if window is None or length <= window:
        return None
    at = torch.arange(length, device=device)
    return (at[:, None] >= at) & (at > at[:, None] - window)


def _keys_values(layer: Any, x: Tensor, rotary: tuple[Tensor, Tensor]) -> KeysValues:
    """Keys and values that a decoder layer's attention would cache for these states (Llama, Mistral, Qwen2, Qwen3)."""
    attention = layer.self_attn
    h = layer.input_layernorm(x)
    keys = attention.k_proj(h).unflatten(-1, (-1, attention.head_dim))
    if hasattr(attention, "k_norm"):
        keys = attention.k_norm(keys)
    values = attention.v_proj(h).unflatten(-1, (-1, attention.head_dim))
    return rotate(keys.transpose(1, 2), rotary[0][0], rotary[1][0]), values.transpose(1, 2)
