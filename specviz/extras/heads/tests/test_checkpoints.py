"""Checkpoints of heads as they come: copies of a target's configuration, Git LFS pointers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from decoders import UserError
from decoders.parts import load_part
from tests.models import tiny_target
from tests.test_checkpoints import write_pointer

from .eagle_oracle import LLAMA, publish, tensors

pytestmark = pytest.mark.usefixtures("home")


@pytest.mark.parametrize("third", [True, False])
def test_a_head_whose_config_is_a_copy_of_the_targets_is_read(third: bool, tmp_path: Path) -> None:
    target = tiny_target()
    config = {**LLAMA, "num_hidden_layers": target.shape.layers, "layer_types": ["full_attention"] * 3}
    place = publish(tmp_path / "head", config, tensors(third))
    kind = "eagle3" if third else "eagle"
    assert load_part(target, kind, place).config.layers == 1
    with pytest.raises(UserError, match="says num_hidden_layers = 7, and its tensors have 1"):
        load_part(target, kind, publish(tmp_path / "other", {**LLAMA, "num_hidden_layers": 7}, tensors(third)))


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "pytorch_model.bin"])
def test_a_published_head_that_is_a_git_lfs_pointer_is_told_so(name: str, tmp_path: Path) -> None:
    place = Path(publish(tmp_path / "head", LLAMA, tensors(True)))
    for file in place.glob("*.safetensors"):
        file.unlink()
    write_pointer(place / name)
    if name == "config.json":
        save_file({"a": torch.zeros(1)}, place / "model.safetensors")
    with pytest.raises(UserError, match=f"{name} is a Git LFS pointer"):
        load_part(tiny_target(), "eagle3", place)
