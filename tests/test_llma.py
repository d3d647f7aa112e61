"""LLMA against its own rule written down naively, and what it says where it cannot draft."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from decoders import Prompt, Sampling, generate, record
from decoders.drafters.llma import LlmaDrafter, LlmaParams
from decoders.prompt.prompt import Pool

from .models import tiny_target, tiny_tokenizer

NEW = 24


def context_of(prompt: list[int], written: list[int], pool: Pool) -> Any:
    tokens = np.array(prompt + written)
    return SimpleNamespace(tokens=tokens, root=int(tokens[-1]), prompt_length=len(prompt), pool=pool)


def naive(written: list[int], documents: list[list[int]], max_n: int, min_n: int, k: int) -> list[int]:
    """The longest trigger first, then the first document, then its first place with a token behind it."""
    for n in range(min(max_n, len(written)), min_n - 1, -1):
        for document in documents:
            for end in range(n, len(document)):
                if document[end - n : end] == written[-n:]:
                    return document[end : end + k - 1]
    return []


@pytest.mark.parametrize("seed", range(20))
def test_drafts_are_those_of_a_naive_search(seed: int) -> None:
    chance = np.random.default_rng(seed)
    documents = [chance.integers(3, 7, size).tolist() for size in chance.integers(2, 30, 4)]
    starts = np.cumsum([0, *(len(d) for d in documents[:-1])]).tolist()
    pool = Pool(np.concatenate(documents), tuple(starts))
    params = LlmaParams(max_ngram=4, min_ngram=int(chance.integers(1, 3)), k=int(chance.integers(2, 9)))
    drafter = LlmaDrafter(params)
    for length in (1, 2, 5, 12):
        written = chance.integers(3, 8, length).tolist()
        draft = drafter.propose(context_of([3, 4, 5], written, pool), 64)
        wanted = naive(written, documents, 4, params.min_ngram, params.k)
        assert list(draft.tree.tokens[1:]) == wanted
        assert [pool.tokens[place] for place in draft.pool[1:]] == wanted


def test_the_prompt_is_no_trigger() -> None:
    draft = LlmaDrafter(LlmaParams()).propose(context_of([3, 4], [], Pool(np.array([3, 4, 5]), (0,))), 8)
    assert not draft.tree.drafted and "nothing is written yet" in draft.reason


@pytest.mark.parametrize("sampling", [None, Sampling(temperature=0.8, seed=2)])
def test_output_is_plain_decodings(sampling: Sampling | None) -> None:
    target = tiny_target("qwen3")
    words = "the old lamp at the station was sold to the city museum"
    prompt = Prompt.from_segments(tiny_tokenizer(), instruction="Copy.", context=[words, words[::-1]], question="lamp?")
    assert generate(target, prompt, "llma", sampling=sampling, max_new_tokens=NEW) == generate(
        target, prompt, sampling=sampling, max_new_tokens=NEW
    )


def test_without_documents_it_decodes_plainly_and_every_step_says_why() -> None:
    target, prompt = tiny_target("qwen3"), Prompt.from_ids([5, 6])
    trace = record(target, prompt, "llma", max_new_tokens=8)
    assert trace.output_ids == generate(target, prompt, max_new_tokens=8)
    assert not any(trace.tables["steps"]["drafted"])
    *reasons, _ = trace.tables["steps"]["reason"]  # the last step has no room for a draft
    assert all(reason.startswith("LLMA needs reference documents") for reason in reasons)


def test_a_document_of_one_token_has_nothing_to_copy() -> None:
    draft = LlmaDrafter(LlmaParams()).propose(context_of([3], [4], Pool(np.array([4]), (0,))), 8)
    assert not draft.tree.drafted and "nowhere in the reference documents" in draft.reason


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="at most the longest"):
        LlmaParams(max_ngram=2, min_ngram=3)
