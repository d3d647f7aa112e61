"""The lab of a server: experiments in the background, one after another, kept on disk with their runs."""

from __future__ import annotations

import contextlib
import logging
import shutil
import tempfile
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decoders.draft.params import controls
from decoders.errors import UserError
from specviz.experiments.batch import METRICS, MOST_REPEATS, NAME, batch
from specviz.experiments.experiment import PAPERS, Experiment, text_of
from specviz.experiments.figures import caption, charts
from specviz.experiments.free import free
from specviz.experiments.plan import Plan, Progress, duration, pace, plan
from specviz.experiments.prompts import NAMES, SETS, Case, cases, check_tokens, of_trace, read_file, records
from specviz.experiments.quantities import LEARNT, QUANTITIES, Breakdown, Profile
from specviz.experiments.recipes import find_recipe, recipes
from specviz.experiments.results import ABOUT, Results, columns_of, points, profile_table, read_about
from specviz.experiments.running import begin, run_experiment
from specviz.experiments.tables import checks, notes, tables, warnings
from specviz.server.runner import QueueFull, sentence
from specviz.server.store import EVERYBODY, SUFFIX, UnknownTrace, home, is_id

if TYPE_CHECKING:
    from decoders.trace.trace import Trace
    from specviz.server.desk import Desk

log = logging.getLogger(__name__)

MAX_WAITING = 6
MAX_RESULTS, MAX_BYTES = 40, 1 << 30
SAVE_EVERY_S = 5.0
TRACES, OWNER = "traces", "owner"
NOBODY = "nobody:"  # no user and no browser is called so
MAX_FILE = 4 << 20  # characters of a prompt file that is sent


@dataclass(eq=False)
class Active:
    """An experiment that waits or goes on."""

    planned: Plan
    results: Results
    owner: str
    cancel: threading.Event = field(default_factory=threading.Event)
    progress: Progress | None = None
    saved_at: float = 0.0


