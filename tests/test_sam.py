"""SAM decoding against brute force: what its automata answer, which place it copies from, and when it falls back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from decoders import Prompt, generate, record
from decoders.drafters.pld import suffix_lengths
from decoders.drafters.recycling import TEMPLATES
from decoders.drafters.sam import MOST_SHOWN, SamDrafter, SamParams, far_enough
from decoders.engine.decoding import Decoding
from decoders.prompt.prompt import Pool
from decoders.study.look.whatif import ReadRun

from .models import prompt_ids

FAMILY = "qwen3"  # of the tiny target
NEW = 24
pytestmark = pytest.mark.usefixtures("home")


def longest_suffix(text: list[int], inside: list[int]) -> tuple[int, int]:
    """Brute force: the longest suffix of ``text`` that stands in ``inside``, and where it ends first; (0, -1): none."""
    for length in range(len(text), 0, -1):
        for end in range(length - 1, len(inside)):
            if inside[end - length + 1 : end + 1] == text[-length:]:
                return length, end
    return 0, -1


def released_source(text: list[int], n_predicts: int) -> int:
    """The released code's source of a copy, by its automaton's states: the classes of suffixes that end alike."""
    before = text[:-1]
    length, _ = longest_suffix(text, before)
    end = -1
    while length > 0:
        end = min(e for e in range(length - 1, len(before)) if before[e - length + 1 : e + 1] == text[-length:])
        if len(before) - (end + 1) >= n_predicts:
            return end
        length -= 1
    return end


@pytest.mark.parametrize("seed", range(40))
def test_matches_are_those_of_an_automaton(seed: int) -> None:
    chance = np.random.default_rng(seed)
    text = chance.integers(0, int(chance.integers(1, 4)) + 1, int(chance.integers(2, 60)))
    for length in range(2, len(text) + 1):
        tokens = text[:length]
        ends = np.flatnonzero(tokens[:-1] == tokens[-1])
        lengths = suffix_lengths(tokens, ends)
        wanted, end = longest_suffix(tokens.tolist(), tokens[:-1].tolist())
        assert int(lengths.max(initial=0)) == wanted
        if wanted:
            assert ends[lengths == wanted][0] == end
            for count in (1, 3, 8):
                place = ends[far_enough(ends, lengths, length - 1, count)]
                assert place == released_source(tokens.tolist(), count)


def draft_of(tokens: list[int], pool: Pool | None = None, **params: Any) -> Any:
    drafter = SamDrafter(SamParams(**{"fallback": "none", **params}))
    context: Any = SimpleNamespace(tokens=np.array(tokens), root=tokens[-1], length=len(tokens), pool=pool)
    drafter.prepare(context)
    return drafter.propose(context, 64)


def test_the_longer_match_wins_and_the_corpus_has_a_bias() -> None:
    corpus = Pool(np.array([9, 1, 2, 3, 4, 5, 6, 7]), (0,), None, "a corpus")
    own = [1, 2, 3, 4, 8, 8, 9, 1, 2, 3, 4]
    assert draft_of(own, len_threshold=3, n_predicts=4).tree.tokens == (4, 8, 8, 9)
    near = draft_of(own, corpus, len_threshold=3, len_bias=1)
    assert near.route == "text", "4 in the text against 5 - 1 in the corpus: a tie is the text's"
    far = draft_of(own, corpus, len_threshold=3, len_bias=0)
    assert (far.route, far.tree.tokens, far.pool) == ("corpus", (4, 5, 6, 7), (-1, 5, 6, 7))
    assert far.notes == {"matched": 4.0, "in_corpus": 5.0}
    none = draft_of(own, len_threshold=5)
    assert not none.tree.drafted and none.reason == "no match of 5 tokens or more"


def test_a_copy_from_a_corpus_ends_with_its_passage() -> None:
    corpus = Pool(np.array([9, 1, 2, 3, 4, 7, 7, 7]), (0, 5), None, "two passages")
    draft = draft_of([8, 9, 1, 2], corpus, len_threshold=3, len_bias=0)
    assert (draft.route, draft.tree.tokens) == ("corpus", (2, 3, 4)), "the released code would go on with 7, 7, 7"
    across = draft_of([8, 3, 4, 7], corpus, len_threshold=2, len_bias=0)
    assert across.notes["in_corpus"] == 1, "nor does a match stand across the border"


def test_of_many_places_in_a_corpus_the_first_is_copied_from() -> None:
    """Also where it is the last one in the order of what stands before."""
    count = MOST_SHOWN + 40
    passages = [[900 - n, 4, 5, 6, 1000 + n] for n in range(count)]
    corpus = Pool(np.concatenate(passages), tuple(range(0, 5 * count, 5)), None, "many passages")
    draft = draft_of([8, 4, 5, 6], corpus, len_threshold=3, len_bias=0)
    assert draft.tree.tokens == (6, 1000) and len(draft.candidates.pool) == MOST_SHOWN


def test_a_place_with_more_behind_it_is_preferred() -> None:
    text = [7, 5, 6, *range(20, 30), 8, 7, 5, 6, 1, 8, 7, 5, 6]
    draft = draft_of(text, len_threshold=2, n_predicts=6)
    assert draft.tree.tokens[1:] == (20, 21, 22, 23, 24) and draft.candidates.chosen == 0
    assert draft.candidates.terms["matched"].tolist() == [3.0, 4.0]


def test_the_fallback_learns_from_every_step_and_is_taken_up_again(target: Any) -> None:
    prompt, params = Prompt.from_ids(prompt_ids(3)), {"len_threshold": 3}
    trace = record(target, prompt, "sam", params, max_new_tokens=NEW)
    routes = trace.tables["steps"]["route"]
    assert "fallback" in routes and "text" in routes
    read = ReadRun(target, trace)
    for step in (routes.index("text"), len(routes) - 1 - routes[::-1].index("fallback")):
        assert read.redraft(step).same


@pytest.mark.parametrize("learns", [True, False])
def test_recycling_is_that_of_samd(target: Any, learns: bool) -> None:
    """Before the first step its matrix has the target's likeliest tokens after every token of the prompt."""
    prompt = Prompt.from_ids(prompt_ids(3))
    run = Decoding.of(target, prompt, "sam", {} if learns else {"prompt": False}, max_new_tokens=NEW)
    run.prefill()
    fallback: Any = run.drafter.fallback  # type: ignore[attr-defined]
    assert fallback.paths == TEMPLATES["samd"]
    last = {token: place for place, token in enumerate(prompt.tokens[:-1])} if learns else {}
    assert len(fallback.keeps) == len(last)
    logits = target.reference_logits(prompt.tokens[:-1])
    for token, place in last.items():
        assert set(fallback.keeps.rows[token]) == set(logits[place].topk(8).indices.tolist())


def test_a_corpus_is_drafted_from(target: Any) -> None:
    prompt = Prompt.from_ids(prompt_ids(3))
    plain = generate(target, prompt, max_new_tokens=NEW)
    corpus = Pool(np.array([*prompt.tokens[-8:], *plain]), (0,), None, "what it will write")
    with_corpus = Prompt(prompt.tokens, prompt.segments, pool=corpus)
    run = Decoding.of(target, with_corpus, "sam", {"fallback": "none", "len_bias": 0}, max_new_tokens=NEW)
    steps = list(run)
    assert [t for s in steps for t in s.emitted] == plain and steps[0].draft.route == "corpus"
    assert steps[0].accepted > 10
