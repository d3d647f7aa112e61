"""Experiments spread over workers: the same rows as in one process, refused where anything is another, gone on with."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from decoders import Target, load_target, methods
from decoders.drafters.sps import COMPANION
from decoders.errors import UserError
from decoders.model.files.catalog import precision_of
from decoders.prompt.files import PromptRecord
from decoders.trace import files as tracefile
from specviz import cli
from specviz.places import BUNDLED
from specviz.server.limits import Rules
from specviz.views.prompts import cases, records
from specviz.workers.folder import UNITS, ResultFolder
from specviz.workers.kinds import Workers
from specviz.workers.sweep import Standing
from specviz.workers.work import WorkerRefused
from tests import recordings
from tests.command import refusal
from tests.models import tiny_target
from tests.standin import Here
from tests.stubs import at_work, gallery_desk
from tests.tiers import matrix
from tests.waiting import WAIT_S, until

from ..experiments import Results, plan, recipes, run_experiment
from ..experiments.batch import batch
from ..experiments.experiment import Experiment, Line, Row
from ..experiments.free import free
from ..experiments.plan import Plan
from ..experiments.running import begin
from ..experiments.spread import Spread, list_in_lab, run_file, spread
from ..experiments.units import (
    Opening,
    about_of,
    case_from_json,
    case_to_json,
    experiment_of,
    open_experiment,
    parts_of,
    units_of,
)
from ..page.requests import ExperimentRequest
from .rows import counted_alone

pytestmark = pytest.mark.usefixtures("home")

SWEEP = replace(
    free(["pld", "recycling"], {}, {"k": "2, 4"}, ("tokens_per_step", "speedup")), prompts="examples", max_new_tokens=8
)
BATCH = replace(batch([("pld", {}), ("glide", {})], 1), max_new_tokens=8)
OPENING = Opening(str(BUNDLED))


@pytest.fixture(scope="module")
def target() -> Target:
    return load_target(str(BUNDLED))


@pytest.fixture
def here(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers are in this process, and find the model opened."""
    monkeypatch.setattr(Workers, "pool", lambda workers, job: Here(job))
    monkeypatch.setattr("decoders.load_target", lambda *_, **__: target)


def planned_of(target: Target, experiment: Experiment = SWEEP, count: int = 3) -> Plan:
    return plan(target, experiment, cases(target.tokenizer, records("examples", count, toy=True)))


def make(target: Target, place: Path, experiment: Experiment = SWEEP, count: int = 3, **more: Any) -> Spread:
    workers = more.pop("workers", Workers(2, threads=1))
    return spread(target, planned_of(target, experiment, count), workers, OPENING, str(place), **more)


# --- equal rows ---


@pytest.mark.cluster("two processes open a model")
def test_rows_of_two_processes_are_those_of_one(target: Target, tmp_path: Path) -> None:
    here = run_experiment(target, planned_of(target))
    there = make(target, tmp_path / "results").run()
    assert there.about["state"] == "complete" and counted_alone(there.rows) == counted_alone(here.rows)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("experiment", matrix([SWEEP, BATCH], 1, "a batch, too"), ids=["sweep", "batch"])
def test_rows_are_those_of_a_run_without_workers(target: Target, tmp_path: Path, experiment: Experiment) -> None:
    here = run_experiment(target, planned_of(target, experiment))
    there = make(target, tmp_path / "results", experiment).run()
    assert there.about["state"] == "complete" and not there.failures
    first = [row for row in here.rows if row.get("repeat", 1) == 1]  # a disturbed machine makes batches measure more
    assert counted_alone([row for row in there.rows if row.get("repeat", 1) == 1]) == counted_alone(first)
    kept = Results.load(tmp_path / "results")
    assert [row["series"] for row in kept.rows] == [row["series"] for row in there.rows]
    for row in there.rows:
        if row["trace"]:
            trace = tracefile.load(tmp_path / "results" / "traces" / f"{row['trace']}.spectrace")
            assert trace.run["id"] == row["trace"] and len(trace.output_ids) == row["tokens"]


