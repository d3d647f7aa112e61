"""Training parts on tiny targets: data, teacher, and what all runs do alike; draft models and their command."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from safetensors.torch import load_file

from decoders import Prompt, UserError, find_method, generate, load_target
from decoders.method.part import kinds
from decoders.model.files.calibration import fingerprint
from decoders.parts import find_part, own_place, read_part, training_facts
from specviz import cli
from tests.command import refusal
from tests.drafts import needs_kinds
from tests.models import VOCAB, network, prompt_ids, session_behind, tiny_target, tiny_tokenizer
from tests.tiers import matrix

from ..batches import RESPONSE
from ..data import DistilledSource, FileSource, vocabulary_documents
from ..demo_source import DemoSource, source_of
from ..drafter import epoch_steps, reached_mean
from ..frozen_target import FrozenTarget
from ..learning import commonest, cosine_factor
from ..loop import PartRun, try_to_save
from ..precision import has_bf16_products
from ..states import Shelf
from ..teacher import Teacher
from .training import HEAD_KINDS, TINY, begun, run_of, source_for, train_and_log, train_kind

PPD_ABLATIONS = {"vectors": 2, "mask": "encoder", "learned": True, "hard_labels": True, "prefix": 1, "exits": 2}
pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def source(text):
    return source_for("glide", text)


# --- data


def test_the_demos_tasks_never_repeat_between_learning_and_validation():
    source = DemoSource(tiny_tokenizer(), 0, documents=8)
    assert source.chunk(0) == source.chunk(0) != source.chunk(1)
    learnt = {d.ids for i in range(3) for d in source.chunk(i)}
    assert learnt.isdisjoint(d.ids for d in source.held_out()) and len(source.held_out()) == 48


def test_files_give_every_document_once_an_epoch(text):
    source = FileSource(tiny_tokenizer(), [text], 0, length=64, documents=7)
    total = len(source.learnt)
    seen = [d for i in range(-(-2 * total // 7)) for d in source.chunk(i)]
    assert sorted(d.ids for d in seen[:total]) == sorted(d.ids for d in source.learnt)
    assert [d.ids for d in seen[:total]] != [d.ids for d in seen[total : 2 * total]]
    assert len(source.held_out()) == max(1, (total + len(source.held_out())) // 10)
    assert all(set(d.kinds) == {RESPONSE} and len(d.ids) <= 64 for d in seen)


def test_a_draft_vocabulary_is_counted_over_all_of_a_file(tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text("\n".join(json.dumps({"text": chr(97 + i) * 400 + " " + chr(65 + i) * 400}) for i in range(20)))
    source = FileSource(tiny_tokenizer(), [path], 0, length=64, documents=1)
    counts = Counter(token for document in source.learnt for token in document.ids)
    assert len(counts) > len({*source.chunk(0)[0].ids}), "the first chunk does not hold them all"
    config, generation = SimpleNamespace(vocab=VOCAB, draft_vocab=20), SimpleNamespace(eos_token_id=VOCAB - 1)
    want = sorted([*sorted(counts, key=lambda token: (-counts[token], token))[:19], VOCAB - 1])
    assert commonest(vocabulary_documents(source), config, generation).tolist() == want


def test_conversations_from_json_lines(tmp_path):
    path = tmp_path / "chats.jsonl"
    answer = "the old lamp was sold to the museum in the city " * 20
    said = {"role": "assistant", "content": answer}
    records: list[dict] = [{"messages": [{"role": "user", "content": f"Ask {i}"}, said]} for i in range(4)]
    segments = {"instruction": "Copy.", "context": ["a b", "c"], "reference": answer}
    records += [{**segments, "question": f"q{i}?"} for i in range(4)]
    records += [{"turns": [f"hello {i}"]} for i in range(3)]  # no answer: left out
    path.write_text("\n".join(json.dumps(r) for r in records) + "\n\n")
    source = FileSource(tiny_tokenizer(), [path], 0)
    documents = source.learnt + source.held_out()
    assert len(documents) == 8
    for document in documents:
        learnt = [i for i, kind in zip(document.ids, document.kinds, strict=True) if kind == RESPONSE]
        assert tiny_tokenizer().decode(learnt) == answer
    with pytest.raises(UserError, match=r"too little to learn from"):
        FileSource(tiny_tokenizer(), [short_file(tmp_path)], 0)


def short_file(folder: Path) -> Path:
    path = folder / "short.txt"
    path.write_text("too short to learn from")
    return path


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.txt", b"", "is empty"),
        ("a.txt", b" \n\n ", "is empty"),
        ("a.txt", b"fine\n\xff\xfe", "line 2: not text in UTF-8"),
        ("a.txt", b"fine\nab\0c", "line 2: holds a NUL: not text"),
        ("a.jsonl", b'{"text": "x"}\n{oops', "line 2: not JSON"),
        ("a.jsonl", b'{"texts": 5}', "line 1: none of 'turns'.*allowed are"),
        ("a.jsonl", b'{"text": "  "}', "line 1: 'text' is empty"),
        ("a.jsonl", b'{"messages": [{"role": "user"}]}', "line 1: message 1 needs"),
        ("a.jsonl", b'{"turns": ["a"]}', "none of the 1 records of .* has an answer to learn: .*--distill"),
    ],
)
def test_bad_data_is_refused_with_its_place(tmp_path, name, content, reason):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UserError, match=reason):
        FileSource(tiny_tokenizer(), [path], 0)


def test_missing_files_and_folders_are_refused(tmp_path):
    for path in (tmp_path / "none.txt", tmp_path):
        with pytest.raises(UserError, match="cannot read the training file"):
            source_of([str(path)], tiny_tokenizer(), 0)


def test_distillation_learns_what_the_target_says(text):
    """The answers of a batch are those of plain decoding, one by one."""
    model = network("llama")
    inner = FileSource(tiny_tokenizer(), [text], 0, length=40, documents=5)
    source = DistilledSource(inner, model, tiny_tokenizer(), rows=3)
    target = tiny_target("llama")
    for given, made in zip(inner.chunk(0), source.chunk(0), strict=True):
        prompt = given.ids[: len(given.ids) // 4]
        answer = made.ids[len(prompt) :]
        assert made.ids[: len(prompt)] == prompt and len(answer) >= len(given.ids) - len(prompt)
        assert list(answer) == generate(target, Prompt.from_ids(list(prompt)), max_new_tokens=len(answer))
    assert source.label == "text.txt, answered by the target"


# --- the teacher


@pytest.mark.parametrize("family", ["llama", "mistral-window", "qwen2", "qwen2-window", "qwen3"])
def test_the_teacher_gives_what_the_engine_caches(family):
    model, target = network(family), tiny_target(family)
    teacher = Teacher(model, (1, 2))
    tokens = prompt_ids(1, 40)
    session = session_behind(target, [*tokens, 5], 60)
    with torch.no_grad():
        kvs, _ = teacher(torch.tensor([tokens + [3] * 4]))
        wanted = torch.zeros(1, 43, dtype=torch.bool)
        wanted[0, [4, 39]] = True
        told, again, _ = teacher.teach(torch.tensor([tokens + [3] * 4]), wanted)
    for layer, (keys, values), (keys_again, _) in zip((1, 2), kvs, again, strict=True):
        torch.testing.assert_close(keys[0, :, :40], session.context.keys(layer), atol=2e-5, rtol=1e-4)
        torch.testing.assert_close(values[0, :, :40], session.context.values(layer), atol=2e-5, rtol=1e-4)
        torch.testing.assert_close(keys, keys_again)
    expected = target.reference_logits(tokens)[[4, 39]].float()
    torch.testing.assert_close(told, expected, atol=2e-4, rtol=1e-4)
    assert fingerprint(model.config, model.base_model.parameters()) == target.key


def test_positions_behind_a_rejection_do_not_count():
    values = torch.tensor([[1.0, 0.0, 1.0, 1.0, 0.5, 0.5]])
    everything = torch.ones(1, 6, dtype=torch.bool)
    assert reached_mean(values, everything, 3) == pytest.approx((1 + 0 + 1 + 0.5 + 0.25) / (1 + 1 + 0 + 1 + 1 + 0.5))
    answer = torch.tensor([[False, False, True, True, True, True]])
    assert reached_mean(values, answer, 3) == pytest.approx((1 + 1 + 0.5 + 0.25) / (1 + 1 + 1 + 0.5))


# --- the loop


@pytest.mark.parametrize("kind", matrix(["drafter", "glide"], 1, "trains once more"))
def test_training_lowers_the_loss_and_makes_a_part_that_drafts(kind, tmp_path, source):
    place, losses, logged = train_and_log(kind, tmp_path / "run", network("qwen3"), source)
    assert sum(losses[-5:]) < 0.75 * sum(losses[:5])
    assert [line["step"] for line in logged] == [12, 24, 36, 40]
    assert logged[-1]["held_out_loss"] < logged[0]["held_out_loss"]
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert lines == logged and all(0 <= line["acceptance"] <= 1 and line["expected_speedup"] > 0 for line in lines)
    target = tiny_target("qwen3")
    assert place == own_place(kind, target.key) == find_part(target.key, kind)
    part = read_part(tmp_path / "run" / "part")
    assert part == read_part(place) and part.training["steps"] == 40 and part.training["log"] == lines
    name, prompt = {"glide": "glide", "drafter": "sps"}[kind], Prompt.from_ids(prompt_ids(3))
    assert generate(target, prompt, name, max_new_tokens=8) == generate(target, prompt, max_new_tokens=8)


def test_the_papers_recipe_is_adamw_on_batches_of_documents_for_an_epoch(tmp_path, text):
    source = FileSource(tiny_tokenizer(), [text], 0, length=32, documents=128)
    run = run_of("glide", tmp_path / "run", source, "qwen3", recipe="paper")
    (optimiser,) = run.optimisers.optimisers
    assert isinstance(optimiser, torch.optim.AdamW) and run.optimisers.rates == [5e-4]
    assert optimiser.defaults["betas"] == (0.9, 0.95)
    assert sum(p.numel() for group in optimiser.param_groups for p in group["params"]) == sum(
        p.numel() for p in run.draft.parameters()
    )
    batches = run.batches(0)
    assert {len(batch.ids) for batch in batches} == {64} and epoch_steps(source) == -(-source.epoch // 64)
    assert run.settings["recipe"] == "paper"
    with pytest.raises(UserError, match="no epoch is one: give --steps or --minutes"):
        epoch_steps(cast(Any, SimpleNamespace(label="the generator")))


HYDRA = [{"draft_vocab": 64, "muon": False, "blocks": 2, "hard_labels": True}, {"prefix": True}]
if "hydra" not in HEAD_KINDS:
    HYDRA = []


@pytest.mark.parametrize(
    ("kind", "options"),
    matrix(
        [
            ("drafter", {}), *(("hydra", options) for options in HYDRA[:1]),
            ("glide", {}), ("ppd", {}), ("ppd", PPD_ABLATIONS), ("ppd", {"head": "two-stage"}),
            *(("hydra", options) for options in HYDRA[1:]), *((kind, {}) for kind in HEAD_KINDS),
        ],
        2, "trains the other kinds twice",
    ),
)  # fmt: skip
def test_a_resumed_run_is_the_uninterrupted_one(kind, options, tmp_path, text):
    def run(folder: str) -> PartRun:
        return run_of(kind, tmp_path / folder, source_for(kind, text), "qwen3", seed=5, **options)

    def advance(made: PartRun, until: int) -> None:
        while made.step < until:
            made.train_step(made.step / 8)

    whole, first = run("whole"), run("parts")
    advance(whole, 6)
    advance(first, 1)
    first.save()
    advance(first, 2)  # lost
    second = run("parts")
    assert second.step == 1
    advance(second, 4)
    second.save()
    third = run("parts")
    advance(third, 6)
    assert all(getattr(third, name) == getattr(whole, name) for name in whole.counted if name != "seconds")
    assert (third.feed.chunk, third.feed.taken) == (whole.feed.chunk, whole.feed.taken)
    for name, value in whole.trained.state_dict().items():
        assert torch.equal(value, third.trained.state_dict()[name]), name


@pytest.mark.parametrize(
    "kind",
    matrix(
        sorted({"medusa", "drafter", "ppd", "eagle3"} & kinds().keys(), reverse=True), 1, "the other families of parts"
    ),
)
def test_a_run_begins_with_another_parts_weights(kind, tmp_path, text):
    """The part's learning is there before the first step, and the tokens it has seen count."""
    model, source = network("llama"), source_for(kind, text)
    place = train_kind(kind, tmp_path / "first", model, source, steps=24, keep=False)
    first, run = read_part(place), begun(kind, tmp_path / "second", model, source)
    fresh = begun(kind, tmp_path / "fresh", model, source)
    run.origin = place
    for one in (fresh, run):
        one.open(True)
    weights = load_file(place / "part.safetensors")
    assert all(torch.equal(tensor, weights[name].to(tensor)) for name, tensor in run.trained.state_dict().items())
    last = first.training["log"][-1]["held_out_loss"]
    assert run.validate()["held_out_loss"] == pytest.approx(last, rel=0.02)
    assert fresh.validate()["held_out_loss"] > 1.05 * last
    assert run.tokens == training_facts(first.training)["tokens"] > 0
    run.train_step(0.5)
    assert read_part(run.export(tmp_path / "part")).training["origin"] == "part"


