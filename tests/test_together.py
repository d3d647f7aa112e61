"""Several prompts decoded side by side: each has the output that it has alone."""

from __future__ import annotations

import gc
import weakref
from dataclasses import asdict
from itertools import product
from pathlib import Path

import pytest

from decoders import Prompt, UserError, generate
from decoders.engine.row_costs import Curve, RowCosts
from decoders.model.state.cache import TreeCache
from decoders.prompt_tokens.latency import Setup
from decoders.study.measure import together
from decoders.study.measure.load import save_load
from decoders.study.measure.together import batch_costs, decode_together
from decoders.trace.load import Cell, Load

from .drafts import save_tiny_part
from .models import prompt_ids, tiny_target
from .tiers import matrix

NEW = 16


@pytest.mark.parametrize("family", matrix(["llama", "qwen3", "gemma2", "gpt_neox"], 2, "the other families"))
@pytest.mark.parametrize("method", ["plain", "pld", "lookahead"])
def test_each_prompt_has_its_own_output(family: str, method: str) -> None:
    target = tiny_target(family)
    prompts = [Prompt.from_ids([*prompt_ids(seed), *range(3, 3 + 4 * seed)]) for seed in range(1, 5)]
    made = decode_together(target, prompts, method, max_new_tokens=NEW)
    assert [list(output) for output in made.outputs] == [generate(target, p, max_new_tokens=NEW) for p in prompts]
    assert made.tokens == sum(map(len, made.outputs)) and made.forwards <= NEW


def test_a_draft_model_drafts_for_each(tmp_path: Path) -> None:
    target = tiny_target("llama")
    params = {"part": str(save_tiny_part(target, "glide", tmp_path / "part"))}
    prompts = [Prompt.from_ids(prompt_ids(seed)) for seed in range(1, 4)]
    made = decode_together(target, prompts, "glide", params, max_new_tokens=NEW)
    assert [list(output) for output in made.outputs] == [generate(target, p, max_new_tokens=NEW) for p in prompts]


@pytest.mark.parametrize("family", ["llama", "gemma2"])
@pytest.mark.parametrize("tree", [True, False])
def test_prompt_tokens_guess_for_each(family: str, tree: bool, tmp_path: Path) -> None:
    """Rows with embeddings of their own beside such as have tokens, in states that differ from run to run."""
    target = tiny_target(family)
    params = {"part": str(save_tiny_part(target, "ppd", tmp_path / "part", vectors=2)), "tree": tree}
    prompts = [Prompt.from_ids(prompt_ids(seed)[: 6 + seed]) for seed in range(1, 5)]
    made = decode_together(target, prompts, "ppd", params, max_new_tokens=NEW)
    alone = [decode_together(target, [prompt], "ppd", params, max_new_tokens=NEW) for prompt in prompts]
    assert [list(output) for output in made.outputs] == [generate(target, p, max_new_tokens=NEW) for p in prompts]
    assert made.outputs == tuple(one.outputs[0] for one in alone)
    assert made.forwards == max(one.forwards for one in alone), "the drafts are those that each makes alone"


def test_prompt_tokens_that_are_read_in_a_way_of_their_own_are_refused(tmp_path: Path) -> None:
    target = tiny_target("llama")
    params = {"part": str(save_tiny_part(target, "ppd", tmp_path / "part", exits=2))}
    with pytest.raises(UserError, match="exits of their own share no forward"):
        decode_together(target, [Prompt.from_ids(prompt_ids(1))] * 2, "ppd", params, max_new_tokens=NEW)


def test_what_is_read_of_the_prompts_alone_is_read_for_each() -> None:
    target, params = tiny_target("llama"), {"prompt": True}
    prompts = [Prompt.from_ids(prompt_ids(seed)) for seed in range(1, 4)]
    made = decode_together(target, prompts, "recycling", params, max_new_tokens=NEW)
    assert [list(output) for output in made.outputs] == [generate(target, p, max_new_tokens=NEW) for p in prompts]
    alone = [decode_together(target, [prompt], "recycling", params, max_new_tokens=NEW) for prompt in prompts]
    assert made.forwards == max(one.forwards for one in alone), "the drafts are those that each makes alone"