@pytest.mark.slow("the same experiment once whole and once unit by unit")
@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("experiment", [SWEEP, BATCH], ids=["sweep", "batch"])
def test_a_unit_decodes_every_turn_of_its_prompt(target: Target, tmp_path: Path, experiment: Experiment) -> None:
    asked = [PromptRecord(name, "x", turns=turns) for name, turns in (("a", ("The lamp.", "Again.")), ("b", ("No.",)))]
    planned = plan(target, experiment, cases(target.tokenizer, asked))
    here = [row for row in run_experiment(target, planned).rows if row.get("repeat", 1) == 1]
    there = spread(target, planned, Workers(1), OPENING, str(tmp_path / "results")).run()
    assert there.about["workers"]["units"] == 2
    first = [row for row in there.rows if row.get("repeat", 1) == 1]
    assert counted_alone(first) == counted_alone(here) and {row["turn"] for row in first} == {1, 2}


@pytest.mark.usefixtures("here")
def test_what_a_method_keeps_it_keeps_within_a_unit(target: Target, tmp_path: Path) -> None:
    """Else the rows would depend on what else a worker did."""
    warm = replace(free(["recycling"], {"warm": "yes"}, {}, ("tokens_per_step",)), max_new_tokens=24)
    whole = planned_of(target, warm)
    together = spread(target, whole, Workers(1), OPENING, str(tmp_path / "all")).run().rows
    apart: list[Row] = []
    for case in whole.cases:
        alone = replace(whole, cases=(case,))
        apart += spread(target, alone, Workers(1), OPENING, str(tmp_path / case.id)).run().rows
    assert counted_alone(together) == counted_alone(apart)


# --- what a unit is ---


@pytest.mark.parametrize("kind", ["examples", "turns", "quotes"])
def test_prompts_are_the_same_after_json(target: Target, kind: str) -> None:
    for case in cases(target.tokenizer, records(kind, 4, toy=True)):
        data = json.loads(json.dumps(case_to_json(case)))
        again = case_from_json(data)
        assert (
            json.loads(json.dumps(case_to_json(again))) == data
            and again.prompt.tokens == case.prompt.tokens
            and again.gold == case.gold
        )


def test_every_recipe_is_the_same_after_json(target: Target) -> None:
    for name, recipe in recipes().items():
        try:
            planned = plan(target, replace(recipe, count=1), cases(target.tokenizer, records("demo", 1, toy=True)))
        except UserError:
            continue  # it cannot run on this target
        about = json.loads(json.dumps(about_of(target, planned, OPENING)))
        experiment, settings = experiment_of(about)
        assert settings == planned.settings, name
        assert (experiment.measure, experiment.look) == (recipe.measure, recipe.look)
        assert (experiment.baseline, experiment.trains) == (recipe.baseline, recipe.trains)


def keys_of(target: Target, experiment: Experiment = SWEEP) -> set[str]:
    planned = planned_of(target, experiment)
    return {unit.key for unit in units_of(planned, about_of(target, planned, OPENING))}


@pytest.mark.parametrize(
    "change",
    [
        {"max_new_tokens": 9}, {"temperature": 0.5}, {"axes": (replace(SWEEP.axes[0], values=(2, 5)),)},
        {"lines": (replace(SWEEP.lines[0], params={"max_ngram": 2}), SWEEP.lines[1])},
        {"metrics": ("tokens_per_step",)},
    ],
    ids=["length", "temperature", "values", "parameters", "plain decoding beside it"],
)  # fmt: skip
def test_whatever_determines_a_unit_makes_another_key(target: Target, change: dict[str, Any]) -> None:
    keys = [keys_of(target), keys_of(target, replace(SWEEP, **change))]
    assert len(keys[0]) == len(keys[1]) == 3 and not keys[0] & keys[1]


