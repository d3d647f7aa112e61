"""Lossless on every family: stock models through the tree engine emit exactly what plain generate() emits."""

from __future__ import annotations

import pytest
import torch
import transformers as hf
from packaging.version import Version
from transformers.masking_utils import causal_mask_function
from transformers.pytorch_utils import Conv1D

from decoders import Prompt, UserError, generate, methods
from decoders.draft.draft import Draft, Probe
from decoders.draft.needs import Needs
from decoders.draft.tree import DraftTree
from decoders.engine.decoding import Decoding
from decoders.engine.row_costs import measure
from decoders.model.engines.linear import PackedLinear
from decoders.model.files import families
from decoders.model.files.families import TESTED_FAMILIES, TESTED_ROTARIES
from decoders.model.files.shape import ModelShape
from decoders.model.state.attention import Masks, RowMasks
from decoders.model.target_model.load import load_target
from decoders.model.target_model.target import Target

from .drafters_for_tests import WildTrees, method_of
from .families.cases import cases
from .families.compare import IDENTICAL, REFUSED, compare, open_case
from .families.compare import network as case_network
from .models import EVERY_FAMILY, GROUPED, VOCAB, WINDOW, configs, network, prompt_ids, tiny_target, tiny_tokenizer
from .tiers import matrix

NEW = 24
WINDOWED = [family for family, config in configs().items() if any(ModelShape.of(config).layer_windows)]
SMALL = {"vocab_size": 64, "hidden_size": 16}
CASES = {case.name: case for case in cases()}
SUITE = (
    "phi3 window grouped", "phi3 longrope grouped", "starcoder2 window", "mixtral window grouped",
    "mistral window longrope grouped", "gpt_oss mixed windows grouped", "deepseek_v3 latent", "gptj",
    "falcon one kv head", "cohere2 mixed windows grouped", "bert",
)  # fmt: skip
SWITCHED = (14, 32, 33)  # lengths of prompts around the change of longrope's positions, behind 32 tokens


def reference(family: str, ids: list[int]) -> list[int]:
    model = network(family)
    given = torch.tensor([ids])
    out = model.generate(
        given, attention_mask=torch.ones_like(given), max_new_tokens=NEW, do_sample=False, pad_token_id=0
    )
    return out[0, len(ids) :].tolist()


def test_every_family_that_is_called_tested_is_tested():
    tested = {config.model_type for config in configs().values()}
    assert tested | {case.family for case in cases() if not case.refused} == set(TESTED_FAMILIES)
    assert {case.rotary for case in cases()} == set(TESTED_ROTARIES)
    assert len({case.name for case in cases()}) == len(cases()) >= 75


@pytest.mark.parametrize("name", matrix(SUITE, ("starcoder2 window", "bert"), "more of the same"))
def test_families_windows_and_rotary_positions_equal_generate_or_are_refused(name):
    """A few of ``python -m tests.families``."""
    result = compare(CASES[name], ("pld+h", "recycling"), SWITCHED if "longrope" in name else (14, 40))
    assert not result.wrong, result.detail
    assert result.verdict == (REFUSED if CASES[name].refused else IDENTICAL)


@pytest.mark.parametrize("name", ["phi3 window grouped", "gpt_oss mixed windows grouped"])
def test_an_ignored_window_is_seen(name, monkeypatch):
    """Negative control: masks that ignore the window give other text, and the check of an untested family says so."""
    honest = RowMasks.__call__
    monkeypatch.setattr(RowMasks, "__call__", lambda self, rule, *rest: honest(self, causal_mask_function, *rest))
    assert "leaves generate()" in compare(CASES[name], ()).detail
    monkeypatch.setattr(families, "TESTED_FAMILIES", ())
    with pytest.raises(UserError, match="plain decoding gives other logits than generate"):
        open_case(CASES[name])


