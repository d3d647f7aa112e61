"""Copying heads and the best layer, against brute force and transformers' own eager attention."""

import copy
import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

from decoders.draft.needs import Needs
from decoders.engine.decoding import decode
from decoders.errors import UserError
from decoders.model.files.calibration import Calibration, fingerprint, load_calibration, rank_heads, save_calibration
from decoders.model.files.catalog import BUNDLED, EARLIER_KEYS, current_key, shipped_key
from decoders.model.target_model.target import Target
from decoders.prompt.prompt import Prompt
from decoders.study.measure import calibrate as cal
from decoders.study.measure.calibrate import calibrate, simulate_hidden
from decoders.study.measure.heads import copy_sources, count_copies, strongest_positions

from .models import session_behind

torch.set_num_threads(1)  # toys: more threads only cost

BASE = dict(
    vocab_size=40, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=256, bos_token_id=0, eos_token_id=None,
)  # fmt: skip


def make(kind: str = "llama", seed: int = 0):
    torch.manual_seed(seed)
    if kind == "gpt2":
        config = dict(n_embd=32, n_layer=3, n_head=4, n_positions=256, bos_token_id=0, eos_token_id=None)
        model = GPT2LMHeadModel(GPT2Config(vocab_size=40, **config))
    elif kind == "window":
        model = MistralForCausalLM(MistralConfig(**BASE, sliding_window=12))
    else:
        model = LlamaForCausalLM(LlamaConfig(**BASE))
    for parameter in model.parameters():
        if parameter.ndim > 1:
            parameter.data.normal_(0, 0.3)
    return model.eval()


def calibration_of(target: Target):
    return load_calibration(target.key, target.shape.layers, target.shape.heads)


def target_of(kind: str = "llama", seed: int = 0, **options) -> Target:
    return Target(make(kind, seed), None, "toy", **options)


def sources_by_hand(tokens: list[int], prompt_length: int) -> list[int]:
    found = []
    for t in range(prompt_length, len(tokens)):
        best, where = -1, -1
        for j in (j for j in range(prompt_length) if tokens[j] == tokens[t]):
            same = 0
            while same < j and t - same > prompt_length and tokens[j - 1 - same] == tokens[t - 1 - same]:
                same += 1
            if same > best:
                best, where = same, j
        found.append(where)
    return found


def test_the_longest_suffix_wins():
    assert copy_sources([7, 5, 9, 5, 8, 9, 5, 8, 4], 5).tolist() == [2, 3, 4, -1]
    # "1 2" stands twice: only the second is preceded by 9, as in the output
    assert copy_sources([1, 2, 5, 9, 1, 2, 9, 1, 2], 6).tolist() == [3, 4, 5]


def test_the_suffix_ends_where_the_output_begins():
    # the prompt ends in 3; the first output token has no output before it, so both 5s tie and the earliest wins
    assert copy_sources([5, 3, 5, 3, 5], 4).tolist() == [0]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=2, max_size=40), st.integers(1, 30))
def test_sources_match_brute_force(tokens, prompt_length):
    prompt_length = min(prompt_length, len(tokens) - 1)
    assert copy_sources(tokens, prompt_length).tolist() == sources_by_hand(tokens, prompt_length)


@pytest.mark.parametrize("kind", ["llama", "gpt2", "window"])
def test_strongest_positions_are_those_of_eager_attention(kind):
    tokens = torch.randint(2, 40, (40,), generator=torch.Generator().manual_seed(3)).tolist()
    model = make(kind)
    model.config._attn_implementation = "eager"
    with torch.no_grad():
        eager = model(torch.tensor([tokens]), output_attentions=True).attentions
    target = target_of(kind)
    heads = tuple((layer, head) for layer in range(3) for head in range(4))
    session = session_behind(target, tokens, 64, Needs(heads=heads))
    rows = range(10, 39)
    ours = strongest_positions(session.context, rows)
    for index, (layer, head) in enumerate(heads):
        assert ours[:, index].tolist() == eager[layer][0, head, 10:39].argmax(-1).tolist()
    assert strongest_positions(session.context, []).shape == (0, 12)
    some = session_behind(target, tokens, 64, Needs(heads=((0, 2), (2, 1))))
    assert (strongest_positions(some.context, rows) == ours[:, [2, 9]]).all()


