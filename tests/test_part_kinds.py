"""Trained parts of every kind: the facts that hold for all of them, a row per kind."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from decoders import Prompt, Sampling, UserError, find_method, generate
from decoders.method import part
from decoders.method.part import kinds
from decoders.parts import load_part, read_part

from .drafts import PartFacts, annex_parts, save_tiny_part, tiny_part
from .models import prompt_ids, tiny_target

pytestmark = pytest.mark.usefixtures("home")
PROMPT = Prompt.from_ids(prompt_ids(3))
NEW = 20


KINDS = {
    "drafter": PartFacts(("sps",), rules=()),
    "glide": PartFacts(("glide", "glide+cape"), options={"layers": 2}, rules=()),
    "ppd": PartFacts(
        ("ppd",), options={"vectors": 2, "exits": 2, "prefix": 1, "head": True},
        damages=(({"exits": 9}, "9 exits are not possible"),
                 ({"vocab": 9}, "the head is of 9 tokens, the model of 320"),
                 ({"cached": [3, 2, 8]}, "the prefix tokens have the shape")),
    ),
}  # fmt: skip
for module in annex_parts():
    KINDS |= module.FACTS


@pytest.fixture(scope="module")
def target() -> Any:
    return tiny_target("qwen3")


def test_the_table_has_every_kind() -> None:
    elsewhere = {kind for module in annex_parts() for kind in getattr(module, "OF_SOME_TARGETS", ())}
    assert set(KINDS) == set(kinds()) - elsewhere


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_comes_back_as_it_was(target: Any, kind: str, tmp_path: Path) -> None:
    options = KINDS[kind].options
    folder = save_tiny_part(target, kind, tmp_path / "part", **options)
    original = tiny_part(target, kind, **options)
    part, loaded = read_part(folder), load_part(target, kind, folder)
    assert (part.kind, part.model_key, part.config) == (kind, target.key, original.config)
    weights, kept = loaded.state_dict(), original.state_dict()
    assert weights.keys() == kept.keys()
    wrong = [name for name, weight in kept.items() if not torch.allclose(weights[name].float(), weight.float())]
    assert wrong == [] and sorted(path.name for path in folder.iterdir()) == ["part.json", "part.safetensors"]


@pytest.mark.parametrize("kind", KINDS)
def test_parts_of_other_targets_and_kinds_are_refused(target: Any, kind: str, tmp_path: Path) -> None:
    other = tiny_target("qwen3", seed=2)
    folder = save_tiny_part(other, kind, tmp_path / "of another")
    trained = rf"was trained for tiny-qwen3 \(fingerprint {other.key}\), not for"
    with pytest.raises(UserError, match=trained):
        load_part(target, kind, folder)
    wrong = "drafter" if kind == "glide" else "glide"
    with pytest.raises(UserError, match=r"holds an? .*, not an? "):
        load_part(target, kind, save_tiny_part(target, wrong, tmp_path / "wrong"))
    with pytest.raises(UserError, match="there is no (trained part in|checkpoint) "):
        load_part(target, kind, tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("kind", "change", "reason"), [(kind, *damage) for kind, row in KINDS.items() for damage in row.damages]
)
def test_a_part_whose_shapes_are_of_another_model_is_refused(
    target: Any, kind: str, change: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    """Its fingerprint says that it is of this one: damaged."""
    options = KINDS[kind].options
    folder = save_tiny_part(target, kind, tmp_path / "part", **options)
    described = json.loads((folder / "part.json").read_text("utf-8"))
    described["config"] |= change
    (folder / "part.json").write_text(json.dumps(described), "utf-8")
    with pytest.raises(UserError, match=re.escape(reason)):
        load_part(target, kind, folder)


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_part_the_command_is_named(target: Any, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part, "has_command", lambda name: name == "train")
    command = f"`specviz {KINDS[kind].command.format(kind=kind)}"
    for name in KINDS[kind].methods:
        assert command in str(find_method(name).missing(target))
        with pytest.raises(UserError, match=command):
            generate(target, PROMPT, name, max_new_tokens=4)


@pytest.mark.parametrize("kind", KINDS)
def test_output_is_plain_decodings_greedy_and_sampled(target: Any, kind: str) -> None:
    """Of the same seed, where drafts are verified by match: by ratio the distribution alone is the same."""
    save_tiny_part(target, kind, **KINDS[kind].options)
    for name in KINDS[kind].methods:
        drawn = [(Sampling(temperature=0.9, seed=4), rule) for rule in KINDS[kind].rules]
        for sampling, rule in [(Sampling(), {}), *drawn]:
            plain = generate(target, PROMPT, max_new_tokens=NEW, sampling=sampling)
            for settings in KINDS[kind].settings:
                written = generate(target, PROMPT, name, {**rule, **settings}, max_new_tokens=NEW, sampling=sampling)
                assert written == plain, (name, settings, sampling)


@pytest.mark.parametrize("kind", KINDS)
def test_parts_draft_for_a_target_in_half_precision(kind: str) -> None:
    half = tiny_target("qwen3", dtype=torch.bfloat16)
    save_tiny_part(half, kind)
    for name in KINDS[kind].methods:
        assert len(generate(half, PROMPT, name, max_new_tokens=8)) == 8
