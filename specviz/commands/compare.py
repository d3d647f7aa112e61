"""``specviz compare``: methods on one prompt, or recorded runs of one, as the page Compare shows them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from decoders.draft.settings import Lengths, Sampling
from decoders.errors import UserError
from decoders.names import BASELINE, QUICK, USUAL
from decoders.sweep.plan import Contender, Failure, Measurement, Sample, execute, in_order
from specviz.words import column, plural

from . import common, options

if TYPE_CHECKING:
    from decoders import Prompt, Target, Trace

DESCRIPTION = (
    "Run methods on one prompt beside plain decoding, or take recorded runs of one prompt, and say who wins, by how "
    "much and why, and whether every output is plain decoding's: what the app's page Compare shows. One run of each is "
    "timed; specviz bench measures in rounds."
)
METHODS = (QUICK, USUAL)
MAX_LINES = 8  # methods or runs
WARM_UP = 8  # tokens that each method writes before it is timed
COLUMNS = ("tokens", "steps", "tokens_per_step", "tokens_per_s", "speedup", "draft_share")


def add(parser: argparse.ArgumentParser) -> None:
    options.file(parser, "traces", "recorded runs of one prompt; no model is loaded", "TRACE", nargs="*")
    options.add_methods(parser, f"methods to compare, or all (default: {' '.join(METHODS)}); plain decoding runs too")
    options.add_verifier(parser)
    options.add_prompt(parser, required=False)
    options.add_reading(parser)
    options.count(parser, "--max-new-tokens", "tokens of an answer", 256)
    options.add_settings(parser, Sampling)
    options.add_settings(parser, Lengths)
    options.file(parser, "--pool", "a text to draft from, for methods that take one", "FILE")
    options.file(parser, "--out", "write every run as a trace into this folder", "FOLDER")
    options.flag(parser, "--json", "print lanes, every number and the sentence as one JSON object")
    options.add_model(parser, weights=True)


def run(args: argparse.Namespace) -> int:
    from decoders.study.judge.divergences import divergence
    from specviz.pages.compare.claim import claim_of
    from specviz.pages.compare.outcome import baseline_key, check_output, lane_title, numbers_of, own_reference
    from specviz.pages.compare.stretches import stretches

    has_prompt = args.prompt is not None or args.prompt_file is not None
    if bool(args.traces) == has_prompt:
        raise UserError(
            "recorded runs and a prompt are given: leave one out" if has_prompt else "nothing to compare: give "
            "--prompt TEXT or --prompt-file F with --methods A B, or recorded runs of one prompt"
        )  # fmt: skip
    traces, notes, target = (_load_runs(args), [], None) if args.traces else _decode(args)
    plain = traces.get(baseline_key(traces))
    lanes: dict[str, dict[str, Any]] = {}
    numbers = numbers_of(traces)
    for key, trace in traces.items():
        alike = plain is not None and plain.run["sampling"] == trace.run["sampling"]
        reference = plain.output_ids if plain is not None and alike else own_reference(trace)
        check: dict[str, Any] = {"state": "unknown", "text": "plain decoding of this prompt was not recorded"}
        if reference is not None:
            judge = None if target is None else partial(divergence, target, trace, plain=reference)
            check = check_output(trace, reference, judge)
        lanes[key] = {"method": trace.run["method"]["name"], "title": lane_title(trace), **numbers[key],
                      "output": check, "output_ids": list(trace.output_ids)}  # fmt: skip
    outcome, stretch_rows = claim_of(traces, numbers), stretches(traces, BASELINE)
    by_time = outcome["time"]
    if args.json:
        data = {
            "outcome": by_time["sentence"],
            "lanes": list(lanes.values()),
            "stretches": _by_title(stretch_rows, lanes),
            "notes": notes,
        }
        common.print_json(data)
    else:
        _show([lanes[place["id"]] for place in by_time["lanes"]], f"{by_time['sentence']} {outcome['repeats']}", notes)
    return 1 if any(lane["output"].get("verdict") == "bug" for lane in lanes.values()) else 0


def _load_runs(args: argparse.Namespace) -> dict[str, Trace]:
    """The runs in the files, each once. Raises UserError for runs that cannot stand beside one another."""
    from decoders.trace.baseline import asked_prompt

    if option := common.first_set(args, "methods", "verifier", "set", "out", "pool", "model"):
        raise UserError(f"--{option} is for runs that are made now: leave it out, or give a prompt and no TRACE")
    read = [(path, common.read_traces(path)) for path in args.traces]
    traces = {
        str(path) if len(runs) == 1 else f"{path}, run {number}": trace
        for path, runs in read
        for number, trace in enumerate(runs, 1)
    }
    if not 2 <= len(traces) <= MAX_LINES + 1:
        raise UserError(f"{plural(len(traces), 'run')} given: a comparison has 2 to {MAX_LINES + 1} of one prompt")
    first, *other_traces = traces.items()
    for path, trace in other_traces:
        if asked_prompt(trace) != asked_prompt(first[1]):
            raise UserError(f"{path} is of another prompt than {first[0]}: compare runs of one prompt")
    return traces


def _decode(args: argparse.Namespace) -> tuple[dict[str, Trace], list[str], Target]:
    """Plain decoding and every method on the prompt, after a warm-up each; sentences about what was left out."""
    from dataclasses import replace

    from decoders import save

    if args.out is not None:
        args.out.mkdir(parents=True, exist_ok=True)
    sampling, source = options.settings_of(args, Sampling), common.prompt_record(args)
    target = common.open_target(args)
    prompt: Prompt = source.prompt(target.tokenizer, chat=args.chat)
    if args.pool is not None:
        prompt = replace(prompt, pool=common.pool_file(args.pool, target))
    notes = [f"first turn only: the prompt has {prompt.turns}"] if prompt.turns > 1 else []
    names = args.methods or METHODS
    methods, missing = common.chosen_methods(target, names, args.set, [prompt], verifier=args.verifier)
    methods.pop(BASELINE, None)
    if not 1 <= len(methods) <= MAX_LINES:
        raise UserError(f"{plural(len(methods), 'method')} beside plain decoding: name 1 to {MAX_LINES} with --methods")
    traces, contenders = {}, []
    for name, params in {BASELINE: None, **methods}.items():
        values = asdict(params) if params is not None else {}
        settings = {"title": source.id, "max_new_tokens": args.max_new_tokens, "sampling": sampling}
        settings["length"] = args.length
        run = partial(_run, target, name, values, **settings)
        contenders.append(Contender(name, "traced", True, run))
    with common.progress_bar("comparing") as progress:
        for count, (turn, run) in enumerate(execute(in_order(contenders, [prompt])), 1):
            progress(count, len(contenders))
            name = turn.contender.name
            if isinstance(run, Failure):
                notes.append(f"{name} failed: {run.reason}")
            elif isinstance(run, Measurement) and run.trace is not None:
                traces[name] = run.trace
                if args.out is not None:
                    save(run.trace, args.out / f"{name}.spectrace")
    if len(traces) < 2:
        raise UserError("; ".join(notes))
    hint = common.template_hint(args, source, target, traces[BASELINE].output_ids) if BASELINE in traces else ""
    return traces, [*filter(None, [hint]), *notes, *missing.values()], target


def _run(target: Target, name: str, values: dict[str, Any], prompt: Prompt, **settings: Any) -> Measurement:
    """A recorded run, after a short one to warm up."""
    from decoders import record

    limit = min(WARM_UP, settings["max_new_tokens"])
    record(target, prompt, name, values, **{**settings, "max_new_tokens": limit})
    trace = record(target, prompt, name, values, **settings)
    return Measurement(Sample.without_time(name, trace.output_ids), trace.output_ids, trace)


def _by_title(stretch_rows: list[dict[str, Any]], lanes: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Stretches with the lanes' titles; tokens counted from 1."""
    return [
        {"winner": lanes[stretch["run"]]["title"], "tokens": [stretch["from"] + 1, stretch["to"]],
         "gain": stretch["gain"],
         "forwards": {lanes[key]["title"]: count for key, count in stretch["forwards"].items()}}
        for stretch in stretch_rows
    ]  # fmt: skip