def test_weights_of_fewer_bits_make_another_key(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their runs are of another model, whose file is the same."""

    before = keys_of(target)
    monkeypatch.setitem(target.info, "weights", "int8")
    assert before and not before & keys_of(target)


def test_results_say_a_models_precision(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(target.info, "weights", "int4")
    monkeypatch.setitem(target.info, "activations", "int8")
    assert precision_of(begin(planned_of(target), target).about["model"]) == "int4 with int8 rows"


def test_what_does_not_determine_it_makes_no_other_key(target: Target) -> None:
    """More prompts, another title, more metrics of the same runs, where the model lies and how many threads it has."""
    planned, more = planned_of(target), planned_of(target, replace(SWEEP, title="Other"), count=4)
    here = units_of(planned, about_of(target, planned, OPENING))
    there = units_of(more, about_of(target, more, Opening("/elsewhere", device="cpu")))
    assert [unit.key for unit in here] == [unit.key for unit in there[:3]]


PART_OF = {n: m.part.kind.name for n, m in methods().items() if m.part is not None and m.part.owner is None}


@pytest.mark.parametrize("method", PART_OF)
def test_every_part_that_is_drafted_with_determines_a_unit(
    target: Target, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else rows of a head that was trained again would stand beside those of the one before."""
    kind = PART_OF[method]
    (tmp_path / "part.safetensors").write_bytes(b"first")
    monkeypatch.setattr("decoders.parts.find_part", lambda key, asked: tmp_path if asked == kind else None)
    experiment = Experiment("one", "One", (Line("It", method),))
    settings = experiment.settings(target.info)
    first = parts_of(target, experiment, settings)
    assert list(first) == [kind] and first[kind]
    (tmp_path / "part.safetensors").write_bytes(b"other")
    assert parts_of(target, experiment, settings)[kind] != first[kind]


def test_parts_of_methods_that_are_merged_determine_a_unit(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "part.safetensors").write_bytes(b"first")
    monkeypatch.setattr("decoders.parts.find_part", lambda key, asked: tmp_path if asked == "glide" else None)
    experiment = Experiment("one", "One", (Line("It", "composite", {"drafters": "pld,glide"}),))
    first = parts_of(target, experiment, experiment.settings(target.info))
    (tmp_path / "part.safetensors").write_bytes(b"other")
    assert first["glide"] and parts_of(target, experiment, experiment.settings(target.info))["glide"] != first["glide"]


def test_methods_name_the_parts_they_draft_with() -> None:
    """Of a model without parts every method that wants one says the command of its kind."""
    target = tiny_target("llama")
    wanting = {name: reason for name, method in methods().items() if (reason := method.missing(target))}
    for name, reason in wanting.items():
        if name in PART_OF:
            ways = (f"`specviz train {PART_OF[name]}`", "`specviz parts add PLACE --model M`", "Open a model that was")
            assert any(way in reason for way in ways), name
    assert set(wanting) - set(PART_OF) <= {"sps+ppd"}


def test_an_offered_draft_model_is_that_of_sps_alone(target: Target, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    target.companions[COMPANION] = str(tmp_path)
    try:
        told = {
            name: parts_of(target, experiment, experiment.settings(target.info))
            for name in ("sps", "sps+ppd", "glide")
            for experiment in [Experiment("one", "One", (Line("It", name),))]
        }
    finally:
        del target.companions[COMPANION]
    assert told["sps"] == told["sps+ppd"] and told["sps"]["drafter"]
    assert list(told["glide"]) == ["glide"] and told["glide"]["glide"] != told["sps"]["drafter"]


def test_what_a_published_head_holds_determines_a_unit(target: Target, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin").write_bytes(b"first")
    experiment = Experiment("one", "One", (Line("It", "eagle2", {"part": str(tmp_path)}),))
    first = parts_of(target, experiment, experiment.settings(target.info))
    (tmp_path / "pytorch_model.bin").write_bytes(b"other")
    assert first and first != parts_of(target, experiment, experiment.settings(target.info))


# --- refused ---


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda wanted: {"code": "0" * 24}, "another version of the code"),
        (lambda wanted: {"model": {**wanted["model"], "key": "0" * 24}}, "opened another model"),
        (lambda wanted: {"parts": {"glide": "0" * 24}}, "other trained parts"),
        (lambda wanted: {"calibration": "0" * 24}, "other trained parts"),
    ],
    ids=["code", "model", "parts", "calibration"],
)
def test_a_worker_that_is_not_alike_refuses(target: Target, change: Any, words: str) -> None:
    about = about_of(target, planned_of(target, BATCH), OPENING)
    wanted: Mapping[str, Any] = {**about["determined"], **change(about["determined"])}
    assert about["determined"]["parts"].keys() == {"glide"}
    with pytest.raises(WorkerRefused, match=words):
        open_experiment({**about, "determined": wanted, "threads": 1})


