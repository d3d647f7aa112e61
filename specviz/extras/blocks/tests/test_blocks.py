"""DFlash, DSpark and DFlash2: drafts equal to transformers' and to the equations, layouts, lattices."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
import transformers as hf
from transformers.generation import candidate_generator

from decoders import Prompt, Sampling, UserError, generate, record
from decoders.draft.draft import Verdict, emitted_tokens
from decoders.draft.needs import Needs
from decoders.draft_models.fit import TEXT
from decoders.drafters import select_method
from decoders.parts import load_part
from decoders.trace.trace import Trace
from decoders.verifiers.sampling import Chooser
from specviz.extras.blocks import block_network, block_run
from specviz.extras.blocks.block_network import BlockConfig, BlockNetwork
from specviz.extras.blocks.block_published import FIRST_ROOT, ROOT_EVERY
from specviz.extras.heads.tests.eagle_oracle import publish
from tests.chance import p_value
from tests.drafts import draft_behind, save_tiny_part
from tests.families.compare import open_case
from tests.models import own_forward, prompt_ids, session_behind, tiny_target
from tests.test_hybrid import HYBRIDS
from tests.tiers import matrix

from . import block_oracle as oracle
from .block_oracle import BLOCK, FEATURES, MASK, configuration, tensors

FAMILY = "qwen3"  # of the tiny target
pytestmark = pytest.mark.usefixtures("home")
KINDS, NEW = ("dflash", "dspark", "dflash2"), 24
PROMPT = Prompt.from_ids(prompt_ids(3, 40))


def states_of(target, tokens):
    """The target's states behind ``FEATURES``, by transformers' own forward [positions, features, hidden]."""
    states = own_forward(target, tokens).hidden_states
    return torch.stack([states[layer + 1][0] for layer in FEATURES], 1)


def drafts_of(trace):
    """Every step's drafted tokens."""
    nodes = trace.tables["nodes"]
    steps = [[] for _ in trace.tables["steps"]["context"]]
    for step, parent, token in zip(nodes["step"], nodes["parent"], nodes["token"], strict=True):
        if parent >= 0:
            steps[step].append(token)
    return steps


def assistant(target, anchored_windows=None):
    """transformers' own DFlash of random weights, as Muse Glimmer's assistant has it."""
    config = hf.MuseGlimmerAssistantConfig(
        hidden_size=64, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=16, max_position_embeddings=512, block_size=BLOCK, mask_token_id=MASK, target_layer_ids=FEATURES,
        sliding_window=anchored_windows or 9,
        layer_types=["sliding_attention" if anchored_windows else "full_attention"] * 2,
    )  # fmt: skip
    torch.manual_seed(3)
    model = hf.MuseGlimmerAssistantModel(config).eval()
    for parameter in model.parameters():
        parameter.data.normal_(1.0 if parameter.ndim == 1 else 0.0, 0.15)
    return model


@pytest.mark.parametrize("window", [None, 7])
def test_drafts_equal_transformers_own_dflash_at_every_step(target, tmp_path, monkeypatch, window):
    theirs, made = assistant(target, window), list[list[int]]()
    theirs.save_pretrained(tmp_path / "dflash")
    candidates = candidate_generator.DFlashTokenCandidateGenerator.get_candidates

    def watch(self, input_ids, *args, **options):
        ids, logits = candidates(self, input_ids, *args, **options)
        made.append(ids[0, input_ids.shape[1] :].tolist())
        return ids, logits

    monkeypatch.setattr(candidate_generator.DFlashTokenCandidateGenerator, "get_candidates", watch)
    with target.by_own_attention():
        out = target.model.generate(
            torch.tensor([PROMPT.tokens]), assistant_model=theirs, speculation_type="dflash", max_new_tokens=NEW,
            do_sample=False, eos_token_id=None, pad_token_id=0,
        )  # fmt: skip
    trace = record(target, PROMPT, "dflash", {"part": str(tmp_path / "dflash")}, max_new_tokens=NEW)
    assert trace.run["part"]["format"] == "dflash-transformers" and not trace.run["part"]["anchor"]
    assert out[0, len(PROMPT.tokens) :].tolist() == trace.output_ids == generate(target, PROMPT, max_new_tokens=NEW)
    ours = drafts_of(trace)
    theirs_by_root = [draft for draft in made if draft]
    assert len(theirs_by_root) > 12
    # transformers' first forward writes the root that ours begins from, and each may end with a shorter draft
    for mine, other in zip(ours[1:], theirs_by_root, strict=False):
        assert mine and mine[: len(other)] == other[: len(mine)]


