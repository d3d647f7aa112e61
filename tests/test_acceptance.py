"""Acceptance per distance and rank: many positions in one forward count as each position alone would."""

from __future__ import annotations

import pytest
import torch

from decoders import Prompt, generate
from decoders.draft.draft import Draft
from decoders.draft.tree import DraftTree
from decoders.errors import UserError
from decoders.prompt_tokens.design import design
from decoders.prompt_tokens.tokens import PromptConfig, PromptTokens
from decoders.study.measure import guess_acceptance as measuring
from decoders.study.measure.guess_acceptance import guess_ranks, measure_acceptance

from .drafts import tiny_prompts
from .models import prompt_ids, session_behind, tiny_target

torch.set_num_threads(1)


def random_tokens(m: int, n: int, mask: str = "ensemble") -> PromptTokens:
    tokens = PromptTokens(PromptConfig(m, n, 64, mask)).requires_grad_(False)
    tokens.embeddings.normal_(0, 0.5, generator=torch.Generator().manual_seed(5))
    return tokens


def one_by_one(target, tokens: PromptTokens, text: list[int], start: int) -> list[list[int]]:
    """The same ranks with a session of its own for every position."""
    m = tokens.config.tokens
    found: list[list[int]] = [[] for _ in range(m)]
    for position in range(start - 1, len(text) - 2):
        session = session_behind(target, text[: position + 1], len(text))
        draft = Draft(DraftTree.chain(text[position]), probes=tokens.probes(0, m, 0))
        guesses = tokens.guesses(session.score(draft).probe_logits)
        for d in range(m):
            if position + 2 + d < len(text):
                logits = guesses[d]
                found[d].append(int((logits > logits[text[position + 2 + d]]).sum()))
    return found


@pytest.mark.parametrize(("family", "n"), [("llama", 1), ("gemma3", 2), ("gpt2", 1)])
def test_blocks_of_positions_count_as_each_alone(monkeypatch, family, n):
    target, tokens = tiny_target(family), random_tokens(3, n)
    text = prompt_ids(4, length=48)
    monkeypatch.setattr(measuring, "SPARE_ROWS", 40)  # several blocks
    ranks = guess_ranks(target, tokens, text, 30)
    assert [r.tolist() for r in ranks] == one_by_one(target, tokens, text, 30)
    assert [len(r) for r in ranks] == [17, 16, 15]


def test_the_table_counts_the_targets_own_answers():
    target, tokens = tiny_target("qwen3"), random_tokens(2, 1)
    prompts = [Prompt.from_ids(prompt_ids(seed)) for seed in range(2)]
    done: list[tuple[int, int]] = []
    table = measure_acceptance(
        target, tokens, prompts, max_new_tokens=20, ranks=320, progress=lambda *now: done.append(now)
    )
    assert done == [(1, 2), (2, 2)]
    assert [len(row) for row in table] == [320, 320] and [sum(row) for row in table] == pytest.approx([1, 1])
    counted = [torch.zeros(320), torch.zeros(320)]
    for prompt in prompts:
        text = [*prompt.tokens, *generate(target, prompt, max_new_tokens=20)]
        for d, ranks in enumerate(one_by_one(target, tokens, text, len(prompt.tokens))):
            for rank in ranks:
                counted[d][rank] += 1 / (19 - d) / 2
    assert torch.allclose(torch.tensor(table), torch.stack(counted), atol=1e-6)
    assert design(table, 12).m == 2


def test_answers_that_are_too_short():
    target = tiny_target("llama")
    with pytest.raises(UserError, match="too short to measure 3 distances.* at least 4 tokens"):
        measure_acceptance(target, random_tokens(3, 1), [Prompt.from_ids(prompt_ids(1))], max_new_tokens=3)


def test_no_position_beyond_the_models_context():
    """Learned positions end with the context; prompt tokens that would stand beyond it are not asked."""
    target = tiny_target("gpt2")
    text = prompt_ids(2, length=target.context_length)
    assert [len(r) for r in guess_ranks(target, random_tokens(3, 1), text, 500)] == [10, 10, 9]


def test_prefix_tokens_take_rows_too():
    """A block of positions leaves them room in the forward."""
    target = tiny_target("llama")
    text = prompt_ids(2, length=200)
    tokens = tiny_prompts(target, tokens=3, prefix=1)
    assert [len(r) for r in guess_ranks(target, tokens, text, 10)] == [189, 188, 187]


def test_prompt_tokens_with_too_many_rows():
    with pytest.raises(UserError, match="640 rows of prompt tokens do not fit"):
        guess_ranks(tiny_target("llama"), random_tokens(5, 128), prompt_ids(1), 30)