@pytest.mark.usefixtures("here")
def test_results_are_not_mixed(target: Target, tmp_path: Path) -> None:
    place = tmp_path / "results"
    first = make(target, place, count=1, workers=Workers(1, threads=1)).run()
    with pytest.raises(UserError, match=r"holds results \(1 finished unit\): add --resume"):
        make(target, place)
    with pytest.raises(UserError, match="holds results of own, and this is batch"):
        make(target, place, BATCH, resume=True)
    heard: list[Standing] = []
    second = make(target, place, count=2, resume=True).run(heard.append)
    assert second.id == first.id and len(second.rows) == 2 * len(first.rows)
    assert second.rows[: len(first.rows)] == first.rows and heard[-1].before == 1 and heard[-1].done == 2


@pytest.mark.usefixtures("here")
def test_what_was_stopped_is_gone_on_with(target: Target, tmp_path: Path) -> None:
    cancel = threading.Event()

    def tell(progress: Standing) -> None:
        if progress.done:
            cancel.set()

    one = Workers(1, threads=1)
    stopped = make(target, tmp_path / "results", workers=one).run(tell, cancel)
    done = len(list((tmp_path / "results" / UNITS).iterdir()))
    assert stopped.about["state"] == "cancelled" and 1 <= done < 3 and stopped.rows
    assert Results.load(tmp_path / "results").about["state"] == "cancelled"
    whole = make(target, tmp_path / "results", workers=one, resume=True).run()
    assert whole.about["state"] == "complete" and {row["prompt"] for row in whole.rows} > {
        row["prompt"] for row in stopped.rows
    }


# --- the commands ---


