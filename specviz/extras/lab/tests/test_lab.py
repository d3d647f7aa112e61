"""Experiments: what is planned, run, kept, drawn and refused; the papers' recipes fit the registered methods."""

from __future__ import annotations

import csv
import io
import json
import os
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pandas as pd
import pytest
import torch
from fastapi.testclient import TestClient

from decoders import Prompt, methods
from decoders.errors import UserError
from decoders.parts import find_part, load_part, read_part, save_part
from decoders.prompt.pool import PoolIndex
from decoders.prompt.templates import templates
from decoders.prompt_tokens.design import design
from decoders.prompt_tokens.latency import Latency, Setup
from decoders.prompt_tokens.tokens import PromptConfig
from decoders.prompt_tokens.trees import load_trees, save_trees
from decoders.study.judge.judge import Total, chosen_rules, judge_steps, totals
from decoders.trace.trace import Trace
from specviz.server.forms import Missing
from specviz.server.runner import QueueFull, Runner
from specviz.server.store import TraceStore
from specviz.views.prompts import Case, cases, of_trace, records
from specviz.words import duration
from specviz.workers.sweep import Standing
from tests import recordings
from tests.command import refusal, specviz
from tests.disk import refusing
from tests.drafts import needs_kinds, save_tiny_part
from tests.models import prompt_ids, tiny_target, tiny_tokenizer
from tests.stubs import StubDesk, app_of, at_work
from tests.waiting import WAIT_S, until, until_over

from ..experiments import (
    Axis,
    Experiment,
    Line,
    PaperSeries,
    Results,
    find_recipe,
    guesses,
    plan,
    points,
    recipes,
)
from ..experiments import run_experiment as run
from ..experiments.experiment import methods_by_name
from ..experiments.figures import caption, charts
from ..experiments.free import free
from ..experiments.grids import grids
from ..experiments.plan import MAX_RUNS, foreseen
from ..experiments.quantities import BREAKDOWNS, measure
from ..experiments.results import profile_of, profile_table
from ..experiments.shipped import SHIPPED, comes_along, example
from ..experiments.values import values_of
from ..experiments.variants import DraftVariant, PromptVariant, Variant, name_of, training, trim
from ..page.requests import ExperimentRequest
from ..page.storage import LATEST
from ..recipes import adapld, casd

INFO = {"layers": 6, "heads": 8}
SWEEP = Experiment(
    "sweep", "Sweep", (Line("PLD", "pld"), Line("PLD+", "pld+h", fixed=True)), (Axis("k", (2, 4), "draft length"),),
    metrics=("tokens_per_step", "speedup"), max_new_tokens=12,
)  # fmt: skip


pytestmark = pytest.mark.usefixtures("home")


def made_cases(count: int = 2, reference: str = "") -> list[Case]:
    return [
        Case(f"p{n}", ("a", "b")[n % 2], replace(Prompt.from_ids(prompt_ids(n)), reference=reference))
        for n in range(count)
    ]


@pytest.fixture(scope="module")
def both(target: Any) -> tuple[Results, list[Trace]]:
    kept: list[Trace] = []
    return run(target, plan(target, SWEEP, made_cases()), keep=kept.append), kept


# --- recipes ---


@needs_kinds("medusa")
def test_every_recipe_fits_the_registered_methods() -> None:
    names = {
        *(f"pldplus-fig{n}" for n in range(2, 6)),
        "pldplus-tuning",
        *(f"pldplus-table{n}" for n in (1, 2, 3, *range(6, 12))),  # 4 and 5 are with 1 and 2
        *(f"adapld-fig{n}" for n in range(1, 6)),
        *(f"adapld-table{n}" for n in (*range(1, 8), 9, 10, 11, 12)),
        *(f"casd-fig{n}" for n in range(2, 5)),
        *(f"casd-table{n}" for n in range(1, 9)),
        *(f"glide-fig{n}" for n in ("1b", *range(4, 10))),
        *(f"glide-table{n}" for n in (1, 2, 3, 4, 6, 7)),
        "glide-stages",
        "ppd-table4-batch",
        "ppd-table4-epochs",
        "glide-cape-fixed",
        "glide-ranks",
        "ppd-sps",
        "ppd-typical",
        *(f"ppd-fig{n}" for n in ("1", "4", "5", "6", "7a", "7b", "8a", "8b", "8c", "9", "10", "10d")),
        *(f"ppd-table{n}" for n in range(1, 11)),
        "eagle2-budget",
        "eagle2-shape",
        "eagle3-depth",
        "contextcite-subsets",
        "ddtree-second-branch",
    }
    assert set(recipes()) == names
    for name, experiment in recipes().items():
        assert experiment.name == name and experiment.figure and experiment.question.endswith("?")
        experiment.check(methods(), INFO)
        assert len(experiment.settings(INFO)) * (1 if experiment.measure else experiment.count) <= 150, name
        assert experiment.max_new_tokens <= 128 and json.dumps(experiment.describe(INFO))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"lines": (Line("A", "plds"),)}, "there is no method 'plds' (did you mean pld?)"),
        ({"lines": (Line("A", "pld", {"kk": 1}),)}, "unknown parameter 'kk'"),
        ({"axes": (Axis("tau", (1,)),)}, "pld has no parameter 'tau'"),
        ({"axes": (Axis("k", (2, 500)),)}, "k=500 is out of range: a whole number from 1 to 128"),
        ({"axes": (Axis("k", ()),)}, "k has no values"),
        ({"metrics": ("speed",)}, "there is no metric 'speed'"),
        ({"x": "layer"}, "x='layer' is neither"),
        ({"lines": ()}, "nothing is to be run"),
        ({"against": "size"}, "there is no metric 'size'"),
        ({"metrics": ("learning",)}, "learning is measured where parts are trained"),
        ({"lines": (Line("A", "pld", trains={}),)}, "pld has no part to train"),
        ({"lines": (Line("A", "glide", trains={"depth": 2}),)}, "'depth' is no setting of training"),
        ({"lines": (Line("A", "ppd", trains={"layers": 2}),)}, "'layers' is no setting of training: choose one of tok"),
        ({"axes": (Axis("kv_layer", (1,)),)}, "pld has no parameter 'kv_layer'"),
    ],
)
def test_a_recipe_with_a_mistake_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=".*") as caught:
        replace(SWEEP, **change).check(methods(), INFO)
    assert words in str(caught.value)


def test_what_the_papers_print_can_be_drawn() -> None:
    """Every paper value belongs to a metric of its recipe and to a place of its chart."""
    for name, experiment in recipes().items():
        whole = {b.key for b in BREAKDOWNS if b.whole}
        for series in experiment.papers:
            assert series.metric in experiment.metrics and series.model and series.where, name
            if experiment.axes and experiment.along_axis == experiment.axes[0].param:
                assert all(isinstance(x, float | int | str) for x, _ in series.points)
            if series.metric in whole:
                assert sum(y for _, y in series.points) == pytest.approx(1, abs=0.011), name
            elif experiment.quantity(series.metric).unit == "share":
                assert all(0 <= y <= 1 for _, y in series.points), name


def test_held_out_tasks_stand_in_the_papers_templates() -> None:
    names = list(templates())
    made = records("templates", 2 * len(names))
    assert [one.category for one in made] == 2 * names and len({one.id for one in made}) == len(made)
    for one in made:
        assert one.instruction == templates()[one.category].text and one.reference.strip()
        text = "\n".join((*one.context, one.question))
        assert one.category not in ("lcc", "repobench-p") or f"\n{one.reference}\n" not in f"\n{one.context[0]}"
        assert one.category not in ("nq", "triviaqa") or one.reference.strip('". ') in text
    assert [one.category for one in records("templates:lcc, nq", 3)] == ["lcc", "nq", "lcc"]
    with pytest.raises(UserError, match="there is no task 'squad' in templates"):
        records("templates:squad", 1)


def test_prompts_are_counted_by_task() -> None:
    rows = [
        {"category": task, "series": "these prompts", "samples": 1.0, "prompt_tokens": n, "repeated": 0.5}
        for n, task in enumerate(("qa", "math", "qa"))
    ]
    counted = adapld.samples([*rows, {"category": "qa", "error": "too long"}])
    assert [(row["category"], row.get("samples"), row.get("prompt_tokens")) for row in counted] == [
        ("qa", 2.0, 1.0), ("math", 1.0, 1.0), ("qa", None, None),
    ]  # fmt: skip


def test_an_unknown_recipe_is_named_with_the_nearest() -> None:
    with pytest.raises(UserError, match=r"did you mean adapld-table12\?"):
        find_recipe("adapld-tabel12")


