"""Universal drafting: a draft model with another tokenizer, by text and by shared tokens, against transformers' own."""

from __future__ import annotations

import copy
import functools
import itertools
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers.generation import candidate_generator as hf_candidates

from decoders import Prompt, Sampling, UserError, generate, load, record, save
from decoders.draft_models.vocabularies import Vocabularies
from decoders.drafters import select_method
from decoders.drafters.sps import offer_drafter
from decoders.engine.decoding import Decoding
from decoders.model.target_model.target import Target
from decoders.study.look.whatif import ReadRun
from decoders.verifiers.sampling import Chooser

from .chance import p_value
from .drafts import drafts_behind
from .models import network, prompt_ids, session_behind, tiny_tokenizer

LOOP = " the old lamp museum was sold twice"
OURS = [" the", " old", " lamp", " mus", "eum", " was", " sold", " twice", "ce"]
THEIRS = [" the old", " la", "mp", " museum", " w", "as", " sol", "d tw", "ice", "d on", "ce"]
# the assistant writes "sold once" where the target writes "sold twice"
NEXT = {" sol": "d on", "d on": "ce", "ce": " the old", "ice": " the old", "d tw": "ice"}
NEW, GAMMA, SPECIAL = 30, 5, ("<s>", "</s>", "<unk>")