def test_an_unwatched_change_of_rotary_positions_is_seen(monkeypatch):
    """Negative control: without reading the text again where longrope changes, the text is another one."""
    monkeypatch.setattr(Target, "rereads", False)
    assert "leaves generate()" in compare(CASES["phi3 longrope grouped"], ()).detail
    monkeypatch.setattr(families, "TESTED_FAMILIES", ())
    with pytest.raises(UserError, match="plain decoding gives other logits than generate"):
        open_case(CASES["phi3 longrope grouped"])


def test_a_draft_stops_where_rotary_positions_change():
    target = open_case(CASES["phi3 longrope grouped"])
    session = target.session(Needs(), 60)
    session.prefill(prompt_ids(1, 30))
    assert session.reach == 2
    run = Decoding.of(target, Prompt.from_ids(prompt_ids(1, 30)), "pld", max_new_tokens=8)
    assert max(step.context_length + step.draft.tree.drafted for step in run if step.context_length <= 32) <= 32
    assert run.session is not None
    with pytest.raises(UserError, match="rotary positions changed in the middle of it, behind 32"):
        run.session.at(31, Needs()).__enter__()


@pytest.mark.parametrize("name", ["phi3 longrope grouped", "qwen3 dynamic grouped"])
def test_row_costs_are_measured_where_no_draft_reaches_far(name):
    """`--length auto` times up to 128 rows: where rotary positions change behind 32 tokens they stand side by side."""
    target = open_case(CASES[name])
    curve = measure(target)
    assert curve.rows[0] == 1 and len(curve.rows) > 2 and min(curve.ms) > 0
    prompt = Prompt.from_ids(prompt_ids(1, 20))
    drafted = generate(target, prompt, "pld", max_new_tokens=12, length="auto")
    assert drafted == generate(target, prompt, "plain", max_new_tokens=12)


def test_windows_are_those_that_the_models_code_asks_for():
    """A setting that the family's code never reads opens no window, and one without layer types opens it everywhere."""
    stray = hf.LlamaConfig(**GROUPED, sliding_window=WINDOW)
    assert ModelShape.of(stray).layer_windows == (None,) * 3
    assert open_case(CASES["starcoder2 window"]).shape.layer_windows == (16,) * 4
    assert open_case(CASES["gpt_oss mixed windows grouped"]).shape.layer_windows == (16, None, 16, None)


NO_WEIGHTS = pytest.mark.skipif(
    Version(hf.__version__) >= Version("5.24"), reason="GPT-J's code shows its weights since transformers 5.24"
)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        pytest.param("gptj", "code of their own, which shows no weights", marks=NO_WEIGHTS),
        ("deepseek_v3 latent", "its cache keeps compressed keys"),
    ],
)
def test_attention_that_cannot_be_read_is_refused_in_one_sentence(name, reason):
    target = open_case(CASES[name])
    with pytest.raises(UserError, match=reason):
        generate(target, Prompt.from_ids(prompt_ids(1)), "pld+a", max_new_tokens=4)
    with pytest.raises(UserError, match=reason):
        target.session(Needs(heads=((0, 0),)), 20)


@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_every_method_and_wild_trees_equal_generate(family):
    target = tiny_target(family)
    ids = prompt_ids(3)
    prompt, expected = Prompt.from_ids(ids), reference(family, ids)
    for name, method in methods().items():
        if method.lossless and method.missing(target) is None:
            assert generate(target, prompt, name, max_new_tokens=NEW) == expected, name
    everything = Needs(layers=(1,), heads=((0, 1), (2, 3)), top_tokens=4)
    for probes in (0, 3):
        wild = WildTrees(expected, VOCAB, seed=probes, probes=probes)
        assert generate(target, prompt, method_of(wild, everything), max_new_tokens=NEW) == expected
        assert max(v.accepted for _, _, v in wild.seen) > 0, (
            "the trees never carried the right token: nothing was tested"
        )