def chosen_by_oracles(scores: dict[str, list[float]]) -> dict[str, list[str]]:
    """The runs each oracle chooses from scores by δ, one per prompt 0, 1, …"""
    rows = [
        {"series": casd.SWEEP, "param:delta": delta, "prompt": str(i), "category": "quote", "quality": quality,
         "trace": f"{i} at {delta}", "role": "run"}
        for delta, row in scores.items() for i, quality in enumerate(row)
    ]  # fmt: skip
    plain = {**rows[0], "series": "Plain decoding", "param:delta": ""}
    arranged = casd.oracles([*rows, plain])
    assert [r["role"] for r in arranged[: len(rows) + 1]] == ["hidden"] * len(rows) + ["run"]
    assert {r["role"] for r in arranged[len(rows) + 1 :]} == {"derived"}
    return {name: [r["trace"] for r in arranged if r["series"] == name] for name in ("Oracle-D", "Oracle-S")}


def test_oracles_take_the_best_threshold_per_task_and_per_prompt() -> None:
    """δ = .01 is best on the whole (mean .6); by prompt .1, .01 and .1 win, the last on a tie with .001."""
    chosen = chosen_by_oracles({"0.001": [0.0, 0.2, 0.5], "0.01": [0.5, 1.0, 0.3], "0.1": [0.9, 0.1, 0.5]})
    assert chosen["Oracle-D"] == ["0 at 0.01", "1 at 0.01", "2 at 0.01"]
    assert chosen["Oracle-S"] == ["0 at 0.1", "1 at 0.01", "2 at 0.1"]
    assert chosen_by_oracles({"0.01": [0.5], "0.1": [0.5]})["Oracle-D"] == ["0 at 0.1"]


def test_an_oracle_compares_thresholds_on_the_same_prompts() -> None:
    """A δ whose run failed on a prompt is not better for lacking its score."""
    assert chosen_by_oracles({"0.1": [1.0], "0.01": [0.5, 0.5]})["Oracle-D"] == ["0 at 0.01", "1 at 0.01"]


# --- planning ---


def test_values_as_they_are_typed() -> None:
    assert values_of("1, 2; 4") == (1, 2, 4)
    assert values_of("off, 0..0.3 step 0.1") == ("off", 0, 0.1, 0.2, 0.3)
    mistakes = {"": "no values", "3..1": "no range", "0..1 step 0": "no range", "1..9999": "9,998 values"}
    for wrong, words in mistakes.items():
        with pytest.raises(UserError, match=words):
            values_of(wrong)


def test_a_sweep_of_ones_own() -> None:
    grid = free(["pld"], {"clip": "yes"}, {"k": "5, 10", "max_ngram": "1..3"}, ["tokens_per_s"])
    assert grid.chart == "heat" and [a.values for a in grid.axes] == [(5, 10), (1, 2, 3)]
    assert free(["pld", "plain"], {}, {"k": "5"}).lines[1].fixed  # has no k: drawn level
    for wrong, words in (
        ((["pld"], {}, {"kk": "1"}), "there is no parameter 'kk'"),
        ((["pld"], {}, {"k": "0, 5"}), "k=0 is out of range"),
        (([], {}, {}), "no method was named"),
        ((["pld", "pld+h"], {}, {"k": "5", "theta": "0.5"}), "pld has k but not theta"),
        ((["pld"], {}, {"a": "1", "b": "1", "c": "1"}), "3 parameters vary"),
    ):
        with pytest.raises(ValueError, match=words):
            free(*wrong).check(methods(), INFO)


