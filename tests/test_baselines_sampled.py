"""The training-free methods alike: what is drafted changes no distribution (chi-square of the tokens behind real
drafts), and what if drafts a step again as it was.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare

from decoders import Prompt, Sampling, generate, record
from decoders.engine.decoding import Decoding
from decoders.prompt.prompt import Pool
from decoders.study.look.whatif import ReadRun
from decoders.verifiers.match import MatchVerifier
from decoders.verifiers.sampling import Chooser

from .models import prompt_ids, tiny_target
from .tiers import matrix

RUNS, NEW = 1500, 16
WARM = Sampling(temperature=1.0, top_k=6, seed=3)
METHODS: dict[str, dict[str, Any]] = {
    "recycling": {}, "sam": {"len_threshold": 1}, "suffix": {"tree": True, "factor": 2.0}, "logitspec": {},
    "lookahead": {"prompt": True, "n": 2}, "llma": {}, "rest": {"shortest_suffix": 1},
}  # fmt: skip


@pytest.fixture(scope="module")
def target() -> Any:
    return tiny_target("qwen3")


@pytest.fixture(scope="module")
def prompt(target: Any) -> Prompt:
    """A prompt with earlier output in the text, and the output to come in the pool."""
    plain = Prompt.from_ids(prompt_ids(3))
    written = generate(target, plain, sampling=WARM, max_new_tokens=NEW)
    bare = Prompt.from_ids((*plain.tokens, *written, *plain.tokens[-8:]))
    again = generate(target, bare, sampling=WARM, max_new_tokens=NEW)
    pool = Pool(np.array([bare.tokens[-1], *again, *again]), (0,), None, "what it will write")
    return Prompt(bare.tokens, bare.segments, pool=pool)


@pytest.mark.parametrize("method", matrix(METHODS, 2, "the other baselines"))
def test_what_if_drafts_a_step_again_as_it_was(target: Any, prompt: Prompt, method: str) -> None:
    trace = record(target, prompt, method, METHODS[method], sampling=WARM, max_new_tokens=NEW)
    read = ReadRun(target, trace)
    drafted = [step for step, count in enumerate(trace.tables["steps"]["drafted"]) if count]
    assert drafted and all(read.redraft(step).same for step in {drafted[0], drafted[-1]})


@pytest.mark.parametrize("method", matrix(METHODS, 2, "the other baselines"))
def test_sampled_tokens_are_the_targets_own(target: Any, prompt: Prompt, method: str) -> None:
    again = generate(target, prompt, sampling=WARM, max_new_tokens=NEW)
    run = Decoding.of(target, prompt, method, METHODS[method], sampling=WARM, max_new_tokens=NEW)
    steps = list(run)
    assert [t for step in steps for t in step.emitted] == again
    step = max(steps, key=lambda one: one.draft.tree.drafted)
    assert step.draft.tree.drafted, "there is a draft to be judged"
    counts = np.zeros(step.scored.logits.shape[-1])
    for seed in range(RUNS):
        verdict = MatchVerifier(Chooser(Sampling(temperature=1.0, top_k=6, seed=seed)))(step.draft, step.scored)
        counts[step.draft.tree.tokens[verdict.path[1]] if verdict.accepted else verdict.bonus] += 1
    expected = Chooser(WARM).probabilities(step.scored.logits[:1])[0].double().numpy()
    assert not counts[expected == 0].any()
    likely = expected * RUNS >= 5
    seen = np.append(counts[likely], counts[~likely].sum())
    wanted = np.append(expected[likely], expected[~likely].sum()) * RUNS
    keep = wanted > 0
    assert chisquare(seen[keep], wanted[keep] * RUNS / wanted[keep].sum()).pvalue > 1e-3
