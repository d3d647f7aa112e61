"""Published EAGLE heads that do not fit: each with its sentence; and readings that a short text speaks for."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch

from decoders import Prompt, UserError, generate, record
from decoders.draft_models import fit
from decoders.draft_models.fit import Trial
from decoders.parts import load_part
from specviz.extras.heads import eagle_published
from specviz.extras.heads.eagle_head import EagleConfig
from tests.command import refusal
from tests.models import own_forward, prompt_ids, tiny_target

from . import eagle_oracle as oracle
from .eagle_oracle import LLAMA, publish, speculators, tensors
from .test_eagle import DRAFTED, states_of

pytestmark = pytest.mark.usefixtures("home")


def without(weights, *names):
    return {name: tensor for name, tensor in weights.items() if name not in names}


THIRD, FIRST = tensors(True, drafted=DRAFTED), tensors(False)
WIDE = {**FIRST, "fc.weight": torch.zeros(64, 64 + 4096)}
WIDE3 = {**THIRD, "fc.weight": torch.zeros(64, 3 * 4096)}
LARGE = {**LLAMA, "vocab_size": 128_256}
FAR = {**THIRD, "d2t": THIRD["d2t"] + 300}


@pytest.mark.parametrize(
    ("method", "config", "weights", "sentence"),
    [
        ("eagle2", LLAMA, WIDE, r"made for another target: it reads states of 4,096 numbers, and those of .* have 64"),
        ("eagle3", LLAMA, WIDE3, r"made for another target: it reads states of 4,096 numbers, and those of .* have 64"),
        ("eagle3", LARGE, THIRD, r"another vocabulary: its config.json says 128,256 tokens, and .* has 320"),
        (
            "eagle", LLAMA, {**FIRST, "embed_tokens.weight": torch.zeros(400, 64)},
            r"another vocabulary: its embedding has 400 tokens, and .* has 320",
        ),
        ("eagle3", LLAMA, {**THIRD, "t2d": torch.zeros(400).bool()}, r"another vocabulary: its t2d has 400 tokens"),
        ("eagle3", LLAMA, without(THIRD, "d2t"), r"lacks d2t: it drafts 90 of 320 tokens and does not say which"),
        ("eagle3", LLAMA, {**THIRD, "d2t": THIRD["d2t"][:80]}, r"its head drafts 90 tokens, and d2t names 80"),
        ("eagle3", LLAMA, FAR, r"drafts token \d+, and .* has 320 tokens"),
        (
            "eagle3", {**LLAMA, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 14, 28]}}, THIRD,
            r"made for a deeper target: it reads state 29, and .* has 3 layers",
        ),
        (
            "eagle3", {**LLAMA, "eagle_config": {"eagle_aux_hidden_state_layer_ids": ["low"]}}, THIRD,
            r"names the layers \['low'\] in its config.json: whole numbers are wanted",
        ),
        ("eagle", LLAMA, THIRD, r"holds EAGLE-3 as SafeAILab publishes it: the method wants an EAGLE head"),
        ("eagle3", LLAMA, FIRST, r"holds EAGLE-1 or -2 as SafeAILab publishes it: the method wants an EAGLE-3 head"),
        ("eagle3", LLAMA, {**THIRD, "fc_norm.0.weight": torch.ones(64)}, r"a variant that is not read: it has fc_n"),
        ("eagle3", {**LLAMA, "hidden_act": "gelu"}, THIRD, r"says hidden_act = 'gelu', and 'silu' or 's"),
        ("eagle3", LLAMA, without(THIRD, "norm.weight"), r"is incomplete: it lacks norm.weight"),
        ("eagle3", LLAMA, without(THIRD, "midlayer.self_attn.k_proj.weight"), r"lacks layers.0.self_attn.k_proj"),
        ("eagle", LLAMA, without(FIRST, "layers.0.mlp.gate_proj.weight"), r"lacks layers.0.mlp.gate_proj.weight"),
        (
            "eagle3", LLAMA, {**THIRD, "midlayer.mlp.down_proj.weight": torch.zeros(64, 50)},
            r"does not fit together: layers.0.mlp.down_proj.weight is 64 × 50, where 64 × 48 is wanted",
        ),
        (
            "eagle3",
            {**without(LLAMA, "max_position_embeddings"), "rope_scaling": {"type": "yarn", "factor": 2.0}}, THIRD,
            r"does not say max_position_embeddings in its config.json",
        ),
        ("eagle", without(LLAMA, "num_attention_heads"), FIRST, r"does not say num_attention_heads in its config.json"),
        (
            "eagle3", {**LLAMA, "rope_scaling": {"type": "dynamic", "factor": 2.0}}, THIRD,
            r"cannot be read: rotary positions of kind 'dynamic': possible are default, linear, llama3, yarn",
        ),
    ],
)  # fmt: skip
def test_a_head_that_does_not_fit_is_refused(target, tmp_path, method, config, weights, sentence):
    place = publish(tmp_path / "head", config, weights)
    with pytest.raises(UserError, match=sentence):
        generate(target, Prompt.from_ids(prompt_ids(2)), method, {"part": place}, max_new_tokens=4)


def test_a_place_that_is_none_is_said(target):
    with pytest.raises(UserError, match=r"there is no checkpoint './nowhere': give a folder with config.json"):
        generate(target, Prompt.from_ids(prompt_ids(2)), "eagle3", {"part": "./nowhere"}, max_new_tokens=4)


def test_a_head_is_read_once_and_again_when_its_file_changed(target, tmp_path):
    place = publish(tmp_path / "head", LLAMA, FIRST)
    first = load_part(target, "eagle", place)
    assert load_part(target, "eagle", place) is first
    publish(tmp_path / "head", LLAMA, {**FIRST, "fc.bias": FIRST["fc.bias"] + 1})
    again = load_part(target, "eagle", place)
    assert again is not first and again.about["fingerprint"] != first.about["fingerprint"]


def test_an_embedding_of_its_own_is_kept_and_told(target, tmp_path):
    theirs = target.embeddings.weight.detach().clone()
    copied = load_part(target, "eagle", publish(tmp_path / "copy", LLAMA, {**FIRST, "embed_tokens.weight": theirs}))
    assert not copied.config.own_embedding and copied.about["warnings"] == []
    own = load_part(target, "eagle", publish(tmp_path / "own", LLAMA, {**FIRST, "embed_tokens.weight": theirs + 1}))
    assert torch.equal(own.embedding.weight, theirs + 1)
    assert own.about["warnings"] == [
        "its embedding is not the target's: it may have been trained for another model"
    ]


def test_a_trace_says_which_head_drafted(target, tmp_path):
    place = publish(tmp_path / "my-head", *speculators(LLAMA, THIRD))
    trace = record(target, Prompt.from_ids(prompt_ids(2)), "eagle3", {"part": place, "depth": 2}, max_new_tokens=6)
    part = trace.run["part"]
    assert (part["from"], part["format"], part["features"]) == ("my-head", "eagle3-speculators", [2, 1, 0])
    assert part["verifier"] == "org/target" and part["draft_vocab"] == DRAFTED and len(part["fingerprint"]) == 24
    assert trace.run["method"]["params"]["part"] == "my-head" and str(tmp_path) not in str(trace.run)


# --- what a checkpoint leaves open


def test_readings_are_tried_on_a_text(target, tmp_path, monkeypatch):
    """States one below and above, both positions; the share is that of the equations."""
    monkeypatch.setattr(fit, "TEXT", "the old lamp at the station was sold")
    head = load_part(target, "eagle3", publish(tmp_path / "head", *speculators(LLAMA, THIRD)))
    trials = head.about["trials"]
    assert [(one["features"], one["offset"]) for one in trials] == [
        ([2, 1, 0], 0), ([2, 1, 0], 1), ([3, 2, 1], 0), ([3, 2, 1], 1)
    ]  # fmt: skip
    tokens = target.tokenizer(fit.TEXT)["input_ids"]
    truth = own_forward(target, tokens).logits[0].argmax(-1).tolist()
    for trial in trials:
        mine = oracle.Head(THIRD, target.embeddings.weight, target.head.weight)
        features, count = states_of(target, tokens, trial["features"]), len(tokens) - 3
        said = []
        for j in range(count):
            row = mine.pair(features[j], None, tokens[j + 1], list(range(j)), j + trial["offset"])
            said.append(mine.after(row)[0][1])
        share = sum(a == b for a, b in zip(said, truth[1 : count + 1], strict=True)) / count
        assert trial["acceptance"] == pytest.approx(share, abs=1e-3)


@pytest.mark.parametrize(("better", "taken"), [(0.9, (3, 2, 1)), (0.52, (2, 1, 0))])
def test_the_reading_that_the_text_speaks_for_is_taken_and_told(target, tmp_path, monkeypatch, caplog, better, taken):
    trials = [Trial({"features": f, "offset": 0}, share) for f, share in (((2, 1, 0), 0.5), ((3, 2, 1), better))]
    monkeypatch.setattr(eagle_published, "readings", lambda network, target: trials)
    head = load_part(target, "eagle3", publish(tmp_path / "head", LLAMA, THIRD))
    about = head.about
    assert head.config.features == taken == tuple(about["features"])
    assert about["acceptance"] == (better if taken == (3, 2, 1) else 0.5)
    if taken == (3, 2, 1):
        assert about["warnings"] == [
            "the checkpoint says states 2, 1, 0 and position 0; with states 3, 2, 1 and position 0 the target agrees "
            "with 90% of its first guesses on a short text, against 50%: this is used"
        ]
        assert [one.getMessage() for one in caplog.records] == [f"head: {about['warnings'][0]}"]
    else:
        assert about["warnings"] == [] == caplog.records


@pytest.mark.parametrize(("better", "taken"), [(0.9, False), (0.52, True)])
def test_what_norm_output_means_is_settled_by_second_guesses(target, tmp_path, monkeypatch, better, taken):
    """SpecForge's heads of 2026 mean two things by it; speculators' are taken at their word."""
    monkeypatch.setattr(eagle_published, "second_guesses", lambda network, target: {True: 0.5, False: better})
    config = {**LLAMA, "norm_output": True}
    head = load_part(target, "eagle3", publish(tmp_path / "head", config, THIRD))
    told = [words for words in head.about["warnings"] if "before the last norm fed back" in words]
    assert head.config.norm_output == head.about["norm_output"] == taken and len(told) == (not taken)
    if told:
        assert "agrees with 90% of its second guesses on a short text, against 50% with that after it" in told[0]
    theirs = publish(tmp_path / "theirs", *speculators(LLAMA, THIRD, norm_output=True))
    head = load_part(target, "eagle3", theirs)
    assert head.config.norm_output and "norm_output" not in head.about


@pytest.mark.parametrize("output", [True, False])
def test_second_guesses_are_those_of_the_equations(target, tmp_path, monkeypatch, output):
    """Of a head that drafts the four tokens that the target writes most, so that some of its guesses are right."""
    monkeypatch.setattr(fit, "TEXT", "the old lamp at the station was sold, and the keeper bought bread")
    tokens = target.tokenizer(fit.TEXT)["input_ids"]
    truth = own_forward(target, tokens).logits[0].argmax(-1).tolist()
    four = torch.tensor(sorted(token for token, _ in Counter(truth).most_common(4)))
    weights = {
        **tensors(True, drafted=4), "d2t": four - torch.arange(4),
        "t2d": torch.zeros(320, dtype=torch.bool).index_fill_(0, four, True),
    }  # fmt: skip
    head = load_part(target, "eagle3", publish(tmp_path / "head", {**LLAMA, "norm_output": output}, weights))
    features, count, shares = states_of(target, tokens, head.config.features), len(tokens) - 4, {}
    for normed in (True, False):
        mine = oracle.Head(weights, target.embeddings.weight, target.head.weight, normed=normed)
        mine.commit(features, tokens)
        said = [mine.after(mine.below(j, tokens[j + 2], j + 1))[0][1] for j in range(count)]
        shares[normed] = sum(a == b for a, b in zip(said, truth[2:], strict=False)) / count
    assert 0 < shares[True] != shares[False] > 0
    assert eagle_published.second_guesses(head, target) == pytest.approx(shares, abs=1e-3)


def test_a_target_without_a_tokenizer_takes_the_checkpoint_at_its_word(tmp_path):
    bare = tiny_target("llama")
    bare.tokenizer = None
    head = load_part(bare, "eagle3", publish(tmp_path / "head", LLAMA, THIRD))
    assert head.config.features == (2, 1, 0) and "trials" not in head.about


def test_a_head_that_is_kept_drafts_by_itself(tmp_path, capsys):
    """``specviz parts add``: the same tree as by naming it, with its reading and where it is from."""
    from decoders.model.target_model.load import load_target
    from specviz.cli import main
    from tests.models import save_model

    model = save_model(tmp_path / "model")
    place = publish(tmp_path / "my-head", *speculators(LLAMA, THIRD))
    assert main(["parts", "add", place, "--model", model]) == 0
    told = capsys.readouterr().out
    assert "my-head (EAGLE-3 in the form of speculators) is kept as the EAGLE-3 head of" in told
    assert "it reads the states 2, 1, 0" in told and "of its first guesses were the target's own" in told
    target, prompt = load_target(model), Prompt.from_ids(prompt_ids(2))
    own = record(target, prompt, "eagle3", {"depth": 2}, max_new_tokens=6)
    named = record(target, prompt, "eagle3", {"depth": 2, "part": place}, max_new_tokens=6)
    assert own.tables["nodes"]["token"] == named.tables["nodes"]["token"]
    assert own.run["part"]["from"] == "my-head" and own.run["part"]["fingerprint"] == named.run["part"]["fingerprint"]
    assert "there is no checkpoint" in refusal(capsys, "parts", "add", tmp_path / "nowhere", "--model", model)


@pytest.mark.parametrize("hidden", [33, 40])
def test_positions_are_made_of_the_heads_sizes_whatever_the_width(hidden: int) -> None:
    """A width that the number of heads does not divide is no reason to fail: the head's size is its own."""
    config = EagleConfig.of(tiny_target().shape, third=True)
    cos, sin = replace(config, hidden=hidden, heads=6, kv_heads=6, head_dim=8).rotary(5, torch.zeros(1))
    assert cos.shape == sin.shape == (5, 8)