def test_a_plan_says_what_is_missing_and_what_is_left_out(target: Any) -> None:
    quality = replace(SWEEP, metrics=("quality_f1",))
    with pytest.raises(UserError, match=r"quality_f1 compares answers .* 2 of 2 prompts have none \(the first is p0\)"):
        plan(target, quality, made_cases())
    assert plan(target, quality, made_cases(reference="the lamp")).runs == 6
    long = Case("long", "a", Prompt.from_ids([5] * 510))
    planned = plan(target, SWEEP, [*made_cases(), long])
    assert len(planned.cases) == 2 and "1 of 3 prompts are left out" in planned.notes[0]
    with pytest.raises(UserError, match="1 of 1 prompts are left out"):
        plan(target, SWEEP, [long])
    with pytest.raises(UserError, match="there are no prompts"):
        plan(target, SWEEP, [])
    many = made_cases(1) * (MAX_RUNS // 4 + 1)
    with pytest.raises(UserError, match=r"at most 20,000 are taken"):
        plan(target, SWEEP, many)


def test_a_long_experiment_asks_first(target: Any) -> None:
    planned = plan(target, SWEEP, made_cases(1) * 200)
    assert planned.runs == 800 and planned.asks(0.001).startswith("This is 800 runs, about ")
    assert plan(target, SWEEP, made_cases()).asks(0.001) == ""
    assert "hours" in plan(target, SWEEP, made_cases()).asks(100.0)


def test_prompt_sets() -> None:
    found = records("demo:summary,code_edit", 5)
    assert [r.category for r in found] == ["summary", "code_edit", "summary", "code_edit", "summary"]
    assert all(r.reference for r in found) and found == records("demo:summary,code_edit", 5)
    first, second = records("turns", 2)
    assert (first.category, second.category) == ("turn 1", "turn 2") and second.messages[0] == first.messages[0]
    assert first.reference == second.messages[1][1]
    assert {r.category for r in records("examples:quote", 9)} == {"quote"}
    assert {r.category for r in records("examples:sums", 9, toy=True)} == {"sums"}
    assert [r.category for r in records("gsm8k,humaneval", 3)] == ["gsm8k", "humaneval", "gsm8k"]
    assert len({r.category for r in records("mt-bench", 8)}) == 8 and len(records("mt-bench", 99)) == 16
    with pytest.raises(UserError, match="no task 'sums' in examples: choose of code_edit"):
        records("examples:sums", 1)
    with pytest.raises(UserError, match="no task 'poems'"):
        records("demo:poems", 1)
    with pytest.raises(UserError, match="no prompt file and no prompt set"):
        records("demos", 1)
    assert all(case.prompt.reference for case in cases(tiny_tokenizer(), found))


def test_the_prompt_of_a_recorded_run_is_the_same_tokens(target: Any) -> None:
    from decoders import record

    prompt = Prompt.from_segments(tiny_tokenizer(), instruction="Copy.", context=["the old lamp", "a museum"])
    trace = record(target, prompt, "pld", max_new_tokens=4)
    again = of_trace(trace).prompt
    assert (again.tokens, again.segments) == (prompt.tokens, prompt.segments)


# --- running ---


def test_every_setting_runs_on_every_prompt(both: tuple[Results, list[Trace]]) -> None:
    results, kept = both
    assert results.about["state"] == "complete" and len(results.rows) == 8 and results.failures == 0
    assert [r["series"] for r in results.rows[:4]] == ["Plain decoding", "PLD", "PLD", "PLD+"]
    assert [r["param:k"] for r in results.rows[1:3]] == ["2", "4"]
    assert {r["trace"] for r in results.rows} == {t.run["id"] for t in kept} and len(kept) == 8
    plain, pld = results.rows[0], results.rows[1]
    assert plain["role"] == "hidden" and pld["speedup"] == pytest.approx(pld["tokens_per_s"] / plain["tokens_per_s"])
    assert kept[1].run["title"] == "p0 · PLD · k = 2" and kept[1].run["method"]["params"]["k"] == 2


def test_points_are_numbers_over_the_prompts(both: tuple[Results, list[Trace]]) -> None:
    results, kept = both
    found = list(points(results))
    places = [(p["series"], p["x"], p["level"]) for p in found]
    assert places == [("PLD", "2", False), ("PLD", "4", False), ("PLD+", "", True)]
    runs = [t.run["metrics"] for t in kept if t.run["title"].endswith("k = 4")]
    per_step, steps = [run["tokens_per_step"] for run in runs], sum(run["steps"] for run in runs)
    spread = found[1]["values"]["tokens_per_step"]
    assert spread["n"] == 2 and spread["mean"] == pytest.approx(sum(per_step) / 2)
    assert spread["value"] == pytest.approx(sum(n["accepted"] + n["steps"] for n in runs) / steps)
    assert [run_["prompt"] for run_ in found[1]["runs"]] == ["p0", "p1"]
    tasks = Results({**results.about, "x": "category", "by_category": True}, results.rows)
    assert [p["x"] for p in points(tasks) if p["series"] == "PLD · draft length = 2"] == ["a", "b", "all"]


def test_a_failing_run_is_a_row_and_the_others_go_on(target: Any) -> None:
    line, axis = Line("PLD+", "pld+h"), Axis("layer", (1, 99))
    layers = replace(SWEEP, lines=(line,), axes=(axis,), metrics=("tokens_per_step",))
    results = run(target, plan(target, layers, made_cases()))
    assert results.failures == 2 and [bool(r["error"]) for r in results.rows] == [False, True] * 2
    assert "ayer=99 is out of range" in results.rows[1]["error"]
    failed = list(points(results))[1]
    assert failed["failed"] == 2 and failed["runs"] == [] and failed["values"]["tokens_per_step"]["mean"] is None
    assert list(charts(results)[0].figure.data[0].x) == [1.0]  # there is nothing to draw at 99


@pytest.mark.parametrize("how", ["cancel", "interrupt"])
def test_what_is_done_is_kept(target: Any, how: str) -> None:
    cancel = threading.Event()
    seen: list[Standing] = []

    def tell(progress: Standing) -> None:
        seen.append(progress)
        if progress.done == 3:
            if how == "interrupt":
                raise KeyboardInterrupt
            cancel.set()

    results = run(target, plan(target, SWEEP, made_cases()), progress=tell, cancel=cancel)
    assert results.about["state"] == "cancelled" and len(results.rows) == 3
    assert [p.done for p in seen] == [1, 2, 3] and seen[0].total == 8
    left = seen[1].left_s
    assert left is not None and left == pytest.approx(seen[1].seconds * 3, rel=0.01)  # by the clock


def test_every_quantity_of_a_trace() -> None:
    trace = recordings.tree()
    values = measure(trace, "quote", 10.0)
    shares = [v for k, v in values.items() if k.startswith("outcomes:") and v is not None]
    assert sum(shares) == pytest.approx(1) and len(shares) > 2
    steps = trace.tables["steps"]
    won = [o for o in steps["origins"] if o]
    assert values["reuse_rate"] == len(won) / len(steps["origins"])
    assert values["branch_fraction"] == sum("branch" in o for o in won) / len(won)
    assert values["times:verify"] == pytest.approx(sum(steps["verify_ms"]) / len(steps["verify_ms"]))
    assert values["quality"] == values["quality_f1"]
    assert measure(trace, "code_edit")["quality"] == values["quality_edit"]
    lengths = [v for k, v in values.items() if k.startswith("lengths:")]
    assert sum(v or 0 for v in lengths) == pytest.approx(1)


class Ticks:
    """Time that goes on by what is done: milliseconds of an index, and of each lookup in turn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.lookups = 5.0, 0
        build, find = PoolIndex.__init__, PoolIndex.find

        def timed_build(*given: Any, **options: Any) -> None:
            self.now += 0.030
            build(*given, **options)

        def timed_find(*given: Any, **options: Any) -> Any:
            self.now += (0.002, 0.003, 0.700)[self.lookups % 3]
            self.lookups += 1
            return find(*given, **options)

        monkeypatch.setattr(PoolIndex, "__init__", timed_build)
        monkeypatch.setattr(PoolIndex, "find", timed_find)
        monkeypatch.setattr(casd, "time", self)

    def perf_counter(self) -> float:
        return self.now


def test_an_experiment_that_measures_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = Ticks(monkeypatch)
    pools = find_recipe("casd-fig3")
    small = replace(pools, axes=(replace(pools.axes[0], values=(1000, 2000)),))
    stub = type("Stub", (), {"info": INFO, "context_length": 100})()
    results = run(stub, plan(stub, small, []))
    assert [r["param:pool_tokens"] for r in results.rows] == ["1000", "2000"] and results.failures == 0
    assert [(r["retrieval_ms"], r["index_ms"]) for r in results.rows] == [(pytest.approx(3), pytest.approx(30))] * 2
    assert ticks.lookups == 2 * casd.LOOKUPS and len(charts(results)) == 2


# --- draft models trained for an experiment ---

LAYERS = Experiment(
    "layers", "Layers", (Line("GLIDE", "glide", trains={}), Line("none", "sps", trains={}, fixed=True)),
    (Axis("kv_layer", (0, 2), "layer"),), metrics=("beta", "learning"), max_new_tokens=8, training_steps=2,
)  # fmt: skip


@pytest.fixture
def learnt(tmp_path: Path) -> Experiment:
    words = "the old lamp at the station was sold to the city museum by a man who had found it in the rain"
    text = "\n".join(" ".join(words.split()[n % 7 :][::-1] if n % 2 else words.split()[n % 5 :]) for n in range(120))
    path = tmp_path / "words.txt"
    path.write_text(text)
    return replace(LAYERS, data=(str(path),))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One step per turn; lists the trainings that begin."""
    begun: list[str] = []

    def count_variants(variant: Variant, *args: Any) -> Any:
        begun.append(name_of(variant, {"kv_layer": getattr(variant, "kv_layer", None)}))
        return training(variant, *args)

    monkeypatch.setattr("specviz.extras.lab.experiments.running.training", count_variants)
    monkeypatch.setattr("specviz.extras.lab.experiments.running.TURN_SECONDS", 0.0)
    monkeypatch.setattr("specviz.extras.lab.experiments.variants.BATCH_TOKENS", 256)
    monkeypatch.setattr("specviz.extras.training.drafter.measured_cost", lambda *_: 0.25)
    return begun


@pytest.mark.slow("trains parts")
def test_variants_are_trained_alike_kept_and_found_again(target: Any, learnt: Experiment, quick: list[str]) -> None:
    planned = plan(target, learnt, made_cases())
    assert planned.runs == 6 and len(planned.variants) == 3 and planned.text(0.01).startswith("3 draft models to train")
    assert "each for 2 steps: short runs" in planned.notes[0] and planned.asks(0.001) == ""
    seen: list[Standing] = []
    results = run(target, planned, progress=seen.append)
    assert quick == ["GLIDE draft model, KV layer 0", "GLIDE draft model, KV layer 2", "vanilla drafter, KV layer None"]
    assert results.failures == 0
    assert seen[0].trains == "GLIDE draft model, KV layer 0" and seen[0].total == 6
    assert [p.done for p in seen] == [*range(1, 7), *range(1, 7)] and seen[-1].trains == ""
    by_layer = {row["param:kv_layer"]: row for row in results.rows if row["prompt"] == "p0" and "param:kv_layer" in row}
    assert sorted(by_layer) == ["0", "2"] and len({row["beta"] for row in by_layer.values()}) == 2
    assert all(0 < row["learning:2/total"] < 1 and row["learning:2/count"] == 1 for row in results.rows)
    parts = [DraftVariant("glide", 2, learnt.data, kv_layer=n).folder(target.key) for n in (0, 2)]
    assert [sorted(p.name for p in folder.iterdir()) for folder in parts] == [["log.jsonl", "part"]] * 2
    assert find_part(target.key, "glide") is None  # the user's own place stays as it was
    again = plan(target, learnt, made_cases())
    assert again.variants == () and "(3 of them are there already)" in again.notes[0]
    assert [r["beta"] for r in run(target, again).rows] == [r["beta"] for r in results.rows] and len(quick) == 3
    longer = plan(target, replace(learnt, training_steps=3), made_cases())
    assert len(longer.variants) == 3  # other settings, other models
    levels = [p for p in points(results) if p["level"]]
    assert len(charts(results)) == 2 and [p["series"] for p in levels] == ["none"]


def test_a_cancelled_training_goes_on_where_it_stopped(target: Any, learnt: Experiment, quick: list[str]) -> None:
    one = replace(learnt, lines=learnt.lines[:1], axes=(Axis("kv_layer", (1,)),))
    variant = DraftVariant("glide", 2, one.data, kv_layer=1)
    cancel = threading.Event()
    turns: list[str] = []

    def on_device(work: Any) -> Any:
        turns.append("turn")
        return work()

    results = run(
        target, plan(target, one, made_cases()), progress=lambda _: cancel.set(), cancel=cancel, on_device=on_device
    )
    assert results.about["state"] == "cancelled" and results.rows == [] and len(turns) == 2  # the network, one step
    assert (variant.folder(target.key) / "checkpoint.pt").exists() and variant.log(target.key) is None
    seen: list[Standing] = []
    results = run(target, plan(target, one, made_cases()), progress=seen.append)
    assert [p.done for p in seen] == [2, 1, 2] and results.failures == 0


def test_a_training_that_fails_is_an_error_of_its_rows(
    target: Any, learnt: Experiment, quick: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    two = replace(learnt, lines=learnt.lines[:1], axes=(Axis("kv_layer", (0, 1)),))
    from specviz.extras.training import drafter

    whole = drafter.DrafterTraining.train_step

    def failing(self: Any, done: float) -> float:
        if self.recipe.kv_layer == 0:
            raise UserError("the loss is no number any more")
        return whole(self, done)

    monkeypatch.setattr(drafter.DrafterTraining, "train_step", failing)
    results = run(target, plan(target, two, made_cases(1)))
    assert [bool(r["error"]) for r in results.rows] == [True, False]
    assert "KV layer 0 could not be trained: The loss is no number" in results.rows[0]["error"]


def test_what_cannot_be_trained_is_refused_before_it_begins(target: Any, learnt: Experiment) -> None:
    for change, words in (
        ({"axes": (Axis("kv_layer", (9,)),)}, "KV layer 9 is out of range"),
        ({"data": ("nowhere.txt",)}, "there is no training file nowhere.txt"),
    ):
        with pytest.raises(UserError, match=words):
            plan(target, replace(learnt, **change), made_cases())
    with pytest.raises(UserError, match="GLIDE cannot read the cached keys of 'gpt_neox' models"):
        plan(tiny_target("gpt_neox"), learnt, made_cases())


# --- PPD's recipes

APART = {"prefix": 1, "exits": 2, "head": "two-stage"}
PARTS = Experiment(
    "vectors", "Vectors", (Line("PPD", "ppd", trains=APART),), (Axis("vectors", (1, 2), "vectors"),),
    metrics=("accuracy",), max_new_tokens=8, training_steps=2, look=guesses.look, arrange=guesses.side_by_side,
    own=find_recipe("ppd-fig10").own,
)  # fmt: skip


@pytest.mark.slow("trains prompt tokens")
def test_prompt_tokens_are_trained_for_an_experiment(
    target: Any, learnt: Experiment, quick: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specviz.extras.lab.experiments.variants.POINTS", 24)
    planned = plan(target, replace(PARTS, data=learnt.data), made_cases())
    assert planned.text(0.01).startswith("2 sets of prompt tokens to train for 2 steps, 4 runs")
    assert "not with a set of prompt tokens trained to the end" in planned.notes[0]
    results = run(target, planned)
    assert quick == ["set of prompt tokens, KV layer None"] * 2 and results.failures == 0
    folders = [PromptVariant("ppd", 2, learnt.data, vectors=n, **APART).folder(target.key) / "part" for n in (1, 2)]
    configs = [PromptConfig.of(target.shape, vectors=n, prefix=1, exits=2, head=True) for n in (1, 2)]
    assert [read_part(folder).config for folder in folders] == configs
    for folder in folders:
        measured_ranks = read_part(folder).training["log"][-1]["ranks"]
        assert load_trees(folder / "trees.json").acceptance == tuple(map(tuple, measured_ranks))
    assert find_part(target.key, "ppd") is None
    names = ["@1 top-1", "@1 top-5", "@2 top-1", "@2 top-5"]
    assert [(p["series"], p["x"], p["count"]) for p in points(results)] == [(s, x, 2) for s in names for x in "12"]
    assert all(0 <= row["accuracy"] <= 1 and row["loss:2/total"] > 0 for row in results.rows)
    assert "sets of prompt tokens trained for 2 steps" in caption(results)
    with pytest.raises(UserError, match="prompt tokens cannot be trained for 'gpt_neox' models"):
        plan(tiny_target("gpt_neox"), replace(PARTS, data=learnt.data), made_cases())
    for axis, reason in (
        (Axis("vectors", (500,)), "1 to 16 tokens of 1 to 128 vectors"),
        (Axis("exits", (1, 9)), "9 exits are not possible: the model has"),
        (Axis("mask", ("ensemble", "decoder")), "makes no difference to prompt tokens of one vector"),
    ):
        with pytest.raises(UserError, match=reason):
            plan(target, replace(PARTS, axes=(axis,)), made_cases())


RANKS_OF = {"guess_ranks": ([0, 0, 4, 12], [1, 5]), "heads": ([1, 9], [20, 20])}  # by distance


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """Ranks that are known; gives which were asked for, of how many tokens and from where on."""
    asked: list[tuple[str, int, int]] = []

    def instead(name: str) -> Any:
        def rank(_: Any, part: Any, tokens: Any, start: int) -> list[torch.Tensor]:
            asked.append((name, len(tokens), start))
            return [torch.tensor(ranks) for ranks in RANKS_OF[name]]

        return rank

    monkeypatch.setattr("decoders.study.measure.guess_acceptance.guess_ranks", instead("guess_ranks"))
    entries = methods_by_name()
    changed = {}
    for name, method in entries.items():
        if method.part is not None and method.part.kind.ranks is not None:
            kind = replace(method.part.kind, ranks=instead("heads"))
            changed[name] = replace(method, part=replace(cast(Any, method.part), kind=kind))
    monkeypatch.setattr("specviz.extras.lab.experiments.guesses.methods_by_name", lambda: {**entries, **changed})
    return asked


def test_guesses_are_counted_by_distance_and_number(target: Any, tmp_path: Path, ranks: Any) -> None:
    folder = str(save_tiny_part(target, "ppd", tmp_path / "mine", tokens=2))
    recipe = replace(find_recipe("ppd-fig10"), max_new_tokens=6).fixing({"part": folder})
    results = run(target, plan(target, recipe, made_cases(1)))
    shares = {p["series"]: p["values"]["accuracy"]["mean"] for p in points(results)}
    assert shares == {"@1 top-1": 0.5, "@1 top-5": 0.75, "@2 top-1": 0, "@2 top-5": 0.5} and charts(results)
    assert ranks == [("guess_ranks", 66, 60)]


@needs_kinds("medusa")
def test_heads_are_counted_beside_prompt_tokens(target: Any, tmp_path: Path, ranks: Any) -> None:
    folders = {kind: str(save_tiny_part(target, kind, tmp_path / kind)) for kind in ("ppd", "medusa")}
    recipe = replace(find_recipe("ppd-fig6"), max_new_tokens=6)
    recipe = replace(recipe, lines=tuple(line for line in recipe.lines if line.trains is None))
    recipe = recipe.fixing({f"{kind}.part": folder for kind, folder in folders.items()})
    results = run(target, plan(target, recipe, made_cases(1)))
    shares = {(p["series"], p["x"]): [p["values"][f"accuracy_{d}"]["mean"] for d in (1, 2)] for p in points(results)}
    assert [shares["PPD", k] for k in ("2", "10")] == [[0.5, 0.5], [0.75, 1]]
    assert [shares["Medusa", k] for k in ("2", "10")] == [[0.5, 0], [1, 0]]
    assert len(shares) == 20 and len(charts(results)) >= 2
    assert ranks == [("heads", 66, 60), ("guess_ranks", 66, 60)]


@needs_kinds("medusa")
def test_what_prompt_tokens_add_is_counted(target: Any) -> None:
    with pytest.raises(UserError, match=r"ppd is left out: .* make one with `specviz train ppd`"):
        plan(target, find_recipe("ppd-fig7a"), [])
    save_tiny_part(target, "ppd", vectors=2)
    draft = load_part(target, "glide", save_tiny_part(target, "glide"))
    ppd, glide = run(target, plan(target, find_recipe("ppd-fig7a"), [])).rows
    whole, trained = target.info["parameters"], sum(w.numel() for w in draft.state_dict().values())
    assert (ppd["series"], glide["series"]) == ("PPD", "GLIDE")
    assert ppd["trained_percent"] == ppd["memory_percent"] == pytest.approx(100 * 3 * 2 * 64 / whole)
    assert glide["trained_percent"] == pytest.approx(100 * trained / whole)
    cache = 2 * 64 * 512  # keys and values of one layer, for the whole context
    assert glide["memory_percent"] == pytest.approx(100 * (trained + cache) / whole)


@pytest.fixture
def log_folder(target: Any) -> Path:
    """Prompt tokens with a log: the ranks at the last step are those that trees are designed from."""
    folder = save_tiny_part(target, "ppd", tokens=2)
    log = [
        {"step": 5, "held_out_loss": 3.0, "ranks": [[0.1, 0.1], [0.1, 0.1]]},
        {"step": 10, "held_out_loss": 2.5, "ranks": [[0.6, 0.2], [0.5, 0.1]]},
    ]
    part = replace(read_part(folder), training={"log": log})
    return save_part(part, load_part(target, "ppd").state_dict(), folder, dtype=torch.float32)


def test_speedup_in_theory_is_tokens_per_step_over_latency(
    target: Any, log_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = {"rows": (1, 64), "median": (1.0, 7.3), "low": (1.0, 7.3), "high": (1.0, 7.3)}  # 1 + 0.1 per further row
    latency = Latency(Setup.of(target), target.name, 8, **times, rounds=1)
    monkeypatch.setattr("decoders.study.measure.latency.latency_for", lambda *_: latency)
    results = run(target, plan(target, find_recipe("ppd-fig8b"), []))
    assert results.failures == 0
    by = {(p["series"], p["x"]): p["values"] for p in points(results)}
    for size in (8, 12, 24):
        trees = design([[0.6, 0.2], [0.5, 0.1]], size)
        values = by["pruned", str(size)]
        assert values["tau"]["mean"] == pytest.approx(trees.tokens_per_step)
        assert values["latency_ms"]["mean"] == pytest.approx(1 + 0.1 * (trees.size - 1))
        assert values["predicted"]["mean"] == pytest.approx(trees.tokens_per_step / (1 + 0.1 * (trees.size - 1)))
        assert by["random", str(size)]["tau"]["n"] == 5 and by["naive", str(size)]["latency_ms"]["mean"] is None
    kept = design([[0.3, 0.2], [0.2, 0.1]], 12)
    save_trees(kept, log_folder / "trees.json")
    assert guesses.acceptance_of(target, {}) == kept.acceptance
    bare = save_tiny_part(target, "ppd", log_folder.parent / "bare")
    with pytest.raises(UserError, match="`specviz tree design` does"):
        guesses.acceptance_of(target, {"part": str(bare)})


def test_the_loss_is_that_of_the_log(target: Any, log_folder: Path) -> None:
    recipe = find_recipe("ppd-fig9")
    results = run(target, plan(target, replace(recipe, lines=recipe.lines[:1]), []))
    loss = results.quantity("loss")
    (point,) = points(results)
    assert profile_of(loss, point) == [("5", {"total": 3.0}, 1), ("10", {"total": 2.5}, 1)]  # pyright: ignore
    (chart,) = charts(results)
    (curve,) = chart.figure.data
    assert list(curve.y) == [3.0, 2.5] and chart.figure.layout.yaxis.tickformat is None
    table = profile_table(results, loss)  # pyright: ignore
    assert table.rows == (("in use", "5", "3.00"), ("in use", "10", "2.50"))


@needs_kinds("medusa")
def test_what_is_too_short_has_its_number_above(target: Any) -> None:
    """PPD's bars of parameters are flat beside a draft model's, in ours and in the paper's."""
    save_tiny_part(target, "ppd", tokens=1)
    save_tiny_part(target, "glide")
    results = run(target, plan(target, find_recipe("ppd-fig7a"), []))
    ours, paper, _ = charts(results)
    bars, numbers = ours.figure.data  # numbers stand above the bars, on those that cannot be seen
    shares = [row["trained_percent"] for row in results.rows]
    assert shares[0] < 0.07 * shares[1] and numbers.textposition == "outside" and len(numbers.text) == 2
    assert list(numbers.y) == list(bars.y) == shares and numbers.hoverinfo == "skip"
    assert paper.paper and [list(b.text) for b in paper.figure.data] == [
        ["0.00045"], ["0.000182", "8.07"], ["0.0000787", "5.52"],
    ]  # fmt: skip
    assert plan(target, find_recipe("ppd-fig7a"), []).text(0.01) == "2 runs, about 5 seconds"


def test_places_of_a_papers_lines_are_its_own() -> None:
    recipe = find_recipe("ppd-table3")
    about = recipe.describe(INFO) | {"id": "x", "model": {"name": "tiny"}, "notes": [], "state": "complete"}
    rows = [{"series": "@1 top-1", "param:vectors": "1", "accuracy": 0.5, "prompt": "p", "role": "run"}]
    ours, paper = charts(Results(about, rows))
    assert tuple(ours.figure.layout.xaxis.tickvals) == (1, 2, 4)
    assert tuple(paper.figure.layout.xaxis.tickvals) == (1, 2, 5, 10, 20, 50, 100)


def test_rows_of_a_forward_are_counted() -> None:
    trace = recordings.ppd()
    steps = trace.tables["steps"]
    rows = len(steps["drafted"]) + sum(steps["drafted"]) + len(trace.tables["probes"]["step"])
    values = measure(trace)
    assert values["input_rows"] == pytest.approx(rows / len(steps["drafted"]))
    assert values["verify_ms"] == pytest.approx(sum(steps["verify_ms"]) / len(steps["verify_ms"]))


def test_old_trainings_go_first(tmp_path: Path) -> None:
    place = tmp_path / "home" / "lab" / "parts"
    for age, name in enumerate(("new", "used", "old")):
        (place / name).mkdir(parents=True)
        (place / name / "part").write_bytes(b"0" * 100)
        os.utime(place / name, (1000 - age, 1000 - age))
    trim([place / "used"], most_bytes=150)
    assert sorted(p.name for p in place.iterdir()) == ["new", "used"]


def test_parts_are_named_missing_and_fixed(target: Any, tmp_path: Path) -> None:
    recipe = replace(find_recipe("glide-ranks"), max_new_tokens=6)
    with pytest.raises(UserError, match=r"glide is left out: .* make one with `specviz train glide`"):
        plan(target, recipe, made_cases())
    folder = str(save_tiny_part(target, "glide", tmp_path / "mine"))
    named = recipe.fixing({"part": folder})
    planned = plan(target, named, made_cases())
    assert [s.line.method for s in planned.settings] == ["glide"] and planned.notes[0].startswith("sps is left out")
    results = run(target, planned)
    assert results.failures == 0 and profile_of(results.quantity("ranks"), next(points(results)))  # pyright: ignore
    for wrong, words in (
        ({"k": 3}, "no method of glide-ranks has a parameter 'k'"),
        ({"gamma": 99}, "gamma=99"),
    ):
        with pytest.raises(ValueError, match=words):
            recipe.fixing(wrong).check(methods())
    with pytest.raises(UserError, match="glide-table3 compares values of expansion"):
        find_recipe("glide-table3").fixing({"expansion": "fixed"})
    with pytest.raises(UserError, match="glide-fig4 compares values of part"):
        find_recipe("glide-fig4").fixing({"part": folder})


def test_a_line_has_one_colour_in_bars_and_profiles() -> None:
    bars, lines = dict[str, str](), dict[str, str]()
    for chart in charts(example(SHIPPED / "ppd-table1.zip")):
        for trace in chart.figure.data:
            if trace.type == "bar" and isinstance(trace.marker.color, tuple):
                bars |= zip(trace.x, trace.marker.color, strict=True)
            elif trace.type == "scatter":
                lines[trace.name] = trace.line.color
    shared = bars.keys() & lines.keys()
    assert len(shared) == 2 and all(bars[name] == lines[name] for name in shared)
    assert len({*bars.values()}) == len(bars)


def test_profiles_add_up_over_runs_and_are_drawn() -> None:
    rows = [
        {"series": "A", "confidence:0.35/total": 1, "confidence:0.35/count": 4, "confidence:0.95/total": 9,
         "confidence:0.95/count": 9, "trace": "t1"},
        {"series": "A", "confidence:0.95/total": 0, "confidence:0.95/count": 1, "trace": "t2"},
    ]  # fmt: skip
    recipe = find_recipe("glide-fig1b")
    about = recipe.describe(INFO) | {"id": "x", "model": {"name": "tiny"}, "notes": [], "state": "complete"}
    results = Results(about, rows)
    confidence = results.quantity("confidence")
    (point,) = points(results)
    assert profile_of(confidence, point) == [("0.35", {"total": 0.25}, 4), ("0.95", {"total": 0.9}, 10)]  # pyright: ignore
    table = profile_table(results, confidence)  # pyright: ignore
    assert table.rows == (("A", "30 % to 40 %", "25.0", "4"), ("A", "90 % to 100 %", "90.0", "10"))
    (chart,) = charts(results)
    traces: Any = chart.figure.data
    curve, diagonal, bars = traces
    assert (tuple(curve.x), tuple(curve.y), tuple(bars.y)) == ((0.35, 0.95), (0.25, 0.9), (4, 10))
    assert curve.customdata == (0, 0) and diagonal.line.dash == "dot"
    stack = Results(about | {"metrics": ["ranks"]}, [{"series": "A", "ranks:1/rank 1": 3, "ranks:1/beyond 8": 1}])
    (chart,) = charts(stack)
    traces = chart.figure.data
    assert [(bar.name, bar.x[0]) for bar in traces] == [("rank 1", 0.75), ("beyond 8", 0.25)]


def test_lines_over_a_measured_quantity(both: tuple[Results, list[Trace]]) -> None:
    results, _ = both
    (chart, _) = draw(results, against="tree_size", against_label="Drafted tokens per step")
    found = {p["series"]: p for p in points(Results({**results.about, "against": "tree_size"}, results.rows))}
    pld, level = chart.figure.data
    assert list(pld.x) == sorted(pld.x) and sorted(pld.text) == ["2", "4"] and len(level.x) == 1
    assert level.x[0] == found["PLD+"]["values"]["tree_size"]["value"]
    assert chart.figure.layout.xaxis.title.text.startswith("Drafted tokens per step")


# --- files ---


def test_results_are_saved_and_opened_again(both: tuple[Results, list[Trace]], tmp_path: Path) -> None:
    results, _ = both
    results.save(tmp_path / "kept")
    for again in (Results.load(tmp_path / "kept"), Results.load(results.to_zip())):
        assert list(points(again)) == list(points(results)) and again.about == json.loads(json.dumps(results.about))
        assert again.frame.equals(results.frame)
    assert sorted(p.name for p in (tmp_path / "kept").iterdir()) == ["experiment.json", "runs.csv"]


def test_what_is_exported_says_which_speedup_cannot_be_right(both: tuple[Results, list[Trace]], tmp_path: Path) -> None:
    results, _ = both
    row = {**results.rows[0], "tokens_per_step": 2.0}
    told = Results(results.about, [{**row, "speedup": speedup} for speedup in (2.5, 1.5, None)])
    told.save(tmp_path)
    again = Results.load(tmp_path)
    assert all("doubt" not in row for row in again.rows) and list(again.frame["doubt"][1:]) == ["", ""]
    assert again.frame["doubt"][0].startswith("above the 2.00 tokens per step")


def test_csv_is_a_table_that_a_spreadsheet_does_not_run(both: tuple[Results, list[Trace]]) -> None:
    results, _ = both
    hostile = Results(results.about, [{**results.rows[0], "prompt": '=cmd|"x",\n'}])
    (row,) = csv.DictReader(io.StringIO(hostile.to_csv(), newline=""))
    zipped = hostile.to_zip()
    assert {entry.compress_type for entry in zipfile.ZipFile(io.BytesIO(zipped)).infolist()} == {zipfile.ZIP_DEFLATED}
    assert b"\"'=cmd" in zipfile.ZipFile(io.BytesIO(zipped)).read("runs.csv")
    packed = zipfile.ZipFile(io.BytesIO(zipped)).infolist()
    assert all(info.compress_type == zipfile.ZIP_DEFLATED for info in packed)
    assert Results.load(zipped).rows[0]["prompt"] == hostile.rows[0]["prompt"]
    assert row["prompt"] == '\'=cmd|"x",\n' and float(row["tokens_per_step"]) == results.rows[0]["tokens_per_step"]


def test_damaged_results_are_refused_with_a_sentence(both: tuple[Results, list[Trace]], tmp_path: Path) -> None:
    results, _ = both

    def zip_with(**changed: str) -> bytes:
        with zipfile.ZipFile(io.BytesIO(results.to_zip())) as archive:
            parts = {name: archive.read(name).decode() for name in archive.namelist()} | changed
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for name, text in parts.items():
                archive.writestr(name, text)
        return buffer.getvalue()

    about = json.loads(zipfile.ZipFile(io.BytesIO(results.to_zip())).read("experiment.json"))
    for data in (
        b"no zip",
        zip_with(**{"runs.csv": "series,tokens\nA,many\n"}),
        zip_with(**{"runs.csv": "series,tokens\nA\n"}),
        zip_with(**{"experiment.json": "[]"}),
        zip_with(**{"experiment.json": json.dumps({**about, "schema": "speclab/9"})}),
        zip_with(**{"experiment.json": json.dumps({**about, "axes": 3})}),
    ):
        with pytest.raises(UserError):
            Results.load(data)
    with pytest.raises(UserError, match="cannot be opened"):
        Results.load(tmp_path / "nowhere")


# --- figures ---


def draw(results: Results, **about: Any) -> list[Any]:
    return charts(Results({**results.about, **about}, results.rows))


def test_charts_carry_the_points_behind_them(both: tuple[Results, list[Trace]]) -> None:
    results, _ = both
    found = list(points(results))
    for chart in charts(results):
        for trace in chart.figure.data:
            for place, index in enumerate(trace.customdata):
                if not found[index]["level"]:
                    assert float(trace.x[place]) == float(found[index]["x"])
    assert [c.title for c in charts(results)] == ["Tokens per step", "Speedup"]


@pytest.mark.parametrize("chart", ["line", "bar", "heat", "sheet"])
def test_tokens_per_step_is_pooled_wherever_it_is_shown(target: Any, chart: str) -> None:
    """Σ tokens ÷ Σ steps in each kind of chart, its table and what is read from it, as its formula and caption say."""
    two = (Axis("k", (2,)), Axis("max_matching_ngram_size", (3,)))
    experiment = replace(SWEEP, lines=(Line("PLD", "pld"),), axes=two[: 1 + (chart == "heat")], chart=chart,
                         x="category" if chart == "sheet" else "", metrics=("tokens_per_step",))  # fmt: skip
    about = experiment.describe({}) | {"id": "x", "model": {"name": "tiny"}, "notes": [], "state": "complete"}
    rows = [
        {"series": "PLD", "param:k": "2", "param:max_matching_ngram_size": "3", "prompt": prompt, "category": "a",
         "role": "run", "error": "", "trace": "", "steps": steps, "tokens_per_step": rate}
        for prompt, steps, rate in (("p0", 2.0, 10.0), ("p1", 38.0, 1.0))
    ]  # fmt: skip
    results = Results(about, rows)
    (drawn,) = charts(results)
    data = drawn.figure.data[0]
    shown = data.z[0][0] if chart in ("heat", "sheet") else data.y[0]
    assert shown == pytest.approx(58 / 40) and "pooled (Σ ÷ Σ over their steps)" in caption(results)
    hover = str(data.text[0][0] if chart in ("heat", "sheet") else data.hovertext[0])
    assert "<b>1.45 tokens/step</b>" in hover and "mean of runs 5.5" in hover
    assert "1.45" in grids(results)[0].rows[0] and "5.50" not in str(grids(results)[0].rows)


def test_paper_numbers_are_drawn_apart(both: tuple[Results, list[Trace]]) -> None:
    results, _ = both
    here = next(points(results))["values"]["tokens_per_step"]["value"]
    series = PaperSeries("PLD", "table 1", "tokens_per_step", ((2, here), (4, here)), "Vicuna-7B")
    near, far = ({"papers": [_as_dict(series, by)]} for by in (1.0, 20.0))
    over = draw(results, **near)[0].figure.data[-1]
    assert over.line.dash == "dash" and over.marker.symbol.endswith("-open") and "paper (Vicuna-7B)" in over.name
    apart = draw(results, **far)
    assert [c.paper for c in apart] == [False, True, False] and "table 1" in apart[1].figure.layout.title.text


def _as_dict(series: PaperSeries, factor: float) -> dict[str, Any]:
    return {
        "label": series.label, "where": series.where, "metric": series.metric, "model": series.model,
        "points": [[x, factor * y] for x, y in series.points],
    }  # fmt: skip


@pytest.mark.parametrize("chart", ["line", "bar", "stack"])
def test_every_metric_can_be_drawn_and_names_are_no_markup(both: tuple[Results, list[Trace]], chart: str) -> None:
    results, _ = both
    rows = [{**row, "series": "<b>bold</b><a href='x'>"} for row in results.rows]
    hostile = Results({**results.about, "chart": chart, "x": "category"}, rows)
    for key in ("tokens_per_step", "outcomes", "lengths", "times", "quality"):
        for made in charts(hostile, [key]):
            text = made.figure.to_json()
            assert "<b>bold" not in text and "\\u003cb\\u003ebold" not in text
    with pytest.raises(UserError, match="there is no metric 'speed'"):
        charts(results, ["speed"])


def test_two_parameters_make_a_heat_map(target: Any) -> None:
    grid = replace(free(["pld"], {}, {"k": "2,4", "max_ngram": "1,2,3"}), max_new_tokens=6)
    results = run(target, plan(target, grid, made_cases(1)))
    (chart,) = charts(results)
    heat, found = chart.figure.data[0], list(points(results))
    assert (len(heat.z), len(heat.z[0]), len(found)) == (3, 2, 6)
    assert (found[heat.customdata[2][1]]["x"], found[heat.customdata[2][1]]["y"]) == ("4", "3")


# --- the command ---


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, target: Any, tmp_path: Path) -> str:
    """A target instead of the bundled one, and a prompt file."""
    monkeypatch.setattr("decoders.load_target", lambda *_, **__: target)
    path = tmp_path / "prompts.jsonl"
    path.write_text(json.dumps({"id": "one", "instruction": "Copy", "context": "the old lamp at the station"}) + "\n")
    return str(path)


def test_alone_it_lists_the_recipes(capsys: pytest.CaptureFixture[str], target: Any, tiny: str) -> None:
    assert specviz("lab") == 0
    out = capsys.readouterr().out
    assert all(name in out for name in recipes()) and "takes: expected for tiny-llama on cpu" in out
    pools = duration(foreseen(target, find_recipe("casd-fig3"), 1.0))
    for name, takes in (("casd-fig3", pools), ("glide-table2", "~")):
        assert takes in next(line for line in out.splitlines() if name in line)
    recipe = find_recipe("pldplus-table8")
    assert foreseen(target, recipe, 1.0) == pytest.approx(
        plan(target, recipe, made_cases(1) * recipe.count).seconds(1.0), rel=0.01
    )


def test_a_recipe_from_the_shell(capsys: pytest.CaptureFixture[str], tiny: str, tmp_path: Path) -> None:
    files = {kind: tmp_path / f"out.{kind}" for kind in ("json", "csv", "html")}
    outputs = [part for kind, path in files.items() for part in (f"--{kind}", path)]
    assert specviz("lab", "pldplus-table8", "--prompts", tiny, "--max-new-tokens", 8, *outputs) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "Averaged hidden states (table 8)" in out and "mean over steps of (accepted + 1)" in out
    assert "Vicuna-7B, table 8" in out and "1: 3.14" in out
    written = json.loads(files["json"].read_text())
    assert [p["x"] for p in written["points"]] == list("123456") and len(written["rows"]) == 6
    assert len(files["csv"].read_text().splitlines()) == 7
    page = files["html"].read_text()
    assert "Plotly.newPlot" in page and "default-src 'none'" in page


def test_a_profile_from_the_shell(capsys: pytest.CaptureFixture[str], target: Any, tiny: str, tmp_path: Path) -> None:
    folder = save_tiny_part(target, "glide", tmp_path / "mine")
    assert specviz("lab", "glide-ranks", "--set", f"part={folder}", "--prompts", tiny, "--max-new-tokens", 6) == 0
    out = capsys.readouterr().out
    assert "Rank of the target's token in the draft model" in out and "counted" in out and "beyond 8" in out


def test_a_sweep_from_the_shell(capsys: pytest.CaptureFixture[str], tiny: str) -> None:
    assert specviz("lab", "--method", "pld,pld+h", "--vary", "k=2,4", "--prompts", tiny, "--max-new-tokens", 6) == 0
    out = capsys.readouterr().out
    assert "PLD: prompt lookup" in out and "PLD+ by hidden states" in out


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("pldplus-fig9",), "there is no recipe 'pldplus-fig9' (did you mean pldplus-fig"),
        (("--vary", "k=1"), "--vary needs a recipe or --methods"),
        (("pldplus-fig4", "--method", "pld"), "--methods is for a sweep of your own"),
        (("--method", "pld", "--vary", "k"), "--vary 'k' is not of the form name=values"),
        (("--method", "pld", "--vary", "k=5", "--vary", "k=9"), "--vary gives k twice"),
        (("--method", "pld", "--vary", "k=0..500 step 100"), "k=0 is out of range"),
        (("pldplus-fig4", "--metric", "speed"), "there is no metric 'speed'"),
        (("pldplus-fig4", "--prompts", "nowhere.jsonl"), "nowhere.jsonl is no prompt file and no prompt set"),
        (("pldplus-fig4", "--temperature", "5"), "a number from 0 to 2"),
        (("pldplus-fig4", "--json", "no/such/folder.json"), "there is no folder"),
        (("pldplus-fig4", "--training-steps", "5"), "--training-steps is for recipes that train parts"),
        (("glide-ranks", "--set", "kk=1"), "no method of glide-ranks has a parameter 'kk'"),
    ],
)
def test_mistakes_are_one_sentence(capsys: pytest.CaptureFixture[str], args: tuple[str, ...], words: str) -> None:
    assert words in refusal(capsys, "lab", *args)


