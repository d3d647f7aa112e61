"""EAGLE's heads learn what they do when they draft: unrolled steps are a draft's, losses those of the equations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from decoders import Prompt, generate
from decoders.draft.needs import Needs
from decoders.parts import Part, load_part, own_place, save_part
from specviz.extras.heads.eagle_head import EagleHead
from specviz.extras.heads.eagle_lesson import Eagle, Eagle3, Unroll, columns
from specviz.extras.heads.eagle_run import EagleRun
from specviz.extras.training.heads import DivergenceLesson, Recipe
from specviz.extras.training.learning import muon_and_adamw
from tests.drafts import learnt_states
from tests.models import VOCAB, prompt_ids, session_behind

from .tiny_parts import tiny_eagle

STEPS = 4


def lesson_of(target: Any, kind: str, seed: int = 1, **options: Any) -> tuple[DivergenceLesson, list[list[int]]]:
    """Two texts with positions to learn from, and what a target's states of them are."""
    head = tiny_eagle(target, kind, **options)
    texts = [prompt_ids(seed, 22), prompt_ids(seed + 1, 22)]
    rows, at = torch.tensor([0, 0, 0, 1]), torch.tensor([3, 9, 14, 6])
    states = learnt_states(target, head, texts)
    weights = torch.tensor([[1.0, 1.0, 1.0, 0.0], [1.0, 0.3, 0.3, 0.3], [1.0] * 4, [0.5, 0.5, 0.0, 0.0]])
    return DivergenceLesson(head, torch.tensor(texts), states, rows, at, weights, recipe=Recipe(unroll=STEPS)), texts


@pytest.mark.parametrize("kind", ["eagle", "eagle3"])
def test_unrolled_steps_are_those_of_a_draft(target, kind):
    """At column t: the states of a chain drafted with the text's own tokens, behind the text up to t + 1."""
    lesson, texts = lesson_of(target, kind)
    entry = Eagle3() if kind == "eagle3" else Eagle()
    guesses = list(entry.guesses(lesson))
    assert len(guesses) == STEPS
    run = EagleRun(lesson.network)
    for place, (row, t) in enumerate(zip(lesson.rows.tolist(), lesson.at.tolist(), strict=True)):
        session = session_behind(target, texts[row][: t + 2], 64, Needs(layers=lesson.network.config.features))
        logits = [run.read(session.context)]
        for step in range(1, STEPS):
            logits.append(run.extend(torch.tensor([texts[row][t + 1 + step]]), torch.tensor([0]))[0])
        for said, guess in zip(logits, guesses, strict=True):
            assert torch.allclose(lesson.network.head(guess[place]), said, atol=2e-4)


def test_a_table_of_columns_is_filled_up():
    table, chosen = columns(torch.tensor([1, 1, 3]), torch.tensor([4, 7, 2]), 4)
    assert table.tolist() == [[0, 0], [4, 7], [0, 0], [2, 0]]
    assert chosen.tolist() == [[False, False], [True, True], [False, False], [True, False]]


def divergence(lesson: DivergenceLesson, place: int, distance: int, guess: torch.Tensor) -> float:
    """KL(target ‖ head) of one guess, over the tokens that can be drafted."""
    row, t = int(lesson.rows[place]), int(lesson.at[place])
    head = lesson.network.head.weight
    p, q = ((head @ state).log_softmax(0) for state in (lesson.stored_states["states"][row, t + distance], guess))
    return float((p.exp() * (p - q)).sum())


def test_the_third_ones_loss_decays_with_the_steps(target):
    lesson, _ = lesson_of(target, "eagle3", draft_vocab=100)
    guesses, wanted = list(Eagle3().guesses(lesson)), 0.0
    for step, guess in enumerate(guesses):
        weights = lesson.weights[:, step]
        each = torch.tensor([divergence(lesson, place, step + 1, guess[place]) for place in range(4)])
        wanted += 0.8**step * float((each * weights).sum() / weights.sum())
    assert float(Eagle3().loss(lesson)) == pytest.approx(wanted, rel=1e-3)


