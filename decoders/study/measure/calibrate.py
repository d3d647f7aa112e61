"""Find a model's copying heads and the layer whose hidden states rank best, and remember them.

Each prompt is decoded greedily once; one more forward over prompt and output gives every head's attention and every
layer's hidden states. What PLD+(h) would have done at each layer is then simulated, not decoded again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from decoders.draft.needs import Needs
from decoders.drafters import find_method
from decoders.engine.decoding import generate
from decoders.errors import UserError
from decoders.model.files.calibration import Calibration
from decoders.model.target_model.target import Target
from decoders.names import QUICK, USUAL
from decoders.prompt.prompt import Prompt

from .heads import copy_sources, count_copies, strongest_positions


def calibrate(
    target: Target,
    prompts: Sequence[Prompt],
    *,
    max_new_tokens: int = 128,
    progress: Callable[[int, int], None] | None = None,
) -> Calibration:
    """Measure ``target`` on ``prompts`` (each must fit its context). ``progress(done, total)`` counts prompts.

    Drafts are as long as PLD+(h)'s own. Raises UserError where no output token occurs in its prompt.
    """
    if not prompts:
        raise UserError("calibration needs at least one prompt that fits the model's context")
    length = int(find_method(USUAL).params().k)
    depth, heads = target.shape.layers, target.shape.heads
    every_head = target.shape.attention_heads
    needs = Needs(heads=every_head, layers=tuple(range(depth + 1)))
    counts = np.zeros((depth, heads), dtype=np.int64)
    steps, accepted, copy_count = np.zeros(depth + 1, dtype=np.int64), np.zeros(depth + 1, dtype=np.int64), 0
    for index, prompt in enumerate(prompts):
        output = generate(target, prompt, QUICK, max_new_tokens=max_new_tokens)
        tokens, start = [*prompt.tokens, *output], len(prompt.tokens)
        session = target.session(needs, len(tokens))
        session.prefill(tokens, start)
        sources = copy_sources(tokens, start)
        strongest = strongest_positions(session.context, range(start - 1, len(tokens) - 1))
        counts[tuple(np.transpose(every_head))] += count_copies(strongest, sources)
        copy_count += int((sources >= 0).sum())
        for layer, hidden in session.memory.hidden.items():
            lengths = simulate_hidden(tokens, start, hidden[: len(tokens) - 1], length, max_new_tokens)
            steps[layer] += len(lengths)
            accepted[layer] += sum(lengths)
        if progress:
            progress(index + 1, len(prompts))
    if not copy_count:
        raise UserError("no output token occurs in its prompt: calibrate on prompts whose answers are copied from them")
    per_step = accepted / steps + 1
    return Calibration(
        target.key, target.name, tuple(round(float(x), 4) for x in per_step), int(per_step.argmax()),
        tuple(tuple(row) for row in counts.tolist()), copy_count, len(prompts), length,
    )  # fmt: skip


def simulate_hidden(
    tokens: Sequence[int],
    prompt_length: int,
    hidden: Float[Tensor, "positions hidden"],
    draft_length: int,
    max_new_tokens: int,
) -> list[int]:
    """Accepted tokens of each step PLD+(h) would take to emit a given greedy output, its drafts checked against it.

    ``hidden`` holds one layer's states of all positions but the last. Same rules as the method (PLD+ eq. 3) and the
    engine: candidates hold the root's token, the most similar predecessor wins, ties go to the earliest, and a draft
    leaves room for the bonus within ``max_new_tokens``.
    """
    array = np.asarray(tokens, dtype=np.int64)
    states = torch.nn.functional.normalize(hidden.float(), dim=-1)
    last, root = len(array) - 1, prompt_length - 1
    steps: list[int] = []
    while root < last:
        positions = np.flatnonzero(array[:root] == array[root])
        accepted = 0
        if len(positions):
            predecessors = torch.as_tensor(np.maximum(positions - 1, 0), device=states.device)
            scores = (states[predecessors] @ states[root - 1]).cpu().numpy()
            start = int(positions[int(np.argmax(np.where(positions > 0, scores, -1.0)))]) + 1
            room = max_new_tokens - (root + 1 - prompt_length) - 1
            offer_length = min(draft_length, root + 1 - start, last - root, room)
            equal = array[start : start + offer_length] == array[root + 1 : root + 1 + offer_length]
            accepted = offer_length if equal.all() else int(np.argmin(equal))
        root += accepted + 1  # the bonus; a run that ends inside the draft has none, and is over all the same
        steps.append(accepted)
    return steps