def test_a_missing_reference_and_a_long_sweep(capsys: pytest.CaptureFixture[str], tiny: str) -> None:
    wanted = refusal(capsys, "lab", "casd-table6", "--prompts", tiny)
    assert "quality compares answers with a reference" in wanted
    sweep = ("--method", "pld", "--vary", "k=1..60", "--vary", "max_ngram=1..16", "--prompts", tiny)
    long = refusal(capsys, "lab", *sweep, "--count", 9, "--max-new-tokens", 4096)
    assert "with 4096 new tokens they do not fit the 512 tokens the model reads" in long
    assert "Nothing was started: add --yes" in refusal(capsys, "lab", *sweep, "--max-new-tokens", 400)


# --- the lab of a server ---


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[StubDesk]:
    with at_work(StubDesk()) as made:
        yield made


ASKED = {
    "free": {"methods": ["pld"], "fixed": {}, "vary": [{"param": "k", "values": "2,4"}]},
    "prompts": "examples", "count": 2,
}  # fmt: skip


def wait(desk: StubDesk, key: str) -> dict[str, Any]:
    return until_over(lambda: desk.services["lab"].show(key), f"the experiment {key}")


def test_the_lab_runs_keeps_and_opens_runs(desk: StubDesk) -> None:
    lab = desk.services["lab"]
    assert lab.estimate(ExperimentRequest(**ASKED))["text"] == "4 runs, about 5 seconds"
    key = lab.start(ExperimentRequest(**ASKED), "ada")["id"]
    shown = wait(desk, key)
    assert shown["state"] == "complete" and shown["rows"] == 4 and not shown["errors"]
    assert [json.loads(c["figure"])["data"][0]["customdata"] for c in shown["charts"]] == [[0, 1]]
    assert "charts" not in lab.show(key, have=4)
    ranks = lab.show(key, ["ranks"])
    assert ranks["columns"] == [] and not ranks["profiles"][0]["rows"]  # PLD has no draft model
    assert lab.show(key, ["routes"])["columns"][0]["key"].startswith("routes:")
    trace = shown["points"][1]["runs"][0]["trace"]
    assert trace not in desk.store and lab.bring(trace) and desk.store.get(trace).run["id"] == trace
    assert desk.store.listing("ada") == []  # an experiment's runs do not crowd the list
    assert [a["id"] for a in lab.listing("ada")] == [key] and lab.listing("bo") == []
    again = StubDesk()  # another server, on the same folder
    others = again.services["lab"]
    assert [a["id"] for a in others.listing("bo")] == [key] and others.show(key)["points"] == shown["points"]
    assert not lab.remove(key, "bo")
    until(lambda: lab.remove(key, "ada"), "the experiment has ended, and goes")
    assert lab.listing("ada") == []
    assert not lab.bring("../../etc/passwd") and not lab.bring(trace)


