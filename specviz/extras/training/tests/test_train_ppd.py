"""Training prompt tokens on tiny targets: labels, masks, the frozen target, the ablations, their command."""

from __future__ import annotations

import json
from functools import partial

import pytest
import torch
from transformers import DynamicCache

from decoders import Prompt, UserError, find_method, generate, load_target
from decoders.draft.draft import Draft
from decoders.draft.needs import Needs
from decoders.draft.tree import DraftTree
from decoders.model.state.cache_name import cache_input
from decoders.parts import find_part, load_part, own_place, read_part
from decoders.prompt_tokens.tokens import MASKS, visibility
from specviz import cli
from tests.command import refusal
from tests.models import network, prompt_ids, session_behind, tiny_target
from tests.tiers import matrix

from ..batches import PROMPT, RESPONSE, TrainingDocument, pad
from ..frozen_target import FrozenTarget
from ..learning import cosine_factor, position_weights
from ..prompt_tokens import FIRST_STAGE, SECOND_RATE, choose_points, divergence, label_weights
from .training import run_of, source_for, train_and_log, train_kind

TRAINABLE = ("llama", "mistral", "mistral-window", "qwen2", "qwen2-window", "qwen3")
ALL = {"prefix": 2, "exits": 2, "head": "one-stage", "learned": True}
pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def source(text):
    return source_for("ppd", text)


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
    batch = pad([TrainingDocument(tuple(range(9)), kinds)], 0)
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
    documents = every.batch[:, None].expand_as(every.at)[every.mask].tolist()
    got = set(zip(documents, every.at[every.mask].tolist(), strict=True))
    assert got == {(0, p) for p in range(5, 40)} | {(2, p) for p in range(50, 55)}
    assert every.weights[3, 0].tolist() == pytest.approx([0.3, 0.0]) and int(every.mask.sum()) == 40
    few = choose_points(weights, 7, 16, torch.Generator().manual_seed(1))
    assert int(few.mask.sum()) == 7
    assert torch.equal(few.at, choose_points(weights, 7, 16, torch.Generator().manual_seed(1)).at)


