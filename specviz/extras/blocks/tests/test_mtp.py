"""MTP layers: drafts equal to transformers' own, checkpoints in the public layouts, what is refused, losslessness."""

from __future__ import annotations

import functools
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file
from transformers.cache_utils import MtpCache
from transformers.generation.candidate_generator import MTPCandidateGenerator
from transformers.modeling_layers import MtpModel

from decoders import Prompt, Sampling, UserError, find_method, generate, load, record, save
from decoders.drafters import select_method
from decoders.engine.decoding import Decoding
from decoders.model.state.recurrent import LayerState
from decoders.model.target_model.load import load_target
from decoders.parts import keep_published
from decoders.verifiers.sampling import Chooser
from tests.chance import first_tokens, p_value
from tests.drafts import drafts_behind
from tests.families.cases import VOCAB, cases
from tests.families.compare import network
from tests.models import prompt_ids, save_model
from tests.tiers import matrix

FAMILIES = {case.family: case for case in cases() if case.family in ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")}
FAMILIES["deepseek_v3"] = next(case for case in cases() if case.family == "deepseek_v3")
KINDS = {"qwen3_next": 1, "deepseek_v3": 3, "qwen3_5_text": 1, "qwen3_5_moe_text": 1}  # their MTP layers here
NEW, OWN_LAYERS = 24, 4
pytestmark = pytest.mark.usefixtures("home")
OUTSIDE = {"enorm": "pre_fc_norm_embedding", "hnorm": "pre_fc_norm_hidden", "eh_proj": "fc", "post_norm": "norm"}
BEHIND = {"enorm": "enorm", "hnorm": "hnorm", "eh_proj": "eh_proj", "post_norm": "shared_head.norm"}


def stock(folder: Path, layers: int) -> Any:
    """A checkpoint as transformers opens it, with what ``use_mtp`` asks its configuration for."""
    model: Any = hf.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    model.config.num_mtp_layers = layers
    if getattr(model.config, "layer_types", None) is not None:
        model.config.mtp_layer_types = ["full_attention"] * layers
    model.generation_config.eos_token_id = None
    model._keys_to_ignore_on_load_unexpected = [r"^mtp.*", rf"model\.layers\.([{OWN_LAYERS}-9]).*"]
    return model


def tensors(model: Any, layers: int, seed: int = 5) -> dict[str, torch.Tensor]:
    """Random MTP layers of a model by their published names: its experts apart."""
    torch.manual_seed(seed)
    made = dict[str, torch.Tensor]()
    behind = model.config.model_type == "deepseek_v3"
    for index, layer in enumerate(MtpModel(model, layers).layers):
        for name, tensor in layer.state_dict().items():
            value = torch.randn(tensor.shape) * 0.12 + (1.0 if behind and "norm" in name else 0.0)
            first, _, rest = name.partition(".")
            place = f"model.layers.{OWN_LAYERS + index}." if behind else "mtp."
            if first != "mtp_block":
                made[f"{place}{(BEHIND if behind else OUTSIDE)[first]}.{rest}"] = value
                continue
            place = place if behind else f"mtp.layers.{index}."
            if rest.endswith("experts.gate_up_proj"):
                for number, both in enumerate(value):
                    for part, half in zip(("gate", "up"), both.chunk(2), strict=True):
                        made[f"{place}mlp.experts.{number}.{part}_proj.weight"] = half.clone()
            elif rest.endswith("experts.down_proj"):
                for number, one in enumerate(value):
                    made[f"{place}mlp.experts.{number}.down_proj.weight"] = one.clone()
            else:
                made[place + rest] = value
    return made


def rewritten(folder: Path, **changes: Any) -> None:
    """A checkpoint's tensors with some more, others, or (None) without some; dots are written as __."""
    file = folder / "model.safetensors"
    weights = load_file(file)
    for name, tensor in changes.items():
        weights.pop(name.replace("__", "."), None)
        if tensor is not None:
            weights[name.replace("__", ".")] = tensor.contiguous()
    save_file(weights, file, metadata={"format": "pt"})


def copy(folder: Path, to: Path) -> Path:
    return shutil.copytree(folder, to)


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Folders with checkpoints of random weights and MTP layers, each made once."""

    @functools.cache
    def place(family: str, layers: int) -> Path:
        folder = tmp_path_factory.mktemp(family)
        save_model(folder, model=network(FAMILIES[family]))
        more = tensors(stock(folder, layers), layers)
        rewritten(folder, **{name.replace(".", "__"): tensor for name, tensor in more.items()})
        if family == "deepseek_v3":
            config = json.loads((folder / "config.json").read_text())
            config["num_nextn_predict_layers"] = layers
            config.pop("num_mtp_layers", None)
            (folder / "config.json").write_text(json.dumps(config))
        return folder

    return place


@pytest.fixture(scope="module")
def targets(places):
    return functools.cache(lambda family, layers: load_target(places(family, layers), engine="eager"))


def generate_mtp(model: Any, prompt: list[int], monkeypatch: Any) -> tuple[list[int], list[tuple]]:
    """transformers' own run with ``use_mtp``: its output, and per step the text, its draft and the draft's logits."""
    seen: list[tuple] = []
    honest: Any = MTPCandidateGenerator.get_candidates

    def watch(self: Any, input_ids: torch.Tensor, *others: Any, **more: Any) -> Any:
        ids, logits = honest(self, input_ids, *others, **more)
        if logits is not None:
            seen.append((input_ids[0].tolist(), ids[0, input_ids.shape[1] :].tolist(), logits[0].float()))
        return ids, logits

    monkeypatch.setattr(MTPCandidateGenerator, "get_candidates", watch)
    ids = torch.tensor([prompt])
    output = model.generate(
        ids, attention_mask=torch.ones_like(ids), use_mtp=True, max_new_tokens=NEW, do_sample=False, pad_token_id=0
    )
    return output[0, len(prompt) :].tolist(), seen


@torch.inference_mode()
def drive(model: Any, prompt: list[int]) -> tuple[list[int], list[tuple]]:
    """The same for a hybrid model, on which generate() refuses drafts: transformers' generator of candidates, given the
    states of plain forwards over the whole text.
    """
    generator: Any = MTPCandidateGenerator(model, model.generation_config, {})
    text, processed, accepted, seen = list(prompt), 0, 0, []
    first = model(torch.tensor([text]), output_hidden_states=True)
    states, text = first.hidden_states[-1][0], [*text, int(first.logits[0, -1].argmax())]
    while len(text) < len(prompt) + NEW:
        ids = torch.tensor([text])
        candidates, logits = generator.get_candidates(
            ids, {"position_ids": torch.arange(len(text))[None]},
            SimpleNamespace(hidden_states=(states[None, processed:],)), False, accepted,
        )  # fmt: skip
        draft = candidates[0, len(text) :].tolist()
        seen.append((text, draft, logits[0].float()))
        output = model(candidates, output_hidden_states=True)
        truth = output.logits[0].argmax(-1)[len(text) - 1 :].tolist()
        accepted = next((i for i, token in enumerate(draft) if token != truth[i]), len(draft))
        processed, states = len(text) - 1, output.hidden_states[-1][0]
        text = [*text, *truth[: accepted + 1]]
    return text[len(prompt) :][:NEW], seen


@pytest.mark.parametrize("family", matrix(KINDS, 2, "other layers of the same layout"))
def test_drafts_are_transformers_own_at_every_step(family, places, targets, monkeypatch):
    layers = KINDS[family]
    model, target = stock(places(family, layers), layers), targets(family, layers)
    prompt = prompt_ids(3, 20)
    output, steps = drive(model, prompt) if target.shape.recurrent_layers else generate_mtp(model, prompt, monkeypatch)
    assert len(steps) > 5 and any(len(draft) == layers for _, draft, _ in steps)
    made = drafts_behind(target, "mtp", [text for text, _, _ in steps], depth=layers)
    for (_, draft, logits), mine in zip(steps, made, strict=True):
        assert list(mine.tree.tokens[1:]) == draft
        said = logits.log_softmax(-1)[range(len(draft)), draft]
        torch.testing.assert_close(torch.tensor(mine.probabilities[1:]).log().float(), said, atol=2e-4, rtol=1e-3)
    assert output == generate(target, Prompt.from_ids(prompt_ids(3, 20)), max_new_tokens=NEW)


@torch.inference_mode()
def after(model: Any, mtp: Any, text: list[int], path: tuple[int, ...], *, normed: bool = True) -> torch.Tensor:
    """Log-probabilities behind a drafted path: transformers' MTP layers over all of the text, without a cache. Of one
    layer alone (eq. 21 again, its own state in the target's place) transformers drafts no second token: this does.
    """

    def run(index: int, states: torch.Tensor, tokens: list[int], first: int) -> torch.Tensor:
        layer, seen = mtp.layers[index], []
        hook = layer.mtp_block.register_forward_hook(lambda *given: seen.append(given[2]))
        places = torch.arange(first, first + len(tokens))[None]
        cache, ids = MtpCache(config=model.config.get_mtp_config()), torch.tensor([tokens])
        out = mtp.forward_layer(index, states[None], places, cache, input_ids=ids)[0]
        hook.remove()
        return out if normed else seen[0][0]

    states = model(torch.tensor([text[:-1]]), output_hidden_states=True).hidden_states[-1][0]
    if len(mtp.layers) == 1:
        for count in range(len(path) + 1):
            made = run(0, states, [*text[1:], *path[:count]], 1)
            states = torch.cat([states, made[-1:]])
    else:
        for index in range(len(path) + 1):
            made = states = run(index, states, [*text, *path][1 + index :][: len(states)], 1 + index)
    last = made[-1:] if normed else mtp.layers[0].post_norm(made[-1:])
    return mtp._project_to_logits(last)[0].log_softmax(-1)


@pytest.mark.parametrize("fed_back", ["after its norm", "before its norm"])
@pytest.mark.parametrize("family", matrix(KINDS, 2, "other layers of the same layout"))
def test_every_node_of_a_tree_is_scored_as_its_path(family, fed_back, places, targets):
    """Trees and longer chains, which transformers does not draft, against its layers run over each path alone."""
    layers, text, normed = KINDS[family], prompt_ids(5, 17), fed_back == "after its norm"
    if layers > 1 and not normed:
        pytest.skip("of several layers the next one reads what the first gives: one case is enough")
    model, target = stock(places(family, layers), layers), targets(family, layers)
    mtp = MtpModel.from_pretrained(model)
    for params in ({"form": "tree", "depth": 3, "top_k": 3, "total_tokens": 14}, {"depth": 3}):
        (draft,) = drafts_behind(target, "mtp", [text], fed_back=fed_back, **params)
        tree = draft.tree
        assert max(tree.depths) == 3 and len(tree) == (14 if "form" in params else 4)
        for node in range(1, len(tree)):
            path = tuple(tree.tokens[one] for one in tree.path(node)[1:])
            expected = float(after(model, mtp, text, path[:-1], normed=normed)[path[-1]])
            assert float(np.log(draft.probabilities[node])) == pytest.approx(expected, abs=2e-3)
    if not normed:
        assert expected != pytest.approx(float(after(model, mtp, text, path[:-1])[path[-1]]), abs=2e-3)


@pytest.mark.parametrize("family", matrix(KINDS, 2, "other layers of the same layout"))
def test_output_is_generates_own_and_a_run_goes_on_from_any_text(family, places, targets, monkeypatch):
    layers, prompt = KINDS[family], Prompt.from_ids(prompt_ids(3, 40))
    target, model = targets(family, layers), stock(places(family, layers), layers)
    ids = torch.tensor([prompt.tokens])
    expected = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW, do_sample=False, pad_token_id=0
    )
    expected = expected[0, len(prompt.tokens) :].tolist()
    for params in ({}, {"form": "tree", "rule": "in turn"}):
        assert generate(target, prompt, "mtp", params, max_new_tokens=NEW) == expected
    text = [*prompt.tokens, *expected]
    cuts = [text[:n] for n in (41, 44, 50, 47, 2, 60)] + [prompt_ids(9, 30), text[:45]]
    alone = [drafts_behind(target, "mtp", [one])[0] for one in cuts]
    for made, fresh in zip(drafts_behind(target, "mtp", cuts), alone, strict=True):
        assert made.tree == fresh.tree and made.probabilities == pytest.approx(fresh.probabilities, abs=1e-4)
    assert drafts_behind(target, "mtp", [text[:1]])[0].reason.startswith("the head reads the target's states")
    if target.shape.recurrent_layers:  # negative control: rejected rows stay in the target's state
        honest: Any = LayerState.commit

        def careless(self: Any, path: Any) -> None:
            whole = self.joined_columns is not None and path
            honest(self, range(self.joined_columns.shape[2] - self.inputs.shape[2]) if whole else path)

        monkeypatch.setattr(LayerState, "commit", careless)
        assert generate(target, prompt, "mtp", max_new_tokens=NEW) != expected


@pytest.mark.parametrize("rule", ["match", "in turn"])
def test_sampled_tokens_are_the_targets_own(rule, targets):
    """Chi-square of the token behind a root with accepted and rejected children, at temperature 1."""
    target, warm = targets("qwen3_next", 1), Sampling(temperature=1.0, seed=3)
    params = {"form": "tree", "depth": 2, "top_k": 12, "total_tokens": 40, "rule": rule}
    step = next(iter(Decoding.of(target, Prompt.from_ids(prompt_ids(3, 60)), "mtp", params, sampling=warm)))
    expected = step.scored.logits[0].double().softmax(-1).numpy()
    entry, values = select_method("mtp", params)
    runs = 1500

    def verifier(seed: int) -> Any:
        return entry.verifier(values, Chooser(Sampling(temperature=1.0, seed=seed)), frozenset())

    counts = first_tokens(step.draft, step.scored, verifier, runs)
    drafted = {
        token for token, parent in zip(step.draft.tree.tokens, step.draft.tree.parents, strict=True) if parent == 0
    }
    assert 0 < counts[[*drafted]].sum() < runs and p_value(counts, expected * runs) > 1e-3


def test_what_is_recorded(targets, tmp_path):
    target = targets("deepseek_v3", 3)
    trace = record(target, Prompt.from_ids(prompt_ids(3, 40)), "mtp", {"form": "tree"}, max_new_tokens=12)
    save(trace, tmp_path / "mtp.spectrace")
    trace = load(tmp_path / "mtp.spectrace")
    nodes, steps = trace.tables["nodes"], trace.tables["steps"]
    drafted = [i for i, parent in enumerate(nodes["parent"]) if parent >= 0]
    assert drafted and all(0 < nodes["draft_prob"][i] <= 1 for i in drafted)
    assert {nodes["term:draft_rank"][i] for i in drafted} > {0} and set(steps["route"]) <= {"tree", "none"}
    assert max(count or 0 for count in steps["term:draft_forwards"]) == 3
    part = trace.run["part"]
    assert part["kind"] == "mtp" and part["layers"] == 3 and part["format"] == "mtp-deepseek"
    assert part["title"] == "MTP layers as DeepSeek-V3 has them"


def test_layers_are_kept_for_a_target_and_read_from_there(places, targets, tmp_path):
    target, prompt = targets("qwen3_next", 1), Prompt.from_ids(prompt_ids(3, 40))
    before = [step.draft.tree for step in Decoding.of(target, prompt, "mtp", max_new_tokens=8)]
    part, folder = keep_published(target, str(places("qwen3_next", 1)))
    assert part.kind == "mtp" and folder.is_dir()
    assert [step.draft.tree for step in Decoding.of(target, prompt, "mtp", max_new_tokens=8)] == before
    other = load_target(places("qwen3_5_text", 1), engine="eager")
    with pytest.raises(UserError, match="was trained for"):
        generate(other, prompt, "mtp", {"part": str(folder)}, max_new_tokens=2)


CHANGES = {
    "incomplete: it lacks mtp.pre_fc_norm_hidden.weight": {"mtp.pre_fc_norm_hidden.weight": None},
    "incomplete: it lacks mtp.layers.0.self_attn.k_norm.weight": {"mtp.layers.0.self_attn.k_norm.weight": None},
    "it has mtp.layers.0.self_attn.gate.weight, which": {"mtp.layers.0.self_attn.gate.weight": torch.zeros(2)},
    "it has mtp.fc.weight_scale_inv, which .*quantised weights": {"mtp.fc.weight_scale_inv": torch.zeros(2)},
    "mtp.fc.weight reads and makes states of 48 numbers, and those of .* have 64": {
        "mtp.fc.weight": torch.zeros(48, 96)
    },
    "mtp.layers.0.self_attn.q_proj.weight is 64 × 64, where 128 × 64 is wanted": {
        "mtp.layers.0.self_attn.q_proj.weight": torch.zeros(64, 64)  # without the gate, as a Qwen3's would be
    },
    "it lacks mtp.layers.0.mlp.experts.3.gate_proj.weight, and the model has 4 experts": {
        "mtp.layers.0.mlp.experts.3.gate_proj.weight": None
    },
    "has 2 decoder layers behind one": {"mtp.layers.1.input_layernorm.weight": torch.zeros(64)},
}


@pytest.mark.parametrize("sentence", matrix(CHANGES, 4, "more of the same"))
def test_a_checkpoint_that_does_not_fit_is_refused_by_name(sentence, places, targets, tmp_path):
    folder = copy(places("qwen3_next", 1), tmp_path / "other")
    rewritten(folder, **{name.replace(".", "__"): tensor for name, tensor in CHANGES[sentence].items()})
    with pytest.raises(UserError, match=sentence):
        generate(targets("qwen3_next", 1), Prompt.from_ids([5, 6, 7]), "mtp", {"part": str(folder)}, max_new_tokens=4)


def test_layers_of_another_model_are_refused(places, targets, tmp_path):
    prompt, behind = Prompt.from_ids([5, 6, 7]), places("deepseek_v3", 3)
    with pytest.raises(UserError, match="MTP layers of a 'deepseek_v3' model, and .*'qwen3_next', a hybrid model"):
        generate(targets("qwen3_next", 1), prompt, "mtp", {"part": str(behind)}, max_new_tokens=4)
    with pytest.raises(UserError, match="holds EAGLE-1"):
        (tmp_path / "eagle").mkdir()
        save_file(
            {"fc.weight": torch.zeros(2, 4), "layers.0.self_attn.q_proj.weight": torch.zeros(2, 2)},
            tmp_path / "eagle" / "m.safetensors",
        )
        generate(targets("qwen3_next", 1), prompt, "mtp", {"part": str(tmp_path / "eagle")}, max_new_tokens=4)
    folder = copy(behind, tmp_path / "other")
    rewritten(folder, model__layers__4__embed_tokens__weight=torch.zeros(VOCAB, 64))
    with pytest.raises(UserError, match=r"its layers\.4\.embed_tokens\.weight is not the embedding of"):
        generate(targets("deepseek_v3", 3), prompt, "mtp", {"part": str(folder)}, max_new_tokens=4)
    weights = load_file(behind / "model.safetensors")
    copies = {"model__layers__4__embed_tokens__weight": weights["model.embed_tokens.weight"],
              "model__layers__4__shared_head__head__weight": weights["lm_head.weight"]}  # fmt: skip
    rewritten(folder, **copies)  # copies of the target's, as public files have them
    assert generate(targets("deepseek_v3", 3), prompt, "mtp", {"part": str(folder)}, max_new_tokens=4)
    folder = copy(behind, tmp_path / "two")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "num_nextn_predict_layers": 2}))
    with pytest.raises(UserError, match="says 2 MTP layers, and its tensors are of 3"):
        generate(targets("deepseek_v3", 3), prompt, "mtp", {"part": str(folder)}, max_new_tokens=4)


def test_a_model_without_layers_says_so(tmp_path):
    target = load_target(save_model(tmp_path, model=network(FAMILIES["qwen3_next"])), engine="eager")
    assert "there are no MTP layers for" in str(find_method("mtp").missing(target))
    with pytest.raises(UserError, match="there are no MTP layers for"):
        generate(target, Prompt.from_ids([5, 6, 7]), "mtp", max_new_tokens=4)
