"""Ranks of the guesses of Medusa's heads along a text."""

from __future__ import annotations

import pytest

from decoders import UserError
from decoders.draft.needs import Needs
from tests.models import prompt_ids, session_behind, tiny_target

from ..head_ranks import head_ranks
from .tiny_parts import tiny_heads


@pytest.mark.parametrize("drafted", [0, 24])
def test_heads_guess_the_token_that_their_drafter_drafts(drafted):
    """Head by head as the method reads them in a run; tokens that cannot be drafted rank last."""
    target = tiny_target("llama")
    heads = tiny_heads(target, "medusa", draft_vocab=drafted)
    text, start = prompt_ids(4, length=48), 30
    layer = heads.config.layer(target.shape)
    found: list[list[int]] = [[] for _ in range(heads.config.heads)]
    places = list(range(target.shape.vocab)) if heads.drafted is None else heads.drafted.tolist()
    for root in range(start, len(text) - 1):
        session = session_behind(target, text[: root + 1], len(text), Needs(layers=(layer,)))
        every = heads.say_all(session.context.hidden_at(layer)[-1], heads.config.heads)
        for number, logits in enumerate(every[: len(text) - root - 1]):
            token = text[root + 1 + number]
            right = places.index(token) if token in places else None
            found[number].append(len(places) if right is None else int((logits > logits[right]).sum()))
    assert [ranks.tolist() for ranks in head_ranks(target, heads, text, start)] == found
    assert any(rank == len(places) for ranks in found for rank in ranks) == bool(drafted)


def test_heads_that_read_drafted_tokens_guess_nothing_alone():
    target = tiny_target("llama")
    with pytest.raises(UserError, match="guess nothing by themselves: give a set of Medusa heads"):
        head_ranks(target, tiny_heads(target, "hydra"), prompt_ids(1), 30)
