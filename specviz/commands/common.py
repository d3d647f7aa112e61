"""What several commands share: arguments, loading the target, reading prompts, choosing methods, printing tables."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decoders.errors import UserError
from decoders.model.catalog import BUNDLED, WEIGHTS, default_model, model_place
from specviz.quiet import settle
from specviz.remembered import remember
from specviz.words import counted

if TYPE_CHECKING:
    from rich.console import Console

    from decoders import Prompt, Target, Trace
    from decoders.prompt.files import PromptRecord
    from decoders.prompt.prompt import Pool
    from decoders.study.stock import StockModel

ENGINES = ("auto", "eager", "compiled", "graph")
ENGINE_HELP = "how forwards run: eager, compiled (CPU), graph (CUDA), or auto (default): what was measured to be faster"
WEIGHTS_HELP = "of the layers, on a CPU: fp32 (default), or rounded to int8 or int4, smaller and faster at few rows"
LINE_SECONDS = 20  # between lines of progress, where no bar can be drawn
MODEL_HELP = "model folder, GGUF file, hub id, smollm2 or bundled (default: smollm2 where it is installed)"


def _typed(kind: type, allowed: str, fits: Callable[[Any], bool]) -> Callable[[str], Any]:
    def convert(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not allowed: {allowed}") from None
        if not fits(value):
            raise argparse.ArgumentTypeError(f"{text} is out of range: {allowed}")
        return value

    return convert


def whole(low: int, high: int | None = None) -> Callable[[str], int]:
    """An argparse type: a whole number in a range."""
    allowed = f"a whole number of at least {low}" if high is None else f"a whole number from {low} to {high}"
    return _typed(int, allowed, lambda value: value >= low and (high is None or value <= high))


positive = _typed(float, "a number above 0", lambda value: 0 < value < float("inf"))

# --- options: those of one kind are alike in all commands


def flag(parser: argparse._ActionsContainer, name: str, help: str) -> None:
    """An option without a value."""
    parser.add_argument(name, action="store_true", help=help)


def file(parser: argparse._ActionsContainer, name: str, help: str, metavar: str = "F", **settings: Any) -> None:
    """An option (or, without dashes, an argument) that takes a path."""
    parser.add_argument(name, type=Path, metavar=metavar, help=help, **settings)


def several(parser: argparse._ActionsContainer, name: str, metavar: str, help: str) -> None:
    """An option that may be repeated; its values are listed."""
    parser.add_argument(name, action="append", default=[], metavar=metavar, help=help)


def count(
    parser: argparse._ActionsContainer, name: str, help: str, default: int | None = None, *, low: int = 1,
    high: int | None = None, metavar: str = "N", **settings: Any,
) -> None:  # fmt: skip
    """An option that takes a whole number from ``low`` to ``high``; its help says the default."""
    if default is not None:
        help += f" (default: {default})"
    parser.add_argument(name, type=whole(low, high), default=default, metavar=metavar, help=help, **settings)


def add_model(
    parser: argparse.ArgumentParser, model: str = MODEL_HELP, *, dtype: bool = True, plugins: bool = True,
    weights: bool = False,
) -> None:  # fmt: skip
    """Which model is loaded, and how; ``plugins``: the command takes methods, those from files too."""
    group = parser.add_argument_group("model")
    group.add_argument("--model", metavar="PATH_OR_ID", help=model)
    group.add_argument("--device", metavar="D", help="cpu or cuda (default: cuda where there is one)")
    if dtype:
        group.add_argument("--dtype", metavar="T", help="float32, bfloat16, float16 or float64 (default: by device)")
    if weights:
        group.add_argument("--weights", choices=WEIGHTS, metavar="W", help=WEIGHTS_HELP)
    group.add_argument("--engine", choices=ENGINES, metavar="E", help=ENGINE_HELP)
    count(group, "--threads", "CPU threads (default: torch's choice)")
    if plugins:  # ``specviz.cli`` names them to the registry
        parser.add_argument(
            "--plugin", action="append", default=[], type=Path, metavar="FILE",
            help="a Python file with a method of your own; may be repeated",
        )  # fmt: skip


def add_prompts(parser: argparse.ArgumentParser, limit: int) -> None:
    file(parser, "--prompts", "JSONL (Spec-Bench, segments, messages), or plain text (default: the examples)", "FILE")
    count(parser, "--limit", "read at most N prompts", limit)
    flag(parser, "--by-category", "take the prompts from each of the file's categories in turn")
    count(parser, "--max-new-tokens", "tokens per answer", 64)


def add_methods(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--methods", nargs="+", default=["all"], metavar="NAME", help="names, or all (default)")
    several(parser, "--set", "METHOD.K=V", "a parameter of a method; may be repeated")


def add_prompt(parser: argparse.ArgumentParser) -> argparse._MutuallyExclusiveGroup:
    """One prompt (``prompt_record``, with ``add_reading``); gives the group, for what may stand in its place."""
    group = parser.add_mutually_exclusive_group(required=True)
    file(group, "--prompt-file", "plain text, or JSONL (its first prompt, see --index)")
    group.add_argument("--prompt", metavar="TEXT", help="the prompt itself")
    return group


def add_reading(parser: argparse.ArgumentParser) -> None:
    """How one prompt is read."""
    parser.add_argument("--index", type=whole(0), default=0, metavar="N", help="which prompt of a JSONL file (from 0)")
    flag(parser, "--chat", "send plain text through the model's chat template")


def prompt_records(args: argparse.Namespace) -> list[PromptRecord]:
    """The prompts that ``add_prompts``' options name; without a file the examples for the model, which is then what
    ``args.prompts`` names.
    """
    from decoders.prompt.files import by_category, read_prompts
    from specviz.views.examples import file

    args.prompts = args.prompts or file(wants_toy(args))
    if args.by_category:
        return by_category(read_prompts(args.prompts))[: args.limit]
    return read_prompts(args.prompts, args.limit)


def prompt_record(args: argparse.Namespace) -> PromptRecord:
    """The prompt that ``add_prompt``'s options name."""
    from decoders.prompt.files import PromptRecord, read_prompts

    if args.prompt is not None:
        if not args.prompt.strip():
            raise UserError("the prompt is empty: type at least one character")
        return PromptRecord(id="prompt", text=args.prompt)
    records = read_prompts(args.prompt_file)
    if args.index >= len(records):
        raise UserError(
            f"--index {args.index} is out of range: {args.prompt_file} holds {len(records)} prompts (from 0)"
        )
    return records[args.index]


