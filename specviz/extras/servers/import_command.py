"""``specviz import``: what a server says of its speculative decoding, as traces."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from decoders.errors import UserError
from decoders.trace.trace import Trace
from specviz.commands import common, options
from specviz.words import plural

DESCRIPTION = (
    "Make traces of what a server says of its speculative decoding: vLLM, llama.cpp, SGLang, LM Studio, or any stream "
    "in OpenAI's form. What the file does not say stays unknown. With --target the text is read again by a model of "
    "yours; with --methods every step is also drafted again, and compared."
)


def add(parser: argparse.ArgumentParser) -> None:
    options.file(parser, "log", "an answer, a stream or a log of a server, or a run that was recorded in one", "FILE")
    parser.add_argument("--kind", metavar="NAME", help="how the file is read (default: by its content)")
    options.file(parser, "--out", "the trace file (several requests: -1, -2, … before its suffix)")
    parser.add_argument("--target", metavar="MODEL", help="read the text again with this model: a folder or hub id")
    options.add_methods(parser, "draft every step again with this method (with --target)", is_single=True)
    parser.add_argument("--device", metavar="D", help="cpu or cuda (default: cuda where there is one)")
    parser.add_argument("--dtype", metavar="T", help="float32, bfloat16, float16 or float64 (default: by device)")
    options.flag(parser, "--json", "print what was read as one JSON object")


def run(args: argparse.Namespace) -> int:
    from decoders.importers import open_log
    from decoders.importers.fields import about_drafts, field_words
    from decoders.importers.importer import ImportResult
    from decoders.trace.files import SUFFIX, load, save

    common.check_writable(args.out)
    method = options.one_method(args)
    if method and not args.target:
        raise UserError("--methods drafts with a model: name it with --target")
    if args.set and not method:
        raise UserError("--set belongs to --methods: name the method")
    if args.log.suffix == SUFFIX:
        trace = load(args.log)
        if (import_info := trace.run.get("imported")) is None:
            raise UserError(f"{args.log.name} is a run of this engine: open it with specviz view")
        log = ImportResult(import_info["source"], import_info["title"], [trace], [], [])
    else:
        log = open_log(common.read_log(args.log), args.log.name, args.kind)
    traces = _read_again(args, log.traces) if args.target else log.traces
    out: Path = args.out or Path(args.log.stem + ("-read" if args.log.suffix == SUFFIX else "") + SUFFIX)
    names = [f"-{place}" for place in range(1, len(traces) + 1)] if len(traces) > 1 else [""]
    paths = [out.with_name(f"{out.stem}{name}{out.suffix or SUFFIX}") for name in names[: len(traces)]]
    for trace, path in zip(traces, paths, strict=True):
        save(trace, path)
    result = {
        "kind": log.importer, "notes": log.notes,
        "numbers": [{"title": entry.title, "values": entry.values} for entry in log.numbers],
        "runs": [_about(trace, path) for trace, path in zip(traces, paths, strict=True)],
    }  # fmt: skip
    if args.json:
        return common.print_json(result)
    common.say(f"{args.log.name}: {log.title}")
    common.show_numbers(log)
    for row in result["runs"]:
        drafts = "" if row["accepted"] is None else f", {row['accepted']} of them drafted and accepted"
        common.say(f"{row['file']}: {plural(row['tokens'], 'token')} in {row['steps_words']}{drafts}")
        if words := _totals(row["totals"]):
            common.say(f"  the server counts {words}")
        if fields := about_drafts(row["said"]):
            common.say(f"  it says {field_words(fields)}")
        if row["unknown"]:
            common.say(f"  not recorded: {', '.join(row['unknown'])}")
        if row["redrafted"]:
            redraft_info = row["redrafted"]
            steps = plural(redraft_info["compared"], "step")
            words = f"{redraft_info['differing']} of {steps} with a draft differ from the server's"
            words += f"; {redraft_info['longer']} drafts are longer here" if redraft_info["longer"] else ""
            common.say(f"  drafted again with {redraft_info['method']}: {words}")
        common.say(*(f"  {note}" for note in row["notes"]))
    common.say(*log.notes)
    return 0


def _read_again(args: argparse.Namespace, traces: list[Any]) -> list[Any]:
    """The runs as a model of the user's reads and drafts them. Of several, one that it cannot read gets a note."""
    from decoders import load_target
    from decoders.study.look.imported_run import read_again, redraft

    with common.opening() as progress:
        target = load_target(args.target, dtype=args.dtype, device=args.device, progress=progress)
    method, new_traces = options.one_method(args), []
    params = options.sets_of(args.set, [method])[method] if method else {}
    for trace in traces:
        try:
            new_trace = read_again(target, trace)
            if method:
                with common.progress_bar("drafting again") as bar:
                    new_trace = redraft(target, new_trace, method, params, bar)
        except UserError as problem:
            if len(traces) == 1:
                raise
            trace.run["imported"]["notes"].append(f"it was not read again: {problem}")
            new_trace = trace
        new_traces.append(new_trace)
    return new_traces


def _about(trace: Trace, path: Path) -> dict[str, Any]:
    run = trace.run
    unknown, import_info = run.get("unknown", []), run.get("imported")
    assert import_info is not None  # every run that was opened is of a server
    steps = trace.rows("steps")
    return {
        "file": str(path), "title": run.get("title", ""), "model": run["model"].get("name"),
        "tokens": len(trace.output_ids),
        "steps": None if "steps" in unknown else steps,
        "steps_words": "steps that are not recorded" if "steps" in unknown else plural(steps, "step"),
        "accepted": run.get("metrics", {}).get("accepted"), "unknown": unknown, "said": import_info["said"],
        "totals": import_info.get("totals", {}),
        "redrafted": run.get("redrafted"),
        "notes": [*import_info.get("warnings", ()), *import_info["notes"]],
    }  # fmt: skip


def _totals(totals: dict[str, Any]) -> str:
    """A server's counts in words; "" where none is of drafts."""
    drafted, accepted, steps, cached = (totals.get(name) for name in ("drafted", "accepted", "steps", "cached"))
    words = []
    if drafted is not None and accepted is not None:
        share = f" ({accepted / drafted:.1%})" if drafted else ""
        words.append(f"{accepted:,} of {plural(drafted, 'drafted token')} accepted{share}")
    if steps and "tokens" in totals:
        words.append(f"{plural(totals['tokens'], 'token')} in {plural(steps, 'step')}")
    if cached is not None:
        words.append(f"{plural(cached, 'cached token')} of the prompt")
    return ", ".join(words)
