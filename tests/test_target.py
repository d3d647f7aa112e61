"""Opening models: what a wrong name, folder, dtype or device says, and what a good one gives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from decoders import Prompt, UserError, generate, load_target
from decoders.model.files.calibration import fingerprint
from decoders.model.target_model.load import stock_network

from .models import prompt_ids, save_model, tiny_target


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return Path(save_model(tmp_path_factory.mktemp("model") / "my-llama"))


def test_a_folder_opens(folder):
    target = load_target(folder)
    assert target.name == "my-llama" and target.info["dtype"] == "float32" and target.info["device"] == "cpu"
    assert target.info["layers"] == 3 and target.info["context_length"] == 512
    assert len(generate(target, Prompt.from_ids(prompt_ids(1)), "pld", max_new_tokens=5)) == 5
    assert load_target(folder, dtype="bf16").info["dtype"] == "bfloat16"


def test_configs_are_not_shared_between_targets(folder):
    first, second = load_target(folder), load_target(folder)
    assert first.model.config is not second.model.config


@pytest.mark.parametrize(
    ("model", "options", "said"),
    [
        ("./nowhere", {}, r"there is no model folder 'nowhere'"),
        ("", {"dtype": "int3"}, r"dtype 'int3' is unknown: use one of float32"),
        ("", {"device": "tpu9"}, r"device 'tpu9' is not there: use cpu"),
        ("", {"device": "cuda:99"}, r"device 'cuda:99' is not there: use cpu"),
    ],
)
def test_wrong_arguments_say_what_is_allowed(folder, model, options, said):
    with pytest.raises(UserError, match=said):
        load_target(model or folder, **options)


@pytest.mark.parametrize("lacking", ["config.json", "model.safetensors", "tokenizer"])
def test_incomplete_folders_name_what_is_missing(folder, tmp_path, lacking):
    for file in folder.iterdir():
        if not file.name.startswith(lacking):
            (tmp_path / file.name).write_bytes(file.read_bytes())
    with pytest.raises(UserError, match="is incomplete: it lacks"):
        load_target(tmp_path)


def test_a_damaged_folder_is_one_sentence(folder, tmp_path):
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "model.safetensors").write_bytes(b"not weights")
    with pytest.raises(UserError, match="could not be loaded"):
        load_target(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "unheard-of"}))
    with pytest.raises(UserError, match="could not be loaded"):
        load_target(tmp_path)


def test_a_hub_id_is_asked_of_the_hub(monkeypatch):
    """org/name reaches from_pretrained unchanged (there is no hub in the tests)."""
    from decoders.model.target_model import load as module

    asked = []
    monkeypatch.setattr(
        module.AutoConfig,
        "from_pretrained",
        lambda name, **k: asked.append(name) or (_ for _ in ()).throw(OSError("offline")),
    )
    with pytest.raises(UserError, match="hub id such as org/name"):
        load_target("org/name")
    assert asked == ["org/name"]


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "mistral-window"])
def test_the_network_to_learn_from_is_the_target(family):
    target = tiny_target(family, packed=True)
    network = stock_network(target)
    assert fingerprint(network.config, network.base_model.parameters()) == target.key
    ids = prompt_ids(3)
    found = network(input_ids=torch.tensor([ids])).logits[0].double()
    assert torch.allclose(found, target.reference_logits(ids), atol=1e-4)
