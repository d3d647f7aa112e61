"""Measurements of the papers' recipes beside runs, each in a tiny form."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from decoders import Prompt
from decoders.errors import UserError
from decoders.model.target_model.load import stock_network
from decoders.parts import WEIGHTS
from specviz.extras.training.batches import TrainingDocument
from specviz.views.prompts import Case
from tests.drafts import save_tiny_part, saved_drafters
from tests.models import prompt_ids

from ..experiments import Line, Results, find_recipe, plan, points, run_experiment
from ..experiments.figures import caption
from ..experiments.grids import grids
from ..experiments.quantities import Quantity
from ..experiments.sheets import sheets, texts
from ..experiments.significance import compare_lines, paired_p
from ..experiments.stages import BOTH_STAGES, Epochs
from ..experiments.variants import DraftVariant, training, variant_of
from ..recipes import pldplus, ppd

pytestmark = pytest.mark.usefixtures("home")


def cases_of(count: int) -> list[Case]:
    return [Case(f"p{n}", "ab"[n % 2], Prompt.from_ids([*prompt_ids(n), *prompt_ids(n)])) for n in range(count)]


def from_tiny_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specviz.views.prompts.records", lambda name, count: count)
    monkeypatch.setattr("specviz.views.prompts.cases", lambda tokenizer, count: cases_of(count))


def test_several_places_are_compared_at_the_same_step(target: Any) -> None:
    recipe = replace(find_recipe("pldplus-fig2"), max_new_tokens=12)
    results = run_experiment(target, plan(target, recipe, cases_of(2)))
    assert not results.failures and len(results.rows) % 3 == 0 and results.rows
    for of_pld, of_own, best in zip(*[iter(results.rows)] * 3, strict=True):
        assert of_pld["places"] == best["places"] >= 2
        assert max(of_pld["accepted_there"], of_own["accepted_there"]) <= best["accepted_there"]
    assert {point["series"] for point in points(results)} == {
        "where PLD copies", "where PLD+ copies", "the best place"
    }  # fmt: skip


def test_k_is_tuned_after_the_layer(target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from_tiny_prompts(monkeypatch)
    monkeypatch.setattr(pldplus, "NEW", 8)
    monkeypatch.setattr(pldplus, "LENGTHS", (2, 4))
    results = run_experiment(target, plan(target, find_recipe("pldplus-tuning"), []))
    assert not results.failures
    for method, name in (("pld+h", "layer"), ("pld+a", "heads")):
        first = [r for r in results.rows if r["role"] == "hidden" and r["series"] == f"{method}, {name}"]
        sums: dict[str, list[float]] = {}
        for row in first:
            pair = sums.setdefault(row[f"param:{name}"], [0.0, 0.0])
            pair[0] += row["tokens_per_step"] * row["steps"]
            pair[1] += row["steps"]
        best = max(sums, key=lambda value: sums[value][0] / sums[value][1])  # of equals the first
        second = [r for r in results.rows if r["role"] == "run" and r["method"] == method]
        assert {r["series"] for r in second} == {f"PLD+ ({method[-1]}), {name} {best}"}
        assert [r["param:k"] for r in second] == ["2"] * 4 + ["4"] * 4
    assert all(point["x"] in ("2", "4") for point in points(results)), "the first step is not drawn"


def test_rounds_are_told_apart(target: Any) -> None:
    recipe = replace(
        find_recipe("pldplus-table3"), max_new_tokens=6, lines=(Line("Plain decoding", "plain"), Line("PLD", "pld"))
    )
    planned = plan(target, recipe, cases_of(2))
    results = run_experiment(target, planned)
    assert planned.runs == len(results.rows) == 12 and {row["round"] for row in results.rows} == {1.0, 2.0, 3.0}
    for row in results.rows:
        if row["series"] == "PLD":  # the rounds' means are 1.0, 1.3 and 1.6
            row["speedup"] = 1.0 + (row["round"] - 1) * (0.2 if row["prompt"] == "p0" else 0.4)
    spread = next(p for p in points(results) if (p["series"], p["x"]) == ("PLD", "all"))["values"]["speedup"]
    assert spread["mean"] == pytest.approx(1.3) and spread["rounds"] == pytest.approx(0.3)
    assert spread["n"] == 2 and spread["se"] == pytest.approx(0.1), "a prompt's three rounds are not three prompts"
    quantity = results.quantity("speedup")
    assert isinstance(quantity, Quantity)
    ours, theirs, *_ = sheets(results, quantity, list(points(results)))
    assert texts(ours, quantity)[1][1][-2:] == ("1.30 ± 0.30", "6")
    assert ("PLD", "1.87 ± 0.02") in texts(theirs, quantity)[1]
    assert "each run 3 times" in caption(results)


@pytest.mark.slow("decodes batches of every size")
def test_batches_are_compared_with_as_large_ones(target: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from_tiny_prompts(monkeypatch)
    monkeypatch.setattr(ppd, "BATCHED_NEW", 6)
    monkeypatch.setattr(ppd, "BATCHED", 4)
    monkeypatch.setattr(ppd, "BATCHES", (1, 2, 4))
    recipe = find_recipe("ppd-table10").fixing({"part": str(save_tiny_part(target, "ppd", tmp_path / "part"))})
    rows = run_experiment(target, plan(target, recipe, [])).rows
    assert [(row["series"], row["param:batch"]) for row in rows] == [
        (line, size) for line in ("tree", "chain") for size in "124"
    ]
    assert all(row["speedup"] > 0 and not row["error"] for row in rows)
    per_forward = [row["tokens_per_forward"] for row in rows[:3]]
    assert per_forward == sorted(per_forward) and per_forward[2] > 2 * per_forward[0]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Running text, and conversations; trainings take small steps."""
    words = [f"word{n}" for n in range(20)]
    text, chats = tmp_path / "words.txt", tmp_path / "chats.jsonl"
    text.write_text("\n".join(" ".join(words[n % 5 :]) for n in range(120)))
    turns = [[("user", " ".join(words[n % 7 :])), ("assistant", " ".join(words[n % 3 :]))] for n in range(120)]
    lines = [{"messages": [{"role": role, "content": content} for role, content in turn]} for turn in turns]
    chats.write_text("\n".join(map(json.dumps, lines)))
    monkeypatch.setattr("specviz.extras.lab.experiments.variants.BATCH_TOKENS", 256)
    monkeypatch.setattr("specviz.extras.training.drafter.measured_cost", lambda *_: 0.25)
    return str(text), str(chats)


