"""Growing a model changes its size and nothing else."""

import json

import pytest
import torch
from safetensors import safe_open
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
)

from decoders import Prompt, load_target
from decoders.draft.draft import Draft
from decoders.draft.needs import Needs
from decoders.draft.tree import DraftTree
from decoders.errors import UserError
from decoders.model.calibration import save_calibration
from decoders.parts import load_part
from decoders.study.calibrate import calibrate
from decoders.study.expand import expand, expand_to_folder, layer_map
from decoders.study.shapes import SHAPES, Shape

from .drafts import save_tiny_part
from .models import VOCAB, prompt_ids, tiny_tokenizer
from .tiers import matrix

torch.set_num_threads(1)  # toys: more threads only cost

MHA = Shape("toy", hidden=72, layers=9, heads=6, kv_heads=6, head_dim=32, mlp=90)
GQA = Shape("toy", hidden=96, layers=4, heads=16, kv_heads=4, head_dim=16, mlp=100)


def toy(*, kv_heads: int = 4, tied: bool = False, **settings) -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=100, hidden_size=32, intermediate_size=48, num_hidden_layers=4, num_attention_heads=4, head_dim=8,
        num_key_value_heads=kv_heads, tie_word_embeddings=tied, rms_norm_eps=1e-5, bos_token_id=0, eos_token_id=1,
        max_position_embeddings=256, **settings,
    )  # fmt: skip
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).eval()
    for parameter in model.parameters():
        if parameter.ndim > 1:
            parameter.data.normal_(0, 0.15)
        else:
            parameter.data.uniform_(0.5, 1.5)
    model.model.embed_tokens.weight.data *= 0.1  # a small stream: the norm's epsilon matters
    return model


IDS = torch.randint(3, 100, (2, 40), generator=torch.Generator().manual_seed(1))


def difference(a, b) -> float:
    with torch.no_grad():
        return (a(IDS).logits - b(IDS).logits).abs().max().item()


@pytest.mark.parametrize(
    ("shape", "kv_heads", "tied"),
    [(MHA, 4, False), (MHA, 2, True), (MHA, 1, False), (GQA, 4, True), (GQA, 2, False), (GQA, 1, True)],
)
def test_logits_are_equal(shape, kv_heads, tied):
    small = toy(kv_heads=kv_heads, tied=tied)
    large = expand(small, shape)
    assert difference(small, large) < 2e-5
    assert sum(p.numel() for p in large.parameters()) == shape.parameters(100, tied)


LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}


@pytest.mark.parametrize("rope", [{"rope_type": "linear", "factor": 2.0}, {"rope_type": "llama3", **LLAMA3}])
def test_rotary_kinds(rope):
    small = toy(rope_parameters={"rope_theta": 10000.0, **rope})
    assert difference(small, expand(small, MHA)) < 2e-5


def test_biases():
    small = toy(kv_heads=2, attention_bias=True, mlp_bias=True)
    assert difference(small, expand(small, GQA)) < 2e-5


def test_mistral_without_a_window():
    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=100, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, sliding_window=None,
    )  # fmt: skip
    small = MistralForCausalLM(config).eval()
    assert difference(small, expand(small, MHA)) < 2e-5


def test_the_check_would_notice_an_unscaled_epsilon():
    small = toy()
    large = expand(small, MHA)
    for module in large.modules():
        if hasattr(module, "variance_epsilon"):
            module.variance_epsilon = 1e-5
    assert difference(small, large) > 1e-3


def test_hidden_states_map_proportionally():
    small = toy()
    large = expand(small, MHA)
    with torch.no_grad():
        a = small(IDS, output_hidden_states=True).hidden_states
        b = large(IDS, output_hidden_states=True).hidden_states
    for k, state in enumerate(a):
        wide = b[round(k * 9 / 4 + 1e-9)]
        assert torch.allclose(wide[..., :32], state, atol=2e-5)
        if k < 4:  # the last one is after the norm
            assert not wide[..., 32:].any()


def test_layer_map_spreads_over_the_depth():
    assert layer_map(4, 9) == [1, 4, 6, 8]
    assert layer_map(6, 6) == list(range(6))
    assert layer_map(6, 32) == [4, 10, 15, 20, 26, 31]


