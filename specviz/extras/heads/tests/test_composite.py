"""Composite with a copier and a head: lossless, drafted again as it was, the head shown what it drafted alone."""

from __future__ import annotations

from typing import Any

import pytest

from decoders import Prompt, UserError, generate, record
from decoders.study.look.whatif import ReadRun
from decoders.verifiers.sampling import Sampling
from tests.drafts import save_tiny_part
from tests.models import prompt_ids, tiny_target

NEW = 24


@pytest.fixture(scope="module")
def target(module_home: Any) -> Any:
    target = tiny_target("qwen3")
    with pytest.raises(UserError, match="eagle3: there is no EAGLE-3 head .* or choose another method than eagle3"):
        generate(target, Prompt.from_ids(prompt_ids(3)), "composite", {"drafters": "pld+h,eagle3"}, max_new_tokens=4)
    for kind in ("eagle", "eagle3", "medusa"):
        save_tiny_part(target, kind)
    return target


@pytest.mark.parametrize("drafters", ["pld+h,eagle3", "eagle2,recycling", "medusa,pld+h,eagle3"])
def test_it_writes_what_plain_decoding_writes(target: Any, drafters: str) -> None:
    prompt = Prompt.from_ids(prompt_ids(3))
    for sampling in (Sampling(), Sampling(temperature=0.9, seed=4)):
        options = {"sampling": sampling, "max_new_tokens": NEW}
        plain = generate(target, prompt, **options)
        for rows in (8, None):
            assert generate(target, prompt, "composite", {"drafters": drafters, "rows": rows}, **options) == plain


def test_a_recorded_step_is_drafted_again_and_the_head_is_shown_its_own_states(target: Any) -> None:
    """EAGLE's cosine is of the states that it went on from; what it was not shown has none."""
    prompt, params = Prompt.from_ids(prompt_ids(3)), {"drafters": "pld+h,eagle"}
    trace = record(target, prompt, "composite", params, max_new_tokens=NEW)
    assert trace.run["part"]["kind"] == "eagle"
    assert {"main", "drafter", "expansion"} == {origin["name"] for origin in trace.run["origins"]}
    steps = trace.tables["steps"]
    alone = record(target, prompt, "eagle", max_new_tokens=NEW).tables["steps"]
    assert steps["term:feature_cosine"][0] == pytest.approx(alone["term:feature_cosine"][0], abs=1e-4)
    read = ReadRun(target, trace)
    assert all(read.redraft(step).same for step in (0, 1, len(steps["drafted"]) - 1))