@pytest.mark.slow("trains a draft model twice")
def test_a_draft_model_is_trained_in_two_stages(target: Any, files: tuple[str, str]) -> None:
    recipe = replace(find_recipe("glide-stages"), data=files, training_steps=4, max_new_tokens=6)
    planned = plan(target, recipe, cases_of(1))
    assert "each for 4 steps" in planned.notes[-1]
    results = run_experiment(target, planned)
    assert not results.failures and len(results.rows) == 3 and all(row["beta"] > 0 for row in results.rows)
    two = DraftVariant("glide", 4, files, stages=BOTH_STAGES)
    first = two.before
    assert first is not None and first.log(target.key) and two.log(target.key)
    begun, ended = (one.folder(target.key) / "part" / WEIGHTS for one in (first, two))
    before = {key: value + 1 for key, value in load_file(begun).items()}
    save_file(before, begun)
    shutil.rmtree(two.folder(target.key))
    assert list(training(two, target, stock_network(target))) == [3, 4], "the first stage is not trained again"
    after = load_file(ended)
    assert all(float((after[key].float() - before[key].float()).abs().mean()) < 0.1 for key in before)
    with pytest.raises(UserError, match="two stages need two kinds of files"):
        plan(target, replace(recipe, data=files[1:]), cases_of(1))


def test_an_epoch_has_each_document_once() -> None:
    documents = [TrainingDocument((n,), (1,)) for n in range(7)]

    class Few:
        label = "few"

        def chunk(self, index: int) -> list[TrainingDocument]:
            return documents[5 * index : 5 * index + 5]

        def held_out(self) -> list[TrainingDocument]:
            return []

    source = Epochs(Few(), 2, 6)
    epochs = [[document for step in range(3) for document in source.chunk(3 * epoch + step)] for epoch in (0, 1)]
    assert all(sorted(d.ids for d in epoch) == [(n,) for n in range(6)] for epoch in epochs) and epochs[0] != epochs[1]
    assert [len(source.chunk(n)) for n in range(3)] == [2, 2, 2] and source.chunk(1) == source.chunk(1)


