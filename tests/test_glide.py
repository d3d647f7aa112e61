"""GLIDE's draft model: what it sees (methods.md §6), its cache as a function of the context, exact drafts."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from decoders import Prompt, Sampling, UserError, find_method, generate
from decoders.draft_models import network as glide
from decoders.draft_models.draft_run import DraftRun, target_rotary
from decoders.draft_models.network import DraftConfig, DraftModel, TargetView, block_mask, refusal
from decoders.engine.decoding import Decoding, read_once
from decoders.model.files.shape import ModelShape

from .drafts import save_tiny_part, tiny_draft
from .models import VOCAB, configs, prompt_ids, session_behind, tiny_target
from .tiers import matrix

pytestmark = pytest.mark.usefixtures("home")
NEW = 24
FAMILIES = ("llama", "mistral", "mistral-window", "qwen2", "qwen2-window", "qwen3")


def context_of(target, tokens):
    return session_behind(target, tokens, len(tokens) + 40).context


def run_of(target, kind="glide", **options):
    return DraftRun(tiny_draft(target, kind, **options), target_rotary(target.stack))


def test_the_block_mask_of_the_oracle():
    mask = block_mask(16, 5)
    for query, last in {3: 3, 5: 4, 7: 4, 9: 4, 10: 9, 14: 9, 15: 14, 0: 0}.items():
        assert torch.nonzero(mask[query]).flatten().tolist() == list(range(last + 1)), query


def seen_of(target, tokens, config):
    context = context_of(target, [*tokens, 5])
    cos, sin = target_rotary(target.stack)(torch.arange(len(tokens)))
    mask = block_mask(len(tokens))
    return [TargetView(context.keys(i)[None], context.values(i)[None], cos, sin, mask) for i in config.kv_layers]


@pytest.mark.parametrize("layers", [1, 2])
def test_without_its_output_projection_it_is_the_vanilla_drafter(layers):
    target = tiny_target("qwen3")
    glide = tiny_draft(target, "glide", layers=layers)
    vanilla = DraftModel(DraftConfig.of(target.shape, glimpse=False, layers=layers))
    vanilla.load_state_dict({k: v for k, v in glide.state_dict().items() if ".glimpse." not in k})
    tokens = prompt_ids(1, 33)
    seen, ids = seen_of(target, tokens, glide.config), torch.tensor([tokens])
    assert not torch.allclose(glide(ids, seen), vanilla(ids), atol=1e-2)
    for layer in glide.layers:
        layer.glimpse.out.weight.zero_()
    torch.testing.assert_close(glide(ids, seen), vanilla(ids))


def test_only_keys_of_earlier_blocks_change_anything():
    target = tiny_target("llama")
    model, tokens = tiny_draft(target, "glide", layers=2), prompt_ids(2, 30)
    ids, seen = torch.tensor([tokens]), seen_of(target, tokens, DraftConfig.of(target.shape, glimpse=True, layers=2))
    before = model(ids, seen)

    def changes(position):
        keys = [s.keys.clone() for s in seen]
        for k in keys:
            k[:, :, position] += 3.0
        after = model(ids, [TargetView(k, s.values, s.cos, s.sin, s.mask) for k, s in zip(keys, seen, strict=True)])
        return [i for i in range(30) if not torch.allclose(before[0, i], after[0, i], atol=1e-5)]

    assert min(changes(12)) == 15  # block 10 … 14: its own queries see nothing of it
    assert 14 not in changes(14) and 15 in changes(14)
    assert min(changes(2)) == 2  # the first block is causal


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("layers", [1, 2])
def test_a_run_step_by_step_equals_the_training_forward(family, layers):
    """The first draft row of a block sees what a training query at the block's start sees."""
    target, length = tiny_target(family), 26
    tokens = prompt_ids(4, length)
    run = run_of(target, layers=layers)
    logits = run.read(context_of(target, tokens))
    root = length - 1
    context = context_of(target, [*tokens, 5])
    cos, sin = target_rotary(target.stack)(torch.arange(length))
    causal = torch.ones(length, length, dtype=torch.bool).tril(-1)  # every committed position sees those before it
    seen = [
        TargetView(context.keys(i)[None], context.values(i)[None], cos, sin, causal) for i in run.model.config.kv_layers
    ]
    states = run.model(torch.tensor([tokens]), seen)
    torch.testing.assert_close(logits, run.model.head(states)[0, root], atol=2e-4, rtol=1e-4)
    # a chain: every drafted row sees the keys before the root
    chain = prompt_ids(5, 4)
    rows = [run.extend([token], [i - 1])[0] for i, token in enumerate(chain)]
    whole = [*tokens, *chain]
    cos, sin = target_rotary(target.stack)(torch.arange(len(whole)))
    mask = torch.ones(len(whole), root, dtype=torch.bool).tril(-1)
    seen = [
        TargetView(context.keys(i)[None, :, :root], context.values(i)[None, :, :root], cos, sin, mask)
        for i in run.model.config.kv_layers
    ]
    expected = run.model.head(run.model(torch.tensor([whole]), seen))[0, length:]
    torch.testing.assert_close(torch.stack(rows), expected, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", ["glide", "drafter"])
def test_a_tree_scores_as_its_paths_do(kind):
    target = tiny_target("qwen3")
    tokens = prompt_ids(6, 30)
    context = context_of(target, tokens)
    run = run_of(target, kind, layers=2)
    run.read(context)
    first = run.extend([7, 8, 9], [-1, -1, -1])
    second = run.extend([10, 11, 12], [2, 0, 0])
    for path, row in (([7], first[0]), ([9], first[2]), ([9, 10], second[0]), ([7, 12], second[2])):
        other = run_of(target, kind, layers=2)
        other.read(context)
        for i, token in enumerate(path):
            logits = other.extend([token], [i - 1])
        torch.testing.assert_close(logits[0], row, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("layers", [1, 2])
def test_its_cache_is_a_function_of_the_context(layers):
    """Grown step by step, cut back, thrown onto another text: always what a fresh run gives."""
    target = tiny_target("qwen3")
    save_tiny_part(target, "glide", layers=layers)
    decoding = Decoding.of(target, Prompt.from_ids(prompt_ids(3)), "glide", max_new_tokens=NEW)
    grown = decoding.drafter
    drafts = {step.context_length: step.draft for step in decoding}
    assert len(drafts) > 3
    context = decoding.context
    other = context_of(target, [*context.tokens[:50].tolist(), *prompt_ids(9, 20)])
    for length in [*drafts, 61, 64, 70, 63]:
        fresh = find_method("glide").build(target, find_method("glide").params())
        expected = fresh.propose(context.cut(length), 5).tree
        assert grown.propose(context.cut(length), 5).tree == expected
        if length in drafts and drafts[length].tree.drafted == 5:
            assert drafts[length].tree == expected
        if length == 64:
            assert grown.propose(other, 5).tree == fresh.propose(other, 5).tree


@pytest.mark.parametrize("family", matrix(FAMILIES, ("llama", "qwen2-window"), "the other families"))
def test_lossless_on_every_family(family):
    target = tiny_target(family, dtype=torch.float64)
    save_tiny_part(target, "glide", layers=2)
    prompt = Prompt.from_ids(prompt_ids(3))
    plain = generate(target, prompt, max_new_tokens=NEW)
    for name, params in (("glide", {}), ("glide+cape", {}), ("glide+cape", {"expansion": "beam 4", "gamma": 3})):
        assert generate(target, prompt, name, params, max_new_tokens=NEW) == plain, name


@pytest.mark.parametrize("length", [1, 2, 3])
def test_the_shortest_prompts(length):
    target = tiny_target("qwen3")
    save_tiny_part(target, "glide", layers=2)
    prompt = Prompt.from_ids([7, 9, 11][:length])
    assert generate(target, prompt, "glide", max_new_tokens=6) == generate(target, prompt, max_new_tokens=6)


@pytest.mark.parametrize(
    ("name", "params"),
    matrix(
        [("sps", {"expansion": "fixed"}), ("glide", {}), ("glide+cape", {}), ("sps", {}), ("glide", {"rule": "block"})],
        1,
        "hundreds of texts each",
    ),
)
def test_sampled_texts_come_out_as_the_target_would_have_drawn_them(name, params):
    """Chi-square over the first two tokens of whole runs, against the target's own probabilities."""
    target = tiny_target("qwen3")
    save_tiny_part(target, "glide")
    save_tiny_part(target, "drafter")
    prompt, sampling = prompt_ids(3, 20), {"temperature": 1.0, "top_k": 3}
    warp = Decoding.of(target, Prompt.from_ids(prompt), "plain", sampling=Sampling(**sampling)).verifier.chooser
    first = warp.probabilities(target.reference_logits(prompt)[-1:].float())[0]
    expected: dict[tuple[int, int], float] = {}
    for token in torch.nonzero(first).flatten().tolist():
        second = warp.probabilities(target.reference_logits([*prompt, token])[-1:].float())[0]
        expected |= {(token, t): float(first[token] * second[t]) for t in torch.nonzero(second).flatten().tolist()}
    runs = 200
    counts, read = dict.fromkeys(expected, 0), None
    for seed in range(runs):
        run = Decoding.of(
            target, Prompt.from_ids(prompt), name, {**params, "gamma": 2},
            sampling=Sampling(**sampling, seed=seed), max_new_tokens=3,
        )  # fmt: skip
        read = read or read_once([run])
        run.prefill(read)
        written: list[int] = []
        for step in run:  # as far as it is looked at
            written += step.emitted
            if len(written) > 1:
                break
        counts[written[0], written[1]] += 1
    total = sum(expected.values())
    assert total == pytest.approx(1, abs=1e-5)
    assert chisquare(list(counts.values()), [p * runs / total for p in expected.values()]).pvalue > 1e-3


def test_sampled_runs_are_drawn_and_repeatable():
    target = tiny_target("qwen3")
    save_tiny_part(target, "glide")
    sampling = Sampling(temperature=1.0, seed=5)
    runs = [
        list(Decoding.of(target, Prompt.from_ids(prompt_ids(3)), "glide", sampling=sampling, max_new_tokens=NEW))
        for _ in range(2)
    ]
    assert [s.emitted for s in runs[0]] == [s.emitted for s in runs[1]]
    assert all(s.draft.drawn and s.draft.route == "drawn" for s in runs[0] if s.draft.tree.drafted)
    ratios = np.concatenate([s.verdict.terms["accept_ratio"][1:] for s in runs[0] if s.draft.tree.drafted])
    assert np.isfinite(ratios).any() and np.nanmin(ratios) >= 0 and np.nanmax(ratios) <= 1


def test_what_is_recorded():
    target = tiny_target("qwen3")
    save_tiny_part(target, "glide")
    run = Decoding.of(target, Prompt.from_ids(prompt_ids(3)), "glide+cape", max_new_tokens=NEW)
    step = next(iter(run))
    draft, tree = step.draft, step.draft.tree
    assert draft.origins[:5] == ("root", *["drafter"] * 4) and set(draft.origins[5:]) == {"expansion"}
    confidence = draft.terms["confidence"]
    for node in range(1, len(tree)):
        assert confidence[node] == confidence[tree.depths[node]] and draft.terms["kv_delay"][node] == tree.depths[node]
        assert draft.terms["bin"][node] == min(9, int(10 * confidence[node]))
    assert draft.notes["gamma"] == draft.notes["kv_delay"] == 4 and draft.notes["forward_ms"] > 0
    beta = step.verdict.terms["overlap"][1]
    p, q = step.scored.logits[0].softmax(-1), draft.distributions[0]
    assert beta == pytest.approx(float(torch.minimum(p, q).sum()), abs=1e-5)


def test_attention_onto_the_context_can_be_looked_at(monkeypatch):
    target = tiny_target("qwen3")
    run, context = run_of(target, layers=2), context_of(target, prompt_ids(3))
    outputs, real = [], glide.attend

    def attend(query, keys, values, mask, causal=False):
        out = real(query, keys, values, mask, causal)
        if keys.shape[2] == 59:  # the target's, not the draft's own
            outputs.append(out[0, -1].unflatten(0, (4, -1)))
        return out

    monkeypatch.setattr(glide, "attend", attend)
    run.read(context)
    run.extend([7], [-1])
    run.extend([8], [0])
    weights = run.looks([0, 1, 2])()
    assert weights.shape == (2, 4, 3, 59)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 4, 3))
    for row in range(3):
        for place, layer in enumerate((1, 2)):
            values = context.values(layer).repeat_interleave(2, 0)
            said = (weights[place, :, row, None] @ values)[:, 0]
            torch.testing.assert_close(said, outputs[2 * row + place])
    run.read(context)
    assert run.looks([0])().shape == (2, 4, 1, 59)


