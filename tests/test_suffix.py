"""SuffixDecoding against a re-implementation on a tree of counted strings, its children in the package's order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from decoders import Prompt, record
from decoders.drafters.suffix import Answers, SuffixDrafter, SuffixParams
from decoders.method.kept import kept_with
from decoders.study.look.whatif import ReadRun

from .models import prompt_ids, tiny_target

NEW = 24


class Node:
    """A string: how often it occurs, and the tokens after it, as a list in the package's order."""

    def __init__(self) -> None:
        self.count, self.children, self.order = 0, {}, []

    def follow(self, token: int) -> Node:
        """The string with ``token``, once more. A new token stands last; one that catches up with the token in front of
        it goes before all that are as frequent as that one.
        """
        if token not in self.children:
            self.children[token] = Node()
            self.order.append(token)
        child, place = self.children[token], self.order.index(token)
        child.count += 1
        if child.count > 1 and place and (ahead := self.children[self.order[place - 1]].count) <= child.count:
            self.order.remove(token)
            first = next(i for i, other in enumerate(self.order) if self.children[other].count == ahead)
            self.order.insert(first, token)
        return child


def strings_of(texts: list[list[int]], depth: int) -> Node:
    """All strings of up to ``depth`` tokens, counted token by token."""
    root = Node()
    for text in texts:
        open_ones: list[Node] = []
        for token in text:
            open_ones = [node.follow(token) for node in [*open_ones, root][-depth:]]
    return root


def speculate(root: Node, context: list[int], p: SuffixParams) -> list[Any]:
    """For each suffix that occurs: (score, its length, the tokens, every token's probability)."""
    made = []
    for matched in range(1, min(len(context), p.depth)):
        node: Any = root
        for token in context[-matched:]:
            node = node and node.children.get(token)
        if node is None:
            break
        budget = min(p.max_tokens, int(matched * p.factor + p.offset + 1e-6))
        tokens, chances, chance, score = [], [], np.float32(1), np.float32(0)
        while len(chances) < budget and node.order:
            child = node.children[node.order[0]]
            chance = chance * (np.float32(child.count) / np.float32(node.count))
            if chance < np.float32(p.min_token_prob):
                break
            tokens.append(node.order[0])
            chances.append(chance)
            node, score = child, score + chance
        made.append((score, matched, tokens, chances))
    return made


def context_of(prompt: list[int], written: list[int]) -> Any:
    tokens = np.array([*prompt, *written])
    return SimpleNamespace(tokens=tokens, root=int(tokens[-1]), length=len(tokens), prompt_length=len(prompt))


@pytest.mark.parametrize("seed", range(40))
def test_drafts_and_scores_are_those_of_counted_strings(seed: int) -> None:
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
        local = speculate(strings_of([text], p.depth), text, p)
        everywhere = speculate(strings_of([*earlier, written], p.depth), text, p)
        best, other = (max(some, key=lambda o: o[:2], default=(0.0, 0, [], [])) for some in (local, everywhere))
        wanted = other if other[0] > best[0] else best
        assert draft.tree.tokens[1:] == tuple(wanted[2])
        if wanted[2]:
            assert draft.terms["path_prob"][1:].tolist() == wanted[3]
            assert draft.notes == {"matched": wanted[1], "score": wanted[0]}
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


@pytest.mark.parametrize(
    ("following", "drafted"),
    [("89", 8), ("98", 9), ("8998", 8), ("8989", 9), ("89797", 9), ("89779", 7), ("897798", 8)],
)
def test_of_equally_frequent_tokens_the_first_of_the_list_is_drafted(following: str, drafted: int) -> None:
    """Recorded of Arctic Inference's suffix tree (depth 2), after a 1 that each of these tokens followed."""
    text = [1, *(token for each in following for token in (int(each), 1))]
    draft = SuffixDrafter(SuffixParams(depth=2), Answers()).propose(context_of(text, []), 64)
    assert draft.tree.tokens == (1, drafted)


def test_old_answers_go_first() -> None:
    answers = Answers()
    for number in range(5):
        answers.begin(3).append(number)
    answers.begin(3)
    assert [text for text in answers.texts if text] == [[3], [4]] and len(answers) == 2
    assert Answers().index(8) is None


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
