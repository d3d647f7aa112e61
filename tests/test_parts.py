"""Trained parts: kept with the target's fingerprint, found in order, refused elsewhere."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from decoders import Prompt, UserError, find_method, generate, methods, parts, record
from decoders.draft_models.stored_weights import GROUP, SCALE, full_matrix, in_bits, in_int8, read_weights, stored_form
from decoders.method import part as method_part
from decoders.method.part import kinds
from decoders.parts import (
    WEIGHTS,
    find_part,
    keep_published,
    load_part,
    missing_part,
    own_place,
    read_part,
    save_part,
    shrink_part,
)  # fmt: skip

from .drafts import save_tiny_part, tiny_draft
from .models import prompt_ids, tiny_target

FAMILY = "qwen3"  # of the tiny target
ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECVIZ_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(parts, "PACKAGE_PARTS", (tmp_path / "packaged",))
    return tmp_path


def test_a_part_comes_back_as_it_was(target, home):
    folder = save_tiny_part(target, "glide", layers=2)
    part = read_part(folder)
    assert (part.kind, part.model_key, part.model) == ("glide", target.key, "tiny-qwen3")
    model, made = load_part(target, "glide"), tiny_draft(target, "glide", layers=2)
    ids = torch.tensor([prompt_ids(1, 12)])
    torch.testing.assert_close(model(ids), made(ids), atol=1e-5, rtol=1e-4)
    assert load_part(target, "glide") is model, "loaded once"
    assert sorted(p.name for p in folder.iterdir()) == ["part.json", "part.safetensors"]
    assert [p.name for p in folder.parent.iterdir()] == ["glide"], "nothing half-written is left"


def test_the_users_own_part_comes_before_the_bundled_one(target, home):
    assert find_part(target.key, "glide") is None
    bundled = save_tiny_part(target, "glide", home / "packaged" / "glide", seed=5)
    assert find_part(target.key, "glide") == bundled
    assert find_part("another model", "glide") is None and find_part(target.key, "drafter") is None
    own = save_tiny_part(target, "glide")
    assert own == own_place("glide", target.key) == find_part(target.key, "glide")
    (own / "part.json").write_text("{")
    assert find_part(target.key, "glide") == bundled, "a damaged one is passed over"


def test_what_is_missing_and_the_command_that_makes_it(target, home, monkeypatch):
    monkeypatch.setattr(method_part, "has_command", lambda name: name == "train")
    for name, kind in (("glide", "glide"), ("glide+cape", "glide"), ("sps", "drafter")):
        assert f"make one with `specviz train {kind}`" in find_method(name).missing(target)
        with pytest.raises(UserError, match=f"specviz train {kind}"):
            generate(target, Prompt.from_ids([5, 6]), name, max_new_tokens=4)
    save_tiny_part(target, "glide")
    assert find_method("glide").missing(target) is None is missing_part(target, "glide")
    other = tiny_target("gemma2")
    for kind in {"eagle3", "ppd", "dflash"} & kinds().keys():
        assert "none can be trained here for 'gemma2' models: they can for llama" in str(missing_part(other, kind))
    assert "make one with `specviz train drafter`" in str(missing_part(other, "drafter"))


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_where_nothing_trains_no_sentence_says_so(family, home, monkeypatch):
    """A command that no annex brings is named in no sentence."""
    monkeypatch.setattr(method_part, "has_command", lambda name: False)
    target = tiny_target(family)
    for kind in kinds():
        missing = str(missing_part(target, kind))
        assert missing.endswith("keep one with `specviz parts add PLACE --model M`") and "train" not in missing
    with pytest.raises(UserError, match=r"not for tiny-qwen3 \(\w+\): keep one with"):
        load_part(tiny_target("qwen3"), "drafter", save_tiny_part(tiny_target("llama"), "drafter", home / "part"))


def test_a_run_records_the_part_that_drafted(target, home):
    """Every method with a part does, from its card."""
    prompt = Prompt.from_ids([5, 6, 7, 8])
    for method in methods().values():
        if method.part is not None and method.part.owner is None:
            save_tiny_part(target, method.part.kind.name)
            part = record(target, prompt, method, max_new_tokens=2).run["part"]
            network = method.part.load(target, method.params())
            assert part["kind"] == method.part.kind.name and part == network.about and part["fingerprint"], method.name
    assert "part" not in record(target, prompt, "pld", max_new_tokens=2).run


def test_a_part_that_had_no_room_in_the_wheel_is_brought_by_a_command(target, home, monkeypatch):
    place = save_tiny_part(target, "glide", home / "checkout" / "glide")
    monkeypatch.setattr(parts, "ASSETS", home)
    monkeypatch.setitem(parts.SHIPPED, "smollm2", home / "smollm2")
    (home / "smollm2").mkdir()
    (home / "smollm2" / "calibration.json").write_text(json.dumps({"model_key": target.key}))
    (home / "left-out.txt").write_text("smollm2/parts/glide\n")
    assert missing_part(target, "glide").endswith("with `specviz parts add assets/smollm2/parts/glide --model smollm2`")
    assert "assets/smollm2" not in missing_part(target, "drafter")
    part, folder = keep_published(target, str(place))
    assert part == read_part(place) and folder == own_place("glide", target.key) == find_part(target.key, "glide")
    assert sorted(path.name for path in folder.iterdir()) == ["part.json", "part.safetensors"]
    with pytest.raises(UserError, match="not for tiny-llama"):
        keep_published(tiny_target("llama"), str(place))


def test_an_explicit_part_is_enough(target, home):
    folder = save_tiny_part(target, "glide", home / "elsewhere")
    prompt = Prompt.from_ids(prompt_ids(3))
    plain = generate(target, prompt, max_new_tokens=8)
    assert generate(target, prompt, "glide", {"part": str(folder)}, max_new_tokens=8) == plain
    assert find_method("glide").missing(target) is not None


def test_damaged_parts_are_told_apart(target, home):
    folder = save_tiny_part(target, "glide", home / "part")
    description = json.loads((folder / "part.json").read_text())
    (folder / "part.json").write_text(json.dumps({**description, "schema": "specpart/9"}))
    with pytest.raises(UserError, match="not a trained part of this version"):
        load_part(target, "glide", folder)
    (folder / "part.json").write_text(json.dumps({**description, "config": {"vocab": 5}}))
    with pytest.raises(UserError, match="a damaged trained part"):
        load_part(target, "glide", folder)
    wider = {**description["config"], "mlp": description["config"]["mlp"] + 1}
    (folder / "part.json").write_text(json.dumps({**description, "config": wider}))
    with pytest.raises(UserError, match="does not fit its description"):
        load_part(target, "glide", folder)
    (folder / "part.json").write_text(json.dumps(description))
    (folder / "part.safetensors").write_bytes(b"nonsense")
    with pytest.raises(UserError, match="does not fit its description"):
        load_part(target, "glide", folder)
    (folder / "part.safetensors").unlink()
    with pytest.raises(UserError, match="part.safetensors is missing"):
        load_part(target, "glide", folder)


def test_a_failed_save_leaves_the_old_part(target, home, monkeypatch):
    folder = save_tiny_part(target, "glide")
    before = (folder / "part.safetensors").read_bytes()

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("safetensors.torch.save_file", full)
    with pytest.raises(OSError, match="No space left"):
        save_tiny_part(target, "glide", seed=9)
    assert (folder / "part.safetensors").read_bytes() == before
    assert [p.name for p in folder.parent.iterdir()] == ["glide"]


def test_what_is_shipped_travels_light():
    """Shipped parts stay within 30 MB, and what git tracks within 50 MB."""
    shipped = [file for file in (ROOT / "assets").glob("*/parts/*/*") if file.is_file()]
    assert 1e6 < sum(file.stat().st_size for file in shipped) <= 30e6
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a checkout")
    files = [ROOT / name for name in listed.stdout.split("\0") if name]
    assert sum(file.lstat().st_size for file in files if file.is_file()) <= 50e6


def test_ids_of_tokens_take_16_bits_where_they_fit(home):
    ids = {"narrow": torch.tensor([0, 5, 2**16 - 1]), "wide": torch.tensor([0, 2**16]), "signed": torch.tensor([-1, 5])}
    weights = {name: tensor.int() for name, tensor in ids.items()}
    stored = stored_form(weights, torch.float16)
    assert {name for name in stored if stored[name].dtype == torch.uint16} == {"narrow"}
    save_file(stored, home / WEIGHTS)
    for name, tensor in read_weights(home / WEIGHTS).items():
        assert tensor.dtype == torch.int32 and torch.equal(tensor, weights[name]), name


@pytest.mark.parametrize(("bits", "most"), [(6, 0.03), (4, 0.12)])
def test_a_part_in_few_bits_is_smaller_and_read_as_it_is_stored(bits, most, target, home):
    wide = torch.randn(24, 2 * GROUP, generator=torch.Generator().manual_seed(3))
    numbers, scale = in_bits(wide, bits)
    assert (numbers.dtype, numbers.shape) == (torch.uint8, (24, 2 * GROUP * bits // 8))
    assert (scale.dtype, scale.shape) == (torch.float16, (24, 2))
    full = full_matrix(numbers, scale)
    for row, column in ((0, 0), (5, 62), (5, 63), (5, 64), (23, 125), (23, 127)):  # the format by hand
        stream = int.from_bytes(bytes(numbers[row].tolist()), "little")
        q = (stream >> bits * column & (1 << bits) - 1) - (1 << bits - 1)
        assert float(full[row, column]) == q * float(scale[row, column // GROUP])
    error = (full - wide).square().mean().sqrt()
    plain = (wide.unflatten(1, (-1, GROUP)).abs().amax(-1) / ((1 << bits - 1) - 1))[..., None]
    nearest = ((wide.unflatten(1, (-1, GROUP)) / plain).round() * plain).flatten(1)
    assert float(error) < most and error <= (nearest - wide).square().mean().sqrt()
    assert torch.equal(full_matrix(*in_int8(full)).argmax(1), full.argmax(1))
    folder = save_tiny_part(target, "glide", layers=2)
    half = (folder / WEIGHTS).stat().st_size
    _, after = shrink_part(folder, bits)
    stored = load_file(folder / WEIGHTS)
    narrow = [name for name, tensor in stored.items() if tensor.dtype == torch.int8]
    packed = [name for name, tensor in stored.items() if tensor.dtype == torch.uint8]
    assert after < half and narrow + packed and all(stored[name].shape[1] % GROUP for name in narrow)
    weights = load_part(target, "glide").state_dict()
    assert all(torch.equal(weights[name], full_matrix(stored[name], stored[name + SCALE])) for name in narrow + packed)


def test_a_part_in_int8_is_half_as_large_and_nearly_the_same(target, home):
    folder = save_tiny_part(target, "glide", layers=2)
    (folder / "trees.json").write_text("{}")
    half = save_part(read_part(folder), load_file(folder / WEIGHTS), home / "half")
    size = (half / WEIGHTS).stat().st_size
    before, after = shrink_part(folder)
    stored = load_file(folder / WEIGHTS)
    matrices = [name for name, tensor in stored.items() if tensor.ndim == 2]
    assert matrices and all(stored[name].dtype == torch.int8 for name in matrices)
    assert after < before and sum(stored[n].nbytes for n in matrices) * 2 < size, (before, size, after)
    model, made = load_part(target, "glide"), tiny_draft(target, "glide", layers=2)
    for name, tensor in made.state_dict().items():
        if tensor.ndim == 2:  # rounded to the nearest of 255 values a row
            step = tensor.abs().amax(1, keepdim=True) / 127
            assert bool(((model.state_dict()[name] - tensor).abs() <= step * 0.51 + 1e-4).all()), name
    assert (folder / "trees.json").is_file(), "what lies beside the weights stays"
    data = {**stored, f"{matrices[0]}x{SCALE}": torch.ones(3)}
    save_file(data, folder / WEIGHTS)
    with pytest.raises(UserError, match="does not fit its description"):
        load_part(target, "glide", folder)
    with pytest.raises(UserError, match="there is no trained part"):
        shrink_part(home)
