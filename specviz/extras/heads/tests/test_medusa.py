"""Medusa and Hydra: trees against the published equations, losslessness, published checkpoints, refusals."""

from __future__ import annotations

import copy
import json
import math
from collections import Counter

import pytest
import torch
from safetensors.torch import save_file
from scipy.stats import chisquare
from transformers import LlamaModel

from decoders import Prompt, Sampling, UserError, find_method, generate, record
from decoders.draft.draft import Draft, Scored
from decoders.draft.tree import DraftTree
from decoders.engine.decoding import Decoding
from decoders.parts import load_part
from decoders.verifiers.sampling import Chooser
from decoders.verifiers.typical import typical_bound
from specviz.extras.heads.head_trees import MC_SIM, RankTree
from tests.drafts import save_tiny_part
from tests.models import own_forward, prompt_ids, tiny_target
from tests.whatifs import whatif

from .tiny_parts import tiny_heads

pytestmark = pytest.mark.usefixtures("home")
NEW = 24
PROMPT = Prompt.from_ids(prompt_ids(3))


@pytest.fixture
def target():
    return tiny_target("llama")


def last_states(target, tokens, back=0):
    """The target's final states after its norm, or those ``back`` layers below, by the model's own code."""
    return own_forward(target, tokens).hidden_states[-1 - back][0]


def first_draft(target, method, **params):
    """The first step's draft, the target's last state before it, and the root."""
    run = Decoding.of(target, PROMPT, method, params, max_new_tokens=NEW)
    run.prefill()
    return run.propose(run.session), last_states(target, list(PROMPT.tokens))[-2], PROMPT.tokens[-1]


def drawn_paths(draft):
    """Tokens from behind the root to each drafted node → the drafter's probability along them."""
    paths, tree = {}, draft.tree
    for node in range(1, len(tree)):
        along = tree.path(node)[1:]
        paths[tuple(tree.tokens[n] for n in along)] = math.prod(draft.probabilities[n] for n in along)
    return paths


# --- trees


def test_the_published_tree_has_63_nodes_and_only_first_ten_ranks():
    """By depth 10, 28, 23, 2 (medusa/model/medusa_choices.py)."""
    assert [sum(len(path) == depth for path in MC_SIM) for depth in (1, 2, 3, 4)] == [10, 28, 23, 2]
    assert len(set(MC_SIM)) == 63 and max(map(max, MC_SIM)) == 9
    assert all(path[:-1] in {(), *MC_SIM} for path in MC_SIM)


def test_medusas_tree_is_that_of_generate_candidates(target):
    """The public code's way: one list of the root and 10 tokens per head, indexed by rank + 10 · head + 1."""
    save_tiny_part(target, "medusa", shared=False)
    draft, state, root = first_draft(target, "medusa")
    weights = load_part(target, "medusa").state_dict()
    candidates, scores = [root], [1.0]
    for i in range(4):
        wx = state @ weights[f"heads.{i}.0.linear.weight"].T + weights[f"heads.{i}.0.linear.bias"]
        logits = (state + wx * torch.sigmoid(wx)) @ weights[f"outputs.{i}.weight"].T
        top = torch.topk(torch.softmax(logits, -1), 10)
        candidates += top.indices.tolist()
        scores += top.values.tolist()
    expected = {}
    for choice in sorted(MC_SIM, key=lambda x: (len(x), x)):
        indices = [rank + 10 * depth + 1 for depth, rank in enumerate(choice)]
        expected[tuple(candidates[i] for i in indices)] = math.prod(scores[i] for i in indices)
    got = drawn_paths(draft)
    assert got.keys() == expected.keys() and len(got) == 63
    assert all(got[path] == pytest.approx(p, rel=1e-4) for path, p in expected.items())
    assert draft.terms["path_logprob"][1:].tolist() == pytest.approx(
        [math.log(got[tuple(draft.tree.tokens[n] for n in draft.tree.path(node)[1:])]) for node in range(1, 64)],
        rel=1e-4,
    )