def model_source(args: argparse.Namespace) -> str:
    """Where the model asked for lies, or the default one (``catalog.default_model``)."""
    return model_place(args.model or default_model())


def wants_toy(args: argparse.Namespace) -> bool:
    """Whether the model asked for, or the default one, is the bundled target."""
    return (args.model or default_model()) == BUNDLED


def open_target(args: argparse.Namespace) -> Target:
    """Load the model asked for, or the default one; remembered for ``specviz models``."""
    settle(args.threads)
    from decoders import load_target

    source, engine = model_source(args), getattr(args, "engine", None)
    weights = getattr(args, "weights", None)
    with opening() as progress:
        target = load_target(
            source, dtype=args.dtype, device=args.device, progress=progress, engine=engine, weights=weights
        )
    remember(source, target)
    if target.engines.engine == "compiled" and not target.engines.ready():
        say("compiling, once for this machine: about half a minute", error=True)
        target.engines.prepare()
    return target


def stock_model(args: argparse.Namespace, target: Target) -> StockModel:
    """transformers' own model, to compare the target with."""
    from decoders.study.stock import StockModel

    return StockModel.load(model_source(args), target.dtype, target.device, target.info.get("weights"))


def parse_sets(pairs: Sequence[str], option: str = "--set", form: str = "name=value") -> dict[str, str]:
    """``["k=12", "theta=off"]``, given with an ``option``, as a dict. Raises UserError for another ``form``.

    >>> parse_sets(["k=12", "theta = off"])
    {'k': '12', 'theta': 'off'}
    """
    sets: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not equals or not name:
            raise UserError(f"{option} {pair!r} is not of the form {form}")
        if name in sets:
            raise UserError(f"{option} gives {name} twice")
        sets[name] = value
    return sets


