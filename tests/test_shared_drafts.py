"""Draft models with their target's embedding and head: what is saved, what they draft."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from decoders import Prompt, Sampling, UserError, generate
from decoders.draft_models.borrowing import UNLIKELY
from decoders.draft_models.network import DraftConfig
from decoders.parts import WEIGHTS, load_part, read_part

from .drafts import save_tiny_part, tiny_draft
from .models import VOCAB, prompt_ids, tiny_target

pytestmark = pytest.mark.usefixtures("home")


@pytest.mark.parametrize("family", ["llama", "qwen3"])
@pytest.mark.parametrize("drafted", [0, 50])
def test_the_part_holds_neither_and_drafts_as_it_did_when_trained(family, drafted, home):
    target = tiny_target(family)
    options = {"shared": True, "draft_vocab": drafted, "layers": 2}
    folder = save_tiny_part(target, "glide", **options)
    names = {*load_file(folder / WEIGHTS)}
    assert not any("embedding" in name or "head" in name for name in names) and ("drafted" in names) == bool(drafted)
    assert read_part(folder).config.draft_vocab == drafted
    model, trained = load_part(target, "glide"), tiny_draft(target, "glide", **options)
    tokens = torch.tensor([prompt_ids(1, 20)])
    torch.testing.assert_close(model(tokens), trained(tokens))
    logits = model.full_logits(model.head(model(tokens)))
    expected = F.linear(trained(tokens), target.head.weight)
    if drafted:
        others = torch.ones(VOCAB, dtype=torch.bool)
        others[trained.drafted.long()] = False
        assert torch.all(logits[..., others] == UNLIKELY)
        logits, expected = logits[..., ~others], expected[..., ~others]
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("sampling", [None, Sampling(temperature=1.0, seed=3)])
@pytest.mark.parametrize(("kind", "method"), [("glide", "glide"), ("glide", "glide+cape"), ("drafter", "sps")])
def test_texts_come_out_as_without_a_draft(kind, method, sampling, home):
    target = tiny_target("llama")
    save_tiny_part(target, kind, shared=True, draft_vocab=60)
    prompt = Prompt.from_ids(prompt_ids(3))
    drafted = generate(target, prompt, method, max_new_tokens=24, sampling=sampling)
    if sampling is None:
        assert drafted == generate(target, prompt, max_new_tokens=24)
    else:
        assert drafted == generate(target, prompt, method, max_new_tokens=24, sampling=sampling)


def test_shapes_that_cannot_be(home):
    shape = tiny_target("llama").shape
    assert not DraftConfig.of(shape, glimpse=True).shared, "small vocabularies have their own"
    large = replace(shape, vocab=50_000)
    assert DraftConfig.of(large, glimpse=True).shared and not DraftConfig.of(large, glimpse=True, hidden=96).shared
    assert DraftConfig.of(large, glimpse=True, draft_vocab=60_000).draft_vocab == 0
    with pytest.raises(UserError, match="width 96 cannot share an embedding of width"):
        DraftConfig.of(large, glimpse=True, hidden=96, shared=True)
    with pytest.raises(UserError, match="a draft vocabulary goes with the target's embedding"):
        DraftConfig.of(shape, glimpse=True, draft_vocab=20)
    config = DraftConfig.of(large, glimpse=True, draft_vocab=20)
    assert DraftConfig.from_json(config.to_json()) == config
    old = {name: value for name, value in config.to_json().items() if name not in ("shared", "draft_vocab")}
    assert not DraftConfig.from_json(old).shared, "parts from before have their own"


def test_a_part_for_another_vocabulary_is_refused_in_a_sentence(home):
    target = tiny_target("llama")
    folder = save_tiny_part(target, "drafter", home / "part", shared=True)
    description = (folder / "part.json").read_text()
    (folder / "part.json").write_text(description.replace(f'"vocab": {VOCAB}', '"vocab": 9000'))
    with pytest.raises(UserError, match=f"it drafts for 9,000 tokens, and the vocabulary has {VOCAB}"):
        load_part(target, "drafter", folder)
    with pytest.raises(UserError, match="was trained for tiny-llama .*, not for tiny-qwen3"):
        load_part(tiny_target("qwen3"), "drafter", folder)


def test_of_a_wider_target_the_first_columns_are_shared():
    """As parts need that belong to a model which an earlier version grew."""
    target = tiny_target("llama")
    draft, table = (
        tiny_draft(target, "drafter", shared=True, draft_vocab=80),
        torch.randn(VOCAB, target.shape.hidden + 32),
    )
    draft.share(table, 2 * table)
    narrow = table[:, : target.shape.hidden]
    assert torch.equal(draft.embedding.weight, narrow)
    assert torch.equal(draft.head.weight, 2 * narrow[draft.drafted.long()])
