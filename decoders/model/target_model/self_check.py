"""The check of a model whose family, or kind of rotary positions, nobody tested: before it is used, its text and its
trees are compared with what transformers' own ``generate()`` gives, over several lengths of text.

What goes wrong with length is seen on short texts, too: while the check runs, the model's sliding window and the length
at which its rotary positions change are made short. The code that reads them is the model's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import GenerationConfig

from decoders.draft.draft import Draft, Verdict
from decoders.draft.needs import Needs
from decoders.draft.tree import DraftTree
from decoders.errors import UserError

from ..files import families
from ..files.shape import ModelShape, refusal, rotaries
from .finite import not_finite

WINDOW, SWITCH = 12, 20  # what a window and the length of short texts are made while the check runs
NEW_TOKENS = 6  # tokens after each text
LENGTHS = (5, WINDOW - 3, 3 * WINDOW)  # of the texts: within the window, across its edge, past it
ROWS_BEHIND, ROWS_ASIDE = 40, 12  # of a text, and of a draft behind it, where rows are compared with single ones
SAME_ROW = 1e-5  # of logits, in units of their spread: the head alone computes in fp32
SWITCHING_LENGTHS = (SWITCH - 3, SWITCH, SWITCH + 1)  # across the change, at it, past it


def check_opened(target: Any) -> None:
    """Raise UserError for a model whose logits are not finite, and for one of a family, or with rotary positions, that
    nobody tested where ``check`` finds a difference. ``target`` is the Target that is being made.
    """
    shape = target.shape
    if not target.observed.finite:
        raise not_finite(target, [0, 0], moment="when it is loaded")
    if shape.family not in families.TESTED_FAMILIES or shape.rotary not in families.TESTED_ROTARIES:
        check(target)


def check(target: Any) -> None:
    """Raise UserError for a model that this engine would decode otherwise than its own generate(), with the reason.

    ``target`` is the Target that is being made.
    """
    shape = target.shape
    declared_window = next((window for window in ModelShape.of(target.config).layer_windows if window), None)
    if declared_window and not any(shape.layer_windows):
        raise refusal(
            shape.family,
            f"its configuration names a sliding window of {declared_window}, but its code was not seen to use it",
        )
    lengths = LENGTHS if shape.rotary_switch is None else LENGTHS + SWITCHING_LENGTHS
    with shorten(target):
        for length in lengths:
            if length + NEW_TOKENS < target.context_length:
                try:
                    reason = _difference(target, length)
                except Exception as error:
                    reason = f"it does not run through this engine ({type(error).__name__}: {str(error)[:120]})"
                if reason:
                    raise refusal(shape.family, reason)


def check_rows(target: Any) -> None:
    """Raise UserError for a model on rounded weights whose rows depend on what is verified beside them: a sum's last
    digit would move a rounded row, and a draft could then change a token. ``target`` is the Target that is being made.
    """
    length, row_count = min(ROWS_BEHIND, target.context_length - ROWS_ASIDE - 2), ROWS_ASIDE
    if length < 1:
        return
    text = np.random.default_rng(0).integers(3, target.shape.vocab, length + row_count).tolist()
    session = target.session(Needs(), length + row_count + 1)
    session.prefill(text[: length + 1])
    chain = DraftTree(tuple(text[length:]), tuple(range(-1, row_count - 1)))
    joint_logits = session.score(Draft(chain)).logits.clone()
    for row, token in enumerate([*text[length + 1 :], 0]):
        single_logits = session.score(Draft.empty(session.context.root, "")).logits[0]
        worst = float((joint_logits[row] - single_logits).abs().max()) / max(1.0, float(single_logits.std()))
        if not worst <= SAME_ROW:
            raise UserError(
                f"{target.info['weights']} weights do not suit {target.name}: a row's logits differ by {worst:.2g} "
                "where others are verified beside it, so that a draft could change a token. Leave --weights out"
            )
        session.commit(Verdict((0,), token, ("root",), ("",)))


@contextmanager
def shorten(target: Any) -> Iterator[None]:
    """The target with a short sliding window, and rotary positions that change early, where it has such."""
    configs = {id(c): c for m in target.model.modules() if (c := getattr(m, "config", None)) is not None}.values()
    shape, originals = target.shape, list[tuple[dict[str, Any], str, int]]()

    def shorten(settings: dict[str, Any], name: str, limit: int) -> None:
        if settings.get(name):
            originals.append((settings, name, settings[name]))
            settings[name] = min(settings[name], limit)

    windows = tuple(window and min(window, WINDOW) for window in shape.layer_windows)
    target.shape = replace(shape, layer_windows=windows, rotary_switch=shape.rotary_switch and SWITCH)
    try:
        for config in configs:
            shorten(vars(config), "sliding_window", WINDOW)
            if shape.rotary_switch is not None:
                for settings in (vars(config), *rotaries(config)):
                    shorten(settings, "original_max_position_embeddings", SWITCH)
        yield
    finally:
        target.shape = shape
        for settings, name, value in reversed(originals):
            settings[name] = value


def _difference(target: Any, length: int) -> str | None:
    """The difference of the engine's answer after a text of so many tokens from generate()'s, in one clause."""
    generator = np.random.default_rng(length)
    text = [int(token) for token in generator.integers(3, target.shape.vocab, length)]
    expected, logits = generate(target, text)
    full = target.dtype in (torch.float32, torch.float64)
    tolerance = (1e-3 if full else 0.15) * max(1.0, float(logits.std()))

    session = target.session(Needs(top_tokens=4), length + NEW_TOKENS + 1)
    session.prefill(text)
    for number, row in enumerate(logits):
        scored = session.score(Draft.empty(session.context.root, "")).logits[0].double().cpu()
        worst = float((scored - row).abs().max())
        if not worst <= tolerance:
            return f"plain decoding gives other logits than generate() behind {length + number} tokens (by {worst:.2g})"
        token = int(scored.argmax())
        if token != expected[number]:
            break  # a near tie: rounding decided
        session.commit(Verdict((0,), token, ("root",), ("",)))

    session = target.session(Needs(top_tokens=4), length + NEW_TOKENS + 1)
    session.prefill(text)
    chain = expected[: max(0, min(3, session.reach - 1))]  # the others stand one deeper
    tree = _among_others(text[-1], chain, target.shape.vocab)
    scored = session.score(Draft(tree)).logits.double().cpu()
    for number, node in enumerate(range(0, len(tree), 3)):
        worst = float((scored[node] - logits[number]).abs().max())
        if not worst <= tolerance:
            return f"verifying a tree gives other logits than generate() behind {length} tokens (by {worst:.2g})"
    return None


def _among_others(root: int, chain: list[int], vocab: int) -> DraftTree:
    """A tree in which each token of a chain stands behind two others: every third node is the chain's.

    >>> _among_others(5, [7, 8], 100)
    DraftTree(tokens=(5, 8, 9, 7, 9, 10, 8), parents=(-1, 0, 1, 0, 3, 4, 3))
    """
    tokens, parents, tip = [root], [-1], 0
    for token in chain:
        tokens += [(token + 1) % vocab, (token + 2) % vocab, token]
        parents += [tip, len(tokens) - 3, tip]
        tip = len(tokens) - 1
    return DraftTree(tuple(tokens), tuple(parents))


@torch.inference_mode()
def generate(target: Any, text: list[int]) -> tuple[list[int], Tensor]:
    """The output of the model's own generate(), and its logits at each place [tokens, vocab] (fp64, CPU)."""
    model, settings = target.model, target.model.generation_config
    ids = torch.as_tensor([text], device=target.device)
    model.generation_config = GenerationConfig()  # no penalties that the model's own settings may ask for
    generation = GenerationConfig(
        max_new_tokens=NEW_TOKENS, do_sample=False, pad_token_id=0, return_dict_in_generate=True, output_logits=True
    )
    try:
        with target.by_own_attention():
            output = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=generation)
    finally:
        model.generation_config = settings
    return output.sequences[0, len(text) :].tolist(), torch.cat(output.logits).double().cpu()
