"""What the papers' recipes measure beside runs, each in a tiny form."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from decoders import Prompt
from specviz.experiments import Line, find_recipe, plan, points, run_experiment
from specviz.experiments.figures import caption
from specviz.experiments.prompts import Case
from specviz.experiments.quantities import Quantity
from specviz.experiments.recipes import pldplus, ppd
from specviz.experiments.sheets import sheets, texts

from .drafts import save_tiny_part
from .models import prompt_ids, tiny_target

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture(scope="module")
def target() -> Any:
    return tiny_target("llama")


def cases_of(count: int) -> list[Case]:
    return [Case(f"p{n}", "ab"[n % 2], Prompt.from_ids([*prompt_ids(n), *prompt_ids(n)])) for n in range(count)]


def from_tiny_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specviz.experiments.prompts.records", lambda name, count: count)
    monkeypatch.setattr("specviz.experiments.prompts.cases", lambda tokenizer, count: cases_of(count))


def test_several_places_are_compared_at_the_same_step(target: Any) -> None:
    recipe = replace(find_recipe("pldplus-fig2"), max_new_tokens=12)
    results = run_experiment(target, plan(target, recipe, cases_of(2)))
    assert not results.failed and len(results.rows) % 3 == 0 and results.rows
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
    assert not results.failed
    for method, name in (("pld+h", "layer"), ("pld+a", "heads")):
        first = [r for r in results.rows if r["role"] == "hidden" and r["series"] == f"{method}, {name}"]
        means: dict[str, list[float]] = {}
        for row in first:
            means.setdefault(row[f"param:{name}"], []).append(row["tokens_per_step"])
        best = max(means, key=lambda value: sum(means[value]))  # of equals the first
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


def test_batches_are_compared_with_as_large_ones(
    target: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
