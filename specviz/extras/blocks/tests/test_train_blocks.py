"""How a block drafter learns, and what it begins as."""

from __future__ import annotations

import argparse

import pytest
import torch
import transformers as hf

from decoders.draft.needs import Needs
from decoders.model.files.shape import ModelShape
from decoders.parts import Part, save_part
from specviz.commands import options
from specviz.extras.blocks import block_run
from specviz.extras.blocks.block_lesson import BlockBatch
from specviz.extras.training import train_command as train
from specviz.extras.training.heads import DivergenceLesson
from specviz.extras.training.recipes import HeadRecipe
from tests.drafts import learnt_states
from tests.models import prompt_ids, session_behind

from .tiny_parts import tiny_block

FAMILY = "qwen3"  # of the tiny target
pytestmark = pytest.mark.usefixtures("home")


def test_what_is_learnt_are_the_guesses_of_a_draft(target):
    """At every position of a batch: the states of the block that is drafted there, behind the text up to its root."""
    network = tiny_block(target, "dflash", layers=1, block=4)
    texts = [prompt_ids(1, 22), prompt_ids(2, 22)]
    rows, at = torch.tensor([0, 0, 1]), torch.tensor([3, 9, 6])
    states = learnt_states(target, network, texts)
    lesson = DivergenceLesson(network, torch.tensor(texts), states, rows, at, torch.ones(3, 3))
    guesses = torch.stack(list(BlockBatch().guesses(lesson)), 1)
    for place, (row, t) in enumerate(zip(rows.tolist(), at.tolist(), strict=True)):
        session = session_behind(target, texts[row][: t + 2], 64, Needs(layers=network.config.features))
        drafted = block_run.BlockRun(network).block(session.context)
        assert torch.allclose(guesses[place], drafted, atol=1e-4)
    assert float(BlockBatch().loss(lesson)) > 0


def test_a_new_drafter_makes_the_targets_own_keys(target):
    """Its highest state is what goes into the layer that it copies: keys and values begin as the target's."""
    network = BlockBatch().network(target.shape, HeadRecipe(), 0)
    BlockBatch().begin(network, target.model)
    layer = network.config.features[-1]
    session = session_behind(target, prompt_ids(1, 20), 64, Needs(layers=network.config.features))
    run = block_run.BlockRun(network)
    run.read(session.context)
    if layer < target.shape.layers:
        assert torch.allclose(run.cache.store[0, 0, 0, :, :19], session.context.keys(layer), atol=1e-4)
    assert not network.config.anchor and network.config.places == 7


def test_the_default_drafter_of_a_small_model_is_a_small_file(target, tmp_path, capsys):
    """SmolLM2's sizes, and what ``specviz train dflash`` takes by itself: at most 6 MB, with an MLP as wide as that of
    the layer that it begins as.
    """
    parser = argparse.ArgumentParser()
    train.add(parser)
    recipe = options.settings_of(parser.parse_args(["dflash"]), HeadRecipe)
    with pytest.raises(SystemExit):
        parser.parse_args(["dflash", "--help"])
    assert recipe.draft_vocab == 16384 and "(default: 16384)" in " ".join(capsys.readouterr().out.split())
    assert options.settings_of(parser.parse_args(["medusa"]), HeadRecipe) == HeadRecipe()
    smollm2 = hf.LlamaConfig(
        vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
        num_key_value_heads=3,
    )  # fmt: skip
    network = BlockBatch().network(ModelShape.of(smollm2), recipe, 0)
    assert (network.config.mlp, network.config.draft_vocab) == (1536, 16384)
    part = Part("dflash", "0" * 24, "smollm2", network.config)
    folder = save_part(part, network.state_dict(), tmp_path / "part", dtype=BlockBatch().dtype)
    assert sum(file.stat().st_size for file in folder.iterdir()) < 6e6
    assert BlockBatch().network(target.shape, recipe, 0).config.draft_vocab == 0, (
        "a smaller vocabulary is drafted whole"
    )
