"""Sizes of models before they are opened, free memory, and refusals."""

from __future__ import annotations

import json
import resource
import struct
import sys
from pathlib import Path

import pytest
import torch

from decoders import UserError, load_target
from decoders.draft.needs import Needs
from decoders.errors import TooLarge
from decoders.model.state import room
from decoders.model.target_model import size as sizes
from decoders.model.target_model.size import check_fits, free_memory, gigabytes, size_of
from decoders.model.target_model.target import SPARE_ROWS

from .gguf_files import write_gguf
from .models import network, session_behind, tiny_target, tiny_tokenizer

pytestmark = pytest.mark.usefixtures("home")


def folder_of(place: Path, family: str = "llama", **options: object) -> Path:
    network(family).save_pretrained(place, **options)
    tiny_tokenizer().save_pretrained(place)
    return place


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma2"])
def test_a_folder_is_as_large_as_the_target_it_becomes(tmp_path: Path, family: str) -> None:
    folder = folder_of(tmp_path / family, family)
    size, target = size_of(folder, device="cpu"), load_target(folder)
    # GPT-2 and Gemma share the head with the embedding: it is stored, and counted, once
    assert size.parameters == target.info["parameters"] == size_of(folder, device="cpu", parameters=1).parameters
    assert size.weights == 4 * size.parameters, "packed or not"
    rows, (layers, heads, width) = 512 + 512, target.shape.cache_shape
    assert size.cache == 2 * layers * heads * width * rows * 4 and size.bytes == size.weights + size.cache
    half = size_of(folder, dtype="bfloat16", device="cpu")
    assert half.weights == 2 * size.parameters + 4 * 320 * 64, "with the head in fp32"


def test_shards_and_other_weights_are_counted(tmp_path: Path) -> None:
    whole = size_of(folder_of(tmp_path / "whole"), device="cpu").parameters
    shards = folder_of(tmp_path / "shards", max_shard_size="100KB")
    assert len(list(shards.glob("*.safetensors"))) > 1 and size_of(shards, device="cpu").parameters == whole
    bare = folder_of(tmp_path / "bare")
    torch.save({}, bare / "pytorch_model.bin")
    (bare / "model.safetensors").unlink()
    assert size_of(bare, device="cpu").parameters == whole, "from the configuration"


def test_a_gguf_file_is_as_large_as_the_model_in_it(tmp_path: Path) -> None:
    file = tmp_path / "tiny.gguf"
    model = write_gguf(file, kind="Q8_0")
    size = size_of(file, device="cpu")
    assert size.parameters == sum(p.numel() for p in model.parameters())
    assert size.opening == 8 * size.parameters, "dequantised while it is converted"
    target = load_target(file)
    again = size_of(file, device="cpu")
    assert again.parameters == target.info["parameters"] and again.opening == 4 * size.parameters
    assert size.cache == again.cache == size_of(next((tmp_path / "home/cache/gguf").glob("[!.]*-float32-*"))).cache


@pytest.mark.parametrize("share", [0.02, 0.3, 0.9])
def test_a_truncated_gguf_file_is_said(tmp_path: Path, share: float) -> None:
    file = tmp_path / "cut.gguf"
    write_gguf(file)
    data = file.read_bytes()
    file.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(UserError, match=r"cut.gguf is truncated or damaged \([\d,]+ bytes; "):
        size_of(file)
    file.write_bytes(b"GGUF" + b"\xff" * 200)
    with pytest.raises(UserError, match="cut.gguf is truncated or damaged"):
        size_of(file)
    file.write_bytes(b"PK" + data)
    with pytest.raises(UserError, match="is no GGUF file: it does not begin with"):
        size_of(file)


def gguf_bytes(*entries: tuple[str, int, bytes], tensors: int = 0, after: bytes = b"") -> bytes:
    """A GGUF file by hand: settings as (name, type, value), and what comes behind them."""
    data = b"GGUF" + struct.pack("<IQQ", 3, tensors, len(entries))
    for name, kind, value in entries:
        data += struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", kind) + value
    return data + after


def gguf_list(of: int, count: int, rest: bytes = b"") -> bytes:
    return struct.pack("<IQ", of, count) + rest


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("numbers", gguf_bytes(("a", 9, gguf_list(0, 1 << 40)))),
        ("texts", gguf_bytes(("a", 9, gguf_list(8, 1 << 40)))),
        ("lists", gguf_bytes(("a", 9, gguf_list(9, 1 << 40)))),
        ("nested", gguf_bytes(("a", 9, gguf_list(9, 1) * 5000))),
        ("text", gguf_bytes(("a", 8, struct.pack("<Q", 1 << 62)))),
        ("settings", b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 60)),
        ("tensors", b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0)),
        ("dimensions", gguf_bytes(tensors=1, after=struct.pack("<QI", 0, 1 << 31))),
        ("empty tensors", gguf_bytes(("general.alignment", 6, struct.pack("<f", float("inf"))))),
        ("unknown type", gguf_bytes(("a", 77, b"\0" * 16))),
        ("no alignment", gguf_bytes(("general.alignment", 4, struct.pack("<I", 0)))),
        ("a shape beyond numbers", gguf_bytes(tensors=1, after=struct.pack("<QIQQQIQ", 0, 3, *[1 << 63] * 3, 0, 0))),
        ("a byte of a real list", gguf_bytes(("a", 9, gguf_list(0, 30_000_000, bytes(30_000_000))))),
    ],
)
def test_a_hostile_gguf_file_is_refused_before_it_is_opened(tmp_path: Path, name: str, data: bytes) -> None:
    """A file claims more than it holds: neither the size nor the model is asked of it, and no memory is filled."""
    file = tmp_path / "hostile.gguf"
    file.write_bytes(data)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for read in (size_of, load_target):
        with pytest.raises(UserError, match=r"hostile.gguf is truncated or damaged \([\d,]+ bytes; "):
            read(file)
    more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert more < 400_000 * (1 if sys.platform == "linux" else 1024)  # KiB there, else bytes


