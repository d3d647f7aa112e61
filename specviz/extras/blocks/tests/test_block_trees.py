"""Trees through a block's lattice: the likeliest paths, compared with all of them; runs are plain decoding's."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch

from decoders import Prompt, Sampling, UserError, generate, record
from decoders.draft.lattice import Lattice
from decoders.trace.check import check
from specviz.extras.blocks.block_tree import best_tree, conditional_logprobs
from tests.drafts import save_tiny_part
from tests.models import prompt_ids, tiny_target

pytestmark = pytest.mark.usefixtures("home")
PROMPT, NEW = Prompt.from_ids(prompt_ids(3, 40)), 24


def lattice(seed: int, has_transitions: bool) -> Lattice:
    """A random lattice of four positions with three candidates each, likeliest first."""
    generator = torch.Generator().manual_seed(seed)
    logs = (torch.randn(4, 6, generator=generator) * 2).log_softmax(-1).sort(-1, descending=True)[0][:, :3]
    transitions = torch.randn(4, 3, 3, generator=generator) if has_transitions else None
    if transitions is not None:
        transitions[0] = transitions[0, :1]
    return Lattice(torch.arange(12).reshape(4, 3) + 100, logs, torch.zeros(4, dtype=torch.long), transitions)


@pytest.mark.parametrize("has_transitions", [False, True])
@pytest.mark.parametrize("nodes", [2, 5, 9, 40, 200])
def test_the_tree_has_the_likeliest_paths(has_transitions: bool, nodes: int):
    for seed in range(5):
        case = lattice(seed, has_transitions)
        logs = conditional_logprobs(case)
        paths = {}
        for depth in range(1, 5):
            for path in itertools.product(range(3), repeat=depth):
                before = [0, *path] if has_transitions else [0] * 5
                paths[path] = sum(float(logs[at, before[at], place]) for at, place in enumerate(path))
        best = sorted(paths, key=lambda path: -paths[path])[: nodes - 1]
        found = best_tree(7, case, nodes)
        taken = {
            tuple((found.tree.tokens[node] - 100) % 3 for node in found.tree.path(number)[1:]): number
            for number in range(1, len(found.tree))
        }
        assert set(taken) == set(best) and found.tree.tokens[0] == 7
        for path, number in taken.items():
            assert found.path_logprobs[number - 1] == pytest.approx(paths[path], abs=1e-5)
            assert found.ranks[number - 1] == path[-1]
            assert math.log(found.probabilities[number - 1]) == pytest.approx(
                paths[path] - (paths[path[:-1]] if path[:-1] else 0), abs=1e-4
            )


@pytest.mark.parametrize("kind", ["dflash", "dspark", "dflash2"])
def test_runs_with_trees_are_plain_decodings(kind: str):
    target: Any = tiny_target("qwen3")
    save_tiny_part(target, kind)
    for sampling in (Sampling(), Sampling(1.0, seed=4)):
        options: dict[str, Any] = {"max_new_tokens": NEW, "stop_ids": (), "sampling": sampling}
        trace = record(target, PROMPT, kind, {"tree": 12}, **options)
        check(trace)
        assert list(trace.output_ids) == generate(target, PROMPT, **options)
        assert max(trace.tables["steps"]["drafted"]) == 11 and trace.tables["lattice"]["rank"]
        parents = trace.tables["nodes"]["parent"]
        assert any(b <= a for a, b in itertools.pairwise(parents) if b >= 0)  # it branches


def test_a_tree_beside_what_is_for_chains_is_refused():
    target = tiny_target("qwen3")
    for kind, params in (("dflash", {"rule": "ratio"}), ("dspark", {"threshold": 0.5})):
        save_tiny_part(target, kind)
        with pytest.raises(UserError, match=r"tree=8 cannot stand beside (rule=ratio|threshold=0.5)"):
            generate(target, PROMPT, kind, {"tree": 8, **params}, max_new_tokens=4)