# --- the equations, layout by layout


def original(folder, kind, **more):
    """A checkpoint in its authors' layout, and its tensors."""
    weights = tensors(kind)
    return publish(folder, configuration(kind, **more), weights), weights


def spoken_for(monkeypatch):
    """Whatever a text speaks for, the checkpoint is read as it says."""
    monkeypatch.setattr("specviz.extras.blocks.block_published.readings", lambda network, target: [])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("anchor", [False, True])
def test_drafts_are_those_of_the_equations(target, tmp_path, monkeypatch, kind, anchor):
    """Independent references of plain loops: neither z-lab's DFlash2 nor DeepSpec's DSpark can be imported here."""
    spoken_for(monkeypatch)
    place, weights = original(tmp_path / "it", kind, sample_from_anchor=anchor)
    tokens = prompt_ids(4, 14)
    draft, _ = draft_behind(target, kind, tokens, part=place)
    block = oracle.Block(weights, target.embeddings.weight.detach(), target.head.weight.detach())
    states = states_of(target, tokens[:-1])
    wanted, sure = block.draft(kind, tokens[-1], states, anchor)
    assert list(draft.tree.tokens[1:]) == wanted and len(wanted) == (BLOCK if anchor else BLOCK - 1)
    assert wanted != block.draft(kind, tokens[-1], states, not anchor)[0][: len(wanted)], "the readings differ"
    if sure:
        assert draft.terms["acceptance"][1:].tolist() == pytest.approx(sure, abs=1e-5)
    lattice = draft.lattice()
    assert lattice.tokens.gather(1, lattice.walk[:, None])[:, 0].tolist() == wanted
    assert (lattice.transitions is None) == (kind == "dflash")


@pytest.mark.parametrize("name", ["causal_head", "causal"])
def test_jetspecs_heads_are_dflash_with_causal_blocks(target, tmp_path, monkeypatch, name):
    """Their own layout says ``causal_head``, others' ``causal``. Trees of them are matched as any."""
    spoken_for(monkeypatch)
    weights, config = tensors("dflash"), configuration("dflash")
    place = publish(tmp_path / "it", {**config, "dflash_config": {**config["dflash_config"], name: True}}, weights)
    tokens = prompt_ids(4, 14)
    draft, _ = draft_behind(target, "dflash", tokens, part=place)
    states, tables = states_of(target, tokens[:-1]), (target.embeddings.weight.detach(), target.head.weight.detach())
    wanted, _ = oracle.Block(weights, *tables, causal=True).draft("dflash", tokens[-1], states, False)
    assert list(draft.tree.tokens[1:]) == wanted != oracle.Block(weights, *tables).draft(
        "dflash", tokens[-1], states, False
    )[0]
    trace = record(target, PROMPT, "dflash", {"part": place, "tree": 12}, max_new_tokens=NEW)
    assert trace.output_ids == generate(target, PROMPT, max_new_tokens=NEW)
    assert max(trace.tables["steps"]["drafted"]) == 11
    both = {**config, "is_causal": False, "dflash_config": {**config["dflash_config"], name: True}}
    with pytest.raises(UserError, match=f"says is_causal = False and {name} = True, and one of true and false is wan"):
        load_part(target, "dflash", publish(tmp_path / "both", both, weights))


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_read_before_makes_no_difference(target, kind):
    """A run goes on, is cut, and another text is taken up: drafts are those of a drafter that begins there."""
    save_tiny_part(target, kind)
    entry, values = select_method(kind, {})
    drafter = entry.build(target, values)
    tokens, other = prompt_ids(4, 40), prompt_ids(9, 30)
    for text in (tokens[:20], tokens, tokens[:12], other, tokens[:11] + other[:9]):
        session = session_behind(target, text, len(text) + 40, entry.needs(target, values))
        again, _ = draft_behind(target, kind, text)
        assert drafter.propose(session.context, 64).tree == again.tree


