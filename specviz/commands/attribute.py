"""``specviz attribute``: which passages an answer was copied from, and how well that finds quotes that are known."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decoders.errors import UserError
from decoders.folders import read_text, write_text
from decoders.names import USUAL
from specviz.words import column_texts, decimals, plural, visible

from . import common, options

if TYPE_CHECKING:
    from decoders import Target, Trace
    from decoders.prompt.files import PromptRecord
    from decoders.study.attribute.attribution import Link
    from decoders.study.attribute.quotes import QuotedAnswer, SweepRow

SCHEMA = "specattribution-score/1"
METHOD = USUAL
MARKS = {"contributed": "!", "corroborates": "=", "against": "x", "none": ""}
DEMOS = {"demo": False, "demo+brief": True}


DESCRIPTION = (
    "Link the copied spans of an answer to their sources; or (--score) measure that on known quotes. In a plain-text "
    "prompt, lines of three hyphens stand between passages, as in the app."
)


def add(parser: argparse.ArgumentParser) -> None:
    prompt_group = options.add_prompt(parser)
    options.file(prompt_group, "--trace", "a recorded run (.spectrace); no model is loaded", "FILE")
    prompt_group.add_argument(
        "--score", metavar="SET", help="answers with known quotes: a QuoteSum file, demo, or demo+brief (short answers)"
    )
    options.add_reading(parser)
    options.add_methods(parser, f"method whose copies count (default: {METHOD}); several to --score")
    parser.add_argument(
        "--answer", metavar="FILE_OR_TEXT", help="the answer to attribute, as it is given; not the model's own"
    )
    options.count(parser, "--max-new-tokens", "of a generated answer", 256)
    parser.add_argument(
        "--min-run", type=_lengths, metavar="N", help="drop shorter spans (default: 2; to --score, as in 2,5,8: 2,5,8)"
    )
    options.flag(
        parser,
        "--drafted",
        "drafted tokens alone, without the words around them that the source has too (to --score: both)",
    )
    options.flag(parser, "--parts", "let links begin and end inside words and numbers")
    options.flag(
        parser,
        "--without",
        "read the answer once more without each of its sources: what contributed to it, corroborates it, or speaks "
        "against it",
    )
    options.count(
        parser,
        "--subsets",
        "leave out N random subsets of the sources: a sparse linear fit of each one's weight, and which stand in for "
        "each other (32 is usual)",
    )
    options.count(parser, "--limit", "answers to score (default: 40 of demo, all of a file)")
    options.flag(parser, "--generated", "score what the model writes, where it holds the known quotes")
    options.file(parser, "--out", "write the run as a trace file (.spectrace)", "TRACE")
    options.flag(parser, "--json", "print links with character offsets, or scores, as JSON")
    options.file(parser, "--markdown", "write the answer with footnotes, or the table")
    options.add_model(parser, plugins=False)


def _lengths(text: str) -> tuple[int, ...]:
    """An argparse type: lengths of at least 1 with commas between them."""
    return tuple(dict.fromkeys(options.whole(1)(part) for part in text.split(",")))


def run(args: argparse.Namespace) -> int:
    common.check_writable(args.out, args.markdown)
    if args.score is not None:
        _refuse(args, "--score", ("answer", "out", "drafted", "parts", "chat", "without", "subsets"))
        return _score(args)
    _refuse(args, "this", ("limit", "generated"), "belongs to --score")
    if len(args.min_run or (2,)) > 1:
        raise UserError("--min-run takes one length here; several belong to --score")
    has_model = args.without or args.subsets is not None
    if args.trace is not None:
        _refuse(args, "--trace", ("methods", "set", "answer", "out", "chat", *(() if has_model else ("model",))))
        from decoders import load

        trace, target = load(args.trace), common.open_target(args) if has_model else None
    else:
        trace, target = _load_or_record(args)
    report: dict[str, Any] = {}
    if args.without:
        report["causes"] = _causes(trace, target)
    if args.subsets is not None:
        report["subsets"] = _ablations(trace, target, args.subsets)
    return _show(args, trace, report)


def _refuse(args: argparse.Namespace, by: str, names: Sequence[str], reason: str = "") -> None:
    """Raise UserError for the first of these options that is set."""
    if option := common.first_set(args, *names):
        raise UserError(f"--{option} {reason or f'is of no use with {by}'}")


# --- one answer -------------------------------------------------------------------------------------------------------


def _load_or_record(args: argparse.Namespace) -> tuple[Trace, Target]:
    from decoders import record, save
    from decoders.study.look.teacher_forcing import answer_ids, forced_trace

    source = _in_passages(common.prompt_record(args))
    answer = None if args.answer is None else _answer(args.answer)
    names = options.split(args.methods or [METHOD])
    if len(names) > 1:
        raise UserError("--methods takes one method here; several belong to --score")
    target = common.open_target(args)
    [(method, params)] = common.chosen_methods(target, names, args.set)[0].items()
    prompt = source.prompt(target.tokenizer, chat=args.chat)
    settings: dict[str, Any] = {"title": source.id, "max_new_tokens": args.max_new_tokens}
    if answer is None:
        trace = record(target, prompt, method, params, **settings)
    else:
        trace = forced_trace(target, prompt, answer_ids(target, answer), method, params, **settings)
    if args.out:
        save(trace, args.out)
    return trace, target


def _causes(trace: Trace, target: Any) -> list[dict[str, Any]]:
    """The answer read without each of its sources. Raises UserError for another model's tokens, and where there is no
    source.
    """
    from decoders.study.attribute.evidence import causes, evidence_sources
    from specviz.views.prompts import check_tokens

    check_tokens(target, trace)
    count = len(evidence_sources(trace))
    source_causes = []
    with common.progress_bar("reading without each source") as progress:
        for cause in causes(trace, target):
            source_causes.append(cause)
            progress(len(source_causes), count)
    return source_causes


def _ablations(trace: Trace, target: Any, count: int) -> dict[str, Any]:
    """The answer read without random subsets of its sources. Raises UserError as ``_causes`` does, and for one source.
    """
    from decoders.study.attribute.ablations import ablation_report
    from decoders.study.attribute.evidence import evidence_sources, sentences
    from decoders.study.attribute.without import ReadAnswer
    from specviz.views.prompts import check_tokens

    if len(evidence_sources(trace)) < 2 or not sentences(trace):
        raise UserError("subsets are of at least two sources: give a prompt with passages or turns, and an answer")
    check_tokens(target, trace)
    with common.progress_bar("reading without subsets of the sources") as progress:
        return ablation_report(trace, ReadAnswer(target, trace.prompt_ids, trace.output_ids), count, progress)


def _label(trace: Trace, start: int, stop: int) -> str:
    """Words of the answer in a row's head."""
    text = trace.text(trace.output_ids[start:stop]).strip()
    return visible(text if len(text) <= 60 else f"{text[:59]}…")