@pytest.mark.slow("runs an experiment and judges it, as the walk through a batch and the tests of judging do")
def test_the_runs_of_an_experiment_are_judged_together(desk: StubDesk) -> None:
    lab = desk.services["lab"]
    key = lab.start(ExperimentRequest(**ASKED), "ada")["id"]
    shown = wait(desk, key)

    def ask_again() -> dict[str, Any]:
        answer = lab.judgements(key)
        return answer if answer["state"] == "ready" else {}

    answer, sums = until(ask_again, "all of its drafts are judged"), {name: Total() for name in chosen_rules()}
    traces = [one["trace"] for point in shown["points"] for one in point["runs"]]
    for trace in traces:
        for name, total in totals(judge_steps(lab.read_run(trace))).items():
            sums[name] += total
    assert answer["runs"] == len(traces) == 4 and answer["lines"] == [answer["line"]]
    assert {rule["name"]: rule["accepted"] for rule in answer["rules"]} == {n: s.accepted for n, s in sums.items()}
    assert answer["rules"][0]["steps"] > 0 and not any(trace in desk.store for trace in traces)
    with pytest.raises(Missing):
        lab.judgements("none")


def test_rows_of_a_killed_server_are_found_again(desk: StubDesk) -> None:
    """Rows that came after the last whole save; the last line may be half, and lines that were saved do not count."""
    lab = desk.services["lab"]
    key = lab.start(ExperimentRequest(**ASKED), "ada")["id"]
    wait(desk, key)
    until(lambda: lab._tasks.get(key) is None, "the experiment is over")
    results, folder = lab.results(key), lab.folder / key
    rows = list(results.rows)
    results.rows = rows[:2]
    results.about["state"] = "running"
    results.save(folder)
    (folder / LATEST).write_text("".join(json.dumps(one) + "\n" for one in list(enumerate(rows))[1:]) + '[4, {"a')
    again = lab.results(key)
    assert again.rows == rows and again.about["state"] == "cut off"