def test_counts_and_their_order():
    assert count_copies(np.array([[2, 0], [1, 1], [4, 4]]), np.array([2, 1, -1])).tolist() == [2, 1]
    assert rank_heads([[0, 3], [5, 3]]) == [(1, 0), (0, 1), (1, 1), (0, 0)]


PROMPTS = [
    Prompt.from_ids([*range(2, 40), *range(5, 20), 3]),
    Prompt.from_ids([5, 6, 7, 14, 31, 7, 34, 1, 2, 31, 30, 26, 6]),
]


def test_simulation_takes_the_steps_of_real_decoding():
    target, spared = target_of(), 0
    with torch.no_grad():
        for prompt in PROMPTS:
            for layer in (0, 2, 3):
                steps = list(decode(target, prompt, "pld+h", {"layer": layer, "k": 5}, max_new_tokens=30, stop_ids=()))
                output = [token for step in steps for token in step.emitted]
                tokens = [*prompt.tokens, *output]
                session = session_behind(target, tokens, len(tokens), Needs(layers=(layer,)))
                accepted = simulate_hidden(tokens, len(prompt.tokens), session.context.hidden, 5, 30)
                assert accepted == [step.accepted for step in steps]
                spared += len(output) - len(steps)
    assert spared > 5  # this toy repeats itself: drafts are accepted


def test_simulation_by_hand():
    # methods.md §2, from 0 on: root 5 at 5, candidates 1 and 3... the state before 3 is like the one before the root
    tokens = [5, 7, 9, 5, 8, 5, 8, 5, 8]
    hidden = torch.tensor([[1.0, 0], [0, 0.1], [0, 1], [1, 1], [0, 2], [1, 0], [0, 1], [0, 1]])
    assert simulate_hidden(tokens, 6, hidden, 2, 9) == [2]
    assert simulate_hidden(tokens, 6, hidden, 1, 9) == [1, 1]
    assert simulate_hidden(tokens, 6, hidden, 9, 3) == [2]  # the bonus needs room
    assert simulate_hidden([1, 2, 3, 4], 2, torch.eye(3), 9, 9) == [0, 0]  # nothing to copy


def test_calibration_counts_what_eager_attention_shows():
    target, model = target_of(), make()
    result = calibrate(target, PROMPTS, max_new_tokens=20)
    model.config._attn_implementation = "eager"
    counts, counted = np.zeros((3, 4), dtype=int), 0
    for prompt in PROMPTS:
        ids = torch.tensor([prompt.tokens])
        with torch.no_grad():
            full = model.generate(ids, max_new_tokens=20, do_sample=False, pad_token_id=0)[0].tolist()
            rows = model(torch.tensor([full]), output_attentions=True).attentions
        start = len(prompt.tokens)
        for i, source in enumerate(sources_by_hand(full, start)):
            if source >= 0:
                counted += 1
                for layer in range(3):
                    counts[layer] += rows[layer][0, :, start + i - 1].argmax(-1).numpy() == source
    assert np.array_equal(result.head_counts, counts) and counts.any()
    assert result.tokens_counted == counted and result.prompts == 2
    assert len(result.tokens_per_step) == 4 and min(result.tokens_per_step) >= 1
    assert result.best_layer == int(np.argmax(result.tokens_per_step))
    assert result.top_heads(2) == rank_heads(counts)[:2]


def test_it_is_kept_beside_the_settings_and_found_again(home):
    target = target_of()
    assert calibration_of(target) is None
    seen = []
    result = calibrate(target, PROMPTS, max_new_tokens=8, progress=lambda done, total: seen.append((done, total)))
    path = save_calibration(result)
    assert seen == [(1, 2), (2, 2)]
    assert path.parent == home / "home" / "calibration" and len(list(path.parent.iterdir())) == 1
    assert calibration_of(target) == result
    assert calibration_of(target_of(packed=False)) == result
    assert calibration_of(target_of(seed=1)) is None
    path.write_text(json.dumps({**result.to_json(), "best_layer": 9}))
    assert calibration_of(target) is None  # damaged: left out


