"""Example results of recipes: how they are recorded, that each opens, and that each is compared with its paper."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from decoders.errors import UserError
from specviz import cli
from tests.command import refusal

from ..experiments import Results, find_recipe, recipes, run_experiment, shipped
from ..experiments.comparison import Claim, comparisons, order
from ..experiments.figures import caption, charts
from ..experiments.grids import grids, measured_columns
from ..experiments.shipped import SHIPPED, comes_along, example

pytestmark = pytest.mark.usefixtures("home")


def test_every_example_result_opens_and_is_compared_with_its_paper() -> None:
    abouts = comes_along()
    assert set(abouts) == set(comparisons(SHIPPED)) == set(recipes())
    for name, sentence in ((name, about["compared"]) for name, about in abouts.items()):
        path = SHIPPED / f"{name}.zip"
        results = Results.load(path)
        about = results.about
        assert about["id"] == about["name"] == name and about["state"] == "complete" and results.rows
        assert about["model"]["name"].startswith("SmolLM2") and about["recorded"]["engine"] == "eager"
        assert find_recipe(name).measure or about["cases"] >= 2
        assert results.failures < len(results.rows) and not any(row.get("trace") for row in results.rows)
        assert (sentence.endswith(".") or not sentence) and "example result" in caption(results)
        assert grids(results) and path.stat().st_size < 60_000
        text = "".join(results.files().values())
        assert not re.search(r"/(root|home|tmp|work|usr)/", text), name
    assert sum(path.stat().st_size for path in SHIPPED.glob("*.zip")) < 1_500_000


@pytest.mark.parametrize("name", comparisons(SHIPPED))
def test_every_example_result_draws_its_numbers(name: str) -> None:
    """A chart without a bar or a point says nothing: results that come along have numbers, and no runs."""
    results = example(SHIPPED / f"{name}.zip")
    for chart in charts(results, results.about["metrics"]):
        assert any(len(trace.y or trace.z or ()) for trace in chart.figure.data), chart.title


CLAIMS = [(name, key) for name, entry in comparisons(SHIPPED).items() for key in entry.claims]


@pytest.mark.parametrize("name", comparisons(SHIPPED))
def test_what_a_verdict_says_stands_once(name: str) -> None:
    """No sentence beside the verdict says again, or otherwise, what is like the paper."""
    entry = comparisons(SHIPPED)[name]
    assert all(len(claim.ours) == len(claim.paper_order) + 1 and claim.where for claim in entry.claims.values())
    assert not entry.claims or not re.search(r"\b([Uu]n)?[Ll]ike (the paper|it|them)\b", entry.sentence)


def test_a_wrong_claim_is_found() -> None:
    results = example(SHIPPED / "adapld-fig1.zip")
    claim = Claim(("k=2", "k=64"), (5.7, 5.8), "fig. 1", "tokens_per_step")
    assert claim.texts(results) == ["2.71", "3.20"] and order(claim.numbers(results)) == claim.paper_order == "<"
    assert order(claim.numbers(results), level=0.2) == "=", "a sixth apart"
    with pytest.raises(ValueError, match="no run has tokens_per_step for 'k=3'"):
        Claim(("k=3",), "", "fig. 1", "tokens_per_step").numbers(results)


@pytest.mark.parametrize(("name", "key"), CLAIMS)
def test_numbers_said_to_be_the_papers_are_printed_there(name: str, key: str) -> None:
    """A number that a claim cites of a table is one that a recipe of that paper shows of it, as far as one does."""
    claim, paper = comparisons(SHIPPED)[name].claims[key], find_recipe(name).paper
    tables = set(re.findall(r"table \d+", claim.where.lower()))
    shown: dict[str, set[float]] = {}
    for recipe in recipes().values():
        for series in recipe.papers if recipe.paper == paper else ():
            for table in re.findall(r"table \d+", series.where.lower()):
                shown.setdefault(table, set()).update(float(f"{y:.4g}") for _, y in series.points)
    derived = "×" in claim.where or claim.metric == "quality"  # made of two numbers; on a scale that is not drawn
    if isinstance(claim.paper, str) or not tables or not tables <= set(shown) or derived:
        return
    numbers = {number for table in tables for number in shown[table]}
    for cited, ours in zip(claim.paper + claim.contrary, claim.ours * (1 + bool(claim.contrary)), strict=True):
        forms = [float(f"{cited * factor:.4g}") for factor in (1, 0.01, 100, 0.001, 1000)]
        assert numbers.intersection(forms) or ours.replace(".", "").isdigit(), (cited, sorted(numbers))


def test_a_recipe_is_recorded_without_its_runs(target: Any, tmp_path: Path) -> None:
    results = shipped.record_recipe(target, "pldplus-table7", tmp_path, count=2, new=6)
    again = Results.load(tmp_path / "pldplus-table7.zip")
    assert again.about == json.loads(json.dumps(results.about))
    assert again.about["cases"] == 2 and len(again.rows) == 14 and again.about["recorded"]["machine"]["cores"] >= 1
    assert {"tokens_per_s", "tokens_per_step"} <= set(again.rows[0]) and "kv_mb" not in again.rows[0]
    assert all(row["trace"] == "" for row in again.rows)
    rough = replace_rough(again)
    assert "times and speedups are rough" in caption(rough)
    assert [label for _, label, _ in measured_columns(rough, ["tokens_per_s", "tokens_per_step"])] == [
        "Speed, rough", "Tokens per step"
    ]  # fmt: skip
    rounds = shipped.record_recipe(target, "pldplus-table3", tmp_path, count=2, new=4)
    assert {row["round"] for row in rounds.rows} == {1.0, 2.0, 3.0}, "the ± of tables needs them"
    with pytest.raises(UserError, match="0 of 2 prompts were done in 0 s"):
        shipped.record_recipe(target, "pldplus-table7", tmp_path, count=2, new=6, seconds=0)


def replace_rough(results: Results) -> Results:
    """The same results, as a busy machine would have recorded them."""
    about = results.about | {"recorded": results.about["recorded"] | {"load": 9.0, "rough": True}}
    return Results(about, results.rows)


def test_results_are_cut_to_whole_prompts(target: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def third_is_cut(target: Any, planned: Any, results: Results, *, cancel: threading.Event) -> Results:
        made.append(planned.cases[0].id)
        if len(made) == 3:
            cancel.set()
        return run_experiment(target, planned, results, cancel=cancel)

    monkeypatch.setattr(shipped, "run_experiment", third_is_cut)
    results = shipped.record_recipe(target, "pldplus-table8", tmp_path, count=4, new=4)
    assert len(made) == 3 and results.about["cases"] == 2 and {row["prompt"] for row in results.rows} == set(made[:2])


def test_a_busy_machine_is_told_beside_times_alone() -> None:
    there = comes_along()
    timed = {name: about["recorded"]["rough"] for name, about in there.items() if about["recorded"]["load"] > 8}
    assert not timed["ppd-table4-epochs"] and timed["ppd-sps"], "shares of guesses are what they are on any machine"


def test_an_example_result_in_the_shell(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli.main(["lab", "pldplus-table8", "--recorded"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert comes_along()["pldplus-table8"]["compared"] in out and "An example result, recorded on" in out
    assert "✗ Tokens per step are 3.90 both with 1 averaged state and with 2." in out
    assert "4 prompts. The paper: 3.14 with 1 averaged state, 3.05 with 2 averaged states; table 8." in out
    monkeypatch.setattr(shipped, "comes_along", dict)
    assert "no example result of ppd-sps comes along" in refusal(capsys, "lab", "ppd-sps", "--recorded")