@pytest.mark.parametrize("own_states", [False, True])
def test_the_first_ones_loss_imitates_the_next_states(target, monkeypatch, own_states):
    """SmoothL1, and a tenth of the divergence; the features are noisy, the truth is not. On its own states, those of
    the step before, it learns the states and words after the next one; as in the paper, the next ones alone.
    """
    lesson, _ = lesson_of(target, "eagle")
    lesson = replace(lesson, recipe=replace(lesson.recipe, own_states=own_states))
    monkeypatch.setattr(torch, "rand_like", lambda x: torch.full_like(x, 0.5))  # no noise
    guesses, wanted = list(Eagle().guesses(lesson)), 0.0
    for step, made in enumerate(guesses[: STEPS if own_states else 1]):
        weights = lesson.weights[:, step]
        apart = torch.stack([
            F.smooth_l1_loss(made[place], lesson.stored_states["states"][row, min(t + 1 + step, 21)])
            for place, (row, t) in enumerate(zip(lesson.rows.tolist(), lesson.at.tolist(), strict=True))
        ])  # fmt: skip
        told = torch.tensor([divergence(lesson, place, step + 1, made[place]) for place in range(4)])
        wanted += 0.8**step * float(((apart + 0.1 * told) * weights).sum() / weights.sum())
    assert float(Eagle().loss(lesson)) == pytest.approx(wanted, rel=1e-3)
    monkeypatch.setattr(torch, "rand_like", lambda x: torch.ones_like(x))
    noisy = Unroll(lesson, lesson.features + 0.1 * 512 / 22).guess
    assert not torch.allclose(noisy, guesses[0], atol=1e-2)
    assert float(Eagle().loss(lesson)) != pytest.approx(wanted, rel=1e-3)


def test_a_dimension_that_is_large_in_every_state_is_no_lever_in_a_scaled_head(target):
    """Two dimensions lie 60 times the others' size away from 0, as SmolLM2's do. One optimiser step moves what a scaled
    head makes by a fraction of the states' spread; without scaling, by several times it.
    """
    lesson, _ = lesson_of(target, "eagle")
    states = lesson.states.clone()
    states[..., :2] += 60 * states.std()
    moved = dict[bool, float]()
    for scaled in (True, False):
        config = Eagle().network(target.shape, Recipe(mlp=32), 0).config
        head = EagleHead(replace(config, scaled=scaled)).requires_grad_(True)
        Eagle().begin(head, target.model)
        head.share(target.embeddings.weight, target.head.weight)
        if scaled:
            Eagle().fit(head, lambda: states.flatten(0, 1))
            assert torch.allclose(head.stands_for(head.read(states)), states, atol=1e-4)
        taught = replace(lesson, network=head, stored_states={**lesson.stored_states, "states": states})
        before = next(Eagle().guesses(taught)).detach()
        Eagle().loss(taught).backward()
        muon_and_adamw(head, head, 0.1, 1e-3, half=False).step(1.0)
        after = next(Eagle().guesses(taught)).detach()
        moved[scaled] = float(((after - before) / states.std((0, 1))).pow(2).mean().sqrt())
    assert moved[True] < 1 < 5 * moved[True] < moved[False], moved


@pytest.mark.parametrize("kind", ["eagle", "eagle3"])
def test_a_new_head_begins_as_the_targets_own_next_choice(target, kind):
    """The last state that it reads goes through: no layer adds anything yet, and (EAGLE-1) a token half as strong."""
    entry = Eagle3() if kind == "eagle3" else Eagle()
    head = entry.network(target.shape, Recipe(mlp=32, draft_vocab=100), 0).requires_grad_(False)
    assert (head.config.mlp, head.config.draft_vocab, len(head.drafted)) == (32, 100, 100)
    entry.begin(head, target.model)
    head.share(target.embeddings.weight, target.head.weight)
    lesson, _ = lesson_of(target, kind)
    features = lesson.features
    cos, sin = head.config.rotary(22, features)
    states = head(head.read(features), lesson.ids, cos, sin)
    last = features[..., -64:]
    if kind == "eagle3":
        assert torch.allclose(states, last, atol=1e-5)
        assert torch.equal(head.norm.weight, target.model.model.norm.weight)
    else:
        token = (states - last).pow(2).mean().sqrt()
        assert token == pytest.approx(0.5 * target.model.model.norm.weight.mean().item(), rel=0.1)


def test_what_learning_leaves_drafts(target, home):
    """A few steps on one text: the loss falls, and the part drafts what the target would write."""
    for kind, entry in (("eagle", Eagle()), ("eagle3", Eagle3())):
        lesson, texts = lesson_of(target, kind)
        head = lesson.network.requires_grad_(True)
        optimiser, losses = torch.optim.AdamW(head.parameters(), 3e-3), []
        for _ in range(15):
            loss = entry.loss(lesson)
            loss.backward()
            optimiser.step()
            optimiser.zero_grad()
            losses.append(loss.item())
        assert losses[-1] < 0.8 * losses[0]
        part = Part(kind, target.key, target.name, head.config, {"steps": 15})
        save_part(part, head.state_dict(), own_place(kind, target.key), dtype=torch.float32)
        loaded = load_part(target, kind)
        assert {*loaded.state_dict()} == {*head.state_dict()} and loaded.config.vocab == VOCAB
        assert len(generate(target, Prompt.from_ids(texts[0]), "eagle2" if kind == "eagle" else kind, max_new_tokens=6))
