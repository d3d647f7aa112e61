"""ngram-mod: the newest follower of each n-gram, token by token; cuts and other texts; runs are plain decoding's."""

from __future__ import annotations

import random

import pytest

from decoders import Prompt, generate, record
from decoders.trace.check import check
from tests.drafts import draft_behind, drafts_behind
from tests.models import prompt_ids, tiny_target

TARGET = tiny_target("llama")


def by_hand(text: list[int], n: int, k: int) -> tuple[list[int], list[int]]:
    """Tokens and places: the last n tokens are searched in the text from its end."""
    written, places = list(text), []
    while len(places) < k:
        ending = written[-n:]
        found = [i + n for i in range(len(text) - n) if text[i : i + n] == ending]
        if not found:
            break
        places.append(found[-1])
        written.append(text[found[-1]])
    return written[len(text) :], places


def test_a_draft_follows_the_newest_occurrence_behind_each_token():
    text = [5, 6, 7, 8, 9, 6, 7, 3, 5, 6]  # 5 6 → 7, then 6 7 → 3 (its newer place), 7 3 → 5, 3 5 → 6, 5 6 → 7 …
    draft, _ = draft_behind(TARGET, "ngram-mod", text, n=2, k=6)
    assert list(draft.tree.tokens[1:]) == [7, 3, 5, 6, 7, 3] and draft.sources[1:] == (2, 7, 8, 9, 2, 7)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_drafts_are_those_of_a_search_from_the_end(n):
    rng = random.Random(n)
    texts = [[rng.randrange(4) + 10 for _ in range(rng.randrange(n, 40))] for _ in range(30)]
    texts += [texts[0][:-3] if len(texts[0]) > n + 3 else texts[0], [*texts[1], 11, 12]]  # a cut, a continuation
    for text, draft in zip(texts, drafts_behind(TARGET, "ngram-mod", texts, n=n, k=8), strict=True):
        tokens, places = by_hand(text, n, 8)
        assert list(draft.tree.tokens[1:]) == tokens and list(draft.sources[1:]) == places


def test_what_there_is_no_draft_for_is_said():
    assert draft_behind(TARGET, "ngram-mod", [5, 6, 7], n=4)[0].reason == "the text has fewer than n = 4 tokens"
    assert "did not stand together before" in draft_behind(TARGET, "ngram-mod", [5, 6, 7], n=2)[0].reason


def test_runs_are_plain_decodings_and_join_others():
    prompt = Prompt.from_ids(prompt_ids(3, 30) * 2)
    plain = generate(TARGET, prompt, max_new_tokens=24)
    for method, params in (("ngram-mod", {"n": 2}), ("composite", {"drafters": "ngram-mod,pld+h"})):
        trace = record(TARGET, prompt, method, params, max_new_tokens=24)
        assert trace.output_ids == plain
        check(trace)
    assert sum(record(TARGET, prompt, "ngram-mod", {"n": 1}, max_new_tokens=24).tables["steps"]["drafted"])
