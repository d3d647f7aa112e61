"""Hybrid models: recurrent layers beside attention are lossless under draft trees; their states are cut and counted."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file

import specviz
from decoders import Prompt, Sampling, UserError, generate, record
from decoders.draft.draft import Draft, Verdict
from decoders.draft.needs import Needs
from decoders.draft.tree import DraftTree
from decoders.engine.decoding import Decoding
from decoders.errors import TooLarge
from decoders.method.part import kinds
from decoders.model.files.shape import ModelShape
from decoders.model.state import recurrent, room
from decoders.model.state.recurrent import LayerState, Paths
from decoders.model.target_model import target as engine
from decoders.model.target_model.load import load_target
from decoders.model.target_model.target import Target
from decoders.parts import load_part
from decoders.recorder.recorder import Recorder
from decoders.study.look.lens import lens
from decoders.study.look.whatif import ReadRun
from decoders.study.measure.stock import StockModel
from decoders.study.measure.together import decode_together
from decoders.verifiers.match import MatchVerifier
from decoders.verifiers.sampling import Chooser

from .chance import first_tokens, p_value
from .drafts import methods_here, save_tiny_part
from .families.cases import cases
from .families.compare import IDENTICAL, compare, network, open_case
from .models import prompt_ids, save_model, session_behind, tiny_tokenizer
from .tiers import matrix

HYBRIDS = {case.family: case for case in cases() if case.window == "hybrid"}
KINDS = ("qwen3_next", "lfm2", "granitemoehybrid")  # delta rule, convolution alone, Mamba-2
OTHER = next(case for case in cases() if case.family == "llama")
FAMILIES = matrix(HYBRIDS, KINDS, "the other hybrid families")
FEW = matrix(KINDS, 1, "the other kinds of states")
METHODS = ("pld", "pld+h", "pld+a", "adapld", "suffix", "recycling", "lookahead", "sam", "logitspec", "llma")
TREE = DraftTree((7, 9, 12, 11, 30, 9, 5, 8, 14), (-1, 0, 1, 2, 0, 4, 1, 3, 7))  # branches of several depths


@pytest.mark.parametrize("family", KINDS)
def test_drafts_and_wild_trees_equal_generate(family: str) -> None:
    result = compare(HYBRIDS[family], ("pld", "lookahead"), (40,))
    assert result.verdict == IDENTICAL, result.detail


@pytest.mark.parametrize("family", matrix(HYBRIDS, 0, "more methods, families and lengths of the same"))
def test_every_method_equals_generate_on_every_hybrid(family: str) -> None:
    result = compare(HYBRIDS[family], METHODS, (5, 14, 40))
    assert result.verdict == IDENTICAL, result.detail


@pytest.mark.parametrize("family", matrix(HYBRIDS, 1, "the other hybrid families"))
def test_rejected_rows_in_the_state_are_seen(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: states that keep the whole draft, as after transformers' ``Cache.crop``, give other text."""
    honest = LayerState.commit

    def careless(self: LayerState, path: Any) -> None:
        honest(
            self,
            range(self.joined_columns.shape[2] - self.inputs.shape[2])
            if self.joined_columns is not None and path
            else path,
        )

    monkeypatch.setattr(LayerState, "commit", careless)
    assert "leaves" in compare(HYBRIDS[family], ("recycling", "lookahead"), (14, 40)).detail


