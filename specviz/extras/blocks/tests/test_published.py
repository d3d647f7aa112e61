"""Published checkpoints: told apart, sized and named before a weight is read; what cannot be used is refused."""

from __future__ import annotations

import json
import pickle
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from decoders.draft_models import published
from decoders.draft_models.published import Published
from decoders.errors import TooLarge, UserError

ATTENTION = {f"self_attn.{name}_proj.weight": (64, 64) for name in "qkvo"}
MLP = {f"mlp.{name}_proj.weight": (96, 64) for name in ("gate", "up", "down")}


def layer(place: str, *norms: str) -> dict[str, tuple[int, ...]]:
    names = {**ATTENTION, **MLP, **{f"{norm}.weight": (64,) for norm in norms}}
    return {f"{place}.{name}": shape for name, shape in names.items()}


EAGLE = {"fc.weight": (64, 128), "embed_tokens.weight": (320, 64), **layer("layers.0", "post_attention_layernorm")}
EAGLE3_NORMS = ("hidden_norm", "input_layernorm", "post_attention_layernorm")
EAGLE3 = {"fc.weight": (64, 192), "d2t": (40,), "t2d": (320,), "norm.weight": (64,), "lm_head.weight": (40, 64)}
SPECULATORS = {"speculators_model_type": "eagle3"}

FORMATS: dict[str, tuple[dict[str, Any], dict[str, tuple[int, ...]], str]] = {
    "eagle": ({"hidden_size": 64}, EAGLE, "layers.0.self_attn.q_proj.weight"),
    "eagle3": ({}, {**EAGLE3, **layer("midlayer", *EAGLE3_NORMS)}, "layers.0.hidden_norm.weight"),
    "eagle3-speculators": (SPECULATORS, {**EAGLE3, **layer("layers.0", *EAGLE3_NORMS)}, "layers.0.hidden_norm.weight"),
    "eagle3-specforge": (
        {"eagle_config": {"use_aux_hidden_state": True}}, {**EAGLE3, **layer("midlayer", *EAGLE3_NORMS)}, "d2t",
    ),
    "medusa": ({}, {"0.0.linear.weight": (64, 64), "0.0.linear.bias": (64,), "0.1.weight": (320, 64)}, "0.1.weight"),
    "medusa-2": (
        {}, {"medusa_head.0.0.linear.weight": (64, 64), "model.layers.0.input_layernorm.weight": (64,)},
        "0.0.linear.weight",
    ),
    "hydra": (
        {}, {"hydra_mlp.0.0.linear.weight": (64, 128), "hydra_lm_head.0.weight": (9, 64)}, "hydra_lm_head.0.weight",
    ),
    "hydra++": (
        {}, {"hydra_mlp.0.0.linear.weight": (64, 128), **layer("prefix_embeding_layer.layers.0", "input_layernorm")},
        "prefix_embeding_layer.layers.0.input_layernorm.weight",
    ),
}  # fmt: skip


def tensors(shapes: dict[str, tuple[int, ...]]) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {name: torch.randn(shape, generator=generator).half() for name, shape in shapes.items()}


