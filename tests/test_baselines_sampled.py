"""The training-free methods alike: what is drafted changes no distribution (chi-square of the tokens behind real
drafts), and what if drafts a step again as it was.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from decoders import Prompt, Sampling, generate, record
from decoders.engine.decoding import Decoding
from decoders.method.part import kinds
from decoders.prompt.prompt import Pool
from decoders.study.look.whatif import ReadRun
from decoders.verifiers.match import MatchVerifier
from decoders.verifiers.sampling import Chooser

from .chance import first_tokens, p_value
from .drafts import methods_here, save_tiny_part
from .models import prompt_ids
from .tiers import matrix

FAMILY = "qwen3"  # of the tiny target
RUNS, NEW, LONGER = 1500, 16, 24
WARM = Sampling(temperature=1.0, top_k=6, seed=3)
METHODS: dict[str, dict[str, Any]] = {
    "recycling": {}, "sam": {"len_threshold": 1}, "suffix": {"tree": True, "factor": 2.0}, "logitspec": {},
    "lookahead": {"prompt": True, "n": 2}, "llma": {}, "rest": {"shortest_suffix": 1},
}  # fmt: skip


@pytest.fixture(scope="module")
def prompt(target: Any) -> Prompt:
    """A prompt with earlier output in the text, and the output to come in the pool."""
    plain = Prompt.from_ids(prompt_ids(3))
    written = generate(target, plain, sampling=WARM, max_new_tokens=NEW)
    bare = Prompt.from_ids((*plain.tokens, *written, *plain.tokens[-8:]))
    again = generate(target, bare, sampling=WARM, max_new_tokens=NEW)
    pool = Pool(np.array([bare.tokens[-1], *again, *again]), (0,), None, "what it will write")
    return Prompt(bare.tokens, bare.segments, pool=pool)


OTHERWISE: list[tuple[str, dict[str, Any]]] = [
    *(
        ("sam", {"fallback": name, "len_threshold": 2})
        for name in ("recycling", *methods_here("eagle2"), "adapld", "none")
    ),
    ("suffix", {}), ("suffix", {"tree": True, "factor": 2.0}), ("logitspec", {}),
    ("lookahead", {}), ("lookahead", {"prompt": True, "n": 3, "w": 4}), ("lookahead", {"n": 2, "g": 0}),
]  # fmt: skip


@pytest.mark.parametrize(("method", "params"), OTHERWISE)
@pytest.mark.parametrize("sampling", [None, Sampling(temperature=0.8, seed=2)])
def test_output_is_plain_decodings(
    target: Any, home: Path, method: str, params: dict[str, Any], sampling: Sampling | None
) -> None:
    if "eagle" in kinds():
        save_tiny_part(target, "eagle")
    prompt = Prompt.from_ids(prompt_ids(3))
    plain = generate(target, prompt, sampling=sampling, max_new_tokens=LONGER)
    assert generate(target, prompt, method, params, sampling=sampling, max_new_tokens=LONGER) == plain


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
    counts = first_tokens(step.draft, step.scored, lambda seed: MatchVerifier(Chooser(replace(WARM, seed=seed))), RUNS)
    expected = Chooser(WARM).probabilities(step.scored.logits[:1])[0].double().numpy()
    assert p_value(counts, expected * RUNS) > 1e-3
