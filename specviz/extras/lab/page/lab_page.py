"""The lab of a server: experiments in the background, one after another, kept on disk with their runs."""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cachetools import FIFOCache
from fastapi import Response

from decoders.errors import UserError
from decoders.method.kept import owned_by
from decoders.names import BASELINE
from decoders.trace import files as tracefile
from specviz.pages.acceptance.judging import RunJudgement
from specviz.places import home, is_id
from specviz.server.bodies import Id, Listed
from specviz.server.desk import Desk, Service, get, post
from specviz.server.forms import Missing, Refusal, RunSettings
from specviz.server.http import Owner, attachment
from specviz.server.library import JournaledRun
from specviz.server.runner import QueueFull
from specviz.server.store import EVERYBODY, NOBODY, UnknownTrace
from specviz.server.tasks import Task, Tasks
from specviz.shell.assets import plotly
from specviz.views.examples import SAMPLES, TASKS
from specviz.views.prompts import NAMES, SETS, Case
from specviz.words import sentence
from specviz.workers.kinds import Workers
from specviz.workers.sweep import Standing

from ..experiments.batch import NAME
from ..experiments.grids import to_file_text
from ..experiments.plan import Plan, pace, plan
from ..experiments.recipe_files import papers, recipes
from ..experiments.results import ABOUT, Results, read_about
from ..experiments.running import begin, run_experiment
from ..experiments.shipped import SHIPPED, example
from ..experiments.spread import spread
from ..experiments.tables import describe
from ..experiments.units import Opening
from .display import (
    draw,
    end_state,
    gallery_card,
    latest_rows,
    listed_card,
    metrics_shown,
    progress_shown,
    recipe_card,
    recorded_cards,
)
from .pictures import pictures
from .requests import ExperimentRequest, cases_of, experiment_of, worker_kinds, workers_of
from .storage import LATEST, OWNER, SavedResults, find_run, place_of, trim

if TYPE_CHECKING:
    from decoders.trace.trace import Trace

log = logging.getLogger(__name__)

MAX_WAITING = 6
SAVE_SHARE = 0.02  # of an experiment's time, at most, is spent on saving its rows
MAX_UNSAVED = 8  # results that the disk refused, kept in memory
MAX_EXPERIMENTS, MAX_PUBLIC_RUNS = 2, 100  # of one user at a time, of one experiment
KINDS = {  # format → how its files' names end, and their type
    "csv": ("csv", "text/csv; charset=utf-8"), "json": ("json", "application/json"), "zip": ("zip", "application/zip"),
    "table": ("table.csv", "text/csv; charset=utf-8"), "tex": ("tex", "application/x-tex; charset=utf-8"),
    "md": ("md", "text/markdown; charset=utf-8"), "parquet": ("parquet", "application/vnd.apache.parquet"),
}  # fmt: skip
TABLES = {"table": "csv", "tex": "tex", "md": "md"}


@dataclass(eq=False, kw_only=True)
class Active(Task):
    """An experiment that waits or goes on."""

    planned: Plan
    results: Results
    saved: SavedResults
    progress: Standing | None = None
    save_again: float = 0.0  # by the monotonic clock
    workers: Workers | None = None  # that do it, in place of the app's own model


