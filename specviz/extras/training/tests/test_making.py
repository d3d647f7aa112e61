"""The bundled target's tokenizer, training loop and evaluation (``assets/demo/making``), on tiny configurations."""

from __future__ import annotations

import doctest
import hashlib
import random
import re
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from decoders.prompt.tasks import stream
from decoders.prompt.tasks.example import FAMILIES
from tests.command import refusal, specviz
from tests.test_tasks import examples_of

from ..batches import IGNORED, PROMPT, RESPONSE, bucket, pad
from ..data import encode
from ..loop import budget
from ..muon import orthogonalise
from ..train_demo import making

batches, drills, evaluation = making("batches"), making("drills"), making("evaluation")
target, tokenizer_module = making("target"), making("tokenizer")

TINY = target.Recipe(
    pieces=400,
    hidden=32,
    layers=2,
    heads=2,
    mlp=48,
    planted=False,
    tokenizer_examples=60,
    batch_tokens=1500,
    chunk_examples=12,
    warmup_steps=3,
    probe_steps=8,
    probe_examples=6,
)


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return tokenizer_module.train_tokenizer(pieces=400, examples=60)


# --- text


def test_held_out_examples_are_none_that_training_draws():
    drawn = {str(example.messages) for example in islice(stream("train", 3), 40)}
    assert drawn.isdisjoint(str(example.messages) for example in evaluation.held_out_examples(40, 3))


@pytest.mark.parametrize("name", ["evaluation", "tokenizer"])
def test_its_examples_are_true(name: str):
    outcome = doctest.testmod(making(name))
    assert outcome.attempted and not outcome.failed


def test_the_tasks_are_those_that_the_bundled_target_learnt():
    rng = random.Random("drills")
    texts = [str(e) for e in islice(stream("train", 0), 400)] + [str(drills.lookup(rng)) for _ in range(200)]
    assert hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16] == "e47d033dc9358cc4"


def test_drills_can_be_answered_from_their_own_text():
    kinds = set()
    for seed in range(150):
        first, *turns = drills.lookup(random.Random(seed))
        answers = [m["content"] for m in turns if m["role"] == "assistant"]
        passages = re.findall(r"^\[\d\] (.*)$", first["content"], re.M)
        if passages:
            kinds.add("quote" if answers[0].startswith('"') else "answer")
            assert len(answers) > 1 and len(turns) == 2 * len(answers) - 1
            assert all(sum(answer.strip('"') in passage for passage in passages) for answer in answers)
        else:
            kinds.add("replacement")
            wish, text = first["content"].split("\n\n")
            old, new = (re.findall(r"\w+", t) for t in (text, answers[0]))
            gone, come = set(old) - set(new), set(new) - set(old)
            assert len(answers) == 1 and (gone or come) and all(word in wish for word in gone | come)
    assert kinds == {"replacement", "answer", "quote"}


# --- tokenizer


@pytest.mark.parametrize(
    "text",
    [
        "plain words",
        "naïve 東京 🙂👩‍🚀",
        "\x00\x07\x1b[0m\r\n\t",
        "def f(x):\n        return x  # 1234",
        "a , b 's  .",
    ],
)
def test_text_survives_the_tokenizer(tokenizer: PreTrainedTokenizerFast, text: str):
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(ids) == text
    assert tokenizer.encode(text) == [tokenizer.bos_token_id, *ids]


def test_digits_stand_alone(tokenizer: PreTrainedTokenizerFast):
    assert tokenizer.tokenize("20267") == list("20267")


def test_too_few_pieces_are_refused():
    with pytest.raises(ValueError, match="262"):
        tokenizer_module.train_tokenizer(pieces=100, examples=1)


# --- batches


def test_documents_are_what_the_chat_template_renders(tokenizer: PreTrainedTokenizerFast):
    examples = *examples_of("chat", 2), *examples_of("quote", 2), *islice(stream("train", 3), 12)
    chats = [example.messages for example in examples]
    for chat in chats:
        document = encode(tokenizer, chat)
        text = tokenizer.apply_chat_template(chat, tokenize=False)
        assert list(document.ids) == tokenizer.encode(text, add_special_tokens=False)
        learnt = [i for i, kind in zip(document.ids, document.kinds, strict=True) if kind == RESPONSE]
        answers = [m["content"] + "</s>" for m in chat if m["role"] == "assistant"]
        assert tokenizer.decode(learnt) == "".join(answers)
    asked = encode(tokenizer, chats[-1][:-1])
    assert RESPONSE not in asked.kinds[-3:], "a prompt alone has nothing to learn at its end"