def test_options_of_the_shape():
    config = ModelShape.of(configs()["qwen3"])
    assert DraftConfig.of(config, glimpse=True).kv_layers == (2,)  # N_T − N_D + m
    assert DraftConfig.of(config, glimpse=True, layers=2).kv_layers == (1, 2)
    assert DraftConfig.of(config, glimpse=True, kv_layer=0).kv_layers == (0,)
    made = DraftConfig.of(config, glimpse=True, layers=2, hidden=96)
    assert DraftConfig.from_json(made.to_json()) == made and made.hidden == 96 and made.vocab == VOCAB
    with pytest.raises(UserError, match="KV layer 3 is out of range: with 1 draft layer it is 0 to 2"):
        DraftConfig.of(config, glimpse=True, kv_layer=3)
    with pytest.raises(UserError, match="with 2 draft layers it is 1 to 2"):
        DraftConfig.of(config, glimpse=True, layers=2, kv_layer=0)
    with pytest.raises(UserError, match="reads no target layer"):
        DraftConfig.of(config, glimpse=False, kv_layer=1)


@pytest.mark.parametrize("family", ["gpt2", "gemma2", "phi", "opt"])
def test_other_families_are_refused_by_name(family):
    kind = configs()[family].model_type
    with pytest.raises(UserError, match=f"GLIDE cannot read the cached keys of '{kind}' models: it can those of llama"):
        DraftConfig.of(ModelShape.of(configs()[family]), glimpse=True)
    assert refusal(ModelShape.of(configs()["llama"])) is None
    target = tiny_target(family)
    assert f"'{kind}'" in find_method("glide").missing(target)
    assert find_method("glide+cape").missing(target) == find_method("glide").missing(target)


def test_every_expansion_is_used():
    target = tiny_target("qwen3")
    save_tiny_part(target, "glide")
    sizes = {}
    for expansion, gamma in product(("confidence", "fixed", "beam 4", "beam 8"), (2, 4)):
        params = {"expansion": expansion, "gamma": gamma}
        step = next(iter(Decoding.of(target, Prompt.from_ids(prompt_ids(3)), "glide+cape", params, max_new_tokens=NEW)))
        assert max(step.draft.tree.depths) == gamma
        sizes[expansion, gamma] = step.draft.tree.drafted
    assert sizes["fixed", 4] == 16 and sizes["fixed", 2] == 8
    assert sizes["beam 4", 4] <= 16 and sizes["beam 4", 4] < sizes["beam 8", 4] <= 32
    assert sizes["confidence", 4] <= 32