def test_dead_weights_are_random_but_write_nothing():
    layers = expand(toy(), MHA).model.layers
    dead = layers[0]  # not in layer_map(4, 9)
    assert dead.self_attn.q_proj.weight.std() > 0.01 and dead.mlp.up_proj.weight.std() > 0.01
    assert not dead.self_attn.o_proj.weight.any() and not dead.mlp.down_proj.weight.any()
    assert layers[1].mlp.down_proj.weight[:32, :48].any()


def test_sizes_are_what_their_names_say():
    sizes = {name: shape.parameters(2500, True) for name, shape in SHAPES.items()}
    assert 0.97 * 103e6 < sizes["103m"] < 1.03 * 103e6
    assert 0.9e9 < sizes["1b"] < 1.1e9
    assert 6.3e9 < sizes["7b"] < 7e9


def save(model, folder):
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text("{}")
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    return folder


@pytest.mark.parametrize("tied", matrix([False, True], 1, "the other way"), ids=["untied", "tied"])
def test_a_folder_in_shards(tmp_path, tied):
    small = toy(kv_heads=2, tied=tied)
    small.generation_config.max_new_tokens = 77
    source, out, seen = save(small, tmp_path / "small"), tmp_path / "deep" / "large", []
    expand_to_folder(source, MHA, out, shard_bytes=40_000, progress=lambda done, total: seen.append((done, total)))
    shards = sorted(out.glob("model-*.safetensors"))
    index = json.loads((out / "model.safetensors.index.json").read_text())
    assert len(shards) > 5 and set(index["weight_map"].values()) == {s.name for s in shards}
    large = AutoModelForCausalLM.from_pretrained(out)
    assert large.config.specviz_name == "small-toy"
    assert difference(small, large) < 2e-5
    assert large.generation_config.max_new_tokens == 77
    assert (out / "tokenizer.json").read_text() == "{}" and (out / "chat_template.jinja").exists()
    assert seen[-1] == (seen[-1][1], MHA.parameters(100, tied))
    assert [p.name for p in out.parent.iterdir()] == ["large"]
    assert expand(small, MHA).state_dict().keys() == large.state_dict().keys()


def test_one_shard_is_one_file_in_the_asked_dtype(tmp_path):
    out = expand_to_folder(save(toy(), tmp_path / "small"), MHA, tmp_path / "large", dtype="bfloat16")
    assert sorted(f.name for f in out.glob("*.safetensors*")) == ["model.safetensors"]
    assert (out / "model.safetensors").stat().st_mode == (out / "config.json").stat().st_mode
    with safe_open(out / "model.safetensors", "pt") as file:
        index = file.keys()
        assert {file.get_tensor(name).dtype for name in index} == {torch.bfloat16}


def test_exact_in_half_precision_when_the_factors_are_powers_of_two(tmp_path):
    shape = Shape("toy", hidden=128, layers=5, heads=4, kv_heads=4, head_dim=32, mlp=64)  # width × 4, head size × 4
    small = toy().half().float()
    assert difference(small, expand(small, shape, dtype=torch.float16).float()) < 2e-5


def test_the_seed_makes_it_reproducible():
    a, b, c = (expand(toy(), MHA, seed=seed).model.layers[0].mlp.up_proj.weight for seed in (0, 0, 1))
    assert torch.equal(a, b) and not torch.equal(a, c)


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ("3b", "unknown size '3b': models grow to 103m, 1b, 7b"),
        (Shape("toy", 16, 9, 8, 8, 32, 90), "hidden size is 32, that of toy only 16"),
        (Shape("toy", 64, 2, 8, 8, 32, 90), "number of layers is 4, that of toy only 2"),
        (Shape("toy", 64, 9, 8, 8, 12, 90), "head size 8 must divide that of toy, 12"),
        (Shape("toy", 64, 9, 8, 2, 32, 90), "4 heads over 4 key/value heads do not fit into 8 over 2"),
    ],
)
def test_shapes_that_do_not_fit(shape, words):
    with pytest.raises(UserError, match=words):
        expand(toy(), shape)