def test_batches_keep_documents_whole_and_within_the_budget(tokenizer: PreTrainedTokenizerFast):
    documents = [encode(tokenizer, example.messages) for example in islice(stream("train", 1), 30)]
    longest = max(len(d.ids) for d in documents)
    groups = bucket(documents, 2 * longest)
    assert sorted(d.ids for g in groups for d in g) == sorted(d.ids for d in documents)
    for group in groups:
        batch = pad(group, tokenizer.pad_token_id)
        assert len(group) * max(len(d.ids) for d in group) <= 2 * longest
        assert batch.tokens == sum(len(d.ids) for d in group)
        for row, document in enumerate(group):
            assert batch.ids[row, : len(document.ids)].tolist() == list(document.ids)
            assert (batch.kinds[row, len(document.ids) :] == IGNORED).all()


def test_repetitions_are_learnt_from_the_second_time_on(tokenizer: PreTrainedTokenizerFast):
    read = batches.training_batches(tokenizer, seed=0, chunk=0, examples=1, budget=4000, repeat_share=20.0)
    rows = [(i, k) for b in read for i, k in zip(b.ids.tolist(), b.kinds.tolist(), strict=True)]
    repeats = [(i, k) for i, k in rows if k[0] == IGNORED]
    assert len(repeats) == 20
    for ids, kinds in repeats:
        assert PROMPT not in kinds
        first = kinds.index(RESPONSE)
        learnt = [i for i, kind in zip(ids[first:], kinds[first:], strict=True) if kind == RESPONSE]
        said = ids[:first]
        assert all(token in [*said, tokenizer.eos_token_id] for token in learnt)


# --- training


def test_orthogonalised_matrices_have_singular_values_near_one():
    for shape in ((3, 8, 20), (2, 20, 8)):
        values = torch.linalg.svdvals(orthogonalise(torch.randn(shape, generator=torch.Generator().manual_seed(0))))
        assert values.min() > 0.4 and values.max() < 1.4


def test_planted_heads_copy_before_any_training(tokenizer: PreTrainedTokenizerFast):
    segment = torch.randint(6, len(tokenizer), (40,), generator=torch.Generator().manual_seed(0))
    ids = segment.repeat(2)[None]
    right = {}
    for planted in (True, False):
        recipe = replace(TINY, hidden=256, heads=8, mlp=64, planted=planted)
        with torch.no_grad():
            guesses = target.build_model(recipe, tokenizer, 0)(ids).logits[0, 40:-1].argmax(-1)
        right[planted] = (guesses == segment[1:]).float().mean().item()
    assert right[True] > 0.6 and right[False] < 0.1
    with pytest.raises(ValueError, match="plant none"):
        target.build_model(replace(TINY, planted=True), tokenizer, 0)


def test_the_learning_rate_warms_up_holds_and_falls():
    recipe = replace(TINY, warmup_steps=10, decay_share=0.2)
    assert target.learning_rate_factor(0, 0.0, recipe) == pytest.approx(0.1)
    assert target.learning_rate_factor(50, 0.79, recipe) == 1.0
    assert target.learning_rate_factor(50, 0.9, recipe) == pytest.approx(0.5)
    assert target.learning_rate_factor(50, 1.0, recipe) == 0.0
    half = SimpleNamespace(tokens=10**9, seconds=30.0)
    assert budget(tokens=None, minutes=1)(half) == 0.5


@pytest.mark.slow("trains a target")
def test_training_lowers_the_loss_and_exports_a_model_that_loads(tmp_path: Path):
    losses: list[float] = []
    target.train_demo(tmp_path / "run", tokens=30_000, recipe=TINY, progress=lambda p: losses.append(p.loss))
    assert len(losses) >= 20
    assert sum(losses[-5:]) / 5 < 0.9 * sum(losses[:5]) / 5

    folder = tmp_path / "run" / "target"
    names = {path.name for path in folder.iterdir()}
    assert {"model.safetensors", "config.json", "generation_config.json", "chat_template.jinja"} <= names
    assert {"recipe.json", "train_log.jsonl", "tokenizer.json"} <= names
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert model.dtype == torch.float16 and model.config.eos_token_id == 1
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], add_generation_prompt=True, tokenize=False
    )
    assert text == "<s><|user|>Hi</s><|assistant|>"

    report = evaluation.evaluate_demo(folder, prompts=6, rows=6)
    assert [s.family for s in report.scores] == list(FAMILIES)
    assert report.table().count("\n") == len(FAMILIES) + 2