@needs_kinds("medusa", "hydra")
def test_only_a_part_of_the_same_kind_target_and_shape_is_begun_with(tmp_path, text):
    source = source_for("medusa", text)
    place = train_kind("medusa", tmp_path / "first", network("llama"), source, steps=2, keep=False)
    for kind, family, change, reason in (
        ("hydra", "llama", {}, "first/part holds a set of Medusa heads, not a set of Hydra heads"),
        ("medusa", "qwen2", {}, r"was trained for tiny \(fingerprint \w+\), not for tiny"),
        ("medusa", "llama", {"heads": 3}, "has heads 2, not 3: give the options it was made with"),
    ):
        run = begun(kind, tmp_path / "second", network(family), source, replace(TINY[kind], **change))
        run.origin = place
        with pytest.raises(UserError, match=reason):
            run.open(True)
    run.origin = tmp_path / "none"
    with pytest.raises(UserError, match="there is no trained part in"):
        run.open(True)


def test_another_run_in_the_same_folder_is_refused(tmp_path, source):
    model = network("llama")
    train_kind("glide", tmp_path, model, source, steps=2)
    deeper = {"recipe": replace(TINY["glide"], layers=2)}
    for change, reason in (({"seed": 1}, "has seed 0, not 1"), (deeper, "has layers 1, not 2")):
        with pytest.raises(UserError, match=f"{reason}: give the same again, or another folder"):
            train_kind("glide", tmp_path, model, source, **{"steps": 3, **change})
    for other in ("drafter", "ppd"):
        with pytest.raises(UserError, match=f"has part 'glide', not '{other}'"):
            train_kind(other, tmp_path, model, source, steps=3)
    with pytest.raises(UserError, match="has target"):
        train_kind("glide", tmp_path, network("llama", seed=8), source, steps=3)
    with pytest.raises(UserError, match="holds a run: resume it"):
        train_kind("glide", tmp_path, model, source, steps=3, resume=False)