class Lab(Service):
    """Plans, runs, keeps and finds experiments: a folder each in ``folder``, those that come along in ``shipped``."""

    name, title, order = "lab", "Lab", 50
    lists_tools = True
    shipped = SHIPPED
    cannot = "The lab cannot"

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._tasks = Tasks[Active]("experiments", "this experiment is over", limit=0)
        self._unsaved: FIFOCache[str, SavedResults] = FIFOCache(MAX_UNSAVED)
        self._owners: dict[str, str] = {}
        self._change = threading.Lock()
        self._pace: float | None = None

    def model_changed(self) -> None:
        self._pace = None

    @property
    def folder(self) -> Path:
        return home() / "lab"

    # --- what there is ---

    @get("gallery")
    def gallery(self) -> dict[str, Any]:
        """Everything that comes along, small, and the tools: no model, method or user's result is asked for it."""
        return {
            "papers": {name: asdict(paper) for name, paper in papers().items()},
            "recipes": [gallery_card(experiment) for experiment in recipes().values()],
            "pictures": pictures(self.shipped),
            "tools": [{"name": page.name, "title": page.tool, "about": page.about}
                      for page in self.desk.services.values() if page.tool],
        }  # fmt: skip

    @get()
    def catalog(self, owner: Owner = "") -> dict[str, Any]:
        """Recipes and methods with their parameters, prompt sets, metrics and earlier results, as JSON."""
        target = self.desk.loader.target
        info = target.info if target is not None else {}
        methods = self.desk.catalog()
        available = {m["name"] for m in methods["methods"] if not m["missing"]}
        return {
            "recipes": [recipe_card(experiment, info, available) for experiment in recipes().values()],
            "batch": {"name": NAME, "prompts": "examples", "count": 12, "max_new_tokens": 96, "repeats": 3},
            "methods": methods["methods"], "verifiers": methods["verifiers"],
            "reason": methods["reason"],
            "metrics": metrics_shown(),
            "sets": SETS, "samples": list(SAMPLES),
            "tasks": {name: NAMES.get(name, name) for name in TASKS},
            "results": self.listing(owner),
            "recorded": recorded_cards(self.shipped),
            "plotly": plotly(),
            "workers": worker_kinds(self.desk.rules),
        }  # fmt: skip

    def listing(self, owner: str) -> list[dict[str, Any]]:
        """Results that ``owner`` may see in a list, the newest first."""
        self._save_unsaved()
        live = [active.results.about for active in self._tasks.all() if active.owner == owner]
        with self._change:
            unsaved_abouts = [entry.results.about for entry in self._unsaved.values() if entry.owner == owner]
        live += [about for about in unsaved_abouts if about not in live]
        saved_cards = []
        for path in self.folder.glob(f"*/{ABOUT}") if self.folder.is_dir() else ():
            key = path.parent.name
            if any(about["id"] == key for about in live) or not path.is_file():
                continue
            if self._owner(key) in (EVERYBODY, owner):
                with contextlib.suppress(UserError):
                    about = read_about(path)
                    saved_cards.append({**about, "id": key, "state": end_state(about)})
        return sorted(map(listed_card, [*live, *saved_cards]), key=lambda about: str(about["created"]), reverse=True)

    def _place(self, key: str) -> Path | None:
        """The folder or file of kept results, own ones or such that come along; None where there are none."""
        return place_of(key, self.folder, self.shipped) if is_id(key) else None

    def _owner(self, key: str) -> str:
        """The owner of these results: on a server of one's own, those of earlier servers are everybody's."""
        if key in self._owners or not self.desk.rules.is_shared:
            return self._owners.get(key, EVERYBODY)
        path = self.folder / key / OWNER
        with contextlib.suppress(OSError, UnicodeDecodeError):
            return (path.is_file() and path.read_text(encoding="utf-8")) or NOBODY
        return NOBODY

    # --- what may be asked ---

    def plan(self, request: ExperimentRequest, target: Any) -> Plan:
        """The experiment that a page describes, checked for a model. Raises UserError with a sentence."""
        methods = self.desk.methods()
        experiment = experiment_of(request, methods)
        experiment.check(methods, target.info)
        return plan(target, experiment, cases_of(request, experiment, self.desk, target), methods)

    def check(self, run_plan: Plan, own_count: int) -> None:
        """Raises Refusal where an experiment is too much for a shared server; ``own_count`` go on."""
        rules = self.desk.rules
        if not rules.is_shared:
            return
        self.desk.check_size("", run_plan.experiment.max_new_tokens)
        if own_count >= MAX_EXPERIMENTS:
            raise Refusal("queue", f"{own_count} of your experiments wait or go on: wait until one is over.", 30)
        if rules.public and run_plan.variants:
            raise Refusal("method", "Nothing is trained on a public server: run this experiment on one of your own.")
        if rules.public and run_plan.runs > MAX_PUBLIC_RUNS:
            raise Refusal(
                "method",
                f"This is {run_plan.runs:,} runs, and an experiment on a public server has at most {MAX_PUBLIC_RUNS}: "
                "take fewer prompts or values.",
            )

    @post("estimate")
    def estimate(self, request: ExperimentRequest) -> dict[str, Any]:
        """Count the runs and estimate their time; "asks" is the question to be answered before it is started."""
        target = self.desk.target()
        run_plan = self.plan(request, target)
        per_token = self._pace or pace(target)
        return {
            "runs": run_plan.runs, "seconds": run_plan.seconds(per_token), "cases": len(run_plan.cases),
            "text": run_plan.text(per_token),
            "asks": run_plan.asks(per_token), "notes": list(run_plan.notes),
        }  # fmt: skip

    @post("start")
    def start(self, request: ExperimentRequest, owner: Owner = "") -> dict[str, Any]:
        """Queue an experiment: {"id"}, or {"asks": question} where it is long and "yes" was not said."""
        target = self.desk.target()
        run_plan = self.plan(request, target)
        self.check(run_plan, sum(active.owner == owner for active in self._tasks.all()))
        question = run_plan.asks(self._pace or pace(target))
        if question and not request.yes:
            return {"asks": question}
        results = begin(run_plan, target)
        results.about["state"] = "queued"
        active = Active(
            id=results.id, owner=owner, planned=run_plan, results=results, workers=workers_of(request, self.desk.rules),
            saved=SavedResults(results, self.folder / results.id, owner),
        )  # fmt: skip
        self._owners[results.id] = owner
        self._tasks.begin(active, lambda active: self._work(active, target), _check_room)
        return {"id": results.id}

    @post("cancel")
    def cancel(self, id: Id, owner: Owner) -> bool:
        """Stop an experiment of ``owner``; what is done is kept. Whether there was one."""
        return self._tasks.cancel(id, owner)

    @post("remove")
    def remove(self, id: Id, owner: Owner) -> bool:
        """Delete kept results with their runs. Whether they were there and may be deleted by ``owner``."""
        with self._change:
            is_owner = self._owner(id) in (EVERYBODY, owner)
            exists = is_id(id) and (id in self._unsaved or (self.folder / id / ABOUT).is_file())
            if self._tasks.get(id) is not None or not is_owner or not exists:
                return False
            self._unsaved.pop(id, None)
        shutil.rmtree(self.folder / id, ignore_errors=True)
        return True

    def close(self) -> None:
        """Stop everything; what is done is kept."""
        self._tasks.close()
        self._save_unsaved()

    # --- what came out ---

    def results(self, key: str) -> Results:
        """Results by id, those that are still growing too (as they are now). Raises Missing."""
        if (active := self._tasks.get(key)) is not None:
            rows = list(active.results.rows)
            arrange = active.planned.experiment.arrange
            return Results(dict(active.results.about), arrange(rows) if arrange is not None and rows else rows)
        with self._change:
            if (entry := self._unsaved.get(key)) is not None:
                return Results(dict(entry.results.about), list(entry.results.rows))
        place = self._place(key)
        if place is None:
            raise Missing(f"there are no results called {key[:40]!r} here: deleted, or made on another server")
        results = Results.load(place) if place.is_dir() else example(place)
        results.rows += latest_rows(place / LATEST, len(results.rows))
        results.about |= {"id": key, "state": end_state(results.about), "shipped": place.parent == self.shipped}
        return results

    @get("results/{key}")
    def show(self, key: str, metrics: Listed = (), have: int = -1) -> dict[str, Any]:
        """Results as a page draws them; without charts where it ``have`` so many rows already. Raises Missing."""
        results = self.results(key)
        active = self._tasks.get(key)
        waiting = (place for place, task in enumerate(self._tasks.all()) if task.id == key and task.state == "queued")
        document = {
            "id": key, "state": results.about["state"], "rows": len(results.rows), "about": results.about,
            "ahead": next(waiting, 0), "progress": progress_shown(active.progress if active is not None else None),
            "total": results.about["runs"],
        }  # fmt: skip
        return document if len(results.rows) == have else document | draw(results, metrics or results.about["metrics"])

    @get("results/{key}/download")
    def download(self, key: str, format: str = "csv", metrics: Listed = (), table: str = "tasks") -> Response:
        """Runs as csv, parquet, json or zip; tables as table, tex or md, a batch's in the form ``table`` names."""
        if format not in KINDS:
            raise UserError(f"The format {format[:40]!r} is unknown: use one of {', '.join(KINDS)}.")
        results = self.results(key)
        suffix, media = KINDS[format]
        makers: dict[str, Callable[[], str | bytes]] = {
            "csv": results.to_csv,
            "json": lambda: json.dumps(describe(results), ensure_ascii=False),
            "zip": results.to_zip,
            "parquet": results.to_parquet,
        }
        if format in makers:
            data = makers[format]()
        else:
            data = to_file_text(results, TABLES[format], metrics or None, field=table == "field")
        return attachment(data, media, f"{results.about['name']}-{key}.{suffix}")

    @get("judged/{key}")
    def judgements(self, key: str, series: str = "") -> dict[str, Any]:
        """All runs of one line of an experiment's results under every verifier, as the page "Compare" says it of chosen
        ones, and the ``lines`` whose runs hold drafts; its ``faults`` say which runs could not be read or judged.
        Raises Missing; Refusal where no line has runs.
        """
        rows = [row for row in self.results(key).rows if row.get("trace") and row.get("method") != BASELINE]
        lines = [*dict.fromkeys(str(row.get("series") or "") for row in rows)]
        line_name = series if series in lines else next(iter(lines), "")
        ids = [str(row["trace"]) for row in rows if str(row.get("series") or "") == line_name]
        if not ids:
            raise Refusal("runs", "No run of these results is here: its drafts cannot be judged.")

        def read(run: str) -> Trace | RunJudgement:
            try:
                return self.desk.store.get(run) if run in self.desk.store else self.read_run(run)
            except UnknownTrace:
                return RunJudgement(f"Run {run}", fault="its recording is not here any more, or cannot be read")

        return {**self.desk.services["acceptance"].pool(ids, read, lambda _: True), "lines": lines, "line": line_name}

    def bring(self, trace: str) -> bool:
        """Put a run of an experiment into the store, so that Inspect can open it. Whether there is such a run."""
        try:
            run_trace = self.read_run(trace)
        except UnknownTrace:
            return False
        self.desk.store.put(run_trace, kind="opened", owner="")
        return True

    def read_run(self, trace: str) -> Trace:
        """A run of an experiment from the disk. Raises UnknownTrace where there is none, or it cannot be read."""
        file = find_run(trace, self.folder, self.shipped) if is_id(trace) else None
        if file is None:
            raise UnknownTrace(trace)
        try:
            run_trace = tracefile.load(file)
        except tracefile.TraceError as problem:
            log.warning("%s", problem)
            raise UnknownTrace(trace) from problem
        run_trace.run["id"] = trace
        return run_trace

    # --- the worker ---

    def _work(self, active: Active, target: Any) -> bool:
        """Run an experiment; what came of it is kept."""
        try:
            with owned_by(active.owner):
                self._run(active, target)
        except Exception as problem:
            log.exception("experiment %s failed", active.id)
            active.results.about["state"] = "error"
            active.results.about["notes"].append(sentence(problem))
            self._save(active)
        trim(self.folder, self._owners)
        return True

    def _run(self, active: Active, target: Any) -> None:
        results, run_plan = active.results, active.planned
        folder = self.folder / results.id
        experiment = run_plan.experiment
        results.about["state"] = "running"
        self._save(active)

        def keep(trace: Trace) -> None:
            if not active.saved.keep(trace):
                self.desk.store.put(trace, owner=active.owner)

        def report(progress: Standing) -> None:
            active.progress = progress
            if time.monotonic() >= active.save_again:
                self._save(active)
            else:
                active.saved.append()

        def make(
            case: Case, method: str, params: Mapping[str, Any], title: str, cancel: threading.Event, new: int
        ) -> Any:
            settings = RunSettings(max_new_tokens=new, temperature=experiment.temperature, length=experiment.length)
            run = self.desk.run_of(target, case.prompt, method, title, cancel, params=dict(params), settings=settings)
            return run if self.desk.library is None else JournaledRun(run, self.desk.library, active.owner)

        def on_worker(work: Any) -> Any:
            try:
                return self.desk.on_worker(work)
            except QueueFull:
                active.cancel.set()
                raise

        with contextlib.suppress(QueueFull):
            if active.workers is not None:
                opening = Opening(self.desk.loader.model, weights=self.desk.loader.weights)
                spread(
                    target, run_plan, active.workers, opening, str(folder), results=results, progress=report,
                    cancel=active.cancel,
                ).run(report, active.cancel)  # fmt: skip
            else:
                run_experiment(
                    target, run_plan, results, progress=report, cancel=active.cancel, keep=keep, make=make,
                    on_device=on_worker,
                )  # fmt: skip
        if results.about["state"] == "running":
            results.about["state"] = "cancelled"
        clock = results.about["seconds"] - results.about["trained_s"]
        runs = active.progress.done if active.progress is not None and not active.progress.trains else 0
        if run_plan.cases and runs >= 8 and active.workers is None and target is self.desk.loader.target:
            self._pace = max(1e-5, (clock / runs - 0.1) / experiment.max_new_tokens)
        self._save(active)

    def _save(self, active: Active) -> None:
        """Write what there is by now; where the disk refuses, the results stay in memory and say so."""
        start_time = time.monotonic()
        is_saved = active.saved.save(self.desk.store)
        with self._change:
            if is_saved:
                self._unsaved.pop(active.id, None)
            else:
                self._unsaved[active.id] = active.saved
        current_time = time.monotonic()
        active.save_again = current_time + (current_time - start_time) / SAVE_SHARE

    def _save_unsaved(self) -> None:
        """Write the results that only the memory has, where the disk takes them by now."""
        with self._change:
            over = {key: entry for key, entry in self._unsaved.items() if self._tasks.get(key) is None}
        for key, entry in over.items():
            if entry.save(self.desk.store):
                with self._change:
                    self._unsaved.pop(key, None)


def _check_room(going: Sequence[Active]) -> None:
    if (waiting := sum(task.state == "queued" for task in going)) >= MAX_WAITING:
        raise UserError(f"{waiting} experiments are waiting already: try again when one is over")