@pytest.mark.parametrize(("mixed", "blocks", "back"), [(False, 1, 0), (True, 1, 0), (True, 2, 1), (False, 2, 3)])
def test_hydras_children_follow_their_path(target, mixed, blocks, back):
    """Each node's children are the first choices of its head fed with h and the embeddings of the node's own path."""
    options = {"mixed": mixed, "blocks": blocks, "hidden_state_offset": back}
    save_tiny_part(target, "hydra", shared=False, bias=True, **options)
    draft, _, root = first_draft(target, "hydra")
    state = last_states(target, list(PROMPT.tokens), back)[-2]
    weights = load_part(target, "hydra").state_dict()
    table = target.model.get_input_embeddings().weight

    def says(path):
        """The head's distribution behind these tokens."""
        i = len(path)
        x = torch.cat([state, *(table[token] for token in (root, *path))])
        assert len(x) == (i + 2) * 64
        linear = x @ weights[f"heads.{i}.0.linear.weight"].T + weights[f"heads.{i}.0.linear.bias"]
        kept = state
        if mixed:
            kept = x @ weights[f"heads.{i}.0.skip.weight"].T + weights[f"heads.{i}.0.skip.bias"]
        y = kept + linear * torch.sigmoid(linear)
        for block in range(1, blocks):
            linear = y @ weights[f"heads.{i}.{block}.linear.weight"].T + weights[f"heads.{i}.{block}.linear.bias"]
            y = y + linear * torch.sigmoid(linear)
        return torch.softmax(y @ weights[f"outputs.{i}.weight"].T + weights[f"outputs.{i}.bias"], -1)

    tokens, expected = {(): ()}, {(): 1.0}
    for ranks in sorted(MC_SIM, key=len):
        above = tokens[ranks[:-1]]
        top = torch.topk(says(above), 10)
        tokens[ranks] = (*above, int(top.indices[ranks[-1]]))
        expected[tokens[ranks]] = expected[above] * float(top.values[ranks[-1]])
    got = drawn_paths(draft)
    assert got.keys() == expected.keys() - {()}
    assert all(got[path] == pytest.approx(expected[path], rel=1e-4) for path in got)
    for node, q in draft.distributions.items():
        path = tuple(draft.tree.tokens[n] for n in draft.tree.path(node)[1:])
        assert torch.allclose(q, says(path), atol=1e-6)


def test_through_the_targets_head_and_a_draft_vocabulary(target):
    """Trained here: a square map and the target's own head, of the tokens that can be drafted."""
    save_tiny_part(target, "medusa", draft_vocab=40)
    draft, state, _ = first_draft(target, "medusa", tree="chain")
    heads = tiny_heads(target, "medusa", draft_vocab=40)
    head = target.model.get_output_embeddings().weight
    for i, token in enumerate(draft.tree.tokens[1:]):
        made = heads.outputs[i](heads.heads[i](state))
        p = torch.softmax(head[heads.drafted.long()] @ made, -1)
        assert token == int(heads.drafted[p.argmax()])
        q = draft.distributions[i]
        assert q.shape == (320,) and torch.allclose(q[heads.drafted.long()], p, atol=1e-6)
        assert float(q.sum()) == pytest.approx(1, abs=1e-5), "no other token has any probability"


def test_what_cannot_be_drafted_is_told(target):
    save_tiny_part(target, "medusa", draft_vocab=40)
    drafted = set(tiny_heads(target, "medusa", draft_vocab=40).drafted.tolist())
    trace = record(target, PROMPT, "medusa", max_new_tokens=NEW)
    steps = trace.tables["steps"]
    told = [None if row is None else bool(row) for row in steps["term:outside"]]
    assert told == [bonus not in drafted for bonus in steps["bonus"]] and True in told


def test_a_tree_is_cut_to_the_budget_the_heads_and_the_ranks(target):
    save_tiny_part(target, "medusa", heads=3)
    assert max(first_draft(target, "medusa")[0].tree.depths) == 3
    assert max(first_draft(target, "medusa", heads=2)[0].tree.depths) == 2
    draft = first_draft(target, "medusa", top_k=2)[0]
    assert len(draft.tree) == 1 + sum(max(path) < 2 and len(path) <= 3 for path in MC_SIM)
    run = Decoding.of(target, PROMPT, "medusa", max_new_tokens=2)
    run.prefill()
    assert max(run.propose(run.session).tree.depths) == 1
    alone = Decoding.of(target, Prompt.from_ids([7]), "medusa", max_new_tokens=4)
    assert "nothing was processed" in next(iter(alone)).draft.reason