@pytest.mark.cluster("two processes open a model, three times")
def test_the_lab_command_spreads_and_lists(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "results"
    command = ["lab", "--method", "pld", "--vary", "k=2,4", "--count", "2", "--max-new-tokens", "8", "--threads", "1"]
    assert cli.main([*command, "--workers", "2", "--results", str(place)]) == 0
    told = capsys.readouterr()
    assert "Draft length" in told.out and f"kept in {place}" in told.err
    (listed,) = (tmp_path / "home" / "lab").iterdir()
    results = Results.load(listed)
    assert results.about["state"] == "complete" and len(results.rows) == 4
    data = run_file(tmp_path / "home" / "lab", results.rows[0]["trace"])
    assert data is not None and tracefile.load(data).run["id"] == results.rows[0]["trace"]
    assert run_file(tmp_path / "home" / "lab", "0" * 24 + "-1") is None
    assert "add --resume" in refusal(capsys, *command, "--workers", "2", "--results", place)
    assert cli.main([*command, "--results", str(place), "--resume"]) == 0


@pytest.mark.usefixtures("here")
def test_the_bench_command_spreads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "t.csv"
    command = ["bench", "--methods", "pld", "--limit", "2", "--repeats", "1", "--max-new-tokens", "8", "--threads", "1"]
    assert cli.main([*command, "--workers", "1", "--out", str(table), "--metric", "tokens_per_step"]) == 0
    assert "pld" in table.read_text() and "kept in" in capsys.readouterr().err
    peers = refusal(capsys, *command, "--workers", 1, "--peers")
    assert "--peers, --no-trace and --html are for runs in one process" in peers


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--resume"], "--resume needs --results"),
        (["--on", "slurm"], "several tasks on one results folder"),
        (["--slurm", "partition=gpu"], "several tasks on one results folder"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert words in refusal(capsys, "lab", "--method", "pld", *options)


@pytest.mark.cluster("a command and its worker open a model")
def test_ctrl_c_stops_and_says_how_to_go_on(tmp_path: Path) -> None:
    root, place = Path(__file__).resolve().parents[4], tmp_path / "results"
    command = [
        sys.executable, "-m", "specviz.cli", "lab", "--method", "pld", "--vary", "k=2,4,6,8", "--count", "40",
        "--prompts", "demo:sums", "--max-new-tokens", "64", "--threads", "1", "--workers", "1", "--yes",
        "--results", str(place),
    ]  # fmt: skip
    running = subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": str(root)}, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
        text=True, start_new_session=True, cwd=tmp_path,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background job ignores it
    )  # fmt: skip
    try:
        until(lambda: ResultFolder(place).list_units()[0] or running.poll() is not None, "a unit is done")
        os.killpg(running.pid, signal.SIGINT)  # as a terminal does: the workers hear it, too
        _, told = running.communicate(timeout=WAIT_S)
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
    assert running.returncode == 130 and "Traceback" not in told, told
    assert re.search(rf"stopped: \d+ of 40 units finished.* --results {re.escape(str(place))} --resume", told), told
    assert Results.load(place).about["state"] == "cancelled"


# --- the page ---


def test_the_page_has_workers_do_it_and_opens_their_runs(here: None, target: Target, tmp_path: Path) -> None:
    asked = ExperimentRequest(
        free={"methods": ["pld"], "vary": [{"param": "k", "values": "2,4"}]}, prompts="examples", count=2,  # pyright: ignore
        max_new_tokens=8, workers=2,
    )  # fmt: skip
    with at_work(gallery_desk(target, {"shown": recordings.chain()})) as desk:
        lab = desk.services["lab"]
        assert "processes" in lab.catalog()["workers"]
        key = lab.start(asked, "ada")["id"]
        shown = until(lambda: (now := lab.show(key))["state"] == "complete" and now, "the experiment is complete")
        assert shown["rows"] == 4 and not shown["errors"]
        trace = shown["points"][1]["runs"][0]["trace"]
        assert lab.bring(trace) and desk.store.get(trace).run["id"] == trace
        assert lab.folder.joinpath(key, UNITS).is_dir()
        with pytest.raises(UserError, match="several tasks on one results folder"):
            lab.start(asked.model_copy(update={"on": "slurm"}), "ada")
        desk.keep_to(Rules(public=True))
        assert lab.catalog()["workers"] == {}
        with pytest.raises(UserError, match="on a server of one's own only"):
            lab.start(asked, "ada")


def test_results_elsewhere_open_in_the_lab(here: None, target: Target, tmp_path: Path) -> None:
    ready = make(target, tmp_path / "elsewhere", count=1)
    rows = ready.run().rows
    list_in_lab(ready)
    with at_work(gallery_desk(target, {"shown": recordings.chain()})) as desk:
        lab = desk.services["lab"]
        assert [about["id"] for about in lab.listing("")] == [ready.results.id]
        assert lab.show(ready.results.id)["rows"] == len(rows)
        assert lab.bring(rows[0]["trace"]) and not lab.bring("0" * 24 + "-1")
