"""Training heads on tiny frozen targets: what is learnt, from which states, and their command."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from decoders import Prompt, find_method, generate
from decoders.model.files.shape import ModelShape
from decoders.parts import load_part, own_place, read_part
from specviz import cli
from specviz.extras.heads.heads import ParallelHeads
from specviz.extras.training.batches import PROMPT, RESPONSE, TrainingDocument, pad
from specviz.extras.training.heads import RANKS, DivergenceLesson, Recipe, places_of, rank_tokens
from specviz.extras.training.learning import HeadDivergence, divergences, muon_and_adamw, position_weights
from specviz.extras.training.prompt_tokens import label_weights
from specviz.extras.training.states import States
from specviz.extras.training.tests.training import HEAD_KINDS, run_of, source_for, train_and_log
from tests.command import refusal
from tests.models import network, prompt_ids, save_model, tiny_target
from tests.tiers import matrix

NAMES = tuple(HEAD_KINDS)
PARALLEL = ("medusa", "hydra")
pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def source(text):
    return source_for("medusa", text)


def lesson_of(kind, tmp_path, *, hard=False, draft_vocab=0):
    """Two short documents, an answer in each, and a random head of this kind before them."""
    model = network("llama")
    documents = [
        TrainingDocument(tuple(prompt_ids(seed, length)), (PROMPT,) * 5 + (RESPONSE,) * (length - 5))
        for seed, length in ((1, 20), (2, 13))
    ]
    batch = pad(documents, 0)
    heads = HEAD_KINDS[kind].network(ModelShape.of(model.config), Recipe(heads=3, draft_vocab=draft_vocab), 0).float()
    generator = torch.Generator().manual_seed(1)
    for parameter in heads.parameters():
        parameter.data.normal_(0, 0.1, generator=generator)
    if draft_vocab:
        heads.drafted.copy_(torch.arange(5, 5 + draft_vocab))
    heads.share(model.get_input_embeddings().weight, model.get_output_embeddings().weight)
    kept = States(model, (), tmp_path / "states").read(batch)
    weights = label_weights(batch, position_weights(batch, 0, 0, 0, 0), 3)
    rows, at = (weights[..., 0] > 0).nonzero().T
    return model, batch, DivergenceLesson(heads, batch.ids, kept, rows, at, weights[rows, at], hard=hard)


# --- what is learnt


@pytest.mark.parametrize("kind", PARALLEL)
@pytest.mark.parametrize("draft_vocab", [0, 40])
def test_the_loss_is_the_sum_of_divergences_from_the_targets_own_words(kind, draft_vocab, tmp_path):
    """Head i at position p guesses token p + 2 + i; its label is what the target says at position p + 1 + i."""
    model, batch, lesson = lesson_of(kind, tmp_path, draft_vocab=draft_vocab)
    heads, expected = lesson.network, 0.0
    chosen = slice(None) if not draft_vocab else heads.drafted.long()
    with torch.no_grad():
        out = model(input_ids=batch.ids, output_hidden_states=True)
    states, table = out.hidden_states[-1].to(torch.bfloat16).float(), model.get_input_embeddings().weight
    head = model.get_output_embeddings().weight[chosen]
    for i in range(3):
        losses = []
        for row, length in ((0, 20), (1, 13)):
            for p in range(4, length - 2 - i):  # the answer begins at position 5
                read = [states[row, p], *(table[batch.ids[row, p + 1 + j]] for j in range(i + 1))]
                x = torch.cat(read) if kind == "hydra" else states[row, p]
                block = heads.heads[i][0]
                made = heads.outputs[i](states[row, p] + F.silu(block.linear(x)))
                told = (head @ states[row, p + 1 + i]).log_softmax(-1)
                losses.append(F.kl_div((head @ made).log_softmax(-1), told, reduction="sum", log_target=True))
        expected += torch.stack(losses).mean()
    got = HEAD_KINDS[kind].loss(lesson)
    assert got.item() == pytest.approx(expected.item(), rel=1e-4)
    mine = torch.autograd.grad(got, heads.outputs[1].weight, retain_graph=True)[0]
    assert torch.allclose(mine, torch.autograd.grad(expected, heads.outputs[1].weight)[0], atol=1e-5)


@pytest.mark.parametrize("draft_vocab", [0, 20])
def test_hard_labels_are_the_texts_own_tokens(draft_vocab, tmp_path):
    """Medusa-1: cross-entropy, labels shifted by 2 + i; a token that cannot be drafted teaches nothing."""
    _, batch, lesson = lesson_of("medusa", tmp_path, hard=True, draft_vocab=draft_vocab)
    heads, expected = lesson.network, 0.0
    for i in range(3):
        losses = []
        for row, length in ((0, 20), (1, 13)):
            for p in range(4, length - 2 - i):
                logits = heads.say(i, heads.state(i, lesson.states[row, p], None))
                said = int(batch.ids[row, p + 2 + i])
                place = said if not draft_vocab else heads.drafted.tolist().index(said) if said in heads.drafted else -1
                if place >= 0:
                    losses.append(F.cross_entropy(logits[None], torch.tensor([place])))
        expected += torch.stack(losses).mean().item()
    assert HEAD_KINDS["medusa"].loss(lesson).item() == pytest.approx(expected, rel=1e-4)


def test_a_heads_divergence_is_exact_in_any_number_of_rows():
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(230, 8, generator=generator, requires_grad=True)
    head, p = torch.randn(30, 8, generator=generator), torch.randn(7, 30, generator=generator).softmax(-1)
    index, weights = torch.randint(7, (230,), generator=generator), torch.rand(230, generator=generator)
    entropy = -(p * p.log()).sum(-1)
    got = HeadDivergence.apply(states, head, p, entropy, index, weights)
    logs = (states @ head.T).log_softmax(-1)
    want = (F.kl_div(logs, p[index], reduction="none").sum(-1) * weights).sum()
    assert got.item() == pytest.approx(want.item(), rel=1e-5)
    mine, theirs = (torch.autograd.grad(loss * 3, states, retain_graph=True)[0] for loss in (got, want))
    assert torch.allclose(mine, theirs, atol=1e-5)
    apart, slopes = divergences(states @ head.T, p[index], weights)  # as a GPU computes it
    assert ((apart - entropy[index]) * weights).sum().item() == pytest.approx(want.item(), rel=1e-5)
    assert torch.allclose(slopes @ head * 3, theirs, atol=1e-5)


def test_ranks_and_places():
    head = torch.eye(4)
    states = torch.tensor([[0.1, 0.4, 0.3, 0.2], [4.0, 3.0, 2.0, 1.0]])
    assert rank_tokens(states, head, torch.tensor([2, 3])).tolist() == [1, 3]
    assert rank_tokens(states, head, torch.tensor([-1, 0])).tolist() == [RANKS, 0], (
        "what cannot be drafted is never a guess"
    )
    assert places_of(torch.tensor([[5, 6], [9, 5]]), torch.tensor([5, 9])).tolist() == [[0, -1], [1, 0]]


def test_states_of_layers_are_the_targets_own_and_what_others_want_stays(tmp_path):
    model = network("llama")
    batch = pad([TrainingDocument(tuple(prompt_ids(1, 20)), (RESPONSE,) * 20)], 0)
    with torch.no_grad():
        hidden = model(input_ids=batch.ids[:, :20], output_hidden_states=True).hidden_states
    first = States(model, (1,), tmp_path)
    keys = first.read(batch)["keys.1"]
    read = States(model, (), tmp_path, layers=(0, 2)).read(batch)
    on_gpu = States(model, (1,), tmp_path, layers=(0, 2))
    on_gpu.on_cpu = False
    computed = on_gpu.read(batch)
    for name, tensor in {**read, "keys.1": keys}.items():
        assert tensor.shape == computed[name].shape and torch.allclose(tensor, computed[name], atol=0.05), name
    for layer in (0, 2):
        assert torch.allclose(read[f"hidden.{layer}"][0, :20], hidden[layer][0], atol=0.02), "kept in bf16"
    assert torch.allclose(read["states"][0, :20], hidden[-1][0], atol=0.05)
    assert len(list(tmp_path.iterdir())) == 1
    again = States(model, (1,), tmp_path)
    assert torch.equal(again.read(batch)["keys.1"], keys) and again.target is None, "nothing is computed twice"


@pytest.mark.parametrize("kind", PARALLEL)
def test_a_dimension_that_is_large_in_every_state_is_no_lever_in_scaled_heads(kind, tmp_path):
    """States are read in units of their spread and embeddings in units of their size, so two dimensions 60 times as
    large as the others do not decide how far an optimiser step moves what the heads make.
    """
    model, _, lesson = lesson_of(kind, tmp_path)
    states = lesson.states.clone()
    states[..., :2] += 60 * states.std()
    moved = dict[bool, float]()
    for scaled in (True, False):
        config = HEAD_KINDS[kind].network(ModelShape.of(model.config), Recipe(heads=3), 0).config
        assert config.scaled
        heads = ParallelHeads(replace(config, scaled=scaled), 0)
        HEAD_KINDS[kind].begin(heads, model)
        HEAD_KINDS[kind].fit(heads, lambda: states.flatten(0, 1))
        heads.share(model.get_input_embeddings().weight, model.get_output_embeddings().weight)
        if scaled:
            embedded = heads.embedding(lesson.ids)[:, :, None]
            heads.heads[0][0].linear.bias.data.zero_()  # its weight is 0 at first
            read = heads.state(0, states, embedded if kind == "hydra" else None)
            assert torch.allclose(read.mean((0, 1)), torch.zeros(64), atol=1e-4)
            assert torch.allclose(read.std((0, 1)), torch.ones(64), atol=0.05)
            assert float((embedded / heads.size).detach().pow(2).mean()) == pytest.approx(1, rel=0.2)
        taught = replace(lesson, network=heads, stored_states={**lesson.stored_states, "states": states})
        HEAD_KINDS[kind].loss(taught).backward()
        muon_and_adamw(heads, heads, 0.1, 1e-3, half=False).step(1.0)
        moved[scaled] = float(torch.stack(list(HEAD_KINDS[kind].guesses(taught))).detach().pow(2).mean().sqrt())
    assert 5 * moved[True] < moved[False], moved


# --- runs


@pytest.mark.parametrize("kind", matrix(NAMES, ("hydra",), "trains the other kinds"))
def test_training_lowers_the_loss_and_makes_a_part_that_drafts(kind, tmp_path, source):
    kept, _, lines = train_and_log(kind, tmp_path / "run", network("llama"), source, steps=36)
    assert lines[-1]["held_out_loss"] < lines[0]["held_out_loss"]
    assert lines[-1]["top5"][0] > lines[0]["top5"][0] - 0.02 and all(sum(row) <= 1.001 for row in lines[-1]["ranks"])
    part = read_part(kept)
    assert part.kind == kind and part.training["steps"] == 36 and part.training["log"][-1]["ranks"]
    target = tiny_target("llama")
    assert kept == own_place(kind, target.key)
    assert load_part(target, kind).config == part.config
    method = next(name for name in (kind, "eagle2") if find_method(name).missing(target) is None)
    prompt = Prompt.from_ids(prompt_ids(3))
    assert generate(target, prompt, method, max_new_tokens=8) == generate(target, prompt, max_new_tokens=8)


def test_validation_counts_the_targets_first_choices(tmp_path, source):
    """By brute force, one position after another."""
    run = run_of("medusa", tmp_path / "run", source, draft_vocab=100)
    for _ in range(4):
        run.train_step(0.0)
    line, heads, model = run.validate(), run.network, run.model
    hits, count = torch.zeros(2, RANKS), 0
    for document in source.held_out():
        ids = torch.tensor([document.ids])
        states = run.states.read(pad([document], 0))["states"][0]
        with torch.no_grad():
            firsts = model.get_output_embeddings()(states).argmax(-1)
        for p in range(ids.shape[1] - 3):
            count += 1
            for i in range(2):
                order = heads.drafted[heads.say(i, heads.state(i, states[p], None)).argsort(descending=True)].tolist()
                rank = order.index(int(firsts[p + 1 + i])) if int(firsts[p + 1 + i]) in order else RANKS
                if rank < RANKS:
                    hits[i, rank] += 1
    assert line["ranks"][1] == pytest.approx((hits[1] / count).tolist(), abs=2e-3)
    assert line["top5"][1] == pytest.approx(float(hits[1, :5].sum() / count), abs=2e-3)


def test_the_command_trains_draws_and_resumes(tmp_path, text, capsys):
    model, out = save_model(tmp_path / "model"), tmp_path / "out"
    args = ["train", "hydra", "--model", model, "--data", str(text), "--out", str(out), "--heads", "2",
            "--batch-tokens", "600", "--validate-steps", "4", "--draft-vocab", "90", "--rate", "0.05"]  # fmt: skip
    assert cli.main([*args, "--steps", "4"]) == 0
    told = capsys.readouterr()
    assert "held-out accuracy by distance: top-1" in told.err and "holds the part" in told.out
    assert "loss, summed over distances" in (out / "curves.html").read_text("utf-8")
    assert cli.main([*args, "--steps", "6"]) == 0
    training = read_part(out / "part").training
    assert training["steps"] == 6 and training["matrix_lr"] == 0.05
    assert "has blocks 1, not 2" in refusal(capsys, *args, "--steps", "7", "--blocks", "2")


def test_a_target_of_another_family_is_refused_in_a_sentence(tmp_path, source):
    from decoders import UserError

    with pytest.raises(UserError, match="heads cannot be trained for 'gpt2' models"):
        run_of("medusa", tmp_path / "run", source, family="gpt2")