def test_a_tree_is_designed_from_what_was_measured(target):
    folder = save_tiny_part(target, "medusa", heads=2)
    about = json.loads((folder / "part.json").read_text())
    with pytest.raises(UserError, match="no tree can be designed.*was not measured"):
        generate(target, PROMPT, "medusa", {"tree": "designed"}, max_new_tokens=4)
    about["training"]["log"] = [{"ranks": [[0.6, 0.2], [0.5, 0.1]]}]
    (folder / "part.json").write_text(json.dumps(about))
    draft = first_draft(target, "medusa", tree="designed", size=3)[0]
    assert sorted(draft.tree.parents) == [-1, 0, 0, 1], "(0), (0, 0), (1): methods.md §5's example"
    with pytest.raises(ValueError, match="size=9 is of a designed tree"):
        find_method("medusa").params(size=9)


def test_levels_of_a_tree():
    tree = RankTree.of([(0,), (1,), (0, 0), (1, 0), (1, 2)])
    assert tree.parents == (-1, 0, 1, 0, 3, 3)
    first, second = tree.levels
    assert (first.inner, first.children) == ((0,), (1, 3))
    assert (second.inner, second.children, second.rows.tolist()) == ((1, 3), (2, 4, 5), [0, 1, 1])
    assert second.ranks.tolist() == [0, 0, 2]


# --- what is written


def test_heads_that_foresee_are_accepted(target):
    """A head that says what the target will say gets whole chains accepted: distances are not off by one."""
    save_tiny_part(target, "medusa")
    plain = generate(target, PROMPT, max_new_tokens=3)
    states = last_states(target, [*PROMPT.tokens, *plain])
    heads, at = load_part(target, "medusa"), len(PROMPT.tokens) - 1
    for i in range(2):  # the root is the prompt's last token, so head i guesses what position at + i says
        block, nothing = heads.heads[i][0], torch.zeros_like(states[0])
        for places, name, bias in ((block, "linear", nothing), (heads.outputs, str(i), states[at + i])):
            old = getattr(places, name)
            new = torch.nn.Linear(old.in_features, old.out_features).requires_grad_(False)
            new.weight.zero_()
            setattr(places, name, new)
            new.bias.copy_(bias)
    assert next(iter(Decoding.of(target, PROMPT, "medusa", {"tree": "chain"}, max_new_tokens=NEW))).accepted >= 2


@pytest.mark.parametrize("method", ["medusa", "hydra"])
def test_a_step_is_drafted_again(target, method):
    save_tiny_part(target, method)
    trace = record(target, PROMPT, method, max_new_tokens=NEW)
    assert whatif(target, trace, 4, method, {}).same
    other = whatif(target, trace, 4, method, {"tree": "chain", "heads": 2})
    assert other.trace.tables["nodes"]["depth"] == [0, 1, 2]


def test_a_run_says_which_heads_drafted(target, tmp_path):
    made = tiny_heads(target, "medusa", shared=False, heads=2)
    place = publish(tmp_path / "my-heads", store("medusa", made), "medusa_lm_head.pt", medusa_num_layers=1)
    part = record(target, PROMPT, "medusa+typical", {"part": place}, max_new_tokens=4).run["part"]
    assert (part["kind"], part["from"], part["format"], part["heads"]) == ("medusa", "my-heads", "medusa", 2)
    assert len(part["fingerprint"]) == 24 and str(tmp_path) not in str(part)


def test_what_is_recorded(target):
    save_tiny_part(target, "hydra")
    trace = record(target, PROMPT, "hydra", max_new_tokens=6)
    assert (trace.run["part"]["kind"], trace.run["part"]["from"]) == ("hydra", "trained here")
    nodes = {name: column[:64] for name, column in trace.tables["nodes"].items()}
    assert set(nodes["origin"]) == {"root", "head"} and max(nodes["term:draft_rank"][1:]) == 9
    assert nodes["term:distance"][1:] == nodes["depth"][1:]
    assert all(0 <= beta <= 1 for beta in nodes["term:overlap"][1:] if beta is not None)
    guesses = trace.tables["guesses"]
    inner = {node for step, node in zip(guesses["step"], guesses["node"], strict=True) if step == 0}
    assert inner == {parent for parent in nodes["parent"] if parent >= 0}, "what each head says, beside the target"
    steps = trace.tables["steps"]
    assert all(ms > 0 for ms, drafted in zip(steps["term:forward_ms"], steps["drafted"], strict=True) if drafted)