@pytest.mark.slow("trains prompt tokens")
def test_prompt_tokens_learn_in_epochs(target: Any, files: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specviz.extras.lab.experiments.variants.EPOCH", 8)
    recipe = replace(find_recipe("ppd-table4-epochs"), data=files[1:], max_new_tokens=6)
    recipe = replace(recipe, axes=(replace(recipe.axes[0], values=(1, 3)),))
    planned = plan(target, recipe, cases_of(1))
    assert [variant.steps for variant, _ in planned.variants] == [2, 6] and "each for 2 to 6 steps" in planned.notes[-1]
    results = run_experiment(target, planned)
    assert not results.failures and {row["param:epochs"] for row in results.rows} == {"1", "3"}
    logs = [variant.log(target.key) for variant, _ in planned.variants]
    run_experiment(target, planned)
    assert [variant.log(target.key) for variant, _ in planned.variants] == logs, "trained once, for all runs of a plan"
    batch = replace(find_recipe("ppd-table4-batch"), data=files[1:])
    steps = [variant_of(batch, setting) for setting in batch.settings(target.info)]
    assert [one.steps for one in steps if one] == [96, 24], "a batch of 1 makes four times as many steps"
    assert [one.recipe.rows for one in steps if one] == [192, 768], "each document has as many insertion points"
    twelve = replace(find_recipe("ppd-table4-epochs"), data=files[1:])
    assert steps[-1] == [variant_of(twelve, setting) for setting in twelve.settings(target.info)][-1], "trained once"


def test_earlier_trainings_are_found_under_their_names(target: Any) -> None:
    plain, staged = DraftVariant("glide", 4), DraftVariant("glide", 4, stages=BOTH_STAGES)
    own = {name: value for name, value in asdict(plain).items() if name != "stages"}
    recipe = {name: value for name, value in asdict(plain.recipe).items() if name != "bf16"}  # as parts in fp32
    named = hashlib.sha256(json.dumps([target.key, 0, own, recipe, [["demo"]]], sort_keys=True).encode())
    assert plain.folder(target.key).name == named.hexdigest()[:20] != staged.folder(target.key).name


# --- GLIDE's table 1 ---


@pytest.mark.parametrize("count", [0, 1, 2, 5, 12, 16, 40])
def test_p_is_the_share_of_choices_of_signs_whose_sum_is_as_large(count: int) -> None:
    """All choices up to 16 pairs, with equal sums among them; of more, drawn ones."""
    random = np.random.default_rng(count)
    differences = random.normal(0.2, 1, count).round(1)
    every = 1 - 2.0 * (np.arange(2**count)[:, None] >> np.arange(count) & 1) if count <= 16 else None
    signs = random.choice((-1.0, 1.0), (50_000, count)) if every is None else every
    share = ((signs @ differences).round(6) >= differences.sum().round(6)).mean()
    assert paired_p(differences.tolist()) == pytest.approx(share, abs=1e-12 if count <= 16 else 0.01)


def test_a_line_is_tested_against_the_best_other(target: Any) -> None:
    recipe = find_recipe("glide-table1")
    about = recipe.describe(target.info) | {"id": "x", "model": {"name": "tiny"}, "notes": [], "state": "complete"}
    rows = [
        {"series": line, "prompt": f"p{n}", "category": "ab"[n % 2], "method": "sps", "role": "run", "error": "",
         "trace": "", "beta": beta + 0.01 * n}
        for n in range(8) for line, beta in (("GLIDE", 0.6 + 0.01 * (n % 3)), ("weak", 0.2), ("strong", 0.5))
    ]  # fmt: skip
    title, table = compare_lines(Results(about, rows), ["beta", "draft_cost"])
    assert title.startswith("GLIDE against the best other line (paired permutation test") and len(table) == 3
    assert [row[1:3] for row in table] == [("a", "strong"), ("b", "strong"), ("all", "strong")]
    assert [row[4:] for row in table] == [("4", "0.0625"), ("4", "0.0625"), ("8", "0.0039 †")]
    assert table[2][3] == "10.9 points"
    assert grids(Results(about, rows))[-1].rows == tuple(table)


def test_draft_models_of_other_people_are_run_when_they_are_given(
    target: Any, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    part = str(save_tiny_part(target, "glide", tmp_path / "part"))
    recipe = replace(find_recipe("glide-table1"), max_new_tokens=6).fixing({"part": part})
    planned = plan(target, recipe, cases_of(1))
    assert "of other people's: give it with --set llama-68m=FOLDER" in planned.absent["LLaMA-68m"]
    assert {setting.line.label for setting in planned.settings} == {"GLIDE", "Plain decoding"}
    folder = saved_drafters(tmp_path_factory)["llama"]
    given = recipe.fixing({"llama-68m": folder})
    results = run_experiment(target, plan(target, given, cases_of(1)))
    assert {row["series"] for row in results.rows if not row["error"]} == {"Plain decoding", "LLaMA-68m", "GLIDE"}
    assert all(row["beta"] > 0 for row in results.rows if row["series"] == "LLaMA-68m")
    with pytest.raises(UserError, match="no method of glide-table1 has a parameter 'llama-7b'"):
        recipe.fixing({"llama-7b": folder})