def test_the_check_fails_without_the_tree_mask(monkeypatch):
    """Negative control: rows that see their siblings give other output."""
    target, ids = tiny_target("llama"), prompt_ids(3)
    expected = generate(target, Prompt.from_ids(ids), "plain", max_new_tokens=NEW)
    honest = Masks.rows
    monkeypatch.setattr(
        Masks, "rows", lambda self, length, sees, *rest: honest(self, length, None, *rest)
    )
    outputs = [
        generate(target, Prompt.from_ids(ids), method_of(WildTrees(expected, VOCAB, s)), max_new_tokens=NEW)
        for s in range(3)
    ]
    assert any(out != expected for out in outputs)


def test_the_check_fails_with_wrong_positions(monkeypatch):
    """Negative control: numbering tree rows by their order instead of their depth gives other output."""
    target, ids = tiny_target("llama"), prompt_ids(3)
    expected = generate(target, Prompt.from_ids(ids), "plain", max_new_tokens=NEW)
    honest = Target.forward

    def by_row(self, cache, masks, tokens, positions, sees, **options):
        return honest(self, cache, masks, tokens, cache.length + 0 * positions + range(len(positions)), sees, **options)

    monkeypatch.setattr(Target, "forward", by_row)
    outputs = [
        generate(target, Prompt.from_ids(ids), method_of(WildTrees(expected, VOCAB, s)), max_new_tokens=NEW)
        for s in range(3)
    ]
    assert any(out != expected for out in outputs)


@pytest.mark.parametrize("family", WINDOWED)
def test_windows_bind(family):
    """The windowed families are tested beyond their window: without it the output would differ."""
    ids = prompt_ids(3)
    windowed = tiny_target(family)
    unwindowed = tiny_target(family)
    unwindowed.config.sliding_window = 10_000
    logits = []
    for target in (windowed, unwindowed):
        session = target.session(Needs(), 100)
        session.prefill(ids)
        logits.append(session.score(Draft.empty(ids[-1], "")).logits)
    assert not torch.allclose(*logits, atol=1e-4)


@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_attention_rows_and_hidden_states_equal_eager(family):
    """States that drafters read equal those that transformers itself reports."""
    target, ids = tiny_target(family), prompt_ids(5, 50)
    model = network(family)
    out = model(torch.tensor([ids]), output_hidden_states=True, output_attentions=True)
    layers = target.info["layers"]
    every = tuple((layer, head) for layer in range(layers) for head in range(target.shape.heads))
    for layer in range(layers + 1):
        session = target.session(Needs(layers=(layer,), heads=every if layer == 0 else (), top_tokens=8), 60)
        session.prefill(ids)
        context = session.context
        torch.testing.assert_close(context.hidden, out.hidden_states[layer][0, :-1], atol=2e-5, rtol=1e-4)
        if layer == 0:
            for row in (len(ids) - 2, 7):
                expected = torch.cat([a[0, :, row, : row + 1] for a in out.attentions])
                torch.testing.assert_close(context.attention(row), expected, atol=1e-5, rtol=1e-4)
            few = ((0, 1), (layers - 1, 3))
            expected = torch.stack([out.attentions[layer][0, head, 7, :8] for layer, head in few])
            torch.testing.assert_close(context.attention(7, few), expected, atol=1e-5, rtol=1e-4)
    best = out.logits[0, :-1].log_softmax(-1).topk(8)
    torch.testing.assert_close(context.top_logprobs, best.values, atol=2e-5, rtol=1e-4)


def test_attention_rows_count_the_sinks():
    case, ids = CASES["gpt_oss mixed windows grouped"], prompt_ids(5, 50)
    target, heads = open_case(case), tuple((layer, head) for layer in range(4) for head in range(4))
    out = case_network(case)(torch.tensor([ids]), output_attentions=True)
    session = target.session(Needs(heads=heads), 60)
    session.prefill(ids)
    for row in (len(ids) - 2, 7):
        expected = torch.cat([attention[0, :, row, : row + 1] for attention in out.attentions])
        assert expected.sum(-1).max() < 0.999, "the sinks took nothing"
        torch.testing.assert_close(session.context.attention(row), expected, atol=1e-5, rtol=1e-4)


