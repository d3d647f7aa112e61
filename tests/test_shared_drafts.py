"""Draft models with their target's embedding and head: what is saved, what they draft, how they learn."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from decoders import Prompt, Sampling, UserError, generate
from decoders.draft_models.borrowing import UNLIKELY
from decoders.draft_models.network import DraftConfig
from decoders.parts import WEIGHTS, load_part, own_place, read_part
from decoders.training import states as kept_states
from decoders.training.batches import RESPONSE, batches_of
from decoders.training.drafter import FAINT, DrafterTraining, Recipe
from decoders.training.states import States
from decoders.training.teacher import Teacher
from specviz import cli

from .command import refusal
from .drafts import save_tiny_part, tiny_draft
from .models import VOCAB, network, prompt_ids, tiny_target
from .tiers import matrix
from .training import save_model, source_for, train_and_log

SOFT = Recipe(batch_tokens=1500, warmup_steps=3, validate_steps=12, shared=True, draft_vocab=200, soft=True)
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


# --- how they learn


def test_states_are_the_targets_and_computed_once(home, text, monkeypatch):
    model = network("qwen3")
    batch = batches_of(source_for("glide", text).chunk(0), 1500)[0]
    folder = home / "states"
    kvs, states = States(model, (1,), folder).of(batch)
    monkeypatch.setattr(kept_states, "FrozenTarget", lambda *args, **kwargs: pytest.fail("computed twice"))
    again, same = States(model, (1,), folder).of(batch)
    assert torch.equal(states, same) and all(torch.equal(a, b) for a, b in zip(kvs[0], again[0], strict=True))
    _, alone = States(model, (), folder).of(batch)
    assert torch.equal(alone, states), "a vanilla drafter reads the same file"
    with pytest.raises(pytest.fail.Exception, match="computed twice"):
        States(model, (0, 1), folder).of(batch)  # another layer is not there
    with pytest.raises(pytest.fail.Exception, match="computed twice"):
        States(network("qwen3", seed=9), (1,), folder).of(batch)  # another target's states are its own
    teacher = Teacher(network("qwen3"), (1,))
    wanted = batch.kinds[:, 1:] == RESPONSE
    with torch.no_grad():
        told, expected, _ = teacher.teach(batch.ids, wanted)
        logits = model.get_output_embeddings()(states[:, :-1][wanted])
    real = batch.kinds[:, None, :, None] == RESPONSE
    for mine, theirs in zip(kvs[0], expected[0], strict=True):
        torch.testing.assert_close(mine * real, theirs * real, atol=0.02, rtol=0.02)  # kept in bf16
    torch.testing.assert_close(logits, told, atol=0.2, rtol=0.05)


@pytest.mark.parametrize("kind", matrix(["glide", "drafter"], 1, "trains once more"))
def test_it_learns_the_targets_distributions(kind, home, text):
    target, source = tiny_target("qwen3"), source_for(kind, text)
    before = network("qwen3").model.embed_tokens.weight
    model = network("qwen3")
    place, losses, logged = train_and_log(kind, home / "run", model, source, SOFT)
    assert torch.equal(model.model.embed_tokens.weight, before), "the target's own stay as they were"
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5]) and logged[-1]["acceptance"] > logged[0]["acceptance"]
    assert place == own_place(kind, target.key)
    drafted = load_part(target, kind).drafted.tolist()
    assert len(drafted) == 200 and drafted == sorted({*drafted})
    assert {token for document in source.chunk(0) for token in document.ids} <= {*drafted}


def test_a_resumed_run_drafts_the_tokens_that_it_began_with(home, text):
    def run(folder: str, documents: int) -> DrafterTraining:
        source = source_for("glide", text)
        source.documents = documents
        made = DrafterTraining("glide", home / folder, network("llama"), "tiny", source, SOFT, 0)
        made.open(True)
        return made

    first = run("run", 12)
    first.train_step(0.1)
    first.draft.drafted[-1] = VOCAB - 1
    first.save()
    second = run("run", 12)
    assert second.draft.drafted[-1] == VOCAB - 1
    head = second.teacher.model.get_output_embeddings().weight
    assert torch.equal(second.draft.head.weight, head[second.draft.drafted.long()])


def test_a_glimpse_may_begin_as_the_target_looks(home, text):
    model = network("llama")
    source = source_for("glide", text)
    run = DrafterTraining("glide", home / "run", model, "tiny", source, replace(SOFT, copied=True, kv_layer=1), 0)
    attention, glimpse = model.model.layers[1].self_attn, run.draft.layers[0].glimpse
    assert torch.equal(glimpse.query.weight, attention.q_proj.weight)
    torch.testing.assert_close(glimpse.out.weight, attention.o_proj.weight * FAINT)
    with pytest.raises(UserError, match="of the target's width alone"):
        DrafterTraining("drafter", home / "other", model, "tiny", source, replace(SOFT, copied=True), 0)


def test_the_command_says_what_does_not_go_together(home, text, capsys):
    model = save_model(home / "model")
    common = ["train", "glide", "--model", model, "--data", str(text), "--steps", "2", "--out", str(home / "run")]
    assert "needs its embedding and head" in refusal(capsys, *common, "--soft-labels")
    options = ["--soft-labels", "--embeddings", "target", "--draft-vocab", "100", "--batch-tokens", "600"]
    assert cli.main([*common, *options, "--states", str(home / "states"), "--validate-steps", "1"]) == 0
    assert (home / "states").is_dir() and (home / "run" / "part" / WEIGHTS).is_file()
