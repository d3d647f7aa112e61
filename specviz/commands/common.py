"""Work that several commands share: loading the target, reading prompts, choosing methods, printing tables."""

from __future__ import annotations

import argparse
import json
import os
import runpy
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decoders.errors import UserError
from decoders.folders import read_text
from decoders.model.files.catalog import BUNDLED, default_model, model_place
from specviz.model_records import remember
from specviz.quiet import settle
from specviz.words import plural, visible

from . import options
from .options import sets_of, split, under_verifiers

if TYPE_CHECKING:
    from rich.console import Console

    from decoders import Prompt, Target, Trace
    from decoders.importers.importer import ImportResult
    from decoders.prompt.files import PromptRecord
    from decoders.prompt.grammar import Grammar
    from decoders.prompt.prompt import Pool
    from decoders.study.measure.stock import StockModel

LINE_SECONDS = 20  # between lines of progress, where no bar can be drawn


def prompt_records(args: argparse.Namespace) -> list[PromptRecord]:
    """The prompts that ``add_prompts``' options name, else the model's examples, which ``args.prompts`` then names."""
    from decoders.prompt.files import by_category, read_prompts
    from specviz.views.examples import file

    args.prompts = args.prompts or file(wants_toy(args))
    if (of_set := _set_records(args.prompts, args.limit, args)) is not None:
        return of_set
    if args.by_category:
        return by_category(read_prompts(args.prompts))[: args.limit]
    return read_prompts(args.prompts, args.limit)


def _set_records(source: Path, count: int, args: argparse.Namespace) -> list[PromptRecord] | None:
    """The first prompts of the set that is named; None where a file is."""
    if source.suffix or source.exists():
        return None
    from specviz.views.prompts import is_set, records

    return records(str(source), count, toy=wants_toy(args)) if is_set(str(source)) else None


def prompt_record(args: argparse.Namespace) -> PromptRecord:
    """The prompt that ``add_prompt``'s options name."""
    from decoders.prompt.files import PromptRecord, read_prompts

    if args.prompt is not None:
        if not args.prompt.strip():
            raise UserError("the prompt is empty: type at least one character")
        return PromptRecord(id="prompt", text=args.prompt)
    records = _set_records(args.prompt_file, args.index + 1, args) or read_prompts(args.prompt_file)
    if args.index >= len(records):
        raise UserError(
            f"--index {args.index} is out of range: {args.prompt_file} holds {plural(len(records), 'prompt')} (from 0)"
        )
    return records[args.index]


def template_hint(args: argparse.Namespace, record: PromptRecord, target: Target, output: Sequence[int]) -> str:
    """A sentence on ``--chat`` where a chat model ended at once, as plain text came to it without its template."""
    if args.chat or not record.text or not target.tokenizer.chat_template or {*output} - {*target.stop_ids}:
        return ""
    return "the model ended at once: it answers chats, and read plain text; --chat sends it as a user's message"


def model_source(args: argparse.Namespace) -> str:
    """The place of the model asked for, or of the default one (``catalog.default_model``)."""
    return model_place(args.model or default_model())


def wants_toy(args: argparse.Namespace) -> bool:
    """True where the model asked for, or the default one, is the bundled target."""
    return (args.model or default_model()) == BUNDLED


def processing_options(texts: Sequence[str]) -> dict[str, Any]:
    """``--processor`` as arguments of a run: settings of a generation config, and processors from Python files."""
    from decoders.model.target_model.own_settings import NEUTRAL

    generation: dict[str, Any] = {}
    processors = []
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if text == "none":
            generation = {**NEUTRAL, **generation}
        elif equals:
            try:
                generation[name] = json.loads(value)
            except ValueError:
                raise UserError(f"--processor {text}: {value!r} is no JSON value, as 1.2 or [[5, 6]] is") from None
        else:
            file, _, attribute = text.partition(".py:")
            processors.append(_own_processor(Path(f"{file}.py" if attribute else text), attribute))
    return {"generation": generation, "processors": processors}