def test_probes_leave_the_targets_logits_unchanged():
    """In fp64 the tree's logits are the same with and without probes; a node that saw a probe would show at once."""
    target, ids = tiny_target("llama", dtype=torch.float64), prompt_ids(2)
    tree = DraftTree((ids[-1], 9, 10, 11, 12), (-1, 0, 1, 0, 3))
    probes = (
        Probe(2, 1, token=8),
        Probe(2, 2, embedding=torch.randn(64, dtype=torch.float64), sees=(0,)),
        Probe(0, 1, token=11),
    )
    logits = []
    for extra in ((), probes):
        session = target.session(Needs(), 100)
        session.prefill(ids)
        scored = session.score(Draft(tree, probes=extra))
        logits.append(scored.logits)
    torch.testing.assert_close(*logits, atol=1e-5, rtol=0)  # logits leave in fp32
    assert scored.probe_logits is not None and scored.probe_logits.shape == (3, VOCAB)
    session = target.session(Needs(), 100)
    session.prefill(ids)
    as_node = session.score(Draft(DraftTree((ids[-1], 9, 10, 8), (-1, 0, 1, 2)))).logits[3]
    torch.testing.assert_close(scored.probe_logits[0], as_node, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (hf.BloomConfig(**SMALL), "alibi"),
        (hf.MptConfig(vocab_size=64, d_model=16, n_layers=1, n_heads=2), "alibi"),
        (hf.GPTNeoConfig(**SMALL, num_layers=2, attention_types=[[["global", "local"], 1]]), "local masks"),
        (hf.MambaConfig(vocab_size=64, hidden_size=16, num_hidden_layers=1), "recurrent"),
        (hf.FalconConfig(**SMALL, alibi=True), "alibi"),
        (hf.T5Config(vocab_size=64, d_model=16), "encoder-decoder"),
        (hf.BertConfig(**SMALL), "is_decoder is false"),
    ],
)  # fmt: skip
def test_families_that_would_be_wrong_are_refused_by_name(tmp_path, config, reason):
    config.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"")
    tiny_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(UserError, match=reason) as error:
        load_target(tmp_path)
    assert config.model_type in str(error.value)


def test_an_untested_family_is_checked_before_use(monkeypatch):
    """No family is on the list: Cohere passes its check; a model that scores trees wrongly does not."""
    monkeypatch.setattr(families, "TESTED_FAMILIES", ())
    torch.manual_seed(0)
    config = hf.CohereConfig(**GROUPED)
    target = Target(
        hf.AutoModelForCausalLM.from_config(config, attn_implementation="eager"), tiny_tokenizer(), "cohere"
    )
    assert target.info["family"] == "cohere"

    model = hf.AutoModelForCausalLM.from_config(hf.GraniteConfig(**GROUPED), attn_implementation="eager")
    model.model.embed_tokens.register_forward_hook(
        lambda m, a, out: out + torch.arange(out.shape[1])[None, :, None].float()
    )
    with pytest.raises(UserError, match="gives other logits"):
        Target(model, tiny_tokenizer(), "bent")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_runs_with_an_fp32_head(dtype):
    target = tiny_target("llama", dtype=dtype)
    assert target.head.inner.weight.dtype == torch.float32
    out = generate(target, Prompt.from_ids(prompt_ids(1)), "pld+h", max_new_tokens=12)
    assert len(out) == 12


def test_packed_and_plain_linears_agree():
    ids = prompt_ids(4)
    packed, plain = tiny_target("gpt2", packed=True), tiny_target("gpt2", packed=False)
    assert packed.info["packed"] and not plain.info["packed"]
    assert {PackedLinear} == {type(m) for m in packed.model.modules() if isinstance(m, PackedLinear | Conv1D)}
    assert generate(packed, Prompt.from_ids(ids), max_new_tokens=NEW) == generate(
        plain, Prompt.from_ids(ids), max_new_tokens=NEW
    )