def test_a_full_disk_costs_the_checkpoint_not_the_last_good_one(tmp_path, source, monkeypatch):
    run = run_of("drafter", tmp_path, source)
    run.train_step(0.1)
    assert try_to_save(run) == ""
    good = (tmp_path / "checkpoint.pt").read_bytes()

    def full(state, path):
        Path(path).write_bytes(b"half of it")
        raise RuntimeError("[enforce fail at inline_container.cc:659] . unexpected pos 64 vs 0")

    monkeypatch.setattr(torch, "save", full)
    run.train_step(0.1)
    warning = try_to_save(run)
    assert warning.startswith("the checkpoint of step 2 could not be written") and "that of step 1 stays" in warning
    assert (tmp_path / "checkpoint.pt").read_bytes() == good and not (tmp_path / "checkpoint.new").exists()
    with pytest.raises(UserError, match="the vanilla drafter could not be written .*: make room and give the same"):
        train_kind("drafter", tmp_path, network("llama"), source, steps=2)


@pytest.mark.parametrize("kind", ["glide", "ppd"])
def test_a_loss_that_is_no_number_stops_and_says_where(kind, tmp_path, text):
    run = run_of(kind, tmp_path, source_for(kind, text))
    run.train_step(0.1)
    run.save()
    before = (tmp_path / "checkpoint.pt").read_bytes()
    next(run.trained.parameters()).data.fill_(float("nan"))
    where = r"no number any more at step 2 \(chunk \d of text.txt, batch \d.*checkpoint of step 1"
    with pytest.raises(UserError, match=where):
        run.train_step(0.1)
    assert (tmp_path / "checkpoint.pt").read_bytes() == before


