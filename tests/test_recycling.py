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
from decoders.drafters.recycling import PATHS, RANKS, UNKNOWN, RecyclingDrafter
from decoders.engine.decoding import Decoding
from decoders.study.whatif import ReadRun
from decoders.verifiers.match import judged

from .models import prompt_ids, tiny_target

NEW = 24


@pytest.fixture(scope="module")
def target() -> Any:
    return tiny_target("qwen3")


def test_the_tree_of_the_paper() -> None:
    assert len(PATHS) == len(set(PATHS)) == 80
    assert Counter(map(len, PATHS)) == {1: 8, 2: 21, 3: 25, 4: 15, 5: 8, 6: 3}
    assert all(path[:-1] in {"", *PATHS} for path in PATHS) and PATHS[:3] == ["0", "00", "000"]


def test_the_matrix_keeps_every_scored_row_the_last_of_a_token() -> None:
    drafter = RecyclingDrafter(np.full((40, RANKS), UNKNOWN))
    tree = DraftTree((5, 7, 9, 7), (-1, 0, 1, 2))  # token 7 stands in two rows
    logits = torch.zeros(4, 40)
    for row, first in enumerate((10, 20, 30, 3)):
        logits[row, first : first + RANKS] = torch.arange(RANKS, 0, -1).float()
    drafter.observe(Draft(tree), Scored(logits), judged(Draft(tree), [0], 8))  # all drafted tokens are rejected
    assert drafter.matrix[5].tolist() == list(range(10, 18)) and drafter.matrix[9].tolist() == list(range(30, 38))
    assert drafter.matrix[7].tolist() == list(range(3, 11)), "the last row of a token counts"
    assert (np.delete(drafter.matrix, [5, 7, 9], axis=0) == UNKNOWN).all()


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
    read, kept = ReadRun(target, second), target.companions["recycling"].copy()
    assert "drafted without it" in read.redraft(3).notes[0]
    assert (target.companions["recycling"] == kept).all(), "what if leaves nothing for later runs"
