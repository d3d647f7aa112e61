"""Taps on a running model: hidden states of chosen layers, queries of chosen heads. Free when nothing is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from decoders.draft.needs import Needs, heads_by_layer

from .hybrid import has_state
from .transfer import rows_of


@dataclass(slots=True)
class Capture:
    """The captured states of one forward, by layer: hidden states, the chosen heads' queries (after rotary, scaled),
    and the sinks of layers that have them.
    """

    hidden: dict[int, Float[Tensor, "rows hidden"]] = field(default_factory=dict)
    queries: dict[int, Float[Tensor, "heads rows head_dim"]] = field(default_factory=dict)
    sinks: dict[int, Float[Tensor, " heads"]] = field(default_factory=dict)

    def of_rows(self, rows: Sequence[int]) -> Capture:
        """The same of some rows only, in the order given."""
        return Capture(
            {layer: rows_of(states, rows) for layer, states in self.hidden.items()},
            {layer: rows_of(queries, rows, 1) for layer, queries in self.queries.items()},
            self.sinks,
        )


class Taps:
    """Reading points in a model's forward, attached once per model.

    Hidden state ``i`` is what transformers calls ``hidden_states[i]``: the input of layer i, and for i = layers the
    last one after the final norm.
    """

    def __init__(self, stack: nn.Module, layers: nn.ModuleList) -> None:
        self.stack, self.layers = stack, layers
        self.attentions: list[Any] = [_attention_of(layer) for layer in layers]
        self.hooks: list[Any] = []

    @contextmanager
    def reading(self, needs: Needs, captured: Capture | None = None) -> Iterator[Capture]:
        """Capture what ``needs`` names of the forward inside the block, and only that; added to ``captured``."""
        captured = Capture() if captured is None else captured
        try:
            for layer in needs.layers:
                self.hooks.append(self._read_hidden(layer, captured))
            for layer, heads in heads_by_layer(needs.heads).items():
                self.attentions[layer].attention_tap = _query_tap(layer, heads, captured)
            yield captured
        finally:
            while self.hooks:
                self.hooks.pop().remove()
            if needs.heads:
                for attention in self.attentions:
                    attention.attention_tap = None

    def _read_hidden(self, layer: int, captured: Capture) -> Any:
        def hook_before(module: nn.Module, args: tuple, kwargs: dict) -> None:
            captured.hidden[layer] = (args[0] if args else kwargs["hidden_states"])[0]

        def hook_after(module: nn.Module, args: tuple, output: Any) -> None:
            captured.hidden[layer] = output[0][0]

        if layer < len(self.layers):
            return self.layers[layer].register_forward_pre_hook(hook_before, with_kwargs=True)
        return self.stack.register_forward_hook(hook_after)


def _query_tap(layer: int, heads: list[int], captured: Capture) -> Callable[..., None]:
    def tap(
        query: Float[Tensor, "1 heads rows head_dim"], key: Tensor, mask: Tensor | None, scale: float,
        sinks: Float[Tensor, "heads"] | None,
    ) -> None:  # fmt: skip
        captured.queries[layer] = rows_of(query[0], heads) * scale
        if sinks is not None:
            captured.sinks[layer] = sinks.float()

    return tap


def _attention_of(layer: nn.Module) -> nn.Module:
    """A layer's attention: of modules that know the layer's number, the one that is no recurrent layer; where there is
    none, the layer itself.
    """
    candidates = [m for m in layer.modules() if getattr(m, "layer_idx", None) is not None and m is not layer]
    return next((module for module in candidates if not has_state(module)), (candidates or [layer])[0])
