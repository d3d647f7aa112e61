"""Token Recycling: the paper's tree, the matrix after scripted steps, and what outlasts a run only where asked for."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from decoders import Prompt, generate, record
from decoders.draft.draft import Draft, Scored
from decoders.draft.tree import DraftTree
from decoders.drafters.recycling import PATHS, RANKS, TEMPLATES, UNKNOWN, Matrix, RecyclingDrafter, paths_of
from decoders.engine.decoding import Decoding
from decoders.method.kept import kept_with
from decoders.study.look.whatif import ReadRun
from decoders.verifiers.match import judged

from .models import prompt_ids

FAMILY = "qwen3"  # of the tiny target
NEW = 24
# the released templates' nodes in their order, level by level: TokenRecycling's "2.2.2", SAMD's token_recycle.json
RELEASED = {
    "2.2.2": "0 1 2 3 4 5 6 7 00 01 02 03 04 05 06 07 10 11 12 13 20 21 22 30 31 40 50 60 70 000 001 002 003 004 005 "
    "006 007 010 011 012 020 021 030 040 050 060 070 100 101 110 200 300 400 500 0000 0001 0002 0003 0004 0010 0011 "
    "0020 0030 0040 0100 0200 1000 2000 3000 00000 00001 00002 00010 00020 00100 01000 10000 000000 000001 000100",
    "samd": "0 1 2 3 4 5 6 00 01 02 03 04 05 10 11 12 13 14 20 21 22 30 31 40 41 50 60 000 001 002 010 011 020 021 030 "
    "040 100 101 102 110 111 120 130 200 210 300 400 500 0000 0001 0010 0100 1000 1001 1100 2000 00000 00001 00100 "
    "10000",
}  # fmt: skip


def test_the_tree_of_the_paper() -> None:
    assert len(PATHS) == len(set(PATHS)) == 80
    assert Counter(map(len, PATHS)) == {1: 8, 2: 21, 3: 25, 4: 15, 5: 8, 6: 3}
    assert all(path[:-1] in {"", *PATHS} for path in PATHS) and PATHS[:3] == ["0", "00", "000"]
    for name, listed in RELEASED.items():
        assert TEMPLATES[name] == sorted(listed.split())
    assert Counter(map(len, TEMPLATES["samd"])) == {1: 7, 2: 20, 3: 21, 4: 8, 5: 4}


@pytest.mark.parametrize("template", list(RELEASED))
@pytest.mark.parametrize("seed", [3, 5, 7])
def test_drafts_are_those_of_the_released_order(target: Any, seed: int, template: str) -> None:
    """A matrix of our own, written node by node in the template's order, gives every draft; written depth first it
    would not.
    """
    run = Decoding.of(target, Prompt.from_ids(prompt_ids(seed)), "recycling", {"template": template}, max_new_tokens=90)
    drafter: Any = run.drafter
    observe, logits = drafter.observe, []
    drafter.observe = lambda draft, scored, verdict: (
        logits.append(scored.logits.clone()) or observe(draft, scored, verdict)
    )
    by_level: dict[int, list[int]] = {}
    by_depth: dict[int, list[int]] = {}
    otherwise, written = 0, 0
    for step in run:
        if written > 80:  # the budget cuts trees
            break
        tree, ranks = step.draft.tree, step.draft.terms.get("row_rank", np.zeros(1))
        nodes = {"".join(str(int(ranks[n])) for n in tree.path(node)[1:]): node for node in range(len(tree))}
        drafted = {path: tree.tokens[node] for path, node in nodes.items()}
        assert drafted == fill(by_level, tree.tokens[0], RELEASED[template].split())
        written += len(step.emitted)
        otherwise += drafted != fill(by_depth, tree.tokens[0], RELEASED[template].split())
        for matrix, order in ((by_level, ["", *RELEASED[template].split()]), (by_depth, sorted(nodes))):
            for path in (path for path in order if path in nodes):
                row = logits[-1][nodes[path]]
                matrix[tree.tokens[nodes[path]]] = torch.sort(row, descending=True).indices[:8].tolist()
    assert otherwise, "the order never mattered: this test shows nothing"


def fill(matrix: dict[int, list[int]], root: int, template: list[str]) -> dict[str, int]:
    """The template's nodes that have a token, by the ranks that lead to them."""
    tokens = {"": root}
    for path in template:
        if path[:-1] in tokens and tokens[path[:-1]] in matrix:
            tokens[path] = matrix[tokens[path[:-1]]][int(path[-1])]
    return tokens


