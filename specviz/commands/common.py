"""What several commands share: arguments, loading the target, reading prompts, choosing methods, printing tables."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decoders.errors import UserError
from decoders.model.catalog import default_model, model_place
from specviz.remembered import remember

if TYPE_CHECKING:
    from rich.console import Console

    from decoders import Prompt, Target
    from decoders.prompt.files import PromptRecord

MODEL_HELP = "model folder, GGUF file, hub id, smollm2 or bundled (default: smollm2 where it is installed)"


def whole(low: int, high: int | None = None) -> Callable[[str], int]:
    """An argparse type: a whole number in a range."""

    def convert(text: str) -> int:
        allowed = f"a whole number of at least {low}" if high is None else f"a whole number from {low} to {high}"
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not allowed: {allowed}") from None
        if value < low or (high is not None and value > high):
            raise argparse.ArgumentTypeError(f"{text} is out of range: {allowed}")
        return value

    return convert


def positive(text: str) -> float:
    """An argparse type: a number above 0."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed: a number above 0") from None
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is out of range: a number above 0")
    return value


# --- options: those of one kind are alike in all commands


def flag(parser: argparse._ActionsContainer, name: str, help: str) -> None:
    """An option without a value."""
    parser.add_argument(name, action="store_true", help=help)


def file(
    parser: argparse._ActionsContainer, name: str, help: str, metavar: str = "F", *, required: bool = False
) -> None:
    """An option that takes a path."""
    parser.add_argument(name, type=Path, metavar=metavar, help=help, required=required)


def several(parser: argparse._ActionsContainer, name: str, metavar: str, help: str) -> None:
    """An option that may be repeated; its values are listed."""
    parser.add_argument(name, action="append", default=[], metavar=metavar, help=help)


def count(
    parser: argparse._ActionsContainer, name: str, help: str, default: int | None = None, *, low: int = 1,
    high: int | None = None, metavar: str = "N",
) -> None:  # fmt: skip
    """An option that takes a whole number from ``low`` to ``high``; its help says the default."""
    if default is not None:
        help += f" (default: {default})"
    parser.add_argument(name, type=whole(low, high), default=default, metavar=metavar, help=help)


def add_model(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("model")
    group.add_argument("--model", metavar="PATH_OR_ID", help=MODEL_HELP)
    group.add_argument("--device", metavar="D", help="cpu or cuda (default: cuda where there is one)")
    group.add_argument("--dtype", metavar="T", help="float32, bfloat16, float16 or float64 (default: by device)")
    count(group, "--threads", "CPU threads (default: torch's choice)")


def add_prompts(parser: argparse.ArgumentParser, limit: int | None) -> None:
    file(parser, "--prompts", "JSONL (Spec-Bench, segments, messages), or plain text", "FILE", required=True)
    shown = "all" if limit is None else str(limit)
    parser.add_argument(
        "--limit", type=whole(1), default=limit, metavar="N", help=f"read at most N prompts (default: {shown})"
    )
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


def open_target(args: argparse.Namespace) -> Target:
    """Load the model asked for, or the default one; remembered for ``specviz models``."""
    quiet()
    if args.threads:
        import torch

        torch.set_num_threads(args.threads)
    from decoders import load_target

    source = model_source(args)
    with opening() as progress:
        target = load_target(source, dtype=args.dtype, device=args.device, progress=progress)
    remember(source, target)
    return target


def quiet() -> None:
    """Keep other packages' bars, warnings and retry messages off the screen."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    import huggingface_hub
    import transformers

    huggingface_hub.logging.set_verbosity_error()

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()


def parse_sets(pairs: Sequence[str]) -> dict[str, str]:
    """``["k=12", "theta=off"]`` as a dict.

    >>> parse_sets(["k=12", "theta = off"])
    {'k': '12', 'theta': 'off'}
    """
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise UserError(f"--set {pair!r} is not of the form name=value")
        if name.strip() in found:
            raise UserError(f"--set gives {name.strip()} twice")
        found[name.strip()] = value.strip()
    return found


def chosen_methods(target: Target, names: Sequence[str], sets: Sequence[str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Methods by name with their checked parameters, and, of "all", those left out with the reason.

    ``names`` may hold commas; ``sets`` are "METHOD.name=value". Raises UserError naming what exists.
    """
    from decoders import find_method, methods
    from decoders.draft.params import make_params

    asked = [part for name in names for part in name.replace(",", " ").split()]
    if not asked:
        raise UserError(f"no method was named: choose of {', '.join(methods())}, or say all")
    everything = "all" in asked
    missing: dict[str, str] = {}
    chosen: dict[str, dict[str, str]] = {name: {} for name in (methods() if everything else dict.fromkeys(asked))}
    for name in chosen:
        find_method(name)
    for key, value in parse_sets(sets).items():
        method, dot, name = key.rpartition(".")
        if not dot or method not in chosen:
            raise UserError(
                f"--set {key}={value} is not of the form METHOD.name=value, with METHOD one of {', '.join(chosen)}"
            )
        chosen[method][name] = value
    params = {name: make_params(find_method(name).params, given) for name, given in chosen.items()}
    for name, given in list(params.items()):
        method = find_method(name)
        reason = None if method.brings(given) else method.available(target)
        if reason and not everything:
            raise UserError(reason)
        if reason:
            missing[name] = reason
            del params[name]
    return params, missing


def applicable(
    methods: dict[str, Any], missing: dict[str, str], prompts: Sequence[Prompt], names: Sequence[str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """``chosen_methods``' result without those that cannot work on every prompt; a UserError unless "all" was asked."""
    from decoders import find_method

    kept, left_out = dict(methods), dict(missing)
    for name in methods:
        lacking = [reason for prompt in prompts if (reason := find_method(name).applies(prompt))]
        if not lacking:
            continue
        count = f"{len(lacking)} of {counted(len(prompts), 'prompt')} will not do: {lacking[0]}"
        if "all" not in " ".join(names).replace(",", " ").split():
            raise UserError(f"{name} cannot run: {count}")
        left_out[name] = count
        del kept[name]
    return kept, left_out


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


@contextmanager
def progress_bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr; call it with (done, total). Nothing is drawn where stderr is not a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(error=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


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


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Write a JSON file whole or not at all."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_text(json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


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


def number(value: float | None, digits: int = 2) -> str:
    """A number for a table; a dash where there is none.

    >>> number(3.14159), number(None)
    ('3.14', '–')
    """
    return "–" if value is None else f"{value:,.{digits}f}"


def counted(count: int, noun: str) -> str:
    """A number with its noun.

    >>> counted(1, "prompt"), counted(2, "prompt")
    ('1 prompt', '2 prompts')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def shown(text: str) -> str:
    """Model text fit for a terminal: control characters, which could move the cursor or worse, become visible.

    >>> shown("a\\tb\\x1b[31m")
    'a\\tb\\\\x1b[31m'
    """
    return "".join(c if c in "\n\t" or c == "\u200d" or c.isprintable() else repr(c)[1:-1] for c in text)