def test_results_that_the_disk_refuses_stay_until_it_takes_them(desk: StubDesk) -> None:
    """They are complete and say so; a run is opened from memory; what was saved before the disk was full stays."""
    lab = desk.services["lab"]
    with refusing(lab.folder, 7):
        key = lab.start(ExperimentRequest(**ASKED), "ada")["id"]
        shown = wait(desk, key)
        until(lambda: lab._tasks.get(key) is None, "the experiment is over")
    assert shown["state"] == "complete" and shown["rows"] == 4
    again = lab.show(key)
    assert again["rows"] == 4 and "no space left" in again["about"]["notes"][-1]
    assert [a["id"] for a in lab.listing("ada")] == [key] and lab.listing("bo") == []
    runs = [run for point in again["points"] for run in point["runs"]]
    assert all(run["trace"] in desk.store or lab.bring(run["trace"]) for run in runs)
    folder = lab.folder / key  # it has room by now, and somebody looked at the list
    assert not any("not all of this" in note.lower() for note in Results.load(folder).about["notes"])
    assert {path.stem for path in folder.glob("*/*.spectrace")} == {run["trace"] for run in runs}
    modes = {path.is_dir(): path.stat().st_mode & 0o777 for path in [*lab.folder.rglob("*"), lab.folder]}
    assert modes == {True: 0o700, False: 0o600}
    assert lab.remove(key, "ada") and lab.listing("ada") == []