def test_the_matrix_keeps_every_scored_row_the_last_of_a_token() -> None:
    drafter = RecyclingDrafter(Matrix(40))
    tree = DraftTree((5, 7, 9, 7), (-1, 0, 1, 2))  # token 7 stands in two rows
    logits = torch.zeros(4, 40)
    for row, first in enumerate((10, 20, 30, 3)):
        logits[row, first : first + RANKS] = torch.arange(RANKS, 0, -1).float()
    drafter.observe(Draft(tree), Scored(logits), judged(Draft(tree), [0], 8))  # all drafted tokens are rejected
    rows = drafter.keeps.rows
    assert rows[5].tolist() == list(range(10, 18)) and rows[9].tolist() == list(range(30, 38))
    assert drafter.keeps.rows[7].tolist() == list(range(3, 11)), "the last row of a token counts"
    assert (np.delete(rows, [5, 7, 9], axis=0) == UNKNOWN).all()


def test_drafts_follow_the_matrix(target: Any) -> None:
    run = Decoding.of(target, Prompt.from_ids(prompt_ids(3)), "recycling", max_new_tokens=NEW)
    widest = 0
    for step in run:
        tree, ranks = step.draft.tree, step.draft.terms.get("row_rank", np.zeros(1))
        paths = ["".join(str(int(ranks[n])) for n in tree.path(node)[1:]) for node in range(1, len(tree))]
        assert paths == sorted(paths) and set(paths) <= set(PATHS)
        widest = max(widest, tree.drafted)
    assert widest > 8, "trees are filled beyond the root's own row"


def test_only_a_warm_run_starts_from_what_warm_runs_left(target: Any) -> None:
    prompt = Prompt.from_ids(prompt_ids(3))
    cold = record(target, prompt, "recycling", max_new_tokens=NEW)
    first, second = (record(target, prompt, "recycling", {"warm": True}, max_new_tokens=NEW) for _ in range(2))
    again = record(target, prompt, "recycling", max_new_tokens=NEW)
    drafted = [trace.tables["steps"]["drafted"] for trace in (cold, first, second, again)]
    assert drafted[0] == drafted[1] == drafted[3] and drafted[0][0] == 0 < drafted[2][0]
    assert second.rows("steps") < cold.rows("steps")
    assert second.output_ids == generate(target, prompt, max_new_tokens=NEW)
    matrix = kept_with(target).of("recycling", lambda: pytest.fail("it is kept"))
    read, kept = ReadRun(target, second), matrix.rows.copy()
    assert "drafted without it" in read.redraft(3).notes[0]
    assert (matrix.rows == kept).all(), "what if leaves nothing for later runs"
    told = [trace.run["kept"] for trace in (cold, first, second)]
    assert [one["warm"] for one in told] == [False, False, True]
    assert told[2]["before"] == told[1]["count"] > 0 == told[1]["before"]
    assert kept_with(target).sizes()["recycling"].endswith(matrix.unit)
    record(target, prompt, "recycling", {"warm": True, "anew": True}, max_new_tokens=4)
    assert 0 < len(kept_with(target).of("recycling", dict)) < told[2]["count"], "emptied first"
    assert kept_with(target).empty() == ["recycling"] and kept_with(target).sizes() == {}


def test_the_prompt_fills_the_matrix_where_asked_for(target: Any) -> None:
    prompt = Prompt.from_ids(prompt_ids(3))
    run = Decoding.of(target, prompt, "recycling", {"prompt": True, "nodes": 60}, max_new_tokens=NEW)
    run.prefill()
    drafter: Any = run.drafter
    logits = target.reference_logits(prompt.tokens[:-1])
    last = {token: place for place, token in enumerate(prompt.tokens[:-1])}
    assert len(drafter.keeps) == len(last)
    for token, place in last.items():
        assert set(drafter.keeps.rows[token]) == set(logits[place].topk(RANKS).indices.tolist())
    assert [t for step in run for t in step.emitted] == generate(target, prompt, max_new_tokens=NEW)
    assert len(paths_of(60)) == 60 and paths_of(80) == PATHS and set(paths_of(60)) < set(PATHS)


def test_anew_without_warm_is_refused(target: Any) -> None:
    with pytest.raises(ValueError, match="set warm=true too"):
        generate(target, Prompt.from_ids([5]), "recycling", {"anew": True}, max_new_tokens=2)
