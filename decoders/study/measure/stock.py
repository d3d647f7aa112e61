"""transformers' own generate(), untouched: what outputs are checked against, and the outside peer for speed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import GenerationConfig, PreTrainedModel

from decoders.model.engines.fewer_bits import round_model
from decoders.model.files.shape import ModelShape
from decoders.model.state.cache_name import cache_in
from decoders.model.state.transfer import wait
from decoders.model.target_model.load import load_network
from decoders.names import EAGER


@dataclass(frozen=True, slots=True)
class Generation:
    """The output of generate() and its time. ``first_s`` is the time of its first forward, which reads the prompt and
    emits ``first_tokens`` tokens (1, or more where a looked-up draft was accepted at once).
    """

    tokens: list[int]
    seconds: float
    first_s: float
    first_tokens: int

    @property
    def tokens_per_s(self) -> float | None:
        """Of decoding: the first forward and its tokens are not part of it."""
        tail_length = len(self.tokens) - self.first_tokens
        return tail_length / (self.seconds - self.first_s) if tail_length > 0 else None


class StockModel:
    """A second copy of the model, as transformers loads it: its own attention, cache and linear layers; with
    ``weights`` of fewer bits, on linear layers that hold such, which round rows to ``activations`` as a target's do.
    """

    def __init__(
        self, model: PreTrainedModel, name: str = "stock", weights: str | None = None, activations: str | None = None
    ) -> None:
        self.model: Any = model.eval()
        rounded = round_model(model, ModelShape.of(model.config), weights, name, EAGER, activations)
        if rounded is not None:
            self.model.set_attn_implementation(rounded.attention)
        self.model.generation_config = GenerationConfig()  # no penalties or sampling a model's own settings may ask for

    @classmethod
    def load(
        cls, source: str, dtype: torch.dtype, device: torch.device, weights: str | None = None,
        activations: str | None = None,
    ) -> StockModel:  # fmt: skip
        """The model's own code, from a folder or hub id."""
        model, _, name = load_network(
            source, dtype=str(dtype).removeprefix("torch."), device=str(device), attention=None
        )
        return cls(model, name, weights, activations)

    def generate(
        self, tokens: Sequence[int], max_new_tokens: int, stop_ids: Sequence[int], assistant: Any = None, **options: Any
    ) -> list[int]:
        """Greedy output ids. ``options`` go to generate(), e.g. ``prompt_lookup_num_tokens``; ``assistant`` drafts."""
        ids = torch.as_tensor([list(tokens)], device=self.model.device)
        config = GenerationConfig(
            max_new_tokens=max_new_tokens,
            do_sample=False,
            pad_token_id=0,
            eos_token_id=list(stop_ids) or None,
            **options,
        )
        with torch.inference_mode():
            output = self.model.generate(
                ids, attention_mask=torch.ones_like(ids), generation_config=config, assistant_model=assistant
            )
        return output[0, len(tokens) :].tolist()

    def time_run(
        self, tokens: Sequence[int], max_new_tokens: int, stop_ids: Sequence[int], **options: Any
    ) -> Generation:
        """``generate``, with the first forward timed apart by hooks on the model. One that is compiled has none of
        them: they go when the first forward, which reads the prompt, is over.
        """
        forwards: list[tuple[float, int]] = []  # when each of the first two forwards began, and how long the cache was
        end_times: list[float] = []

        def begins(module: Any, args: Any, kwargs: dict[str, Any]) -> None:
            if len(forwards) < 2:
                cache = cache_in(kwargs)
                forwards.append((time.perf_counter(), int(cache.get_seq_length()) if cache is not None else 0))

        def ends(module: Any, args: Any, output: Any) -> None:
            if not end_times:
                wait(self.model.device)
                end_times.append(time.perf_counter())
                if "compile_config" in options:
                    for hook in hooks:
                        hook.remove()

        hooks = [self.model.register_forward_pre_hook(begins, with_kwargs=True), self.model.register_forward_hook(ends)]
        try:
            start_time = time.perf_counter()
            output = self.generate(tokens, max_new_tokens, stop_ids, **options)  # a list: nothing is left to wait for
            seconds = time.perf_counter() - start_time
        finally:
            for hook in hooks:
                hook.remove()
        first_tokens = 1 if "compile_config" in options else len(output)
        if len(forwards) > 1:
            first_tokens = forwards[1][1] + 1 - len(tokens)
        return Generation(output, seconds, end_times[0] - start_time, first_tokens)
