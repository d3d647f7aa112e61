"""Several prompts decoded side by side: each has the output that it has alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from decoders import Prompt, UserError, generate
from decoders.study.together import decode_together

from .drafts import save_tiny_part
from .models import prompt_ids, tiny_target

NEW = 16


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma2", "gpt_neox"])
@pytest.mark.parametrize("method", ["plain", "pld", "lookahead"])
def test_each_prompt_has_its_own_output(family: str, method: str) -> None:
    target = tiny_target(family)
    prompts = [Prompt.from_ids([*prompt_ids(seed), *range(3, 3 + 4 * seed)]) for seed in range(1, 5)]
    if method == "lookahead":
        with pytest.raises(UserError, match="probes cannot be scored together"):
            decode_together(target, prompts, method, max_new_tokens=NEW)
        return
    made = decode_together(target, prompts, method, max_new_tokens=NEW)
    assert [list(output) for output in made.outputs] == [generate(target, p, max_new_tokens=NEW) for p in prompts]
    assert made.tokens == sum(map(len, made.outputs)) and made.forwards <= NEW


def test_a_draft_model_drafts_for_each(tmp_path: Path) -> None:
    target = tiny_target("llama")
    params = {"part": str(save_tiny_part(target, "glide", tmp_path / "part"))}
    prompts = [Prompt.from_ids(prompt_ids(seed)) for seed in range(1, 4)]
    made = decode_together(target, prompts, "glide", params, max_new_tokens=NEW)
    assert [list(output) for output in made.outputs] == [generate(target, p, max_new_tokens=NEW) for p in prompts]


def test_a_method_that_reads_hidden_states_is_refused() -> None:
    with pytest.raises(UserError, match="shares no forward"):
        decode_together(tiny_target("llama"), [Prompt.from_ids(prompt_ids(1))], "pld+h", max_new_tokens=NEW)
