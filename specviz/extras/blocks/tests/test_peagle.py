"""P-EAGLE: drafts equal to the equations at every step, both layouts, trees, and what does not fit."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from decoders import Prompt, UserError, generate, record
from decoders.parts import load_part
from decoders.trace.check import check
from specviz.extras.heads.tests import eagle_oracle as oracle
from specviz.extras.heads.tests.eagle_oracle import LLAMA, publish, tensors
from tests.drafts import draft_behind, drafts_behind, save_tiny_part
from tests.models import own_forward, prompt_ids, tiny_target
from tests.tiers import matrix

pytestmark = pytest.mark.usefixtures("home")
PROMPT, NEW, DRAFTED, MASK, PLACES = Prompt.from_ids(prompt_ids(3, 20)), 16, 90, 11, 5
FEATURES = [1, 2, 3]


@pytest.fixture(scope="module")
def target():
    return tiny_target("llama", dtype=torch.float64)


def weights_of(**options: Any) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(8)
    weights = tensors(True, drafted=DRAFTED, **options)
    return {**weights, "mask_hidden": torch.randn(1, 1, 3 * oracle.HIDDEN, generator=generator)}


def checkpoint(folder, layout: str, weights=None, **more: Any) -> str:
    """A checkpoint in one of the public layouts."""
    weights = weights or weights_of()
    if layout == "speculators":
        config, weights = oracle.speculators(LLAMA, weights, eagle_aux_hidden_state_layer_ids=FEATURES)
        config["speculators_config"] = {
            "algorithm": "peagle", "verifier": {"name_or_path": "org/target"}, "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": PLACES}],
        }  # fmt: skip
        config |= {"speculators_model_type": "peagle", "mask_token_id": MASK}
    else:
        config = {
            **LLAMA, "draft_vocab_size": DRAFTED, "ptd_token_id": str(MASK),
            "eagle_aux_hidden_state_layer_ids": FEATURES,
        }  # fmt: skip
    return publish(folder, {**config, **more}, weights)


def equations(target, weights, tokens, count, **options) -> list[int]:
    """The draft behind a text, one row after another: each sees the text's pairs and the masks before it."""
    head = oracle.Head(weights, target.embeddings.weight.detach(), target.head.weight.detach(), **options)
    states = own_forward(target, tokens).hidden_states
    last = head.commit(torch.cat([states[layer][0] for layer in FEATURES], -1), tokens)
    draft = [head.after(last)[0][1]]
    for at in range(last + 1, last + count):
        head.pair(weights["mask_hidden"].flatten(), None, MASK, list(range(at)), at)
        draft.append(head.after(at)[0][1])
    return draft


def chains_of(trace) -> list[list[int]]:
    nodes = trace.tables["nodes"]
    steps = [[] for _ in trace.tables["steps"]["context"]]
    for step, parent, token in zip(nodes["step"], nodes["parent"], nodes["token"], strict=True):
        if parent >= 0:
            steps[step].append(int(token))
    return steps


@pytest.mark.parametrize("layout", matrix(["speculators", "beside"], 1, "another layout"))
def test_drafts_are_those_of_the_equations_at_every_step(target, tmp_path, layout):
    weights = weights_of()
    place = checkpoint(tmp_path / "head", layout, weights)
    places = PLACES if layout == "speculators" else 8
    trace = record(target, PROMPT, "peagle", {"part": place}, max_new_tokens=NEW)
    text, steps = [*PROMPT.tokens, *trace.output_ids], chains_of(trace)
    assert trace.run["part"]["format"] == ("peagle-speculators" if layout == "speculators" else "peagle")
    assert len(steps) > 8
    for context, draft in zip(trace.tables["steps"]["context"], steps, strict=True):
        wanted = equations(target, weights, text[:context], places)
        assert draft == wanted[: len(draft)] and len(draft) == min(places, len(text) - context - 1)
    other = {**weights, "mask_hidden": -weights["mask_hidden"]}
    assert equations(target, other, text[:30], places) != equations(target, weights, text[:30], places)
    assert trace.output_ids == generate(target, PROMPT, max_new_tokens=NEW)
    check(trace)


