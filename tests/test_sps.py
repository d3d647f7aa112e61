"""SpS: any causal LM, or the trained vanilla drafter, drafts for the target."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from decoders import Prompt, Sampling, UserError, find_method, generate, record
from decoders.draft.params import make_params
from decoders.draft_models.drafter import ModelDrafter
from decoders.drafters.sps import LanguageModelRun, differing, offer_drafter, open_drafter
from decoders.engine.decoding import Decoding

from .drafts import save_tiny_part, saved_drafters
from .models import VOCAB, network, prompt_ids, session_behind, tiny_target, tiny_tokenizer
from .tiers import matrix

pytestmark = pytest.mark.usefixtures("home")
NEW = 24


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return saved_drafters(tmp_path_factory)


@pytest.mark.parametrize("family", matrix(["llama", "gpt2", "mistral-window"], 1, "the other families"))
@pytest.mark.parametrize("expansion", ["none", "confidence", "beam 4"])
def test_any_language_model_may_draft(target, folders, family, expansion):
    prompt = Prompt.from_ids(prompt_ids(3))
    plain = generate(target, prompt, max_new_tokens=NEW)
    params = {"drafter": folders[family], "expansion": expansion, "gamma": 4}
    steps = list(Decoding.of(target, prompt, "sps", params, max_new_tokens=NEW))
    assert [t for s in steps for t in s.emitted] == plain
    if family == "llama" and expansion != "beam 4":  # the target drafts for itself: all is accepted
        assert all(s.accepted == max(s.draft.tree.depths) for s in steps)
        assert all(s.draft.origins[n] == "drafter" for s in steps for n in s.verdict.path[1:])


def test_the_target_as_its_own_drafter_is_always_accepted_when_drawn(target, folders):
    sampling = Sampling(temperature=0.8, top_p=0.9, seed=3)
    params = {"drafter": folders["llama"]}
    prompt = Prompt.from_ids(prompt_ids(3))
    steps = list(Decoding.of(target, prompt, "sps", params, sampling=sampling, max_new_tokens=NEW))
    assert all(s.accepted == s.draft.tree.drafted and s.draft.drawn for s in steps if s.draft.tree.drafted)
    assert len(steps) == 4  # γ + 1 = 6 tokens a step


def test_its_cache_follows_the_context(target, folders):
    """Rows are kept as far as the text agrees, and the logits are those of a fresh forward."""
    drafter = tiny_target("mistral-window", seed=3)

    def context(tokens):
        return session_behind(target, tokens, 120).context

    first = prompt_ids(1, 60)
    texts = [first, [*first, 5, 6, 7], first[:30], [*first[:20], *prompt_ids(2, 25)]]
    run = LanguageModelRun(drafter, VOCAB)
    for tokens in texts:
        logits = [run.read(context(tokens)), *(run.extend([t], [i - 1])[0] for i, t in enumerate((9, 8)))]
        expected = drafter.reference_logits([*tokens, 9, 8])[-3:].float()
        torch.testing.assert_close(torch.stack(logits), expected, atol=2e-4, rtol=1e-3)
        run.read(context(tokens))
        level = run.extend([9, 10], [-1, -1])
        leaves = run.extend([8, 7], [1, 0])
        for path, row in (([9], level[0]), ([10], level[1]), ([10, 8], leaves[0]), ([9, 7], leaves[1])):
            torch.testing.assert_close(
                row, drafter.reference_logits([*tokens, *path])[-1].float(), atol=2e-4, rtol=1e-3
            )


def test_a_padded_vocabulary_is_cut_or_filled(target):
    for vocab in (VOCAB - 20, VOCAB + 20):
        context = session_behind(target, prompt_ids(1, 20), 60).context
        logits = LanguageModelRun(tiny_target("gpt2"), vocab).read(context)
        assert logits.shape == (vocab,) and torch.isfinite(logits[:VOCAB]).all()
        assert torch.isinf(logits[VOCAB:]).all()


def test_a_short_drafter_stops_drafting_where_it_cannot_read_on(target):
    run = LanguageModelRun(tiny_target("gpt2"), VOCAB)
    run.limit = 66
    made = ModelDrafter(run, 5)
    assert made.propose(session_behind(target, prompt_ids(1, 63), 120).context, 10).tree.drafted == 3
    draft = made.propose(session_behind(target, prompt_ids(1, 66), 120).context, 10)
    assert draft.tree.drafted == 0 and draft.reason == "the drafter reads at most 66 tokens"


def test_the_heuristic_schedule_is_a_function_of_the_run(target, folders):
    params = {"drafter": folders["llama"], "schedule": "heuristic", "gamma": 2}
    run = Decoding.of(target, Prompt.from_ids(prompt_ids(3)), "sps", params, max_new_tokens=NEW)
    steps = list(run)
    asked = {s.context_length: s.draft.notes["gamma"] for s in steps if s.draft.tree.drafted}
    assert list(asked.values())[:3] == [2, 4, 6]  # all accepted: two more each time
    drafter = run.drafter
    for length in reversed(asked):
        assert drafter.propose(run.context.cut(length), 40).notes["gamma"] == asked[length]
    bad = Decoding.of(
        target, Prompt.from_ids(prompt_ids(3)), "sps", {**params, "drafter": folders["gpt2"]}, max_new_tokens=NEW
    )
    wanted = [s.draft.notes["gamma"] for s in bad if s.draft.tree.drafted]
    assert wanted[:2] == [2, 1] and min(wanted) == 1


def test_the_trained_drafter_is_the_default(target):
    prompt = Prompt.from_ids(prompt_ids(3))
    plain = generate(target, prompt, max_new_tokens=NEW)
    folder = save_tiny_part(target, "drafter", layers=2)
    wide = ({"expansion": "confidence"}, {"expansion": "beam 8", "gamma": 3})
    for params in ({}, {"drafter": str(folder)}, {"rule": "block"}, *wide):
        assert generate(target, prompt, "sps", params, max_new_tokens=NEW) == plain
    step = next(iter(Decoding.of(target, prompt, "sps", max_new_tokens=NEW)))
    assert set(step.draft.terms) == {"confidence", "bin", "draft_rank"}
    assert np.isfinite(float(step.draft.notes["forward_ms"]))


def other_tokenizer(change) -> PreTrainedTokenizerFast:
    known = tiny_tokenizer()
    model = json.loads(known.backend_tokenizer.to_str())
    change(model)
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(model)))


def test_a_drafter_may_be_offered_once_for_all_runs(folders, tmp_path):
    target = tiny_target("llama")
    assert find_method("sps").missing(target)
    with pytest.raises(UserError):
        offer_drafter(target, str(tmp_path / "nowhere"))
    assert find_method("sps").missing(target)
    offer_drafter(target, folders["gpt2"])
    assert find_method("sps").missing(target) is None
    prompt, other = Prompt.from_ids(prompt_ids(3)), open_drafter(target, folders["gpt2"])
    whole = {"kind": "drafter", "from": other.name, "format": "causal LM", "fingerprint": other.key}
    for params in ({}, {"drafter": folders["gpt2"]}):
        assert record(target, prompt, "sps", params, max_new_tokens=2).run["part"] == whole
    run = Decoding.of(target, prompt, "sps", max_new_tokens=NEW)
    assert run.drafter.run.drafter.info["family"] == "gpt2"
    assert [t for s in run for t in s.emitted] == generate(target, prompt, max_new_tokens=NEW)


def test_another_tokenizer_is_refused_with_the_reason(target, tmp_path):
    def swap(model):
        vocab = model["model"]["vocab"]
        vocab["a"], vocab["b"] = vocab["b"], vocab["a"]

    def shrink(model):
        model["model"]["merges"].pop()
        model["model"]["vocab"].popitem()

    def resplit(model):
        model["pre_tokenizer"]["add_prefix_space"] = True

    same = copy.deepcopy(tiny_tokenizer())
    assert differing(tiny_tokenizer(), same) is None
    for change, reason in (
        (swap, r"its tokenizer has other tokens: 'a' is token \d+ here and token \d+ there"),
        (resplit, "its tokenizer has the same tokens but splits text in another way"),
    ):
        folder = tmp_path / change.__name__
        network("llama").save_pretrained(folder)
        other_tokenizer(change).save_pretrained(folder)
        with pytest.raises(UserError, match=f"cannot draft for tiny-llama: {reason}.*needs the target's own tokenizer"):
            open_drafter(target, str(folder))
    smaller = other_tokenizer(shrink)
    reason = f"its tokenizer has {len(smaller):,} tokens, the target's {len(tiny_tokenizer()):,}"
    assert differing(tiny_tokenizer(), smaller) == reason


def test_a_drafter_that_is_not_there(target, tmp_path):
    with pytest.raises(UserError, match="there is no model folder"):
        generate(target, Prompt.from_ids([5, 6]), "sps", {"drafter": str(tmp_path / "none")}, max_new_tokens=3)


def test_the_command_line_takes_a_drafter_without_a_trained_part(target, folders):
    from specviz.commands.common import chosen_methods

    chosen, missing = chosen_methods(target, ["sps"], [f"sps.drafter={folders['gpt2']}"])
    assert chosen["sps"].drafter == folders["gpt2"] and not missing
    with pytest.raises(UserError, match=r"or name a model \(parameter drafter\)"):
        chosen_methods(target, ["sps"], [])
    chosen, missing = chosen_methods(target, ["all"], [])
    assert "sps" in missing and "sps" not in chosen and "plain" in chosen
    assert make_params(find_method("sps").params, {"drafter": "off"}).drafter is None