def test_the_packaged_one_serves_its_own_model_only(tmp_path, home, monkeypatch):
    monkeypatch.setattr("decoders.model.files.calibration.PACKAGE_FILES", (tmp_path / "calibration.json",))
    result = calibrate(target_of(), PROMPTS, max_new_tokens=8)
    save_calibration(result, tmp_path / "calibration.json")
    assert calibration_of(target_of()) == result
    assert calibration_of(target_of(seed=1)) is None


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_the_key_knows_the_model_not_its_dtype(kind):
    half = make(kind).half().float()  # as if stored in fp16
    same = [(copy.deepcopy(half), False), (copy.deepcopy(half), True), (half.to(torch.bfloat16), False)]
    keys = {Target(model, None, f"name {packed}", packed=packed).key for model, packed in same}
    assert len(keys) == 1
    changed = make(kind)
    next(p for n, p in changed.named_parameters() if "mlp" in n and p.ndim == 2).data.mul_(1.5)
    assert Target(changed, None, "d").key not in keys


def test_the_key_knows_the_function_not_where_it_lies_or_who_opened_it():
    model = make("llama")

    def key(**settings) -> str:
        config = copy.deepcopy(model.config)
        for name, value in settings.items():
            setattr(config, name, value)
        return fingerprint(config, model.model.parameters())

    rope = model.config.rope_parameters
    same = {
        key(), key(_name_or_path="/another/place"), key(a_default_of_a_later_version=3), key(use_cache=False),
        key(transformers_version="9.9"), key(max_position_embeddings=77), key(eos_token_id=5),
        key(rms_norm_eps=float(torch.tensor(model.config.rms_norm_eps))),  # as a GGUF file keeps it
        key(rope_parameters={**rope, "a_default_of_a_later_version": None}),
    }  # fmt: skip
    assert same == {key()}
    others = {
        key(rms_norm_eps=0.001), key(hidden_act="gelu"), key(rope_parameters={**rope, "rope_theta": 123.0}),
        key(num_attention_heads=model.config.num_attention_heads // 2),
        key(rope_parameters={**rope, "rope_type": "linear", "factor": 2.0}),
        key(rope_parameters={**rope, "rope_type": "linear", "factor": 4.0}),
    }  # fmt: skip
    assert len(others) == 6 and not others & same


def test_what_was_kept_under_an_earlier_key_still_belongs():
    old, now = next((old, now) for old, now in EARLIER_KEYS.items() if now == shipped_key(BUNDLED))
    assert old != now == current_key(old) == current_key(now) and current_key("another") == "another"
    kept = Calibration(old, "m", (1.0, 2.0), 1, ((3, 4),), 5, 1, 20)
    assert Calibration.from_json(kept.to_json()).model_key == now


def test_bad_input(monkeypatch):
    with pytest.raises(UserError, match="at least one prompt"):
        calibrate(target_of(), [])
    monkeypatch.setattr(cal, "generate", lambda *a, **k: [20, 21, 22])
    with pytest.raises(UserError, match="no output token occurs in its prompt"):
        calibrate(target_of(), PROMPTS[1:])
    good = Calibration("k", "m", (1.0, 2.0), 1, ((3, 4),), 5, 1, 20).to_json()
    assert Calibration.from_json(good).top_heads(1) == [(0, 1)]
    for change in (
        {"schema": "x"},
        {"best_layer": 2},
        {"best_layer": "a"},
        {"head_counts": [[1], [2]]},
        {"tokens_per_step": None},
    ):
        with pytest.raises(ValueError, match="calibration"):
            Calibration.from_json({**good, **change})
    with pytest.raises(ValueError, match="calibration"):
        Calibration.from_json([])
