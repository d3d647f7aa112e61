"""Weights of eight and four bits: what they compute, that rows do not touch each other, and what a run says of them."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from decoders import Prompt, UserError, generate, load_target, record
from decoders.draft.draft import Draft, Verdict
from decoders.draft.needs import Needs
from decoders.draft.tree import DraftTree
from decoders.model.engines.fewer_bits import round_model
from decoders.model.files.catalog import precision_of
from decoders.model.files.shape import ModelShape
from decoders.model.target_model.target import Session, Target
from decoders.study.judge.divergences import TOLERANCES, divergence
from decoders.study.look.run_settings import other_model
from decoders.study.measure.stock import StockModel
from decoders.sweep.lossless import check_lossless
from tests.families.cases import cases
from tests.families.compare import network as hybrid
from tests.models import network, prompt_ids, save_model, session_behind, tiny_target
from tests.test_hybrid import HYBRIDS
from tests.tiers import matrix

from .. import rounding
from ..compiled_layers import why_not
from ..rounding import RoundedLinear, _unable, round_weights

torch.set_num_threads(1)
pytestmark = pytest.mark.skipif(bool(_unable(8) or _unable(4)), reason="this build of torch has no such kernels")
BITS = (8, 4)
PROMPT = Prompt.from_ids(prompt_ids(3))


def layer_of(bits: int, bias: bool = False) -> tuple[RoundedLinear, torch.Tensor]:
    torch.manual_seed(bits)
    weight = torch.randn(48, 96) * 0.1
    return RoundedLinear(weight, torch.randn(48) if bias else None, bits), weight


@pytest.mark.parametrize("bits, most", [(8, 0.004), (4, 0.03)])
def test_weights_are_near_what_they_were_and_computed_with_as_they_say(bits, most):
    layer, weight = layer_of(bits, bias=True)
    assert 0 < float((layer.weight - weight).abs().max()) < most
    for rows in (1, 7, 130):
        x = torch.randn(rows, 96)
        assert layer.bias is not None
        expected = x.bfloat16().float() @ layer.weight.T + layer.bias
        torch.testing.assert_close(layer(x), expected, atol=0.02, rtol=0.02)
    assert layer(torch.randn(2, 3, 96)).shape == (2, 3, 48)
    assert torch.equal(layer.state_dict()["weight"], layer.weight)


def test_weights_on_a_grid_of_sixteen_stay_what_they_are():
    """As those of a GGUF file of four bits, where scale and offset have few digits."""
    torch.manual_seed(0)
    q = torch.randint(0, 16, (32, 2, 32)).float()
    q[..., 0], q[..., 1] = 0, 15
    weight = ((q - 8) * 0.25).flatten(1)
    assert torch.equal(RoundedLinear(weight, None, 4).weight, weight)


@pytest.mark.parametrize("bits", BITS)
def test_a_row_is_the_same_whatever_stands_beside_it(bits):
    layer, _ = layer_of(bits)
    x = torch.randn(130, 96)
    whole = layer(x)
    assert all(torch.equal(layer(x[:rows]), whole[:rows]) for rows in (1, 2, 3, 5, 8, 16, 17, 25, 64))
    assert torch.equal(torch.cat([layer(row) for row in x.split(1)]), whole)


def target_of(weights: str, **options: Any) -> Target:
    return tiny_target(weights=weights, **options)


def small_llama() -> Any:
    """Heads as large as real ones, whose sums are formed in another order where there are more rows."""
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=300, num_hidden_layers=3, num_key_value_heads=1, initializer_range=0.1, attn_implementation="eager",
        hidden_size=192, intermediate_size=256, head_dim=64, num_attention_heads=3,
    )  # fmt: skip
    return LlamaForCausalLM(config)


@torch.inference_mode()
def apart(target: Target) -> float:
    """The greatest difference of a logit between rows that are verified together, as a chain and with other branches
    between them, and the same ones one by one.
    """
    tokens = prompt_ids(7, 130)
    text, written = tokens[:100], tokens[100:112]

    def session() -> Session:
        return session_behind(target, [*text, written[0]], 150)

    alone, single = session(), list[torch.Tensor]()
    for token in written[1:]:
        single.append(alone.score(Draft.empty(alone.context.root, "")).logits[0].clone())
        alone.commit(Verdict((0,), token, ("root",), ("",)))
    chain = DraftTree(tuple(written[:-1]), tuple(range(-1, len(written) - 2)))
    branches, parents, path = [written[0]], [-1], [0]
    for token in written[1:-1]:
        branches += [(token + 1) % 300, token]
        parents += [path[-1]] * 2
        path.append(len(branches) - 1)
    most = 0.0
    for tree, rows in ((chain, range(len(chain))), (DraftTree(tuple(branches), tuple(parents)), path)):
        logits = session().score(Draft(tree)).logits
        most = max(most, *(float((logits[row] - one).abs().max()) for row, one in zip(rows, single, strict=True)))
    return most


FALCON = next(case for case in cases() if case.family == "falcon")
HEAD_ALONE = 1e-5  # it stays in fp32, and its last digits may differ
DENSE = ("qwen3_5_text", "bamba", "lfm2", "olmo_hybrid", "falcon_h1", "zamba2")


@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_rows_that_are_verified_together_are_those_that_come_one_by_one(weights):
    """So a draft never changes a token."""
    assert apart(Target(small_llama(), None, "small", weights=weights)) <= HEAD_ALONE


@pytest.mark.parametrize("weights", ["int8", "int4"])
@pytest.mark.parametrize("family", matrix(DENSE, 1, "the other hybrid families without experts"))
def test_rows_of_a_hybrid_are_those_that_come_one_by_one(family, weights):
    """Recurrent states, convolutions and layers of sizes that no kernel takes are computed in double, too."""
    target = Target(hybrid(HYBRIDS[family]), None, family, weights=weights)
    assert apart(target) <= HEAD_ALONE
    states = target.session(Needs(), 8).cache.states
    assert states is not None and states.dtype == torch.float64


def test_a_model_whose_rows_touch_each_other_is_refused(monkeypatch):
    """Negative control: sums whose last digits are others where there are more rows."""

    def by_rows(model: Any) -> None:
        norm = model.base_model.layers[0].input_layernorm
        norm.register_forward_hook(lambda module, args, out: out * (1 + 1e-4 * out.shape[1]))

    monkeypatch.setattr(rounding, "compute_in_double", by_rows)
    with pytest.raises(UserError, match="int8 weights do not suit bamba: a row's logits differ by"):
        Target(hybrid(HYBRIDS["bamba"]), None, "bamba", weights="int8")


def test_layers_that_no_kernel_takes_stay_and_experts_are_refused():
    """The int8 kernel reads past the end of rows that are no multiple of 16 numbers, and ends the process."""
    model = torch.nn.ModuleDict({"a": torch.nn.Linear(24, 32), "b": torch.nn.Linear(32, 24)})
    rows = torch.randn(5, 24)
    expected = model["a"](rows)
    for weights, kinds in (("int8", ["ExactLinear", "RoundedLinear"]), ("int4", ["ExactLinear", "RoundedLinear"])):
        tried = copy.deepcopy(model)
        if weights == "int4":
            tried["b"] = torch.nn.Linear(32, 16)
        assert round_weights(tried, weights, "it") == 1
        assert [type(module).__name__ for module in tried.values()] == kinds
        torch.testing.assert_close(tried["a"](rows), expected)
        together = tried["a"](rows)
        assert torch.equal(torch.cat([tried["a"](row) for row in rows.split(1)]), together)
    with pytest.raises(UserError, match="int4 weights are of linear layers, and it has experts: "):
        round_weights(hybrid(HYBRIDS["qwen3_next"]), "int4", "it")


@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_methods_are_lossless_against_the_same_weights(weights):
    target, stock = target_of(weights), StockModel(network(), weights=weights)
    prompts = [PROMPT, Prompt.from_ids(prompt_ids(5))]
    outcomes = check_lossless(target, prompts, dict.fromkeys(["pld", "recycling"]), max_new_tokens=16, stock=stock)
    assert [(outcome.failed, outcome.identical, outcome.total) for outcome in outcomes] == [(0, 2, 2)] * 3


def test_a_run_says_which_weights_it_had(tmp_path: Path):
    fp32, int8, int4 = tiny_target(), target_of("int8"), target_of("int4")
    assert "weights" not in fp32.info and precision_of(fp32.info) == "float32"
    assert {precision_of(int8.info), precision_of(int4.info)} == {"int8", "int4"} <= TOLERANCES.keys()
    assert fp32.key == int8.key == int4.key and fp32.info["parameters"] == int4.info["parameters"]
    run = record(int8, PROMPT, max_new_tokens=3).run
    assert run["model"]["weights"] == "int8" and other_model(int8, run, exact=True) is None
    assert "in int8, and tiny-llama in int4 is loaded" in str(other_model(int4, run, exact=True))
    assert "in int8, and tiny-llama in float32 is loaded" in str(other_model(fp32, run, exact=True))
    assert other_model(fp32, run) is None, "it may still be looked at"


def test_a_wrong_output_is_no_near_tie():
    target = target_of("int4")
    plain = generate(target, PROMPT, max_new_tokens=8)
    wrong = [*plain[:3], (plain[3] + 1) % 300, *plain[4:]]
    found = divergence(target, wrong, PROMPT, plain=plain)
    assert found is not None and found.verdict == "bug" and found.tolerance == TOLERANCES["int4"]


def test_what_is_refused(tmp_path: Path):
    for weights, model, said in (
        ("int3", network(), "weights 'int3' are unknown: use one of fp32, int8, int4"),
        ("int8", network(dtype=torch.bfloat16), "int8 weights are for a CPU in float32, and it is on the cpu"),
        ("int4", network("gpt2"), "it has no linear layers that int4 weights fit"),
        ("int8", hybrid(FALCON), "the layers of it are FalconLinear, and run by code of their own"),
    ):
        with pytest.raises(UserError, match=said):
            round_model(model, ModelShape.of(model.config), weights, "it", "eager")
    assert why_not(target_of("int8")) is None


def test_a_folder_is_opened_with_rounded_weights(tmp_path: Path):
    target = load_target(save_model(tmp_path / "model"), weights="int4")
    kinds = [type(module).__name__ for module in target.model.modules()]
    counted = kinds.count("RoundedLinear"), kinds.count("JointPart")
    assert counted == (2 * target.shape.layers, 5 * target.shape.layers)
    assert type(target.head.inner) is not RoundedLinear
    stock = StockModel.load(str(tmp_path / "model"), target.dtype, target.device, "int4")
    written = stock.generate(PROMPT.tokens, 6, ())
    assert written == generate(target, PROMPT, max_new_tokens=6)