def test_medusa_without_fast_draws_of_what_is_typical():
    """One draw per node of the tokens with p ≥ min(ε, α e^-H), in their proportions; a guess stands if it is drawn."""
    p = [0.5, 0.3, 0.12, 0.05, 0.03]
    bound = min(0.2, 0.4 * math.exp(sum(x * math.log(x) for x in p)))
    left = [x if x >= bound else 0.0 for x in p]
    assert left == [0.5, 0.3, 0.12, 0.0, 0.0]
    draft, scored = Draft(DraftTree((9, 1, 3), (-1, 0, 0))), Scored(torch.tensor([p] * 3).log())
    chooser = Chooser(Sampling(temperature=1.0, seed=4))
    verify = find_method("medusa+typical").verifier(
        find_method("medusa+typical").params(fast=False, epsilon=0.2, alpha=0.4), chooser, ()
    )
    seen = Counter()
    for _ in range(4000):
        verdict = verify(draft, scored)
        seen[draft.tree.tokens[verdict.path[-1]] if verdict.accepted else verdict.bonus] += 1
    assert verdict.terms["typical"][1:] == pytest.approx([bound] * 2)
    assert seen.keys() == {0, 1, 2} and not verify.lossless
    assert chisquare([seen[i] for i in range(3)], [4000 * x / sum(left) for x in left[:3]]).pvalue > 1e-4


def test_medusa_without_fast_judges_before_top_k(target):
    """The recorded threshold is the one that decided: min(ε, α e^-H) of p at the run's temperature, top-k or not."""
    chooser = Chooser(Sampling(temperature=2.0, top_k=2, seed=4))
    params = find_method("medusa+typical").params(fast=False, epsilon=1, alpha=0.8)
    verify = find_method("medusa+typical").verifier(params, chooser, ())
    p = torch.tensor([0.5, 0.3, 0.12, 0.05, 0.03])
    draft, scored = Draft(DraftTree.chain(9, (1,))), Scored(2 * p.log().repeat(2, 1))
    verdicts = [verify(draft, scored) for _ in range(60)]
    assert p[1] > verdicts[0].terms["typical"][1] > p[2]
    assert {verdict.accepted for verdict in verdicts} == {0, 1}


def test_medusa_without_fast_writes_no_untypical_token(target):
    """Its output is that of plain decoding where the target's distribution is cut so; greedy, it is plain decoding."""
    save_tiny_part(target, "medusa", draft_vocab=60)
    params, warm = {"fast": False, "epsilon": 0.05, "alpha": 0.5}, Sampling(temperature=1.0, seed=3)
    trace = record(target, PROMPT, "medusa+typical", params, sampling=warm, max_new_tokens=NEW)
    written = trace.output_ids
    logits = own_forward(target, [*PROMPT.tokens, *written]).logits[0, len(PROMPT.tokens) - 1 : -1]
    bound, _ = typical_bound(logits, 0.05, 0.5)
    assert (logits.softmax(-1).gather(1, torch.tensor(written)[:, None])[:, 0] >= bound - 1e-6).all()
    assert generate(target, PROMPT, "medusa+typical", {"fast": False}, max_new_tokens=NEW) == generate(
        target, PROMPT, max_new_tokens=NEW
    )
    assert whatif(target, trace, 4, "medusa+typical", params).same


# --- published checkpoints


def store(kind, made, prefix=""):
    """A network's weights under the names of the published files."""
    names = {}
    for name, tensor in made.state_dict().items():
        part, number, *rest = name.split(".")
        if kind == "hydra":
            block, layer, what = rest if part == "heads" else (0, "", rest[0])
            layer = {"linear": "linear", "skip": "res_connection"}.get(layer, "")
            new = f"hydra_mlp.{number}.{block}.{layer}.{what}" if part == "heads" else f"hydra_lm_head.{number}.{what}"
        else:
            new = f"{number}.{'.'.join(rest)}" if part == "heads" else f"{number}.{made.config.blocks}.weight"
        names[prefix + new] = tensor.clone()
    return names