def test_other_families_are_refused_by_name(tmp_path):
    GPT2Config(n_embd=32, n_layer=1, n_head=2).save_pretrained(tmp_path / "gpt2")
    MistralConfig(hidden_size=32, sliding_window=16).save_pretrained(tmp_path / "window")
    yarn = {"rope_type": "yarn", "factor": 2.0, "rope_theta": 1e4}
    LlamaConfig(hidden_size=32, rope_parameters=yarn).save_pretrained(tmp_path / "yarn")
    for name, words in (("gpt2", "'gpt2' models cannot be grown"), ("window", "sliding window"), ("yarn", "'yarn'")):
        with pytest.raises(UserError, match=words):
            expand_to_folder(tmp_path / name, MHA, tmp_path / "out")
    with pytest.raises(UserError, match="there is no model in"):
        expand_to_folder(tmp_path / "nothing", MHA, tmp_path / "out")
    (tmp_path / "gpt2" / "config.json").write_text('{"model_type": "martian"}')
    with pytest.raises(UserError, match="cannot read a model from"):
        expand_to_folder(tmp_path / "gpt2", MHA, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_nothing_half_written(tmp_path):
    source = save(toy(), tmp_path / "small")

    def stop(done, total):
        if done > total / 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        expand_to_folder(source, MHA, tmp_path / "large", progress=stop)
    (tmp_path / "taken").mkdir()
    with pytest.raises(UserError, match="already there"):
        expand_to_folder(source, MHA, tmp_path / "taken")
    with pytest.raises(UserError, match="'int8': allowed are float32, float16, bfloat16"):
        expand_to_folder(source, MHA, tmp_path / "large", dtype="int8")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["small", "taken"]


@pytest.mark.parametrize("dtype", matrix(["bfloat16", "float32"], 1, "the other dtype"))
def test_the_calibration_is_carried_over(tmp_path, monkeypatch, dtype):
    monkeypatch.setenv("SPECVIZ_HOME", str(tmp_path / "home"))
    network = toy(kv_heads=2)
    network.resize_token_embeddings(VOCAB)
    network.save_pretrained(tmp_path / "small")
    tiny_tokenizer().save_pretrained(tmp_path / "small")
    small = load_target(tmp_path / "small")
    prompts = [Prompt.from_ids(prompt_ids(seed)) for seed in range(3)]
    found = calibrate(small, prompts, max_new_tokens=12)
    save_calibration(found)
    expand_to_folder(tmp_path / "small", MHA, tmp_path / "large", dtype=dtype)
    large = load_target(tmp_path / "large", dtype="float32")
    carried = large.calibration
    assert carried is not None and carried.model == "small-toy"
    if dtype == "float32":  # the same counts where only rounding differs
        measured = calibrate(large, prompts, max_new_tokens=12)
        assert [carried.head_counts[i] for i in layer_map(4, 9)] == [measured.head_counts[i] for i in layer_map(4, 9)]
        assert carried.tokens_per_step == measured.tokens_per_step
        assert carried.best_layer == measured.best_layer and sum(map(sum, carried.head_counts)) > 0


def test_an_uncalibrated_model_grows_without_one(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECVIZ_HOME", str(tmp_path / "home"))
    expand_to_folder(save(toy(), tmp_path / "small"), MHA, tmp_path / "large")
    assert not (tmp_path / "home").exists()


def test_prompt_tokens_are_carried_over(tmp_path, monkeypatch):
    """They guess the same after the same text."""
    monkeypatch.setenv("SPECVIZ_HOME", str(tmp_path / "home"))
    network = toy(kv_heads=2)
    network.resize_token_embeddings(VOCAB)
    network.save_pretrained(tmp_path / "small")
    tiny_tokenizer().save_pretrained(tmp_path / "small")
    small = load_target(tmp_path / "small", dtype="float32")
    save_tiny_part(small, "ppd", vectors=2)
    large = load_target(expand_to_folder(tmp_path / "small", MHA, tmp_path / "large", dtype="float32"), dtype="float32")
    guesses = []
    for target in (small, large):
        session = target.session(Needs(), 60)
        session.prefill(prompt_ids(2))
        prompts = load_part(target, "ppd")
        draft = Draft(DraftTree.chain(session.context.root, [7]), probes=prompts.probes(1, 3, 0))
        guesses.append(prompts.guesses(session.score(draft).probe_logits))
    assert guesses[0].std() > 0.1
    torch.testing.assert_close(*guesses, atol=1e-3, rtol=1e-3)