def write(folder: Path, config: dict[str, Any], weights: dict[str, torch.Tensor], kind: str = "safetensors") -> Path:
    """A checkpoint's folder, as it would be published."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if kind == "safetensors":
        save_file(weights, folder / "model.safetensors")
    else:
        torch.save(weights, folder / f"pytorch_model.{kind}")
    return folder


@pytest.mark.parametrize("kind", ["safetensors", "bin"])
@pytest.mark.parametrize("name", FORMATS)
def test_a_format_is_told_by_its_keys_and_configuration(tmp_path: Path, name: str, kind: str):
    config, shapes, kept = FORMATS[name]
    weights = tensors(shapes)
    head = Published.open(write(tmp_path, config, weights, kind))
    assert head.format == name and head.config == config and kept in head.shapes
    read = head.read()
    assert {key: tuple(tensor.shape) for key, tensor in read.items()} == head.shapes
    assert head.bytes == sum(2 * tensor.numel() for tensor in read.values())
    for key, stored in head.tensor_names.items():
        assert torch.equal(read[key], weights[stored])
    assert head.fingerprint(read) == head.fingerprint({name: one.float() for name, one in read.items()})


def test_only_the_heads_of_a_whole_model_are_read(tmp_path: Path):
    config, shapes, _ = FORMATS["medusa-2"]
    head = Published.open(write(tmp_path, config, tensors(shapes)))
    assert list(head.read()) == ["0.0.linear.weight"] and head.bytes == 2 * 64 * 64


def test_shards_and_safetensors_come_first(tmp_path: Path):
    config, shapes, _ = FORMATS["eagle"]
    weights = tensors(shapes)
    folder = write(tmp_path, config, {}, "bin")
    names, files = sorted(weights), {}
    for i, part in enumerate((names[:3], names[3:])):
        save_file({name: weights[name] for name in part}, folder / f"shard-{i}.safetensors")
        files |= dict.fromkeys(part, f"shard-{i}.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    torch.save({}, folder / "optimizer.pt")
    assert {*Published.open(folder).read()} == {*weights}
    (folder / "shard-1.safetensors").unlink()
    with pytest.raises(UserError, match=r"incomplete: shard-1.safetensors is missing"):
        Published.open(folder)


def test_a_file_may_be_named_itself(tmp_path: Path):
    torch.save({"state_dict": tensors(FORMATS["medusa"][1])}, tmp_path / "medusa_lm_head.pt")
    assert Published.open(tmp_path / "medusa_lm_head.pt").format == "medusa"
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(UserError, match=r"notes.txt holds no weights: give a .safetensors, .bin or .pt file"):
        Published.open(tmp_path / "notes.txt")


class Opens:
    def __reduce__(self):
        return (open, ("it-ran", "w"))


def test_code_in_a_pickle_is_never_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"0.0.linear.weight": torch.zeros(2, 2), "x": Opens()}, tmp_path / "heads.pt")
    with pytest.raises(UserError, match=r"heads.pt is a pickle with code in it, which is never run: ask for"):
        Published.open(tmp_path)
    (tmp_path / "heads.pt").write_bytes(pickle.dumps(Opens()))
    with pytest.raises(UserError, match="which is never run"):
        Published.open(tmp_path)
    assert not (tmp_path / "it-ran").exists()


@pytest.mark.parametrize(
    ("config", "shapes", "named"),
    [
        ({}, {"rnn_u.weight": (1,)}, "a recurrent drafter"),
        ({"speculators_model_type": "eagle"}, {"fusion_fc.weight": (1,)}, "EAGLE-1 in the form of speculators"),
        ({}, {"model.layers.0.input_layernorm.weight": (1,)}, "a whole language model"),
        ({}, {"a": (1,), "b": (1,), "c": (1,), "d": (1,)}, r"tensors of no known format \(a, b, c, …\)"),
    ],
)
def test_what_is_not_read_is_named_with_what_is(tmp_path: Path, config: dict, shapes: dict, named: str):
    with pytest.raises(UserError, match=rf"holds {named}, which is not read: supported are DFlash2 in .* Hydra's"):
        Published.open(write(tmp_path, config, tensors(shapes)))


def large(folder: Path, kind: str) -> Path:
    """A checkpoint of 60 or 30 GB, but for the bytes: a header, or nothing, in front of a hole."""
    size = 30_000_000_000
    with (folder / f"model.{kind}").open("wb") as file:
        if kind == "safetensors":
            numbers = size // 2
            entry = {"dtype": "F16", "shape": [numbers, 1]}
            entries = {
                name: {**entry, "data_offsets": [start, start + size]}
                for name, start in (("fc.weight", 0), ("layers.0.self_attn.q_proj.weight", size))
            }
            header = json.dumps(entries).encode()
            file.write(struct.pack("<Q", len(header)) + header)
            file.truncate(8 + len(header) + 2 * size)
        else:
            file.truncate(size)
    return folder


@pytest.mark.parametrize("kind", ["safetensors", "bin"])
def test_what_does_not_fit_is_said_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str):
    monkeypatch.setattr(published, "free_memory", lambda device: 4_000_000_000)
    with pytest.raises(TooLarge, match=r"takes (30|60).0 GB of memory, and 4.0 GB are free: it is not read"):
        Published.open(large(tmp_path, kind))


def test_a_damaged_file_is_named(tmp_path: Path):
    config, shapes, _ = FORMATS["eagle"]
    for kind, name in (("safetensors", "model.safetensors"), ("bin", "pytorch_model.bin")):
        folder = write(tmp_path / kind, config, tensors(shapes), kind)
        (folder / name).write_bytes((folder / name).read_bytes()[:2000])
        with pytest.raises(UserError, match=rf"{name} is truncated or damaged"):
            Published.open(folder)
    (tmp_path / "bin" / "pytorch_model.bin").unlink()
    with pytest.raises(UserError, match=r"holds no weights: a .safetensors, .bin or .pt file is wanted"):
        Published.open(tmp_path / "bin")
    (tmp_path / "safetensors" / "config.json").write_text("[1]")
    with pytest.raises(UserError, match=r"config.json cannot be read: a list"):
        Published.open(tmp_path / "safetensors")


def test_what_is_not_there_is_said(tmp_path: Path):
    for place in (tmp_path / "nowhere", "one-word"):
        with pytest.raises(UserError, match="there is no checkpoint .*: give a folder with config.json and weights"):
            Published.open(place)


def test_a_hub_id_is_fetched_when_it_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The listing is asked first: what is too large is never fetched, and pickles only where there is nothing else."""
    import huggingface_hub as hub
    from huggingface_hub.errors import LocalEntryNotFoundError

    config, shapes, _ = FORMATS["eagle"]
    folder, calls = write(tmp_path, config, tensors(shapes)), []
    sizes = {"config.json": 100, "model.safetensors": 30_000_000_000, "pytorch_model.bin": 30_000_000_000}

    def snapshot(name: str, *, allow_patterns: list[str], local_files_only: bool = False) -> str:
        calls.append((name, allow_patterns, local_files_only))
        if local_files_only:
            raise LocalEntryNotFoundError("not here")
        return str(folder)

    class Api:
        def model_info(self, name: str, files_metadata: bool) -> Any:
            assert files_metadata
            return SimpleNamespace(siblings=[SimpleNamespace(rfilename=n, size=s) for n, s in sizes.items()])

    monkeypatch.setattr(hub, "snapshot_download", snapshot)
    monkeypatch.setattr(hub, "HfApi", Api)
    monkeypatch.setattr(published, "free_memory", lambda device: 4_000_000_000)
    with pytest.raises(TooLarge, match=r"checkpoint org/head takes 30.0 GB of memory, and 4.0 GB are free"):
        Published.open("org/head")
    assert len(calls) == 1
    sizes |= {"model.safetensors": 1000}
    assert Published.open("org/head").place == "org/head"
    assert calls[-1] == ("org/head", ["*.json", "*.safetensors"], False)
    monkeypatch.setattr(hub, "HfApi", lambda: 1 / 0)
    with pytest.raises(UserError, match=r"'org/head' could not be fetched: division by zero; give a folder"):
        Published.open("org/head")