def test_cancel_keeps_what_is_done_and_a_user_run_goes_first(desk: StubDesk) -> None:
    desk.pause_s = 0.01
    key = desk.services["lab"].start(ExperimentRequest(**{**ASKED, "count": 13}), "ada")["id"]
    until(lambda: desk.services["lab"].show(key)["rows"], "the first run is in the results")
    from specviz.server.forms import PromptForm

    job = desk.submit(PromptForm("text", text="abc"), "pld", {}, {}, owner="ada")
    assert job.finished.wait(WAIT_S) and desk.services["lab"].show(key)["state"] == "running"
    assert not desk.services["lab"].cancel(key, "bo") and desk.services["lab"].cancel(key, "ada")
    shown = wait(desk, key)
    assert shown["state"] == "cancelled" and 1 <= shown["rows"] < 26 and shown["points"]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"recipe": "x"}, "there is no recipe 'x'"),
        ({**ASKED, "count": "many"}, "the number of prompts is 'many': a whole number from 1 to 5,000"),
        ({**ASKED, "temperature": 9}, "a number from 0 to 2"),
        ({**ASKED, "metrics": "tokens"}, "as a list"),
        ({**ASKED, "metrics": ["quality_f1"], "prompts": {"file": {"name": "a.txt", "text": "hello"}}}, "have none"),
        ({**ASKED, "prompts": "/etc/passwd"}, "there are no prompts called '/etc/passwd'"),
        ({**ASKED, "prompts": {"file": {"name": "a.jsonl", "text": "{"}}}, "a.jsonl, line 1: not JSON"),
        ({**ASKED, "prompts": {"trace": "gone"}}, "There is no run called 'gone'"),
        ({"free": {"methods": ["ppd"]}}, "Prompt tokens are missing"),
        ({"free": {"methods": [["pld"]]}}, "as a list of their names"),
        ({"free": {"methods": ["pld"], "vary": [{"param": "k", "values": "2"}] * 2}}, "k is varied twice"),
    ],
)
def test_what_a_page_asks_is_checked(desk: StubDesk, asked: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=".*") as caught:
        desk.services["lab"].start(ExperimentRequest(**asked), "ada")
    assert words in str(caught.value) and desk.services["lab"].listing("ada") == []