# --- lossless


def foresee(monkeypatch, output, prompt_length, wrong=3):
    """Blocks guess what plain decoding writes, but every ``wrong``-th token: some drafts stand, whole or in part."""
    block = block_run.BlockRun.block

    def tell(self, context):
        states = block(self, context)
        self.network.__dict__["begins"] = context.length - prompt_length
        return states

    def say(self, states):
        begins, logits = self.__dict__["begins"], BASE(self, states)
        for i, row in enumerate(logits):
            at = begins + i
            if at < len(output) and at % wrong:
                row[output[at]] = row.max() + 30
        return logits

    monkeypatch.setattr(block_run.BlockRun, "block", tell)
    BASE = block_network.BlockNetwork.say
    monkeypatch.setattr(block_network.BlockNetwork, "say", say)


@pytest.mark.parametrize("family", matrix(["qwen3", "llama", "gemma2", "gpt2"], 2, "other families"))
@pytest.mark.parametrize("kind", KINDS)
def test_lossless_greedy_and_sampled(monkeypatch, family, kind):
    own = tiny_target(family)
    save_tiny_part(own, kind)
    for sampling in (Sampling(), Sampling(temperature=0.9, seed=4)):
        plain = generate(own, PROMPT, max_new_tokens=NEW, sampling=sampling)
        with monkeypatch.context() as patched:
            foresee(patched, plain, len(PROMPT.tokens))
            trace = record(own, PROMPT, kind, max_new_tokens=NEW, sampling=sampling)
        assert trace.output_ids == plain
        assert 1.5 < trace.run["metrics"]["tokens_per_step"] < 5, "drafts stood, and some fell"
        assert Trace.from_json(trace.to_json()).output_ids == plain


@pytest.mark.parametrize("kind", matrix(KINDS, 1, "the other block drafters"))
def test_lossless_on_a_hybrid_target(monkeypatch, kind):
    own = open_case(HYBRIDS["qwen3_next"])
    save_tiny_part(own, kind)
    plain = generate(own, PROMPT, max_new_tokens=NEW)
    foresee(monkeypatch, plain, len(PROMPT.tokens))
    trace = record(own, PROMPT, kind, max_new_tokens=NEW)
    assert trace.output_ids == plain and trace.run["metrics"]["tokens_per_step"] > 1.5


def test_a_wrong_reading_is_caught_by_what_is_written(monkeypatch, target):
    """Negative control: a verifier that takes every draft writes other tokens than plain decoding."""
    save_tiny_part(target, "dflash")
    plain = generate(target, PROMPT, max_new_tokens=NEW)
    monkeypatch.setattr("decoders.verifiers.match.MatchVerifier.__call__", lambda self, draft, scored: every(draft))
    assert generate(target, PROMPT, "dflash", max_new_tokens=NEW) != plain


def every(draft):
    """The verdict that accepts a whole chain."""
    count = len(draft.tree)
    return Verdict(tuple(range(count)), 0, ("root", *("accepted",) * (count - 1)), ("",) * count)


@pytest.mark.parametrize(
    ("kind", "rule"),
    matrix([(kind, rule) for kind in KINDS for rule in ("ratio", "block")], 0, "draws 3,000 drafts of each kind"),
)
def test_drawn_drafts_have_the_targets_distribution(monkeypatch, target, kind, rule):
    """The first token behind a prompt, drawn and judged many times: chi-square against the target's probabilities.

    The states of the block behind it are no matter of chance, and computed once.
    """
    save_tiny_part(target, kind, draft_vocab=0 if kind == "dflash2" else 200)
    entry, params = select_method(kind, {"rule": rule, "tokens": 2})
    tokens, rounds = prompt_ids(8, 12), 3000
    session = session_behind(target, tokens, 64, entry.needs(target, params))
    drafter = entry.build(target, params)
    states = drafter.run.block(session.context)
    monkeypatch.setattr(drafter.run, "block", lambda context: states)
    counts, scored_by = torch.zeros(target.info["vocab"]), dict[tuple[int, ...], Any]()
    for seed in range(rounds):
        chooser = Chooser(Sampling(temperature=0.25, seed=seed))
        drafter.sample_with(chooser)
        draft = drafter.propose(session.context, 8)
        assert draft.drawn and draft.route == "drawn"
        if draft.tree.tokens not in scored_by:
            scored_by[draft.tree.tokens] = session.score(draft)
        scored = scored_by[draft.tree.tokens]
        verdict = entry.verifier(params, chooser, frozenset())(draft, scored)
        counts[emitted_tokens(draft.tree.tokens, verdict)[0]] += 1
    expected = Chooser(Sampling(temperature=0.25)).probabilities(scored.logits)[0].double() * rounds
    assert (expected >= 5).sum() > 3 and p_value(counts, expected) > 1e-3