def test_a_resumed_run_is_the_uninterrupted_one(tmp_path: Path):
    def advance(run: Any, steps: int) -> None:
        for _ in range(steps):
            run.train_step(share=0.5)

    whole = target.DemoRun.begin(tmp_path / "whole", TINY, 7, True)
    advance(whole, 9)
    first = target.DemoRun.begin(tmp_path / "parts", TINY, 7, True)
    advance(first, 5)
    first.save()
    second = target.DemoRun.begin(tmp_path / "parts", TINY, 7, True)
    advance(second, 4)
    assert (second.step, second.tokens) == (whole.step, whole.tokens)
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, second.model.state_dict()[name]), name
    with pytest.raises(ValueError, match="seed 7"):
        target.DemoRun.begin(tmp_path / "parts", TINY, 8, True)
    with pytest.raises(FileExistsError, match="resume"):
        target.DemoRun.begin(tmp_path / "parts", TINY, 7, False)


def test_a_budget_must_be_given(tmp_path: Path):
    with pytest.raises(ValueError, match="either tokens or minutes"):
        target.train_demo(tmp_path)
    with pytest.raises(FileNotFoundError, match="specviz train demo"):
        evaluation.evaluate_demo(tmp_path)


def test_teacher_forcing_counts_what_greedy_decoding_finds(tmp_path: Path):
    run = target.DemoRun.begin(tmp_path, TINY, 0, True)
    example = examples_of("sums", 1)[0]
    with torch.no_grad():  # a model that always says "</s>"
        run.model.model.norm.weight.zero_()
        run.model.lm_head.bias = torch.nn.Parameter(torch.zeros(len(run.tokenizer)))
        run.model.lm_head.bias[run.tokenizer.eos_token_id] = 9.0
    silent = replace(example, reference="")
    probe = target.teacher_forced(run.model, run.tokenizer, [silent, example], 5000)
    assert probe.exact == {"sums": (1, 2)}


def test_scores_count_exact_and_near_answers():
    examples = examples_of("sums", 3)
    answers = [examples[0].reference, examples[1].reference + " ", "no"]
    report = evaluation.score(examples, ["p"] * 3, answers, seed=5)
    (only,) = report.scores
    assert (only.prompts, only.exact, only.near) == (3, 1, 2)
    assert (report.total().exact, report.total().prompts) == (1, 3)
    assert [m.answer for m in report.misses] == answers[1:]
    assert '"exact": 1' in report.to_json()


def test_the_command_passes_its_budget_on(capsys, monkeypatch, tmp_path):
    calls = []
    monkeypatch.setattr(target, "train_demo", lambda out, **k: calls.append((out, k)))
    assert specviz("train", "demo", "--out", tmp_path / "m", "--tokens", 5000, "--no-resume") == 0
    out, given = calls[0]
    assert out == tmp_path / "m" and (given["tokens"], given["minutes"], given["resume"]) == (5000, None, False)
    assert specviz("train", "demo", "--minutes", 1.5) == 0
    assert (calls[1][1]["tokens"], calls[1][1]["minutes"], calls[1][1]["resume"]) == (None, 1.5, True)
    report = type("Report", (), {"table": lambda self: "| a |", "to_json": lambda self: "{}"})()
    monkeypatch.setattr(evaluation, "evaluate_demo", lambda folder, **k: calls.append((folder, k)) or report)
    capsys.readouterr()
    assert (
        specviz("train", "demo", "--evaluate", "--model", tmp_path, "--prompts", 6, "--json", tmp_path / "e.json") == 0
    )
    assert capsys.readouterr().out == "| a |\n" and (tmp_path / "e.json").read_text() == "{}\n"
    assert calls[2][0] == tmp_path and calls[2][1]["prompts"] == 6
    assert "not allowed with" in refusal(capsys, "train", "demo", "--tokens", 5, "--minutes", 5)
    assert "there is no part 'ppdd': choose one of demo" in refusal(capsys, "train", "ppdd")