def _own_processor(path: Path, name: str) -> Any:
    """The logits processor of that name in a Python file; of a class an instance made without arguments."""
    if path.suffix != ".py" or not path.is_file():
        raise UserError(
            f"--processor {path}{':' if name else ''}{name} is neither a setting, as repetition_penalty=1.2, nor "
            "FILE.py:NAME with a file that is there"
        )
    try:
        value = runpy.run_path(str(path))[name]
        processor = value() if isinstance(value, type) else value
    except Exception as problem:
        reason = f"no {name!r} in it" if isinstance(problem, KeyError) else f"{type(problem).__name__}: {problem}"
        raise UserError(f"--processor {path}:{name} cannot be read: {reason}") from None
    if not callable(processor):
        raise UserError(f"--processor {path}:{name} is a {type(processor).__name__}: a logits processor is called")
    return processor


def grammar_of(args: argparse.Namespace) -> Grammar | None:
    """The grammar that ``options.add_grammar``'s options name."""
    from decoders.prompt.grammar import FILTER, MARK, REGEX, SCHEMA, Grammar

    drafts = FILTER if args.grammar_filter else MARK
    if args.json_schema is not None and args.regex is not None:
        raise UserError("--json-schema and --regex both say what the answer must be: leave one out")
    if args.json_schema is not None:
        file = Path(args.json_schema)
        is_text = args.json_schema.lstrip()[:1] in ("{", "[")
        return Grammar(SCHEMA, args.json_schema if is_text else read_text(file, "JSON Schema"), drafts)
    if args.regex is not None:
        return Grammar(REGEX, args.regex, drafts)
    if args.grammar_filter:
        raise UserError("--grammar-filter needs a grammar: give --json-schema or --regex")
    return None


def open_target(args: argparse.Namespace) -> Target:
    """Load the model asked for, or the default one; remembered for ``specviz models``."""
    settle(args.threads)
    from decoders import load_target
    from decoders.model.target_model.size import check_room

    source, model_options = model_source(args), options.model_arguments(args)
    model_options.pop("threads", None)
    if Path(source).exists():  # a hub id is fetched first
        check_room(source, **model_options)
    with opening() as progress:
        target = load_target(source, progress=progress, **model_options)
    remember(source, target)
    from decoders.model.target_model.own_settings import passed_over, passed_over_words

    say(passed_over_words(passed_over(target.model.generation_config)), error=True)
    if target.engines.static is not None and target.engines.waits:
        say(target.engines.static.notice, error=True)
        target.engines.prepare()
    return target


def stock_model(args: argparse.Namespace, target: Target) -> StockModel:
    """transformers' own model, to compare the target with."""
    from decoders.study.measure.stock import StockModel

    info = target.info
    return StockModel.load(
        model_source(args), target.dtype, target.device, info.get("weights"), info.get("activations")
    )


def chosen_methods(
    target: Target,
    names: Sequence[str] | None,
    sets: Sequence[str],
    prompts: Sequence[Prompt] = (),
    *,
    verifier: Sequence[str] | None = None,
) -> tuple[dict[str, Any], dict[str, str]]:
    """Methods by name with their checked parameters, and, of "all", a sentence for each that is left out: a part is
    missing, or one of the ``prompts`` is not for it.

    ``names`` (None: all) may hold commas; ``sets`` as ``sets_of`` reads them; ``verifier`` as ``judged`` does. Raises
    UserError naming what exists.
    """
    from decoders import find_method, methods
    from decoders.draft.params import make_params

    requested_names = split(["all"] if names is None else names)
    if not requested_names:
        raise UserError(f"no method was named: choose of {', '.join(methods())}, or say all")
    takes_all = "all" in requested_names
    all_names = [name for name, method in methods().items() if not method.null or name in requested_names]
    entries = {
        name: find_method(name) for name in under_verifiers(all_names if takes_all else requested_names, verifier)
    }
    values = sets_of(sets, list(entries))
    params = {name: make_params(entry.params, values[name]) for name, entry in entries.items()}
    left_out: dict[str, str] = {}
    for name, entry in entries.items():
        missing = entry.missing(target, params[name])
        unfit = [reason for prompt in prompts if (reason := entry.applies(prompt))] if not missing else []
        if not missing and not unfit:
            continue
        reason = missing or f"{len(unfit)} of {plural(len(prompts), 'prompt')} will not do: {unfit[0]}"
        if not takes_all:
            raise UserError(missing or f"{name} cannot run: {reason}")
        left_out[name] = f"{name} was left out: {reason}"
        del params[name]
    return params, left_out