# --- what is told apart, and what is refused


@pytest.mark.parametrize("anchor", [False, True])
def test_the_reading_that_a_text_speaks_for_is_taken_and_recorded(monkeypatch, target, tmp_path, anchor):
    """A checkpoint that says the wrong row: the states of the other one are those that the target's choices have."""
    text = target.tokenizer(TEXT, add_special_tokens=True)["input_ids"][:256]
    session = session_behind(target, text, len(text), Needs(top_tokens=1))
    starts = torch.arange(FIRST_ROOT, len(text) - 1, ROOT_EVERY)
    answers = target.head.weight.detach()[session.context.memory.top_ids[starts, 0]] * 50

    def forward(self, roots, context, cos, sin, masks=()):
        out = torch.zeros(len(roots), self.config.block, self.config.hidden)
        out[:, 0 if anchor else 1] = answers[: len(roots)]
        return out

    monkeypatch.setattr(BlockNetwork, "forward", forward)
    place, _ = original(tmp_path / "it", "dflash", sample_from_anchor=not anchor)
    network = load_part(target, "dflash", place)
    shares = {trial["anchor"]: trial["acceptance"] for trial in network.about["trials"]}
    assert network.config.anchor == network.about["anchor"] == anchor and shares[anchor] > 0.5 > shares[not anchor]
    assert "this is used" in network.about["warnings"][0]
    assert len(record(target, PROMPT, "dflash", {"part": place}, max_new_tokens=3).run["part"]["trials"]) == 4


def layouts(folder, kind, form):
    """A checkpoint of a kind in another layout than its authors'."""
    weights, config = tensors(kind), configuration(kind)
    inner = config.pop("dflash_config", {})
    if form == "deepspec":
        more = {"num_anchors": 512, "markov_rank": 0, "enable_confidence_head": False, **inner}
        return publish(folder, {**config, **more}, weights | tensors("dspark" if kind == "dspark" else kind, own=True))
    layer = {name: config.pop(name) for name in oracle.QWEN}
    for name in ("target_layer_ids", "num_target_layers"):
        config.pop(name, None)
    config |= {
        "speculators_model_type": kind, "transformer_layer_config": layer, "mask_token_id": MASK,
        "aux_hidden_state_layer_ids": [layer + 1 for layer in FEATURES],
        **{name: value for name, value in inner.items() if name.startswith(("conv", "selector"))},
    }  # fmt: skip
    if kind != "dflash2":
        drafted = torch.randperm(oracle.VOCAB, generator=torch.Generator().manual_seed(2))[:90].sort().values
        head = weights.get("lm_head.weight", 0.4 * torch.randn(oracle.VOCAB, oracle.HIDDEN))
        weights |= {"lm_head.weight": head[drafted], "d2t": drafted - torch.arange(90)}
        config["draft_vocab_size"] = 90
        if kind == "dspark":
            weights["markov_head.markov_w2.weight"] = weights["markov_head.markov_w2.weight"][drafted]
    return publish(folder, config, weights)


@pytest.mark.parametrize(
    ("kind", "form", "anchor"),
    [("dflash", "deepspec", True), ("dflash", "speculators", False), ("dspark", "speculators", False),
     ("dflash2", "speculators", False)],
)  # fmt: skip
def test_other_layouts_are_read(monkeypatch, target, tmp_path, kind, form, anchor):
    spoken_for(monkeypatch)
    place = layouts(tmp_path / "it", kind, form)
    network = load_part(target, kind, place)
    assert network.config.anchor == anchor and network.config.features == tuple(layer + 1 for layer in FEATURES)
    assert network.about["format"] == f"{kind}-{form}"
    assert generate(target, PROMPT, kind, {"part": place}, max_new_tokens=8) == generate(
        target, PROMPT, max_new_tokens=8
    )