def test_the_memory_of_runs_is_free_when_they_end() -> None:
    """Without the collector of cycles: it does not know how much memory a cache holds, and comes too late."""
    target, stock, caches = tiny_target("llama"), TreeCache.write, set[weakref.ref[TreeCache]]()

    def write(cache: TreeCache, *rows):
        caches.add(weakref.ref(cache))
        return stock(cache, *rows)

    gc.collect()
    gc.disable()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TreeCache, "write", write)
            generate(target, Prompt.from_ids(prompt_ids(1)), max_new_tokens=4)
            decode_together(target, [Prompt.from_ids(prompt_ids(seed)) for seed in (1, 2)], "pld", max_new_tokens=4)
        assert caches and not [cache for cache in caches if cache() is not None]
    finally:
        gc.enable()


def test_a_method_that_reads_hidden_states_is_refused() -> None:
    with pytest.raises(UserError, match="shares no forward"):
        decode_together(tiny_target("llama"), [Prompt.from_ids(prompt_ids(1))], "pld+h", max_new_tokens=NEW)


def test_a_batchs_lengths_are_by_the_batchs_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are free for one run and dear in a batch: alone all that is likely is verified, together next to
    nothing, of all drafts the likeliest; the outputs are plain decoding's.
    """
    a_step = 1e6  # ms: beside it the time that drafting takes here is nothing, on a busy machine too
    free, dear = (Curve((1, 400), (a_step, a_step * most), "a test") for most in (1.0001, 1000.0))
    monkeypatch.setattr(
        together, "batch_costs", lambda target, runs: RowCosts(free if runs == 1 else dear, follows=False)
    )
    rows, stock = list[tuple[int, int]](), together.score_together

    def count(target, sessions, drafts):
        rows.append((len(drafts), sum(draft.tree.drafted for draft in drafts)))
        return stock(target, sessions, drafts)

    monkeypatch.setattr(together, "score_together", count)
    target, prompts = tiny_target("qwen3"), [Prompt.from_ids(prompt_ids(seed) * 3) for seed in range(1, 5)]
    made = decode_together(target, prompts, "pld", max_new_tokens=NEW, length="auto", stop_ids=())
    plain = [generate(target, p, max_new_tokens=NEW, stop_ids=()) for p in prompts]
    assert [list(output) for output in made.outputs] == plain
    several, rows[:] = list(rows), []
    decode_together(target, prompts[:1], "pld", max_new_tokens=NEW, length="auto", stop_ids=())
    drafted = [count for runs, count in rows if runs == 1]
    assert sum(drafted) > len(rows), "alone"
    assert sum(count for runs, count in several if runs > 1) < 8, "a few tries"


def test_a_batchs_costs_are_of_the_load_that_was_measured(home: Path) -> None:
    target = tiny_target()
    save_load(Load(target.name, asdict(Setup.of(target)), tuple(
        Cell(batch, rows, 8, 10.0 * batch + rows, 0.0, 0.0) for batch in (1, 4) for rows in (1, 8)
    ), 1))  # fmt: skip
    costs = batch_costs(target, 4)
    assert (costs.ms(4), costs.ms(32)) == (41.0, 48.0) and batch_costs(target, 2).ms(2) == pytest.approx(10 * 2 + 1)
    assert costs.other_costs(3).ms(1) == 41.0


def _load(ms, contexts=(64,)) -> Load:
    sizes = product(contexts, (1, 2, 4, 8), (1, 2, 4, 8))
    return Load("tiny-llama", {}, tuple(Cell(b, r, c, ms(b, r, c), 0.0, 0.0) for c, b, r in sizes), 1)


def test_the_time_between_cells_is_on_a_line_and_beyond_on_the_last_slope() -> None:
    load = _load(lambda b, r, c: 10 + b * r + c / 64, contexts=(64, 128))
    assert load.ms(3, 2) == pytest.approx(17) and load.ms(3, 2, 96) == pytest.approx(17.5)
    assert load.ms(16, 1) == pytest.approx(27) and load.ms(1, 32, 128) == pytest.approx(44)
    assert Load.from_json(load.to_json()) == load
    noisy = _load(lambda b, r, c: 10.0 - r)
    assert noisy.ms(8) == noisy.ms(1), "more rows take no less time"
    for data in ({}, {**load.to_json(), "cells": [[1, 1, 64, "x", 0, 0, None]]}, {**load.to_json(), "rounds": None}):
        with pytest.raises(ValueError, match="load"):
            Load.from_json(data)