@pytest.mark.parametrize(
    ("family", "options"),
    matrix(
        [
            *((family, {}) for family in TRAINABLE),
            *(("llama", {"mask": mask, "learned": mask == "encoder"}) for mask in MASKS[1:]),
            *((family, ALL) for family in TRAINABLE),
            *(("llama", {name: value}) for name, value in ALL.items() if name != "learned"),
        ],
        6,
        "every option alone, and all of them on every family",
    ),
)
def test_training_sees_what_decoding_sees(family, options, tmp_path, source):
    """Guesses and labels of training against the engine's probes at the same places: the one forward that all of
    decoding rests on, and the label of distance i is the target's own distribution i positions on."""
    run = run_of("ppd", tmp_path, source, family, tokens=3, vectors=2, **options)
    noise = torch.Generator().manual_seed(0)
    with torch.no_grad():  # away from the beginning, where a head is the target's
        for parameter in run.prompts.parameters():
            parameter += 0.3 * parameter.abs().mean() * torch.randn(parameter.shape, generator=noise)
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
        torch.testing.assert_close(guesses[number], prompts.guesses(scored.probe_logits), atol=3e-4, rtol=2e-4)
        own = target.reference_logits(tokens)[at + 1 : at + 4].float()
        torch.testing.assert_close(labels[index[number]], own, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("options", [{}, {"mask": "encoder"}, ALL])
def test_gradients_are_those_of_one_forward_per_place(options, tmp_path, source):
    """The joined attention's backward pass against autograd through the model's own forward, path by path."""
    run, model = run_of("ppd", tmp_path, source, "qwen3", tokens=2, vectors=2, **options), network("qwen3")
    ids = torch.tensor([prompt_ids(1, 30)])
    weights = torch.zeros(1, 30, 2)
    weights[0, [4, 20]] = 1.0
    guesses, *_ = run.guess(ids, choose_points(weights, 99, run.chunk, torch.Generator()))
    mix = torch.randn(guesses.shape, generator=torch.Generator().manual_seed(0))
    (guesses * mix).sum().backward()
    prompts = run.prompts
    got = {name: parameter.grad for name, parameter in prompts.named_parameters()}
    prompts.zero_grad()
    before, total = 2 * run.recipe.prefix, torch.zeros(())
    states: list[torch.Tensor] = []
    for layer in model.model.layers:
        layer.register_forward_hook(lambda *said: states.append(said[2]))
    for number, at in enumerate((4, 20)):
        length = at + 1
        allowed = torch.ones(length + 4, before + length + 4, dtype=torch.bool).tril(before)
        allowed[:, :before] = False
        for row in range(4):
            allowed[length + row, row // 2 * run.recipe.prefix : (row // 2 + 1) * run.recipe.prefix] = True
        allowed[length:, before + length :] = torch.from_numpy(visibility(run.config))
        bias = torch.zeros(allowed.shape).masked_fill_(~allowed, torch.finfo().min)[None, None]
        cache = DynamicCache()
        for layer in range(3 if prompts.prefix else 0):
            cache.update(prompts.prefix_keys[layer][None], prompts.prefix_values[layer][None], layer)
        x = torch.cat([model.model.embed_tokens(ids[0, :length]), prompts.embeddings.flatten(0, 1)])[None]
        places = torch.tensor([[*range(length), *(length + row // 2 for row in range(4))]])
        states.clear()
        model(inputs_embeds=x, attention_mask=bias, position_ids=places, **cache_input(model, cache))
        joining = torch.ones(1) if prompts.joining is None else prompts.joining
        state = model.model.norm(sum(w * s for w, s in zip(joining, states[-len(joining) :], strict=True)))
        head = model.lm_head.weight if prompts.head is None else prompts.head
        by_vector = (state[0, length:] @ head.T).unflatten(0, (2, 2))
        share = torch.full((2,), 0.5) if prompts.weights is None else prompts.weights
        total = total + (torch.einsum("mnv,n->mv", by_vector, share) * mix[number]).sum()
    total.backward()
    assert got.keys() == dict(prompts.named_parameters()).keys()
    for name, parameter in prompts.named_parameters():
        torch.testing.assert_close(got[name], parameter.grad, atol=2e-3, rtol=1e-3)


def test_the_frozen_target_is_the_target():
    for family in TRAINABLE:
        model, ids = network(family), torch.tensor([prompt_ids(3, 50)])
        frozen = FrozenTarget(model)
        with torch.no_grad():
            expected = model(input_ids=ids, use_cache=False).logits
            torch.testing.assert_close(frozen.head(frozen.read(ids).states), expected, atol=2e-4, rtol=1e-4)


def test_hard_labels_are_the_texts_own_tokens(tmp_path, source):
    run = run_of("ppd", tmp_path, source, hard_labels=True)
    ids = torch.tensor([prompt_ids(1, 20)])
    weights = torch.zeros(1, 20, 3)
    weights[0, 5] = 1.0
    points = choose_points(weights, 9, run.chunk, torch.Generator())
    losses, (guesses, *_) = run.losses(ids, points, True), run.guess(ids, points)
    expected = -guesses[0].log_softmax(-1)[torch.arange(3), ids[0, 7:10]]
    torch.testing.assert_close(losses[0], expected)


# --- the loop


@pytest.mark.slow("trains until guesses hold")
def test_training_lowers_the_loss_and_makes_a_part_that_guesses(tmp_path, source):
    model = network("qwen3")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    place, losses, logged = train_and_log("ppd", tmp_path / "run", model, source)
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
    run = run_of("ppd", tmp_path, source)
    numbers = run.validate()
    target, prompts = tiny_target("llama"), run.prompts.requires_grad_(False)
    right = counted = 0
    for document in source.held_out():
        ids = list(document.ids)
        own = target.reference_logits(ids).argmax(-1).tolist()
        for at in range(len(ids) - 2):
            session = session_behind(target, ids[: at + 1], 64)
            scored = session.score(Draft(DraftTree.chain(ids[at]), probes=prompts.probes(0, 1, 0)))
            assert scored.probe_logits is not None
            right += own[at + 1] in prompts.guesses(scored.probe_logits)[0].topk(5).indices.tolist()
            counted += 1
        if counted > 150:
            break
    else:
        assert numbers["top5"][0] == pytest.approx(right / counted, abs=1e-3)
        return
    assert numbers["top5"][0] == pytest.approx(right / counted, abs=0.1)


# --- the ablations of appendix D


def test_what_ablations_begin_with(tmp_path, source):
    """A prefix token has what an ordinary token alone leaves in the cache, a head is the target's, and joined states
    weigh the same; the embeddings are those of a run without them."""
    run = run_of("ppd", tmp_path, source, "qwen3", **ALL)
    model, prompts = network("qwen3"), run.prompts
    table = model.get_input_embeddings().weight
    assert torch.equal(prompts.head, model.lm_head.weight) and prompts.exit_weights.tolist() == [0.5, 0.5]
    assert torch.equal(prompts.embeddings, run_of("ppd", tmp_path / "plain", source, "qwen3").prompts.embeddings)
    drawn = torch.Generator().manual_seed(0)
    torch.randint(len(table), (3, 1), generator=drawn)
    ids = torch.randint(len(table), (6, 1), generator=drawn)
    cache = DynamicCache()
    with torch.no_grad():
        model(input_ids=ids, **cache_input(model, cache), use_cache=True)
    for layer, keys in enumerate(prompts.prefix_keys):
        torch.testing.assert_close(keys, cache.layers[layer].keys[:, :, 0].transpose(0, 1), atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(
            prompts.prefix_values[layer], cache.layers[layer].values[:, :, 0].transpose(0, 1), atol=1e-5, rtol=1e-4
        )


@pytest.mark.parametrize(
    "options",
    matrix([{"prefix": 1}, {"exits": 2}, {"head": "one-stage"}, {"head": "two-stage"}], 1, "trains once more"),
)
def test_every_ablation_learns_and_decodes(options, tmp_path, source):
    losses: list[float] = []
    model, target = network("qwen3"), tiny_target("qwen3")
    run = run_of("ppd", tmp_path, source, "qwen3", validate_steps=99, **options)
    place = train_kind(
        "ppd", tmp_path / "run", model, source, run.recipe, steps=16, progress=lambda now: losses.append(now.loss)
    )
    assert sum(losses[-4:]) < 0.95 * sum(losses[:4])
    part, found = read_part(place), load_part(target, "ppd")
    assert part.config == run.config and part.training | options == part.training
    assert found.reading is not None
    for name, value in found.state_dict().items():
        assert not torch.equal(value, run.prompts.state_dict()[name]), f"{name} did not learn"
    prompt = Prompt.from_ids(prompt_ids(3))
    params = {"part": str(tmp_path / "run" / "part")}
    assert generate(target, prompt, "ppd", params, max_new_tokens=12) == generate(target, prompt, max_new_tokens=12)


def test_a_head_of_two_stages_waits(tmp_path, source):
    run = run_of("ppd", tmp_path, source, head="two-stage")
    begun = run.prompts.head.detach().clone()
    run.train_step(0.0)
    run.train_step(0.9 * FIRST_STAGE)
    assert torch.equal(run.prompts.head, begun)
    embeddings = run.prompts.embeddings.detach().clone()
    run.train_step(FIRST_STAGE)
    assert not torch.equal(run.prompts.head, begun) and not torch.equal(run.prompts.embeddings, embeddings)
    shares = [0.0, FIRST_STAGE / 2, 0.9999 * FIRST_STAGE, FIRST_STAGE, (1 + FIRST_STAGE) / 2, 1.0]
    factors = [run.factor(done) for done in shares]
    assert factors == pytest.approx([1, 0.5, 0, SECOND_RATE, SECOND_RATE / 2, 0], abs=1e-6)
    once = run_of("ppd", tmp_path / "once", source, head="one-stage")
    assert [once.factor(done) for done in shares] == [cosine_factor(0, done, 1) for done in shares]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"vectors": 0}, "1 to 16 tokens of 1 to 128 vectors"),
        ({"prefix": 17}, "17 prefix tokens per prompt token are not possible: 0 to 16"),
        ({"exits": 4}, "4 exits are not possible: the model has 3 layers"),
        ({"head": "mine"}, "head='mine' is not allowed: one of target, one-stage, two-stage"),
        ({"learned": True}, "nothing to weigh with one vector per prompt token and one exit"),
        ({"mask": "encoder"}, "makes no difference to prompt tokens of one vector"),
    ],
)
def test_settings_that_cannot_be_trained_are_refused(changes, reason, tmp_path, source):
    with pytest.raises(UserError, match=reason):
        run_of("ppd", tmp_path, source, **changes)


@pytest.mark.parametrize(("family", "name"), [("gpt2", "gpt2"), ("gemma3", "gemma3_text"), ("phi", "phi")])
def test_families_that_cannot_be_trained_are_named(tmp_path, source, family, name):
    with pytest.raises(UserError, match=f"prompt tokens cannot be trained for '{name}' models: they can for llama"):
        run_of("ppd", tmp_path, source, family)


# --- the command


@pytest.mark.slow("trains by the command, twice")
def test_the_command_trains_draws_and_resumes(tmp_path, text, model, capsys):
    out = tmp_path / "ppd"
    asked = ["train", "ppd", "--model", model, "--data", str(text), "--out", str(out), "--tokens", "2"]
    asked += ["--ensemble", "2", "--mask", "decoder", "--learned-weights", "--hard-labels"]
    asked += ["--prefix", "1", "--exits", "2", "--head", "two-stage"]
    assert cli.main([*asked, "--steps", "1"]) == 0
    said = capsys.readouterr()
    assert "held-out accuracy at distance 1/2: top-1" in said.err and "is where methods find it" in said.out
    config = read_part(out / "part").config
    assert config.to_json() == {
        "tokens": 2, "vectors": 2, "hidden": 64, "mask": "decoder", "learned": True, "prefix": 1, "cached": [3, 2, 16],
        "exits": 2, "vocab": 320,
    }  # fmt: skip
    page = (out / "curves.html").read_text()
    assert page.startswith("<!doctype html>") and "top-5, distance 2" in page
    assert cli.main([*asked, "--steps", "2"]) == 0
    assert [json.loads(line)["step"] for line in (out / "log.jsonl").read_text().splitlines()] == [1, 2]
    assert find_method("ppd").missing(load_target(model)) is None


def test_the_command_refuses_in_a_sentence(model, text, capsys):
    refuse = partial(refusal, capsys, "train", "ppd", "--model", model)
    assert "cannot read the training file" in refuse("--data", "none.txt")
    assert "not allowed with" in refuse("--steps", "3", "--minutes", "3")
    assert "'prefix' is out of range: one of ensemble, decoder" in refuse("--mask", "prefix")
    assert "--tokens" in refuse("--tokens", "17") and "--prefix" in refuse("--prefix", "17")
    given = ["--data", str(text), "--out", str(text.parent / "o"), "--steps", "1"]
    assert "4 exits are not possible: the model has 3 layers" in refuse(*given, "--exits", "4")
    assert "makes no difference" in refuse(*given, "--mask", "decoder")
    assert "there is nothing to weigh" in refuse(*given, "--learned-weights")