def fitting(
    target: Target, records: Sequence[PromptRecord], max_new_tokens: int
) -> tuple[list[Prompt], list[PromptRecord], str]:
    """Prompts that leave room for the answer, their records, and one sentence about those that do not ("" if none)."""
    fitting_prompts, sources, too_long = [], [], []
    for record in records:
        prompt = record.prompt(target.tokenizer)
        if len(prompt.tokens) + max_new_tokens > target.context_length:
            too_long.append(len(prompt.tokens))
        else:
            fitting_prompts.append(prompt)
            sources.append(record)
    note = ""
    if too_long:
        is_single = len(too_long) == 1
        note = (
            f"{len(too_long)} of {len(records)} prompts {'was' if is_single else 'were'} left out: with "
            f"{max_new_tokens} new "
            f"tokens {'it does' if is_single else 'they do'} not fit {target.name}'s context of "
            f"{target.context_length} "
            f"(the longest has {max(too_long)} tokens)"
        )
    if not fitting_prompts:
        raise UserError(f"no prompt can be used: {note}")
    return fitting_prompts, sources, note


def console(*, error: bool = False) -> Console:
    """A rich console that does not cut tables where the output is a file or a pipe."""
    from rich.console import Console

    stream = sys.stderr if error else sys.stdout
    return Console(file=stream, width=None if stream.isatty() else 130, highlight=False)


def say(*texts: str, error: bool = False) -> None:
    """Print texts, each on a line of its own and none of it taken for markup; empty ones are left out.

    Words are wrapped for a terminal alone, so that files and pipes get whole lines.
    """
    out = console(error=error)
    for text in texts:
        if text:
            out.print(visible(text), markup=False, soft_wrap=not out.is_terminal)


