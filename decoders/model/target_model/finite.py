"""Logits that are no numbers (NaN, infinity): what a model is refused for, with the place where it begins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from decoders.draft.draft import Draft
from decoders.errors import UserError

from .reference import reference_logits

LEAVES = 8  # of a draft whose texts are read anew, at most


class _BrokenModule(Exception):
    """Ends a forward at the first module whose output is not finite."""

    def __init__(self, module: str, row: int) -> None:
        super().__init__(module)
        self.module, self.row = module, row


def not_finite(target: Any, text: Sequence[int], draft: Draft | None = None, moment: str = "") -> UserError:
    """The error for a model whose logits are not finite behind ``text`` (whose last token is the draft's root), with
    the first layer that gives such numbers. ``moment`` says in a clause when they were met.
    """
    cause = "Its weights are damaged: get the checkpoint anew"
    if target.dtype == torch.float16:
        cause = "Numbers are too large for float16, or its weights are damaged: try --dtype bfloat16 or float32"
    return UserError(
        f"{target.name} gives logits that are not finite (NaN or infinity){moment and ' '}{moment}: "
        f"{_place(target, list(text), draft)}. {cause}"
    )


def _place(target: Any, text: list[int], draft: Draft | None) -> str:
    """The first place of the model where numbers are not finite, in a clause. The text is read anew, by its own code,
    which hides nothing: attention kernels may give 0 where all scores are NaN.
    """
    read, logits = [0], None
    with ExitStack() as hooks:
        for module, check in _checks(target, read):
            hooks.callback(module.register_forward_hook(check).remove)
        for tokens in islice(_texts(text, draft), 1 + LEAVES):
            read[0] = 0
            try:
                logits = reference_logits(target, tokens, 1)
            except _BrokenModule as problem:
                return f"first in {problem.module}, at position {read[0] + problem.row} of the text"
            if not bool(torch.isfinite(logits.amax())):
                return "its layers' outputs are finite, and the head's are not"
    return f"its own code gives finite ones at the same place, so they come of the engine {target.engines.engine}"


def _texts(text: list[int], draft: Draft | None) -> Iterator[list[int]]:
    """The text, then with each branch of the draft behind it."""
    yield text
    if draft is not None:
        parents, tokens = {*draft.tree.parents}, draft.tree.tokens
        for leaf in range(1, len(tokens)):
            if leaf not in parents:
                yield text[:-1] + [tokens[node] for node in draft.tree.path(leaf)]


def _checks(target: Any, read: list[int]) -> Iterator[tuple[nn.Module, Any]]:
    """Modules with a hook that ends the forward where they give what is not finite; ``read`` counts the rows before."""

    def check(name: str, last: bool, module: nn.Module, args: tuple, output: Any) -> None:
        states: Tensor = output[0] if isinstance(output, tuple) else output
        rows = torch.isfinite(states).flatten(2).all(-1)[0]
        if not bool(rows.all()):
            raise _BrokenModule(name, int((~rows).nonzero()[0]))
        if last:
            read[0] += len(rows)

    count = len(target.layers)
    yield target.embeddings, partial(check, "the embeddings", False)
    for number, layer in enumerate(target.layers, start=1):
        yield layer, partial(check, f"layer {number} of {count}", number == count)