class Lab:
    """Plans, runs, keeps and finds experiments. ``folder`` holds one folder per experiment."""

    def __init__(self, desk: Desk, folder: Path | None = None) -> None:
        self.desk = desk
        self._folder = folder
        self._line: deque[Active] = deque()
        self._active: dict[str, Active] = {}
        self._owners: dict[str, str] = {}
        self._change = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closing = False
        self._pace: float | None = None

    @property
    def folder(self) -> Path:
        return self._folder or home() / "lab"

    # --- what there is ---

    def catalog(self, owner: str = "") -> dict[str, Any]:
        """Recipes, methods with their parameters, prompt sets, metrics and earlier results, as JSON."""
        target = self.desk.loader.target
        info = target.info if target is not None else {}
        methods = self.desk.catalog()
        available = {m["name"] for m in methods["methods"] if not m["missing"]}
        return {
            "papers": PAPERS,
            "recipes": [_recipe(experiment, info, available) for experiment in recipes().values()],
            "batch": {"name": NAME, "prompts": "examples", "count": 12, "max_new_tokens": 96, "repeats": 3},
            "methods": methods["methods"],
            "reason": methods["reason"],
            "metrics": [
                {
                    "key": q.key, "label": q.label, "formula": q.formula, "unit": q.unit, "help": q.help,
                    "parts": isinstance(q, Breakdown | Profile), "trained": q.key in LEARNT,
                }
                for q in QUANTITIES.values()
            ],
            "sets": SETS,
            "tasks": {name: NAMES.get(name, name) for name in _tasks()},
            "results": self.listing(owner),
        }  # fmt: skip

    def listing(self, owner: str) -> list[dict[str, Any]]:
        """Results that ``owner`` may see in a list, the newest first."""
        with self._change:
            live = [a.results.about for a in self._active.values() if a.owner == owner]
        found = []
        for path in self.folder.glob(f"*/{ABOUT}") if self.folder.is_dir() else ():
            key = path.parent.name
            if self._owner(key) in (EVERYBODY, owner) and not any(about["id"] == key for about in live):
                with contextlib.suppress(UserError):
                    about = read_about(path)
                    found.append({**about, "id": key, "state": _ended(about)})
        keys = ("id", "name", "title", "figure", "paper", "created", "state", "cases")
        listed = [{k: about.get(k) for k in keys} | {"model": about["model"].get("name")} for about in [*live, *found]]
        return sorted(listed, key=lambda about: str(about["created"]), reverse=True)

    def _owner(self, key: str) -> str:
        """Whose results these are: on a server of one's own, those of earlier servers are everybody's."""
        if key in self._owners or not self.desk.rules.shared:
            return self._owners.get(key, EVERYBODY)
        with contextlib.suppress(OSError, UnicodeDecodeError):
            return (self.folder / key / OWNER).read_text(encoding="utf-8") or NOBODY
        return NOBODY

    # --- what may be asked ---

    def planned(self, asked: Mapping[str, Any]) -> Plan:
        """The experiment that a page describes, checked. Raises UserError with a sentence.

        ``asked``: "recipe" (a name), or "free" {methods, fixed {param: value}, vary [{param, values}]}, or "batch"
        {lines [{method, params {param: value}}], repeats}; and "prompts"
        (a set's name, {"file": {name, text}} or {"trace": id}), "count", "max_new_tokens", "temperature", "metrics".
        """
        target = self.desk.loader.target
        if target is None:
            raise UserError(self.desk.catalog()["reason"] or "There is no model.")
        known = self.desk.methods()
        experiment = self._experiment(asked, known)
        experiment.check(known, target.info)
        return plan(target, experiment, self._cases(asked, experiment, target), known)

    def _experiment(self, asked: Mapping[str, Any], known: Mapping[str, Any]) -> Experiment:
        metrics = asked.get("metrics")
        if metrics is not None and not (isinstance(metrics, list) and all(isinstance(m, str) for m in metrics)):
            raise UserError("metrics are given as a list of their names")
        if isinstance(asked.get("batch"), Mapping):
            if asked.get("temperature") not in (None, "", 0):
                raise UserError("a batch is greedy, so that every output can be checked: leave the temperature out")
            wished = asked["batch"]
            repeats = _whole(wished, "repeats", 1, MOST_REPEATS, "repeats") or 3
            experiment = batch(_lines(wished.get("lines"), known), repeats, metrics or METRICS, known=known)
        elif isinstance(asked.get("free"), Mapping):
            wished = asked["free"]
            chosen, fixed, vary = wished.get("methods"), wished.get("fixed"), wished.get("vary")
            if not isinstance(chosen, list) or not all(isinstance(name, str) for name in chosen):
                raise UserError("methods are given as a list of their names")
            if not isinstance(fixed or {}, Mapping) or not isinstance(vary or [], list):
                raise UserError("fixed parameters are given as names and values, varied ones as a list")
            for name in chosen:
                _no_files(known, name, fixed or {})
            swept = {}
            for axis in vary or []:
                if not isinstance(axis, Mapping) or not isinstance(axis.get("param"), str):
                    raise UserError("a varied parameter is given as its name and its values")
                if axis["param"] in swept:
                    raise UserError(f"{axis['param']} is varied twice: choose another second parameter")
                swept[axis["param"]] = str(axis.get("values") or "")[:2000]
            experiment = free(chosen, dict(fixed or {}), swept, metrics or ("tokens_per_step",), known=known)
        else:
            experiment = find_recipe(str(asked.get("recipe") or ""))
        source = asked.get("prompts")
        if isinstance(source, Mapping):
            file = source.get("file")
            name = file.get("name") if isinstance(file, Mapping) else "the prompt of a recorded run"
            source = _short(name) if isinstance(name, str) else None
        changed: dict[str, Any] = {
            "count": _whole(asked, "count", 1, 5000, "prompts"),
            "max_new_tokens": _whole(asked, "max_new_tokens", 1, 4096, "new tokens"),
            "training_steps": _whole(asked, "training_steps", 1, 100_000, "training steps"),
            "metrics": tuple(metrics) if metrics else None,
            "prompts": source if isinstance(source, str) and source else None,
        }
        if asked.get("temperature") is not None:
            try:
                changed["temperature"] = float(asked["temperature"])
            except (TypeError, ValueError):
                changed["temperature"] = -1.0
            if not 0 <= changed["temperature"] <= 2:
                given = str(asked["temperature"])[:20]
                raise UserError(f"the temperature is {given!r}: a number from 0 to 2 is needed")
        return replace(experiment, **{name: value for name, value in changed.items() if value is not None})

    def _cases(self, asked: Mapping[str, Any], experiment: Experiment, target: Any) -> list[Case]:
        if experiment.measure is not None:
            return []
        wished = asked.get("prompts")
        if isinstance(wished, Mapping) and isinstance(wished.get("trace"), str):
            try:
                trace = self.desk.store.get(wished["trace"])
            except UnknownTrace as problem:
                raise UserError(str(problem)) from None
            if trace.run.get("model", {}).get("vocab") not in (None, target.info.get("vocab")):
                raise UserError("the run shown in Inspect was made by another model: choose other prompts")
            check_tokens(target, trace)
            return [of_trace(trace.run, trace.tables["tokens"])]
        if isinstance(wished, Mapping) and isinstance(wished.get("file"), Mapping):
            return cases(target.tokenizer, _sent(wished["file"], experiment.count))
        if experiment.prompts.partition(":")[0] not in SETS:  # a page names no files of this computer
            raise UserError(f"there are no prompts called {experiment.prompts[:60]!r}: choose of {', '.join(SETS)}")
        return cases(target.tokenizer, records(experiment.prompts, experiment.count))

    def estimate(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """How many runs it is and about how long; "asks" is the question to be answered before it is started."""
        planned = self.planned(asked)
        per_token = self._pace or pace(self.desk.loader.target)
        return {
            "runs": planned.runs, "seconds": planned.seconds(per_token), "cases": len(planned.cases),
            "text": planned.text(per_token),
            "asks": planned.asks(per_token), "notes": list(planned.notes),
        }  # fmt: skip

    def start(self, asked: Mapping[str, Any], owner: str = "") -> dict[str, Any]:
        """Queue an experiment: {"id"}, or {"asks": question} where it is long and "yes" was not said."""
        planned = self.planned(asked)
        with self._change:
            mine = sum(active.owner == owner for active in self._active.values())
        self.desk.check_experiment(planned, mine)
        question = planned.asks(self._pace or pace(self.desk.loader.target))
        if question and asked.get("yes") is not True:
            return {"asks": question}
        active = Active(planned, begin(planned, self.desk.loader.target), owner)
        active.results.about["state"] = "queued"
        with self._change:
            if self._closing:
                raise UserError("the server is going down")
            if len(self._line) >= MAX_WAITING:
                raise UserError(f"{len(self._line)} experiments are waiting already: try again when one is over")
            self._line.append(active)
            self._active[active.results.id] = active
            self._owners[active.results.id] = owner
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="experiments", daemon=True)
                self._thread.start()
            self._change.notify_all()
        return {"id": active.results.id}

    def cancel(self, key: str, owner: str) -> bool:
        """Stop an experiment of ``owner``; what is done is kept. Whether there was one."""
        with self._change:
            active = self._active.get(key)
            if active is None or active.owner != owner:
                return False
            active.cancel.set()
            if active in self._line:
                self._line.remove(active)
                del self._active[key]
                self._owners.pop(key, None)
        return True

    def remove(self, key: str, owner: str) -> bool:
        """Delete kept results with their runs. Whether they were there and may be deleted by ``owner``."""
        with self._change:
            mine = self._owner(key) in (EVERYBODY, owner)
            if not is_id(key) or key in self._active or not mine or not (self.folder / key / ABOUT).is_file():
                return False
        shutil.rmtree(self.folder / key, ignore_errors=True)
        return True

    def close(self) -> None:
        """Stop everything; what is done is kept."""
        with self._change:
            self._closing = True
            for active in self._active.values():
                active.cancel.set()
            self._change.notify_all()

    # --- what came out ---

    def results(self, key: str) -> Results:
        """Results by id, those that are still growing too (as they are now). Raises UserError."""
        with self._change:
            active = self._active.get(key)
            if active is not None:
                rows = list(active.results.rows)
                arrange = active.planned.experiment.arrange
                return Results(dict(active.results.about), arrange(rows) if arrange is not None and rows else rows)
        if not is_id(key) or not (self.folder / key / ABOUT).is_file():
            raise UserError(f"there are no results called {key[:40]!r} here: deleted, or made on another server")
        results = Results.load(self.folder / key)
        results.about |= {"id": key, "state": _ended(results.about)}
        return results

    def shown(self, key: str, metrics: list[str] | None = None, have: int = -1) -> dict[str, Any]:
        """Results as a page draws them; without charts where it ``have`` so many rows already. Raises UserError."""
        results = self.results(key)
        with self._change:
            active = self._active.get(key)
            ahead = self._line.index(active) + 1 if active is not None and active in self._line else 0
        about = results.about
        progress = active.progress if active is not None else None
        answer: dict[str, Any] = {
            "id": key, "state": about["state"], "rows": len(results.rows), "about": about, "ahead": ahead,
            "progress": progress and {
                "done": progress.done, "total": progress.total, "seconds": progress.seconds, "left_s": progress.left_s,
                "trains": progress.trains,
                "left": "" if progress.left_s is None else duration(progress.left_s),
            },
            "total": about["runs"],
        }  # fmt: skip
        if len(results.rows) == have:
            return answer
        wanted = metrics or about["metrics"]
        measured = results.columns
        answer["measured"] = [k for k in QUANTITIES if k in measured or any(c.startswith(f"{k}:") for c in measured)]
        if about.get("repeats"):
            return answer | _tabled(results, wanted)
        profiles = [q for m in wanted if isinstance(q := results.quantity(m), Profile)]
        rest = [m for m in [about.get("against"), *wanted] if m and not isinstance(results.quantity(m), Profile)]
        columns = [c for m in rest for c in columns_of(results.quantity(m), m, measured)]
        answer |= {
            "charts": [
                {"title": chart.title, "paper": chart.paper, "figure": chart.figure.to_json()}
                for chart in charts(results, wanted)
            ],
            "points": list(points(results, wanted)),
            "columns": [
                {"key": c, "label": c.split(":", 1)[1] if ":" in c else results.quantity(c).label,
                 "unit": results.quantity(c.split(":", 1)[0]).unit}
                for c in columns
            ],
            "profiles": [profile_table(results, profile) for profile in profiles],
            "caption": caption(results),
            **_told(results, wanted),
        }  # fmt: skip
        return answer

    def bring(self, trace: str) -> bool:
        """Put a run of an experiment into the store, so that Inspect can open it. Whether there is such a run."""
        from decoders.trace import files as tracefile

        if not is_id(trace):
            return False
        path = next(self.folder.glob(f"*/{TRACES}/{trace}{SUFFIX}"), None) if self.folder.is_dir() else None
        if path is None:
            return False
        try:
            found = tracefile.load(path)
        except tracefile.TraceError as problem:
            log.warning("%s", problem)
            return False
        found.run["id"] = trace
        self.desk.store.put(found, kind="opened", owner="")
        return True

    # --- the worker ---

    def _work(self) -> None:
        while True:
            with self._change:
                while not self._line and not self._closing:
                    self._change.wait()
                if self._closing:
                    return
                active = self._line.popleft()
            try:
                self._run(active)
            except Exception as problem:
                log.exception("experiment %s failed", active.results.id)
                active.results.about["state"] = "error"
                active.results.about["notes"].append(sentence(problem))
                with contextlib.suppress(OSError):
                    active.results.save(self.folder / active.results.id)
            with self._change:
                self._active.pop(active.results.id, None)
            self._trim()

    def _run(self, active: Active) -> None:
        target, results, planned = self.desk.loader.target, active.results, active.planned
        folder = self.folder / results.id
        device = str(target.info.get("device", "cpu"))
        experiment = planned.experiment
        results.about["state"] = "running"
        results.save(folder)
        with contextlib.suppress(OSError):
            (folder / OWNER).write_text(active.owner, encoding="utf-8")

        def keep(trace: Trace) -> None:
            from decoders.trace import files as tracefile

            try:
                (folder / TRACES).mkdir(exist_ok=True)
                tracefile.save(trace, folder / TRACES / f"{trace.run['id']}{SUFFIX}")
            except (tracefile.TraceError, OSError) as problem:
                log.warning("a run of experiment %s is not kept: %s", results.id, problem)

        def told(progress: Progress) -> None:
            active.progress = progress
            if time.monotonic() - active.saved_at > SAVE_EVERY_S:
                results.save(folder)
                active.saved_at = time.monotonic()

        def make(
            case: Case, method: str, params: Mapping[str, Any], title: str, cancel: threading.Event, new: int
        ) -> Any:
            from specviz.server.forms import RunSettings

            settings = RunSettings(max_new_tokens=new, temperature=experiment.temperature)
            return self.desk.run_of(
                target, case.prompt, method, title, cancel, params=dict(params), settings=settings
            )

        def between(work: Any) -> Any:
            try:
                return self.desk.runner.between(work, device=device)
            except QueueFull:
                active.cancel.set()
                raise

        with contextlib.suppress(QueueFull):
            run_experiment(
                target, planned, results, progress=told, cancel=active.cancel, keep=keep, make=make, between=between
            )
        if results.about["state"] == "running":
            results.about["state"] = "cancelled"
        clock = results.about["seconds"] - results.about["trained_s"]
        runs = active.progress.done if active.progress is not None and not active.progress.trains else 0
        if planned.cases and runs >= 8:
            self._pace = max(1e-5, (clock / runs - 0.1) / experiment.max_new_tokens)
        results.save(folder)

    def _trim(self) -> None:
        """Remove the oldest results beyond the limits."""
        size = 0
        found = sorted(self.folder.glob(f"*/{ABOUT}"), key=lambda path: path.stat().st_mtime, reverse=True)
        for place, path in enumerate(found):
            size += sum(file.stat().st_size for file in path.parent.rglob("*") if file.is_file())
            if place and (place >= MAX_RESULTS or size > MAX_BYTES):
                shutil.rmtree(path.parent, ignore_errors=True)