def show_table(
    heads: Sequence[str], rows: Iterable[Sequence[Any]], title: str = "", *, bold: object = None,
    right: int | None = None, row_lines: bool = False, last_apart: bool = False, error: bool = False,
) -> None:  # fmt: skip
    """Print a table; no text in it is taken for markup, cells of rich keep their look.

    ``bold``: the row that begins with this cell; ``right``: the columns from this one on are numbers: they stand at the
    right and are never cut, so a table that is too wide is printed in parts; ``row_lines``: lines between rows, or
    above the last one (``last_apart``).
    """
    from rich.cells import cell_len
    from rich.markup import escape
    from rich.table import Column, Table
    from rich.text import Text

    lines = [[cell if isinstance(cell, Text) else Text(visible(str(cell))) for cell in row] for row in rows]
    out, numbers = console(error=error), len(heads) if right is None else right
    words = [max(map(cell_len, head.split()), default=0) for head in heads]  # headings may be wrapped
    widths = [max(words[n], *(line[n].cell_len for line in lines), 0) for n in range(len(heads))]
    for part in _parts(widths, numbers, out.width):
        columns = (
            Column(escape(heads[n]))
            if n < numbers
            else Column(escape(heads[n]), justify="right", min_width=min(widths[n], out.width // 2))
            for n in part
        )
        table = Table(*columns, title=escape(visible(title)) or None, title_justify="left", show_lines=row_lines)
        for n, line in enumerate(lines, 1):
            style = "bold" if bold is not None and line[0].plain == str(bold) else ""
            table.add_row(*(line[k] for k in part), style=style, end_section=last_apart and n == len(lines) - 1)
        out.print(table)


def _parts(widths: Sequence[int], numbers: int, room: int) -> Iterator[list[int]]:
    """The columns of each part of a table in ``room`` cells: the first ones, which may be wrapped (to a dozen cells),
    and as many of those with ``numbers`` as fit beside them; one at least.
    """
    first = [*range(numbers)]
    begun = 1 + sum(min(width, 12) + 3 for width in widths[:numbers])
    part, used_width = [*first], begun
    for n in range(numbers, len(widths)):
        if part != first and used_width + widths[n] + 3 > room:
            yield part
            part, used_width = [*first], begun
        part.append(n)
        used_width += widths[n] + 3
    yield part


@contextmanager
def progress_bar(label: str, *, lines: bool = True, told_now: bool = False) -> Iterator[Callable[..., None]]:
    """A bar on stderr; call it with (done, total), and with what goes on now in place of the time left where that is
    ``told_now``. Where stderr is no terminal, a line at times (with ``lines``).
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    is_terminal, line_time = sys.stderr.isatty(), time.monotonic()
    last = TextColumn("{task.fields[now]}") if told_now else TimeRemainingColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), last)
    with Progress(*columns, console=console(error=True), transient=True, disable=not is_terminal) as bar:
        task = bar.add_task(label, total=None, now="")

        def progress(count: int, total: int, detail: str = "") -> None:
            nonlocal line_time
            bar.update(task, completed=count, total=total, now=detail)
            if lines and not is_terminal and time.monotonic() - line_time >= LINE_SECONDS:
                say(f"{label}: {count:,} of {total:,}{detail and f' units · {detail}'}", error=True)
                line_time = time.monotonic()

        yield progress


@contextmanager
def opening() -> Iterator[Callable[[str, float], None]]:
    """Progress of ``load_target`` on stderr, where opening takes long: a bar, or a line where it is no terminal."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    bar = Progress(*columns, console=console(error=True), transient=True, disable=not sys.stderr.isatty())

    def tell(words: str, share: float) -> None:
        if not bar.task_ids:
            bar.add_task(words, total=1.0)
            bar.start()
            if bar.disable:
                say(f"{words}: this is done once, and may take a minute", error=True)
        bar.update(bar.task_ids[0], description=words, completed=share)

    try:
        yield tell
    finally:
        bar.stop()


def print_json(data: Any, indent: int | None = None) -> int:
    """Print a command's result for programs; the exit status."""
    print(json.dumps(data, ensure_ascii=False, indent=indent))
    return 0


def check_writable(*paths: Path | None) -> None:
    """Fail before the work, not after it: the folder of every output file is there and may be written to."""
    for path in filter(None, paths):
        if path.is_dir():
            raise UserError(f"{path} is a folder; give a file to write")
        folder = path.absolute().parent
        if not folder.is_dir():
            raise UserError(f"there is no folder {folder} to write {path.name} to")
        if not os.access(folder, os.W_OK):
            raise UserError(f"the folder {folder} cannot be written to")


def first_set(args: argparse.Namespace, *names: str) -> str:
    """The first of these options that is set, as it is written (without dashes before it); "" where none is."""
    return next((name.replace("_", "-") for name in names if getattr(args, name)), "")


def read_traces(path: Path) -> list[Trace]:
    """The runs in a file: a trace, or what ``specviz import`` reads. Raises TraceError or ImportFault."""
    return read_runs(path)[0]


def read_runs(path: Path) -> tuple[list[Trace], ImportResult | None]:
    """The runs in a file, and what was imported where it is a server's: that may have numbers and no run. Raises as
    ``read_traces`` does.
    """
    from decoders.importers import NotALog, open_log
    from decoders.trace.files import load
    from decoders.trace.tables import TraceError

    try:
        return [load(path)], None
    except TraceError as fault:
        if not path.is_file() or path.suffix == ".spectrace":
            raise
        try:
            log = open_log(read_log(path), path.name)
            return log.traces, log
        except NotALog:
            raise fault from None


def show_numbers(log: ImportResult, totals: bool = False) -> None:
    """Print what a server says of many requests, a table each; with ``totals`` only those that count no tokens."""
    for numbers in log.numbers:
        rows = [(visible(name), _plain(value)) for name, value in numbers.values.items()]
        if not totals or not numbers.totals:
            show_table(("number", "value"), rows, visible(numbers.title), right=1)


def _plain(value: Any) -> str:
    """A number for a table; of a list all of them."""
    if isinstance(value, list):
        return ", ".join(_plain(item) for item in value)
    return f"{value:g}" if isinstance(value, float) else visible(str(value))


def read_log(path: Path) -> bytes:
    """A file of a server, unless it is too large. Raises ImportFault, OSError."""
    from decoders.importers import check_size

    check_size(path.stat().st_size, path.name)
    return path.read_bytes()


def pool_file(path: Path, target: Target) -> Pool:
    """A text to draft from, as the target's tokens. Raises UserError as ``text_file`` does."""
    from decoders.prompt.prompt import Pool

    return Pool.from_text(target.tokenizer, read_text(path, "pool"), path.name)


def step_number(step: int, trace: Trace) -> int:
    """The step that a user means, who counts from 1, as traces count: from 0. Raises UserError where there is none."""
    steps = trace.rows("steps")
    if not 1 <= step <= max(1, steps):
        raise UserError(f"--step {step} is out of range: the trace has steps 1 to {steps}")
    return step - 1