REFUSED = {
    "lacks a tensor": ({}, {"norm.weight": None}, "is incomplete: it lacks norm.weight"),
    "no fc": ({}, {"fc.weight": None}, "is incomplete: it lacks fc.weight"),
    "another tensor": ({}, {"layers.0.extra.weight": (4, 4)}, "a variant that is not read: it has layers.0.extra"),
    "another width": ({}, {"fc.weight": (64, 2 * 96)}, "states of 96 numbers, and the model's have 64"),
    "a layer's width": ({}, {"layers.1.mlp.up_proj.weight": (40, 64)}, "40 × 64, where 48 × 64 is wanted"),
    "states": ({"target_layer_ids": [0, 1, 2]}, {}, "which are not 3 states of one width"),
    "layer out of range": ({"target_layer_ids": [0, 9]}, {}, "names 9, and tiny-qwen3 has 3 layers, 0 to 2"),
    "negative layer": ({"target_layer_ids": [-2, 1]}, {}, "target_layer_ids names -2"),
    "layers in disorder": ({"target_layer_ids": [2, 0]}, {}, "is not in ascending order"),
    "layers as text": ({"target_layer_ids": "all"}, {}, "a list of the target's layers is wanted"),
    "block of 1": ({"block_size": 1}, {}, "block_size = 1, and 2 to 64 are possible; a block holds its root"),
    "block of true": ({"block_size": True}, {}, "block_size = True"),
    "no mask": ({"mask_token_id": None}, {}, "mask_token_id = None, and 0 to 319 are possible"),
    "mask outside": ({"mask_token_id": 4000}, {}, "mask_token_id = 4000, and 0 to 319 are possible"),
    "anchor": ({"sample_from_anchor": "yes"}, {}, "sample_from_anchor = 'yes', not true or false"),
    "unknown field": ({"noise_schedule": 3}, {}, "has the field dflash_config.noise_schedule, which is not known"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused_by_name(target, tmp_path, case):
    inner, changes, words = REFUSED[case]
    config, weights = configuration("dflash"), tensors("dflash")
    of_block = config["dflash_config"]
    if "block_size" in inner:
        config["block_size"] = inner["block_size"]
    else:
        of_block |= inner
    for name, shape in changes.items():
        weights.pop(name, None)
        if shape is not None:
            weights[name] = torch.zeros(shape)
    with pytest.raises(UserError, match=re.escape(words)):
        load_part(target, "dflash", publish(tmp_path / "it", config, weights))


def test_a_drafter_of_another_kind_or_target_is_refused(target, tmp_path):
    place, _ = original(tmp_path / "it", "dspark")
    with pytest.raises(UserError, match="holds DSpark as DeepSpec publishes it, and the method dflash wants another"):
        load_part(target, "dflash", place)
    place, _ = original(tmp_path / "gated", "dspark", markov_head_type="gated")
    with pytest.raises(UserError, match="its Markov head is of the type 'gated', and 'vanilla' is read"):
        load_part(target, "dspark", place)
    place, _ = original(tmp_path / "deep", "dflash", num_target_layers=36)
    with pytest.raises(UserError, match="num_target_layers = 36, and its tensors have 3"):
        load_part(target, "dflash", place)
    save_tiny_part(target, "dflash")
    with pytest.raises(UserError, match="tokens=9 is not allowed: a block of this drafter guesses 4 tokens"):
        generate(target, PROMPT, "dflash", {"tokens": 9}, max_new_tokens=3)
    with pytest.raises(UserError, match="a block of 1 rows drafts nothing"):
        BlockConfig.of(target.shape, block=1)


# --- what is recorded


@pytest.mark.parametrize("kind", KINDS)
def test_a_lattice_is_recorded_as_it_was_walked(target, kind):
    save_tiny_part(target, kind)
    trace = record(target, PROMPT, kind, max_new_tokens=6)
    lattice, edges, drafts = trace.tables["lattice"], trace.tables["transitions"], drafts_of(trace)
    per_step = {step: {} for step in lattice["step"]}
    for row, step in enumerate(lattice["step"]):
        per_step[step].setdefault(lattice["depth"][row], []).append(row)
    for step, depths in per_step.items():
        walk = [next(row for row in rows if lattice["walked"][row]) for rows in depths.values()]
        assert [lattice["token"][row] for row in walk][: len(drafts[step])] == drafts[step]
        assert {len(rows) for rows in depths.values()} == {5 if kind == "dflash2" else 8}
        alone = [[lattice["logprob"][row] for row in rows] for rows in depths.values()]
        assert all(one == sorted(one, reverse=True) for one in alone) or kind == "dspark"
    assert bool(edges["step"]) == (kind != "dflash")
    if kind == "dflash2":  # the walk is the best of the recorded scores, at every position given the one before
        score = {key: one for *key, one in zip(*edges.values(), strict=True) for key in [tuple(key)]}
        before = 0
        for depth, rows in per_step[0].items():
            best = max(rows, key=lambda row: lattice["logprob"][row] + score[0, depth, before, lattice["rank"][row]])
            assert lattice["walked"][best]
            before = lattice["rank"][best]


def test_a_confidence_head_ends_a_draft(target):
    """The first token below the threshold and those behind it are left out, and the lattice still shows them."""
    save_tiny_part(target, "dspark")
    whole = record(target, PROMPT, "dspark", max_new_tokens=9).tables["nodes"]
    sure = [one for one, step in zip(whole["term:acceptance"], whole["step"], strict=True) if step == 0][1:]
    least = min(sure)
    trace = record(target, PROMPT, "dspark", {"threshold": least + 1e-4}, max_new_tokens=9)
    first = [token for token, step in zip(whole["token"], whole["step"], strict=True) if step == 0][1:]
    lattice = trace.tables["lattice"]
    depths = {depth for depth, step in zip(lattice["depth"], lattice["step"], strict=True) if step == 0}
    assert drafts_of(trace)[0] == first[: sure.index(least)] and depths == {1, 2, 3, 4, 5}
    none = record(target, PROMPT, "dspark", {"threshold": 1.0}, max_new_tokens=2)
    steps = none.tables["steps"]
    assert steps["drafted"] == [0, 0] and "the confidence head puts" in steps["reason"][0]


def test_recall_accuracy_and_oracle_length_are_three_numbers(monkeypatch, target):
    """Of a drafter that foresees all but every third token: counted again from what was recorded."""
    save_tiny_part(target, "dflash")
    plain = generate(target, PROMPT, max_new_tokens=NEW)
    foresee(monkeypatch, plain, len(PROMPT.tokens))
    trace = record(target, PROMPT, "dflash", max_new_tokens=NEW)
    lattice, text = trace.tables["lattice"], [*PROMPT.tokens, *plain]
    covered = known = oracle = right = chosen = 0
    for step, context in enumerate(trace.tables["steps"]["context"]):
        leading = walking = True
        for depth in range(1, 5):
            rows = [
                row for row in range(len(lattice["step"]))
                if (lattice["step"][row], lattice["depth"][row]) == (step, depth)
            ]  # fmt: skip
            if not rows or context + depth - 1 >= len(text):
                break
            wrote = text[context + depth - 1]
            there = [row for row in rows if lattice["token"][row] == wrote]
            known, covered = known + 1, covered + bool(there)
            leading = leading and bool(there)
            oracle += leading
            if walking and there:
                chosen, right = chosen + 1, right + lattice["walked"][there[0]]
            walking = walking and bool(there) and lattice["walked"][there[0]]
    metrics, steps = trace.run["metrics"], len(set(lattice["step"]))
    assert metrics["candidate_recall"] == covered / known < 1
    assert metrics["selector_accuracy"] == right / chosen and metrics["oracle_length"] == oracle / steps
    assert oracle >= sum(trace.tables["steps"]["accepted"]) > 0
    assert record(target, PROMPT, "pld", max_new_tokens=4).run["metrics"]["candidate_recall"] is None