def test_a_long_sweep_is_asked_about_in_the_app(desk: StubDesk) -> None:
    asked = {**ASKED, "free": {"methods": ["pld"], "vary": [{"param": "k", "values": "1..100"}]}, "count": 13}
    assert desk.services["lab"].start(ExperimentRequest(**asked), "ada")["asks"].startswith("This is 1,300 runs")
    key = desk.services["lab"].start(ExperimentRequest(**asked, yes=True), "ada")["id"]
    assert desk.services["lab"].cancel(key, "ada")


def test_a_recorded_experiment_comes_along(desk: StubDesk) -> None:
    lab = desk.services["lab"]
    listed, *of_recipes = lab.catalog()["recorded"]
    assert {about["name"] for about in of_recipes} == set(comes_along()), "the one with its runs is the first"
    example = lab.results(of_recipes[0]["id"])
    compared = comes_along()[of_recipes[0]["name"]]["compared"]
    assert example.about["shipped"] and example.about["compared"] == compared != ""
    assert not lab.remove(of_recipes[0]["id"], "")
    results = lab.results(listed["id"])
    assert results.about["shipped"] and results.about["state"] == "complete" and not results.failures
    assert all(lab.bring(row["trace"]) for row in results.rows if row["role"] == "run")
    assert not lab.remove(listed["id"], "") and lab.results(listed["id"]).rows


def test_a_caption_counts_prompts_as_people_do(both: tuple[Results, list[Trace]]) -> None:
    results, _ = both
    one = Results(results.about, [row for row in results.rows if row["prompt"] == results.rows[0]["prompt"]])
    assert "1 prompts" not in caption(one) and "one prompt of at most" in caption(one)


def test_the_routes_of_the_lab(desk: StubDesk) -> None:
    with TestClient(app_of(desk)) as client:
        catalog = client.get("/api/lab").json()
        assert len(catalog["recipes"]) == len(recipes()) and catalog["plotly"].startswith("web/plotly.")
        assert client.get(f"/{catalog['plotly']}").headers["cache-control"].startswith("public")
        assert client.post("/api/lab/start", data={"recipe": "x"}).status_code == 422  # a form of another site
        refused = client.post("/api/lab/estimate", json={"recipe": "x"})
        assert refused.status_code == 422 and "There is no recipe" in refused.json()["error"]
        deep = client.post("/api/lab/start", content="[" * 90000, headers={"content-type": "application/json"})
        assert deep.status_code == 422
        key = client.post("/api/lab/start", json=ASKED).json()["id"]
        shown = wait(desk, key)
        assert client.get(f"/api/lab/results/{key}").json()["points"] == json.loads(json.dumps(shown["points"]))
        trace = shown["points"][0]["runs"][0]["trace"]
        assert client.get(f"/api/traces/{trace}").json()["run"]["id"] == trace
        table = client.get(f"/api/lab/results/{key}/download?format=csv")
        assert table.text.count("\r\n") == 5 and f"own-{key}.csv" in table.headers["content-disposition"]
        assert Results.load(client.get(f"/api/lab/results/{key}/download?format=zip").content).id == key
        parquet = pd.read_parquet(io.BytesIO(client.get(f"/api/lab/results/{key}/download?format=parquet").content))
        assert parquet.shape == pd.read_csv(io.StringIO(table.text)).shape and len(parquet) == 4
        tex = client.get(f"/api/lab/results/{key}/download?format=tex").text
        assert "\\begin{tabular}" in tex and tex.count("\\\\\n") == 1 + len(shown["points"])
        assert all(point["values"]["tokens_per_step"]["text"]["value"] in tex for point in shown["points"])
        digits = {len(p["values"]["tokens_per_step"]["text"]["value"].partition(".")[2]) for p in shown["points"]}
        assert digits == {2}, "one rule for a column"
        runs = [run["params"] for point in shown["points"] for run in point["runs"]]
        assert runs and all(" = " in params for params in runs)
        assert client.get(f"/api/lab/results/{key}/download?format=md").text.count("\n|") >= 3
        assert client.get(f"/api/lab/results/{key}/download?format=exe").status_code == 422
        assert client.get("/api/lab/results/none").status_code == 404
        assert client.post("/api/lab/remove", json={"id": key}).json() == {"done": True}


def test_other_work_wait_for_runs_and_give_back_what_happens() -> None:
    runner = Runner(TraceStore())
    order: list[str] = []
    gate = threading.Event()

    def errand(name: str) -> str:
        if name == "first":
            gate.wait(WAIT_S)
        order.append(name)
        return name

    threads = [threading.Thread(target=runner.on_worker, args=(lambda: errand("first"),))]
    threads[0].start()
    until(lambda: "cpu" in runner._workers and not runner._other_work["cpu"], "the first errand has begun")
    threads.append(threading.Thread(target=runner.on_worker, args=(lambda: errand("second"),)))
    threads[1].start()

    def build(_: threading.Event) -> Any:
        order.append("run")
        raise ValueError("no run")

    until(lambda: runner._other_work["cpu"], "the second errand waits")
    job = runner.submit(build)
    gate.set()
    for thread in threads:
        thread.join(WAIT_S)
    assert job.finished.is_set() and order == ["first", "run", "second"]
    with pytest.raises(ZeroDivisionError):
        runner.on_worker(lambda: 1 / 0)
    assert runner.on_worker(lambda: 7) == 7  # the worker goes on
    runner.close()
    with pytest.raises(QueueFull):
        runner.on_worker(lambda: 7)
