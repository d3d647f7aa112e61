"""Documents of a static site beside its runs: comparisons of a prompt's runs, attributions of answers, a run's drafts
under every verifier, lessons; each the document that the app's server answers with, made once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from decoders.names import BASELINE
from decoders.trace.trace import Trace
from specviz.pages.attribution.document import document, known_quotes
from specviz.pages.compare.claim import claim_of
from specviz.pages.compare.outcome import MAX_LANES, METRICS, check_output, doubt_plain, lane_numbers, own_reference
from specviz.pages.compare.stretches import stretches
from specviz.places import GALLERY, LESSONS
from specviz.views.gallery import gallery_causes

TEXTLESS = {"text", "tokens", "tokens.id", "tokens.source"}  # where a source did not say these, nothing is attributed


def lane(trace: Trace, base: Trace | None, reference: Trace | None) -> dict[str, Any]:
    """A run as ``comparison`` reads it, as JSON: what it is, its ``numbers`` beside ``base``, plain decoding of its
    prompt, and ``lens``, whether it wrote what ``reference`` did, plain decoding of the same settings.
    """
    return {
        "run": {name: value for name, value in trace.run.items() if name in ("method", "stop", "forced")},
        "output": trace.output_ids,
        "emitted": trace.tables["steps"]["emitted"],
        "numbers": lane_numbers(trace, base),
        "lens": _check(trace, own_reference(trace) if reference is None else reference.output_ids),
    }


def _outline(lane: Mapping[str, Any]) -> Trace:
    """A run of which nothing is known but its method, its end, its output and how many tokens each step wrote."""
    outline = Trace.new({"prompt_length": 0, **lane["run"]})
    outline.tables["tokens"]["id"], outline.tables["steps"]["emitted"] = lane["output"], lane["emitted"]
    return outline


def comparison(lanes: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Runs of one prompt (``lane``), several by key, as the page "Compare" shows them.

    ``sets``: runs that are shown together, as many as that page has lanes: plain decoding's first, then those that
    need the fewest forwards; each with its ``stretches`` and the sentence of its ``outcome``. ``runs``: by key its
    ``numbers`` and ``lens``. ``metrics``: rows of the table of numbers.
    """
    outlines = {key: _outline(lane) for key, lane in lanes.items()}
    sets = [{key: outlines[key] for key in keys} for keys in _comparable_sets(outlines)]
    numbers = [doubt_plain(group, {key: lanes[key]["numbers"] for key in group}) for group in sets]
    return {
        "metrics": METRICS,
        "runs": {
            key: {"numbers": lane_numbers, "lens": lanes[key]["lens"]}
            for group_numbers in numbers for key, lane_numbers in group_numbers.items()
        },
        "sets": [
            {
                "runs": [*group],
                "stretches": stretches(group, BASELINE),
                "claim": claim_of(group, group_numbers),
            }
            for group, group_numbers in zip(sets, numbers, strict=True)
        ],
    }


def _comparable_sets(traces: Mapping[str, Trace]) -> Iterator[Sequence[str]]:
    """The keys of runs that are shown together."""
    plain = [key for key, trace in traces.items() if trace.run["method"]["name"] == BASELINE][:1]
    step_counts = {key: len(trace.tables["steps"]["emitted"]) for key, trace in traces.items()}
    drafting_keys = sorted((key for key in traces if key not in plain), key=step_counts.__getitem__)
    lane_count = MAX_LANES if plain else MAX_LANES + 1
    for start in range(0, len(drafting_keys), lane_count):
        keys = [*plain, *drafting_keys[start : start + lane_count]]
        yield keys if len(keys) > 1 else drafting_keys[-2:]


def _check(trace: Trace, plain: Sequence[int] | None) -> dict[str, Any]:
    """A run's output held against plain decoding's of the same prompt and settings, as far as that was recorded."""
    if trace.run.get("forced"):
        return {"state": "unknown", "text": "This run wrote a given answer: there is nothing to compare it with."}
    if {"tokens", "tokens.id", "text"} & set(trace.run.get("unknown", ())):
        return {"state": "unknown", "text": "This run's tokens were not recorded."}
    if plain is not None:
        return check_output(trace, plain)
    return {"state": "unknown", "text": "Plain decoding of this prompt with these settings was not recorded."}


def attribution(traces: Sequence[Trace], gold: Any = None) -> dict[str, Any] | None:
    """One answer's links by each of the runs that wrote it, a run per method; None where there is none to show.
    ``gold``: its known quotes as they stand beside a run.
    """
    quotes = known_quotes(gold) if gold is not None else None
    texts = [trace for trace in traces if not TEXTLESS & set(trace.run.get("unknown", ()))]
    by_method = {trace.run["method"]["name"]: trace for trace in reversed(texts)}
    documents = [
        document(trace, quotes, gallery_causes(trace.run["id"])) for trace in reversed(by_method.values())
    ]
    linked_docs = [
        entry for entry in documents if any(view["links"] for view in (*entry["views"].values(), entry["verbatim"]))
    ]
    copy_documents = [entry for entry in linked_docs if any(view["links"] for view in entry["views"].values())]
    return {"signals": copy_documents or linked_docs[:1]} if linked_docs else None


def verdicts(trace: Trace) -> dict[str, Any] | None:
    """A run's drafts under every verifier, as the tab "Verifiers" shows them; None where the record lacks p or q."""
    from specviz.pages.acceptance.judging import judge_steps, new_judgement, steps_document

    if all(q is None for q in trace.tables["nodes"]["draft_prob"]):
        return None
    run = new_judgement(trace, str(trace.run.get("title") or "this run"))
    for _ in judge_steps(trace, run):
        pass
    return None if run.fault else steps_document(run)


def lessons() -> tuple[dict[str, dict[str, Any]], dict[str, Trace]]:
    """The lessons that come along, filled, by id; and their runs by key. A stop's ``run`` is such a key."""
    from specviz.pages.lessons.lessons_page import files_in, lesson_key, load
    from specviz.pages.lessons.values import LessonRuns

    runs = LessonRuns(LESSONS, GALLERY)
    keys: dict[str, str] = {}
    traces: dict[str, Trace] = {}
    lesson_by_key: dict[str, dict[str, Any]] = {}
    for path in files_in(LESSONS):
        lesson = load(path, runs)
        for stop in lesson["stops"]:
            name = stop["run"]
            if name not in keys:
                trace = runs.find(name)[1]
                keys[name] = trace.digest[:16]
                traces[keys[name]] = trace
            stop["run"] = keys[name]
        lesson_by_key[lesson_key(path)] = {"id": lesson_key(path), "own": False, **lesson}
    return lesson_by_key, traces