def _told(results: Results, wanted: list[str]) -> dict[str, Any]:
    """What stands below charts and tables alike."""
    return {
        "formulas": [{"label": q.label, "formula": q.formula, "help": q.help} for q in map(results.quantity, wanted)],
        "names": NAMES,
        "errors": list(dict.fromkeys(row["error"] for row in results.rows if row.get("error")))[:5],
        "failed": results.failed,
    }


def _tabled(results: Results, wanted: list[str]) -> dict[str, Any]:
    """What a page shows of a batch."""
    return {
        "charts": [], "points": [], "columns": [], "profiles": [], "caption": "",
        "tables": [table.to_json() for table in tables(results, wanted)],
        "checks": [{**asdict(check), "text": check.text} for check in checks(results)],
        "warnings": warnings(results), "remarks": notes(results), **_told(results, wanted),
    }  # fmt: skip


def _lines(given: Any, known: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Methods with their parameters, as a page sent them."""
    if not isinstance(given, list) or not all(isinstance(line, Mapping) for line in given):
        raise UserError("methods are given as a list, each with its name and parameters")
    found = []
    for line in given:
        name, params = line.get("method"), line.get("params") or {}
        if not isinstance(name, str) or not isinstance(params, Mapping):
            raise UserError("methods are given as a list, each with its name and parameters")
        _no_files(known, name, params)
        found.append((name, dict(params)))
    return found


def _no_files(known: Mapping[str, Any], method: str, params: Mapping[str, Any]) -> None:
    """Raise UserError for a parameter that names a file of this computer, or is none."""
    kinds = {c.name: c for c in controls(known[method].params)} if method in known else {}
    for name, value in params.items():
        if name in kinds and kinds[name].kind == "str" and value not in ("", None):
            raise UserError(f"{kinds[name].label} names a file: it can be set in the commands only (--set)")
        if not isinstance(value, str | int | float | bool | None) or len(str(value)) > 200:
            raise UserError(f"the value of {str(name)[:40]} is no number and no short text")


def _short(name: str) -> str:
    """A file's name without its folders."""
    return Path(name.replace("\\", "/")).name[-60:].lstrip(".") or "prompts.jsonl"  # 60: a file's name has 255 bytes


def _ended(about: Mapping[str, Any]) -> str:
    """The state of results that nothing works on any more."""
    return "cut off" if about["state"] in ("running", "queued") else about["state"]


def _tasks() -> tuple[str, ...]:
    from specviz.views.examples import TASKS

    return tuple(TASKS)


def _recipe(experiment: Experiment, info: Mapping[str, Any], available: set[str]) -> dict[str, Any]:
    needed = {line.method for line in experiment.lines if line.trains is None}
    missing = sorted(needed - available)
    described = experiment.described(info)
    del described["papers"]
    return {
        **described,
        "axes": [{**axis, "values": [text_of(v) for v in axis["values"]]} for axis in described["axes"]],
        "papers": sorted({f"{series.where} ({series.model})" for series in experiment.papers}),
        "missing": missing if len(missing) == len(needed) and needed else [],
    }


def _whole(asked: Mapping[str, Any], name: str, low: int, high: int, noun: str) -> int | None:
    value = asked.get(name)
    if value is None or value == "":
        return None
    try:
        number = int(str(value))
    except ValueError:
        number = low - 1
    if not low <= number <= high:
        raise UserError(f"the number of {noun} is {str(value)[:20]!r}: a whole number from {low} to {high:,} is needed")
    return number


def _sent(file: Mapping[str, Any], count: int) -> list[Any]:
    """The prompts of a file that a page sent as text."""
    name, text = file.get("name"), file.get("text")
    if not isinstance(name, str) or not isinstance(text, str):
        raise UserError("no prompt file came through: choose one again")
    if len(text) > MAX_FILE:
        raise UserError(f"this prompt file has {len(text):,} characters and at most {MAX_FILE:,} are read: shorten it")
    short = _short(name)
    with tempfile.TemporaryDirectory(prefix="specviz-") as folder:
        path = Path(folder) / short
        path.write_text(text, encoding="utf-8")
        try:
            return read_file(path, count)
        except UserError as problem:
            raise UserError(str(problem).replace(f"{folder}/", "")) from None
