"""A model's own code, seen in one forward of one row: no configuration says what it does, and no list of families."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from decoders.errors import UserError

from ..files.shape import ModelShape, refusal
from .attention import Rule
from .cache import TreeCache

OWN_MASKS = "its code asks for no attention mask, so it cannot be given that of a tree"
OWN_RULE = "its layers look back by a rule of their own, which is neither causal nor a sliding window"
NO_ATTENTION = "none of its layers caches keys and values, and there is no draft tree without attention"
BOTH_WAYS = "it looks both ways, so it cannot continue a text"


@dataclass(frozen=True, slots=True)
class Observation:
    """``windows``: each layer's sliding window, None for full attention. ``unread``: why the attention rows of its
    layers cannot be read, in one clause; None where they can. ``skips_masks``: whether a mask may be left out where
    rows are causal anyway. ``kv_heads`` are those that are cached, of ``kv_layers``; the recurrent states of the other
    layers take ``state_bytes``, and ``row_bytes`` more for each row of a forward. ``finite``: whether its logits are.
    """

    windows: tuple[int | None, ...]
    unread: str | None
    skips_masks: bool
    kv_heads: int
    kv_layers: tuple[int, ...]
    state_bytes: int
    row_bytes: int
    finite: bool = True


class _WriteWatch(TreeCache):
    """A cache that sees which layers write into it."""

    def __init__(self, shape: ModelShape, capacity: int) -> None:
        super().__init__(shape, capacity)
        self.written_layers: set[int] = set()

    def write(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        self.written_layers.add(layer)
        return super().write(layer, keys, values)


class NumberedMasks:
    """Masks of a forward of one row that show which layer got which: each is filled with the number of the rule that
    it was asked by, and a constant added to all scores changes no weight.
    """

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self.dtype, self.device = dtype, device
        self.rules: list[tuple[Rule, int | None]] = []

    def rows(self, *rows: Any) -> Callable[[Rule, int | None, bool], Tensor]:
        return self._number

    def _number(self, rule: Rule, reach: int | None, skip: bool) -> Tensor:
        self.rules.append((rule, reach))
        return torch.full((1, 1, 1, 1), float(len(self.rules) - 1), dtype=self.dtype, device=self.device)


def observe_target(target: Any) -> Observation:
    """The behaviour of a target's code, as of ``observe``. Raises UserError also where it cannot run."""

    logits = list[Tensor]()

    def forward(cache: TreeCache, masks: Any) -> None:
        try:
            logits.append(target.forward(cache, masks, [0], np.arange(1), None))
        except UserError:
            raise
        except Exception as error:
            error_text = f"{type(error).__name__}: {str(error)[:120]}"
            raise refusal(target.shape.family, f"it does not run through this engine ({error_text})") from error

    observation = observe(forward, target.taps.attentions, target.shape, NumberedMasks(target.dtype, target.device))
    return replace(observation, finite=bool(torch.isfinite(logits[0].amax())))


def observe(
    forward: Callable[[TreeCache, Any], Any], attentions: Sequence[nn.Module], shape: ModelShape, masks: NumberedMasks
) -> Observation:
    """Run ``forward`` with these masks over an empty cache and see what the layers get; ``attentions`` are theirs.

    Raises UserError for a model whose masks are not made by transformers' rules, or by one that no tree can follow.
    """
    cache = _WriteWatch(replace(shape, kv_layers=tuple(range(shape.layers))), 1)
    numbers: dict[int, int] = {}
    cached: list[bool] = []

    def tap(layer: int) -> Callable[..., None]:
        def attend(query: Tensor, key: Tensor, mask: Tensor | None, scale: float, sinks: Tensor | None) -> None:
            numbers[layer] = -1 if mask is None else int(mask.flatten()[0])
            cached.append(key.data_ptr() == cache.keys(layer).data_ptr())

        return attend

    for layer, attention in enumerate(attentions):
        attention.attention_tap = tap(layer)  # type: ignore[assignment]
    try:
        forward(cache, masks)
    finally:
        for attention in attentions:
            attention.attention_tap = None  # type: ignore[assignment]
    if cache.store is None:
        raise refusal(shape.family, NO_ATTENTION)
    if not masks.rules:
        raise refusal(shape.family, OWN_MASKS)
    layers = tuple(sorted(cache.written_layers))
    complete = numbers.keys() == cache.written_layers
    all_known = complete and min(numbers.values()) >= 0
    rule_numbers = (
        set(numbers.values()) if all_known else range(len(masks.rules))
    )  # some models make masks that no layer gets
    windows = {number: _window(shape.family, *masks.rules[number]) for number in rule_numbers}
    if all_known:
        of_layers = tuple(windows[numbers[layer]] if layer in numbers else None for layer in range(shape.layers))
    elif len(set(windows.values())) == 1:
        of_layers = (windows[0],) * shape.layers
    else:
        of_layers = shape.layer_windows
    unread = None
    if not complete:
        unread = "its layers compute attention by code of their own, which shows no weights"
    elif not all(cached):
        unread = "its cache keeps compressed keys, not those that attention is computed from"
    state_bytes, row_bytes = cache.states.row_bytes() if cache.states is not None else (0, 0)
    return Observation(of_layers, unread, complete, cache.store.shape[2], layers, state_bytes, row_bytes)


def _window(family: str, rule: Rule, reach: int | None) -> int | None:
    """The sliding window of a rule, None for the causal one."""

    def sees(query: int, key: int) -> bool:
        return bool(rule(0, 0, torch.tensor(query), torch.tensor(key)))

    distance = 1 << 20
    if sees(distance, distance + 1):
        raise refusal(family, BOTH_WAYS)
    if reach is None and sees(distance, 0) and sees(distance, distance):
        return None
    if reach is None or sees(reach, 0) or not sees(reach, 1) or not sees(distance, distance - reach + 1):
        raise refusal(family, OWN_RULE)
    return reach
