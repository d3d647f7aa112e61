"""Taps on a running model: hidden states of one layer, queries of chosen heads. Free when nothing asks."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from decoders.draft.needs import Needs, heads_by_layer


class Taps:
    """What the last forward of a model let through, as one drafter needs it.

    Attached once per model; ``arm`` says what to catch. Hidden state ``i`` is what transformers calls
    ``hidden_states[i]``: the
    input of layer i, and for i = layers the last one after the final norm.
    """

    def __init__(self, stack: nn.Module, layers: nn.ModuleList) -> None:
        self.stack, self.layers = stack, layers
        self.attentions: list[Any] = [_attention_of(layer) for layer in layers]
        self.hidden: Float[Tensor, "rows hidden"] | None = None
        self.queries: dict[int, Float[Tensor, "heads rows head_dim"]] = {}
        self.states: dict[int, Float[Tensor, "rows hidden"]] = {}  # of ``Needs.hidden_layers``
        self._hooks: list = []

    def arm(self, needs: Needs) -> None:
        """Catch what ``needs`` names from now on, and only that."""
        self.disarm()
        if needs.hidden_layer is not None:
            if needs.hidden_layer < len(self.layers):
                layer = self.layers[needs.hidden_layer]
                self._hooks.append(layer.register_forward_pre_hook(self._catch_input, with_kwargs=True))
            else:
                self._hooks.append(self.stack.register_forward_hook(self._catch_output))
        for number in needs.hidden_layers:
            self._hooks.append(self._also(number))
        for layer, heads in heads_by_layer(needs.heads).items():
            self.attentions[layer].query_tap = self._query_tap(layer, heads)

    def disarm(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        for attention in self.attentions:
            attention.query_tap = None
        self.hidden, self.queries, self.states = None, {}, {}

    def _also(self, number: int) -> Any:
        """A hook that keeps one more layer's hidden states in ``states``."""

        def before(module: nn.Module, args: tuple, kwargs: dict) -> None:
            self.states[number] = (args[0] if args else kwargs["hidden_states"])[0]

        def after(module: nn.Module, args: tuple, output: Any) -> None:
            self.states[number] = output[0][0]

        if number < len(self.layers):
            return self.layers[number].register_forward_pre_hook(before, with_kwargs=True)
        return self.stack.register_forward_hook(after)

    def _catch_input(self, module: nn.Module, args: tuple, kwargs: dict) -> None:
        hidden = args[0] if args else kwargs["hidden_states"]
        self.hidden = hidden[0]

    def _catch_output(self, module: nn.Module, args: tuple, output) -> None:
        self.hidden = output[0][0]

    def _query_tap(self, layer: int, heads: list[int]):
        index: Tensor | None = None

        def tap(query: Float[Tensor, "1 heads rows head_dim"], scale: float) -> None:
            nonlocal index
            if index is None:
                index = torch.as_tensor(heads, device=query.device)
            self.queries[layer] = query[0, index] * scale

        return tap


def _attention_of(layer: nn.Module) -> nn.Module:
    for module in layer.modules():
        if getattr(module, "layer_idx", None) is not None and module is not layer:
            return module
    raise ValueError(f"no attention module with a layer index in {type(layer).__name__}")
