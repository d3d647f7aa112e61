"""Reading a model again after a recorded call, on request: hidden states, and where it looked."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor

from decoders.draft.draft import Looks
from decoders.engine.numbers import looked_at
from decoders.errors import UserError
from decoders.model.target_model.anatomy import decoder_stack
from decoders.trace.trace import Trace

MOST_SCORES = 1 << 28  # of one layer, all heads: attention of a longer text is not read


class Reread:
    """Reads a finished text once more, for hidden states of some layers and the attention of others."""

    def __init__(self, model: Any, hidden: tuple[int, ...], attention: tuple[int, ...]) -> None:
        self.model, self.hidden, self.attention = model, hidden, attention
        layers = int(getattr(model.config.get_text_config(), "num_hidden_layers", 0))
        for layer_ids, last_layer, value_name in (
            (hidden, layers, "hidden states"),
            (attention, layers - 1, "attention"),
        ):
            if odd := [layer for layer in layer_ids if not 0 <= layer <= last_layer]:
                raise UserError(f"there are no {value_name} of layer {odd[0]}: this model has layers 0 to {last_layer}")

    @torch.no_grad()
    def add_to(self, trace: Trace) -> dict[int, Tensor]:
        """Add the attention to a trace; gives the hidden states ``[positions, hidden]`` by layer."""
        if not self.hidden and not self.attention:
            return {}
        ids = torch.as_tensor([trace.tables["tokens"]["id"]], device=self.model.device)
        weights: dict[int, Tensor] = {}
        with ExitStack() as undo:
            if self.attention:
                self._watch(undo, weights, ids.shape[1])
            output = self.model(input_ids=ids, use_cache=False, output_hidden_states=bool(self.hidden))
        if bare := [layer for layer in self.attention if layer not in weights]:
            raise UserError(f"layer {bare[0]} of this model gives no attention weights: leave it out")
        states = {layer: output.hidden_states[layer][0] for layer in self.hidden}
        if weights:
            self._record(trace, weights)
        trace.run["reads"] = {**trace.run.get("reads", {}), "hidden_layer": max(self.hidden, default=None)}
        if (source := trace.run.get("recorded_from")) is not None:
            source["notes"].append("hidden states and attention were read again behind the run")
        return states

    def _watch(self, undo: ExitStack, weights: dict[int, Tensor], length: int) -> None:
        """Have the wanted layers' attention weights kept, and the model's attention compute them, for one forward."""
        config = self.model.config.get_text_config()
        heads = int(getattr(config, "num_attention_heads", 1))
        if heads * length * length > MOST_SCORES:
            raise UserError(f"the text has {length:,} tokens, too many to read attention of: record a shorter one")
        old_attention = self.model.config._attn_implementation
        self.model.set_attn_implementation("eager")
        undo.callback(self.model.set_attn_implementation, old_attention)
        _, layers = decoder_stack(self.model, config.num_hidden_layers)
        for number in self.attention:
            for module in layers[number].modules():
                if type(module).__name__.endswith("Attention"):

                    def keep(module: Any, args: Any, output: Any, number: int = number) -> None:
                        if isinstance(output, tuple) and len(output) > 1 and isinstance(output[1], Tensor):
                            weights[number] = output[1][0].float()  # [heads, positions, positions]

                    undo.callback(module.register_forward_hook(keep).remove)

    def _record(self, trace: Trace, weights: dict[int, Tensor]) -> None:
        """Rows of the table attention: where each step's root looked."""
        table = trace.tables["attention"]
        for step, context in enumerate(trace.tables["steps"]["context"]):
            if context < 2:
                continue
            rows = torch.stack([weights[layer][:, context - 1, :context] for layer in sorted(weights)])
            looks = Looks((0,), tuple(sorted(weights)), lambda rows=rows: rows[:, :, None])
            for columns in looked_at(looks):
                count = len(columns["node"])
                for name, values in {"step": step, **columns}.items():
                    table[name] += values if isinstance(values, list) else [values] * count
        heads = int(next(iter(weights.values())).shape[0])
        label = "where the model looked from the step's last token"
        trace.run["attention"] = {"label": label, "layers": sorted(weights), "heads": heads, "probes": False}
