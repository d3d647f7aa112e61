"""Training prompt tokens on tiny targets: labels, masks, the frozen target, the loop, checkpoints, bad input."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from decoders import Prompt, UserError, find_method, generate, load_target
from decoders.parts import find_part, load_part, own_place, read_part
from decoders.ppd import MASKS
from decoders.protocols import Draft, Needs
from decoders.training.batches import PROMPT, RESPONSE, Document, pad
from decoders.training.data import FileSource
from decoders.training.frozen import FrozenTarget
from decoders.training.loop import position_weights
from decoders.training.prompt_tokens import (
    Recipe,
    Run,
    choose_points,
    divergence,
    label_weights,
    train_prompt_tokens,
)
from decoders.tree import DraftTree
from specviz import cli
from specviz.commands import train as command

from .models import network, prompt_ids, tiny_target, tiny_tokenizer

TINY = Recipe(batch_tokens=600, rows=600, validate_steps=12)
TRAINABLE = ("llama", "mistral", "mistral-window", "qwen2", "qwen2-window", "qwen3")


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECVIZ_HOME", str(tmp_path / "home"))
    return tmp_path


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Path:
    """A text with little in it, so that it is learnt in a few steps."""
    path = tmp_path_factory.mktemp("data") / "text.txt"
    line = "the old lamp at the station was sold to the city museum. def total(items): return sum(items)\n"
    path.write_text(line * 160)
    return path


@pytest.fixture
def source(text):
    return FileSource(tiny_tokenizer(), [text], 0, length=48, documents=12)


def run_of(folder: Path, source, recipe: Recipe = TINY, family: str = "llama", seed: int = 0) -> Run:
    run = Run(folder, network(family), "tiny", source, recipe, seed)
    run.open(True)
    return run


# --- what is learnt


def test_the_divergence_is_from_label_to_guess():
    """P = (.5, .5), Q = (.9, .1): KL(P‖Q) = .511, KL(Q‖P) = .368 (methods.md §5)."""
    p, q = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.9, 0.1]]).log()
    assert float(divergence(p, torch.tensor([0]), q)) == pytest.approx(0.511, abs=5e-4)
    assert float(divergence(q, torch.tensor([0]), p)) == pytest.approx(0.368, abs=5e-4)
    both = divergence(torch.cat([p, q]), torch.tensor([1, 0, 0]), torch.cat([q, q, p]))
    assert both.tolist() == pytest.approx([0, 0.511, 0], abs=5e-4)


def test_a_guess_counts_as_far_as_its_own_answer_goes():
    """Kinds by position: prompt 0 to 2, answer 3 to 6, prompt 7, answer 8."""
    kinds = (PROMPT,) * 3 + (RESPONSE,) * 4 + (PROMPT, RESPONSE)
    batch = pad([Document(tuple(range(9)), kinds)], 0)
    weights = label_weights(batch, position_weights(batch, 0.0, 0.3, 0, 0), 3)[0]
    counted = {p: weights[p].tolist() for p in range(len(weights)) if weights[p].any()}
    # after position 2 comes the answer's first token 3; distance 1 guesses token 4
    assert counted == {2: [1, 1, 1], 3: [1, 1, 0], 4: [1, 0, 0]}
    some = label_weights(batch, position_weights(batch, 1.0, 0.3, 0, 0), 2)[0]
    assert some[0].tolist() == pytest.approx([0.3, 0]) and some[1].tolist() == [0, 0]


def test_points_are_chosen_once_and_packed_by_document():
    weights = torch.zeros(3, 60, 2)
    weights[0, 5:40] = 1.0
    weights[2, 50:55, 0] = 0.3
    every = choose_points(weights, 1000, 16, torch.Generator())
    assert every.batch.tolist() == [0] * 3 + [2] and every.at.shape == (4, 16)
    documents = every.batch[:, None].expand_as(every.at)[every.used].tolist()
    got = set(zip(documents, every.at[every.used].tolist(), strict=True))
    assert got == {(0, p) for p in range(5, 40)} | {(2, p) for p in range(50, 55)}
    assert every.weights[3, 0].tolist() == pytest.approx([0.3, 0.0]) and int(every.used.sum()) == 40
    few = choose_points(weights, 7, 16, torch.Generator().manual_seed(1))
    assert int(few.used.sum()) == 7
    assert torch.equal(few.at, choose_points(weights, 7, 16, torch.Generator().manual_seed(1)).at)


@pytest.mark.parametrize(
    ("family", "mask"), [*((family, MASKS[0]) for family in TRAINABLE), *(("llama", mask) for mask in MASKS[1:])]
)
def test_training_sees_what_decoding_sees(family, mask, tmp_path, source):
    """Guesses and labels of training against the engine's probes at the same places: the one forward that all of
    decoding rests on, and the label of distance i is the target's own distribution i positions on."""
    recipe = replace(TINY, tokens=3, vectors=2, mask=mask, learned=mask == "encoder")
    run = run_of(tmp_path, source, recipe, family)
    ids = torch.tensor([prompt_ids(1, 40), prompt_ids(2, 40)])
    weights = torch.zeros(2, 40, 3)
    places = [(0, 3), (0, 30), (1, 17), (1, 36)]
    for row, at in places:
        weights[row, at] = 1.0
    with torch.no_grad():
        guesses, labels, index = run.guess(ids, choose_points(weights, 99, run.chunk, torch.Generator()))
    target = tiny_target(family)
    prompts = run.prompts.requires_grad_(False)
    for number, (row, at) in enumerate(places):
        session = target.session(Needs(), 64)
        tokens = ids[row].tolist()
        session.prefill(tokens[: at + 1])
        scored = session.score(Draft(DraftTree.chain(tokens[at]), probes=prompts.probes(0, 3, 0)))
        assert scored.probe_logits is not None
        torch.testing.assert_close(guesses[number], prompts.guesses(scored.probe_logits), atol=2e-4, rtol=1e-4)
        own = target.reference_logits(tokens)[at + 1 : at + 4].float()
        torch.testing.assert_close(labels[index[number]], own, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("mask", ["ensemble", "encoder"])
def test_gradients_are_those_of_one_forward_per_place(mask, tmp_path, source):
    """The joined attention's backward pass against autograd through the model's own forward, path by path."""
    recipe = replace(TINY, tokens=2, vectors=2, mask=mask)
    run, model = run_of(tmp_path, source, recipe, "qwen3"), network("qwen3")
    ids = torch.tensor([prompt_ids(1, 30)])
    weights = torch.zeros(1, 30, 2)
    weights[0, [4, 20]] = 1.0
    guesses, *_ = run.guess(ids, choose_points(weights, 99, run.chunk, torch.Generator()))
    mix = torch.randn(guesses.shape, generator=torch.Generator().manual_seed(0))
    (guesses * mix).sum().backward()
    got = run.prompts.embeddings.grad
    table = run.prompts.embeddings.detach().clone().requires_grad_()
    from decoders.ppd import visibility

    total = torch.zeros(())
    for number, at in enumerate((4, 20)):
        length = at + 1
        allowed = torch.ones(length + 4, length + 4, dtype=torch.bool).tril()
        allowed[length:, length:] = torch.from_numpy(visibility(run.config))
        bias = torch.zeros(allowed.shape).masked_fill_(~allowed, torch.finfo().min)[None, None]
        x = torch.cat([model.model.embed_tokens(ids[0, :length]), table.flatten(0, 1)])[None]
        places = torch.tensor([[*range(length), *(length + row // 2 for row in range(4))]])
        out = model(inputs_embeds=x, attention_mask=bias, position_ids=places, use_cache=False).logits[0, length:]
        total = total + (out.unflatten(0, (2, 2)).mean(1) * mix[number]).sum()
    total.backward()
    torch.testing.assert_close(got, table.grad, atol=2e-3, rtol=1e-3)


def test_the_frozen_target_is_the_target():
    for family in TRAINABLE:
        model, ids = network(family), torch.tensor([prompt_ids(3, 50)])
        frozen = FrozenTarget(model)
        with torch.no_grad():
            expected = model(input_ids=ids, use_cache=False).logits
            torch.testing.assert_close(frozen.head(frozen.read(ids).states), expected, atol=2e-4, rtol=1e-4)


def test_hard_labels_are_the_texts_own_tokens(tmp_path, source):
    run = run_of(tmp_path, source, replace(TINY, hard_labels=True))
    ids = torch.tensor([prompt_ids(1, 20)])
    weights = torch.zeros(1, 20, 3)
    weights[0, 5] = 1.0
    losses, guesses, *_ = run.losses(ids, choose_points(weights, 9, run.chunk, torch.Generator()), True)
    expected = -guesses[0].log_softmax(-1)[torch.arange(3), ids[0, 7:10]]
    torch.testing.assert_close(losses[0], expected)


# --- the loop


def test_training_lowers_the_loss_and_makes_a_part_that_guesses(tmp_path, source):
    losses, logged = [], []

    def seen(now):
        losses.append(now.loss)
        logged.extend([now.logged] if now.logged else [])

    model = network("qwen3")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    place = train_prompt_tokens(tmp_path / "run", model, "tiny", source, steps=40, recipe=TINY, progress=seen)
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])
    assert [line["step"] for line in logged] == [12, 24, 36, 40]
    assert logged[-1]["held_out_loss"] < logged[0]["held_out_loss"]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items()), "the target is frozen"
    for line in logged:
        assert len(line["top1"]) == 3 and all(0 <= a <= b <= 1 for a, b in zip(line["top1"], line["top5"], strict=True))
        assert line["top5"] == pytest.approx([sum(row[:5]) for row in line["ranks"]], abs=5e-4)
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    target = tiny_target("qwen3")
    assert place == own_place("ppd", target.key) == find_part(target.key, "ppd")
    part = read_part(place)
    assert part == read_part(tmp_path / "run" / "part") and part.training["log"] == lines == logged
    assert part.training["steps"] == 40 and load_part(target, "ppd").config == part.config
    prompt = Prompt.from_ids(prompt_ids(3))
    assert generate(target, prompt, "ppd", max_new_tokens=8) == generate(target, prompt, max_new_tokens=8)


def test_validation_counts_what_the_guesses_say(tmp_path, source):
    """Against one forward per place."""
    run = run_of(tmp_path, source)
    found = run.validate()
    target, prompts = tiny_target("llama"), run.prompts.requires_grad_(False)
    right = counted = 0
    for document in source.held_out():
        ids = list(document.ids)
        own = target.reference_logits(ids).argmax(-1).tolist()
        for at in range(len(ids) - 2):
            session = target.session(Needs(), 64)
            session.prefill(ids[: at + 1])
            scored = session.score(Draft(DraftTree.chain(ids[at]), probes=prompts.probes(0, 1, 0)))
            assert scored.probe_logits is not None
            right += own[at + 1] in prompts.guesses(scored.probe_logits)[0].topk(5).indices.tolist()
            counted += 1
        if counted > 150:
            break
    else:
        assert found.top(5)[0] == pytest.approx(right / counted, abs=1e-3)
        return
    assert found.top(5)[0] == pytest.approx(right / counted, abs=0.1)


@pytest.mark.parametrize("options", [{}, {"vectors": 2, "mask": "encoder", "learned": True, "hard_labels": True}])
def test_a_resumed_run_is_the_uninterrupted_one(tmp_path, text, options):
    def run(folder: str) -> Run:
        source = FileSource(tiny_tokenizer(), [text], 0, length=48, documents=12)
        return run_of(tmp_path / folder, source, replace(TINY, **options), seed=5)

    def advance(made: Run, steps: int) -> None:
        for _ in range(steps):
            made.train_step(0.5)

    whole = run("whole")
    advance(whole, 7)
    first = run("parts")
    advance(first, 4)
    first.save()
    advance(first, 1)  # lost
    second = run("parts")
    assert second.step == 4
    advance(second, 3)
    assert (second.step, second.tokens, second.points) == (7, whole.tokens, whole.points)
    for name, value in whole.prompts.state_dict().items():
        assert torch.equal(value, second.prompts.state_dict()[name]), name


def test_another_run_in_the_same_folder_is_refused(tmp_path, source):
    model = network("llama")
    train_prompt_tokens(tmp_path, model, "tiny", source, steps=1, recipe=TINY)
    with pytest.raises(UserError, match="has vectors 1, not 2: give the same again"):
        train_prompt_tokens(tmp_path, model, "tiny", source, steps=2, recipe=replace(TINY, vectors=2))
    with pytest.raises(UserError, match="has target"):
        train_prompt_tokens(tmp_path, network("llama", seed=8), "other", source, steps=2, recipe=TINY)


def test_a_loss_that_is_no_number_stops_and_says_where(tmp_path, source):
    run = run_of(tmp_path, source)
    run.train_step(0.1)
    run.save()
    before = (tmp_path / "checkpoint.pt").read_bytes()
    run.prompts.embeddings.data[0, 0, 0] = float("nan")
    where = r"no number any more at step 2 \(chunk \d of text.txt, batch \d.*checkpoint of step 1"
    with pytest.raises(UserError, match=where):
        run.train_step(0.1)
    assert (tmp_path / "checkpoint.pt").read_bytes() == before


def test_a_full_disk_keeps_the_last_good_checkpoint(tmp_path, source, monkeypatch):
    train_prompt_tokens(tmp_path, network("llama"), "tiny", source, steps=1, recipe=TINY)
    good = (tmp_path / "checkpoint.pt").read_bytes()

    def full(state, path):
        Path(path).write_bytes(b"half of it")
        raise RuntimeError("[enforce fail at inline_container.cc:659] . unexpected pos 64 vs 0")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(UserError, match="the set of prompt tokens could not be written .*make room"):
        train_prompt_tokens(tmp_path, network("llama"), "tiny", source, steps=2, recipe=TINY)
    assert (tmp_path / "checkpoint.pt").read_bytes() == good


@pytest.mark.parametrize(("family", "name"), [("gpt2", "gpt2"), ("gemma3", "gemma3_text"), ("phi", "phi")])
def test_families_that_cannot_be_trained_are_named(tmp_path, source, family, name):
    with pytest.raises(UserError, match=f"prompt tokens cannot be trained for '{name}' models: they can for llama"):
        run_of(tmp_path, source, family=family)


# --- the command


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("model")
    network("llama").save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return str(folder)


def test_the_command_trains_draws_and_resumes(tmp_path, text, model, capsys):
    out = tmp_path / "ppd"
    asked = ["train", "ppd", "--model", model, "--data", str(text), "--out", str(out), "--tokens", "2"]
    asked += ["--ensemble", "2", "--mask", "decoder", "--learned-weights", "--hard-labels"]
    assert cli.main([*asked, "--steps", "1"]) == 0
    said = capsys.readouterr()
    assert "held-out accuracy at distance 1/2: top-1" in said.err and "is where methods find it" in said.out
    config = read_part(out / "part").config
    assert config.to_json() == {"tokens": 2, "vectors": 2, "hidden": 64, "mask": "decoder", "learned": True}
    page = (out / "curves.html").read_text()
    assert page.startswith("<!doctype html>") and "top-5, distance 2" in page
    assert cli.main([*asked, "--steps", "2"]) == 0
    assert [json.loads(line)["step"] for line in (out / "log.jsonl").read_text().splitlines()] == [1, 2]
    assert find_method("ppd").available(load_target(model)) is None
    assert command.MASKS == MASKS


def test_the_command_refuses_in_a_sentence(model, text, capsys):
    def refused(*args: str) -> str:
        try:
            code = cli.main(["train", "ppd", "--model", model, *args])
        except SystemExit as left:
            code = left.code
        assert code == 2
        return capsys.readouterr().err

    assert "cannot read the training file" in refused("--data", "none.txt")
    assert "not allowed with" in refused("--steps", "3", "--minutes", "3")
    assert "invalid choice: 'prefix'" in refused("--mask", "prefix")
    assert "--tokens" in refused("--tokens", "17")