def test_an_interrupted_run_keeps_what_it_has(tmp_path, source):
    def stop(now):
        if now.step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_kind("drafter", tmp_path, network("llama"), source, steps=50, progress=stop)
    assert torch.load(tmp_path / "checkpoint.pt", weights_only=True)["step"] == 3
    assert read_part(tmp_path / "part").training["steps"] == 3


def test_the_learning_rate_warms_up_and_falls_to_nothing():
    rates = [cosine_factor(step, step / 100, 10) for step in range(101)]
    assert rates[0] == pytest.approx(0.1) and max(rates) == rates[9] and rates[100] == 0.0
    assert cosine_factor(50, 0.5, 10) == pytest.approx(0.5)


def test_budgets_are_minutes_or_steps(tmp_path, source):
    for given in ({}, {"minutes": 1.0, "steps": 2}):
        with pytest.raises(ValueError, match="either minutes or steps"):
            train_kind("glide", tmp_path, network("llama"), source, **given)
    train_kind("drafter", tmp_path, network("llama"), source, minutes=1e-5)
    assert read_part(tmp_path / "part").training["steps"] == 1


# --- the precision


@pytest.mark.parametrize(
    ("kind", "options"),
    matrix(
        [
            ("glide", {}), ("ppd", {}), *((kind, {}) for kind in HEAD_KINDS if kind == "eagle3"),
            ("glide", {"shared": True}), ("ppd", {"hard_labels": True}),
            ("ppd", {"head": "one-stage"}), ("drafter", {}),
            *((kind, {}) for kind in HEAD_KINDS if kind == "medusa"),
        ],
        (),
        "trains twice for a few steps, in either precision",
    ),
)  # fmt: skip
def test_bf16_products_learn_what_fp32_learns(kind, options, tmp_path, text):
    losses = {}
    for bf16 in (False, True):
        run = run_of(kind, tmp_path / f"{bf16}" / "run", source_for(kind, text), "qwen3", bf16=bf16, **options)
        losses[bf16] = [run.train_step(step / 8) for step in range(4)] + [run.validate()["held_out_loss"]]
        assert read_part(run.export(tmp_path / f"{bf16}" / "part")).training["bf16"] is bf16
        assert all(parameter.dtype == torch.float32 for parameter in run.trained.parameters())
    assert losses[False] != losses[True] and losses[False][3] != losses[False][0]
    assert losses[True] == pytest.approx(losses[False], rel=0.01)


