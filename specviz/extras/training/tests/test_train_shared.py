"""How draft models with their target's embedding and head learn: from kept states, and the target's distributions."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from decoders import UserError
from decoders.parts import WEIGHTS, load_part, own_place
from specviz import cli
from tests.command import refusal
from tests.models import VOCAB, network, save_model, tiny_target
from tests.tiers import matrix

from .. import states as kept_states
from ..batches import RESPONSE, batches_of
from ..drafter import FAINT, DrafterTraining, Recipe
from ..states import States
from ..teacher import Teacher
from .training import source_for, train_and_log

SOFT = Recipe(batch_tokens=1500, warmup_steps=3, validate_steps=12, shared=True, draft_vocab=200, soft=True)
pytestmark = pytest.mark.usefixtures("home")


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
