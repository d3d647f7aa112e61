"""The gallery: runs recorded with SmolLM2, so that there is something to show before a model is loaded, or without one.

``assets/gallery/runs.csv`` lists them. They are recorded anew, where SmolLM2 and its trained parts are installed, by::

    python -m specviz.views.gallery            # all of them, or those named: … 3 account-check-casd
"""

from __future__ import annotations

import csv
import functools
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from decoders.folders import read_text
from decoders.model.files.catalog import SMOLLM2
from decoders.trace import files as tracefile
from specviz.places import GALLERY, SUFFIX

from .examples import examples

if TYPE_CHECKING:
    from decoders import Target

NEW_TOKENS = 160  # of an answer, at most
CAUSES = ".causes.json"  # beside a run about a document: its answer read without each passage
DOCUMENT = "document"  # the category of examples whose runs have such a file


@dataclass(frozen=True, slots=True)
class GalleryRun:
    """A line of the list: ``number`` from 1 is its place on the page, which opens on the first one, and ``opens`` the
    step (from 1) that the run is shown at first.
    """

    number: int
    example: str
    method: str
    temperature: float
    opens: int

    @property
    def name(self) -> str:
        """Its name in lessons: ``account-check-pld-h``."""
        return f"{self.example}-{self.method.replace('+', '-')}{'-sampled' if self.temperature else ''}"

    @property
    def id(self) -> str:
        return f"{self.number}-{self.name}"


def list_runs() -> tuple[GalleryRun, ...]:
    """The runs of the gallery, in the order of the page's list."""
    with (GALLERY / "runs.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return tuple(
        GalleryRun(number, row["example"], row["method"], float(row["temperature"]), int(row["opens"]))
        for number, row in enumerate(rows, 1)
    )


def gallery_causes(run: str) -> list[dict[str, Any]]:
    """The recorded ``evidence.causes`` of a gallery run, by its id, with what they say in words; none where none were
    recorded.
    """
    from decoders.study.attribute.evidence import Weight, describe

    path = GALLERY / f"{run}{CAUSES}"
    causes = json.loads(read_text(path, "causes")) if path.is_file() else []
    for cause in causes:
        for weight in cause["weights"]:
            weight["said"] = describe(Weight(**weight), cause["name"], cause["places"])
    return causes


@functools.cache
def documents() -> tuple[dict[str, str], ...]:
    """The gallery's runs about a document, which the page "Attribution" opens on: their ids and titles."""
    titles = {example.record.id: example.title for example in examples() if example.record.category == DOCUMENT}
    return tuple({"id": run.id, "title": titles[run.example]} for run in list_runs() if run.example in titles)


def record_gallery(target: Target, runs: Sequence[GalleryRun]) -> None:
    """Record ``runs``, or all that are listed where there are none. A run's file is replaced when all are recorded;
    with all, files of runs that are no longer listed are removed. Raises UserError if a method or a prompt is refused.
    """
    from decoders import Sampling, find_method, record
    from decoders.study.attribute.evidence import causes

    by_name = {e.record.id: e for e in examples()}
    traces, causes_by_run = [], {}
    for run in runs or list_runs():
        example = by_name[run.example]
        prompt = replace(example.record.prompt(target.tokenizer), reference=example.record.reference)
        trace = record(
            target, prompt, run.method, sampling=Sampling(run.temperature), max_new_tokens=NEW_TOKENS,
            title=example.label, compare=not find_method(run.method).lossless,
        )  # fmt: skip
        trace.run |= {"id": run.id, "opens": run.opens - 1}
        traces.append(trace)
        if example.record.category == DOCUMENT:
            causes_by_run[run.id] = [*causes(trace, target)]
        print(f"{run.id}: {len(trace.output_ids)} tokens, {trace.run['metrics']['tokens_per_step']:.2f} per step")
    paths = [GALLERY / f"{trace.run['id']}{SUFFIX}" for trace in traces]
    for trace, path in zip(traces, paths, strict=True):
        tracefile.save(trace, path)
    for run_id, run_causes in causes_by_run.items():
        for weight in (weight for cause in run_causes for weight in cause["weights"]):
            del weight["said"]  # the words are ``gallery_causes``' own
        text = json.dumps(run_causes, ensure_ascii=False, separators=(",", ":"))
        (GALLERY / f"{run_id}{CAUSES}").write_text(f"{text}\n", encoding="utf-8")
    for old in GALLERY.glob(f"*{SUFFIX}") if not runs else ():
        if old not in paths:
            old.unlink()
            old.with_suffix(CAUSES).unlink(missing_ok=True)


def main(names: Sequence[str] | None = None) -> None:
    """``python -m specviz.views.gallery [NUMBER or NAME …]``: record the gallery, or some of it, with SmolLM2."""
    from decoders import load_target

    requested_names = sys.argv[1:] if names is None else names
    runs = [run for run in list_runs() if {str(run.number), run.name} & set(requested_names)]
    if unknown := set(requested_names) - {label for run in runs for label in (str(run.number), run.name)}:
        sys.exit(f"no runs: {', '.join(sorted(unknown))}; there are {', '.join(run.name for run in list_runs())}")
    record_gallery(load_target(SMOLLM2), runs)


if __name__ == "__main__":
    main()