@pytest.mark.parametrize("family", FEW)
def test_rows_that_continue_the_row_before_are_seen(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: a tree scored as a chain of its rows, as stock code would score it, gives other text."""
    honest = Paths.__init__
    monkeypatch.setattr(Paths, "__init__", lambda self, positions, sees, device: honest(self, positions, None, device))
    assert "leaves" in compare(HYBRIDS[family], ("recycling",), (14, 40)).detail


@pytest.mark.parametrize("family", FAMILIES)
def test_nodes_score_as_their_paths_do_and_a_committed_path_goes_on(family: str) -> None:
    """Every node's logits are those of a plain forward of its path, and so are the next step's behind a branch."""
    target, ids = open_case(HYBRIDS[family]), prompt_ids(2, 37)
    tree = replace(TREE, tokens=(ids[-1], *TREE.tokens[1:]))
    session = session_behind(target, ids, 120)
    scored = session.score(Draft(tree)).logits
    path = (0, 1, 2, 3, 7)  # a branch aside, then on
    for node, seen in enumerate(tree.ancestors()):
        text = [*ids[:-1], *(tree.tokens[row] for row in seen.nonzero()[0])]
        expected = target.reference_logits(text, 1)[-1].float()
        torch.testing.assert_close(scored[node], expected, atol=2e-4, rtol=1e-4)
    session.commit(Verdict(path, 77, ("root",) * len(path), ("",) * len(path)))
    text = [*ids, *(tree.tokens[row] for row in path[1:]), 77]
    again = session.score(Draft(DraftTree((77, 4), (-1, 0)))).logits[1]
    expected = target.reference_logits([*text, 4], 1)[-1].float()
    torch.testing.assert_close(again, expected, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_run_is_cut_at_any_earlier_place(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read in pieces, with a state kept now and then: what is scored at a cut is what a run of that length scores, and
    the run itself goes on as if nobody had looked.
    """
    for module in (recurrent, engine):
        monkeypatch.setattr(module, "SPACING", 16)
    monkeypatch.setattr(recurrent, "MOST_KEPT", 3)
    target, ids = open_case(HYBRIDS[family]), prompt_ids(4, 150)
    draft = Draft(replace(TREE, tokens=(ids[69], *TREE.tokens[1:])))
    session = session_behind(target, ids, 200)
    states = session.cache.states
    assert states is not None and 149 in states.kept_states and len(states.kept_states) <= 4
    before = session.score(Draft(TREE)).logits
    for length in (70, 2, 149, 150, 33, 1):
        fresh = session_behind(target, ids[:length], 200)
        with session.at(length, Needs()) as part:
            torch.testing.assert_close(part.score(draft).logits, fresh.score(draft).logits, atol=2e-4, rtol=1e-4)
    torch.testing.assert_close(session.score(Draft(TREE)).logits, before, atol=0, rtol=0)
    session.cut(70)
    assert states.length == 69
    fresh = session_behind(target, ids[:70], 200)
    torch.testing.assert_close(session.score(draft).logits, fresh.score(draft).logits, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("chunk", [4, 64])
@pytest.mark.parametrize("family", FEW)
def test_a_prompt_read_in_pieces_and_chunks_is_the_same(family: str, chunk: int, monkeypatch: Any) -> None:
    for module in (recurrent, engine):
        monkeypatch.setattr(module, "SPACING", 24)
    monkeypatch.setattr(recurrent, "CHUNK", chunk)
    target, ids = open_case(HYBRIDS[family]), prompt_ids(4, 120)
    session = session_behind(target, ids, 200, Needs(top_tokens=4))
    best = target.reference_logits(ids)[:-1].float().log_softmax(-1).topk(4)
    torch.testing.assert_close(session.context.top_logprobs, best.values, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("family", ["nemotron_h", "zamba2"])
def test_steps_that_transformers_limits_in_a_prompt_alone(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """These families' code raises small steps to ``time_step_min`` where it reads a prompt, and never where it writes:
    generate()'s text is met only by doing the same, row by row.
    """
    case, ids = HYBRIDS[family], prompt_ids(3, 40)
    model = network(replace(case, settings=(*case.settings, ("time_step_min", 2.0))))
    for name, parameter in model.named_parameters():
        if name.endswith(("dt_bias", "A_log")):
            parameter.data.fill_(-3.0)  # small steps, long memory
    expected = StockModel(copy.deepcopy(model)).generate(ids, 20, ())
    target, prompt = Target(model, tiny_tokenizer(), family), Prompt.from_ids(ids)
    for method in ("plain", "pld", "recycling"):
        assert generate(target, prompt, method, max_new_tokens=20) == expected, method
    monkeypatch.setattr(recurrent.RecurrentStates, "reads", property(lambda self: self.paths.positions >= 0))
    assert generate(target, prompt, "plain", max_new_tokens=20) != expected


@pytest.mark.parametrize("family", FEW)
def test_several_runs_share_a_forward(family: str) -> None:
    target = open_case(HYBRIDS[family])
    prompts = [Prompt.from_ids(prompt_ids(seed, 20 + 9 * seed)) for seed in (1, 2, 3)]
    alone = [tuple(generate(target, prompt, "pld", max_new_tokens=16)) for prompt in prompts]
    for method in ("plain", "pld"):
        assert list(decode_together(target, prompts, method, max_new_tokens=16).outputs) == alone


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("method", matrix(("pld", "lookahead"), 1, "trees and probes"))
def test_what_if_drafts_a_step_again_as_it_was_and_the_lens_reads_it(family: str, method: str) -> None:
    target, params = open_case(HYBRIDS[family]), {} if method == "pld" else {"prompt": True, "n": 2}
    trace = record(target, Prompt.from_ids(prompt_ids(3, 60)), method, params, max_new_tokens=16)
    read = ReadRun(target, trace)
    drafted = [step for step, count in enumerate(trace.tables["steps"]["drafted"]) if count]
    assert drafted
    for step in (drafted[0], drafted[-1]):
        assert read.redraft(step).same, step
        other = read.redraft(step, "recycling" if method == "pld" else "pld+h")
        assert other.emitted[0] == trace.tables["tokens"]["id"][trace.tables["steps"]["context"][step]]
    seen = lens(read, drafted[-1], 1)
    assert seen.layers == target.shape.layers and seen.apart < 1e-3
    step = trace.tables["steps"]["context"][drafted[-1]]
    text = trace.tables["tokens"]["id"][:step]
    best = target.reference_logits(text, 1)[0].softmax(-1)
    assert seen.own.probs[-1] == pytest.approx(float(best[seen.own.token]), abs=1e-4)


@pytest.mark.parametrize("family", FEW)
def test_sampled_tokens_are_the_targets_own(family: str) -> None:
    """Chi-square of the token behind a draft's root, and behind a branch, at temperature 1; and a seed's text is that
    of plain decoding.
    """
    target, warm = open_case(HYBRIDS[family]), Sampling(temperature=1.0, top_k=6, seed=3)
    prompt = Prompt.from_ids(prompt_ids(3, 60))
    plain = generate(target, prompt, sampling=warm, max_new_tokens=16)
    prompt = Prompt.from_ids((*prompt.tokens, *plain, *prompt.tokens[-8:]))
    again = generate(target, prompt, sampling=warm, max_new_tokens=16)
    for method, params in {"recycling": {}, "suffix": {"tree": True, "factor": 2.0}}.items():
        steps = list(Decoding.of(target, prompt, method, params, sampling=warm, max_new_tokens=16))
        assert [token for step in steps for token in step.emitted] == again
    step = max(steps, key=lambda one: one.draft.tree.drafted)
    text = [*prompt.tokens, *again][: step.context_length]
    expected = Chooser(warm).probabilities(target.reference_logits(text, 1).float())[0].double().numpy()
    counts = first_tokens(step.draft, step.scored, lambda seed: MatchVerifier(Chooser(replace(warm, seed=seed))), 1500)
    assert step.draft.tree.drafted and p_value(counts, expected * 1500) > 1e-3


def test_memory_of_states_is_counted_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    target = open_case(HYBRIDS["qwen3_next"])
    shape, session = target.shape, target.session(Needs(), 400)
    assert shape.kv_layers == (3,) and shape.recurrent_layers == (0, 1, 2)
    session.prefill(prompt_ids(1, 300))
    states = session.cache.states
    assert states is not None and session.cache.store is not None and session.cache.store.shape[0] == 2
    assert states.bytes() == shape.state_bytes * len({*states.kept_states, states.length})
    assert ModelShape.of(target.config).kv_layers == (3,)
    size = room.RunSize.of(shape, target.dtype, Needs(), 400, spare=64, rows=256)
    assert size.states >= states.bytes() + shape.row_bytes and size.bytes > size.states
    target.shape = replace(shape, state_bytes=1 << 30)
    monkeypatch.setattr(room, "free_memory", lambda device: 1_000_000_000)
    with pytest.raises(TooLarge, match=r"needs about 3\.2 GB .*3\.2 GB recurrent states.* and 1\.0 GB are free on cpu"):
        target.session(Needs(), 400)


def test_generate_is_recorded_on_a_hybrid_and_drafts_where_transformers_does_not() -> None:
    """transformers refuses assisted generation on models with a state; this engine drafts under the user's own call."""
    model, ids = network(HYBRIDS["qwen3_next"]), torch.tensor([prompt_ids(3, 60)])
    options = {"attention_mask": torch.ones_like(ids), "max_new_tokens": 20, "do_sample": False, "pad_token_id": 0}
    plain = model.generate(ids, **options)[0, 60:].tolist()
    with pytest.raises(ValueError, match="stateful"):
        model.generate(ids, prompt_lookup_num_tokens=4, **options)
    with Recorder(model, tiny_tokenizer()) as recorder:
        model.generate(ids, **options)
        assert recorder.trace.output_ids == plain
        model.generate(ids, custom_generate=specviz.generate, method="pld", **options)
    trace = recorder.trace
    assert trace.output_ids == plain and max(trace.tables["steps"]["drafted"]) > 1
    assert ReadRun(open_case(HYBRIDS["qwen3_next"]), trace).redraft(3).same
    assert model.generate(ids, **options)[0, 60:].tolist() == plain
    convolution = network(HYBRIDS["lfm2"])
    with Recorder(convolution, tiny_tokenizer()) as recorder:
        output = convolution.generate(ids, prompt_lookup_num_tokens=4, **options)[0, 60:].tolist()
    assert recorder.trace.output_ids == output == convolution.generate(ids, **options)[0, 60:].tolist()


@pytest.mark.parametrize("family", matrix(KINDS, 0, "seven methods of one mechanism, on parts of random weights"))
def test_every_part_drafts_for_a_hybrid(family: str, tmp_path: Path, home: Path) -> None:
    """Heads, prompt tokens and draft models of random weights; the last one may be a hybrid itself."""
    target, prompt = open_case(HYBRIDS[family]), Prompt.from_ids(prompt_ids(3, 40))
    expected = StockModel(network(HYBRIDS[family])).generate(prompt.tokens, 14, ())
    for kind in {"medusa", "hydra", "eagle", "eagle3", "ppd", "drafter"} & kinds().keys():
        save_tiny_part(target, kind)
    for method in methods_here("medusa", "hydra", "eagle", "eagle2", "eagle3", "ppd", "sps"):
        assert generate(target, prompt, method, max_new_tokens=14) == expected, method
    drafts: dict[str, Any] = {"medusa": {}}
    for seed in (1, 7):  # the target's own weights, so that drafts are accepted, and others
        folder = save_model(tmp_path / f"drafter-{seed}", model=network(HYBRIDS[family], seed))
        for expansion in ("none", "fixed"):
            params = {"drafter": folder, "expansion": expansion}
            drafts[f"{seed} {expansion}"] = list(Decoding.of(target, prompt, "sps", params, max_new_tokens=14))
            assert [token for step in drafts[f"{seed} {expansion}"] for token in step.emitted] == expected
    assert sum(step.accepted for step in drafts["1 none"]) == 14 - len(drafts["1 none"])
    with pytest.raises(UserError, match="follows one text from forward to forward"):
        generate(target, prompt, "sps", {"drafter": folder, "expansion": "beam 4"}, max_new_tokens=4)


def test_a_head_of_a_model_without_states_is_refused_on_one_with_them(tmp_path: Path) -> None:
    """Of the same width and vocabulary, so that nothing but the model it was trained for tells it apart."""
    target, other = open_case(HYBRIDS["lfm2"]), Target(network(OTHER), tiny_tokenizer(), "of-attention")
    for kind in {"eagle3", "dflash", "medusa", "glide"} & kinds().keys():
        folder = save_tiny_part(other, kind, tmp_path / kind)
        with pytest.raises(UserError, match="of-attention.*lfm2|lfm2.*of-attention"):
            load_part(target, kind, folder)


def test_a_checkpoint_that_lacks_a_states_weights_is_refused(tmp_path: Path) -> None:
    """A layer that was left out would be random numbers; further weights, such as an MTP head's, are left alone."""
    model, ids = network(HYBRIDS["qwen3_next"]), prompt_ids(3, 40)
    save_model(tmp_path, model=model)
    file = tmp_path / "model.safetensors"
    weights = load_file(file)
    save_file({**weights, "mtp.fc.weight": torch.zeros(2, 2)}, file, {"format": "pt"})
    output = generate(load_target(tmp_path, engine="eager"), Prompt.from_ids(ids), "pld", max_new_tokens=8)
    assert output == StockModel(model).generate(ids, 8, ())
    save_file({n: w for n, w in weights.items() if n != "model.layers.1.linear_attn.A_log"}, file, {"format": "pt"})
    with pytest.raises(UserError, match=r"lacks weights .*: model\.layers\.1\.linear_attn\.A_log\. Give the whole"):
        load_target(tmp_path, engine="eager")
    config = json.loads((tmp_path / "config.json").read_text())
    save_file(weights, file, {"format": "pt"})
    (tmp_path / "config.json").write_text(json.dumps({**config, "linear_num_value_heads": 8}))
    with pytest.raises(UserError, match="could not be loaded"):
        load_target(tmp_path, engine="eager")


@pytest.mark.parametrize(
    ("config", "settings", "reason"),
    [
        (hf.JambaConfig, {}, "recurrent state"),
        (hf.MiniMaxConfig, {}, "recurrent state"),
        (hf.Mamba2Config, {"num_heads": 8, "head_dim": 8}, "recurrent state"),
        (hf.Lfm2Config, {"layer_types": ["conv"] * 2}, "none of its layers caches keys"),
    ],
)  # fmt: skip
def test_what_cannot_follow_a_tree_is_refused_with_the_reason(config: Any, settings: Any, reason: str) -> None:
    given = config(**{"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "pad_token_id": None, **settings})
    with pytest.raises(UserError, match=reason):
        ModelShape.of(given)
        Target(hf.AutoModelForCausalLM.from_config(given, attn_implementation="eager"), None, "x")