def publish(folder, weights, file, **config):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    if file.endswith(".pt"):
        torch.save(weights, folder / file)
    else:
        save_file(weights, folder / file)
    return str(folder)


@pytest.mark.parametrize("file", ["medusa_lm_head.pt", "medusa_lm_head.safetensors"])
@pytest.mark.parametrize("prefix", ["", "medusa_head."])
def test_published_medusa_heads_draft_as_they_were_made(target, tmp_path, file, prefix):
    """Medusa-1's own file, and heads inside a whole model; the configuration says 2 heads where there are 5."""
    options = {"shared": False, "heads": 5, "blocks": 1}
    made = tiny_heads(target, "medusa", **options)
    weights = store("medusa", made, prefix)
    if prefix:
        weights["model.layers.0.input_layernorm.weight"] = torch.ones(64)
    place = publish(tmp_path / "head", weights, file, medusa_num_heads=2, medusa_num_layers=1)
    save_tiny_part(target, "medusa", **options)
    own, theirs = (first_draft(target, "medusa", part=part)[0] for part in (None, place))
    assert own.tree == theirs.tree and own.probabilities == theirs.probabilities
    heads = load_part(target, "medusa", place)
    assert heads.config.heads == 5 and heads.about["format"] == ("medusa-2" if prefix else "medusa")


@pytest.mark.parametrize(("blocks", "back"), [(1, 0), (2, 1)])
def test_published_hydra_heads_draft_as_they_were_made(target, tmp_path, blocks, back):
    options = {"shared": False, "bias": True, "mixed": True, "blocks": blocks, "heads": 3, "hidden_state_offset": back}
    weights = store("hydra", tiny_heads(target, "hydra", **options))
    place = publish(tmp_path / "head", weights, "hydra_lm_head.pt", hydra_num_heads=3, hydra_num_layers=blocks,
                      hydra_head_arch="mlp", grounded_heads=True, hidden_state_offset=back)  # fmt: skip
    save_tiny_part(target, "hydra", **options)
    own, theirs = (first_draft(target, "hydra", part=part)[0] for part in (None, place))
    assert own.tree == theirs.tree and own.probabilities == theirs.probabilities
    plain = generate(target, PROMPT, max_new_tokens=8)
    assert generate(target, PROMPT, "hydra", {"part": place}, max_new_tokens=8) == plain


def published_plus(target, folder, heads=2, back=0):
    """Hydra++ as it is published: a LlamaModel of one layer, and indices that count dropouts; its parts."""
    made = tiny_heads(target, "hydra", shared=False, bias=True, mixed=True, heads=heads)
    config = copy.deepcopy(target.config)
    config.num_hidden_layers = 1
    config._attn_implementation = "eager"
    torch.manual_seed(7)
    prefix = LlamaModel(config).eval()
    for parameter in prefix.parameters():
        if parameter.ndim > 1:
            parameter.data.normal_(0, 0.12)
    shifted = {"hydra_mlp": lambda rest: f"1.{rest.split('.', 1)[1]}", "hydra_lm_head": lambda rest: f"1.{rest}"}
    weights = {}
    for name, tensor in store("hydra", made).items():
        part, number, rest = name.split(".", 2)
        weights[f"{part}.{number}.{shifted[part](rest)}"] = tensor
    weights |= {f"prefix_embeding_layer.{name}": tensor for name, tensor in prefix.state_dict().items()}
    place = publish(folder, weights, "hydra_lm_head.pt", hydra_num_heads=heads, hydra_num_layers=1,
                      hydra_head_arch="prefix-mlp", grounded_heads=True, hidden_state_offset=back)  # fmt: skip
    return place, prefix, made