def _show(order: Sequence[Mapping[str, Any]], words: str, notes: list[str]) -> None:
    """The sentence, the lanes in their order, and why a number is missing or marked."""
    from decoders.trace.metrics import METRICS

    by_key = {metric.key: metric for metric in METRICS}
    columns = {"method": [lane["title"] for lane in order]}
    columns["output"] = [
        "the reference" if lane["method"] == BASELINE else _check_words(lane["output"]) for lane in order
    ]
    for key in COLUMNS:
        metric, values = by_key[key], [lane["metrics"].get(key) for lane in order]
        form, marks = column(metric.unit, values), [" ‡" if key in lane["doubts"] else "" for lane in order]
        unit = {"share": " (%)", "×": " (×)", "tokens/s": " (tokens/s)"}.get(metric.unit, "")
        unit += ", first run" * (key == "draft_share" and any(lane["runs"] > 1 for lane in order))
        columns[f"{metric.label}{unit}"] = [form(value) + mark for value, mark in zip(values, marks, strict=True)]
    common.say(words)
    common.show_table([*columns], zip(*columns.values(), strict=True), right=2)
    reasons = {lane["notes"]["speedup"]: lane["title"] for lane in order if "speedup" in lane["notes"]}
    doubts: dict[str, list[str]] = {}
    for lane in order:
        for doubt in dict.fromkeys(lane["doubts"].values()):
            doubts.setdefault(doubt, []).append(lane["title"])
    common.say(*(f"‡ {', '.join(titles)}: {doubt}" for doubt, titles in doubts.items()))
    common.say(*(f"{title}: {reason}" for reason, title in reasons.items()), *notes)


def _check_words(check: Mapping[str, Any]) -> str:
    """A check in the words of the page."""
    if check["state"] == "differs":
        return f"{check['verdict']} (token {check['position'] + 1})"
    return "identical to plain decoding" if check["state"] == "identical" else "not checked"
