"""Draft models that were trained here, written as others read them."""

from __future__ import annotations

import json

import pytest
import torch

from decoders import Prompt, parts, record
from decoders.model.target_model.load import load_target
from decoders.parts import load_part
from specviz.cli import main
from tests.models import save_model

from .command import refusal
from .drafts import save_tiny_part
from .models import prompt_ids

PROMPT, NEW = Prompt.from_ids(prompt_ids(3)), 24


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECVIZ_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(parts, "PACKAGE_PARTS", ())
    return tmp_path


@pytest.mark.parametrize("options", [{"layers": 2}, {"shared": True}, {"shared": True, "draft_vocab": 90}])
def test_a_vanilla_drafter_is_a_causal_lm(home, options, capsys):
    """As transformers reads it, it says what the part says, and drafts the same for `sps`."""
    from transformers import AutoModelForCausalLM

    folder = save_model(home / "model")
    target = load_target(folder)
    part, out = save_tiny_part(target, "drafter", home / "part", **options), home / "out"
    assert main(["parts", "export", str(part), str(out), "--format", "transformers", "--model", folder]) == 0
    told, ids = capsys.readouterr().out, torch.tensor([prompt_ids(5)])
    ours, theirs = load_part(target, "drafter", part), AutoModelForCausalLM.from_pretrained(out)
    assert json.loads((out / "config.json").read_text())["model_type"] == "llama"
    with torch.no_grad():
        logits = theirs(ids).logits
        drafted = slice(None) if ours.drafted is None else ours.drafted.long()
        assert torch.allclose(logits[..., drafted], ours.head(ours(ids)), atol=1e-5)
    if options.get("draft_vocab"):
        assert "learnt to draft 90 of 320 tokens" in told
        return
    model, few = AutoModelForCausalLM.from_pretrained(folder), {"max_new_tokens": NEW, "do_sample": False}
    assert torch.equal(model.generate(ids, assistant_model=theirs, **few), model.generate(ids, **few))
    runs = [record(target, PROMPT, "sps", {"drafter": str(place)}, max_new_tokens=NEW) for place in (part, out)]
    assert all(runs[0].tables["nodes"][name] == runs[1].tables["nodes"][name] for name in ("token", "parent", "status"))
    assert "a vanilla drafter has no form called 'eagle'" in refusal(
        capsys, "parts", "export", str(part), str(home / "x"), "--format", "eagle", "--model", folder
    )