def _show_ablations(trace: Trace, report: dict[str, Any]) -> None:
    """A table of each source's weight by sentence, what the first sources are worth, and which pairs interact."""
    rows = []
    for number, fit in enumerate(report["fits"]):
        label = _label(trace, fit["start"], fit["stop"]) if number else "the whole answer"
        rows.append((label, *(f"{weight:+.1f}" for weight in fit["weights"]), decimals(fit["lds"], 2)))
    heads = ("weight in log p", *report["sources"], "LDS")
    common.show_table(heads, rows[1:] if len(rows) == 2 else rows, error=True)
    drops = ", ".join(f"{k}: {drop:.1f}" for k, drop in report["drops"].items())
    sentences = [f"{_label(trace, pair['start'], pair['stop'])}: {pair['said']}" for pair in report["pairs"]]
    common.say(
        f"Fitted to {report['fitted']} subsets, judged by {report['held']} others (LDS: rank correlation).",
        f"Fall of log p without the first sources by weight: {drops}.",
        *(sentences or ["No two sources stand in for each other, or need each other."]),
        error=True,
    )  # fmt: skip


def _show_causes(trace: Trace, causes: Sequence[dict[str, Any]]) -> None:
    """A table of the fall of log p by sentence and source, and what it says."""
    weights = [*zip(*(cause["weights"] for cause in causes), strict=True)]
    names = [cause["name"] for cause in causes]
    rows = []
    for number, row in enumerate(weights):
        label = _label(trace, row[0]["start"], row[0]["stop"]) if number else "the whole answer"
        rows.append((label, *(f"{weight['fall']:+.1f} {MARKS[weight['standing']]}" for weight in row)))
    common.show_table(("fall of log p without", *names), rows[1:] if len(rows) == 2 else rows, error=True)
    common.say(*(weight["said"] for weight in weights[0]), error=True)