@pytest.mark.slow("trains five times for a few steps")
@pytest.mark.parametrize("kind", ["glide", "ppd"])
def test_states_on_a_shelf_are_what_the_target_says(kind, tmp_path, text, monkeypatch):
    """In bf16: with one that is filled on the way, without, with one that has no room, with one that has everything."""
    source, recipe = source_for(kind, text), replace(TINY[kind], bf16=True)

    def losses(name: str, shelf: Shelf | None) -> list[float]:
        run = begun(kind, tmp_path / name, network("qwen3"), source, recipe, shelf=shelf)
        run.open(True)
        return [run.train_step(step / 8) for step in range(3)]

    shelf, full = Shelf(tmp_path / "shelf", 1 << 30), Shelf(tmp_path / "full", 1)
    filling = losses("filling", shelf)
    assert filling == pytest.approx(losses("alone", None), rel=2e-3)
    assert losses("full", full) == filling and list(full.folder.iterdir()) == []
    with monkeypatch.context() as broken:
        broken.setattr("safetensors.torch.save_file", lambda *_: (_ for _ in ()).throw(OSError(28, "no space left")))
        assert losses("no disk", Shelf(tmp_path / "disk", 1 << 30)) == filling
    every = {f"{name}.{layer}" for name in ("keys", "values") for layer in range(3)}
    assert all(load_file(file).keys() == every | {"states"} for file in shelf.folder.iterdir())
    monkeypatch.setattr(FrozenTarget, "read", lambda *_: pytest.fail("it is kept"))
    assert losses("filled", shelf) == filling