HOSTILE_HEADERS = (
    b"[" * 50_000,
    b'{"a":' * 50_000,
    b'{"a": {"dtype": "F32", "shape": [1e999], "data_offsets": [0, 4]}}',
    b'{"a": {"dtype": "F32", "shape": [9999999999999999999999], "data_offsets": [0, 4]}}',
    b'{"a": {"dtype": "F32", "shape": [4611686018427387904, 4], "data_offsets": [0, 4]}}',
    b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 1e999]}}',
    b'{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [4, 0]}}',
    b'{"a": 1}', b"null", b'{"a": {"dtype": 3}}',
)  # fmt: skip


@pytest.mark.parametrize("header", HOSTILE_HEADERS)
def test_a_hostile_safetensors_header_is_refused(tmp_path: Path, header: bytes) -> None:
    folder = folder_of(tmp_path / "model")
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(64))
    with pytest.raises(UserError, match="model.safetensors is truncated or damaged"):
        size_of(folder)


def test_damaged_folders_are_said(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "cut")
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    for data in (whole[:-50], whole[:40], b"", b"\xff" * 80):
        weights.write_bytes(data)
        with pytest.raises(UserError, match="model.safetensors is truncated or damaged"):
            size_of(folder)
    weights.unlink()
    with pytest.raises(UserError, match="is incomplete: it lacks the weights"):
        size_of(folder)
    (folder / "config.json").write_text(json.dumps({"model_type": "mpt", "d_model": 8}))
    weights.write_bytes(whole)
    with pytest.raises(UserError, match="family 'mpt' are refused"):
        size_of(folder)
    with pytest.raises(UserError, match="there is no model folder"):
        size_of(tmp_path / "none")


def test_an_unknown_hub_id_is_said_without_asking_a_hub() -> None:
    with pytest.raises(UserError, match="the model 'no/such-model' is not there, or cannot be read"):
        size_of("no/such-model", fetch=False)


def test_what_does_not_fit_is_refused_with_both_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = size_of(folder_of(tmp_path / "tiny"), device="cpu")
    check_fits("tiny", size, device="cpu")
    monkeypatch.setattr(sizes, "free_memory", lambda device: 1_000_000)
    said = rf"about {gigabytes(size.bytes)} of memory are needed for tiny, and 1 MB are free on cpu: choose a smaller"
    with pytest.raises(UserError, match=said):
        check_fits("tiny", size, device="cpu")
    monkeypatch.setattr(sizes, "free_memory", lambda device: None)
    check_fits("tiny", size, device="cpu")


def test_free_memory_is_the_machines_or_the_containers(tmp_path: Path) -> None:
    memory = tmp_path / "meminfo"
    memory.write_text("MemTotal:       24000000 kB\nMemFree: 1 kB\nMemAvailable:   20000000 kB\nHugePages_Total: 0\n")
    assert room._meminfo(memory) == 20_000_000 << 10 and room._meminfo(tmp_path / "none") is None
    assert room._left_of_group(tmp_path) is None
    files = {"max": "1000", "current": "900", "stat": "anon 500\ninactive_file 200\nactive_file 50\n"}
    for name, text in files.items():
        (tmp_path / f"memory.{name}").write_text(text)
    assert room._left_of_group(tmp_path) == 350
    (tmp_path / "memory.max").write_text("max\n")
    assert room._left_of_group(tmp_path) is None
    assert free_memory("cpu") is None or free_memory("cpu") > 0


def test_a_run_that_does_not_fit_is_refused_before_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """With both numbers and what to do; the estimate of the cache is what a run of that length then takes."""
    target = tiny_target()
    every = Needs(heads=tuple((layer, head) for layer in range(3) for head in range(4)))
    session = session_behind(target, list(range(5, 25)), 400)
    size = room.RunSize.of(target.shape, target.dtype, Needs(), 400, spare=SPARE_ROWS, rows=400)
    assert size.cache == session.cache.store.nbytes
    read = session_behind(target, list(range(5, 25)), 400, every | Needs(layers=(1, 3), top_tokens=8))
    size = room.RunSize.of(target.shape, target.dtype, read.needs, 400, spare=SPARE_ROWS, rows=400)
    assert size.memory_bytes == read.memory.bytes()

    monkeypatch.setattr(room, "SMALL", 0)
    monkeypatch.setattr(room, "free_memory", lambda device: 1_000_000)
    need = rf"a run of 400 tokens with tiny-llama needs about {gigabytes(size.bytes)} of memory"
    with pytest.raises(TooLarge, match=rf"{need} .* and 1 MB are free on cpu"):
        target.session(read.needs, 400)
    monkeypatch.setattr(room, "free_memory", lambda device: None)
    target.session(read.needs, 400)