@pytest.mark.parametrize(
    ("more", "norms", "options"),
    [({"norm_before_residual": True}, (), {"before": True}), ({"norm_before_fc": True}, ("input_norm.weight",), {})],
)
def test_variants_of_its_layers_are_read(target, tmp_path, more, norms, options):
    weights = weights_of(norms=norms)
    tokens = prompt_ids(4, 14)
    draft, _ = draft_behind(target, "peagle", tokens, part=checkpoint(tmp_path / "it", "speculators", weights, **more))
    wanted = equations(target, weights, tokens, PLACES, **options)
    assert list(draft.tree.tokens[1:]) == wanted


def test_a_window_hides_what_is_far(target, tmp_path):
    weights = weights_of(scale=0.4)
    sliding = {**LLAMA, "sliding_window": 6, "layer_types": ["sliding_attention"]}
    place = checkpoint(tmp_path / "it", "speculators", weights, transformer_layer_config=sliding)
    texts = [prompt_ids(seed, 24) for seed in (4, 5, 6)]
    drafts = [list(draft_behind(target, "peagle", text, part=place)[0].tree.tokens[1:]) for text in texts]
    assert drafts == [equations(target, weights, text, PLACES, window=6) for text in texts]
    assert drafts != [equations(target, weights, text, PLACES) for text in texts]


@pytest.mark.parametrize("params", [{}, {"tree": 9}, {"tokens": 2}, {"rule": "ratio"}])
def test_runs_are_plain_decodings(params):
    target = tiny_target("qwen3", dtype=torch.float64)
    save_tiny_part(target, "peagle")
    trace = record(target, PROMPT, "peagle", params, max_new_tokens=NEW)
    assert trace.output_ids == generate(target, PROMPT, max_new_tokens=NEW)
    counts = trace.tables["steps"]["drafted"]
    assert max(counts) == {"tree": 8, "tokens": 2}.get(next(iter(params), ""), 5)
    check(trace)


def test_a_run_goes_on_where_it_was_cut_and_takes_up_another_text(target, tmp_path):
    place, texts = checkpoint(tmp_path / "it", "speculators"), [prompt_ids(4, 30), prompt_ids(4, 20), prompt_ids(9, 25)]
    drafts = [list(draft.tree.tokens[1:]) for draft in drafts_behind(target, "peagle", texts, part=place)]
    assert drafts == [equations(target, weights_of(), text, PLACES) for text in texts]


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"mask_token_id": None}, "says nothing of the masks' token, and one of mask_token_id, ptd_token_id"),
        ({"mask_token_id": 320}, r"says {'mask_token_id': 320} of the masks' token, .* has to name one of 320 tokens"),
        (
            {"speculators_config": {"proposal_methods": [{"speculative_tokens": 0}]}},
            "says speculative_tokens = 0, and 1 to 64 are possible",
        ),
        ({"draft_vocab_size": 91}, "says draft_vocab_size = 91, and its tensors have 90"),
        ({"down_sample": 2}, "the field down_sample, which is not known here"),
    ],
)
def test_what_does_not_fit_is_said(target, tmp_path, more, sentence):
    place = checkpoint(tmp_path / "it", "speculators", **more)
    with pytest.raises(UserError, match=sentence):
        load_part(target, "peagle", place)


def test_heads_of_other_methods_are_refused(target, tmp_path):
    place = checkpoint(tmp_path / "it", "speculators")
    with pytest.raises(UserError, match="holds P-EAGLE in the form of speculators: the method wants an EAGLE-3 head"):
        load_part(target, "eagle3", place)
    third = publish(tmp_path / "third", {**LLAMA, "draft_vocab_size": DRAFTED}, tensors(True, drafted=DRAFTED))
    with pytest.raises(UserError, match="holds EAGLE-3 as SafeAILab .*, and the method peagle wants another: use eag"):
        load_part(target, "peagle", third)
    lacking = {name: tensor for name, tensor in weights_of().items() if name != "mask_hidden"}
    with pytest.raises(UserError, match="is incomplete: it lacks mask_hidden"):
        load_part(target, "peagle", checkpoint(tmp_path / "lacks", "speculators", lacking))