def test_bf16_is_taken_where_the_processor_has_it(monkeypatch):
    able: dict[str, bool] = {"avx512_f": True}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: able)
    assert not has_bf16_products(torch.device("cpu")), "every number would be converted first"
    able["avx512_bf16"] = True
    assert has_bf16_products(torch.device("cpu")) and not has_bf16_products(torch.device("meta"))
    for able_gpu in (False, True):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda able_gpu=able_gpu: able_gpu)
        assert has_bf16_products(torch.device("cuda")) is able_gpu


# --- the command


@pytest.mark.slow("trains by the command, twice")
def test_the_command_trains_draws_and_resumes(tmp_path, text, model, capsys):
    out = tmp_path / "glide"
    asked = ["train", "glide", "--model", model, "--data", str(text), "--out", str(out), "--kv-layer", "1"]
    assert cli.main([*asked, "--steps", "3"]) == 0
    said = capsys.readouterr()
    assert "acceptance" in said.err and "expected speedup" in said.err and "is where methods find it" in said.out
    assert read_part(out / "part").config.kv_layers == (1,)
    page = (out / "curves.html").read_text()
    assert page.startswith("<!doctype html>") and "acceptance" in page
    assert cli.main([*asked, "--steps", "5"]) == 0
    assert [json.loads(line)["step"] for line in (out / "log.jsonl").read_text().splitlines()][-1] == 5
    assert find_method("glide").missing(load_target(model)) is None


def test_the_command_refuses_in_a_sentence(tmp_path, text, model, capsys):
    refuse = partial(refusal, capsys, "train")
    assert "cannot read the training file" in refuse("glide", "--model", model, "--data", "none.txt")
    assert "there is no model folder" in refuse("drafter", "--model", str(tmp_path / "none"))
    assert "not allowed with" in refuse("glide", "--steps", "3", "--minutes", "3")
    given = ["--model", model, "--data", str(text), "--out", str(tmp_path / "o"), "--steps", "1"]
    assert "KV layer 7 is out of range" in refuse("glide", *given, "--kv-layer", "7")
    assert "width 9 is not possible" in refuse("drafter", *given, "--width", "9")
