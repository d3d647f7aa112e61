"""A model's greedy answers to many prompts, several at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from decoders.model.files.shape import token_ids


@torch.no_grad()
def greedy_answers(
    model: Any, prompts: Sequence[Sequence[int]], lengths: Sequence[int], *, spare: int, padding: int, rows: int = 16,
    progress: Callable[[int, int], None] | None = None,
) -> list[list[int]]:  # fmt: skip
    """The answers to prompts of token ids, with the token that ends them; ``rows`` of like length run together, as far
    as the longest of their expected ``lengths`` and ``spare`` tokens more. ``progress`` is told (answered, prompts).
    """
    ends = set(token_ids(model.generation_config.eos_token_id))
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]) + lengths[i])
    answers: list[list[int]] = [[] for _ in prompts]
    for start in range(0, len(order), rows):
        group = order[start : start + rows]
        read = [torch.tensor(prompts[i], device=model.device) for i in group]
        ids = pad_sequence(read, True, padding, "left")
        out = model.generate(
            input_ids=ids, attention_mask=pad_sequence([torch.ones_like(row) for row in read], True, 0, "left"),
            max_new_tokens=max(lengths[i] for i in group) + spare, do_sample=False, pad_token_id=padding,
        )  # fmt: skip
        for i, answer in zip(group, out[:, ids.shape[1] :].tolist(), strict=True):
            end = next((count for count, token in enumerate(answer, 1) if token in ends), len(answer))
            answers[i] = answer[:end]
        if progress is not None:
            progress(min(start + rows, len(prompts)), len(prompts))
    return answers