def chosen_methods(
    target: Target, names: Sequence[str], sets: Sequence[str], prompts: Sequence[Prompt] = ()
) -> tuple[dict[str, Any], dict[str, str]]:
    """Methods by name with their checked parameters, and, of "all", a sentence for each that is left out: a part is
    missing, or one of the ``prompts`` is not for it.

    ``names`` may hold commas; ``sets`` are "METHOD.name=value". Raises UserError naming what exists.
    """
    from decoders import find_method, methods
    from decoders.draft.params import make_params

    wanted = split(names)
    if not wanted:
        raise UserError(f"no method was named: choose of {', '.join(methods())}, or say all")
    everything = "all" in wanted
    every = [name for name, method in methods().items() if not method.null or name in wanted]
    values: dict[str, dict[str, str]] = {name: {} for name in (every if everything else wanted)}
    entries = {name: find_method(name) for name in values}
    for key, value in parse_sets(sets).items():
        method, dot, name = key.rpartition(".")
        if not dot or method not in values:
            raise UserError(
                f"--set {key}={value} is not of the form METHOD.name=value, with METHOD one of {', '.join(values)}"
            )
        values[method][name] = value
    params = {name: make_params(entry.params, values[name]) for name, entry in entries.items()}
    left_out: dict[str, str] = {}
    for name, entry in entries.items():
        missing = None if entry.brings(params[name]) else entry.available(target)
        unfit = [reason for prompt in prompts if (reason := entry.applies(prompt))] if not missing else []
        if not missing and not unfit:
            continue
        reason = missing or f"{len(unfit)} of {counted(len(prompts), 'prompt')} will not do: {unfit[0]}"
        if not everything:
            raise UserError(missing or f"{name} cannot run: {reason}")
        left_out[name] = f"{name} was left out: {reason}"
        del params[name]
    return params, left_out


def split(names: Sequence[str]) -> list[str]:
    """Names, each once, of words that may hold several.

    >>> split(["pld,pld+h", "plain"])
    ['pld', 'pld+h', 'plain']
    """
    return list(dict.fromkeys(part for name in names for part in name.replace(",", " ").split()))


def fitting(
    target: Target, records: Sequence[PromptRecord], max_new_tokens: int
) -> tuple[list[Prompt], list[PromptRecord], str]:
    """Prompts that leave room for the answer, their records, and one sentence about those that do not ("" if none)."""
    kept, sources, too_long = [], [], []
    for record in records:
        prompt = record.prompt(target.tokenizer)
        if len(prompt.tokens) + max_new_tokens > target.context_length:
            too_long.append(len(prompt.tokens))
        else:
            kept.append(prompt)
            sources.append(record)
    note = ""
    if too_long:
        one = len(too_long) == 1
        note = (
            f"{len(too_long)} of {len(records)} prompts {'was' if one else 'were'} left out: with {max_new_tokens} new "
            f"tokens {'it does' if one else 'they do'} not fit {target.name}'s context of {target.context_length} "
            f"(the longest has {max(too_long)} tokens)"
        )
    if not kept:
        raise UserError(f"no prompt can be used: {note}")
    return kept, sources, note


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
            out.print(text, markup=False, soft_wrap=not out.is_terminal)


