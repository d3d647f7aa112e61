"""``specviz dev``: a method in a file that is being written, drafted anew on recorded runs at every save."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decoders.errors import UserError
from specviz.commands import common, options
from specviz.words import decimals, plural, visible

if TYPE_CHECKING:
    from .live_drafts import LiveDrafts, LiveRun
    from .saves import SaveRow

MAX_STEPS = 15  # steps listed, the worst first
EXAMPLES = 3  # that are run where no run of the model is recorded

DESCRIPTION = (
    "Watch a file with a method of your own: at every save each step of recorded runs is drafted anew, and the steps "
    "are listed with the tokens won and lost against the save before and against another method, the worst first. "
    "Everything stays on this machine."
)


def add(parser: argparse.ArgumentParser) -> None:
    options.file(parser, "file", "a Python file (specviz methods new NAME writes one)", "FILE")
    parser.add_argument(
        "--traces", nargs="+", type=Path, default=[], metavar="TRACE",
        help="recorded runs of the model (default: the gallery's, as far as the model made them; else some made now)",
    )  # fmt: skip
    parser.add_argument("--against", metavar="NAME", help="another method to compare with, drafted once")
    options.add_methods(parser, "which method of the file, where it has several", is_single=True, sets=False)
    mode_group = parser.add_mutually_exclusive_group()
    options.flag(mode_group, "--once", "draft once and end; exit 1 where a step raises")
    options.flag(mode_group, "--open", "in the browser: checked, drafted and run at every save, on this machine alone")
    options.count(parser, "--port", "with --open: where the page is", 7860, low=0, high=65535)
    options.add_model(parser)


def run(args: argparse.Namespace) -> int:
    from decoders import find_method

    from .saves import digests, draft_save, rows

    if not args.file.is_file():
        raise UserError(f"there is no file {args.file}: specviz methods new NAME writes one")
    against = find_method(args.against) if args.against else None
    if args.open:
        return _page(args)
    runs = _runs(args, common.open_target(args))
    other_drafts = [live_run.draft_with(against) for live_run in runs] if against else None
    earlier_drafts: Sequence[LiveDrafts] | None = None
    for digest in digests(args.file, one_shot=args.once):
        save = draft_save(args.file, runs, options.one_method(args))
        saved_drafts = save.drafts
        if save.problem:
            common.say(save.problem)
        else:
            _show(
                args,
                rows(saved_drafts, earlier_drafts, other_drafts),
                saved_drafts,
                earlier_drafts,
                other_drafts,
                save.ms,
            )
            earlier_drafts = saved_drafts
        if args.once:
            failed = save.problem or any(step.error for drafts in saved_drafts for step in drafts.steps)
            return 1 if failed else 0
        common.say(f"watching {args.file} ({digest[:8]}); Ctrl-C ends", error=True)
    return 0


def _page(args: argparse.Namespace) -> int:
    """The app on this machine, with the page "Method"."""
    from specviz.app import serve

    def watch(desk: Any) -> str:
        page = desk.services["dev"]
        page.watch(args.file, method=options.one_method(args), against=args.against, traces=args.traces)
        return page.name

    serve(args.model, port=args.port, open_browser=True, prepare=watch, **options.model_arguments(args))
    return 0


def _runs(args: argparse.Namespace, target: Any) -> list[LiveRun]:
    """The recorded runs, read by the model."""
    from decoders import load
    from specviz.places import GALLERY
    from specviz.views.examples import titled_prompts

    from .live_drafts import LiveRun
    from .saves import default_traces

    traces = [load(path) for path in args.traces]
    if not traces:
        gallery = (load(path) for path in sorted(GALLERY.glob("*.spectrace")))
        prompts = titled_prompts(target.tokenizer, EXAMPLES, toy=common.wants_toy(args))
        traces = default_traces(target, gallery, prompts)
    return [LiveRun(target, trace) for trace in traces]


def _show(
    args: argparse.Namespace, all_rows: list[SaveRow], saved_drafts: Sequence[LiveDrafts],
    earlier_drafts: Sequence[LiveDrafts] | None,
    other_drafts: Sequence[LiveDrafts] | None, ms: float,
) -> None:  # fmt: skip
    """The worst steps, and all of them in one line."""
    from .saves import changes, mean

    shown_rows = [row for row in all_rows if row.step.error or row.change][:MAX_STEPS]
    if shown_rows:
        heads = ("run", "step", "recorded", args.against or "–", "last save", "now", "±", "why")
        cells = [
            (
                row.run + 1, row.step.step + 1, row.step.recorded, _cell(row.against), _cell(row.accepted_before),
                "error" if row.step.error else row.step.accepted, "" if row.step.error else f"{row.change:+d}",
                visible(row.step.error.partition(" failed in ")[2] or row.step.error or row.step.reason),
            )
            for row in shown_rows
        ]  # fmt: skip
        common.show_table(heads, cells)
    win_count, loss_count = changes(all_rows)
    base = "the last save" if earlier_drafts is not None else args.against or "the record"
    parts = [
        f"{decimals(mean(saved_drafts), 2)} tokens per step",
        *([f"last save {decimals(mean(earlier_drafts), 2)}"] if earlier_drafts is not None else []),
        *([f"{args.against} {decimals(mean(other_drafts), 2)}"] if other_drafts is not None else []),
        f"{win_count} won and {loss_count} lost against {base}",
        f"{plural(len(all_rows), 'step')} in {ms:.0f} ms",
    ]
    common.say(" · ".join(parts))
    if any(drafts.scored for drafts in saved_drafts):
        common.say("It learns or accepts in its own way, so the model scored every draft: that takes its time.")
    for details in list(dict.fromkeys(row.step.details for row in all_rows if row.step.details))[:2]:
        common.say("", details.rstrip())


def _cell(value: int | None) -> str:
    return "–" if value is None else str(value)
