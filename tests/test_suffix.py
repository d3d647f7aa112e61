"""SuffixDecoding against a re-implementation on plain counts of strings, as the package's suffix trees hold them."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from decoders import Prompt, Sampling, generate, record
from decoders.drafters.suffix import Answers, SuffixDrafter, SuffixParams
from decoders.method.kept import kept_with
from decoders.study.whatif import ReadRun

from .models import prompt_ids, tiny_target

NEW = 24


def counts(texts: list[list[int]], depth: int) -> Counter[tuple[int, ...]]:
    """How often each string of 1 to ``depth`` tokens stands in the texts."""
    strings: Counter[tuple[int, ...]] = Counter()
    for text in texts:
        for start in range(len(text)):
            for end in range(start + 1, min(start + depth, len(text)) + 1):
                strings[tuple(text[start:end])] += 1
    return strings


def speculate(strings: Counter[tuple[int, ...]], context: list[int], p: SuffixParams) -> list[Any]:
    """For each suffix that occurs: (score, its length, every token's probability, whether a tie left a choice)."""
    made = []
    for matched in range(1, min(len(context), p.depth)):
        suffix = tuple(context[-matched:])
        if suffix not in strings:
            break
        budget = min(p.max_tokens, int(matched * p.factor + p.offset + 1e-6))
        chances, path, chance, tied = [], suffix, 1.0, False
        while len(chances) < budget:
            following = {key[-1]: n for key, n in strings.items() if len(key) == len(path) + 1 and key[:-1] == path}
            if not following:
                break
            most = max(following.values())
            tied |= list(following.values()).count(most) > 1
            chance *= most / strings[path]
            if chance < p.min_token_prob:
                break
            path = (*path, min(t for t, n in following.items() if n == most))
            chances.append(chance)
        made.append((sum(chances), matched, chances, tied))
    return made


def context_of(prompt: list[int], written: list[int]) -> Any:
    tokens = np.array([*prompt, *written])
    return SimpleNamespace(tokens=tokens, root=int(tokens[-1]), length=len(tokens), prompt_length=len(prompt))


@pytest.mark.parametrize("seed", range(40))
def test_scores_and_probabilities_are_those_of_counted_strings(seed: int) -> None:
    chance = np.random.default_rng(seed)
    vocab = int(chance.integers(2, 6))
    p = SuffixParams(
        depth=int(chance.integers(3, 12)), max_tokens=int(chance.integers(1, 9)),
        factor=float(chance.choice([0.5, 1, 2])), offset=float(chance.integers(0, 3)),
        min_token_prob=float(chance.choice([0.0, 0.1, 0.4])), warm=True,
    )  # fmt: skip
    answers = Answers()
    earlier = [chance.integers(0, vocab, int(n)).tolist() for n in chance.integers(1, 20, int(chance.integers(0, 4)))]
    for text in earlier:
        answers.begin(10).extend(text)
    prompt = chance.integers(0, vocab, 15).tolist()
    for length in (0, 1, 3, 9, 20):
        written = chance.integers(0, vocab, length).tolist()
        drafter, context = SuffixDrafter(p, answers), context_of(prompt, written)
        drafter.prepare(context)
        draft = drafter.propose(context, 64)
        text = [*prompt, *written]
        local = speculate(counts([text], p.depth), text, p)
        everywhere = speculate(counts([*earlier, written], p.depth), text, p)
        ties = any(one[3] for one in [*local, *everywhere])
        best, other = (
            max((one[:3] for one in some), key=lambda o: o[:2], default=(0.0, 0, [])) for some in (local, everywhere)
        )
        wanted = other if other[0] > best[0] + 1e-12 else best
        if not ties:  # of equally frequent tokens the package takes any
            assert draft.tree.drafted == len(wanted[2])
            if wanted[2]:
                assert draft.terms["path_prob"][1:] == pytest.approx(wanted[2])
                assert draft.notes == pytest.approx({"matched": wanted[1], "score": wanted[0]})
                assert draft.route == ("global" if wanted is other else "local")
        for node, source in enumerate(draft.sources):
            assert source < 0 or text[source] == draft.tree.tokens[node]


def test_a_tree_takes_the_likeliest_nodes() -> None:
    text = [1, 2, 3, 1, 2, 3, 1, 2, 4, 1, 2, 5, 9, 1, 2]
    p = SuffixParams(depth=8, factor=3, min_token_prob=0.1, tree=True)
    draft = SuffixDrafter(p, Answers()).propose(context_of(text, []), 64)
    probabilities = dict(zip(draft.tree.tokens[1:5], draft.terms["path_prob"][1:5], strict=True))
    assert probabilities[3] == pytest.approx(2 / 5) and draft.tree.tokens[1:3] == (3, 1)
    assert draft.notes["matched"] == 2 and draft.tree.drafted == 6
    below = {token for token, parent in zip(draft.tree.tokens, draft.tree.parents, strict=True) if not parent}
    assert below <= {3, 4, 5}


def test_old_answers_go_first() -> None:
    answers = Answers()
    for number in range(5):
        answers.begin(3).append(number)
    answers.begin(3)
    assert [text for text in answers.texts if text] == [[3], [4]] and len(answers) == 2
    assert Answers().index(8) is None


@pytest.mark.parametrize("params", [{}, {"tree": True, "factor": 2.0}])
@pytest.mark.parametrize("sampling", [None, Sampling(temperature=0.8, seed=2)])
def test_output_is_plain_decodings(params: dict[str, Any], sampling: Sampling | None) -> None:
    target, prompt = tiny_target("qwen3"), Prompt.from_ids(prompt_ids(3))
    assert generate(target, prompt, "suffix", params, sampling=sampling, max_new_tokens=NEW) == generate(
        target, prompt, sampling=sampling, max_new_tokens=NEW
    )


def test_a_warm_run_drafts_from_earlier_answers_and_says_so() -> None:
    target, prompt = tiny_target("qwen3"), Prompt.from_ids(prompt_ids(5))
    cold, first, second = (
        record(target, prompt, "suffix", {"warm": warm}, max_new_tokens=NEW) for warm in (False, True, True)
    )
    assert cold.output_ids == first.output_ids == second.output_ids
    assert second.rows("steps") < first.rows("steps") == cold.rows("steps")
    assert "global" in second.tables["steps"]["route"]
    assert [trace.run["kept"]["warm"] for trace in (cold, first, second)] == [False, False, True]
    assert kept_with(target).sizes() == {"suffix": "2 answers"}
    assert "drafted without it" in ReadRun(target, second).redraft(1).notes[0]
    assert kept_with(target).sizes() == {"suffix": "2 answers"}, "what if leaves nothing for later runs"
    kept_with(target).empty("suffix")
    assert not kept_with(target).sizes()
