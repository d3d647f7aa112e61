"""Trained parts in published formats: read back they are the same tensors and draft the same; the rest is refused."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file

from decoders import Prompt, UserError, parts, record
from decoders.model.target_model.load import load_target
from decoders.parts import Part, export_part, load_part, save_part, shrink_part
from specviz.cli import main
from specviz.extras.heads.heads_export import training_hint
from tests.command import refusal
from tests.drafts import save_tiny_part
from tests.models import prompt_ids, save_model, tiny_target

from .. import eagle_published
from .tiny_parts import tiny_heads

PROMPT, NEW = Prompt.from_ids(prompt_ids(3)), 24
TREE = ("token", "parent", "draft_prob", "status")


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECVIZ_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(parts, "PACKAGE_PARTS", ())
    monkeypatch.setattr(eagle_published, "readings", lambda network, target: [])  # a random head speaks for no reading
    return tmp_path


def heads(target, kind, folder, **options):
    """Heads whose states and embeddings are read in units of their own, as trained ones are."""
    network = tiny_heads(target, kind, scaled=True, **options)
    with torch.no_grad():
        network.center.copy_(torch.randn(64) * 20)
        network.spread.copy_(torch.rand(64) * 30 + 0.5)
        network.size.fill_(0.07)
    part = Part(kind, target.key, target.name, network.config)
    return save_part(part, network.state_dict(), folder, dtype=torch.float32)


def drafts(target, method, part, **params):
    return record(target, PROMPT, method, {"part": str(part), **params}, max_new_tokens=NEW).tables["nodes"]


def same_drafts(target, method, part, folder, **params):
    ours, theirs = (drafts(target, method, place, **params) for place in (part, folder))
    assert len(ours["token"]) > NEW
    for name in TREE[:2] + TREE[3:]:
        assert ours[name] == theirs[name], name
    assert ours["draft_prob"] == pytest.approx(theirs["draft_prob"], abs=1e-5, nan_ok=True)


@pytest.mark.parametrize("form", ["speculators", "eagle"])
@pytest.mark.parametrize(
    "options",
    [{"draft_vocab": 90}, {"norm_before_residual": True, "norm_output": True, "fc_norm": True}, {"layers": 2}],
)
def test_an_eagle3_head_reads_back_bit_for_bit(target, home, form, options):
    part = save_tiny_part(target, "eagle3", home / "part", **options)
    if form == "eagle" and "layers" in options:
        with pytest.raises(UserError, match="has 2 layers, and EAGLE's own form one: take --format speculators"):
            export_part(target, str(part), form, home / "out")
        return
    export_part(target, str(part), form, home / "out", verifier="org/model")
    ours, theirs = load_part(target, "eagle3", part), load_part(target, "eagle3", home / "out")
    state, again = ours.state_dict(), theirs.state_dict()
    assert torch.equal(again.pop("lm_head.weight"), ours.head.weight)
    assert state.keys() == again.keys() and all(torch.equal(state[name], again[name]) for name in state)
    told = [
        words for words in theirs.about["warnings"] if "norm_output" not in words
    ]  # EAGLE's own form is unsure there
    assert theirs.config.features == ours.config.features and told == []
    same_drafts(target, "eagle3", part, home / "out", depth=3)
    config, stored = json.loads((home / "out" / "config.json").read_text()), load_file(home / "out/model.safetensors")
    assert config["norm_before_residual"] is bool(options.get("norm_before_residual")), "never left to a default"
    assert config["eagle_aux_hidden_state_layer_ids"] == list(ours.config.features)
    if drafted := options.get("draft_vocab"):
        ids = stored["d2t"] + torch.arange(drafted)
        assert stored["d2t"].dtype == torch.int64 and torch.equal(stored["t2d"].nonzero()[:, 0], ids)
    else:
        assert "d2t" not in stored


def test_parts_in_int8_are_written_dequantised_in_the_dtype_that_is_asked_for(target, home):
    part = save_tiny_part(target, "eagle3", home / "part", draft_vocab=90)
    shrink_part(part)
    export_part(target, str(part), "speculators", home / "full")
    export_part(target, str(part), "eagle", home / "half", dtype=torch.float16)
    same_drafts(target, "eagle3", part, home / "full", depth=3)
    full, half = (load_file(home / name / "model.safetensors") for name in ("full", "half"))
    ours = load_part(target, "eagle3", part).state_dict()
    assert torch.equal(full["layers.0.mlp.up_proj.weight"], ours["layers.0.mlp.up_proj.weight"])
    kinds = {tensor.dtype for tensor in half.values()}
    assert kinds == {torch.float16, torch.int64, torch.bool}
    assert torch.equal(half["midlayer.mlp.up_proj.weight"], full["layers.0.mlp.up_proj.weight"].half())


@pytest.mark.parametrize("options", [{"draft_vocab": 90}, {"heads": 2, "blocks": 2}])
def test_hydras_scales_fold_into_its_first_block(target, home, options):
    part = heads(target, "hydra", home / "part", **options)
    export_part(target, str(part), "hydra", home / "out")
    ours, theirs = load_part(target, "hydra", part), load_part(target, "hydra", home / "out")
    states, tokens = torch.randn(5, 64) * 20, torch.randint(0, 320, (5, 2))
    embedded = ours.embedding(tokens)
    for number in range(2):
        read = embedded[:, : number + 1]
        mine = ours.full_logits(ours.say(number, ours.state(number, states, read)))
        also = theirs.say(number, theirs.state(number, states, read))
        torch.testing.assert_close(mine, also, atol=2e-4, rtol=2e-4)
    same_drafts(target, "hydra", part, home / "out")


def test_heads_behind_a_prefix_layer_are_hydra_plus_plus(target, home):
    part = save_tiny_part(target, "hydra", home / "part", prefix=True)
    export_part(target, str(part), "hydra", home / "out")
    assert load_part(target, "hydra", home / "out").about["format"] == "hydra++"
    same_drafts(target, "hydra", part, home / "out")
    description = json.loads((part / "part.json").read_text())
    description["config"]["prefix"]["rope"]["rope_theta"] = 500.0
    (part / "part.json").write_text(json.dumps(description))
    with pytest.raises(
        UserError, match=r"rotary positions or sizes of its own, and Hydra\+\+'s form takes them from the"
    ):
        export_part(target, str(part), "hydra", home / "none")


def test_heads_that_read_states_as_they_are_go_into_their_authors_forms(target, home):
    for kind in ("eagle", "medusa"):
        part = save_tiny_part(target, kind, home / kind)
        export_part(target, str(part), kind, home / f"{kind}-out")
        same_drafts(target, kind, part, home / f"{kind}-out")


def test_what_a_format_has_no_place_for_is_refused(target, home):
    cases = [
        (save_tiny_part(target, "eagle", home / "eagle", scaled=True), "eagle", "norm in front of its MLP is taken"),
        (save_tiny_part(target, "eagle", home / "few", draft_vocab=90), "eagle", "90 of 320 tokens, and EAGLE-1's"),
        (heads(target, "medusa", home / "medusa"), "medusa", "passes its input on as it is: no weight can make up"),
        (save_tiny_part(target, "medusa", home / "some", draft_vocab=90), "medusa", "Medusa's form has no draft vocab"),
        (save_tiny_part(target, "ppd", home / "ppd"), "eagle", "a set of prompt tokens has no form called 'eagle'"),
        (save_tiny_part(target, "glide", home / "glide"), "speculators", "a GLIDE draft model has no form called"),
        (save_tiny_part(target, "hydra", home / "hydra"), "eagle", r"hydra \(hydra\), .*eagle3 \(speculators, eagle\)"),
    ]  # fmt: skip
    for part, form, sentence in cases:
        with pytest.raises(UserError, match=sentence):
            export_part(target, str(part), form, home / "out")
    assert not (home / "out").exists()
    part = save_tiny_part(target, "eagle3")
    (home / "mine").mkdir()
    with pytest.raises(UserError, match="mine is there already: name a new folder"):
        export_part(target, "eagle3", "eagle", home / "mine")
    with pytest.raises(UserError, match="was trained for tiny-llama"):
        export_part(tiny_target("llama", seed=2), str(part), "eagle", home / "out")


def test_a_state_that_servers_give_before_its_norm_is_refused(target, home):
    network_part = save_tiny_part(target, "eagle3", home / "part")
    description = json.loads((network_part / "part.json").read_text())
    description["config"]["features"] = [1, 2, 3]
    (network_part / "part.json").write_text(json.dumps(description))
    with pytest.raises(
        UserError, match="reads the target's last state behind its norm, and servers give the one before"
    ):
        export_part(target, str(network_part), "speculators", home / "out")


def test_the_command_names_the_model_and_what_servers_differ_in(home, capsys):
    model = save_model(home / "model")
    save_tiny_part(load_target(model), "eagle3", draft_vocab=90)
    command = ["parts", "export", "eagle3", str(home / "out"), "--format", "speculators", "--model", model]
    assert main([*command, "--verifier", "org/target", "--store", "float16"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "a part of org/target (eagle3, speculators)" in told and "in float16" in told
    assert "vLLM takes them from config.json; SGLang reads" in told
    config = json.loads((home / "out" / "config.json").read_text())
    assert config["speculators_config"]["verifier"] == {
        "name_or_path": "org/target", "architectures": ["LlamaForCausalLM"]
    }  # fmt: skip
    assert "is there already" in refusal(capsys, *command)
    places = (home / "nowhere", home / "x", "--format", "eagle", "--model", model)
    assert "there is no trained part in" in refusal(capsys, "parts", "export", *places)


def test_where_nothing_trains_no_command_is_named(monkeypatch):
    monkeypatch.setattr("decoders.method.part.has_command", lambda name: name == "train")
    assert training_hint("eagle3", "hydra") == " (`specviz train eagle3`, `specviz train hydra`)"
    monkeypatch.setattr("decoders.method.part.has_command", lambda name: False)
    assert training_hint("eagle3", "hydra") == ""
