"""An experiment as units for workers: one prompt with all that is compared on it is one unit, on one worker.

So a speedup is formed of two runs of the same device. What determines the rows of a unit is plain JSON, and its hash
the unit's key; a worker makes the experiment again from it, and refuses to work where its own code, model or trained
parts are others.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decoders.method.plugin_files import plugin_files
from decoders.model.files.catalog import precision_of
from decoders.prompt.codec import from_json, to_json
from specviz.places import SUFFIX, TRACES
from specviz.views.known_quotes import quoted_answer
from specviz.views.prompts import Case
from specviz.workers.plain import code_of, open_alike
from specviz.workers.work import Unit, UnitResult, Work, WorkerRefused, digest

from .experiment import Experiment, Line, Row, Setting, methods_by_name
from .plan import PLAIN, Plan
from .recipe_files import recipes
from .running import labels_of, rows_of
from .variants import variant_of

if TYPE_CHECKING:
    from decoders import Target
    from decoders.trace.trace import Trace

PACKAGES = ("decoders", "specviz/extras/lab/experiments", "specviz/extras/training")  # what decides the rows of a run
UNIT_RUN = re.compile(r"[0-9a-f]{24}-\d+")  # what a unit's runs are called
DRAFTING = ("part.*", "trees*", "config.json", "*.safetensors", "*.bin", "*.pt", "*.gguf")  # files of a part or a model
WHOLE = 64 << 20
# of a worker's experiment, as in the sweep's
ALIKE = ("max_new_tokens", "length", "repeats", "rounds", "forced", "chart")


@dataclass(frozen=True, slots=True)
class Opening:
    """Options by which a worker opens the target: as ``load_target`` takes it."""

    model: str
    dtype: str | None = None
    device: str | None = None
    engine: str | None = None
    weights: str | None = None


# --- what determines a sweep's units ---


def determinants(target: Target, plan: Plan) -> dict[str, Any]:
    """All that determines what comes out, but for the prompt: of units that are alike in it, results are alike."""
    from decoders import Sampling

    experiment = plan.experiment
    hidden = [setting.line is PLAIN for setting in plan.settings]
    calibration = target.calibration
    return {
        "code": code_of(PACKAGES),
        "model": {"key": target.key, "precision": precision_of(target.info)},
        "recipe": experiment.name if experiment.name in recipes() else "",
        "settings": [
            {"line": {**asdict(s.line), "params": dict(s.line.params)}, "values": dict(s.values), "hidden": h}
            for s, h in zip(plan.settings, hidden, strict=True)
        ],
        "lossy": list(plan.lossy),
        "sampling": asdict(Sampling(experiment.temperature)),
        **{name: getattr(experiment, name) for name in (*ALIKE, "baseline")},
        "training": [experiment.training_steps, list(experiment.data)] if experiment.trains else None,
        "calibration": digest(calibration.to_json()) if calibration is not None else "",
        "parts": parts_of(target, experiment, plan.settings),
    }  # fmt: skip


def parts_of(target: Target, experiment: Experiment, settings: Iterable[Setting]) -> dict[str, str]:
    """The trained parts and the files that the settings draft with, those of methods that one merges too, by a hash of
    their contents.
    """
    from decoders.draft.params import controls, make_params
    from decoders.method.part import COMPANION
    from decoders.parts import find_part

    digests: dict[str, str] = {}
    companion = target.companions.get(COMPANION)
    for setting in settings:
        entry = methods_by_name()[setting.line.method]
        variant, part = variant_of(experiment, setting), entry.part
        names = {control.name for control in controls(entry.params)}
        own_params = {name: value for name, value in setting.params.items() if name in names}
        for method, _ in entry.joins(make_params(entry.params, own_params)):
            if method.part is not None:
                digests[method.part.kind.name] = _contents(find_part(target.key, method.part.kind.name))
        text_params = {name: str(value) for name, value in setting.params.items() if isinstance(value, str)}
        if variant is not None:
            digests[f"trained {digest([variant.kind, asdict(variant)])[:12]}"] = _contents(
                variant.folder(target.key) / "part"
            )
        elif part is not None and (part.offered or part.parameter) not in text_params:
            if part.offered and companion:
                digests[part.offered] = _contents(companion)
            elif part.owner is None:
                digests[part.kind.name] = _contents(find_part(target.key, part.kind.name))
        digests |= {f"{name}={value}": held for name, value in text_params.items() if (held := _contents(value))}
    return digests


def _contents(place: Any) -> str:
    """A hash of a file, or of what decides how a folder's part, head or model drafts; "" for what is neither.

    Of a file beyond ``WHOLE`` bytes its size, its beginning and its end: models are as large as that, parts are not.
    """
    if not place:
        return ""
    path = Path(str(place)).expanduser()
    hasher, count = hashlib.sha256(), 0
    try:
        for file in [path] if path.is_file() else sorted(f for form in DRAFTING for f in path.glob(form)):
            hasher.update(f"{file.name} {file.stat().st_size} ".encode())
            with file.open("rb") as data:
                if file.stat().st_size <= WHOLE:
                    hasher.update(data.read())
                else:
                    hasher.update(data.read(WHOLE // 2))
                    data.seek(-WHOLE // 2, os.SEEK_END)
                    hasher.update(data.read())
            count += 1
    except OSError:
        return ""
    return hasher.hexdigest()[:24] if count else ""


def about_of(target: Target, plan: Plan, opening: Opening) -> dict[str, Any]:
    """Facts for all workers of an experiment: what determines it, and how to open the model."""
    from decoders.method.part import COMPANION

    return {
        "determined": determinants(target, plan), "opening": asdict(opening),
        "metrics": list(plan.experiment.metrics), "offered": target.companions.get(COMPANION),
        "plugins": [str(path) for path in plugin_files()],
    }  # fmt: skip


def units_of(plan: Plan, about: Mapping[str, Any]) -> list[Unit]:
    """A unit per prompt; of what is measured without prompts, one per setting."""
    shared = digest(about["determined"])
    if plan.experiment.measure is not None:
        return [Unit.of(shared, {"setting": number}) for number in range(len(plan.settings))]
    return [Unit.of(shared, {"case": case_to_json(case)}) for case in plan.cases]


def failed_rows(plan: Plan, number: int, error: str) -> list[Row]:
    """The rows of a unit that could not even be begun, or that cost several workers."""
    if plan.experiment.measure is not None:
        return [{**labels_of(None, plan.settings[number]), "error": error}]
    case = plan.cases[number]
    rows = [{**labels_of(case, setting), "error": error} for setting in plan.settings]
    return [row | ({"repeat": 1} if plan.experiment.repeats else {}) for row in rows]


# --- a worker's side ---


def open_experiment(about: Mapping[str, Any]) -> Work:
    """The work of one worker: the model opened, everything compared with what the sweep was planned with."""
    requirements = about["determined"]
    model = requirements["model"]
    target = open_alike(
        about, PACKAGES, requirements["code"], model["key"], model["precision"], "a worker", "this sweep"
    )
    experiment, settings = experiment_of(about)
    calibration = target.calibration
    calibration_key = digest(calibration.to_json()) if calibration is not None else ""
    if (
        parts_of(target, experiment, settings) != requirements["parts"]
        or calibration_key != requirements["calibration"]
    ):
        raise WorkerRefused(
            "a worker has other trained parts (or another calibration) than this sweep was planned with: give all "
            "workers the same SPECVIZ_HOME"
        )
    return _Runs(target, experiment, settings, tuple(requirements["lossy"]), digest(requirements))


def experiment_of(about: Mapping[str, Any]) -> tuple[Experiment, tuple[Setting, ...]]:
    """The experiment again, with its settings, from what workers are told."""
    requirements = about["determined"]
    settings = []
    for entry in requirements["settings"]:
        line = PLAIN if entry["hidden"] else Line(**entry["line"])
        settings.append(Setting(line, entry["values"]))
    base = recipes().get(requirements["recipe"]) or Experiment("", "")
    steps, data = requirements["training"] or (base.training_steps, base.data)
    lines = {setting.line.label: setting.line for setting in settings}
    experiment = dataclasses.replace(
        base, lines=tuple(lines.values()), axes=(),
        metrics=tuple(about["metrics"]), temperature=requirements["sampling"]["temperature"], training_steps=steps,
        data=tuple(data), **{name: requirements[name] for name in ALIKE},
    )  # fmt: skip
    return experiment, tuple(settings)


class _Runs:
    """Does units with a target: every setting on a prompt, one after another, as an experiment does without workers."""

    def __init__(
        self, target: Target, experiment: Experiment, settings: tuple[Setting, ...], lossy: tuple[str, ...], shared: str
    ) -> None:
        self.target, self.shared = target, shared
        self.planned = Plan(experiment, settings, (), lossy=lossy)
        self.warm = False

    def __call__(self, payload: Mapping[str, Any]) -> UnitResult:
        from decoders.method.kept import kept_with, owned_by
        from decoders.trace import files as tracefile

        key = Unit.of(self.shared, payload).key
        if "case" in payload:
            plan = dataclasses.replace(self.planned, cases=(case_from_json(payload["case"]),))
        else:
            plan = dataclasses.replace(self.planned, settings=(self.planned.settings[payload["setting"]],))
        traces: list[Trace] = []
        with owned_by(key):  # what methods keep from run to run is this unit's own, whichever worker does it
            rows = rows_of(self.target, plan, traces.append, warm=self.warm)
            kept_with(self.target).empty()
        self.warm = True
        # the same unit has the same names, whoever does it and however often
        names = {trace.run["id"]: f"{key[:24]}-{number}" for number, trace in enumerate(traces, 1)}
        for trace in traces:
            trace.run["id"] = names[trace.run["id"]]
        for row in rows:
            row["trace"] = names.get(row.get("trace", ""), "")
        files = {f"{TRACES}/{trace.run['id']}{SUFFIX}": tracefile.save(trace, None) or b"" for trace in traces}
        return UnitResult(rows, files)


# --- prompts as JSON ---


def case_to_json(case: Case) -> dict[str, Any]:
    """A prompt with all that a run of it may read, and what its rows say of it."""
    gold = None if case.gold is None else asdict(case.gold)
    return {"id": case.id, "category": case.category, **to_json(case.prompt), "gold": gold}


def case_from_json(data: Mapping[str, Any]) -> Case:
    """Back from ``case_to_json``."""
    gold = None if data["gold"] is None else quoted_answer(data["gold"])
    return Case(data["id"], data["category"], from_json(data), gold)
