"""Prompts of several user turns, as commands measure them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from specviz.words import plural

from . import common

if TYPE_CHECKING:
    from decoders import Prompt, Target
    from decoders.prompt.files import PromptRecord


def every_turn(
    target: Target, prompts: Sequence[Prompt], records: Sequence[PromptRecord], **options: Any
) -> tuple[list[Prompt], list[PromptRecord], str]:
    """Prompts with their further user turns, each behind plain decoding's answer to the one before (``turns_of``, with
    its options), the record of each, and a sentence about them ("" where no prompt has several).
    """
    from decoders.study.measure.turns import turns_of
    from decoders.sweep.plan import turn_id

    several = sum(prompt.turns > 1 for prompt in prompts)
    if not several:
        return [*prompts], [*records], ""
    turns, sources, left_out = [], [], 0
    with common.progress_bar("answering first turns") as progress:
        for position, (prompt, record) in enumerate(zip(prompts, records, strict=True)):
            progress(position, len(prompts))
            for turn in turns_of(target, prompt, **options):
                if len(turn.tokens) + options["max_new_tokens"] > target.context_length:
                    left_out += turn.turns
                    break
                turns.append(turn)
                turn_record = replace(record, id=turn_id(record.id, turn), reference=turn.reference)
                sources.append(record if turn.turn == 1 else turn_record)
    note = (
        f"{several} of {plural(len(prompts), 'prompt')} have several user turns ({len(turns):,} in all): "
        "a further one follows plain decoding's answer to the one before, and each turn counts as a prompt"
    )
    return turns, sources, note + (f"; {left_out} did not fit the context and were left out" if left_out else "")


def first_turns(prompts: Sequence[Prompt]) -> str:
    """A sentence that further user turns take no part; "" where there are none."""
    several = sum(prompt.turns > 1 for prompt in prompts)
    return f"first turns only: the further user turns of {plural(several, 'prompt')} take no part" if several else ""