def show_table(
    heads: Sequence[str], rows: Iterable[Sequence[Any]], title: str = "", *, bold: object = None,
    right: int | None = None, ruled: bool = False, last_apart: bool = False, error: bool = False,
) -> None:  # fmt: skip
    """Print a table; no text in it is taken for markup, cells of rich keep their look.

    ``bold``: the row that begins with this cell; ``right``: the columns from this one on are numbers: they stand at the
    right and are never cut, so a table that is too wide is printed in parts; ``ruled``: lines between rows, or above
    the last one (``last_apart``).
    """
    from rich.cells import cell_len
    from rich.markup import escape
    from rich.table import Column, Table
    from rich.text import Text

    lines = [[cell if isinstance(cell, Text) else Text(str(cell)) for cell in row] for row in rows]
    out, numbers = console(error=error), len(heads) if right is None else right
    words = [max(map(cell_len, head.split()), default=0) for head in heads]  # headings may be wrapped
    widths = [max(words[n], *(line[n].cell_len for line in lines), 0) for n in range(len(heads))]
    for chosen in _parts(widths, numbers, out.width):
        columns = (
            Column(escape(heads[n]))
            if n < numbers
            else Column(escape(heads[n]), justify="right", min_width=min(widths[n], out.width // 2))
            for n in chosen
        )
        table = Table(*columns, title=escape(title) or None, title_justify="left", show_lines=ruled)
        for n, line in enumerate(lines, 1):
            style = "bold" if bold is not None and line[0].plain == str(bold) else ""
            table.add_row(*(line[k] for k in chosen), style=style, end_section=last_apart and n == len(lines) - 1)
        out.print(table)


def _parts(widths: Sequence[int], numbers: int, room: int) -> Iterator[list[int]]:
    """The columns of each part of a table in ``room`` cells: the first ones, which may be wrapped (to a dozen cells),
    and as many of those with ``numbers`` as fit beside them; one at least.
    """
    first = [*range(numbers)]
    begun = 1 + sum(min(width, 12) + 3 for width in widths[:numbers])
    part, used = [*first], begun
    for n in range(numbers, len(widths)):
        if part != first and used + widths[n] + 3 > room:
            yield part
            part, used = [*first], begun
        part.append(n)
        used += widths[n] + 3
    yield part


@contextmanager
def progress_bar(label: str, *, lines: bool = True, told_now: bool = False) -> Iterator[Callable[..., None]]:
    """A bar on stderr; call it with (done, total), and with what goes on now in place of the time left where that is
    ``told_now``. Where stderr is no terminal, a line at times (with ``lines``).
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    shown, told = sys.stderr.isatty(), time.monotonic()
    last = TextColumn("{task.fields[now]}") if told_now else TimeRemainingColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), last)
    with Progress(*columns, console=console(error=True), transient=True, disable=not shown) as bar:
        task = bar.add_task(label, total=None, now="")

        def progress(done: int, total: int, now: str = "") -> None:
            nonlocal told
            bar.update(task, completed=done, total=total, now=now)
            if lines and not shown and time.monotonic() - told >= LINE_SECONDS:
                say(f"{label}: {done:,} of {total:,}{now and f' units · {now}'}", error=True)
                told = time.monotonic()

        yield progress


@contextmanager
def opening() -> Iterator[Callable[[str, float], None]]:
    """What ``load_target`` tells of its progress, on stderr: a bar for a model that takes long to open; where stderr is
    no terminal, a line.
    """
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    bar = Progress(*columns, console=console(error=True), transient=True, disable=not sys.stderr.isatty())

    def told(words: str, share: float) -> None:
        if not bar.task_ids:
            bar.add_task(words, total=1.0)
            bar.start()
            if bar.disable:
                say(f"{words}: this is done once, and may take a minute", error=True)
        bar.update(bar.task_ids[0], description=words, completed=share)

    try:
        yield told
    finally:
        bar.stop()


def check_writable(path: Path | None) -> None:
    """Fail before the work, not after it: the folder of an output file is there and may be written to."""
    if path is None:
        return
    if path.is_dir():
        raise UserError(f"{path} is a folder; give a file to write")
    folder = path.absolute().parent
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder} to write {path.name} to")
    if not os.access(folder, os.W_OK):
        raise UserError(f"the folder {folder} cannot be written to")


def text_file(path: Path, what: str) -> str:
    """The text of a file. Raises UserError for one that cannot be read, or is not in UTF-8."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UserError(f"the {what} file {path} is not text in UTF-8: save it as such and try again") from None
    except OSError as error:
        raise UserError(f"cannot read the {what} file {path}: {(error.strerror or str(error)).lower()}") from None


def pool_file(path: Path, target: Target) -> Pool:
    """A text to draft from, as the target's tokens. Raises UserError as ``text_file`` does."""
    from decoders.prompt.prompt import Pool

    return Pool.from_text(target.tokenizer, text_file(path, "pool"), path.name)


def step_number(step: int, trace: Trace) -> int:
    """The step that a user means, who counts from 1, as traces count: from 0. Raises UserError where there is none."""
    steps = trace.rows("steps")
    if not 1 <= step <= max(1, steps):
        raise UserError(f"--step {step} is out of range: the trace has steps 1 to {steps}")
    return step - 1


def shown(text: str) -> str:
    """Model text fit for a terminal: control characters, which could move the cursor or worse, become visible.

    >>> shown("a\\tb\\x1b[31m")
    'a\\tb\\\\x1b[31m'
    """
    return "".join(c if c in "\n\t" or c == "\u200d" or c.isprintable() else repr(c)[1:-1] for c in text)