def tokenizer_of(pieces: list[str]) -> Any:
    """A byte-level tokenizer with these pieces beside single bytes, the longest first; pieces may span words."""
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    spelled = ["".join(part for part, _ in level.pre_tokenize_str(piece)) for piece in pieces]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = [(one, 0.0) for one in SPECIAL] + [(one, -10.0) for one in alphabet] + [(one, -1.0) for one in spelled]
    tokenizer = Tokenizer(models.Unigram(vocab, unk_id=2))
    tokenizer.pre_tokenizer, tokenizer.decoder = level, decoders.ByteLevel()
    return hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def follower(tokenizer: Any, following: Mapping[int, int], spare: int = 0) -> Any:
    """A model that writes after each token the one that is said to follow, else the one with the next number."""
    size = 8 * -(-len(tokenizer) // 8) + spare
    config = hf.LlamaConfig(
        vocab_size=size, hidden_size=size, intermediate_size=8, num_hidden_layers=1, num_attention_heads=4,
        max_position_embeddings=512, eos_token_id=None, bos_token_id=0, pad_token_id=None, tie_word_embeddings=False,
    )  # fmt: skip
    model: Any = hf.LlamaForCausalLM(config).eval()
    for parameter in model.parameters():
        parameter.data.fill_(1.0 if parameter.ndim == 1 else 0.0)
    model.model.embed_tokens.weight.data.copy_(torch.eye(size))
    for token in range(size):
        model.lm_head.weight.data[following.get(token, (token + 1) % size), token] = 0.5
    model.generation_config.eos_token_id = None
    return model


@functools.cache
def pair() -> tuple[Any, Any, Any, Any]:
    """A target that repeats LOOP, with its tokenizer, and an assistant with another tokenizer that nearly does."""
    ours, theirs = tokenizer_of(OURS), tokenizer_of(THEIRS)
    loop = ours(LOOP, add_special_tokens=False)["input_ids"]
    assert ours.convert_ids_to_tokens(loop) == [piece.replace(" ", "Ġ") for piece in OURS[:-1]]
    target = follower(ours, dict(zip(loop, [*loop[1:], loop[0]], strict=True)))
    id_of = {piece: theirs.convert_tokens_to_ids(piece.replace(" ", "Ġ")) for piece in THEIRS}
    order = {**dict(itertools.pairwise(THEIRS)), **NEXT}
    return target, ours, follower(theirs, {id_of[a]: id_of[b] for a, b in order.items()}, 8), theirs


def save_model(folder: Any, model: Any, tokenizer: Any) -> str:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def followers(tmp_path_factory):
    model, ours, assistant, theirs = pair()
    target = Target(network_copy(model), ours, "follower")
    return target, save_model(tmp_path_factory.mktemp("assistant"), assistant, theirs)


def network_copy(model: Any) -> Any:
    made = hf.LlamaForCausalLM(copy.deepcopy(model.config)).eval()
    made.load_state_dict(model.state_dict())
    made.generation_config.eos_token_id = None
    return made


@pytest.fixture(scope="module")
def strangers(tmp_path_factory):
    """A random target and a random assistant whose tokenizers share single bytes and some words."""
    folder = tmp_path_factory.mktemp("stranger")
    target = Target(network("qwen3"), tiny_tokenizer(), "stranger")
    return target, save_model(folder, network("llama", 2), tokenizer_of([*THEIRS, " at", " station", "item"]))


def test_drafts_are_those_of_transformers_universal_assisted_generation(followers, monkeypatch):
    model, ours, assistant, theirs = pair()
    seen: list[tuple[list[int], list[int]]] = []
    kind: Any = hf_candidates.AssistedCandidateGeneratorDifferentTokenizers
    honest = kind.get_candidates

    def watch(self: Any, input_ids: torch.Tensor, **more: Any) -> Any:
        ids, logits = honest(self, input_ids, **more)
        seen.append((input_ids[0].tolist(), ids[0, input_ids.shape[1] :].tolist()))
        return ids, logits

    monkeypatch.setattr(kind, "get_candidates", watch)
    config = assistant.generation_config
    config.num_assistant_tokens, config.num_assistant_tokens_schedule = GAMMA, "constant"
    config.assistant_confidence_threshold = 0.0
    config.target_lookbehind = config.assistant_lookbehind = 4  # shorter than LOOP: it takes the longest match in them
    prompt = ours(LOOP * 2 + " the old", add_special_tokens=False)["input_ids"]
    ids = torch.tensor([prompt])
    output = model.generate(
        ids, attention_mask=torch.ones_like(ids), assistant_model=assistant, tokenizer=ours, assistant_tokenizer=theirs,
        max_new_tokens=NEW, do_sample=False, pad_token_id=0,
    )  # fmt: skip
    target, place = followers
    expected = generate(target, Prompt.from_ids(prompt), max_new_tokens=NEW)
    assert output[0, len(prompt) :].tolist() == expected and ours.decode(expected[:6]) == " lamp museum was sold twice"
    made = drafts_behind(target, "sps", [text for text, _ in seen], drafter=place, gamma=GAMMA)
    for number, ((text, expected_draft), draft) in enumerate(zip(seen, made, strict=True)):
        mine = list(draft.tree.tokens[1:])
        own = theirs(ours.decode(text), return_tensors="pt")["input_ids"]
        new = assistant.generate(own, attention_mask=torch.ones_like(own), max_new_tokens=GAMMA, pad_token_id=0)
        assert ours.decode(mine) == theirs.decode(new[0, own.shape[1] :])
        # transformers cuts the last draft at the end of the run, and drafts nothing where it finds no seam
        assert not expected_draft or mine[: len(expected_draft)] == expected_draft, ours.decode(text)
        assert number == len(seen) - 1 or len(expected_draft) in (0, len(mine))
    assert sum(len(expected_draft) > 1 for _, expected_draft in seen) > 8
    steps = list(Decoding.of(target, Prompt.from_ids(prompt), "sps", {"drafter": place}, max_new_tokens=NEW))
    assert [token for step in steps for token in step.emitted] == expected
    assert {step.accepted for step in steps} > {0} and any(step.accepted < step.draft.tree.drafted for step in steps)


def test_which_of_its_tokens_became_which_is_recorded(followers, tmp_path):
    target, place = followers
    ours, theirs = target.tokenizer, pair()[3]
    prompt = Prompt.from_ids(ours(LOOP + " the", add_special_tokens=False)["input_ids"])
    trace = record(target, prompt, "sps", {"drafter": place}, max_new_tokens=NEW)
    save(trace, tmp_path / "other.spectrace")
    trace = load(tmp_path / "other.spectrace")
    table, nodes = trace.tables["assistant"], trace.tables["nodes"]
    first = [i for i, step in enumerate(table["step"]) if step == 1]
    said = [bytes.fromhex(table["hex"][i]).decode() for i in first]
    assert [theirs.decode([table["token"][i]]) for i in first] == said and len(said) == GAMMA
    assert all(0.9 < probability <= 1 for probability in (table["draft_prob"][i] for i in first))
    drafted = [nodes["token"][i] for i, step in enumerate(nodes["step"]) if step == 1]
    for i, text in zip(first, said, strict=True):
        begin, end = table["first"][i], table["last"][i]
        carried = ours.decode(drafted[begin : end + 1])
        assert begin <= end and (text in carried or text.strip() in carried), (text, carried)
    assert trace.run["part"]["format"] == "causal LM" and trace.tables["steps"]["term:assistant_tokens"][1] == GAMMA
    assert ReadRun(target, trace).redraft(1, "sps", {"drafter": place}).same
    same = record(target, prompt, "pld", max_new_tokens=8)
    assert not same.tables["assistant"]["step"]


@pytest.mark.parametrize(
    ("behind", "assistant", "ours", "first", "last"),
    [
        (" the old", [" la", "mp"], [" lamp"], (0, 0), (0, 0)),
        (" the old lamp", [" museum", " w"], [" mus", "eum", " ", "w"], (0, 2), (1, 3)),
        (" the old lamp mus", ["e", "u", "m"], ["eum"], (0, 0, 0), (0, 0, 0)),
        (" the old lamp m", ["u", "s"], ["u", "s"], (0, 1), (0, 1)),  # no token begins behind the text there
        ("", ["é"[:1], "</s>", "a"], ["Ã", "©"], (0, -1, -1), (1, -1, -1)),  # a special token ends it
    ],
)
def test_text_goes_on_in_the_targets_tokens(behind, assistant, ours, first, last):
    _, mine, _, theirs = pair()
    words = Vocabularies(mine, theirs, len(mine), len(theirs))
    if behind.endswith(" m"):  # as a target may have written it: m by itself
        context = [*mine(behind[:-2], add_special_tokens=False)["input_ids"], *mine.convert_tokens_to_ids(["Ġ", "m"])]
    else:
        context = mine(behind, add_special_tokens=False)["input_ids"]
    own = [i for piece in assistant for i in ([theirs.eos_token_id] if piece == "</s>" else theirs(piece)["input_ids"])]
    made = words.write(context, own)
    assert mine.convert_ids_to_tokens(list(made.tokens)) == [piece.replace(" ", "Ġ") for piece in ours]
    if len(own) == len(assistant):
        assert (made.first, made.last) == (first, last)


def test_bytes_that_are_no_character_yet_are_left_out():
    _, mine, _, theirs = pair()
    words = Vocabularies(mine, theirs, len(mine), len(theirs))
    own = theirs("aé")["input_ids"]
    made = words.write(mine("x")["input_ids"], own[:-1])
    assert mine.decode(list(made.tokens)) == "a" and (made.first, made.last) == ((0, -1), (0, -1))
    assert words.write(mine("x")["input_ids"], own[1:2]).tokens == ()


def test_shared_tokens_are_transformers_own():
    _, mine, _, theirs = pair()
    words = Vocabularies(mine, theirs, len(mine), len(theirs))
    translator = hf_candidates.AssistantToTargetTranslator(mine, theirs, len(mine))
    expected = translator._assistant_to_target_input_ids.tolist()
    assert words.shared_tokens.tolist() == [token if token >= 0 else -1 for token in expected]
    assert words.shared_tokens[theirs.convert_tokens_to_ids("ce")] == mine.convert_tokens_to_ids("ce")
    assert words.shared_tokens[theirs.convert_tokens_to_ids("Ġmuseum")] == -1


SHARED = {"across": "shared tokens"}


@pytest.mark.parametrize(
    "params",
    [{}, SHARED, {**SHARED, "expansion": "fixed"}, {**SHARED, "expansion": "beam 4"}, {"schedule": "heuristic"}],
)
def test_output_is_the_targets_own(strangers, params):
    target, place = strangers
    prompt = Prompt.from_ids(prompt_ids(3, 30))
    expected = generate(target, prompt, max_new_tokens=20)
    trace = record(target, prompt, "sps", {"drafter": place, **params}, max_new_tokens=20)
    assert trace.output_ids == expected and sum(trace.tables["steps"]["drafted"]) > 0
    table, nodes = trace.tables["assistant"], trace.tables["nodes"]
    assert table["step"]
    if "across" in params:  # one token for one
        assert table["first"] == table["last"] and len(table["step"]) == sum(parent >= 0 for parent in nodes["parent"])
    if not params:
        warm = Sampling(temperature=1.0, seed=5)
        plain = generate(target, prompt, sampling=warm, max_new_tokens=20)
        assert generate(target, prompt, "sps", {"drafter": place}, sampling=warm, max_new_tokens=20) == plain


@pytest.mark.slow("a draft and a verdict for each of 700 seeds")
def test_drawn_drafts_of_shared_tokens_keep_the_targets_distribution(strangers):
    target, place = strangers
    entry, values = select_method("sps", {"drafter": place, "across": "shared tokens", "gamma": 2})
    session = session_behind(target, prompt_ids(3, 30), 100, entry.needs(target, values))
    drafter: Any = entry.build(target, values)
    counts, drafted, runs, stood = np.zeros(target.info["vocab"]), np.zeros(target.info["vocab"]), 700, 0
    for seed in range(runs):
        chooser = Chooser(Sampling(temperature=1.5, seed=seed))
        drafter.sample_with(chooser)
        draft = drafter.propose(session.context, 8)
        verdict = entry.verifier(values, chooser, frozenset())(draft, scored := session.score(draft))
        stood += verdict.accepted > 0
        drafted[draft.tree.tokens[1]] += 1
        counts[draft.tree.tokens[verdict.path[1]] if verdict.accepted else verdict.bonus] += 1
    expected = (scored.logits[0].double() / 1.5).softmax(-1).numpy() * runs
    assert draft.drawn and stood > 50 and p_value(counts, expected) > 1e-3
    assert p_value(drafted, expected) < 1e-5, "negative control: all accepted"


@pytest.mark.parametrize("across", ["text", "shared tokens"])
def test_a_run_is_stopped_while_a_stranger_reads_a_long_prompt(strangers, monkeypatch, across):
    monkeypatch.setattr("decoders.model.target_model.target.READ_ROWS_CPU", 16)
    cancel = threading.Event()
    prompt = Prompt.from_ids(prompt_ids(3, 80))
    target, place = strangers
    run = Decoding.of(target, prompt, "sps", {"drafter": place, "across": across}, max_new_tokens=4, cancel=cancel)
    prepare = run.drafter.prepare

    def leave(context):
        cancel.set()
        prepare(context)
        raise AssertionError("the whole prompt was read")

    monkeypatch.setattr(run.drafter, "prepare", leave)
    assert list(run) == [] and run.stop == "cancelled"


def test_what_cannot_be_is_refused(strangers, home):
    target, place = strangers
    prompt = Prompt.from_ids(prompt_ids(3, 30))
    with pytest.raises(
        UserError, match="by text it drafts chains alone: set expansion=none, or across='shared tokens'"
    ):
        generate(target, prompt, "sps", {"drafter": place, "expansion": "fixed"}, max_new_tokens=4)
    with pytest.raises(UserError, match=r"cannot draft for stranger: its tokenizer has .*the method sps takes one"):
        generate(target, prompt, "sps+ppd", {"drafter": place}, max_new_tokens=4)
    bare = Target(network("qwen3"), None, "bare")
    with pytest.raises(UserError, match="its vocabulary has"):
        other = save_model(home / "smaller", follower(tokenizer_of(OURS), {}), tokenizer_of(OURS))
        generate(bare, prompt, "sps", {"drafter": other}, max_new_tokens=4)
    offer_drafter(target, place)  # for runs that name none, as the app does
    assert generate(target, prompt, "sps", max_new_tokens=4) == generate(target, prompt, max_new_tokens=4)