@pytest.mark.parametrize("back", [0, 1])
def test_published_hydra_plus_plus_reads_through_its_prefix_layer(target, tmp_path, back):
    """Every step's state is what transformers' LlamaModel makes of the target's states up to there."""
    place, prefix, made = published_plus(target, tmp_path / "head", back=back)
    run = Decoding.of(target, PROMPT, "hydra", {"part": place, "tree": "chain"}, max_new_tokens=NEW)
    steps = list(run)
    written = [*PROMPT.tokens, *(token for step in steps for token in step.emitted)]
    assert written[60:] == generate(target, PROMPT, max_new_tokens=NEW)
    states, table = last_states(target, written, back), target.model.get_input_embeddings().weight
    with torch.no_grad():
        read = prefix(inputs_embeds=states[None]).last_hidden_state[0]
    for step in steps:
        at, path = step.context_length - 2, [written[step.context_length - 1]]
        for node in range(1, len(step.draft.tree)):
            x = torch.cat([read[at], *(table[token] for token in path)])
            said = torch.softmax(made.outputs[node - 1](made.heads[node - 1](x)), -1)
            token = step.draft.tree.tokens[node]
            assert step.draft.probabilities[node] == pytest.approx(float(said.max()), rel=1e-3)
            assert token == int(said.argmax())
            path.append(token)
    assert len(steps) > 5
    assert load_part(target, "hydra", place).about["format"] == "hydra++"


def test_a_prefix_layer_that_was_trained_here(target):
    save_tiny_part(target, "hydra", prefix=True)
    plain = generate(target, PROMPT, max_new_tokens=NEW)
    assert generate(target, PROMPT, "hydra", max_new_tokens=NEW) == plain
    trace = record(target, PROMPT, "hydra", max_new_tokens=NEW)
    assert whatif(target, trace, 4, "hydra", {}).same


# --- refusals


def test_heads_of_other_targets_are_refused(target, tmp_path):
    made = tiny_heads(target, "medusa", shared=False)
    weights = store("medusa", made)
    wide = {name: torch.zeros(*(2 * n for n in tensor.shape)) for name, tensor in weights.items()}
    place = publish(tmp_path / "wide", wide, "medusa_lm_head.pt")
    with pytest.raises(UserError, match="made for another target.*states of 128 numbers, and the model's have 64"):
        load_part(target, "medusa", place)
    more = {name: torch.zeros(400, 64) if tensor.shape == (320, 64) else tensor for name, tensor in weights.items()}
    place = publish(tmp_path / "more", more, "medusa_lm_head.pt")
    with pytest.raises(UserError, match="drafts for 400 tokens, and the vocabulary has 320"):
        load_part(target, "medusa", place)
    place = publish(tmp_path / "kind", weights, "medusa_lm_head.pt")
    with pytest.raises(UserError, match="holds Medusa-1's heads, not heads for the method hydra"):
        load_part(target, "hydra", place)
    deep = publish(tmp_path / "deep", store("hydra", tiny_heads(target, "hydra", shared=False, bias=True)),
                     "hydra_lm_head.pt", hidden_state_offset=9)  # fmt: skip
    with pytest.raises(UserError, match="its hidden_state_offset is 9, and the model has 3 layers"):
        load_part(target, "hydra", deep)
    del weights["2.1.weight"]
    place = publish(tmp_path / "part", weights, "medusa_lm_head.pt")
    with pytest.raises(UserError, match="incomplete: head 3 of 4 lacks a tensor"):
        load_part(target, "medusa", place)


def test_tensors_that_are_not_read_are_refused(target, tmp_path):
    weights = store("hydra", tiny_heads(target, "hydra", shared=False, bias=True))
    weights["prefix_embeding_layer.layers.1.self_attn.q_proj.weight"] = torch.zeros(64, 64)
    place = publish(tmp_path / "deep", weights, "hydra_lm_head.pt", hydra_head_arch="prefix-mlp")
    with pytest.raises(UserError, match="it has prefix_embeding_layer.layers.1.self_attn.q_proj.weight, which Hydra"):
        load_part(target, "hydra", place)


def test_more_heads_than_are_stored_are_refused(target):
    save_tiny_part(target, "medusa", heads=2)
    with pytest.raises(UserError, match="heads=3 is not allowed: there are 2 heads"):
        generate(target, PROMPT, "medusa", {"heads": 3}, max_new_tokens=4)