def _in_passages(source: PromptRecord) -> PromptRecord:
    """Plain text with lines of three hyphens in it as passages between them, as the app reads a context."""
    from specviz.views.examples import passages

    parts = passages(source.text)
    return replace(source, text="", context=tuple(parts)) if len(parts) > 1 else source


def _answer(file_or_text: str) -> str:
    """The text of a file, or the text itself."""
    text = file_or_text
    with contextlib.suppress(OSError):  # no name that a file could have
        if Path(text).is_file():
            text = read_text(Path(text), "answer")
    if not text.strip():
        raise UserError("the answer is empty: give the text to attribute, or a file with it")
    return text.rstrip("\n")


def _way(args: argparse.Namespace) -> str:
    """The way links are counted, one of ``attribution.WAYS``."""
    return "drafted" if args.drafted else "whole" if args.parts else "words"


def _show(args: argparse.Namespace, trace: Trace, report: dict[str, Any]) -> int:
    from decoders.study.attribute import attribution
    from decoders.study.attribute import export as attribution_export

    links = attribution.links(trace, *(args.min_run or (2,)), **attribution.WAYS[_way(args)])
    if args.markdown:
        write_text(args.markdown, attribution_export.markdown(trace, links))
    if args.json:
        return common.print_json({**attribution_export.to_json(trace, links), **report})
    numbers: dict[tuple[str, int], int] = {}
    parts = []
    for part, link in attribution_export.split_by_link(trace, links):
        if link is None or not part.strip():
            parts.append(part)
            continue
        number = numbers.setdefault((link.kind, link.passage), len(numbers) + 1)
        core = part.strip()
        parts.append(part.replace(core, f"[{core}]({number})", 1))
    print(visible("".join(parts)))
    _sources(args, trace, links, numbers)
    if "causes" in report:
        _show_causes(trace, report["causes"])
    if "subsets" in report:
        _show_ablations(trace, report["subsets"])
    return 0


def _sources(
    args: argparse.Namespace, trace: Trace, links: Sequence[Link], numbers: dict[tuple[str, int], int]
) -> None:
    from decoders.study.attribute import attribution
    from decoders.study.attribute import export as attribution_export
    from decoders.trace.metrics import ratio

    data = attribution_export.to_json(trace, links)
    length = data["output_tokens"]
    sources, remainder = data["sources"], length - data["copied_tokens"]
    token_counts = [*(source["copied_tokens"] for source in sources), remainder]
    of_answer = column_texts("share", [ratio(tokens, length) for tokens in token_counts])
    of_source = column_texts("share", [ratio(source["used_tokens"], source["tokens"]) for source in sources])
    marks = [numbers.get((source["kind"], source["passage"]), "") for source in sources]
    rows: list[tuple[object, ...]] = [
        (mark, source["name"], source["links"], *shares, source["longest"])
        for mark, source, *shares in zip(marks, sources, token_counts, of_answer, of_source, strict=False)
    ]
    rows.append(("", "copied by nobody", "", remainder, of_answer[-1], "", ""))
    heads = ("", "source", "links", "tokens copied", "of the answer (%)", "of the source (%)", "longest")
    common.show_table(heads, rows, error=True)
    wrong = sum(not link["verbatim"] for link in data["links"])
    words = f"{plural(len(links), 'link')} by {trace.run['method']['name']}"
    words += f" ({attribution.WAY_WORDS[_way(args)]}), from {data['used_sources']} of {data['given_sources']} sources"
    if data["run"]["signal"] == "attention":
        words += ", from where its draft model looked"
    elif not data["run"]["signal"]:
        words += ": this run's record tells no source"
    words += ", all verbatim" if links and not wrong else f", {wrong} of them not verbatim" if wrong else ""
    if data["run"]["forced"]:
        differs = trace.run["metrics"]["differs"]
        words += f"; the answer was given, and {differs} of its {length} tokens are not the target's first choice"
    common.say(words, error=True)


