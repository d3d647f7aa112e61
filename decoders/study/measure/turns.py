"""Conversations decoded turn by turn: a user's next turn follows plain decoding's answer to the one before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from decoders.engine.decoding import generate
from decoders.names import BASELINE

if TYPE_CHECKING:
    from decoders.model.target_model.target import Target
    from decoders.prompt.prompt import Prompt


def turns_of(target: Target, prompt: Prompt, **options: Any) -> Iterator[Prompt]:
    """A prompt, then each of its further user turns behind the target's own answer (Spec-Bench, MT-Bench).

    That is what plain decoding writes, so all methods are compared on the same prompts; a lossless one would write it
    too. Options as of ``generate``. Raises UserError where a turn that is to be answered does not fit the context.
    """
    yield prompt
    while prompt.dialogue is not None and prompt.dialogue.further:
        prompt = prompt.following(target.tokenizer, generate(target, prompt, BASELINE, **options))
        yield prompt