# --- known quotes -----------------------------------------------------------------------------------------------------


def _score(args: argparse.Namespace) -> int:
    from decoders import record
    from decoders.study.attribute.attribution import COUNT_UNITS
    from decoders.study.attribute.demo_quotes import demo_quotes
    from decoders.study.attribute.quotes import read_quotesum, sweep
    from decoders.study.look.teacher_forcing import answer_ids, forced_trace

    if args.score in DEMOS:
        gold, notes = demo_quotes(args.limit or 40, brief=DEMOS[args.score]), []
    elif Path(args.score).is_file():
        gold, notes = read_quotesum(args.score, args.limit)
    else:
        raise UserError(f"{args.score} is neither a file nor one of {', '.join(DEMOS)}")
    target = common.open_target(args)
    gold, too_long = _fitting(target, gold, args.max_new_tokens if args.generated else 0)
    prompts = [item.record().prompt(target.tokenizer) for item in gold]
    methods, missing = common.chosen_methods(target, args.methods or [METHOD], args.set, prompts)
    notes += [*([too_long] if too_long else []), *missing.values()]
    rows: list[tuple[str, str, SweepRow]] = []
    min_runs = args.min_run or (2, 5, 8)
    with common.progress_bar("attributing") as progress:
        scored_count = 0
        for name, params in methods.items():
            runs = []
            for example, prompt in zip(gold, prompts, strict=True):
                if args.generated:
                    trace = record(target, prompt, name, params, max_new_tokens=args.max_new_tokens)
                else:
                    trace = forced_trace(target, prompt, answer_ids(target, example.answer), name, params)
                runs.append((trace, example))
                scored_count += 1
                progress(scored_count, len(gold) * len(methods))
            for whole, way in COUNT_UNITS.items():
                rows += [(name, way, row) for row in sweep(runs, min_runs, whole=whole)]
    for name, lost_count in {name: len(gold) - row.examples for name, _, row in rows}.items():
        if lost_count:
            notes.append(f"{lost_count} of {plural(len(gold), 'answer')} by {name} do not hold the known quotes")
    _print_scores(args, target, rows, notes)
    return 0


def _fitting(target: Target, gold: Sequence[QuotedAnswer], new: int) -> tuple[list[QuotedAnswer], str]:
    """The prompts that leave room for their answer (or ``new`` tokens), and one sentence about the others ("" if
    none).
    """
    from specviz.pages.attribution.scoring import fits

    fitting_gold = [example for example in gold if fits(target, example, new)]
    if not fitting_gold:
        raise UserError(f"no prompt leaves room for its answer in {target.name}'s context of {target.context_length}")
    lost_count = len(gold) - len(fitting_gold)
    note = (
        f"{lost_count} of {len(gold)} prompts leave no room for their answer in {target.name}'s context and were left "
        "out"
    )
    return fitting_gold, note if lost_count else ""


def _print_scores(
    args: argparse.Namespace, target: Target, rows: Sequence[tuple[str, str, SweepRow]], notes: Sequence[str]
) -> None:
    origin = "generated" if args.generated else "given"
    if args.json:
        flat = [
            {"method": name, "counted": way, "min_run": row.min_run, "examples": row.examples, **asdict(row.score)}
            for name, way, row in rows
        ]
        data = {"schema": SCHEMA, "model": target.info, "set": args.score, "answers": origin}
        common.print_json({**data, "notes": list(notes), "rows": flat})
    names = ("method", "counted", "min run", "answers", "precision", "recall", "F1", "right passage")
    lines = [
        (
            name, way, str(row.min_run), str(row.examples),
            *(decimals(getattr(row.score, key), 3) for key in ("precision", "recall", "f1", "right_passage")),
        )
        for name, way, row in rows
    ]  # fmt: skip
    if args.markdown:
        body = ["| " + " | ".join(line) + " |" for line in (names, ["---"] * len(names), *lines)]
        write_text(args.markdown, "\n".join([*body, "", *(f"{note}  " for note in notes)]) + "\n")
    if args.json:
        return
    common.show_table(names, lines, f"{args.score}: {origin} answers, {target.name}")
    common.say(*notes)
